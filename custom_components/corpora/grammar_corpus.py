"""The embedded grammar corpus: wrong and corrected English sentences, made here, no file needed.

``build_grammar_corpus("train")`` gives 2,400 pairs and ``"heldout"`` 240, the same ones in every
process. A sentence is a frame with its slots filled; one to three errors are put into it, and one
pair in ten stays correct.

The splits share no filling of a frame and no sentence. Of the held-out pairs about two thirds come
from frames that training never sees (every sixth frame); the others are new fillings of frames that
it does see.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from custom_components.corpora.grammar_errors import corrupt
from custom_components.corpora.grammar_frames import Frame, load_frames, read_tokens, render
from custom_components.datasets.rows import Row

Split = Literal["train", "heldout"]
SPLITS: tuple[Split, ...] = ("train", "heldout")
NUM_PAIRS: dict[Split, int] = {"train": 2400, "heldout": 240}

_CORRECT_EVERY = 10
_SHARE_BY_NUM_ERRORS = {1: 0.3, 2: 0.4, 3: 0.3}
_UNSEEN_EVERY = 6
_HELDOUT_PER_UNSEEN_FRAME = 3
_TRAIN_PER_FRAME = 9
_HELDOUT_PER_SEEN_FRAME = 0.3
"""Fraction of the frames of training that also give the held-out split one new filling."""


@dataclass(frozen=True)
class GrammarPair:
    """A sentence with errors and the sentence without them.

    Args:
        id: ``embedded/<split>:<row>``, rows from 1.
        source: The sentence to correct.
        target: The corrected sentence; equal to the source when ``kinds`` is empty.
        kinds: What is wrong with the source, see ``grammar_errors.KINDS``.
        frame: Which frame the sentence comes from.
        fillers: What stands in the frame's slots.
    """

    id: str
    source: str
    target: str
    kinds: tuple[str, ...]
    frame: str
    fillers: tuple[str, ...]


def build_grammar_corpus(split: Split) -> list[GrammarPair]:
    """Return the pairs of a split, in a fixed shuffled order.

    Args:
        split: ``train`` or ``heldout``.

    Raises:
        KeyError: If there is no such split.
    """
    return list(_build_splits()[split])


def build_rows(split: Split) -> list[Row]:
    """Return the pairs of a split as rows with the columns ``input`` and ``output``.

    Args:
        split: ``train`` or ``heldout``.
    """
    return [
        Row(pair.id, {"input": pair.source, "output": pair.target})
        for pair in build_grammar_corpus(split)
    ]


@cache
def _build_splits() -> dict[Split, tuple[GrammarPair, ...]]:
    fillings: dict[Split, list[tuple[Frame, int]]] = {"train": [], "heldout": []}
    for number, frame in enumerate(load_frames(), start=1):
        for split, combo in _deal(frame, unseen=number % _UNSEEN_EVERY == 0):
            fillings[split].append((frame, combo))
    return {split: tuple(_build_pairs(split, fillings[split])) for split in SPLITS}


def _deal(frame: Frame, *, unseen: bool) -> Iterator[tuple[Split, int]]:
    """Give each split its fillings of one frame: never the same filling to both."""
    rng = random.Random(frame.id)
    num_train = 0 if unseen else _TRAIN_PER_FRAME
    num_heldout = (
        _HELDOUT_PER_UNSEEN_FRAME if unseen else int(rng.random() < _HELDOUT_PER_SEEN_FRAME)
    )
    wanted = min(frame.num_combos, num_train + num_heldout)
    combos = rng.sample(range(frame.num_combos), wanted)
    for position, combo in enumerate(combos):
        yield ("heldout" if position < num_heldout else "train"), combo


def _build_pairs(split: Split, fillings: list[tuple[Frame, int]]) -> Iterator[GrammarPair]:
    rng = random.Random(split)
    rng.shuffle(fillings)
    for row, (frame, combo) in enumerate(fillings[: NUM_PAIRS[split]], start=1):
        text, fillers = frame.fill(combo)
        tokens = read_tokens(text)
        num_errors = 0 if row % _CORRECT_EVERY == 0 else _draw_num_errors(rng)
        source, kinds = corrupt(tokens, num_errors, rng)
        yield GrammarPair(
            f"embedded/{split}:{row}", source, render(tokens), tuple(kinds), frame.id, fillers
        )


def _draw_num_errors(rng: random.Random) -> int:
    return rng.choices(list(_SHARE_BY_NUM_ERRORS), list(_SHARE_BY_NUM_ERRORS.values()))[0]
