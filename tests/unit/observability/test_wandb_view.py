"""The W&B view with the real wandb package: offline without a key, and never fatal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from custom_components.observability.wandb_view import WandbView, choose_mode
from custom_components.options import WandbOptions


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def open_view(run_dir: Path, mode: str = "auto") -> WandbView:
    run_dir.mkdir(parents=True, exist_ok=True)
    return WandbView(WandbOptions(mode=mode), run_dir, recipe="custom_lora", config={"seed": 1})


def test_a_key_decides_between_online_and_offline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert choose_mode(WandbOptions()) == "offline"
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.wandb.ai login user password 0123\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert choose_mode(WandbOptions()) == "online"
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_API_KEY", "0123")
    assert choose_mode(WandbOptions()) == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert choose_mode(WandbOptions()) == "offline"
    assert choose_mode(WandbOptions(mode="online")) == "online"


def test_offline_run_holds_what_was_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without key and terminal stock W&B raises, on one rank only (wandb/wandb#960)."""
    view = open_view(tmp_path / "run")
    view.log({"train/loss": 2.5}, step=1)
    view.log({"train/loss": 1.5}, step=3)
    view.finish(failed=False)
    assert "wandb sync" in capsys.readouterr().out
    history = read_history(tmp_path / "run")
    assert len(history) == 2
    assert "2.5" in json.dumps(history[0]) and "train/loss" in json.dumps(history[0])


def read_history(run_dir: Path) -> list[dict]:
    """Return what was logged to an offline run, by W&B's own reader."""
    wandb = Path(sys.executable).parent / "wandb"
    [file] = (run_dir / "wandb").glob("offline-run-*/*.wandb")
    text = subprocess.run(
        [wandb, "leet", "inspect", "--json", file], capture_output=True, text=True, check=True
    ).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if row.get("type") == "history"]


def test_samples_are_a_table_of_their_step(tmp_path: Path) -> None:
    view = open_view(tmp_path / "run", mode="offline")
    view.log_samples([], step=1)  # nothing to show
    for step in (2, 4):
        sample = {"id": "f:1", "output": "a\nb", "references": ["one", "two"], "rouge_l": 12.5}
        view.log_samples([sample, sample | {"id": "f:2", "rouge_l": 0}], step=step)
    view.finish(failed=False)
    history = read_history(tmp_path / "run")
    assert len(history) == 2
    assert "table-file" in json.dumps(history[0]) and "samples" in json.dumps(history[0])
    tables = [
        json.loads(path.read_text()) for path in (tmp_path / "run" / "wandb").rglob("*.table.json")
    ]
    assert len(tables) == 2
    for step, table in zip((2, 4), sorted(tables, key=lambda table: table["data"][0]), strict=True):
        assert table["columns"] == ["global_step", "id", "output", "references", "rouge_l"]
        assert table["data"] == [
            [step, "f:1", "a\nb", "one\ntwo", 12.5],
            [step, "f:2", "a\nb", "one\ntwo", 0],
        ]


def test_a_raising_wandb_is_said_once_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = open_view(tmp_path / "run", mode="offline")
    run = view._run

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("No space left on device")

    view._run.log = fail
    view.log({"train/loss": 1.0}, step=1)
    view.log({"train/loss": 1.0}, step=2)
    view.finish(failed=False)
    del run.log
    run.finish()
    said = capsys.readouterr().out
    assert said.count("W&B stopped (OSError: No space left on device)") == 1


def test_a_server_that_is_not_there_gives_an_offline_run_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record of a run on a node without network must not be lost (wandb/wandb#960)."""
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("custom_components.observability.wandb_view.TIMEOUT_S", 3)
    view = open_view(tmp_path / "run")
    view.log({"train/loss": 1.0}, step=1)
    view.finish(failed=False)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert said[0].startswith("W&B online did not start (")
    assert said[1].startswith("W&B offline: wandb sync ")
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))


def test_the_command_line_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B keeps the arguments of a run; an override may hold a secret."""
    monkeypatch.setattr("sys.argv", ["custom_lora.py", "dataset.api_key=CANARY-7f3a"])
    view = open_view(tmp_path / "run")
    view.log({"train/loss": 1.0}, step=1)
    view.finish(failed=False)
    assert sys.argv[1:] == ["dataset.api_key=CANARY-7f3a"]
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert any(file.suffix == ".wandb" for file in files)
    assert not [file for file in files if b"CANARY-7f3a" in file.read_bytes()]


def test_disabled_writes_nothing(tmp_path: Path) -> None:
    view = open_view(tmp_path / "run", mode="disabled")
    view.log({"train/loss": 1.0}, step=1)
    view.finish(failed=False)
    assert not list((tmp_path / "run").iterdir())
