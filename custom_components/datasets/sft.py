"""Conversations to tokens and labels: what every supervised data set of the pack is made of.

The loss falls on the text of every assistant message and on the token that ends it, never on the
header before it, which is given at generation. A row that leaves nothing to train on (no answer, an
empty one, or one that truncation cut off) never becomes a sample without labels: it is reported by
file and row number, and dropped or refused.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torchtune.data import Message

from custom_components.datasets.conversations import Example, read_messages
from custom_components.datasets.rows import NO_LABELS, NO_TEXT, TOO_LONG, Conversation, Unusable
from custom_components.errors import UserError

Truncation = Literal["drop", "error", "left", "right"]
"""What happens to a row of more than ``max_seq_len`` tokens. ``drop``: left out and counted;
``error``: refused; ``left``: its first tokens are cut; ``right``: its last ones are, without an end
token in their place."""
UnusableRows = Literal["drop", "error"]
"""What happens to a row that cannot be read or has nothing to train on. ``drop``: left out and
counted; ``error``: refused."""


class MessageTokenizer(Protocol):
    """What tokenising needs of a torchtune model tokenizer."""

    max_seq_len: int | None
    pad_id: int

    def tokenize_messages(
        self, messages: list[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        """Return ids, and for each whether it is not trained on."""


@dataclass(frozen=True)
class TokenizedRow:
    """A row that is kept.

    Args:
        tokens: Ids up to the last supervised one.
        supervised: For each id whether it is trained on.
        was_truncated: Whether it was cut to ``max_seq_len``.
        num_trimmed: Turns left off behind the last answer.
        example: What evaluation needs of it.
    """

    tokens: list[int]
    supervised: list[bool]
    was_truncated: bool
    num_trimmed: int
    example: Example


def tokenize_row(
    row: Conversation, tokenizer: MessageTokenizer, *, max_seq_len: int, truncation: Truncation
) -> TokenizedRow | Unusable:
    """Return a row's tokens, or why it cannot be trained on.

    Args:
        row: The conversation.
        tokenizer: One that passed ``check_tokenizer``.
        max_seq_len: Most tokens of a sample.
        truncation: See ``Truncation``.
    """
    read = read_messages(row)
    if isinstance(read, Unusable):
        return read
    messages = read.messages
    try:
        tokens, mask = tokenizer.tokenize_messages(messages)
    except Exception as error:  # a template may refuse a role, a tokenizer half a character
        return Unusable(row.id, NO_TEXT, f"cannot be tokenised: {type(error).__name__}: {error}")
    tokens, supervised = _cut_tail(tokens, [not masked for masked in mask])
    length = len(tokens)
    if length > max_seq_len and truncation in ("drop", "error"):
        detail = f"has {length} tokens, max_seq_len is {max_seq_len}"
        return Unusable(row.id, TOO_LONG, detail)
    if length > max_seq_len:
        cut = slice(-max_seq_len, None) if truncation == "left" else slice(max_seq_len)
        tokens, supervised = _cut_tail(tokens[cut], supervised[cut])
    if not tokens:
        detail = f"of {length} tokens has none to train on in the {max_seq_len} that are kept"
        return Unusable(row.id, NO_LABELS, detail)
    return TokenizedRow(
        tokens, supervised, length > max_seq_len, read.num_trimmed, _build_example(row, messages)
    )


def _build_example(row: Conversation, messages: list[Message]) -> Example:
    prompt, answer = messages[:-1], messages[-1].text_content
    asked = [message.text_content for message in prompt if message.role == "user"]
    return Example(
        row.id,
        prompt,
        row.input or (asked[-1] if asked else ""),
        list(row.references) or [answer],
    )


def _cut_tail(tokens: list[int], supervised: list[bool]) -> tuple[list[int], list[bool]]:
    """Cut behind the last supervised token; nothing is left where there is none to predict."""
    end = len(tokens)
    while end > 1 and not supervised[end - 1]:
        end -= 1
    end = end if end > 1 else 0  # nothing precedes the first token, so nothing predicts it
    return tokens[:end], supervised[:end]


# ---- The tokenizer -------------------------------------------------------------------------------
_PROBE = (("user", "Where is it?"), ("assistant", "Here."), ("user", "And now?"))


def check_tokenizer(tokenizer: MessageTokenizer) -> None:
    """Refuse a tokenizer whose samples would not be what generation sees.

    torchtune's own Llama-3 tokenizer, for one, marks the header before an answer as trained on.

    Args:
        tokenizer: Any torchtune model tokenizer.

    Raises:
        UserError: If it truncates, trains on headers, does not train on the end of an answer, or
            begins an answer otherwise than its generation prompt ends.
    """
    name = type(tokenizer).__name__
    if tokenizer.max_seq_len is not None:
        raise UserError(
            f"tokenizer.max_seq_len: {tokenizer.max_seq_len}, but rows are truncated by the data "
            "set: leave it out and set dataset.max_seq_len"
        )
    messages = [Message(role, text, masked=role == "user") for role, text in _PROBE]
    messages.append(Message("assistant", "There.", masked=False))
    tokens, mask = tokenizer.tokenize_messages(messages)
    starts = []
    for number, message in enumerate(messages):
        if message.masked:
            continue
        opening = [*messages[:number], Message("assistant", "")]
        prompt, _ = tokenizer.tokenize_messages(opening, add_end_tokens=False)
        starts.append(len(prompt))
        if tokens[: len(prompt)] != prompt:
            raise UserError(
                f"tokenizer: {name} writes a prompt differently for training and for generation, "
                "so the answer cannot be told from it; choose another"
            )
    if _find_starts(mask) != starts:
        raise UserError(
            f"tokenizer: {name} trains on other tokens than the answers (the headers before them, "
            "say); for LLaMA-3 set tokenizer._component_="
            "custom_components.models.llama3_tokenizer.llama3_tokenizer"
        )
    without_end, _ = tokenizer.tokenize_messages(messages, add_end_tokens=False)
    if all(mask[len(without_end) :]):
        raise UserError(
            f"tokenizer: {name} does not train on the token that ends an answer, so the model "
            "would not learn to stop; choose another"
        )


def _find_starts(mask: Sequence[bool]) -> list[int]:
    """Return where the runs of unmasked tokens begin."""
    return [i for i, masked in enumerate(mask) if not masked and (i == 0 or mask[i - 1])]
