"""One optimizer step: a short function that receives what it uses and returns numbers.

The loss is a sum over supervised tokens, divided by their number over all ranks and micro-steps.
Four ranks with one row each, one rank with four, and four accumulated micro-steps therefore give
the same gradient (the mean of means does not: huggingface/transformers#34191).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from custom_components.datasets.collate import Batch
from custom_components.models.causal_lm import CausalLM
from custom_components.training.distributed import World
from custom_components.training.trainables import ReplicatedTrainables


class NonFiniteError(RuntimeError):
    """A loss or gradient was not finite; raised on all ranks before the optimizer acts."""


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did, over all ranks.

    ``loss`` and ``grad_norm`` are None when no row of the step had a supervised token: such a
    step changes nothing.
    """

    loss: float | None
    grad_norm: float | None
    num_supervised: int
    num_tokens: int
    num_padded_tokens: int

    @property
    def skipped(self) -> bool:
        """True if the step had nothing to train on."""
        return self.loss is None


def _count_tokens(batches: Sequence[Batch], world: World) -> tuple[int, int, int]:
    """Return supervised, real and padded token counts over all ranks (one CPU all-reduce)."""
    counts = torch.tensor(
        [
            sum(batch.num_supervised for batch in batches),
            sum(batch.num_tokens for batch in batches),
            sum(batch.tokens.numel() for batch in batches),
        ]
    )
    supervised, real, padded = world.sum(counts).tolist()
    return supervised, real, padded


def _raise_non_finite(
    step: int,
    loss: float,
    grad_norm: float,
    losses: Sequence[torch.Tensor],
    batches: Sequence[Batch],
    world: World,
) -> None:
    """Find which ranks and rows were not finite and raise the same error on every rank."""
    ids = [
        id_
        for micro_loss, batch in zip(losses, batches, strict=True)
        if not math.isfinite(micro_loss.item())
        for id_ in batch.ids
    ]
    found = [f"rank {rank}: {', '.join(bad)}" for rank, bad in enumerate(world.gather(ids)) if bad]
    where = "; ".join(found) or "no row: every loss was finite, the gradient overflowed"
    raise NonFiniteError(
        f"step {step}: loss {loss}, gradient norm {grad_norm}; rows with a non-finite loss: "
        f"{where}. The weights are as they were before this step."
    )


def train_step(
    model: CausalLM,
    trainables: ReplicatedTrainables,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    *,
    step: int,
    clip_grad_norm: float | None,
    world: World,
) -> StepResult:
    """Run forward, backward and one optimizer step.

    Args:
        model: Returns the summed loss of a batch.
        trainables: Its trainable parameters; ``optimizer`` works on their masters.
        optimizer: Steps once, unless the step has no supervised token.
        batches: This rank's micro-batches, as many on every rank; one may be empty.
        step: Number of this step, for messages.
        clip_grad_norm: Largest gradient norm, or None.
        world: The ranks of this run.

    Raises:
        NonFiniteError: On all ranks together, before the optimizer acts.
    """
    num_supervised, num_tokens, num_padded_tokens = _count_tokens(batches, world)
    if num_supervised == 0:
        return StepResult(None, None, 0, num_tokens, num_padded_tokens)
    losses = []
    for batch in batches:
        moved = batch.to(world.device)
        loss = model(moved.tokens, moved.positions, moved.targets) / num_supervised
        trainables.accumulate(loss)
        losses.append(loss.detach())
    loss, grad_norm = trainables.reduce()
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        _raise_non_finite(step, loss, grad_norm, losses, batches, world)
    bound = math.inf if clip_grad_norm is None else clip_grad_norm
    trainables.set_gradients(min(1.0, bound / grad_norm) if grad_norm > 0 else 1.0)
    optimizer.step()
    trainables.publish()
    return StepResult(loss, grad_norm, num_supervised, num_tokens, num_padded_tokens)
