"""Records: what is written, what is refused, what the reader makes of a resumed run."""

import json
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from custom_components.observability.records import (
    NullRecords,
    close_abandoned,
    open_records,
    read_metrics,
)
from custom_components.options import WandbOptions

QUIET = WandbOptions(mode="disabled")
CONFIG = OmegaConf.create({"seed": 3, "home": "${oc.env:HOME}"})


def open_quietly(run_dir: Path, *, is_main: bool = True):
    return open_records(run_dir, wandb=QUIET, recipe="custom_lora", config=CONFIG, is_main=is_main)


def write_lines(run_dir: Path, *lines: dict) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run_dir / "metrics.jsonl").write_text(text)


def test_a_finished_run_leaves_config_metrics_and_status(tmp_path: Path) -> None:
    with open_quietly(tmp_path / "run") as records:
        records.log({"train/loss": 1.5}, step=1)
        records.summary["tokens_seen"] = 7
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["tokens_seen"]) == ("finished", 7)
    [line] = read_metrics(tmp_path / "run")
    assert (line["global_step"], line["attempt"], line["train/loss"]) == (1, 0, 1.5)
    assert "${oc.env:HOME}" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_failed_run_says_so_and_keeps_its_metrics(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), open_quietly(tmp_path) as records:
        records.log({"train/loss": 2.0}, step=1)
        raise RuntimeError("the node went away")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert summary["error"] == "RuntimeError: the node went away"
    assert read_metrics(tmp_path)[0]["train/loss"] == 2.0


def test_an_abandoned_summary_gets_its_end_and_a_finished_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    close_abandoned(tmp_path / "no run", "failed")
    summary = tmp_path / "summary.json"
    summary.write_text('{"status": "running", "attempt": 0}')
    close_abandoned(tmp_path, "failed")
    assert json.loads(summary.read_text())["status"] == "failed"
    summary.write_text('{"status": "finished", "attempt": 0}')
    close_abandoned(tmp_path, "failed")
    assert json.loads(summary.read_text())["status"] == "finished"


def test_an_error_is_kept_without_the_secret_in_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), open_quietly(tmp_path):
        raise RuntimeError("cannot read https://me:hunter22@host/x")
    assert "hunter22" not in (tmp_path / "summary.json").read_text()


def test_a_line_is_on_disk_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    with open_quietly(tmp_path) as records:
        records.log({"train/loss": 2.0}, step=1)
        assert len(read_metrics(tmp_path)) == 1
        assert json.loads((tmp_path / "summary.json").read_text())["status"] == "running"


def test_tensors_and_unknown_names_are_refused(tmp_path: Path) -> None:
    """torchtune logs tensors as metrics, which no reader of the file can use."""
    with open_quietly(tmp_path) as records:
        with pytest.raises(TypeError, match="train/loss is Tensor"):
            records.log({"train/loss": torch.tensor(1.0)}, step=1)
        with pytest.raises(KeyError, match="train/lossy"):
            records.log({"train/lossy": 1.0}, step=1)


def test_samples_are_lines_with_their_step(tmp_path: Path) -> None:
    samples = [{"output": "one\ntwo", "references": ["1", "2"], "rouge_l": 50.0}, {"output": "é"}]
    with open_quietly(tmp_path) as records:
        records.log_samples(samples, step=3)
        lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"global_step": 3, "attempt": 0, **sample} for sample in samples
    ]


def test_the_last_attempt_at_a_step_wins(tmp_path: Path) -> None:
    write_lines(
        tmp_path,
        {"global_step": 1, "attempt": 0, "train/loss": 3.0},
        {"global_step": 2, "attempt": 0, "train/loss": 2.0},
        {"global_step": 2, "attempt": 0, "ckpt/bytes": 10},
        {"global_step": 2, "attempt": 1, "train/loss": 2.5},
    )
    first, second = read_metrics(tmp_path)
    assert first["train/loss"] == 3.0
    assert second["train/loss"] == 2.5 and "ckpt/bytes" not in second


def test_lines_of_one_step_and_attempt_are_joined(tmp_path: Path) -> None:
    write_lines(
        tmp_path,
        {"global_step": 2, "attempt": 0, "train/loss": 2.0},
        {"global_step": 2, "attempt": 0, "ckpt/bytes": 10},
    )
    [line] = read_metrics(tmp_path)
    assert (line["train/loss"], line["ckpt/bytes"]) == (2.0, 10)


def test_a_last_line_cut_by_a_crash_is_left_out_and_damage_before_it_is_named(
    tmp_path: Path,
) -> None:
    write_lines(tmp_path, {"global_step": 1, "attempt": 0, "train/loss": 3.0})
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"global_step": 2, "att')
    assert len(read_metrics(tmp_path)) == 1
    path.write_text('{"global_st\n' + whole)
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1"):
        read_metrics(tmp_path)


def test_ranks_that_do_not_log_write_nothing(tmp_path: Path) -> None:
    with open_quietly(tmp_path / "run", is_main=False) as records:
        assert isinstance(records, NullRecords)
        records.log({"train/loss": 1.0}, step=1)
        records.log_samples([{"output": "x"}], step=1)
    assert not (tmp_path / "run").exists()


def test_samples_reach_wandb_too(tmp_path: Path) -> None:
    offline = WandbOptions(mode="offline")
    with open_records(
        tmp_path, wandb=offline, recipe="custom_lora", config=CONFIG, is_main=True
    ) as records:
        records.log_samples([{"id": "f:1", "output": "a"}, {"id": "f:2", "output": "b"}], step=3)
    [table] = [json.loads(path.read_text()) for path in tmp_path.rglob("*.table.json")]
    assert table["data"] == [[3, "f:1", "a"], [3, "f:2", "b"]]
