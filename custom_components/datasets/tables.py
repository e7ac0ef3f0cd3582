"""Tables: what one source is read from. An embedded corpus, a file, a folder's files, the hub.

``find_kind`` says which of these a source is, ``open_tables`` gives their rows.
"""

import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from custom_components.datasets.columns import join_names, suggest
from custom_components.datasets.files import SUFFIXES, make_row, read_file
from custom_components.datasets.rows import Row, Unusable, drop_null_arguments
from custom_components.errors import UserError

Kind = Literal["embedded", "file", "folder", "hub"]

EMBEDDED = {
    "grammar": "custom_components.corpora.grammar_corpus",
    "instruct": "custom_components.corpora.instruct_corpus",
    "summarize": "custom_components.corpora.summarize_corpus",
}
"""Modules of the embedded corpora; their ``build_rows(split)`` returns a list of rows."""
EMBEDDED_SPLITS = ("train", "heldout")

_SPLIT_WORDS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev", "heldout"),
    "test": ("test",),
}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


@dataclass(frozen=True)
class Table:
    """Rows with the same columns.

    Args:
        name: What a message calls it: a path, or a hub id or the embedded corpus and the split.
        rows: Read as they are asked for.
    """

    name: str
    rows: Iterable[Row | Unusable]


def find_kind(source: str, *, key: str) -> Kind:
    """Return what a source is.

    Args:
        source: ``embedded``, a path, or a hub id ``org/name[@revision]``.
        key: Config key of the data set or mixture item, for the message.

    Raises:
        UserError: If the string looks like none of them, or the system refuses it as a path.
    """
    if source == "embedded":
        return "embedded"
    try:
        path = Path(source).expanduser()
        exists, is_folder, is_file = path.exists(), path.is_dir(), path.is_file()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~name and no such user
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{key}.source: {source!r:.60} cannot be looked for: {reason}; give a path, a hub id "
            "org/name or 'embedded'"
        ) from error
    if is_folder:
        return "folder"
    if exists and not is_file:
        raise UserError(f"{key}.source: {source} is not a regular file: copy it into one")
    looks_like_path = source.startswith(("/", "./", "../", "~"))
    if path.suffix.lower() in SUFFIXES or exists or looks_like_path:
        return "file"
    if _HUB_ID.fullmatch(source):
        return "hub"
    raise UserError(
        f"{key}.source: {source!r}{suggest(source, ['embedded'])} is neither 'embedded', nor a "
        f"{', '.join(SUFFIXES)} file or a folder of them, nor a hub id org/name"
    )


def open_tables(
    source: str, *, split: str, max_rows: int | None, corpus: str, key: str
) -> list[Table]:
    """Return the tables of one source, in their order.

    Args:
        source: See ``find_kind``.
        split: ``train`` or ``heldout`` of an embedded corpus, a split on the hub, the part of a
            folder (see ``list_files``); a file has ``train`` only.
        max_rows: How many rows will be asked for; on the hub no more are downloaded.
        corpus: Which corpus ``embedded`` is, a name of ``EMBEDDED``.
        key: Config key of the data set or mixture item, for messages.

    Raises:
        UserError: If there is no such source or split, or a package is missing.
    """
    kind = find_kind(source, key=key)
    if kind == "embedded":
        rows = _build_embedded(corpus, split=split, key=key)
        return [Table(f"the embedded corpus ({split})", rows)]
    if kind == "hub":
        check_datasets_package(source, key=key)
        return [
            Table(f"{source} ({split})", _read_hub(source, split=split, max_rows=max_rows, key=key))
        ]
    paths = list_files(source, split=split, key=key)
    return [Table(str(path), _read_file(path, max_rows=max_rows, key=key)) for path in paths]


# --- Files ---------------------------------------------------------------------------------------


