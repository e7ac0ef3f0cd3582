"""Summaries as a supervised data set: from a file, the hub or the embedded corpus.

In a config::

    dataset:
      _component_: custom_components.datasets.summarize.summarize_dataset
      source: embedded  # or my_documents.jsonl, or org/name on the hub

Every row becomes a user message, the prompt with the document in it, and an assistant message, the
summary; the loss falls on the summary alone.
"""

import custom_components.compat  # noqa: F401

from custom_components.datasets.builders import build_dataset
from custom_components.datasets.layouts import INPUT_PLACE
from custom_components.datasets.mixture import Reading, Source
from custom_components.datasets.sft import MessageTokenizer, Truncation, UnusableRows
from custom_components.datasets.supervised import SupervisedDataset

CORPUS = "summarize"
DEFAULT_PROMPT = f"Summarize this text in one or two sentences:\n\n{INPUT_PLACE}"


def summarize_dataset(
    tokenizer: MessageTokenizer,
    *,
    source: Source,
    split: str = "train",
    column_map: dict[str, str] | None = None,
    prompt: str = DEFAULT_PROMPT,
    system_prompt: str | None = None,
    max_rows: int | None = None,
    max_seq_len: int = 2048,
    truncation: Truncation = "error",
    unusable_rows: UnusableRows = "error",
) -> SupervisedDataset:
    """Return documents and their summaries, tokenised.

    The arguments are those of ``grammar.grammar_dataset``: the input is the document, the output
    its summary, and documents are longer, so ``max_seq_len`` is too.

    Raises:
        UserError: If an argument, the source or a row is refused; each is named.
    """
    return build_dataset(
        tokenizer,
        Reading(
            source=source,
            split=split,
            layout="prompt_response",
            column_map=column_map,
            max_rows=max_rows,
            corpus=CORPUS,
        ),
        prompt=prompt,
        system_prompt=system_prompt,
        max_seq_len=max_seq_len,
        truncation=truncation,
        unusable_rows=unusable_rows,
    )
