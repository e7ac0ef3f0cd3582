"""Parameters are stored as they say: plain, NF4, or this rank's rows of either."""

import custom_components.compat  # noqa: F401

import pytest
import torch
from torch import nn

from custom_components.models.nf4 import is_nf4
from custom_components.models.placement import place, rows_of
from custom_components.models.tiny import tiny_lora_llama3_8b

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("num_rows", "num_ranks", "expected"),
    [(8, 4, [2, 2, 2, 2]), (9, 4, [3, 3, 3, 0]), (2, 4, [1, 1, 0, 0]), (5, 2, [3, 2])],
)
def test_rows_are_counted_as_torch_chunks_them(num_rows, num_ranks, expected):
    values = torch.arange(num_rows * 2).view(num_rows, 2)
    parts = [rows_of(values, rank, num_ranks) for rank in range(num_ranks)]
    assert [len(part) for part in parts] == expected
    assert torch.equal(torch.cat(parts), values)
    for part, chunk in zip(parts, torch.chunk(values, num_ranks), strict=False):
        assert torch.equal(part, chunk)


def test_a_parameter_gets_memory_of_its_own_in_the_models_dtype():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 2, bias=False))
    model[0].weight.requires_grad_(False)
    file_pages = torch.arange(8.0).view(2, 4)
    place(model, "0.weight", file_pages, device=CPU, dtype=torch.bfloat16)
    file_pages.zero_()
    weight = model[0].weight
    assert weight.dtype == torch.bfloat16 and not weight.requires_grad
    assert torch.equal(weight.float(), torch.arange(8.0).view(2, 4))


def test_a_quantised_parameter_stays_quantised():
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"], quantize_base=True)
    name = "layers.0.mlp.w1.weight"
    place(decoder, name, torch.randn(128, 64), device=CPU, dtype=torch.float32)
    weight = decoder.get_parameter(name)
    assert is_nf4(weight) and not weight.is_meta and weight.scaler_block_size == 8
