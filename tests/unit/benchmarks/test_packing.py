"""The packing benchmark's data and rounds; the figures themselves are for a quiet machine."""

from pathlib import Path

import torch

from custom_components.benchmarks import packing
from custom_components.datasets.collate import Batch
from custom_components.datasets.files import read_file


def build_batch(num_tokens: int) -> Batch:
    empty = torch.zeros(0, dtype=torch.int64)
    return Batch(torch.zeros(1, 100, dtype=torch.int64), empty, empty, [], num_tokens)


def test_contestants_take_turns_and_the_first_steps_only_warm_up() -> None:
    calls: list[tuple[str, int]] = []

    def build_step(name: str):
        def step(batch: Batch) -> float:
            calls.append((name, batch.num_tokens))
            return 0.0

        return step

    batches = {"a": [build_batch(n) for n in (1, 2)], "b": [build_batch(n) for n in (3, 4)]}
    speeds = packing.measure_rounds({n: build_step(n) for n in "ab"}, batches, rounds=2)
    assert calls == [("a", 1), ("b", 3), ("a", 1), ("b", 3), ("a", 2), ("b", 4)]
    assert {name: len(values) for name, values in speeds.items()} == {"a": 2, "b": 2}


def test_jfleg_becomes_pairs_of_a_sentence_and_its_first_correction(
    data_dir: Path, tmp_path: Path
) -> None:
    packing.write_jfleg(data_dir / "jfleg", tmp_path / "rows.jsonl")
    rows = [row.values for row in read_file(tmp_path / "rows.jsonl", max_rows=None)]
    assert len(rows) == 754
    first = (data_dir / "jfleg" / "dev.ref0").read_text(encoding="utf-8").splitlines()[0]
    assert rows[0]["output"] == first
