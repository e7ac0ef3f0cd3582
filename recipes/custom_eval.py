"""Compare a base model with adapters and other models on one held-out set.

Run it::

    tune run custom_eval smollm2_135m_grammar_eval
    tune run custom_eval smollm2_135m_grammar_eval \
        'models=[{adapter_path: runs/NAME/export/adapter}]'

The base model is evaluated first, then each of ``models`` on the same rows: an adapter, or a whole
model folder such as a merged or fully fine-tuned one. With ``reference``, the name of one of them,
the table also says how much of its score each model keeps. Out come that table, a few answers side
by side, and ``runs/<run_name>/``: every answer in ``samples.jsonl``, the scores in
``metrics.jsonl`` (``global_step`` 0 is the base model, N the Nth of ``models``) and in
``summary.json``. Several ranks share the rows.
"""

import custom_components.compat  # noqa: F401

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from custom_components.components import instantiate
from custom_components.config import read_options
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.preview import make_visible
from custom_components.datasets.supervised import check_lengths
from custom_components.errors import UserError
from custom_components.inference.eval_models import (
    ModelLoader,
    build_decoder,
    find_model_problems,
    list_models,
)
from custom_components.inference.evaluate import EvalResult, evaluate_generation, score_copying
from custom_components.inference.validation import measure_validation_loss
from custom_components.launch import run_recipe
from custom_components.models.causal_lm import CausalLM
from custom_components.observability.console import get_logger
from custom_components.observability.records import Records, find_run_dir, open_records
from custom_components.options import EvalOptions, TaskMetric
from custom_components.redaction import redact
from custom_components.training.data import setup_dataset
from custom_components.training.distributed import World, open_world

COPY = "copying the input"
HEADINGS: dict[TaskMetric, str] = {
    "gleu": "GLEU",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "exact_match": "exact match",
}
MAX_CHARACTERS_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One model's scores.

    Args:
        model: ``base model`` or the entry's name.
        loss: Mean loss per supervised token.
        result: Its scores and answers.
        seconds: How long all of it took, loading included.
    """

    model: str
    loss: float
    result: EvalResult
    seconds: float


# ---- Evaluation --------------------------------------------------------------------------------
def evaluate_models(
    options: EvalOptions, *, world: World, records: Records
) -> tuple[list[Evaluation], dict[TaskMetric, float]]:
    """Evaluate every model and record its scores and answers.

    Args:
        options: The typed config.
        world: The ranks; each holds the whole model and takes a share of the rows.
        records: Where scores and answers go.

    Returns:
        The evaluations in order, and the scores of copying the input: empty without GLEU, the one
        metric that they say something about.

    Raises:
        UserError: If data or models are refused, before anything is loaded.
    """
    log = get_logger()
    tokenizer = instantiate(options.tokenizer)
    dataset = setup_dataset(options.dataset, tokenizer, world=world, key="dataset")
    log.info("data: %s", dataset.report.describe())
    problems = find_model_problems(options)
    if problems:
        raise UserError(*problems)
    for spec in list_models(options):
        check_lengths(dataset, build_decoder(spec).max_seq_len, key="dataset")
    plan = DataPlan(
        dataset=dataset,
        batch_size=options.batch_size,
        gradient_accumulation_steps=1,
        world_size=world.size,
        rank=world.rank,
        seed=options.seed,
        shuffle=False,
        pad_id=tokenizer.pad_id,
        epochs=1,
        max_steps=None,
        device=world.device,
    )
    loader = ModelLoader(
        options, [tokenizer.pad_id, dataset.report.largest_id], device=world.device
    )
    evaluations = []
    for step, spec in enumerate(list_models(options)):
        log.info("evaluating on %d rows: %s", len(dataset), spec.name)
        started = time.perf_counter()
        loss, result = evaluate_model(
            loader.load(spec),  # held by no name here: the next one may need its memory
            plan,
            tokenizer,
            options=options,
            world=world,
        )
        seconds = time.perf_counter() - started
        evaluations.append(Evaluation(model=spec.name, loss=loss, result=result, seconds=seconds))
        metrics = {"eval/loss": loss, **result.as_metrics(), "eval/time_s": seconds}
        records.log(metrics, step=step)
        samples = [{"model": spec.name, **record.as_dict()} for record in result.records]
        records.log_samples(samples, step=step)
    is_correction = "gleu" in options.metrics and world.is_main
    return evaluations, score_copying(dataset.examples, options.metrics) if is_correction else {}


def evaluate_model(
    model: CausalLM, plan: DataPlan, tokenizer: Any, *, options: EvalOptions, world: World
) -> tuple[float, EvalResult]:
    """Return one model's loss, its answers and their scores, the same on every rank."""
    loss = measure_validation_loss(model, plan.epoch_batches(), world=world)
    result = evaluate_generation(
        model,
        plan.dataset.examples,
        tokenizer,
        metrics=options.metrics,
        batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens,
        world=world,
    )
    return loss, result


# ---- Report ------------------------------------------------------------------------------------
def share_kept(
    scores: Mapping[TaskMetric, float], reference: Mapping[TaskMetric, float]
) -> dict[TaskMetric, float | None]:
    """Return each score in percent of the reference model's; None where that is 0.

    Args:
        scores: One model's.
        reference: Those of the model that counts as 100 %.
    """
    return {
        metric: 100 * score / reference[metric] if reference[metric] else None
        for metric, score in scores.items()
    }


