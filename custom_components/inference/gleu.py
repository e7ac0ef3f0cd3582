r"""GLEU of corrected sentences.

GLEU here is the metric of grammatical error correction (Napoles et al., 2015, «Ground Truth for
Grammatical Error Correction Metrics»; the 2016 version without tuning): n-grams that a correction
shares with its reference count for it, n-grams it kept from the source though the reference changed
them count against it. NLTK's ``gleu_score`` is another metric. The number comes from the package
``gleu``, in a process of its own, because it reseeds the global random generator.

The tokeniser, one for sources, references and hypotheses: text is put in Unicode form NFC, then cut
into numbers with their inner ``.,:`` (``1,000.5``), words with their inner apostrophes and hyphens
(``don't``, ``well-known``) and single punctuation marks; white space only separates.
"""

import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

_TOKEN = re.compile(r"\d+(?:[.,:]\d+)+|\w+(?:['’-]\w+)*|[^\w\s]")  # noqa: RUF001
_NUM_REFERENCE_DRAWS = 500
_PROGRAM = "from gleu.main import gleu; gleu()"


def tokenize_words(text: str) -> str:
    """Return the words, numbers and punctuation marks of ``text``, joined by single spaces."""
    return " ".join(_TOKEN.findall(unicodedata.normalize("NFC", text)))


def gleu(
    sources: Sequence[str | None],
    references: Sequence[Sequence[str | None]],
    hypotheses: Sequence[str | None],
    *,
    tokenize: bool = True,
) -> float:
    """Return the corpus GLEU of the hypotheses, 0 to 100.

    Args:
        sources: The sentences as they were; None counts as an empty sentence, here and below.
        references: One list of corrected sentences for each annotator. With several, each sentence
            draws one of its references at random, and the score is the mean over 500 seeded draws.
        hypotheses: The sentences to score.
        tokenize: Pass every text through ``tokenize_words``; False for text that is tokenised.

    Raises:
        ValueError: If there is no sentence, no reference set, or the lists differ in length.
        RuntimeError: If the package fails; the message ends with its output.
    """
    lengths = {len(texts) for texts in (sources, hypotheses, *references)}
    if not references or len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            f"GLEU needs as many sources as hypotheses and references, and at least one: got "
            f"{len(sources)}, {len(hypotheses)} and {[len(texts) for texts in references]}"
        )
    with tempfile.TemporaryDirectory(prefix="gleu-") as name:
        folder = Path(name)
        source = _write_lines(folder / "source", sources, tokenize=tokenize)
        hypothesis = _write_lines(folder / "hypothesis", hypotheses, tokenize=tokenize)
        reference_files = [
            _write_lines(folder / f"reference{index}", texts, tokenize=tokenize)
            for index, texts in enumerate(references)
        ]
        # One reference leaves nothing to draw.
        num_draws = _NUM_REFERENCE_DRAWS if len(references) > 1 else 1
        return _run_package(
            *("--source", source, "--out", hypothesis, "--references", *reference_files),
            *("--fix-seed", "--iter", str(num_draws), "--digit", "4"),
        )


def _write_lines(path: Path, texts: Sequence[str | None], *, tokenize: bool) -> str:
    # Joining what split() leaves keeps every kind of line break out of the line-aligned files.
    words = ((tokenize_words(text or "") if tokenize else text or "").split() for text in texts)
    lines = "".join(" ".join(line) + "\n" for line in words)
    path.write_text(lines, encoding="utf-8", errors="replace", newline="\n")
    return str(path)


def _run_package(*arguments: str) -> float:
    # -P: a file called gleu.py in the working directory must not stand in for the package.
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the package gleu failed:\n{done.stderr}")
    return float(done.stdout.split("\t")[-1])
