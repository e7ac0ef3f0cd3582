"""One optimizer step against hand-computed numbers."""

import custom_components.compat  # noqa: F401

import math

import pytest
import torch
from torch import nn
from torchtune.modules import RMSNorm, TransformerDecoder
from torchtune.modules.peft import LoRALinear

from custom_components.datasets.collate import Batch
from custom_components.models.causal_lm import CausalLM
from custom_components.training.distributed import World
from custom_components.training.step import NonFiniteError, StepResult, train_step
from custom_components.training.trainables import ReplicatedTrainables

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"))


def build_two_token_model() -> tuple[CausalLM, LoRALinear]:
    """A decoder without layers: embedding (1, 1), norm, and a rank-1 LoRA head over 2 tokens."""
    head = LoRALinear(in_dim=2, out_dim=2, rank=1, alpha=1.0)
    with torch.no_grad():
        head.weight.zero_()
        head.lora_a.weight.fill_(1.0)
        head.lora_b.weight.zero_()
    head.weight.requires_grad_(False)
    embeddings = nn.Embedding(2, 2)
    embeddings.weight = nn.Parameter(torch.ones(2, 2), requires_grad=False)
    norm = RMSNorm(2, eps=0.0)
    norm.scale.requires_grad_(False)
    decoder = TransformerDecoder(
        tok_embeddings=embeddings, layers=nn.ModuleList(), max_seq_len=8, num_heads=1, head_dim=2,
        norm=norm, output=head,
    )  # fmt: skip
    return CausalLM(decoder), head


def build_batch(targets: list[int], *, ids: tuple[str, ...] = ("row",)) -> Batch:
    """One row of two tokens; the last ``len(targets)`` positions are supervised."""
    positions = torch.arange(2 - len(targets), 2)
    return Batch(
        tokens=torch.zeros(1, 2, dtype=torch.int64), positions=positions,
        targets=torch.tensor(targets, dtype=torch.int64), ids=list(ids), num_tokens=2,
    )  # fmt: skip


def take_step(model: CausalLM, head: LoRALinear, batches: list[Batch], **kwargs) -> StepResult:
    parameters = {"a": head.lora_a.weight, "b": head.lora_b.weight}
    trainables = ReplicatedTrainables(parameters, WORLD)
    optimizer = torch.optim.SGD(trainables.masters, lr=0.1)
    settings = {"step": 1, "clip_grad_norm": None, "world": WORLD} | kwargs
    return train_step(model, trainables, optimizer, batches, **settings)


def test_step_matches_a_hand_computed_lora_update() -> None:
    """With h = (1, 1), A = (1, 1) and B = 0: logits 0, loss ln 2, dB = (p - y) A h = (-1, 1).

    A step of 0.1 gives B = (0.1, -0.1), logits (0.2, -0.2) and loss ln(1 + exp(-0.4)). A gets no
    gradient while B is zero.
    """
    model, head = build_two_token_model()
    first = take_step(model, head, [build_batch([0])])
    assert first.loss == pytest.approx(math.log(2), abs=1e-7)
    assert first.grad_norm == pytest.approx(math.sqrt(2), abs=1e-6)
    torch.testing.assert_close(head.lora_b.weight, torch.tensor([[0.1], [-0.1]]))
    torch.testing.assert_close(head.lora_a.weight, torch.ones(1, 2))
    second = take_step(model, head, [build_batch([0])])
    assert second.loss == pytest.approx(math.log1p(math.exp(-0.4)), abs=1e-7)


def test_loss_is_weighted_by_supervised_tokens_not_by_micro_batches() -> None:
    """Two targets of token 0 and one of token 1: dB = (0.5, -0.5) * 2 * (1 - 2) / 3."""
    model, head = build_two_token_model()
    result = take_step(model, head, [build_batch([0, 0]), build_batch([1])])
    assert result.num_supervised == 3
    torch.testing.assert_close(head.lora_b.weight, torch.tensor([[0.1], [-0.1]]) / 3)


def test_clipping_scales_the_gradient_to_the_bound() -> None:
    model, head = build_two_token_model()
    result = take_step(model, head, [build_batch([0])], clip_grad_norm=math.sqrt(2) / 4)
    assert result.grad_norm == pytest.approx(math.sqrt(2), abs=1e-6)
    torch.testing.assert_close(head.lora_b.weight, torch.tensor([[0.025], [-0.025]]))


def test_step_without_supervised_tokens_changes_nothing() -> None:
    """torchtune divides by zero here and turns the weights to NaN (#2341, #2344)."""
    model, head = build_two_token_model()
    with torch.no_grad():
        head.lora_b.weight.fill_(0.5)
    result = take_step(model, head, [build_batch([]), build_batch([])])
    assert result.skipped and result.loss is None
    torch.testing.assert_close(head.lora_b.weight, torch.full((2, 1), 0.5))


def test_micro_batch_without_supervised_tokens_adds_nothing() -> None:
    model, head = build_two_token_model()
    result = take_step(model, head, [build_batch([]), build_batch([0])])
    assert result.loss == pytest.approx(math.log(2), abs=1e-7)
    torch.testing.assert_close(head.lora_b.weight, torch.tensor([[0.1], [-0.1]]))


@pytest.mark.parametrize(
    ("step", "advice"), [(1, "look at the checkpoint"), (5, "lower optimizer.lr")]
)
def test_non_finite_loss_stops_before_the_optimizer_and_names_the_rows(
    step: int, advice: str
) -> None:
    model, head = build_two_token_model()
    with torch.no_grad():
        head.lora_b.weight.fill_(float("inf"))
    good, bad = build_batch([], ids=("good",)), build_batch([0], ids=("file.jsonl:7",))
    with pytest.raises(
        NonFiniteError, match=rf"step {step}: .*rank 0: file.jsonl:7.*{advice}"
    ) as error:
        take_step(model, head, [good, bad], step=step)
    assert "good" not in str(error.value)
    torch.testing.assert_close(head.lora_a.weight, torch.ones(1, 2))


def test_bf16_parameters_are_updated_through_fp32_masters() -> None:
    """An update of 1/1000 of a bf16 weight is lost; a thousand of them must not be."""
    parameter = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    trainables = ReplicatedTrainables({"p": parameter}, WORLD)
    optimizer = torch.optim.SGD(trainables.masters, lr=1.0)
    for _ in range(1000):
        trainables.accumulate((parameter * 0.001).sum())
        trainables.reduce()
        trainables.set_gradients(1.0)
        optimizer.step()
        trainables.publish()
    assert parameter.dtype == torch.bfloat16
    assert parameter.item() == pytest.approx(0.0, abs=5e-3)
