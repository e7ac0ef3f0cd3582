r"""A tokenizer that needs no file: one id a byte, and Llama 3's special tokens.

Ids 0 to 255 are the bytes of UTF-8, the special tokens follow; all lie below the vocabulary of 512
of the tiny models. Messages have Llama 3's layout::

    <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>...

and, as in torchtune's Llama-3 tokenizer, their text is stripped and ``<|end_of_text|>`` ends the
sequence. Trained on are the text and ``<|eot_id|>`` of unmasked messages, nothing else.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from functools import partial

from torchtune.data import Message

from custom_components.errors import UserError
from custom_components.models.tokenizer_checks import refuse_max_seq_len, tokenize_llama3_messages

_NUM_BYTES = 256
_SPECIAL_TOKENS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|finetune_right_pad_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)


class ByteTokenizer:
    """See the module's docstring. Text can never become a special token."""

    def __init__(self) -> None:
        self.special_tokens = {t: _NUM_BYTES + i for i, t in enumerate(_SPECIAL_TOKENS)}
        self.bos_id = self.special_tokens["<|begin_of_text|>"]
        self.eos_id = self.special_tokens["<|end_of_text|>"]
        self.pad_id = self.special_tokens["<|finetune_right_pad_id|>"]
        self.start_header_id = self.special_tokens["<|start_header_id|>"]
        self.end_header_id = self.special_tokens["<|end_header_id|>"]
        self.eot_id = self.special_tokens["<|eot_id|>"]
        self.stop_tokens = [self.eos_id, self.eot_id]
        self.vocab_size = _NUM_BYTES + len(_SPECIAL_TOKENS)
        self.max_seq_len: int | None = None

    def encode(self, text: str, add_bos: bool = True, add_eos: bool = True) -> list[int]:
        """Return the bytes of ``text`` as ids.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate, which has no bytes.
        """
        ids = list(text.encode("utf-8"))
        return [self.bos_id] * add_bos + ids + [self.eos_id] * add_eos

    def decode(
        self,
        token_ids: Sequence[int],
        truncate_at_eos: bool = True,
        skip_special_tokens: bool = True,
    ) -> str:
        """Return the text of ``token_ids``. Bytes that are no UTF-8 and unknown ids become U+FFFD.

        Args:
            token_ids: Any ids, such as an untrained model's.
            truncate_at_eos: Stop before the first ``<|end_of_text|>``.
            skip_special_tokens: Leave special tokens out instead of writing their names.
        """
        ids = list(token_ids)
        if truncate_at_eos and self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        data = b"".join(self._bytes_of(i, skip_special_tokens=skip_special_tokens) for i in ids)
        return data.decode("utf-8", errors="replace")

    def _bytes_of(self, token_id: int, *, skip_special_tokens: bool) -> bytes:
        if 0 <= token_id < _NUM_BYTES:
            return bytes([token_id])
        if _NUM_BYTES <= token_id < self.vocab_size:
            return b"" if skip_special_tokens else _SPECIAL_TOKENS[token_id - _NUM_BYTES].encode()
        return b"\xff"  # never part of UTF-8

    def tokenize_messages(
        self, messages: Sequence[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        """Return ids and mask of a conversation.

        Args:
            messages: In order; text only.
            add_end_tokens: End the last message and the sequence. False leaves a prompt that a
                model can continue.

        Returns:
            Ids, and for each of them True if it is not trained on.

        Raises:
            UserError: If a message holds anything but text.
        """
        encode = partial(self.encode, add_bos=False, add_eos=False)
        tokens, mask = tokenize_llama3_messages(
            messages, self, encode, add_end_tokens=add_end_tokens
        )
        return ([*tokens, self.eos_id], [*mask, True]) if add_end_tokens else (tokens, mask)


def byte_tokenizer(path: str | None = None, max_seq_len: int | None = None) -> ByteTokenizer:
    """Build the byte tokenizer.

    Args:
        path: Must be None: there is no file. It is an argument so that a config for another
            tokenizer needs two overrides only, the component and ``tokenizer.path=null``.
        max_seq_len: Must be None: the data set truncates.

    Raises:
        UserError: If an argument cannot be honoured.
    """
    problems = refuse_max_seq_len(max_seq_len)
    if path is not None:
        problems.append(
            f"tokenizer.path: {path} given, but the byte tokenizer reads no file: override "
            "tokenizer.path=null"
        )
    if problems:
        raise UserError(*problems)
    return ByteTokenizer()
