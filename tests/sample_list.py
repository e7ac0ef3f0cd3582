"""A list of samples that stands in for a data set."""

from collections.abc import Sequence

import numpy as np

from custom_components.datasets.collate import Sample


class SampleList(list):
    """Has of a ``SupervisedDataset`` what a data plan needs."""

    def __init__(self, samples: Sequence[Sample], *, max_seq_len: int = 64) -> None:
        super().__init__(samples)
        self.max_seq_len = max_seq_len

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(sample["tokens"]) for sample in self], dtype=np.int64)
