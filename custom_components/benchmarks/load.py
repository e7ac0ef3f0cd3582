"""Load weights of LLaMA-3-8B's shapes on the CPU: memory against its bound, speed against the disk.

Run it: ``make bench-load``, or ``python -m custom_components.benchmarks.load [FOLDER]``. It needs
16 GB of disk and 20 GiB of memory. FOLDER keeps the checkpoint, random numbers in four files, for
the next run; without it they go to a temporary folder.

Two cases: bf16 split over four ranks, and NF4 whole on one. Each is loaded once under watch, for
its peak memory; the exit code is 1 if that breaks the bound. Then, for bf16 and in rounds, the
files are read from end to end into a small buffer, which is the disk's own rate; read tensor by
tensor with the loader's reader; and loaded. Before each the kernel's cached pages are dropped, and
that they are gone is checked.

Out come a table on stderr and one JSON result line a figure on stdout.
"""

import custom_components.compat  # noqa: F401

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from mmap import PAGESIZE
from pathlib import Path
from time import perf_counter

from torchtune.models.llama3 import lora_llama3_8b
from torchtune.modules import TransformerDecoder

from custom_components.benchmarks.load_ranks import (
    DTYPE,
    Case,
    Memory,
    build_on_meta,
    count_stored_bytes,
    time_load,
    watch_load,
)
from custom_components.benchmarks.results import build_result, print_result
from custom_components.errors import UserError
from custom_components.hardware.memory import GIB, count_cached_bytes, drop_cached_pages
from custom_components.launch import report_failure
from custom_components.models.hf_export import stage_folder
from custom_components.models.safetensors_writer import TensorPlan, write_weights
from custom_components.models.sources import RANDOM
from custom_components.models.tensor_names import checkpoint_name
from custom_components.models.weights import base_parameters, check_weights, open_base

STUDY = "bench-load"
BUFFER_BYTES = 16 * 2**20


def build_bf16() -> TransformerDecoder:
    """Build LLaMA-3-8B with a LoRA of rank 8."""
    return lora_llama3_8b(["q_proj", "v_proj"], lora_rank=8, lora_alpha=16)


def build_nf4() -> TransformerDecoder:
    """Build the same with its layers' matrices in NF4."""
    return lora_llama3_8b(["q_proj", "v_proj"], lora_rank=8, lora_alpha=16, quantize_base=True)


SHARD_BF16 = Case("bf16, shard, 4 ranks", build_bf16, "shard", 4, max_pss_bytes=19 * GIB)
WHOLE_NF4 = Case("NF4, replicate, 1 rank", build_nf4, "replicate", 1, max_pss_bytes=8 * GIB)
ROUNDS = {SHARD_BF16: 3, WHOLE_NF4: 0}
"""Quantising takes minutes, which neither the disk nor being watched changes much: the load under
watch tells."""


# ---- Checkpoint ----------------------------------------------------------------------------------
def write_random_checkpoint(decoder: TransformerDecoder, folder: Path) -> None:
    """Write random base weights for ``decoder`` in Hugging Face's layout.

    Args:
        decoder: On the meta device.
        folder: Exists and is empty.

    Raises:
        UserError: If the disk is too full.
    """
    base = base_parameters(decoder)
    names = {checkpoint_name(name, "hf"): name for name in base}
    plan = [TensorPlan(key, tuple(base[name].shape), DTYPE) for key, name in names.items()]
    num_needed = sum(tensor.num_bytes for tensor in plan)
    num_free = shutil.disk_usage(folder).free
    if num_free < num_needed:
        raise UserError(
            f"FOLDER: the checkpoint takes {num_needed / 1e9:.1f} GB and {folder} has "
            f"{num_free / 1e9:.1f} GB free: give a folder on another disk"
        )
    draw = open_base(decoder, RANDOM, seed=0)
    write_weights(folder, plan, lambda key: draw(names[key]).to(DTYPE))


@contextmanager
def open_checkpoint(decoder: TransformerDecoder, kept: Path | None) -> Iterator[Path]:
    """Yield a folder with a complete checkpoint for ``decoder``.

    Args:
        decoder: On the meta device.
        kept: Where the checkpoint is, or is written if there is nothing, and stays. None removes
            it at the end.

    Yields:
        The folder.

    Raises:
        UserError: If ``kept`` holds anything else, which is never overwritten.
    """
    with tempfile.TemporaryDirectory(prefix="bench-load-") as temporary:
        folder = kept or Path(temporary, "checkpoint")
        if not folder.exists():
            sys.stderr.write(f"writing the checkpoint to {folder}\n")
            with stage_folder(folder) as staging:
                write_random_checkpoint(decoder, staging)
        problems = check_weights(decoder, str(folder))
        if problems:
            raise UserError(*(f"FOLDER: {problem}" for problem in problems))
        yield folder


# ---- Measuring -----------------------------------------------------------------------------------
@dataclass
class Timings:
    """Seconds, one number a round.

    Args:
        plain_read: Of reading the files.
        tensor_read: Of reading every tensor in one process.
        load: Of loading, on the slowest rank.
    """

    plain_read: list[float] = field(default_factory=list)
    tensor_read: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


