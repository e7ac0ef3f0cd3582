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

    Args:
        tokenizer: A torchtune model tokenizer without ``max_seq_len``.
        source: ``embedded``; a .json, .jsonl, .csv or .parquet file or a folder of them; a hub id
            ``org/name[@revision]``; or a list of these with weights (see ``mixture.py``).
        split: ``train`` or ``heldout`` of the embedded corpus, a split on the hub or of a folder.
        column_map: ``{"input": ..., "output": ...}``: the source's names of these columns. An
            output may be a list of summaries: the first is trained on, evaluation accepts all.
        prompt: The user's message; ``{input}`` is where the document goes.
        system_prompt: A system message before it.
        max_rows: Use only the first rows; on the hub nothing more is downloaded.
        max_seq_len: Most tokens of prompt and summary together, and the length of a pack.
        truncation: What happens to a longer row, see ``sft.Truncation``.
        unusable_rows: What happens to a row that cannot be read, without input, without output or
            with nothing to train on, see ``sft.UnusableRows``.

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
