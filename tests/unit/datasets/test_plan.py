"""The data plan: how many steps, what the last one holds, what is refused."""

import pytest

from custom_components.datasets.plan import DataPlan
from custom_components.errors import UserError


def build_plan(num_rows: int, **kwargs) -> DataPlan:
    rows = [
        {"tokens": [1, 2 + i], "labels": [-100, 2 + i], "id": f"f:{i}"} for i in range(num_rows)
    ]
    settings = {
        "batch_size": 1, "gradient_accumulation_steps": 1, "world_size": 1, "rank": 0, "seed": 0,
        "shuffle": False, "pad_id": 0, "epochs": 1, "max_steps": None,
    }  # fmt: skip
    return DataPlan(dataset=rows, **(settings | kwargs))


def read_ids(plan: DataPlan) -> list[list[list[str]]]:
    return [[batch.ids for batch in step] for step in plan.steps()]


def test_rows_left_over_make_a_smaller_last_step_of_the_same_epoch() -> None:
    """Torchtune leaks their gradients into the next epoch or drops them (#2745)."""
    plan = build_plan(5, gradient_accumulation_steps=2, epochs=2)
    epoch = [[["f:0"], ["f:1"]], [["f:2"], ["f:3"]], [["f:4"]]]
    assert (plan.steps_per_epoch, plan.num_steps) == (3, 6)
    assert read_ids(plan) == epoch + epoch


def test_three_rows_with_accumulation_eight_make_one_step_of_three() -> None:
    """Other toolkits make no step at all of it (huggingface/transformers#2995)."""
    plan = build_plan(3, gradient_accumulation_steps=8)
    assert read_ids(plan) == [[["f:0"], ["f:1"], ["f:2"]]]


def test_fewer_rows_than_ranks_leave_some_ranks_an_empty_batch() -> None:
    ids = [read_ids(build_plan(2, batch_size=2, world_size=4, rank=rank)) for rank in range(4)]
    assert ids == [[[["f:0"]]], [[["f:1"]]], [[[]]], [[[]]]]


def test_max_steps_and_epochs_end_the_run_whichever_comes_first() -> None:
    assert build_plan(5, epochs=2).num_steps == 10
    assert build_plan(5, epochs=2, max_steps=7).num_steps == 7
    assert build_plan(5, epochs=1, max_steps=7).num_steps == 5
    assert build_plan(5, epochs=None, max_steps=7).num_steps == 7
    assert len(read_ids(build_plan(5, epochs=None, max_steps=7))) == 7


def test_no_rows_and_no_end_are_refused_with_the_numbers() -> None:
    """Torchtune writes a checkpoint after zero steps."""
    with pytest.raises(UserError, match="0 usable rows, which makes 0 optimizer steps"):
        _ = build_plan(0).num_steps
    with pytest.raises(UserError, match="epochs and max_steps are both null"):
        _ = build_plan(3, epochs=None).num_steps


def test_the_seed_and_the_epoch_change_the_order_and_nothing_else_does() -> None:
    """Torchtune's recipes shuffle with seed 0 whatever the config says (#2339)."""
    rows = {"shuffle": True, "batch_size": 20}

    def order(**kwargs) -> list[str]:
        return [
            id_ for step in read_ids(build_plan(20, **rows, **kwargs)) for b in step for id_ in b
        ]

    assert sorted(order()) == sorted(f"f:{i}" for i in range(20))
    assert order(seed=1) == order(seed=1) != order(seed=2)
    two_epochs = order(epochs=2)
    assert two_epochs[:20] == order() and two_epochs[20:] != order()
