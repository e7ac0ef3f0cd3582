import errno
import importlib.util
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest

from custom_components.datasets.cache import cache_root
from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.rows import Conversation, Unusable
from custom_components.datasets.sources import Conversations
from custom_components.datasets.supervised import (
    RefusedDataError,
    build_supervised_dataset,
    check_lengths,
    name_key,
)
from custom_components.datasets.token_store import TokenStoreWriter
from custom_components.errors import UserError
from tests.unit.datasets.word_tokenizer import WordTokenizer


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "cache"))


def chat(row_id, *contents):
    roles = ("user", "assistant") * len(contents)
    turns = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return Conversation(row_id, turns)


def build(*rows, tokenizer=None, max_seq_len=100, **options):
    options = {"truncation": "error", "unusable_rows": "error", "identity": {}} | options
    identity = options.pop("identity")
    return build_supervised_dataset(
        tokenizer or WordTokenizer(),
        read=lambda: Conversations(iter(rows), [], 0),
        identify=lambda: identity,
        max_seq_len=max_seq_len,
        **options,
    )


LONG = ("p1 p2 p3 p4 p5 p6", "a1 a2 a3 a4")


def test_samples_keep_tokens_labels_and_ids():
    tokenizer = WordTokenizer()
    tokenizer.encode("user a b assistant c d")  # ids 6 to 11
    rows = [chat("a/f:1", "a b", "c d"), chat("g:70000", "a", "b", "c", "d")]
    dataset = build(*rows, tokenizer=tokenizer)
    assert len(dataset) == 2
    # 0 bos, 3 start, 6 user, 4 end, 7 a, 8 b, 5 eot, 3 start, 9 assistant, 4 end, 10 c, 11 d, 5 eot
    assert dataset[0] == {
        "tokens": [0, 3, 6, 4, 7, 8, 5, 3, 9, 4, 10, 11, 5],
        "labels": [IGNORE_INDEX] * 10 + [10, 11, 5],
        "id": "a/f:1",
    }
    assert dataset[1]["id"] == "g:70000"
    assert dataset.lengths.tolist() == [13, len(dataset[1]["tokens"])]


def test_examples_come_back_as_they_were():
    row = Conversation("f:1", chat("", "Correct: ü", "b").turns, input="ü", references=["b", "c"])
    (example,) = build(row).examples
    assert (example.id, example.input, example.references) == ("f:1", "ü", ["b", "c"])
    assert [(m.role, m.text_content) for m in example.messages] == [("user", "Correct: ü")]


@pytest.mark.parametrize("answer", [None, "", " \n"])
def test_empty_answer_is_refused_or_dropped_by_row(answer):
    rows = [chat("f:7", "secret", answer), chat("f:8", "a", "b")]
    with pytest.raises(RefusedDataError) as error:
        build(*rows)
    assert "1 row cannot be used" in str(error.value)
    assert "f:7 message 2 (assistant) is empty" in str(error.value)
    assert "dataset.unusable_rows=drop" in str(error.value)
    assert [sample["id"] for sample in error.value.dataset] == ["f:8"]
    dataset = build(*rows, unusable_rows="drop")
    assert [sample["id"] for sample in dataset] == ["f:8"]
    assert dataset.report.dropped_ids == {"nothing to train on": ["f:7"]}


def test_all_bad_rows_are_gathered_and_long_lists_cut():
    rows = [chat(f"f:{n}", "a", None) for n in range(1, 31)]
    rows += [chat("f:31", "a " * 200, "b"), Unusable("f:32", "no text", "has no input")]
    with pytest.raises(UserError) as error:
        build(*rows)
    too_long, unusable = error.value.problems
    assert "f:31 has 210 tokens, max_seq_len is 100" in too_long
    assert "dataset.truncation" in too_long
    assert unusable.startswith("31 rows cannot be used")
    assert "f:20 " in unusable
    assert "f:21 " not in unusable
    assert unusable.endswith("and 11 more")


def test_long_row_is_dropped_and_counted():
    dataset = build(chat("f:1", *LONG), chat("f:2", "a", "b"), max_seq_len=18, truncation="drop")
    assert [sample["id"] for sample in dataset] == ["f:2"]
    assert [example.id for example in dataset.examples] == ["f:2"]
    assert dataset.report.dropped_ids == {"too long": ["f:1"]}
    assert dataset.report.rows == 2


def test_row_that_truncation_leaves_without_labels_is_an_unusable_row():
    rows = [chat("f:1", *LONG), chat("f:2", "a", "b")]
    with pytest.raises(UserError, match="f:1 of 19 tokens has none to train on"):
        build(*rows, max_seq_len=14, truncation="right")
    dataset = build(*rows, max_seq_len=14, truncation="right", unusable_rows="drop")
    assert dataset.report.dropped_ids == {"nothing to train on": ["f:1"]}


