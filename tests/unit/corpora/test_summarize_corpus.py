"""The embedded documents and summaries: enough of them, apart, readable, true to the document."""

import random
import re
from collections import Counter

import pytest

from custom_components.corpora.summarize_corpus import STORIES, build_rows

TRAIN, HELDOUT = build_rows("train"), build_rows("heldout")
ALL = TRAIN + HELDOUT


def texts(rows, column):
    return [row.values[column] for row in rows]


def test_splits_are_large_enough_and_share_no_document_and_no_summary():
    assert len(TRAIN) == 600 and len(HELDOUT) == 60
    assert len(set(texts(ALL, "input"))) == len(ALL)
    assert not set(texts(TRAIN, "output")) & set(texts(HELDOUT, "output"))


def test_ids_name_split_and_row():
    assert [row.id for row in HELDOUT[:2]] == ["embedded/heldout:1", "embedded/heldout:2"]


def test_half_of_the_heldout_rows_come_from_stories_that_training_never_sees():
    """Two lines that only these stories have."""

    def count(rows):
        lines = ("lost property office", "goalkeeper")
        return sum(any(line in text for line in lines) for text in texts(rows, "input"))

    assert count(TRAIN) == 0
    assert count(HELDOUT) == 30


def test_documents_are_of_one_to_two_dozen_sentences_and_summaries_of_one_or_two():
    sentences = [len(re.findall(r"[.!?](?=\s|$)", text)) for text in texts(ALL, "input")]
    assert min(sentences) >= 8 and max(sentences) <= 32
    assert 12 <= sorted(sentences)[len(ALL) // 2] <= 25
    assert {len(re.findall(r"[.!?](?=\s|$)", text)) for text in texts(ALL, "output")} == {1, 2}
    words = [len(text.split()) for text in texts(ALL, "input")]
    assert min(words) >= 90 and max(words) <= 300


def test_what_a_summary_names_stands_in_its_document():
    """Names, days and numbers, but for those that begin a sentence, as every word may do."""
    checked = 0
    for row in ALL:
        document, summary = row.values["input"], row.values["output"]
        named = re.findall(r"(?<=[a-z,;] )[A-Z][\w']*|\d[\d,.:-]*\d|\d", summary)
        checked += len(named)
        for name in named:
            assert name.removesuffix("'s") in document, (name, document, summary)
    assert checked > 2 * len(ALL)


@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_every_fact_of_a_summary_is_told_whatever_is_left_out(story):
    """By itself or by one that moves together with it, such as a name with its pronoun."""
    names = "/".join(story.facts).split("/")
    groups = [group.split("/") for group in story.facts]
    used = set(re.findall(r"\{(\w+)\}", " ".join(story.summaries)))
    assert used <= set(names)
    for seed in range(40):
        values, document, _ = story.tell(random.Random(seed))
        facts = dict(zip(names, values, strict=True))
        for group in (group for group in groups if used & set(group)):
            told = [n for n in group if facts[n][1:] in document]  # its first letter may change
            assert told, (group, [facts[n] for n in group], document)


@pytest.mark.parametrize("column", ["input", "output"])
def test_text_is_well_formed(column):
    for text in texts(ALL, column):
        assert not re.search(r"[{}|/_]|//|[^\S\n]{2}|\s[.,?!]|[.,?!][.,?]|\n{3}", text), text
        assert re.fullmatch(r"[A-Z].*[.!?]", text, re.DOTALL), text
        assert not re.search(r"\ba [aeio]", text), text
        assert not re.search(r"\b(\w+) \1\b", text), text
        for line in text.split("\n"):
            assert not line or re.match(r"(\w+: )?[A-Z0-9\"]", line), line
            assert not line or line[-1] in '.!?"', line


def test_documents_differ_from_one_another():
    """No sentence but the fixed ones of a story stands in more than a few documents."""
    counts = Counter(text.split("\n")[0] for text in texts(TRAIN, "input"))
    assert len(counts) > 150
