import datetime
import json

import pyarrow
import pyarrow.parquet
import pytest

from custom_components.datasets.files import describe_rows, read_file
from custom_components.datasets.rows import UNREADABLE, Row, Unusable
from custom_components.errors import UserError

ROWS = [{"input": "He go home .", "output": "He goes home ."}, {"input": "Ünï", "output": "日本"}]


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def write_parquet(path, rows, **options):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def read(path, max_rows=None):
    """Return row number and values, or row number and what is wrong."""
    found = []
    for row in read_file(path, max_rows=max_rows):
        assert row.id.startswith(f"{path}:")
        number = int(row.id.removeprefix(f"{path}:"))
        if isinstance(row, Unusable):
            assert row.reason == UNREADABLE
        found.append((number, row.values if isinstance(row, Row) else row.detail))
    return found


def problem_of(path):
    with pytest.raises(UserError) as error:
        read(path)
    (problem,) = error.value.problems
    return problem


def as_text(suffix, line_end):
    return {
        "json": json.dumps(ROWS, ensure_ascii=False, indent=1).replace("\n", line_end),
        "jsonl": "".join(json.dumps(row, ensure_ascii=False) + line_end for row in ROWS),
        "csv": line_end.join(["input,output", "He go home .,He goes home .", "Ünï,日本", ""]),
    }[suffix]


# --- The same rows in every file -----------------------------------------------------------------


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_byte_order_mark_and_crlf_make_no_difference(tmp_path, suffix, line_end, prefix):
    """datasets#8241: a byte order mark became part of the first column's name."""
    path = write(tmp_path / f"rows.{suffix}", prefix + as_text(suffix, line_end).encode())
    assert [values for _, values in read(path)] == ROWS


def test_blank_lines_are_skipped_but_counted(tmp_path):
    path = write(tmp_path / "rows.jsonl", '\n{"a": 1}\n  \n\n{"a": 2}')
    assert read(path) == [(2, {"a": 1}), (5, {"a": 2})]
    path = write(tmp_path / "rows.csv", "\na\n1\n\n2\n")
    assert read(path) == [(3, {"a": "1"}), (5, {"a": "2"})]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_csv_record_over_several_lines_counts_where_it_begins(tmp_path, line_end):
    lines = ["a,b", '"one', 'two",x', '"say ""hi""",y', ""]
    path = write(tmp_path / "rows.csv", line_end.join(lines))
    assert read(path) == [(2, {"a": "one\ntwo", "b": "x"}), (4, {"a": 'say "hi"', "b": "y"})]


def test_blank_csv_cell_is_a_blank_text(tmp_path):
    """unsloth#10813: a blank cell became the word nan or None."""
    path = write(tmp_path / "rows.csv", 'a,b,c\n1,,""\n')
    assert read(path) == [(2, {"a": "1", "b": "", "c": ""})]


def test_csv_short_record_lacks_its_last_columns(tmp_path):
    path = write(tmp_path / "rows.csv", "a,b\n1\n")
    assert read(path) == [(2, {"a": "1"})]


def test_csv_cell_may_be_longer_than_pythons_limit(tmp_path):
    text = "x" * 200_000  # csv.field_size_limit() is 131,072 in a new process
    assert read(write(tmp_path / "rows.csv", f"a\n{text}\n")) == [(2, {"a": text})]


def test_rows_with_different_keys_gain_no_nulls(tmp_path):
    """datasets#8241: differing nested keys were merged and filled with null."""
    rows = [{"a": {"x": 1}}, {"a": {"y": 2}, "b": 3}]
    path = write(tmp_path / "rows.jsonl", "\n".join(map(json.dumps, rows)))
    assert [values for _, values in read(path)] == rows
    path = write(tmp_path / "rows.json", json.dumps(rows))
    assert [values for _, values in read(path)] == rows


