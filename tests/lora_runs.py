"""Run the LoRA recipe inside a test's ranks, on the tiny model and a JSONL file."""

import json
import os
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from custom_components.config import load_config
from custom_components.observability.records import read_metrics

ROOT = Path(__file__).parent.parent
ON_CPU = [
    "model._component_=custom_components.models.tiny.tiny_lora_llama3_8b",
    "model.apply_lora_to_mlp=true",
    "tokenizer._component_=custom_components.models.byte_tokenizer.byte_tokenizer",
    "tokenizer.path=null",
    "checkpoint_dir=random",
    "dataset_val=null",
    "device=cpu",
    "dtype=fp32",
    "log_every_n_steps=1",
    "wandb.mode=disabled",
]
"""Overrides that take the 8B config to a CPU, without validation; all else stays."""


def write_pairs(path: Path, num_rows: int, *, seed: int = 0) -> Path:
    """Write grammar-like pairs of very unequal lengths."""
    rng = random.Random(seed)
    words = "the cat dog sat ran on a mat to home in rain and slept well today".split()
    with path.open("w") as file:
        for _ in range(num_rows):
            sentence = " ".join(rng.choices(words, k=rng.choice([1, 2, 4, 9, 14])))
            file.write(
                json.dumps({"input": sentence, "output": sentence.capitalize() + "."}) + "\n"
            )
    return path


def run_lora(output_dir: str, run_name: str, overrides: list[str]) -> None:
    """Run the recipe's main on this rank."""
    import custom_lora

    config = load_config(
        ROOT / "configs" / "llama3_8b_grammar.yaml",
        [*ON_CPU, f"output_dir={output_dir}", f"run_name={run_name}", *overrides],
    )
    custom_lora.main(config)


def run_loras(output_dir: str, runs: dict[str, list[str]], ports: list[int]) -> None:
    """Run several configs one after the other on these ranks, each on a port of its own."""
    for (name, overrides), port in zip(runs.items(), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        run_lora(output_dir, name, overrides)


def run_lora_without_gradient_sum(output_dir: str, run_name: str, overrides: list[str]) -> None:
    """The same with gradients left unsummed: the control that every equality test must notice.

    The loss is summed all the same, so only the weights can give the control away.
    """
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

    from custom_components.training.distributed import World

    original = World.sum

    def sum_all_but_gradients(self: World, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() and len(tensor) > 2:  # the buffer, whose last is the loss
            original(self, tensor[-1:])
            return tensor
        return original(self, tensor)

    def keep_own_part(
        self: Any, output_tensor: Any, input_tensor: Any, group: Any, **_: Any
    ) -> None:
        output_tensor.copy_(input_tensor.view(group.size(), -1)[group.rank()])

    World.sum = sum_all_but_gradients
    DefaultReduceScatter.__call__ = keep_own_part
    run_lora(output_dir, run_name, overrides)


def read_losses(run_dir: Path) -> list[float]:
    return [line["train/loss"] for line in read_metrics(run_dir) if "train/loss" in line]


def read_adapter(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "export" / "adapter" / "adapter_model.safetensors")


def relative_distance(left: dict[str, Any], right: dict[str, Any]) -> float:
    """Largest relative 2-norm distance between tensors of the same name."""
    assert left.keys() == right.keys()
    return max(float((left[k] - right[k]).norm() / right[k].norm().clamp_min(1e-12)) for k in right)
