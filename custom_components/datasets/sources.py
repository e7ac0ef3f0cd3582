"""Read rows from a JSON, JSONL or CSV file, from the Hugging Face hub, or from the embedded corpus.

Every row has an id, ``<source>:<row>``, counted from 1. Everything wrong with the rows is gathered
and raised once.

This module imports neither torch nor torchtune, so the command line can check a source at once.
"""

import difflib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from custom_components.datasets.files import SUFFIXES, Row, describe_rows, read_file
from custom_components.datasets.grammar_corpus import SPLITS, build_grammar_corpus
from custom_components.errors import UserError

EMBEDDED = "embedded"
INPUT, OUTPUT = "input", "output"
INPUT_PLACE = "{input}"
_NUM_CHECKED = 100
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def load_rows(
    source: str,
    *,
    split: str = "train",
    column_map: Mapping[str, str] | None = None,
    max_rows: int | None = None,
) -> list[Row]:
    """Return the rows of a source with the columns ``input`` and ``output``.

    Args:
        source: ``embedded``, a path to a .json, .jsonl or .csv file, or a hub id ``org/name``,
            ``org/name@revision`` for another revision than the default.
        split: ``train`` or ``heldout`` of the embedded corpus; a split on the hub; a file has
            ``train`` only.
        column_map: Our column to the source's column, where they differ.
        max_rows: Read only the first rows.

    Raises:
        UserError: If the source cannot be read, a row is broken or a column is missing.
    """
    columns = _name_columns(column_map)
    rows = _read_source(source, split=split, max_rows=max_rows)
    if not rows:
        raise UserError(f"dataset.source: {source} holds no rows")
    _check_columns(source, rows, columns)
    rows = [
        Row(row.id, {ours: row.values.get(theirs) for ours, theirs in columns.items()})
        for row in rows
    ]
    _check_surrogates(rows)
    return rows


def check_grammar_source(
    *,
    source: str,
    split: str = "train",
    column_map: Mapping[str, str] | None = None,
    max_rows: int | None = None,
    **others: Any,
) -> list[str]:
    """Return what is wrong with the arguments of a ``grammar_dataset``, without a tokenizer.

    Only the first 100 rows of a file are looked at, and nothing is downloaded.

    Args:
        source: See ``load_rows``.
        split: See ``load_rows``.
        column_map: See ``load_rows``.
        max_rows: See ``load_rows``.
        **others: The other arguments of the data set.
    """
    problems = find_argument_problems(max_rows=max_rows, **others)
    if problems:
        return problems
    try:
        if _kind(source) == "hub":
            _name_columns(column_map)
            _find_datasets_package(source)
        else:
            num_rows = _NUM_CHECKED if max_rows is None else min(max_rows, _NUM_CHECKED)
            load_rows(source, split=split, column_map=column_map, max_rows=num_rows)
    except UserError as error:
        return list(error.problems)
    return []


def find_argument_problems(
    *,
    max_rows: int | None = None,
    prompt: str = INPUT_PLACE,
    max_seq_len: int = 512,
    **ignored: Any,
) -> list[str]:
    """Return what is wrong with the arguments of a ``grammar_dataset`` that name no data.

    Args:
        max_rows: At least 1, or None.
        prompt: Must say where the sentence goes.
        max_seq_len: At least 2: one token to read and one to predict.
        **ignored: Arguments with closed choices, which their types check.
    """
    problems = []
    if max_rows is not None and max_rows < 1:
        problems.append(f"dataset.max_rows: {max_rows}; give 1 or more, or null for all rows")
    if max_seq_len < 2:
        problems.append(f"dataset.max_seq_len: {max_seq_len}; give 2 or more")
    if INPUT_PLACE not in prompt:
        problems.append(
            f"dataset.prompt: {prompt!r} does not say where the sentence goes; put "
            f"{INPUT_PLACE} there"
        )
    return problems


# --- Columns and text ----------------------------------------------------------------------------


