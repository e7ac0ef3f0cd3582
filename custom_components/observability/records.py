"""Records of a run on disk, the record of truth. W&B is only a view of them.

``runs/<run_name>/`` holds ``config.yaml`` (redacted), ``metrics.jsonl`` and ``samples.jsonl``
(append-only, one JSON object a line, flushed line by line) and ``summary.json``.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from omegaconf import DictConfig, OmegaConf

from custom_components.files import write_atomically
from custom_components.observability.metrics import check_names
from custom_components.observability.wandb_view import WandbView
from custom_components.options import WandbOptions
from custom_components.redaction import redact_text

Status = Literal["running", "finished", "preempted", "stopped", "failed"]


def find_run_dir(output_dir: str, run_name: str) -> Path:
    """Return the folder of a run.

    Args:
        output_dir: As in a config; ``~`` is the home folder.
        run_name: The name that the launcher chose, the same on every rank.
    """
    return Path(output_dir).expanduser() / run_name


class Records(Protocol):
    """Where a run's numbers go."""

    summary: dict[str, Any]
    """What ``summary.json`` will hold beside the status."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Record metrics of an optimizer step."""

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Record generated samples of an optimizer step, all with the same keys."""


class NullRecords:
    """Records of the ranks that do not log."""

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {}

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Do nothing."""

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Do nothing."""


def close_abandoned(run_dir: Path, status: Status) -> None:
    """Correct the summary of a run whose rank 0 was ended before it could write one.

    Args:
        run_dir: The run's folder; nothing happens if it has no summary or one with an end.
        status: How the run ended.
    """
    path = run_dir / "summary.json"
    if not path.is_file():
        return
    summary = json.loads(path.read_text(encoding="utf-8"))
    if summary["status"] == "running":
        summary |= {"status": status, "updated": time.time()}
        write_atomically(path, json.dumps(summary, indent=2) + "\n")


class RunRecords:
    """Records of one run, written by rank 0 and shown in W&B.

    Args:
        run_dir: Created if missing.
        open_view: Opens the W&B view that gets the same metrics, once the files are there.
        config_yaml: The redacted config, saved beside the numbers.
        attempt: Counts the starts of this run; every metrics line carries it.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        open_view: Callable[[], WandbView],
        config_yaml: str,
        attempt: int,
    ) -> None:
        self.summary: dict[str, Any] = {}
        self._run_dir = run_dir
        self._attempt = attempt
        self._started = time.time()
        write_atomically(run_dir / "config.yaml", config_yaml)
        self._metrics = (run_dir / "metrics.jsonl").open("a", encoding="utf-8", buffering=1)
        self._samples = (run_dir / "samples.jsonl").open("a", encoding="utf-8", buffering=1)
        self._write_summary("running")
        self._view = open_view()

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Append one line of metrics.

        Args:
            metrics: Plain numbers by name; names must be in ``observability/metrics.py``.
            step: ``global_step``, the number of optimizer steps done.

        Raises:
            KeyError: For a name that is not in the table.
            TypeError: For a value that is not a plain number (a tensor, say).
        """
        check_names(set(metrics))
        for name, value in metrics.items():
            if type(value) not in (int, float):
                raise TypeError(f"{name} is {type(value).__name__}; log plain numbers")
        line = {"global_step": step, "attempt": self._attempt, "time": time.time(), **metrics}
        self._metrics.write(json.dumps(line) + "\n")
        self._view.log(metrics, step=step)

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Append generated samples and show them as a table.

        Args:
            samples: What can be written as JSON, by name; the same names in all of them.
            step: ``global_step``.
        """
        for sample in samples:
            line = {"global_step": step, "attempt": self._attempt, **sample}
            self._samples.write(json.dumps(line) + "\n")
        self._view.log_samples(samples, step=step)

    def close(self, status: Status) -> None:
        """Write ``summary.json`` and close the files and the view.

        Args:
            status: How the run ended.
        """
        self._metrics.close()
        self._samples.close()
        self._write_summary(status)
        self._view.finish(failed=status == "failed")

    def _write_summary(self, status: Status) -> None:
        content = {"status": status, "attempt": self._attempt, "started": self._started}
        content |= {"updated": time.time(), **self.summary}
        write_atomically(self._run_dir / "summary.json", json.dumps(content, indent=2) + "\n")


@contextmanager
def open_records(
    run_dir: Path, *, wandb: WandbOptions, recipe: str, config: DictConfig, is_main: bool
) -> Iterator[Records]:
    """Open the records of a run; they are closed with the right status however it ends.

    Args:
        run_dir: ``<output_dir>/<run_name>``.
        wandb: Where the view goes.
        recipe: Name of the recipe, W&B's job type.
        config: The redacted config.
        is_main: False on ranks that do not log; they get records that do nothing.

    Yields:
        The records.
    """
    if not is_main:
        yield NullRecords()
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    plain: Any = OmegaConf.to_container(config, resolve=False)
    open_view = partial(WandbView, wandb, run_dir, recipe=recipe, config=plain)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    records = RunRecords(
        run_dir, open_view=open_view, config_yaml=OmegaConf.to_yaml(config), attempt=attempt
    )
    try:
        yield records
    except BaseException as error:
        records.summary["error"] = redact_text(f"{type(error).__name__}: {error}")
        is_signal = isinstance(error, KeyboardInterrupt | SystemExit)
        records.close("stopped" if is_signal else "failed")
        raise
    records.close("finished")


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """Return a run's metrics lines in step order.

    Lines of one step and attempt are joined; after a resume the last attempt at a step wins. A
    last line cut off by a crash is left out.

    Raises:
        ValueError: For a damaged line before the last one, naming it.
    """
    path = run_dir / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    by_step: dict[int, dict[str, Any]] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: not a JSON object: {text[:80]!r}") from error
        earlier = by_step.get(line["global_step"], {})
        same_attempt = earlier.get("attempt") == line["attempt"]
        by_step[line["global_step"]] = earlier | line if same_attempt else line
    return [by_step[step] for step in sorted(by_step)]
