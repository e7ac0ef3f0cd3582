"""Compare a base model and its adapters on held-out sentence pairs.

Run it::

    tune run custom_eval smollm2_135m_grammar_eval
    tune run custom_eval smollm2_135m_grammar_eval 'adapter_paths=[runs/NAME/export/adapter]'

The base model is loaded once and evaluated first, then each adapter on the same pairs: GLEU, exact
match, and GLEU against copying the input, which is the score to beat. Out come a table, a few
corrections side by side, and ``runs/<run_name>/``: every correction in ``samples.jsonl``, the
scores in ``metrics.jsonl`` (``global_step`` 0 is the base model, N the Nth adapter) and in
``summary.json``.
"""

import custom_components.compat  # noqa: F401

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import instantiate
from custom_components.config import read_options
from custom_components.errors import UserError
from custom_components.inference.evaluate import EvalResult, evaluate_generation
from custom_components.launch import run_recipe
from custom_components.models.adapters import load_adapter
from custom_components.models.lora_settings import apply_rslora, switch_adapters
from custom_components.models.tokenizer_checks import check_token_ids
from custom_components.models.weights import load_weights
from custom_components.observability.console import get_logger
from custom_components.observability.records import Records, find_run_dir, open_records
from custom_components.options import EvalOptions
from custom_components.redaction import redact
from custom_components.training.distributed import World, open_world

BASE = "base model"
COPY = "copying the input"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One model's scores.

    Args:
        model: ``base model`` or the adapter's path.
        result: Its scores and corrections.
        seconds: How long generation and scoring took.
    """

    model: str
    result: EvalResult
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return what ``summary.json`` keeps of it."""
        return {
            "model": self.model,
            "gleu": self.result.gleu,
            "exact_match": self.result.exact_match,
            "gleu_over_copying": self.result.gleu - self.result.copy_gleu,
            "num_cut": self.result.num_cut,
            "seconds": self.seconds,
        }


# ---- Model and data ----------------------------------------------------------------------------
def build_model(options: EvalOptions, ids: list[int], *, device: torch.device) -> Any:
    """Return the decoder with its base weights.

    Args:
        options: The typed config.
        ids: Token ids that it must embed.
        device: Where it goes.

    Raises:
        UserError: If an adapter does not fit it; that would be a pity to learn after the minutes
            that the base model takes.
    """
    with torch.device("meta"):
        decoder = instantiate(options.model)
    if options.use_rslora:
        apply_rslora(decoder)
    check_token_ids(ids, decoder)
    dtype = PRECISION_STR_TO_DTYPE[options.dtype]
    load_weights(decoder, options.checkpoint_dir, device=device, dtype=dtype, seed=options.seed)
    problems: list[str] = []
    for path in options.adapter_paths:
        try:
            load_adapter(decoder, path)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(*problems)
    return decoder


# ---- Evaluation --------------------------------------------------------------------------------
def evaluate_models(options: EvalOptions, *, world: World, records: Records) -> list[Evaluation]:
    """Evaluate the base model, then each adapter, and record every score and correction.

    Args:
        options: The typed config.
        world: This process and its device.
        records: Where scores and corrections go.
    """
    log = get_logger()
    tokenizer = instantiate(options.tokenizer)
    dataset = instantiate(options.dataset, tokenizer)
    log.info("data: %s", dataset.report.describe())
    decoder = build_model(options, [tokenizer.pad_id, *dataset.largest_ids()], device=world.device)
    evaluations = []
    for step, model in enumerate([BASE, *options.adapter_paths]):
        switch_adapters(decoder, on=step > 0)
        if step > 0:
            load_adapter(decoder, model)
        log.info("evaluating on %d pairs: %s", len(dataset.examples), model)
        started = time.perf_counter()
        result = evaluate_generation(
            decoder,
            dataset,
            tokenizer,
            batch_size=options.batch_size,
            max_new_tokens=options.max_new_tokens,
        )
        seconds = time.perf_counter() - started
        evaluations.append(Evaluation(model=model, result=result, seconds=seconds))
        records.log({"eval/gleu": result.gleu, "eval/exact_match": result.exact_match}, step=step)
        for record in result.records:
            records.log_sample({"model": model, **record.as_dict()})
    return evaluations


