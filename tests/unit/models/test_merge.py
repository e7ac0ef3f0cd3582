"""Merged exports against ``transformers``, and the same adapters in ``peft``."""

import custom_components.compat  # noqa: F401

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from torchao.dtypes.nf4tensor import to_nf4
from torchtune.models.convert_weights import tune_to_hf
from torchtune.models.llama3_1 import lora_llama3_1

from custom_components.config import load_config
from custom_components.errors import UserError
from custom_components.models import merge
from custom_components.models.adapters import adapter_parameters, save_adapter
from custom_components.models.byte_tokenizer import byte_tokenizer
from custom_components.models.merge import check_room, merge_adapter
from custom_components.models.nf4 import is_nf4
from custom_components.models.safetensors_folder import read_folder, read_tensor
from custom_components.models.smollm2 import lora_smollm2_135m
from custom_components.models.smollm2_tokenizer import smollm2_tokenizer
from custom_components.models.weights import base_parameters, load_weights
from tests.lora_runs import ON_CPU, ROOT
from tests.unit.models.lora_decoders import ALL, METHODS, build, build_on_meta, train

CPU = torch.device("cpu")

TOKENS = torch.randint(512, (2, 24), generator=torch.Generator().manual_seed(0))
WITH_OUTPUT = ALL | {"apply_lora_to_output": True}
SMALL_SHARDS = 100_000


@pytest.fixture(scope="module")
def base_folder(tiny_reference, tmp_path_factory):
    """The random untied reference, in several shards."""
    folder = tmp_path_factory.mktemp("base")
    tiny_reference.save_pretrained(folder, max_shard_size=SMALL_SHARDS)
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def export(decoder, folder, **changes):
    """Merge the decoder's own adapter."""
    arguments = {
        "checkpoint_dir": "random",
        "device": CPU,
        "dtype": torch.float32,
        "seed": 0,
        "tokenizer": byte_tokenizer(),
    }
    merge_adapter(decoder, adapter_parameters(decoder), folder, **arguments | changes)
    return Path(folder)


def load_in_transformers(folder, **arguments):
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, **{"dtype": torch.float32} | arguments
    )
    assert not any(report.values()), report
    return model.eval()


@torch.no_grad()
def distance(model, other, tokens=TOKENS):
    logits = [m(tokens) for m in (model, other)]
    left, right = (getattr(found, "logits", found) for found in logits)
    return float((left - right).abs().max())


def in_hf_layout(decoder, tensors):
    return tune_to_hf(
        tensors,
        num_heads=decoder.num_heads,
        num_kv_heads=decoder.layers[0].attn.num_kv_heads,
        dim=decoder.tok_embeddings.embedding_dim,
    )


def dequantised(reference, decoder):
    """The reference with the base weights that the decoder computes with."""
    weights = {
        name: p.detach().get_original_weight() if is_nf4(p) else p.detach()
        for name, p in base_parameters(decoder).items()
    }
    model = copy.deepcopy(reference)
    model.load_state_dict(in_hf_layout(decoder, weights))
    return model


@pytest.mark.parametrize("method", METHODS)
def test_merged_model_and_peft_give_our_logits(method, base_folder, tiny_reference, tmp_path):
    peft = pytest.importorskip("peft", reason="the peers extra is not installed")
    arguments = WITH_OUTPUT | METHODS[method]
    decoder = train(build(checkpoint_dir=base_folder, **arguments), std=0.2)
    save_adapter(decoder, tmp_path / "adapter", base_model="x")
    folder = tmp_path / "merged"
    merge_adapter(
        build_on_meta(**arguments),
        adapter_parameters(decoder),
        folder,
        checkpoint_dir=str(base_folder),
        device=CPU,
        dtype=torch.float32,
        seed=0,
        tokenizer=byte_tokenizer(),
        max_shard_bytes=SMALL_SHARDS,
    )
    merged = load_in_transformers(folder)
    plain = dequantised(tiny_reference, decoder)
    assert distance(decoder, plain) > 0.1  # the adapter does something
    assert distance(decoder, merged) < 1e-4
    assert distance(decoder, peft.PeftModel.from_pretrained(plain, tmp_path / "adapter")) < 1e-4
    assert method in (folder / "README.md").read_text()


