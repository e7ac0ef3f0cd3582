"""Compilation: once for all layers, whatever the lengths of the batches."""

import custom_components.compat  # noqa: F401

import torch
from torch._dynamo.utils import counters

from custom_components.models.adapters import freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from custom_components.training.distributed import World
from custom_components.training.parallel import parallelize
from tests.compiler import needs_compiler


@needs_compiler
def test_all_layers_and_lengths_share_one_compiled_graph() -> None:
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"])
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    freeze_base(decoder)
    model = CausalLM(decoder)
    parallelize(
        model, World(0, 1, 0, torch.device("cpu")), data_parallel="replicate",
        activation_checkpointing="none", compile_layers=True, dtype=torch.float32,
    )  # fmt: skip
    torch._dynamo.reset()
    counters.clear()
    for rows, length in ((2, 12), (3, 17), (4, 9)):
        tokens, ids = torch.zeros(rows, length, dtype=torch.int64), torch.tensor([3, 5])
        model(tokens, ids, ids).backward()
    assert len(decoder.layers) > 1
    assert counters["stats"]["unique_graphs"] == 1
