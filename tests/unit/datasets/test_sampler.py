import pytest

from custom_components.datasets.sampler import GlobalBatchSampler


def sampler(num_samples=23, rank=0, **options):
    values = {
        "batch_size": 2, "world_size": 2, "gradient_accumulation_steps": 2, "seed": 0,
        "shuffle": True, "epoch": 0, **options,
    }  # fmt: skip
    return GlobalBatchSampler(num_samples, rank=rank, **values)


def windows(num_samples, batch_size, world_size, accumulation, **options):
    """Return the rows of every optimizer step, over all ranks, in no particular order."""
    size = batch_size * world_size * accumulation
    num_windows = -(-num_samples // size)
    steps = [[] for _ in range(num_windows)]
    for rank in range(world_size):
        ours = sampler(
            num_samples,
            rank,
            batch_size=batch_size,
            world_size=world_size,
            gradient_accumulation_steps=accumulation,
            **options,
        )
        batches = iter(ours)
        for window in range(num_windows):
            for _ in range(ours.micro_steps(window)):
                batch = next(batches)
                assert len(batch) <= batch_size
                steps[window] += batch
        assert next(batches, None) is None
    return [sorted(step) for step in steps]


SHARINGS = [(8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2), (1, 4, 2), (4, 1, 2)]


@pytest.mark.parametrize("num_samples", [1, 7, 8, 9, 16, 23, 31])
def test_step_holds_the_same_rows_however_ranks_and_micro_steps_share_it(num_samples):
    reference = windows(num_samples, *SHARINGS[0])
    assert sorted(row for step in reference for row in step) == list(range(num_samples))
    for sharing in SHARINGS[1:]:
        assert windows(num_samples, *sharing) == reference


def test_rows_are_shared_by_hand_worked_example():
    """7 rows, 2 ranks of batch 2, in order: micro-step 0 takes rows 0-3, micro-step 1 rows 4-6."""
    options = {"shuffle": False, "gradient_accumulation_steps": 3}
    assert list(sampler(7, 0, **options)) == [[0, 2], [4, 6]]
    assert list(sampler(7, 1, **options)) == [[1, 3], [5]]
    assert sampler(7, 0, **options).micro_steps(0) == 2


def test_partial_last_step_has_equally_many_micro_steps_on_every_rank():
    """9 rows in windows of 8: one row is left, rank 1 still takes part with no row."""
    for rank, last in ((0, [8]), (1, [])):
        ours = sampler(9, rank, shuffle=False)
        assert [ours.micro_steps(window) for window in (0, 1)] == [2, 1]
        assert list(ours)[-1] == last


def order(**options):
    return [row for batch in sampler(100, world_size=1, **options) for row in batch]


def test_configured_seed_changes_the_order():
    """torchtune#2339: its recipes always shuffle with seed 0."""
    orders = [order(seed=seed) for seed in range(4)]
    assert len({tuple(rows) for rows in orders}) == 4
    assert orders[1] == order(seed=1)
    assert all(sorted(rows) == list(range(100)) for rows in orders)


def test_epochs_differ_and_no_epoch_is_another_seeds():
    orders = {tuple(order(seed=seed, epoch=epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_rows_keep_their_order_without_shuffling():
    assert order(shuffle=False, seed=3, epoch=2) == list(range(100))
