"""Merge an adapter into its base model: a Hugging Face folder that needs no PEFT.

Run it on a run's adapter; out comes ``runs/NAME/export/merged``::

    python -m custom_components.models.merge runs/NAME/export/adapter
    python -m custom_components.models.merge runs/NAME/export/adapter checkpoint_dir=/new/place

The model is the one of the run's saved config, whose keys ``key=value`` overrides. Tensors go from
the checkpoint to the export one at a time, so an 8B model is merged in a few GB of memory::

    W' = W + scaling * B @ A                      LoRA, rsLoRA
    W' = magnitude * normalised rows of that      DoRA

computed in fp32 and rounded once to the run's dtype. A QLoRA adapter belongs to the weights that
NF4 gives back: W is what the model computed with, not what the checkpoint holds.
"""

import custom_components.compat  # noqa: F401

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torchtune.models.convert_weights import tune_to_hf
from torchtune.modules import TransformerDecoder
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import allow_components, instantiate
from custom_components.config import load_config, read_options
from custom_components.errors import UserError
from custom_components.launch import report_failure
from custom_components.models.adapters import read_adapter
from custom_components.models.hf_export import stage_folder, write_model_files
from custom_components.models.lora_settings import (
    LORA_LINEAR,
    apply_rslora,
    name_method,
    read_lora_settings,
    scaling_of,
)
from custom_components.models.model_facts import head_sizes
from custom_components.models.nf4 import dequantize_like, has_nf4
from custom_components.models.safetensors_writer import MAX_SHARD_BYTES, TensorPlan, write_weights
from custom_components.models.sources import name_base_model
from custom_components.models.tensor_names import checkpoint_name
from custom_components.models.weights import base_parameters, open_base
from custom_components.observability.console import get_logger
from custom_components.options import LoraOptions


# ---- Merging -------------------------------------------------------------------------------------
@torch.no_grad()
def merge_adapter(
    decoder: TransformerDecoder,
    adapter: Mapping[str, torch.Tensor],
    folder: Path | str,
    *,
    checkpoint_dir: str,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    tokenizer: Any,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write base model plus adapter as a Hugging Face folder, complete or not at all.

    Args:
        decoder: The model. Only its structure is used: it may be on the meta device or sharded.
        adapter: Whole tensors by the decoder's names, as ``read_adapter`` returns them.
        folder: Must not exist.
        checkpoint_dir: The base model, as in a config.
        device: Where NF4 is computed: the run's, because the last bits differ between devices.
        dtype: The run's; the merged weights have it too.
        seed: Of random base weights.
        tokenizer: The run's.
        max_shard_bytes: Of tensors in one file.

    Raises:
        UserError: If the folder exists, the disk is too full, or the base model cannot be read.
    """
    folder = Path(folder)
    base = base_parameters(decoder)
    names = {checkpoint_name(name, "hf"): name for name in base}
    tensors = [TensorPlan(key, tuple(base[name].shape), dtype) for key, name in names.items()]
    if folder.exists():
        raise UserError(f"{folder} exists already: move or delete it, it is never overwritten")
    problems = check_room(decoder, folder, dtype=dtype)
    if problems:
        raise UserError(*problems)
    read = open_base(decoder, checkpoint_dir, seed=seed)

    def merge(key: str) -> torch.Tensor:
        name = names[key]
        weight = dequantize_like(base[name], read(name).to(device, dtype)).cpu()
        return _to_hf(decoder, name, _add_adapter(decoder, name, weight, adapter))

    card = _render_card(decoder, name_base_model(checkpoint_dir))
    try:
        with stage_folder(folder) as staging:
            write_weights(staging, tensors, merge, max_shard_bytes=max_shard_bytes)
            write_model_files(
                staging, decoder, checkpoint_dir=checkpoint_dir, dtype=dtype, tokenizer=tokenizer
            )
            (staging / "README.md").write_text(card, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{folder}: the merged model could not be written ({error}): the adapter is complete; "
            "make room and run `make export ADAPTER=runs/NAME/export/adapter`"
        ) from error


def check_room(decoder: TransformerDecoder, folder: Path, *, dtype: torch.dtype) -> list[str]:
    """Say in one sentence if the disk has no room for a merged model.

    Args:
        decoder: The model, on any device.
        folder: Where it is to be.
        dtype: Of its weights.
    """
    num_needed = sum(p.numel() for p in base_parameters(decoder).values()) * dtype.itemsize
    path = folder.resolve()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    num_free = shutil.disk_usage(existing).free
    if num_free < num_needed:
        return [
            f"{folder}: the merged model takes {num_needed / 1e9:.1f} GB and {existing} has "
            f"{num_free / 1e9:.1f} GB free: make room there"
        ]
    return []


def _add_adapter(
    decoder: TransformerDecoder,
    name: str,
    weight: torch.Tensor,
    adapter: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """Return a base weight with its adapter, if it has one, merged into it."""
    path = name.rpartition(".")[0]
    module = decoder.get_submodule(path)
    if not isinstance(module, LORA_LINEAR):
        return weight
    a, b = (adapter[f"{path}.{matrix}.weight"].detach().cpu() for matrix in ("lora_a", "lora_b"))
    merged = torch.addmm(weight.float(), b.float(), a.float(), alpha=scaling_of(module))
    if f"{path}.magnitude" in adapter:
        magnitude = adapter[f"{path}.magnitude"].detach().cpu().float()
        # Norms rounded as the module rounds them: an untrained adapter changes nothing.
        norms = torch.linalg.norm(merged, dim=1).to(weight.dtype).float()
        merged *= (magnitude / norms).unsqueeze(1)
    return merged.to(weight.dtype)


def _to_hf(decoder: TransformerDecoder, name: str, weight: torch.Tensor) -> torch.Tensor:
    (values,) = tune_to_hf({name: weight}, **head_sizes(decoder)).values()
    assert isinstance(values, torch.Tensor)
    return values


def _render_card(decoder: TransformerDecoder, base_model: str) -> str:
    settings = read_lora_settings(decoder)
    quantized = has_nf4(decoder)
    method = name_method(settings, quantized=quantized)
    base = "the base model's weights as NF4 gives them back" if quantized else "the base model"
    return f"""---
base_model: {json.dumps(base_model)}
library_name: transformers
---
# {base_model}, fine-tuned

A {method} adapter of rank {settings.rank}, alpha {settings.alpha:g}, on
{", ".join(settings.targets)}, merged into {base}. Trained and merged with tunepack.

```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("path/of/this/folder", dtype="auto")
```
"""


# ---- Command line --------------------------------------------------------------------------------
def main(words: Sequence[str] | None = None) -> int:
    """Merge a run's adapter and return the exit code.

    Args:
        words: The command line without the program's name; by default this process's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m custom_components.models.merge", allow_abbrev=False
    )
    parser.add_argument("adapter", metavar="ADAPTER", help="a run's export/adapter")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="of the run's config"
    )
    parser.add_argument("--allow-component", action="append", default=[], metavar="PKG")
    arguments = parser.parse_intermixed_args(words)
    try:
        with allow_components(arguments.allow_component):
            export_merged(Path(arguments.adapter), arguments.overrides)
    except BaseException as error:
        return report_failure(error)
    return 0