def test_cut_and_trimmed_rows_are_counted():
    rows = [chat("f:1", *LONG), chat("f:2", "a", "b", "c")]
    dataset = build(*rows, max_seq_len=16, truncation="right")
    assert (dataset.report.truncated, dataset.report.trimmed) == (["f:1"], ["f:2"])
    assert dataset.report.describe() == (
        "2 rows read; 1 cut to max_seq_len; 1 lost turns behind their last answer (f:2)"
    )


def test_data_set_without_a_row_left_is_refused():
    with pytest.raises(UserError) as error:
        build(chat("f:1", *LONG), max_seq_len=5, truncation="drop")
    assert str(error.value) == (
        "dataset: no row is left to train on: 1 rows read; 1 dropped, too long (f:1)"
    )


def test_report_counts_tokens():
    dataset = build(chat("f:1", "a b", "c d"), chat("f:2", "a", "b"))
    assert dataset.report.tokens == sum(len(s["tokens"]) for s in dataset) == 13 + 11
    assert dataset.report.supervised_tokens == 3 + 2
    assert dataset.report.largest_id == max(max(sample["tokens"]) for sample in dataset)
    assert dataset.report.describe() == "2 rows read"


def test_first_token_of_a_row_cut_inside_its_answer_has_nothing_to_predict_it():
    dataset = build(chat("f:1", *LONG), max_seq_len=3, truncation="left")
    assert sum(label != IGNORE_INDEX for label in dataset[0]["labels"]) == 3
    assert dataset.report.supervised_tokens == 2


def test_a_sample_longer_than_the_models_context_is_named():
    dataset = build(chat("f:3", "a", "b"), chat("f:9", *LONG), chat("f:5", "a", "b"))
    check_lengths(dataset, 19, key="dataset")
    with pytest.raises(
        UserError, match="f:9 has 19 tokens and the model takes 18: set dataset_val.max_seq_len"
    ):
        check_lengths(dataset, 18, key="dataset_val")


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("dataset.source: /a/dataset.jsonl is gone", "X.source: /a/dataset.jsonl is gone"),
        ("dataset: no row is left", "X: no row is left"),
        ("set dataset.unusable_rows=drop:\n  dataset.jsonl:1 has", None),
        ("my_dataset.source, /dataset.source", "my_dataset.source, /dataset.source"),
    ],
)  # fmt: skip
def test_problems_name_the_key_of_their_data_set_and_no_file_of_that_name(problem, expected):
    if expected is None:
        expected = "set X.unusable_rows=drop:\n  dataset.jsonl:1 has"
    assert name_key([problem], "X") == [expected]


# --- The cache ---


def test_second_run_with_unchanged_data_reads_and_tokenises_nothing():
    first = build(chat("f:1", "a", "b"), tokenizer=Fixed())

    def fail():
        raise AssertionError("the source was read again")

    tokenizer = Fixed()
    second = build_supervised_dataset(
        tokenizer, read=fail, identify=dict, max_seq_len=100,
        truncation="error", unusable_rows="error",
    )  # fmt: skip
    assert list(second) == list(first)
    assert tokenizer.num_conversations == 4  # those of check_tokenizer


class Fixed(WordTokenizer):
    def fingerprint(self):
        return "words"


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": {"source": "2"}},
        {"max_seq_len": 101},
        {"truncation": "drop"},
        {"unusable_rows": "drop"},
        {"tokenizer": WordTokenizer()},
    ],
)
def test_whatever_changes_the_tokens_is_another_data_set(changed):
    build(chat("f:1", "a", "b"), tokenizer=Fixed())
    dataset = build(chat("f:2", "a", "b"), **({"tokenizer": Fixed()} | changed))
    assert dataset[0]["id"] == "f:2"


def test_other_code_is_another_data_set(monkeypatch):
    from custom_components.datasets import cache

    build(chat("f:1", "a", "b"), tokenizer=Fixed())
    monkeypatch.setattr(cache, "_versions", lambda: {"code": "other"})
    assert build(chat("f:2", "a", "b"), tokenizer=Fixed())[0]["id"] == "f:2"


PARTS = ["tokens.bin", "supervised.bin", "offsets.bin", "rows.bin", "examples.jsonl", "store.json"]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("damage", ["cut", "zeroed", "gone"])
def test_damaged_data_set_is_built_again(name, damage):
    """As a crash or a bad disk leaves it."""
    build(chat("f:1", "a", "b"), tokenizer=Fixed())
    (folder,) = cache_root().iterdir()
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[:-1] if damage == "cut" else bytes(len(data)))
    assert build(chat("f:2", "a", "b"), tokenizer=Fixed())[0]["id"] == "f:2"


