import math

import pytest
from pydantic import TypeAdapter, ValidationError

from custom_components.datasets.mixture import Reading, Source, count_shares, list_parts
from custom_components.errors import UserError


def list_all(source, **options):
    defaults = {"split": "train", "layout": "prompt_response", "column_map": None}
    return list_parts(Reading(source=source, max_rows=None, corpus="grammar", **defaults | options))


def problems_of(source, **options):
    with pytest.raises(UserError) as error:
        list_all(source, **options)
    return error.value.problems


# --- Shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_rows", "weights", "max_rows", "expected"),
    [
        ([10, 10], [1, 1], None, [10, 10]),
        ([10, 100], [1, 1], None, [10, 10]),
        ([10, 100], [1, 3], None, [10, 30]),
        ([30, 100, 7], [0.3, 0.6, 0.1], None, [21, 42, 7]),
        ([10, 100], [0.1, 0.3], None, [10, 30]),  # 0.3 / 0.1 is 2.9999999999999996 as floats
        ([10, 31], [2, 3], None, [10, 15]),
        ([10], [0.5], None, [10]),
        ([1000, 1000], [3, 1], 40, [30, 10]),
        ([3, 1000], [3, 1], 40, [3, 1]),
        ([1000, 1000], [2, 1], 10, [6, 3]),
        ([5, 100], [1, 0.1], None, [5, 0]),
    ],
)
def test_as_many_rows_as_possible_are_taken_in_the_shares(num_rows, weights, max_rows, expected):
    """Worked by hand: the source that runs out first decides."""
    assert count_shares(num_rows, weights, max_rows) == expected


def test_shares_are_those_of_interleave_datasets():
    """first_exhausted stops at the source that runs out; its expected counts are the shares."""
    datasets = pytest.importorskip("datasets")
    sizes, weights = [3000, 1000], [0.6, 0.4]
    tables = [datasets.Dataset.from_dict({"part": [i] * n}) for i, n in enumerate(sizes)]
    mixed = datasets.interleave_datasets(
        tables, probabilities=weights, seed=0, stopping_strategy="first_exhausted"
    )
    counts = [sum(part == i for part in mixed["part"]) for i in range(2)]
    for ours, theirs in zip(count_shares(sizes, weights), counts, strict=True):
        assert math.isclose(ours, theirs, rel_tol=0.1)


# --- Parts ---------------------------------------------------------------------------------------


def test_one_source_is_one_part():
    (part,) = list_all("embedded", split="heldout", column_map={"input": "q"})
    assert (part.source, part.weight, part.split) == ("embedded", 1, "heldout")
    assert (part.key, part.map_key) == ("dataset", "dataset.column_map")


def test_items_of_a_mixture_have_their_own_settings_or_the_data_sets():
    own = {"split": "dev", "layout": "alpaca", "column_map": {"instruction": "q"}}
    first, second = list_all(
        [{"source": "a.csv", "weight": 2}, {"source": "b.csv", "weight": 0.5} | own],
        column_map={"input": "x"},
        key="dataset_val",
    )
    assert (first.split, first.layout, first.column_map) == (
        "train",
        "prompt_response",
        {"input": "x"},
    )
    assert (second.split, second.layout, second.column_map) == tuple(own.values())
    assert (first.weight, second.weight) == (2, 0.5)
    assert (first.key, first.map_key) == ("dataset_val.source[0]", "dataset_val.column_map")
    assert second.map_key == "dataset_val.source[1].column_map"


ITEM = {"source": "a.csv", "weight": 1}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ([ITEM, {"source": "a.csv"}], ["dataset.source[1].weight is missing"]),
        ([{"weight": 1}], ["dataset.source[0].source is missing"]),
        (
            [ITEM | {"wieght": 2, "layuot": "alpaca"}],
            ["source[0].wieght: unknown key (did you mean 'weight'?)", "(did you mean 'layout'?)"],
        ),
        ([ITEM | {"weight": 0}], ["dataset.source[0].weight: found 0; input should be greater"]),
        ([ITEM | {"weight": -1}], ["found -1"]),
        ([ITEM | {"weight": float("inf")}], ["found inf"]),
        ([ITEM | {"weight": float("nan")}], ["found nan"]),
        ([ITEM | {"weight": "1"}], ["found '1'"]),
        ([ITEM | {"weight": True}], ["found True"]),
        ([ITEM | {"layout": "chatml"}], ["dataset.source[0].layout: found 'chatml'"]),
        ([ITEM | {"split": 3}], ["dataset.source[0].split: found 3"]),
        ([ITEM | {"column_map": {"input": 3}}], ["source[0].column_map.input: found 3"]),
        (["a.csv"], ["dataset.source[0]: found 'a.csv'"]),
        ([ITEM | {"source": [ITEM]}], ["dataset.source[0].source: found [{"]),
        ([], ["dataset.source: an empty list"]),
        ({"a": 1}, ["dataset.source: {'a': 1} is neither a text nor a list"]),
        (None, ["dataset.source: None is neither a text nor a list"]),
        ([ITEM | {"column_map": {"inptu": "x"}}], ["source[0].column_map: unknown key 'inptu'"]),
    ],
)
def test_malformed_mixture_is_refused(source, expected):
    for problem, part in zip(problems_of(source), expected, strict=True):
        assert part in problem


def test_wrong_column_map_of_all_is_told_once():
    problems = problems_of([ITEM, ITEM], column_map={"inptu": "x"})
    assert len(problems) == 1


@pytest.mark.parametrize("change", [{"weight": 0}, {"weight": "1"}, {"extra": 1}])
def test_source_is_a_type_that_a_config_is_checked_against(change):
    adapter = TypeAdapter(Source)
    adapter.validate_python([ITEM], strict=True)
    adapter.validate_python("embedded", strict=True)
    with pytest.raises(ValidationError):
        adapter.validate_python([ITEM | change], strict=True)
