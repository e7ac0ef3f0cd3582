"""Write a model's weights in Hugging Face's layout with one tensor in memory at a time.

Names, shapes and dtypes are known before the first value, so the shards are planned and their
headers written first; then ``write_weights`` asks for the tensors one after the other. Out come
``model.safetensors``, or ``model-00001-of-0000N.safetensors`` and ``model.safetensors.index.json``.

For the format of a file see ``safetensors_folder.py``.
"""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch

from custom_components.models.safetensors_folder import INDEX_NAME, SINGLE_NAME

MAX_SHARD_BYTES = 5 * 10**9
"""Of tensors in one file, as ``transformers`` did for years: small enough for any file system."""

_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_ALIGNMENT = 8  # of the first tensor's byte, which readers map into memory


@dataclass(frozen=True)
class TensorPlan:
    """A tensor to come.

    Args:
        name: In the file.
        shape: Outermost dimension first.
        dtype: How it is stored.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Its size in the file."""
        return prod(self.shape) * self.dtype.itemsize


def write_weights(
    folder: Path,
    tensors: Sequence[TensorPlan],
    read: Callable[[str], torch.Tensor],
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write all tensors, in their order.

    Args:
        folder: Exists, and holds no weights yet.
        tensors: Everything to write.
        read: Returns the tensor of a name, as planned; called once for each, in order.
        max_shard_bytes: Of tensors in one file; a tensor that is larger has a file of its own.
    """
    shards = _plan_shards(tensors, max_shard_bytes)
    names = [
        SINGLE_NAME if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        for number in range(1, len(shards) + 1)
    ]
    for name, shard in zip(names, shards, strict=True):
        with (folder / name).open("wb") as file:
            file.write(_encode_header(shard))
            for tensor in shard:
                # The values are an argument and no variable here: they are gone before the next.
                _write_values(file, tensor, read(tensor.name))
    if len(shards) > 1:
        index = {
            "metadata": {"total_size": sum(tensor.num_bytes for tensor in tensors)},
            "weight_map": {
                tensor.name: name
                for name, shard in zip(names, shards, strict=True)
                for tensor in shard
            },
        }
        (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _plan_shards(tensors: Sequence[TensorPlan], max_shard_bytes: int) -> list[list[TensorPlan]]:
    shards: list[list[TensorPlan]] = [[]]
    num_bytes = 0
    for tensor in tensors:
        if shards[-1] and num_bytes + tensor.num_bytes > max_shard_bytes:
            shards.append([])
            num_bytes = 0
        shards[-1].append(tensor)
        num_bytes += tensor.num_bytes
    return shards


def _encode_header(shard: Sequence[TensorPlan]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for tensor in shard:
        end = start + tensor.num_bytes
        header[tensor.name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": (start, end),
        }
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _write_values(file: BinaryIO, plan: TensorPlan, values: torch.Tensor) -> None:
    found = (tuple(values.shape), values.dtype)
    assert found == (plan.shape, plan.dtype), f"{plan} was planned and {found} came"
    # numpy has no bfloat16: the bytes go through a view that it has.
    file.write(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
