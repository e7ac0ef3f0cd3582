"""What the terminal shows: log lines, and a progress bar where there is a terminal."""

import contextlib
import logging
import os
import sys
from collections.abc import Mapping

from tqdm import tqdm

_NAME = "tunepack"


class _StdoutHandler(logging.Handler):
    """Writes to what ``sys.stdout`` is at that moment, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        # A terminal that went away (`tune run ... | head`) must not end or litter a training run.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            tqdm.write(self.format(record), file=sys.stdout)


def get_logger() -> logging.Logger:
    """Return the pack's logger. Only global rank 0 shows less than a warning."""
    logger = logging.getLogger(_NAME)
    if not logger.handlers:
        handler = _StdoutHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        is_main = os.environ.get("RANK", "0") == "0"
        logger.setLevel(logging.INFO if is_main else logging.WARNING)
    return logger


class Progress:
    """A bar on a terminal, a plain line otherwise. Ranks that do not log pass ``enabled=False``.

    Args:
        total: Optimizer steps of the run.
        enabled: False makes every call do nothing.
    """

    def __init__(self, total: int, *, enabled: bool = True) -> None:
        self._total = total
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._lines = enabled and not is_terminal
        self._bar = tqdm(
            total=total,
            disable=not enabled or self._lines,
            file=sys.stdout,
            dynamic_ncols=True,
            unit="step",
        )

    def advance(self, step: int, metrics: Mapping[str, float] | None) -> None:
        """Move to ``step``; ``metrics`` is given on the steps that are logged."""
        self._bar.update(step - self._bar.n)
        if metrics is None:
            return
        parts = []
        if "train/loss" in metrics:
            parts.append(f"loss {metrics['train/loss']:.4f}")
        if "train/lr" in metrics:
            parts.append(f"lr {metrics['train/lr']:.2e}")
        parts.append(f"{metrics['perf/tokens_per_sec_per_gpu']:,.0f} tokens/s")
        self._bar.set_postfix_str(", ".join(parts))
        if self._lines:
            get_logger().info("step %d/%d  %s", step, self._total, "  ".join(parts))

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._bar.close()
