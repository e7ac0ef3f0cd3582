"""Peak memory of this process, on the device that holds the model."""

import resource

import torch

GIB = 1024**3


def read_peak_memory(device: torch.device) -> dict[str, float]:
    """Return the peaks since start as metrics, in GiB.

    On CUDA these are the caching allocator's own counters. ``mem/peak_rss_gib`` is the resident
    set of the process (``ru_maxrss``), which on a CPU run includes the model.
    """
    rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    metrics = {"mem/peak_rss_gib": rss_kib * 1024 / GIB}
    if device.type == "cuda":
        metrics["mem/peak_allocated_gib"] = torch.cuda.max_memory_allocated(device) / GIB
        metrics["mem/peak_reserved_gib"] = torch.cuda.max_memory_reserved(device) / GIB
    return metrics
