"""Dotted paths in a config: what may be named, what may not, and how components are built."""

import functools

import pytest
import torch
from omegaconf import OmegaConf

from custom_components.components import allow_components, find_component, instantiate
from custom_components.errors import UserError


@pytest.mark.parametrize(
    "dotpath",
    [
        "torchtune.models.llama3.lora_llama3_8b",
        "torchtune.models.llama3.qlora_llama3_8b",  # a functools.partial
        "torchtune.datasets.grammar_dataset",
        "torch.optim.AdamW",
        "torch.optim.lr_scheduler.CosineAnnealingLR",
        "torch.nn.CrossEntropyLoss",
        "torchao.optim.AdamW8bit",
        "custom_components.models.byte_tokenizer.byte_tokenizer",
    ],
)
def test_members_of_allowed_packages_are_found(dotpath):
    assert callable(find_component(dotpath))


@pytest.mark.parametrize(
    "dotpath",
    [
        "os.system",
        "logging.os.system",
        "builtins.eval",
        "subprocess.Popen",
        "functools.partial",
        "torch.load",
        "torch.hub.load",
        # aliases through an allowed package
        "custom_components.cli.os.system",
        "custom_components.config.json.loads",
        "torchtune.config._utils.import_module",
        "torchtune.models.llama3._model_builders.partial",
        "torch.optim.optimizer.warnings.warn",
        "torch.nn.modules.module.functools.partial",
        # members of allowed packages that run whatever they are told to
        "torchtune.config._utils._get_component_from_path",
        "torchtune.config.instantiate",
        "custom_components.launch.run_script",
        "custom_components.components.find_component",
        "custom_components.benchmarks.startup.time_marks",
        "custom_components.models.weights._place",
        "custom_components.files.write_atomically",
        "torchtune.training.checkpointing._utils.safe_torch_load",
        "torchtune.training.FullModelTorchTuneCheckpointer",
        "torch.nn.attention._fa4._fa4_import_module",
        "torchao.prototype.parq.utils.instantiate_module",
        "torchao.kernel.autotuner._load_best_configs",
        # no components at all
        "torch.nn.Module.__init__",
        "torch.nn.Module.__subclasses__",
        "torchtune.models.llama3.lora_llama3_8b.__globals__.get",
        "torchtune.models",
        "torchtune",
        "torch..nn",
        ".torch.nn.Linear",
        "torch.nn.Linear()",
        "",
        None,
        3,
    ],
)
def test_everything_else_is_refused(dotpath):
    with pytest.raises(UserError):
        find_component(dotpath)


def test_a_package_outside_the_list_is_not_even_imported(tmp_path, monkeypatch):
    witness = tmp_path / "imported"
    (tmp_path / "hostile.py").write_text(f"open({str(witness)!r}, 'w').close()\nbuild = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="--allow-component hostile"):
        find_component("hostile.build")
    assert not witness.exists()
    # imported now, but dict is not from there
    with allow_components(["hostile"]), pytest.raises(UserError, match="builtins"):
        find_component("hostile.build")
    assert witness.exists()


@pytest.mark.parametrize(
    ("dotpath", "nearest"),
    [
        ("torchtune.models.llama3.lora_llama3_8B", "torchtune.models.llama3.lora_llama3_8b"),
        ("torchtune.model.llama3.llama3_8b", "torchtune.models"),
        ("torch.optim.AdmaW", "torch.optim.AdamW"),
        ("torch.optm.AdamW", "torch.optim"),
        ("torchtun.models.x", "torchtune"),
        ("custom_components.modles.tiny.x", "custom_components.models"),
    ],
)
def test_misspelt_paths_get_the_nearest(dotpath, nearest):
    with pytest.raises(UserError, match=f"the nearest is {nearest}"):
        find_component(dotpath)


def test_a_component_whose_import_fails_says_so(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with (
        allow_components(["needs_more"]),
        pytest.raises(UserError, match=r"importing needs_more failed.*surely_not_installed"),
    ):
        find_component("needs_more.build")


def test_a_component_is_built_from_its_own_and_the_recipes_arguments():
    node = {"_component_": "torch.nn.Linear", "out_features": 3, "bias": True}
    layer = instantiate(node, 2, bias=False)
    assert isinstance(layer, torch.nn.Linear)
    assert (layer.in_features, layer.out_features, layer.bias) == (2, 3, None)
    cfg = OmegaConf.create({"width": 5, "layer": {**node, "out_features": "${width}"}})
    assert instantiate(cfg.layer, 2).out_features == 5


def test_a_partial_is_built_with_its_own_defaults():
    builder = find_component("torchtune.models.llama3.qlora_llama3_8b")
    assert isinstance(builder, functools.partial) and builder.keywords["quantize_base"]


def test_building_checks_nested_names_and_template_paths():
    """Torchtune imports and calls whatever a ``prompt_template`` names."""
    nested = {"_component_": "torch.nn.Linear", "x": [{"_component_": "os.system"}]}
    with pytest.raises(UserError, match=r"x\.0\._component_: os\.system"):
        instantiate(nested)
    template = {"_component_": "torch.nn.Identity", "prompt_template": "os.getcwd"}
    with pytest.raises(UserError, match=r"prompt_template: os\.getcwd"):
        instantiate(template)
    with pytest.raises(UserError, match="no _component_"):
        instantiate({"out_features": 3})
