"""Which rows every optimizer step takes: a function of seed and config alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count, islice

import torch
from torch.utils.data import DataLoader, Dataset

from custom_components.datasets.collate import Batch, Sample, collate, collate_packs
from custom_components.datasets.sampler import GlobalBatchSampler, SequenceOrder
from custom_components.datasets.supervised import SupervisedDataset
from custom_components.errors import UserError
from custom_components.options import DataLoaderOptions


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """The data of a run, cut into optimizer steps for one rank.

    A batch is made of sequences: rows, or packs of rows of at most ``dataset.max_seq_len`` input
    positions.

    Args:
        dataset: Tokenised rows.
        batch_size: Sequences a rank takes in one micro-step.
        gradient_accumulation_steps: Micro-steps an optimizer step.
        world_size: Ranks.
        rank: This rank.
        seed: Of the permutation, new every epoch.
        shuffle: False keeps the file's order.
        pad_id: Token that fills rows of unequal length.
        epochs: Passes over the data; None leaves the end to ``max_steps``.
        max_steps: Optimizer steps in all; None leaves the end to ``epochs``.
        packed: Pack the rows anew every epoch.
        group_by_length: Rows of like length share a batch; not for packs, which are all full.
        dataloader: How batches are prepared.
        device: Where batches go.
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
    packed: bool = False
    group_by_length: bool = False
    dataloader: DataLoaderOptions = field(default_factory=DataLoaderOptions)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @cached_property
    def num_sequences(self) -> int:
        """Rows, or packs if packed, of one pass."""
        return self._order(shuffle=False).num_sequences

    @property
    def sequences_per_step(self) -> int:
        """Sequences in a full optimizer step, over all ranks and micro-steps."""
        return self.batch_size * self.gradient_accumulation_steps * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass; the last may be smaller and is weighted correctly."""
        return -(-self.num_sequences // self.sequences_per_step)

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
        sampler = self._sampler(self._order(shuffle=self.shuffle), self.gradient_accumulation_steps)
        loader = self._loader(sampler)
        for epoch in count():
            sampler.epoch = epoch
            batches = iter(loader)
            for window in range(self.steps_per_epoch):
                micro_steps = islice(batches, sampler.micro_steps(window))
                yield [self._move(batch) for batch in micro_steps]

    def epoch_batches(self) -> Iterator[Batch]:
        """Yield this rank's batches of one pass for validation, as many on every rank.

        Their order is fixed, rows of like length together; some may be empty.
        """
        return map(self._move, self._epoch_loader)

    @cached_property
    def _epoch_loader(self) -> "DataLoader[Sequence[Sample]]":
        order = self._order(shuffle=False, group_by_length=not self.packed)
        return self._loader(self._sampler(order, 1))

    def _order(self, *, shuffle: bool, group_by_length: bool | None = None) -> SequenceOrder:
        return SequenceOrder(
            lengths=self.dataset.lengths - 1,
            seed=self.seed,
            shuffle=shuffle,
            capacity=self.dataset.max_seq_len if self.packed else None,
            group_by_length=self.group_by_length if group_by_length is None else group_by_length,
        )

    def _sampler(
        self, order: SequenceOrder, gradient_accumulation_steps: int
    ) -> GlobalBatchSampler:
        return GlobalBatchSampler(
            order,
            batch_size=self.batch_size,
            world_size=self.world_size,
            rank=self.rank,
            gradient_accumulation_steps=gradient_accumulation_steps,
        )

    def _loader(self, sampler: GlobalBatchSampler) -> "DataLoader[Sequence[Sample]]":
        """Return a loader that is iterated once an epoch, so that its workers may live on."""
        return DataLoader(
            _Sequences(self.dataset),
            batch_sampler=sampler,  # type: ignore[arg-type]  # an index is a list of rows here
            collate_fn=partial(
                _collate,
                pad_id=self.pad_id,
                capacity=self.dataset.max_seq_len if self.packed else None,
            ),
            num_workers=self.dataloader.num_workers,
            prefetch_factor=self.dataloader.prefetch_factor,
            persistent_workers=self.dataloader.persistent_workers,
            pin_memory=self.dataloader.pin_memory,
            generator=torch.Generator(),  # the loader must not draw from training's RNG
        )

    def _move(self, batch: Batch) -> Batch:
        return batch.to(self.device, non_blocking=self.dataloader.non_blocking)


class _Sequences(Dataset["Sequence[Sample]"]):
    """The data set by lists of rows."""

    def __init__(self, dataset: SupervisedDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, rows: Sequence[int]) -> list[Sample]:
        return [self._dataset[row] for row in rows]


def _collate(sequences: Sequence[Sequence[Sample]], *, pad_id: int, capacity: int | None) -> Batch:
    if capacity is None:
        return collate([sample for (sample,) in sequences], pad_id=pad_id)
    return collate_packs(sequences, pad_id=pad_id, capacity=capacity)
