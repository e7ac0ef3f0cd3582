import pytest

from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.datasets.sft import (
    Conversation,
    SupervisedDataset,
    Unusable,
    check_lengths,
)
from custom_components.errors import UserError
from tests.unit.datasets.word_tokenizer import END, EOT, START, WordTokenizer


def chat(row_id, *contents, roles=("user", "assistant", "user", "assistant")):
    turns = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]
    return Conversation(row_id, turns, input=str(contents[0]))


def build(*rows, tokenizer=None, max_seq_len=100, **options):
    return SupervisedDataset(rows, tokenizer or WordTokenizer(), max_seq_len=max_seq_len, **options)


def refusal(*rows, **options):
    with pytest.raises(UserError) as error:
        build(*rows, **options)
    return str(error.value)


def trained_text(dataset, tokenizer, index=0):
    return tokenizer.decode([i for i in dataset[index]["labels"] if i != IGNORE_INDEX])


def test_labels_hold_the_answer_and_its_end_token_alone():
    """torchtune's Llama-3 tokenizer also trains on the header of the answer."""
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", "a b", "c d"), tokenizer=tokenizer)
    assert len(dataset) == 1
    # 0 bos, 3 start, 6 user, 4 end, 7 a, 8 b, 5 eot, 3 start, 9 assistant, 4 end, 10 c, 11 d, 5 eot
    assert dataset[0] == {
        "tokens": [0, 3, 6, 4, 7, 8, 5, 3, 9, 4, 10, 11, 5],
        "labels": [IGNORE_INDEX] * 10 + [10, 11, 5],
        "id": "f:1",
    }


def test_only_the_last_answer_is_trained_on():
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", "a", "b", "c", "d"), tokenizer=tokenizer)
    assert trained_text(dataset, tokenizer) == "d <eot>"


def test_null_content_never_takes_the_previous_messages_text():
    """torchtune's message transforms reuse the previous content when one is null."""
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", "secret", None, "go on", "fine"), tokenizer=tokenizer)
    text = tokenizer.decode(dataset[0]["tokens"])
    assert text.count("secret") == 1
    assert "None" not in text
    assert "<start> assistant <end> <eot>" in text
    assert trained_text(dataset, tokenizer) == "fine <eot>"


@pytest.mark.parametrize("answer", [None, "", " \n"])
def test_empty_answer_is_refused_or_dropped_by_row(answer):
    row = chat("f:7", "secret", answer)
    message = refusal(row)
    assert "1 row cannot be used" in message
    assert "f:7 message 2 (assistant) is empty" in message
    assert "dataset.unusable_rows=drop" in message
    dataset = build(row, chat("f:8", "a", "b"), unusable_rows="drop")
    assert [sample["id"] for sample in dataset] == ["f:8"]
    assert dataset.report.dropped == {"nothing to train on": ["f:7"]}


@pytest.mark.parametrize("content", [5, 1.5, True, ["a"], {"text": "a"}])
def test_content_that_is_no_text_is_refused(content):
    assert f"f:1 message 1 is {type(content).__name__}" in refusal(chat("f:1", content, "x"))


@pytest.mark.parametrize(
    "row",
    [
        Conversation("f:1", []),
        chat("f:1", "s", "u", roles=("system", "user")),
        chat("f:1", "a", "b", "c"),
    ],
    ids=["empty", "no answer", "trailing user turn"],
)
def test_conversation_without_a_last_answer_is_refused(row):
    """torchtune#2405."""
    assert "f:1 does not end with an assistant message" in refusal(row)


def test_all_bad_rows_are_gathered_and_long_lists_cut():
    rows = [chat(f"f:{n}", "a", None) for n in range(1, 31)]
    rows += [chat("f:31", "a " * 200, "b"), Unusable("f:32", "no text", "has no input")]
    with pytest.raises(UserError) as error:
        build(*rows, truncation="error")
    too_long, unusable = error.value.problems
    assert "f:31 has 210 tokens, dataset.max_seq_len is 100" in too_long
    assert "dataset.truncation" in too_long
    assert unusable.startswith("31 rows cannot be used")
    assert "f:20 " in unusable
    assert "f:21 " not in unusable
    assert unusable.endswith("and 11 more")


# --- Truncation: "p" * 6 gives a prompt of 14 tokens, the answer and its end 5 more ---

LONG = ("p1 p2 p3 p4 p5 p6", "a1 a2 a3 a4")


def test_row_at_the_limit_is_kept_whole():
    dataset = build(
        chat("f:1", *LONG), max_seq_len=19
    )  # the masked end of the sequence is cut anyway
    assert len(dataset[0]["tokens"]) == 19
    assert dataset.report.truncated == 0


