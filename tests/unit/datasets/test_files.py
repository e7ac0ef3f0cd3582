import json

import pytest

from custom_components.datasets.files import describe_rows, read_file
from custom_components.errors import UserError

ROWS = [{"input": "He go home .", "output": "He goes home ."}, {"input": "Ünï", "output": "日本"}]


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def rows_of(path, max_rows=None):
    return [
        (row.id.removeprefix(f"{path}:"), row.values) for row in read_file(path, max_rows=max_rows)
    ]


def problem_of(path, max_rows=None):
    with pytest.raises(UserError) as error:
        read_file(path, max_rows=max_rows)
    return str(error.value)


def as_jsonl(line_end):
    return line_end.join(json.dumps(row, ensure_ascii=False) for row in ROWS) + line_end


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_byte_order_mark_and_crlf_make_no_difference(tmp_path, suffix, line_end, prefix):
    """datasets#8241: a byte order mark became part of the first column's name."""
    text = {
        "json": json.dumps(ROWS, ensure_ascii=False, indent=1).replace("\n", line_end),
        "jsonl": as_jsonl(line_end),
        "csv": line_end.join(["input,output", "He go home .,He goes home .", "Ünï,日本", ""]),
    }[suffix]
    path = write(tmp_path / f"rows.{suffix}", prefix + text.encode())
    assert [values for _, values in rows_of(path)] == ROWS


def test_blank_lines_are_skipped_but_counted(tmp_path):
    path = write(tmp_path / "rows.jsonl", '\n{"a": 1}\n  \n\n{"a": 2}')
    assert rows_of(path) == [("2", {"a": 1}), ("5", {"a": 2})]
    path = write(tmp_path / "rows.csv", "\na\n1\n\n2\n")
    assert rows_of(path) == [("3", {"a": "1"}), ("5", {"a": "2"})]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_csv_record_over_several_lines_counts_where_it_begins(tmp_path, line_end):
    lines = ["a,b", '"one', 'two",x', '"say ""hi""",y', ""]
    path = write(tmp_path / "rows.csv", line_end.join(lines))
    assert rows_of(path) == [
        ("2", {"a": "one\ntwo", "b": "x"}),
        ("4", {"a": 'say "hi"', "b": "y"}),
    ]


def test_csv_short_record_lacks_its_last_columns(tmp_path):
    path = write(tmp_path / "rows.csv", "a,b\n1\n")
    assert rows_of(path) == [("2", {"a": "1"})]


def test_rows_with_different_keys_gain_no_nulls(tmp_path):
    """datasets#8241: differing nested keys were merged and filled with null."""
    rows = [{"a": {"x": 1}}, {"a": {"y": 2}, "b": 3}]
    path = write(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, rows)))
    assert [values for _, values in rows_of(path)] == rows


def test_line_separator_inside_a_text_is_no_line_end(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": "one\u2028two\x0c"}\n'.replace("\x0c", ""))
    assert rows_of(path) == [("1", {"a": "one\u2028two"})]


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_only_the_first_rows_are_looked_at(tmp_path, suffix):
    good = {"json": '[{"a": "1"}, 7]', "jsonl": '{"a": "1"}\n{broken', "csv": 'a\n1\n"open\n'}
    path = write(tmp_path / f"rows.{suffix}", good[suffix])
    assert [values for _, values in rows_of(path, max_rows=1)] == [{"a": "1"}]
    assert "cannot be used" in problem_of(path)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', "a.jsonl:2 byte 0xff is not UTF-8"),
        ("a.csv", b"a,b\n1,2\n3,\xe9\n", "a.csv:3 byte 0xe9 is not UTF-8"),
        ("a.json", b'[\n{"a": "\xff"}]', "a.json:2 byte 0xff is not UTF-8"),
        ("a.jsonl", '{"a": 1}\n{"a": }\n', "a.jsonl:2 is not JSON: Expecting value at character 7"),
        ("a.json", '[{"a": 1},\n{"a": }]', "a.json:2 is not JSON: Expecting value at column 7"),
        ("a.jsonl", "[1]\n", "a.jsonl:1 is a list, not an object with named columns"),
        ("a.jsonl", "null\n", "a.jsonl:1 is null, not an object"),
        ("a.json", '[{"a": 1}, "text"]', "a.json:2 is a text, not an object"),
        ("a.json", '{"data": []}', "is an object; a .json file must hold a list of rows"),
        ("a.json", "[" * 100_000, "a.json:1 "),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}", "a.jsonl:1 "),
        ("a.csv", 'a,b\n1,"open\n2,3\n', "a.csv:2 is not CSV"),
        ("a.csv", "a,b\n1,2,3\n", "a.csv:2 has 3 cells, the header only 2"),
        ("a.csv", "a,b,a\n1,2,3\n", "a.csv:1 names a more than once"),
        ("a.txt", "x", "a.txt is not a .json, .jsonl, .csv file"),
    ],
)  # fmt: skip
def test_broken_row_is_named_with_file_and_row(tmp_path, name, data, expected):
    assert expected in problem_of(write(tmp_path / name, data))


def test_all_broken_rows_are_gathered(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{\n{"a": 1}\n]\n')
    message = problem_of(path)
    assert message.startswith("2 rows cannot be used")
    assert ":1 is" in message
    assert ":3 is" in message


def test_missing_file_is_named(tmp_path):
    assert "none.jsonl: No such file" in problem_of(tmp_path / "none.jsonl")


def test_long_list_of_bad_rows_is_cut_and_counted():
    message = describe_rows([f"f:{n} is bad" for n in range(1, 26)], advice="mend them")
    assert message.startswith("25 rows cannot be used; mend them:")
    assert "f:20 is bad" in message
    assert "f:21" not in message
    assert message.endswith("and 5 more")
