"""Three types of data set through one model, padded and packed: table E of the article.

Run it: ``make study-datasets``, or ``python -m custom_components.benchmarks.datasets --steps 20``.
Another model, device or precision: ``--model llama3_8b``, and ``key=value`` as for ``tune run``.

Grammar, instruct and summarize are the embedded corpora with the settings of their configs
``<model>_<task>.yaml``. A padded step takes ``--batch-size`` shuffled rows, each filled up to the
longest of them; a packed one takes a single pack of ``--max-seq-len`` positions. One model and
optimizer serve all six, which take turns step by step on one device, so that a noisy neighbour
meets all of them. The first turn warms up.

Memory is the peak of each step alone: the resident set on a CPU, the allocator's memory on CUDA.
Its swing is half of what lies between the largest and the smallest. The limit beside an iteration
time is its FLOP, padding included, at the device's peak; on a CPU at the rate of one large matrix
product measured in turn with the steps. The swing's limit is none at all: every step alike.

Out come a table on stderr and one JSON result line a figure on stdout.
"""

import custom_components.compat  # noqa: F401

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.benchmarks.datasets_figures import (
    PUBLISHED,
    Series,
    StepFigures,
    build_results,
    format_table,
)
from custom_components.benchmarks.lora_step import measure_gemm_rate
from custom_components.benchmarks.results import only_results, print_result
from custom_components.components import instantiate
from custom_components.config import load_config, read_options
from custom_components.datasets.collate import Batch
from custom_components.datasets.plan import DataPlan
from custom_components.hardware.memory import read_peak_memory, reset_peak_memory
from custom_components.hardware.peaks import find_peak_flop_per_s
from custom_components.hardware.threads import num_threads_per_rank
from custom_components.launch import report_failure
from custom_components.models.adapters import adapter_parameters, freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.lora_settings import apply_rslora
from custom_components.models.step_flop import StepFlop, measure_step_flop
from custom_components.models.weights import load_weights
from custom_components.options import LoraOptions
from custom_components.registry import find_config
from custom_components.training.distributed import World
from custom_components.training.parallel import parallelize
from custom_components.training.step import train_step
from custom_components.training.trainables import build_trainables

Step = Callable[[Sequence[Batch]], None]


# ---- Set-up --------------------------------------------------------------------------------------
def read_task_options(model: str, task: str, overrides: Sequence[str]) -> LoraOptions:
    """Return the options of one type.

    Args:
        model: First part of the config's name.
        task: The rest of it.
        overrides: ``key=value``.

    Raises:
        UserError: If there is no such config or it cannot be read.
    """
    path = find_config(f"{model}_{task}", "custom_lora")
    return read_options(LoraOptions, load_config(path, overrides))


def build_series(
    options: LoraOptions, task: str, *, packed: bool, batch_size: int, num_steps: int
) -> Series:
    """Return one contestant.

    Args:
        options: Of its config; seed, data set and loader count.
        task: Its type.
        packed: One pack a step instead of ``batch_size`` rows.
        batch_size: Rows of a padded step.
        num_steps: Steps, warm-up included.
    """
    tokenizer = instantiate(options.tokenizer)
    plan = DataPlan(
        dataset=instantiate(options.dataset, tokenizer),
        batch_size=1 if packed else batch_size,
        gradient_accumulation_steps=1,
        world_size=1,
        rank=0,
        seed=options.seed,
        shuffle=True,
        pad_id=tokenizer.pad_id,
        epochs=None,
        max_steps=num_steps,
        packed=packed,
        dataloader=options.dataloader,
        device=torch.device(options.device),
    )
    return Series(task, packed, plan.steps())


def build_step(options: LoraOptions) -> tuple[Step, StepFlop]:
    """Return the training step that all contestants share, and what it takes.

    Args:
        options: Model, optimizer and hardware as in ``custom_lora``, on one device.
    """
    device, dtype = torch.device(options.device), PRECISION_STR_TO_DTYPE[options.dtype]
    world = World(rank=0, size=1, local_rank=0, device=device)
    with torch.device("meta"):
        decoder = instantiate(options.model)
    if options.use_rslora:
        apply_rslora(decoder)
    freeze_base(decoder)
    flop = measure_step_flop(decoder)
    model = CausalLM(decoder, num_chunk_tokens=options.num_chunk_tokens)
    parallelize(
        model,
        world,
        data_parallel=options.data_parallel,
        activation_checkpointing=options.activation_checkpointing,
        compile_layers=options.compile,
        dtype=dtype,
    )
    load_weights(decoder, options.checkpoint_dir, device=device, dtype=dtype, seed=options.seed)
    trainables = build_trainables(adapter_parameters(decoder), world)
    optimizer = instantiate(options.optimizer, trainables.masters)
    model.train()

    def step(batches: Sequence[Batch]) -> None:
        train_step(
            model,
            trainables,
            optimizer,
            batches,
            step=0,
            clip_grad_norm=options.clip_grad_norm,
            world=world,
        )

    return step, flop


