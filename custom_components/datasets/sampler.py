"""Which rows a rank takes, micro-step by micro-step: plain arithmetic on a seeded permutation.

A window of ``batch_size * world_size * gradient_accumulation_steps`` rows is one optimizer step.
The set of rows in a window depends on its size alone, never on how ranks and micro-steps share it.
"""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


class GlobalBatchSampler(Sampler[list[int]]):
    """Yields this rank's micro-batches of one epoch, as lists of indices.

    The last window of an epoch may be smaller. It has the same number of micro-steps on every
    rank, and some of its micro-batches may be empty.

    Args:
        num_samples: Rows in the data set.
        batch_size: Rows a rank takes in one micro-step.
        world_size: Ranks.
        rank: This rank.
        gradient_accumulation_steps: Micro-steps in a full window.
        seed: Of the permutation.
        shuffle: False keeps the rows in order.
        epoch: Counted from 0; every epoch has its own permutation.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        batch_size: int,
        world_size: int,
        rank: int,
        gradient_accumulation_steps: int,
        seed: int,
        shuffle: bool,
        epoch: int,
    ) -> None:
        self._num_samples = num_samples
        self._rows_per_micro_step = batch_size * world_size
        self._rows_per_window = self._rows_per_micro_step * gradient_accumulation_steps
        self._world_size = world_size
        self._rank = rank
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = epoch

    def micro_steps(self, window: int) -> int:
        """Return the number of micro-steps of a window, the same on every rank."""
        rows = min(self._rows_per_window, self._num_samples - window * self._rows_per_window)
        return -(-rows // self._rows_per_micro_step)

    def _order(self) -> list[int]:
        if not self._shuffle:
            return list(range(self._num_samples))
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        return torch.randperm(self._num_samples, generator=generator).tolist()

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        for window in range(0, self._num_samples, self._rows_per_window):
            rows = order[window : window + self._rows_per_window]
            for start in range(0, len(rows), self._rows_per_micro_step):
                micro_step = rows[start : start + self._rows_per_micro_step]
                yield micro_step[self._rank :: self._world_size]
