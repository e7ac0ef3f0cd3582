"""Run a recipe in this process and turn whatever goes wrong into one message and an exit code.

``tune run`` comes here for every recipe, torchtune's built-in ones included, either in its own
process or through torchrun, which starts this file as a script::

    launch.py RECIPE.py --config CONFIG [key=value ...]

The pack's recipes end with ``sys.exit(run_recipe(main))``, so that ``torchrun
recipes/custom_lora.py --config CONFIG`` does the same without ``tune``.

Exit codes: 0 done, 1 failed (traceback in a file), 2 the user can mend it, 130 interrupted. On one
machine the first rank that fails speaks, whatever its number; ranks that fail after it mostly
report the same or its consequences, so they only write their traceback file and take its code.
"""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while the imports below run
    # As a script this file's folder comes first in the search path, where datasets/ would hide
    # the package of that name. The folder above, which holds this package, takes its place.
    from os.path import abspath, dirname

    here = dirname(abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if folder != here]
    if dirname(here) not in sys.path:
        sys.path.insert(0, dirname(here))

import custom_components.compat  # noqa: F401

import argparse
import os
import runpy
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from omegaconf import DictConfig

from custom_components.components import allow_components
from custom_components.config import load_config
from custom_components.errors import UserError
from custom_components.observability.records import find_run_dir
from custom_components.options import FinetuneOptions
from custom_components.registry import find_config, is_own_recipe

RUN_NAME_VARIABLE = "TUNEPACK_RUN_NAME"
"""Environment variable with the run's name, equal on all ranks."""
CHECKED_VARIABLE = "TUNEPACK_CHECKED"
"""Environment variable that says: ``tune run`` has checked the config, do not do it again."""

_NOISE = (
    "'set_vital' is deprecated",  # by torchtune's data loader on this torch
    "Mismatch dtype between input and weight",  # by torchtune's norm in bf16 on a CPU
    "NF4Tensor does not implement _stable_hash_for_caching",  # QLoRA, compiled
)
"""Beginnings of warnings from every such run that nobody can act on."""


