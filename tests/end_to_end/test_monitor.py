"""A run whose validation gets worse stops early and exports its best step, on two ranks."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from custom_components.observability.records import read_metrics
from tests.lora_runs import read_adapter, run_lora, write_pairs
from tests.ranks import run_ranks

COMMON = [
    "epochs=null",
    "batch_size=1",
    "packed=true",
    "optimizer.lr=0.02",
    "lr_scheduler.num_warmup_steps=0",
    "lr_scheduler.min_lr_ratio=1.0",  # a constant rate: a shorter run takes the same steps
]
MONITORED = [
    "max_steps=40",
    "run_val_every_n_steps=2",
    "generation.metrics=[exact_match]",
    "generation.num_samples=3",
    "generation.max_new_tokens=4",
    "monitor.metric=eval/loss",
    "monitor.mode=min",
    "monitor.patience=2",
]


def read_summary(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "summary.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run ``monitored``, and ``short``, which ends at its best step."""
    folder = tmp_path_factory.mktemp("monitor")
    source = write_pairs(folder / "pairs.jsonl", 40)
    held_out = folder / "held_out.jsonl"  # what training teaches first helps, then harms
    rows = [{"input": f"the cat {n}", "output": "The cat ZQ#XJ~"} for n in range(5)]
    held_out.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    component = "custom_components.datasets.grammar.grammar_dataset"
    monitored = [f"dataset_val={{_component_: {component}, source: {held_out}}}", *MONITORED]
    common = [*COMMON, f"dataset.source={source}"]
    run_ranks(2, run_lora, str(folder), "monitored", [*common, *monitored])
    best_step = read_summary(folder / "monitored")["best_step"]
    if best_step is not None:  # else there is nothing to compare with, and a test says so
        run_ranks(2, run_lora, str(folder), "short", [*common, f"max_steps={best_step}"])
    return folder


def test_it_stops_once_validation_has_been_worse_as_often_as_patience_says(folder: Path) -> None:
    summary = read_summary(folder / "monitored")
    losses = {
        line["global_step"]: line["eval/loss"]
        for line in read_metrics(folder / "monitored")
        if "eval/loss" in line
    }
    assert summary["stopped_early"]
    assert summary["global_step"] == summary["best_step"] + 2 * 2 < 40
    assert list(losses) == list(range(2, summary["global_step"] + 1, 2))
    assert summary["best_value"] == losses[summary["best_step"]] == min(losses.values())


def test_the_best_step_is_exported_not_the_last(folder: Path) -> None:
    monitored, short = read_adapter(folder / "monitored"), read_adapter(folder / "short")
    assert monitored.keys() == short.keys()
    assert all(torch.equal(monitored[name], short[name]) for name in short)


def test_a_run_without_a_monitor_has_no_best_step(folder: Path) -> None:
    summary = read_summary(folder / "short")
    assert (summary["best_step"], summary["best_value"]) == (None, None)
    assert not summary["stopped_early"]
