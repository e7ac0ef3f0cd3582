"""The embedded instruct corpus: conversations of two to four answers, no file needed.

``build_rows("train")`` gives 640 rows and ``"heldout"`` 64, the same in every process, with the
column ``messages`` (OpenAI's layout). They are about sentences of the grammar corpus and their
errors, short messages, units, shopping, recipes, getting up in time, the calendar and chores. A
third of them begins with a system message.

The splits share no task: the numbers, names or sentences that a conversation opens with are those
of one split only. Sentences to correct come from the same split of the grammar corpus.
"""

import random
from collections.abc import Callable
from functools import cache
from itertools import cycle

from custom_components.corpora.grammar_corpus import Split, build_grammar_corpus
from custom_components.corpora.instruct_language import Dialog, correct_sentences, write_message
from custom_components.corpora.instruct_numbers import (
    add_up_shopping,
    convert_units,
    count_back,
    plan_chores,
    read_calendar,
    scale_recipe,
)
from custom_components.datasets.rows import Row

NUM_ROWS: dict[Split, int] = {"train": 640, "heldout": 64}

_KINDS: tuple[Callable[[random.Random], Dialog], ...] = (
    convert_units,
    add_up_shopping,
    scale_recipe,
    count_back,
    read_calendar,
    plan_chores,
    write_message,
)
_TUTOR_EVERY = 3
"""Of so many conversations one is about sentences."""
_SYSTEM_MESSAGES = (
    "You are a helpful assistant. Answer briefly.",
    "You are a patient tutor.",
    "Help the user with everyday questions. Be exact with numbers.",
    "Answer in plain English.",
)
_SHARE_WITH_SYSTEM = 1 / 3


def build_rows(split: Split) -> list[Row]:
    """Return the rows of a split, in a fixed shuffled order; ids are ``embedded/<split>:<row>``.

    Args:
        split: ``train`` or ``heldout``.

    Raises:
        KeyError: If there is no such split.
    """
    return list(_build_splits()[split])


@cache
def _build_splits() -> dict[Split, tuple[Row, ...]]:
    others = _talk_distinct(sum(_num_others(split) for split in NUM_ROWS))
    splits: dict[Split, tuple[Row, ...]] = {}
    for split, count in NUM_ROWS.items():
        rng = random.Random(f"instruct {split}")
        num_others = _num_others(split)
        dialogs = [*others[:num_others], *_talk_about_sentences(split, count - num_others, rng)]
        others = others[num_others:]
        rng.shuffle(dialogs)
        splits[split] = tuple(
            Row(f"embedded/{split}:{number}", {"messages": _to_messages(dialog, rng)})
            for number, dialog in enumerate(dialogs, start=1)
        )
    return splits


def _num_others(split: Split) -> int:
    return NUM_ROWS[split] - NUM_ROWS[split] // _TUTOR_EVERY


def _talk_distinct(count: int) -> list[Dialog]:
    """Return conversations of all kinds but the tutor's in turn, no two with one key."""
    rng = random.Random("instruct")
    dialogs: dict[tuple[str, ...], Dialog] = {}
    for talk in cycle(_KINDS):
        if len(dialogs) == count:
            return list(dialogs.values())
        dialog = talk(rng)
        dialogs.setdefault(dialog.key, dialog)
    raise AssertionError("cycle() does not end")


def _talk_about_sentences(split: Split, count: int, rng: random.Random) -> list[Dialog]:
    pairs = build_grammar_corpus(split)
    dialogs: list[Dialog] = []
    while len(dialogs) < count:
        num_pairs = rng.choice((2, 2, 3))
        taken, pairs = pairs[:num_pairs], pairs[num_pairs:]
        dialogs.append(correct_sentences(taken, rng))
    return dialogs


def _to_messages(dialog: Dialog, rng: random.Random) -> list[dict[str, str]]:
    messages = []
    if rng.random() < _SHARE_WITH_SYSTEM:
        messages.append({"role": "system", "content": rng.choice(_SYSTEM_MESSAGES)})
    for role, text in zip(cycle(("user", "assistant")), dialog.turns, strict=False):
        messages.append({"role": role, "content": text})
    return messages
