"""Memory of a process that allocated a known amount, and of a file in the page cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from custom_components.hardware.memory import (
    count_cached_bytes,
    drop_cached_pages,
    read_pss_bytes,
)

MIB = 2**20
ALLOCATE = """
import torch
from custom_components.hardware.memory import read_peak_memory
cpu = torch.device("cpu")
before = read_peak_memory(cpu)["mem/peak_rss_gib"]
block = torch.ones(2**28, dtype=torch.uint8)  # a quarter of a GiB
del block
print(read_peak_memory(cpu)["mem/peak_rss_gib"] - before)
"""
SHARE = """
import os, sys
block = bytearray(os.urandom(2**26))
child = os.fork()
print(os.getpid(), flush=True)
sys.stdin.read()  # both live until the test has looked
"""


def test_the_peak_is_of_this_process_in_gib_and_outlives_the_tensor() -> None:
    """``ru_maxrss`` would hide the block behind the larger peak of the parent."""
    block = bytearray(2**30)
    block[::4096] = b"x" * len(block[::4096])
    run = subprocess.run(
        [sys.executable, "-c", ALLOCATE], capture_output=True, text=True, check=True
    )
    del block
    assert 0.2 < float(run.stdout) < 0.3


def test_memory_that_two_processes_share_counts_once_in_their_sum() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SHARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        sizes = [read_pss_bytes(pid) for pid in pids]
        parent.communicate()
    assert all(32 * MIB < size < 50 * MIB for size in sizes)
    assert [read_pss_bytes(pid) for pid in pids] == [0, 0]


def test_dropped_pages_leave_the_cache_and_reading_brings_them_back(tmp_path: Path) -> None:
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True)
    if kind.stdout.strip() in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is in memory")
    path = tmp_path / "file"
    num_bytes = 8 * MIB + 100  # the last page is not full
    path.write_bytes(os.urandom(num_bytes))
    assert count_cached_bytes(path) == num_bytes
    drop_cached_pages(path)
    assert count_cached_bytes(path) == 0
    path.read_bytes()
    assert count_cached_bytes(path) == num_bytes
