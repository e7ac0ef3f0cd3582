"""The same global batch gives the same run on any number of ranks, whoever holds the weights.

25 rows make six windows of 4 and one of a single row, so that three of four ranks have none.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lora_runs import (
    read_adapter,
    read_losses,
    relative_distance,
    run_lora_without_gradient_sum,
    run_loras,
    write_pairs,
)
from tests.ranks import find_free_port, run_ranks

NUM_ROWS = 25
COMMON = ["epochs=3", "optimizer.lr=0.02", "lr_scheduler.num_warmup_steps=2"]
METHODS = {
    "lora": [],
    "qlora": ["model.quantize_base=true"],
    "dora": ["model.use_dora=true"],
    "qdora, rslora": ["model.quantize_base=true", "model.use_dora=true", "use_rslora=true"],
}
REPLICATE = {1: ["batch_size=4"], 2: ["batch_size=2"], 4: ["batch_size=1"]}
SHARD = {
    size: [*REPLICATE[size], "data_parallel=shard"] for size in (2, 4)
}  # one process does not shard
# At the common rate these are chaotic: rounding alone grows to 1e-4 within 21 steps.
ADAPTED_HEAD = ["model.apply_lora_to_output=true", "optimizer.lr=0.004"]
RANK_3 = ["model.lora_rank=3", "optimizer.lr=0.004"]
RANK_2 = ["model.lora_rank=2", "optimizer.lr=0.004"]
LORA_LAYOUTS = {
    "accumulation 4": (1, ["batch_size=1", "gradient_accumulation_steps=4"]),
    "2 ranks, accumulation 2": (2, ["batch_size=1", "gradient_accumulation_steps=2"]),
    "checkpointing": (1, ["batch_size=4", "activation_checkpointing=full"]),
    "chunked head": (2, ["batch_size=2", "num_chunk_tokens=7"]),
    "shard on 1": (1, ["batch_size=4", "data_parallel=shard"]),
    "shard on 2, accumulation 2": (
        2,
        ["batch_size=1", "gradient_accumulation_steps=2", "data_parallel=shard"],
    ),
    "shard on 4, checkpointing": (4, [*SHARD[4], "activation_checkpointing=full"]),
    "shard on 4, chunked head": (4, [*SHARD[4], "num_chunk_tokens=7"]),
    "shard on 2, adapted head": (2, [*SHARD[2], *ADAPTED_HEAD]),
    "adapted head": (1, [*REPLICATE[1], *ADAPTED_HEAD]),
    "shard on 4, rank 2": (4, [*SHARD[4], *RANK_2]),  # two ranks hold no row of A
    "rank 2": (1, [*REPLICATE[1], *RANK_2]),
    "shard on 2, rank 3": (2, [*SHARD[2], *RANK_3]),  # two rows of A and one, which FSDP pads
    "rank 3": (1, [*REPLICATE[1], *RANK_3]),
}
REFERENCES = {
    "shard on 2, adapted head": "adapted head",
    "shard on 4, rank 2": "rank 2",
    "shard on 2, rank 3": "rank 3",
}


def _layouts() -> dict[str, tuple[int, list[str]]]:
    layouts = {
        f"{method}, {mode} on {size}": (size, [*overrides, *of_method])
        for method, of_method in METHODS.items()
        for mode, sizes in (("replicate", REPLICATE), ("shard", SHARD))
        for size, overrides in sizes.items()
    }
    return layouts | LORA_LAYOUTS


def _reference(name: str) -> str:
    method = next((method for method in METHODS if name.startswith(f"{method}, ")), "lora")
    return REFERENCES.get(name, f"{method}, replicate on 1")


COMPARED = [n for n in _layouts() if n not in {_reference(n), *REFERENCES.values()}]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every layout trained once, those of one size in one launch, and two controls."""
    folder = tmp_path_factory.mktemp("runs")
    source = write_pairs(folder / "pairs.jsonl", NUM_ROWS)
    common = [*COMMON, f"dataset.source={source}"]
    for size in (1, 2, 4):
        chosen = {
            name: [*common, *overrides]
            for name, (wanted, overrides) in _layouts().items()
            if wanted == size
        }
        ports = [find_free_port() for _ in chosen]
        run_ranks(size, run_loras, str(folder), chosen, ports)
    for name, overrides in (("replicate control", REPLICATE[2]), ("shard control", SHARD[2])):
        control: Callable[..., Any] = run_lora_without_gradient_sum
        run_ranks(2, control, str(folder), name, [*common, *overrides])
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls(runs: Path, method: str) -> None:
    losses = read_losses(runs / f"{method}, replicate on 1")
    assert len(losses) == 3 * 7
    assert losses[0] - losses[-1] > 0.5


@pytest.mark.parametrize("name", COMPARED)
def test_layouts_of_one_global_batch_agree(runs: Path, name: str) -> None:
    """Mean-of-means losses differ here (huggingface/transformers#34191)."""
    reference = runs / _reference(name)
    assert read_losses(runs / name) == pytest.approx(read_losses(reference), abs=1e-5)
    assert relative_distance(read_adapter(runs / name), read_adapter(reference)) < 1e-4


def test_methods_differ(runs: Path) -> None:
    """Else a method that was quietly ignored would agree with itself."""
    losses = [read_losses(runs / f"{method}, replicate on 1") for method in METHODS]
    assert all(a[-1] != pytest.approx(b[-1], abs=1e-4) for a in losses for b in losses if a != b)
    assert len({tuple(values) for values in losses}) == len(METHODS)


@pytest.mark.parametrize("mode", ["replicate", "shard"])
def test_leaving_out_the_sum_of_gradients_is_noticed(runs: Path, mode: str) -> None:
    control = read_losses(runs / f"{mode} control")
    expected = read_losses(runs / "lora, replicate on 1")
    assert len(control) == len(expected)
    assert control[0] == pytest.approx(expected[0], abs=1e-5)  # the weights are still the same
    assert control[1:] != pytest.approx(expected[1:], abs=1e-3)
    distance = relative_distance(
        read_adapter(runs / f"{mode} control"), read_adapter(runs / "lora, replicate on 1")
    )
    assert distance > 1e-2
