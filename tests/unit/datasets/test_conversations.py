import pytest

from custom_components.datasets.conversations import read_messages
from custom_components.datasets.rows import Conversation, Unusable


def chat(*turns):
    return Conversation("f:1", [{"role": role, "content": content} for role, content in turns])


def texts(read):
    return [(message.role, message.text_content, message.masked) for message in read.messages]


def test_every_answer_is_trained_on_and_nothing_else():
    read = read_messages(
        chat(("system", "s"), ("user", "a"), ("assistant", "b"), ("tool", "t"), ("assistant", "d"))
    )
    assert [masked for _, _, masked in texts(read)] == [True, True, False, True, False]


def test_null_content_never_takes_the_previous_messages_text():
    """torchtune's message transforms reuse the previous content when one is null."""
    read = read_messages(
        chat(("user", "secret"), ("assistant", None), ("user", "go on"), ("assistant", "fine"))
    )
    assert texts(read) == [
        ("user", "secret", True),
        ("assistant", "", True),
        ("user", "go on", True),
        ("assistant", "fine", False),
    ]


def test_turns_behind_the_last_answer_are_trimmed_and_counted():
    """pytorch/torchtune#2405."""
    read = read_messages(
        chat(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", " \n"))
    )
    assert [text for _, text, _ in texts(read)] == ["a", "b"]
    assert read.num_trimmed == 2


@pytest.mark.parametrize(
    ("turns", "detail"),
    [
        ([], "holds no messages"),
        ([("system", "s"), ("user", "u")], "has no assistant message"),
        ([("user", "u"), ("assistant", None)], "message 2 (assistant) is empty"),
        ([("user", "u"), ("assistant", "\t")], "message 2 (assistant) is empty"),
    ],
)
def test_conversation_without_an_answer_is_named(turns, detail):
    """pytorch/torchtune#2405."""
    assert read_messages(chat(*turns)) == Unusable("f:1", "nothing to train on", detail)


@pytest.mark.parametrize("content", [5, 1.5, True, ["a"], {"text": "a"}])
def test_content_that_is_no_text_is_named(content):
    read = read_messages(chat(("user", content), ("assistant", "x")))
    assert isinstance(read, Unusable)
    assert read.detail.startswith(f"message 1 is {type(content).__name__}")


def test_answer_of_weight_0_is_read_and_not_trained_on():
    """OpenAI's fine-tuning format."""
    turns = [
        {"role": "assistant", "content": "bad", "weight": 0},
        {"role": "assistant", "content": "good", "weight": 1},
    ]
    read = read_messages(Conversation("f:1", turns))
    assert texts(read) == [("assistant", "bad", True), ("assistant", "good", False)]
    read = read_messages(Conversation("f:1", turns[:1]))
    assert read == Unusable("f:1", "nothing to train on", "message 1 (assistant) has weight 0")
