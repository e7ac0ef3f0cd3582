"""Compare what a checkpoint's config says with the decoder that is to hold its weights.

Tensor shapes do not tell LLaMA-3-8B from LLaMA-3.1-8B, nor one rotary base or number of heads from
another: such a mix-up loads without complaint and gives a worse model.
"""

import math
from dataclasses import dataclass, fields
from typing import Any

from torchtune.modules import TransformerDecoder


@dataclass(frozen=True)
class ModelFacts:
    """What a config says of the architecture. None means not stated.

    Args:
        vocab_size: Rows of the embeddings.
        num_layers: Layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        norm_eps: Epsilon of the RMS norms.
        rope_base: Base of the rotary frequencies.
        rope_scaling: Whether the rotary frequencies are scaled (LLaMA 3.1 and later).
    """

    vocab_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    norm_eps: float | None = None
    rope_base: float | None = None
    rope_scaling: bool | None = None


def facts_of_config(config: dict[str, Any]) -> ModelFacts:
    """Read a Hugging Face ``config.json``, as transformers 4 or 5 writes it."""
    if not config:
        return ModelFacts()
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    return ModelFacts(
        vocab_size=config.get("vocab_size"),
        num_layers=config.get("num_hidden_layers"),
        num_heads=config.get("num_attention_heads"),
        num_kv_heads=config.get("num_key_value_heads"),
        norm_eps=config.get("rms_norm_eps"),
        rope_base=rope.get("rope_theta", config.get("rope_theta")),
        rope_scaling=rope_type != "default",
    )


def check_kind(config: dict[str, Any]) -> list[str]:
    """Return one sentence for each thing in ``config.json`` that no decoder of the pack computes.

    Such a folder would train a model that ``transformers`` then computes differently.
    """
    problems = []
    for key, expected, default in (
        ("model_type", ("llama", "mistral"), None),
        ("hidden_act", ("silu",), "silu"),
        ("attention_bias", (False,), False),
        ("mlp_bias", (False,), False),
        ("quantization_config", (None,), None),
    ):
        found = config.get(key, default)
        if found not in expected:
            problems.append(
                f"its config.json says {key} {found!r} and only {expected[0]!r} can be loaded"
            )
    return problems


def facts_of_gguf(metadata: dict[str, Any], *, rope_scaling: bool) -> ModelFacts:
    """Read the metadata of a GGUF file of architecture ``llama``.

    Args:
        metadata: The file's metadata.
        rope_scaling: Whether it holds a tensor of scaling factors.
    """
    return ModelFacts(
        num_heads=metadata.get("llama.attention.head_count"),
        num_kv_heads=metadata.get("llama.attention.head_count_kv"),
        norm_eps=metadata.get("llama.attention.layer_norm_rms_epsilon"),
        rope_base=metadata.get("llama.rope.freq_base"),
        rope_scaling=rope_scaling,
    )


def facts_of_decoder(decoder: TransformerDecoder) -> ModelFacts:
    """Read the same numbers off a torchtune decoder."""
    attention = decoder.layers[0].attn
    return ModelFacts(
        vocab_size=decoder.tok_embeddings.num_embeddings,
        num_layers=len(decoder.layers),
        num_heads=decoder.num_heads,
        num_kv_heads=attention.num_kv_heads,
        norm_eps=decoder.norm.eps,
        rope_base=attention.pos_embeddings.base,
        rope_scaling=hasattr(attention.pos_embeddings, "scale_factor"),
    )


def head_sizes(decoder: TransformerDecoder) -> dict[str, int]:
    """Return what torchtune's converters ask for, to put q and k rows into the other order."""
    return {
        "num_heads": decoder.num_heads,
        "num_kv_heads": decoder.layers[0].attn.num_kv_heads,
        "dim": decoder.tok_embeddings.embedding_dim,
        "head_dim": decoder.head_dim,
    }


def compare_facts(decoder: TransformerDecoder, checkpoint: ModelFacts) -> list[str]:
    """Return one sentence for each number in which the checkpoint contradicts the decoder."""
    model = facts_of_decoder(decoder)
    problems = []
    for field in fields(ModelFacts):
        here, there = getattr(model, field.name), getattr(checkpoint, field.name)
        # Files hold these numbers in fp32.
        if there is not None and not math.isclose(here, there, rel_tol=1e-5):
            problems.append(
                f"its config says {field.name} {there} and the model has {here}: choose the "
                "model._component_ that the weights were made for"
            )
    return problems
