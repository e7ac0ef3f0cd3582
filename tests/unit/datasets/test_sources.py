import json
import os
import random
import sys

import pyarrow
import pyarrow.parquet
import pytest

from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.datasets.mixture import Reading
from custom_components.datasets.rows import UNREADABLE, Conversation, Unusable
from custom_components.datasets.sources import (
    find_source_problems,
    fingerprint_source,
    read_conversations,
)
from custom_components.errors import UserError
from tests.unit.datasets.fake_hub import FakeHub


def reading_of(source, **options):
    defaults = {"split": "train", "layout": "prompt_response", "column_map": None}
    defaults |= {"max_rows": None, "corpus": "grammar"}
    source = source if isinstance(source, list) else str(source)
    return Reading(source=source, **defaults | options)


def read(source, *, prompt=None, system_prompt=None, **options):
    reading = reading_of(source, **options)
    return read_conversations(reading, prompt=prompt, system_prompt=system_prompt)


def check(**arguments):
    """As a config gives them: what a builder fixes, and whatever is not left out."""
    return find_source_problems(**{"layout": "prompt_response", "corpus": "grammar"} | arguments)


def rows_of(source, **options):
    return list(read(source, **options).rows)


def inputs_of(source, **options):
    return [row.input for row in rows_of(source, **options)]


def problems_of(source, **options):
    with pytest.raises(UserError) as error:
        rows_of(source, **options)
    return error.value.problems


def write_pairs(path, inputs):
    path.parent.mkdir(exist_ok=True)
    rows = [{"input": text, "output": f"{text}!"} for text in inputs]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def numbered(letter, count):
    return [f"{letter}{number}" for number in range(count)]


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"wrong": "He go .", "right": "He goes .", "level": 1}, {"wrong": "x", "right": None}]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


# --- One source ----------------------------------------------------------------------------------


def test_rows_become_conversations_and_bad_ones_stay_in_their_place(pairs_file):
    columns = {"input": "wrong", "output": "right"}
    with pairs_file.open("a") as file:
        file.write("\n{broken\n")
    found = read(pairs_file, column_map=columns, prompt="Fix: {input}", system_prompt="Be kind.")
    assert (found.tables, found.num_left_out) == ([str(pairs_file)], 0)
    first, second, third = found.rows
    assert first == Conversation(
        f"{pairs_file}:1",
        [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Fix: He go ."},
            {"role": "assistant", "content": "He goes ."},
        ],
        input="He go .",
        references=["He goes ."],
    )
    assert (second.id, second.detail) == (f"{pairs_file}:2", "has no output")
    assert (third.id, third.reason) == (f"{pairs_file}:3", UNREADABLE)


def test_embedded_corpus_is_named_by_the_caller():
    pair = build_grammar_corpus("heldout")[0]
    (row,) = rows_of("embedded", split="heldout", max_rows=1)
    assert (row.input, row.references) == (pair.source, [pair.target])


def test_folder_is_read_file_after_file(tmp_path):
    write_pairs(tmp_path / "b.jsonl", ["b0", "b1"])
    (tmp_path / "a.csv").write_text("input,output\na0,x\n")
    table = pyarrow.table({"input": ["c0"], "output": [["x", "y"]]})
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet")
    rows = rows_of(tmp_path)
    assert [row.input for row in rows] == ["a0", "b0", "b1", "c0"]
    assert [row.id.removeprefix(f"{tmp_path}/") for row in rows] == [
        "a.csv:2", "b.jsonl:1", "b.jsonl:2", "c.parquet:1",
    ]  # fmt: skip
    assert inputs_of(tmp_path, max_rows=2) == ["a0", "b0"]
    assert len(read(tmp_path).tables) == 3


def test_splits_of_a_folder_are_kept_apart(tmp_path):
    write_pairs(tmp_path / "train.jsonl", ["a"])
    write_pairs(tmp_path / "dev.jsonl", ["b"])
    assert inputs_of(tmp_path) == ["a"]
    assert inputs_of(tmp_path, split="validation") == ["b"]


def test_missing_columns_name_those_present_and_the_nearest(pairs_file):
    problems = problems_of(pairs_file, column_map={"output": "rigth"})
    assert len(problems) == 2
    assert "has no column 'input'; it has wrong, right, level" in problems[0]
    assert "has no column 'rigth' (did you mean 'right'?)" in problems[1]
    assert "set dataset.column_map.output=COLUMN" in problems[1]


def test_every_file_of_a_folder_must_have_the_columns(tmp_path):
    write_pairs(tmp_path / "a.jsonl", ["a"])
    (tmp_path / "b.jsonl").write_text('{"input": "b", "answer": "c"}')
    (problem,) = problems_of(tmp_path)
    assert f"{tmp_path}/b.jsonl has no column 'output'" in problem


