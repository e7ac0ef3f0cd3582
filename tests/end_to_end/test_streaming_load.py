"""Loading a checkpoint of several shards: each rank gets its numbers, and needs little more.

The bound is the one of the 8B model in small: beyond what its mode stores, a rank may grow by the
largest tensor, here an embedding matrix of the size of nine layers. What it stores is compared with
torchtune's own conversion of the whole folder.
"""

import custom_components.compat  # noqa: F401

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from torchao.dtypes.nf4tensor import NF4Tensor, to_nf4
from torchtune.models.convert_weights import hf_to_tune
from torchtune.models.llama3 import lora_llama3
from torchtune.modules import TransformerDecoder

from custom_components.errors import UserError
from custom_components.models import weights
from custom_components.models.adapters import freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.nf4 import local_part
from custom_components.models.weights import base_parameters, load_weights
from custom_components.options import DataParallel
from custom_components.training.distributed import World, open_world
from custom_components.training.parallel import parallelize
from tests.ranks import run_ranks

VOCAB, LAYERS, HEADS, KV_HEADS, DIM, HIDDEN = 65_536, 4, 8, 2, 512, 2048
MIB = 2**20
LARGEST_BYTES = VOCAB * DIM * 2
SLACK_BYTES = 16 * MIB
"""Adapters, rotary cache, q and k while their rows are permuted, code loaded on first use."""

NF4_PARTS = ("quantized_data", "quantized_scalers", "quantization_factor", "scaler_mean")


@dataclass(frozen=True)
class Mode:
    """How a model is held."""

    num_ranks: int
    data_parallel: DataParallel
    nf4: bool = False

    def __str__(self) -> str:
        return f"{'nf4' if self.nf4 else 'bf16'}-{self.data_parallel}-{self.num_ranks}"


# --- the checkpoint --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A random Llama in bf16 as ``transformers`` saves it: 165 MB in several shards."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        hidden_size=DIM,
        intermediate_size=HIDDEN,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=False,
        dtype=torch.bfloat16,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).bfloat16()
    folder = tmp_path_factory.mktemp("llama")
    model.save_pretrained(folder, max_shard_size="20MB")
    assert len(list(folder.glob("*.safetensors"))) >= 4
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The whole folder by torchtune's own conversion."""
    return hf_to_tune(read_everything(checkpoint), HEADS, KV_HEADS, DIM)


