import json

import pytest

from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.datasets.instruct import instruct_dataset
from custom_components.datasets.summarize import summarize_dataset
from custom_components.errors import UserError
from tests.unit.datasets.word_tokenizer import WordTokenizer


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def trained_texts(dataset, tokenizer):
    return [
        tokenizer.decode([i for i in sample["labels"] if i != IGNORE_INDEX]) for sample in dataset
    ]


ROWS = {
    "messages": {
        "messages": [
            {"role": "user", "content": "q one"},
            {"role": "assistant", "content": "a one"},
            {"role": "user", "content": "q two"},
            {"role": "assistant", "content": "a two"},
        ]
    },
    "sharegpt": {
        "conversations": [
            {"from": "human", "value": "q one"},
            {"from": "gpt", "value": "a one"},
            {"from": "human", "value": "q two"},
            {"from": "gpt", "value": "a two"},
        ]
    },
    "alpaca": {"instruction": "q one", "input": "", "output": "a one"},
    "prompt_response": {"input": "q one", "output": "a one"},
}


@pytest.mark.parametrize("layout", ROWS)
def test_every_layout_trains_on_every_answer(tmp_path, layout):
    tokenizer = WordTokenizer()
    path = write_rows(tmp_path / "rows.jsonl", [ROWS[layout]])
    dataset = instruct_dataset(tokenizer, source=path, layout=layout)
    answers = ["a one <eot>"]
    if layout in ("messages", "sharegpt"):
        answers = ["a one <eot> a two <eot>"]
    assert trained_texts(dataset, tokenizer) == answers


def test_tool_calls_are_trained_on_and_tool_results_are_not(tmp_path):
    """NVIDIA-NeMo/Megatron-Bridge#5742: null content beside tool calls became the word None."""
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    row = {
        "messages": [
            {"role": "user", "content": "sum"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "two"},
            {"role": "assistant", "content": "it is two"},
        ]
    }
    tokenizer = WordTokenizer()
    dataset = instruct_dataset(tokenizer, source=write_rows(tmp_path / "r.jsonl", [row]))
    (text,) = trained_texts(dataset, tokenizer)
    assert text == (
        '<tool_call> {"name": "add", "arguments": {"a": 1}} </tool_call> <eot> it is two <eot>'
    )
    assert "None" not in tokenizer.decode(dataset[0]["tokens"])


def test_system_prompt_is_for_conversations_that_have_none(tmp_path):
    own = {"messages": [{"role": "system", "content": "mine"}, *ROWS["messages"]["messages"]]}
    tokenizer = WordTokenizer()
    path = write_rows(tmp_path / "rows.jsonl", [ROWS["messages"], own])
    dataset = instruct_dataset(tokenizer, source=path, system_prompt="theirs")
    systems = [example.messages[0].text_content for example in dataset.examples]
    assert systems == ["theirs", "mine"]


@pytest.mark.parametrize(
    ("messages", "detail"),
    [
        ([], "holds no messages"),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
         "has no assistant message"),
        ([{"role": "user", "content": "u"}, {"role": "assistant", "content": None}],
         "message 2 (assistant) is empty"),
    ],
)  # fmt: skip
def test_conversation_without_an_answer_is_refused_by_row(tmp_path, messages, detail):
    """pytorch/torchtune#2405."""
    path = write_rows(tmp_path / "r.jsonl", [ROWS["messages"], {"messages": messages}])
    with pytest.raises(UserError, match="1 row cannot be used") as error:
        instruct_dataset(WordTokenizer(), source=path)
    assert f"{path}:2 {detail}" in str(error.value)


def test_edited_file_is_noticed_and_a_touched_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "cache"))
    path = write_rows(tmp_path / "rows.jsonl", [ROWS["alpaca"]])
    tokenizer = WordTokenizer()

    class Fixed(WordTokenizer):
        def fingerprint(self):
            return "words"

    def build():
        counted = Fixed()
        counted.words = tokenizer.words
        dataset = instruct_dataset(counted, source=path, layout="alpaca")
        return trained_texts(dataset, counted), counted.num_conversations - 4  # check_tokenizer's

    assert build() == (["a one <eot>"], 1)
    (tmp_path / "rows.jsonl").touch()
    assert build() == (["a one <eot>"], 0)
    write_rows(tmp_path / "rows.jsonl", [ROWS["alpaca"] | {"output": "another"}])
    assert build() == (["another <eot>"], 1)


def test_samples_of_a_renamed_file_have_its_new_name(tmp_path, monkeypatch):
    """They were found in the cache under the name of a file that is gone."""
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "rows"
    folder.mkdir()
    write_rows(folder / "a.jsonl", [ROWS["messages"]])

    class Fixed(WordTokenizer):
        def fingerprint(self):
            return "words"

    def list_ids(**options):
        dataset = instruct_dataset(Fixed(), source=str(folder), **options)
        return [sample["id"] for sample in dataset]

    assert list_ids() == [f"{folder}/a.jsonl:1"]
    (folder / "a.jsonl").rename(folder / "b.jsonl")
    assert list_ids() == [f"{folder}/b.jsonl:1"]
    folder = folder.rename(tmp_path / "moved")
    assert list_ids() == [f"{folder}/b.jsonl:1"]


def test_embedded_corpora_can_be_trained_on():
    for builder in (instruct_dataset, summarize_dataset):
        train = builder(WordTokenizer(), source="embedded")
        heldout = builder(WordTokenizer(), source="embedded", split="heldout")
        assert len(train) > 5 * len(heldout) > 0
        for report in (train.report, heldout.report):
            assert (report.dropped, report.truncated, report.trimmed) == ({}, [], [])


def test_summary_alone_is_trained_on(tmp_path):
    tokenizer = WordTokenizer()
    rows = [{"dialogue": "a long talk", "summary": "they talk"}]
    dataset = summarize_dataset(
        tokenizer,
        source=write_rows(tmp_path / "rows.jsonl", rows),
        column_map={"input": "dialogue", "output": "summary"},
    )
    assert trained_texts(dataset, tokenizer) == ["they talk <eot>"]
    assert dataset.examples[0].input == "a long talk"
    assert "Summarize this text" in dataset.examples[0].messages[0].text_content


def test_columns_that_are_not_read_are_reported(tmp_path):
    row = ROWS["messages"] | {"tools": [], "id": 5}
    path = write_rows(tmp_path / "rows.jsonl", [ROWS["messages"], row])
    report = instruct_dataset(WordTokenizer(), source=path).report
    assert (report.tables, report.unused_columns) == ([path], ["tools", "id"])
    assert "columns that are not read: tools, id" in report.describe()
