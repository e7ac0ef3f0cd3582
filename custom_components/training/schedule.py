"""Learning-rate schedule: linear warm-up, cosine decay, never a step at zero."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from custom_components.errors import UserError


def cosine_factor(
    step: int, *, num_warmup_steps: int, num_training_steps: int, min_lr_ratio: float
) -> float:
    """Return the factor on the learning rate for optimizer step ``step``, counted from 0.

    With w warm-up steps of S in all and m = ``min_lr_ratio``::

        step < w:  (step + 1) / (w + 1)
        else:      m + (1 - m) * (1 + cos(pi * (step - w) / (S - w))) / 2

    The first step is at 1 / (w + 1) (torchtune's schedule starts at 0 and wastes it), step w at 1,
    and the last step, S - 1, just above m.
    """
    if step < num_warmup_steps:
        return (step + 1) / (num_warmup_steps + 1)
    progress = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return min_lr_ratio + (1 - min_lr_ratio) * cosine


def cosine_schedule_with_warmup(
    optimizer: Optimizer,
    *,
    num_training_steps: int,
    num_warmup_steps: int = 0,
    min_lr_ratio: float = 0.0,
) -> LambdaLR:
    """Build the schedule; see ``cosine_factor`` for the formula.

    Args:
        optimizer: Its ``lr`` is the peak.
        num_training_steps: Optimizer steps of the whole run, given by the recipe.
        num_warmup_steps: Steps before the peak.
        min_lr_ratio: Where the cosine ends, as a share of the peak.

    Raises:
        UserError: If warm-up leaves no step at the peak, or the ratio is outside 0 to 1.
    """
    problems = []
    if num_warmup_steps < 0:
        problems.append(f"lr_scheduler.num_warmup_steps is {num_warmup_steps}; it counts steps")
    if num_warmup_steps >= num_training_steps:
        problems.append(
            f"lr_scheduler.num_warmup_steps is {num_warmup_steps} but the run has only "
            f"{num_training_steps} optimizer steps; choose fewer warm-up steps or train longer"
        )
    if not 0 <= min_lr_ratio <= 1:
        problems.append(f"lr_scheduler.min_lr_ratio is {min_lr_ratio}; it must be from 0 to 1")
    if problems:
        raise UserError(*problems)
    return LambdaLR(
        optimizer,
        lambda step: cosine_factor(
            step,
            num_warmup_steps=num_warmup_steps,
            num_training_steps=num_training_steps,
            min_lr_ratio=min_lr_ratio,
        ),
    )
