import os
from pathlib import Path

from custom_components.errors import UserError
from tests.ranks import run_ranks


def build_on_ranks(folder: str, failure: str) -> tuple[str, str]:
    """Build in turn; return what was built or raised, and which rank built first."""
    from custom_components.training.distributed import open_world

    with open_world("cpu") as world:
        marker = Path(folder) / "built"

        def build() -> str:
            if failure == "user":
                raise UserError("row 7 is empty")
            if failure == "bug":
                raise KeyError("oops")
            if world.rank > 0:
                return f"found what rank {marker.read_text()} left"
            marker.write_text(str(world.rank))
            return "built"

        try:
            result = world.build_in_turn(build)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return result, os.environ["RANK"]


def test_one_rank_builds_while_the_others_wait(tmp_path):
    results = run_ranks(3, build_on_ranks, str(tmp_path), "")
    assert [result for result, _ in results] == [
        "built",
        "found what rank 0 left",
        "found what rank 0 left",
    ]


def build_on_two_nodes(folder: str) -> str:
    """Build in turn on four ranks, two a node, each node with a disk of its own."""
    from custom_components.training.distributed import open_world

    node, local_rank = divmod(int(os.environ["RANK"]), 2)
    os.environ |= {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": "2"}
    marker = Path(folder) / f"node{node}"
    with open_world("cpu") as world:

        def build() -> str:
            if marker.exists():
                return f"found what rank {marker.read_text()} left"
            marker.write_text(str(world.rank))
            return "built"

        return world.build_in_turn(build)


def test_one_rank_of_every_node_builds(tmp_path):
    assert run_ranks(4, build_on_two_nodes, str(tmp_path)) == [
        "built",
        "found what rank 0 left",
        "built",
        "found what rank 2 left",
    ]


def test_mistake_found_by_the_rank_that_builds_is_every_ranks(tmp_path):
    results = run_ranks(2, build_on_ranks, str(tmp_path), "user")
    assert [result for result, _ in results] == ["UserError: row 7 is empty"] * 2


def test_no_rank_waits_for_one_that_failed(tmp_path):
    results = run_ranks(2, build_on_ranks, str(tmp_path), "bug")
    assert [result for result, _ in results] == ["KeyError: 'oops'", "RuntimeError: rank 0 failed"]
