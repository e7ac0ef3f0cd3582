"""Scores of generated answers: one table, the same in training and in ``custom_eval``.

- ``gleu``: GLEU of grammatical error correction, 0 to 100 (see ``gleu.py``).
- ``rouge_1``, ``rouge_2``, ``rouge_l``: F-measures of the package ``rouge-score``, 0 to 100, the
  mean over the answers, each against its best reference. Words are stemmed, as published scores of
  summaries do (ROUGE-1.5.5's ``-m``). The package reads the letters a to z and digits only: text in
  another script scores 0.
- ``exact_match``: share of answers equal to one of their references, 0 to 1; white space is
  collapsed.

More is better for all of them.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import cycle, islice
from statistics import fmean
from typing import Any

from custom_components.inference.gleu import gleu
from custom_components.options import TaskMetric

References = Sequence[Sequence[str]]
"""The references of each answer, at least one and not always as many."""


def score_answers(
    metric: TaskMetric, inputs: Sequence[str], references: References, outputs: Sequence[str]
) -> float:
    """Return the score of all answers together.

    Args:
        metric: Its name.
        inputs: The text that each answer is about.
        references: The references of each answer.
        outputs: The answers.

    Raises:
        ValueError: If there is no answer, an answer has no reference, or the lists differ in
            length.
    """
    if not outputs or not len(inputs) == len(references) == len(outputs) or not all(references):
        raise ValueError(
            f"{metric} needs as many inputs as references and answers, at least one of each: got "
            f"{len(inputs)}, {[len(texts) for texts in references]} and {len(outputs)}"
        )
    if metric == "gleu":
        return gleu(inputs, _to_reference_sets(references), outputs)
    return fmean(map(_SCORES[metric], references, outputs))


def score_each(
    metric: TaskMetric, references: References, outputs: Sequence[str]
) -> list[float] | None:
    """Return the score of each answer; None for GLEU, which is made for many at once.

    Args:
        metric: Its name.
        references: The references of each answer.
        outputs: The answers.
    """
    if metric == "gleu":
        return None
    return list(map(_SCORES[metric], references, outputs))


def _to_reference_sets(references: References) -> list[list[str]]:
    """Return one list a reference set, as GLEU takes them; who has fewer repeats them in turn."""
    num_sets = max(map(len, references))
    filled = [list(islice(cycle(texts), num_sets)) for texts in references]
    return [list(column) for column in zip(*filled, strict=True)]


def _exact_match(references: Sequence[str], output: str) -> float:
    return float(any(text.split() == output.split() for text in references))


@cache
def _build_scorer(rouge_type: str) -> Any:
    # It imports NLTK, which most runs need not.
    from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

    return RougeScorer([rouge_type], use_stemmer=True)


def _rouge(rouge_type: str) -> Callable[[Sequence[str], str], float]:
    def score(references: Sequence[str], output: str) -> float:
        best = _build_scorer(rouge_type).score_multi(references, output)
        return 100 * float(best[rouge_type].fmeasure)

    return score


_SCORES: dict[TaskMetric, Callable[[Sequence[str], str], float]] = {
    "rouge_1": _rouge("rouge1"),
    "rouge_2": _rouge("rouge2"),
    "rouge_l": _rouge("rougeL"),
    "exact_match": _exact_match,
}
"""Scores of one answer against its references."""
