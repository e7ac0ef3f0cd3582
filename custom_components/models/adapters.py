"""LoRA adapters: what trains, and reading and writing them in PEFT's format.

``save_adapter(decoder, folder, base_model=...)`` writes what ``peft``, ``transformers`` and vLLM
load: ``adapter_model.safetensors``, a complete ``adapter_config.json`` and a model card.
``load_adapter(decoder, folder)`` is its inverse, bit for bit. Rank, alpha, dropout and targets are
read off the modules themselves, so the file says what was trained and not what a config said.

Rotary layout: PEFT's adapters belong to Hugging Face's order of q and k rows (see ``weights.py``),
so the rows of their B matrices are permuted on the way out and back on the way in.
"""

import custom_components.compat  # noqa: F401

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from torchtune.models.convert_weights import tune_to_peft_adapter_weights
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import LoRALinear, get_adapter_params, set_trainable_params

from custom_components.errors import UserError
from custom_components.files import write_atomically
from custom_components.models.safetensors_folder import read_json
from custom_components.models.tensor_names import compare_shapes
from custom_components.observability.console import get_logger

WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
_KEY = "adapter_path"
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


@dataclass(frozen=True)
class LoraSettings:
    """How a decoder is adapted.

    Args:
        rank: Of every adapter.
        alpha: Adapters are scaled by ``alpha / rank``.
        dropout: On each adapter's input.
        targets: Adapted modules by PEFT's names, sorted.
    """

    rank: int
    alpha: float
    dropout: float
    targets: tuple[str, ...]


def adapter_parameters(decoder: nn.Module) -> dict[str, nn.Parameter]:
    """Return the adapters' parameters by name, in the decoder's order."""
    parameters: dict[str, nn.Parameter] = get_adapter_params(decoder)
    return parameters


def freeze_base(decoder: nn.Module) -> None:
    """Let the adapters train and nothing else.

    Raises:
        UserError: If the decoder has no adapters.
    """
    parameters = adapter_parameters(decoder)
    if not parameters:
        raise UserError("model: it has no LoRA layers to train: choose a lora_* builder")
    set_trainable_params(decoder, parameters)


def read_lora_settings(decoder: TransformerDecoder) -> LoraSettings:
    """Read rank, alpha, dropout and targets off the modules.

    Raises:
        ValueError: If there are no adapters, or the modules or layers differ: PEFT's config holds
            one number for all.
    """
    modules = {n: m for n, m in decoder.named_modules() if isinstance(m, LoRALinear)}
    numbers = {
        (m.rank, float(m.alpha), float(getattr(m.dropout, "p", 0.0))): name
        for name, m in modules.items()
    }
    if len(numbers) != 1:
        raise ValueError(
            "LoRA modules must agree in (rank, alpha, dropout); found, with one module of each: "
            f"{numbers}"
        )
    targets: dict[str, set[str]] = {}
    for name in modules:
        place, _, leaf = name.rpartition(".")
        targets.setdefault(leaf, set()).add(place)
    everywhere = len(decoder.layers)
    if any(len(places) != everywhere for leaf, places in targets.items() if leaf != "output"):
        raise ValueError(f"LoRA must adapt the same modules in every layer; found {targets}")
    ((rank, alpha, dropout),) = numbers
    return LoraSettings(rank, alpha, dropout, tuple(sorted(_PEFT_TARGETS[t] for t in targets)))


# ---------------------------------------------------------------------------------------------
# Saving
# ---------------------------------------------------------------------------------------------


