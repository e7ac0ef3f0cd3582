"""LLaMA-3's tokenizer: torchtune's, with the ids and the mask of its published chat template.

How it differs from ``torchtune.models.llama3.llama3_tokenizer``: the header before an answer is
masked, because generation is given it, and ``<|end_of_text|>`` does not follow the last message, as
it does not in ``apply_chat_template``. Text never becomes a special token.
"""

import custom_components.compat  # noqa: F401

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from torchtune.data import Message
from torchtune.models.llama3 import Llama3Tokenizer as TorchtuneLlama3Tokenizer

from custom_components.errors import UserError
from custom_components.models.tokenizer_checks import refuse_max_seq_len, tokenize_llama3_messages


class Llama3Tokenizer(TorchtuneLlama3Tokenizer):  # type: ignore[misc]
    """See the module's docstring.

    Args:
        path: ``tokenizer.model``, as published with the weights (folder ``original``).
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = Path(path)
        self._encode_text = functools.lru_cache(maxsize=64)(self._encode_text)  # type: ignore[method-assign]

    def tokenize_messages(
        self, messages: Sequence[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        """Return ids and mask of a conversation, see ``tokenize_llama3_messages``."""
        return tokenize_llama3_messages(
            messages, self, self._encode_text, add_end_tokens=add_end_tokens
        )

    def fingerprint(self) -> str:
        """Return what changes when its vocabulary does: the SHA-256 of its file."""
        return hashlib.sha256(self._path.read_bytes()).hexdigest()

    def _encode_text(self, text: str) -> list[int]:
        text.encode("utf-8")  # tiktoken would turn a lone surrogate into another character
        ids: list[int] = self.encode(text, add_bos=False, add_eos=False)
        return ids


def llama3_tokenizer(path: str, max_seq_len: int | None = None) -> Llama3Tokenizer:
    """Build LLaMA-3's tokenizer.

    Args:
        path: ``tokenizer.model``, as published with the weights (folder ``original``).
        max_seq_len: Must be None: the data set truncates.

    Raises:
        UserError: If the file is missing or is not one, or an argument cannot be honoured.
    """
    problems = refuse_max_seq_len(max_seq_len)
    if not Path(path).is_file():
        found = "is a folder" if Path(path).is_dir() else "does not exist"
        problems.append(
            f"tokenizer.path: {path} {found}; the file tokenizer.model comes with the checkpoint, "
            "see `tune download` there, or override tokenizer.path=FILE"
        )
    if problems:
        raise UserError(*problems)
    try:
        return Llama3Tokenizer(path)
    except (ValueError, OSError) as error:
        raise UserError(f"tokenizer.path: {path} is not a tokenizer.model ({error})") from error
