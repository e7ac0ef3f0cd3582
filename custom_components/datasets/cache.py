"""Tokenised data sets on disk, each under a fingerprint of everything that changes it.

They lie in ``$TUNEPACK_CACHE``, else in ``tunepack`` under ``$XDG_CACHE_HOME`` or ``~/.cache``.
Nothing is ever changed in place: other contents, arguments, tokenizer or code give another
fingerprint and another folder. Old folders may be deleted at any time between runs.
"""

import custom_components.compat  # noqa: F401

import hashlib
import inspect
import json
import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from custom_components.datasets.token_store import is_whole
from custom_components.errors import UserError

_PACKAGE_DIR = Path(__file__).resolve().parents[1]
_CODE = ("datasets/*.py", "models/*tokenizer*.py")
"""What decides the tokens of a row, in this pack."""
_LIBRARIES = ("tiktoken", "tokenizers", "torchtune")


def cache_root() -> Path:
    """Return the folder of all cached data sets, whether or not it exists."""
    own = os.environ.get("TUNEPACK_CACHE")
    if own:
        return Path(own).expanduser()
    parent = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(parent).expanduser() / "tunepack"


def fingerprint(parts: Mapping[str, Any], tokenizer: Any) -> str:
    """Return the name of a data set in the cache, 32 hexadecimal digits.

    Args:
        parts: Whatever decides its rows: arguments, and the fingerprint of the source.
        tokenizer: Its classes' code counts and its own ``fingerprint()``; one without is pickled,
            and one that cannot be gets a name that is never found again.
    """
    everything = {"parts": parts, "tokenizer": _fingerprint_tokenizer(tokenizer), **_versions()}
    text = json.dumps(everything, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _fingerprint_tokenizer(tokenizer: Any) -> list[str]:
    kind = type(tokenizer)
    parts = [f"{kind.__module__}.{kind.__qualname__}", _digest_code(kind)]
    if hasattr(tokenizer, "fingerprint"):
        return [*parts, tokenizer.fingerprint()]
    try:
        return [*parts, hashlib.sha256(pickle.dumps(tokenizer)).hexdigest()]
    except Exception:  # whatever its parts raise
        return [*parts, uuid.uuid4().hex]


def _digest_code(kind: type) -> str:
    """Return what stands for the files that a class and those it inherits from are written in."""
    digest = hashlib.sha256()
    for base in kind.__mro__[:-1]:  # all but object
        try:
            path = inspect.getsourcefile(base)
            digest.update(Path(path).read_bytes() if path else b"")
        except (OSError, TypeError):  # built in, or typed at a prompt
            digest.update(base.__qualname__.encode())
    return digest.hexdigest()


@cache
def _versions() -> dict[str, Any]:
    """Return what stands for the code: the pack's own text, the libraries' versions."""
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(_PACKAGE_DIR.glob(pattern)):
            digest.update(path.read_bytes())
    libraries = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            libraries[name] = ""
    return {"code": digest.hexdigest(), "libraries": libraries}


def find_or_build(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a cached data set; build it if it is not there.

    Of several processes that build the same one at once, the first to finish wins.

    Args:
        name: Its fingerprint.
        build: Fills an empty folder.

    Raises:
        UserError: If the cache cannot be written.
    """
    folder = cache_root() / name
    if is_whole(folder):
        return folder
    staging = folder.with_name(f".{name}.{uuid.uuid4().hex}")
    try:
        staging.mkdir(parents=True)  # not tempfile's, which nobody else may read
        build(staging)
        _publish(staging, folder)
    except OSError as error:
        raise UserError(
            f"the cache of tokenised data, {folder.parent}, cannot be written "
            f"({error.strerror or error}): make room or set the environment variable "
            "TUNEPACK_CACHE to a folder of your own"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def _publish(staging: Path, folder: Path) -> None:
    """Give a finished data set its name, unless another process has done so in the meantime."""
    try:
        staging.rename(folder)
    except OSError:
        if is_whole(folder):
            return
        _remove(folder)  # damaged
        staging.rename(folder)


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink()
