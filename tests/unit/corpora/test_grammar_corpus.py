import re
from collections import Counter

import pytest

from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.corpora.grammar_errors import KINDS

TRAIN = build_grammar_corpus("train")
HELDOUT = build_grammar_corpus("heldout")
ALL = TRAIN + HELDOUT


def test_splits_are_large_enough():
    assert len(TRAIN) == 2400
    assert len(HELDOUT) == 240
    assert len({pair.target for pair in ALL}) >= 1500


def test_ids_name_split_and_row():
    assert [pair.id for pair in HELDOUT[:2]] == ["embedded/heldout:1", "embedded/heldout:2"]
    assert len({pair.id for pair in ALL}) == len(ALL)


def test_no_sentence_is_in_both_splits():
    def sentences(pairs):
        return {text for pair in pairs for text in (pair.source, pair.target)}

    assert not sentences(TRAIN) & sentences(HELDOUT)


def test_no_filling_of_a_frame_is_in_both_splits():
    def fillings(pairs):
        return {(pair.frame, pair.fillers) for pair in pairs}

    assert len(fillings(TRAIN)) == len(TRAIN)
    assert not fillings(TRAIN) & fillings(HELDOUT)


def test_most_heldout_pairs_come_from_frames_that_training_never_sees():
    seen = {pair.frame for pair in TRAIN}
    unseen = [pair for pair in HELDOUT if pair.frame not in seen]
    assert 0.5 < len(unseen) / len(HELDOUT) < 0.8


def test_sentences_come_from_many_frames_and_domains():
    frames = Counter(pair.frame for pair in TRAIN)
    assert len(frames) >= 200
    assert max(frames.values()) <= len(TRAIN) / 100
    assert len({frame.split("/")[0] for frame in frames}) >= 10


def test_sentences_have_many_forms():
    """Statements, questions, negation, quotations, conditions, relative clauses, comparisons."""
    forms = [r"\?$", r"n't\b", '"', r"^If\b", r"\bwho\b|\bwhich\b", r"\bthan\b", r"\bbecause\b"]
    for form in forms:
        assert sum(bool(re.search(form, pair.target)) for pair in TRAIN) >= 50, form


def test_every_kind_of_error_is_common_enough_to_be_learned():
    counts = Counter(kind for pair in TRAIN for kind in pair.kinds)
    assert set(counts) == set(KINDS)
    assert len(counts) >= 12
    assert min(counts.values()) >= 20
    required = {
        "agreement", "article", "preposition", "tense", "noun_number", "word_order", "spelling",
        "punctuation",
    }  # fmt: skip
    assert required <= set(counts)


def test_sentences_hold_up_to_three_errors_of_different_kinds():
    for pair in ALL:
        assert len(pair.kinds) == len(set(pair.kinds)) <= 3
    assert {len(pair.kinds) for pair in HELDOUT} == {0, 1, 2, 3}


@pytest.mark.parametrize("pairs", [TRAIN, HELDOUT], ids=["train", "heldout"])
def test_a_tenth_is_correct_already(pairs):
    correct = [pair for pair in pairs if not pair.kinds]
    assert len(correct) == len(pairs) / 10
    assert all(pair.source == pair.target for pair in correct)


def test_source_differs_from_target_where_there_are_errors():
    assert all(pair.source != pair.target for pair in ALL if pair.kinds)


def test_no_wrong_sentence_is_a_correct_sentence_of_the_corpus():
    targets = {pair.target for pair in ALL}
    assert not [pair for pair in ALL if pair.kinds and pair.source in targets]


def test_targets_are_well_formed():
    for pair in ALL:
        target = pair.target
        assert re.fullmatch(r'"?[A-Z].*[.?]"?', target), target
        assert not re.search(r"[{}|/_+]|  |\s[.,?]", target), target
        assert not re.search(r"\b(\w+) \1\b", target), target
        assert not re.search(r"\ba [aeio]", target), target
        assert not re.search(r"\ban (?!hour)[^aeiou]", target), target
        assert target.count('"') % 2 == 0, target


def test_unknown_split_is_refused():
    with pytest.raises(KeyError):
        build_grammar_corpus("test")
