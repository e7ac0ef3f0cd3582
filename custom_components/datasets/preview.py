"""Show tokenised samples to a person, the trained tokens marked: in a terminal and as a web page.

The text comes from data and is never trusted. Characters that do something instead of looking like
something (escape sequences, direction overrides, invisible ones) are written as ``<U+001B>``, so
that data can neither drive the terminal nor hide; in the page, markup is escaped as well. Line
breaks and tabs keep their effect behind a visible sign.
"""

import html
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from custom_components.datasets.collate import IGNORE_INDEX

Piece = tuple[str, bool]
"""A stretch of text, and whether its tokens are trained on."""

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's control and format characters, lone surrogates, line and paragraph separators."""
_JOINERS = "\u200c\u200d"  # spelling of Persian, Hindi and emoji
_SIGNS = {"\n": "↵\n", "\t": "⇥\t"}
_TRAINED = "\x1b[30;42m"  # black on green is read on dark and light terminals alike
_RESET = "\x1b[0m"


@dataclass(frozen=True)
class PreviewSample:
    """One sample to show.

    Args:
        id: ``<file>:<row>``.
        pieces: Its text in order.
        num_tokens: Tokens of the sample.
        num_trained: Tokens of these that are trained on.
    """

    id: str
    pieces: Sequence[Piece]
    num_tokens: int
    num_trained: int


def build_preview(
    sample_id: str,
    tokens: Sequence[int],
    labels: Sequence[int],
    decode: Callable[[list[int]], str],
) -> PreviewSample:
    """Return a sample as text, one piece for each run of tokens trained on or not.

    The first token is predicted by nothing, so it is never trained on, whatever its label.

    Args:
        sample_id: ``<file>:<row>``.
        tokens: Ids.
        labels: Unshifted, as in ``Sample``.
        decode: Ids to text; should write special tokens by name, past the end of a message too.
    """
    is_trained = [i > 0 and label != IGNORE_INDEX for i, label in enumerate(labels)]
    runs = groupby(zip(tokens, is_trained, strict=True), key=lambda pair: pair[1])
    pieces = [(decode([token for token, _ in run]), trained) for trained, run in runs]
    return PreviewSample(sample_id, pieces, len(tokens), sum(is_trained))


def make_visible(text: str) -> str:
    """Return ``text`` with characters that cannot be seen written as ``<U+001B>``.

    Line breaks become a sign and a line break, tabs a sign and a tab. For every text from data
    that goes to a terminal: names of files and columns, details of bad rows.

    Args:
        text: Any text, lone surrogates included; the result can be encoded.
    """
    return "".join(part for part, _ in _replace_hidden(text))


def render_terminal(pieces: Sequence[Piece], *, colour: bool) -> str:
    """Return a sample's text for a terminal, without a line break at the end.

    Args:
        pieces: Text in order.
        colour: Mark the trained text by its background (ANSI); else by ``⟦`` and ``⟧``.
    """
    return "".join(
        _mark_for_terminal(make_visible(text), colour=colour) if trained else make_visible(text)
        for text, trained in _join_alike(pieces)
    )


def render_html(title: str, samples: Iterable[PreviewSample], *, numbers: Mapping[str, str]) -> str:
    """Return a web page that needs nothing beside itself: no script, no font, no network.

    Args:
        title: Heading of the page.
        samples: Shown in order, each with its id and token counts.
        numbers: Name to value, as they should read; a table above the samples.
    """
    rows = "\n".join(
        f"<tr><th scope='row'>{_escape(name)}</th><td>{_escape(value)}</td></tr>"
        for name, value in numbers.items()
    )
    table = f"<table>\n{rows}\n</table>\n" if rows else ""
    body = "\n".join(_render_sample(sample) for sample in samples)
    return _PAGE.format(title=html.escape(make_visible(title)), table=table, body=body)


def _render_sample(sample: PreviewSample) -> str:
    text = "".join(
        f"<mark>{_escape(text)}</mark>" if trained else _escape(text)
        for text, trained in _join_alike(sample.pieces)
    )
    counts = f"{sample.num_tokens:,} tokens, {sample.num_trained:,} trained on"
    heading = f"<h2>{_escape(sample.id)} <small>{counts}</small></h2>"
    return f"<section>\n{heading}\n<pre>{text}</pre>\n</section>"


def _mark_for_terminal(text: str, *, colour: bool) -> str:
    """Mark visible text, line by line: a background would fill the rest of the line."""
    if not text:
        return ""
    if not colour:
        return f"⟦{text}⟧"
    lines = (f"{_TRAINED}{line}{_RESET}" if line else "" for line in text.split("\n"))
    return "\n".join(lines)


def _join_alike(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with neighbours of one kind joined and empty ones left out."""
    runs = groupby((piece for piece in pieces if piece[0]), key=lambda piece: piece[1])
    return [("".join(text for text, _ in run), trained) for trained, run in runs]


def _replace_hidden(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text in order, and whether each is a sign for a hidden character."""
    for is_hidden, run in groupby(text, key=_is_hidden):
        if is_hidden:
            yield "".join(_SIGNS.get(char, f"<U+{ord(char):04X}>") for char in run), True
        else:
            yield "".join(run), False


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES and char not in _JOINERS


def _escape(text: str) -> str:
    """Return text for a page: markup and quotes escaped, signs set off from the text."""
    return "".join(
        f"<i>{html.escape(part)}</i>" if is_sign else html.escape(part)
        for part, is_sign in _replace_hidden(text)
    )


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
h2 {{ font-size: 1em; margin: 2em 0 0.3em; overflow-wrap: anywhere; }}
small, i {{ font-weight: normal; opacity: 0.65; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.1em 1em 0.1em 0; text-align: left; vertical-align: top; }}
th {{ font-weight: normal; }}
td {{ font-variant-numeric: tabular-nums; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; padding: 0.7em 1em;
  border: 1px solid color-mix(in srgb, currentColor 25%, transparent); border-radius: 6px; }}
mark {{ background: #b9e8c0; color: #10220f; }}
@media (prefers-color-scheme: dark) {{ mark {{ background: #1f5a2c; color: #eaffea; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
{table}<p><mark>Marked text</mark> is trained on; the rest is only read.</p>
{body}
</body>
</html>
"""
