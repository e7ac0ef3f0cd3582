"""Layouts: how the columns of a row say what its messages are.

``prompt_response``: a text and the answer to it. ``alpaca``: an instruction, sometimes a text it is
about, and the answer. ``messages``: OpenAI's list of messages, tool calls and their results
included. ``sharegpt``: a list of ``{"from": ..., "value": ...}``.

An assistant's tool calls become a part of its text, as Hermes models write them::

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call>
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from custom_components.datasets.columns import Layout, join_names, name_columns, suggest
from custom_components.datasets.rows import NO_TEXT, UNREADABLE, Conversation, Row, Unusable

INPUT_PLACE = "{input}"
"""Where the input goes in the prompt of a ``prompt_response`` row."""

_OPENAI_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}

Turn = Mapping[str, Any]


class _BadRow(Exception):
    """Why a row is unusable; never leaves this module."""

    def __init__(self, detail: str, reason: str = UNREADABLE) -> None:
        super().__init__(detail)
        self.reason = reason


def to_conversation(
    row: Row,
    *,
    layout: Layout,
    column_map: Mapping[str, str] | None = None,
    prompt: str | None = None,
    system_prompt: str | None = None,
) -> Conversation | Unusable:
    """Return a row's turns, or why it has none.

    Args:
        row: As read.
        layout: How its columns are understood.
        column_map: Our column to the source's column, where they differ.
        prompt: For ``prompt_response``: the user's message; ``{input}`` is where the input goes,
            and is all of it by default.
        system_prompt: Put before a conversation that has no system message of its own, as its
            first message or in the column ``system``.
    """
    values = {
        ours: row.values.get(theirs) for ours, theirs in name_columns(layout, column_map).items()
    }
    try:
        turns, text, references = _READERS[layout](values, prompt or INPUT_PLACE)
        system = _read_optional_text(values.get("system"), "system")
    except _BadRow as bad:
        return Unusable(row.id, bad.reason, str(bad))
    system = system if system.strip() else system_prompt or ""
    if system and turns and turns[0]["role"] != "system":
        turns = [{"role": "system", "content": system}, *turns]
    return Conversation(row.id, turns, input=text, references=references)


# --- Texts ---------------------------------------------------------------------------------------


def _read_text(value: Any, column: str) -> str:
    """Return a text that is not blank."""
    if value is None:
        raise _BadRow(f"has no {column}", NO_TEXT)
    text = _read_optional_text(value, column)
    if not text.strip():
        raise _BadRow(f"has a blank {column}", NO_TEXT)
    return text


def _read_optional_text(value: Any, column: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _BadRow(f"has {value!r:.60} as {column}, not a text", NO_TEXT)
    return value


def _read_answers(value: Any) -> list[str]:
    """Return the texts of ``output`` that are not blank: one, or several that are as good."""
    if not isinstance(value, list):
        return [_read_text(value, "output")]
    answers = [_read_optional_text(item, "output") for item in value]
    answers = [answer for answer in answers if answer.strip()]
    if not answers:
        raise _BadRow("has no output" if not value else "has a blank output", NO_TEXT)
    return answers


# --- The layouts: turns, the text that evaluation shows, accepted answers ------------------------

_Read = tuple[list[Turn], str, Sequence[str]]


def _read_prompt_response(values: Mapping[str, Any], prompt: str) -> _Read:
    text = _read_text(values["input"], "input")
    answers = _read_answers(values["output"])
    user = prompt.replace(INPUT_PLACE, text)
    return _build_pair(user, answers[0]), text, answers


def _build_pair(user: str, answer: str) -> list[Turn]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]


def _read_alpaca(values: Mapping[str, Any], prompt: str) -> _Read:
    instruction = _read_text(values["instruction"], "instruction")
    text = _read_optional_text(values["input"], "input")
    answers = _read_answers(values["output"])
    user = f"{instruction}\n\n{text}" if text.strip() else instruction
    return _build_pair(user, answers[0]), "", answers


def _read_openai(values: Mapping[str, Any], prompt: str) -> _Read:
    turns: list[Turn] = []
    for place, message in _read_list(values["messages"], "messages"):
        role = _read_role(message, "role", _OPENAI_ROLES, place)
        place = f"{place} ({message['role']})"
        calls = _read_tool_calls(message, place)
        if calls and role != "assistant":
            raise _BadRow(f"{place} has tool calls; only an assistant's message can")
        if "content" not in message and not calls:
            raise _BadRow(f"{place} has no content; its keys are {join_names(map(str, message))}")
        content = _read_content(message.get("content"), place)
        turn: Turn = {"role": role, "content": "\n".join(filter(None, [content, *calls]))}
        turns.append({**turn, "weight": _read_weight(message, place)})
    return turns, "", ()


def _read_sharegpt(values: Mapping[str, Any], prompt: str) -> _Read:
    turns: list[Turn] = []
    for place, message in _read_list(values["conversations"], "conversations"):
        role = _read_role(message, "from", _SHAREGPT_ROLES, place)
        place = f"{place} ({message['from']})"
        if "value" not in message:
            raise _BadRow(f"{place} has no value; its keys are {join_names(map(str, message))}")
        turns.append({"role": role, "content": _read_content(message["value"], place)})
    return turns, "", ()


_READERS: dict[Layout, Callable[[Mapping[str, Any], str], _Read]] = {
    "prompt_response": _read_prompt_response,
    "alpaca": _read_alpaca,
    "messages": _read_openai,
    "sharegpt": _read_sharegpt,
}


# --- Messages ------------------------------------------------------------------------------------


def _read_list(value: Any, column: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return ``message 1`` and so on, and the message."""
    if value is None:
        raise _BadRow(f"has no {column}", NO_TEXT)
    if not isinstance(value, list):
        raise _BadRow(f"has {value!r:.60} as {column}, not a list of messages")
    messages = [(f"message {number}", message) for number, message in enumerate(value, start=1)]
    for place, message in messages:
        if not isinstance(message, dict):
            raise _BadRow(f"{place} is {message!r:.60}, not an object")
    return messages


