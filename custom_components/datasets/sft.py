"""Conversations to tokens and labels: what every supervised data set of the pack is made of.

Everything is tokenised at construction, so that whatever is wrong with a row is known, with its
file and row number, before training starts. The loss falls on the last assistant message alone.

A row that leaves nothing to train on (an empty answer, or an answer that truncation cut off) is
never kept as a sample without labels: ``unusable_rows`` says whether it is dropped and counted or
refused.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch.utils.data import Dataset
from torchtune.data import Message

from custom_components.datasets.collate import IGNORE_INDEX, Sample
from custom_components.datasets.files import describe_rows
from custom_components.errors import UserError

Truncation = Literal["drop", "error", "left", "right"]
"""What happens to a row of more than ``max_seq_len`` tokens. ``drop``: left out and counted;
``error``: refused; ``left``: its first tokens are cut; ``right``: its last ones are, without an end
token in their place."""
UnusableRows = Literal["drop", "error"]
"""What happens to a row with nothing to train on. ``drop``: left out and counted; ``error``:
refused."""

NO_TEXT = "no text"
NO_LABELS = "nothing to train on"
TOO_LONG = "too long"


class MessageTokenizer(Protocol):
    """What this module needs of a torchtune model tokenizer."""

    max_seq_len: int | None

    def tokenize_messages(
        self, messages: list[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        """Return ids, and for each whether it is not trained on."""


@dataclass(frozen=True)
class Conversation:
    """One row before tokenisation.

    Args:
        id: ``<file>:<row>``.
        turns: ``{"role": ..., "content": ...}`` in order, as read; the last is the assistant's.
        input: The text that evaluation shows beside the reference.
    """

    id: str
    turns: Sequence[Mapping[str, Any]]
    input: str = ""


@dataclass(frozen=True)
class Unusable:
    """A row that cannot be trained on.

    Args:
        id: ``<file>:<row>``.
        reason: What it is counted under.
        detail: What is wrong with it, as the end of a sentence that begins with the id.
    """

    id: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Example:
    """What evaluation needs of a row.

    Args:
        id: ``<file>:<row>``.
        messages: The prompt, without the answer.
        input: The text to correct.
        reference: The wanted answer.
    """

    id: str
    messages: list[Message]
    input: str
    reference: str


@dataclass
class DatasetReport:
    """What became of the rows.

    Args:
        rows: Rows read.
        dropped: Ids of the rows left out, by reason.
        truncated: Rows that were cut and kept.
        tokens: Tokens kept, after the cut behind the last supervised one.
        supervised_tokens: Tokens trained on.
    """

    rows: int = 0
    dropped: dict[str, list[str]] = field(default_factory=dict)
    truncated: int = 0
    tokens: int = 0
    supervised_tokens: int = 0

    def describe(self) -> str:
        """Return one line for the terminal: how many rows, and which were dropped or cut."""
        parts = [f"{self.rows} rows read"]
        for reason, ids in self.dropped.items():
            shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
            parts.append(f"{len(ids)} dropped, {reason} ({shown})")
        if self.truncated:
            parts.append(f"{self.truncated} cut to dataset.max_seq_len")
        return "; ".join(parts)


class SupervisedDataset(Dataset[Sample]):
    """Tokenised conversations, map style.

    Args:
        rows: Conversations, and rows already known to be unusable, in the source's order.
        tokenizer: Its ``max_seq_len`` must be None: truncation belongs to the data set.
        max_seq_len: Most tokens of a sample.
        truncation: See ``Truncation``.
        unusable_rows: See ``UnusableRows``.

    Attributes:
        examples: The kept rows for evaluation, in the same order.
        report: What became of the rows.

    Raises:
        UserError: If rows are refused, no row is left, or the tokenizer truncates.
    """

    def __init__(
        self,
        rows: Iterable[Conversation | Unusable],
        tokenizer: MessageTokenizer,
        *,
        max_seq_len: int,
        truncation: Truncation = "drop",
        unusable_rows: UnusableRows = "error",
    ) -> None:
        if tokenizer.max_seq_len is not None:
            raise UserError(
                f"tokenizer.max_seq_len: {tokenizer.max_seq_len}, but rows are truncated by the "
                "data set: leave it out and set dataset.max_seq_len"
            )
        self.report = DatasetReport()
        self.examples: list[Example] = []
        self._samples: list[Sample] = []
        refused: list[Unusable] = []
        for row in rows:
            self.report.rows += 1
            unusable = self._add(row, tokenizer, max_seq_len=max_seq_len, truncation=truncation)
            if unusable is None:
                continue
            policy = truncation if unusable.reason == TOO_LONG else unusable_rows
            if policy == "error":
                refused.append(unusable)
            else:
                self.report.dropped.setdefault(unusable.reason, []).append(unusable.id)
        if refused:
            raise UserError(*_describe_refused(refused))
        if not self._samples:
            raise UserError(f"dataset: no row is left to train on: {self.report.describe()}")

    def _add(
        self,
        row: Conversation | Unusable,
        tokenizer: MessageTokenizer,
        *,
        max_seq_len: int,
        truncation: Truncation,
    ) -> Unusable | None:
        """Keep a row, or return why not."""
        if isinstance(row, Unusable):
            return row
        messages = read_messages(row)
        if isinstance(messages, Unusable):
            return messages
        tokens, labels = _cut_tail(*tokenize_conversation(messages, tokenizer, row_id=row.id))
        length = len(tokens)
        if length > max_seq_len and truncation in ("drop", "error"):
            detail = f"has {length} tokens, dataset.max_seq_len is {max_seq_len}"
            return Unusable(row.id, TOO_LONG, detail)
        cut = slice(-max_seq_len, None) if truncation == "left" else slice(max_seq_len)
        tokens, labels = _cut_tail(tokens[cut], labels[cut])
        if not tokens:
            detail = f"of {length} tokens has none to train on in the {max_seq_len} that are kept"
            return Unusable(row.id, NO_LABELS, detail)
        self.report.truncated += length > max_seq_len
        self.report.tokens += len(tokens)
        self.report.supervised_tokens += sum(label != IGNORE_INDEX for label in labels)
        self._samples.append(Sample(tokens=tokens, labels=labels, id=row.id))
        reference = messages[-1].text_content
        self.examples.append(Example(row.id, messages[:-1], row.input, reference))
        return None

    def largest_ids(self) -> list[int]:
        """Return the largest token id of every sample."""
        return [max(sample["tokens"]) for sample in self._samples]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        return self._samples[index]


def check_lengths(dataset: SupervisedDataset, max_seq_len: int) -> None:
    """Refuse samples that the model cannot take, before its weights are loaded.

    Args:
        dataset: Tokenised rows.
        max_seq_len: The model's context.

    Raises:
        UserError: Naming the longest row.
    """
    longest = max((dataset[i] for i in range(len(dataset))), key=lambda s: len(s["tokens"]))
    if len(longest["tokens"]) > max_seq_len:
        raise UserError(
            f"{longest['id']} has {len(longest['tokens'])} tokens and the model takes "
            f"{max_seq_len}: set dataset.max_seq_len to {max_seq_len} or less"
        )


def read_messages(row: Conversation) -> list[Message] | Unusable:
    """Return a row's messages, only the last one unmasked.

    ``content: null`` is an empty text, never another message's and never the word None; in the last
    message it leaves nothing to train on.

    Args:
        row: The conversation, its content as read.
    """
    messages = []
    for number, turn in enumerate(row.turns, start=1):
        content = turn.get("content")
        if content is None:
            content = ""
        if not isinstance(content, str):
            detail = f"message {number} is {type(content).__name__} {content!r}, not a text"
            return Unusable(row.id, NO_TEXT, detail)
        messages.append(Message(turn["role"], content, masked=True))
    if not messages or messages[-1].role != "assistant":
        return Unusable(row.id, NO_LABELS, "does not end with an assistant message")
    if not messages[-1].text_content.strip():
        return Unusable(row.id, NO_LABELS, f"message {len(messages)} (assistant) is empty")
    messages[-1].masked = False
    return messages


def tokenize_conversation(
    messages: list[Message], tokenizer: MessageTokenizer, *, row_id: str
) -> tuple[list[int], list[int]]:
    """Return tokens and unshifted labels of a conversation.

    Trained on is what follows the generation prompt: torchtune's Llama-3 tokenizer would also train
    on the header of the answer, which is given at generation.

    Args:
        messages: The last is the answer.
        tokenizer: Any torchtune model tokenizer.
        row_id: For the message.

    Raises:
        UserError: If the tokenizer's generation prompt is not how its training ids begin.
    """
    tokens, mask = tokenizer.tokenize_messages(messages)
    opening = [*messages[:-1], Message("assistant", "")]
    prompt, _ = tokenizer.tokenize_messages(opening, add_end_tokens=False)
    if tokens[: len(prompt)] != prompt:
        raise UserError(
            f"tokenizer: {type(tokenizer).__name__} writes the prompt of {row_id} differently for "
            "training and for generation, so the answer cannot be told from it; choose another"
        )
    labels = [
        IGNORE_INDEX if masked or position < len(prompt) else token
        for position, (token, masked) in enumerate(zip(tokens, mask, strict=True))
    ]
    return tokens, labels


def _cut_tail(tokens: list[int], labels: list[int]) -> tuple[list[int], list[int]]:
    """Cut behind the last supervised token; nothing is left where there is none to predict."""
    supervised = [i for i, label in enumerate(labels) if i > 0 and label != IGNORE_INDEX]
    end = supervised[-1] + 1 if supervised else 0
    return tokens[:end], labels[:end]


def _describe_refused(refused: list[Unusable]) -> list[str]:
    """Return one problem for the rows that are too long, one for the other bad rows."""
    too_long = [f"{row.id} {row.detail}" for row in refused if row.reason == TOO_LONG]
    others = [f"{row.id} {row.detail}" for row in refused if row.reason != TOO_LONG]
    problems = []
    if too_long:
        advice = "raise dataset.max_seq_len, or set dataset.truncation to drop, left or right"
        problems.append(describe_rows(too_long, advice=advice))
    if others:
        advice = "mend them, or set dataset.unusable_rows=drop"
        problems.append(describe_rows(others, advice=advice))
    return problems
