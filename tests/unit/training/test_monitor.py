"""The best validation and early stopping, and what a config may ask of them."""

import math

import pytest

from custom_components.options import FinetuneOptions, GenerationOptions, MonitorOptions
from custom_components.training.monitor import Monitor, find_monitor_problems


def watch(values: list[float], **changes) -> tuple[list[bool], Monitor, list[bool]]:
    """Return which values were the best so far, and when it wanted to stop."""
    monitor = Monitor(MonitorOptions(**{"metric": "eval/loss", **changes}))
    better, stops = [], []
    for number, value in enumerate(values, start=1):
        better.append(monitor.update({"eval/loss": value, "eval/gleu": 0.0}, step=10 * number))
        stops.append(monitor.should_stop)
    return better, monitor, stops


def test_less_is_better_with_min_and_more_with_max() -> None:
    better, monitor, _ = watch([3.0, 2.0, 2.5, 1.0])
    assert better == [True, True, False, True]
    assert (monitor.best_step, monitor.best_value) == (40, 1.0)
    better, monitor, _ = watch([3.0, 2.0, 2.5, 4.0], mode="max")
    assert better == [True, False, False, True]
    assert (monitor.best_step, monitor.best_value) == (40, 4.0)


def test_an_equal_value_is_not_better_so_the_earlier_step_is_kept() -> None:
    better, monitor, _ = watch([2.0, 2.0])
    assert better == [True, False] and monitor.best_step == 10


@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_a_number_is_never_the_best(mode: str) -> None:
    better, monitor, _ = watch([math.nan, 2.0, math.nan], mode=mode)
    assert better == [False, True, False] and monitor.best_value == 2.0
    better, monitor, _ = watch([math.nan], mode=mode)
    assert better == [False] and monitor.best_step is None


def test_it_stops_after_patience_validations_in_a_row_without_a_better_one() -> None:
    _, _, stops = watch([3.0, 3.5, 2.0, 2.1, 2.2, 2.3], patience=2)
    assert stops == [False, False, False, False, True, True]
    _, _, stops = watch([3.0, math.nan, math.nan], patience=2)
    assert stops == [False, False, True]
    _, _, stops = watch([1.0, 2.0, 3.0, 4.0])
    assert not any(stops)


def test_without_a_metric_nothing_is_better_and_nothing_stops() -> None:
    better, monitor, stops = watch([3.0, 2.0], metric=None)
    assert not any(better) and not any(stops) and monitor.best_step is None


COMPONENT = {"_component_": "torch.nn.Identity"}


def find(**changes) -> list[str]:
    needed = dict.fromkeys(
        ("model", "tokenizer", "dataset", "optimizer", "lr_scheduler"), COMPONENT
    )
    values = {"checkpoint_dir": "random", "dataset_val": COMPONENT, "run_val_every_n_steps": 5}
    return find_monitor_problems(FinetuneOptions(**needed, **values | changes))


def test_what_is_measured_may_be_watched() -> None:
    assert find() == []
    assert find(monitor=MonitorOptions(metric="eval/loss", patience=3)) == []
    scored = GenerationOptions(metrics=["gleu"])
    assert find(generation=scored, monitor=MonitorOptions(metric="eval/gleu", mode="max")) == []


@pytest.mark.parametrize(
    ("metric", "nearest"),
    [("eval/los", "eval/loss"), ("train/loss", "eval/loss"), ("glue", "eval/gleu")],
)
def test_an_unknown_metric_is_refused_with_the_nearest(metric: str, nearest: str) -> None:
    (problem,) = find(
        generation=GenerationOptions(metrics=["gleu"]), monitor=MonitorOptions(metric=metric)
    )
    assert problem.startswith(f"monitor.metric: {metric} is not measured")
    assert f"the nearest is {nearest};" in problem


def test_a_metric_that_this_run_does_not_measure_is_refused_with_those_it_has() -> None:
    (problem,) = find(monitor=MonitorOptions(metric="eval/rouge_l", mode="max"))
    assert "it has eval/loss" in problem and "generation.metrics" in problem


@pytest.mark.parametrize(("metric", "mode"), [("eval/loss", "max"), ("eval/gleu", "min")])
def test_watching_for_the_worst_is_refused(metric: str, mode: str) -> None:
    monitor = MonitorOptions(metric=metric, mode=mode)
    (problem,) = find(generation=GenerationOptions(metrics=["gleu"]), monitor=monitor)
    assert problem.startswith(f"monitor.mode is {mode}") and "set monitor.mode=" in problem


def test_patience_needs_a_metric_and_more_than_one_validation() -> None:
    (problem,) = find(monitor=MonitorOptions(patience=2))
    assert "set monitor.metric" in problem
    (problem,) = find(
        run_val_every_n_steps=None, monitor=MonitorOptions(metric="eval/loss", patience=2)
    )
    assert "set run_val_every_n_steps" in problem


def test_what_cannot_be_watched_without_validation_is_named_and_the_rest_is_moot() -> None:
    problems = find(
        dataset_val=None,
        generation=GenerationOptions(metrics=["gleu"]),
        monitor=MonitorOptions(metric="eval/loss", patience=2),
    )
    assert [problem.split(" is set")[0] for problem in problems] == [
        "monitor.metric", "monitor.patience",
    ]  # fmt: skip
    off = {"dataset_val": None, "run_val_every_n_steps": 5}
    assert find(**off, generation=GenerationOptions(metrics=["gleu"])) == []
