"""Turn samples into one padded batch, with the supervised positions worked out on the way.

The shift happens here, sample by sample: position i is trained to predict token i + 1, so inputs
are ``tokens[:-1]`` and targets ``labels[1:]``, and in a pack no label of one sample is ever the
target of another (torchtune's packs have one wrong target a boundary: pytorch/torchtune#2613). The
positions travel with the batch, so the model's head can pick them without looking at the labels on
the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import torch

IGNORE_INDEX = -100

_WIDTH_MULTIPLE = 128
"""Packed rows are as wide as the longest, rounded up to this: on CUDA attention is compiled for
every width, and works in blocks of so many positions."""


class Sample(TypedDict):
    """One tokenised row; ``labels[i]`` is ``tokens[i]`` where trained on, else ``IGNORE_INDEX``."""

    tokens: Sequence[int]
    labels: Sequence[int]
    id: str


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one rank.

    Args:
        tokens: Input ids padded on the right, ``[b, s]``.
        positions: Flat indices into ``b * s`` of the supervised positions, ``[n]``.
        targets: The ids they should predict, ``[n]``.
        ids: Row ids, ``<file>:<row>``.
        num_tokens: Input tokens without padding.
        input_pos: Packed: position of every token in its document, 0 in padding, ``[b, s]``.
        documents: Packed: lengths of the documents of each row of the batch, in order.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    ids: list[str]
    num_tokens: int
    input_pos: torch.Tensor | None = None
    documents: list[list[int]] | None = None

    @property
    def num_positions(self) -> int:
        """Number of input positions, padding included."""
        return self.tokens.numel()

    @property
    def sum_of_squares(self) -> int:
        """What attention costs: the squared lengths of what attends to itself, summed.

        That is a row, padding included; in a packed row every document and, alone, every position
        of padding.
        """
        rows, length = self.tokens.shape
        if self.documents is None:
            return rows * length**2
        squares = sum(length**2 for row in self.documents for length in row)
        return squares + self.num_positions - self.num_tokens

    @property
    def num_supervised(self) -> int:
        """Number of supervised positions."""
        return self.targets.numel()

    def _map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "Batch":
        return replace(
            self,
            tokens=change(self.tokens),
            positions=change(self.positions),
            targets=change(self.targets),
            input_pos=None if self.input_pos is None else change(self.input_pos),
        )

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Batch":
        """Return the batch with its tensors on ``device``.

        Args:
            device: Where to.
            non_blocking: Do not wait for the copy; it takes pinned memory to gain from it.
        """
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory; the data loader asks for it by this name."""
        return self._map(lambda tensor: tensor.pin_memory())


def collate(samples: Sequence[Sample], *, pad_id: int) -> Batch:
    """Make every sample a row, padded on the right to the longest.

    Args:
        samples: May be empty: a rank with no row left in the last step of an epoch still takes
            part, with one padding token and nothing supervised.
        pad_id: Fills the rows; no supervised position can see it.
    """
    width = max([1, *(len(sample["tokens"]) - 1 for sample in samples)])
    batch = _fill([[sample] for sample in samples], width=width, pad_id=pad_id)
    return replace(batch, input_pos=None, documents=None)


def collate_packs(packs: Sequence[Sequence[Sample]], *, pad_id: int, capacity: int) -> Batch:
    """Make every pack a row of documents, one sample after the other.

    Args:
        packs: May be empty, as in ``collate``.
        pad_id: Fills the rows.
        capacity: Most positions of a row.
    """
    longest = max([1, *(sum(len(s["tokens"]) - 1 for s in pack) for pack in packs)])
    width = min(capacity, -(-longest // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE)
    return _fill(packs, width=width, pad_id=pad_id)


def _fill(packs: Sequence[Sequence[Sample]], *, width: int, pad_id: int) -> Batch:
    """Lay the samples of each pack into a row, shifted one by one."""
    num_rows = max(1, len(packs))
    tokens = np.full((num_rows, width), pad_id, dtype=np.int64)
    input_pos = np.zeros((num_rows, width), dtype=np.int64)
    documents: list[list[int]] = [[] for _ in range(num_rows)]
    positions, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for row, pack in enumerate(packs):
        start = 0
        for sample in pack:
            labels = np.asarray(sample["labels"][1:], dtype=np.int64)
            stop = start + len(labels)
            tokens[row, start:stop] = sample["tokens"][:-1]
            input_pos[row, start:stop] = np.arange(len(labels))
            supervised = np.flatnonzero(labels != IGNORE_INDEX)
            positions.append(supervised + row * width + start)
            targets.append(labels[supervised])
            documents[row].append(len(labels))
            start = stop
    return Batch(
        tokens=torch.from_numpy(tokens),
        positions=torch.from_numpy(np.concatenate(positions)),
        targets=torch.from_numpy(np.concatenate(targets)),
        ids=[sample["id"] for pack in packs for sample in pack],
        num_tokens=sum(map(sum, documents)),
        input_pos=torch.from_numpy(input_pos),
        documents=documents,
    )