# ---- Arguments -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class RecipeArguments:
    """What follows the recipe on a command line.

    Attributes:
        config: Name or path of the config.
        overrides: ``key=value`` and ``~key``.
        allowed: Packages of ``--allow-component``.
    """

    config: str
    overrides: tuple[str, ...]
    allowed: frozenset[str]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def parse_recipe_arguments(words: Sequence[str]) -> RecipeArguments:
    """Read ``[--config] CONFIG [key=value ...] [--allow-component PKG ...]``.

    Raises:
        UserError: If the config is missing or given twice, or for an unknown option.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--allow-component", action="append", default=[])
    parser.add_argument("words", nargs="*")
    known, unknown = parser.parse_known_intermixed_args(list(words))
    if unknown:
        raise UserError(
            f"unknown option {unknown[0]}: torchrun's options stand before the recipe, "
            "the config's keys are set with key=value"
        )
    configs = list(known.config)
    overrides = []
    for word in known.words:
        is_override = "=" in word or word.startswith("~")
        if is_override and not (not configs and Path(word).is_file()):
            overrides.append(word)
        else:
            configs.append(word)
    if not configs:
        raise UserError("no config given: write its name or path after the recipe")
    if len(configs) > 1:
        raise UserError(
            f"{configs[1]!r} is not key=value, and the config is {configs[0]!r}: give one config"
        )
    return RecipeArguments(configs[0], tuple(overrides), frozenset(known.allow_component))


def choose_run_name(cfg: DictConfig, config: Path) -> str:
    """Return the name of the run: the config's, else the parent's, else ``<config>-<time>``.

    Args:
        cfg: The config.
        config: The file it came from.
    """
    if isinstance(cfg.get("run_name"), str):
        return str(cfg.run_name)
    if RUN_NAME_VARIABLE in os.environ:
        return os.environ[RUN_NAME_VARIABLE]
    folder = _attempt_folder()
    # Under plain torchrun all ranks of a machine take the time at which it started.
    started = time.time() if folder is None else folder.parent.stat().st_mtime
    return f"{config.stem}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(started))}"


# ---- Running -------------------------------------------------------------------------------------
def run_recipe(main: Callable[[DictConfig], None]) -> int:
    """Read ``sys.argv``, call ``main`` with the config, return the exit code.

    Without ``tune`` before it, a recipe of the pack has its config checked here, on every rank.

    Args:
        main: The recipe.
    """
    folder = None
    handler = signal.signal(signal.SIGTERM, _exit_on_signal)  # so that the records get an end
    try:
        recipe = Path(sys.argv[0]).stem
        arguments = parse_recipe_arguments(sys.argv[1:])
        config = find_config(arguments.config, recipe)
        cfg = load_config(config, arguments.overrides)
        with allow_components(arguments.allowed):
            if CHECKED_VARIABLE not in os.environ and is_own_recipe(sys.argv[0]):
                _check(recipe, cfg)
            cfg.run_name = choose_run_name(cfg, config)
            folder = find_run_dir(
                str(cfg.get("output_dir", FinetuneOptions.output_dir)), cfg.run_name
            )
            main(cfg)
    except SystemExit:
        raise
    except BaseException as error:
        return report_failure(error, folder=folder)
    finally:
        signal.signal(signal.SIGTERM, handler)
    return 0


def _exit_on_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _check(recipe: str, cfg: DictConfig) -> None:
    from custom_components.preflight import check_config  # the parent imports it only once

    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    num_nodes = int(os.environ.get("WORLD_SIZE", "1")) // num_local
    problems = check_config(recipe, cfg, nproc_per_node=num_local, num_nodes=num_nodes)
    if problems:
        raise UserError(*problems)


def run_script(script: str | Path, arguments: Sequence[str]) -> int:
    """Run a recipe's file as ``__main__`` in this process and return the exit code.

    Args:
        script: The ``.py`` file.
        arguments: Its command line, as in ``sys.argv[1:]``.
    """
    for noise in _NOISE:
        warnings.filterwarnings("ignore", noise)
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path += [str(Path(script).resolve().parent), os.getcwd()]  # the user's own modules
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        return _code_of(error)
    except BaseException as error:
        return report_failure(error)
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0


def _code_of(error: SystemExit) -> int:
    if isinstance(error.code, str):
        sys.stderr.write(f"{error.code}\n")
    return error.code if isinstance(error.code, int) else int(error.code is not None)


# ---- Failing -------------------------------------------------------------------------------------
def report_failure(error: BaseException, *, folder: Path | None = None) -> int:
    """Tell the user what went wrong, once on this machine, and return the exit code.

    Args:
        error: What was raised.
        folder: Where the traceback goes if it exists, else into the temporary folder.
    """
    if isinstance(error, KeyboardInterrupt):
        if _attempt_folder() is None:  # with torchrun the parent says it
            sys.stderr.write("stopped by SIGINT\n")
        return 130
    if isinstance(error, UserError):
        text, code = str(error), UserError.exit_code
    else:
        path = _write_traceback(error, folder)
        first_line = (str(error).splitlines() or [""])[0]
        text, code = f"{type(error).__name__}: {first_line} (traceback: {path})", 1
    earlier = _claim(code)
    if earlier is not None:
        return earlier
    sys.stderr.write(f"error: {text}\n")
    sys.stderr.flush()
    return code


def _write_traceback(error: BaseException, folder: Path | None) -> Path:
    name = f"traceback_rank{os.environ.get('RANK', '0')}.txt"
    if folder is None or not folder.is_dir():
        folder = Path(tempfile.mkdtemp(prefix="tunepack-"))
    path = folder / name
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return path.resolve()


def _attempt_folder() -> Path | None:
    """Return the folder that torchrun made for this attempt on this machine, if it did."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    folder = Path(error_file).parents[1] if error_file else None
    return folder if folder is not None and folder.is_dir() else None


def _claim(code: int) -> int | None:
    """Return None for the first rank that fails here; for others the code of the first."""
    folder = _attempt_folder()
    if folder is None:
        return None
    marker = folder / "first_failure"
    try:
        with marker.open("x", encoding="utf-8") as file:
            file.write(str(code))
    except FileExistsError:
        earlier = marker.read_text(encoding="utf-8")
        return int(earlier) if earlier else code
    except OSError:  # better said twice than not at all
        return None
    return None


if __name__ == "__main__":
    # Recipes import this module by its name; they must get the one that runs them.
    from custom_components import launch

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(launch.run_script(sys.argv[1], sys.argv[2:]))