def save_adapter(
    decoder: TransformerDecoder,
    folder: Path | str,
    *,
    base_model: str,
    parameters: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write the adapter in PEFT's format, in the dtype of its parameters.

    Each file appears whole or not at all; a file of that name is replaced.

    Args:
        decoder: The trained model, its adapters whole on this rank.
        folder: Created if needed.
        base_model: What the adapter belongs to: a hub name or a folder, as ``peft`` shows it.
        parameters: What to write in place of the decoder's own adapters: their fp32 masters.

    Raises:
        ValueError: If the modules differ in rank, alpha or dropout.
    """
    settings = read_lora_settings(decoder)
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in (parameters or adapter_parameters(decoder)).items():
        key, tensor = _to_peft(decoder, name, parameter.detach().cpu())
        tensors[key] = tensor.contiguous()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / WEIGHTS_NAME, save(tensors, metadata={"format": "pt"}))
    config = json.dumps(_build_config(settings, base_model), indent=2) + "\n"
    write_atomically(folder / CONFIG_NAME, config)
    write_atomically(folder / "README.md", _render_card(settings, base_model))


def _to_peft(
    decoder: TransformerDecoder, name: str, tensor: torch.Tensor
) -> tuple[str, torch.Tensor]:
    """Return PEFT's key and values of one adapter parameter."""
    converted = tune_to_peft_adapter_weights(
        {name: tensor},
        num_heads=decoder.num_heads,
        num_kv_heads=decoder.layers[0].attn.num_kv_heads,
        dim=decoder.tok_embeddings.embedding_dim,
        head_dim=decoder.head_dim,
    )
    ((key, values),) = converted.items()
    return key, values


def _build_config(settings: LoraSettings, base_model: str) -> dict[str, Any]:
    alpha = settings.alpha
    return {
        "base_model_name_or_path": base_model,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": settings.dropout,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": settings.rank,
        "target_modules": list(settings.targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


def _render_card(settings: LoraSettings, base_model: str) -> str:
    return f"""---
base_model: {json.dumps(base_model)}
library_name: peft
tags: [lora]
---
# LoRA adapter for {base_model}

Rank {settings.rank}, alpha {settings.alpha:g}, dropout {settings.dropout:g}, on
{", ".join(settings.targets)}. Trained with tunepack.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained({json.dumps(base_model)})
model = PeftModel.from_pretrained(model, "path/of/this/folder")
```
"""


# ---------------------------------------------------------------------------------------------
# Loading
# ---------------------------------------------------------------------------------------------


@torch.no_grad()
def load_adapter(
    decoder: TransformerDecoder,
    folder: Path | str,
    *,
    parameters: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Copy a PEFT adapter into the decoder's adapters.

    The adapter must fit the model exactly. Only its dropout may differ, because it takes no part in
    what the adapter computes: the model's own value stays, and a warning says so.

    Args:
        decoder: The model, its adapters materialised.
        folder: Holds ``adapter_config.json`` and ``adapter_model.safetensors``.
        parameters: What to copy into in place of the decoder's own adapters: their fp32 masters.

    Raises:
        UserError: Listing everything that does not fit. The decoder is then unchanged.
    """
    values, dropout = _read_fitting(decoder, Path(folder).expanduser())
    trained_with = read_lora_settings(decoder).dropout
    if dropout != trained_with:
        get_logger().info(
            "%s: the adapter was trained with dropout %s; this run uses model.lora_dropout %s",
            _KEY,
            dropout,
            trained_with,
        )
    for name, parameter in (parameters or adapter_parameters(decoder)).items():
        parameter.copy_(_from_peft(decoder, name, values[name]))


def check_adapter(decoder: TransformerDecoder, folder: Path | str) -> list[str]:
    """Return one sentence for each thing that keeps an adapter from fitting the decoder.

    Args:
        decoder: The model, which may be on the meta device.
        folder: See ``load_adapter``.
    """
    try:
        _read_fitting(decoder, Path(folder).expanduser())
    except UserError as error:
        return list(error.problems)
    return []


def _read_fitting(
    decoder: TransformerDecoder, folder: Path
) -> tuple[dict[str, torch.Tensor], float]:
    """Return an adapter's tensors by the decoder's names, in PEFT's layout, and its dropout."""
    parameters = adapter_parameters(decoder)
    if not parameters:
        raise UserError(f"{_KEY}: the model has no LoRA layers: choose a lora_* builder")
    config, tensors = _read_adapter(folder)
    names = {
        _to_peft(decoder, name, parameter.detach().to("meta"))[0]: name
        for name, parameter in parameters.items()
    }
    settings = read_lora_settings(decoder)
    problems = _compare_config(config, settings)
    if not names.keys() & tensors.keys():
        problems.append("none of its tensors belongs to an adapter of this model")
    problems += [
        f"{key} holds numbers that are not finite, or no floating-point numbers"
        for key, tensor in tensors.items()
        if not tensor.is_floating_point() or not tensor.isfinite().all()
    ][:3]
    problems += compare_shapes(
        {key: tuple(tensor.shape) for key, tensor in tensors.items()},
        {key: tuple(parameters[name].shape) for key, name in names.items()},
    )
    if problems:
        raise UserError(*(f"{_KEY}: {folder}: {problem}" for problem in problems))
    return {name: tensors[key] for key, name in names.items()}, config.get("lora_dropout") or 0.0


def _read_adapter(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    missing = [name for name in (CONFIG_NAME, WEIGHTS_NAME) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{_KEY}: {folder} does not hold {' and '.join(missing)}: give the folder of a PEFT "
            "adapter, such as a run's export/adapter"
        )
    try:
        return read_json(folder / CONFIG_NAME), load_file(folder / WEIGHTS_NAME)
    except SafetensorError as error:
        raise UserError(f"{_KEY}: {folder / WEIGHTS_NAME} cannot be read ({error})") from error
    except UserError as error:
        raise UserError(*(f"{_KEY}: {problem}" for problem in error.problems)) from error


def _compare_config(config: dict[str, Any], settings: LoraSettings) -> list[str]:
    problems = []
    if config.get("peft_type") != "LORA":
        problems.append(f"peft_type is {config.get('peft_type')!r} and only LORA can be loaded")
    for key, argument, here in (
        ("r", "model.lora_rank", settings.rank),
        ("lora_alpha", "model.lora_alpha", settings.alpha),
    ):
        if config.get(key) != here:
            problems.append(
                f"{key} is {config.get(key)} and {argument} is {here:g}: set {argument} to the "
                "adapter's value"
            )
    unsupported = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save")
    problems += [f"{key} is set, which is not supported" for key in unsupported if config.get(key)]
    if config.get("bias", "none") != "none":
        problems.append(f"bias is {config['bias']!r} and only 'none' can be loaded")
    return problems


def _from_peft(decoder: TransformerDecoder, name: str, values: torch.Tensor) -> torch.Tensor:
    """Undo ``_to_peft`` for one tensor: halves of a head back to neighbouring pairs."""
    if name.endswith("q_proj.lora_b.weight"):
        num_heads = decoder.num_heads
    elif name.endswith("k_proj.lora_b.weight"):
        num_heads = decoder.layers[0].attn.num_kv_heads
    else:
        return values
    halves = values.view(num_heads, 2, decoder.head_dim // 2, -1)
    return halves.transpose(1, 2).reshape(values.shape)
