"""The pack's ``tune``: torchtune's command line, extended.

``tune ls``, ``cp``, ``cat`` and ``download`` are torchtune's own; they know the pack because it
registers its recipes and configs. ``tune run`` and ``tune validate`` are replaced::

    tune run [torchrun options] RECIPE [--config] CONFIG [key=value ...]
    tune validate CONFIG [--recipe NAME]

``tune run`` finds recipe and config by name or path from any folder and checks a config of the
pack completely before it starts anything. It runs in this process, or through torchrun if any of
torchrun's options is given. Exit codes are those of ``launch.py``; with torchrun, those of the
first rank that failed.
"""

import custom_components.compat  # noqa: F401

import argparse
import importlib
import logging
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import (
    determine_local_world_size,
    get_args_parser,
    parse_min_max_nnodes,
    run,
)
from torchtune._cli.run import Run as TorchtuneRun
from torchtune._cli.validate import Validate as TorchtuneValidate
from torchtune.config._errors import InstantiationError

from custom_components import launch
from custom_components.components import allow_components
from custom_components.config import load_config, read_options
from custom_components.errors import UserError
from custom_components.hardware.threads import num_threads_per_rank
from custom_components.observability.records import close_abandoned, find_run_dir
from custom_components.options import RECIPE_OPTIONS, FinetuneOptions
from custom_components.preflight import check_config
from custom_components.registry import (
    RECIPE_CONFIGS,
    TORCHTUNE_DIR,
    RecipeFile,
    find_config,
    find_recipe,
    recipe_of_config,
    register,
)

_NOT_OURS = {"help", "module", "no_python", "run_path", "print_completion"}
"""Torchrun's options that would start something else than the launcher."""

_TORCHRUN_NOISE = (
    "Sending process",
    "Closing process",
    "failed (exitcode",
    "Received %s death signal",
    "master_addr is only used",
)
"""How torchrun's messages begin that say again what the launcher has said."""


class Run(TorchtuneRun):  # type: ignore[misc]
    """``tune run``: start a recipe in this process or through torchrun."""

    def __init__(self, subparsers: Any) -> None:
        super().__init__(subparsers)
        self._parser.usage = "tune run [TORCHRUN-OPTIONS] RECIPE [--config] CONFIG [KEY=VALUE ...]"
        self._parser.epilog = textwrap.dedent(
            """\
            examples:

                # The pack's LoRA recipe on 4 GPUs
                $ tune run --nproc_per_node 4 custom_lora configs/llama3_8b_grammar.yaml

                # In one process, with two settings overridden
                $ tune run custom_lora smollm2_135m_grammar max_steps=20 optimizer.lr=1e-4

                # A built-in recipe of torchtune
                $ tune run lora_finetune_single_device --config llama3_2/1B_lora_single_device
            """
        )

    def _add_arguments(self) -> None:
        """Take torchrun's options over, without defaults: what is there then was given."""
        self._defaults: dict[str, Any] = {}
        self._parser.add_argument(
            "--allow-component",
            action="append",
            default=[],
            metavar="PACKAGE",
            help="Let the config name components of PACKAGE too. Only for code you trust.",
        )
        for action in get_args_parser()._actions:
            if action.dest in _NOT_OURS:
                continue
            if action.dest == "training_script":
                action.dest, action.help = "recipe", "Name or path of the recipe."
            elif action.dest == "training_script_args":
                action.dest, action.help = "recipe_args", "Config and overrides."
            else:
                self._defaults[action.dest] = action.default
                action.default = argparse.SUPPRESS
            self._parser._add_action(action)

    def _run_cmd(self, args: argparse.Namespace) -> int:
        recipe = find_recipe(args.recipe)
        arguments = launch.parse_recipe_arguments(args.recipe_args)
        config = find_config(arguments.config, recipe.name)
        allowed = sorted(arguments.allowed.union(args.allow_component))
        torchrun = self._torchrun_arguments(args)
        if torchrun is not None and not recipe.supports_distributed:
            raise UserError(
                f"recipe {recipe.name} runs in one process: leave torchrun's options out"
            )
        environment: dict[str, str] = {}
        run_dir = None
        if recipe.is_from_pack:
            with allow_components(allowed):
                run_dir = _check(recipe, config, arguments.overrides, torchrun)
            environment = {launch.RUN_NAME_VARIABLE: run_dir.name, launch.CHECKED_VARIABLE: "1"}
        words = ["--config", str(config), *arguments.overrides]
        if not recipe.path.is_relative_to(TORCHTUNE_DIR):  # those allow everything
            words += [f"--allow-component={package}" for package in allowed]
        with _environment(environment):
            if torchrun is None:
                return launch.run_script(recipe.path, words)
            code = _run_torchrun(torchrun, recipe.path, words)
        if code != 0 and run_dir is not None:  # the rank that writes may have been ended at once
            close_abandoned(run_dir, "stopped" if code > 128 else "failed")
        return code

    def _torchrun_arguments(self, args: argparse.Namespace) -> argparse.Namespace | None:
        """Return torchrun's arguments, or None if not one of them was given."""
        given = {name: getattr(args, name) for name in self._defaults if hasattr(args, name)}
        from_environment = any(f"PET_{name.upper()}" in os.environ for name in self._defaults)
        if not given and not from_environment:
            return None
        others = dict.fromkeys(_NOT_OURS, False)
        torchrun = argparse.Namespace(**{**others, **self._defaults, **given})
        torchrun.has_master_port = "master_port" in given  # its default differs between versions
        try:
            _, torchrun.max_nodes = parse_min_max_nnodes(torchrun.nnodes)
            torchrun.num_local = determine_local_world_size(torchrun.nproc_per_node)
        except (ValueError, RuntimeError) as error:
            raise UserError(f"torchrun: {error}") from error
        if torchrun.num_local < 1:
            raise UserError(f"--nproc_per_node {torchrun.num_local}: at least 1 is needed")
        return torchrun


