"""Whole and sharded trainables do the same with the same gradients."""

import custom_components.compat  # noqa: F401

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from custom_components.training.distributed import World, open_world
from custom_components.training.trainables import (
    ReplicatedTrainables,
    ShardedTrainables,
    build_trainables,
)
from tests.ranks import run_ranks

WORLD = World(0, 1, 0, torch.device("cpu"))
WEIGHT = torch.arange(12.0).view(3, 4) / 10  # on two ranks: two rows and one


def step_sharded(rank_factors: list[float]) -> dict[str, Any]:
    """Two micro-steps on a layer whose rows are split, then one SGD step at rate 1."""
    with open_world("cpu") as world:
        layer = nn.Linear(4, 3, bias=False)
        layer.weight.data.copy_(WEIGHT)
        fully_shard(layer, mesh=world.mesh(), mp_policy=MixedPrecisionPolicy())
        layer.set_gradient_divide_factor(1.0)
        layer.set_force_sum_reduction_for_comms(True)
        trainables = build_trainables({"weight": layer.weight}, world)
        assert isinstance(trainables, ShardedTrainables)
        assert [tuple(m.shape) for m in trainables.masters] == [(2 - world.rank, 4)]
        assert not any(hasattr(m, "placements") for m in trainables.masters)  # plain tensors
        for micro in (1.0, 2.0):
            inputs = torch.full((1, 4), micro * rank_factors[world.rank])
            trainables.accumulate(layer(inputs).sum())
        loss, norm = trainables.reduce()
        trainables.set_gradients(0.5)
        torch.optim.SGD(trainables.masters, lr=1.0).step()
        trainables.publish()
        after = trainables.gather()["weight"]
        no_gradient = trainables.reduce()
        trainables.load({"weight": WEIGHT + 1})
        again = layer(torch.eye(4)).detach().T
        return {
            "loss": loss, "norm": norm, "after": after.tolist(), "again": again.tolist(),
            "no_gradient": no_gradient,
        }  # fmt: skip


def test_shards_are_stepped_like_the_whole_by_hand() -> None:
    """Each gradient row is the sum of the inputs: (1 + 2) * (1 + 10) = 33 in every column."""
    first, second = run_ranks(2, step_sharded, [1.0, 10.0])
    assert first == second
    column_sum = float(WEIGHT.sum())
    assert first["loss"] == pytest.approx(33 * column_sum, rel=1e-6)
    assert first["norm"] == pytest.approx(33 * 12**0.5, rel=1e-6)
    torch.testing.assert_close(torch.tensor(first["after"]), WEIGHT - 16.5)
    torch.testing.assert_close(torch.tensor(first["again"]), WEIGHT + 1)
    assert first["no_gradient"] == (0.0, 0.0)


def test_whole_parameters_are_recognised() -> None:
    parameter = nn.Parameter(WEIGHT.clone())
    trainables = build_trainables({"weight": parameter}, WORLD)
    assert isinstance(trainables, ReplicatedTrainables)
    assert trainables.masters[0] is parameter


def test_bf16_parameters_have_fp32_masters_that_load_and_gather_whole() -> None:
    parameter = nn.Parameter(WEIGHT.bfloat16())
    trainables = build_trainables({"weight": parameter}, WORLD)
    exact = WEIGHT + 1 / 3
    trainables.load({"weight": exact})
    assert torch.equal(trainables.gather()["weight"], exact)
    assert torch.equal(parameter.detach(), exact.bfloat16())
