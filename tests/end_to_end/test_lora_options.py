"""Options of the LoRA recipe that change how it computes or where it starts."""

import contextlib
import os
from pathlib import Path

import pytest
import torch

from tests.compiler import HAS_COMPILER, needs_compiler
from tests.lora_runs import read_adapter, read_losses, run_lora, write_pairs
from tests.ranks import run_ranks

ROWS = 6
COMMON = [
    f"batch_size={ROWS}",  # the whole data every step
    "epochs=null",
    "optimizer.lr=0.01",
    "lr_scheduler.num_warmup_steps=0",
    "lr_scheduler.min_lr_ratio=1.0",  # a constant rate, whatever the length
    "optimizer.betas=[0.0, 0.0]",  # no optimizer state that a new run would lack
    "optimizer.weight_decay=0.0",
]
RUNS = {
    "eight steps": ["max_steps=8"],
    "five steps": ["max_steps=5"],
    "three more": ["max_steps=3", "adapter_path={folder}/five steps/export/adapter"],
    "bf16": ["max_steps=8", "dtype=bf16"],
    "compiled": ["max_steps=8", "compile=true", "model.lora_attn_modules=[q_proj,v_proj]"],
    "dropout": ["max_steps=8", "model.lora_dropout=0.5"],
    "other seed": ["max_steps=1", "seed=7"],
}


def run_all(folder: str, source: str) -> None:
    for name, overrides in RUNS.items():
        if name == "compiled" and not HAS_COMPILER:
            continue
        filled = [word.format(folder=folder) for word in overrides]
        run_lora(folder, name, [*COMMON, f"dataset.source={source}", *filled])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    source = write_pairs(folder / "pairs.jsonl", ROWS)
    run_ranks(1, run_all, str(folder), str(source))
    return folder


def test_training_goes_on_from_an_adapter_as_if_never_interrupted(runs: Path) -> None:
    whole = read_losses(runs / "eight steps")
    assert whole[0] - whole[-1] > 0.1
    assert read_losses(runs / "five steps") == pytest.approx(whole[:5], abs=1e-6)
    assert read_losses(runs / "three more") == pytest.approx(whole[5:], abs=1e-5)


@needs_compiler
def test_compiled_layers_give_the_same_losses(runs: Path) -> None:
    expected = read_losses(runs / "eight steps")
    assert read_losses(runs / "compiled") == pytest.approx(expected, abs=1e-4)


def test_bf16_tracks_fp32(runs: Path) -> None:
    """Within 1 %: bf16 has 8 bits of mantissa, the adapter's masters have 24."""
    losses = read_losses(runs / "bf16")
    assert losses == pytest.approx(read_losses(runs / "eight steps"), rel=0.01)


def test_a_bf16_run_exports_its_fp32_masters(runs: Path) -> None:
    adapter = read_adapter(runs / "bf16")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}
    assert any((t != t.bfloat16().float()).any() for t in adapter.values())


def test_a_sharded_run_goes_on_from_an_adapter(runs: Path) -> None:
    source = runs / "pairs.jsonl"
    words = [
        *COMMON, f"dataset.source={source}", "batch_size=3", "data_parallel=shard", "max_steps=3",
        f"adapter_path={runs / 'five steps' / 'export' / 'adapter'}",
    ]  # fmt: skip
    run_ranks(2, run_lora, str(runs), "three more, sharded", words)
    expected = read_losses(runs / "eight steps")[5:]
    assert read_losses(runs / "three more, sharded") == pytest.approx(expected, abs=1e-5)


def start_in_bf16(output_dir: str, mode: str) -> dict[str, list[float]]:
    """Return the whole masters of a bf16 run that takes no step."""
    import custom_lora

    found = {}

    def keep(model, trainables, *args, **kwargs):
        found.update({name: values.tolist() for name, values in trainables.gather().items()})
        raise InterruptedError

    custom_lora.train = keep
    words = ["model.use_dora=true", "dtype=bf16", "batch_size=3", f"data_parallel={mode}"]
    source = f"dataset.source={output_dir}/pairs.jsonl"
    with contextlib.suppress(InterruptedError):
        run_lora(output_dir, mode, [source, "lr_scheduler.num_warmup_steps=0", *words])
    return found


def test_a_bf16_run_starts_from_the_same_masters_whole_or_sharded(tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.jsonl", 6)
    whole, sharded = (
        run_ranks(2, start_in_bf16, str(tmp_path), mode)[0] for mode in ("replicate", "shard")
    )
    assert any("magnitude" in name for name in whole)
    assert whole == sharded


def test_ranks_that_cannot_share_nf4_matrices_are_refused_by_the_recipe_too(tmp_path: Path) -> None:
    """With several nodes the parent knows only its own ranks."""
    source = f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 6)}"
    words = [source, "model.quantize_base=true", "data_parallel=shard", "batch_size=1"]
    with pytest.raises(RuntimeError, match="cannot split NF4 matrices .* over 3 ranks"):
        run_ranks(3, run_lora, str(tmp_path), "run", [*words, "lr_scheduler.num_warmup_steps=0"])


def read_plan_and_seed(output_dir: str, overrides: list[str]) -> tuple[list[str], int]:
    """Return the order of the rows on this rank and the seed that dropout starts from."""
    import custom_lora

    found = {}

    def keep(model, trainables, optimizer, scheduler, plan, **kwargs):
        found["ids"] = [id_ for step in plan.steps() for batch in step for id_ in batch.ids]
        found["seed"] = torch.initial_seed()
        raise InterruptedError

    custom_lora.train = keep
    with contextlib.suppress(InterruptedError):
        run_lora(output_dir, f"plan-{os.environ['RANK']}", overrides)
    return found["ids"], found["seed"]


def test_the_seed_reaches_the_order_of_the_rows_and_dropout_differs_between_ranks(
    tmp_path: Path,
) -> None:
    """Torchtune's recipes shuffle with seed 0 whatever the config says (#2339)."""
    source = f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 12)}"
    words = [source, "batch_size=2", "lr_scheduler.num_warmup_steps=0"]
    by_seed = {
        seed: run_ranks(2, read_plan_and_seed, str(tmp_path / f"{seed}"), [*words, f"seed={seed}"])
        for seed in (3, 4)
    }
    for (first_ids, first_seed), (second_ids, second_seed) in by_seed.values():
        assert not set(first_ids) & set(second_ids) and len(first_ids + second_ids) == 12
        assert first_seed != second_seed
    assert by_seed[3][0][0] != by_seed[4][0][0]


def test_dropout_and_the_seed_reach_the_model(runs: Path) -> None:
    expected = read_losses(runs / "eight steps")
    assert read_losses(runs / "dropout")[1:] != pytest.approx(expected[1:], abs=1e-4)
    assert read_losses(runs / "other seed")[0] != pytest.approx(expected[0], abs=1e-4)
