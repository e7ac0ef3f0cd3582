"""``make study-datasets`` on a model of a few hundred kilobytes, and its figures by hand."""

import custom_components.compat  # noqa: F401

import json

import pytest
import torch

from custom_components.benchmarks import datasets
from custom_components.benchmarks.datasets_figures import (
    Series,
    StepFigures,
    build_results,
    format_table,
)

TASKS = ("grammar", "instruct", "summarize")
TINY = [
    "model._component_=custom_components.models.tiny.tiny_lora_llama3_8b",
    "tokenizer._component_=custom_components.models.byte_tokenizer.byte_tokenizer",
    "~tokenizer.path",
    "checkpoint_dir=random",
    "num_threads=1",
]


@pytest.fixture
def series() -> Series:
    """Two steps: 10 and 20 of 20 and 40 positions in 2 and 1 s, at 1 and 1.5 GiB."""
    steps = [
        StepFigures(2.0, 1.0, num_tokens=10, num_positions=20, flop=6e9),
        StepFigures(1.0, 1.5, num_tokens=20, num_positions=40, flop=2e9),
    ]
    return Series("instruct", False, iter(()), steps=steps)


def by_metric(results):
    return {result["metric"]: result for result in results}


def test_figures_of_two_steps_by_hand(series):
    results = by_metric(build_results(series, {"model": "m"}, peak_flop_per_s=2e9))
    values = {metric: result["value"] for metric, result in results.items()}
    assert values == {
        "iteration time": 1.5,
        "real tokens per second": 12.5,
        "peak memory of a step": 1.25,
        "memory swing": 0.25,
        "padding": 0.5,
        "FLOP of an iteration at the peak rate": 2.0,
    }
    assert results["iteration time"]["spread"] == [1.0, 2.0]
    assert results["iteration time"]["setting"] == {
        "model": "m", "type": "instruct", "way": "padded",
    }  # fmt: skip
    assert not results["FLOP of an iteration at the peak rate"]["measured"]


def test_without_a_known_peak_there_is_no_limit(series):
    assert len(build_results(series, {}, peak_flop_per_s=None)) == 5
    assert "1.15 · - · 1.50" in format_table([series], "m", peak=None)


def test_table_puts_published_limit_and_measured_side_by_side(series):
    table = format_table([series], "tiny", peak=2e9)
    line = next(line for line in table.splitlines() if line.startswith("instruct"))
    assert "1.15 · 2.00 · 1.50 (1.00-2.00)" in line
    assert "±5 · ±0 · ±0.27" in line  # 0.25 GiB are 0.27 GB
    assert line.split()[-3:] == ["1.25", "12", "50.0%"]
    assert "tiny" in table and "LLaMA-3-8B" in table


def test_a_contestant_that_runs_out_of_memory_stays_in_the_table(series):
    def step(batches):
        if batches == ["large"]:
            raise torch.OutOfMemoryError

    failing = Series("grammar", True, iter([["large"]] * 3))
    datasets.measure_rounds([failing], step, flop=None, device=torch.device("cpu"), num_rounds=2)
    (result,) = build_results(failing, {}, peak_flop_per_s=None)
    assert result["value"] is None and result["failure"] == "out of memory"
    assert json.loads(json.dumps(result)) == result
    table = format_table([failing, series], "tiny", peak=2e9)
    assert "grammar   packed  out of memory" in table and "instruct" in table


def test_peak_memory_of_a_step_is_that_steps_alone():
    """A large step before must not count, neither as a peak nor as memory not given back.

    The C library keeps what lies below a block still in use, here the last of many small ones.
    """
    in_use = []

    def measure(num_mib):
        datasets.reset_peak_memory(torch.device("cpu"))
        held = [torch.ones(2**14) for _ in range(num_mib * 16)]  # 64 KiB each
        in_use.extend(held[-1:])
        del held
        return datasets.read_peak_gib(torch.device("cpu")) * 1024

    base = measure(0)
    large, small = measure(300), measure(50)
    assert 290 < large - base < 320
    assert 40 < small - base < 70


def test_the_study_measures_three_types_padded_and_packed(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path))
    words = ["--steps", "2", "--batch-size", "3", "--max-seq-len", "2048", *TINY]
    assert datasets.main(words) == 0
    out, err = capsys.readouterr()
    results = [json.loads(line) for line in out.splitlines()]
    found = {}
    for result in results:
        setting = result["setting"]
        key = (setting["type"], setting["way"])
        found.setdefault(key, {})[result["metric"]] = result
    assert list(found) == [(task, way) for task in TASKS for way in ("padded", "packed")]
    for task in TASKS:
        padded, packed = found[task, "padded"], found[task, "packed"]
        assert 0 <= packed["padding"]["value"] < 0.1
        assert padded["iteration time"]["n"] == packed["iteration time"]["n"] == 2
        assert task in err
    assert found["instruct", "padded"]["padding"]["value"] > 0.1
    assert "published · limit · measured" in err


def test_ways_differ_in_batches_alone():
    """Padded: as many rows as asked for, filled up; packed: one nearly full sequence."""
    options = datasets.read_task_options(
        "smollm2_135m", "instruct", ["dataset.max_seq_len=2048", *TINY]
    )
    sizes = {}
    for packed in (False, True):
        series = datasets.build_series(
            options, "instruct", packed=packed, batch_size=3, num_steps=4
        )
        batches = [batch for (batch,) in series.batches]
        sizes[packed] = [tuple(batch.tokens.shape) for batch in batches]
        assert len(batches) == 4
        if not packed:
            assert all(batch.documents is None for batch in batches)
            assert len({batch.tokens.shape[1] for batch in batches}) > 1
    assert {rows for rows, _ in sizes[False]} == {3}
    assert {rows for rows, _ in sizes[True]} == {1}
    assert all(1800 < length <= 2048 for _, length in sizes[True])


def test_an_unknown_model_is_one_message(capsys):
    assert datasets.main(["--model", "smollm3"]) == 2
    assert "smollm3_grammar" in capsys.readouterr().err


def test_an_override_that_fits_nothing_is_one_message(capsys):
    assert datasets.main(["modl.lora_rank=8"]) == 2
    assert "modl" in capsys.readouterr().err
