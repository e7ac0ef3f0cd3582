"""Generation by a model whose weights are shared by two ranks equals that of the whole model."""

import custom_components.compat  # noqa: F401

import pytest
import torch
from torchtune.models.llama3 import llama3
from torchtune.modules import TiedLinear, TransformerDecoder

from custom_components.inference.generate import generate
from custom_components.models.causal_lm import CausalLM
from custom_components.models.weights import load_weights
from custom_components.training.distributed import World, open_world
from custom_components.training.parallel import parallelize
from tests.ranks import run_ranks

CONTEXT = 14
PROMPTS = [[5, 6, 7, 8], [400, 3, 77, 150, 3, 9, 8, 21, 22, 23], [9, 9, 250, 11, 12, 13]]
STOP_TOKEN = 511


def build_model(world: World, *, tied: bool, data_parallel: str) -> CausalLM:
    with torch.device("meta"):
        decoder: TransformerDecoder = llama3(
            vocab_size=512,
            num_layers=2,
            num_heads=4,
            num_kv_heads=2,
            embed_dim=64,
            max_seq_len=CONTEXT,
            intermediate_dim=128,
        )
    if tied:
        del decoder.output
        decoder.output = TiedLinear(decoder.tok_embeddings)
    model = CausalLM(decoder)
    parallelize(
        model,
        world,
        data_parallel=data_parallel,
        activation_checkpointing="none",
        compile_layers=False,
        dtype=torch.float32,
    )
    load_weights(decoder, "random", device=world.device, dtype=torch.float32, seed=0)
    with torch.no_grad():
        for parameter in decoder.layers.parameters():
            parameter.mul_(8)  # as initialised, every prompt has the same answer
    return model


def run_step(model: CausalLM) -> None:
    tokens = torch.tensor([[1, 2, 3, 4]])
    model(tokens, torch.tensor([1, 2]), torch.tensor([3, 4])).backward()


def generate_own(model: CausalLM, world: World) -> list[list[int]]:
    """Generate for this rank's share; the second rank's one prompt leaves room for 4 tokens."""
    return generate(
        model,
        PROMPTS[world.rank :: world.size],
        max_new_tokens=8,
        stop_tokens=[STOP_TOKEN],
        pad_id=0,
        is_unfinished_anywhere=world.any,
    )


def generate_before_and_after_a_step(tied: bool, data_parallel: str) -> list[list[list[int]]]:
    """Sharded weights are at home at first; after backward they have just gone back there."""
    with open_world("cpu") as world:
        model = build_model(world, tied=tied, data_parallel=data_parallel)
        outputs = [generate_own(model, world)]
        run_step(model)
        outputs.append(generate_own(model, world))
        run_step(model)
        return outputs


@pytest.mark.parametrize("tied", [False, True])
def test_sharded_weights_are_gathered_for_generation(tied: bool) -> None:
    """FSDP gathers for forward only, unless another method is registered with it."""
    whole, shards = (
        run_ranks(2, generate_before_and_after_a_step, tied, mode)
        for mode in ("replicate", "shard")
    )
    assert shards == whole
    first, second = whole
    assert first[0] == first[1] and second[0] == second[1]
    answers = [tuple(answer) for answer in (*first[0], *second[0])]
    assert len(set(answers)) == 3 and {len(answer) for answer in answers} == {8, 4}
