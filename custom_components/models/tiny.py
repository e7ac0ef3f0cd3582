"""Llama-3 models small enough for tests: a step takes milliseconds on one CPU core.

Each builder takes exactly the arguments of its 8B namesake in ``torchtune.models.llama3``, so a
config for the 8B model runs on a laptop by overriding ``model._component_`` (and device, dtype,
checkpoint, tokenizer and data). Grouped-query attention is on, as in the 8B model. Pair them with
``checkpoint_dir=random`` and the byte tokenizer, whose ids all lie below the vocabulary of 512.
"""

import custom_components.compat  # noqa: F401

from typing import Any

from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import LORA_ATTN_MODULES

from custom_components.models.lora_arguments import check_lora_arguments
from custom_components.models.nf4 import quantize_layers

_SIZES: dict[str, Any] = {
    "vocab_size": 512,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "embed_dim": 64,
    "max_seq_len": 2048,
    "intermediate_dim": 128,
    "attn_dropout": 0.0,
    "norm_eps": 1e-5,
    "rope_base": 500_000,
}

_SCALER_BLOCK_SIZE = 8
"""Lets NF4 matrices of these sizes be split over up to four ranks."""


def tiny_llama3_8b() -> TransformerDecoder:
    """Build the tiny namesake of ``torchtune.models.llama3.llama3_8b``."""
    return llama3(**_SIZES)


def tiny_lora_llama3_8b(
    lora_attn_modules: list[LORA_ATTN_MODULES],
    apply_lora_to_mlp: bool = False,
    apply_lora_to_output: bool = False,
    lora_rank: int = 8,
    lora_alpha: float = 16,
    lora_dropout: float = 0.0,
    quantize_base: bool = False,
    use_dora: bool = False,
) -> TransformerDecoder:
    """Build the tiny namesake of ``torchtune.models.llama3.lora_llama3_8b``.

    Args:
        lora_attn_modules: Attention projections to adapt.
        apply_lora_to_mlp: Adapt the three MLP projections too.
        apply_lora_to_output: Adapt the output projection too.
        lora_rank: Rank of each adapter.
        lora_alpha: Adapters are scaled by ``lora_alpha / lora_rank``.
        lora_dropout: Dropout on each adapter's input.
        quantize_base: QLoRA: store the layers' matrices in NF4. torchtune's own builder would
            refuse these sizes: here 8 scalers are quantised together, not 256.
        use_dora: DoRA: train a magnitude for each output too.

    Raises:
        UserError: If an argument cannot be honoured.
    """
    check_lora_arguments(
        lora_attn_modules,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
    )
    decoder = lora_llama3(
        lora_attn_modules=lora_attn_modules,
        apply_lora_to_mlp=apply_lora_to_mlp,
        apply_lora_to_output=apply_lora_to_output,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
        use_dora=use_dora,
        **_SIZES,
    )
    if quantize_base:
        quantize_layers(decoder, scaler_block_size=_SCALER_BLOCK_SIZE)
    return decoder
