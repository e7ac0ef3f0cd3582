import datetime
import json

import pytest

from custom_components.datasets.layouts import to_conversation
from custom_components.datasets.rows import NO_TEXT, UNREADABLE, Conversation, Row, Unusable

ROLES = ("system", "user", "assistant", "tool")


def convert(values, layout, **options):
    found = to_conversation(Row("f:7", values), layout=layout, **options)
    assert found.id == "f:7"
    return found


def turns_of(values, layout, **options):
    found = convert(values, layout, **options)
    assert isinstance(found, Conversation), found
    assert all(turn["role"] in ROLES for turn in found.turns)
    return [(turn["role"], turn["content"]) for turn in found.turns]


def fault_of(values, layout, **options):
    found = convert(values, layout, **options)
    assert isinstance(found, Unusable), found
    return found.reason, found.detail


# --- Prompt and response -------------------------------------------------------------------------


def test_prompt_and_response_become_two_turns():
    found = convert(
        {"input": "a {input}", "output": "b"}, "prompt_response", prompt="Fix: {input}!"
    )
    assert found == Conversation(
        "f:7",
        [{"role": "user", "content": "Fix: a {input}!"}, {"role": "assistant", "content": "b"}],
        input="a {input}",
        references=["b"],
    )
    values = {"q": "a", "a": "b", "input": "other"}
    columns = {"input": "q", "output": "a"}
    assert turns_of(values, "prompt_response", column_map=columns) == [
        ("user", "a"),
        ("assistant", "b"),
    ]


def test_system_text_is_the_rows_own_or_the_data_sets():
    row = {"input": "a", "output": "b", "system": "own"}
    options = {"system_prompt": "common"}
    assert turns_of(row, "prompt_response", **options)[0] == ("system", "own")
    assert turns_of(row | {"system": " "}, "prompt_response", **options)[0] == ("system", "common")
    assert turns_of(row | {"system": None}, "prompt_response")[0] == ("user", "a")


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        ("alpaca", {"instruction": "a", "output": "b"}),
        ("sharegpt", {"conversations": [{"from": "human", "value": "a"}]}),
    ],
)
def test_system_column_of_other_layouts_comes_first_too(layout, row):
    found = turns_of(row | {"system": "own"}, layout, system_prompt="common")
    assert found[:2] == [("system", "own"), ("user", "a")]


def test_several_answers_are_references_and_the_first_is_trained_on():
    """JFLEG on the hub: a list of corrections, some of them empty."""
    found = convert({"input": "a", "output": ["", "b ", None, "c"]}, "prompt_response")
    assert found.turns[-1]["content"] == "b "
    assert found.references == ["b ", "c"]


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ({"output": "b"}, "has no input"),
        ({"input": None, "output": "b"}, "has no input"),
        ({"input": "", "output": "b"}, "has a blank input"),
        ({"input": " \n", "output": "b"}, "has a blank input"),
        ({"input": 5, "output": "b"}, "has 5 as input, not a text"),
        ({"input": ["a"], "output": "b"}, "has ['a'] as input, not a text"),
        ({"input": "a", "output": None}, "has no output"),
        ({"input": "a", "output": "\t"}, "has a blank output"),
        ({"input": "a", "output": []}, "has no output"),
        ({"input": "a", "output": ["", None]}, "has a blank output"),
        ({"input": "a", "output": ["b", 5]}, "has 5 as output, not a text"),
        ({"input": "a", "output": {"x": 1}}, "has {'x': 1} as output, not a text"),
        ({"input": "a", "output": "b", "system": 5}, "has 5 as system, not a text"),
    ],
)
def test_pair_without_text_is_unusable(values, detail):
    """unsloth#10813, axolotl#290: blank and null cells were trained on."""
    assert fault_of(values, "prompt_response") == (NO_TEXT, detail)


# --- Alpaca --------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", [{}, {"input": None}, {"input": ""}, {"input": " "}])
def test_alpaca_without_input_has_no_input_section(blank):
    """unsloth#10813: a blank input became an empty section, or the word None."""
    values = {"instruction": "Name a colour.", "output": "Red."} | blank
    assert turns_of(values, "alpaca") == [("user", "Name a colour."), ("assistant", "Red.")]


def test_alpaca_input_follows_the_instruction():
    values = {"instruction": "Translate.", "input": "Hund", "output": "dog"}
    assert turns_of(values, "alpaca", system_prompt="Be brief.") == [
        ("system", "Be brief."),
        ("user", "Translate.\n\nHund"),
        ("assistant", "dog"),
    ]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"instruction": None}, "has no instruction"),
        ({"instruction": " "}, "has a blank instruction"),
        ({"input": 5}, "has 5 as input, not a text"),
        ({"output": ""}, "has a blank output"),
        ({"output": 1.5}, "has 1.5 as output, not a text"),
    ],
)
def test_alpaca_row_without_text_is_unusable(change, detail):
    values = {"instruction": "a", "input": "b", "output": "c"} | change
    assert fault_of(values, "alpaca") == (NO_TEXT, detail)


