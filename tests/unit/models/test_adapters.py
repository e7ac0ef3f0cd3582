import custom_components.compat  # noqa: F401

import copy
import json
import warnings

import pytest
import torch
from safetensors.torch import load_file

from custom_components.errors import UserError
from custom_components.models.adapters import (
    adapter_parameters,
    check_adapter,
    freeze_base,
    load_adapter,
    read_adapter,
    save_adapter,
)
from custom_components.models.smollm2 import lora_smollm2_135m
from custom_components.models.tiny import tiny_llama3_8b
from tests.unit.models.lora_decoders import ALL, METHODS, TARGETS, build, build_on_meta, train

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@torch.no_grad()
def check_against_peft(decoder, model, folder, token_ids, tolerance):
    """Load the exported adapter with ``peft`` and compare logits; leave ``model`` as it was."""
    peft = pytest.importorskip("peft", reason="the peers extra is not installed")
    tokens = torch.tensor([token_ids])
    without = model(tokens).logits
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapted = peft.PeftModel.from_pretrained(model, folder).eval()
    try:
        theirs = adapted(tokens).logits
        result = adapted.load_adapter(folder, adapter_name="again")
    finally:
        adapted.unload()
    assert [str(w.message) for w in caught if "adapter keys" in str(w.message)] == []
    assert [k for k in result.missing_keys if "lora" in k] == []
    assert result.unexpected_keys == []
    assert (theirs - without).abs().max() > 100 * tolerance  # the adapter does something
    assert (decoder(tokens) - theirs).abs().max() < tolerance


def test_export_gives_our_logits_in_peft_on_smollm2(
    reference_model, reference_tokenizer, gguf_path, tmp_path
):
    decoder = train(build(lora_smollm2_135m, gguf_path, **ALL), std=0.02)
    save_adapter(decoder, tmp_path, base_model="HuggingFaceTB/SmolLM2-135M-Instruct")
    ids = reference_tokenizer("She go to the market yesterday and buy three apple.")["input_ids"]
    check_against_peft(decoder, reference_model, tmp_path, ids, tolerance=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [ALL, ALL | {"apply_lora_to_output": True}, {"lora_attn_modules": ["k_proj"], "lora_rank": 2}],
)
def test_export_gives_our_logits_in_peft_on_an_untied_model(tiny_reference, tmp_path, arguments):
    tiny_reference.save_pretrained(tmp_path / "base")
    decoder = train(build(checkpoint_dir=tmp_path / "base", **arguments), std=0.2)
    save_adapter(decoder, tmp_path / "adapter", base_model=str(tmp_path / "base"))
    ids = torch.randint(512, (32,), generator=torch.Generator().manual_seed(0)).tolist()
    check_against_peft(decoder, tiny_reference, tmp_path / "adapter", ids, tolerance=1e-5)


