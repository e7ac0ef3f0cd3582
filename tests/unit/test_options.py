"""The typed options: bounds, strict types, no unknown keys, defaults in one place."""

import dataclasses
import json

import pytest
from pydantic import TypeAdapter, ValidationError

from custom_components.options import RECIPE_OPTIONS, EvalOptions, FinetuneOptions, LoraOptions
from custom_components.registry import RECIPE_CONFIGS

REQUIRED = {
    "model": {"_component_": "torch.nn.Linear"},
    "tokenizer": {"_component_": "torch.nn.Linear"},
    "dataset": {"_component_": "torch.nn.Linear"},
    "optimizer": {"_component_": "torch.optim.SGD"},
    "lr_scheduler": {"_component_": "torch.nn.Linear"},
    "checkpoint_dir": "random",
}


def read(cls=LoraOptions, **changes):
    return TypeAdapter(cls).validate_json(json.dumps(REQUIRED | changes))


def test_components_and_checkpoint_are_enough():
    options = read()
    assert (options.epochs, options.max_steps, options.device) == (1, None, "cuda")
    assert options.wandb.mode == "auto"
    assert options.optimizer == {"_component_": "torch.optim.SGD"}


@pytest.mark.parametrize("key", sorted(REQUIRED))
def test_what_has_no_default_must_be_given(key):
    rest = {k: v for k, v in REQUIRED.items() if k != key}
    with pytest.raises(ValidationError, match=key):
        TypeAdapter(LoraOptions).validate_json(json.dumps(rest))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 0},
        {"batch_size": "4"},
        {"batch_size": 4.0},
        {"batch_size": True},
        {"max_steps": 0},
        {"gradient_accumulation_steps": -1},
        {"seed": -1},
        {"clip_grad_norm": 0.0},
        {"clip_grad_norm": float("inf")},
        {"device": "gpu"},
        {"dtype": "fp16"},
        {"data_parallel": "ddp"},
        {"shuffle": 1},
        {"lora_rank": 8},
        {"wandb": {"mode": "on"}},
        {"wandb": {"projct": "x"}},
        {"wandb": {"tags": "x"}},
        {"model": "torch.nn.Linear"},
    ],
    ids=str,
)
def test_wrong_values_and_unknown_keys_are_refused(changes):
    with pytest.raises(ValidationError):
        read(**changes)


def test_null_turns_off_what_can_be_off():
    options = read(clip_grad_norm=None, epochs=None, max_steps=7)
    assert options.clip_grad_norm is None
    assert (options.epochs, options.max_steps) == (None, 7)


def test_options_cannot_change_after_reading():
    with pytest.raises(dataclasses.FrozenInstanceError):
        read().batch_size = 2


def test_every_recipe_has_options_and_configs():
    assert RECIPE_OPTIONS.keys() == RECIPE_CONFIGS.keys()
    assert issubclass(RECIPE_OPTIONS["custom_lora"], FinetuneOptions)
    assert RECIPE_OPTIONS["custom_eval"] is EvalOptions
