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
from custom_components.inference.gleu import gleu
from custom_components.models.adapters import adapter_parameters, read_adapter, save_adapter
from custom_components.models.byte_tokenizer import byte_tokenizer
from custom_components.models.merge import merge_adapter
from custom_components.observability.console import get_logger
from custom_components.observability.records import read_metrics
from tests.ranks import run_ranks
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


def write_merged(folder: Path, adapter: str) -> str:
    """Write the whole model that the adapter makes of the config's base model."""
    decoder = build(**{**ALL, "lora_rank": 16, "lora_alpha": 32})
    merge_adapter(
        decoder,
        read_adapter(decoder, adapter),
        folder,
        checkpoint_dir="random",
        device=torch.device("cpu"),
        dtype=torch.float32,
        seed=0,
        tokenizer=byte_tokenizer(),
    )
    return str(folder)


def read_samples(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "samples.jsonl").read_text().splitlines()]


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
            f"models=[{','.join(f'{{adapter_path: {adapter}}}' for adapter in adapters)}]",
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
    samples = read_samples(run_dir)
    outputs = {
        model: [sample["output"] for sample in samples if sample["model"] == model]
        for model in ("base model", silent, loud)
    }
    assert outputs[loud] != outputs["base model"], "an adapter must show"
    assert outputs[silent] == outputs["base model"], "nothing of the adapter before may stay"
    assert [sample["references"] for sample in samples] == [[pair[1]] for pair in PAIRS] * 3
    assert [sample["global_step"] for sample in samples] == [0] * 3 + [1] * 3 + [2] * 3

    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["num_rows"] == 3
    assert [model["model"] for model in summary["models"]] == ["base model", silent, loud]
    metrics = read_metrics(run_dir)
    assert [line["global_step"] for line in metrics] == [0, 1, 2]
    for line, model in zip(metrics, summary["models"], strict=True):
        assert line["eval/loss"] == model["loss"]
        assert line["eval/gleu"] == model["scores"]["gleu"]
        assert line["eval/exact_match"] == model["scores"]["exact_match"]
        assert model["kept_percent"] is None
    sources, targets = ([pair[i] for pair in PAIRS] for i in (0, 1))
    assert summary["copying"] == {"gleu": gleu(sources, [targets], sources), "exact_match": 1 / 3}

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
    assert f"all answers: {run_dir / 'samples.jsonl'}" in shown
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


def test_whole_models_stand_beside_adapters_and_keep_a_share_of_the_reference(
    custom_eval: ModuleType, tmp_path: Path, messages: list[str]
) -> None:
    """The merged model answers as its adapter does, before and after other weights were loaded."""
    loud = write_adapter(tmp_path / "loud", scale=1.0)
    merged = write_merged(tmp_path / "merged", loud)
    plain = "model: {_component_: custom_components.models.tiny.tiny_llama3_8b}"
    models = [
        f"{{name: loud, adapter_path: {loud}}}",
        f"{{name: whole, checkpoint_dir: {merged}, {plain}}}",
        f"{{name: whole in LoRA, checkpoint_dir: {merged}}}",
        f"{{name: loud again, adapter_path: {loud}}}",
    ]
    custom_eval.main(
        build_config(
            tmp_path,
            [],
            f"models=[{','.join(models)}]",
            "metrics=[rouge_1,exact_match]",
            "reference=loud",
            "max_new_tokens=8",
        )
    )
    samples = read_samples(tmp_path / "compared")
    outputs: dict[str, list[str]] = {}
    for sample in samples:
        outputs.setdefault(sample["model"], []).append(sample["output"])
    assert list(outputs) == ["base model", "loud", "whole", "whole in LoRA", "loud again"]
    assert outputs["base model"] != outputs["loud"]
    assert all(outputs[name] == outputs["loud"] for name in list(outputs)[2:])
    summary = json.loads((tmp_path / "compared" / "summary.json").read_text())
    losses = {model["model"]: model["loss"] for model in summary["models"]}
    assert losses["whole"] == pytest.approx(losses["loud"], rel=1e-5)
    assert losses["base model"] != pytest.approx(losses["loud"], rel=1e-3)
    assert losses["loud again"] == losses["loud"]
    assert summary["copying"] == {}, "only GLEU makes copying something to beat"
    shown = "\n".join(messages)
    assert shown.count(" |    kept") == 2


def test_accuracy_kept_is_the_score_in_percent_of_the_references(custom_eval: ModuleType) -> None:
    rows = {
        "full": {"gleu": 60.0, "exact_match": 0.5, "rouge_l": 0.0},
        "merged in int4": {"gleu": 57.0, "exact_match": 0.25, "rouge_l": 0.0},
    }
    table = custom_eval.format_table(rows, {"full": 1.25}, reference="full")
    assert [[cell.strip() for cell in line.split("|")] for line in table] == [
        ["model", "loss", "GLEU", "kept", "exact match", "kept", "ROUGE-L", "kept"],
        ["full", "1.2500", "60.00", "100.0%", "50.0%", "100.0%", "0.00", "-"],
        ["merged in int4", "-", "57.00", "95.0%", "25.0%", "50.0%", "0.00", "-"],
    ]
    assert len({len(line) for line in table}) == 1
    plain = custom_eval.format_table(rows, {"full": 1.25}, reference=None)
    assert "kept" not in plain[0] and len({len(line) for line in plain}) == 1


def evaluate_here(tmp_path: str, adapter: str) -> None:
    import custom_eval

    custom_eval.main(build_config(Path(tmp_path), [adapter], "batch_size=1", "dataset.max_rows=3"))


def test_two_ranks_give_what_one_gives(custom_eval: ModuleType, tmp_path: Path) -> None:
    """Three rows on two ranks in batches of one: in the second round one rank has none."""
    loud = write_adapter(tmp_path / "loud", scale=1.0)
    custom_eval.main(build_config(tmp_path, [loud], "run_name=alone"))
    run_ranks(2, evaluate_here, str(tmp_path), loud)
    alone, both = (read_samples(tmp_path / name) for name in ("alone", "compared"))
    assert both == alone and len(alone) == 6
    lines = (read_metrics(tmp_path / name) for name in ("alone", "compared"))
    for one, other in zip(*lines, strict=True):
        assert one["eval/loss"] == pytest.approx(other["eval/loss"], rel=1e-5)
        assert one["eval/gleu"] == other["eval/gleu"]


def test_long_texts_are_cut_on_the_terminal(custom_eval: ModuleType) -> None:
    assert custom_eval._shorten("a\n b") == "a b"
    assert len(custom_eval._shorten("word " * 500)) < 400
