"""Run a function on several real processes that form a gloo group."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preload"])


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _child(
    pipe: Connection, rank: int, size: int, port: int, function: Callable[..., Any], args: Any
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    try:
        pipe.send((True, function(*args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def run_ranks(
    size: int, function: Callable[..., Any], *args: Any, timeout_s: float = 240
) -> list[Any]:
    """Call ``function(*args)`` on ``size`` processes with torchrun's environment.

    Returns the results in rank order; the first failure of any rank is raised at once and the
    other ranks are ended, as is everything after ``timeout_s``.
    """
    port = find_free_port()
    pipes, processes = [], []
    for rank in range(size):
        ours, theirs = _context.Pipe(duplex=False)
        process = _context.Process(
            target=_child, args=(theirs, rank, size, port, function, args), daemon=True
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    results: dict[int, Any] = {}
    try:
        while len(results) < size:
            waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in results]
            ready = wait(waiting, timeout=timeout_s)
            if not ready:
                raise TimeoutError(f"ranks {sorted(set(range(size)) - results.keys())} hang")
            for pipe in ready:
                rank = pipes.index(pipe)
                try:
                    succeeded, value = pipe.recv()
                except EOFError:
                    raise RuntimeError(f"rank {rank} died without a word") from None
                if not succeeded:
                    raise RuntimeError(f"rank {rank} failed:\n{value}")
                results[rank] = value
    finally:
        for process in processes:
            if len(results) < size:
                process.kill()
            process.join(timeout=30)
    return [results[rank] for rank in range(size)]
