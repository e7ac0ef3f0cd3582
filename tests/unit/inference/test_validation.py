"""Validation loss: a mean over tokens in evaluation mode, and no trace of it afterwards."""

import custom_components.compat  # noqa: F401

import math

import pytest
import torch
import torch.nn.functional as F

from custom_components.datasets.collate import Batch, collate
from custom_components.errors import UserError
from custom_components.inference.validation import measure_validation_loss
from custom_components.models.causal_lm import CausalLM
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.training.distributed import World

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"))


def build_model() -> CausalLM:
    torch.manual_seed(0)
    decoder = tiny_lora_llama3_8b(["q_proj", "v_proj"], lora_dropout=0.5)
    for name, parameter in decoder.named_parameters():
        if name.endswith("lora_b.weight"):
            torch.nn.init.normal_(parameter)  # without it dropout would not show
    return CausalLM(decoder).train()


def build_sample(length: int, num_supervised: int) -> dict:
    tokens = torch.randint(500, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    labels = [-100] * (length - num_supervised) + tokens[length - num_supervised :]
    return {"tokens": tokens, "labels": labels, "id": f"f:{length}"}


SAMPLES = [build_sample(5, 1), build_sample(40, 30), build_sample(12, 3), build_sample(7, 6)]


def build_batches() -> list[Batch]:
    """Three uneven batches, one of them empty."""
    return [collate(part, pad_id=0) for part in (SAMPLES[:1], SAMPLES[1:], [])]


@torch.no_grad()
def mean_over_tokens(model: CausalLM) -> float:
    """The definition, sample by sample, through torchtune's own forward."""
    decoder = model.decoder.eval()
    total, count = 0.0, 0
    for sample in SAMPLES:
        logits = decoder(torch.tensor([sample["tokens"]]))[0, :-1]
        targets = torch.tensor(sample["labels"][1:])
        total += float(F.cross_entropy(logits, targets, ignore_index=-100, reduction="sum"))
        count += int((targets != -100).sum())
    assert count == 1 + 30 + 3 + 6
    decoder.train()
    return total / count


def test_it_is_the_mean_over_supervised_tokens_without_dropout() -> None:
    model = build_model()
    expected = mean_over_tokens(model)
    assert measure_validation_loss(model, build_batches(), world=WORLD) == pytest.approx(
        expected, rel=1e-6
    )


def test_modes_random_state_and_gradients_are_as_before() -> None:
    model = build_model()
    model.decoder.layers[1].eval()  # modes differ between modules
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()

    def draw_batches():
        torch.rand(3)  # a data set with randomness of its own
        yield from build_batches()

    measure_validation_loss(model, draw_batches(), world=WORLD)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_come_back_after_an_error() -> None:
    model = build_model()

    def fail():
        raise OSError("the disk went away")
        yield

    with pytest.raises(OSError, match="the disk went away"):
        measure_validation_loss(model, fail(), world=WORLD)
    assert model.training and torch.is_grad_enabled()


def test_nothing_supervised_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to validate on"):
        measure_validation_loss(build_model(), [collate([], pad_id=0)], world=WORLD)


def test_a_model_that_overflows_gives_a_loss_that_is_not_a_number() -> None:
    model = build_model()
    with torch.no_grad():
        model.decoder.norm.scale.fill_(math.inf)
    assert math.isnan(measure_validation_loss(model, build_batches(), world=WORLD))


def test_the_sum_over_many_batches_does_not_drift() -> None:
    """In fp32 the sum of 20,000 tenths is off by 2e-4 of itself."""
    tenth = torch.tensor(0.1)

    class Tenth(torch.nn.Module):
        def forward(self, *args: object, **kwargs: object) -> torch.Tensor:
            return tenth

    batches = [collate([build_sample(3, 1)], pad_id=0)] * 20_000
    loss = measure_validation_loss(Tenth(), batches, world=WORLD)  # type: ignore[arg-type]
    assert loss == pytest.approx(tenth.double().item(), rel=1e-12)
