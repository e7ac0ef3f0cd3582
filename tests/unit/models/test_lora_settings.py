import custom_components.compat  # noqa: F401

import math

import pytest
import torch

from custom_components.models.lora_settings import (
    LORA_LINEAR,
    LoraSettings,
    apply_rslora,
    name_method,
    read_lora_settings,
    scaling_of,
    switch_adapters,
)
from tests.unit.models.lora_decoders import ALL, METHODS, TARGETS, build, build_on_meta, train


def scalings(decoder):
    return {scaling_of(m) for m in decoder.modules() if isinstance(m, LORA_LINEAR)}


@pytest.mark.parametrize("method", METHODS)
def test_settings_are_read_off_the_modules(method):
    decoder = build_on_meta(**ALL, **METHODS[method], lora_dropout=0.25)
    settings = read_lora_settings(decoder)
    use_dora, use_rslora = "DoRA" in method, "rsLoRA" in method
    assert settings == LoraSettings(4, 10.0, 0.25, tuple(TARGETS), use_dora, use_rslora)
    assert name_method(settings, quantized="QLoRA" in method) == method


@pytest.mark.parametrize("use_dora", [False, True])
@pytest.mark.parametrize("use_rslora", [False, True])
def test_alpha_comes_back_as_it_was_written(use_dora, use_rslora):
    """DoRALinear keeps alpha / rank alone: 16 / 49 * 49 is not 16, nor are the next two equal."""
    assert 16 / 49 * 49 != 16
    for rank, alpha in ((49, 16), (11, 0.1), (20, 1.7), (8, 16), (7, 10)):
        decoder = build_on_meta(
            lora_attn_modules=["q_proj"], lora_rank=rank, lora_alpha=alpha, use_dora=use_dora
        )
        if use_rslora:
            apply_rslora(decoder)
        assert read_lora_settings(decoder).alpha == alpha, (rank, alpha)


@pytest.mark.parametrize("use_dora", [False, True])
def test_rslora_divides_by_the_root_of_the_rank(use_dora):
    decoder = build_on_meta(**ALL | {"lora_rank": 16}, use_dora=use_dora)
    assert scalings(decoder) == {10 / 16}
    apply_rslora(decoder)
    assert scalings(decoder) == {10 / math.sqrt(16)}
    apply_rslora(decoder)
    assert scalings(decoder) == {10 / math.sqrt(16)}
    assert read_lora_settings(decoder).scaling == 10 / math.sqrt(16)


def test_rslora_makes_what_the_adapter_adds_larger_by_the_root_of_the_rank():
    plain, scaled = train(build(**ALL)), train(build(**ALL, use_rslora=True))
    tokens = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(0))
    added = []
    for decoder in (plain, scaled):
        projection = decoder.layers[0].attn.v_proj
        added.append(projection(tokens) - tokens @ projection.weight.T)
    torch.testing.assert_close(added[1], added[0] * math.sqrt(4))


@pytest.mark.parametrize("method", METHODS)
def test_switched_off_the_model_is_the_base(method):
    fresh, trained = build(**ALL, **METHODS[method]), train(build(**ALL, **METHODS[method]))
    tokens = torch.arange(16).unsqueeze(0)
    with_adapters = trained(tokens)
    switch_adapters(trained, on=False)
    switch_adapters(fresh, on=False)
    assert torch.equal(trained(tokens), fresh(tokens))
    switch_adapters(trained, on=True)
    assert torch.equal(trained(tokens), with_adapters)
    assert not torch.equal(trained(tokens), fresh(tokens))


def test_modules_that_differ_have_no_settings():
    decoder = build_on_meta(lora_attn_modules=["q_proj"])
    decoder.layers[1].attn.q_proj.alpha = 99
    with pytest.raises(ValueError, match="must agree"):
        read_lora_settings(decoder)
    decoder = build_on_meta(lora_attn_modules=["q_proj"])
    decoder.layers[1].attn.q_proj = torch.nn.Linear(64, 64, bias=False)
    with pytest.raises(ValueError, match="same modules in every layer"):
        read_lora_settings(decoder)
