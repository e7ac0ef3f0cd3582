"""The 8B config with everything it names in place: real tokenizer, real shapes, no weights read.

The checkpoint is a sparse file: its header holds the tensors of LLaMA-3-8B, its data is a hole.
"""

import custom_components.compat  # noqa: F401

import importlib.util
import json
import struct
from pathlib import Path

import pytest
import torch

from custom_components.components import instantiate
from custom_components.config import load_config
from custom_components.models.tokenizer_checks import check_token_ids
from custom_components.preflight import check_config
from custom_components.registry import config_path

CONFIG = {  # the published config.json, as far as it says what the model is
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def write_sparse_checkpoint(folder: Path) -> None:
    shapes = {
        "model.embed_tokens.weight": [128256, 4096],
        "model.norm.weight": [4096],
        "lm_head.weight": [128256, 4096],
    }
    for i in range(32):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": [4096, 4096],
            f"{layer}.self_attn.k_proj.weight": [1024, 4096],
            f"{layer}.self_attn.v_proj.weight": [1024, 4096],
            f"{layer}.self_attn.o_proj.weight": [4096, 4096],
            f"{layer}.mlp.gate_proj.weight": [14336, 4096],
            f"{layer}.mlp.up_proj.weight": [14336, 4096],
            f"{layer}.mlp.down_proj.weight": [4096, 14336],
            f"{layer}.input_layernorm.weight": [4096],
            f"{layer}.post_attention_layernorm.weight": [4096],
        }
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * torch.Size(shape).numel()
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    assert end == 2 * 8_030_261_248  # the published number of parameters
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(json.dumps(CONFIG))


@pytest.fixture(scope="module")
def overrides(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    spec = importlib.util.find_spec("llama_models")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llama-models, which holds LLaMA-3's tokenizer, is not installed")
    tokenizer = Path(spec.submodule_search_locations[0], "llama3", "tokenizer.model")
    folder = tmp_path_factory.mktemp("llama3")
    write_sparse_checkpoint(folder)
    return [
        f"checkpoint_dir={folder}", f"tokenizer.path={tokenizer}", f"output_dir={folder / 'runs'}",
        "wandb.mode=offline",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "num_gpus", "changes"),
    [
        ("llama3_8b_grammar", 4, []),
        ("llama3_8b_grammar", 4, ["dataset.max_seq_len=8192"]),
        ("llama3_8b_grammar", 4, ["model.apply_lora_to_mlp=true", "model.lora_rank=64"]),
        ("llama3_8b_grammar", 8, ["data_parallel=shard", "model.use_dora=true", "use_rslora=true"]),
        ("llama3_8b_grammar_qlora", 4, []),
        ("llama3_8b_grammar_qlora", 8, ["data_parallel=shard", "export_merged=true"]),
        ("llama3_8b_grammar_qlora_24gb", 1, []),
    ],
)
def test_with_gpus_and_files_there_is_nothing_to_complain_about(
    overrides: list[str],
    config: str,
    num_gpus: int,
    changes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    cfg = load_config(config_path(config), [*overrides, *changes])
    assert check_config("custom_lora", cfg, nproc_per_node=num_gpus) == []


def test_llama_3_1_is_one_builder_away_and_its_weights_are_told_apart(
    overrides: list[str],
) -> None:
    builder = "model._component_=torchtune.models.llama3_1.lora_llama3_1_8b"
    cfg = load_config(config_path("llama3_8b_grammar"), [*overrides, builder, "device=cpu"])
    problems = check_config("custom_lora", cfg, nproc_per_node=1)
    assert problems and all("checkpoint_dir" in problem for problem in problems)


def test_the_real_tokenizers_ids_fit_the_model_although_it_has_one_id_more(
    overrides: list[str],
) -> None:
    cfg = load_config(config_path("llama3_8b_grammar"), [*overrides, "dataset.max_rows=200"])
    tokenizer = instantiate(cfg.tokenizer)
    dataset = instantiate(cfg.dataset, tokenizer)
    with torch.device("meta"):
        decoder = instantiate(cfg.model)
    assert tokenizer.vocab_size > decoder.tok_embeddings.num_embeddings
    check_token_ids([tokenizer.pad_id, dataset.report.largest_id], decoder)
