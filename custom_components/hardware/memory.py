"""Peak memory of this process, on the device that holds the model."""

from pathlib import Path

import torch

GIB = 1024**3


def read_peak_memory(device: torch.device) -> dict[str, float]:
    """Return the peaks since start as metrics, in GiB.

    On CUDA these are the caching allocator's own counters. ``mem/peak_rss_gib`` is the peak
    resident set (``VmHWM``), which on a CPU run includes the model; ``ru_maxrss`` would begin
    with the peak of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    metrics = {"mem/peak_rss_gib": peak_kib * 1024 / GIB}
    if device.type == "cuda":
        metrics["mem/peak_allocated_gib"] = torch.cuda.max_memory_allocated(device) / GIB
        metrics["mem/peak_reserved_gib"] = torch.cuda.max_memory_reserved(device) / GIB
    return metrics