def test_line_separator_inside_a_text_is_no_line_end(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": "one\u2028two\x85three"}\n')
    assert read(path) == [(1, {"a": "one\u2028two\x85three"})]


def test_parquet_rows_are_those_written(tmp_path):
    day = datetime.date(2024, 5, 1)
    rows = [
        {"input": "a", "messages": [{"role": "user", "content": None}], "n": 1, "day": day},
        {"input": None, "messages": [], "n": 2, "day": None},
        {"input": "日本", "messages": None, "n": 3, "day": day},
    ]
    path = write_parquet(tmp_path / "rows.parquet", rows, row_group_size=2)
    assert read(path) == list(enumerate(rows, start=1))


def test_parquet_gives_no_tool_call_the_arguments_of_another(tmp_path):
    """datasets#8241: Arrow gives every struct the fields of all, filled with null."""
    where = {"city": "Oslo", "at": {"lat": 60}}
    clock = {"zone": "CET", "days": [{"n": 1}, None]}
    calls = [{"name": name, "arguments": a} for name, a in [("where", where), ("clock", clock)]]
    rows = [{"messages": [{"content": None, "tool_calls": [call]}]} for call in calls]
    rows.append({"messages": [{"content": "x", "tool_calls": None}]})
    path = write_parquet(tmp_path / "rows.parquet", rows)
    with_nulls = pyarrow.parquet.read_table(path).to_pylist()[0]["messages"][0]["tool_calls"][0]
    assert with_nulls["arguments"] == where | {"zone": None, "days": None}
    assert [values for _, values in read(path)] == rows


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_null_that_json_gives_as_an_argument_stays(tmp_path, suffix):
    row = {"tool_calls": [{"name": "where", "arguments": {"city": "Oslo", "zone": None}}]}
    text = json.dumps([row] if suffix == "json" else row)
    assert read(write(tmp_path / f"rows.{suffix}", text)) == [(1, row)]


def test_parquet_is_read_a_batch_at_a_time(tmp_path, monkeypatch):
    """Row numbers go on over batches, and rows that are not asked for are not read."""
    path = write_parquet(tmp_path / "rows.parquet", [{"n": n} for n in range(2500)])
    assert [(number, values["n"] + 1) for number, values in read(path)] == [
        (n, n) for n in range(1, 2501)
    ]
    sizes = []
    original = pyarrow.parquet.ParquetFile.iter_batches

    def spy(self, **options):
        for batch in original(self, **options):
            sizes.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", spy)
    assert len(read(path, max_rows=10)) == 10
    assert sizes == [1000]


def test_rows_are_read_as_they_are_asked_for(tmp_path):
    path = write(tmp_path / "rows.jsonl", '{"a": 1}\n' * 100_000)
    rows = read_file(path, max_rows=None)
    assert next(rows) == Row(f"{path}:1", {"a": 1})
    path.write_bytes(b"")  # the rest is not in memory: at most one buffer of it is
    assert len(list(rows)) < 50_000


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv"])
def test_only_the_first_rows_are_looked_at(tmp_path, suffix):
    good = {"json": '[{"a": "1"}, 7]', "jsonl": '{"a": "1"}\n{broken', "csv": 'a\n1\n"b"b\n'}
    path = write(tmp_path / f"rows.{suffix}", good[suffix])
    assert [values for _, values in read(path, max_rows=1)] == [{"a": "1"}]
    assert len(read(path)) == 2


# --- Rows that cannot be read --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "number", "expected"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', 2, "byte 0xff is not UTF-8"),
        ("a.csv", b"a,b\n1,2\n3,\xe9\n4,5\n", 3, "byte 0xe9 is not UTF-8"),
        ("a.json", b'[{"a": "x"},\n{"a": ["\xff"]}]', 2, "byte 0xff is not UTF-8"),
        ("a.jsonl", '{"a": 1}\n{"a": }\n', 2, "is not JSON: Expecting value at character 7"),
        ("a.jsonl", "[1]\n", 1, "is a list, not an object with named columns"),
        ("a.jsonl", "null\n", 1, "is null, not an object"),
        ("a.json", '[{"a": 1}, "text"]', 2, "is a text, not an object"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}", 1, "Exceeds the limit"),
        ("a.jsonl", '{"a": ' + "[" * 100_000, 1, "recursion"),
        ("a.csv", 'a,b\n"1"x,2\n3,4\n', 2, "is not CSV: ',' expected after '\"'"),
        ("a.csv", "a,b\n1,2,3\n", 2, "has 3 cells, the header only 2"),
    ],
)  # fmt: skip
def test_row_that_cannot_be_read_is_unusable(tmp_path, name, data, number, expected):
    details = dict(read(write(tmp_path / name, data)))
    assert expected in details.pop(number)
    assert all(isinstance(values, dict) for values in details.values())


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "json"])
def test_rows_after_a_broken_one_are_read(tmp_path, suffix):
    good = {
        "jsonl": b'{"a": "\xff"}\n{\n[]\n{"a": "1"}\n',
        "csv": b'a\n\xff\n"x"y\n1,2\n1\n',
        "json": b'[{"a": "\xff"}, null, [], {"a": "1"}]',
    }
    values = [values for _, values in read(write(tmp_path / f"a.{suffix}", good[suffix]))]
    assert [type(value) for value in values] == [str, str, str, dict]
    assert values[3] == {"a": "1"}


