"""What the pack's own LoRA builders refuse before torchtune builds anything.

torchtune ignores a module name that it does not know, so ``[o_proj]`` would train nothing.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from typing import get_args

from torchtune.modules.peft import LORA_ATTN_MODULES

from custom_components.errors import UserError


def check_lora_arguments(
    lora_attn_modules: Sequence[str], *, quantize_base: bool, use_dora: bool
) -> None:
    """Check the arguments that the LoRA builders share.

    Args:
        lora_attn_modules: Attention projections to adapt; torchtune needs at least one.
        quantize_base: Must be False: QLoRA is not supported yet.
        use_dora: Must be False: DoRA is not supported yet.

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
    if quantize_base:
        problems.append("model.quantize_base: QLoRA is not supported yet: set it to false")
    if use_dora:
        problems.append("model.use_dora: DoRA is not supported yet: set it to false")
    if problems:
        raise UserError(*problems)