# ---- Report ------------------------------------------------------------------------------------
def format_table(evaluations: list[Evaluation]) -> list[str]:
    """Return the lines of the table of scores; copying the input is its first row."""
    result = evaluations[0].result
    rows = [(COPY, result.copy_gleu, result.copy_exact_match, 0.0)]
    rows += [
        (e.model, e.result.gleu, e.result.exact_match, e.result.gleu - e.result.copy_gleu)
        for e in evaluations
    ]
    width = max(len(name) for name, *_ in rows)
    lines = [f"{'model':<{width}} |  GLEU | exact match | GLEU against copying"]
    lines += [
        f"{name:<{width}} | {gleu:5.2f} | {exact:11.1%} | {delta:+20.2f}"
        for name, gleu, exact, delta in rows
    ]
    return lines


def format_samples(evaluations: list[Evaluation], *, num_samples: int) -> list[str]:
    """Return corrections side by side, spread over the data set.

    Args:
        evaluations: The base model's first; «after» is the last adapter.
        num_samples: How many pairs to show.
    """
    before, after = evaluations[0].result.records, evaluations[-1].result.records
    num_shown = min(num_samples, len(before))
    lines = []
    for number in range(num_shown):
        index = number * len(before) // num_shown
        lines += ["", f"{before[index].id}", f"  input      {before[index].input}"]
        lines.append(f"  before     {' '.join(before[index].output.split())}")
        if len(evaluations) > 1:
            lines.append(f"  after      {' '.join(after[index].output.split())}")
        lines.append(f"  reference  {before[index].reference}")
    return lines


def format_next_steps(evaluations: list[Evaluation], *, options: EvalOptions) -> list[str]:
    """Return what to do with the result."""
    num_cut = max(e.result.num_cut for e in evaluations)
    lines = []
    if num_cut:
        lines.append(
            f"note: up to {num_cut} answers of a model used all {options.max_new_tokens} tokens; "
            "longer ones need max_new_tokens=N"
        )
    if len(evaluations) == 1:
        return [
            *lines,
            "next: train an adapter with custom_lora, then run this again with "
            "'adapter_paths=[runs/NAME/export/adapter]'",
        ]
    return [
        *lines,
        f"next: {evaluations[-1].model} is a PEFT adapter; README, «Use what you trained», shows "
        "it in transformers and vLLM",
    ]


def report(
    evaluations: list[Evaluation], *, options: EvalOptions, run_dir: Path, records: Records
) -> None:
    """Write the table, samples and next steps to the terminal and the scores to the summary."""
    log = get_logger()
    result = evaluations[0].result
    records.summary |= {
        "num_pairs": len(result.records),
        "copy_gleu": result.copy_gleu,
        "copy_exact_match": result.copy_exact_match,
        "models": [evaluation.as_dict() for evaluation in evaluations],
    }
    for line in format_samples(evaluations, num_samples=options.num_samples_shown):
        log.info(line)
    log.info("\n%d pairs", len(result.records))
    for line in format_table(evaluations):
        log.info(line)
    log.info("\nall corrections: %s", run_dir / "samples.jsonl")
    log.info("scores: %s", run_dir / "summary.json")
    for line in format_next_steps(evaluations, options=options):
        log.info(line)


def main(cfg: DictConfig) -> None:
    """Run the recipe. It takes one process: generation here is not spread over ranks.

    Raises:
        UserError: If it was started with more.
    """
    options = read_options(EvalOptions, cfg)
    assert options.run_name is not None, "the launcher names the run"
    run_dir = find_run_dir(options.output_dir, options.run_name)
    with open_world(options.device, num_threads=options.num_threads) as world:
        if world.size > 1:
            raise UserError("custom_eval runs in one process: leave out --nproc_per_node")
        with open_records(
            run_dir,
            wandb=options.wandb,
            recipe="custom_eval",
            config=redact(cfg),
            is_main=world.is_main,
        ) as records:
            evaluations = evaluate_models(options, world=world, records=records)
            report(evaluations, options=options, run_dir=run_dir, records=records)


if __name__ == "__main__":
    sys.exit(run_recipe(main))
