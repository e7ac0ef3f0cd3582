"""Memory of processes, on the host and on the device that holds the model, and of cached files."""

import ctypes
import mmap
import os
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


def reset_peak_memory(device: torch.device) -> None:
    """Let the peaks that ``read_peak_memory`` returns begin at what is held now.

    On the host only where there is no CUDA device; memory that was freed is given back first.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    release_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM, see proc(5)


def read_pss_bytes(pid: int) -> int:
    """Return a process's proportional set size: a page that n processes map counts 1/n.

    Summed over processes it counts every page once, mapped files and libraries included. The
    kernel walks the page tables for it, which takes about 10 ms a GB of memory.

    Args:
        pid: The process; one that has ended has none.
    """
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(rollup.split("Pss:")[1].split()[0]) * 1024


def release_freed_memory() -> None:
    """Give freed host memory back to the kernel, where the C library can (glibc).

    It keeps freed blocks for reuse. Where each lasting block was allocated among large temporary
    ones, as in quantising matrix after matrix, the gaps between them add up to gigabytes.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def drop_cached_pages(path: Path) -> None:
    """Make the next reader of a file go to the disk: write it back, then let go of its pages.

    Pages that a process has mapped stay, and the kernel may keep others: see
    ``count_cached_bytes``.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())  # pages not yet written cannot be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def count_cached_bytes(path: Path) -> int:
    """Return how much of a file, which must not be empty, lies in the page cache (``mincore``)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as pages:
        states = (ctypes.c_ubyte * -(-len(pages) // mmap.PAGESIZE))()
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(pages)), states):
            raise OSError(ctypes.get_errno(), "mincore", str(path))
    return min(path.stat().st_size, sum(state & 1 for state in states) * mmap.PAGESIZE)
