"""Load a checkpoint on fresh CPU processes, as the recipes do: watch their memory, or time them.

One process a rank builds the model on the meta device, parallelizes it and loads its part. Memory
is PSS summed over the ranks and the process that started them, so that a page counts once however
many of them map it. Watching costs: sampled every 50 ms, four ranks with 16 GB load half as fast as
unobserved ones. So a load is watched or timed, not both.
"""

import custom_components.compat  # noqa: F401

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from time import perf_counter

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessContext, start_processes
from torchtune.modules import TransformerDecoder

from custom_components.hardware.memory import read_pss_bytes
from custom_components.models.adapters import freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.nf4 import is_nf4
from custom_components.models.weights import load_weights
from custom_components.options import DataParallel
from custom_components.training.distributed import World, open_world
from custom_components.training.parallel import parallelize

DTYPE = torch.bfloat16
SAMPLE_EVERY_S = 0.05


@dataclass(frozen=True)
class Case:
    """A way to hold the model.

    Args:
        name: For people.
        build_decoder: Builds it, on the meta device, with adapters; a module's own function,
            because the ranks import it.
        data_parallel: See ``options.py``.
        num_ranks: Processes.
        max_pss_bytes: What all of them may take at most, at any time.
    """

    name: str
    build_decoder: Callable[[], TransformerDecoder]
    data_parallel: DataParallel
    num_ranks: int
    max_pss_bytes: float


@dataclass(frozen=True)
class Memory:
    """PSS of all processes of a load.

    Args:
        base_bytes: Before the first weight: interpreters and libraries.
        peak_bytes: The most at any time.
        seconds: Of the slowest rank, watched.
    """

    base_bytes: int
    peak_bytes: int
    seconds: float


@dataclass(frozen=True)
class _RankReport:
    seconds: float
    pss_before_bytes: int
    pss_after_bytes: int


def build_on_meta(case: Case) -> TransformerDecoder:
    """Return the model without memory, its base frozen."""
    with torch.device("meta"):
        decoder = case.build_decoder()
    freeze_base(decoder)
    return decoder


def count_stored_bytes(case: Case) -> int:
    """Return the bytes of all parameters on all ranks, by formula.

    NF4 takes 4 bits a number, one byte a block of 64 and one factor a block of those. Adapters are
    fp32 where they are sharded.
    """
    sharded = case.data_parallel == "shard" and case.num_ranks > 1
    total = 0.0
    for parameter in build_on_meta(case).parameters():
        num = parameter.numel()
        if is_nf4(parameter):
            num_blocks = num / parameter.block_size
            num_factors = num_blocks / parameter.scaler_block_size
            total += num / 2 + num_blocks + num_factors * DTYPE.itemsize
        else:
            total += num * (4 if sharded and parameter.requires_grad else DTYPE.itemsize)
    return round(total) if sharded else round(total) * case.num_ranks


def time_load(case: Case, folder: Path) -> float:
    """Return the seconds of the slowest rank, all having started together.

    Parameters own their memory, so every weight has been read by then.

    Raises:
        torch.multiprocessing.ProcessRaisedException: With its traceback, if a rank fails.
    """
    ranks, reports = _start_ranks(case, folder)
    while not ranks.join():
        pass
    return max(reports.get().seconds for _ in range(case.num_ranks))


def watch_load(case: Case, folder: Path) -> Memory:
    """Return what the processes of a load take.

    Raises:
        torch.multiprocessing.ProcessRaisedException: With its traceback, if a rank fails.
    """
    ranks, reports = _start_ranks(case, folder)
    peak = 0
    while not ranks.join(timeout=SAMPLE_EVERY_S):
        pids = ranks.pids()  # type: ignore[no-untyped-call]
        peak = max(peak, sum(read_pss_bytes(pid) for pid in (os.getpid(), *pids)))
    by_rank = [reports.get() for _ in range(case.num_ranks)]
    return Memory(
        base_bytes=sum(report.pss_before_bytes for report in by_rank),
        peak_bytes=max(peak, sum(report.pss_after_bytes for report in by_rank)),
        seconds=max(report.seconds for report in by_rank),
    )


def _start_ranks(case: Case, folder: Path) -> tuple[ProcessContext, "SimpleQueue[_RankReport]"]:
    reports: SimpleQueue[_RankReport] = multiprocessing.get_context("spawn").SimpleQueue()
    ranks = start_processes(  # type: ignore[no-untyped-call]
        _load_on_rank,
        (case, folder, _find_free_port(), reports),
        case.num_ranks,
        join=False,
        daemon=True,
        start_method="spawn",
    )
    return ranks, reports


def _load_on_rank(
    rank: int, case: Case, folder: Path, port: int, reports: "SimpleQueue[_RankReport]"
) -> None:
    size = str(case.num_ranks)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    with open_world("cpu") as world:
        decoder = build_on_meta(case)
        parallelize(
            CausalLM(decoder),
            world,
            data_parallel=case.data_parallel,
            activation_checkpointing="none",
            compile_layers=False,
            dtype=DTYPE,
        )
        dist.barrier()
        before = _read_pss_bytes(world)
        dist.barrier()
        started = perf_counter()
        load_weights(decoder, str(folder), device=world.device, dtype=DTYPE, seed=0)
        seconds = perf_counter() - started
        dist.barrier()  # all weights of all ranks are there
        reports.put(_RankReport(seconds, before, _read_pss_bytes(world)))
        dist.barrier()  # and stay until everyone has looked


def _read_pss_bytes(world: World) -> int:
    """Return this process's PSS, on rank 0 together with that of the process that started it."""
    return read_pss_bytes(os.getpid()) + (read_pss_bytes(os.getppid()) if world.is_main else 0)


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
