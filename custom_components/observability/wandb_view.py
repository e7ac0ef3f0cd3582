"""The W&B view of a run. It never stops training: any fault is said once and the view closes.

Without a key W&B asks on the terminal, and without a terminal it raises (wandb/wandb#960); in a
distributed run that would leave the other ranks waiting. So the mode is decided here, first.
"""

import netrc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from custom_components.observability.console import get_logger
from custom_components.options import WandbOptions

TIMEOUT_S = 60
"""Most seconds that opening or closing an online run may take."""


def has_wandb_key() -> bool:
    """Return whether W&B would find an API key: in the environment or in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def choose_mode(options: WandbOptions) -> str:
    """Return ``online``, ``offline`` or ``disabled``; ``WANDB_MODE`` decides when auto."""
    if options.mode != "auto":
        return options.mode
    return os.environ.get("WANDB_MODE") or ("online" if has_wandb_key() else "offline")


def _describe(error: Exception) -> str:
    """Return type and first line: W&B's messages run over several."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@contextmanager
def _arguments_hidden() -> Iterator[None]:
    """Keep W&B from saving the command line: an override may hold a secret."""
    argv, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = argv


class WandbView:
    """One W&B run, opened before anything expensive happens.

    Args:
        options: Project, group and mode.
        run_dir: W&B's own files go to ``<run_dir>/wandb``.
        recipe: Becomes the job type.
        config: The redacted config.
    """

    def __init__(
        self, options: WandbOptions, run_dir: Path, *, recipe: str, config: Mapping[str, Any]
    ) -> None:
        self._log = get_logger()
        self._run: Any = None
        mode = choose_mode(options)
        if mode == "disabled":
            return
        for attempt in dict.fromkeys((mode, "offline")):
            try:
                self._run = self._start(attempt, options, run_dir, recipe, config)
            except Exception as error:
                self._log.warning("W&B %s did not start (%s)", attempt, _describe(error))
                continue
            where = Path(self._run.dir).parent
            is_online = attempt == "online"
            self._log.info(self._run.url if is_online else f"W&B offline: wandb sync {where}")
            return

    @staticmethod
    def _start(
        mode: str, options: WandbOptions, run_dir: Path, recipe: str, config: Mapping[str, Any]
    ) -> Any:
        import wandb  # ~2 s to import: only the rank that logs pays it

        settings: dict[str, Any] = {"silent": True, "console": "off", "init_timeout": TIMEOUT_S}
        if "finish_timeout" in wandb.Settings.model_fields:  # without it a lost network blocks
            settings["finish_timeout"] = TIMEOUT_S
        with _arguments_hidden():
            run = wandb.init(
                mode=mode,  # type: ignore[arg-type]
                project=options.project,
                entity=options.entity,
                group=options.group,
                tags=options.tags,
                job_type=recipe,
                name=run_dir.name,
                dir=run_dir,
                config=dict(config),
                settings=wandb.Settings(**settings),
            )
        run.define_metric("global_step")
        run.define_metric("*", step_metric="global_step")
        return run

    def _give_up(self, error: Exception) -> None:
        self._run = None
        self._log.warning(
            "W&B stopped (%s). Training goes on; metrics.jsonl is complete.", _describe(error)
        )

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Show one line of metrics."""
        if self._run is not None:
            try:
                self._run.log({"global_step": step, **metrics})
            except Exception as error:
                self._give_up(error)

    def log_samples(self, samples: Sequence[Mapping[str, Any]], *, step: int) -> None:
        """Show samples as the table ``samples``, with the step in its first column.

        Args:
            samples: All with the same keys; a list becomes one text, an item a line.
            step: ``global_step``.
        """
        if self._run is not None and samples:
            try:
                self._run.log({"global_step": step, "samples": self._build_table(samples, step)})
            except Exception as error:
                self._give_up(error)

    @staticmethod
    def _build_table(samples: Sequence[Mapping[str, Any]], step: int) -> Any:
        import wandb

        rows = [
            ["\n".join(map(str, v)) if isinstance(v, list) else v for v in sample.values()]
            for sample in samples
        ]
        columns: list[str | int] = ["global_step", *samples[0]]
        return wandb.Table(columns=columns, data=[[step, *row] for row in rows])

    def finish(self, *, failed: bool) -> None:
        """Close the run; W&B shows it as finished or failed."""
        if self._run is not None:
            try:
                self._run.finish(exit_code=int(failed))
            except Exception as error:
                self._give_up(error)
