"""Components: what a ``_component_`` dotted path names, and how it is built.

A config can name code, so the name is checked twice. First the text: its package must be on the
allow-list before anything is imported. Then what was found: its own module must be on the list
too, so that an alias (``torchtune.x.os.system``) does not get through. A further package is
allowed by the command-line flag ``--allow-component PKG``, never by a config.
"""

import custom_components.compat  # noqa: F401

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from custom_components.errors import UserError

ALLOWED = (
    "torchtune.data",
    "torchtune.datasets",
    "torchtune.models",
    "torchtune.modules",
    "torchtune.training.lr_schedulers",
    "torch.nn",
    "torch.optim",
    "torchao.optim",
    "torchao.quantization",
    "custom_components.datasets",
    "custom_components.models",
    "custom_components.training.schedule",
)
"""Packages whose members a config may name; members that begin with an underscore never. What
reads pickles, imports or runs what it is told to lies outside: ``torchtune.config``, the rest of
``torchtune.training``, the pack's command line and benchmarks."""

_RUN_OTHER_CODE = ("torch.nn.attention",)
"""Modules inside allowed packages that import what they are told to."""

DOTTED_PATH_ARGUMENTS = ("prompt_template",)
"""Arguments of torchtune's components that are dotted paths: torchtune imports and calls them."""

_also_allowed: ContextVar[frozenset[str]] = ContextVar("also_allowed", default=frozenset())


@contextmanager
def allow_components(packages: Iterable[str]) -> Iterator[None]:
    """Allow further packages inside the ``with`` block: the flag ``--allow-component``.

    Args:
        packages: Dotted names of packages.
    """
    token = _also_allowed.set(_also_allowed.get() | frozenset(packages))
    try:
        yield
    finally:
        _also_allowed.reset(token)


# ---- Finding -------------------------------------------------------------------------------------
def find_component(dotpath: str) -> Callable[..., Any]:
    """Return what ``dotpath`` names.

    Args:
        dotpath: For example ``torchtune.models.llama3.lora_llama3_8b``.

    Raises:
        UserError: If the path is malformed, outside the allow-list, or names nothing callable.
    """
    packages = {*ALLOWED, *_also_allowed.get()}
    _check_text(dotpath, packages)
    component: Callable[..., Any] = _walk(dotpath, packages)
    if isinstance(component, ModuleType) or not callable(component):
        raise UserError(f"{dotpath} is a {type(component).__name__}, not a class or a function")
    module = getattr(without_partial(component), "__module__", None)
    if not isinstance(module, str) or not _is_inside(module, packages):
        raise UserError(f"{dotpath} is an alias of something in {module}, which is not allowed")
    if _is_inside(module, _RUN_OTHER_CODE):
        raise UserError(f"{dotpath} can run any code, so it is not allowed as a component")
    return component


def without_partial(component: Any) -> Any:
    """Return the function that a ``functools.partial`` calls, or the component itself."""
    while isinstance(component, functools.partial):
        component = component.func
    return component


def _is_inside(name: str, packages: Collection[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _check_text(dotpath: Any, packages: Collection[str]) -> None:
    """Raise UserError unless ``dotpath`` may be imported; nothing is imported here."""
    parts = dotpath.split(".") if isinstance(dotpath, str) else []
    if len(parts) < 2 or not all(p.isidentifier() and not p.startswith("__") for p in parts):
        raise UserError(f"{dotpath!r} is not the dotted path of a component")
    if not _is_inside(dotpath, packages):
        package = parts[0]
        near = difflib.get_close_matches(".".join(parts[:2]), packages, 1, 0.75)
        near = near or difflib.get_close_matches(package, packages, 1, 0.8)
        hint = f"the nearest is {near[0]}" if near else f"allowed: {', '.join(sorted(packages))}"
        raise UserError(
            f"{dotpath} is outside the allowed packages ({hint}); if you trust the code, "
            f"run with --allow-component {package}"
        )
    if any(part.startswith("_") for part in parts) and not _is_inside(dotpath, _also_allowed.get()):
        raise UserError(f"{dotpath} is private: name the public member of its package instead")


def _walk(dotpath: str, packages: Collection[str]) -> Any:
    """Follow ``dotpath`` by attributes and submodules; leave the allowed packages never."""
    first, *rest = dotpath.split(".")
    found, path = _import(first), first
    for part in rest:
        is_module = isinstance(found, ModuleType)
        if is_module and found.__name__ != path and not _is_inside(found.__name__, packages):
            raise UserError(f"{dotpath}: {path} is the module {found.__name__}, not allowed")
        parent, path = path, f"{path}.{part}"
        if is_module and not hasattr(found, part) and part in _submodules(found):
            found = _import(path)
            continue
        if not hasattr(found, part):
            names = [n for n in dir(found) if not n.startswith("_")] + _submodules(found)
            raise UserError(f"{parent} has no {part!r}; {describe_nearest(part, names, parent)}")
        found = getattr(found, part)
    return found


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UserError(f"importing {name} failed: {type(error).__name__}: {error}") from error


def _submodules(module: Any) -> list[str]:
    return [m.name for m in pkgutil.iter_modules(getattr(module, "__path__", ()))]


def describe_nearest(name: str, valid: Iterable[str], parent: str = "") -> str:
    """Return ``the nearest is X``, or what is valid when nothing is near.

    Args:
        name: What was given.
        valid: What could have been given.
        parent: Dotted path put before the names.
    """
    names = sorted(set(valid))
    prefix = f"{parent}." if parent else ""
    near = difflib.get_close_matches(name, names, 1, 0.6)
    if near:
        return f"the nearest is {prefix}{near[0]}"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"valid here: {shown or 'nothing'}"


def iter_components(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the config key and the dictionary of every component in ``node``, at any depth."""
    if isinstance(node, dict):
        if "_component_" in node:
            yield path, node
        children: Iterable[tuple[Any, Any]] = node.items()
    elif isinstance(node, list):
        children = enumerate(node)
    else:
        return
    for key, value in children:
        yield from iter_components(value, f"{path}.{key}" if path else str(key))


def path_problems(key: str, dotpath: Any) -> list[str]:
    """Return the problems of one dotted path found at the config key ``key``."""
    try:
        find_component(dotpath)
    except UserError as error:
        return [f"{key}: {problem}" for problem in error.problems]
    return []


# ---- Building ------------------------------------------------------------------------------------
def instantiate(
    node: Mapping[str, Any] | DictConfig,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Build a component.

    Args:
        node: Its dictionary: ``_component_`` and keyword arguments. As in torchtune, a component
            nested in it is handed over as a dictionary, but its name is checked here.
        *args: Positional arguments that the recipe supplies.
        **kwargs: Keyword arguments that the recipe supplies; they win over the config's.

    Raises:
        UserError: If it, or a component inside it, is not allowed or does not exist.
    """
    container: Any = node
    if isinstance(node, DictConfig):
        container = OmegaConf.to_container(node, resolve=True)
    problems = [
        problem
        for path, inner in iter_components(container)
        for name in ("_component_", *DOTTED_PATH_ARGUMENTS)
        if name == "_component_" or isinstance(inner.get(name), str)
        for problem in path_problems(f"{path}.{name}".lstrip("."), inner[name])
    ]
    if "_component_" not in container:
        problems.append("there is no _component_ to build")
    if problems:
        raise UserError(*problems)
    arguments = {k: v for k, v in container.items() if k != "_component_"} | kwargs
    return find_component(container["_component_"])(*args, **arguments)
