"""Data in a run: one rank tokenises, bad rows are named before training, real data trains."""

import json
import math
import os
from pathlib import Path

import pytest
import torch.distributed as dist

from custom_components.cli import main
from custom_components.errors import UserError
from custom_components.models.byte_tokenizer import ByteTokenizer
from custom_components.observability.records import read_metrics
from tests.lora_runs import ON_CPU, run_lora, write_pairs
from tests.ranks import run_ranks


@pytest.fixture(autouse=True)
def _group():
    """A run that fails leaves its process group to the end of its process, which is ours here."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def run_and_count(output_dir: str, run_name: str, overrides: list[str]) -> int:
    """Run the recipe on this rank; return how many conversations it tokenised."""
    from custom_components.models.byte_tokenizer import ByteTokenizer

    tokenize, count = ByteTokenizer.tokenize_messages, 0

    def tokenize_and_count(self, *args, **kwargs):
        nonlocal count
        count += 1
        return tokenize(self, *args, **kwargs)

    ByteTokenizer.tokenize_messages = tokenize_and_count
    run_lora(output_dir, run_name, overrides)
    return count


def test_one_rank_tokenises_and_a_second_run_nothing_until_a_file_is_edited(tmp_path):
    data = write_pairs(tmp_path / "pairs.jsonl", 24)
    overrides = [f"dataset.source={data}", "max_steps=1", "lr_scheduler.num_warmup_steps=0"]
    probe = 4  # check_tokenizer looks at four conversations
    assert run_ranks(2, run_and_count, str(tmp_path), "a", overrides) == [24 + probe, probe]
    assert run_ranks(2, run_and_count, str(tmp_path), "b", overrides) == [probe, probe]
    data.write_text(data.read_text().replace("cat", "cow"))
    assert run_ranks(2, run_and_count, str(tmp_path), "c", overrides) == [24 + probe, probe]


def run_on_own_file(output_dir: str, run_name: str, overrides: list[str]) -> str:
    """Run on a file of this rank's own, as nodes whose disks differ would; return the refusal."""
    rank = os.environ["RANK"]
    try:
        run_lora(output_dir, run_name, [o.replace("RANK", rank) for o in overrides])
    except UserError as error:
        return str(error)
    return ""


def test_ranks_that_read_different_rows_are_refused(tmp_path):
    for rank in (0, 1):
        write_pairs(tmp_path / f"pairs{rank}.jsonl", 24, seed=rank)
    overrides = [f"dataset.source={tmp_path}/pairsRANK.jsonl", "max_steps=1"]
    for refusal in run_ranks(2, run_on_own_file, str(tmp_path), "a", overrides):
        assert refusal.startswith("dataset: the ranks read different rows")


def test_rows_that_cannot_be_used_are_named_before_training(tmp_path, capfd):
    """huggingface/trl#6668: found in the middle of a run, or never."""
    rows = [{"input": "a", "output": "b"}, {"input": "c", "output": None},
            {"input": "x" * 600, "output": "y"}]  # fmt: skip
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["llama3_8b_grammar", *ON_CPU, f"dataset.source={path}", f"output_dir={tmp_path}",
             "dataset.truncation=error", "run_name=x"]  # fmt: skip
    assert main(["run", "custom_lora", *words]) == 2
    said = capfd.readouterr().err
    assert f"{path}:2 has no output" in said
    assert f"{path}:3 has 6" in said
    assert json.loads((tmp_path / "x" / "summary.json").read_text())["status"] == "failed"
    assert read_metrics(tmp_path / "x") == []


def test_rows_of_the_held_out_set_are_named_by_its_key(tmp_path, capfd):
    path = tmp_path / "val.jsonl"
    path.write_text('{"input": "a", "output": " "}\n')
    node = "custom_components.datasets.grammar.grammar_dataset"
    words = ["llama3_8b_grammar", *ON_CPU, f"output_dir={tmp_path}", "run_name=x",
             f"dataset_val._component_={node}", f"dataset_val.source={path}"]  # fmt: skip
    assert main(["run", "custom_lora", *words]) == 2
    said = capfd.readouterr().err
    assert f"{path}:1 has a blank output" in said
    assert "dataset_val.unusable_rows=drop" in said
    dist.destroy_process_group()
    path = path.rename(tmp_path / "dataset.jsonl")
    words += [f"dataset_val.source={path}", "run_name=y", "dataset_val.unusable_rows=drop"]
    assert main(["run", "custom_lora", *words]) == 2
    assert "error: dataset_val: no row is left" in capfd.readouterr().err


