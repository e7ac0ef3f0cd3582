"""Find the tensors of a Hugging Face model folder without reading them.

``read_folder(path)`` compares the index, the shards on disk and what each shard really holds, so
that an incomplete download is refused by name before anything is allocated (torchtune loads one
shard of two without complaint). ``read_tensor`` opens the file for that one tensor: pages touched
through a handle stay counted as this process's memory for as long as it is open.

A safetensors file is an 8-byte length, that many bytes of JSON (name -> dtype, shape, byte range)
and the tensors' bytes.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from custom_components.errors import UserError
from custom_components.models.tensor_names import shorten_names

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
_DTYPES = ("F64", "F32", "F16", "BF16")
"""What weights may be stored as. Others (integers, 8-bit floats) mean little without scales."""

_EXAMPLE_MODEL = "meta-llama/Meta-Llama-3-8B-Instruct"
_WITHOUT_PTH = '--ignore-patterns "original/consolidated*"'


@dataclass(frozen=True)
class SafetensorsFolder:
    """Which file holds which tensor.

    Args:
        path: The folder.
        files: File of each tensor.
        shapes: Shape of each tensor.
        config: Contents of ``config.json``; empty if there is none.
    """

    path: Path
    files: dict[str, Path]
    shapes: dict[str, tuple[int, ...]]
    config: dict[str, Any]


def read_folder(path: Path) -> SafetensorsFolder:
    """Read the index and the headers of all shards.

    Raises:
        UserError: Listing every problem: no folder, no weights, shards that the index names and
            the disk lacks, shards cut short, tensors in two shards or in none.
    """
    shards = _find_shards(path)
    problems: list[str] = []
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for shard in shards:
        try:
            header = _read_header(shard)
        except (OSError, ValueError, struct.error) as error:
            problems.append(f"{shard} cannot be read ({error})")
            continue
        for name, shape in header.items():
            if name in files:
                problems.append(
                    f"tensor {name} is in two files, {files[name].name} and {shard.name}, of "
                    f"{path}: download the folder again"
                )
            files[name], shapes[name] = shard, shape
    if not problems:
        problems = _compare_with_index(path, files)
    if problems:
        raise UserError(*problems)
    config_path = path / "config.json"
    return SafetensorsFolder(
        path, files, shapes, read_json(config_path) if config_path.is_file() else {}
    )


def read_tensor(folder: SafetensorsFolder, name: str) -> torch.Tensor:
    """Return one tensor as stored. It may share the file's pages: copy it, do not keep it."""
    with safe_open(folder.files[name], framework="pt", device="cpu") as file:
        tensor: torch.Tensor = file.get_tensor(name)
        return tensor


def read_rows(folder: SafetensorsFolder, name: str, start: int, stop: int) -> torch.Tensor:
    """Return rows ``start`` to ``stop`` of one tensor, as ``read_tensor`` does."""
    with safe_open(folder.files[name], framework="pt", device="cpu") as file:
        rows: torch.Tensor = file.get_slice(name)[start:stop]
        return rows


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        UserError: If the file is missing or holds anything else.
    """
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON ({error})") from error
    if not isinstance(contents, dict):
        raise UserError(f"{path} holds a {type(contents).__name__} where an object is expected")
    return contents


def _seen_from(path: Path) -> str:
    return "" if path.is_absolute() else f" (in {Path.cwd()})"


def _find_shards(path: Path) -> list[Path]:
    if path.is_file():
        raise UserError(f"{path} is a file: give the folder of the model, or a .gguf file")
    if not path.is_dir():
        raise UserError(
            f"folder {path}{_seen_from(path)} does not exist: download a model into it, for "
            f"example with `tune download {_EXAMPLE_MODEL} --output-dir {path} {_WITHOUT_PTH}`"
        )
    if not (path / INDEX_NAME).is_file():
        if (path / SINGLE_NAME).is_file():
            return [path / SINGLE_NAME]
        raise UserError(
            f"{path} holds neither {INDEX_NAME} nor {SINGLE_NAME}: download a model in "
            "safetensors format, for example with "
            f"`tune download {_EXAMPLE_MODEL} --output-dir {path} {_WITHOUT_PTH}`"
        )
    weight_map = _read_weight_map(path)
    names = sorted(set(weight_map.values()))
    unexpected = sorted(
        shard.name for shard in path.glob("model*.safetensors") if shard.name not in names
    )
    if unexpected:
        raise UserError(
            f"{path / INDEX_NAME} names {', '.join(names)} and not {', '.join(unexpected)}, which "
            "is there too: remove it, or download the folder again"
        )
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        tensors = shorten_names(t for t, shard in weight_map.items() if shard in missing)
        raise UserError(
            f"{path / INDEX_NAME} names {len(names)} files and {len(missing)} of them are not on "
            f"disk: {', '.join(missing)} (with tensors {tensors}): download the folder again"
        )
    return [path / name for name in names]


def _read_weight_map(path: Path) -> dict[str, str]:
    weight_map = read_json(path / INDEX_NAME).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{path / INDEX_NAME} has no weight_map: download it again")
    outside = [n for n in weight_map.values() if not isinstance(n, str) or Path(n).name != n]
    if outside:
        raise UserError(
            f"{path / INDEX_NAME} names {outside[0]!r}, which is no file of this folder: download "
            "it again"
        )
    return weight_map


def _read_header(shard: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a shard, having checked the shard's size."""
    with shard.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        size = shard.stat().st_size
        if length > size:
            raise ValueError("it is cut short or not a safetensors file: download it again")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    end = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if end != size:
        raise ValueError(f"its header says {end} bytes and the file has {size}: download it again")
    odd = {name: e["dtype"] for name, e in header.items() if e["dtype"] not in _DTYPES}
    if odd:
        raise ValueError(
            f"{shorten_names(odd)} are stored as {', '.join(sorted(set(odd.values())))} and only "
            f"{', '.join(_DTYPES)} can be loaded: choose a model that is not quantised"
        )
    return {name: tuple(entry["shape"]) for name, entry in header.items()}


def _compare_with_index(path: Path, files: dict[str, Path]) -> list[str]:
    if not (path / INDEX_NAME).is_file():
        return []
    return [
        f"{INDEX_NAME} says that tensor {name} is in {shard}, which does not hold it: download "
        f"{path} again"
        for name, shard in _read_weight_map(path).items()
        if name not in files or files[name].name != shard
    ]
