"""However a run ends, its folder says so: two ranks through ``tune run``, ended in several ways."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lora_runs import ON_CPU, write_pairs

TUNE = Path(sys.executable).parent / "tune"


def start(folder: Path, *words: str, ranks: int = 2) -> subprocess.Popen:
    launch = ["--nproc_per_node", str(ranks)] if ranks > 1 else []
    source = write_pairs(folder / "pairs.jsonl", 40)
    return subprocess.Popen(
        [
            TUNE, "run", *launch, "custom_lora", "llama3_8b_grammar", *ON_CPU,
            f"dataset.source={source}", f"output_dir={folder}", "lr_scheduler.num_warmup_steps=0",
            *words,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ,
    )  # fmt: skip


def wait_for(process: subprocess.Popen, words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"ended before {words!r}")


def read_status(run_dir: Path) -> str:
    return json.loads((run_dir / "summary.json").read_text())["status"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_sigterm_stops_the_run_and_its_status_says_so(tmp_path: Path, ranks: int) -> None:
    process = start(tmp_path, "run_name=run", "epochs=100000", ranks=ranks)
    wait_for(process, "step 2/")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    assert read_status(tmp_path / "run") == "stopped"


def test_a_killed_rank_ends_the_run_and_its_status_says_so(tmp_path: Path) -> None:
    process = start(tmp_path, "run_name=run", "epochs=100000")
    wait_for(process, "step 2/")
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "launch.py"], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(children[0]), signal.SIGKILL)
    assert process.wait(timeout=60) == 1
    assert read_status(tmp_path / "run") == "failed"
    for _ in range(50):
        if all(not Path("/proc", child).exists() for child in children):
            break
        time.sleep(0.1)
    assert all(not Path("/proc", child).exists() for child in children)


def test_runs_of_the_same_second_never_share_a_folder(tmp_path: Path) -> None:
    processes = [start(tmp_path, "max_steps=1", ranks=1) for _ in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    runs = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(runs) == 3
    assert [read_status(run) for run in runs] == ["finished"] * 3
    assert all(len((run / "metrics.jsonl").read_text().splitlines()) == 2 for run in runs)
