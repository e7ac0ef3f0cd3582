"""Adapters: what trains, and reading and writing them in PEFT's format.

``save_adapter(decoder, folder, base_model=...)`` writes what ``peft``, ``transformers`` and vLLM
load: ``adapter_model.safetensors``, a complete ``adapter_config.json`` and a model card.
(vLLM refuses DoRA; give it the merged model of ``merge.py``.) ``load_adapter(decoder, folder)`` is
its inverse, bit for bit. The settings are read off the modules themselves, so the file says what
was trained and not what a config said.

Rotary layout: PEFT's adapters belong to Hugging Face's order of q and k rows (see ``weights.py``),
so the rows of their B matrices and magnitudes are permuted on the way out and back on the way in.
(torchtune's ``tune_to_peft_adapter_weights`` leaves the magnitudes as they are.)
"""

import custom_components.compat  # noqa: F401

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import get_adapter_params, set_trainable_params

from custom_components.errors import UserError
from custom_components.files import write_atomically
from custom_components.models.lora_settings import LoraSettings, name_method, read_lora_settings
from custom_components.models.nf4 import has_nf4
from custom_components.models.safetensors_folder import read_json
from custom_components.models.tensor_names import checkpoint_name, compare_shapes
from custom_components.observability.console import get_logger

WEIGHTS_NAME = "adapter_model.safetensors"
CONFIG_NAME = "adapter_config.json"
_KEY = "adapter_path"
_PEFT_LEAVES = {
    "lora_a.weight": "lora_A.weight",
    "lora_b.weight": "lora_B.weight",
    "magnitude": "lora_magnitude_vector",
}
"""PEFT's name of each parameter of an adapted module."""

_UNSUPPORTED = (
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layer_replication",
    "alora_invocation_tokens",
    "use_qalora",
)
"""What changes the model in ways that the tensors' names do not show."""

_CHANGED_BASE = ("pissa", "olora", "corda", "loftq")
"""Beginnings of ``init_lora_weights`` that also change the base weights (PEFT's documentation)."""


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
        decoder: The trained model.
        folder: Created if needed.
        base_model: What the adapter belongs to: a hub name or a folder, as ``peft`` shows it.
        parameters: Whole tensors to write in place of the decoder's own adapters, such as their
            fp32 masters; needed where the decoder's own are shards.

    Raises:
        ValueError: If the modules differ in their settings.
    """
    settings = read_lora_settings(decoder)
    tensors = {
        _peft_key(name): _reorder_rows(decoder, name, values.detach().cpu(), to="peft").contiguous()
        for name, values in (parameters or adapter_parameters(decoder)).items()
    }
    card = _render_card(settings, base_model, quantized=has_nf4(decoder))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / WEIGHTS_NAME, save(tensors, metadata={"format": "pt"}))
    config = json.dumps(_build_config(settings, base_model), indent=2) + "\n"
    write_atomically(folder / CONFIG_NAME, config)
    write_atomically(folder / "README.md", card)


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
        "use_dora": settings.use_dora,
        "use_rslora": settings.use_rslora,
    }


def _render_card(settings: LoraSettings, base_model: str, *, quantized: bool) -> str:
    method = name_method(settings, quantized=quantized)
    return f"""---
base_model: {json.dumps(base_model)}
library_name: peft
tags: {json.dumps(method.lower().split(" + "))}
---
# {method} adapter for {base_model}

