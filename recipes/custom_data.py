"""Audit the data of a training config, without a model or a GPU.

Run it::

    tune run custom_data llama3_8b_grammar dataset.source=/data/pairs.jsonl
    tune run custom_data my_config.yaml num_samples_shown=20

It tokenises as training would and leaves the result in the cache, so that training begins at once.
Out come numbers on the terminal and ``runs/<run_name>/``: ``summary.json`` with the numbers,
``bad_rows.jsonl`` with file, row number and reason of every row that is not kept, and
``preview.html``, samples with the trained tokens marked. The exit code is 1 if rows are refused:
if they would be lost without the config having said so.
"""

import custom_components.compat  # noqa: F401

import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from custom_components.components import instantiate
from custom_components.config import read_options
from custom_components.datasets.audit import (
    DatasetAudit,
    Overlap,
    audit_dataset,
    find_overlap,
    iter_bad_rows,
)
from custom_components.datasets.files import NUM_SHOWN
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.preview import (
    PreviewSample,
    build_preview,
    make_visible,
    render_html,
    render_terminal,
)
from custom_components.datasets.supervised import (
    RefusedDataError,
    SupervisedDataset,
    check_dataset,
    name_key,
)
from custom_components.errors import UserError
from custom_components.files import write_atomically
from custom_components.launch import run_recipe
from custom_components.observability.console import get_logger
from custom_components.observability.records import Records, find_run_dir, open_records
from custom_components.options import DataOptions
from custom_components.redaction import redact


# ---- Data ----------------------------------------------------------------------------------------
def build_datasets(options: DataOptions, tokenizer: Any) -> dict[str, SupervisedDataset]:
    """Return the data sets of the config by their keys, with or without rows that are refused.

    Args:
        options: The typed config.
        tokenizer: The model's.

    Raises:
        UserError: If a source cannot be read at all, or its component builds something else.
    """
    datasets = {}
    for key in ("dataset", "dataset_val"):
        component = getattr(options, key)
        if component is None:
            continue
        try:
            dataset = instantiate(component, tokenizer)
        except RefusedDataError as error:
            dataset = error.dataset
        except UserError as error:
            raise UserError(*name_key(error.problems, key)) from error
        datasets[key] = check_dataset(dataset, component, key=key)
    return datasets


def build_plan(dataset: SupervisedDataset, options: DataOptions, pad_id: int) -> DataPlan:
    """Return the plan that training would follow on one rank.

    Args:
        dataset: At least one sample.
        options: The typed config.
        pad_id: Of the tokenizer.
    """
    return DataPlan(
        dataset=dataset,
        batch_size=options.batch_size,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        world_size=1,
        rank=0,
        seed=options.seed,
        shuffle=options.shuffle,
        pad_id=pad_id,
        epochs=options.epochs,
        max_steps=options.max_steps,
        packed=options.packed,
        group_by_length=options.group_by_length,
    )


