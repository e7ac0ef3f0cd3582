"""How many FLOP a training step takes, from a few counts made once on the meta device.

For a decoder the FLOP of forward and backward are exactly linear in three sums over the rows of a
step: input positions, squared lengths of its rows or, in packs, documents (attention) and
supervised positions (the head). What a step takes whatever its rows, such as DoRA's norms of
weights, is left out.
``FlopCounterMode`` counts a few small shapes, which gives the three coefficients; after that any
step costs an addition, compiled or not. Recomputation under checkpointing is left out: the number
is the model's, not the implementation's. Attention counts as full, not causal, as is usual.
"""

import custom_components.compat  # noqa: F401

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode
from torchtune.modules import TransformerDecoder

from custom_components.hardware.peaks import find_peak_flop_per_s
from custom_components.models.causal_lm import CausalLM

_LENGTH = 64


@dataclass(frozen=True)
class StepFlop:
    """Coefficients of a step's FLOP, forward and backward.

    Args:
        per_position: For each input position, padding included.
        per_square: For each row or packed document, times its squared length.
        per_supervised: For each supervised position.
    """

    per_position: float
    per_square: float
    per_supervised: float

    def count(self, *, num_positions: int, sum_of_squares: int, num_supervised: int) -> float:
        """Return the FLOP of a step with these sums over its rows."""
        return (
            self.per_position * num_positions
            + self.per_square * sum_of_squares
            + self.per_supervised * num_supervised
        )


@dataclass(frozen=True)
class Yardstick:
    """What a run's speed is held against.

    Args:
        flop: What its steps take.
        peak_flop_per_s: Of one device.
    """

    flop: StepFlop
    peak_flop_per_s: float


def build_yardstick(
    decoder: TransformerDecoder, device: torch.device, dtype: torch.dtype
) -> Yardstick | None:
    """Return the yardstick of a run, or None where the device's peak is not known.

    Args:
        decoder: See ``measure_step_flop``.
        device: What it will run on.
        dtype: What it will compute in.
    """
    peak = find_peak_flop_per_s(device, dtype)
    return None if peak is None else Yardstick(measure_step_flop(decoder), peak)


def measure_step_flop(decoder: TransformerDecoder) -> StepFlop:
    """Count what one step of ``decoder`` takes.

    The first layer is counted by itself, because nothing before it may need a gradient; the others
    are alike, so the second stands for all of them.

    Args:
        decoder: On the meta device, with ``requires_grad`` as it will be trained; at least two
            layers.
    """
    layers = decoder.layers
    try:
        decoder.layers = layers[:1]
        first = [_count(decoder, times * _LENGTH, 1) for times in (1, 2, 3)]
        per_supervised = _count(decoder, _LENGTH, 2) - first[0]
        decoder.layers = layers[:2]
        both = [_count(decoder, times * _LENGTH, 1) for times in (1, 2, 3)]
    finally:
        decoder.layers = layers
    num_others = len(layers) - 1
    once, twice, thrice = (a + num_others * (b - a) for a, b in zip(first, both, strict=True))
    # Each is constant + position * S + square * S^2; the differences are free of the constant.
    per_square = (thrice - 2 * twice + once) / (2 * _LENGTH**2)
    per_position = (twice - once) / _LENGTH - per_square * 3 * _LENGTH
    return StepFlop(per_position, per_square, per_supervised)


def _count(decoder: TransformerDecoder, length: int, num_supervised: int) -> int:
    model = CausalLM(decoder)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        ids = torch.zeros(num_supervised, dtype=torch.int64)
        loss = model(torch.zeros(1, length, dtype=torch.int64), ids, ids)
        loss.backward()
    for parameter in decoder.parameters():
        parameter.grad = None
    return int(counter.get_total_flops())
