"""LoRA arguments that torchtune's builders take without complaint and must not.

torchtune ignores a module name that it does not know, so ``[o_proj]`` would train nothing.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from typing import get_args

from torchtune.modules.peft import LORA_ATTN_MODULES

from custom_components.errors import UserError


def check_lora_arguments(
    lora_attn_modules: Sequence[str],
    *,
    lora_rank: int = 8,
    lora_alpha: float = 16.0,
    lora_dropout: float = 0.0,
) -> None:
    """Check the arguments that the LoRA builders share.

    Args:
        lora_attn_modules: Attention projections to adapt; torchtune needs at least one.
        lora_rank: At least 1.
        lora_alpha: More than 0.
        lora_dropout: From 0 up to, and without, 1.

    Raises:
        UserError: Listing everything that is wrong.
    """
    known = get_args(LORA_ATTN_MODULES)
    problems = [
        f"model.lora_attn_modules: {name!r} is not one of {', '.join(known)}"
        for name in lora_attn_modules
        if name not in known
    ]
    if not lora_attn_modules:
        problems.append(f"model.lora_attn_modules: empty: give one or more of {', '.join(known)}")
    if lora_rank < 1:
        problems.append(f"model.lora_rank: {lora_rank} trains nothing: give 1 or more")
    if lora_alpha <= 0:
        problems.append(f"model.lora_alpha: {lora_alpha:g} trains nothing: give more than 0")
    if not 0 <= lora_dropout < 1:
        problems.append(f"model.lora_dropout: {lora_dropout:g} must be at least 0 and below 1")
    if problems:
        raise UserError(*problems)
