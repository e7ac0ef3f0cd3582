"""Each kind of error on a sentence written out by hand."""

import random

import pytest

from custom_components.corpora import grammar_errors as errors
from custom_components.corpora.grammar_frames import load_frames, read_tokens, render


def apply(edit, text, place):
    tokens = read_tokens(text)
    assert edit(tokens, place, random.Random(0))
    return render(tokens)


@pytest.mark.parametrize(
    ("edit", "text", "place", "expected"),
    [
        (errors.break_agreement, "She walks/V3 home.", 1, "She walk home."),
        (errors.break_agreement, "They carry/VP it.", 1, "They carries it."),
        (errors.break_agreement, "The cats are here.", 2, "The cats is here."),
        (errors.break_tense, "Yesterday we went/VD home.", 2, "Yesterday we go home."),
        (errors.break_tense, "It was/VD cold yesterday.", 1, "It is cold yesterday."),
        (errors.regularise_past, "Yesterday we went/VD home.", 2, "Yesterday we goed home."),
        (errors.break_participle, "He has gone/VN home.", 2, "He has went home."),
        (errors.break_participle, "He has lived/VN here.", 2, "He has live here."),
        (errors.break_gerund, "She is running/VG fast.", 2, "She is run fast."),
        (errors.break_plural, "Three boxes/NP fell.", 1, "Three box fell."),
        (errors.break_plural, "Three children/NP fell.", 1, "Three child fell."),
        (errors.break_singular, "Every city/NS has one.", 1, "Every cities has one."),
        (errors.break_duration, "I waited for/PS an hour.", 2, "I waited since an hour."),
        (errors.break_pronoun, "Come with me/PC now.", 2, "Come with I now."),
        (errors.drop_word, "The/AR best one won.", 0, "Best one won."),
        (errors.drop_word, "A cup of/MW tea.", 2, "A cup tea."),
        (errors.repeat_word, "We sat in the park.", 3, "We sat in the the park."),
        (errors.swap_words, "Does/SW she know?", 0, "She does know?"),
        (errors.swap_words, "He has a old/SW car.", 3, "He has a car old."),
        (errors.break_comparative, "It is taller/CM now.", 2, "It is more taller now."),
        (errors.break_comparative, "The most/CM famous one.", 1, "The more famous one."),
        (errors.double_negation, "I can't see any/DN birds.", 3, "I can't see no birds."),
        (errors.break_quantifier, "How many/Q books?", 1, "How much books?"),
        (errors.confuse_word, "Their dog barks.", 0, "There dog barks."),
        (errors.misspell, "We stayed because it rained.", 2, "We stayed becouse it rained."),
        (errors.break_punctuation, "I don't know.", 1, "I dont know."),
        (errors.break_punctuation, "Yes, I know.", 0, "Yes I know."),
        (errors.break_punctuation, "I know.", 1, "I know"),
        (errors.break_capital, "On Monday we left.", 1, "On monday we left."),
        (errors.break_capital, "On Monday we left.", 0, "on Monday we left."),
    ],
)
def test_error_changes_the_sentence_as_written(edit, text, place, expected):
    assert apply(edit, text, place) == expected


def test_article_error_drops_or_exchanges_the_article():
    sentences = set()
    for seed in range(20):
        tokens = read_tokens("She ate a orange.")
        errors.break_article(tokens, 2, random.Random(seed))
        sentences.add(render(tokens))
    assert sentences == {"She ate orange.", "She ate a orange."}
    assert render(read_tokens("She ate a orange.")) == "She ate an orange."


def test_preposition_error_always_changes_the_preposition():
    results = set()
    for seed in range(20):
        tokens = read_tokens("We met on/P Monday.")
        errors.break_preposition(tokens, 2, random.Random(seed))
        results.add(render(tokens))
    assert results == {"We met in Monday.", "We met at Monday."}


def test_form_that_does_not_change_is_no_error():
    tokens = read_tokens("Yesterday we read/VD it.")
    assert not errors.break_tense(tokens, 2, random.Random(0))


@pytest.mark.parametrize(
    ("word", "real_word"), [("waiter", "water"), ("palace", "place"), ("planning", "planing")]
)
def test_slip_of_the_pen_never_gives_another_word(word, real_word):
    results = set()
    for seed in range(100):
        tokens = read_tokens(f"One {word} two")
        assert errors.misspell(tokens, 1, random.Random(seed))
        results.add(tokens[1].word)
    assert len(results) > 5
    assert real_word not in results
    assert {(slip[0], slip[-1]) for slip in results} == {(word[0], word[-1])}


def test_errors_never_stand_at_neighbouring_words():
    """Each change alone must be visible, or the kinds of a pair would be wrong."""
    text = "Yesterday she always/SW walked/VD to/P+MW a old/SW school with/P him/PC and me/PC."
    for seed in range(200):
        source, kinds = errors.corrupt(read_tokens(text), 3, random.Random(seed))
        assert source != render(read_tokens(text))
        assert len(kinds) == 3


def test_sentence_is_left_alone_when_no_error_is_wanted():
    tokens = read_tokens("She walks/V3 home.")
    assert errors.corrupt(tokens, 0, random.Random(0)) == ("She walks home.", [])
    assert errors.corrupt(tokens, 3, random.Random(0))[0] != "She walks home."
    assert render(tokens) == "She walks home."


def test_every_tag_of_every_filler_can_be_carried_out():
    """A word that the lexicon does not know, or an unknown tag, would raise."""
    for frame in load_frames():
        for combo in random.Random(frame.id).sample(
            range(frame.num_combos), min(frame.num_combos, 12)
        ):
            tokens = read_tokens(frame.fill(combo)[0])
            for _, place, edit in errors.find_sites(tokens):
                edit(read_tokens(frame.fill(combo)[0]), place, random.Random(0))
