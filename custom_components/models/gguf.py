"""Read GGUF files (llama.cpp's format): metadata, tensor directory, tensors dequantised to fp32.

``read_gguf(path)`` reads the header only, a few MB, in about 0.2 s; ``read_tensor`` reads and
dequantises one tensor. The header is parsed here because the ``gguf`` package's reader takes over
two seconds for a vocabulary of 49,152 tokens; dequantisation is that package's.

Layout (all numbers little-endian): magic, version, number of tensors, number of metadata entries;
the entries, each a name, a type and a value; the tensors, each a name, dimensions (innermost
first), a type and an offset; padding to the alignment; the tensors' bytes.
"""

import functools
import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from custom_components.errors import UserError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
"""``struct`` format of each scalar type of the format."""
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class GGUFTensor:
    """One entry of the tensor directory.

    Args:
        shape: In PyTorch's order, outermost first.
        kind: How its values are stored.
        offset: First byte in the file.
        num_bytes: Its size in the file.
    """

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """Everything in a GGUF file but the tensors' bytes."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]


class _Cursor:
    """Reads values one after the other from a buffer."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.at = 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.buffer, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self) -> str:
        start = self.at + 8
        self.at = start + self.scalar("<Q")
        if self.at > len(self.buffer):
            raise struct.error("a string runs past the end of the file")
        return self.buffer[start : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, length = self.scalar("<I"), self.scalar("<Q")
        if item not in _SCALARS:
            return [self.value(item) for _ in range(length)]
        form = f"<{length}{_SCALARS[item][1]}"
        values = struct.unpack_from(form, self.buffer, self.at)
        self.at += struct.calcsize(form)
        return list(values)


def read_gguf(path: Path) -> GGUFHeader:
    """Read metadata and tensor directory.

    Raises:
        UserError: If the file is missing, is not GGUF version 2 or 3, or is cut short.
    """
    if not path.is_file():
        raise UserError(f"{path} does not exist: give the path of a .gguf file")
    return _read_gguf(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read_gguf(path: Path, changed_ns: int) -> GGUFHeader:
    """Read a file once in the state it had at ``changed_ns``: weights, tokenizer and checks ask."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = _parse_header(path, _Cursor(data))
            size = len(data)
    except (struct.error, KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read as GGUF ({error}): download it again") from error
    for name, tensor in header.tensors.items():
        if tensor.offset + tensor.num_bytes > size:
            raise UserError(
                f"{path} is cut short: tensor {name} ends at byte "
                f"{tensor.offset + tensor.num_bytes} and the file has {size}: download it again"
            )
    return header


def _parse_header(path: Path, cursor: _Cursor) -> GGUFHeader:
    if cursor.buffer[:4] != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    cursor.at = 4
    version = cursor.scalar("<I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version}, supported are {_VERSIONS}")
    num_tensors, num_entries = cursor.scalar("<Q"), cursor.scalar("<Q")
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        name = cursor.string()
        metadata[name] = cursor.value(cursor.scalar("<I"))
    directory: dict[str, GGUFTensor] = {}
    for _ in range(num_tensors):
        name = cursor.string()
        if name in directory:
            raise ValueError(f"tensor {name} appears twice")
        directory[name] = _parse_tensor(cursor)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    start = -(-cursor.at // alignment) * alignment
    tensors = {
        name: GGUFTensor(entry.shape, entry.kind, start + entry.offset, entry.num_bytes)
        for name, entry in directory.items()
    }
    return GGUFHeader(path, metadata, tensors)


def _parse_tensor(cursor: _Cursor) -> GGUFTensor:
    """Parse one directory entry; its offset still counts from the start of the data."""
    num_dims = cursor.scalar("<I")
    shape = tuple(reversed([cursor.scalar("<Q") for _ in range(num_dims)]))
    kind = GGMLQuantizationType(cursor.scalar("<I"))
    offset = cursor.scalar("<Q")
    block_size, block_bytes = GGML_QUANT_SIZES[kind]
    return GGUFTensor(shape, kind, offset, prod(shape) // block_size * block_bytes)


def read_tensor(header: GGUFHeader, name: str) -> npt.NDArray[np.float32]:
    """Read one tensor and dequantise it.

    Returns:
        A fresh fp32 array in the tensor's shape.

    Raises:
        UserError: If the ``gguf`` package cannot dequantise its type.
    """
    tensor = header.tensors[name]
    raw = np.fromfile(header.path, np.uint8, count=tensor.num_bytes, offset=tensor.offset)
    try:
        # One row of blocks for each row of the tensor.
        values = dequantize(raw.reshape(*tensor.shape[:-1], -1), tensor.kind)
    except NotImplementedError as error:
        raise UserError(
            f"{header.path}: tensor {name} is stored as {tensor.kind.name}, which the gguf package "
            "cannot dequantise: use another quantisation of the model"
        ) from error
    return np.ascontiguousarray(values, dtype=np.float32).reshape(tensor.shape)