def format_table(
    rows: Mapping[str, Mapping[TaskMetric, float]],
    losses: Mapping[str, float],
    *,
    reference: str | None,
) -> list[str]:
    """Return the lines of the table of scores.

    Args:
        rows: Scores by name, in order.
        losses: Loss by name, of those that have one.
        reference: Name of the row that counts as 100 %; None leaves the shares out.
    """
    width = max(len(name) for name in [*rows, "model"])
    metrics = list(next(iter(rows.values())))
    headings = [f"{HEADINGS[metric]:>11}" for metric in metrics]
    if reference is not None:
        headings = [f"{heading} |    kept" for heading in headings]
    lines = [" | ".join([f"{'model':<{width}}", "  loss", *headings])]
    for name, scores in rows.items():
        cells = [f"{_format_score(metric, scores[metric]):>11}" for metric in metrics]
        if reference is not None:
            kept = share_kept(scores, rows[reference])
            cells = [
                f"{cell} | {_format_share(kept[metric]):>7}"
                for cell, metric in zip(cells, metrics, strict=True)
            ]
        loss = f"{losses[name]:.4f}" if name in losses else "-"
        lines.append(" | ".join([f"{name:<{width}}", f"{loss:>6}", *cells]))
    return lines


def _format_score(metric: TaskMetric, score: float) -> str:
    return f"{score:.1%}" if metric == "exact_match" else f"{score:.2f}"


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f}%"


def format_samples(evaluations: Sequence[Evaluation], *, num_samples: int) -> list[str]:
    """Return answers side by side, spread over the data set.

    Args:
        evaluations: The base model's first; «after» is the last model.
        num_samples: How many rows to show.
    """
    before, after = evaluations[0].result.records, evaluations[-1].result.records
    num_shown = min(num_samples, len(before))
    lines = []
    for number in range(num_shown):
        index = number * len(before) // num_shown
        lines += ["", f"{before[index].id}", f"  input      {_shorten(before[index].input)}"]
        lines.append(f"  before     {_shorten(before[index].output)}")
        if len(evaluations) > 1:
            lines.append(f"  after      {_shorten(after[index].output)}")
        lines.append(f"  reference  {_shorten(before[index].references[0])}")
    return lines


def _shorten(text: str) -> str:
    line = make_visible(" ".join(text.split()))  # nobody knows what a model writes
    return line if len(line) <= MAX_CHARACTERS_SHOWN else f"{line[:MAX_CHARACTERS_SHOWN]} ..."


def format_next_steps(evaluations: Sequence[Evaluation], *, options: EvalOptions) -> list[str]:
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
            "'models=[{adapter_path: runs/NAME/export/adapter}]'",
        ]
    adapter_path = options.models[-1].adapter_path
    if adapter_path is None:
        return lines
    return [
        *lines,
        f"next: {adapter_path} is a PEFT adapter; README, «Use what you trained», shows it in "
        "transformers and vLLM",
    ]


def report(
    evaluations: Sequence[Evaluation],
    copying: Mapping[TaskMetric, float],
    *,
    options: EvalOptions,
    run_dir: Path,
    records: Records,
) -> None:
    """Write the table, samples and next steps to the terminal and the scores to the summary."""
    log = get_logger()
    rows = {COPY: copying} if copying else {}
    rows |= {e.model: e.result.scores for e in evaluations}
    records.summary |= {
        "num_rows": len(evaluations[0].result.records),
        "copying": dict(copying),
        "reference": options.reference,
        "models": [summarize(e, reference=rows.get(options.reference or "")) for e in evaluations],
    }
    for line in format_samples(evaluations, num_samples=options.num_samples_shown):
        log.info(line)
    log.info("\n%d rows", len(evaluations[0].result.records))
    losses = {e.model: e.loss for e in evaluations}
    for line in format_table(rows, losses, reference=options.reference):
        log.info(line)
    log.info("\nall answers: %s", run_dir / "samples.jsonl")
    log.info("scores: %s", run_dir / "summary.json")
    for line in format_next_steps(evaluations, options=options):
        log.info(line)


def summarize(
    evaluation: Evaluation, *, reference: Mapping[TaskMetric, float] | None
) -> dict[str, Any]:
    """Return what ``summary.json`` keeps of a model."""
    result = evaluation.result
    kept = None if reference is None else share_kept(result.scores, reference)
    return {
        "model": evaluation.model,
        "loss": evaluation.loss,
        "scores": result.scores,
        "kept_percent": kept,
        "num_cut": result.num_cut,
        "seconds": evaluation.seconds,
    }


def main(cfg: DictConfig) -> None:
    """Run the recipe on this rank."""
    options = read_options(EvalOptions, cfg)
    assert options.run_name is not None, "the launcher names the run"
    run_dir = find_run_dir(options.output_dir, options.run_name)
    with (
        open_world(options.device, num_threads=options.num_threads) as world,
        open_records(
            run_dir,
            wandb=options.wandb,
            recipe="custom_eval",
            config=redact(cfg),
            is_main=world.is_main,
        ) as records,
    ):
        evaluations, copying = evaluate_models(options, world=world, records=records)
        report(evaluations, copying, options=options, run_dir=run_dir, records=records)


if __name__ == "__main__":
    sys.exit(run_recipe(main))
