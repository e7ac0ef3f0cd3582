"""Which rows every optimizer step takes: a function of seed and config alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

import torch
from torch.utils.data import DataLoader

from custom_components.datasets.collate import Batch, collate
from custom_components.datasets.sampler import GlobalBatchSampler
from custom_components.datasets.sft import SupervisedDataset
from custom_components.errors import UserError


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """The data of a run, cut into optimizer steps for one rank.

    Args:
        dataset: Tokenised rows.
        batch_size: Rows a rank takes in one micro-step.
        gradient_accumulation_steps: Micro-steps an optimizer step.
        world_size: Ranks.
        rank: This rank.
        seed: Of the permutation, new every epoch.
        shuffle: False keeps the file's order.
        pad_id: Token that fills rows of unequal length.
        epochs: Passes over the data; None leaves the end to ``max_steps``.
        max_steps: Optimizer steps in all; None leaves the end to ``epochs``.
    """

    dataset: SupervisedDataset
    batch_size: int
    gradient_accumulation_steps: int
    world_size: int
    rank: int
    seed: int
    shuffle: bool
    pad_id: int
    epochs: int | None
    max_steps: int | None

    @property
    def samples_per_step(self) -> int:
        """Rows in a full optimizer step, over all ranks and micro-steps."""
        return self.batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass; the last may be smaller and is weighted correctly."""
        return -(-len(self.dataset) // self.samples_per_step)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run.

        Raises:
            UserError: If there is no row, or nothing says when to stop.
        """
        if self.steps_per_epoch == 0:
            raise UserError(
                f"dataset has {len(self.dataset)} usable rows, which makes 0 optimizer steps; "
                "check dataset.source and the rows that were dropped"
            )
        limits = [self.max_steps] if self.max_steps is not None else []
        limits += [self.epochs * self.steps_per_epoch] if self.epochs is not None else []
        if not limits:
            raise UserError("epochs and max_steps are both null; set at least one of them")
        return min(limits)

    def steps(self) -> Iterator[list[Batch]]:
        """Yield this rank's micro-batches, one list an optimizer step, ``num_steps`` of them."""
        return islice(self._endless_steps(), self.num_steps)

    def _endless_steps(self) -> Iterator[list[Batch]]:
        for epoch in count():
            sampler = GlobalBatchSampler(
                len(self.dataset),
                batch_size=self.batch_size,
                world_size=self.world_size,
                rank=self.rank,
                gradient_accumulation_steps=self.gradient_accumulation_steps,
                seed=self.seed,
                shuffle=self.shuffle,
                epoch=epoch,
            )
            loader = DataLoader(
                self.dataset,
                batch_sampler=sampler,
                collate_fn=partial(collate, pad_id=self.pad_id),
                generator=torch.Generator(),  # the loader must not draw from training's RNG
            )
            batches = iter(loader)
            for window in range(self.steps_per_epoch):
                yield [next(batches) for _ in range(sampler.micro_steps(window))]
