import custom_components.compat  # noqa: F401

import copy
import inspect

import pytest
import torch
from torchtune.models.llama3 import lora_llama3_8b

from custom_components.errors import UserError
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


@pytest.mark.parametrize("argument", ["apply_lora_to_output", "quantize_base", "use_dora"])
def test_what_cannot_be_honoured_is_refused_by_name(argument):
    with pytest.raises(UserError, match=f"model.{argument}: "):
        build_on_meta(lora_smollm2_135m, ["q_proj"], **{argument: True})
