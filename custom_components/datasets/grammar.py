"""Sentence correction as a supervised data set: from a file, the hub or the embedded corpus.

In a config::

    dataset:
      _component_: custom_components.datasets.grammar.grammar_dataset
      source: embedded  # or my_pairs.jsonl, or org/name on the hub

Every row becomes a user message, the prompt with the sentence in it, and an assistant message, the
correction; the loss falls on the correction alone.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Mapping

from custom_components.datasets.files import Row
from custom_components.datasets.sft import (
    NO_TEXT,
    Conversation,
    MessageTokenizer,
    SupervisedDataset,
    Truncation,
    Unusable,
    UnusableRows,
)
from custom_components.datasets.sources import (
    INPUT,
    INPUT_PLACE,
    OUTPUT,
    find_argument_problems,
    load_rows,
)
from custom_components.errors import UserError

DEFAULT_PROMPT = f"Correct the grammar and spelling of this sentence: {INPUT_PLACE}"


def grammar_dataset(
    tokenizer: MessageTokenizer,
    *,
    source: str,
    split: str = "train",
    column_map: dict[str, str] | None = None,
    prompt: str = DEFAULT_PROMPT,
    max_rows: int | None = None,
    max_seq_len: int = 512,
    truncation: Truncation = "drop",
    unusable_rows: UnusableRows = "error",
) -> SupervisedDataset:
    """Return pairs of a sentence and its correction, tokenised.

    Args:
        tokenizer: A torchtune model tokenizer without ``max_seq_len``.
        source: ``embedded``, a path to a .json, .jsonl or .csv file, or a hub id ``org/name``
            (``org/name@revision`` for another revision than the default).
        split: ``train`` or ``heldout`` of the embedded corpus, or a split on the hub.
        column_map: ``{"input": ..., "output": ...}``: the source's names of these columns.
        prompt: The user's message; ``{input}`` is where the sentence goes.
        max_rows: Use only the first rows; on the hub nothing more is downloaded.
        max_seq_len: Most tokens of prompt and correction together.
        truncation: What happens to a longer row, see ``sft.Truncation``.
        unusable_rows: What happens to a row without input, without output or with nothing to train
            on, see ``sft.UnusableRows``.

    Raises:
        UserError: If an argument, the source or a row is refused; each is named.
    """
    problems = find_argument_problems(max_rows=max_rows, prompt=prompt, max_seq_len=max_seq_len)
    if problems:
        raise UserError(*problems)
    rows = load_rows(source, split=split, column_map=column_map, max_rows=max_rows)
    return SupervisedDataset(
        [_to_conversation(row, prompt) for row in rows],
        tokenizer,
        max_seq_len=max_seq_len,
        truncation=truncation,
        unusable_rows=unusable_rows,
    )


def _to_conversation(row: Row, prompt: str) -> Conversation | Unusable:
    for column in (INPUT, OUTPUT):
        problem = _describe_bad_text(row.values, column)
        if problem is not None:
            return Unusable(row.id, NO_TEXT, problem)
    sentence, correction = row.values[INPUT], row.values[OUTPUT]
    turns = [
        {"role": "user", "content": prompt.replace(INPUT_PLACE, sentence)},
        {"role": "assistant", "content": correction},
    ]
    return Conversation(row.id, turns, input=sentence)


def _describe_bad_text(values: Mapping[str, object], column: str) -> str | None:
    """Return why a column's value is no text to use, or None if it is one."""
    value = values[column]
    if value is None:
        return f"has no {column}"
    if not isinstance(value, str):
        return f"has {value!r} as {column}, not a text"
    return None if value.strip() else f"has a blank {column}"
