"""Recipes and configs of the pack: all on disk are registered, all registered are on disk."""

import custom_components.compat  # noqa: F401

from pathlib import Path

import pytest
from torchtune._recipe_registry import get_all_recipes

from custom_components import registry
from custom_components.errors import UserError

ROOT = Path(__file__).parents[2]


def test_every_yaml_on_disk_is_registered_and_the_reverse():
    on_disk = {
        str(path.relative_to(registry.config_dir()).with_suffix(""))
        for pattern in ("*.yaml", "*.yml")
        for path in registry.config_dir().rglob(pattern)
    }
    registered = {name for names in registry.RECIPE_CONFIGS.values() for name in names}
    assert sorted(registered) == sorted(on_disk)


def test_every_recipe_on_disk_is_registered_and_the_reverse():
    on_disk = {path.stem for path in (ROOT / "recipes").glob("*.py")}
    assert set(registry.RECIPE_CONFIGS) == on_disk


def test_registering_twice_lists_each_recipe_once():
    registry.register()
    registry.register()
    names = [recipe.name for recipe in get_all_recipes()]
    assert len(names) == len(set(names))
    assert names[: len(registry.RECIPE_CONFIGS)] == list(registry.RECIPE_CONFIGS)


def test_a_recipe_is_found_by_name_and_by_every_form_of_path(monkeypatch):
    """Torchtune turns paths into module names: /abs/x.py, ./x.py and recipes/x.py all fail."""
    expected = ROOT / "recipes" / "custom_lora.py"
    monkeypatch.chdir(ROOT)
    for text in ("custom_lora", str(expected), "./recipes/custom_lora.py", "recipes/custom_lora"):
        found = registry.find_recipe(text)
        assert (found.path, found.name) == (expected, "custom_lora"), text
        assert found.is_from_pack


def test_a_copy_of_a_recipe_is_the_users_own(tmp_path, monkeypatch):
    copy = tmp_path / "custom_lora.py"
    copy.write_text("")
    monkeypatch.chdir(tmp_path)
    found = registry.find_recipe("./custom_lora.py")
    assert found.path == copy and not found.is_from_pack and found.supports_distributed


def test_torchtunes_recipes_stay_reachable():
    found = registry.find_recipe("lora_finetune_single_device")
    assert found.path.is_file() and not found.supports_distributed and not found.is_from_pack
    assert registry.find_recipe("dev/generate_v2").path.is_file()


def test_an_unknown_recipe_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"custom_lorra.*the nearest is custom_lora;"):
        registry.find_recipe("custom_lorra")


def test_a_config_is_found_by_name_and_by_every_form_of_path(monkeypatch, tmp_path):
    expected = ROOT / "configs" / "llama3_8b_grammar.yaml"
    monkeypatch.chdir(ROOT)
    for text in (
        "llama3_8b_grammar",
        "configs/llama3_8b_grammar.yaml",
        "./configs/llama3_8b_grammar.yaml",
        str(expected),
    ):
        assert registry.find_config(text) == expected, text
    monkeypatch.chdir(tmp_path)
    assert registry.find_config("configs/llama3_8b_grammar.yaml") == expected
    own = tmp_path / "configs" / "llama3_8b_grammar.yaml"
    own.parent.mkdir()
    own.write_text("")
    assert registry.find_config("configs/llama3_8b_grammar.yaml") == own


def test_torchtunes_configs_are_found_by_name():
    path = registry.find_config("llama3/8B_lora", "lora_finetune_distributed")
    assert path.is_file() and path.is_relative_to(registry.TORCHTUNE_DIR)


def test_an_unknown_config_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="the nearest is llama3_8b_grammar;"):
        registry.find_config("configs/llama3_8b_gramar.yaml")


def test_in_a_wheel_recipes_and_configs_lie_elsewhere(monkeypatch, tmp_path):
    """Torchtune's wheel has its own folder recipes/ beside the package: it is not the pack's."""
    package = tmp_path / "custom_components"
    (package / "configs").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    monkeypatch.setattr(registry, "_PACKAGE_DIR", package)
    assert registry.recipe_path("custom_lora") == tmp_path / "custom_lora.py"
    assert registry.config_path("x") == package / "configs" / "x.yaml"
