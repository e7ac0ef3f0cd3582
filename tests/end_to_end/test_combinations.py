"""docs/combinations.md tells the truth: what it calls tested runs, what it calls refused is."""

import itertools
import os
from pathlib import Path

import pytest

from custom_components.config import load_config
from custom_components.preflight import check_config
from custom_components.registry import config_path
from tests.compiler import HAS_COMPILER
from tests.lora_runs import ROOT, read_losses, run_loras, write_pairs
from tests.ranks import find_free_port, run_ranks

PAGE = (ROOT / "docs" / "combinations.md").read_text()
METHODS = {
    "LoRA": [],
    "QLoRA": ["model.quantize_base=true"],
    "DoRA": ["model.use_dora=true"],
    "DoRA + QLoRA": ["model.quantize_base=true", "model.use_dora=true"],
}
KEYS = ("data_parallel", "activation_checkpointing", "compile", "dtype")
COMMON = ["epochs=null", "max_steps=6", "optimizer.lr=0.015", "lr_scheduler.num_warmup_steps=0"]


def read_table(first_column: str) -> list[list[str]]:
    lines = iter(PAGE.splitlines())
    for line in lines:
        if line.startswith(f"| {first_column} |"):
            break
    next(lines)
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


COMBINATIONS = [
    combination
    for row in read_table("method")
    for combination in itertools.product(*(cell.split(", ") for cell in row))
]


def overrides_of(combination: tuple[str, ...]) -> list[str]:
    method, *values = combination
    settings = [f"{key}={value}" for key, value in zip(KEYS, values, strict=True)]
    return [*METHODS[method], *settings]


def is_possible(combination: tuple[str, ...]) -> bool:
    return HAS_COMPILER or "true" not in combination


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every combination on two ranks, and each method's reference on one, in two launches."""
    folder = tmp_path_factory.mktemp("runs")
    common = [*COMMON, f"dataset.source={write_pairs(folder / 'pairs.jsonl', 6)}"]
    references = {method: [*common, *words, "batch_size=6"] for method, words in METHODS.items()}
    chosen = {
        "; ".join(combination): [*common, *overrides_of(combination), "batch_size=3"]
        for combination in COMBINATIONS
        if is_possible(combination)
    }
    for size, configs in ((1, references), (2, chosen)):
        ports = [find_free_port() for _ in configs]
        run_ranks(size, run_loras, str(folder), configs, ports, timeout_s=600)
    return folder


def test_the_page_names_every_method() -> None:
    assert {method for method, *_ in COMBINATIONS} == set(METHODS)
    assert len(COMBINATIONS) == len(set(COMBINATIONS)) == 4 * 2 * 2 * 2 + 5


@pytest.mark.parametrize("combination", COMBINATIONS, ids="; ".join)
def test_a_tested_combination_trains_like_its_reference(
    runs: Path, combination: tuple[str, ...]
) -> None:
    if not is_possible(combination):
        pytest.skip("no C++ compiler for torch.compile")
    reference = read_losses(runs / combination[0])
    losses = read_losses(runs / "; ".join(combination))
    tolerance = 0.01 if "bf16" in combination else 1e-5
    assert reference[0] - reference[-1] > 0.5
    assert losses == pytest.approx(reference, abs=tolerance)
    if combination[3:] == ("false", "bf16"):
        whole = read_losses(runs / f"{combination[0]}; replicate; none; false; bf16")
        assert losses == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize(("settings", "processes", "message"), read_table("settings"))
def test_a_refused_combination_is_refused_with_this_message(
    settings: str, processes: str, message: str, tmp_path: Path
) -> None:
    overrides = [*settings.strip("`").split(), f"output_dir={tmp_path}", "wandb.mode=offline"]
    config = load_config(config_path("smollm2_135m_grammar"), overrides)
    problems = check_config("custom_lora", config, nproc_per_node=int(processes))
    assert any(problem.startswith(message) for problem in problems), problems
    assert os.listdir(tmp_path) == []
