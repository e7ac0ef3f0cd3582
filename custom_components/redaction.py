"""Take secrets out of a config before it is saved or logged.

Interpolations stay as they are written, so ``${oc.env:HF_TOKEN}`` is saved and its value is not.
A value is replaced when a word of its key says secret (``api_key``, ``hf_token``), and a part of
a string when it has the shape of a known token or is a URL's user, password or query.
"""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf

REDACTED = "<redacted>"

_SECRET_WORDS = frozenset(
    "apikey auth authorization bearer cookie credential credentials key passphrase passwd password "
    "pat pwd secret secrets token".split()
)
_READABLE_KEYS = re.compile(
    r"(num|max|min)_.*"  # counts: max_new_token, num_key_heads
    r"|(pad|eos|bos|unk|sep|cls|mask|image|stop|start|end|special)_token(_id|_ids)?"
    r"|.*_(key|token)_(padding|length|dim|size|ids?|type|count)"
)
"""Keys that hold a secret word but no secret."""

_REVISION_WORDS = frozenset({"revision", "commit", "sha", "sha1", "hash"})
_WANDB_KEY = re.compile(r"(?<!@)\b[0-9a-f]{40}\b")  # behind @ it is a hub revision
_PATTERNS = (
    re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{16,}"),  # Hugging Face
    re.compile(r"\bwandb_v\d+_\w{16,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),  # OpenAI and others
    re.compile(r"\b(gh[pousr]_|github_pat_|glpat-)\w{16,}"),
    re.compile(r"\bxox[a-z]-[A-Za-z0-9-]{10,}"),  # Slack
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),  # AWS
    re.compile(r"(?<=://)[^/\s]+(?=@)"),  # a URL's user and password
    re.compile(r"(?i)(?<=\bbearer )\S+"),
)
_URL_QUERY = re.compile(r"(://[^\s?#]*\?)[^\s#]+")
_PLAIN_INTERPOLATION = re.compile(r"\$\{(oc\.env:)?[\w.\[\]]+\}")


def redact(cfg: DictConfig) -> DictConfig:
    """Return a copy of ``cfg`` to save or log: interpolations unresolved, secrets replaced."""
    container = OmegaConf.to_container(cfg, resolve=False)
    redacted = OmegaConf.create(_redact_node(container, secret=False, words=frozenset()))
    assert isinstance(redacted, DictConfig)
    return redacted


def _redact_node(node: Any, *, secret: bool, words: frozenset[str]) -> Any:
    if isinstance(node, dict):
        return {
            key: _redact_node(value, secret=secret or _is_secret(str(key)), words=_words(str(key)))
            for key, value in node.items()
        }
    if isinstance(node, list):
        return [_redact_node(value, secret=secret, words=words) for value in node]
    if node is None or isinstance(node, bool) or node == "":
        return node
    if secret:
        is_reference = isinstance(node, str) and _PLAIN_INTERPOLATION.fullmatch(node)
        return node if is_reference else REDACTED
    return redact_text(node, words) if isinstance(node, str) else node


def _words(key: str) -> frozenset[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key)
    return frozenset(re.split(r"[^a-z0-9]+", spaced.lower()))


def _is_secret(key: str) -> bool:
    return bool(_words(key) & _SECRET_WORDS) and not _READABLE_KEYS.fullmatch(key.lower())


def redact_text(text: str, words: frozenset[str] = frozenset()) -> str:
    """Return ``text`` without what has the shape of a secret.

    Args:
        text: A value of a config, or a message.
        words: Words of the value's key; one that means a revision spares a 40-digit hash.
    """
    redacted = _URL_QUERY.sub(rf"\1{REDACTED}", text)
    for pattern in _PATTERNS:
        redacted = pattern.sub(REDACTED, redacted)
    if not words & _REVISION_WORDS:
        redacted = _WANDB_KEY.sub(REDACTED, redacted)
    # A replacement inside ${...} would no longer parse.
    return REDACTED if redacted != text and "${" in text else redacted
