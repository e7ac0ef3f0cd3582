"""Conversations about language, for the embedded instruct corpus: a tutor, short messages, words.

Each function returns a ``Dialog``: what makes it unlike any other, and its turns.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from custom_components.corpora.corpus_text import DAYS, PEOPLE, SURNAMES, draw_facts, fill
from custom_components.corpora.grammar_corpus import GrammarPair

RULES = {
    "agreement": "the verb has to agree with its subject in number",
    "article": "a countable noun in the singular usually needs an article, and 'an' goes before a "
    "vowel sound",
    "capitalisation": "sentences and names begin with a capital letter",
    "comparative": "a comparison takes either an ending or 'more' and 'most', never both",
    "confusable": "these two words sound alike but mean different things",
    "extra_word": "one word too many has slipped in",
    "missing_word": "a small word is missing, without which the parts do not connect",
    "negation": "English uses only one negative word in a clause",
    "noun_number": "the noun has to be singular or plural as the words around it ask for",
    "preposition": "many verbs and nouns go with one fixed preposition",
    "pronoun": "a pronoun changes its form with its place in the sentence",
    "punctuation": "a sentence needs its punctuation marks, apostrophes included",
    "quantifier": "'much' and 'less' go with things you cannot count, 'many' and 'fewer' with "
    "things you can",
    "spelling": "the word is simply spelled differently",
    "tense": "the rest of the sentence shows when it happens, and the verb has to fit",
    "verb_form": "the words before the verb decide which of its forms is needed",
    "word_order": "the words stand in the wrong order",
}
"""One rule for every kind of error of the grammar corpus."""


@dataclass(frozen=True)
class Dialog:
    """A conversation.

    Args:
        key: Distinguishes it from all others; equal keys would mean equal content.
        turns: Texts of user and assistant in turn, the user first.
    """

    key: tuple[str, ...]
    turns: tuple[str, ...]


def correct_sentences(pairs: Sequence[GrammarPair], rng: random.Random) -> Dialog:
    """A learner asks about sentences; the tutor corrects them and gives the rules.

    Args:
        pairs: Sentences to ask about, two to four.
        rng: Chooses the wording.
    """
    turns = []
    for number, pair in enumerate(pairs):
        opening = _OPENINGS if number == 0 else _NEXT
        turns += [_fill_around(rng.choice(opening), pair.source, rng), _judge(pair, rng)]
        if pair.kinds and number == 0:
            question = f"{{Why is that?|Can you explain the {_mistakes(pair)}?|What was wrong?}}"
            turns += [fill(question, {}, rng), _explain(pair, rng)]
    return Dialog(("correct", *(pair.id for pair in pairs)), tuple(turns))


_OPENINGS = (
    'Is this sentence {correct|right|all right}? "{sentence}"',
    "{Could|Can} you check {this sentence|what I wrote} for me: {sentence}",
    "I'm {learning English|practising my writing}. Did I get this right?\n\n{sentence}",
    "{Please correct this|Please look for mistakes here}: {sentence}",
)
_NEXT = (
    '{And this one|What about this one|And how about this}? "{sentence}"',
    "{Thanks|Thank you|I see}. {Here is the next one|One more}: {sentence}",
    "{Okay, I understand now|That makes sense}. Is this one better? {sentence}",
)


def _fill_around(text: str, sentence: str, rng: random.Random) -> str:
    """Fill a text but leave the sentence in it as it is: its errors are the point."""
    return fill(text, {"sentence": "*"}, rng).replace("*", sentence)


def _mistakes(pair: GrammarPair) -> str:
    return "mistake" if len(pair.kinds) == 1 else "mistakes"


def _judge(pair: GrammarPair, rng: random.Random) -> str:
    if not pair.kinds:
        text = "{Yes, that is correct|That one is fine}. {There is nothing to change|Well done}."
    elif len(pair.kinds) == 1:
        text = "{Nearly|Almost}. There is one mistake. {It should be|Write}: {sentence}"
    else:
        count = {2: "two", 3: "three"}[len(pair.kinds)]
        text = "{Not quite, there are|I found} {count} mistakes. {It should be|Better}: {sentence}"
        text = text.replace("{count}", count)
    return _fill_around(text, pair.target, rng)


def _explain(pair: GrammarPair, rng: random.Random) -> str:
    changes = "; ".join(_list_changes(pair.source, pair.target))
    rules = [RULES[kind] for kind in pair.kinds]
    if len(rules) == 1:
        return f"{changes}. The rule behind it: {rules[0]}."
    numbered = "\n".join(f"{n}. {_capitalise(rule)}." for n, rule in enumerate(rules, start=1))
    return f"{changes}. {rng.choice(('The rules behind it', 'The reasons'))}:\n{numbered}"


def _list_changes(source: str, target: str) -> list[str]:
    """Return what turns the words of ``source`` into those of ``target``, in words."""
    old, new = source.split(), target.split()
    changes = []
    for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "replace":
            changes.append(f"“{' '.join(old[i:j])}” becomes “{' '.join(new[k:m])}”")
        elif kind == "delete":
            changes.append(f"“{' '.join(old[i:j])}” is left out")
        elif kind == "insert":
            changes.append(f"“{' '.join(new[k:m])}” is added")
    return [_capitalise(changes[0]), *changes[1:]]


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:]


_MESSAGE_FACTS = {
    "friend/she/her": PEOPLE,
    "sender/s_she/s_her": PEOPLE,
    "boss": SURNAMES,
    "day": DAYS,
    "title": ("Ms", "Mr", "Dr"),
    "event": (
        "dinner", "the concert", "our run", "the film night", "the language course", "the picnic",
        "the chess evening", "the rehearsal", "the board game evening", "the barbecue",
    ),
    "reason": (
        "I have a cold", "my train has been cancelled", "my car won't start", "I have to work late",
        "my parents are visiting", "the plumber is coming", "I promised to help my sister move",
        "my son is ill", "I have an exam the next morning", "I twisted my ankle",
    ),
    "offer": (
        "next week", "at the weekend", "in two weeks", "the day after", "as soon as I can",
    ),
}  # fmt: skip


def write_message(rng: random.Random) -> Dialog:
    """Someone wants a short message written, then made shorter, formal or warmer."""
    facts = draw_facts(_MESSAGE_FACTS, rng)
    turns = [*_MESSAGE]
    changes = [_SHORTER, _FORMAL, _PROPOSAL]
    for change in rng.sample(changes, rng.choice((1, 2, 3))):
        turns += change
    key = ("message", *(facts[name] for name in ("friend", "day", "event", "reason")))
    return Dialog(key, tuple(fill(turn, facts, rng) for turn in turns))


_MESSAGE = (
    "{Write a short message to|Help me write to} {friend}: I can't come to {event} on {day} "
    "because {reason}. {My name is|I'm} {sender}.",
    "Hi {friend},\n\n{I'm really sorry, but|I'm afraid} I can't {make it|come} to {event} on "
    "{day}, because {reason}. {I was looking forward to it|I hope you have a good time without "
    "me}.\n\n{Best|Love|See you soon},\n{sender}",
)
_SHORTER = (
    "{Can you make it shorter?|Shorter, please.|That's too long for a text message.}",
    "Sorry {friend}, I can't come on {day}: {reason}. {sender}",
)
_FORMAL = (
    "{Now|And} {I need the same|the same thing}, {but formal|more formal}, for {my teacher|the "
    "organiser}, {title} {boss}.",
    "Dear {title} {boss},\n\nUnfortunately I am unable to attend {event} on {day}, as {reason}. I "
    "apologise for {the short notice|any inconvenience}.\n\nYours sincerely,\n{sender}",
)
_PROPOSAL = (
    "{Could you add|Please add} that I'd like to {meet|make up for it} {offer}.",
    "Hi {friend},\n\nI'm sorry, but I can't come to {event} on {day}, because {reason}. {Could we "
    "meet {offer} instead?|I'd love to make up for it {offer}.}\n\n{sender}",
)