@pytest.fixture(scope="module")
def expected_in_nf4(expected: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with torchao's NF4 of each whole matrix of the layers."""
    return {
        name: to_nf4(values) if name.startswith("layers.") and values.dim() == 2 else values
        for name, values in expected.items()
    }


def read_everything(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: values.clone()  # out of the mapped file
        for shard in folder.glob("*.safetensors")
        for name, values in load_file(shard).items()
    }


# --- memory and numbers ----------------------------------------------------------------------


def build_on_rank(world: World, mode: Mode) -> TransformerDecoder:
    """Return the model without memory, as the recipe builds it."""
    with torch.device("meta"):
        decoder = lora_llama3(
            ["q_proj", "v_proj"], vocab_size=VOCAB, num_layers=LAYERS, num_heads=HEADS,
            num_kv_heads=KV_HEADS, embed_dim=DIM, intermediate_dim=HIDDEN, max_seq_len=128,
            lora_rank=4, lora_alpha=8, quantize_base=mode.nf4,
        )  # fmt: skip
    freeze_base(decoder)
    parallelize(
        CausalLM(decoder), world, data_parallel=mode.data_parallel, compile_layers=False,
        activation_checkpointing="none", dtype=torch.bfloat16,
    )  # fmt: skip
    return decoder


def load_on_rank(folder: Path, mode: Mode, *, out: Path | None, read_all_first: bool) -> int:
    """Return the bytes by which this process grew at its peak; save what it stores into ``out``."""
    with open_world("cpu") as world:
        decoder = build_on_rank(world, mode)
        before = read_status_bytes("VmRSS")
        read = weights.read_folder_tensor
        if read_all_first:
            everything = read_everything(folder)
            read = lambda _, name: everything[name]  # noqa: E731
        with patch.object(weights, "read_folder_tensor", read):
            load_weights(decoder, str(folder), device=world.device, dtype=torch.bfloat16, seed=0)
        growth = read_status_bytes("VmHWM") - before
        if out is not None:
            own = {n: local_part(p.detach()) for n, p in base_parameters(decoder).items()}
            torch.save(split_nf4(own), out / f"{world.rank}.pt")
    return growth


def read_status_bytes(field: str) -> int:
    """``VmHWM``, the peak, is this process's own: a fork starts it anew."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def split_nf4(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the plain tensors that these consist of."""
    parts = {}
    for name, values in tensors.items():
        if isinstance(values, NF4Tensor):
            parts |= {f"{name} {part}": getattr(values, part) for part in NF4_PARTS}
        else:
            parts[name] = values
    return parts


def bound_bytes(stored: dict[str, torch.Tensor], mode: Mode) -> int:
    num_parts = mode.num_ranks if mode.data_parallel == "shard" else 1
    return sum(t.nbytes for t in stored.values()) // num_parts + LARGEST_BYTES + SLACK_BYTES


@pytest.fixture
def stored(mode: Mode, request: pytest.FixtureRequest) -> dict[str, torch.Tensor]:
    """What all ranks together hold, or each of them."""
    return split_nf4(request.getfixturevalue("expected_in_nf4" if mode.nf4 else "expected"))


@pytest.mark.parametrize(
    "mode",
    [
        Mode(1, "replicate"),
        Mode(2, "replicate"),
        Mode(2, "shard"),
        Mode(4, "shard"),
        Mode(1, "replicate", nf4=True),
        Mode(2, "shard", nf4=True),
    ],
    ids=str,
)
def test_ranks_hold_the_files_numbers_and_grow_by_what_they_store_and_one_tensor(
    checkpoint: Path, mode: Mode, stored: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    load = partial(load_on_rank, out=tmp_path, read_all_first=False)
    growths = run_ranks(mode.num_ranks, load, checkpoint, mode)
    by_rank = [torch.load(tmp_path / f"{rank}.pt") for rank in range(mode.num_ranks)]
    shutil.rmtree(tmp_path)
    assert all(parts.keys() == stored.keys() for parts in by_rank)
    for name, values in stored.items():
        held = [parts[name] for parts in by_rank]
        if mode.data_parallel == "shard" and values.dim():
            held = [torch.cat(held)]
        assert all(torch.equal(part, values) for part in held), name
    assert max(growths) <= bound_bytes(stored, mode)


@pytest.mark.parametrize(
    "mode", [Mode(1, "replicate"), Mode(4, "shard"), Mode(1, "replicate", nf4=True)], ids=str
)
def test_a_loader_that_reads_the_whole_folder_first_breaks_the_bound(
    checkpoint: Path, mode: Mode, stored: dict[str, torch.Tensor]
) -> None:
    """As torchtune's checkpointer does, on every rank."""
    load = partial(load_on_rank, out=None, read_all_first=True)
    growths = run_ranks(mode.num_ranks, load, checkpoint, mode)
    assert min(growths) > bound_bytes(stored, mode)


# --- damaged folders -------------------------------------------------------------------------


def lose_a_shard(folder: Path) -> str:
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.unlink()
    return f"1 of them are not on disk: {shard.name}"


def store_a_tensor_twice(folder: Path) -> str:
    edit_smallest_shard(folder, "model.embed_tokens.weight")
    return "tensor model.embed_tokens.weight is in two files"


def store_a_tensor_too_many(folder: Path) -> str:
    edit_smallest_shard(folder, "model.layers.1.mlp.up_proj.bias")
    return "tensors that the model has no place for: model.layers.1.mlp.up_proj.bias"


def edit_smallest_shard(folder: Path, extra_name: str) -> None:
    shard = min(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    tensors = load_file(shard) | {extra_name: torch.zeros(8)}
    shard.unlink()  # the name, not the file: its link in the good folder stays
    save_file(tensors, shard, metadata={"format": "pt"})


def refuse_on_rank(folder: Path) -> str:
    """Return the message of the UserError, having seen that nothing was allocated."""
    with open_world("cpu") as world:
        decoder = build_on_rank(world, Mode(2, "shard"))
        with pytest.raises(UserError) as error:
            load_weights(decoder, str(folder), device=world.device, dtype=torch.bfloat16, seed=0)
        assert all(parameter.is_meta for parameter in decoder.parameters())
    return str(error.value)


@pytest.mark.parametrize("damage", [lose_a_shard, store_a_tensor_twice, store_a_tensor_too_many])
def test_every_rank_refuses_a_damaged_folder_by_name_before_it_allocates(
    checkpoint: Path, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    """Where torchtune loads what is there, and no rank waits for another."""
    folder = tmp_path / "damaged"
    shutil.copytree(checkpoint, folder, copy_function=os.link)
    words = damage(folder)
    messages = run_ranks(2, refuse_on_rank, folder)
    assert all(words in message for message in messages)
