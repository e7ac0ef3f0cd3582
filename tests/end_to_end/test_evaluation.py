"""Evaluation during training: exact on any number of ranks, and training does not notice it.

Seven validation rows shared among up to four ranks: some batches are short, some empty.
"""

import custom_components.compat  # noqa: F401

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from custom_components.components import instantiate
from custom_components.config import load_config
from custom_components.datasets.grammar import grammar_dataset
from custom_components.models.adapters import adapter_parameters, load_adapter
from custom_components.models.byte_tokenizer import byte_tokenizer
from custom_components.models.merge import merge_adapter
from custom_components.models.weights import load_weights
from custom_components.observability.records import read_metrics
from tests.lora_runs import (
    ON_CPU,
    ROOT,
    read_adapter,
    read_losses,
    run_loras,
    write_pairs,
)
from tests.ranks import find_free_port, run_ranks
from tests.unit.models.lora_decoders import ALL, build, train

CPU = torch.device("cpu")
COMMON = ["epochs=2", "optimizer.lr=0.005", "lr_scheduler.num_warmup_steps=2"]
NUM_STEPS = 2 * 4
DROPOUT = ["model.lora_dropout=0.2"]
EVALUATED = [
    "run_val_every_n_steps=3",
    "batch_size_val=2",
    "generation.metrics=[gleu,rouge_l,exact_match]",
    "generation.num_samples=5",
    "generation.batch_size=2",
    "generation.max_new_tokens=12",
]
ROWS = {1: ["batch_size=4"], 2: ["batch_size=2"], 4: ["batch_size=1"]}
SHARD = ["data_parallel=shard"]
LAYOUTS = {
    "replicate on 1": (1, ROWS[1]),
    "replicate on 2": (2, ROWS[2]),
    "shard on 2": (2, [*ROWS[2], *SHARD]),
    "replicate on 4": (4, ROWS[4]),
    "shard on 4": (4, [*ROWS[4], *SHARD]),
    "shard on 2, checkpointing": (2, [*ROWS[2], *SHARD, "activation_checkpointing=full"]),
}
WITH_DROPOUT = ["replicate on 1", "replicate on 2", "shard on 2"]


def write_talkative_base(folder: Path) -> None:
    """Write a base model whose answers differ: as initialised, every prompt has the same one."""
    decoder = train(build(**ALL), std=0.8)
    merge_adapter(
        decoder,
        adapter_parameters(decoder),
        folder,
        checkpoint_dir="random",
        device=CPU,
        dtype=torch.float32,
        seed=0,
        tokenizer=byte_tokenizer(),
    )


def build_runs(size: int, validation: list[str]) -> dict[str, list[str]]:
    """Return the runs of one launch: evaluated ones, and with dropout both with and without."""
    runs = {}
    for name, (wanted, layout) in LAYOUTS.items():
        if wanted != size:
            continue
        runs[name] = [*layout, *validation]
        if name in WITH_DROPOUT:
            runs[f"{name}, dropout"] = [*layout, *DROPOUT, *validation]
            runs[f"{name}, dropout, unevaluated"] = [*layout, *DROPOUT]
    return runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    source = write_pairs(folder / "pairs.jsonl", 13)
    held_out = write_pairs(folder / "held_out.jsonl", 7, seed=1)
    component = "custom_components.datasets.grammar.grammar_dataset"
    validation = [f"dataset_val={{_component_: {component}, source: {held_out}}}", *EVALUATED]
    write_talkative_base(folder / "base")
    common = [*COMMON, f"dataset.source={source}", f"checkpoint_dir={folder / 'base'}"]
    for size in (1, 2, 4):
        chosen = {
            name: [*common, *overrides] for name, overrides in build_runs(size, validation).items()
        }
        run_ranks(size, run_loras, str(folder), chosen, [find_free_port() for _ in chosen])
    return folder


def read_evaluations(run_dir: Path) -> dict[int, dict[str, float]]:
    """Return what was measured at each step that was evaluated."""
    return {
        line["global_step"]: {
            name: value
            for name, value in line.items()
            if name.startswith("eval/") and name != "eval/time_s"
        }
        for line in read_metrics(run_dir)
        if "eval/loss" in line
    }


def read_samples(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_a_run_with_evaluation_is_bitwise_the_run_without_it(runs: Path, name: str) -> None:
    evaluated, plain = runs / f"{name}, dropout", runs / f"{name}, dropout, unevaluated"
    assert read_losses(evaluated) == read_losses(plain)
    assert len(read_losses(plain)) == NUM_STEPS
    adapters = read_adapter(evaluated), read_adapter(plain)
    assert all(torch.equal(adapters[0][key], adapters[1][key]) for key in adapters[1])
    assert len(read_evaluations(evaluated)) == 3 and not read_evaluations(plain)


def test_dropout_is_what_makes_the_bitwise_test_hard(runs: Path) -> None:
    """Without it a run that drew random numbers in evaluation would look the same."""
    losses = read_losses(runs / "replicate on 1"), read_losses(runs / "replicate on 1, dropout")
    assert losses[0] != losses[1]


def test_evaluations_come_every_n_steps_and_after_the_last(runs: Path) -> None:
    assert list(read_evaluations(runs / "replicate on 1")) == [3, 6, NUM_STEPS]
    samples = read_samples(runs / "replicate on 1")
    assert [sample["global_step"] for sample in samples] == [3] * 5 + [6] * 5 + [NUM_STEPS] * 5
    assert {"prompt", "references", "output", "rouge_l", "exact_match"} <= samples[0].keys()


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "replicate on 1"])
def test_evaluation_is_the_same_on_any_number_of_ranks(runs: Path, name: str) -> None:
    """A mean of the ranks' means would differ: their rows differ in number and length."""
    expected, found = read_evaluations(runs / "replicate on 1"), read_evaluations(runs / name)
    assert found.keys() == expected.keys()
    for step, metrics in expected.items():
        assert found[step] == pytest.approx(metrics, rel=2e-5)
    samples = read_samples(runs / "replicate on 1")
    assert read_samples(runs / name) == samples
    assert len({sample["output"] for sample in samples}) > 10, "answers must differ"


def test_the_validation_loss_is_the_mean_over_all_supervised_tokens(runs: Path) -> None:
    """Worked out row by row with torchtune's own forward, from the exported adapter."""
    run_dir = runs / "replicate on 1"
    config = load_config(ROOT / "configs" / "llama3_8b_grammar.yaml", ON_CPU)
    with torch.device("meta"):
        decoder = instantiate(dict(config.model))
    load_weights(decoder, str(runs / "base"), device=CPU, dtype=torch.float32, seed=0)
    load_adapter(decoder, run_dir / "export" / "adapter")
    dataset = grammar_dataset(byte_tokenizer(), source=str(runs / "held_out.jsonl"))
    total, count = 0.0, 0
    with torch.no_grad():
        for sample in (dataset[row] for row in range(len(dataset))):
            tokens, labels = (torch.as_tensor(sample[key]) for key in ("tokens", "labels"))
            logits = decoder(tokens[None])[0, :-1]
            total += float(F.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum"))
            count += int((labels[1:] != -100).sum())
    assert len(dataset) == 7
    last = read_evaluations(run_dir)[NUM_STEPS]
    assert last["eval/loss"] == pytest.approx(total / count, rel=1e-5)
