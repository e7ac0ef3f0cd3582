"""The loss on held-out data, as the training loss is counted: a mean over supervised tokens."""

from collections.abc import Iterable

import torch

from custom_components.datasets.collate import Batch
from custom_components.errors import UserError
from custom_components.inference.evaluation_mode import evaluation_mode
from custom_components.models.causal_lm import CausalLM, summed_loss
from custom_components.training.distributed import World


def measure_validation_loss(model: CausalLM, batches: Iterable[Batch], *, world: World) -> float:
    """Return the mean loss per supervised token over the batches of all ranks, in nats.

    It is a sum over tokens, added up in fp64 and divided once, so it does not depend on how rows
    are shared among ranks and batches. There is one device read and one collective for all.

    Args:
        model: In any mode; it is left as found, and so is the random state.
        batches: This rank's on its device, as many on every rank; one may be empty.
        world: The ranks.

    Raises:
        UserError: On every rank, if there is no supervised token.
    """
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    num_supervised = 0
    with evaluation_mode(model):
        for batch in batches:
            total += summed_loss(model, batch)
            num_supervised += batch.num_supervised
    sums = torch.tensor([total.item(), num_supervised], dtype=torch.float64)
    loss, count = world.sum(sums).tolist()
    if count == 0:
        raise UserError("dataset_val has nothing to validate on: look at its source and split")
    return float(loss / count)
