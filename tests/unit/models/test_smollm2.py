import custom_components.compat  # noqa: F401

import copy
import inspect

import pytest
import torch
from torchtune.models.llama3 import lora_llama3_8b

from custom_components.errors import UserError
from custom_components.models.nf4 import is_nf4
from custom_components.models.smollm2 import lora_smollm2_135m, smollm2_135m


def build_on_meta(builder, *args, **kwargs):
    with torch.device("meta"):
        return builder(*args, **kwargs)


def test_has_the_published_number_of_parameters():
    """134,515,008 is what the hub's model page counts for SmolLM2-135M-Instruct."""
    decoder = build_on_meta(smollm2_135m)
    assert sum(p.numel() for p in decoder.parameters()) == 134_515_008


def test_output_stays_tied_to_the_embeddings_when_they_change():
    decoder = build_on_meta(smollm2_135m)
    assert not [name for name, _ in decoder.named_parameters() if name.startswith("output")]
    clone = copy.deepcopy(decoder)
    assert clone.output.tied_module is clone.tok_embeddings
    hidden = torch.ones(1, 576)
    for value in (1.0, 2.0):
        decoder.tok_embeddings.weight = torch.nn.Parameter(torch.full((49_152, 576), value))
        assert decoder.output(hidden)[0, 0] == 576 * value


def test_lora_adapters_have_the_expected_sizes():
    """Rank x (inputs + outputs), summed by hand over the seven projections of 30 layers."""
    decoder = build_on_meta(
        lora_smollm2_135m,
        ["q_proj", "k_proj", "v_proj", "output_proj"],
        apply_lora_to_mlp=True,
        lora_rank=4,
    )
    attention = 2 * (576 + 576) + 2 * (576 + 192)
    mlp = 3 * (576 + 1536)
    adapters = [p for name, p in decoder.named_parameters() if "lora_" in name]
    assert sum(p.numel() for p in adapters) == 30 * 4 * (attention + mlp)


def test_lora_builder_takes_the_arguments_of_the_8b_builder():
    ours, theirs = (inspect.signature(f).parameters for f in (lora_smollm2_135m, lora_llama3_8b))
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]


def test_quantize_base_uses_scaler_blocks_that_divide_its_matrices():
    """576 * 576 = 81 * 64 * 64; torchao's default would need a multiple of 64 * 256."""
    decoder = build_on_meta(lora_smollm2_135m, ["q_proj"], quantize_base=True, use_dora=True)
    matrices = [p for p in decoder.layers[7].parameters() if is_nf4(p)]
    assert len(matrices) == 7 and all(p.scaler_block_size == 64 for p in matrices)
    assert not is_nf4(decoder.tok_embeddings.weight)
    assert decoder.layers[7].attn.q_proj.magnitude.shape == (576,)


def test_adapting_the_tied_output_is_refused_by_name():
    with pytest.raises(UserError, match="model.apply_lora_to_output: "):
        build_on_meta(lora_smollm2_135m, ["q_proj"], apply_lora_to_output=True)
