import pytest

from custom_components.corpora.grammar_frames import (
    Frame,
    load_frames,
    read_tokens,
    render,
)


def fillings(frame):
    return [render(read_tokens(frame.fill(combo)[0])) for combo in range(frame.num_combos)]


def test_slots_are_filled_in_every_way_once():
    assert sorted(fillings(Frame("t/1", "{a|b} meets {c|d|e}."))) == [
        "A meets c.", "A meets d.", "A meets e.", "B meets c.", "B meets d.", "B meets e.",
    ]  # fmt: skip


def test_slots_with_the_same_number_move_together():
    frame = Frame("t/1", "{1:Maria|Tom} said that {1:she|he} knew.")
    assert fillings(frame) == ["Maria said that she knew.", "Tom said that he knew."]


def test_numbered_slots_of_different_length_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        _ = Frame("t/1", "{1:a|b} {1:c|d|e}").num_combos


def test_second_draw_from_a_list_is_never_the_first():
    sentences = fillings(Frame("t/1", "from {city} to {city2}"))
    assert len(set(sentences)) == len(sentences) == 12 * 11
    assert not [s for s in sentences if s.split()[1] == s.split()[3]]


def test_article_follows_the_sound_of_the_next_word():
    text = "a hour, a university, a old house, a unusual day, a euro and a one"
    expected = "An hour, a university, an old house, an unusual day, a euro and a one"
    assert render(read_tokens(text)) == expected


def test_punctuation_stays_when_a_word_is_dropped():
    tokens = read_tokens('"Come here," he said.')
    tokens[0].word = tokens[1].word = None
    tokens[2].word = "She"
    assert render(tokens) == '"She said.'
    tokens = read_tokens("Stop now, please.")
    tokens[1].word = None
    assert render(tokens) == "Stop, please."


def test_unreadable_word_is_named():
    with pytest.raises(ValueError, match="cannot read '///'"):
        read_tokens("a /// b")


def test_frame_ids_are_unique():
    frames = load_frames()
    assert len({frame.id for frame in frames}) == len(frames) >= 200
    assert len({frame.text for frame in frames}) == len(frames)