Rank {settings.rank}, alpha {settings.alpha:g}, dropout {settings.dropout:g}, on
{", ".join(settings.targets)}. Trained with tunepack.
{_QUANTIZED_NOTE if quantized else ""}
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained({json.dumps(base_model)})
model = PeftModel.from_pretrained(model, "path/of/this/folder")
```
"""


_QUANTIZED_NOTE = """
It was trained on the base model in NF4 and belongs to the weights that NF4 gives back, not to the
published ones: on the plain base model, as below, it works only approximately. The exact model is
the merged one, `export/merged` of its run, up to one rounding to the run's dtype: trained with
`export_merged=true` it is there already, `make export ADAPTER=runs/NAME/export/adapter` makes it
later.
"""


# ---------------------------------------------------------------------------------------------
# Loading
# ---------------------------------------------------------------------------------------------


@torch.no_grad()
def load_adapter(decoder: TransformerDecoder, folder: Path | str) -> None:
    """Copy a PEFT adapter into the decoder's adapters, which are whole on this rank.

    Args:
        decoder: The model, its adapters materialised.
        folder: See ``read_adapter``.

    Raises:
        UserError: See ``read_adapter``. The decoder is then unchanged.
    """
    values = read_adapter(decoder, folder)
    for name, parameter in adapter_parameters(decoder).items():
        parameter.copy_(values[name])


def read_adapter(decoder: TransformerDecoder, folder: Path | str) -> dict[str, torch.Tensor]:
    """Return a PEFT adapter's whole tensors by the decoder's names, in torchtune's layout.

    The adapter must fit the model exactly. Only its dropout may differ, because it takes no part in
    what the adapter computes: the model's own value stays, and a line says so.

    Args:
        decoder: The model; it may be on the meta device or sharded.
        folder: Holds ``adapter_config.json`` and ``adapter_model.safetensors``.

    Raises:
        UserError: Listing everything that does not fit.
    """
    tensors, dropout = _read_fitting(decoder, Path(folder).expanduser())
    trained_with = read_lora_settings(decoder).dropout
    if dropout != trained_with:
        get_logger().info(
            "%s: the adapter was trained with dropout %s; this run uses model.lora_dropout %s",
            _KEY,
            dropout,
            trained_with,
        )
    return {
        name: _reorder_rows(decoder, name, values, to="torchtune")
        for name, values in tensors.items()
    }


def check_adapter(decoder: TransformerDecoder, folder: Path | str) -> list[str]:
    """Return one sentence for each thing that keeps an adapter from fitting the decoder.

    Args:
        decoder: The model, which may be on the meta device.
        folder: See ``read_adapter``.
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
    config, tensors = _read_files(folder)
    names = {_peft_key(name): name for name in parameters}
    problems = _compare_config(config, read_lora_settings(decoder))
    if not names.keys() & tensors.keys():
        problems.append("none of its tensors belongs to an adapter of this model")
    problems += [
        f"{key} holds numbers that are not finite, or no floating-point numbers"
        for key, tensor in tensors.items()
        if not tensor.is_floating_point() or not tensor.isfinite().all()
    ][:3]
    if any(".base_layer." in key for key in tensors):
        problems.append("it holds base weights too: save it with save_embedding_layers=False")
    problems += compare_shapes(
        {key: tuple(tensor.shape) for key, tensor in tensors.items()},
        {key: tuple(parameters[name].shape) for key, name in names.items()},
    )
    if problems:
        raise UserError(*(f"{_KEY}: {folder}: {problem}" for problem in problems))
    return {name: tensors[key] for key, name in names.items()}, config.get("lora_dropout") or 0.0


def _read_files(folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
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
    for key, argument, there, here in (
        ("r", "model.lora_rank", config.get("r"), settings.rank),
        ("lora_alpha", "model.lora_alpha", config.get("lora_alpha"), settings.alpha),
        ("use_dora", "model.use_dora", bool(config.get("use_dora")), settings.use_dora),
        ("use_rslora", "use_rslora", bool(config.get("use_rslora")), settings.use_rslora),
    ):
        if there != here:
            problems.append(
                f"{key} is {_as_yaml(there)} and the config's {argument} is {_as_yaml(here)}: "
                f"set {argument} to the adapter's value"
            )
    problems += [f"{key} is set, which is not supported" for key in _UNSUPPORTED if config.get(key)]
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGED_BASE):
        problems.append(
            f"init_lora_weights is {start!r}: PEFT changed the base weights too; convert the "
            "adapter to LoRA when saving it (path_initial_model_for_weight_conversion)"
        )
    if config.get("bias", "none") != "none":
        problems.append(f"bias is {config['bias']!r} and only 'none' can be loaded")
    return problems


def _as_yaml(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


# ---------------------------------------------------------------------------------------------
# PEFT's names and layout
# ---------------------------------------------------------------------------------------------


def _peft_key(name: str) -> str:
    """Return PEFT's name of an adapter parameter."""
    module, leaf = _split_name(name)
    weight = checkpoint_name(f"{module}.weight", "hf")
    return f"base_model.model.{weight.removesuffix('weight')}{_PEFT_LEAVES[leaf]}"


def _split_name(name: str) -> tuple[str, str]:
    """Split an adapter parameter's name into its adapted module's and the rest."""
    leaf = next(leaf for leaf in _PEFT_LEAVES if name.endswith(f".{leaf}"))
    return name.removesuffix(f".{leaf}"), leaf


def _reorder_rows(
    decoder: TransformerDecoder,
    name: str,
    values: torch.Tensor,
    *,
    to: Literal["peft", "torchtune"],
) -> torch.Tensor:
    """Return an adapter parameter with its rows in the other library's order.

    The rows of a q or k head are rotated in pairs: torchtune's pairs are neighbours, PEFT's lie
    half a head apart.
    """
    module, leaf = _split_name(name)
    projection = module.rpartition(".")[2]
    if projection not in ("q_proj", "k_proj") or leaf == "lora_a.weight":
        return values
    attention = decoder.layers[0].attn
    num_heads = attention.num_heads if projection == "q_proj" else attention.num_kv_heads
    num_pairs = decoder.head_dim // 2
    pairs = (num_pairs, 2) if to == "peft" else (2, num_pairs)
    return values.reshape(num_heads, *pairs, -1).transpose(1, 2).reshape(values.shape)
