"""LoRA arguments that would train nothing, or fail late."""

import custom_components.compat  # noqa: F401

import pytest

from custom_components.errors import UserError
from custom_components.models.lora_arguments import check_lora_arguments


def test_good_arguments_pass() -> None:
    check_lora_arguments(["q_proj"], lora_rank=1, lora_alpha=0.5, lora_dropout=0.0)


def test_everything_wrong_is_listed_at_once() -> None:
    with pytest.raises(UserError) as error:
        check_lora_arguments(["o_proj"], lora_rank=0, lora_alpha=0.0, lora_dropout=-0.1)
    for name in ("o_proj", "lora_rank: 0", "lora_alpha: 0", "lora_dropout: -0.1"):
        assert any(name in problem for problem in error.value.problems), name
