"""Everything about a run that can be checked without a GPU, a download or a loaded weight.

``tune run`` calls this once, before any worker starts, and prints all that it returns together.
"""

import custom_components.compat  # noqa: F401

import inspect
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torchtune.data import Message
from torchtune.modules import TransformerDecoder
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import instantiate
from custom_components.config import check_options
from custom_components.datasets.builders import BUILDERS
from custom_components.datasets.sources import find_source_problems
from custom_components.errors import UserError
from custom_components.inference.eval_models import find_model_problems
from custom_components.models.adapters import check_adapter
from custom_components.models.lora_arguments import check_lora_arguments
from custom_components.models.lora_settings import apply_rslora
from custom_components.models.merge import check_room
from custom_components.models.nf4 import check_nf4
from custom_components.models.tokenizer_checks import check_token_ids
from custom_components.models.weights import check_checkpoint, check_weights
from custom_components.observability.wandb_view import choose_mode, has_wandb_key
from custom_components.options import (
    RECIPE_OPTIONS,
    DataOptions,
    EvalOptions,
    FinetuneOptions,
    LoraOptions,
)
from custom_components.signatures import check_component
from custom_components.training.monitor import find_monitor_problems

MIN_FREE_BYTES = 1024**3
"""Room for records and an adapter."""

UNFIT_OPTIMIZERS = (torch.optim.LBFGS, torch.optim.SparseAdam)
"""Optimizers that cannot take a step of the loop."""

WHOLE_MATRIX_OPTIMIZERS = (torch.optim.Adafactor, torch.optim.Muon)
"""Optimizers for which a shard of a matrix is not a smaller matrix."""

MAX_NAME_BYTES = 200
"""Longest name of a run: file systems take 255, and W&B adds to it."""

Options = FinetuneOptions | EvalOptions

_TOKENIZER_FILES = ("path", "merges_file")


def check_config(
    recipe: str,
    cfg: DictConfig,
    *,
    nproc_per_node: int,
    num_nodes: int = 1,
    run_name: str | None = None,
) -> list[str]:
    """Return all problems of a config of one of the pack's recipes and of the run it asks for.

    Args:
        recipe: Name of the recipe.
        cfg: Its config.
        nproc_per_node: Processes that will run on this machine.
        num_nodes: Machines, each with as many.
        run_name: Name of the run if its folder must be new.
    """
    cls: type[Options] = RECIPE_OPTIONS[recipe]
    options, problems = check_options(cls, cfg)
    if options is not None:
        problems += check_run(
            options, nproc_per_node=nproc_per_node, num_nodes=num_nodes, run_name=run_name
        )
    return list(dict.fromkeys(problems))


def check_run(
    options: Options, *, nproc_per_node: int, num_nodes: int = 1, run_name: str | None = None
) -> list[str]:
    """Return one sentence for everything that keeps this run from starting.

    Args:
        options: The recipe's options.
        nproc_per_node: Processes that will run on this machine.
        num_nodes: Machines, each with as many.
        run_name: Name of the run if its folder must be new.
    """
    if isinstance(options, DataOptions):
        return _check_audit(options, run_name)
    is_shared = isinstance(options, FinetuneOptions) and options.data_parallel == "shard"
    num_shards = nproc_per_node * num_nodes if is_shared else 1
    problems = _check_device(options.device, nproc_per_node)
    problems += _check_model(options, num_shards)
    problems += _check_optimizer(options, num_shards)
    problems += _check_datasets(options)
    if isinstance(options, FinetuneOptions):
        problems += _check_loading(options)
        if options.epochs is options.max_steps is None:
            problems.append("epochs and max_steps are both null: set one, such as epochs=1")
    problems += _check_output(Path(options.output_dir).expanduser(), run_name)
    if choose_mode(options.wandb) == "online" and not has_wandb_key():
        problems.append(
            "W&B is to be online (wandb.mode or WANDB_MODE) and no key was found: run "
            "`wandb login`, set WANDB_API_KEY, or override wandb.mode=offline"
        )
    return problems


def _check_audit(options: DataOptions, run_name: str | None) -> list[str]:
    """Check what an audit needs: it has no model and no device."""
    problems = _check_tokenizer(options.tokenizer)[1] + _check_datasets(options)
    return problems + _check_output(Path(options.output_dir).expanduser(), run_name)