def list_files(source: str, *, split: str, key: str) -> list[Path]:
    """Return the files of a file or folder that belong to a split.

    A folder's .json, .jsonl, .csv and .parquet files count, in the order of their names; hidden
    ones and those of folders in it do not. If the name of any has a split's word in it (``train``;
    ``validation``, ``valid``, ``val``, ``dev`` or ``heldout``; ``test``), the split's files are
    those with its word. Otherwise all are ``train``.

    Args:
        source: Path of a file or folder.
        split: Any of these words.
        key: Config key of the data set or mixture item, for messages.

    Raises:
        UserError: If there are none.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        if split != "train":
            raise UserError(
                f"{key}.split: {split!r}, but the file {source} has one split only: set "
                f"{key}.split=train, or give a folder with one file a split"
            )
        return [folder]
    files = _find_data_files(folder, key=key)
    splits = {path: _find_splits(path.stem) for path in files}
    mixed = [path.name for path in files if len(splits[path]) > 1]
    if mixed:
        raise UserError(
            f"{key}.source: {join_names(mixed)} in {folder} could be of more than one split; "
            "rename, or give one file as source"
        )
    if not any(splits.values()):
        splits = {path: ["train"] for path in files}
    chosen = [path for path in files if splits[path] and splits[path] == _find_splits(split)]
    if not chosen:
        there = {name for names in splits.values() for name in names}
        raise UserError(
            f"{key}.split: {folder} has no file of the split {split!r}; its files "
            f"{join_names(path.name for path in files)} are {join_names(sorted(there))}"
        )
    return chosen


def _read_file(path: Path, *, max_rows: int | None, key: str) -> Iterator[Row | Unusable]:
    try:
        yield from read_file(path, max_rows=max_rows)
    except UserError as error:
        raise UserError(*(f"{key}.source: {problem}" for problem in error.problems)) from error


def _find_data_files(folder: Path, *, key: str) -> list[Path]:
    try:
        files = [
            path
            for path in sorted(folder.iterdir())
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
        ]
    except OSError as error:
        raise UserError(f"{key}.source: cannot read {folder}: {error.strerror}") from error
    if not files:
        raise UserError(
            f"{key}.source: {folder} holds no {', '.join(SUFFIXES)} file; folders in it are not "
            "looked into"
        )
    return files


def _find_splits(name: str) -> list[str]:
    """Return the splits whose words are in a name, words being runs of letters."""
    words = set(re.findall("[a-z]+", name.lower()))
    return [split for split, known in _SPLIT_WORDS.items() if words.intersection(known)]


# --- Embedded and hub ----------------------------------------------------------------------------


def _build_embedded(corpus: str, *, split: str, key: str) -> list[Row]:
    if split not in EMBEDDED_SPLITS:
        raise UserError(
            f"{key}.split: the embedded corpus has no split {split!r}"
            f"{suggest(split, EMBEDDED_SPLITS)}; it has {join_names(EMBEDDED_SPLITS)}"
        )
    rows: list[Row] = importlib.import_module(EMBEDDED[corpus]).build_rows(split)
    return rows


def check_datasets_package(source: str, *, key: str) -> None:
    """Check that the hub can be read.

    Args:
        source: A hub id.
        key: Config key of the data set or mixture item, for the message.

    Raises:
        UserError: If the package is missing.
    """
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"{key}.source: reading {source} from the hub needs the package datasets: run "
            "`pip install datasets` (or is it a folder? there is none of that name)"
        )


def _read_hub(
    source: str, *, split: str, max_rows: int | None, key: str
) -> Iterator[Row | Unusable]:
    import datasets

    name, _, revision = source.partition("@")
    try:
        table = datasets.load_dataset(
            name, split=split, revision=revision or None, streaming=max_rows is not None
        )
        for number, values in enumerate(islice(table, max_rows), start=1):
            yield make_row(f"{source}/{split}:{number}", drop_null_arguments(dict(values)))
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"{key}.source: {source}, split {split!r}, could not be read from the hub: {error}"
        ) from error
