"""Turn samples into one padded batch, with the supervised positions worked out on the way.

The shift happens here: position i of a row is trained to predict token i + 1, so inputs are
``tokens[:-1]`` and targets ``labels[1:]``. The positions travel with the batch, so the model's head
can pick them without looking at the labels on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch

IGNORE_INDEX = -100


class Sample(TypedDict):
    """One tokenised row; ``labels[i]`` is ``tokens[i]`` where trained on, else ``IGNORE_INDEX``."""

    tokens: list[int]
    labels: list[int]
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
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    ids: list[str]
    num_tokens: int

    @property
    def num_positions(self) -> int:
        """Number of input positions, padding included."""
        return self.tokens.numel()

    @property
    def sum_of_squares(self) -> int:
        """Squared row length, padding included, summed over the rows: what attention costs."""
        rows, length = self.tokens.shape
        return rows * length**2

    @property
    def num_supervised(self) -> int:
        """Number of supervised positions."""
        return self.targets.numel()

    def to(self, device: torch.device) -> "Batch":
        """Return the batch with its tensors on ``device``."""
        tokens, positions, targets = (
            tensor.to(device, non_blocking=True)
            for tensor in (self.tokens, self.positions, self.targets)
        )
        return replace(self, tokens=tokens, positions=positions, targets=targets)


def collate(samples: Sequence[Sample], *, pad_id: int) -> Batch:
    """Shift, pad on the right and find the supervised positions.

    Args:
        samples: May be empty: a rank with no row left in the last step of an epoch still takes
            part, with one padding token and nothing supervised.
        pad_id: Fills the rows; no supervised position can see it.
    """
    rows = [sample["tokens"][:-1] for sample in samples] or [[]]
    width = max(1, *(len(row) for row in rows))
    positions, targets = [], []
    for row, sample in enumerate(samples):
        for column, label in enumerate(sample["labels"][1:]):
            if label != IGNORE_INDEX:
                positions.append(row * width + column)
                targets.append(label)
    return Batch(
        tokens=torch.tensor([row + [pad_id] * (width - len(row)) for row in rows]),
        positions=torch.tensor(positions, dtype=torch.int64),
        targets=torch.tensor(targets, dtype=torch.int64),
        ids=[sample["id"] for sample in samples],
        num_tokens=sum(len(row) for row in rows),
    )
