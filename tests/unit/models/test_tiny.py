import custom_components.compat  # noqa: F401

import inspect

import pytest
import torch
from torchtune.models.llama3 import llama3_8b, lora_llama3_8b

from custom_components.errors import UserError
from custom_components.models.nf4 import is_nf4
from custom_components.models.tiny import tiny_llama3_8b, tiny_lora_llama3_8b


def parameters_of(builder):
    signature = inspect.signature(builder)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(
    ("tiny", "namesake"), [(tiny_llama3_8b, llama3_8b), (tiny_lora_llama3_8b, lora_llama3_8b)]
)
def test_takes_exactly_the_arguments_of_its_8b_namesake(tiny, namesake):
    assert parameters_of(tiny) == parameters_of(namesake)


def test_is_small_and_uses_grouped_query_attention():
    decoder = tiny_lora_llama3_8b(["q_proj"], apply_lora_to_mlp=True, apply_lora_to_output=True)
    assert sum(p.numel() for p in decoder.parameters()) < 500_000
    attention = decoder.layers[0].attn
    assert attention.num_kv_heads * 2 == attention.num_heads
    assert decoder(torch.zeros(1, 600, dtype=torch.long)).shape == (1, 600, 512)


def test_lora_arguments_reach_the_modules():
    decoder = tiny_lora_llama3_8b(["v_proj"], lora_rank=3, lora_alpha=5, lora_dropout=0.25)
    module = decoder.layers[1].attn.v_proj
    assert (module.rank, module.alpha, module.dropout.p) == (3, 5, 0.25)
    assert not hasattr(decoder.layers[1].attn.q_proj, "lora_a")


def test_quantize_base_stores_every_matrix_of_the_layers_in_nf4():
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"], quantize_base=True, use_dora=True)
    names = [name for name, parameter in decoder.named_parameters() if is_nf4(parameter)]
    expected = [f"attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "output_proj")]
    expected += [f"mlp.{name}.weight" for name in ("w1", "w2", "w3")]
    assert sorted(names) == sorted(f"layers.{i}.{name}" for i in range(2) for name in expected)
    assert decoder.layers[0].attn.q_proj.weight.scaler_block_size == 8
    assert decoder.layers[0].attn.q_proj.magnitude.shape == (64,)


def test_what_cannot_be_honoured_is_refused_by_name():
    with pytest.raises(UserError, match="'o_proj' is not one of .*output_proj"):
        tiny_lora_llama3_8b(["q_proj", "o_proj"])
    with pytest.raises(UserError, match="lora_attn_modules: empty"):
        tiny_lora_llama3_8b([])
