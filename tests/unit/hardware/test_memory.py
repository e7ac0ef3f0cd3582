"""Peak memory of a process that allocated a known amount."""

import subprocess
import sys

ALLOCATE = """
import torch
from custom_components.hardware.memory import read_peak_memory
cpu = torch.device("cpu")
before = read_peak_memory(cpu)["mem/peak_rss_gib"]
block = torch.ones(2**28, dtype=torch.uint8)  # a quarter of a GiB
del block
print(read_peak_memory(cpu)["mem/peak_rss_gib"] - before)
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
