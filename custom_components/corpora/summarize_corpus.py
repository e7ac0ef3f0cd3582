"""The embedded summarize corpus: dialogues and reports with their summaries, no file needed.

``build_rows("train")`` gives 600 rows and ``"heldout"`` 60, the same in every process, with the
columns ``input`` (8 to 25 sentences) and ``output`` (one or two). A document is a story with its
facts drawn, some lines left out and the wording chosen; what the summary says stands in it.

The splits share no document and no set of facts. Of the held-out rows half come from stories that
training never sees (every sixth); the others are new drawings of stories that it does see.
"""

import random
from functools import cache
from typing import Literal

from custom_components.corpora.summarize_dialogues_home import FAVOUR, FLAT, OUTING
from custom_components.corpora.summarize_dialogues_town import DOCTOR, LOST, SHOP
from custom_components.corpora.summarize_reports_town import LIBRARY, MATCH, STORM
from custom_components.corpora.summarize_reports_work import CLUB, PROJECT, TRIP
from custom_components.corpora.summarize_stories import Story
from custom_components.datasets.rows import Row

Split = Literal["train", "heldout"]
STORIES = (
    *(DOCTOR, OUTING, SHOP, FLAT, FAVOUR, LOST),
    *(STORM, LIBRARY, PROJECT, CLUB, TRIP, MATCH),
)

_UNSEEN_EVERY = 6
_TRAIN_PER_STORY = 60
_HELDOUT_PER_STORY = 3
_HELDOUT_PER_UNSEEN_STORY = 15


def build_rows(split: Split) -> list[Row]:
    """Return the rows of a split, in a fixed shuffled order; ids are ``embedded/<split>:<row>``.

    Args:
        split: ``train`` or ``heldout``.

    Raises:
        KeyError: If there is no such split.
    """
    pairs = _build_splits()[split]
    return [
        Row(f"embedded/{split}:{number}", {"input": document, "output": summary})
        for number, (document, summary) in enumerate(pairs, start=1)
    ]


@cache
def _build_splits() -> dict[Split, list[tuple[str, str]]]:
    pairs: dict[Split, list[tuple[str, str]]] = {"train": [], "heldout": []}
    for number, story in enumerate(STORIES, start=1):
        unseen = number % _UNSEEN_EVERY == 0
        num_train = 0 if unseen else _TRAIN_PER_STORY
        num_heldout = _HELDOUT_PER_UNSEEN_STORY if unseen else _HELDOUT_PER_STORY
        told = _tell_distinct(story, num_train + num_heldout)
        pairs["heldout"] += told[:num_heldout]
        pairs["train"] += told[num_heldout:]
    for name, rows in pairs.items():
        random.Random(name).shuffle(rows)
    return pairs


def _tell_distinct(story: Story, count: int) -> list[tuple[str, str]]:
    """Return documents and summaries of a story, no two with the same facts."""
    rng = random.Random(story.name)
    told: dict[tuple[str, ...], tuple[str, str]] = {}
    while len(told) < count:
        facts, document, summary = story.tell(rng)
        told.setdefault(facts, (document, summary))
    return list(told.values())
