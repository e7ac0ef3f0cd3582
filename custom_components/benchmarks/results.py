"""Result lines of benchmarks and studies: one JSON object each, the same fields everywhere."""

import json
import logging
import platform
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from typing import Any

import torch

from custom_components.observability.console import get_logger

_VERSIONED = ("torch", "torchao", "torchtune")


@contextmanager
def only_results() -> Iterator[None]:
    """Keep log lines off standard output, where result lines go. Serves as a decorator too."""
    logger = get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def describe_hardware() -> str:
    """Return the device and the number of threads, in words."""
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"


def build_result(
    study: str,
    setting: Mapping[str, Any],
    metric: str,
    values: Sequence[float],
    unit: str,
    *,
    measured: bool = True,
) -> dict[str, Any]:
    """Return one result: the median of ``values`` and their spread.

    Args:
        study: Name of the benchmark or study.
        setting: What was varied.
        metric: What was measured.
        values: One number a repeat.
        unit: Of the values.
        measured: False for a number that was computed or emulated.
    """
    return {
        "study": study,
        "setting": dict(setting),
        "metric": metric,
        "value": statistics.median(values),
        "unit": unit,
        "n": len(values),
        "spread": [min(values), max(values)],
        "hardware": describe_hardware(),
        "versions": {name: version(name) for name in _VERSIONED},
        "date": date.today().isoformat(),
        "measured": measured,
    }


def print_result(result: Mapping[str, Any]) -> None:
    """Write one result line to standard output."""
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