def _check(
    recipe: RecipeFile,
    config: Path,
    overrides: Sequence[str],
    torchrun: argparse.Namespace | None,
) -> Path:
    """Raise UserError with all problems, or return the folder of the run."""
    cfg = load_config(config, overrides)
    run_name = launch.choose_run_name(cfg, config)
    is_given = isinstance(cfg.get("run_name"), str)
    # Of several nodes another may have made the folder already.
    is_one_node = torchrun is None or torchrun.max_nodes == 1
    problems = check_config(
        recipe.name,
        cfg,
        nproc_per_node=1 if torchrun is None else torchrun.num_local,
        num_nodes=1 if torchrun is None else torchrun.max_nodes,
        run_name=run_name if is_given and is_one_node else None,
    )
    if problems:
        raise UserError(*problems)
    run_dir = find_run_dir(str(cfg.get("output_dir", FinetuneOptions.output_dir)), run_name)
    return _claim(run_dir, may_rename=not is_given) if is_one_node else run_dir


def _claim(run_dir: Path, *, may_rename: bool) -> Path:
    """Make the folder of a run, which no other run can then take.

    Raises:
        UserError: If it exists and its name was given.
    """
    for number in count(1):
        candidate = run_dir if number == 1 else run_dir.with_name(f"{run_dir.name}-{number}")
        try:
            candidate.mkdir(parents=True)
        except FileExistsError:
            if not may_rename:
                raise UserError(f"run_name: {run_dir} exists already; choose another") from None
        except OSError as error:
            raise UserError(f"output_dir: {run_dir} cannot be made: {error.strerror}") from error
        else:
            return candidate
    raise AssertionError("count has no end")


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ---- Torchrun ------------------------------------------------------------------------------------
def _run_torchrun(args: argparse.Namespace, recipe: Path, words: Sequence[str]) -> int:
    """Start the launcher on every rank, wait, and return the exit code."""
    args.training_script = launch.__file__
    # Torchrun replaces ${local_rank} in arguments, and $$ by $.
    args.training_script_args = [word.replace("$", "$$") for word in [str(recipe), *words]]
    is_local = args.max_nodes == 1 and not args.rdzv_endpoint and not args.has_master_port
    args.standalone = args.standalone or is_local  # a free port, so that runs do not collide
    _drop_torchrun_noise()
    threads = num_threads_per_rank(args.num_local)
    try:
        with _environment({"OMP_NUM_THREADS": str(threads)}):
            run(args)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        return _code_of(error)
    except SignalException as error:
        sys.stderr.write(f"stopped by {error.sigval.name}\n")
        return 128 + int(error.sigval)
    return 0