def test_qlora_is_merged_into_the_dequantised_base_only(base_folder, tiny_reference, tmp_path):
    """Merged into the published weights the model would be another one."""
    quantised = train(build(checkpoint_dir=base_folder, quantize_base=True, **ALL), std=0.2)
    plain = train(build(checkpoint_dir=base_folder, **ALL), std=0.2)
    folder = export(plain, tmp_path / "merged", checkpoint_dir=str(base_folder))
    assert distance(quantised, load_in_transformers(folder)) > 1e-2


def test_smollm2_from_gguf_becomes_a_complete_folder(gguf_path, tmp_path):
    """Tied; tokenizer and configs are built from ours."""
    transformers = pytest.importorskip("transformers", reason="the peers extra is not installed")
    decoder = train(build(lora_smollm2_135m, gguf_path, **ALL), std=0.02)
    tokenizer = smollm2_tokenizer(str(gguf_path))
    folder = export(
        decoder, tmp_path / "merged", checkpoint_dir=str(gguf_path), tokenizer=tokenizer
    )
    ids = torch.tensor([tokenizer.encode("She go to the market yesterday.")])
    assert distance(decoder, load_in_transformers(folder), ids) < 1e-4
    assert "lm_head.weight" not in read_folder(folder).shapes
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs("She go to the market  1 2.")["input_ids"] == tokenizer.encode(
        "She go to the market  1 2."
    )
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 2)
    generation = transformers.GenerationConfig.from_pretrained(folder)
    assert generation.eos_token_id == [2, 0]


def test_scaled_rotary_frequencies_are_written(tmp_path):
    """LLaMA 3.1's: without them the logits drift with the position."""

    def llama3_1(**arguments):
        return lora_llama3_1(
            vocab_size=512, num_layers=1, num_heads=4, num_kv_heads=2, embed_dim=64,
            max_seq_len=16_384, intermediate_dim=128, **arguments,
        )  # fmt: skip

    decoder = train(build(llama3_1, lora_attn_modules=["q_proj"], lora_rank=2, lora_alpha=4))
    model = load_in_transformers(export(decoder, tmp_path / "merged"))
    tokens = TOKENS.repeat(1, 20)
    assert distance(decoder, model, tokens) < 1e-4
    config = model.config
    assert config.rope_parameters["rope_type"] == "llama3"
    assert config.max_position_embeddings == 16_384 and config.eos_token_id == 257


def test_merged_weights_are_rounded_once(base_folder, tiny_reference, tmp_path):
    decoder = train(build(checkpoint_dir=base_folder, **ALL), std=0.2)
    folder = export(decoder, tmp_path / "m", checkpoint_dir=str(base_folder), dtype=torch.bfloat16)
    module = decoder.layers[1].mlp.w1
    base = tiny_reference.model.layers[1].mlp.gate_proj.weight.bfloat16().double()
    product = module.lora_b.weight.double() @ module.lora_a.weight.double()
    expected = (base + 10 / 4 * product).detach()
    found = read_tensor(read_folder(folder), "model.layers.1.mlp.gate_proj.weight")
    assert found.dtype == torch.bfloat16
    # Half a step of bfloat16, which has 8 bits; rounded on the way too, some would be further.
    assert ((found.double() - expected).abs() <= expected.abs() * 2**-8 + 1e-8).all()
    model = load_in_transformers(folder, dtype="auto")
    assert model.dtype == torch.bfloat16


