"""torchtune 0.6.1 imports and works with both ends of the torchao range.

That nothing is said while it imports is part of the literal command's test.
"""

import custom_components.compat  # noqa: F401

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torchao.quantization

from custom_components import compat

ROOT = Path(__file__).parents[2]

SMOKE = """
import custom_components.compat
import torch, torchao, torchtune
from torchtune.modules.peft import LoRALinear
torch.manual_seed(0)
layer = LoRALinear(64, 32, rank=4, alpha=8.0)
layer(torch.randn(2, 64)).sum().backward()
assert layer.lora_b.weight.grad.abs().sum() > 0
from torchtune.models.llama3 import lora_llama3
from torchtune.modules.low_precision import FrozenNF4Linear
from torchtune.training.quantization import Int8DynActInt4WeightQATQuantizer
print(torchao.__version__)
"""


def test_torchtune_works_with_the_installed_torchao(capsys):
    exec(SMOKE, {})
    assert capsys.readouterr().out.strip() == torchao.__version__


def test_torchtune_works_with_torchao_0_15(tmp_path):
    target = tmp_path / "torchao"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--target", str(target), "torchao==0.15.*"]
    installed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if installed.returncode != 0:
        pytest.skip(f"torchao 0.15 cannot be installed: {installed.stderr.strip()[-200:]}")
    result = subprocess.run(
        [sys.executable, "-c", SMOKE],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("0.15.")


def test_what_torchao_removed_raises_only_when_called():
    removed = torchao.quantization.int4_weight_only
    if removed.__module__ != "custom_components.compat":
        pytest.skip(f"torchao {torchao.__version__} still has it")
    with pytest.raises(NotImplementedError, match="int4_weight_only no longer exists"):
        removed()


def test_installing_twice_changes_nothing():
    before = torchao.quantization.int4_weight_only
    compat.install()
    assert torchao.quantization.int4_weight_only is before


def test_only_known_lines_are_dropped(caplog):
    with caplog.at_level(logging.WARNING):
        logger = logging.getLogger("torchao")
        logger.warning("Skipping import of cpp extensions due to incompatible torch version")
        logger.warning("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]
