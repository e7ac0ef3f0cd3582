"""What a row is before it is tokenised: turns of a conversation, or the reason it has none.

``read_messages`` decides what of a conversation can be trained on. Every assistant message that
says something is; an empty one keeps its place and is not; what follows the last one is left off.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torchtune.data import Message, Role

from custom_components.datasets.rows import NO_LABELS, NO_TEXT, Conversation, Unusable


@dataclass(frozen=True)
class Example:
    """What evaluation needs of a row.

    Args:
        id: ``<file>:<row>``.
        messages: The prompt: all that comes before the last answer.
        input: The text that the answer is about.
        references: The wanted answer first, then others that are as good.
    """

    id: str
    messages: list[Message]
    input: str
    references: list[str]


@dataclass(frozen=True)
class ReadMessages:
    """The messages of a row.

    Args:
        messages: Those to train on are unmasked; the last is one of them.
        num_trimmed: Turns left off behind the last answer.
    """

    messages: list[Message]
    num_trimmed: int


def read_messages(row: Conversation) -> ReadMessages | Unusable:
    """Return a row's messages, every assistant message that says something unmasked.

    An answer of ``weight`` 0 is not trained on (OpenAI's fine-tuning format).

    ``content: null`` is an empty text, never another message's and never the word None
    (torchtune's transforms take the previous message's text).

    Args:
        row: The conversation.
    """
    messages = []
    for number, turn in enumerate(row.turns, start=1):
        role, content = turn["role"], turn.get("content")
        if content is None:
            content = ""
        if not isinstance(content, str):
            detail = f"message {number} is {type(content).__name__} {content!r:.60}, not a text"
            return Unusable(row.id, NO_TEXT, detail)
        is_answer = role == "assistant" and bool(content.strip()) and turn.get("weight", 1) != 0
        messages.append(Message(cast(Role, role), content, masked=not is_answer))
    answers = [number for number, message in enumerate(messages, start=1) if not message.masked]
    if not answers:
        return Unusable(row.id, NO_LABELS, _why_no_answer(messages))
    return ReadMessages(messages[: answers[-1]], len(messages) - answers[-1])


def _why_no_answer(messages: Sequence[Message]) -> str:
    answers = [n for n, message in enumerate(messages, start=1) if message.role == "assistant"]
    if not messages:
        return "holds no messages"
    if not answers:
        return "has no assistant message"
    if messages[answers[-1] - 1].text_content.strip():
        return f"message {answers[-1]} (assistant) has weight 0"
    return f"message {answers[-1]} (assistant) is empty"