def _code_of(error: ChildFailedError) -> int:
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        hint = ", often for want of memory" if failure.signal_name() == "SIGKILL" else ""
        sys.stderr.write(f"error: rank {rank} was ended by {failure.signal_name()}{hint}\n")
    return UserError.exit_code if failure.exitcode == UserError.exit_code else 1


def _drop_torchrun_noise() -> None:
    for name in ("multiprocessing.api", "agent.server.api"):
        logger = logging.getLogger(f"torch.distributed.elastic.{name}")
        logger.addFilter(_is_not_noise)
    logging.getLogger("torch.distributed.run").addFilter(_is_not_noise)


def _is_not_noise(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_TORCHRUN_NOISE)


# ---- Validate ------------------------------------------------------------------------------------
class Validate(TorchtuneValidate):  # type: ignore[misc]
    """``tune validate``: check a config against its recipe, without running anything."""

    def _add_arguments(self) -> None:
        self._parser.usage = "tune validate CONFIG [--recipe NAME]"
        self._parser.add_argument("config", help="Name or path of the config.")
        self._parser.add_argument(
            "--recipe",
            choices=sorted(RECIPE_CONFIGS),
            help="The pack's recipe it is for; found out if not given.",
        )
        self._parser.add_argument(
            "--allow-component", action="append", default=[], metavar="PACKAGE"
        )

    def _validate_cmd(self, args: argparse.Namespace) -> None:
        args.config = find_config(args.config, args.recipe)
        cfg = load_config(args.config)
        recipe = args.recipe or recipe_of_config(args.config.stem) or _guess_recipe(set(cfg))
        if recipe is None:
            try:
                super()._validate_cmd(args)
            except InstantiationError as error:
                raise UserError(" ".join(str(error).split())) from error
            return
        with allow_components(args.allow_component):
            read_options(RECIPE_OPTIONS[recipe], cfg)
        sys.stdout.write("Config is well-formed!\n")


def _guess_recipe(keys: set[Any]) -> str | None:
    """Return the pack's recipe whose keys fit best, or None for a config of torchtune's."""
    if "checkpointer" in keys:  # every config of torchtune has it, none of the pack's
        return None
    fields = {name: set(cls.__dataclass_fields__) for name, cls in RECIPE_OPTIONS.items()}
    return max(fields, key=lambda name: len(keys & fields[name]) - len(keys - fields[name]))


# ---- The command ---------------------------------------------------------------------------------
_COMMANDS: dict[str, type | str] = {
    "download": "torchtune._cli.download.Download",  # imported when used: it takes most of a second
    "ls": "torchtune._cli.ls.List",
    "cp": "torchtune._cli.cp.Copy",
    "run": Run,
    "validate": Validate,
    "cat": "torchtune._cli.cat.Cat",
}


def _build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tune", description="Recipes on torchtune.")
    parser.set_defaults(func=lambda args: parser.print_help())
    subparsers = parser.add_subparsers(title="subcommands")
    command = argv[0] if argv else ""
    for name in [command] if command in _COMMANDS else _COMMANDS:
        subcommand = _COMMANDS[name]
        if isinstance(subcommand, str):
            module, _, attribute = subcommand.rpartition(".")
            subcommand = getattr(importlib.import_module(module), attribute)
        subcommand(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Args:
        argv: Arguments, ``sys.argv[1:]`` if None.
    """
    argv = sys.argv[1:] if argv is None else argv
    register()
    args = _build_parser(argv).parse_args(argv)
    try:
        return args.func(args) or 0
    except (Exception, KeyboardInterrupt) as error:
        return launch.report_failure(error)
