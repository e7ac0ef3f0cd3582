"""Tokenised rows on disk: written once, front to back, and mapped into memory afterwards.

A store is a folder: ``tokens.bin`` (int32), ``supervised.bin`` (one byte a token),
``offsets.bin`` (int64, one more than rows), ``rows.bin`` (int64 pairs: place in the list of files,
row number), ``examples.jsonl`` (what evaluation needs, one row a line) and ``store.json`` (the
files' names, digests and the report), which is written last.
"""

import custom_components.compat  # noqa: F401

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from torchtune.data import Message

from custom_components.datasets.collate import IGNORE_INDEX, Sample
from custom_components.datasets.conversations import Example
from custom_components.datasets.rows import Unusable
from custom_components.datasets.sft import TokenizedRow

_META = "store.json"
_ARRAYS: dict[str, npt.DTypeLike] = {
    "tokens.bin": np.int32,
    "supervised.bin": np.bool_,
    "offsets.bin": np.int64,
    "rows.bin": np.int64,
}
_EXAMPLES = "examples.jsonl"


@dataclass
class DatasetReport:
    """What became of the rows.

    Args:
        tables: What was read: files, hub ids, an embedded corpus.
        unused_columns: Columns of these that the layout does not read.
        rows: Rows read.
        left_out: Rows of a mixture that its weights leave out, not counted among these.
        dropped: Rows left out by policy, by reason.
        refused: Rows that neither ``truncation`` nor ``unusable_rows`` lets be dropped.
        truncated: Ids of the rows that were cut and kept.
        trimmed: Ids of the rows that lost turns behind their last answer.
        tokens: Tokens kept, after the cut behind the last supervised one.
        supervised_tokens: Tokens trained on.
        largest_id: Largest token id.
    """

    tables: list[str] = field(default_factory=list)
    unused_columns: list[str] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    dropped: dict[str, list[Unusable]] = field(default_factory=dict)
    refused: list[Unusable] = field(default_factory=list)
    truncated: list[str] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)
    tokens: int = 0
    supervised_tokens: int = 0
    largest_id: int = 0

    def describe(self) -> str:
        """Return one line for the terminal: how many rows, and which were dropped or cut."""
        parts = [f"{self.rows} rows read"]
        if self.unused_columns:
            parts.append(f"columns that are not read: {_name(self.unused_columns)}")
        if self.left_out:
            parts.append(f"{self.left_out} left out by the weights of the mixture")
        for reason, rows in self.dropped.items():
            parts.append(f"{len(rows)} dropped, {reason} ({_name([row.id for row in rows])})")
        if self.truncated:
            parts.append(f"{len(self.truncated)} cut to max_seq_len")
        if self.trimmed:
            parts.append(
                f"{len(self.trimmed)} lost turns behind their last answer ({_name(self.trimmed)})"
            )
        return "; ".join(parts)

    @property
    def dropped_ids(self) -> dict[str, list[str]]:
        """The ids of the rows left out, by reason."""
        return {reason: [row.id for row in rows] for reason, rows in self.dropped.items()}


def _name(ids: list[str]) -> str:
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


def _read_report(values: dict[str, Any]) -> DatasetReport:
    dropped = {
        reason: [Unusable(**row) for row in rows] for reason, rows in values["dropped"].items()
    }
    refused = [Unusable(**row) for row in values["refused"]]
    return DatasetReport(**{**values, "dropped": dropped, "refused": refused})


