"""What the ranks send each other in one step and a save, counted and weighed against formulas.

Saving moves adapters alone: gathering the whole model on rank 0 makes the others time out
(pytorch/torchtune#2093).
Bytes are those of the whole gathered or reduced tensor, whatever the number of ranks.
"""

import custom_components.compat  # noqa: F401

import math
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.distributed.tensor.debug import CommDebugMode

from custom_components.models.adapters import adapter_parameters, freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.smollm2 import _tie_output
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from custom_components.options import ActivationCheckpointing, DataParallel
from custom_components.training.distributed import open_world
from custom_components.training.parallel import parallelize
from custom_components.training.trainables import build_trainables
from tests.ranks import find_free_port, run_ranks

DIM, KV_DIM, HIDDEN, VOCAB, LAYERS, RANK = 64, 32, 128, 512, 2, 8  # tiny_llama3_8b
MATRICES = [(DIM, DIM), (KV_DIM, DIM), (KV_DIM, DIM), (DIM, DIM), *[(DIM, HIDDEN)] * 3]
BASE_OF_LAYER = sum(a * b for a, b in MATRICES)
NORMS_OF_LAYER = 2 * DIM
ADAPTERS = [(RANK, DIM), (DIM, RANK), (RANK, DIM), (KV_DIM, RANK)]  # on q and v
ADAPTER_OF_LAYER = sum(a * b for a, b in ADAPTERS)
FP32 = 4

GATHER, SCATTER, REDUCE = "_allgather_base_", "_reduce_scatter_base_", "allreduce_"
GATHER_DTENSOR = "all_gather_into_tensor"
NAMES = (GATHER, SCATTER, REDUCE, GATHER_DTENSOR)


