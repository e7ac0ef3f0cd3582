"""Task metrics against the packages called directly and cases by hand."""

import json
from pathlib import Path

import pytest
from rouge_score.rouge_scorer import RougeScorer

from custom_components.inference.gleu import gleu
from custom_components.inference.task_metrics import score_answers, score_each

INPUTS = ["he go to the school every day now", "a b c d e f g h", "they was late"]
REFERENCES = [
    ["he goes to school every day now", "he goes to the school daily now"],
    ["a b c d e f g i"],
    ["they were late", "they came late", "they were not in time"],
]
OUTPUTS = ["he goes to the school every day", "a b c d e f g h", "they came  late"]
ROUGE = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}


@pytest.mark.parametrize("metric", ROUGE)
def test_rouge_is_the_packages_own_best_f_measure(metric: str) -> None:
    scorer = RougeScorer([ROUGE[metric]], use_stemmer=True)
    expected = [
        100 * max(scorer.score(text, output)[ROUGE[metric]].fmeasure for text in texts)
        for texts, output in zip(REFERENCES, OUTPUTS, strict=True)
    ]
    assert score_each(metric, REFERENCES, OUTPUTS) == pytest.approx(expected)
    assert score_answers(metric, INPUTS, REFERENCES, OUTPUTS) == pytest.approx(sum(expected) / 3)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("metric", ROUGE)
def test_rouge_of_real_summaries_is_the_packages_own(metric: str, data_dir: Path) -> None:
    """The first words of a dialogue as its summary."""
    path = data_dir / "dialogsum" / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:100]]
    references, outputs = (
        [[row["summary"]] for row in rows],
        [row["dialogue"][:120] for row in rows],
    )
    scorer = RougeScorer([ROUGE[metric]], use_stemmer=True)
    expected = [
        100 * scorer.score(texts[0], output)[ROUGE[metric]].fmeasure
        for texts, output in zip(references, outputs, strict=True)
    ]
    score = score_answers(metric, outputs, references, outputs)
    assert score == pytest.approx(sum(expected) / 100)
    assert 0 < score < 100


@pytest.mark.parametrize(
    ("metric", "expected"),
    # Words stemmed: "they were lat" and "they wa lat". Two words of three agree, no pair does.
    [("rouge_1", 200 / 3), ("rouge_2", 0.0), ("rouge_l", 200 / 3), ("exact_match", 0.0)],
)
def test_scores_of_one_answer_by_hand(metric: str, expected: float) -> None:
    score = score_answers(metric, ["x"], [["they were late"]], ["They was lates!"])
    assert score == pytest.approx(expected)


def test_exact_match_is_the_share_equal_to_any_reference() -> None:
    assert score_each("exact_match", REFERENCES, OUTPUTS) == [0.0, 0.0, 1.0]
    assert score_answers("exact_match", INPUTS, REFERENCES, OUTPUTS) == pytest.approx(1 / 3)
    assert score_each("exact_match", [["a b."]], [" a  b.\n"]) == [1.0]


def test_gleu_with_as_many_references_each_is_the_packages_own() -> None:
    references = [[text, text.upper()] for text in INPUTS]
    sets = [[texts[0] for texts in references], [texts[1] for texts in references]]
    assert score_answers("gleu", INPUTS, references, OUTPUTS) == gleu(INPUTS, sets, OUTPUTS)
    assert score_each("gleu", references, OUTPUTS) is None


def test_gleu_takes_sentences_with_fewer_references_than_others() -> None:
    """The package wants as many for each: who has fewer repeats them."""
    sets = [
        [REFERENCES[0][0], REFERENCES[1][0], REFERENCES[2][0]],
        [REFERENCES[0][1], REFERENCES[1][0], REFERENCES[2][1]],
        [REFERENCES[0][0], REFERENCES[1][0], REFERENCES[2][2]],
    ]
    score = score_answers("gleu", INPUTS, REFERENCES, OUTPUTS)
    assert score == gleu(INPUTS, sets, OUTPUTS)
    assert 0 < score < 100


@pytest.mark.parametrize("metric", ["gleu", "rouge_l", "exact_match"])
@pytest.mark.parametrize(
    ("inputs", "references", "outputs"),
    [([], [], []), (["a"], [[]], ["a"]), (["a", "b"], [["a"], ["b"]], ["a"])],
)
def test_nothing_to_score_is_refused(
    metric: str, inputs: list[str], references: list[list[str]], outputs: list[str]
) -> None:
    with pytest.raises(ValueError, match=f"{metric} needs as many inputs"):
        score_answers(metric, inputs, references, outputs)