def _check_device(device: str, nproc_per_node: int) -> list[str]:
    if device != "cuda":
        return []
    if not torch.cuda.is_available():
        return [
            "device is cuda and this machine has no CUDA device; on a CPU override "
            "device=cpu dtype=fp32 (and choose a small model)"
        ]
    num_gpus = torch.cuda.device_count()
    if num_gpus < nproc_per_node:
        return [
            f"{nproc_per_node} processes on this machine and {num_gpus} visible GPUs: "
            f"run with --nproc_per_node {num_gpus}"
        ]
    return []


def _check_model(options: Options, num_shards: int) -> list[str]:
    """Check model, weights, tokenizer and adapters, and that they fit each other.

    The model is built without memory: what builders and headers say themselves is the best check.
    """
    problems = _check_lora(options.model)
    decoder = None
    if not problems:
        with torch.device("meta"):
            decoder, problems = _try_to_build("model", options.model)
    if isinstance(decoder, TransformerDecoder):
        problems += _check_decoder(options, decoder, num_shards)
    else:
        if decoder is not None:
            problems.append(f"model: it builds a {type(decoder).__name__}, not a torchtune decoder")
        decoder = None
        problems += check_checkpoint(options.checkpoint_dir)
    tokenizer, more = _check_tokenizer(options.tokenizer)
    problems += more
    if decoder is not None and tokenizer is not None:
        problems += _check_tokenizer_fits(tokenizer, decoder)
    return problems + _check_adapters(options, decoder)


def _check_decoder(options: Options, decoder: TransformerDecoder, num_shards: int) -> list[str]:
    if isinstance(options, LoraOptions | EvalOptions) and options.use_rslora:
        apply_rslora(decoder)
    problems = check_weights(decoder, options.checkpoint_dir)
    problems += _problems_of(lambda: check_nf4(decoder, num_shards=num_shards))
    problems += _check_export(options, decoder)
    problems += _check_context("dataset", options.dataset, decoder)
    if isinstance(options, FinetuneOptions) and options.dataset_val is not None:
        problems += _check_context("dataset_val", options.dataset_val, decoder)
    return problems


def _check_export(options: Options, decoder: TransformerDecoder) -> list[str]:
    """Look for room for the merged model, which is written at the end of the run."""
    if not isinstance(options, LoraOptions) or not options.export_merged:
        return []
    problems = check_room(
        decoder, Path(options.output_dir).expanduser(), dtype=PRECISION_STR_TO_DTYPE[options.dtype]
    )
    return [f"export_merged: {problem}" for problem in problems]


def _check_context(key: str, dataset: dict[str, Any], decoder: TransformerDecoder) -> list[str]:
    max_seq_len = dataset.get("max_seq_len")
    if not isinstance(max_seq_len, int) or max_seq_len <= decoder.max_seq_len:
        return []
    return [f"{key}.max_seq_len: {max_seq_len} given, the model takes {decoder.max_seq_len} tokens"]


def _check_tokenizer_fits(tokenizer: Any, decoder: TransformerDecoder) -> list[str]:
    """Look at the ids of one short conversation; the data's own come when it is tokenised."""
    if not hasattr(tokenizer, "tokenize_messages"):
        return ["tokenizer: it has no tokenize_messages, which a torchtune model tokenizer has"]
    turns = [Message("user", "This are a test."), Message("assistant", "This is a test.")]
    ids, _ = tokenizer.tokenize_messages(turns)
    return _problems_of(lambda: check_token_ids([tokenizer.pad_id, *ids], decoder))


def _problems_of(check: Callable[[], object]) -> list[str]:
    try:
        check()
    except UserError as error:
        return list(error.problems)
    return []


