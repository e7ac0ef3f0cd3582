"""One optimizer step: a short function that receives what it uses and returns numbers.

The loss is a sum over supervised tokens, divided by their number over all ranks and micro-steps.
Four ranks with one row each, one rank with four, and four accumulated micro-steps therefore give
the same gradient (the mean of means does not: huggingface/transformers#34191).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.optim import Optimizer

from custom_components.datasets.collate import Batch
from custom_components.models.causal_lm import CausalLM, summed_loss
from custom_components.training.distributed import World
from custom_components.training.trainables import Trainables


class NonFiniteError(RuntimeError):
    """A loss or gradient was not finite; raised on all ranks before the optimizer acts."""


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did, over all ranks.

    Args:
        loss: Mean over supervised tokens; None when there was none: the step changed nothing.
        grad_norm: Before clipping; None likewise.
        num_supervised: Tokens with a label.
        num_tokens: Input tokens without padding.
        num_positions: Input positions, padding included.
        sum_of_squares: Squared lengths of what attends to itself, see ``Batch``.
    """

    loss: float | None
    grad_norm: float | None
    num_supervised: int
    num_tokens: int
    num_positions: int
    sum_of_squares: int

    @property
    def skipped(self) -> bool:
        """True if the step had nothing to train on."""
        return self.loss is None


def _count(batches: Sequence[Batch], world: World) -> StepResult:
    """Return a result that holds only the step's sizes over all ranks (one CPU all-reduce)."""
    sizes = [(b.num_supervised, b.num_tokens, b.num_positions, b.sum_of_squares) for b in batches]
    return StepResult(None, None, *world.sum(torch.tensor(sizes).sum(dim=0)).tolist())


def _explain(step: int) -> str:
    if step == 1:
        return "No step was taken yet: look at the checkpoint, the adapter and these rows."
    return "Often an earlier step made the weights too large: lower optimizer.lr."


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
        f"{where}. {_explain(step)} "
        "This step changed nothing."
    )


def train_step(
    model: CausalLM,
    trainables: Trainables,
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
        batches: This rank's micro-batches on the model's device, as many on every rank; one may be
            empty.
        step: Number of this step, for messages.
        clip_grad_norm: Largest gradient norm, or None.
        world: The ranks of this run.

    Raises:
        NonFiniteError: On all ranks together, before the optimizer acts.
    """
    sizes = _count(batches, world)
    if sizes.num_supervised == 0:
        optimizer.step()  # no parameter has a gradient: it only keeps count, as the schedule does
        return sizes
    losses = []
    for batch in batches:
        micro_loss = summed_loss(model, batch) / sizes.num_supervised
        trainables.accumulate(micro_loss)
        losses.append(micro_loss.detach())
    loss, grad_norm = trainables.reduce()
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        _raise_non_finite(step, loss, grad_norm, losses, batches, world)
    bound = math.inf if clip_grad_norm is None else clip_grad_norm
    trainables.set_gradients(min(1.0, bound / grad_norm) if grad_norm > 0 else 1.0)
    optimizer.step()
    trainables.publish()
    return replace(sizes, loss=loss, grad_norm=grad_norm)