def test_column_that_one_row_lacks_is_not_missing(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"input": "a"}, {"input": "b", "output": "c"}]')
    first, second = rows_of(path)
    assert isinstance(first, Unusable)
    assert second.references == ["c"]


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.json", "empty.csv", "header.csv"])
def test_empty_source_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text({"empty.json": "[]", "header.csv": "input,output\n"}.get(name, ""))
    assert problems_of(path) == (f"dataset.source: {path} holds no rows",)
    assert check(source=str(path)) == [f"dataset.source: {path} holds no rows"]


def test_rows_are_not_held_in_memory(tmp_path, monkeypatch):
    """One source streams: the first row is there before the last is read."""
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    monkeypatch.setattr("custom_components.datasets.sources._NUM_CHECKED", 2)
    rows = read("org/name").rows
    assert next(rows).input == "in 0"
    assert hub.num_read < 5


def test_real_data_is_read(data_dir):
    columns = {"input": "dialogue", "output": "summary"}
    rows = rows_of(data_dir / "dialogsum", split="dev", column_map=columns)
    assert len(rows) == 500
    assert all(isinstance(row, Conversation) for row in rows)
    path = data_dir / "chat" / "identity_sharegpt.json"
    rows = rows_of(path, layout="sharegpt")
    assert rows
    assert all(isinstance(row, Conversation) for row in rows)


# --- A mixture -----------------------------------------------------------------------------------


def test_mixture_takes_rows_in_the_shares_of_its_weights(tmp_path):
    first = write_pairs(tmp_path / "a.jsonl", numbered("a", 10))
    second = tmp_path / "b.json"
    second.write_text(json.dumps([{"q": f"b{n}", "a": "x"} for n in range(100)]))
    columns = {"instruction": "q", "output": "a"}
    source = [
        {"source": str(first), "weight": 1},
        {"source": str(second), "weight": 3, "layout": "alpaca", "column_map": columns},
    ]
    found = read(source, prompt="Fix: {input}")
    rows = list(found.rows)
    assert found.num_left_out == 70
    assert [row.input for row in rows[:10]] == numbered("a", 10)
    numbers = [int(row.id.rpartition(":")[2]) for row in rows[10:]]
    assert numbers == sorted(random.Random(0).sample(range(1, 101), 30))
    assert [row.turns[0]["content"] for row in rows[10:]] == [f"b{n - 1}" for n in numbers]
    assert rows == rows_of(source, prompt="Fix: {input}")


def test_mixture_of_few_rows_reads_the_first_of_every_source(tmp_path):
    a = write_pairs(tmp_path / "a.jsonl", numbered("a", 50))
    b = write_pairs(tmp_path / "b.jsonl", numbered("b", 50))
    source = [{"source": str(a), "weight": 0.75}, {"source": str(b), "weight": 0.25}]
    assert inputs_of(source, max_rows=8) == [*numbered("a", 6), *numbered("b", 2)]


def test_mixture_reads_every_split_of_its_own(tmp_path):
    write_pairs(tmp_path / "train.jsonl", ["a"])
    write_pairs(tmp_path / "test.jsonl", ["b"])
    item = {"source": str(tmp_path), "weight": 1}
    assert inputs_of([item | {"split": "test"}, item]) == ["b", "a"]


def test_weight_that_leaves_no_row_is_refused(tmp_path):
    a = write_pairs(tmp_path / "a.jsonl", numbered("a", 5))
    b = write_pairs(tmp_path / "b.jsonl", numbered("b", 5))
    source = [{"source": str(a), "weight": 1}, {"source": str(b), "weight": 0.1}]
    (problem,) = problems_of(source)
    assert problem == (f"dataset.source[1].weight: 0.1 leaves none of the rows of {b}; raise it")


def test_all_sources_that_cannot_be_opened_are_told_together(tmp_path):
    items = [{"source": name, "weight": 1} for name in ("embeded", str(tmp_path), "embedded")]
    problems = problems_of(items, split="none")
    assert [problem.split(":")[0] for problem in problems] == [
        "dataset.source[0].source", "dataset.source[1].source", "dataset.source[2].split",
    ]  # fmt: skip


# --- Fingerprint ---------------------------------------------------------------------------------


def fingerprint(source, **options):
    return fingerprint_source(reading_of(source, **options))


def test_edited_file_has_another_fingerprint(tmp_path):
    path = write_pairs(tmp_path / "a.jsonl", ["a", "b"])
    before = fingerprint(path)
    write_pairs(path, ["a", "c"])
    assert fingerprint(path) != before
    write_pairs(path, ["a", "b"])
    os.utime(path, (0, 0))
    assert fingerprint(path) == before
    (tmp_path / "other").mkdir()
    assert fingerprint(path.rename(tmp_path / "other" / "a.jsonl")) == before


