"""CPU threads for each rank on this machine."""

import os


def num_threads_per_rank(local_world_size: int, requested: int | None = None) -> int:
    """Return how many CPU threads one rank should use.

    Args:
        local_world_size: Ranks on this machine.
        requested: The config's ``num_threads``; None leaves the choice to ``OMP_NUM_THREADS`` if
            the environment sets it, else an equal share of the cores this process may use.
    """
    if requested is not None:
        return requested
    from_environment = os.environ.get("OMP_NUM_THREADS", "")
    if from_environment.isdigit() and int(from_environment) > 0:
        return int(from_environment)
    return max(1, len(os.sched_getaffinity(0)) // local_world_size)