def _check_tokenizer(tokenizer: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return one of the pack's tokenizers, which are quick to build, and what is wrong with any."""
    if str(tokenizer.get("_component_")).startswith("custom_components."):
        return _try_to_build("tokenizer", tokenizer)  # they say themselves what is missing
    problems: list[str] = []
    for name in _TOKENIZER_FILES:
        path = tokenizer.get(name)
        if isinstance(path, str) and not Path(path).is_file():
            found = "is a folder" if Path(path).is_dir() else "does not exist"
            problems.append(
                f"tokenizer.{name}: {path} {found}; the file comes with the checkpoint, "
                f"see `tune download` there, or override tokenizer.{name}=FILE"
            )
    return None, problems


def _check_optimizer(options: Options, num_shards: int) -> list[str]:
    """Build optimizer and schedule on four numbers."""
    if not isinstance(options, FinetuneOptions):
        return []
    numbers = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer, problems = _try_to_build("optimizer", options.optimizer, [numbers])
    if optimizer is None:
        return problems
    name = options.optimizer["_component_"]
    if isinstance(optimizer, UNFIT_OPTIMIZERS):
        problems.append(
            f"optimizer: {name} needs a closure or sparse gradients, which the loop does not have: "
            "choose another such as torch.optim.AdamW"
        )
    if num_shards > 1 and isinstance(optimizer, WHOLE_MATRIX_OPTIMIZERS):
        problems.append(
            f"optimizer: {name} looks at whole matrices and data_parallel=shard splits them: set "
            "data_parallel=replicate, or choose another such as torch.optim.AdamW"
        )
    # The real number of steps depends on the data, but max_steps is never exceeded.
    steps = {"num_training_steps": options.max_steps or 10**9}
    problems += _try_to_build("lr_scheduler", options.lr_scheduler, optimizer, **steps)[1]
    return problems


def _check_lora(model: dict[str, Any]) -> list[str]:
    """Refuse for torchtune's builders too what the pack's own refuse."""
    names = inspect.signature(check_lora_arguments).parameters
    if "lora_attn_modules" not in model or check_component("model", model, places=()):
        return []  # not LoRA, or reported with the config
    arguments = {name: model[name] for name in names if name in model}
    return _problems_of(lambda: check_lora_arguments(**arguments))


def _try_to_build(
    key: str, node: dict[str, Any], *args: Any, **kwargs: Any
) -> tuple[Any, list[str]]:
    """Return the component, or None and why it cannot be built."""
    if "_component_" not in node or check_component(key, node, places=()):
        return None, []  # reported with the config
    try:
        return instantiate(node, *args, **kwargs), []
    except UserError as error:
        return None, list(error.problems)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return None, [f"{key}: {node['_component_']} refuses its arguments: {reason}"]


def _check_adapters(options: Options, decoder: TransformerDecoder | None) -> list[str]:
    if isinstance(options, EvalOptions):
        return find_model_problems(options)
    path = getattr(options, "adapter_path", None)
    if path is None:
        return []
    if decoder is not None:
        return check_adapter(decoder, path)
    if not Path(path, "adapter_config.json").is_file():
        return [f"adapter_path: {path} is not a PEFT adapter: no adapter_config.json in it"]
    return []


def _check_datasets(options: Options) -> list[str]:
    """Look at the first rows of every data set; nothing is tokenised or downloaded."""
    nodes = {"dataset": options.dataset}
    if isinstance(options, FinetuneOptions) and options.dataset_val is not None:
        nodes["dataset_val"] = options.dataset_val
    problems = []
    for key, node in nodes.items():
        defaults = BUILDERS.get(str(node.get("_component_")))
        if defaults is None or check_component(key, node, places=()):
            continue  # another's, or reported with the config
        arguments = {name: value for name, value in node.items() if name != "_component_"}
        problems += find_source_problems(**{**defaults, **arguments, "key": key})
    return problems


def _check_loading(options: FinetuneOptions) -> list[str]:
    """Check what data loading and validation say against each other."""
    problems, loader = [], options.dataloader
    if options.packed and options.group_by_length:
        problems.append(
            "group_by_length: packed rows have no padding to save: set it or packed to false"
        )
    for name in ("prefetch_factor", "persistent_workers"):
        if getattr(loader, name) and not loader.num_workers:
            problems.append(
                f"dataloader.{name}: there are no workers: set dataloader.num_workers to 1 or more"
            )
    if loader.pin_memory and options.device != "cuda":
        problems.append("dataloader.pin_memory: only for device=cuda: set it to false")
    return problems + find_monitor_problems(options)


def _check_output(output_dir: Path, run_name: str | None) -> list[str]:
    existing = next(p for p in (output_dir.resolve(), *output_dir.resolve().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return [f"output_dir: {output_dir} cannot be written: override output_dir=FOLDER"]
    problems = []
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < MIN_FREE_BYTES:
        problems.append(
            f"output_dir: {free_bytes / 1024**2:.0f} MiB free at {existing}, at least "
            f"{MIN_FREE_BYTES // 1024**2} are needed: override output_dir=FOLDER"
        )
    if run_name is not None:
        problems += _check_run_name(output_dir, run_name)
    return problems


def _check_run_name(output_dir: Path, run_name: str) -> list[str]:
    is_name = run_name.isprintable() and "/" not in run_name and run_name not in ("", ".", "..")
    if not is_name or len(run_name.encode()) > MAX_NAME_BYTES:
        return [f"run_name: {run_name!r} is not the name of a folder"]
    if (output_dir / run_name).exists():
        return [
            f"run_name: {output_dir / run_name} exists already; choose another name, or "
            "run_name=null for a new one"
        ]
    return []