@pytest.mark.parametrize(
    ("lines", "place", "expected"),
    [
        (['1,"open', "2,3", "4,5"], "2 (to line 4)", "is not CSV: a quote is not closed"),
        (["1,2", '3,4"', '5,"open'], "4", "is not CSV: a quote is not closed"),
        (['1,"open', '2,"x"', "4,5"], "2 (to line 3)", "is not CSV: ',' expected after '\"'"),
        (['3","open', '2,"x"', "4,5"], "2 (to line 3)", "is not CSV: ',' expected after '\"'"),
        (['"1"x,"open', '2",3', "4,5"], "2", "is not CSV: ',' expected after '\"'"),
        (["1,2", "3,4\r5,6"], "3", "is not CSV: new-line character seen in unquoted field;"),
        (['"caf\xe9', '1",2', "3,4"], "2 (to line 3)", "byte 0xe9 is not UTF-8"),
        (['"caf\xe9,1', "2,3", '4,5"'], "2 (to line 4)", "byte 0xe9 is not UTF-8"),
        (['caf\xe9",1', "2,3"], "2", "byte 0xe9 is not UTF-8"),
    ],
)
def test_csv_record_that_may_hold_other_rows_refuses_the_file(tmp_path, lines, place, expected):
    """All rows behind an open quote were counted as one that is dropped."""
    path = write(tmp_path / "a.csv", "\n".join(["a,b", *lines, ""]).encode("latin-1"))
    problem = problem_of(path)
    assert problem.startswith(f"{path}:{place} {expected}")
    assert "where the next row begins cannot be told, so no row of the file is used" in problem


@pytest.mark.parametrize("bad", ['"1"x,2', '"say "hi" now",2', "caf\xe9,1", '"caf\xe9",1', "1,2,3"])
def test_csv_record_that_ends_with_its_line_costs_no_other_row(tmp_path, bad):
    lines = ["a,b", '"first', 'one",1', bad, '"last', 'one",2', ""]
    rows = read(write(tmp_path / "a.csv", "\n".join(lines).encode("latin-1")))
    assert rows[0] == (2, {"a": "first\none", "b": "1"})
    assert rows[1][0] == 4
    assert isinstance(rows[1][1], str)
    assert rows[2:] == [(5, {"a": "last\none", "b": "2"})]


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ('{"a": "x\\ud83d"}', "a"),
        ('{"a": "\\ude00\\ud83d"}', "a"),
        ('{"a": "ok", "m": [{"c": "ok"}, {"c": ["\\udfff"]}]}', "m[1].c[0]"),
        ('{"a": {"k\\ud800": 1}}', "a.k\\ud800"),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_lone_surrogate_makes_a_row_unusable(tmp_path, suffix, row, place):
    """tiktoken#82: a lone surrogate raised inside the tokenizer, with no row."""
    pair = '{"a": "\\ud83d\\ude00"}'
    text = f"[{pair},{row}]" if suffix == "json" else f"{pair}\n{row}\n"
    (_, first), (_, second) = read(write(tmp_path / f"a.{suffix}", text))
    assert first == {"a": "😀"}
    assert second == f"{place} holds a lone surrogate, half of a character; write it anew"
    second.encode()  # it can be printed


