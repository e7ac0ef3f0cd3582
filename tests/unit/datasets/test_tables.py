import os
import sys

import pytest

from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.datasets.rows import Row
from custom_components.datasets.tables import find_kind, list_files, open_tables
from custom_components.errors import UserError
from tests.unit.datasets.fake_hub import FakeHub


def open_source(source, *, split="train", max_rows=None, corpus="grammar"):
    return open_tables(
        str(source), split=split, max_rows=max_rows, corpus=corpus, key="dataset_val"
    )


def rows_of(source, **options):
    return [row for table in open_source(source, **options) for row in table.rows]


def problem_of(call, *args, **options):
    with pytest.raises(UserError) as error:
        call(*args, **options)
    (problem,) = error.value.problems
    return problem


def make_folder(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("[]" if path.suffix == ".json" else "")
    return folder


def names_of(folder, split="train"):
    return [path.name for path in list_files(str(folder), split=split, key="dataset")]


# --- What a source is ----------------------------------------------------------------------------


def test_kind_of_a_source_is_told_from_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(make_folder(tmp_path, ["org/name/a.jsonl", "b.txt"]))
    kinds = {
        "embedded": "embedded",
        "org/name": "folder",
        "org/other": "hub",
        "org/other@refs/convert/parquet": "hub",
        "b.txt": "file",
        "none.parquet": "file",
        "./none": "file",
        "~/none": "file",
    }
    assert {source: find_kind(source, key="dataset") for source in kinds} == kinds


def test_word_that_is_no_source_gets_the_nearest():
    problem = problem_of(find_kind, "embeded", key="dataset.source[1]")
    assert problem.startswith("dataset.source[1].source: 'embeded' (did you mean 'embedded'?)")
    assert ".json, .jsonl, .csv, .parquet file or a folder of them, nor a hub id" in problem


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("word " * 60, "File name too long"),
        (f"/{'x' * 300}/a.jsonl", "File name too long"),
        ("~nobody-of-this-name/a.jsonl", "Could not determine home directory"),
    ],
)
def test_text_that_the_system_refuses_as_a_path_is_no_source(source, reason):
    problem = problem_of(find_kind, source, key="dataset")
    assert problem.startswith(f"dataset.source: {source!r:.60} cannot be looked for: {reason}")
    assert len(problem) < 250


# --- Files and folders ---------------------------------------------------------------------------


def test_file_has_one_split(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}')
    assert rows_of(path) == [Row(f"{path}:1", {"a": 1})]
    problem = problem_of(rows_of, path, split="heldout")
    assert "dataset_val.split: 'heldout'" in problem
    assert "set dataset_val.split=train" in problem


def test_folder_without_split_words_is_all_train(tmp_path):
    """Hidden files, files of other kinds and folders in it are left alone; names sort."""
    names = ["b.jsonl", "a.CSV", "c.parquet", "d.json", "README.md", ".e.json", "sub/f.json"]
    make_folder(tmp_path, [*names, "x.json/f.json"])
    assert names_of(tmp_path) == ["a.CSV", "b.jsonl", "c.parquet", "d.json"]
    problem = problem_of(names_of, tmp_path, "test")
    assert "has no file of the split 'test'" in problem
    assert problem.endswith("its files a.CSV, b.jsonl, c.parquet and d.json are train")


SPLIT_NAMES = {
    "train": ["my_train.csv", "train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"],
    "validation": ["dev1.json", "heldout.json", "val.json", "valid.json", "x.Validation.json"],
    "test": ["TEST.json"],
}


@pytest.mark.parametrize(
    ("split", "canonical"),
    [(word, word) for word in SPLIT_NAMES]
    + [(word, "validation") for word in ("valid", "val", "dev", "heldout")],
)
def test_splits_of_a_folder_never_mix(tmp_path, split, canonical):
    others = ["latest.json", "trainer.json", "developer.json", "evaluation.json"]
    make_folder(tmp_path, [*others, *(name for names in SPLIT_NAMES.values() for name in names)])
    assert names_of(tmp_path, split) == SPLIT_NAMES[canonical]


def test_folder_without_the_split_lists_its_files(tmp_path):
    make_folder(tmp_path, ["dev.json", "test.json"])
    problem = problem_of(names_of, tmp_path)
    assert "has no file of the split 'train'; its files dev.json and test.json are" in problem
    assert problem.endswith("are test and validation")
    assert "split 'train_test'" in problem_of(names_of, tmp_path, "train_test")


def test_file_of_two_splits_is_refused(tmp_path):
    make_folder(tmp_path, ["train_test.json", "dev.json"])
    problem = problem_of(names_of, tmp_path, "validation")
    assert "train_test.json in" in problem
    assert "could be of more than one split" in problem


def test_folder_without_data_files_is_refused(tmp_path):
    make_folder(tmp_path, ["sub/a.json"])
    assert "holds no .json, .jsonl, .csv, .parquet file; folders in it are not looked into" in (
        problem_of(names_of, tmp_path)
    )


# --- Embedded ------------------------------------------------------------------------------------


def test_embedded_corpus_has_its_two_splits():
    rows = rows_of("embedded", split="heldout")
    pair = build_grammar_corpus("heldout")[0]
    assert len(rows) == 240
    assert rows[0] == Row("embedded/heldout:1", {"input": pair.source, "output": pair.target})
    problem = problem_of(rows_of, "embedded", split="held-out")
    assert "no split 'held-out' (did you mean 'heldout'?); it has train and heldout" in problem


# --- Hub -----------------------------------------------------------------------------------------


def test_hub_is_streamed_when_few_rows_are_wanted(monkeypatch):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    rows = rows_of("org/name@refs/convert/parquet", split="validation", max_rows=2)
    assert [row.values["input"] for row in rows] == ["in 0", "in 1"]
    assert rows[1].id == "org/name@refs/convert/parquet/validation:2"
    options = {"split": "validation", "revision": "refs/convert/parquet", "streaming": True}
    assert hub.calls == [("org/name", options)]
    assert hub.num_read == 2


def test_hub_is_read_whole_without_max_rows(monkeypatch):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert len(rows_of("org/name")) == 5
    assert hub.calls == [("org/name", {"split": "train", "revision": None, "streaming": False})]


def test_hub_gives_no_tool_call_the_arguments_of_another(monkeypatch):
    """datasets#8241: Arrow gives every struct the fields of all, filled with null."""
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    call = {"name": "where", "arguments": {"city": "Oslo", "zone": None}, "id": None}
    monkeypatch.setattr(hub, "read", lambda: iter([{"tool_calls": [call], "system": None}]))
    (row,) = rows_of("org/name")
    assert row.values == {
        "tool_calls": [{"name": "where", "arguments": {"city": "Oslo"}, "id": None}],
        "system": None,
    }


def test_hub_error_names_source_and_split(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", FakeHub(ConnectionError("no route")))
    assert problem_of(rows_of, "org/name") == (
        "dataset_val.source: org/name, split 'train', could not be read from the hub: no route"
    )


def test_missing_datasets_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install datasets" in problem_of(rows_of, "org/name")


def test_what_is_neither_file_nor_folder_is_refused(tmp_path):
    """Reading a pipe would wait for ever."""
    os.mkfifo(tmp_path / "x.jsonl")
    with pytest.raises(UserError, match="x.jsonl is not a regular file"):
        find_kind(str(tmp_path / "x.jsonl"), key="dataset")