def find_shards(folder: Path) -> list[Path]:
    """Return the files with the checkpoint's tensors."""
    return sorted(folder.glob("*.safetensors"))


def empty_page_cache(folder: Path) -> None:
    """Send the next reader of the checkpoint to the disk.

    Raises:
        UserError: If the kernel keeps more than a hundredth of a file, as where the disk is memory.
    """
    for shard in find_shards(folder):
        drop_cached_pages(shard)
        cached = count_cached_bytes(shard)
        if cached > shard.stat().st_size / 100:
            raise UserError(
                f"FOLDER: {cached:,} bytes of {shard} stay in memory and would be timed instead of "
                "the disk: give a folder on a disk"
            )


def time_plain_read(folder: Path) -> float:
    """Return the seconds to read every file from end to end."""
    buffer = bytearray(BUFFER_BYTES)
    started = perf_counter()
    for shard in find_shards(folder):
        with shard.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return perf_counter() - started


def time_tensor_reads(decoder: TransformerDecoder, folder: Path) -> float:
    """Return the seconds in which the loader's reader reads every whole tensor.

    It maps the file's pages, so one number of each is used.
    """
    started = perf_counter()
    read = open_base(decoder, str(folder), seed=0)
    for name in base_parameters(decoder):
        read(name).flatten()[:: PAGESIZE // DTYPE.itemsize].sum()
    return perf_counter() - started


def measure_rounds(case: Case, folder: Path, num_rounds: int) -> Timings:
    """Let the reads and the load take turns, each from an empty page cache."""
    decoder = build_on_meta(case)
    timings = Timings()
    for _ in range(num_rounds):
        empty_page_cache(folder)
        timings.plain_read.append(time_plain_read(folder))
        empty_page_cache(folder)
        timings.tensor_read.append(time_tensor_reads(decoder, folder))
        empty_page_cache(folder)
        timings.load.append(time_load(case, folder))
    return timings


# ---- Reporting -----------------------------------------------------------------------------------
def report_memory(case: Case, memory: Memory) -> bool:
    """Print a case's memory and say whether its bound holds."""
    setting = {"case": case.name, "bound_gib": case.max_pss_bytes / GIB}
    peak, base, stored = (
        num_bytes / GIB
        for num_bytes in (memory.peak_bytes, memory.base_bytes, count_stored_bytes(case))
    )
    for metric, value in (("peak PSS", peak), ("PSS before loading", base)):
        print_result(build_result(STUDY, setting, metric, [value], "GiB"))
    print_result(build_result(STUDY, setting, "load time, watched", [memory.seconds], "s"))
    formula = build_result(
        STUDY, setting, "parameters, by formula", [stored], "GiB", measured=False
    )
    print_result(formula)
    holds = memory.peak_bytes <= case.max_pss_bytes
    sys.stderr.write(
        f"{case.name}: peak PSS {peak:.2f} GiB, {'within' if holds else 'BREAKS'} the bound of "
        f"{case.max_pss_bytes / GIB:.2f}: {stored:.2f} parameters, {base:.2f} before loading, "
        f"{peak - stored - base:.2f} more; {memory.seconds:.0f} s under watch\n"
    )
    return holds


def report_timings(case: Case, timings: Timings, num_bytes: int) -> None:
    """Print a case's seconds, and its rate as a share of the disk's own.

    Args:
        case: What was loaded.
        timings: Of its rounds.
        num_bytes: In the files.
    """
    setting = {"case": case.name, "bytes": num_bytes}
    for metric, seconds in (
        ("read time, plain", timings.plain_read),
        ("read time, tensor by tensor", timings.tensor_read),
        ("load time", timings.load),
    ):
        print_result(build_result(STUDY, setting, metric, seconds, "s"))
        sys.stderr.write(
            f"  {metric:28} {statistics.median(seconds):7.1f} s "
            f"({min(seconds):.1f}-{max(seconds):.1f})\n"
        )
    rates = [num_bytes / seconds for seconds in timings.load]
    shares = [read / load for read, load in zip(timings.plain_read, timings.load, strict=True)]
    print_result(build_result(STUDY, setting, "load rate", rates, "bytes/s"))
    print_result(build_result(STUDY, setting, "load rate / disk rate", shares, "ratio"))
    sys.stderr.write(
        f"  load rate {statistics.median(rates) / 1e9:.2f} GB/s, {statistics.median(shares):.2f}x "
        f"the disk's ({min(shares):.2f}-{max(shares):.2f})\n"
    )


def main() -> int:
    """Measure, print and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    folder = parser.parse_args().folder
    try:
        with open_checkpoint(build_on_meta(SHARD_BF16), folder) as checkpoint:
            return run(checkpoint)
    except UserError as error:
        return report_failure(error)


def run(folder: Path) -> int:
    """Measure both cases on a checkpoint and return the exit code."""
    num_bytes = sum(shard.stat().st_size for shard in find_shards(folder))
    bounds_hold = True
    for case, num_rounds in ROUNDS.items():
        bounds_hold &= report_memory(case, watch_load(case, folder))
        if num_rounds:
            report_timings(case, measure_rounds(case, folder, num_rounds), num_bytes)
    return 0 if bounds_hold else 1


if __name__ == "__main__":
    sys.exit(main())
