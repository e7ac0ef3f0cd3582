"""Trainable parameters and their gradients: whole on every rank, or sharded over the ranks.

``build_trainables`` chooses by what ``parallelize`` made of the parameters.

Masters: the optimizer works in fp32, because an update smaller than 1/256 of a bf16 weight would
be lost. What is computed with may be a bf16 copy of them.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from custom_components.models.nf4 import local_part
from custom_components.models.placement import rows_of
from custom_components.training.distributed import World


class Trainables(Protocol):
    """What the step and the recipes need of the trainable parameters."""

    masters: list[nn.Parameter]
    """fp32, plain tensors: what this rank's optimizer works on."""

    def accumulate(self, loss: torch.Tensor) -> None:
        """Run backward and add the gradients and the loss to those of earlier micro-steps.

        Args:
            loss: This micro-step's share of the step's mean loss, a scalar.
        """

    def reduce(self) -> tuple[float, float]:
        """Return the loss and the 2-norm of the gradient, each over all ranks.

        This is the step's one device read. Every rank gets the same numbers.
        """

    def set_gradients(self, scale: float) -> None:
        """Hand the summed gradients, times ``scale``, to the masters."""

    def publish(self) -> None:
        """Make the model compute with the updated masters and forget the gradients."""

    def gather(self) -> dict[str, torch.Tensor]:
        """Return the whole masters by name; every rank must call it, all get the same."""

    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """Set the masters to these whole values and ``publish``."""


def build_trainables(parameters: Mapping[str, nn.Parameter], world: World) -> Trainables:
    """Return the trainables of a model whose weights are loaded.

    Args:
        parameters: Trainable parameters by name, the same order on every rank.
        world: The ranks.
    """
    if any(isinstance(parameter, DTensor) for parameter in parameters.values()):
        return ShardedTrainables(parameters, world)
    return ReplicatedTrainables(parameters, world)


class ReplicatedTrainables:
    """Every rank holds all of them; one all-reduce of one flat buffer an optimizer step.

    Only the trainable parameters have gradients, a few MB for an adapter. The last element of the
    buffer carries the loss, so the global loss costs no collective of its own. In fp32 the masters
    are the parameters.

    Args:
        parameters: Trainable parameters by name, the same order on every rank.
        world: The ranks to sum over.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], world: World) -> None:
        self._names = list(parameters)
        self._parameters = list(parameters.values())
        self._world = world
        self.masters = [
            p if p.dtype == torch.float32 else nn.Parameter(p.detach().float())
            for p in self._parameters
        ]
        sizes = [p.numel() for p in self._parameters]
        self._buffer = torch.zeros(sum(sizes) + 1, device=world.device)
        *gradients, self._loss = torch.split(self._buffer, [*sizes, 1])
        self._gradients = [g.view_as(p) for g, p in zip(gradients, self._parameters, strict=True)]

    def accumulate(self, loss: torch.Tensor) -> None:
        """See ``Trainables``."""
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()
        pairs = [
            (total, p.grad)
            for total, p in zip(self._gradients, self._parameters, strict=True)
            if p.grad is not None
        ]
        if pairs:
            torch._foreach_add_([total for total, _ in pairs], [g.float() for _, g in pairs])
        for parameter in self._parameters:
            parameter.grad = None

    def reduce(self) -> tuple[float, float]:
        """See ``Trainables``."""
        self._world.sum(self._buffer)
        norm = torch.linalg.vector_norm(self._buffer[:-1])
        loss, grad_norm = torch.stack([self._loss.squeeze(), norm]).tolist()
        return loss, grad_norm

    def set_gradients(self, scale: float) -> None:
        """See ``Trainables``."""
        if scale != 1.0:
            self._buffer.mul_(scale)
        for master, gradient in zip(self.masters, self._gradients, strict=True):
            master.grad = gradient

    def publish(self) -> None:
        """See ``Trainables``."""
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self.masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
        for master in self.masters:
            master.grad = None
        self._buffer.zero_()

    def gather(self) -> dict[str, torch.Tensor]:
        """See ``Trainables``."""
        return {n: m.detach() for n, m in zip(self._names, self.masters, strict=True)}

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """See ``Trainables``."""
        for name, master in zip(self._names, self.masters, strict=True):
            master.copy_(values[name])
        self.publish()


class ShardedTrainables:
    """Every rank holds its rows of each; backward reduce-scatters the gradients in fp32.

    The masters are the memory of the shards themselves, as plain tensors: an optimizer that treats
    every number alone (Adam, SGD) works on a shard as on the whole, and a norm over ranks is one
    sum of squares, whatever mesh a parameter lies on (pytorch/torchtune#2420).

    Args:
        parameters: Trainable parameters by name, sharded over all ranks and materialised in fp32.
        world: The ranks.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], world: World) -> None:
        self._parameters = {name: _as_dtensor(p) for name, p in parameters.items()}
        self._world = world
        self.masters = [nn.Parameter(local_part(p.detach())) for p in self._parameters.values()]
        self._loss = torch.zeros((), device=world.device)

    def accumulate(self, loss: torch.Tensor) -> None:
        """See ``Trainables``. FSDP adds up the shards of the gradients in ``.grad``."""
        loss.backward()  # type: ignore[no-untyped-call]
        self._loss += loss.detach()

    def _gradients(self) -> list[torch.Tensor | None]:
        return [p.grad if p.grad is None else local_part(p.grad) for p in self._parameters.values()]

    def reduce(self) -> tuple[float, float]:
        """See ``Trainables``."""
        gradients = [g for g in self._gradients() if g is not None]
        norms = torch._foreach_norm(gradients) if gradients else []
        sum_of_squares = sum((norm.square() for norm in norms), start=torch.zeros_like(self._loss))
        totals = self._world.sum(torch.stack([self._loss, sum_of_squares]))
        loss, grad_norm = torch.stack([totals[0], totals[1].sqrt()]).tolist()
        return loss, grad_norm

    def set_gradients(self, scale: float) -> None:
        """See ``Trainables``."""
        for master, gradient in zip(self.masters, self._gradients(), strict=True):
            master.grad = gradient if gradient is None or scale == 1.0 else gradient.mul_(scale)

    def publish(self) -> None:
        """See ``Trainables``. The next gather reads the masters' own memory."""
        for master, parameter in zip(self.masters, self._parameters.values(), strict=True):
            master.grad = parameter.grad = None
        self._loss.zero_()

    def gather(self) -> dict[str, torch.Tensor]:
        """See ``Trainables``."""
        return {name: _whole(p) for name, p in self._parameters.items()}

    @torch.no_grad()
    def load(self, values: Mapping[str, torch.Tensor]) -> None:
        """See ``Trainables``."""
        for (name, _), master in zip(self._parameters.items(), self.masters, strict=True):
            master.copy_(rows_of(values[name], self._world.rank, self._world.size))
        self.publish()


def _as_dtensor(parameter: nn.Parameter) -> DTensor:
    assert isinstance(parameter, DTensor), "all trainable parameters are sharded, or none"
    assert parameter.dtype == torch.float32
    return parameter


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    detached = tensor.detach()
    assert isinstance(detached, DTensor)
    return detached.full_tensor()
