import json
import subprocess
import sys
import types

import pytest

from custom_components.datasets.grammar_corpus import build_grammar_corpus
from custom_components.datasets.sources import check_grammar_source, load_rows
from custom_components.errors import UserError


def problems_of(call, **arguments):
    with pytest.raises(UserError) as error:
        call(**arguments)
    return error.value.problems


@pytest.fixture
def pairs_file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"wrong": "He go .", "right": "He goes .", "level": 1}, {"wrong": "x", "right": None}]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_columns_are_mapped_to_input_and_output(pairs_file):
    rows = load_rows(str(pairs_file), column_map={"input": "wrong", "output": "right"})
    assert [row.values for row in rows] == [
        {"input": "He go .", "output": "He goes ."},
        {"input": "x", "output": None},
    ]
    assert [row.id for row in rows] == [f"{pairs_file}:1", f"{pairs_file}:2"]


def test_missing_columns_name_those_present_and_the_nearest(pairs_file):
    problems = problems_of(load_rows, source=str(pairs_file), column_map={"output": "rigth"})
    assert len(problems) == 2
    assert "has no column 'input'; it has wrong, right, level" in problems[0]
    assert "has no column 'rigth' (did you mean 'right'?)" in problems[1]
    assert "set dataset.column_map.output=COLUMN" in problems[1]


def test_unknown_key_of_the_column_map_is_refused(pairs_file):
    problems = problems_of(load_rows, source=str(pairs_file), column_map={"inputs": "wrong"})
    assert "unknown key 'inputs' (did you mean 'input'?)" in problems[0]


def test_column_that_one_row_lacks_is_null_there(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"input": "a"}, {"input": "b", "output": "c"}]')
    assert [row.values["output"] for row in load_rows(str(path))] == [None, "c"]


def test_lone_surrogate_is_named_with_file_and_row(tmp_path):
    """tiktoken#82: a lone surrogate raised inside the tokenizer, with no row."""
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"input": "a", "output": "\\ud83d\\ude00", "note": "\\ud83d"}\n'
        '{"input": "b", "output": "x\\ud83d"}\n'
    )
    (problem,) = problems_of(load_rows, source=str(path))
    assert f"{path}:2 output holds a lone surrogate" in problem
    assert ":1 " not in problem


def test_embedded_corpus_has_its_two_splits():
    assert len(load_rows("embedded", split="heldout")) == 240
    row = load_rows("embedded", max_rows=1)[0]
    pair = build_grammar_corpus("train")[0]
    assert row.values == {"input": pair.source, "output": pair.target}
    (problem,) = problems_of(load_rows, source="embedded", split="held-out")
    assert "no split 'held-out' (did you mean 'heldout'?); it has train and heldout" in problem


def test_file_has_one_split(pairs_file):
    (problem,) = problems_of(load_rows, source=str(pairs_file), split="heldout")
    assert "set dataset.split=train" in problem


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.json", "empty.csv"])
def test_empty_source_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_text("[]" if name == "empty.json" else "")
    assert problems_of(load_rows, source=str(path)) == (f"dataset.source: {path} holds no rows",)


def test_word_that_is_no_source_gets_the_nearest():
    (problem,) = problems_of(load_rows, source="embeded")
    assert "did you mean 'embedded'?" in problem
    assert ".json, .jsonl, .csv file, nor a hub id org/name" in problem


# --- Hub ---


class FakeHub(types.ModuleType):
    """Stands in for the package datasets: a table of 5 rows, or an error."""

    def __init__(self, error=None):
        super().__init__("datasets")
        self.exceptions = types.SimpleNamespace(DatasetsError=LookupError)
        self.__spec__ = types.SimpleNamespace()
        self.error, self.calls, self.num_read = error, [], 0

    def load_dataset(self, name, **options):
        self.calls.append((name, options))
        if self.error is not None:
            raise self.error
        return self.read()

    def read(self):
        for number in range(5):
            self.num_read += 1
            yield {"input": f"in {number}", "output": f"out {number}"}


def test_hub_is_streamed_when_few_rows_are_wanted(monkeypatch):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    rows = load_rows("org/name@refs/convert/parquet", split="validation", max_rows=2)
    assert [row.values["input"] for row in rows] == ["in 0", "in 1"]
    assert rows[1].id == "org/name@refs/convert/parquet/validation:2"
    options = {"split": "validation", "revision": "refs/convert/parquet", "streaming": True}
    assert hub.calls == [("org/name", options)]
    assert hub.num_read == 2


def test_hub_is_read_whole_without_max_rows(monkeypatch):
    hub = FakeHub()
    monkeypatch.setitem(sys.modules, "datasets", hub)
    assert len(load_rows("org/name")) == 5
    assert hub.calls == [("org/name", {"split": "train", "revision": None, "streaming": False})]


def test_hub_error_names_source_and_split(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", FakeHub(ConnectionError("no route")))
    (problem,) = problems_of(load_rows, source="org/name")
    assert problem == (
        "dataset.source: org/name, split 'train', could not be read from the hub: no route"
    )


def test_missing_datasets_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (problem,) = problems_of(load_rows, source="org/name")
    assert "pip install datasets" in problem


# --- Check before a run ---


def test_check_finds_nothing_wrong_with_good_sources(pairs_file):
    columns = {"input": "wrong", "output": "right"}
    assert check_grammar_source(source="embedded", split="heldout", max_seq_len=128) == []
    assert check_grammar_source(source=str(pairs_file), column_map=columns) == []
    assert check_grammar_source(source="org/name", split="any") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"source": "/none/pairs.jsonl"}, "cannot read /none/pairs.jsonl: No such file"),
        ({"source": "embedded", "split": "test"}, "no split 'test'"),
        ({"source": "embedded", "column_map": {"input": "src"}}, "has no column 'src'"),
        ({"source": "org/name", "column_map": {"in": "src"}}, "unknown key 'in'"),
        ({"source": "embedded", "max_rows": 0}, "dataset.max_rows: 0; give 1 or more"),
        ({"source": "embedded", "max_seq_len": 1}, "dataset.max_seq_len: 1; give 2 or more"),
        ({"source": "embedded", "prompt": "Correct:"}, "put {input} there"),
    ],
)
def test_check_returns_the_problem(arguments, expected):
    (problem,) = check_grammar_source(**arguments)
    assert expected in problem


def test_check_looks_at_the_first_rows_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"input": "a", "output": "b"}\n' * 100 + "broken\n")
    assert check_grammar_source(source=str(path)) == []
    assert "rows.jsonl:101 is not JSON" in problems_of(load_rows, source=str(path))[0]


def test_check_imports_no_torch():
    code = (
        "import sys; from custom_components.datasets.sources import check_grammar_source; "
        "check_grammar_source(source='embedded'); "
        "sys.exit('torch' in sys.modules or 'datasets' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
