"""What tokenizers share: the argument they refuse, the text of a message, fit to the model."""

import custom_components.compat  # noqa: F401

from collections.abc import Iterable

from torchtune.data import Message
from torchtune.modules import TransformerDecoder

from custom_components.errors import UserError


def refuse_max_seq_len(max_seq_len: int | None) -> list[str]:
    """Return the problem with a ``max_seq_len`` that is set: the data set decides what is cut."""
    if max_seq_len is None:
        return []
    return [
        f"tokenizer.max_seq_len: {max_seq_len} given, but the data set truncates, by its own "
        "policy: override tokenizer.max_seq_len=null and set dataset.max_seq_len"
    ]


def message_text(message: Message) -> str:
    """Return the text of a message.

    Raises:
        UserError: If it holds an image or text that is no string.
    """
    parts = []
    for item in message.content:
        if item["type"] != "text" or not isinstance(item["content"], str):
            raise UserError(
                f"a {message.role} message holds {item['type']} content of type "
                f"{type(item['content']).__name__}: these models read text only"
            )
        parts.append(item["content"])
    return "".join(parts)


def check_token_ids(ids: Iterable[int], decoder: TransformerDecoder) -> None:
    """Refuse ids that the model cannot embed.

    The ids that are used count, not the tokenizer's ``vocab_size``: torchtune's Llama-3 tokenizer
    has one more id than LLaMA-3-8B embeds, an image token that no text gives.

    Args:
        ids: Token ids of the data, padding included.
        decoder: The model, on any device.

    Raises:
        UserError: With the largest id and the number of embeddings.
    """
    largest, num_embeddings = max(ids), decoder.tok_embeddings.num_embeddings
    if largest >= num_embeddings:
        raise UserError(
            f"tokenizer: it gives the id {largest} and the model embeds {num_embeddings} ids: "
            "choose the tokenizer that belongs to the model"
        )