def test_parquet_text_that_is_not_utf8_makes_its_row_unusable(tmp_path):
    data = pyarrow.array([b"good", b"caf\xe9", b"fine"], type=pyarrow.binary())
    text = data.view(pyarrow.string())  # not validated
    pyarrow.parquet.write_table(pyarrow.table({"a": text}), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet")
    assert rows[0] == (1, {"a": "good"})
    assert "byte 0xe9 is not UTF-8" in rows[1][1]
    assert rows[2] == (3, {"a": "fine"})


# --- Files that cannot be read -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.json", '[{"a": 1},\n{"a": }]', "a.json:2 is not JSON: Expecting value at column 7"),
        ("a.json", '{"data": []}', "is an object; a .json file must hold a list of rows"),
        ("a.json", '{"a": 1}\n{"a": 2}', "a file with one object a line is a .jsonl"),
        ("a.json", "[" * 100_000, "a.json is not JSON that can be read"),
        ("a.csv", "a,b,a\n1,2,3\n", "a.csv:1, the header, names a more than once"),
        ("a.csv", b"\xe9,b\n1,2\n", "a.csv:1, the header, byte 0xe9 is not UTF-8"),
        ("a.csv", '"a"x,b\n1,2\n', "a.csv:1, the header, is not CSV"),
        ("a.csv", '{"a": 1}'.encode("utf-16"), "a.csv is UTF-16; save it as UTF-8"),
        ("a.jsonl", '{"a": 1}'.encode("utf-16"), "a.jsonl is UTF-16; save it as UTF-8"),
        ("a.json", '[{"a": 1}]'.encode("utf-16"), "a.json is UTF-16; save it as UTF-8"),
        ("a.parquet", "text", "a.parquet cannot be read as a Parquet file"),
        ("a.parquet", b"", "a.parquet cannot be read as a Parquet file"),
        ("a.txt", "x", "a.txt is not a .json, .jsonl, .csv, .parquet file"),
    ],
)  # fmt: skip
def test_file_that_cannot_be_read_is_refused(tmp_path, name, data, expected):
    assert expected in problem_of(write(tmp_path / name, data))


def test_parquet_with_a_column_twice_is_refused(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], ["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "names a more than once" in problem_of(tmp_path / "a.parquet")


def test_damaged_parquet_is_refused(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [{"a": f"{n} " * 50} for n in range(5000)])
    data = bytearray(path.read_bytes())
    data[100:5000] = bytes(4900)
    path.write_bytes(data)
    assert str(path) in problem_of(path)


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "parquet"])
def test_missing_file_is_named(tmp_path, suffix):
    assert f"none.{suffix}: No such file" in problem_of(tmp_path / f"none.{suffix}")


def test_missing_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", [{"a": 1}])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install pyarrow" in problem_of(path)


# --- Real data and messages ----------------------------------------------------------------------


def test_real_files_are_read_whole(data_dir):
    assert len(read(data_dir / "dialogsum" / "dev.jsonl")) == 500
    chat = read(data_dir / "chat" / "identity_sharegpt.json")
    assert all("conversations" in values for _, values in chat)
    assert len(chat) == len(json.loads((data_dir / "chat/identity_sharegpt.json").read_text()))


def test_long_list_of_bad_rows_is_cut_and_counted():
    message = describe_rows([f"f:{n} is bad" for n in range(1, 26)], advice="mend them")
    assert message.startswith("25 rows cannot be used; mend them:")
    assert "f:20 is bad" in message
    assert "f:21" not in message
    assert message.endswith("and 5 more")


def test_parquet_with_a_date_that_python_does_not_know_is_refused(tmp_path):
    """Any column may hold it; the error was an OverflowError without a file."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    dates = pyarrow.array([10**7], pyarrow.date32())  # days: the year 29349
    parquet.write_table(pyarrow.table({"input": ["a"], "day": dates}), tmp_path / "a.parquet")
    assert "a.parquet cannot be read as a Parquet file" in problem_of(tmp_path / "a.parquet")
