"""Read the rows of a JSON, JSONL or CSV file, each with its file and row number.

The row number is the line for JSONL and CSV (the header of a CSV file is line 1; a record over
several lines counts where it begins) and the place in the list for JSON, all counted from 1. A byte
order mark, CRLF line ends and blank lines make no difference. Everything wrong with the rows is
gathered and raised once.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from custom_components.errors import UserError

NUM_SHOWN = 20
"""How many bad rows a message lists before it only counts them."""
SUFFIXES = (".json", ".jsonl", ".csv")

_Record = tuple[int, Any]
"""Row number and what stands there; an exception when it cannot be read."""


@dataclass(frozen=True)
class Row:
    """One row of a source.

    Args:
        id: ``<file>:<row>``.
        values: Column name to value, as read.
    """

    id: str
    values: Mapping[str, Any]


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


def read_file(path: Path, *, max_rows: int | None) -> list[Row]:
    """Return the rows of a file.

    Args:
        path: A .json (a list of objects), .jsonl (an object a line) or .csv file.
        max_rows: Look at the first rows only.

    Raises:
        UserError: If the file or any of these rows cannot be read.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"dataset.source: {path} is not a {', '.join(SUFFIXES)} file")
    try:
        records = list(islice(reader(path), max_rows))
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
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


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
    header: list[str] | None = None
    for number, cells in _csv_cells(path):
        if isinstance(cells, Exception):
            yield number, cells
        elif header is None:
            header = cells
            twice = {name for name in header if header.count(name) > 1}
            if twice:
                yield number, ValueError(f"names {', '.join(sorted(twice))} more than once")
                return
        elif len(cells) > len(header):
            yield number, ValueError(f"has {len(cells)} cells, the header only {len(header)}")
        else:
            yield number, dict(zip(header, cells, strict=False))


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str] | Exception]]:
    """Yield line and cells of every record but blank ones; stop at the first error."""
    undecodable: list[tuple[int, Exception]] = []

    def lines() -> Iterator[str]:
        for number, line in _read_lines(path):
            if isinstance(line, UnicodeDecodeError):
                undecodable.append((number, line))
                return
            yield f"{line}\n"

    reader = csv.reader(lines(), strict=True)
    start = 1
    try:
        for cells in reader:
            if undecodable:
                break
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        if not undecodable:
            yield start, ValueError(f"is not CSV: {error}")
    yield from undecodable


_READERS: dict[str, Callable[[Path], Iterator[_Record]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
}
