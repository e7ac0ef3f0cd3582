"""Put grammar errors into annotated sentences: one small function a kind of error.

Every function takes the tokens, the place and a random generator, changes the tokens in place and
returns whether it could. A tag in the frames (``word/TAG``) allows a function at that word; some
kinds need no tag because the word itself shows that the change is an error (``is``, ``a``,
``than``, the full stop).

Tags: ``V3`` third person, ``VP`` other present, ``VD`` past with a time cue, ``VN`` participle,
``VG`` -ing form, ``VI`` base after *to* or a modal; ``NS``, ``NP``, ``NU`` singular, plural and
uncountable nouns; ``P`` preposition, ``PS`` *for* with a duration, ``AR`` needed *the*, ``PC``
pronoun, ``MW`` word that cannot be left out, ``SW`` word that cannot follow the next one, ``CM``
comparative or superlative, ``DN`` *any* after a negation, ``Q`` quantifier.
"""

import random
import re
from collections.abc import Callable, Iterator

from custom_components.corpora.grammar_frames import Token, frame_words, render
from custom_components.corpora.grammar_lexicon import (
    AGREEMENT,
    CONFUSABLES,
    FILLERS,
    MISSPELLINGS,
    NEGATIVES,
    PREPOSITIONS,
    PRONOUNS,
    QUANTIFIERS,
    REAL_WORDS,
    REPEATED,
    add_ed,
    base_of,
    needs_an,
    past,
    plural,
    singular,
    third_person,
)

Edit = Callable[[list[Token], int, random.Random], bool]

_BE_PAST = {"was": "is", "were": "are", "didn't": "don't"}
_PROPER = frozenset(
    word for name in ("woman", "man", "city", "country") for word in FILLERS[name]
) | {"I"}


def _set(token: Token, word: str | None) -> bool:
    """Write another word and tell whether anything changed."""
    changed = word != token.word
    token.word = word
    return changed


def _word(tokens: list[Token], i: int) -> str:
    """The word at ``i``, without the capital of a sentence's first letter."""
    word = str(tokens[i].word)
    return word[0].lower() + word[1:] if i == 0 and word not in _PROPER else word


# --- Verbs -----------------------------------------------------------------------------------


