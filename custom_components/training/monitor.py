"""Which validation was the best, and whether it is time to stop."""

import difflib
import math
from collections.abc import Mapping

from custom_components.options import FinetuneOptions, MonitorOptions

LOSS = "eval/loss"


class Monitor:
    """Watches one metric from validation to validation.

    Every rank has its own and gives it the same numbers, so all of them decide alike.

    Args:
        options: What is watched. Without a metric nothing is ever better and nothing stops.

    Attributes:
        best_step: Step of the best validation; None before the first.
        best_value: Its value.
    """

    def __init__(self, options: MonitorOptions) -> None:
        self._options = options
        self._num_worse = 0
        self.best_step: int | None = None
        self.best_value: float | None = None

    def update(self, metrics: Mapping[str, float], *, step: int) -> bool:
        """Take in a validation and return whether it is the best so far.

        A value that is not a number is never the best, and one that equals the best is not better.

        Args:
            metrics: What was measured, the watched metric among it.
            step: The optimizer steps done.
        """
        if self._options.metric is None:
            return False
        value = metrics[self._options.metric]
        if not self._is_better(value):
            self._num_worse += 1
            return False
        self.best_step, self.best_value, self._num_worse = step, value, 0
        return True

    def _is_better(self, value: float) -> bool:
        if math.isnan(value) or self.best_value is None:
            return not math.isnan(value)
        return value < self.best_value if self._options.mode == "min" else value > self.best_value

    @property
    def should_stop(self) -> bool:
        """True after ``patience`` validations in a row without a better one."""
        return self._options.patience is not None and self._num_worse >= self._options.patience


def find_monitor_problems(options: FinetuneOptions) -> list[str]:
    """Return one sentence for each thing about validation that the config contradicts.

    Args:
        options: The recipe's options.
    """
    if options.dataset_val is None:
        return _find_needless(options)
    monitor = options.monitor
    problems = []
    if monitor.patience is not None and options.run_val_every_n_steps is None:
        problems.append(
            "monitor.patience counts validations and there is one, after the last step: set "
            "run_val_every_n_steps"
        )
    if monitor.metric is None:
        if monitor.patience is not None:
            problems.append(
                f"monitor.patience needs to know what to watch: set monitor.metric, such as {LOSS}"
            )
        return problems
    measured = [LOSS, *(f"eval/{metric}" for metric in options.generation.metrics)]
    if monitor.metric not in measured:
        return [*problems, _describe_unmeasured(monitor.metric, measured)]
    wanted = "min" if monitor.metric == LOSS else "max"
    if monitor.mode != wanted:
        problems.append(
            f"monitor.mode is {monitor.mode} and of {monitor.metric} "
            f"{'less' if wanted == 'min' else 'more'} is better: set monitor.mode={wanted}"
        )
    return problems


def _find_needless(options: FinetuneOptions) -> list[str]:
    # The others say how to validate, which is moot: dataset_val=null alone turns it off.
    keys = {
        "monitor.metric": options.monitor.metric,
        "monitor.patience": options.monitor.patience,
    }
    return [
        f"{key} is set and there is nothing to validate on: set dataset_val, or remove {key}"
        for key, value in keys.items()
        if value
    ]


def _describe_unmeasured(metric: str, measured: list[str]) -> str:
    near = difflib.get_close_matches(f"eval/{metric.removeprefix('eval/')}", measured, 1)
    hint = f"the nearest is {near[0]}; " if near else ""
    return (
        f"monitor.metric: {metric} is not measured in this run; {hint}it has "
        f"{', '.join(measured)}; more come with generation.metrics"
    )
