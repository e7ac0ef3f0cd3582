"""The README's 4-GPU command on four real CPU processes, everything through ``tune run``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from custom_components.observability.records import read_metrics
from tests.lora_runs import ON_CPU, write_pairs

ROOT = Path(__file__).parent.parent.parent
LITERAL = "run --nproc_per_node 4 custom_lora configs/llama3_8b_grammar.yaml".split()
WITHOUT_KEY = {
    **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
    "NETRC": "/nonexistent",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess, Path]:
    folder = tmp_path_factory.mktemp("four")
    source = write_pairs(folder / "pairs.jsonl", 21)
    overrides = [word for word in ON_CPU if not word.startswith("wandb.")]
    process = subprocess.run(
        [
            Path(sys.executable).parent / "tune", *LITERAL, *overrides, f"dataset.source={source}",
            f"output_dir={folder}", "run_name=four", "batch_size=2", "optimizer.lr=0.02",
            "lr_scheduler.num_warmup_steps=1", "epochs=4",
        ],
        cwd=ROOT, env=WITHOUT_KEY, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return process, folder / "four"


def test_it_trains_and_exports(run) -> None:
    """Stock torchtune's distributed recipes refuse a CPU."""
    process, run_dir = run
    assert process.returncode == 0, process.stderr
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["global_step"] == 4 * 3  # 21 rows in windows of 8: two full ones and one of 5
    losses = [line["train/loss"] for line in read_metrics(run_dir)]
    assert losses[0] - losses[-1] > 0.3
    assert {f.name for f in (run_dir / "export" / "adapter").iterdir()} >= {
        "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip


def test_every_metric_is_a_plain_number(run) -> None:
    """Torchtune logs tensors, and counts saving into the first step after an epoch."""
    _, run_dir = run
    for line in read_metrics(run_dir):
        assert all(type(value) in (int, float) for value in line.values())
        assert line["perf/data_time_s"] <= line["perf/step_time_s"]


def test_without_a_key_it_runs_offline_and_says_once_how_to_sync(run) -> None:
    """Without key and terminal stock W&B raises on one rank and the others hang (wandb#960)."""
    process, run_dir = run
    assert process.stdout.count("wandb sync") == 1
    assert len(list((run_dir / "wandb").glob("offline-run-*"))) == 1


def test_the_terminal_shows_each_line_once_and_no_noise(run) -> None:
    process, _ = run
    assert process.stderr == ""
    steps = [line for line in process.stdout.splitlines() if line.startswith("step ")]
    assert len(steps) == 12
