"""How a decoder is adapted, read off its modules: LoRA, DoRA, and rsLoRA's scaling.

torchtune has no rsLoRA; ``apply_rslora(decoder)`` gives its LoRA and DoRA modules the scaling of
https://arxiv.org/abs/2312.03732: ``alpha / sqrt(rank)`` in place of ``alpha / rank``.
"""

import custom_components.compat  # noqa: F401

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import DoRALinear, LoRALinear

LORA_LINEAR = (LoRALinear, DoRALinear)
"""torchtune's modules that hold a base weight and an adapter."""

_PEFT_TARGETS = {
    "q_proj": "q_proj",
    "k_proj": "k_proj",
    "v_proj": "v_proj",
    "output_proj": "o_proj",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "output": "lm_head",
}
"""PEFT's name of each torchtune module that LoRA can adapt."""

_RSLORA_ALPHA = "rslora_alpha"
"""Attribute of a module with rsLoRA's scaling: alpha as the config has it."""


@dataclass(frozen=True)
class LoraSettings:
    """How a decoder is adapted.

    Args:
        rank: Of every adapter.
        alpha: As written in the config.
        dropout: On each adapter's input.
        targets: Adapted modules by PEFT's names, sorted.
        use_dora: Whether the adapters learn a magnitude for each row of the weight.
        use_rslora: Whether the scaling falls with the root of the rank.
    """

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]
    use_dora: bool
    use_rslora: bool

    @property
    def scaling(self) -> float:
        """What the product ``B @ A`` is multiplied by."""
        return self.alpha / (math.sqrt(self.rank) if self.use_rslora else self.rank)


def read_lora_settings(decoder: TransformerDecoder) -> LoraSettings:
    """Read the settings off the modules.

    Raises:
        ValueError: If there are no adapters, or the modules or layers differ: PEFT's config holds
            one number for all.
    """
    modules = _lora_modules(decoder)
    numbers = {
        (
            _rank_of(m),
            _alpha_of(m),
            float(getattr(m.dropout, "p", 0.0)),
            isinstance(m, DoRALinear),
            hasattr(m, _RSLORA_ALPHA),
        ): name
        for name, m in modules.items()
    }
    if len(numbers) != 1:
        raise ValueError(
            "LoRA modules must agree in (rank, alpha, dropout, DoRA, rsLoRA); found, with one "
            f"module of each: {numbers}"
        )
    ((rank, alpha, dropout, use_dora, use_rslora),) = numbers
    return LoraSettings(rank, alpha, dropout, _targets(decoder, modules), use_dora, use_rslora)


def _targets(decoder: TransformerDecoder, modules: Iterable[str]) -> tuple[str, ...]:
    places: dict[str, set[str]] = {}
    for name in modules:
        place, _, leaf = name.rpartition(".")
        places.setdefault(leaf, set()).add(place)
    everywhere = len(decoder.layers)
    if any(len(found) != everywhere for leaf, found in places.items() if leaf != "output"):
        raise ValueError(f"LoRA must adapt the same modules in every layer; found {places}")
    return tuple(sorted(_PEFT_TARGETS[leaf] for leaf in places))


def apply_rslora(decoder: nn.Module) -> None:
    """Scale every adapter by ``alpha / sqrt(rank)``. A second call changes nothing."""
    for module in _lora_modules(decoder).values():
        if hasattr(module, _RSLORA_ALPHA):
            continue
        setattr(module, _RSLORA_ALPHA, _alpha_of(module))
        root = math.sqrt(_rank_of(module))
        if isinstance(module, DoRALinear):
            module.scaling *= root
        else:
            module.alpha *= root  # the module divides it by the rank


def scaling_of(module: Any) -> float:
    """Return what one of ``LORA_LINEAR`` multiplies the product ``B @ A`` by."""
    if isinstance(module, DoRALinear):
        return float(module.scaling)
    return float(module.alpha / module.rank)


def switch_adapters(decoder: nn.Module, *, on: bool) -> None:
    """Let the model compute with its adapters or as the base model."""
    for module in _lora_modules(decoder).values():
        module.disabled = not on


def name_method(settings: LoraSettings, *, quantized: bool) -> str:
    """Return what people call such an adapter, for example ``DoRA + rsLoRA``.

    Args:
        settings: Of the decoder.
        quantized: Whether its base weights are stored in NF4.
    """
    parts = {"DoRA": settings.use_dora, "rsLoRA": settings.use_rslora, "QLoRA": quantized}
    return " + ".join(name for name, on in parts.items() if on) or "LoRA"


def _lora_modules(decoder: nn.Module) -> dict[str, Any]:
    return {n: m for n, m in decoder.named_modules() if isinstance(m, LORA_LINEAR)}


def _rank_of(module: Any) -> int:
    return int(module.lora_a.weight.shape[0])  # a DoRALinear does not keep its rank


def _alpha_of(module: Any) -> float:
    if hasattr(module, _RSLORA_ALPHA):
        return float(getattr(module, _RSLORA_ALPHA))
    if isinstance(module, DoRALinear):
        # It keeps alpha / rank only: its last bit is lost, but nobody writes twelve digits.
        return float(f"{module.scaling * _rank_of(module):.12g}")
    return float(module.alpha)
