"""Columns: which ones a layout has, and what the source calls them."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal

from custom_components.datasets.rows import Row

Layout = Literal["prompt_response", "alpaca", "messages", "sharegpt"]
"""How the columns of a row are understood, see ``layouts.py``."""

_REQUIRED: dict[Layout, tuple[str, ...]] = {
    "prompt_response": ("input", "output"),
    "alpaca": ("instruction", "output"),
    "messages": ("messages",),
    "sharegpt": ("conversations",),
}
_OPTIONAL: dict[Layout, tuple[str, ...]] = {
    "prompt_response": ("system",),
    "alpaca": ("input", "system"),
    "messages": (),
    "sharegpt": ("system",),
}


def name_columns(layout: Layout, column_map: Mapping[str, str] | None) -> dict[str, str]:
    """Return our column -> the source's column, for every column of a layout.

    Args:
        layout: Which columns there are.
        column_map: Where they differ.
    """
    names = (*_REQUIRED[layout], *_OPTIONAL[layout])
    return {name: name for name in names} | dict(column_map or {})


def find_map_problems(
    layout: Layout, column_map: Mapping[str, str] | None, *, key: str
) -> list[str]:
    """Return what is wrong with the keys of a column map.

    Args:
        layout: Which columns there are.
        column_map: Our column to the source's column.
        key: The map's config key.
    """
    ours = name_columns(layout, None)
    return [
        f"{key}: unknown key {name!r}{suggest(name, ours)}; the layout {layout} has "
        f"{join_names(ours)}, and the values are the source's column names"
        for name in column_map or {}
        if name not in ours
    ]


def find_column_problems(
    rows: Iterable[Row],
    *,
    layout: Layout,
    column_map: Mapping[str, str] | None,
    source: str,
    key: str,
) -> list[str]:
    """Return which columns none of the rows has.

    Args:
        rows: The first ones of a table.
        layout: Which columns there must be. One that is optional must exist if it is mapped:
            a misspelt name would make no difference otherwise.
        column_map: Our column to the source's column.
        source: What the table is called.
        key: The map's config key.
    """
    rows = list(rows)
    present = list(dict.fromkeys(str(name) for row in rows for name in row.values))
    wanted = dict.fromkeys([*_REQUIRED[layout], *(column_map or ())])
    columns = name_columns(layout, column_map)
    hint = ""
    if len(present) == 1 and any(separator in present[0] for separator in ";\t"):
        hint = "; it is not separated by commas: save it with commas"
    sparse = (
        f"; only the first {len(rows)} rows were looked at: if it comes later, give the first row "
        "it too, as null"
    )
    return [
        f"{key}: {source} has no column {columns[ours]!r}{suggest(columns[ours], present)}; it has "
        f"{', '.join(map(_quote_odd, present)) or 'none'}{hint}; set {key}.{ours}=COLUMN"
        f"{'' if ours in _REQUIRED[layout] else sparse}"
        for ours in wanted
        if columns[ours] not in present
    ]


def suggest(name: str, valid: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest of the valid names, or nothing.

    Args:
        name: What was given.
        valid: What could have been given.
    """
    near = difflib.get_close_matches(name, list(valid), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _quote_odd(name: str) -> str:
    return name if name.isprintable() and name.strip() == name and name else repr(name)


def join_names(names: Iterable[str]) -> str:
    """Return ``a, b and c``, or ``none``.

    Args:
        names: In the order to show.
    """
    *first, last = [*names] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last
