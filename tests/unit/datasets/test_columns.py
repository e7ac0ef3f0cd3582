import typing

import pytest

from custom_components.datasets.columns import (
    Layout,
    find_column_problems,
    find_map_problems,
    name_columns,
)
from custom_components.datasets.rows import Row


def problems_of(values, *, layout="prompt_response", column_map=None):
    rows = [Row(f"f:{number}", row) for number, row in enumerate(values, start=1)]
    return find_column_problems(
        rows, layout=layout, column_map=column_map, source="f", key="dataset.column_map"
    )


def test_columns_keep_their_names_unless_mapped():
    assert name_columns("alpaca", {"output": "answer"}) == {
        "instruction": "instruction",
        "output": "answer",
        "input": "input",
        "system": "system",
    }


def test_missing_columns_name_those_present_and_the_nearest():
    problems = problems_of([{"wrong": "a"}, {"right": "b"}], column_map={"output": "rigth"})
    assert problems == [
        "dataset.column_map: f has no column 'input'; it has wrong, right; set "
        "dataset.column_map.input=COLUMN",
        "dataset.column_map: f has no column 'rigth' (did you mean 'right'?); it has wrong, right; "
        "set dataset.column_map.output=COLUMN",
    ]


def test_column_that_one_row_has_is_not_missing():
    assert problems_of([{"input": "a"}, {"input": "b", "output": "c"}]) == []


def test_optional_column_is_missing_only_where_it_is_mapped():
    row = {"instruction": "a", "output": "b"}
    assert problems_of([row], layout="alpaca") == []
    (problem,) = problems_of([row] * 3, layout="alpaca", column_map={"input": "context"})
    assert problem == (
        "dataset.column_map: f has no column 'context'; it has instruction, output; set "
        "dataset.column_map.input=COLUMN; only the first 3 rows were looked at: if it comes later, "
        "give the first row it too, as null"
    )
    named = row | {"context": None}
    assert problems_of([named, row], layout="alpaca", column_map={"input": "context"}) == []


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_with_another_separator_is_told_so(separator):
    problems = problems_of([{f"input{separator}output": f"a{separator}b"}])
    assert len(problems) == 2
    assert all("not separated by commas" in problem for problem in problems)
    assert repr(f"input{separator}output") in problems[0] or separator == ";"


@pytest.mark.parametrize("layout", typing.get_args(Layout))
def test_row_without_columns_lacks_what_the_layout_requires(layout):
    assert "it has none" in problems_of([{}], layout=layout)[0]


def test_unknown_key_of_the_column_map_is_refused():
    key = "dataset.source[1].column_map"
    assert find_map_problems("alpaca", {"instructions": "q", "output": "a"}, key=key) == [
        "dataset.source[1].column_map: unknown key 'instructions' (did you mean 'instruction'?); "
        "the layout alpaca has instruction, output, input and system, and the values are the "
        "source's column names"
    ]
