"""Ranks, devices and process groups. One process is a world of one and takes the same path."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from custom_components.errors import UserError
from custom_components.hardware.threads import num_threads_per_rank

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """What a rank knows of itself and the others.

    The default process group serves both device types: collectives on CPU tensors run over gloo,
    those on CUDA tensors over NCCL.
    """

    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """True on the one rank that writes files and logs."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum ``tensor`` over all ranks in place, on its own device, and return it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is true on any rank, the same on all of them."""
        return bool(self.sum(torch.tensor(int(flag))).item())

    def leave(self) -> None:
        """Leave the group for good: what follows may take as long as it takes on each rank.

        Whoever waits in a collective for a rank that writes gigabytes runs into its time limit
        (pytorch/torchtune#2093).
        """
        dist.destroy_process_group()

    def mesh(self) -> DeviceMesh:
        """Return all ranks as one dimension of a device mesh."""
        return init_device_mesh(self.device.type, (self.size,))

    def build_in_turn(self, build: Callable[[], T]) -> T:
        """Call ``build`` on one rank of each node, then on the others.

        For what the first call leaves on disk and the others only read. They may wait for a day,
        not for the half hour of a collective.

        Args:
            build: Returns the same on every rank.

        Raises:
            UserError: On every rank, if one of the first ranks raised it.
            RuntimeError: On the others, if one of the first ranks failed otherwise.
        """
        if self.size == 1:
            return build()
        group: Any = dist.new_group(backend="gloo", timeout=timedelta(days=1))
        built: list[T] = []
        failure: BaseException | None = None
        if self.local_rank == 0:
            try:
                built.append(build())
            except Exception as error:
                failure = error
        problems: tuple[str, ...] | None = None
        if failure is not None:
            problems = failure.problems if isinstance(failure, UserError) else ()
        outcomes: list[tuple[str, ...] | None] = [None] * self.size
        dist.all_gather_object(outcomes, problems, group)
        dist.destroy_process_group(group)
        if failure is not None:
            raise failure
        for rank, outcome in enumerate(outcomes):
            if outcome is not None:
                raise UserError(*outcome) if outcome else RuntimeError(f"rank {rank} failed")
        return built[0] if built else build()

    def gather(self, value: T) -> list[T]:
        """Return every rank's picklable ``value`` in rank order. Slow: not for the hot path."""
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value)
        return values


def _init_process_group(device_type: str) -> None:
    backend = "cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:  # not started by torchrun: a world of one that needs no address
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)


@contextmanager
def open_world(device_type: str, *, num_threads: int | None = None) -> Iterator[World]:
    """Join the process group that torchrun announced, or make a group of one.

    The group is destroyed on a clean end only: after an error the other ranks may still be inside
    a collective, and waiting for them would hide the error.

    Args:
        device_type: ``cuda`` (one device a local rank) or ``cpu``.
        num_threads: CPU threads of this rank; None shares the cores among local ranks.

    Yields:
        This rank's view of the world.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(num_threads_per_rank(local_world_size, num_threads))
    device = torch.device("cpu")
    if device_type == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    _init_process_group(device_type)
    yield World(dist.get_rank(), dist.get_world_size(), local_rank, device)
    if dist.is_initialized():
        dist.destroy_process_group()
