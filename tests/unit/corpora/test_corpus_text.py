"""Slots of the embedded corpora: facts, choices, articles, capitals."""

import random

import pytest

from custom_components.corpora.corpus_text import draw_facts, fill


def write(text, **facts):
    return fill(text, facts, random.Random(0))


def test_a_fact_is_the_same_everywhere_and_may_hold_slots():
    assert write("{who} and {who}: {what}", who="Ann", what="{who}'s") == "Ann and Ann: Ann's"


def test_a_choice_takes_every_alternative_and_may_hold_facts():
    rng = random.Random(0)
    filled = {fill("{{who}|he|}x", {"who": "Ann"}, rng) for _ in range(50)}
    assert filled == {"Annx", "Hex", "X"}


def test_an_article_fits_the_word_that_a_slot_brings():
    assert write("a {x}, a {y}, an {z}.", x="apple", y="hour", z="union") == (
        "An apple, an hour, a union."
    )


def test_sentences_begin_with_a_capital_behind_a_speaker_too():
    assert write("one. two? three! four, five.\nAnn: six. at 9.30 euros") == (
        "One. Two? Three! Four, five.\nAnn: Six. At 9.30 euros"
    )


def test_a_missing_fact_is_an_error():
    with pytest.raises(KeyError, match="who"):
        write("{who}")


def test_names_joined_by_a_slash_move_together_and_a_pool_gives_nothing_twice():
    pool = ("Ann/she", "Bob/he", "Cem/he")
    pronouns = dict(value.split("/") for value in pool)
    for seed in range(30):
        drawn = draw_facts({"a/a_is": pool, "b/b_is": pool, "c": ("1", "2")}, random.Random(seed))
        assert pronouns[drawn["a"]] == drawn["a_is"] and pronouns[drawn["b"]] == drawn["b_is"]
        assert drawn["a"] != drawn["b"]
