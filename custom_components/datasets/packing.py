"""Best-fit-decreasing packing: rows into sequences of one capacity with little left over.

Rows are taken longest first and each goes where the least room is left that still takes it; only
where nowhere does is a new pack opened. That takes at most 11/9 of the fewest packs possible and
four more (https://doi.org/10.1137/0203025), in practice hardly more than the fewest.

Row by row that is slow for millions of them, so rows of one length are placed together: a pack with
room for several stays the best fit until it is full, and packs with equal room take the same
number. What is left to do then depends on the number of lengths, not on that of rows.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Packs:
    """Sequences of rows: plain rows are packs of one.

    Args:
        rows: Row indices, pack after pack, ``[num_rows]``.
        starts: Where in ``rows`` each pack starts, and the end, ``[num_packs + 1]``.
    """

    rows: Integers
    starts: Integers

    @classmethod
    def of_single_rows(cls, order: Integers) -> "Packs":
        """Return one pack for each row, in this order."""
        return cls(order, np.arange(len(order) + 1))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> list[int]:
        """Return the row indices of a pack."""
        rows: list[int] = self.rows[self.starts[index] : self.starts[index + 1]].tolist()
        return rows

    def reorder(self, order: Integers) -> "Packs":
        """Return the packs ``order[0]``, ``order[1]``, and so on."""
        sizes = np.diff(self.starts)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        rows = self.rows[np.argsort(np.repeat(place, sizes), kind="stable")]
        return Packs(rows, np.concatenate([[0], np.cumsum(sizes[order])]))


@dataclass
class _OpenPacks:
    """Packs with room left, by their room: contiguous ranges of pack numbers."""

    by_room: dict[int, list[range]] = field(default_factory=dict)
    rooms: list[int] = field(default_factory=list)  # the keys in ascending order

    def put(self, packs: range, room: int) -> None:
        if not packs or room == 0:
            return
        if room not in self.by_room:
            self.by_room[room] = []
            insort(self.rooms, room)
        self.by_room[room].append(packs)

    def take_best_fit(self, length: int) -> tuple[range, int] | None:
        """Remove and return packs with the least room that takes ``length``, and that room."""
        place = bisect_left(self.rooms, length)
        if place == len(self.rooms):
            return None
        room = self.rooms[place]
        packs = self.by_room[room].pop()
        if not self.by_room[room]:
            del self.by_room[room], self.rooms[place]
        return packs, room


def _place(counts: Integers, capacity: int) -> Iterator[tuple[range, int]]:
    """Yield (packs, rows in each of them) for all rows in descending order of length.

    Args:
        counts: Number of rows of each length, ``[longest + 1]``.
        capacity: Of a pack.
    """
    open_packs, num_packs = _OpenPacks(), 0
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            found = open_packs.take_best_fit(length)
            if found is None:
                num_new = -(-left // (capacity // length))
                found = range(num_packs, num_packs + num_new), capacity
                num_packs += num_new
            packs, room = found
            each = room // length
            full, rest = packs[: left // each], packs[left // each :]
            if full:
                yield full, each
                open_packs.put(full, room - each * length)
                left -= len(full) * each
            if rest and left:  # fewer than a pack takes
                yield rest[:1], left
                open_packs.put(rest[:1], room - left * length)
                rest, left = rest[1:], 0
            open_packs.put(rest, room)


def count_packs(lengths: Integers, *, capacity: int) -> int:
    """Return how many packs ``pack`` makes.

    Args:
        lengths: Of the rows, each from 1 to ``capacity``, ``[num_rows]``.
        capacity: Of a pack.
    """
    return max((packs.stop for packs, _ in _place(np.bincount(lengths), capacity)), default=0)


def pack(lengths: Integers, *, capacity: int, order: Integers | None = None) -> Packs:
    """Pack rows, best fit decreasing. The same arguments give the same packs.

    Inside a pack the longest row comes first, so that rows of equal length are neighbours.

    Args:
        lengths: Of the rows, each from 1 to ``capacity``, ``[num_rows]``.
        capacity: Of a pack.
        order: Permutation of the rows. Rows of equal length are taken in this order, so it decides
            which rows meet in a pack; how many packs there are, and how full, depends on the
            lengths alone.
    """
    if order is None:
        order = np.arange(len(lengths))
    if not len(lengths):
        return Packs(order, np.zeros(1, dtype=np.int64))
    assert lengths.min() >= 1 and lengths.max() <= capacity, "a row does not fit into a pack"
    longest_first = order[np.argsort(-lengths[order], kind="stable")]
    pack_of_row = np.concatenate(
        [
            np.repeat(np.arange(packs.start, packs.stop), each)
            for packs, each in _place(np.bincount(lengths), capacity)
        ]
    )
    rows = longest_first[np.argsort(pack_of_row, kind="stable")]
    return Packs(rows, np.concatenate([[0], np.cumsum(np.bincount(pack_of_row))]))
