"""Mixtures: several sources of one data set, in shares of their weights.

In a config::

    source:  # three rows of the first to one of the second
      - {source: my_pairs.jsonl, weight: 3}
      - {source: org/name, split: validation, weight: 1, column_map: {input: text}}

One source alone is a mixture of one part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from custom_components.datasets.columns import Layout, find_map_problems, join_names, suggest
from custom_components.errors import UserError


class MixtureItem(TypedDict):
    """One source of a mixture.

    ``weight`` is its share of the rows, relative to the others'; what is not given is as for the
    whole data set.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    source: str
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    split: NotRequired[str]
    column_map: NotRequired[dict[str, str]]
    layout: NotRequired[Layout]


Source = str | list[MixtureItem]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which rows a data set has: the arguments of a builder that say so.

    Args:
        source: ``embedded``; a path to a .json, .jsonl, .csv or .parquet file or a folder of them;
            a hub id ``org/name[@revision]``; or a list of these with weights.
        split: See ``tables.open_tables``.
        layout: How columns are understood, see ``layouts.py``.
        column_map: Our column to the source's column, where they differ.
        max_rows: Read only the first rows; of a mixture, the first of every source by its share.
        corpus: Which corpus ``embedded`` is, a name of ``tables.EMBEDDED``.
        key: Config key of the data set, for messages.
    """

    source: Source
    split: str
    layout: Layout
    column_map: Mapping[str, str] | None
    max_rows: int | None
    corpus: str
    key: str = "dataset"


@dataclass(frozen=True)
class Part:
    """One source and how its rows are read.

    Args:
        source: ``embedded``, a path, or a hub id.
        weight: Share of the rows, relative to other parts'.
        split: See ``tables.open_tables``.
        layout: How columns are understood.
        column_map: Our column to the source's column.
        corpus: Which corpus ``embedded`` is.
        key: Config key that it stands under.
        map_key: Config key of its column map.
    """

    source: str
    weight: float
    split: str
    layout: Layout
    column_map: Mapping[str, str] | None
    corpus: str
    key: str
    map_key: str


def list_parts(reading: Reading) -> list[Part]:
    """Return the parts of a source: one, or those of a mixture.

    Args:
        reading: Its split, layout and column map are those of parts that name none.

    Raises:
        UserError: If a mixture or a column map is malformed.
    """
    source, key = reading.source, reading.key
    try:
        TypeAdapter(Source).validate_python(source, strict=True)
    except ValidationError as error:
        raise UserError(*_describe_mixture_errors(source, error, key=key)) from error
    if source == []:
        raise UserError(f"{key}.source: an empty list; give at least one source")
    items: Sequence[str | MixtureItem] = [source] if isinstance(source, str) else source
    parts = []
    for index, item in enumerate(items):
        own: dict[str, Any] = {} if isinstance(item, str) else dict(item)
        item_key = f"{key}.source[{index}]" if own else key
        part = Part(
            source=str(own.get("source", item)),
            weight=own.get("weight", 1),
            split=own.get("split", reading.split),
            layout=own.get("layout", reading.layout),
            column_map=own.get("column_map", reading.column_map),
            corpus=reading.corpus,
            key=item_key,
            map_key=f"{item_key if 'column_map' in own else key}.column_map",
        )
        parts.append(part)
    problems = [
        problem
        for part in parts
        for problem in find_map_problems(part.layout, part.column_map, key=part.map_key)
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))
    return parts


def _describe_mixture_errors(source: Any, error: ValidationError, *, key: str) -> list[str]:
    if not isinstance(source, list):
        return [f"{key}.source: {source!r:.60} is neither a text nor a list of sources"]
    known = MixtureItem.__annotations__
    problems = []
    for wrong in error.errors():
        place = [f"[{p}]" if isinstance(p, int) else f".{p}" for p in wrong["loc"][1:]]
        where, name = f"{key}.source{''.join(place)}", str(wrong["loc"][-1])
        if wrong["type"] == "extra_forbidden":
            problems.append(
                f"{where}: unknown key{suggest(name, known)}; it has {join_names(known)}"
            )
        elif wrong["type"] == "missing":
            problems.append(f"{where} is missing: every source of a mixture needs one")
        elif place:  # without a place it is about a text, which this is not
            problems.append(f"{where}: found {wrong['input']!r:.60}; {wrong['msg'].lower()}")
    return problems


def count_shares(
    num_rows: Sequence[int], weights: Sequence[float], max_rows: int | None = None
) -> list[int]:
    """Return how many rows to take of each source: as many as possible in shares of the weights.

    Args:
        num_rows: Rows that there are, a source.
        weights: One a source, above 0; only their ratios matter.
        max_rows: Most rows in all.
    """
    shares = to_shares(weights)
    total = min(Fraction(n) / share for n, share in zip(num_rows, shares, strict=True))
    if max_rows is not None:
        total = min(total, Fraction(max_rows))
    return [floor(total * share) for share in shares]


def to_shares(weights: Sequence[float]) -> list[Fraction]:
    """Return each weight's share of their sum, exactly.

    Args:
        weights: Above 0, as written: 0.3 is three times 0.1.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    return [weight / sum(exact) for weight in exact]