def test_config_is_complete_and_read_off_the_modules(tmp_path):
    """Unlike torchtune's, without task_type, dropout and base model (pytorch/torchtune#933)."""
    save_adapter(build(**ALL, lora_dropout=0.25), tmp_path, base_model="org/name")
    config = json.loads((tmp_path / CONFIG).read_text())
    expected = {
        "base_model_name_or_path": "org/name",
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": 10,
        "lora_dropout": 0.25,
        "peft_type": "LORA",
        "r": 4,
        "target_modules": TARGETS,
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
    assert expected.items() <= config.items()
    card = (tmp_path / "README.md").read_text()
    assert 'base_model: "org/name"' in card and "Rank 4, alpha 10, dropout 0.25" in card


def test_modules_that_differ_cannot_be_exported(tmp_path):
    decoder = build(lora_attn_modules=["q_proj"])
    decoder.layers[1].attn.q_proj.alpha = 99
    with pytest.raises(ValueError, match="must agree"):
        save_adapter(decoder, tmp_path, base_model="x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", METHODS)
def test_config_and_card_name_the_method(tmp_path, method):
    save_adapter(build(**ALL, **METHODS[method]), tmp_path, base_model="org/name")
    config = json.loads((tmp_path / CONFIG).read_text())
    flags = ("DoRA" in method, "rsLoRA" in method)
    assert (config["use_dora"], config["use_rslora"]) == flags
    assert (config["r"], config["lora_alpha"]) == (4, 10)
    card = (tmp_path / "README.md").read_text()
    assert f"# {method} adapter for org/name" in card
    assert ("works only approximately" in card) == ("make export" in card) == ("QLoRA" in method)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    decoder = build(lora_attn_modules=["q_proj"])
    save_adapter(decoder, tmp_path, base_model="x")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_adapter(train(decoder), tmp_path, base_model="x")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert set(before) == {CONFIG, WEIGHTS, "README.md"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("use_dora", [False, True])
def test_loading_back_is_bit_equal(tmp_path, dtype, use_dora):
    arguments = ALL | {"use_dora": use_dora}
    trained = train(build(**arguments)).to(dtype)
    save_adapter(trained, tmp_path, base_model="x")
    other = build(**arguments, seed=7).to(dtype)
    base = {n: p.clone() for n, p in other.named_parameters() if n not in adapter_parameters(other)}
    load_adapter(other, tmp_path)
    loaded = adapter_parameters(other)
    assert all(torch.equal(loaded[n], p) for n, p in adapter_parameters(trained).items())
    assert all(torch.equal(p, base[n]) for n, p in other.named_parameters() if n in base)


def test_reading_needs_the_models_structure_only(tmp_path):
    trained = train(build(**ALL, use_dora=True))
    save_adapter(trained, tmp_path, base_model="x")
    values = read_adapter(build_on_meta(**ALL, use_dora=True), tmp_path)
    expected = adapter_parameters(trained)
    assert values.keys() == expected.keys()
    assert all(torch.equal(values[name], p) for name, p in expected.items())


def test_given_tensors_are_written_in_place_of_the_models_own(tmp_path):
    """As a recipe does with fp32 masters, or with tensors gathered from shards."""
    decoder = build_on_meta(**ALL, use_dora=True)
    masters = {n: torch.randn(p.shape) for n, p in adapter_parameters(decoder).items()}
    save_adapter(decoder, tmp_path, base_model="x", parameters=masters)
    values = read_adapter(decoder, tmp_path)
    assert all(torch.equal(values[name], tensor) for name, tensor in masters.items())


def test_only_adapters_train_after_freezing():
    decoder = build(lora_attn_modules=["q_proj", "v_proj"])
    freeze_base(decoder)
    trainable = [name for name, p in decoder.named_parameters() if p.requires_grad]
    assert trainable == [
        f"layers.{layer}.attn.{module}.{matrix}.weight"
        for layer in (0, 1)
        for module in ("q_proj", "v_proj")
        for matrix in ("lora_a", "lora_b")
    ]
    assert list(adapter_parameters(decoder)) == trainable


def test_a_model_without_adapters_is_refused(tmp_path):
    save_adapter(build(lora_attn_modules=["q_proj"]), tmp_path, base_model="x")
    decoder = build(tiny_llama3_8b)
    with pytest.raises(UserError, match="no LoRA layers"):
        freeze_base(decoder)
    with pytest.raises(UserError, match="adapter_path: the model has no LoRA layers"):
        load_adapter(decoder, tmp_path)


def refused(decoder, folder):
    """Return the message of the UserError, having seen that the adapters did not change."""
    before = {name: p.clone() for name, p in adapter_parameters(decoder).items()}
    with pytest.raises(UserError) as error:
        load_adapter(decoder, folder)
    assert all(torch.equal(p, before[n]) for n, p in adapter_parameters(decoder).items())
    assert all(problem.startswith("adapter_path: ") for problem in error.value.problems)
    return str(error.value)


def write_with_peft(model, folder, **arguments):
    """Have ``peft`` itself adapt a copy of the model and save a random adapter; return it."""
    peft = pytest.importorskip("peft", reason="the peers extra is not installed")
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=10, init_lora_weights=False, **arguments)
    adapted = peft.get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "magnitude" in name:
                parameter.mul_(torch.empty_like(parameter).uniform_(0.5, 1.5))
    # Else it adds the base weight of an adapted lm_head.
    adapted.save_pretrained(folder, save_embedding_layers=False)
    return adapted.eval()


@pytest.mark.parametrize("use_dora", [False, True])
@pytest.mark.parametrize("use_rslora", [False, True])
def test_an_adapter_of_peft_gives_its_logits_here(tiny_reference, tmp_path, use_dora, use_rslora):
    tiny_reference.save_pretrained(tmp_path / "base")
    flags = {"use_dora": use_dora, "use_rslora": use_rslora}
    adapted = write_with_peft(
        tiny_reference, tmp_path / "adapter", target_modules=[*TARGETS, "lm_head"], **flags
    )
    decoder = build(checkpoint_dir=tmp_path / "base", apply_lora_to_output=True, **ALL, **flags)
    tokens = torch.arange(32).unsqueeze(0)
    with torch.no_grad():
        theirs = adapted(tokens).logits
        assert (decoder(tokens) - theirs).abs().max() > 0.1
        load_adapter(decoder, tmp_path / "adapter")
        assert (decoder(tokens) - theirs).abs().max() < 1e-4


def test_other_targets_are_listed_as_missing_and_unexpected(tiny_reference, tmp_path):
    """Some loaders take what fits and leave the rest untrained (huggingface/peft#2566)."""
    write_with_peft(tiny_reference, tmp_path, target_modules=["q_proj", "k_proj", "v_proj"])
    arguments = {"lora_rank": 4, "lora_alpha": 10}
    prefix = "base_model.model.model.layers.[0-1].self_attn"
    fewer = refused(build(lora_attn_modules=["q_proj", "v_proj"], **arguments), tmp_path)
    assert f"has no place for: {prefix}.k_proj.lora_A.weight, {prefix}.k_proj.lora_B" in fewer
    assert "missing" not in fewer
    modules = ["q_proj", "k_proj", "output_proj"]
    other = refused(build(lora_attn_modules=modules, **arguments), tmp_path)
    assert f"needs are missing: {prefix}.o_proj.lora_A.weight, {prefix}.o_proj.lora_B" in other
    assert f"has no place for: {prefix}.v_proj.lora_A.weight, {prefix}.v_proj.lora_B" in other


def test_names_off_by_one_level_match_nothing(tiny_reference, tmp_path):
    """As ``peft`` names them when a model's inner module was adapted."""
    write_with_peft(tiny_reference.model, tmp_path, target_modules=["q_proj"])
    keys = load_file(tmp_path / WEIGHTS)
    assert "base_model.model.layers.0.self_attn.q_proj.lora_A.weight" in keys
    decoder = build(lora_attn_modules=["q_proj"], lora_rank=4, lora_alpha=10)
    message = refused(decoder, tmp_path)
    assert "none of its tensors belongs to an adapter of this model" in message
    assert "needs are missing: base_model.model.model.layers.[0-1]" in message
    assert "has no place for: base_model.model.layers.[0-1]" in message


@pytest.mark.parametrize(
    ("flag", "argument"), [("use_dora", "model.use_dora"), ("use_rslora", "use_rslora")]
)
@pytest.mark.parametrize("there", [False, True])
def test_another_method_is_said_with_the_setting_to_change(tmp_path, flag, argument, there):
    save_adapter(train(build(**ALL, **{flag: there})), tmp_path, base_model="x")
    decoder = build(**ALL, **{flag: not there})
    message = refused(decoder, tmp_path)
    found, here = str(there).lower(), str(not there).lower()
    expected = f"{flag} is {found} and the config's {argument} is {here}: set {argument} to"
    assert expected in message
    assert check_adapter(decoder, tmp_path)


def test_another_rank_and_alpha_are_named(tmp_path):
    save_adapter(
        build(lora_attn_modules=["q_proj"], lora_rank=8, lora_alpha=16), tmp_path, base_model="x"
    )
    message = refused(build(lora_attn_modules=["q_proj"], lora_rank=4, lora_alpha=32), tmp_path)
    assert "r is 8 and the config's model.lora_rank is 4" in message
    assert "lora_alpha is 16 and the config's model.lora_alpha is 32" in message


def test_another_dropout_is_accepted_and_said(tmp_path, capsys):
    save_adapter(build(lora_attn_modules=["q_proj"], lora_dropout=0.1), tmp_path, base_model="x")
    load_adapter(build(lora_attn_modules=["q_proj"]), tmp_path)
    assert "dropout 0.1; this run uses model.lora_dropout 0.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_replication": [[0, 2]]}, "layer_replication is set"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern is set"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is set"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    ],
)
def test_adapters_of_another_kind_are_refused(tmp_path, change, message):
    decoder = build(lora_attn_modules=["q_proj"])
    save_adapter(decoder, tmp_path, base_model="x")
    config = json.loads((tmp_path / CONFIG).read_text()) | change
    (tmp_path / CONFIG).write_text(json.dumps(config))
    assert message in refused(decoder, tmp_path)


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_4", "olora", "loftq"])
def test_adapters_of_a_base_that_peft_changed_are_refused(tmp_path, start):
    """PEFT subtracts their start from the base weights when it loads them."""
    save_adapter(build(**ALL), tmp_path, base_model="x")
    path = tmp_path / "adapter_config.json"
    config = json.loads(path.read_text())
    for value in (True, "gaussian", "eva"):
        path.write_text(json.dumps(config | {"init_lora_weights": value}))
        read_adapter(build_on_meta(**ALL), tmp_path)
    path.write_text(json.dumps(config | {"init_lora_weights": start}))
    assert f"init_lora_weights is '{start}'" in refused(build(**ALL), tmp_path)


def test_files_that_are_missing_or_damaged_are_named(tmp_path):
    decoder = build(lora_attn_modules=["q_proj"])
    assert f"does not hold {CONFIG} and {WEIGHTS}" in refused(decoder, tmp_path)
    save_adapter(decoder, tmp_path, base_model="x")
    (tmp_path / WEIGHTS).write_bytes(b"x" * 40)
    assert f"{WEIGHTS} cannot be read" in refused(decoder, tmp_path)
    (tmp_path / CONFIG).write_text("{")
    assert f"{CONFIG} cannot be read" in refused(decoder, tmp_path)
