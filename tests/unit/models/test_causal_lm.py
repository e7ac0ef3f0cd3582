"""The head on supervised positions against torchtune's own decoder over all positions."""

import custom_components.compat  # noqa: F401

import pytest
import torch
import torch.nn.functional as F

from custom_components.models.causal_lm import CausalLM
from custom_components.models.tiny import tiny_llama3_8b
from custom_components.models.weights import load_weights

ROWS, LENGTH = 3, 20
POSITIONS = torch.tensor([4, 5, 6, 30, 31, 58, 59])


def build_decoder():
    with torch.device("meta"):
        decoder = tiny_llama3_8b()
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    return decoder


def loss_and_gradients(model, loss):
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return loss.item(), gradients


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("num_chunk_tokens", [2, 7, 1024])
def test_loss_and_gradients_equal_those_over_all_positions(
    checkpointing: str, num_chunk_tokens: int
) -> None:
    decoder = build_decoder()
    tokens = torch.randint(0, 256, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    targets = torch.randint(0, 256, POSITIONS.shape, generator=torch.Generator().manual_seed(2))
    labels = torch.full((ROWS * LENGTH,), -100)
    labels[POSITIONS] = targets
    over_all = F.cross_entropy(decoder(tokens).flatten(0, 1), labels, reduction="sum")
    expected_loss, expected = loss_and_gradients(decoder, over_all)
    model = CausalLM(decoder, num_chunk_tokens=num_chunk_tokens)
    model.activation_checkpointing = checkpointing
    loss, gradients = loss_and_gradients(decoder, model(tokens, POSITIONS, targets))
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def count_layer_calls(model: CausalLM, tokens: torch.Tensor) -> int:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    hooks = [layer.register_forward_pre_hook(count) for layer in model.decoder.layers]
    model(tokens, POSITIONS, torch.zeros_like(POSITIONS)).backward()
    for hook in hooks:
        hook.remove()
    return calls


def test_checkpointing_runs_every_layer_twice() -> None:
    model = CausalLM(build_decoder())
    tokens = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
    num_layers = len(model.decoder.layers)
    assert count_layer_calls(model, tokens) == num_layers
    model.activation_checkpointing = "full"
    assert count_layer_calls(model, tokens) == 2 * num_layers


def test_chunks_bound_the_rows_that_the_projection_sees() -> None:
    model = CausalLM(build_decoder(), num_chunk_tokens=3)
    seen = []
    model.decoder.output.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    model(torch.zeros(ROWS, LENGTH, dtype=torch.int64), POSITIONS, torch.zeros_like(POSITIONS))
    assert seen == [3, 3, 1]


def test_no_supervised_position_gives_a_zero_loss_with_zero_gradients() -> None:
    """A rank without labels must still take part in every collective of backward."""
    decoder = build_decoder()
    nothing = torch.zeros(0, dtype=torch.int64)
    loss, gradients = loss_and_gradients(
        decoder, CausalLM(decoder)(torch.zeros(1, 4, dtype=torch.int64), nothing, nothing)
    )
    assert loss == 0.0
    assert all(gradient.abs().max() == 0 for gradient in gradients)


def test_a_tied_head_trains_the_embeddings_through_both_uses() -> None:
    """Chunked or not, the tied weight's gradient is the same (checked against one chunk)."""
    from torchtune.modules import TiedLinear

    decoder = build_decoder()
    del decoder.output
    decoder.output = TiedLinear(decoder.tok_embeddings)
    tokens, targets = torch.zeros(ROWS, LENGTH, dtype=torch.int64), torch.ones_like(POSITIONS)
    _, whole = loss_and_gradients(decoder, CausalLM(decoder)(tokens, POSITIONS, targets))
    chunked = CausalLM(decoder, num_chunk_tokens=3)
    _, parts = loss_and_gradients(decoder, chunked(tokens, POSITIONS, targets))
    for ours, theirs in zip(parts, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
