"""A model that is evaluated in the middle of training, and nothing of it shows afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off; on the way out, put modes and random state back.

    Args:
        model: Its modules may be in different modes; each gets its own back.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
