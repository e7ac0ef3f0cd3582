"""NF4 against torchao's own functions and against the format worked out by hand."""

import custom_components.compat  # noqa: F401

import pytest
import torch
from torchao.dtypes.nf4tensor import linear_nf4, to_nf4
from torchtune.models.llama3 import lora_llama3

from custom_components.errors import UserError
from custom_components.models.nf4 import (
    check_nf4,
    dequantize_like,
    has_nf4,
    is_nf4,
    quantize_layers,
    quantize_like,
    shard_rows,
)

# https://arxiv.org/abs/2305.14314, appendix E, to the four digits that torchao keeps.
LEVELS = [
    -1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0,
    0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0,
]  # fmt: skip
PARTS = ("quantized_data", "quantized_scalers", "quantization_factor", "scaler_mean")
SIZES = {
    "vocab_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 64,
    "max_seq_len": 64, "intermediate_dim": 128, "lora_rank": 2, "lora_alpha": 4,
}  # fmt: skip


def build(scaler_block_size=8, **changes):
    with torch.device("meta"):
        decoder = lora_llama3(["q_proj"], **SIZES | changes)
        return quantize_layers(decoder, scaler_block_size=scaler_block_size)


def matrix(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_matrix_is_quantised_as_torchao_does_it(dtype):
    values = matrix(128, 64).to(dtype)
    ours = quantize_like(build().layers[0].mlp.w1.weight, values)
    theirs = to_nf4(values, 64, 8)
    for part in PARTS:
        assert torch.equal(getattr(ours, part), getattr(theirs, part))
    assert torch.equal(ours.get_original_weight(), theirs.get_original_weight())


def test_dequantised_numbers_are_levels_times_a_scaler():
    """By hand: each block of 64 is its levels times its largest number, nearly."""
    values = matrix(64, 64)
    found = dequantize_like(build().layers[0].attn.q_proj.weight, values).flatten()
    blocks = values.flatten().view(-1, 64)
    levels = torch.tensor(LEVELS)
    largest = blocks.abs().amax(dim=1, keepdim=True)
    nearest = (blocks / largest).unsqueeze(-1).sub(levels).abs().argmin(dim=-1)
    expected = levels[nearest] * largest
    # The scalers are themselves kept in 8 bits, in groups of 8 around their mean.
    steps = (largest - largest.mean()).abs().view(-1, 8).amax(dim=1) / 127
    bound = steps.repeat_interleave(8 * 64) * levels[nearest].flatten().abs() + 1e-6
    assert ((found - expected.flatten()).abs() <= bound).all()


def test_a_plain_parameter_does_not_change():
    decoder, values = build(), matrix(32, 64)
    assert dequantize_like(decoder.tok_embeddings.weight, values) is values


def test_a_plain_linear_layer_computes_with_an_nf4_weight():
    """Forward and the gradient of the input, against the dequantised matrix."""
    layer = torch.nn.Linear(64, 64, bias=False)
    quantized = to_nf4(matrix(64, 64), 64, 8)
    layer.weight = torch.nn.Parameter(quantized, requires_grad=False)
    inputs = matrix(3, 64, seed=1).requires_grad_()
    outputs = layer(inputs)
    assert torch.equal(outputs, linear_nf4(inputs, quantized))
    outputs.sum().backward()
    plain = quantized.get_original_weight()
    torch.testing.assert_close(inputs.grad, plain.sum(dim=0).expand(3, 64))


def test_every_matrix_of_the_layers_is_marked_and_nothing_else():
    decoder = build()
    assert has_nf4(decoder)
    for name, parameter in decoder.named_parameters():
        is_matrix = name.startswith("layers.") and parameter.dim() == 2 and "lora_" not in name
        assert is_nf4(parameter) == is_matrix
        if is_matrix:
            assert not parameter.requires_grad
    with torch.device("meta"):
        assert not has_nf4(lora_llama3(["q_proj"], **SIZES))


def test_torchtunes_own_quantised_builders_are_recognised():
    with torch.device("meta"):
        decoder = lora_llama3(
            ["q_proj"], **SIZES | {"embed_dim": 512, "intermediate_dim": 512}, quantize_base=True
        )
    assert is_nf4(decoder.layers[0].attn.q_proj.weight)
    assert is_nf4(decoder.layers[0].attn.k_proj.weight)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_shards_of_a_matrix_are_its_rows_quantised_together(num_ranks):
    values = matrix(128, 64)
    whole = to_nf4(values, 64, 8)
    shards = [shard_rows(whole, rank, num_ranks) for rank in range(num_ranks)]
    rows = torch.cat([shard.get_original_weight() for shard in shards])
    assert torch.equal(rows, whole.get_original_weight())
    alone = to_nf4(values[: 128 // num_ranks], 64, 8)
    assert not torch.equal(alone.get_original_weight(), shards[0].get_original_weight())
    storage = shards[0].quantized_data.untyped_storage()
    assert storage.nbytes() == 128 * 64 // 2 // num_ranks  # memory of its own


def test_sharding_needs_blocks_that_divide():
    check_nf4(build(), num_shards=4)
    check_nf4(build(scaler_block_size=32), num_shards=1)
    with pytest.raises(UserError) as error:
        check_nf4(build(scaler_block_size=32), num_shards=2)
    (problem,) = error.value.problems  # only k and v, [32, 64], are too small
    assert "[32, 64] over 2 ranks" in problem
    assert "32 * 64 = 2,048 must be divisible by 4,096" in problem
    assert "attn.k_proj.weight" in problem and "attn.v_proj.weight" in problem


def test_sharding_needs_rows_that_divide():
    """[128, 96] over 3 ranks: 24 blocks of 512 divide by 3, 128 rows do not."""
    decoder = build(embed_dim=96, num_heads=6, num_kv_heads=3)
    with pytest.raises(UserError) as error:
        check_nf4(decoder, num_shards=3)
    (problem,) = error.value.problems
    assert "[128, 96]" in problem and "and 128 by 3" in problem
