"""Configs: a YAML file and ``key=value`` overrides, read once into typed options.

Overrides follow torchtune: ``key=value`` (split at the first ``=``, the value read as YAML),
``model=dotted.path`` for a key that holds a component, ``~key`` to remove a key.
``read_options`` gathers everything wrong with a config into one ``UserError``.
"""

import custom_components.compat  # noqa: F401

import dataclasses
import difflib
import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from custom_components.components import iter_components
from custom_components.errors import UserError
from custom_components.options import Component
from custom_components.signatures import (
    check_component,
    component_parameters,
    describe_type_error,
    unknown_key,
)

Options = TypeVar("Options")

_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_CONFIG_ERRORS = (OmegaConfBaseException, TypeError, ValueError, KeyError, AttributeError)


# ---- Loading -------------------------------------------------------------------------------------
def load_config(path: str | Path, overrides: Sequence[str] = ()) -> DictConfig:
    """Return a YAML file with overrides applied; interpolations stay unresolved.

    Args:
        path: The YAML file.
        overrides: ``key=value`` and ``~key``, applied in order.

    Raises:
        UserError: If the file cannot be read or is not a mapping, or for malformed overrides.
    """
    cfg = _load_yaml(Path(path))
    problems: list[str] = []
    for override in overrides:
        try:
            _apply(cfg, override)
        except UserError as error:
            problems.extend(error.problems)
        except _CONFIG_ERRORS as error:
            problems.append(f"override {override!r} does not fit the config: {_first_line(error)}")
    if problems:
        raise UserError(*problems)
    return cfg


def _load_yaml(path: Path) -> DictConfig:
    try:
        cfg = OmegaConf.load(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"config {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise UserError(f"config {path} is not valid YAML: {_one_line(error)}") from error
    except _CONFIG_ERRORS as error:
        raise UserError(f"config {path}: {_first_line(error)}") from error
    if not isinstance(cfg, DictConfig):
        raise UserError(f"config {path} holds a list; it must hold key: value pairs")
    return cfg


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _apply(cfg: DictConfig, override: str) -> None:
    """Apply one override to ``cfg`` in place."""
    if override.startswith("~"):
        _remove(cfg, override.removeprefix("~").partition("=")[0])
        return
    key, separator, text = override.partition("=")
    if not key or not separator or key.startswith("-"):
        raise UserError(f"override {override!r} is not of the form key=value or ~key")
    value = _parse_value(override, text)
    current = OmegaConf.select(cfg, key, throw_on_resolution_failure=False)
    if isinstance(value, str) and isinstance(current, DictConfig) and "_component_" in current:
        key += "._component_"
    OmegaConf.update(cfg, key, value)


def _parse_value(override: str, text: str) -> Any:
    if text == "None":  # torchtune's word for null
        return None
    try:
        parsed = OmegaConf.from_dotlist([f"value={text}"])
    except yaml.YAMLError as error:
        raise UserError(
            f"the value of override {override!r} is not valid YAML; put text in two pairs of "
            f"""quotes: key='"text"'"""
        ) from error
    container: Any = OmegaConf.to_container(parsed, resolve=False)
    return container["value"]


def _remove(cfg: DictConfig, key: str) -> None:
    parent_key, _, name = key.rpartition(".")
    parent = OmegaConf.select(cfg, parent_key) if parent_key else cfg
    if not isinstance(parent, DictConfig) or name not in parent:
        near = difflib.get_close_matches(key, [str(k) for k in cfg], 1)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise UserError(f"override '~{key}': there is no key {key} to remove{hint}")
    del parent[name]


# ---- Reading -------------------------------------------------------------------------------------
def read_options(cls: type[Options], cfg: DictConfig) -> Options:
    """Return the typed options of a recipe.

    Args:
        cls: A dataclass of ``options.py``.
        cfg: The config; interpolations are resolved here.

    Raises:
        UserError: With all problems: unknown keys, missing keys, wrong types, and what is wrong
            with components and their arguments.
    """
    options, problems = check_options(cls, cfg)
    if problems or options is None:
        raise UserError(*problems)
    return options


def check_options(cls: type[Options], cfg: DictConfig) -> tuple[Options | None, list[str]]:
    """Return the options as far as they can be read, and all problems.

    Keys with problems have their default, so that a caller can look for further problems; None
    stands where a required key has one. Arguments are those of ``read_options``.
    """
    unresolved: dict[str, str] = {}
    container = _resolve(cfg, "", unresolved)
    places = _find_places(cls, container)
    options, problems = _validate(cls, container, places, unresolved)
    problems = [f"{key}: {problem}" for key, problem in unresolved.items()] + problems
    for key in _component_keys(cls):
        if isinstance(container.get(key), dict) and "_component_" not in container[key]:
            problems.append(f"{key} has no _component_: the dotted path of what to build")
    for key, node in iter_components(container):
        problems += check_component(key, node, places=places)
    return options, problems


def _resolve(node: DictConfig | ListConfig, path: str, unresolved: dict[str, str]) -> Any:
    """Return plain containers; what cannot be resolved becomes None and is put down by its key."""
    is_list = isinstance(node, ListConfig)
    keys: Iterable[Any] = range(len(node)) if is_list else node
    plain: dict[Any, Any] = {}
    for key in keys:
        place = f"{path}.{key}" if path else str(key)
        try:
            value = node[key]
        except MissingMandatoryValue:
            value, unresolved[place] = None, "found ???, expected a value of your own"
        except OmegaConfBaseException as error:
            value, unresolved[place] = None, _first_line(error)
        if isinstance(value, DictConfig | ListConfig):
            value = _resolve(value, place, unresolved)
        plain[key] = value
    return list(plain.values()) if is_list else plain


def _component_keys(cls: type) -> list[str]:
    hints = typing.get_type_hints(cls)
    return [
        field.name
        for field in _fields(cls)
        if Component in (hints[field.name], *typing.get_args(hints[field.name]))
    ]


def _fields(cls: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _find_places(cls: type, container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the dotted paths of all keys this config may have."""
    hints = typing.get_type_hints(cls)
    places = [field.name for field in _fields(cls)]
    for field in _fields(cls):
        types = (hints[field.name], *typing.get_args(hints[field.name]))  # of a list, its items
        nested = next((t for t in types if dataclasses.is_dataclass(t)), None)
        if nested is not None:
            inner = [f.name for f in _fields(nested)]
        else:
            inner = component_parameters(field.name, container.get(field.name))
        places += [f"{field.name}.{name}" for name in inner]
    return tuple(places)


def _validate(
    cls: type[Options],
    container: Mapping[str, Any],
    places: Sequence[str],
    unresolved: Mapping[str, str],
) -> tuple[Options | None, list[str]]:
    adapter = TypeAdapter(cls)
    try:
        return adapter.validate_json(json.dumps(container, default=repr)), []
    except ValidationError as error:
        details = error.errors()
    problems = []
    for detail in details:
        key = ".".join(str(part) for part in detail["loc"] if not isinstance(part, int))
        if key in unresolved:
            continue
        if detail["type"] in _UNKNOWN:
            problems.append(unknown_key(key, places))
        elif detail["type"] == "missing":
            problems.append(f"{key} is missing")
        else:
            problems.append(describe_type_error(key, detail))
    wrong = {detail["loc"][0] for detail in details}
    rest = {key: value for key, value in container.items() if key not in wrong}
    try:
        return adapter.validate_json(json.dumps(rest, default=repr)), problems
    except ValidationError:
        return None, problems
