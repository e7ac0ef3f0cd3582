"""The data set that training and evaluation take: tokenised rows, cached, mapped into memory."""

import custom_components.compat  # noqa: F401

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from custom_components.datasets.cache import find_or_build, fingerprint
from custom_components.datasets.collate import Sample
from custom_components.datasets.conversations import Example
from custom_components.datasets.files import describe_rows
from custom_components.datasets.preview import make_visible
from custom_components.datasets.rows import TOO_LONG, Unusable
from custom_components.datasets.sft import (
    MessageTokenizer,
    TokenizedRow,
    Truncation,
    UnusableRows,
    check_tokenizer,
    tokenize_row,
)
from custom_components.datasets.sources import Conversations
from custom_components.datasets.token_store import DatasetReport, TokenStore, TokenStoreWriter
from custom_components.errors import UserError
from custom_components.observability.console import get_logger

_ARGUMENTS = "source|split|column_map|layout|prompt|max_rows|max_seq_len|truncation|unusable_rows"
_OWN_KEY = re.compile(rf"(?<![\w/.])dataset(?=\.(?:{_ARGUMENTS})\b|: )")
"""The key ``dataset`` in a message, and no file of that name."""


class SupervisedDataset(Dataset[Sample]):
    """Tokenised conversations, map style.

    Args:
        folder: Its store.
        max_seq_len: Most tokens of a sample, and the length of a pack.

    Attributes:
        report: What became of the rows.
        digest: What stands for all samples: two data sets with the same one are the same.
    """

    def __init__(self, folder: Path, *, max_seq_len: int) -> None:
        self._store = TokenStore(folder)
        self.max_seq_len = max_seq_len
        self.report: DatasetReport = self._store.report
        self.digest = self._store.digest

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of every sample, ``[n]``."""
        return self._store.lengths

    @property
    def examples(self) -> list[Example]:
        """The samples for evaluation, in the same order."""
        return self._store.examples

    def iter_digests(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield for each sample what stands for its first prompt and for all of it."""
        yield from self._store.iter_digests()

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, index: int) -> Sample:
        return self._store[index]


def check_dataset(dataset: Any, component: Mapping[str, Any], *, key: str) -> SupervisedDataset:
    """Return ``dataset``, which is what a config's component built.

    Args:
        dataset: Whatever it is.
        component: The config's node.
        key: Its key.

    Raises:
        UserError: If it is no ``SupervisedDataset``.
    """
    if not isinstance(dataset, SupervisedDataset):
        raise UserError(
            f"{key}: {component['_component_']} builds a {type(dataset).__name__}, not a "
            "SupervisedDataset: take a builder of custom_components.datasets"
        )
    return dataset


class RefusedDataError(UserError):
    """Rows that the data set's policies do not let be used, or none left to use.

    Args:
        dataset: The data set without them.
        problems: What is said of them.
    """

    def __init__(self, dataset: SupervisedDataset, *problems: str) -> None:
        super().__init__(*problems)
        self.dataset = dataset


def build_supervised_dataset(
    tokenizer: MessageTokenizer,
    *,
    read: Callable[[], Conversations],
    identify: Callable[[], Mapping[str, Any]],
    max_seq_len: int,
    truncation: Truncation,
    unusable_rows: UnusableRows,
) -> SupervisedDataset:
    """Return a data set from the cache, or tokenise its rows.

    Args:
        tokenizer: A torchtune model tokenizer without ``max_seq_len``.
        read: Reads the source; called if it is not in the cache.
        identify: Returns whatever decides the rows, as JSON: arguments, the source's fingerprint.
            Asked again after reading: a source may have changed meanwhile.
        max_seq_len: Most tokens of a sample.
        truncation: What happens to a longer row, see ``sft.Truncation``.
        unusable_rows: What happens to rows without anything to train on, see ``sft.UnusableRows``.

    Raises:
        RefusedDataError: If rows are refused or no row is left.
        UserError: If the tokenizer or the source is refused, or changes while it is read.
    """
    check_tokenizer(tokenizer)
    policies = {"max_seq_len": max_seq_len, "truncation": truncation, "unusable": unusable_rows}

    def build(folder: Path) -> None:
        source = read()
        shown = ", ".join(source.tables[:3]) + (", ..." if len(source.tables) > 3 else "")
        get_logger().info("tokenising %s", make_visible(shown))
        writer = TokenStoreWriter(folder)
        report = DatasetReport(tables=source.tables, left_out=source.num_left_out)
        for row in source.rows:
            report.rows += 1
            done = (
                row
                if isinstance(row, Unusable)
                else tokenize_row(row, tokenizer, max_seq_len=max_seq_len, truncation=truncation)
            )
            if isinstance(done, TokenizedRow):
                writer.add(done)
                _count(report, done)
            else:
                policy = truncation if done.reason == TOO_LONG else unusable_rows
                is_dropped = policy == "drop"
                rows = report.dropped.setdefault(done.reason, []) if is_dropped else report.refused
                rows.append(done)
        report.unused_columns = list(source.unused_columns)
        writer.close(report)
        if identify() != identity:
            raise UserError(f"dataset.source: {shown} changed while it was read: run this again")

    identity = identify()
    name = fingerprint({**identity, **policies}, tokenizer)
    dataset = SupervisedDataset(find_or_build(name, build), max_seq_len=max_seq_len)
    problems = _describe_refused(dataset.report.refused)
    if not problems and len(dataset) == 0:
        problems = [f"dataset: no row is left to train on: {dataset.report.describe()}"]
    if problems:
        raise RefusedDataError(dataset, *problems)
    return dataset


def _count(report: DatasetReport, row: TokenizedRow) -> None:
    report.tokens += len(row.tokens)
    report.supervised_tokens += sum(row.supervised[1:])
    report.largest_id = max(report.largest_id, *row.tokens)
    if row.was_truncated:
        report.truncated.append(row.example.id)
    if row.num_trimmed:
        report.trimmed.append(row.example.id)


def _describe_refused(refused: list[Unusable]) -> list[str]:
    """Return one problem for the rows that are too long, one for the other bad rows."""
    too_long = [f"{row.id} {row.detail}" for row in refused if row.reason == TOO_LONG]
    others = [f"{row.id} {row.detail}" for row in refused if row.reason != TOO_LONG]
    problems = []
    if too_long:
        advice = "raise dataset.max_seq_len, or set dataset.truncation to drop, left or right"
        problems.append(describe_rows(too_long, advice=advice))
    if others:
        advice = "mend them, or set dataset.unusable_rows=drop"
        problems.append(describe_rows(others, advice=advice))
    return problems


def name_key(problems: Iterable[str], key: str) -> list[str]:
    """Return a data set's problems with its own key in place of ``dataset``.

    A builder does not know under which key it stands.

    Args:
        problems: As builders say them.
        key: Such as ``dataset_val``.
    """
    return [_OWN_KEY.sub(key, problem) for problem in problems]


def check_lengths(dataset: SupervisedDataset, max_seq_len: int, *, key: str) -> None:
    """Refuse samples that the model cannot take, before its weights are loaded.

    Args:
        dataset: Tokenised rows.
        max_seq_len: The model's context.
        key: Its key in the config.

    Raises:
        UserError: Naming the longest row.
    """
    lengths = dataset.lengths
    longest = int(lengths.argmax())
    if lengths[longest] > max_seq_len:
        raise UserError(
            f"{dataset[longest]['id']} has {lengths[longest]} tokens and the model takes "
            f"{max_seq_len}: set {key}.max_seq_len to {max_seq_len} or less"
        )