def test_long_row_is_dropped_and_counted():
    dataset = build(chat("f:1", *LONG), chat("f:2", "a", "b"), max_seq_len=18)
    assert [sample["id"] for sample in dataset] == ["f:2"]
    assert [example.id for example in dataset.examples] == ["f:2"]
    assert dataset.report.dropped == {"too long": ["f:1"]}
    assert dataset.report.rows == 2


def test_long_row_is_refused_under_the_policy_error():
    message = refusal(chat("f:1", *LONG), max_seq_len=18, truncation="error")
    assert "f:1 has 19 tokens, dataset.max_seq_len is 18" in message


def test_right_truncation_forces_no_end_token():
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", *LONG), tokenizer=tokenizer, max_seq_len=16, truncation="right")
    assert trained_text(dataset, tokenizer) == "a1 a2"
    assert len(dataset[0]["tokens"]) == 16
    assert dataset.report.truncated == 1


def test_left_truncation_keeps_the_answer():
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", *LONG), tokenizer=tokenizer, max_seq_len=8, truncation="left")
    assert trained_text(dataset, tokenizer) == "a1 a2 a3 a4 <eot>"
    assert tokenizer.decode(dataset[0]["tokens"]) == "<start> assistant <end> a1 a2 a3 a4 <eot>"


@pytest.mark.parametrize("max_seq_len", [11, 14])
def test_prompt_that_fills_the_sample_never_gives_a_sample_without_labels(max_seq_len):
    """torchtune cuts such a row to its masked prompt and forces an end token."""
    rows = [chat("f:1", *LONG), chat("f:2", "a", "b")]
    message = refusal(*rows, max_seq_len=max_seq_len, truncation="right")
    assert f"f:1 of 19 tokens has none to train on in the {max_seq_len} that are kept" in message
    assert "f:2" not in message
    dataset = build(*rows, max_seq_len=max_seq_len, truncation="right", unusable_rows="drop")
    assert dataset.report.dropped == {"nothing to train on": ["f:1"]}
    assert [sample["id"] for sample in dataset] == ["f:2"]
    dataset = build(*rows, max_seq_len=max_seq_len)
    assert dataset.report.dropped == {"too long": ["f:1"]}


def test_label_of_a_first_token_is_nothing_to_train_on():
    """With left truncation to one token the only label could never be a target."""
    message = refusal(chat("f:1", "a", "b"), max_seq_len=1, truncation="left")
    assert "has none to train on" in message


def test_data_set_without_a_row_left_is_refused():
    message = refusal(chat("f:1", *LONG), max_seq_len=5)
    assert message == (
        "dataset: no row is left to train on: 1 rows read; 1 dropped, too long (f:1)"
    )


def test_report_counts_tokens():
    dataset = build(chat("f:1", "a b", "c d"), chat("f:2", "a", "b"))
    assert dataset.report.tokens == sum(len(s["tokens"]) for s in dataset) == 13 + 11
    assert dataset.report.supervised_tokens == 3 + 2
    assert dataset.report.describe() == "2 rows read"


def test_examples_hold_the_prompt_and_the_reference():
    tokenizer = WordTokenizer()
    dataset = build(chat("f:1", "a b", "c d"), tokenizer=tokenizer)
    (example,) = dataset.examples
    assert (example.id, example.input, example.reference) == ("f:1", "a b", "c d")
    assert [message.text_content for message in example.messages] == ["a b"]


def test_tokenizer_that_truncates_is_refused():
    tokenizer = WordTokenizer()
    tokenizer.max_seq_len = 64
    message = refusal(chat("f:1", "a", "b"), tokenizer=tokenizer)
    assert "tokenizer.max_seq_len: 64" in message
    assert "set dataset.max_seq_len" in message


def test_tokenizer_with_another_generation_prompt_is_refused():
    class Other(WordTokenizer):
        def tokenize_messages(self, messages, *, add_end_tokens=True):
            tokens, mask = super().tokenize_messages(messages, add_end_tokens=add_end_tokens)
            return ([START, END, EOT], [True] * 3) if not add_end_tokens else (tokens, mask)

    message = refusal(chat("f:1", "a", "b"), tokenizer=Other())
    assert "Other writes the prompt of f:1 differently" in message


def test_a_sample_longer_than_the_models_context_is_named() -> None:
    samples = [{"tokens": [1] * n, "labels": [1] * n, "id": f"f:{n}"} for n in (3, 9, 5)]
    check_lengths(samples, 9)
    with pytest.raises(UserError, match="f:9 has 9 tokens and the model takes 8"):
        check_lengths(samples, 8)
