"""The data plan: how many steps, what the last one holds, what is refused."""

import random

import numpy as np
import pytest
import torch

from custom_components.datasets.collate import Batch
from custom_components.datasets.plan import DataPlan
from custom_components.errors import UserError
from custom_components.options import DataLoaderOptions
from tests.sample_list import SampleList


def build_row(number: int, length: int) -> dict:
    return {
        "tokens": [1, *[2 + number] * (length - 1)],
        "labels": [-100, *[2 + number] * (length - 1)],
        "id": f"f:{number}",
    }


def build_plan(num_rows: int, **kwargs) -> DataPlan:
    return build_plan_of([build_row(i, 2) for i in range(num_rows)], **kwargs)


def build_plan_of(rows: list[dict], *, max_seq_len: int = 64, **kwargs) -> DataPlan:
    settings = {
        "batch_size": 1, "gradient_accumulation_steps": 1, "world_size": 1, "rank": 0, "seed": 0,
        "shuffle": False, "pad_id": 0, "epochs": 1, "max_steps": None,
    }  # fmt: skip
    dataset = SampleList(rows, max_seq_len=max_seq_len)
    return DataPlan(dataset=dataset, **(settings | kwargs))


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


UNEQUAL = [build_row(i, length) for i, length in enumerate([9, 3, 14, 6, 2, 11, 7, 5, 13, 4, 8])]


def describe(batches: list[Batch]) -> list[tuple]:
    return [
        (b.tokens.tolist(), b.positions.tolist(), b.targets.tolist(), b.ids, b.documents)
        for b in batches
    ]


def test_steps_of_packs_hold_every_token_once_an_epoch() -> None:
    """82 tokens make 71 inputs, in packs of at most 20: four or more of them."""
    plan = build_plan_of(UNEQUAL, max_seq_len=20, packed=True, batch_size=2, epochs=3, shuffle=True)
    epochs = list(zip(*[iter(plan.steps())] * plan.steps_per_epoch, strict=True))
    assert len(epochs) == 3 and plan.num_sequences == 4 and plan.steps_per_epoch == 2
    for epoch in epochs:
        batches = [batch for step in epoch for batch in step]
        assert sorted(id_ for b in batches for id_ in b.ids) == sorted(r["id"] for r in UNEQUAL)
        assert sum(b.num_tokens for b in batches) == sum(b.num_supervised for b in batches) == 71
        assert all(sum(row) <= 20 for b in batches for row in b.documents)
    assert len({str(describe([b for step in epoch for b in step])) for epoch in epochs}) == 3


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_workers_make_the_same_batches(packed: bool, persistent_workers: bool) -> None:
    settings = {"packed": packed, "batch_size": 2, "epochs": 3, "shuffle": True, "max_seq_len": 20}
    workers = DataLoaderOptions(
        num_workers=2, prefetch_factor=3, persistent_workers=persistent_workers
    )
    plans = [
        build_plan_of(UNEQUAL, **settings, dataloader=d) for d in (workers, DataLoaderOptions())
    ]
    ours, expected = ([describe(step) for step in plan.steps()] for plan in plans)
    assert ours == expected and len(expected) == plans[0].num_steps


@pytest.mark.parametrize("num_workers", [0, 1])
def test_loading_draws_nothing_from_the_random_states_of_training(num_workers: int) -> None:
    """Else a run would change with its loader, and a validation would change what follows it."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    options = DataLoaderOptions(num_workers=num_workers)
    plan = build_plan_of(UNEQUAL, packed=True, shuffle=True, epochs=2, dataloader=options)
    for _ in plan.steps():
        pass
    for _ in plan.epoch_batches():
        pass
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 4, 5])
def test_validation_sees_every_row_once_in_as_many_batches_on_every_rank(
    world_size: int, packed: bool
) -> None:
    """Ranks that run different numbers of forwards hang under sharding."""
    plans = [
        build_plan_of(
            UNEQUAL, batch_size=1, world_size=world_size, rank=rank, packed=packed, max_seq_len=20,
            shuffle=True, gradient_accumulation_steps=3,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    epochs = [list(plan.epoch_batches()) for plan in plans]
    assert {len(batches) for batches in epochs} == {-(-plans[0].num_sequences // world_size)}
    ids = [id_ for batches in epochs for batch in batches for id_ in batch.ids]
    assert sorted(ids) == sorted(row["id"] for row in UNEQUAL)
    assert [describe(list(plan.epoch_batches())) for plan in plans] == list(map(describe, epochs))


def test_validation_puts_rows_of_like_length_together() -> None:
    """Lengths sorted: inputs of 1 2 3 4 | 5 6 7 8 | 10 12 13."""
    batches = list(build_plan_of(UNEQUAL, batch_size=4).epoch_batches())
    assert [batch.tokens.shape for batch in batches] == [(4, 4), (4, 8), (3, 13)]


def test_batches_go_to_the_plans_device() -> None:
    plan = build_plan_of(UNEQUAL, packed=True, device=torch.device("meta"))
    batches = [*next(plan.steps()), next(plan.epoch_batches())]
    assert {b.tokens.device.type for b in batches} == {"meta"}
    assert {b.input_pos.device.type for b in batches} == {"meta"}


def test_options_of_the_loader_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moves, loaders = [], []
    to, init = Batch.to, torch.utils.data.DataLoader.__init__

    def note_move(self: Batch, device: torch.device, *, non_blocking: bool = False) -> Batch:
        moves.append(non_blocking)
        return to(self, device)

    def note_loader(self, *args, **kwargs) -> None:
        loaders.append(kwargs)
        init(
            self,
            *args,
            **(
                kwargs
                | {"pin_memory": False, "num_workers": 0}
                | {"prefetch_factor": None, "persistent_workers": False}
            ),
        )

    monkeypatch.setattr(Batch, "to", note_move)
    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", note_loader)
    values = {
        "num_workers": 3, "prefetch_factor": 5, "persistent_workers": True, "pin_memory": True,
    }  # fmt: skip
    for non_blocking in (True, False):
        options = DataLoaderOptions(**values, non_blocking=non_blocking)
        next(build_plan(1, dataloader=options).steps())
    assert moves == [True, False]
    assert all(loader.items() >= values.items() for loader in loaders) and len(loaders) == 2
