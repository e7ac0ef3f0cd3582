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


def test_the_peak_of_the_process_is_in_gib_and_outlives_the_tensor() -> None:
    run = subprocess.run(
        [sys.executable, "-c", ALLOCATE], capture_output=True, text=True, check=True
    )
    assert 0.2 < float(run.stdout) < 0.3