# ---- Measuring -----------------------------------------------------------------------------------
def read_peak_gib(device: torch.device) -> float:
    """Return the peak since ``reset_peak_memory``."""
    key = "mem/peak_allocated_gib" if device.type == "cuda" else "mem/peak_rss_gib"
    return read_peak_memory(device)[key]


def measure_step(
    batches: Sequence[Batch], step: Step, flop: StepFlop, device: torch.device
) -> StepFigures:
    """Run a step and return what it took."""
    reset_peak_memory(device)
    started = time.perf_counter()
    step(batches)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - started
    peak_gib = read_peak_gib(device)
    num_positions = sum(batch.num_positions for batch in batches)
    return StepFigures(
        seconds,
        peak_gib,
        num_tokens=sum(batch.num_tokens for batch in batches),
        num_positions=num_positions,
        flop=flop.count(
            num_positions=num_positions,
            sum_of_squares=sum(batch.sum_of_squares for batch in batches),
            num_supervised=sum(batch.num_supervised for batch in batches),
        ),
    )


def measure_rounds(
    contestants: Sequence[Series],
    step: Step,
    flop: StepFlop,
    device: torch.device,
    *,
    num_rounds: int,
) -> list[float]:
    """Let the contestants take turns, after one turn to warm up.

    Args:
        contestants: Are given what their steps took.
        step: Trains on a step's batches.
        flop: What it takes.
        device: Where it runs.
        num_rounds: Steps of each contestant that count.

    Returns:
        On a CPU, FLOP/s of a large matrix product in each round.
    """
    rates = []
    for number in range(-1, num_rounds):
        for series in contestants:
            if series.failure is not None:
                continue
            try:
                figures = measure_step(next(series.batches), step, flop, device)
            except torch.OutOfMemoryError:
                series.failure = "out of memory"
                continue
            if number >= 0:
                series.steps.append(figures)
        if device.type == "cpu":
            rates.append(measure_gemm_rate())
    return rates


# ---- Command line --------------------------------------------------------------------------------
@only_results()
def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code.

    Args:
        words: The command line without the program's name; by default this process's.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2_135m", help="first part of the configs' names")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-seq-len", type=int, default=1024)
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[])
    arguments = parser.parse_intermixed_args(words)
    try:
        run_study(arguments)
    except BaseException as error:
        return report_failure(error)
    return 0


def run_study(arguments: argparse.Namespace) -> None:
    """Measure all contestants and print their figures.

    Args:
        arguments: See ``main``.

    Raises:
        UserError: If a config or its data cannot be used.
    """
    overrides = [f"dataset.max_seq_len={arguments.max_seq_len}", *arguments.overrides]
    options = {task: read_task_options(arguments.model, task, overrides) for task in PUBLISHED}
    contestants = [
        build_series(
            options[task],
            task,
            packed=packed,
            batch_size=arguments.batch_size,
            num_steps=arguments.steps + 1,
        )
        for task in PUBLISHED
        for packed in (False, True)
    ]
    shared = options["grammar"]
    torch.set_num_threads(num_threads_per_rank(1, shared.num_threads))
    device = torch.device(shared.device)
    step, flop = build_step(shared)
    rates = measure_rounds(contestants, step, flop, device, num_rounds=arguments.steps)
    peak = find_peak_flop_per_s(device, PRECISION_STR_TO_DTYPE[shared.dtype])
    if rates:
        peak = statistics.median(rates)
    setting = {
        "model": arguments.model,
        "dtype": shared.dtype,
        "batch_size": arguments.batch_size,
        "max_seq_len": arguments.max_seq_len,
    }
    for series in contestants:
        for result in build_results(series, setting, peak):
            print_result(result)
    sys.stderr.write(format_table(contestants, arguments.model, peak))


if __name__ == "__main__":
    sys.exit(main())