def test_files_of_a_folder_count_with_their_names_and_contents(tmp_path):
    """Cached samples named files that had been renamed, or read by another reader."""

    def fingerprint_folder(**files):
        folder = tmp_path / "-".join([*files, *map("".join, files.values())])
        for name, inputs in files.items():
            write_pairs(folder / f"{name}.jsonl", inputs)
        return folder, fingerprint(folder)

    folder, one = fingerprint_folder(a="x", b="yz")
    others = [
        fingerprint_folder(a="x", c="yz")[1],
        fingerprint_folder(a="yz", b="x")[1],
        fingerprint_folder(a="xy", b="z")[1],
        fingerprint_folder(a="xyz")[1],
    ]
    folder = folder.rename(tmp_path / "moved")
    assert fingerprint(folder) == one
    (folder / "b.jsonl").rename(folder / "b.json")
    assert len({one, fingerprint(folder), *others}) == 6


def test_everything_that_decides_the_rows_changes_the_fingerprint(tmp_path):
    path = str(write_pairs(tmp_path / "train.jsonl", ["a"]))
    write_pairs(tmp_path / "dev.jsonl", ["a"])
    item = {"source": path, "weight": 1}
    found = [
        fingerprint(path),
        fingerprint(path, max_rows=1),
        fingerprint(path, layout="alpaca"),
        fingerprint(path, column_map={"input": "x"}),
        fingerprint(tmp_path),
        fingerprint(tmp_path, split="dev"),
        fingerprint([item, item]),
        fingerprint([item, item | {"weight": 2}]),
        fingerprint([item | {"layout": "sharegpt"}, item]),
        fingerprint("embedded"),
        fingerprint("embedded", split="heldout"),
    ]
    assert len(set(found)) == len(found)
    assert fingerprint(path, key="dataset_val") == found[0]


def test_rows_of_the_hub_and_of_a_corpus_are_fingerprinted(monkeypatch):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    before = fingerprint("org/name"), fingerprint("embedded")
    assert before == (fingerprint("org/name"), fingerprint("embedded"))
    monkeypatch.setattr(hub, "read", lambda: iter([{"input": "a", "output": "b"}]))
    monkeypatch.setattr(
        "custom_components.corpora.grammar_corpus.build_grammar_corpus",
        lambda split: build_grammar_corpus(split)[1:],
    )
    assert fingerprint("org/name") != before[0]
    assert fingerprint("embedded") != before[1]


# --- Check before a run --------------------------------------------------------------------------


def test_check_finds_nothing_wrong_with_good_sources(pairs_file, tmp_path):
    columns = {"input": "wrong", "output": "right"}
    assert check(source="embedded", split="heldout", max_seq_len=128) == []
    assert check(source=str(pairs_file), column_map=columns) == []
    assert check(source=str(tmp_path), column_map=columns) == []
    assert check(source="org/name", split="any", truncation="drop") == []
    items = [{"source": "embedded", "weight": 1}, {"source": "org/name", "weight": 2}]
    assert check(source=items) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"source": "/none/pairs.jsonl", "key": "dataset_val"},
            "dataset_val.source: cannot read /none/pairs.jsonl: No such file",
        ),
        ({"source": "/none"}, "/none is not a .json, .jsonl, .csv, .parquet file"),
        ({"source": "embedded", "split": "test"}, "dataset.split: the embedded corpus has no"),
        ({"source": "embedded", "column_map": {"input": "src"}}, "has no column 'src'"),
        ({"source": "embedded", "layout": "sharegpt"}, "has no column 'conversations'; it has in"),
        ({"source": "org/name", "column_map": {"in": "src"}}, "unknown key 'in'"),
        ({"source": "embedded", "max_rows": 0}, "dataset.max_rows: 0; give 1 or more"),
        ({"source": "embedded", "max_seq_len": 1}, "dataset.max_seq_len: 1; give 2 or more"),
        ({"source": "embedded", "prompt": "Correct:"}, "put {input} there"),
        ({"source": [{"source": "embedded", "weight": 0}]}, "dataset.source[0].weight: found 0"),
        (
            {"source": [{"source": "/none.csv", "weight": 1}, {"source": "embedded", "weight": 1}]},
            "dataset.source[0].source: cannot read /none.csv",
        ),
    ],
)
def test_check_returns_the_problem(arguments, expected):
    (problem,) = check(**arguments)
    assert expected in problem


def test_check_gathers_the_problems_of_all_files(tmp_path):
    write_pairs(tmp_path / "good.jsonl", ["a"])
    (tmp_path / "bad.jsonl").write_text('{"a": 1}')
    (tmp_path / "worse.json").write_text("{}")
    items = [{"source": str(tmp_path), "weight": 1}, {"source": "embeded", "weight": 1}]
    problems = check(source=items, max_rows=0, max_seq_len=0, key="dataset_val")
    expected = [
        "dataset_val.max_rows",
        "dataset_val.max_seq_len",
        "bad.jsonl has no column 'input'",
        "bad.jsonl has no column 'output'",
        "worse.json is an object",
        "dataset_val.source[1].source: 'embeded'",
    ]
    for problem, part in zip(problems, expected, strict=True):
        assert part in problem


def test_check_looks_at_the_first_rows_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "a", "output": "b"}\n' * 100 + "broken\n")
    assert check(source=str(path)) == []
    assert "is not JSON" in rows_of(path)[100].detail
