"""Which rows a rank takes, micro-step by micro-step: plain arithmetic on a seeded order.

What a batch is made of are sequences: single rows, or packs of rows. Their order over an epoch is a
function of the row lengths, the seed and the epoch. A window of ``batch_size * world_size *
gradient_accumulation_steps`` sequences is one optimizer step; which sequences it holds depends on
its size alone, never on how ranks and micro-steps share it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.utils.data import Sampler

from custom_components.datasets.packing import Integers, Packs, count_packs, pack

_CHUNK_ROWS = 4096
_BLOCK_ROWS = 64


@dataclass(frozen=True, kw_only=True)
class SequenceOrder:
    """The sequences of every epoch, in order.

    Args:
        lengths: Input positions of every row, ``[num_rows]``.
        seed: Of the permutation.
        shuffle: False keeps rows in order (by length if they are grouped), and packs in the order
            of their first rows.
        capacity: Rows are packed into sequences of so many positions; None leaves them single.
        group_by_length: Single rows of like length stand together: a permutation is cut into
            chunks of 4096 rows, which are sorted by length and cut into blocks of 64, which are
            shuffled.
    """

    lengths: Integers
    seed: int
    shuffle: bool
    capacity: int | None
    group_by_length: bool

    @cached_property
    def num_sequences(self) -> int:
        """Sequences in an epoch: the same in every one."""
        if self.capacity is None:
            return len(self.lengths)
        return count_packs(self.lengths, capacity=self.capacity)

    def build(self, epoch: int) -> Packs:
        """Return the sequences of an epoch, counted from 0; each has its own permutation."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = self._permute(len(self.lengths), generator)
        if self.capacity is not None:
            packs = pack(self.lengths, capacity=self.capacity, order=order)
            if self.shuffle:
                return packs.reorder(self._permute(len(packs), generator))
            return packs.reorder(np.argsort(np.minimum.reduceat(packs.rows, packs.starts[:-1])))
        if self.group_by_length:
            order = self._group(order, generator)
        return Packs.of_single_rows(order)

    def _permute(self, count: int, generator: torch.Generator) -> Integers:
        return (
            torch.randperm(count, generator=generator).numpy() if self.shuffle else np.arange(count)
        )

    def _group(self, order: Integers, generator: torch.Generator) -> Integers:
        chunks = [order[at : at + _CHUNK_ROWS] for at in range(0, len(order), _CHUNK_ROWS)]
        chunks = [rows[np.argsort(self.lengths[rows], kind="stable")] for rows in chunks]
        blocks = [
            rows[at : at + _BLOCK_ROWS]
            for rows in chunks
            for at in range(0, len(rows), _BLOCK_ROWS)
        ]
        shuffled = [blocks[i] for i in self._permute(len(blocks), generator).tolist()]
        return np.concatenate([order[:0], *shuffled])

    def sort_window(self, sequences: list[list[int]]) -> list[list[int]]:
        """Return a window's sequences, so that a micro-step's are of like length if grouped."""
        if not self.group_by_length:
            return sequences
        return sorted(sequences, key=lambda rows: int(self.lengths[rows[0]]))


class GlobalBatchSampler(Sampler[list[list[int]]]):
    """Yields this rank's micro-batches of one epoch, as lists of sequences of row indices.

    The last window of an epoch may be smaller. It has the same number of micro-steps on every
    rank, and some of its micro-batches may be empty.

    Args:
        order: Of the sequences.
        batch_size: Sequences a rank takes in one micro-step.
        world_size: Ranks.
        rank: This rank.
        gradient_accumulation_steps: Micro-steps in a full window.

    Attributes:
        epoch: The epoch that is yielded next, counted from 0.
    """

    def __init__(
        self,
        order: SequenceOrder,
        *,
        batch_size: int,
        world_size: int,
        rank: int,
        gradient_accumulation_steps: int,
    ) -> None:
        self.epoch = 0
        self._order = order
        self._per_micro_step = batch_size * world_size
        self._per_window = self._per_micro_step * gradient_accumulation_steps
        self._world_size = world_size
        self._rank = rank

    def micro_steps(self, window: int) -> int:
        """Return the number of micro-steps of a window, the same on every rank."""
        left = self._order.num_sequences - window * self._per_window
        return -(-min(self._per_window, left) // self._per_micro_step)

    def __iter__(self) -> Iterator[list[list[int]]]:
        packs = self._order.build(self.epoch)
        for start in range(0, len(packs), self._per_window):
            stop = min(start + self._per_window, len(packs))
            window = self._order.sort_window([packs[i] for i in range(start, stop)])
            for first in range(0, len(window), self._per_micro_step):
                micro_step = window[first : first + self._per_micro_step]
                yield micro_step[self._rank :: self._world_size]