# ---- Report --------------------------------------------------------------------------------------
def preview_samples(
    dataset: SupervisedDataset, tokenizer: Any, *, num_samples: int
) -> Iterator[PreviewSample]:
    """Yield samples spread over the data set, special tokens written by name.

    Args:
        dataset: Any number of samples.
        tokenizer: The model's.
        num_samples: How many at most.
    """
    decode = functools.partial(tokenizer.decode, truncate_at_eos=False, skip_special_tokens=False)
    num_shown = min(num_samples, len(dataset))
    for number in range(num_shown):
        sample = dataset[number * len(dataset) // num_shown]
        yield build_preview(sample["id"], sample["tokens"], sample["labels"], decode)


def print_audit(
    key: str, dataset: SupervisedDataset, audit: DatasetAudit | None, samples: list[PreviewSample]
) -> None:
    """Write numbers, bad rows and samples of a data set to the terminal.

    Args:
        key: Its key in the config.
        dataset: With its report.
        audit: Its numbers; None if no row is left.
        samples: Those to show.
    """
    log = get_logger()
    log.info("\n%s", key)
    numbers = {"rows": f"{dataset.report.rows:,} read, none kept"}
    numbers = numbers if audit is None else audit.describe()
    width = max(len(name) for name in numbers)
    for name, value in numbers.items():
        log.info("  %-*s  %s", width, name, value)
    bad = list(iter_bad_rows(dataset))
    for fate, row in bad[:NUM_SHOWN]:
        log.info("  %s: %s %s", fate, make_visible(row.id), make_visible(row.detail))
    if len(bad) > NUM_SHOWN:
        log.info("  and %d more rows", len(bad) - NUM_SHOWN)
    has_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for sample in samples:
        log.info("\n  %s, %d of %d tokens trained on:", make_visible(sample.id),
                 sample.num_trained, sample.num_tokens)  # fmt: skip
        log.info(render_terminal(sample.pieces, colour=has_colour))


def save_bad_rows(path: Path, datasets: dict[str, SupervisedDataset]) -> None:
    """Write a line for every row that is not kept: file, row number, reason, and its fate.

    Args:
        path: A JSONL file.
        datasets: By their keys.
    """
    lines = []
    for key, dataset in datasets.items():
        for fate, row in iter_bad_rows(dataset):
            file, _, number = row.id.rpartition(":")
            line = {"dataset": key, "file": file, "row": int(number), "fate": fate}
            lines.append(json.dumps(line | {"reason": row.reason, "detail": row.detail}))
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def describe_overlap(overlap: Overlap) -> str:
    """Return one line about what the held-out set shares with the training set.

    Args:
        overlap: Between ``dataset`` and ``dataset_val``.
    """
    twins = ", ".join(f"{ours} = {theirs}" for ours, theirs in overlap.ids)
    return (
        f"held-out rows that are also trained on: {overlap.conversations:,}; with a prompt that is "
        f"trained on: {overlap.prompts:,}" + (f" ({make_visible(twins)})" if twins else "")
    )


def audit(options: DataOptions, *, run_dir: Path, records: Records) -> bool:
    """Audit, print and save; return whether training would refuse rows.

    Args:
        options: The typed config.
        run_dir: Where the files go.
        records: Where the numbers go.
    """
    tokenizer = instantiate(options.tokenizer)
    datasets = build_datasets(options, tokenizer)
    shown: list[PreviewSample] = []
    lines: dict[str, str] = {}
    for key, dataset in datasets.items():
        numbers, samples = None, []
        if len(dataset):
            numbers = audit_dataset(build_plan(dataset, options, tokenizer.pad_id))
            number = options.num_samples_shown
            samples = list(preview_samples(dataset, tokenizer, num_samples=number))
            records.summary[key] = numbers.as_dict()
            lines |= {f"{key}: {name}": value for name, value in numbers.describe().items()}
        print_audit(key, dataset, numbers, samples)
        shown += samples
    if len(datasets) == 2 and all(map(len, datasets.values())):
        overlap = find_overlap(datasets["dataset"], datasets["dataset_val"])
        records.summary["overlap"] = {
            "conversations": overlap.conversations,
            "prompts": overlap.prompts,
        }
        lines["overlap"] = describe_overlap(overlap)
        get_logger().info("\n%s", lines["overlap"])
    save_bad_rows(run_dir / "bad_rows.jsonl", datasets)
    page = render_html(run_dir.name, shown, numbers=lines)
    write_atomically(run_dir / "preview.html", page)
    num_refused = sum(len(dataset.report.refused) for dataset in datasets.values())
    is_empty = not all(map(len, datasets.values()))
    records.summary["refused_rows"] = num_refused
    get_logger().info("\naudit: %s (preview.html, bad_rows.jsonl, summary.json)", run_dir)
    if num_refused:
        get_logger().info(
            "%d rows would be refused: mend them, or let the config say what happens to them "
            "(truncation, unusable_rows)", num_refused,
        )  # fmt: skip
    return num_refused > 0 or is_empty


def main(cfg: DictConfig) -> None:
    """Run the recipe.

    Raises:
        SystemExit: With code 1 if training would refuse rows.
    """
    options = read_options(DataOptions, cfg)
    assert options.run_name is not None, "the launcher names the run"
    run_dir = find_run_dir(options.output_dir, options.run_name)
    with open_records(
        run_dir, wandb=options.wandb, recipe="custom_data", config=redact(cfg), is_main=True
    ) as records:
        is_refused = audit(options, run_dir=run_dir, records=records)
    if is_refused:
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(run_recipe(main))
