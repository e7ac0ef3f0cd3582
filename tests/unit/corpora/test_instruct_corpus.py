"""The embedded conversations: several answers each, apart, and right where they can be checked."""

import re
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise

from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.corpora.grammar_errors import KINDS
from custom_components.corpora.instruct_corpus import build_rows
from custom_components.corpora.instruct_language import RULES

TRAIN, HELDOUT = build_rows("train"), build_rows("heldout")
ALL = TRAIN + HELDOUT
CONVERSATIONS = [row.values["messages"] for row in ALL]
EXCHANGES = [
    (question["content"], answer["content"])
    for messages in CONVERSATIONS
    for question, answer in pairwise(messages)
    if answer["role"] == "assistant"
]


def find(question, answer):
    """Return the groups of all exchanges whose question and answer match."""
    found = [
        (q.groups() + a.groups())
        for asked, answered in EXCHANGES
        if (q := re.search(question, asked)) and (a := re.search(answer, answered))
    ]
    assert len(found) >= 10, len(found)
    return found


def first_user_messages(rows):
    return {
        next(m["content"] for m in row.values["messages"] if m["role"] == "user") for row in rows
    }


def test_splits_are_large_enough_and_open_differently():
    assert len(TRAIN) == 640 and len(HELDOUT) == 64
    assert len(first_user_messages(TRAIN)) == 640 and len(first_user_messages(HELDOUT)) == 64
    assert not first_user_messages(TRAIN) & first_user_messages(HELDOUT)


def test_ids_name_split_and_row():
    assert [row.id for row in HELDOUT[:2]] == ["embedded/heldout:1", "embedded/heldout:2"]


def test_conversations_have_two_to_four_answers_and_alternate():
    answers = Counter()
    for messages in CONVERSATIONS:
        roles = [message["role"] for message in messages]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2)
        answers[len(turns) // 2] += 1
    assert set(answers) == {2, 3, 4} and min(answers.values()) > 60
    assert 0.2 < sum(m[0]["role"] == "system" for m in CONVERSATIONS) / len(ALL) < 0.45


def test_messages_hold_role_and_text_alone():
    for message in (message for messages in CONVERSATIONS for message in messages):
        assert set(message) == {"role", "content"}
        text = message["content"]
        assert text.strip() == text and text
        assert not re.search(r"[{}|*]|[^\S\n]{2}|\s[.,?!]|\.[,.?]", text), text


def test_corrections_are_those_of_the_grammar_corpus():
    targets = {pair.source: pair.target for split in ("train", "heldout")
               for pair in build_grammar_corpus(split)}  # fmt: skip
    checked = 0
    for question, answer in EXCHANGES:
        if re.search(r"(one|two|three) mistakes?\.", answer):
            source = max((text for text in targets if text in question), key=len)
            assert answer.endswith(f": {targets[source]}")
            checked += source != targets[source]
    assert checked > 300


def test_a_split_asks_about_sentences_of_its_own_split_alone():
    train = {pair.source for pair in build_grammar_corpus("train")}
    asked = [m["content"] for row in HELDOUT for m in row.values["messages"]]
    assert not [text for text in asked for source in train if source in text and len(source) > 30]


def test_every_kind_of_error_has_a_rule():
    assert set(RULES) == set(KINDS)


def test_conversions_are_right():
    exact = {"miles": "1.609344", "inches": "2.54", "feet": "0.3048", "pounds": "0.45359237",
             "ounces": "28.349523", "gallons": "3.785412", "acres": "0.40468564"}  # fmt: skip
    for asked, unit, answered, result in find(
        rf"(\d+) ({'|'.join(exact)})", r"^(\d+) \w+ are \w+ ([\d.]+) \w+\.$"
    ):
        assert asked == answered
        difference = int(asked) * Decimal(exact[unit]) - Decimal(result)
        assert abs(difference) < Decimal("0.1"), (asked, unit, result)


def test_bills_are_right():
    price = r"([\d.]+) euros"
    for a, price_a, b, price_b, total in find(
        rf"(\d+) [a-z ]+ at {price} each and (\d+) [a-z ]+ at {price} each", rf"{price}\.$"
    ):
        assert int(a) * Decimal(price_a) + int(b) * Decimal(price_b) == Decimal(total)
    for total, change in find(r"note|pay with|give them", rf"minus {price} leaves {price}"):
        paid = {Decimal(n) for n in (20, 50, 100, 200)}
        assert Decimal(total) + Decimal(change) in paid


def test_recipes_are_scaled():
    found = find(
        r"is for (\d+) people: (\d+) (g of \w+).*(?:for|be) (\d+)(?: people)?\.$",
        r"For (\d+) people (?:you need|take):\n- (\d+) (g of \w+)",
    )
    for given, amount, name, wanted, answered, scaled, scaled_name in found:
        assert wanted == answered and name == scaled_name
        assert int(amount) * int(wanted) == int(scaled) * int(given)


def test_clock_times_are_right():
    def minutes(text):
        hours, rest = text.split(":")
        return int(hours) * 60 + int(rest)

    for start, way, ready, leave, rise in find(
        r"at (\d+:\d\d)\. .*?(\d+) minutes.*need (\d+) minutes", r"leave at (\S+), .* at (\S+)\.$"
    ):
        assert minutes(start) - int(way) == minutes(leave)
        assert minutes(leave) - int(ready) == minutes(rise)


def test_dates_are_right():
    months = ("January February March April May June July August September October November "
              "December").split()  # fmt: skip
    for weekday, day, month, year, ahead, weekday_2, day_2, month_2 in find(
        r"Today is (\w+), (\d+) (\w+) (\d+)\. .* (\d+) days", r"it will be (\w+), (\d+) (\w+)\.$"
    ):
        today = date(int(year), months.index(month) + 1, int(day))
        then = today + timedelta(days=int(ahead))
        assert f"{today:%A}" == weekday and f"{then:%A}" == weekday_2
        assert (then.day, months[then.month - 1]) == (int(day_2), month_2)


def test_plans_add_up():
    for limit, a, b, c, verdict, total in find(
        r"have (\d+) minutes and .*?\((\d+) minutes\).*?\((\d+) minutes\).*?\((\d+) minutes\)",
        r"^(Yes|No|That fits|That does not fit): (\d+)",
    ):
        assert int(a) + int(b) + int(c) == int(total)
        assert (verdict in ("Yes", "That fits")) == (int(total) <= int(limit))
