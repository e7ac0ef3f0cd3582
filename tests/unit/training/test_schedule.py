"""Learning rates against the stated formula, worked out by hand."""

import math

import pytest
import torch

from custom_components.errors import UserError
from custom_components.training.schedule import cosine_schedule_with_warmup


def learning_rates(**kwargs) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)
    schedule = cosine_schedule_with_warmup(optimizer, **kwargs)
    rates = []
    for _ in range(kwargs["num_training_steps"]):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def test_warms_up_from_above_zero_and_decays_by_a_cosine() -> None:
    """torchtune's schedule takes its first step at a learning rate of 0."""
    rates = learning_rates(num_training_steps=7, num_warmup_steps=3)
    half = math.sqrt(2) / 2
    expected = [0.2, 0.4, 0.6, 0.8, 0.8 * (1 + half) / 2, 0.4, 0.8 * (1 - half) / 2]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_ends_at_the_stated_share_of_the_peak() -> None:
    rates = learning_rates(num_training_steps=2, num_warmup_steps=0, min_lr_ratio=0.5)
    assert rates == pytest.approx([0.8, 0.6])


def test_refuses_a_warm_up_as_long_as_the_run_and_a_ratio_above_one_together() -> None:
    with pytest.raises(UserError) as error:
        learning_rates(num_training_steps=5, num_warmup_steps=5, min_lr_ratio=1.5)
    assert "num_warmup_steps is 5 but the run has only 5" in str(error.value)
    assert "min_lr_ratio is 1.5" in str(error.value)
