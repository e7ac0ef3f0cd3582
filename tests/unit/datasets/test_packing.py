"""Packing against a plain best-fit-decreasing loop, and at the size of a large data set."""

import custom_components.compat  # noqa: F401

import time
from pathlib import Path

import numpy as np
import pytest

from custom_components.benchmarks.lora_step import CHECKPOINT
from custom_components.benchmarks.packing import build_plan, write_jfleg
from custom_components.datasets.grammar import grammar_dataset
from custom_components.datasets.packing import Packs, count_packs, pack
from custom_components.models.smollm2_tokenizer import smollm2_tokenizer


def pack_one_by_one(lengths: list[int], capacity: int) -> list[int]:
    """Best fit decreasing as a textbook has it; returns what is left free in each pack."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fits = [(room, number) for number, room in enumerate(rooms) if room >= length]
        if fits:
            rooms[min(fits)[1]] -= length
        else:
            rooms.append(capacity - length)
    return sorted(rooms)


def read_rooms(packs: Packs, lengths: np.ndarray, capacity: int) -> list[int]:
    return sorted(capacity - int(lengths[packs[i]].sum()) for i in range(len(packs)))


@pytest.mark.parametrize("kind", ["uniform", "short", "few lengths"])
def test_packs_are_those_of_placing_row_by_row(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        capacity, num_rows = int(rng.integers(1, 60)), int(rng.integers(0, 120))
        lengths = rng.integers(1, capacity + 1, num_rows)
        if kind == "short":
            lengths = np.clip(rng.exponential(capacity / 6 + 1, num_rows), 1, capacity).astype(int)
        if kind == "few lengths":
            lengths = rng.choice(lengths[:3], num_rows) if num_rows else lengths
        packs = pack(lengths, capacity=capacity, order=rng.permutation(num_rows))
        assert sorted(packs.rows.tolist()) == list(range(num_rows))
        assert read_rooms(packs, lengths, capacity) == pack_one_by_one(lengths.tolist(), capacity)
        assert count_packs(lengths, capacity=capacity) == len(packs)


def test_packs_agree_with_the_case_worked_out_by_hand() -> None:
    """7 leaves 3; 5 opens a pack; 4 fits beside 5 and leaves 1; 3 fills the first; 2 opens one."""
    packs = pack(np.array([2, 3, 4, 5, 7]), capacity=10)
    assert [packs[i] for i in range(len(packs))] == [[4, 1], [3, 2], [0]]


def test_no_token_is_lost_where_a_row_just_misses_the_room_left() -> None:
    """Rows of 30 and one of 60 in packs of 60 (pytorch/torchtune#1059)."""
    packs = pack(np.array([30] * 10 + [60]), capacity=60)
    assert read_rooms(packs, np.array([30] * 10 + [60]), 60) == [0] * 6


def test_order_decides_who_meets_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 40, 500)
    orders = [rng.permutation(500) for _ in range(2)]
    one, other = (pack(lengths, capacity=100, order=order) for order in orders)
    assert {tuple(one[i]) for i in range(len(one))} != {tuple(other[i]) for i in range(len(other))}
    assert read_rooms(one, lengths, 100) == read_rooms(other, lengths, 100)
    again = pack(lengths, capacity=100, order=orders[0])
    assert again.rows.tolist() == one.rows.tolist() and again.starts.tolist() == one.starts.tolist()


def test_equal_lengths_are_neighbours_inside_a_pack() -> None:
    lengths = np.random.default_rng(2).integers(1, 9, 300)
    packs = pack(lengths, capacity=64)
    for i in range(len(packs)):
        assert lengths[packs[i]].tolist() == sorted(lengths[packs[i]], reverse=True)


def test_packs_are_reordered_whole() -> None:
    packs = pack(np.array([2, 3, 4, 5, 7]), capacity=10).reorder(np.array([2, 0, 1]))
    assert [packs[i] for i in range(len(packs))] == [[0], [4, 1], [3, 2]]


def test_a_million_rows_are_packed_in_under_five_seconds() -> None:
    rng = np.random.default_rng(3)
    lengths = np.clip(rng.lognormal(5, 1, 1_000_000), 1, 2048).astype(np.int64)
    order = rng.permutation(len(lengths))
    started = time.perf_counter()
    packs = pack(lengths, capacity=2048, order=order)
    assert time.perf_counter() - started < 5
    assert 1 - lengths.sum() / (len(packs) * 2048) < 0.001


def test_jfleg_leaves_at_most_two_percent_of_2048_as_padding(
    data_dir: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    write_jfleg(data_dir / "jfleg", rows)
    tokenizer = smollm2_tokenizer(CHECKPOINT)
    dataset = grammar_dataset(tokenizer, source=str(rows), max_seq_len=2048)
    plan = build_plan(dataset, batch_size=4, packed=True, pad_id=tokenizer.pad_id)
    batches = [batch for step in plan.steps() for batch in step]
    inputs = int((dataset.lengths - 1).sum())
    assert sum(batch.num_tokens for batch in batches) == inputs
    assert 1 - inputs / sum(batch.num_positions for batch in batches) <= 0.02
    assert 1 - inputs / (plan.num_sequences * 2048) <= 0.02
