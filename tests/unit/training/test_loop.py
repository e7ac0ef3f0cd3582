"""The loop's bookkeeping: what is logged, evaluated and saved when, and what speeds are made of."""

import custom_components.compat  # noqa: F401

import math
import time
from typing import Any

import pytest
import torch

from custom_components.datasets.plan import DataPlan
from custom_components.models.adapters import adapter_parameters, freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.step_flop import StepFlop, Yardstick
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from custom_components.options import MonitorOptions
from custom_components.training.distributed import World
from custom_components.training.loop import TrainingProgress, train
from custom_components.training.monitor import Monitor
from custom_components.training.schedule import cosine_schedule_with_warmup
from custom_components.training.trainables import ReplicatedTrainables
from tests.sample_list import SampleList

CPU = torch.device("cpu")
WORLD = World(rank=0, size=1, local_rank=0, device=CPU)


class KeptRecords:
    """Records that keep what they are given."""

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.lines: dict[int, dict[str, float]] = {}

    def log(self, metrics, *, step: int) -> None:
        self.lines[step] = self.lines.get(step, {}) | metrics

    def log_samples(self, samples, *, step: int) -> None:
        raise AssertionError("the loop logs no samples")


def run_loop(
    rows: list[dict], *, save=lambda step: None, **kwargs
) -> tuple[KeptRecords, TrainingProgress]:
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"])
    freeze_base(decoder)
    load_weights(decoder, "random", device=CPU, dtype=torch.float32, seed=0)
    trainables = ReplicatedTrainables(adapter_parameters(decoder), WORLD)
    optimizer = torch.optim.SGD(trainables.masters, lr=1.0)
    plan = DataPlan(
        dataset=SampleList(rows), batch_size=2, gradient_accumulation_steps=1, world_size=1, rank=0,
        seed=0, shuffle=False, pad_id=0, epochs=1, max_steps=None,
    )  # fmt: skip
    records = KeptRecords()
    settings: dict[str, Any] = {"clip_grad_norm": None, "log_every_n_steps": 1} | kwargs
    progress = train(
        CausalLM(decoder), trainables, optimizer,
        cosine_schedule_with_warmup(optimizer, num_training_steps=plan.num_steps), plan,
        world=WORLD, records=records, save=save, **settings,
    )  # fmt: skip
    return records, progress


def train_briefly(rows: list[dict], **kwargs) -> KeptRecords:
    return run_loop(rows, **kwargs)[0]


def build_row(length: int, num_supervised: int) -> dict:
    labels = [-100] * (length - num_supervised) + [5] * num_supervised
    return {"tokens": [5] * length, "labels": labels, "id": "f:1"}


def test_padding_and_tokens_are_counted_as_worked_out_by_hand() -> None:
    """Rows of 5 and 3 tokens: inputs 4 and 2, two of 8 positions are padding, 1 + 2 supervised."""
    records = train_briefly([build_row(5, 1), build_row(3, 2)])
    assert records.lines[1]["perf/padding_fraction"] == pytest.approx(2 / 8)
    assert records.lines[1]["train/tokens_seen"] == 6
    assert records.lines[1]["train/supervised_tokens"] == 3


def test_mfu_is_the_models_flop_over_time_and_peak() -> None:
    """Two rows padded to 4: 8 positions, 2 * 4 * 4 squares, 3 supervised."""
    yardstick = Yardstick(StepFlop(100.0, 10.0, 1.0), peak_flop_per_s=1000.0)
    line = train_briefly([build_row(5, 1), build_row(3, 2)], yardstick=yardstick).lines[1]
    flop = 100 * 8 + 10 * 32 + 1 * 3
    assert line["perf/mfu"] == pytest.approx(flop / line["perf/step_time_s"] / 1000)
    assert "perf/mfu" not in train_briefly([build_row(3, 2)]).lines[1]


def test_lines_come_every_n_steps_and_at_both_ends() -> None:
    records = train_briefly([build_row(4, 2)] * 14, log_every_n_steps=3)
    assert list(records.lines) == [1, 3, 6, 7]


def test_saving_is_not_in_the_step_time() -> None:
    """Torchtune's first step after an epoch includes it."""
    records = train_briefly([build_row(4, 2)] * 4, save=lambda step: time.sleep(0.5))
    assert all(line["perf/step_time_s"] < 0.5 for line in records.lines.values())