@pytest.mark.parametrize("text", ["", "[]", "null", '{"digests": []}', '{"digests": {}}'])
def test_what_is_no_data_set_is_built_again(text):
    build(chat("f:1", "a", "b"), tokenizer=Fixed())
    (folder,) = cache_root().iterdir()
    (folder / "store.json").write_text(text)
    assert build(chat("f:2", "a", "b"), tokenizer=Fixed())[0]["id"] == "f:2"
    shutil.rmtree(folder)
    folder.write_text("a file in its place")
    assert build(chat("f:3", "a", "b"), tokenizer=Fixed())[0]["id"] == "f:3"


def test_source_that_changes_while_it_is_read_is_refused_and_not_kept():
    contents = iter(["before", "after"])
    with pytest.raises(UserError, match="changed while it was read: run this again"):
        build_supervised_dataset(
            Fixed(), read=lambda: Conversations(iter([chat("f:1", "a", "b")]), ["f"], 0),
            identify=lambda: {"contents": next(contents)}, max_seq_len=100,
            truncation="error", unusable_rows="error",
        )  # fmt: skip
    assert list(cache_root().iterdir()) == []


def test_nothing_is_left_of_a_failed_build():
    def fail():
        raise UserError("no such file")

    with pytest.raises(UserError, match="no such file"):
        build_supervised_dataset(
            Fixed(), read=fail, identify=dict, max_seq_len=100,
            truncation="error", unusable_rows="error",
        )  # fmt: skip
    assert list(cache_root().iterdir()) == []


def test_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set the environment variable TUNEPACK_CACHE"):
        build(chat("f:1", "a", "b"))


def test_disk_that_fills_up_is_named_and_nothing_is_left(monkeypatch):
    def fail(self, row):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TokenStoreWriter, "add", fail)
    with pytest.raises(UserError, match="No space left on device.*make room"):
        build(chat("f:1", "a", "b"))
    assert list(cache_root().iterdir()) == []


def test_data_set_can_be_read_by_whoever_the_umask_lets_read():
    earlier = os.umask(0o022)
    try:
        build(chat("f:1", "a", "b"))
    finally:
        os.umask(earlier)
    (folder,) = cache_root().iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_other_code_of_a_users_tokenizer_is_another_data_set(tmp_path):
    """Its attributes are the same, so pickling it would not show the difference."""

    def load(name, body):
        path = tmp_path / f"{name}.py"
        path.write_text(
            "from tests.unit.datasets.word_tokenizer import WordTokenizer\n\n\n"
            f"class Own(WordTokenizer):\n    def encode(self, text):\n        {body}\n"
        )
        spec = importlib.util.spec_from_file_location("own_tokenizer", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["own_tokenizer"] = module
        spec.loader.exec_module(module)
        return module.Own()

    try:
        lower = load("one", "return super().encode(text)")
        build(chat("f:1", "a", "b"), tokenizer=lower)
        upper = load("two", "return super().encode(text.upper())")
        assert build(chat("f:2", "a", "b"), tokenizer=upper)[0]["id"] == "f:2"
    finally:
        sys.modules.pop("own_tokenizer", None)


def test_samples_are_mapped_not_held(tmp_path):
    """A rank holds no copy of the tokens: they are the page cache's."""
    build(chat("f:1", "a", "b"), tokenizer=Fixed())
    dataset = build(tokenizer=Fixed())
    mapped = Path("/proc/self/maps").read_text()
    assert str(tmp_path / "cache") in mapped
    assert "tokens.bin" in mapped
    assert len(dataset) == 1


# --- Packs ---


@pytest.mark.parametrize(
    ("truncation", "num_samples", "num_tokens"), [("drop", 10, 300), ("left", 11, 360)]
)
def test_row_longer_than_a_pack_is_dropped_or_cut_by_policy_and_counted(
    truncation, num_samples, num_tokens
):
    """pytorch/torchtune#1689: packing raised. Rows of 30 tokens and one of 121, packs of 60."""
    words = "w " * (30 - 10)  # bos, two headers of three, one word of question, two ends
    rows = [chat(f"f:{n}", "q", words) for n in range(1, 11)]
    rows.append(chat("f:11", "q", "w " * (121 - 10)))
    dataset = build(*rows, max_seq_len=60, truncation=truncation)
    assert (len(dataset), dataset.report.tokens) == (num_samples, num_tokens)
    assert dataset.report.dropped_ids == ({"too long": ["f:11"]} if truncation == "drop" else {})
    assert dataset.report.truncated == ([] if truncation == "drop" else ["f:11"])
    plan = DataPlan(
        dataset=dataset, batch_size=1, gradient_accumulation_steps=1, world_size=1, rank=0, seed=0,
        shuffle=True, pad_id=2, epochs=1, max_steps=None, packed=True,
    )  # fmt: skip
    batches = [batch for step in plan.steps() for batch in step]
    assert sorted(id_ for batch in batches for id_ in batch.ids) == sorted(
        sample["id"] for sample in dataset
    )
    assert sum(batch.num_tokens for batch in batches) == num_tokens - num_samples  # the inputs
    with pytest.raises(UserError, match="f:11 has 121 tokens"):
        build(*rows, max_seq_len=60)
