"""What a story of the embedded summarize corpus is, and how its lines are read."""

import random
from dataclasses import dataclass

from custom_components.corpora.corpus_text import Facts, draw_facts, fill, read_lines

_KEPT = 0.7
"""Share of the optional lines that a document keeps."""


@dataclass(frozen=True)
class Story:
    """Documents of one kind: what happens is fixed, who, when and how it is said are not.

    Args:
        name: Of the story.
        facts: What the lines and the summaries are filled with.
        lines: A line of the document each; an indented line continues the one above, an empty one
            ends a paragraph. ``? `` opens a line that may be left out; ``//`` in it starts another
            line.
        summaries: One of them, filled, is the summary. Its facts stand in lines that are never left
            out.
        joint: What stands between lines: a line break in dialogues, a space in reports.
    """

    name: str
    facts: Facts
    lines: str
    summaries: tuple[str, ...]
    joint: str

    def tell(self, rng: random.Random) -> tuple[tuple[str, ...], str, str]:
        """Return the facts drawn, the document and its summary.

        Args:
            rng: Draws the facts, the lines and the wording.
        """
        facts = draw_facts(self.facts, rng)
        document = ""
        for line in read_lines(self.lines):
            if line.startswith("? ") and rng.random() >= _KEPT:
                continue
            if not line:
                document += "\n\n"
                continue
            joint = self.joint if document and not document.endswith("\n") else ""
            document += joint + line.removeprefix("? ").replace(" // ", self.joint)
        summary = fill(rng.choice(self.summaries), facts, rng)
        return tuple(facts.values()), fill(document, facts, rng), summary
