"""Model folders beside their weights; ``test_merge.py`` loads whole ones in ``transformers``."""

import custom_components.compat  # noqa: F401

import json
from types import SimpleNamespace

import pytest
import torch

from custom_components.models.byte_tokenizer import byte_tokenizer
from custom_components.models.hf_export import stage_folder, write_model_files
from custom_components.models.smollm2 import smollm2_135m
from custom_components.models.tiny import tiny_lora_llama3_8b
from tests.unit.models.lora_decoders import build_on_meta


def write(folder, decoder=None, **changes):
    folder.mkdir(exist_ok=True)
    arguments = {
        "checkpoint_dir": "random",
        "dtype": torch.bfloat16,
        "tokenizer": byte_tokenizer(),
    }
    decoder = decoder or build_on_meta(lora_attn_modules=["q_proj"])
    write_model_files(folder, decoder, **arguments | changes)
    return json.loads((folder / "config.json").read_text())


def write_base(folder, **files):
    folder.mkdir()
    for name, contents in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    return str(folder)


# ---- Staging -------------------------------------------------------------------------------------
def test_a_folder_appears_when_it_is_complete(tmp_path):
    folder = tmp_path / "runs" / "export" / "merged"
    with stage_folder(folder) as staging:
        (staging / "x").write_text("1")
        assert not folder.exists()
    assert (folder / "x").read_text() == "1"
    assert [path.name for path in folder.parent.iterdir()] == ["merged"]


def test_a_failure_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt), stage_folder(tmp_path / "merged") as staging:
        (staging / "x").write_text("1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_remains_of_a_killed_attempt_are_removed(tmp_path):
    (tmp_path / "merged.partial").mkdir()
    (tmp_path / "merged.partial" / "old").write_text("half")
    with stage_folder(tmp_path / "merged") as staging:
        (staging / "new").write_text("whole")
    assert [path.name for path in (tmp_path / "merged").iterdir()] == ["new"]


# ---- Built ---------------------------------------------------------------------------------------
def test_without_a_base_folder_the_config_describes_the_decoder(tmp_path):
    config = write(tmp_path)
    expected = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 258,
    }
    assert expected.items() <= config.items()
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 256, "eos_token_id": [257, 261], "pad_token_id": 258}
    assert len(list(tmp_path.iterdir())) == 2  # the byte tokenizer has no files


def test_quantised_matrices_have_the_sizes_of_plain_ones(tmp_path):
    arguments = {"lora_attn_modules": ["q_proj"], "apply_lora_to_mlp": True}
    quantised = build_on_meta(tiny_lora_llama3_8b, quantize_base=True, **arguments)
    assert write(tmp_path / "quantised", quantised) == write(tmp_path / "plain")


def test_tied_embeddings_are_said(tmp_path):
    assert write(tmp_path, build_on_meta(smollm2_135m))["tie_word_embeddings"] is True


# ---- Copied --------------------------------------------------------------------------------------
def test_a_base_folders_config_keeps_all_but_dtype_and_tying(tmp_path):
    """A base may store tied weights twice; ours are written once."""
    config = {"torch_dtype": "float32", "tie_word_embeddings": True, "rope_theta": 7, "x": [1]}
    base = write_base(tmp_path / "base", config__json=config)
    changed = {"torch_dtype": "bfloat16", "tie_word_embeddings": False}
    assert write(tmp_path / "merged", checkpoint_dir=base) == config | changed
    assert not (tmp_path / "merged" / "generation_config.json").exists()
    base = write_base(tmp_path / "newer", config__json={"dtype": "float32"})
    assert write(tmp_path / "merged", checkpoint_dir=base)["dtype"] == "bfloat16"


def test_the_base_folders_tokenizer_wins_over_the_runs(tmp_path):
    saved = SimpleNamespace(save_pretrained=lambda folder: (folder / "ours").write_text("1"))
    base = write_base(tmp_path / "base", config__json={}, tokenizer__json="theirs")
    write(tmp_path / "merged", checkpoint_dir=base, tokenizer=saved)
    assert (tmp_path / "merged" / "tokenizer.json").read_text() == "theirs"
    assert not (tmp_path / "merged" / "ours").exists()
    bare = write_base(tmp_path / "bare", config__json={})
    write(tmp_path / "other", checkpoint_dir=bare, tokenizer=saved)
    assert (tmp_path / "other" / "ours").exists()
