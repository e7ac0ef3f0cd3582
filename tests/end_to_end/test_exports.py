"""What a run leaves is what it trained: adapter and merged model, from whole and sharded runs."""

import custom_components.compat  # noqa: F401

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from custom_components.models import merge
from custom_components.models.adapters import load_adapter
from tests.lora_runs import run_loras, write_pairs
from tests.ranks import find_free_port, run_ranks
from tests.unit.models.lora_decoders import build

TOKENS = torch.randint(512, (2, 24), generator=torch.Generator().manual_seed(0))
ADAPTED = {"lora_attn_modules": ["q_proj", "k_proj", "v_proj"], "apply_lora_to_mlp": True}
COMMON = [
    "model.lora_attn_modules=[q_proj,k_proj,v_proj]", "batch_size=3", "epochs=null", "max_steps=4",
    "optimizer.lr=0.02", "lr_scheduler.num_warmup_steps=0", "export_merged=true",
]  # fmt: skip
RUNS = {
    "lora": ([], {}),
    "sharded dora": (["data_parallel=shard", "model.use_dora=true"], {"use_dora": True}),
    "sharded qlora, rslora": (
        ["data_parallel=shard", "model.quantize_base=true", "use_rslora=true"],
        {"quantize_base": True, "use_rslora": True},
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks train each method on a base in several shards, as ``transformers`` writes it."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        hidden_size=64, intermediate_size=128, max_position_embeddings=2048, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=False,
    )  # fmt: skip
    base = transformers.LlamaForCausalLM(config)
    base.save_pretrained(folder / "base", max_shard_size=100_000)
    source = write_pairs(folder / "pairs.jsonl", 6)
    common = [*COMMON, f"dataset.source={source}", f"checkpoint_dir={folder / 'base'}"]
    chosen = {name: [*common, *overrides] for name, (overrides, _) in RUNS.items()}
    run_ranks(2, run_loras, str(folder), chosen, [find_free_port() for _ in chosen])
    return folder


@torch.no_grad()
def logits_of_ours(runs: Path, name: str) -> torch.Tensor:
    """Base and trained adapter in this pack's own model, on one rank, unmerged."""
    decoder = build(checkpoint_dir=runs / "base", **ADAPTED, **RUNS[name][1])
    before: torch.Tensor = decoder(TOKENS)
    load_adapter(decoder, runs / name / "export" / "adapter")
    after: torch.Tensor = decoder(TOKENS)
    assert (after - before).abs().max() > 0.05  # it learned something
    return after


@torch.no_grad()
def logits_of_transformers(model: Path, adapter: Path | None = None) -> torch.Tensor:
    import transformers

    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    if adapter is not None:
        peft = pytest.importorskip("peft", reason="the peers extra is not installed")
        loaded = peft.PeftModel.from_pretrained(loaded, str(adapter))
    logits: torch.Tensor = loaded.eval()(TOKENS).logits
    return logits


@pytest.mark.parametrize("name", RUNS)
def test_transformers_gives_our_logits_with_the_merged_model(runs: Path, name: str) -> None:
    merged = logits_of_transformers(runs / name / "export" / "merged")
    torch.testing.assert_close(merged, logits_of_ours(runs, name), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["lora", "sharded dora"])
def test_peft_gives_our_logits_with_the_adapter(runs: Path, name: str) -> None:
    found = logits_of_transformers(runs / "base", runs / name / "export" / "adapter")
    torch.testing.assert_close(found, logits_of_ours(runs, name), atol=1e-4, rtol=0)


def test_a_qlora_adapter_belongs_to_the_dequantised_base_and_says_so(runs: Path) -> None:
    adapter = runs / "sharded qlora, rslora" / "export" / "adapter"
    card = (adapter / "README.md").read_text()
    assert "belongs to the weights that NF4 gives back" in card
    plain = logits_of_transformers(runs / "base", adapter)
    distance = (plain - logits_of_ours(runs, "sharded qlora, rslora")).abs().max()
    assert distance > 1e-3  # not the model that was trained


@pytest.mark.parametrize("name", RUNS)
def test_merging_later_gives_the_same_model(runs: Path, name: str) -> None:
    """What ``make export`` runs."""
    export = runs / name / "export"
    then = load_file(export / "merged" / "model.safetensors")
    (export / "merged").rename(export / "then")
    assert merge.main([str(export / "adapter")]) == 0
    now = load_file(export / "merged" / "model.safetensors")
    assert then.keys() == now.keys()
    assert all(torch.equal(then[key], now[key]) for key in then)
