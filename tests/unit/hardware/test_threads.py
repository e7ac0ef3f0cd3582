"""Threads a rank: the config, else the environment, else an equal share of the cores."""

import pytest

from custom_components.hardware.threads import num_threads_per_rank


@pytest.fixture(autouse=True)
def six_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))


@pytest.mark.parametrize(("ranks", "threads"), [(1, 6), (2, 3), (4, 1), (8, 1)])
def test_ranks_share_the_cores(ranks: int, threads: int) -> None:
    assert num_threads_per_rank(ranks) == threads


def test_the_environment_comes_before_the_share_and_the_config_before_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert num_threads_per_rank(2) == 5
    assert num_threads_per_rank(2, requested=2) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert num_threads_per_rank(2) == 3
