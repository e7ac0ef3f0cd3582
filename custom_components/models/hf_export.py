"""What a Hugging Face model folder holds beside its weights: configs, tokenizer, card.

``write_model_files`` copies them where the base model is such a folder itself. For a GGUF file or
random weights it builds them from the decoder and the tokenizer. ``stage_folder`` makes a folder
appear whole or not at all.
"""

import custom_components.compat  # noqa: F401

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torchtune.modules import TransformerDecoder

from custom_components.models.model_facts import facts_of_decoder
from custom_components.models.safetensors_folder import read_json
from custom_components.models.sources import RANDOM, find_source
from custom_components.observability.console import get_logger

_CONFIG = "config.json"
_GENERATION_CONFIG = "generation_config.json"
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)


@contextmanager
def stage_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that becomes ``folder`` if the block ends without an error.

    Args:
        folder: Must not exist; folders above it are created.

    Yields:
        ``<folder>.partial``; what an earlier, killed attempt left there is removed.
    """
    staging = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        yield staging
        for path in (*staging.iterdir(), staging):
            _flush(path)
        staging.rename(folder)
        _flush(folder.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_model_files(
    folder: Path,
    decoder: TransformerDecoder,
    *,
    checkpoint_dir: str,
    dtype: torch.dtype,
    tokenizer: Any,
) -> None:
    """Write everything but weights and card.

    Args:
        folder: Exists.
        decoder: The model, on any device.
        checkpoint_dir: The base model, as in a config.
        dtype: Of the weights.
        tokenizer: The run's. Its files are written if the base has none and it has a
            ``save_pretrained`` as in ``transformers``.
    """
    copied = _copy_base_files(checkpoint_dir, folder)
    if _CONFIG in copied:
        config = read_json(folder / _CONFIG)
    else:
        config = _build_config(decoder, tokenizer)
    if not copied.intersection((_CONFIG, _GENERATION_CONFIG)):
        _write_json(folder / _GENERATION_CONFIG, _build_generation_config(tokenizer))
    dtype_key = "torch_dtype" if "torch_dtype" in config else "dtype"  # transformers 4, 5
    config[dtype_key] = str(dtype).removeprefix("torch.")
    # A base may store tied weights twice, or be silent: the weights written here decide.
    config["tie_word_embeddings"] = "output.weight" not in dict(decoder.named_parameters())
    _write_json(folder / _CONFIG, config)
    if copied.intersection(_TOKENIZER_FILES):
        return
    if hasattr(tokenizer, "save_pretrained"):
        tokenizer.save_pretrained(folder)
    else:
        get_logger().info(
            "%s: no tokenizer files, as the base model has none: copy them from where it came from",
            folder.with_suffix(""),
        )


def _copy_base_files(checkpoint_dir: str, folder: Path) -> set[str]:
    """Copy what the base model's folder, if it is one, has of these files; return their names."""
    if checkpoint_dir == RANDOM:
        return set()
    base = find_source("checkpoint_dir", checkpoint_dir)
    names = {
        name for name in (_CONFIG, _GENERATION_CONFIG, *_TOKENIZER_FILES) if (base / name).is_file()
    }
    for name in names:
        shutil.copyfile(base / name, folder / name)
    return names


def _build_config(decoder: TransformerDecoder, tokenizer: Any) -> dict[str, Any]:
    """Build ``config.json`` with the names of transformers 4, which 5 reads too."""
    facts = facts_of_decoder(decoder)
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": tokenizer.eos_id,
        "head_dim": decoder.head_dim,
        "hidden_act": "silu",
        "hidden_size": decoder.tok_embeddings.embedding_dim,
        "intermediate_size": decoder.layers[0].mlp.w1.weight.shape[0],
        "max_position_embeddings": decoder.max_seq_len,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": facts.num_heads,
        "num_hidden_layers": len(decoder.layers),
        "num_key_value_heads": facts.num_kv_heads,
        "pad_token_id": tokenizer.pad_id,
        "rms_norm_eps": facts.norm_eps,
        "rope_scaling": _build_rope_scaling(decoder) if facts.rope_scaling else None,
        "rope_theta": facts.rope_base,
        "torch_dtype": None,
        "use_cache": True,
        "vocab_size": decoder.tok_embeddings.num_embeddings,
    }


def _build_rope_scaling(decoder: TransformerDecoder) -> dict[str, Any]:
    rope = decoder.layers[0].attn.pos_embeddings
    return {
        "rope_type": "llama3",
        "factor": float(rope.scale_factor),
        "low_freq_factor": float(rope.low_freq_factor),
        "high_freq_factor": float(rope.high_freq_factor),
        "original_max_position_embeddings": rope.old_context_len,
    }


def _build_generation_config(tokenizer: Any) -> dict[str, Any]:
    return {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": list(dict.fromkeys([tokenizer.eos_id, *tokenizer.stop_tokens])),
        "pad_token_id": tokenizer.pad_id,
    }


def _write_json(path: Path, contents: dict[str, Any]) -> None:
    path.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