# --- OpenAI messages -----------------------------------------------------------------------------


def message(role, content, **others):
    return {"role": role, "content": content} | others


def test_messages_keep_their_order_and_roles():
    """torchtune#2405: tool turns and a trailing user turn are kept; templates decide about them."""
    messages = [
        message("developer", "d"),
        message("user", "u"),
        message("assistant", "a"),
        message("tool", "t", name="f"),
        message("function", "f"),
        message("user", "v"),
    ]
    assert turns_of({"messages": messages}, "messages") == [
        ("system", "d"),
        ("user", "u"),
        ("assistant", "a"),
        ("tool", "t"),
        ("tool", "f"),
        ("user", "v"),
    ]
    assert turns_of({"m": []}, "messages", column_map={"messages": "m"}) == []


def test_null_content_is_nobody_elses_text():
    """Megatron-Bridge#5742: null became the word None, or the message before it."""
    messages = [message("user", "hi"), message("assistant", None)]
    assert turns_of({"messages": messages}, "messages") == [("user", "hi"), ("assistant", "")]


def test_answer_of_weight_0_is_marked_and_other_weights_are_refused():
    """OpenAI's fine-tuning format: such an answer is read and not trained on."""
    rows = [message("assistant", "a", weight=w) for w in (0, 1, None)] + [message("user", "b")]
    found = convert({"messages": rows}, "messages")
    assert [turn["weight"] for turn in found.turns] == [0, 1, 1, 1]
    for weight in (0.5, "0", True, [0]):
        _, detail = fault_of({"messages": [message("assistant", "a", weight=weight)]}, "messages")
        assert detail == f"message 1 (assistant) has {weight!r} as weight; it is 0 or 1"


def test_system_prompt_is_put_before_a_conversation_that_has_none():
    options = {"system_prompt": "common"}
    user, system = message("user", "u"), message("system", "own")
    found = turns_of({"messages": [user, system]}, "messages", **options)
    assert found == [("system", "common"), ("user", "u"), ("system", "own")]
    found = turns_of({"messages": [system, user]}, "messages", **options)
    assert found == [("system", "own"), ("user", "u")]
    assert turns_of({"messages": []}, "messages", **options) == []


def test_text_parts_follow_each_other():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    parts.append({"type": "text", "text": None, "image_url": None})  # as Parquet fills it in
    assert turns_of({"messages": [message("user", parts)]}, "messages") == [("user", "one two")]


CALL = {"type": "function", "id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize("content", [None, "", "Let me see."])
def test_tool_calls_become_text(content):
    """Megatron-Bridge#5742: an assistant message of tool calls alone became the word None."""
    other = {"name": "say", "arguments": {"text": "é\n"}}
    messages = [message("assistant", content, tool_calls=[CALL, other])]
    ((role, text),) = turns_of({"messages": messages}, "messages")
    assert role == "assistant"
    said, first, second = text.partition("<tool_call>")
    assert said == ("Let me see.\n" if content else "")
    assert first + second == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "say", "arguments": {"text": "é\\n"}}\n</tool_call>'
    )
    bodies = [part.split("</tool_call>")[0] for part in text.split("<tool_call>")[1:]]
    assert [json.loads(body) for body in bodies] == [{"name": "add", "arguments": {"a": 1}}, other]


@pytest.mark.parametrize(
    ("arguments", "written"),
    [(None, {}), ("", {}), ("{}", {}), ("not JSON", "not JSON"), ({"x": None}, {"x": None})],
)
def test_arguments_of_a_tool_call_are_written_as_json(arguments, written):
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [message("assistant", None, tool_calls=[call])]
    ((_, text),) = turns_of({"messages": messages}, "messages")
    body = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert body == {"name": "f", "arguments": written}
    assert "None" not in text


def test_older_function_call_is_a_tool_call():
    messages = [message("assistant", None, function_call=CALL["function"], tool_calls=None)]
    ((_, text),) = turns_of({"messages": messages}, "messages")
    assert text == '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.parametrize("empty", [None, []])
def test_no_tool_calls_leave_the_text_alone(empty):
    messages = [message("user", "u", tool_calls=empty), message("assistant", "a", tool_calls=empty)]
    assert turns_of({"messages": messages}, "messages") == [("user", "u"), ("assistant", "a")]


