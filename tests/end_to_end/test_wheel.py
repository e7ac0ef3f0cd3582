"""The pack as a wheel, installed away from its checkout: the same command line."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from custom_components.registry import RECIPE_CONFIGS

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

DRIVER = """
import runpy, sys
from pathlib import Path
import custom_components.cli as cli

site = sys.argv[1]
assert Path(cli.__file__).is_relative_to(site), cli.__file__
sys.argv = ["tune", "cp", "llama3_8b_grammar", "."]
try:
    runpy.run_path(f"{site}/bin/tune", run_name="__main__")  # the script that pip made
except SystemExit as end:
    assert end.code == 0
Path("llama3_8b_grammar.yaml").rename("mine.yaml")
cli.main(["ls"])
assert cli.main(["cp", "custom_lora", "mine.py"]) == 0
assert cli.main(["validate", "llama3_8b_grammar"]) == 0
assert cli.main(["validate", "mine.yaml"]) == 0
literal = "run --nproc_per_node 4 custom_lora configs/llama3_8b_grammar.yaml device=cuda"
assert cli.main(literal.split()) == 2
from custom_components.registry import find_recipe
for recipe in ("custom_lora", "custom_eval", "lora_finetune_distributed"):
    assert find_recipe(recipe).path.is_file(), recipe
"""


def call(command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()  # a copy: setuptools builds inside the tree and would keep files since removed
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("custom_components", "recipes", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    call([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)])
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_module_recipe_and_config(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "custom_components").rglob("*.py")}
    assert modules <= names
    for recipe, configs in RECIPE_CONFIGS.items():
        assert f"{recipe}.py" in names  # a top-level module: the folder recipes/ is torchtune's
        assert {f"custom_components/configs/{name}.yaml" for name in configs} <= names
    top = {name.split("/")[0] for name in names}
    assert not top & {"recipes", "configs", "tests", "docs"}


def test_the_installed_wheel_works_from_any_folder(wheel, tmp_path):
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    call([*PIP, "install", "--no-deps", "--target", str(site), str(wheel)])
    environment = os.environ | {"PYTHONPATH": str(site), "CUDA_VISIBLE_DEVICES": ""}

    said = call([sys.executable, "-c", DRIVER, str(site)], cwd=work, env=environment)
    assert "custom_lora" in said and said.count("Config is well-formed!") == 2
    copy = work / "mine.yaml"
    assert copy.read_text() == (ROOT / "configs" / "llama3_8b_grammar.yaml").read_text()
    assert (work / "mine.py").read_text() == (ROOT / "recipes" / "custom_lora.py").read_text()