def export_merged(adapter: Path, overrides: Sequence[str] = ()) -> None:
    """Merge a run's adapter into ``merged`` beside it and say where that is.

    Args:
        adapter: ``runs/NAME/export/adapter``.
        overrides: ``key=value`` for the run's config.

    Raises:
        UserError: If this is no run's adapter, or as ``merge_adapter`` says.
    """
    adapter = adapter.expanduser().absolute()
    config = adapter.parent.parent / "config.yaml"
    if not config.is_file():
        raise UserError(
            f"ADAPTER: {adapter} is not a run's adapter, there is no {config}: give "
            "runs/NAME/export/adapter"
        )
    options = read_options(LoraOptions, load_config(config, overrides))
    device = torch.device(options.device if torch.cuda.is_available() else "cpu")
    folder = adapter.with_name("merged")
    started = time.perf_counter()
    with torch.device("meta"):
        decoder = instantiate(options.model)
    if options.use_rslora:
        apply_rslora(decoder)
    if has_nf4(decoder) and device.type != options.device:
        get_logger().info(
            "NF4 is computed on the %s, the run did it on %s: a few numbers may differ by rounding",
            device,
            options.device,
        )
    merge_adapter(
        decoder,
        read_adapter(decoder, adapter),
        folder,
        checkpoint_dir=options.checkpoint_dir,
        device=device,
        dtype=PRECISION_STR_TO_DTYPE[options.dtype],
        seed=options.seed,
        tokenizer=instantiate(options.tokenizer),
    )
    num_bytes = sum(file.stat().st_size for file in folder.iterdir())
    get_logger().info(
        "merged model: %s (%s MB, %.0f s)",
        folder,
        f"{num_bytes / 1e6:,.0f}",
        time.perf_counter() - started,
    )


if __name__ == "__main__":
    sys.exit(main())