@pytest.mark.parametrize(
    ("messages", "detail"),
    [
        ("[]", "has '[]' as messages, not a list of messages"),
        ({"role": "user"}, "has {'role': 'user'} as messages, not a list of messages"),
        (["hi"], "message 1 is 'hi', not an object"),
        ([None], "message 1 is None, not an object"),
        (
            [message("user", "a"), {"content": "b"}],
            "message 2 has no 'role'; its keys are 'content'",
        ),
        ([{}], "message 1 has no 'role'; its keys are none"),
        (
            [message("asistant", "a")],
            "message 1 has the role 'asistant' (did you mean 'assistant'?)",
        ),
        ([message(None, "a")], "message 1 has the role None"),
        ([message(["user"], "a")], "message 1 has the role ['user']"),
        (
            [{"role": "user", "text": "a"}],
            "message 1 (user) has no content; its keys are role and text",
        ),
        (
            [message("user", [{"type": "image_url", "image_url": {}}])],
            "message 1 (user), part 1, is of type 'image_url'; only text",
        ),
        ([message("user", ["a"])], "message 1 (user), part 1, is 'a', not an object"),
        (
            [message("assistant", "a", tool_calls={"name": "f"})],
            "message 1 (assistant) has {'name': 'f'} as tool_calls",
        ),
        (
            [message("assistant", "a", tool_calls=[{"function": {}}])],
            "message 1 (assistant), tool call 1, is {'function': {}}, which names no function",
        ),
        (
            [message("assistant", "a", tool_calls=["f"])],
            "message 1 (assistant), tool call 1, is 'f'",
        ),
        ([message("user", "a", tool_calls=[CALL])], "message 1 (user) has tool calls"),
        (
            [
                message(
                    "assistant",
                    "a",
                    tool_calls=[{"name": "f", "arguments": {"d": datetime.date(2024, 1, 1)}}],
                )
            ],
            "tool call 1, cannot be written as JSON",
        ),
    ],
)
def test_malformed_message_is_named(messages, detail):
    reason, found = fault_of({"messages": messages}, "messages")
    assert reason == UNREADABLE
    assert detail in found


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (5, "message 1 (user) is 5, not a text"),
        ({"text": "a"}, "message 1 (user) is {'text': 'a'}, not a text"),
        ([{"type": "text", "text": 5}], "message 1 (user), part 1, is 5, not a text"),
    ],
)
def test_content_that_is_no_text_is_named(content, detail):
    assert fault_of({"messages": [message("user", content)]}, "messages") == (NO_TEXT, detail)


def test_long_value_is_cut_in_the_message():
    _, detail = fault_of({"messages": "x" * 10_000}, "messages")
    assert len(detail) < 120


# --- ShareGPT ------------------------------------------------------------------------------------


def test_sharegpt_roles_are_known():
    senders = ["system", "human", "gpt", "user", "chatgpt", "tool", "bard", "observation"]
    senders += ["function_call", "function_response", "assistant"]
    conversations = [{"from": sender, "value": sender} for sender in senders]
    assert turns_of({"conversations": conversations}, "sharegpt") == [
        ("system", "system"),
        ("user", "human"),
        ("assistant", "gpt"),
        ("user", "user"),
        ("assistant", "chatgpt"),
        ("tool", "tool"),
        ("assistant", "bard"),
        ("tool", "observation"),
        ("assistant", "function_call"),
        ("tool", "function_response"),
        ("assistant", "assistant"),
    ]


def test_sharegpt_null_value_is_no_text():
    """Megatron-Bridge#5742: a null value became the word None."""
    conversations = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": None}]
    found = turns_of({"conversations": conversations}, "sharegpt")
    assert found[0] == ("user", "hi")
    assert not found[1][1]


@pytest.mark.parametrize(
    ("conversations", "detail"),
    [
        (None, "has no conversations"),
        (
            [{"from": "human", "value": "a"}, {"from": "gtp", "value": "b"}],
            "message 2 has the role 'gtp' (did you mean 'gpt'?); known are system",
        ),
        (
            [{"role": "user", "content": "a"}],
            "message 1 has no 'from'; its keys are 'role' and 'content'",
        ),
        ([{"from": "human"}], "message 1 (human) has no value; its keys are from"),
        ([{"from": "human", "value": 5}], "message 1 (human) is 5, not a text"),
    ],
)
def test_malformed_sharegpt_message_is_named(conversations, detail):
    assert detail in fault_of({"conversations": conversations}, "sharegpt")[1]


def test_real_chats_are_conversations(data_dir):
    rows = json.loads((data_dir / "chat" / "identity_sharegpt.json").read_text())
    for row in rows:
        turns = turns_of(row, "sharegpt")
        assert [role for role, _ in turns] == ["user", "assistant"] * (len(turns) // 2)
        assert [text for _, text in turns] == [m["value"] for m in row["conversations"]]