def _name_columns(column_map: Mapping[str, str] | None) -> dict[str, str]:
    """Return our column -> the source's column.

    Raises:
        UserError: If the map names a column that a grammar data set does not have.
    """
    columns = {INPUT: INPUT, OUTPUT: OUTPUT}
    problems = [
        f"dataset.column_map: unknown key {key!r}{_nearest(key, columns)}; "
        f"its keys are {INPUT} and {OUTPUT}, its values the file's column names"
        for key in column_map or {}
        if key not in columns
    ]
    if problems:
        raise UserError(*problems)
    return columns | dict(column_map or {})


def _check_columns(source: str, rows: list[Row], columns: Mapping[str, str]) -> None:
    present = list(dict.fromkeys(str(name) for row in rows for name in row.values))
    problems = [
        f"dataset.column_map: {source} has no column {theirs!r}{_nearest(theirs, present)}; "
        f"it has {', '.join(present) or 'none'}; set dataset.column_map.{ours}=COLUMN"
        for ours, theirs in columns.items()
        if theirs not in present
    ]
    if problems:
        raise UserError(*problems)


def _nearest(name: str, valid: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(valid), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _check_surrogates(rows: list[Row]) -> None:
    problems = [
        f"{row.id} {column} holds a lone surrogate, half of a character"
        for row in rows
        for column, value in row.values.items()
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value)
    ]
    if problems:
        raise UserError(describe_rows(problems, advice="write these characters anew"))


# --- The sources ---------------------------------------------------------------------------------


def _kind(source: str) -> str:
    """Return ``embedded``, ``file`` or ``hub``.

    Raises:
        UserError: If the string looks like none of them.
    """
    if source == EMBEDDED:
        return EMBEDDED
    path = Path(source).expanduser()
    if (
        path.suffix.lower() in SUFFIXES
        or path.exists()
        or source.startswith(("/", "./", "../", "~"))
    ):
        return "file"
    if _HUB_ID.fullmatch(source):
        return "hub"
    raise UserError(
        f"dataset.source: {source!r}{_nearest(source, [EMBEDDED])} is neither {EMBEDDED!r}, nor a "
        f"{', '.join(SUFFIXES)} file, nor a hub id org/name"
    )


def _read_source(source: str, *, split: str, max_rows: int | None) -> list[Row]:
    kind = _kind(source)
    if kind == EMBEDDED:
        return _read_embedded(split)[:max_rows]
    if kind == "hub":
        return _read_hub(source, split=split, max_rows=max_rows)
    if split != "train":
        raise UserError(
            f"dataset.split: {split!r}, but a file has one split only: set dataset.split=train"
        )
    return read_file(Path(source).expanduser(), max_rows=max_rows)


def _read_embedded(split: str) -> list[Row]:
    known = next((name for name in SPLITS if name == split), None)
    if known is None:
        raise UserError(
            f"dataset.split: the embedded corpus has no split {split!r}{_nearest(split, SPLITS)}; "
            f"it has {' and '.join(SPLITS)}"
        )
    return [
        Row(pair.id, {INPUT: pair.source, OUTPUT: pair.target})
        for pair in build_grammar_corpus(known)
    ]


def _find_datasets_package(source: str) -> None:
    if importlib.util.find_spec("datasets") is None:
        raise UserError(
            f"dataset.source: reading {source} from the hub needs the package datasets: "
            "run `pip install datasets`"
        )


def _read_hub(source: str, *, split: str, max_rows: int | None) -> list[Row]:
    _find_datasets_package(source)
    import datasets

    name, _, revision = source.partition("@")
    try:
        table = datasets.load_dataset(
            name, split=split, revision=revision or None, streaming=max_rows is not None
        )
        return [
            Row(f"{source}/{split}:{number}", dict(row))
            for number, row in enumerate(islice(table, max_rows), start=1)
        ]
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"dataset.source: {source}, split {split!r}, could not be read from the hub: {error}"
        ) from error
