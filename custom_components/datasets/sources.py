"""Read rows from a JSON, JSONL or CSV file, from the Hugging Face hub, or from the embedded corpus.

Every row knows where it stands, ``<file>:<row>``: the line for JSONL and CSV (the header of a CSV
file is line 1), the place in the list for JSON, both counted from 1. Everything wrong with the rows
is gathered and raised once.

This module imports neither torch nor torchtune, so the command line can check a source at once.
"""

import csv
import difflib
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from custom_components.datasets.grammar_corpus import SPLITS, build_grammar_corpus
from custom_components.errors import UserError

EMBEDDED = "embedded"
INPUT, OUTPUT = "input", "output"
NUM_SHOWN = 20
"""How many bad rows a message lists before it only counts them."""

_NUM_CHECKED = 100
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


@dataclass(frozen=True)
class Row:
    """One row of a source.

    Args:
        id: ``<file>:<row>``.
        values: Column name to value, as read.
    """

    id: str
    values: Mapping[str, Any]


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
    **ignored: Any,
) -> list[str]:
    """Return what is wrong with the source of a ``grammar_dataset``, without a tokenizer.

    Only the first 100 rows of a file are looked at, and nothing is downloaded.

    Args:
        source: See ``load_rows``.
        split: See ``load_rows``.
        column_map: See ``load_rows``.
        max_rows: See ``load_rows``.
        **ignored: The other arguments of the data set.
    """
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


def describe_rows(problems: list[str], *, advice: str) -> str:
    """Return one sentence that counts the bad rows, lists the first ones and says what to do.

    Args:
        problems: ``<file>:<row> ...``, one a row.
        advice: What to do about them.
    """
    shown = problems[:NUM_SHOWN]
    left = len(problems) - len(shown)
    more = [f"and {left} more"] if left else []
    noun = "row" if len(problems) == 1 else "rows"
    listed = "".join(f"\n    {line}" for line in [*shown, *more])
    return f"{len(problems)} {noun} cannot be used; {advice}:{listed}"


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
    if path.suffix in _READERS or path.exists() or source.startswith(("/", "./", "../", "~")):
        return "file"
    if _HUB_ID.fullmatch(source):
        return "hub"
    raise UserError(
        f"dataset.source: {source!r}{_nearest(source, [EMBEDDED])} is neither {EMBEDDED!r}, nor a "
        f"{', '.join(_READERS)} file, nor a hub id org/name"
    )


def _read_source(source: str, *, split: str, max_rows: int | None) -> list[Row]:
    kind = _kind(source)
    if kind == EMBEDDED:
        return _read_embedded(split)[:max_rows]
    if kind == "hub":
        return _read_hub(source, split=split, max_rows=max_rows)
    if split != "train":
        raise UserError(
            f"dataset.split: {split!r}, but the file {source} has one split: set dataset.split=train"
        )
    return _read_file(Path(source).expanduser(), max_rows=max_rows)


def _read_embedded(split: str) -> list[Row]:
    if split not in SPLITS:
        raise UserError(
            f"dataset.split: the embedded corpus has no split {split!r}{_nearest(split, SPLITS)}; "
            f"it has {' and '.join(SPLITS)}"
        )
    return [
        Row(pair.id, {INPUT: pair.source, OUTPUT: pair.target})
        for pair in build_grammar_corpus(split)
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
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"dataset.source: {source}, split {split!r}, could not be read from the hub: {error}"
        ) from error


# --- Files ---------------------------------------------------------------------------------------

_Record = tuple[int, Any]
"""Row number and what stands there; an exception when it cannot be read."""


def _read_file(path: Path, *, max_rows: int | None) -> list[Row]:
    """Return the rows of a file.

    Raises:
        UserError: If the file or any of its rows cannot be read.
    """
    if path.suffix not in _READERS:
        raise UserError(f"dataset.source: {path} is not a {', '.join(_READERS)} file")
    try:
        records = list(islice(_READERS[path.suffix](path), max_rows))
    except OSError as error:
        raise UserError(f"dataset.source: cannot read {path}: {error.strerror}") from error
    problems = [
        f"{path}:{number} {problem}"
        for number, record in records
        if (problem := _describe_problem(record)) is not None
    ]
    if problems:
        raise UserError(describe_rows(problems, advice="mend or remove them"))
    return [Row(f"{path}:{number}", record) for number, record in records]


def _describe_problem(record: Any) -> str | None:
    if isinstance(record, UnicodeDecodeError):
        byte = record.object[record.start]
        return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
    if isinstance(record, json.JSONDecodeError):
        return f"is not JSON: {record.msg} at character {record.pos + 1}"
    if isinstance(record, Exception):
        return str(record)
    if not isinstance(record, dict):
        return f"is {_describe_type(record)}, not an object with named columns"
    return None


def _describe_type(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _read_lines(path: Path) -> Iterator[tuple[int, str | UnicodeDecodeError]]:
    """Yield number and text of every line, without byte order mark and line end."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            data = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            try:
                yield number, data.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield number, error


def _read_jsonl(path: Path) -> Iterator[_Record]:
    for number, line in _read_lines(path):
        if isinstance(line, UnicodeDecodeError):
            yield number, line
        elif line.strip():
            yield number, _parse_json(line)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _read_json(path: Path) -> Iterator[_Record]:
    lines = list(_read_lines(path))
    broken = [(number, line) for number, line in lines if isinstance(line, UnicodeDecodeError)]
    if broken:
        yield from broken
        return
    content = _parse_json("\n".join(str(line) for _, line in lines))
    if isinstance(content, json.JSONDecodeError):
        yield content.lineno, ValueError(f"is not JSON: {content.msg} at column {content.colno}")
    elif isinstance(content, list):
        yield from enumerate(content, start=1)
    elif isinstance(content, Exception):
        yield 1, content
    else:
        yield 1, ValueError(f"is {_describe_type(content)}; a .json file must hold a list of rows")


def _read_csv(path: Path) -> Iterator[_Record]:
    """Yield the records of a CSV file, each at the line where it begins."""
    broken: list[_Record] = []
    lines = _csv_lines(path, broken)
    reader = csv.reader(lines, strict=True)
    header: list[str] | None = None
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield start, ValueError(f"is not CSV: {error}")
            return
        if broken:
            yield from broken
            return
        if cells is None:
            return
        if header is None:
            header = cells
        elif len(cells) > len(header):
            yield start, ValueError(f"has {len(cells)} cells, the header only {len(header)}")
        elif cells:
            yield start, dict(zip(header, cells, strict=False))


def _csv_lines(path: Path, broken: list[_Record]) -> Iterator[str]:
    for number, line in _read_lines(path):
        if isinstance(line, UnicodeDecodeError):
            broken.append((number, line))
            return
        yield f"{line}\n"


_READERS: dict[str, Callable[[Path], Iterator[_Record]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
}
