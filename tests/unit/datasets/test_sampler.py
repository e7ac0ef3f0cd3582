"""The order of sequences and its sharing among ranks and micro-steps."""

import numpy as np
import pytest

from custom_components.datasets.sampler import GlobalBatchSampler, SequenceOrder

LENGTHS = np.random.default_rng(0).integers(1, 31, 10_000)


def build_order(num_rows=23, **options):
    values = {
        "lengths": LENGTHS[:num_rows], "seed": 0, "shuffle": True, "capacity": None,
        "group_by_length": False, **options,
    }  # fmt: skip
    return SequenceOrder(**values)


def sampler(num_rows=23, rank=0, *, epoch=0, order=None, **options):
    values = {"batch_size": 2, "world_size": 2, "gradient_accumulation_steps": 2}
    mine = {key: options.pop(key, value) for key, value in values.items()}
    built = GlobalBatchSampler(order or build_order(num_rows, **options), rank=rank, **mine)
    built.epoch = epoch
    return built


def windows(num_rows, batch_size, world_size, accumulation, **options):
    """Return the sequences of every optimizer step, over all ranks, in no particular order."""
    order = build_order(num_rows, **options)
    size = batch_size * world_size * accumulation
    num_windows = -(-order.num_sequences // size)
    steps = [[] for _ in range(num_windows)]
    for rank in range(world_size):
        ours = sampler(
            order=order,
            rank=rank,
            batch_size=batch_size,
            world_size=world_size,
            gradient_accumulation_steps=accumulation,
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


@pytest.mark.parametrize("options", [{}, {"capacity": 40}, {"group_by_length": True}])
@pytest.mark.parametrize("num_rows", [1, 7, 8, 9, 16, 23, 31, 200])
def test_step_holds_the_same_rows_however_ranks_and_micro_steps_share_it(num_rows, options):
    reference = windows(num_rows, *SHARINGS[0], **options)
    rows = sorted(row for step in reference for sequence in step for row in sequence)
    assert rows == list(range(num_rows))
    for sharing in SHARINGS[1:]:
        assert windows(num_rows, *sharing, **options) == reference


def test_rows_are_shared_by_hand_worked_example():
    """7 rows, 2 ranks of batch 2, in order: micro-step 0 takes rows 0-3, micro-step 1 rows 4-6."""
    options = {"shuffle": False, "gradient_accumulation_steps": 3}
    assert list(sampler(7, 0, **options)) == [[[0], [2]], [[4], [6]]]
    assert list(sampler(7, 1, **options)) == [[[1], [3]], [[5]]]
    assert sampler(7, 0, **options).micro_steps(0) == 2


def test_partial_last_step_has_equally_many_micro_steps_on_every_rank():
    """9 rows in windows of 8: one row is left, rank 1 still takes part with no row."""
    for rank, last in ((0, [[8]]), (1, [])):
        ours = sampler(9, rank, shuffle=False)
        assert [ours.micro_steps(window) for window in (0, 1)] == [2, 1]
        assert list(ours)[-1] == last


def sequences(**options):
    return [s for batch in sampler(100, world_size=1, **options) for s in batch]


@pytest.mark.parametrize("options", [{}, {"capacity": 40}, {"group_by_length": True}])
def test_configured_seed_changes_the_order(options):
    """torchtune#2339: its recipes always shuffle with seed 0."""
    orders = [sequences(seed=seed, **options) for seed in range(4)]
    assert len({str(order) for order in orders}) == 4
    assert orders[1] == sequences(seed=1, **options)
    assert all(sorted(r for s in order for r in s) == list(range(100)) for order in orders)


@pytest.mark.parametrize("options", [{}, {"capacity": 40}, {"group_by_length": True}])
def test_epochs_differ_and_no_epoch_is_another_seeds(options):
    orders = {
        str(sequences(seed=seed, epoch=epoch, **options)) for seed in range(4) for epoch in range(4)
    }
    assert len(orders) == 16


def test_rows_keep_their_order_without_shuffling():
    assert sequences(shuffle=False, seed=3, epoch=2) == [[row] for row in range(100)]


def test_an_epoch_packs_rows_with_others_than_the_one_before():
    together = [
        {frozenset(s) for s in sequences(capacity=40, epoch=epoch, batch_size=1)}
        for epoch in range(2)
    ]
    assert together[0] != together[1]
    assert len(together[0]) == len(together[1]) == build_order(100, capacity=40).num_sequences


def test_packs_stand_in_the_order_of_their_first_rows_without_shuffling():
    first_rows = [min(rows) for rows in sequences(capacity=40, shuffle=False)]
    assert first_rows == sorted(first_rows)


def count_padding(**options):
    """Return the share of padding over an epoch of all lengths, batches padded to the longest."""
    ours = sampler(order=build_order(len(LENGTHS), **options), batch_size=8, world_size=1)
    batches = [[int(LENGTHS[row]) for (row,) in batch] for batch in ours]
    return 1 - LENGTHS.sum() / sum(max(batch) * len(batch) for batch in batches)


def test_grouping_by_length_all_but_removes_padding():
    """Eight lengths drawn from 1 to 30 have a mean of 15.5 and, as longest, about 27.1."""
    assert count_padding() == pytest.approx(1 - 15.5 / 27.1, abs=0.01)
    assert count_padding(group_by_length=True) < 0.05


def test_grouped_windows_mix_short_and_long_ones_over_the_epoch():
    """Sorted from short to long, training would see the data in that order."""
    ours = sampler(order=build_order(len(LENGTHS), group_by_length=True), world_size=1)
    means = [np.mean([LENGTHS[row] for (row,) in batch]) for batch in ours]
    halves = np.mean(means[: len(means) // 2]), np.mean(means[len(means) // 2 :])
    assert abs(halves[0] - halves[1]) < 2


def test_micro_steps_of_several_blocks_hold_like_lengths():
    """A micro-step of 128 rows is two blocks of 64: a window of 16 is sorted before it is cut.

    Two of 16 sorted blocks that span 1 to 30 span about 4; two drawn at random about 10.
    """
    ours = sampler(
        order=build_order(4096, group_by_length=True), batch_size=128, world_size=1,
        gradient_accumulation_steps=8,
    )  # fmt: skip
    spreads = [np.ptp([LENGTHS[row] for (row,) in batch]) for batch in ours]
    assert np.mean(spreads) < 6
