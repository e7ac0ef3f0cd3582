"""Read the rows of a JSON, JSONL, CSV or Parquet file, each with its file and row number.

The row number is the line for JSONL and CSV (the header of a CSV file is line 1; a record over
several lines counts where it begins) and the place in the file for JSON and Parquet, all counted
from 1. A byte order mark, CRLF line ends and blank lines make no difference, and no row gains keys
that another one has (in Parquet Arrow adds nulls; they are dropped from the arguments of tool
calls). A row that cannot be read is an ``Unusable`` in its place; a file that cannot be read is a
``UserError``, and so is a CSV file with a record that leaves open where the next one begins.
"""

import csv
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from custom_components.datasets.rows import UNREADABLE, Row, Unusable, drop_null_arguments
from custom_components.errors import UserError

NUM_SHOWN = 20
"""How many bad rows a message lists before it only counts them."""
SUFFIXES = (".json", ".jsonl", ".csv", ".parquet")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CELL_CHARACTERS = 2**31 - 1
_PARQUET_BATCH_ROWS = 1000

_Record = tuple[int, Any]
"""Row number and what stands there; an exception when it cannot be read."""


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


def read_file(path: Path, *, max_rows: int | None) -> Iterator[Row | Unusable]:
    """Return the rows of a file, read as they are asked for (a .json file is read whole).

    Args:
        path: A .json (a list of objects), .jsonl (an object a line), .csv or .parquet file.
        max_rows: Look at the first rows only.

    Raises:
        UserError: If the file cannot be read: at once for a name of another kind, else with the
            row that is asked for.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path} is not a {', '.join(SUFFIXES)} file")
    return islice(_read_rows(path, reader), max_rows)


def make_row(row_id: str, record: Any) -> Row | Unusable:
    """Return what was read as a row, or why it is none.

    Args:
        row_id: ``<file>:<row>``.
        record: Column name to value; anything else, an exception too, is unusable.
    """
    problem = _describe_problem(record)
    return Row(row_id, record) if problem is None else Unusable(row_id, UNREADABLE, problem)


def _read_rows(path: Path, reader: Callable[[Path], Iterator[_Record]]) -> Iterator[Row | Unusable]:
    try:
        for number, record in reader(path):
            yield make_row(f"{path}:{number}", record)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot read {path}: {reason}") from error


# --- What is wrong with a row --------------------------------------------------------------------


def _describe_problem(record: Any) -> str | None:
    if isinstance(record, json.JSONDecodeError):
        return f"is not JSON: {record.msg} at character {record.pos + 1}"
    if isinstance(record, UnicodeDecodeError):
        return _describe_byte(record.object[record.start])
    if isinstance(record, Exception):
        return str(record)
    if not isinstance(record, dict):
        return f"is {_describe_type(record)}, not an object with named columns"
    try:
        found = _find_surrogate(record)
    except RecursionError:
        return "is nested too deeply"
    if found is None:
        return None
    return f"{found[0].lstrip('.')} holds a lone surrogate, half of a character; write it anew"


def _describe_type(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _describe_byte(byte: int) -> str:
    return f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"


def _find_surrogate(value: Any) -> tuple[str, str] | None:
    """Return the place, such as ``.messages[1].content``, and the surrogate found there."""
    if isinstance(value, str):
        found = None if value.isascii() else _SURROGATE.search(value)
        return found and ("", found[0])
    if isinstance(value, dict):
        for key, item in value.items():
            inner = _find_surrogate(key) or _find_surrogate(item)
            if inner is not None:
                name = str(key).encode(errors="backslashreplace").decode()
                return f".{name}{inner[0]}", inner[1]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            inner = _find_surrogate(item)
            if inner is not None:
                return f"[{index}]{inner[0]}", inner[1]
    return None


def _refuse_bad_bytes(record: Any) -> Any:
    """Return a record decoded with ``surrogateescape``, or the first byte that is not UTF-8."""
    found = _find_surrogate(record)
    if found is not None and "\udc80" <= found[1] <= "\udcff":
        return ValueError(_describe_byte(ord(found[1]) - 0xDC00))
    return record


# --- JSON ----------------------------------------------------------------------------------------


def _read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of every line, without byte order mark and line end."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            data = _remove_mark(path, line) if number == 1 else line
            yield number, data.rstrip(b"\r\n")


def _remove_mark(path: Path, data: bytes) -> bytes:
    if data.startswith(_UTF16_MARKS):
        raise UserError(f"{path} is UTF-16; save it as UTF-8")
    return data.removeprefix(_BYTE_ORDER_MARK)


def _read_jsonl(path: Path) -> Iterator[_Record]:
    for number, line in _read_lines(path):
        if line.strip():
            yield number, _parse_json(line)


def _parse_json(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        return error


def _read_json(path: Path) -> Iterator[_Record]:
    data = _remove_mark(path, path.read_bytes())
    text = data.decode(errors="surrogateescape")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "; a file with one object a line is a .jsonl" if error.msg == "Extra data" else ""
        raise UserError(
            f"{path}:{error.lineno} is not JSON: {error.msg} at column {error.colno}{hint}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON that can be read: {error}") from error
    if not isinstance(content, list):
        raise UserError(
            f"{path} is {_describe_type(content)}; a .json file must hold a list of rows"
        )
    is_utf8 = text.isascii() or not _SURROGATE.search(text)
    del data, text
    for number, record in enumerate(content, start=1):
        yield number, record if is_utf8 else _refuse_bad_bytes(record)


# --- CSV -----------------------------------------------------------------------------------------


def _read_csv(path: Path) -> Iterator[_Record]:
    """Yield the records of a CSV file, each at the line where it begins."""
    header: list[str] | None = None
    for number, cells in _csv_cells(path):
        if header is None:
            header = _check_header(f"{path}:{number}", cells)
        elif isinstance(cells, Exception):
            yield number, cells
        elif len(cells) > len(header):
            yield number, ValueError(f"has {len(cells)} cells, the header only {len(header)}")
        else:
            yield number, dict(zip(header, cells, strict=False))


def _check_header(place: str, cells: list[str] | Exception) -> list[str]:
    if isinstance(cells, Exception):
        raise UserError(f"{place}, the header, {cells}")
    twice = sorted({name for name in cells if cells.count(name) > 1})
    if twice:
        names = ", ".join(name or "a blank column" for name in twice)
        raise UserError(f"{place}, the header, names {names} more than once")
    return cells


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str] | Exception]]:
    """Yield line and cells of every record but blank ones.

    Raises:
        UserError: If a bad record is not plainly one line.
    """
    csv.field_size_limit(_MAX_CELL_CHARACTERS)  # of the whole process; the default is 131,072
    taken: list[str] = []  # the lines of the record

    def take_lines() -> Iterator[str]:
        for _, line in _read_lines(path):
            taken.append(line.decode(errors="surrogateescape"))
            yield f"{taken[-1]}\n"

    reader = csv.reader(take_lines(), strict=True)
    while True:
        start = reader.line_num + 1
        taken.clear()
        try:
            cells = _refuse_bad_bytes(next(reader))
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error).partition(" - ")[0]  # behind it: how Python opens files
            is_open = reason == "unexpected end of data"
            cells = ValueError(f"is not CSV: {'a quote is not closed' if is_open else reason}")
        if isinstance(cells, Exception) and not _is_one_line(taken):
            extent = f" (to line {reader.line_num})" if len(taken) > 1 else ""
            raise UserError(
                f"{path}:{start}{extent} {cells}; where the next row begins cannot be told, so no "
                "row of the file is used: mend this one"
            )
        if cells:
            yield start, cells


def _is_one_line(lines: list[str]) -> bool:
    """Return whether a bad record surely ends with its line: no quote is open at its end.

    A carriage return inside a line may be a line end, and then it is several rows.
    """
    return len(lines) == 1 and lines[0].count('"') % 2 == 0 and "\r" not in lines[0]


# --- Parquet -------------------------------------------------------------------------------------


def _read_parquet(path: Path) -> Iterator[_Record]:
    """Yield the rows of a Parquet file, a batch of one row group in memory at a time."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"reading {path} needs the package pyarrow: run `pip install pyarrow`")
    import pyarrow
    import pyarrow.parquet

    path.open("rb").close()  # Python's own message where it is missing or may not be read
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_header(str(path), file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS):
                for record in _read_batch(batch):
                    number += 1
                    yield number, drop_null_arguments(record)
    except (pyarrow.ArrowException, OverflowError) as error:  # such as a date after the year 9999
        raise UserError(f"{path} cannot be read as a Parquet file: {error}") from error


def _read_batch(batch: Any) -> Iterator[Any]:
    """Yield the rows of an Arrow record batch; one with a text that is not UTF-8 as an error."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for index in range(batch.num_rows):
            try:
                yield batch.slice(index, 1).to_pylist()[0]
            except UnicodeDecodeError as error:
                yield error


_READERS: dict[str, Callable[[Path], Iterator[_Record]]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
