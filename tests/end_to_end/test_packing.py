"""Packed training is training on the same rows one by one, on any number of ranks.

25 rows make three packs of 1024 positions, so that one of four ranks has none, and eleven or so of
256, which are several steps.
"""

from pathlib import Path

import pytest

from custom_components.observability.records import read_metrics
from tests.lora_runs import read_adapter, read_losses, relative_distance, run_loras, write_pairs
from tests.ranks import find_free_port, run_ranks

NUM_ROWS = 25
COMMON = ["optimizer.lr=0.02", "lr_scheduler.num_warmup_steps=1", "dataset.max_seq_len=1024"]
METHODS = {
    "lora": [],
    "qlora": ["model.quantize_base=true"],
    "dora": ["model.use_dora=true"],
}
ONE_BY_ONE = ["batch_size=1", f"gradient_accumulation_steps={NUM_ROWS}", "epochs=6"]
PACKED = ["packed=true", "epochs=6"]
MANY_PACKS = ["packed=true", "dataset.max_seq_len=256", "epochs=3"]
GROUPED = ["group_by_length=true", "epochs=3"]
BATCH = {1: ["batch_size=4"], 2: ["batch_size=2"], 4: ["batch_size=1"]}
SHARD = ["data_parallel=shard"]


def _layouts() -> dict[str, tuple[int, list[str]]]:
    layouts = {
        f"{method}, one by one": (1, [*ONE_BY_ONE, *of_method])
        for method, of_method in METHODS.items()
    }
    layouts |= {
        f"{method}, packed on {size}": (size, [*PACKED, *BATCH[size], *of_method])
        for method, of_method in METHODS.items()
        for size in (1, 2, 4)
        if method == "lora" or size < 4
    }
    layouts |= {
        "lora, packed, accumulated": (
            1, [*PACKED, "batch_size=1", "gradient_accumulation_steps=4"],
        ),
        "lora, packed, checkpointing": (
            1, [*PACKED, *BATCH[1], "activation_checkpointing=full"],
        ),
        "lora, packed, shard on 2": (2, [*PACKED, *BATCH[2], *SHARD]),
        "lora, packed, shard on 4, checkpointing": (
            4, [*PACKED, *BATCH[4], *SHARD, "activation_checkpointing=full"],
        ),
        "qlora, packed, shard on 4": (4, [*PACKED, *BATCH[4], *SHARD, *METHODS["qlora"]]),
        "dora, packed, shard on 2": (2, [*PACKED, *BATCH[2], *SHARD, *METHODS["dora"]]),
    }  # fmt: skip
    for name, overrides in (("many packs", MANY_PACKS), ("grouped", GROUPED)):
        layouts |= {
            f"{name} on {size}": (size, [*overrides, *batch]) for size, batch in BATCH.items()
        }
    return layouts | {"many packs, shard on 4": (4, [*MANY_PACKS, *BATCH[4], *SHARD])}


def _reference(name: str) -> str:
    kind = name.split(",")[0].split(" on ")[0]
    return f"{kind}, one by one" if kind in METHODS else f"{kind} on 1"


COMPARED = [name for name in _layouts() if name != _reference(name)]


def run_loras_across_boundaries(*args) -> None:
    """The control: documents of a pack see those before them."""
    from custom_components.models import causal_lm

    causal_lm.build_document_mask = lambda *_: None
    run_loras(*args)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every layout trained once, those of one size in one launch, and the control."""
    folder = tmp_path_factory.mktemp("runs")
    common = [*COMMON, f"dataset.source={write_pairs(folder / 'pairs.jsonl', NUM_ROWS)}"]
    for size in (1, 2, 4):
        chosen = {
            name: [*common, *overrides]
            for name, (wanted, overrides) in _layouts().items()
            if wanted == size
        }
        run_ranks(size, run_loras, str(folder), chosen, [find_free_port() for _ in chosen])
    control = {"control": [*common, *PACKED, *BATCH[1]]}
    run_ranks(1, run_loras_across_boundaries, str(folder), control, [find_free_port()])
    return folder


def read_values(run_dir: Path, metric: str) -> list[float]:
    return [line[metric] for line in read_metrics(run_dir) if metric in line]


@pytest.mark.parametrize("name", COMPARED)
def test_runs_over_the_same_rows_agree(runs: Path, name: str) -> None:
    ours, reference = runs / name, runs / _reference(name)
    assert read_losses(ours) == pytest.approx(read_losses(reference), abs=1e-5)
    norms = [read_values(run_dir, "train/grad_norm") for run_dir in (ours, reference)]
    assert norms[0][0] == pytest.approx(norms[1][0], rel=1e-5)
    assert relative_distance(read_adapter(ours), read_adapter(reference)) < 1e-4


@pytest.mark.parametrize("name", [*(f"{m}, one by one" for m in METHODS), "many packs on 1"])
def test_the_loss_falls(runs: Path, name: str) -> None:
    losses = read_losses(runs / name)
    assert losses[0] - losses[-1] > 0.5


def test_a_pack_whose_documents_see_each_other_is_noticed(runs: Path) -> None:
    control, expected = (read_losses(runs / n) for n in ("control", "lora, one by one"))
    assert abs(control[0] - expected[0]) > 1e-3


def test_padding_is_that_of_the_packs(runs: Path) -> None:
    """Each step holds all packs, each as wide as the longest in steps of 128."""
    run_dir = runs / "lora, packed on 1"
    tokens = read_values(run_dir, "train/tokens_seen")[0]
    (fraction,) = set(read_values(run_dir, "perf/padding_fraction"))
    assert fraction == pytest.approx(1 - tokens / (3 * 1024))
