"""What is read from a source: a row, the conversation in it, or why it cannot be used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNREADABLE = "unreadable"
NO_TEXT = "no text"
NO_LABELS = "nothing to train on"
TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source.

    Args:
        id: ``<file>:<row>``.
        values: Column name to value, as read.
    """

    id: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row before tokenisation.

    Args:
        id: ``<file>:<row>``.
        turns: ``{"role": ..., "content": ...}`` in order; the role is ``system``, ``user``,
            ``assistant`` or ``tool``, the content a text or None.
        input: The text that evaluation shows beside the answer; the last user message if empty.
        references: Answers that evaluation accepts; the last assistant message if empty.
    """

    id: str
    turns: Sequence[Mapping[str, Any]]
    input: str = ""
    references: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    """A row that cannot be trained on.

    Args:
        id: ``<file>:<row>``.
        reason: What it is counted under: one of the constants above.
        detail: What is wrong with it, as the end of a sentence that begins with the id.
    """

    id: str
    reason: str
    detail: str


def drop_null_arguments(value: Any, *, is_inside: bool = False) -> Any:
    """Return an Arrow row without the null fields inside values of the key ``arguments``.

    Arrow gives every struct of a column the fields of all of them, so a tool call gains the
    arguments of all other tools, as null. A null that was written is dropped with them.

    Args:
        value: The row, or a value in it.
        is_inside: Whether it is inside such a value.
    """
    if isinstance(value, dict):
        return {
            name: drop_null_arguments(item, is_inside=is_inside or name == "arguments")
            for name, item in value.items()
            if item is not None or not is_inside
        }
    if isinstance(value, list):
        return [drop_null_arguments(item, is_inside=is_inside) for item in value]
    return value