def test_steps_without_labels_are_counted_and_logged_without_a_loss() -> None:
    records = train_briefly([build_row(4, 0)] * 2 + [build_row(4, 2)] * 2)
    assert "train/loss" not in records.lines[1]
    assert records.lines[1]["health/skipped_steps"] == 1
    assert records.lines[2]["health/skipped_steps"] == 1 and "train/loss" in records.lines[2]


STEPS = [build_row(4, 2)] * 14  # two rows a step: 7 steps


def run_evaluated(losses: dict[int, float], **kwargs) -> tuple[KeptRecords, TrainingProgress, list]:
    """Let each evaluation find the loss of its step; return records, progress and what was done."""
    done: list[tuple[str, int]] = []

    def evaluate(step: int) -> dict[str, float]:
        done.append(("evaluate", step))
        return {"eval/loss": losses[step]}

    def save(step: int) -> None:
        done.append(("save", step))

    records, progress = run_loop(STEPS, save=save, evaluate=evaluate, **kwargs)
    return records, progress, done


def watch_loss(**changes) -> Monitor:
    return Monitor(MonitorOptions(metric="eval/loss", **changes))


def test_evaluation_comes_every_n_steps_and_after_the_last_and_is_logged_there() -> None:
    records, progress, done = run_evaluated({3: 2.0, 6: 1.5, 7: 1.0}, run_val_every_n_steps=3)
    assert done == [("evaluate", 3), ("evaluate", 6), ("evaluate", 7), ("save", 7)]
    found = {step: line["eval/loss"] for step, line in records.lines.items() if "eval/loss" in line}
    assert found == {3: 2.0, 6: 1.5, 7: 1.0}
    assert all("eval/time_s" in records.lines[step] for step in found)
    assert (progress.best_step, progress.stopped_early) == (None, False)


def test_a_step_that_is_both_the_nth_and_the_last_is_evaluated_once() -> None:
    _, _, done = run_evaluated({7: 1.0}, run_val_every_n_steps=7)
    assert done == [("evaluate", 7), ("save", 7)]
    _, _, done = run_evaluated({7: 1.0})
    assert done == [("evaluate", 7), ("save", 7)]


def test_each_best_is_saved_and_nothing_after_it() -> None:
    losses = {2: 2.0, 4: 1.0, 6: 1.5, 7: 1.2}
    _, progress, done = run_evaluated(losses, run_val_every_n_steps=2, monitor=watch_loss())
    assert [step for what, step in done if what == "save"] == [2, 4]
    assert (progress.best_step, progress.best_value) == (4, 1.0)
    assert progress.global_step == 7 and not progress.stopped_early


def test_the_end_is_saved_if_no_value_was_ever_a_number() -> None:
    losses = dict.fromkeys((2, 4, 6, 7), math.nan)
    _, progress, done = run_evaluated(losses, run_val_every_n_steps=2, monitor=watch_loss())
    assert [step for what, step in done if what == "save"] == [7]
    assert progress.best_step is None


def test_it_stops_when_patience_is_over_and_logs_that_step() -> None:
    losses = {1: 3.0, 2: 1.0, 3: 1.5, 4: 1.2}
    records, progress, done = run_evaluated(
        losses, run_val_every_n_steps=1, monitor=watch_loss(patience=2), log_every_n_steps=100
    )
    assert done[-1] == ("evaluate", 4)
    assert [step for what, step in done if what == "save"] == [1, 2]
    assert (progress.global_step, progress.best_step, progress.stopped_early) == (4, 2, True)
    assert "train/loss" in records.lines[4]


def test_patience_that_ends_with_the_last_step_is_no_early_stop() -> None:
    losses = {step: float(step) for step in range(1, 8)}
    _, progress, _ = run_evaluated(losses, run_val_every_n_steps=1, monitor=watch_loss(patience=6))
    assert (progress.global_step, progress.stopped_early) == (7, False)


def test_evaluation_is_not_in_the_step_time() -> None:
    def evaluate(step: int) -> dict[str, float]:
        time.sleep(0.5)
        return {"eval/loss": 1.0}

    records = train_briefly(STEPS[:4], evaluate=evaluate, run_val_every_n_steps=1)
    assert all(line["perf/step_time_s"] < 0.5 for line in records.lines.values())
    assert all(line["perf/data_time_s"] < 0.5 for line in records.lines.values())
    assert records.lines[1]["eval/time_s"] >= 0.5