def _read_role(message: Mapping[str, Any], name: str, roles: Mapping[str, str], place: str) -> str:
    if name not in message:
        raise _BadRow(f"{place} has no {name!r}; its keys are {join_names(map(repr, message))}")
    role = message[name]
    if not isinstance(role, str) or role not in roles:
        near = suggest(role, roles) if isinstance(role, str) else ""
        raise _BadRow(f"{place} has the role {role!r:.60}{near}; known are {join_names(roles)}")
    return roles[role]


def _read_weight(message: Mapping[str, Any], place: str) -> int:
    """Return OpenAI's ``weight``: 0 for an answer that is not trained on, else 1."""
    weight = message.get("weight")
    if weight is None:
        return 1
    if isinstance(weight, bool) or weight not in (0, 1):
        raise _BadRow(f"{place} has {weight!r:.60} as weight; it is 0 or 1")
    return int(weight)


def _read_content(value: Any, place: str) -> str | None:
    """Return a message's text; the texts of a list of parts follow each other."""
    if isinstance(value, list):
        return "".join(_read_part(part, f"{place}, part {i}") for i, part in enumerate(value, 1))
    if value is not None and not isinstance(value, str):
        raise _BadRow(f"{place} is {value!r:.60}, not a text", NO_TEXT)
    return value


def _read_part(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise _BadRow(f"{place}, is {part!r:.60}, not an object with a type")
    if part.get("type") != "text":
        raise _BadRow(f"{place}, is of type {part.get('type')!r:.60}; only text can be trained on")
    text = part.get("text")
    if text is not None and not isinstance(text, str):
        raise _BadRow(f"{place}, is {text!r:.60}, not a text", NO_TEXT)
    return text or ""


def _read_tool_calls(message: Mapping[str, Any], place: str) -> list[str]:
    """Return a message's tool calls as text, the older ``function_call`` too."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise _BadRow(f"{place} has {calls!r:.60} as tool_calls, not a list")
    single = message.get("function_call")
    calls = [*calls, *([single] if single else [])]
    return [_render_tool_call(call, f"{place}, tool call {i}") for i, call in enumerate(calls, 1)]


def _render_tool_call(call: Any, place: str) -> str:
    function = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _BadRow(f"{place}, is {call!r:.60}, which names no function")
    written = {"name": function["name"], "arguments": _parse_arguments(function.get("arguments"))}
    try:
        body = json.dumps(written, ensure_ascii=False)
    except (TypeError, ValueError) as error:  # a date of a Parquet file, for example
        raise _BadRow(f"{place}, cannot be written as JSON: {error}") from error
    return f"<tool_call>\n{body}\n</tool_call>"


def _parse_arguments(arguments: Any) -> Any:
    """Return a function's arguments; a text that is no JSON stays the text that it is."""
    if arguments is None or arguments == "":
        return {}
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
