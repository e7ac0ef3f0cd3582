"""GLEU against a published reference value and a case by hand, and its care with odd text."""

import random
from pathlib import Path

import pytest

from custom_components.inference import gleu as gleu_module
from custom_components.inference.gleu import gleu, tokenize_words

SOURCES = ["he go to the school every day now", "a b c d e f g h"]
REFERENCES = ["he goes to school every day now", "a b c d e f g i"]


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_the_jfleg_development_source_scores_its_published_value(data_dir: Path) -> None:
    """38.21 is the published score of the unchanged development source."""
    sources = read_lines(data_dir / "jfleg" / "dev.src")
    references = [read_lines(data_dir / "jfleg" / f"dev.ref{index}") for index in range(4)]
    score = gleu(sources, references, sources, tokenize=False)
    assert score == pytest.approx(38.21, abs=0.005)


def test_a_copied_sentence_scores_what_the_formula_says() -> None:
    # Of n-grams of order n, 8-n+1 in all: those with the wrong last word are kept from the source
    # against the reference (1 each order), the others match.
    precisions = [(7 - 1) / 8, (6 - 1) / 7, (5 - 1) / 6, (4 - 1) / 5]
    product = 1.0
    for precision in precisions:
        product *= precision
    expected = 100 * product**0.25
    score = gleu([SOURCES[1]], [[REFERENCES[1]]], [SOURCES[1]])
    assert score == pytest.approx(expected, abs=1e-3)


def test_the_reference_itself_scores_100() -> None:
    assert gleu(SOURCES, [REFERENCES], REFERENCES) == 100.0


def test_line_breaks_inside_a_text_shift_no_line() -> None:
    broken = [REFERENCES[0].replace(" ", "\n"), REFERENCES[1].replace(" c", "\r\n\u2028\x0bc")]
    for tokenize in (True, False):
        assert gleu(SOURCES, [REFERENCES], broken, tokenize=tokenize) == 100.0


def test_empty_and_missing_texts_are_empty_sentences() -> None:
    assert gleu(SOURCES, [REFERENCES], ["", None]) == 0.0
    one_missing = gleu(SOURCES, [REFERENCES], [REFERENCES[0], None])
    assert one_missing == gleu(SOURCES, [REFERENCES], [REFERENCES[0], "  \n"])
    assert 0.0 < one_missing < 100.0
    # A tokenised text is taken as it stands: "now." is one word there, and not the reference's.
    dotted = [f"{text}." for text in REFERENCES]
    spaced = [f"{text} ." for text in REFERENCES]
    assert gleu(SOURCES, [spaced], dotted) == 100.0
    assert gleu(SOURCES, [spaced], dotted, tokenize=False) < 100.0


def test_a_lone_surrogate_does_not_stop_the_scoring() -> None:
    assert gleu(SOURCES, [REFERENCES], [f"{text} \ud800" for text in REFERENCES]) < 100.0


def test_the_global_random_state_is_untouched_and_the_score_repeats() -> None:
    references = [REFERENCES, SOURCES]
    random.seed(1)
    state = random.getstate()
    score = gleu(SOURCES, references, SOURCES)
    assert random.getstate() == state
    random.seed(2)
    assert gleu(SOURCES, references, SOURCES) == score


def test_a_file_called_gleu_in_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gleu.py").write_text("raise SystemExit('wrong file')\n")
    monkeypatch.chdir(tmp_path)
    assert gleu(SOURCES, [REFERENCES], REFERENCES) == 100.0


def test_a_failure_of_the_package_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gleu_module, "_PROGRAM", "raise SystemExit('it broke')")
    with pytest.raises(RuntimeError, match="it broke"):
        gleu(SOURCES, [REFERENCES], REFERENCES)


@pytest.mark.parametrize(
    ("sources", "references", "hypotheses"),
    [
        (SOURCES, [REFERENCES], REFERENCES[:1]),
        (SOURCES, [REFERENCES, REFERENCES[:1]], REFERENCES),
        (SOURCES, [], REFERENCES),
        ([], [[]], []),
    ],
)
def test_lists_that_do_not_match_are_refused(
    sources: list[str], references: list[list[str]], hypotheses: list[str]
) -> None:
    with pytest.raises(ValueError, match="as many sources as hypotheses"):
        gleu(sources, references, hypotheses)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Well-known, isn't it?", "Well-known , isn't it ?"),
        ("It’s the dogs' 3rd day.", "It’s the dogs ' 3rd day ."),  # noqa: RUF001
        ("Pay $1,000.50 at 10:30.", "Pay $ 1,000.50 at 10:30 ."),
        ("wait...what -- no", "wait . . . what - - no"),
        ("  tabs\tand\nlines ", "tabs and lines"),
        ("cafe\u0301", "caf\u00e9"),
        ("", ""),
    ],
)
def test_words_numbers_and_marks_are_separated(text: str, tokens: str) -> None:
    assert tokenize_words(text) == tokens
    assert tokenize_words(tokens) == tokens