@pytest.fixture
def no_weights(monkeypatch):
    """Fail a run that gets as far as its weights."""
    import custom_lora

    def fail(*args, **kwargs):
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(custom_lora, "load_weights", fail)


def run_with_held_out_row(folder: Path, row: dict[str, str]) -> None:
    """Run the recipe on this process; all it does to the held-out row is to take its loss."""
    path = folder / "val.jsonl"
    path.write_text(json.dumps(row) + "\n")
    node = "{_component_: custom_components.datasets.grammar.grammar_dataset, "
    node += f"source: {path}, max_seq_len: 4096}}"
    source = write_pairs(folder / "pairs.jsonl", 8)
    overrides = [f"dataset.source={source}", f"dataset_val={node}", "generation.metrics=[]"]
    run_lora(str(folder), "x", [*overrides, "lr_scheduler.num_warmup_steps=0"])


def test_held_out_row_longer_than_the_model_takes_is_refused_before_weights(tmp_path, no_weights):
    with pytest.raises(UserError, match=r"val\.jsonl:1 has 3\d+ tokens and the model takes 2048"):
        run_with_held_out_row(tmp_path, {"input": "x" * 3000, "output": "y"})


def test_held_out_token_that_the_model_does_not_embed_is_refused_before_weights(
    tmp_path, no_weights, monkeypatch
):
    def encode(self, text, **options):
        return [600 if character == "z" else ord(character) for character in text]

    monkeypatch.setattr(ByteTokenizer, "encode", encode)
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="it gives the id 600 and the model embeds 512 ids"):
        run_with_held_out_row(tmp_path, {"input": "x", "output": "z"})


def run_smollm2(config: str, output_dir: Path, *overrides: str) -> list[float]:
    """Train a few steps on real weights; return their losses."""
    words = [config, f"output_dir={output_dir}", "run_name=x", "log_every_n_steps=1", "max_steps=3",
             "lr_scheduler.num_warmup_steps=0", "wandb.mode=disabled", *overrides]  # fmt: skip
    assert main(["run", "custom_lora", *words]) == 0
    return [line["train/loss"] for line in read_metrics(output_dir / "x") if "train/loss" in line]


@pytest.mark.parametrize("packed", [False, True])
def test_real_learner_sentences_train(tmp_path, data_dir, packed):
    folder = data_dir / "jfleg"
    texts = [(folder / name).read_text(encoding="utf-8").splitlines()[:40]
             for name in ("dev.src", "dev.ref0", "dev.ref1", "dev.ref2", "dev.ref3")]  # fmt: skip
    path = tmp_path / "jfleg.jsonl"
    rows = ({"sentence": s, "corrections": list(c)} for s, *c in zip(*texts, strict=True))
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    losses = run_smollm2(
        "smollm2_135m_grammar", tmp_path, f"dataset.source={path}", "dataset.max_seq_len=320",
        "dataset.column_map={input: sentence, output: corrections}", f"packed={packed}",
        f"batch_size={1 if packed else 4}",
    )  # fmt: skip
    assert len(losses) == 3 and all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] < 5  # far below log(49152) = 10.8 of a model that knows nothing


def test_real_dialogues_train(tmp_path, data_dir):
    losses = run_smollm2(
        "smollm2_135m_summarize", tmp_path, "dataset_val=null", "batch_size=2",
        f"dataset.source={data_dir / 'dialogsum' / 'dev.jsonl'}", "dataset.max_seq_len=512",
        "dataset.column_map={input: dialogue, output: summary}",
    )  # fmt: skip
    assert len(losses) == 3 and all(map(math.isfinite, losses)) and losses[0] < 5


def test_real_conversations_train(tmp_path, data_dir):
    path = data_dir / "chat" / "identity_sharegpt.json"
    losses = run_smollm2(
        "smollm2_135m_instruct", tmp_path, "dataset_val=null", f"dataset.source={path}",
        "dataset.layout=sharegpt", "batch_size=2",
    )  # fmt: skip
    assert len(losses) == 3 and all(map(math.isfinite, losses)) and losses[0] < 5
