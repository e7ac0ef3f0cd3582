"""Check a component's arguments against the signature of what it names.

Unknown and missing arguments come from ``inspect.signature``; types are checked by pydantic, in
strict mode, wherever the annotation is one that pydantic understands.
"""

import custom_components.compat  # noqa: F401

import difflib
import inspect
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from custom_components.components import (
    DOTTED_PATH_ARGUMENTS,
    describe_nearest,
    find_component,
    iter_components,
    path_problems,
    without_partial,
)
from custom_components.errors import UserError

_SUPPLIED = {
    "dataset": ("tokenizer",),
    "dataset_val": ("tokenizer",),
    "optimizer": ("params",),
    "lr_scheduler": ("optimizer", "num_training_steps"),
}
"""Arguments that recipes supply to a component, by config key."""

_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_NEEDS_OBJECT = ("needs_python_object", "callable_type")
"""Pydantic's error types that mean: a config value can never be of this type."""

_ADAPTER_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True)

_PLAIN_WORDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "iterable_type": "a list",
    "missing": "one more item",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
}


def unknown_key(path: str, places: Sequence[str]) -> str:
    """Return the sentence about a config key that nothing takes.

    Args:
        path: The key as given, dotted.
        places: Dotted paths of all keys that the config may have.
    """
    parent, _, name = path.rpartition(".")
    siblings = [p.rpartition(".")[2] for p in places if p.rpartition(".")[0] == parent]
    elsewhere = [p for p in places if p.rpartition(".")[2] == name]
    if elsewhere:
        where = elsewhere[0].rpartition(".")[0]
        belongs = f"under {where}" if where else "at the top level"
        return f"unknown key {path}: {name} belongs {belongs}, write {elsewhere[0]}"
    if not difflib.get_close_matches(name, siblings, 1, 0.6):
        by_name = {p.rpartition(".")[2]: p for p in reversed(places)}
        near = difflib.get_close_matches(name, by_name, 1, 0.75)
        if near:
            return f"unknown key {path}; the nearest is {by_name[near[0]]}"
    return f"unknown key {path}; {describe_nearest(name, siblings, parent)}"


def component_parameters(key: str, node: Any) -> list[str]:
    """Return the arguments that a config may give to a component; none if it cannot be found.

    Args:
        key: Its config key.
        node: Its dictionary, or whatever stands there.
    """
    try:
        signature = inspect.signature(find_component(node["_component_"]))
    except (UserError, ValueError, KeyError, TypeError):
        return []
    names = [p.name for p in signature.parameters.values() if p.kind in _KEYWORD_KINDS]
    return [name for name in names if name not in _SUPPLIED.get(key, ())]


def check_component(
    key: str,
    node: Mapping[str, Any],
    *,
    places: Sequence[str],
) -> list[str]:
    """Return the problems of one component: its name, its arguments, their types.

    Args:
        key: Its config key, such as ``model``. Missing arguments are looked for in top-level
            components only: a nested one is completed by the component that holds it.
        node: Its dictionary.
        places: Dotted paths of all keys that the config may have, for suggestions.
    """
    arguments = {k: v for k, v in node.items() if k != "_component_"}
    problems = [
        problem
        for name in DOTTED_PATH_ARGUMENTS
        if isinstance(path := arguments.get(name), str)
        for problem in path_problems(f"{key}.{name}", path)
    ]
    found = path_problems(f"{key}._component_", node["_component_"])
    if found:
        return problems + found
    component = find_component(node["_component_"])
    try:
        parameters = inspect.signature(component).parameters
    except ValueError:  # a builtin without a signature
        return problems
    problems += _argument_problems(key, node["_component_"], arguments, parameters, places)
    hints = _type_hints(component)
    known = parameters.keys() & hints.keys() - set(_SUPPLIED.get(key, ()))
    return problems + [
        problem
        for name in arguments
        if name in known
        for problem in _type_problems(
            f"{key}.{name}", arguments[name], hints[name], parameters[name].default
        )
    ]


def _argument_problems(
    key: str,
    dotpath: str,
    arguments: Mapping[str, Any],
    parameters: Mapping[str, inspect.Parameter],
    places: Sequence[str],
) -> list[str]:
    supplied = _SUPPLIED.get(key, ())
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    names = {p.name for p in parameters.values() if p.kind in _KEYWORD_KINDS}
    problems = [
        f"{key}.{name} is supplied by the recipe; remove it from the config"
        for name in supplied
        if name in arguments
    ]
    if not takes_any:
        problems += [
            unknown_key(f"{key}.{name}", places) for name in arguments if name not in names
        ]
        problems += [
            f"{key}: {dotpath} does not take {name!r}, which the recipe passes to it"
            for name in supplied
            if name not in names
        ]
    if "." not in key:
        problems += [
            f"{key}.{name} is missing: {dotpath} needs it"
            for name, p in parameters.items()
            if name in names and p.default is inspect.Parameter.empty
            if name not in arguments and name not in supplied
        ]
    return problems


def _type_hints(component: Any) -> dict[str, Any]:
    component = without_partial(component)
    function = component.__init__ if inspect.isclass(component) else component
    try:
        return typing.get_type_hints(function)
    except Exception:  # names that exist for the type checker only
        return {}


def _type_problems(key: str, value: Any, hint: Any, default: Any) -> list[str]:
    """Return the problems of one argument, or none where the hint says nothing checkable."""
    if (value is None and default is None) or next(iter_components(value), None):
        return []
    try:
        adapter = TypeAdapter(hint, config=_ADAPTER_CONFIG)
    except Exception:  # the hint has its own config, or none that pydantic understands
        try:
            adapter = TypeAdapter(hint)
        except Exception:
            return []
    try:
        adapter.validate_json(json.dumps(value, default=repr), strict=True)
    except ValidationError as error:
        errors = [e for e in error.errors() if e["type"] not in _NEEDS_OBJECT]
        return [_describe_deepest(key, errors)] if errors else []
    except Exception:
        return []
    return []


def _describe_deepest(key: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return one sentence for the error that gets furthest into a value.

    Of a union pydantic reports every branch, under a first place that names the branch.
    """
    deepest = max(errors, key=lambda error: len(error["loc"]))
    first, *rest = deepest["loc"] or ("",)
    if not str(first).startswith("list["):
        return describe_type_error(key, errors[0])
    place = key + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    if deepest["type"] == "extra_forbidden":
        return f"unknown key {place}"
    if deepest["type"] == "missing":
        return f"{place} is missing"
    return describe_type_error(place, {**deepest, "loc": ()})


def describe_type_error(key: str, error: Mapping[str, Any]) -> str:
    """Return one sentence for one of pydantic's type errors: key, found, expected."""
    indices = "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))
    found = json.dumps(error["input"], default=repr)
    found = found if len(found) <= 60 else f"{found[:57]}..."
    expected = error["msg"].removeprefix("Input should be ")
    expected = _PLAIN_WORDS.get(error["type"], expected)
    is_text_read_as_yaml = expected == "text" and isinstance(error["input"], dict)
    hint = f"""; put it in two pairs of quotes: '{key}="..."'""" if is_text_read_as_yaml else ""
    return f"{key}{indices}: found {found}, expected {expected}{hint}"
