"""The models that ``custom_eval`` compares: what each is, and what a config may not say of them."""

import custom_components.compat  # noqa: F401

from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from custom_components.config import read_options
from custom_components.errors import UserError
from custom_components.inference.eval_models import (
    ModelLoader,
    find_model_problems,
    list_models,
)
from custom_components.models.adapters import save_adapter
from custom_components.options import EvalModel, EvalOptions
from tests.unit.models.lora_decoders import build, train

TINY = "custom_components.models.tiny."
LORA = {"_component_": f"{TINY}tiny_lora_llama3_8b", "lora_attn_modules": ["q_proj"]}
PLAIN = {"_component_": f"{TINY}tiny_llama3_8b"}
CPU = torch.device("cpu")


def build_options(*models: EvalModel, **changes) -> EvalOptions:
    values = {
        "model": LORA,
        "tokenizer": {"_component_": "torch.nn.Identity"},
        "dataset": {"_component_": "torch.nn.Identity"},
        "checkpoint_dir": "random",
        "dtype": "fp32",
    }
    return EvalOptions(models=list(models), **values | changes)


def test_what_an_entry_leaves_out_is_as_at_the_top_level() -> None:
    options = build_options(
        EvalModel(adapter_path="a"),
        EvalModel(name="whole", model=PLAIN, checkpoint_dir="c", use_rslora=False),
        EvalModel(checkpoint_dir="c"),
        EvalModel(use_rslora=False),
        use_rslora=True,
    )
    base, adapter, whole, folder, other = list_models(options)
    assert (base.name, base.adapter_path, base.use_rslora) == ("base model", None, True)
    assert (adapter.name, adapter.model, adapter.checkpoint_dir) == ("a", LORA, "random")
    assert adapter.has_base_of(base)
    assert (whole.name, whole.model, whole.use_rslora) == ("whole", PLAIN, False)
    assert (folder.name, folder.adapter_path) == ("c", None)
    assert other.name == "models[3]" and not other.has_base_of(base)


def test_one_model_after_the_other_is_what_it_says(tmp_path: Path) -> None:
    """Tiny models of three kinds, told apart by their next token's logits."""
    trained = train(build(lora_attn_modules=["q_proj"]))
    save_adapter(trained, tmp_path, base_model="tiny")
    options = build_options(EvalModel(adapter_path=str(tmp_path)), EvalModel(model=PLAIN))
    tokens = torch.tensor([[5, 6, 7]])
    loader = ModelLoader(options, [7], device=CPU)
    base, adapted, plain = list_models(options)
    with torch.no_grad():
        logits = [loader.load(s).decoder(tokens) for s in (base, adapted, base, plain, adapted)]
        expected = trained(tokens)
    torch.testing.assert_close(logits[1], expected, rtol=0, atol=0)
    torch.testing.assert_close(logits[4], expected, rtol=0, atol=0)
    torch.testing.assert_close(logits[2], logits[0], rtol=0, atol=0)
    torch.testing.assert_close(logits[3], logits[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(logits[0], logits[1])


def test_the_model_before_is_let_go_of_before_the_next_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two whole models might not fit in memory."""
    options = build_options(EvalModel(model=PLAIN))
    loader = ModelLoader(options, [7], device=CPU)
    base, plain = list_models(options)
    loader.load(base)
    monkeypatch.setattr(ModelLoader, "_load_base", lambda self, _: pytest.fail(str(self._model)))
    with pytest.raises(pytest.fail.Exception, match="None"):
        loader.load(plain)


def test_a_token_that_a_model_does_not_embed_is_refused() -> None:
    options = build_options()
    with pytest.raises(UserError, match="it gives the id 600"):
        ModelLoader(options, [600], device=CPU).load(list_models(options)[0])


def test_names_must_differ_and_the_reference_must_be_one_of_them() -> None:
    options = build_options(
        EvalModel(name="base model"), EvalModel(name="x"), EvalModel(name="x"), reference="full"
    )
    first, second, reference = find_model_problems(options)
    assert first.startswith("models[0].name: 'base model' names an earlier model")
    assert second.startswith("models[2].name: 'x'")
    assert reference.startswith("reference: 'full' is none of the models")
    assert find_model_problems(build_options(reference="base model")) == []


def test_what_does_not_fit_is_named_by_its_entry(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    options = build_options(
        EvalModel(adapter_path=str(tmp_path / "none")),
        EvalModel(checkpoint_dir=str(tmp_path / "empty")),
        EvalModel(name="a", model={"lora_rank": 3}),
        EvalModel(name="b", model={**LORA, "lora_rank": 0}),
        EvalModel(name="c", model={"_component_": "torch.nn.Identity"}),
        EvalModel(name="d", model={"_component_": LORA["_component_"]}),
    )
    problems = find_model_problems(options)
    starts = [
        "models[0].adapter_path: ",
        "models[1].checkpoint_dir: ",
        "models[2].model has no _component_",
        "models[3].model.lora_rank",
        "models[4].model: it builds a Identity",
        "models[5].model: ",
    ]
    assert len(problems) == len(starts), problems
    for problem, start in zip(problems, starts, strict=True):
        assert problem.startswith(start), problem


def test_a_base_model_that_cannot_be_built_is_not_reported_for_every_adapter_again() -> None:
    options = build_options(EvalModel(adapter_path="x"), model={**LORA, "lora_rank": 0})
    assert find_model_problems(options) == []


def test_entries_are_read_strictly_from_a_config() -> None:
    config = OmegaConf.create(
        {
            "model": LORA,
            "tokenizer": {"_component_": "torch.nn.Identity"},
            "dataset": {"_component_": "torch.nn.Identity"},
            "checkpoint_dir": "random",
            "models": [{"name": "x", "adapter_path": "a"}],
        }
    )
    options = read_options(EvalOptions, config)
    assert options.models == [EvalModel(name="x", adapter_path="a")]
    config.models = [{"adapter_pth": "a"}]
    with pytest.raises(UserError, match="models.adapter_pth"):
        read_options(EvalOptions, config)
    config.models, config.metrics = [], []
    with pytest.raises(UserError, match="metrics"):
        read_options(EvalOptions, config)
