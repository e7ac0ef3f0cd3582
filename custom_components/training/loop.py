"""The one training loop for language models.

It knows nothing of the method: the recipe builds the parts and passes them in. What it promises:
one optimizer step per window of the data plan, the last window of an epoch included whatever its
size; plain numbers in the records; evaluation and saving left out of the timings.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from custom_components.datasets.plan import DataPlan
from custom_components.hardware.memory import read_peak_memory
from custom_components.models.causal_lm import CausalLM
from custom_components.models.step_flop import Yardstick
from custom_components.observability.console import Progress, get_logger
from custom_components.observability.records import Records
from custom_components.options import MonitorOptions
from custom_components.training.distributed import World
from custom_components.training.monitor import Monitor
from custom_components.training.step import StepResult, train_step
from custom_components.training.trainables import Trainables


@dataclass
class TrainingProgress:
    """What the run has done so far, over all ranks.

    ``best_step`` and ``best_value`` belong to the best validation of the watched metric.
    """

    global_step: int = 0
    tokens_seen: int = 0
    supervised_tokens: int = 0
    skipped_steps: int = 0
    best_step: int | None = None
    best_value: float | None = None
    stopped_early: bool = False

    def update(self, result: StepResult) -> None:
        """Count one optimizer step."""
        self.global_step += 1
        self.tokens_seen += result.num_tokens
        self.supervised_tokens += result.num_supervised
        self.skipped_steps += result.skipped


@dataclass
class _Stopwatch:
    """Seconds, tokens and steps since the last logged line."""

    step_time_s: float = 0.0
    data_time_s: float = 0.0
    num_tokens: int = 0
    num_steps: int = 0
    flop: float = 0.0

    def add(
        self, data_s: float, total_s: float, result: StepResult, yardstick: Yardstick | None
    ) -> None:
        self.data_time_s += data_s
        self.step_time_s += total_s
        self.num_tokens += result.num_tokens
        self.num_steps += 1
        if yardstick is not None and not result.skipped:
            self.flop += yardstick.flop.count(
                num_positions=result.num_positions,
                sum_of_squares=result.sum_of_squares,
                num_supervised=result.num_supervised,
            )

    def read(self, num_ranks: int, yardstick: Yardstick | None) -> dict[str, float]:
        rank_s = self.step_time_s * num_ranks
        metrics = {
            "perf/tokens_per_sec_per_gpu": self.num_tokens / rank_s,
            "perf/step_time_s": self.step_time_s / self.num_steps,
            "perf/data_time_s": self.data_time_s / self.num_steps,
        }
        if yardstick is not None:
            metrics["perf/mfu"] = self.flop / rank_s / yardstick.peak_flop_per_s
        return metrics


def _collect_metrics(
    result: StepResult, progress: TrainingProgress, plan: DataPlan, lr: float
) -> dict[str, float]:
    metrics: dict[str, float] = {
        "train/lr": lr,
        "train/epoch": progress.global_step / plan.steps_per_epoch,
        "train/tokens_seen": progress.tokens_seen,
        "train/supervised_tokens": progress.supervised_tokens,
        "perf/padding_fraction": 1 - result.num_tokens / result.num_positions,
        "health/skipped_steps": progress.skipped_steps,
    }
    if result.loss is not None and result.grad_norm is not None:
        metrics |= {"train/loss": result.loss, "train/grad_norm": result.grad_norm}
    return metrics


@dataclass(frozen=True)
class _Validation:
    """Evaluates after some steps, records what came out and saves the best."""

    evaluate: Callable[[int], Mapping[str, float]] | None
    every_n_steps: int | None
    num_steps: int
    monitor: Monitor
    records: Records
    save: Callable[[int], None]

    def is_due(self, step: int) -> bool:
        if self.evaluate is None:
            return False
        is_nth = self.every_n_steps is not None and step % self.every_n_steps == 0
        return is_nth or step == self.num_steps

    def run(self, progress: TrainingProgress) -> None:
        """Put into ``progress`` what was found, and whether to stop."""
        assert self.evaluate is not None
        step, started = progress.global_step, time.perf_counter()
        metrics = self.evaluate(step)
        time_s = time.perf_counter() - started
        self.records.log({**metrics, "eval/time_s": time_s}, step=step)
        is_best = self.monitor.update(metrics, step=step)
        progress.best_step, progress.best_value = self.monitor.best_step, self.monitor.best_value
        progress.stopped_early = self.monitor.should_stop and step < self.num_steps
        values = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        get_logger().info("step %d: %s%s", step, values, "  (best so far)" if is_best else "")
        if is_best:
            self.save(step)
        if progress.stopped_early:
            get_logger().info("stopped early: nothing better since step %s", progress.best_step)


def train(
    model: CausalLM,
    trainables: Trainables,
    optimizer: Optimizer,
    lr_scheduler: LRScheduler,
    plan: DataPlan,
    *,
    world: World,
    records: Records,
    clip_grad_norm: float | None,
    log_every_n_steps: int,
    save: Callable[[int], None],
    evaluate: Callable[[int], Mapping[str, float]] | None = None,
    run_val_every_n_steps: int | None = None,
    monitor: Monitor | None = None,
    yardstick: Yardstick | None = None,
) -> TrainingProgress:
    """Train until the plan ends or the monitor says stop, and save.

    What is saved is the state at the best validation, where the monitor watches a metric and it
    was ever a number, else the state at the end.

    Args:
        model: What is trained.
        trainables: Its trainable parameters.
        optimizer: Over the trainables' masters.
        lr_scheduler: Stepped once an optimizer step, skipped steps included.
        plan: The data.
        world: The ranks.
        records: Where numbers go.
        clip_grad_norm: Largest gradient norm, or None.
        log_every_n_steps: How often a line is written; the first and last step always are.
        save: Called on every rank with the step whose state it saves; a later call replaces it.
        evaluate: Called on every rank with the number of steps done; returns what was measured, the
            same numbers on all ranks, and leaves model and random state as found.
        run_val_every_n_steps: How often it is called; after the last step it always is.
        monitor: Watches what it returns.
        yardstick: What ``perf/mfu`` is measured by; without one it is left out.

    Returns:
        What was done.

    Raises:
        NonFiniteError: See ``train_step``.
        UserError: If the plan has no step.
    """
    progress, stopwatch, num_steps = TrainingProgress(), _Stopwatch(), plan.num_steps
    validation = _Validation(
        evaluate, run_val_every_n_steps, num_steps,
        monitor or Monitor(MonitorOptions()), records, save,
    )  # fmt: skip
    bar = Progress(num_steps, enabled=world.is_main)
    model.train()
    steps = plan.steps()
    for step in range(1, num_steps + 1):
        started = time.perf_counter()
        batches = next(steps)
        data_s = time.perf_counter() - started
        lr = float(lr_scheduler.get_last_lr()[0])
        result = train_step(
            model, trainables, optimizer, batches,
            step=step, clip_grad_norm=clip_grad_norm, world=world,
        )  # fmt: skip
        lr_scheduler.step()
        progress.update(result)
        stopwatch.add(data_s, time.perf_counter() - started, result, yardstick)
        if validation.is_due(step):
            validation.run(progress)
        metrics = None
        if step % log_every_n_steps == 0 or step in (1, num_steps) or progress.stopped_early:
            metrics = _collect_metrics(result, progress, plan, lr) | stopwatch.read(
                world.size, yardstick
            )
            records.log(metrics | read_peak_memory(world.device), step=step)
            stopwatch = _Stopwatch()
        bar.advance(step, metrics)
        if progress.stopped_early:
            break
    bar.close()
    if progress.best_step is None:
        save(progress.global_step)
    return progress
