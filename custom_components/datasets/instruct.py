"""Instructions and chats as a supervised data set: one turn or many, tool calls included.

In a config::

    dataset:
      _component_: custom_components.datasets.instruct.instruct_dataset
      source: my_chats.jsonl  # or embedded, or org/name on the hub
      layout: messages  # or sharegpt, alpaca, prompt_response

The loss falls on every assistant turn.
"""

import custom_components.compat  # noqa: F401

from custom_components.datasets.builders import build_dataset
from custom_components.datasets.columns import Layout
from custom_components.datasets.mixture import Reading, Source
from custom_components.datasets.sft import MessageTokenizer, Truncation, UnusableRows
from custom_components.datasets.supervised import SupervisedDataset

CORPUS = "instruct"


def instruct_dataset(
    tokenizer: MessageTokenizer,
    *,
    source: Source,
    split: str = "train",
    layout: Layout = "messages",
    column_map: dict[str, str] | None = None,
    system_prompt: str | None = None,
    max_rows: int | None = None,
    max_seq_len: int = 2048,
    truncation: Truncation = "error",
    unusable_rows: UnusableRows = "error",
) -> SupervisedDataset:
    """Return conversations, tokenised.

    Args:
        tokenizer: A torchtune model tokenizer without ``max_seq_len``.
        source: ``embedded``; a .json, .jsonl, .csv or .parquet file or a folder of them; a hub id
            ``org/name[@revision]``; or a list of these with weights (see ``mixture.py``).
        split: ``train`` or ``heldout`` of the embedded corpus, a split on the hub or of a folder.
        layout: How a row is written, see ``layouts.py``.
        column_map: The layout's column to the source's column, where they differ.
        system_prompt: A system message for conversations that have none.
        max_rows: Use only the first rows; on the hub nothing more is downloaded.
        max_seq_len: Most tokens of a conversation, and the length of a pack.
        truncation: What happens to a longer row, see ``sft.Truncation``.
        unusable_rows: What happens to a row that cannot be read or has no answer to train on, see
            ``sft.UnusableRows``.

    Raises:
        UserError: If an argument, the source or a row is refused; each is named.
    """
    return build_dataset(
        tokenizer,
        Reading(
            source=source,
            split=split,
            layout=layout,
            column_map=column_map,
            max_rows=max_rows,
            corpus=CORPUS,
        ),
        system_prompt=system_prompt,
        max_seq_len=max_seq_len,
        truncation=truncation,
        unusable_rows=unusable_rows,
    )
