"""Turn the sentence frames of the embedded grammar corpus into annotated sentences.

Notation of a frame (one per line; an indented line continues the one above):

- ``{a|b|c}`` is a slot with its fillers; ``{1:a|b}`` slots with the same number move together;
  ``{city}`` takes its fillers from the lexicon, and ``{city2}`` is another city.
- ``word/TAG+TAG`` says which errors make sense at a word: only those whose correction the rest of
  the sentence tells. ``grammar_errors.py`` lists the tags. A tag after a slot belongs to the last
  word of the filler.
- ``a`` becomes ``an`` where the next word needs it; the first letter becomes a capital.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from types import ModuleType

from custom_components.corpora import (
    grammar_frames_home,
    grammar_frames_town,
    grammar_frames_world,
)
from custom_components.corpora.corpus_text import read_lines
from custom_components.corpora.grammar_lexicon import FILLERS, needs_an

_SLOT = re.compile(r"\{(?:(?P<link>\d):)?(?P<body>[^{}]*)\}")
_TOKEN = re.compile(
    r"""(?P<before>["(]*)(?P<word>.*?[\w'])(?:/(?P<tags>[A-Z0-9+]+))?(?P<after>[.,?!;:")]*)"""
)


@dataclass
class Token:
    """One word of a sentence, with what stands against it.

    Args:
        word: The word; ``None`` once it has been dropped.
        tags: Errors that make sense here.
        before: Opening quotation mark or bracket, or nothing.
        after: Punctuation behind the word, or nothing.
        fixed: The word stands as it is: no capital is set, and ``a`` or ``an`` is not chosen.
    """

    word: str | None
    tags: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    fixed: bool = False

    def copy(self) -> "Token":
        """Return a copy; a fifth of the time of ``dataclasses.replace``, called 200,000 times."""
        return Token(self.word, self.tags, self.before, self.after, self.fixed)


@dataclass(frozen=True)
class _Slot:
    key: str
    fillers: tuple[str, ...]
    other_than: str | None = None


@dataclass(frozen=True)
class Frame:
    """A sentence with slots.

    Args:
        id: ``<domain>/<number>``, the same on every machine.
        text: The frame in the notation above.
    """

    id: str
    text: str

    @cached_property
    def _slots(self) -> dict[str, _Slot]:
        slots: dict[str, _Slot] = {}
        for position, match in enumerate(_SLOT.finditer(self.text)):
            slot = _read_slot(match, position)
            known = slots.setdefault(slot.key, slot)
            if len(known.fillers) != len(slot.fillers):
                raise ValueError(f"{self.id}: slots {slot.key} differ in length")
        return slots

    @property
    def num_combos(self) -> int:
        """How many different fillings there are."""
        count = 1
        for slot in self._slots.values():
            count *= len(slot.fillers) - (slot.other_than is not None)
        return count

    def fill(self, combo: int) -> tuple[str, tuple[str, ...]]:
        """Return the annotated text of filling number ``combo``, and the fillers taken.

        Args:
            combo: ``0 <= combo < num_combos``.
        """
        chosen: dict[str, int] = {}
        for slot in self._slots.values():
            size = len(slot.fillers)
            if slot.other_than is None:
                combo, chosen[slot.key] = divmod(combo, size)
            else:
                combo, step = divmod(combo, size - 1)
                chosen[slot.key] = (chosen[slot.other_than] + 1 + step) % size
        taken: list[str] = []

        def take(match: re.Match[str]) -> str:
            slot = _read_slot(match, len(taken))
            taken.append(slot.fillers[chosen[slot.key]])
            return taken[-1]

        return _SLOT.sub(take, self.text), tuple(taken)


def _read_slot(match: re.Match[str], position: int) -> _Slot:
    body = match["body"]
    if "|" in body:
        fillers = tuple(" ".join(filler.split()) for filler in body.split("|"))
        return _Slot(match["link"] or f"#{position}", fillers)
    name = body.rstrip("2")
    return _Slot(body, FILLERS[name], other_than=name if name != body else None)


def read_tokens(text: str) -> list[Token]:
    """Return the tokens of an annotated sentence without slots.

    Raises:
        ValueError: If a word does not follow the notation.
    """
    tokens = []
    for part in text.split():
        match = _TOKEN.fullmatch(part)
        if match is None:
            raise ValueError(f"cannot read {part!r} in {text!r}")
        tags = tuple(match["tags"].split("+")) if match["tags"] else ()
        tokens.append(Token(match["word"], tags, match["before"], match["after"]))
    return tokens


def render(tokens: Sequence[Token]) -> str:
    """Return the sentence as a reader sees it.

    Args:
        tokens: Words in order; a dropped word leaves its punctuation behind.
    """
    kept: list[Token] = []
    before = ""
    for token in tokens:
        if token.word is not None:
            kept.append(token.copy())
            kept[-1].before = before + token.before
            before = ""
        else:
            before += token.before
            if kept:
                kept[-1].after += token.after
    for token, following in pairwise(kept):
        if token.word in ("a", "an", "A", "An") and not token.fixed:
            token.word = token.word[0] + ("n" if needs_an(str(following.word)) else "")
    sentence = " ".join(f"{token.before}{token.word}{token.after}" for token in kept)
    return sentence if kept[0].fixed else _capitalise(sentence)


def _capitalise(sentence: str) -> str:
    start = next((i for i, char in enumerate(sentence) if char.isalnum()), 0)
    return sentence[:start] + sentence[start].upper() + sentence[start + 1 :]


def _read_domain(domain: str, text: str) -> list[Frame]:
    return [Frame(f"{domain}/{n}", line) for n, line in enumerate(read_lines(text), start=1)]


@cache
def load_frames() -> tuple[Frame, ...]:
    """Return every frame of the corpus, in a fixed order.

    Source: the ``grammar_frames_*`` modules; each upper-case name is one domain.
    """
    modules: tuple[ModuleType, ...] = (
        grammar_frames_home,
        grammar_frames_town,
        grammar_frames_world,
    )
    frames: list[Frame] = []
    for module in modules:
        for name, text in vars(module).items():
            if name.isupper():
                frames += _read_domain(name.lower(), text)
    return tuple(frames)


@cache
def frame_words() -> frozenset[str]:
    """Return every word that a sentence of the corpus may hold, in lower case."""
    texts = [frame.text for frame in load_frames()]
    texts += [filler for fillers in FILLERS.values() for filler in fillers]
    return frozenset(word.lower() for text in texts for word in re.findall(r"[A-Za-z']+", text))
