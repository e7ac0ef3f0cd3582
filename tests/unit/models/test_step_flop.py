"""FLOP of a step: the formula against a count of a real step of another shape."""

import custom_components.compat  # noqa: F401

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from custom_components.datasets.collate import collate_packs
from custom_components.models.adapters import freeze_base
from custom_components.models.causal_lm import CausalLM, summed_loss
from custom_components.models.step_flop import measure_step_flop
from custom_components.models.tiny import tiny_llama3_8b, tiny_lora_llama3_8b
from custom_components.models.weights import load_weights


@pytest.mark.parametrize("is_lora", [True, False])
def test_counts_of_small_shapes_predict_a_real_step_of_any_shape(is_lora: bool) -> None:
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"]) if is_lora else tiny_llama3_8b()
    if is_lora:
        freeze_base(decoder)
    flop = measure_step_flop(decoder)
    cpu = torch.device("cpu")
    load_weights(decoder, "random", device=cpu, dtype=torch.float32, seed=0)
    model = CausalLM(decoder)
    rows, length, positions = 3, 37, torch.arange(11)
    # The counter does not know the CPU's fused attention kernel; it knows the plain products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(torch.zeros(rows, length, dtype=torch.int64), positions, positions).backward()
    predicted = flop.count(
        num_positions=rows * length, sum_of_squares=rows * length**2, num_supervised=11
    )
    assert predicted == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_packed_steps_take_what_their_documents_take() -> None:
    with torch.device("meta"):
        decoder = tiny_llama3_8b()
    flop = measure_step_flop(decoder)
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    documents = [(5, 5, 9, 2), (20, 3)]
    packs = [
        [{"tokens": [1] * (n + 1), "labels": [1] * (n + 1), "id": "f:1"} for n in pack]
        for pack in documents
    ]
    batch = collate_packs(packs, pad_id=0, capacity=25)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        summed_loss(CausalLM(decoder), batch).backward()
    predicted = flop.count(
        num_positions=2 * 25,
        sum_of_squares=sum(n**2 for pack in documents for n in pack) + 4 + 2,  # and the padding's
        num_supervised=44,
    )
    assert predicted == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert predicted == flop.count(
        num_positions=batch.num_positions,
        sum_of_squares=batch.sum_of_squares,
        num_supervised=batch.num_supervised,
    )


@pytest.mark.parametrize("method", [{"use_dora": True}, {"quantize_base": True}])
def test_rows_take_the_same_whatever_is_done_to_the_weights(method: dict[str, bool]) -> None:
    """DoRA's norms cost the same for any row, unpacking 4 bits takes no products."""
    counts = []
    for arguments in ({}, method):
        with torch.device("meta"):
            decoder = tiny_lora_llama3_8b(["q_proj"], apply_lora_to_mlp=True, **arguments)
        freeze_base(decoder)
        counts.append(measure_step_flop(decoder))
    assert counts[0] == counts[1]


def test_lora_of_llama_3_8b_takes_about_four_flop_a_parameter_and_token() -> None:
    """4N for frozen weights (forward, and the gradient of the input), 6N for trained ones."""
    from torchtune.models.llama3 import lora_llama3_8b

    with torch.device("meta"):
        decoder = lora_llama3_8b(["q_proj", "v_proj"])
    freeze_base(decoder)
    flop = measure_step_flop(decoder)
    num_layer_parameters = sum(p.numel() for p in decoder.layers.parameters())
    assert flop.per_position == pytest.approx(4 * num_layer_parameters, rel=0.02)
    num_head_parameters = sum(p.numel() for p in decoder.output.parameters())
    assert flop.per_supervised == pytest.approx(4 * num_head_parameters, rel=1e-6)