class WeighedCommDebugMode(CommDebugMode):
    """Also keeps the bytes of each collective's largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        library, _, name = func._schema.name.partition("::")
        if library in ("c10d", "_c10d_functional") and name in NAMES:
            tensors = torch.utils._pytree.tree_leaves((args[:2], result))
            sizes = [t.numel() * t.itemsize for t in tensors if isinstance(t, torch.Tensor)]
            self.collectives.append((name, max(sizes)))
        return result


@dataclass(frozen=True)
class Case:
    """How the model is held."""

    mode: DataParallel = "shard"
    checkpointing: ActivationCheckpointing = "none"
    dtype: torch.dtype = torch.float32
    quantize_base: bool = False
    tied: bool = False


CASES = {
    "replicate": Case(mode="replicate"),
    "shard": Case(),
    "shard, checkpointing": Case(checkpointing="full"),
    "shard, nf4": Case(quantize_base=True),
    "shard, tied": Case(tied=True),
    "shard, bf16": Case(dtype=torch.bfloat16),
}


def count_step(case: Case, lengths: list[int]) -> tuple[list[tuple[str, int]], int]:
    """Return the collectives of a micro-step, its reduction and a save, and CommDebugMode's count.

    ``CommDebugMode`` itself sees any collective: one that ``NAMES`` lacks makes the counts differ.
    """
    with open_world("cpu") as world:
        with torch.device("meta"):
            decoder = tiny_lora_llama3_8b(["q_proj", "v_proj"], quantize_base=case.quantize_base)
            if case.tied:
                _tie_output(decoder)
        freeze_base(decoder)
        model = CausalLM(decoder, num_chunk_tokens=1)  # as many chunks as supervised tokens
        parallelize(
            model, world, data_parallel=case.mode, activation_checkpointing=case.checkpointing,
            compile_layers=False, dtype=case.dtype,
        )  # fmt: skip
        load_weights(decoder, "random", device=world.device, dtype=case.dtype, seed=0)
        trainables = build_trainables(adapter_parameters(decoder), world)
        length = lengths[world.rank]
        tokens = torch.arange(length)[None]
        positions = torch.arange(length - 1)
        for _ in range(2):  # the first run of FSDP sets itself up
            with WeighedCommDebugMode() as counter:
                trainables.accumulate(model(tokens, positions, tokens[0, 1:]))
                trainables.reduce()
                trainables.gather()
            trainables.publish()
        return counter.collectives, counter.get_total_counts()


def count_all(ports: list[int], lengths: list[int]) -> dict[str, tuple[list[tuple[str, int]], int]]:
    counts = {}
    for port, (name, case) in zip(ports, CASES.items(), strict=True):
        os.environ["MASTER_PORT"] = str(port)  # a second group on one port may meet the first
        counts[name] = count_step(case, lengths)
    return counts


def count_on_two_ranks(lengths: list[int]) -> list[dict[str, tuple[list[tuple[str, int]], int]]]:
    return run_ranks(2, count_all, [find_free_port() for _ in CASES], lengths, timeout_s=60)


@pytest.fixture(scope="module")
def counted() -> list[dict[str, tuple[list[tuple[str, int]], int]]]:
    """What each rank did, with rows of 8 and 9 tokens."""
    return count_on_two_ranks([8, 9])


def test_ranks_with_unequal_rows_make_the_same_calls(counted: Any) -> None:
    """Chunks cut by length made ranks hang (pytorch/torchtune#2560): here 7 and 8 chunks."""
    assert counted[0] == counted[1]


def test_length_changes_nothing(counted: Any) -> None:
    assert count_on_two_ranks([40, 3])[0] == counted[0]


@pytest.mark.parametrize("case", CASES)
def test_every_collective_is_weighed(counted: Any, case: str) -> None:
    collectives, total = counted[0][case]
    assert len(collectives) == total


def test_replicate_sums_one_buffer_of_adapter_gradients_and_the_loss(counted: Any) -> None:
    collectives, _ = counted[0]["replicate"]
    assert collectives == [(REDUCE, FP32 * (LAYERS * ADAPTER_OF_LAYER + 1))]


def expected_of_shard(
    base_of_layer: int, *, tied: bool = False, itemsize: int = FP32
) -> Counter[tuple[str, int]]:
    layer = base_of_layer + itemsize * (NORMS_OF_LAYER + ADAPTER_OF_LAYER)
    embeddings, norm = itemsize * VOCAB * DIM, itemsize * DIM
    expected = Counter({(GATHER, layer): 2 * LAYERS})  # forward, backward
    expected[GATHER, embeddings] += 1  # the head, with or without the embeddings
    expected[GATHER, norm if tied else embeddings + norm] += 1  # the root
    expected[SCATTER, FP32 * ADAPTER_OF_LAYER] += LAYERS
    expected[REDUCE, 2 * FP32] += 1  # loss and squared norm
    for num_rows, num_columns in ADAPTERS:
        expected[GATHER_DTENSOR, FP32 * num_rows * num_columns] += LAYERS  # saving: adapters alone
    return expected


@pytest.mark.parametrize("case", ["shard", "shard, checkpointing"])
def test_shard_gathers_each_layer_twice_and_the_rest_once(counted: Any, case: str) -> None:
    collectives, _ = counted[0][case]
    assert Counter(collectives) == expected_of_shard(FP32 * BASE_OF_LAYER)


def test_tied_embeddings_are_gathered_once(counted: Any) -> None:
    collectives, _ = counted[0]["shard, tied"]
    assert Counter(collectives) == expected_of_shard(FP32 * BASE_OF_LAYER, tied=True)


def test_nf4_is_gathered_at_four_bits_and_its_scalers(counted: Any) -> None:
    scalers = BASE_OF_LAYER // 64
    nf4 = BASE_OF_LAYER // 2 + scalers + FP32 * scalers // 8  # tiny groups 8 scalers
    collectives, _ = counted[0]["shard, nf4"]
    assert Counter(collectives) == expected_of_shard(nf4)
    assert math.isclose(nf4 / (FP32 * BASE_OF_LAYER), 0.131, abs_tol=1e-3)


def test_bf16_is_gathered_in_bf16_and_its_gradients_are_summed_in_fp32(counted: Any) -> None:
    collectives, _ = counted[0]["shard, bf16"]
    assert Counter(collectives) == expected_of_shard(2 * BASE_OF_LAYER, itemsize=2)
