"""What tokenizers share: the argument they refuse, Llama 3's layout, fit to the model."""

import custom_components.compat  # noqa: F401

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

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


class Llama3Ids(Protocol):
    """The ids that Llama 3's layout puts around text."""

    bos_id: int
    start_header_id: int
    end_header_id: int
    eot_id: int


def tokenize_llama3_messages(
    messages: Sequence[Message],
    ids: Llama3Ids,
    encode: Callable[[str], list[int]],
    *,
    add_end_tokens: bool,
) -> tuple[list[int], list[bool]]:
    """Return ids and mask of a conversation in Llama 3's layout, its text stripped.

    Args:
        messages: In order; text only.
        ids: The tokenizer's special ones.
        encode: Text to ids, nothing added.
        add_end_tokens: End the last message. False leaves a prompt that a model can continue.

    Returns:
        Ids, and for each of them True if it is not trained on. Trained on are the text and
        ``<|eot_id|>`` of unmasked messages.

    Raises:
        UserError: If a message holds anything but text.
    """
    tokens, mask = [ids.bos_id], [True]
    for message in messages:
        header = [ids.start_header_id, *encode(message.role), ids.end_header_id, *encode("\n\n")]
        body = [*encode(message_text(message).strip()), ids.eot_id]
        tokens += header + body
        mask += [True] * len(header) + [message.masked] * len(body)
    # Without messages this would take the sequence's only token.
    end = -1 if messages and not add_end_tokens else None
    return tokens[:end], mask[:end]


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
