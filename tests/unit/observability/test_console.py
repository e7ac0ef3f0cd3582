"""A progress bar on a terminal, plain lines elsewhere, nothing on ranks that do not log."""

import io

import pytest

from custom_components.observability.console import Progress

METRICS = {"train/loss": 1.25, "train/lr": 1e-3, "perf/tokens_per_sec_per_gpu": 1234.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_progress(*, enabled: bool = True) -> None:
    progress = Progress(4, enabled=enabled)
    for step in range(1, 5):
        progress.advance(step, METRICS if step % 2 == 0 else None)
    progress.close()


def test_without_a_terminal_it_writes_one_line_a_logged_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_progress()
    assert capsys.readouterr().out.splitlines() == [
        "step 2/4  loss 1.2500  lr 1.00e-03  1,234 tokens/s",
        "step 4/4  loss 1.2500  lr 1.00e-03  1,234 tokens/s",
    ]


def test_on_a_terminal_it_draws_a_bar_and_no_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    run_progress()
    assert "4/4" in terminal.getvalue() and "loss 1.2500" in terminal.getvalue()
    assert "step 2/4" not in terminal.getvalue()


def test_ranks_that_do_not_log_show_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    run_progress(enabled=False)
    assert not terminal.getvalue()
