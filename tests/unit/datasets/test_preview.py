"""Trained tokens are marked, and nothing in the data can act on a terminal or a page."""

from html.parser import HTMLParser

import pytest

from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.datasets.preview import (
    PreviewSample,
    build_preview,
    make_visible,
    render_html,
    render_terminal,
)
from custom_components.models.byte_tokenizer import ByteTokenizer

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x9b31m\u202eabc\u200b\ufeff\u2028\ud800\x00\x7f"


class Page(HTMLParser):
    """The tags of a page, the text in each kind of element, and the attributes."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.attributes = [], [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in set(self.open):
            self.text[tag] = self.text.get(tag, "") + data


def render_one(pieces, **keywords):
    sample = PreviewSample("f.jsonl:1", pieces, 7, 3)
    return render_html("Preview", [sample], **({"numbers": {}} | keywords))


def test_pieces_follow_the_labels_and_their_text_is_the_samples():
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode("Hello world!", add_bos=False, add_eos=False)
    labels = [IGNORE_INDEX] * 6 + tokens[6:11] + [IGNORE_INDEX]
    sample = build_preview("f:1", tokens, labels, tokenizer.decode)
    assert sample == PreviewSample(
        "f:1", [("Hello ", False), ("world", True), ("!", False)], num_tokens=12, num_trained=5
    )


def test_first_token_is_never_marked_because_nothing_predicts_it():
    sample = build_preview("f:1", [7, 8], [7, 8], lambda ids: str(ids))
    assert sample.pieces == [("[7]", False), ("[8]", True)]
    assert sample.num_trained == 1


def test_terminal_marks_trained_text_by_colour_line_by_line():
    shown = render_terminal([("ask ", False), ("one\ntwo", True), (" end", False)], colour=True)
    assert shown == "ask \x1b[30;42mone↵\x1b[0m\n\x1b[30;42mtwo\x1b[0m end"


def test_terminal_without_colour_marks_trained_text_by_brackets():
    pieces = [("ask ", False), ("an", True), ("swer", True), ("", True), (" end", False)]
    assert render_terminal(pieces, colour=False) == "ask ⟦answer⟧ end"


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("colour", [True, False])
def test_no_control_character_of_the_data_reaches_the_terminal(trained, colour):
    shown = render_terminal([(HOSTILE, trained)], colour=colour)
    ours = ("\x1b[30;42m", "\x1b[0m") if colour and trained else ()
    for sequence in ours:
        assert shown.count(sequence) == 1
        shown = shown.replace(sequence, "")
    shown.encode("utf-8")  # the lone surrogate is gone
    assert shown.isprintable()
    assert "<U+001B>[2J<U+001B>]0;owned<U+0007><U+000D><U+009B>31m<U+202E>abc<U+200B>" in shown


def test_line_breaks_and_tabs_stay_and_are_seen():
    assert make_visible("a\tb\nc") == "a⇥\tb↵\nc"


def test_text_of_every_script_stays_as_it_is():
    for text in ("naïve — “quotes” …", "نمی‌خواهم", "日本語", "👩‍🔬", "e\u0301", "\u00a0", "⟦"):
        assert make_visible(text) == text


def test_page_marks_trained_text_and_counts_tokens():
    page = Page(render_one([("ask ", False), ("answer", True)]))
    assert page.text["pre"] == "ask answer"
    assert page.text["mark"] == "Marked text" + "answer"
    assert page.text["h2"] == "f.jsonl:1 7 tokens, 3 trained on"
    assert not page.open


def test_nothing_from_the_data_becomes_markup_in_the_page():
    evil = "</pre></mark><script>alert(1)</script><img src=x onerror=y> & \" ' <!-- " + HOSTILE
    sample = PreviewSample(evil, [(evil, True), (evil, False)], 7, 3)
    text = render_html(evil, [sample], numbers={evil: evil})
    plain = render_html("t", [PreviewSample("i", [("a", True)], 7, 3)], numbers={"n": "v"})
    page = Page(text)
    assert set(page.tags) - {"i"} == set(Page(plain).tags)
    assert {name for name, _ in page.attributes} == {name for name, _ in Page(plain).attributes}
    assert not page.open
    shown = make_visible(evil)
    assert page.text["pre"] == shown * 2
    assert page.text["title"] == page.text["h1"] == page.text["th"] == page.text["td"] == shown
    text.encode("utf-8")
    assert all(char == "\n" or char.isprintable() for char in text)


def test_a_break_at_the_start_of_a_text_is_shown():
    """HTML drops a line break that directly follows <pre>."""
    assert "<pre>\n" not in render_one([("\nx", False)])
    assert Page(render_one([("\nx", False)])).text["pre"] == "↵\nx"


def test_page_loads_nothing_and_runs_nothing():
    text = render_one([("x", True)], numbers={"rows": "12"})
    assert "default-src 'none'" in text
    assert not {"script", "link", "img", "iframe"} & set(Page(text).tags)
    assert "http:" not in text and "https:" not in text and "url(" not in text


def test_numbers_stand_in_a_table_in_order():
    page = Page(render_one([("x", True)], numbers={"rows": "1,200", "tokens": "5"}))
    assert page.text["table"].split() == ["rows1,200", "tokens5"]
    assert "table" not in Page(render_one([("x", True)])).tags
