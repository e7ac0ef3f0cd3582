"""Packed training against batches padded to their longest row, with as many positions a step.

Run it: ``make bench-packing``, or ``python -m custom_components.benchmarks.packing --rounds 7``.

SmolLM2-135M, LoRA rank 8 on q and v, fp32 on the CPU, AdamW. The rows are JFLEG's development set
where it lies in ``$TUNEPACK_DATA/jfleg`` (default ``../shared/data/jfleg``), else the embedded
corpus. A padded step takes 8 or 32 shuffled rows; a packed one takes a pack of as many positions as
those steps have on average. Both ways must give the same loss for the same rows first. Then they
take turns, and ratios are taken round by round.

What packing can gain is the share of positions that padding wastes: real tokens per second grow by
about positions over real tokens of the padded batches. The last figure is how much of that gain is
reached; it should be 0.85 or more. What a step takes besides, for each of its supervised tokens or
whatever its rows, packing does not save.

Out come a table on stderr and one JSON result line a figure on stdout.
"""

import custom_components.compat  # noqa: F401

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch

from custom_components.benchmarks.lora_step import CHECKPOINT, Step, build_decoder, build_pack_step
from custom_components.benchmarks.results import build_result, only_results, print_result
from custom_components.datasets.collate import Batch, collate, collate_packs
from custom_components.datasets.grammar import grammar_dataset
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.supervised import SupervisedDataset
from custom_components.models.causal_lm import CausalLM, summed_loss
from custom_components.models.smollm2_tokenizer import SmolLM2Tokenizer, smollm2_tokenizer

MAX_SEQ_LEN = 512


def find_jfleg() -> Path | None:
    """Return the folder of JFLEG's development set, or None where it is not."""
    folder = Path(os.environ.get("TUNEPACK_DATA", "../shared/data")) / "jfleg"
    return folder if folder.is_dir() else None


def write_jfleg(folder: Path, path: Path) -> None:
    """Write sentences and their first corrections as JSON lines."""
    columns = [(folder / name).read_text("utf-8").splitlines() for name in ("dev.src", "dev.ref0")]
    with path.open("w", encoding="utf-8") as file:
        for sentence, correction in zip(*columns, strict=True):
            file.write(json.dumps({"input": sentence, "output": correction}) + "\n")


def build_dataset(tokenizer: SmolLM2Tokenizer, max_seq_len: int) -> tuple[str, SupervisedDataset]:
    """Return the rows, for packs of ``max_seq_len`` positions, and what they are called."""
    jfleg = find_jfleg()
    with tempfile.TemporaryDirectory() as folder:
        source = "embedded"
        if jfleg is not None:
            source = str(Path(folder) / "jfleg.jsonl")
            write_jfleg(jfleg, Path(source))
        dataset = grammar_dataset(
            tokenizer,
            source=source,
            max_seq_len=max_seq_len,
            truncation="drop",
            unusable_rows="drop",
        )
    return "embedded" if jfleg is None else "JFLEG dev", dataset


def build_plan(
    dataset: SupervisedDataset, *, batch_size: int, packed: bool, pad_id: int
) -> DataPlan:
    """Return one shuffled pass over the rows on one rank."""
    return DataPlan(
        dataset=dataset,
        batch_size=batch_size,
        gradient_accumulation_steps=1,
        world_size=1,
        rank=0,
        seed=0,
        shuffle=True,
        pad_id=pad_id,
        epochs=1,
        max_steps=None,
        packed=packed,
    )


def check_losses(dataset: SupervisedDataset, *, num_rows: int, pad_id: int) -> None:
    """Compare the loss of the first rows as one padded batch and as one pack.

    Raises:
        RuntimeError: If they differ by more than 1e-5 of themselves.
    """
    rows = [dataset[i] for i in range(num_rows)]
    capacity = sum(len(row["tokens"]) for row in rows)
    model = CausalLM(build_decoder())
    with torch.no_grad():
        padded = summed_loss(model, collate(rows, pad_id=pad_id)).item()
        batch = collate_packs([rows], pad_id=pad_id, capacity=capacity)
        packed = summed_loss(model, batch).item()
    if abs(packed - padded) > 1e-5 * padded:
        raise RuntimeError(f"the same rows have loss {padded} padded and {packed} packed")


def measure_rounds(
    steps: dict[str, Step], batches: dict[str, Sequence[Batch]], *, rounds: int
) -> dict[str, list[float]]:
    """Let both take turns; the first batches only warm up.

    Returns:
        Real tokens per second of each, one number a round.
    """
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(-1, rounds):
        for name, step in steps.items():
            batch = batches[name][max(number, 0)]
            started = time.perf_counter()
            step(batch)
            if number >= 0:
                speeds[name].append(batch.num_tokens / (time.perf_counter() - started))
    return speeds


def compare(batch_size: int, *, rounds: int) -> None:
    """Measure one batch size and print its figures."""
    tokenizer = smollm2_tokenizer(CHECKPOINT)
    name, dataset = build_dataset(tokenizer, MAX_SEQ_LEN)
    check_losses(dataset, num_rows=batch_size, pad_id=tokenizer.pad_id)
    plan = build_plan(dataset, batch_size=batch_size, packed=False, pad_id=tokenizer.pad_id)
    padded = [batch for (batch,) in plan.steps()]
    positions = round(statistics.mean(batch.num_positions for batch in padded[:rounds]))
    _, dataset = build_dataset(tokenizer, positions)
    plan = build_plan(dataset, batch_size=1, packed=True, pad_id=tokenizer.pad_id)
    packed = [batch for (batch,) in islice(plan.steps(), rounds)]
    speeds = measure_rounds(
        {name: build_pack_step(compile_layers=False) for name in ("padded", "packed")},
        {"padded": padded, "packed": packed},
        rounds=rounds,
    )
    bounds = [batch.num_positions / batch.num_tokens for batch in padded]
    gains = [b / a for a, b in zip(speeds["padded"], speeds["packed"], strict=True)]
    reached = [gain / bound for gain, bound in zip(gains, bounds, strict=False)]
    padding = [1 - batch.num_tokens / batch.num_positions for batch in packed]
    setting = {
        "model": "SmolLM2-135M", "rank": 8, "data": name, "batch_size": batch_size,
        "positions": positions,
    }  # fmt: skip
    for way, values in speeds.items():
        here = setting | {"contestant": way}
        print_result(build_result("bench-packing", here, "real tokens per second", values, "1/s"))
    for metric, values, measured in (
        ("positions / real tokens of padded batches", bounds, False),
        ("padding of packs", padding, False),
        ("packed / padded real tokens per second", gains, True),
        ("share of the possible gain", reached, True),
    ):
        print_result(
            build_result("bench-packing", setting, metric, values, "ratio", measured=measured)
        )
    sys.stderr.write(
        f"batch {batch_size:2}, {positions:5} positions, {name}: padded/real "
        f"{statistics.median(bounds):.2f}, packed is {statistics.median(gains):.2f}x "
        f"({min(gains):.2f}-{max(gains):.2f}) as fast, {statistics.median(reached):.0%} of that "
        f"({min(reached):.0%}-{max(reached):.0%}); padding of packs "
        f"{statistics.median(padding):.1%}\n"
    )


@only_results()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for batch_size in args.batch_sizes:
        compare(batch_size, rounds=args.rounds)


if __name__ == "__main__":
    main()
