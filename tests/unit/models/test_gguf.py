import struct

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from custom_components.errors import UserError
from custom_components.models.gguf import read_gguf, read_tensor

KINDS = [GGMLQuantizationType[name] for name in ("F16", "BF16", "Q4_1", "Q8_0")]


@pytest.fixture
def written(tmp_path):
    """A file written by the ``gguf`` package: every kind of value, five kinds of tensor."""
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int32("a.int32", -7)
    writer.add_uint64("a.uint64", 2**40)
    writer.add_float32("a.float32", 0.5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "naïve <|x|>")
    writer.add_array("a.words", ["", "é", "Ġthe"])
    writer.add_array("a.numbers", [3, 1, 1])
    values = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    writer.add_tensor("plain", values)
    for kind in KINDS:
        writer.add_tensor(kind.name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_equal_those_of_the_gguf_package(written):
    header, reference = read_gguf(written), GGUFReader(written)
    expected = {k: f.contents() for k, f in reference.fields.items() if not k.startswith("GGUF.")}
    assert header.metadata == expected
    assert list(header.tensors) == [tensor.name for tensor in reference.tensors]
    for tensor in reference.tensors:
        ours = read_tensor(header, tensor.name)
        assert ours.shape == header.tensors[tensor.name].shape == (6, 64)
        np.testing.assert_array_equal(ours, dequantize(tensor.data, tensor.tensor_type))


def test_a_tensor_read_is_writable_and_its_own(written):
    header = read_gguf(written)
    read_tensor(header, "plain")[:] = 0
    assert read_tensor(header, "plain").any()


def test_a_file_cut_short_is_refused_with_both_sizes(written):
    data = written.read_bytes()
    written.write_bytes(data[:-100])
    with pytest.raises(UserError, match=f"cut short: tensor .* and the file has {len(data) - 100}"):
        read_gguf(written)
    written.write_bytes(data[:60])
    with pytest.raises(UserError, match="cannot be read as GGUF"):
        read_gguf(written)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "cannot be read as GGUF"),
        (b"PK\x03\x04" + bytes(40), "does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    ],
)
def test_other_files_are_refused(tmp_path, contents, message):
    path = tmp_path / "x.gguf"
    path.write_bytes(contents)
    with pytest.raises(UserError, match=message):
        read_gguf(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"none\.gguf does not exist"):
        read_gguf(tmp_path / "none.gguf")
