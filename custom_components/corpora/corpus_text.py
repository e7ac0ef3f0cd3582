"""Text with slots: how the embedded instruct and summarize corpora get their wording.

``{name}`` is a fact, the same wherever it stands; ``{a|b|c}`` is a free choice. Both may hold
further slots. ``a`` becomes ``an`` where the next word needs it; sentences begin with a capital.
"""

import random
import re
from collections.abc import Mapping, Sequence

from custom_components.corpora.grammar_lexicon import needs_an

_SLOT = re.compile(r"\{([^{}]*)\}")
_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w+))")
_SENTENCE_START = re.compile(r"(^(?:[A-Z]\w+: )?|[.!?] )([a-z])", re.MULTILINE)

Facts = Mapping[str, Sequence[str]]
"""Name to possible values. The names ``a/b`` are facts that move together, as their values do."""

PEOPLE = (
    "Anna/she/her", "Bruno/he/his", "Carla/she/her", "Dilan/he/his", "Elena/she/her",
    "Felix/he/his", "Grace/she/her", "Hassan/he/his", "Ines/she/her", "Jonas/he/his",
    "Kavita/she/her", "Leo/he/his", "Mira/she/her", "Nils/he/his", "Olga/she/her",
    "Pedro/he/his", "Rosa/she/her", "Samir/he/his", "Tessa/she/her", "Viktor/he/his",
)  # fmt: skip
SURNAMES = (
    "Adler", "Baker", "Costa", "Dubois", "Ekman", "Fischer", "Garcia", "Hall", "Ivanov", "Jensen",
    "Keller", "Lopez", "Morris", "Novak", "Okafor", "Parker", "Quinn", "Rossi", "Sato", "Tanaka",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def draw_facts(facts: Facts, rng: random.Random) -> dict[str, str]:
    """Return one value for every name.

    Facts with the very same values, such as two people, never get the same one.

    Args:
        facts: What there is to choose from.
        rng: Is drawn from once a fact.
    """
    drawn: dict[str, str] = {}
    left: dict[int, list[str]] = {}
    for names, values in facts.items():
        pool = left.setdefault(id(values), list(values))
        value = pool.pop(rng.randrange(len(pool)))
        drawn |= zip(names.split("/"), value.split("/"), strict=True)
    return drawn


def fill(text: str, facts: Mapping[str, str], rng: random.Random) -> str:
    """Return ``text`` with every slot filled.

    Args:
        text: In the notation above.
        facts: Name to value.
        rng: Makes the free choices.

    Raises:
        KeyError: If a fact is missing.
    """

    def choose(match: re.Match[str]) -> str:
        body = match[1]
        return rng.choice(body.split("|")) if "|" in body else facts[body]

    while _SLOT.search(text):
        text = _SLOT.sub(choose, text)
    text = _ARTICLE.sub(lambda m: f"{m[1]}{'n' if needs_an(m[2]) else ''} ", text)
    return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), text)


def read_lines(text: str) -> list[str]:
    """Return the lines of a text; one that begins with a blank continues the line before it.

    Args:
        text: As it stands in a module.
    """
    lines: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return lines