def test_an_untrained_dora_adapter_changes_nothing_in_bf16(base_folder, tiny_reference, tmp_path):
    """The module divides the norms it began with by norms rounded alike."""
    arguments = ALL | {"use_dora": True}
    decoder = build_on_meta(**arguments)
    load_weights(decoder, str(base_folder), device=CPU, dtype=torch.bfloat16, seed=0)
    folder = export(decoder, tmp_path / "m", checkpoint_dir=str(base_folder), dtype=torch.bfloat16)
    for name in ("self_attn.q_proj", "mlp.gate_proj", "mlp.down_proj"):
        key = f"model.layers.1.{name}.weight"
        found = read_tensor(read_folder(folder), key)
        assert torch.equal(found, tiny_reference.get_parameter(key).bfloat16())


def test_nf4_is_computed_in_the_runs_dtype(base_folder, tiny_reference, tmp_path):
    """What a bf16 run trained on is NF4 of the bf16 matrix, not of the checkpoint's fp32 one."""
    decoder = build_on_meta(**ALL, quantize_base=True)
    adapter = {name: torch.zeros(p.shape) for name, p in adapter_parameters(decoder).items()}
    folder = tmp_path / "m"
    merge_adapter(
        decoder, adapter, folder, checkpoint_dir=str(base_folder), device=CPU,
        dtype=torch.bfloat16, seed=0, tokenizer=byte_tokenizer(),
    )  # fmt: skip
    base = tiny_reference.model.layers[1].mlp.gate_proj.weight.detach()
    expected = to_nf4(base.bfloat16(), 64, 8).get_original_weight()
    found = read_tensor(read_folder(folder), "model.layers.1.mlp.gate_proj.weight")
    assert torch.equal(found, expected)
    assert not torch.equal(found, to_nf4(base, 64, 8).get_original_weight().bfloat16())


def test_the_base_folders_own_files_come_along(base_folder, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    for path in base_folder.iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    config = json.loads((base / "config.json").read_text()) | {"dtype": "float16", "extra": [1]}
    (base / "config.json").write_text(json.dumps(config))
    (base / "generation_config.json").write_text('{"temperature": 0.5}')
    (base / "tokenizer_config.json").write_text("{}")
    (base / "chat_template.jinja").write_text("{{ x }}")
    (base / "notes.txt").write_text("private")
    decoder = build(checkpoint_dir=base, lora_attn_modules=["q_proj"])
    folder = export(decoder, tmp_path / "merged", checkpoint_dir=str(base), dtype=torch.bfloat16)
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer_config.json",
    ]
    assert json.loads((folder / "config.json").read_text()) == config | {"dtype": "bfloat16"}
    assert (folder / "generation_config.json").read_text() == '{"temperature": 0.5}'


# ---- Complete or absent, and cheap ---------------------------------------------------------------
def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    decoder = build(lora_attn_modules=["q_proj"])
    monkeypatch.setattr(merge, "write_model_files", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(decoder, tmp_path / "merged")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_says_how_to_go_on(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge, "write_weights", fail)
    with pytest.raises(UserError, match=r"No space left.*the adapter is complete.*make export"):
        export(build(**ALL), tmp_path / "merged")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="exists already"):
        export(build(lora_attn_modules=["q_proj"]), tmp_path)


def test_a_full_disk_is_found_before_anything_is_written(tmp_path, monkeypatch):
    decoder = build_on_meta(lora_attn_modules=["q_proj"])
    num_bytes = 2 * sum(p.numel() for p in base_parameters(decoder).values())
    for num_free, num_problems in ((num_bytes, 0), (num_bytes - 1, 1)):
        usage = SimpleNamespace(free=num_free)
        monkeypatch.setattr("shutil.disk_usage", lambda _, usage=usage: usage)
        problems = check_room(decoder, tmp_path / "a" / "b", dtype=torch.bfloat16)
        assert len(problems) == num_problems
    assert "make room" in problems[0] and str(tmp_path) in problems[0]
    assert list(tmp_path.iterdir()) == []


