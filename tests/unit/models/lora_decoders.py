"""Decoders with adapters that do something, for the tests of adapters and merged exports."""

import custom_components.compat  # noqa: F401

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torchtune.modules import TransformerDecoder

from custom_components.models.adapters import adapter_parameters
from custom_components.models.lora_settings import apply_rslora
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights

ALL: dict[str, Any] = {
    "lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
    "apply_lora_to_mlp": True,
    "lora_rank": 4,
    "lora_alpha": 10,
}
TARGETS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
METHODS: dict[str, dict[str, Any]] = {
    "LoRA": {},
    "DoRA": {"use_dora": True},
    "rsLoRA": {"use_rslora": True},
    "DoRA + rsLoRA": {"use_dora": True, "use_rslora": True},
    "QLoRA": {"quantize_base": True},
    "DoRA + QLoRA": {"use_dora": True, "quantize_base": True},
}
"""Arguments of ``build`` by the method's name."""


def build_on_meta(
    builder: Callable[..., TransformerDecoder] = tiny_lora_llama3_8b,
    *,
    use_rslora: bool = False,
    **arguments: Any,
) -> TransformerDecoder:
    with torch.device("meta"):
        decoder = builder(**arguments)
    if use_rslora:
        apply_rslora(decoder)
    return decoder


def build(
    builder: Callable[..., TransformerDecoder] = tiny_lora_llama3_8b,
    checkpoint_dir: Path | str = "random",
    *,
    seed: int = 0,
    **arguments: Any,
) -> TransformerDecoder:
    decoder = build_on_meta(builder, **arguments)
    load_weights(
        decoder, str(checkpoint_dir), device=torch.device("cpu"), dtype=torch.float32, seed=seed
    )
    return decoder.eval()


@torch.no_grad()
def train(decoder: TransformerDecoder, std: float = 0.05) -> TransformerDecoder:
    """Stand in for training: B matrices that are not zero, magnitudes that are not norms."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in adapter_parameters(decoder).items():
        if name.endswith("lora_b.weight"):
            parameter.normal_(std=std, generator=generator)
        elif name.endswith("magnitude"):
            parameter.mul_(torch.empty_like(parameter).uniform_(0.5, 1.5, generator=generator))
    return decoder
