"""The recipe custom_eval on a tiny model: what it compares, and what it leaves behind."""

import custom_components.compat  # noqa: F401

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import DictConfig

from custom_components.config import load_config
from custom_components.errors import UserError
from custom_components.models.adapters import adapter_parameters, save_adapter
from custom_components.observability.console import get_logger
from custom_components.observability.records import read_metrics
from tests.unit.models.lora_decoders import ALL, METHODS, build

ROOT = Path(__file__).parents[3]
PAIRS = [
    ("he go home now and then", "he goes home now and then"),
    ("a cat", "a cat"),
    ("we is here since long", "we have been here for long"),
]


@pytest.fixture(scope="module")
def custom_eval() -> ModuleType:
    spec = importlib.util.spec_from_file_location("custom_eval", ROOT / "recipes/custom_eval.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What the pack's logger says."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    get_logger().addHandler(handler)
    yield said
    get_logger().removeHandler(handler)


def write_adapter(folder: Path, *, scale: float, method: str = "LoRA") -> str:
    """Write an adapter that fits the config's rank and modules; scale 0 changes nothing."""
    settings = {**ALL, "lora_rank": 16, "lora_alpha": 32, **METHODS[method]}
    decoder = build(**settings)
    with torch.no_grad():
        for name, parameter in adapter_parameters(decoder).items():
            if "lora_" in name:
                parameter.normal_().mul_(scale)
    save_adapter(decoder, folder, base_model="tiny")
    return str(folder)


def build_config(tmp_path: Path, adapters: list[str], *overrides: str) -> DictConfig:
    data = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"input": source, "output": target}) for source, target in PAIRS]
    data.write_text("\n".join(lines) + "\n")
    return load_config(
        ROOT / "configs" / "smollm2_135m_grammar_eval.yaml",
        [
            "model._component_=custom_components.models.tiny.tiny_lora_llama3_8b",
            "tokenizer._component_=custom_components.models.byte_tokenizer.byte_tokenizer",
            "tokenizer.path=null",
            "checkpoint_dir=random",
            f"dataset.source={data}",
            "dataset.split=train",
            f"adapter_paths=[{','.join(adapters)}]",
            "max_new_tokens=5",
            "num_samples_shown=2",
            f"output_dir={tmp_path}",
            "run_name=compared",
            "wandb.mode=disabled",
            *overrides,
        ],
    )


@pytest.mark.parametrize(
    ("method", "overrides"),
    [
        ("LoRA", []),
        ("rsLoRA", ["use_rslora=true"]),
        ("DoRA + QLoRA", ["model.use_dora=true", "model.quantize_base=true"]),
    ],
)
def test_base_and_adapters_are_compared_on_the_same_rows(
    custom_eval: ModuleType,
    tmp_path: Path,
    messages: list[str],
    method: str,
    overrides: list[str],
) -> None:
    loud = write_adapter(tmp_path / "loud", scale=1.0, method=method)
    silent = write_adapter(tmp_path / "silent", scale=0.0, method=method)
    custom_eval.main(build_config(tmp_path, [silent, loud], *overrides))

    run_dir = tmp_path / "compared"
    samples = [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]
    outputs = {
        model: [sample["output"] for sample in samples if sample["model"] == model]
        for model in ("base model", silent, loud)
    }
    assert outputs[loud] != outputs["base model"], "an adapter must show"
    assert outputs[silent] == outputs["base model"], "nothing of the adapter before may stay"
    assert [sample["reference"] for sample in samples] == [pair[1] for pair in PAIRS] * 3

    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["num_pairs"] == 3
    assert [model["model"] for model in summary["models"]] == ["base model", silent, loud]
    metrics = read_metrics(run_dir)
    assert [line["global_step"] for line in metrics] == [0, 1, 2]
    for line, model in zip(metrics, summary["models"], strict=True):
        assert line["eval/gleu"] == model["gleu"]
        assert model["gleu_over_copying"] == model["gleu"] - summary["copy_gleu"]

    shown = "\n".join(messages)
    table = [line for line in shown.splitlines() if " | " in line]
    assert [line.split(" | ")[0].strip() for line in table] == [
        "model",
        "copying the input",
        "base model",
        silent,
        loud,
    ]
    assert shown.count("  after ") == 2
    assert f"all corrections: {run_dir / 'samples.jsonl'}" in shown
    assert "«Use what you trained»" in shown


def test_the_base_model_alone_points_to_training(
    custom_eval: ModuleType, tmp_path: Path, messages: list[str]
) -> None:
    custom_eval.main(build_config(tmp_path, [], "num_samples_shown=9", "dataset.max_rows=2"))
    shown = "\n".join(messages)
    assert "train an adapter with custom_lora" in shown
    assert shown.count("  before ") == 2
    assert "  after " not in shown
    assert "used all 5 tokens" in shown


def test_all_adapters_that_do_not_fit_are_refused_before_anything_is_generated(
    custom_eval: ModuleType, tmp_path: Path
) -> None:
    adapters = [write_adapter(tmp_path / name, scale=1.0) for name in ("one", "two")]
    try:
        with pytest.raises(UserError) as caught:
            custom_eval.main(build_config(tmp_path, adapters, "model.lora_rank=4"))
    finally:
        torch.distributed.destroy_process_group()
    for adapter in adapters:
        assert any(f"{adapter}: r is 16" in problem for problem in caught.value.problems)
    summary = json.loads((tmp_path / "compared" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert (tmp_path / "compared" / "samples.jsonl").read_text() == ""