class TokenStoreWriter:
    """Writes a store into an empty folder.

    Args:
        folder: Exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokens: BinaryIO = (folder / "tokens.bin").open("wb")
        self._supervised: BinaryIO = (folder / "supervised.bin").open("wb")
        self._examples = (folder / _EXAMPLES).open("w", encoding="utf-8")
        self._offsets = [0]
        self._rows: list[tuple[int, int]] = []
        self._files: dict[str, int] = {}

    def add(self, row: TokenizedRow) -> None:
        """Append one row."""
        self._tokens.write(np.asarray(row.tokens, dtype=np.int32).tobytes())
        self._supervised.write(np.asarray(row.supervised, dtype=np.bool_).tobytes())
        self._offsets.append(self._offsets[-1] + len(row.tokens))
        name, _, number = row.example.id.rpartition(":")
        self._rows.append((self._files.setdefault(name, len(self._files)), int(number)))
        turns = [[message.role, message.text_content] for message in row.example.messages]
        line = [turns, row.example.input, row.example.references]
        self._examples.write(json.dumps(line) + "\n")

    def close(self, report: DatasetReport) -> None:
        """Write what is left; the store is complete afterwards."""
        for file in (self._tokens, self._supervised, self._examples):
            file.close()
        np.asarray(self._offsets, dtype=np.int64).tofile(self._folder / "offsets.bin")
        np.asarray(self._rows, dtype=np.int64).tofile(self._folder / "rows.bin")
        digests = {file.name: _digest_file(file) for file in sorted(self._folder.iterdir())}
        meta = {"digests": digests, "files": list(self._files), "report": asdict(report)}
        (self._folder / _META).write_text(json.dumps(meta), encoding="utf-8")


class TokenStore:
    """Reads a store, mapped into memory.

    Args:
        folder: A whole one, see ``is_whole``.

    Attributes:
        digest: What stands for its contents.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        self.report = _read_report(meta["report"])
        self.digest = hashlib.sha256(json.dumps(meta["digests"]).encode()).hexdigest()
        self._files: list[str] = meta["files"]
        self._tokens = _map(folder / "tokens.bin")
        self._supervised = _map(folder / "supervised.bin")
        self._offsets = _map(folder / "offsets.bin")
        self._rows = _map(folder / "rows.bin").reshape(-1, 2)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of every row, ``[n]``."""
        return np.diff(self._offsets)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Sample:
        start, end = self._offsets[index], self._offsets[index + 1]
        tokens = self._tokens[start:end]
        labels = np.where(self._supervised[start:end], tokens, IGNORE_INDEX)
        return Sample(tokens=tokens.tolist(), labels=labels.tolist(), id=self.row_id(index))

    def iter_digests(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the digests of each row's tokens up to the first trained one, and of all.

        A row cut inside its answer has no prompt left: all of it stands for it.
        """
        for start, end in itertools.pairwise(self._offsets.tolist()):
            prompt_end = start + int(self._supervised[start:end].argmax())
            prompt_end = end if prompt_end == start else prompt_end
            yield _digest(self._tokens[start:prompt_end]), _digest(self._tokens[start:end])

    def row_id(self, index: int) -> str:
        """Return ``<file>:<row>``."""
        file, number = self._rows[index]
        return f"{self._files[file]}:{number}"

    @cached_property
    def examples(self) -> list[Example]:
        """What evaluation needs of each row, read when first asked for."""
        with (self._folder / _EXAMPLES).open(encoding="utf-8") as file:
            return [
                Example(
                    self.row_id(index),
                    [Message(role, text, masked=True) for role, text in turns],
                    text,
                    references,
                )
                for index, (turns, text, references) in enumerate(map(json.loads, file))
            ]


def _digest(tokens: npt.NDArray[np.int32]) -> bytes:
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()


def _map(path: Path) -> npt.NDArray[Any]:
    """Map a file; an empty one cannot be."""
    dtype = _ARRAYS[path.name]
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(folder: Path) -> bool:
    """Return whether a store is there as it was written; a crash or a bad disk may damage it."""
    try:
        digests = json.loads((folder / _META).read_text(encoding="utf-8"))["digests"]
        names = {*_ARRAYS, _EXAMPLES}
        return digests.keys() == names and all(
            _digest_file(folder / name) == digests[name] for name in names
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # whatever lies there
        return False