def break_agreement(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``she walks`` -> ``she walk``, ``they walk`` -> ``they walks``, ``is`` -> ``are``."""
    word = _word(tokens, i)
    if word in AGREEMENT:
        return _set(tokens[i], AGREEMENT[word])
    if "V3" in tokens[i].tags:
        return _set(tokens[i], base_of("V3", word))
    if word == "don't":
        return _set(tokens[i], "doesn't")
    return _set(tokens[i], third_person(word))


def break_tense(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``yesterday she walked`` -> ``yesterday she walk``."""
    word = _word(tokens, i)
    return _set(tokens[i], _BE_PAST.get(word) or base_of("VD", word))


def regularise_past(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``went`` -> ``goed``."""
    word = _word(tokens, i)
    if word in _BE_PAST or word == "had":
        return False
    return _set(tokens[i], add_ed(base_of("VD", word)))


def break_participle(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``has gone`` -> ``has went``, ``has lived`` -> ``has live``."""
    word = _word(tokens, i)
    base = base_of("VN", word)
    return _set(tokens[i], past(base) if past(base) != word and base != "be" else base)


def break_gerund(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``is reading`` -> ``is read``."""
    return _set(tokens[i], base_of("VG", _word(tokens, i)))


def break_infinitive(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``can swim`` -> ``can swims`` or ``can swam``."""
    word = _word(tokens, i)
    forms = [third_person(word), past(word)]
    return _set(tokens[i], rng.choice(forms))


# --- Nouns and small words ---------------------------------------------------------------------


def break_plural(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``three books`` -> ``three book``."""
    return _set(tokens[i], singular(_word(tokens, i)))


def break_singular(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``every day`` -> ``every days``, ``some advice`` -> ``some advices``."""
    return _set(tokens[i], plural(_word(tokens, i)))


def break_article(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``a book`` -> ``book`` or ``an book``."""
    if rng.random() < 0.6:
        return drop_word(tokens, i, rng)
    wrong = "a" if needs_an(str(tokens[i + 1].word)) else "an"
    tokens[i].fixed = True
    return _set(tokens[i], wrong.capitalize() if i == 0 else wrong)


def break_preposition(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``on Monday`` -> ``in Monday``."""
    return _set(tokens[i], rng.choice(PREPOSITIONS[_word(tokens, i)]))


def break_duration(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``for three years`` -> ``since three years``."""
    return _set(tokens[i], "since")


def break_pronoun(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``with him`` -> ``with he``, ``than mine`` -> ``than my``."""
    return _set(tokens[i], PRONOUNS[_word(tokens, i)])


def drop_word(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``wants to go`` -> ``wants go``."""
    return _set(tokens[i], None)


def repeat_word(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``in the park`` -> ``in the the park``."""
    word = _word(tokens, i)
    return _set(tokens[i], f"{word} {word}")


def swap_words(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``always goes`` -> ``goes always``, ``does she`` -> ``she does``."""
    first, second = tokens[i], tokens[i + 1]
    if first.after or second.before:
        return False
    first.word, second.word = second.word, _word(tokens, i)
    return True


def break_comparative(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``taller`` -> ``more taller``, ``the most famous`` -> ``the more famous``."""
    word = _word(tokens, i)
    if word in ("more", "most"):
        return _set(tokens[i], "most" if word == "more" else "more")
    return _set(tokens[i], f"{'most' if word.endswith('est') else 'more'} {word}")


def double_negation(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``doesn't have any`` -> ``doesn't have no``."""
    return _set(tokens[i], NEGATIVES[_word(tokens, i)])


def break_quantifier(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``many books`` -> ``much books``."""
    return _set(tokens[i], QUANTIFIERS[_word(tokens, i)])


# --- Spelling and signs ------------------------------------------------------------------------


def confuse_word(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``their`` -> ``there``."""
    return _set(tokens[i], CONFUSABLES[_word(tokens, i)])


def misspell(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``because`` -> ``becouse``; other words lose, double or exchange a letter."""
    word = str(tokens[i].word)
    if word in MISSPELLINGS:
        return _set(tokens[i], MISSPELLINGS[word])
    slips = [s for s in _slips(word) if s not in REAL_WORDS and s not in frame_words()]
    return bool(slips) and _set(tokens[i], rng.choice(slips))


def _slips(word: str) -> list[str]:
    """Misspellings of a word, its first and last letter kept."""
    slips = set()
    for j in range(1, len(word) - 1):
        here, following = word[j], word[j + 1]
        if here == word[j - 1] or here in "aeiou":
            slips.add(word[:j] + word[j + 1 :])
        if here not in "aeiouhqwxy" and here not in (word[j - 1], following):
            slips.add(word[:j] + here + word[j:])
        if j < len(word) - 2 and here != following:
            slips.add(word[:j] + following + here + word[j + 2 :])
    return sorted(slips - {word})


def break_punctuation(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """Drop a comma, apostrophe or final mark, or end a question with a full stop."""
    token = tokens[i]
    if "'" in str(token.word):
        return _set(token, str(token.word).replace("'", ""))
    mark = next(mark for mark in ".?," if mark in token.after)
    wrong = "." if mark == "?" and rng.random() < 0.5 else ""
    token.after = token.after.replace(mark, wrong)
    return True


def break_capital(tokens: list[Token], i: int, rng: random.Random) -> bool:
    """``On Monday`` -> ``on Monday`` or ``On monday``."""
    word = str(tokens[i].word)
    tokens[i].fixed = True
    return _set(tokens[i], word[0].lower() + word[1:])


_TAGGED: dict[str, tuple[tuple[str, Edit], ...]] = {
    "V3": (("agreement", break_agreement),),
    "VP": (("agreement", break_agreement),),
    "VD": (("tense", break_tense), ("verb_form", regularise_past)),
    "VN": (("verb_form", break_participle),),
    "VG": (("verb_form", break_gerund),),
    "VI": (("verb_form", break_infinitive),),
    "NP": (("noun_number", break_plural),),
    "NS": (("noun_number", break_singular),),
    "NU": (("noun_number", break_singular),),
    "P": (("preposition", break_preposition),),
    "PS": (("preposition", break_duration),),
    "AR": (("article", drop_word),),
    "PC": (("pronoun", break_pronoun),),
    "MW": (("missing_word", drop_word),),
    "SW": (("word_order", swap_words),),
    "CM": (("comparative", break_comparative),),
    "DN": (("negation", double_negation),),
    "Q": (("quantifier", break_quantifier),),
}
_WEIGHTS = {
    "article": 2.0,
    "negation": 2.0,
    "noun_number": 1.5,
    "quantifier": 1.5,
    "spelling": 0.8,
    "confusable": 0.8,
    "punctuation": 0.6,
    "capitalisation": 0.5,
    "extra_word": 0.4,
}
"""How often a kind is drawn where it is possible; 1 for the others."""

KINDS = tuple(sorted({kind for edits in _TAGGED.values() for kind, _ in edits} | set(_WEIGHTS)))
"""Every kind of error, by name."""


def _untagged(tokens: list[Token], i: int) -> Iterator[tuple[str, Edit]]:
    """Errors that the word itself allows."""
    token, word = tokens[i], _word(tokens, i)
    if word in AGREEMENT:
        yield "agreement", break_agreement
    if word in ("a", "an"):
        yield "article", break_article
    if word in CONFUSABLES:
        yield "confusable", confuse_word
    if word in REPEATED and i > 0:
        yield "extra_word", repeat_word
    if re.fullmatch("[a-z]{5,}", str(token.word)) or token.word in MISSPELLINGS:
        yield "spelling", misspell
    if "'" in word or any(mark in token.after for mark in ".?,"):
        yield "punctuation", break_punctuation
    if str(token.word)[0].isupper():
        yield "capitalisation", break_capital


def find_sites(tokens: list[Token]) -> list[tuple[str, int, Edit]]:
    """Return every ``(kind, place, edit)`` that the sentence allows."""
    sites = []
    for i, token in enumerate(tokens):
        tagged = [pair for tag in token.tags for pair in _TAGGED[tag]]
        sites += [(kind, i, edit) for kind, edit in [*tagged, *_untagged(tokens, i)]]
    return sites


def corrupt(tokens: list[Token], num_errors: int, rng: random.Random) -> tuple[str, list[str]]:
    """Put errors of different kinds into a sentence, never two at neighbouring words.

    Args:
        tokens: The correct sentence; left as it is.
        num_errors: How many are wanted; a short sentence may hold fewer.
        rng: Source of every choice.

    Returns:
        The wrong sentence and the kinds of its errors, in the order in which they were made.
    """
    work = [token.copy() for token in tokens]
    source = render(work)
    sites = find_sites(work)
    kinds: list[str] = []
    while sites and len(kinds) < num_errors:
        names = sorted({kind for kind, _, _ in sites})
        kind = rng.choices(names, [_WEIGHTS.get(name, 1.0) for name in names])[0]
        place, edit = rng.choice([(i, edit) for name, i, edit in sites if name == kind])
        trial = [token.copy() for token in work]
        changed = render(trial) if edit(trial, place, rng) else source
        if changed == source:
            sites.remove((kind, place, edit))
            continue
        work, source = trial, changed
        kinds.append(kind)
        sites = [site for site in sites if site[0] != kind and abs(site[1] - place) > 1]
    return source, kinds
