"""Names of a Llama model's tensors in torchtune, in Hugging Face folders and in GGUF files."""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Literal

Format = Literal["hf", "gguf"]

_NAMES = {
    # torchtune: (Hugging Face, GGUF); {} is the layer
    "tok_embeddings.weight": ("model.embed_tokens.weight", "token_embd.weight"),
    "norm.scale": ("model.norm.weight", "output_norm.weight"),
    "output.weight": ("lm_head.weight", "output.weight"),
    "sa_norm.scale": ("model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"),
    "attn.q_proj.weight": ("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"),
    "attn.k_proj.weight": ("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"),
    "attn.v_proj.weight": ("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"),
    "attn.output_proj.weight": (
        "model.layers.{}.self_attn.o_proj.weight",
        "blk.{}.attn_output.weight",
    ),
    "mlp_norm.scale": ("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"),
    "mlp.w1.weight": ("model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"),
    "mlp.w2.weight": ("model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"),
    "mlp.w3.weight": ("model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"),
}
_LAYER = re.compile(r"^layers\.(\d+)\.(.+)$")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def checkpoint_name(name: str, form: Format) -> str:
    """Return what a checkpoint calls the torchtune parameter ``name``.

    Args:
        name: Full torchtune name of a base parameter, such as ``layers.3.mlp.w1.weight``.
        form: Which checkpoint format.
    """
    match = _LAYER.match(name)
    layer, key = match.groups() if match else ("", name)
    return _NAMES[key][0 if form == "hf" else 1].format(layer)


def shorten_names(names: Iterable[str]) -> str:
    """Join names into one line that still names every one of them.

    Names that differ in the layer number alone become one: ``model.layers.[0-3,7].mlp...``.
    """
    layers: dict[str, list[int]] = {}
    for name in names:
        numbers = layers.setdefault(_NUMBER.sub("{}", name, count=1), [])
        match = _NUMBER.search(name)
        if match:
            numbers.append(int(match.group()))
    return ", ".join(
        pattern.replace("{}", _ranges(sorted(set(numbers)))) for pattern, numbers in layers.items()
    )


def compare_shapes(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Return a sentence for missing tensors, one for unexpected ones and one a wrong shape.

    Args:
        found: Shape of each tensor in a file.
        expected: Shape of each tensor that the model needs, by the same names.
    """
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    problems = []
    if missing:
        problems.append(f"tensors that the model needs are missing: {shorten_names(missing)}")
    if unexpected:
        problems.append(f"tensors that the model has no place for: {shorten_names(unexpected)}")
    misshapen: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, here in expected.items():
        there = found.get(name, here)
        if there != here:
            misshapen.setdefault((there, here), []).append(name)
    problems += [
        f"tensors of shape {list(there)} where the model has {list(here)}: {shorten_names(names)}"
        for (there, here), names in misshapen.items()
    ]
    return problems


def _ranges(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return "[" + ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs) + "]"
