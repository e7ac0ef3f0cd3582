"""Sources: where the rows of a data set come from, one source or a weighted mixture of several.

Every row has an id, ``<file>:<row>``, counted from 1.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil
from typing import Any

from custom_components.datasets.columns import Layout, find_column_problems, name_columns
from custom_components.datasets.layouts import INPUT_PLACE, to_conversation
from custom_components.datasets.mixture import (
    Part,
    Reading,
    Source,
    count_shares,
    list_parts,
    to_shares,
)
from custom_components.datasets.rows import Conversation, Row, Unusable
from custom_components.datasets.tables import (
    Table,
    check_datasets_package,
    find_kind,
    list_files,
    open_tables,
)
from custom_components.errors import UserError

_NUM_CHECKED = 100
_MIXTURE_SEED = 0


@dataclass(frozen=True)
class Conversations:
    """What a source holds.

    Args:
        rows: In the source's order, read as they are asked for.
        tables: What is read: paths of files, hub id and split, or the embedded corpus and split.
        num_left_out: Rows of a mixture that its weights leave out.
        unused_columns: Columns that the layout does not read, known when all rows are read.
    """

    rows: Iterator[Conversation | Unusable]
    tables: list[str]
    num_left_out: int
    unused_columns: dict[str, None] = field(default_factory=dict)


def read_conversations(
    reading: Reading, *, prompt: str | None, system_prompt: str | None
) -> Conversations:
    """Return the rows of a source as conversations.

    Of a mixture as many rows are taken as its weights allow without taking one twice (the shares
    of Hugging Face's ``interleave_datasets`` with ``first_exhausted``): the sources follow each
    other, and which rows of one are left out is drawn with a fixed seed. Its rows are held in
    memory until they are asked for; those of one source are not.

    Args:
        reading: Which rows.
        prompt: See ``layouts.to_conversation``.
        system_prompt: See ``layouts.to_conversation``.

    Raises:
        UserError: If the source cannot be read or a column is missing: at once where that can be
            seen at once, else with the row that is asked for.
    """
    parts = list_parts(reading)
    opened: list[tuple[Part, int | None, list[Table]]] = []
    problems: list[str] = []
    for part, max_rows in zip(parts, _limit_rows(parts, reading.max_rows), strict=True):
        try:
            opened.append((part, max_rows, _open_part(part, max_rows)))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(*problems)
    read = [_read_part(part, max_rows, tables) for part, max_rows, tables in opened]
    chosen, num_left_out = _choose_rows(parts, read, reading.max_rows)
    unused: dict[str, None] = {}
    rendering = {"prompt": prompt, "system_prompt": system_prompt}
    rows = (
        row
        for part, part_rows in zip(parts, chosen, strict=True)
        for row in _convert(part, part_rows, unused, **rendering)
    )
    names = [table.name for _, _, tables in opened for table in tables]
    return Conversations(rows, names, num_left_out, unused)


def fingerprint_source(reading: Reading) -> str:
    """Return a SHA-256 of the contents of a source and of how they are read.

    Names and bytes of files, in order, count, not their folders or times: a name says how a file
    is read, and it is in the ids of its rows. Of an embedded corpus and of the hub the rows count,
    so those are read.

    Args:
        reading: All of it counts but the key; the corpus counts by its rows.

    Raises:
        UserError: If the source cannot be read.
    """
    digest = hashlib.sha256()
    for part in list_parts(reading):
        settings = {
            "kind": find_kind(part.source, key=part.key),
            "weight": part.weight,
            "split": part.split,
            "layout": part.layout,
            "column_map": part.column_map,
            "max_rows": reading.max_rows,
        }
        for piece in chain([settings], _list_contents(part, reading.max_rows)):
            digest.update(json.dumps(piece, sort_keys=True, default=repr).encode())
    return digest.hexdigest()


def find_source_problems(
    *,
    source: Source,
    split: str = "train",
    layout: Layout,
    column_map: Mapping[str, str] | None = None,
    prompt: str | None = None,
    max_rows: int | None = None,
    max_seq_len: int | None = None,
    corpus: str,
    key: str = "dataset",
    **others: Any,
) -> list[str]:
    """Return what is wrong with a data set's arguments, as far as can be told without a tokenizer.

    They are given as a config gives them, so what a builder has a default for may be missing. Only
    the columns of the first 100 rows of every file are looked at, and nothing is downloaded.

    Args:
        source: See ``mixture.Reading``; the other arguments too.
        split: See there.
        layout: See there.
        column_map: See there.
        prompt: Must say where the input goes.
        max_rows: At least 1, or None.
        max_seq_len: At least 2: one token to read and one to predict.
        corpus: See there.
        key: See there.
        **others: Arguments with closed choices, which their types check.
    """
    reading = Reading(
        source=source,
        split=split,
        layout=layout,
        column_map=column_map,
        max_rows=max_rows,
        corpus=corpus,
        key=key,
    )
    problems = []
    if max_rows is not None and max_rows < 1:
        problems.append(f"{key}.max_rows: {max_rows}; give 1 or more, or null for all rows")
    if max_seq_len is not None and max_seq_len < 2:
        problems.append(f"{key}.max_seq_len: {max_seq_len}; give 2 or more")
    if prompt is not None and INPUT_PLACE not in prompt:
        problems.append(
            f"{key}.prompt: {prompt!r} does not say where the input goes; put {INPUT_PLACE} there"
        )
    try:
        parts = list_parts(reading)
    except UserError as error:
        return [*problems, *error.problems]
    num_rows = _NUM_CHECKED if max_rows is None or max_rows < 1 else min(max_rows, _NUM_CHECKED)
    return problems + [problem for part in parts for problem in _find_part_problems(part, num_rows)]


# --- The parts -----------------------------------------------------------------------------------


def _open_part(part: Part, max_rows: int | None) -> list[Table]:
    return open_tables(
        part.source, split=part.split, max_rows=max_rows, corpus=part.corpus, key=part.key
    )


def _read_part(
    part: Part, max_rows: int | None, tables: Iterable[Table]
) -> Iterator[Row | Unusable]:
    """Yield the rows of one part; refuse a table without its columns and a part without rows."""
    rows = chain.from_iterable(_check_columns(part, table) for table in tables)
    first = next(rows, None)
    if first is None:
        raise UserError(f"{part.key}.source: {part.source} holds no rows")
    yield from islice(chain([first], rows), max_rows)


def _convert(
    part: Part,
    rows: Iterable[Row | Unusable],
    unused: dict[str, None],
    *,
    prompt: str | None,
    system_prompt: str | None,
) -> Iterator[Conversation | Unusable]:
    """Yield the conversations of one part; put columns that it does not read into ``unused``."""
    read = set(name_columns(part.layout, part.column_map).values())
    for row in rows:
        if isinstance(row, Unusable):
            yield row
            continue
        unused |= {str(name): None for name in row.values if name not in read}
        yield to_conversation(
            row,
            layout=part.layout,
            column_map=part.column_map,
            prompt=prompt,
            system_prompt=system_prompt,
        )


def _check_columns(part: Part, table: Table) -> Iterator[Row | Unusable]:
    rows = iter(table.rows)
    first = list(islice(rows, _NUM_CHECKED))
    readable = [row for row in first if isinstance(row, Row)]
    problems = []
    if readable:
        problems = find_column_problems(
            readable,
            layout=part.layout,
            column_map=part.column_map,
            source=table.name,
            key=part.map_key,
        )
    if problems:
        raise UserError(*problems)
    yield from first
    yield from rows


def _find_part_problems(part: Part, num_rows: int) -> list[str]:
    try:
        if find_kind(part.source, key=part.key) == "hub":
            check_datasets_package(part.source, key=part.key)
            return []
        tables = _open_part(part, num_rows)
    except UserError as error:
        return list(error.problems)
    problems: list[str] = []
    is_empty = True
    for table in tables:
        try:
            is_empty &= not any(True for _ in islice(_check_columns(part, table), num_rows))
        except UserError as error:
            is_empty = False
            problems += error.problems
    return [f"{part.key}.source: {part.source} holds no rows"] if is_empty else problems


def _list_contents(part: Part, max_rows: int | None) -> Iterator[Any]:
    """Yield name and digest of every file, or the values of every row if it is not of files."""
    if find_kind(part.source, key=part.key) in ("file", "folder"):
        for path in list_files(part.source, split=part.split, key=part.key):
            try:
                with path.open("rb") as file:
                    yield path.name, hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise UserError(
                    f"{part.key}.source: cannot read {path}: {error.strerror}"
                ) from error
        return
    for row in _read_part(part, max_rows, _open_part(part, max_rows)):
        yield row.values if isinstance(row, Row) else row.detail


# --- The mixture ---------------------------------------------------------------------------------


def _limit_rows(parts: Sequence[Part], max_rows: int | None) -> list[int | None]:
    if max_rows is None:
        return [None] * len(parts)
    return [ceil(max_rows * share) for share in to_shares([part.weight for part in parts])]


def _choose_rows(
    parts: Sequence[Part], read: Sequence[Iterator[Row | Unusable]], max_rows: int | None
) -> tuple[Sequence[Iterable[Row | Unusable]], int]:
    """Return the rows of every part that are used, and how many are not."""
    if len(parts) == 1:
        return read, 0
    found = [list(rows) for rows in read]
    numbers = [len(rows) for rows in found]
    counts = count_shares(numbers, [part.weight for part in parts], max_rows)
    problems = [
        f"{part.key}.weight: {part.weight} leaves none of the rows of {part.source}; raise it"
        for part, count in zip(parts, counts, strict=True)
        if count == 0
    ]
    if problems:
        raise UserError(*problems)
    chosen = [
        [rows[i] for i in sorted(random.Random(_MIXTURE_SEED).sample(range(len(rows)), count))]
        for rows, count in zip(found, counts, strict=True)
    ]
    return chosen, sum(numbers) - sum(counts)
