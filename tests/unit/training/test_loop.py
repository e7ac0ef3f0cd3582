"""The loop's bookkeeping: what is logged when, and what the speeds are made of."""

import custom_components.compat  # noqa: F401

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
from custom_components.training.distributed import World
from custom_components.training.loop import train
from custom_components.training.schedule import cosine_schedule_with_warmup
from custom_components.training.trainables import ReplicatedTrainables

CPU = torch.device("cpu")
WORLD = World(rank=0, size=1, local_rank=0, device=CPU)


class KeptRecords:
    """Records that keep what they are given."""

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}
        self.lines: dict[int, dict[str, float]] = {}

    def log(self, metrics, *, step: int) -> None:
        self.lines[step] = dict(metrics)

    def log_sample(self, sample) -> None:
        raise AssertionError("training logs no samples")


def train_briefly(rows: list[dict], *, save=lambda: None, **kwargs) -> KeptRecords:
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"])
    freeze_base(decoder)
    load_weights(decoder, "random", device=CPU, dtype=torch.float32, seed=0)
    trainables = ReplicatedTrainables(adapter_parameters(decoder), WORLD)
    optimizer = torch.optim.SGD(trainables.masters, lr=1.0)
    plan = DataPlan(
        dataset=rows, batch_size=2, gradient_accumulation_steps=1, world_size=1, rank=0, seed=0,
        shuffle=False, pad_id=0, epochs=1, max_steps=None,
    )  # fmt: skip
    records = KeptRecords()
    settings: dict[str, Any] = {"clip_grad_norm": None, "log_every_n_steps": 1} | kwargs
    train(
        CausalLM(decoder), trainables, optimizer,
        cosine_schedule_with_warmup(optimizer, num_training_steps=plan.num_steps), plan,
        world=WORLD, records=records, save=save, **settings,
    )  # fmt: skip
    return records


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
    records = train_briefly([build_row(4, 2)] * 4, save=lambda: time.sleep(0.5))
    assert all(line["perf/step_time_s"] < 0.5 for line in records.lines.values())


def test_steps_without_labels_are_counted_and_logged_without_a_loss() -> None:
    records = train_briefly([build_row(4, 0)] * 2 + [build_row(4, 2)] * 2)
    assert "train/loss" not in records.lines[1]
    assert records.lines[1]["health/skipped_steps"] == 1
    assert records.lines[2]["health/skipped_steps"] == 1 and "train/loss" in records.lines[2]
