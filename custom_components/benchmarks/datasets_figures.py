"""What ``make study-datasets`` measured, as result lines and as table E of the article."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from custom_components.benchmarks.results import build_result, describe_hardware
from custom_components.datasets.collate import Batch
from custom_components.hardware.memory import GIB

STUDY = "study-datasets"
PUBLISHED = {"grammar": (0.82, 2), "instruct": (1.15, 5), "summarize": (1.08, 7)}
"""By type: seconds an iteration and the swing of memory in GB, published for LLaMA-3-8B on four
H100, without batch size, length or packing."""


@dataclass(frozen=True)
class StepFigures:
    """What one step took.

    Args:
        seconds: From the batch on the device to the end of the optimizer's step.
        peak_gib: Memory at its largest.
        num_tokens: Real tokens.
        num_positions: Padding included.
        flop: Of the model, padding included.
    """

    seconds: float
    peak_gib: float
    num_tokens: int
    num_positions: int
    flop: float


@dataclass
class Series:
    """One contestant.

    Args:
        task: Type of data set.
        packed: Whether its rows are packed.
        batches: Its steps to come.
        steps: What its steps took.
        failure: Why it ended early.
    """

    task: str
    packed: bool
    batches: Iterator[list[Batch]]
    steps: list[StepFigures] = field(default_factory=list)
    failure: str | None = None

    @property
    def way(self) -> str:
        """``packed`` or ``padded``."""
        return "packed" if self.packed else "padded"

    @property
    def seconds(self) -> list[float]:
        """Iteration times."""
        return [step.seconds for step in self.steps]

    @property
    def peaks_gib(self) -> list[float]:
        """Peak memory of each step."""
        return [step.peak_gib for step in self.steps]

    @property
    def swing_gib(self) -> float:
        """Half of the difference between the largest and the smallest peak."""
        return (max(self.peaks_gib) - min(self.peaks_gib)) / 2

    @property
    def tokens_per_second(self) -> list[float]:
        """Real tokens per second of each step."""
        return [step.num_tokens / step.seconds for step in self.steps]

    @property
    def padding(self) -> float:
        """Share of all positions that hold no token."""
        num_positions = sum(step.num_positions for step in self.steps)
        return 1 - sum(step.num_tokens for step in self.steps) / num_positions

    def limits_s(self, flop_per_s: float) -> list[float]:
        """Return how long the FLOP of each step take at that rate, in seconds."""
        return [step.flop / flop_per_s for step in self.steps]


def build_results(
    series: Series, setting: dict[str, Any], peak_flop_per_s: float | None
) -> list[dict[str, Any]]:
    """Return the result lines of one contestant.

    Args:
        series: What was measured.
        setting: What all contestants share.
        peak_flop_per_s: What the limit is computed from; None where it is not known.
    """
    here = setting | {"type": series.task, "way": series.way}
    if series.failure is not None:
        line = build_result(STUDY, here, "iteration time", [0.0], "s")
        return [line | {"value": None, "n": 0, "spread": None, "failure": series.failure}]
    figures: list[tuple[str, Sequence[float], str, bool]] = [
        ("iteration time", series.seconds, "s", True),
        ("real tokens per second", series.tokens_per_second, "1/s", True),
        ("peak memory of a step", series.peaks_gib, "GiB", True),
        ("memory swing", [series.swing_gib], "GiB", True),
        ("padding", [series.padding], "ratio", True),
    ]
    if peak_flop_per_s is not None:
        limits = series.limits_s(peak_flop_per_s)
        figures.append(("FLOP of an iteration at the peak rate", limits, "s", False))
    return [
        build_result(STUDY, here, metric, values, unit, measured=measured)
        for metric, values, unit, measured in figures
    ]


def format_table(contestants: Sequence[Series], model: str, peak: float | None) -> str:
    """Return table E: published · limit · measured here, one line a contestant.

    Args:
        contestants: In order.
        model: What was measured.
        peak: FLOP/s for the limit, if known.
    """
    lines = [
        f"Table E. Published: LLaMA-3-8B, four H100, packing not stated. Measured: {model}, "
        f"{describe_hardware()}.",
        f"{'':18}{'iteration, s':^38}{'memory swing, GB':^32}{'peak':>8}{'real':>10}",
        f"{'type':10}{'way':8}{'published · limit · measured':^38}"
        f"{'published · limit · measured':^32}{'GiB':>8}{'tokens/s':>10}{'padding':>9}",
    ]
    for series in contestants:
        seconds, swing_gb = PUBLISHED[series.task]
        published = ("-", "-") if series.packed else (f"{seconds:.2f}", f"±{swing_gb}")
        start = f"{series.task:10}{series.way:8}"
        if series.failure is not None:
            lines.append(f"{start}{series.failure}")
            continue
        limit = "-" if peak is None else f"{statistics.median(series.limits_s(peak)):.2f}"
        spread = f"{min(series.seconds):.2f}-{max(series.seconds):.2f}"
        iteration = f"{published[0]} · {limit} · {statistics.median(series.seconds):.2f} ({spread})"
        swing = f"{published[1]} · ±0 · ±{series.swing_gib * GIB / 1e9:.2f}"
        lines.append(
            f"{start}{iteration:^38}{swing:^32}{statistics.median(series.peaks_gib):8.2f}"
            f"{statistics.median(series.tokens_per_second):10,.0f}{series.padding:9.1%}"
        )
    return "\n".join(lines) + "\n"
