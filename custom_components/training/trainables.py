"""Trainable parameters in ``replicate`` mode: one flat fp32 gradient buffer, fp32 master weights.

Every rank holds the whole model. Only the trainable parameters have gradients, a few MB for an
adapter, so all of them live in one buffer and one all-reduce per optimizer step sums it. The last
element of the buffer carries the loss, so the global loss costs no collective of its own.

Masters: when the model computes in bf16 the optimizer works on fp32 copies, because an update
smaller than 1/256 of a bf16 weight would be lost. In fp32 the masters are the parameters.
"""

from collections.abc import Mapping

import torch
from torch import nn

from custom_components.training.distributed import World


class ReplicatedTrainables:
    """The trainable parameters of one rank and their gradients.

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

    def named_masters(self) -> dict[str, nn.Parameter]:
        """Return the fp32 masters by their parameters' names; ``publish`` after changing them."""
        return dict(zip(self._names, self.masters, strict=True))

    def accumulate(self, loss: torch.Tensor) -> None:
        """Run backward and add the gradients and the loss to the buffer.

        Args:
            loss: This micro-step's share of the step's mean loss, a scalar.
        """
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
        """Sum the buffer over the ranks and read loss and gradient norm.

        This is the step's one device read. Every rank gets the same numbers.

        Returns:
            The loss, and the 2-norm of the gradient over all trainable parameters.
        """
        self._world.sum(self._buffer)
        norm = torch.linalg.vector_norm(self._buffer[:-1])
        loss, grad_norm = torch.stack([self._loss.squeeze(), norm]).tolist()
        return loss, grad_norm

    def set_gradients(self, scale: float) -> None:
        """Hand the summed gradients, times ``scale``, to the masters."""
        if scale != 1.0:
            self._buffer.mul_(scale)
        for master, gradient in zip(self.masters, self._gradients, strict=True):
            master.grad = gradient

    def publish(self) -> None:
        """Copy updated masters into the model and clear the buffer for the next step."""
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self.masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
        for master in self.masters:
            master.grad = None
        self._buffer.zero_()