class LiveBytes(TorchDispatchMode):
    """Counts the memory that operators return, as long as it lives; not that of ``known``."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.live = WeakIdKeyDictionary()
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for tensor in tree_leaves(result):
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
                continue
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.known:
                self.live[storage] = storage.nbytes()
        self.peak = max(self.peak, sum(self.live.values()))
        return result


@pytest.mark.parametrize("method", ["LoRA", "DoRA"])
def test_merging_holds_a_few_copies_of_one_tensor(method, base_folder, tmp_path):
    decoder = build_on_meta(**WITH_OUTPUT, **METHODS[method])
    adapter = {n: torch.ones(p.shape) for n, p in adapter_parameters(decoder).items()}
    with LiveBytes(adapter.values()) as memory:
        merge_adapter(
            decoder,
            adapter,
            tmp_path / "merged",
            checkpoint_dir=str(base_folder),
            device=CPU,
            dtype=torch.float32,
            seed=0,
            tokenizer=byte_tokenizer(),
        )
    sizes = [4 * p.numel() for p in base_parameters(decoder).values()]
    assert memory.peak < 2.5 * max(sizes) < sum(sizes) / 1.5


# ---- Command line --------------------------------------------------------------------------------
def write_run(folder, *overrides, **arguments):
    """What a run on the tiny model leaves; returns its decoder and its adapter's folder."""
    model = {f"model.{key}": value for key, value in (ALL | arguments).items()}
    if "use_rslora" in arguments:  # the recipe's own
        model["use_rslora"] = model.pop("model.use_rslora")
    settings = [f"{key}={json.dumps(value)}" for key, value in model.items()]
    cfg = load_config(ROOT / "configs" / "llama3_8b_grammar.yaml", [*ON_CPU, *settings, *overrides])
    folder.mkdir()
    OmegaConf.save(cfg, folder / "config.yaml")
    decoder = train(build(**ALL, **arguments))
    save_adapter(decoder, folder / "export" / "adapter", base_model="random")
    return decoder, folder / "export" / "adapter"


def test_command_line_merges_a_runs_adapter(tmp_path, capsys):
    decoder, adapter = write_run(
        tmp_path / "run", use_dora=True, quantize_base=True, use_rslora=True
    )
    assert merge.main([str(adapter)]) == 0
    folder = tmp_path / "run" / "export" / "merged"
    assert f"merged model: {folder} (1 MB" in capsys.readouterr().out
    assert distance(decoder, load_in_transformers(folder)) < 1e-4


def test_command_line_takes_overrides(tmp_path, base_folder):
    _, adapter = write_run(tmp_path / "run", "checkpoint_dir=/gone")
    assert merge.main([str(adapter), f"checkpoint_dir={base_folder}"]) == 0
    ours = train(build(checkpoint_dir=base_folder, **ALL))
    merged = load_in_transformers(adapter.with_name("merged"))
    assert distance(ours, merged) < 1e-4


def test_mistakes_on_the_command_line_are_one_message(tmp_path, capsys):
    decoder, adapter = write_run(tmp_path / "run")
    for words, message in (
        (["/"], "is not a run's adapter"),
        ([str(tmp_path)], "is not a run's adapter"),
        ([str(adapter), "model.lora_rank=8"], "r is 4 and the config's model.lora_rank is 8"),
        ([str(adapter), "checkpoint_dir=/gone"], "checkpoint_dir: folder /gone does not exist"),
        ([str(adapter), "checkpoint"], "is not of the form key=value"),
    ):
        assert merge.main(words) == 2, words
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error
    assert not adapter.with_name("merged").exists()
    export(decoder, adapter.with_name("merged"))
    assert merge.main([str(adapter)]) == 2
    assert "merged exists already" in capsys.readouterr().err


def test_without_an_adapter_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as error:
        merge.main([])
    assert error.value.code == 2
    message = capsys.readouterr().err
    assert "usage: python -m custom_components.models.merge" in message
    assert message.endswith("required: ADAPTER\n")
