import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from custom_components.models.safetensors_folder import read_folder, read_tensor
from custom_components.models.safetensors_writer import TensorPlan, write_weights


def plan(tensors):
    return [TensorPlan(name, tuple(t.shape), t.dtype) for name, t in tensors.items()]


def draw(**shapes):
    return {name: torch.randn(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_file_holds_what_the_library_reads(tmp_path, dtype):
    tensors = {n: t.to(dtype) for n, t in draw(b=(3, 5), a=(7,), empty=(0, 4), one=()).items()}
    write_weights(tmp_path, plan(tensors), tensors.__getitem__)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    loaded = load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == dtype and torch.equal(loaded[name], tensor)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_tensor_that_is_not_contiguous_is_written_in_its_own_order(tmp_path):
    tensors = {"x": torch.arange(6.0).view(2, 3).T}
    write_weights(tmp_path, plan(tensors), tensors.__getitem__)
    assert torch.equal(load_file(tmp_path / "model.safetensors")["x"], tensors["x"])


def test_shards_are_filled_in_order_up_to_the_limit(tmp_path):
    """Sizes 40, 60, 400, 40, 100, 4 bytes in files of 100: the third is too large for any."""
    tensors = draw(a=(10,), b=(15,), c=(100,), d=(10,), e=(25,), f=(1,))
    write_weights(tmp_path, plan(tensors), tensors.__getitem__, max_shard_bytes=100)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = [f"model-0000{number}-of-00005.safetensors" for number in range(1, 6)]
    assert index == {
        "metadata": {"total_size": 644},
        "weight_map": dict(zip("abcdef", [files[0], *files], strict=True)),
    }
    folder = read_folder(tmp_path)
    assert all(torch.equal(read_tensor(folder, name), tensor) for name, tensor in tensors.items())
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == files


def test_a_tensor_that_is_not_as_planned_is_a_bug(tmp_path):
    with pytest.raises(AssertionError, match="was planned"):
        write_weights(
            tmp_path, [TensorPlan("x", (2,), torch.float32)], lambda _: torch.zeros(2).half()
        )
