"""What the builders of data sets share: check the arguments, find the rows in the cache or read."""

import custom_components.compat  # noqa: F401

from typing import Any

from custom_components.datasets.mixture import Reading
from custom_components.datasets.sft import MessageTokenizer, Truncation, UnusableRows
from custom_components.datasets.sources import (
    find_source_problems,
    fingerprint_source,
    read_conversations,
)
from custom_components.datasets.supervised import SupervisedDataset, build_supervised_dataset
from custom_components.errors import UserError

BUILDERS: dict[str, dict[str, Any]] = {
    "custom_components.datasets.grammar.grammar_dataset": {
        "corpus": "grammar", "layout": "prompt_response",
    },
    "custom_components.datasets.instruct.instruct_dataset": {
        "corpus": "instruct", "layout": "messages",
    },
    "custom_components.datasets.summarize.summarize_dataset": {
        "corpus": "summarize", "layout": "prompt_response",
    },
}  # fmt: skip
"""What each builder fixes or takes for granted of ``find_source_problems``, for checks before a
run."""


def build_dataset(
    tokenizer: MessageTokenizer,
    reading: Reading,
    *,
    prompt: str | None = None,
    system_prompt: str | None,
    max_seq_len: int,
    truncation: Truncation,
    unusable_rows: UnusableRows,
) -> SupervisedDataset:
    """Return the data set of a builder.

    Args:
        tokenizer: A torchtune model tokenizer without ``max_seq_len``.
        reading: Which rows.
        prompt: See ``layouts.to_conversation``.
        system_prompt: See ``layouts.to_conversation``.
        max_seq_len: Most tokens of a sample, and the length of a pack.
        truncation: See ``sft.Truncation``.
        unusable_rows: See ``sft.UnusableRows``.

    Raises:
        UserError: If an argument, the source or a row is refused; each is named.
    """
    problems = find_source_problems(**vars(reading), prompt=prompt, max_seq_len=max_seq_len)
    if problems:
        raise UserError(*problems)
    rendering = {"prompt": prompt, "system_prompt": system_prompt}
    return build_supervised_dataset(
        tokenizer,
        read=lambda: read_conversations(reading, **rendering),
        identify=lambda: {
            "source": reading.source,
            "contents": fingerprint_source(reading),
            **rendering,
        },
        max_seq_len=max_seq_len,
        truncation=truncation,
        unusable_rows=unusable_rows,
    )
