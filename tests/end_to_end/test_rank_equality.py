"""The same global batch gives the same run on any number of ranks and accumulation steps."""

from pathlib import Path

import pytest

from tests.lora_runs import (
    read_adapter,
    read_losses,
    relative_distance,
    run_lora,
    run_lora_without_gradient_sum,
    write_pairs,
)
from tests.ranks import run_ranks

NUM_ROWS = 25  # windows of 4: six full ones and one row, so that three of four ranks have none
COMMON = ["epochs=3", "optimizer.lr=0.02", "lr_scheduler.num_warmup_steps=2"]
LAYOUTS = {
    "1 rank": (1, ["batch_size=4"]),
    "2 ranks": (2, ["batch_size=2"]),
    "4 ranks": (4, ["batch_size=1"]),
    "accumulation 4": (1, ["batch_size=1", "gradient_accumulation_steps=4"]),
    "2 ranks, accumulation 2": (2, ["batch_size=1", "gradient_accumulation_steps=2"]),
    "checkpointing": (1, ["batch_size=4", "activation_checkpointing=full"]),
    "chunked head": (2, ["batch_size=2", "num_chunk_tokens=7"]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every layout trained once, and the control without the all-reduce."""
    folder = tmp_path_factory.mktemp("runs")
    source = write_pairs(folder / "pairs.jsonl", NUM_ROWS)
    common = [*COMMON, f"dataset.source={source}"]
    for name, (size, overrides) in LAYOUTS.items():
        run_ranks(size, run_lora, str(folder), name, [*common, *overrides])
    control = [*common, "batch_size=2"]
    run_ranks(2, run_lora_without_gradient_sum, str(folder), "control", control)
    return folder


def test_the_loss_falls(runs: Path) -> None:
    losses = read_losses(runs / "1 rank")
    assert len(losses) == 3 * 7
    assert losses[0] - losses[-1] > 0.5


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "1 rank"])
def test_layouts_of_one_global_batch_agree(runs: Path, name: str) -> None:
    """Mean-of-means losses differ here (huggingface/transformers#34191)."""
    assert read_losses(runs / name) == pytest.approx(read_losses(runs / "1 rank"), abs=1e-5)
    assert relative_distance(read_adapter(runs / name), read_adapter(runs / "1 rank")) < 1e-4


def test_leaving_out_the_all_reduce_is_noticed(runs: Path) -> None:
    control, expected = read_losses(runs / "control"), read_losses(runs / "1 rank")
    assert len(control) == len(expected)
    assert control[0] == pytest.approx(expected[0], abs=1e-5)  # the weights are still the same
    assert control[1:] != pytest.approx(expected[1:], abs=1e-3)
    assert relative_distance(read_adapter(runs / "control"), read_adapter(runs / "1 rank")) > 1e-2
