import importlib.util
import json
from pathlib import Path

import pytest

from custom_components.corpora.grammar_corpus import build_grammar_corpus
from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.datasets.grammar import DEFAULT_PROMPT, grammar_dataset
from custom_components.errors import UserError
from tests.unit.datasets.word_tokenizer import WordTokenizer


def trained_text(sample, tokenizer):
    return tokenizer.decode([i for i in sample["labels"] if i != IGNORE_INDEX])


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def test_embedded_corpus_is_trained_on_corrections_alone():
    tokenizer = WordTokenizer()
    dataset = grammar_dataset(tokenizer, source="embedded", split="heldout")
    pairs = build_grammar_corpus("heldout")
    assert len(dataset) == len(pairs)
    for pair, sample, example in zip(pairs, dataset, dataset.examples, strict=True):
        assert trained_text(sample, tokenizer) == f"{pair.target} <eot>"
        prompt = f"<bos> <start> user <end> {DEFAULT_PROMPT.format(input=pair.source)} <eot>"
        assert tokenizer.decode(sample["tokens"]).startswith(prompt)
        assert (example.input, example.references) == (pair.source, [pair.target])
        assert example.id == sample["id"] == pair.id


def test_generation_prompt_is_how_the_training_ids_begin():
    from torchtune.data import Message

    tokenizer = WordTokenizer()
    dataset = grammar_dataset(tokenizer, source="embedded", max_rows=3)
    for sample, example in zip(dataset, dataset.examples, strict=True):
        messages = [*example.messages, Message("assistant", "")]
        prompt, _ = tokenizer.tokenize_messages(messages, add_end_tokens=False)
        assert sample["tokens"][: len(prompt)] == prompt
        assert sample["labels"][: len(prompt)] == [IGNORE_INDEX] * len(prompt)
        assert sample["labels"][len(prompt)] != IGNORE_INDEX


def test_header_of_the_answer_is_not_trained_on_with_the_llama3_tokenizer():
    """torchtune's own leaves the header of an unmasked message unmasked."""
    spec = importlib.util.find_spec("llama_models")
    if spec is None:
        pytest.skip("the package llama-models, which holds Llama 3's tokenizer, is not installed")
    from custom_components.models.llama3_tokenizer import llama3_tokenizer

    path = Path(spec.submodule_search_locations[0], "llama3", "tokenizer.model")
    tokenizer = llama3_tokenizer(str(path))
    dataset = grammar_dataset(tokenizer, source="embedded", max_rows=20)
    for sample, example in zip(dataset, dataset.examples, strict=True):
        ids = [i for i in sample["labels"] if i != IGNORE_INDEX]
        text = tokenizer.decode(ids, truncate_at_eos=False, skip_special_tokens=False)
        assert text == f"{example.references[0]}<|eot_id|>"


def test_prompt_columns_and_number_of_rows_are_configurable(tmp_path):
    tokenizer = WordTokenizer()
    path = write_rows(tmp_path / "p.jsonl", [{"in": "x {y}", "out": "z"}] * 3)
    dataset = grammar_dataset(
        tokenizer,
        source=path,
        column_map={"input": "in", "output": "out"},
        prompt="Fix {input} {now}",
        max_rows=2,
    )
    assert [sample["id"] for sample in dataset] == [f"{path}:1", f"{path}:2"]
    assert "user <end> Fix x {y} {now} <eot>" in tokenizer.decode(dataset[0]["tokens"])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"input": "a", "output": None}, "has no output"),
        ({"input": "a"}, "has no output"),
        ({"input": "a", "output": ""}, "has a blank output"),
        ({"input": None, "output": "b"}, "has no input"),
        ({"input": " ", "output": "b"}, "has a blank input"),
        ({"input": 5, "output": "b"}, "has 5 as input, not a text"),
        ({"input": "a", "output": float("nan")}, "has nan as output, not a text"),
        ({"input": "a", "output": {"b": 1}}, "has {'b': 1} as output, not a text"),
        ({"input": "a", "output": [" ", None]}, "has a blank output"),
    ],
)
def test_row_without_usable_texts_is_refused_or_dropped(tmp_path, row, expected):
    """axolotl#290, unsloth#10813: such rows became empty or the word None."""
    tokenizer = WordTokenizer()
    rows = [{"input": "secret", "output": "words"}, row]
    path = write_rows(tmp_path / "p.jsonl", rows)
    with pytest.raises(UserError) as error:
        grammar_dataset(tokenizer, source=path)
    assert f"{path}:2 {expected}" in str(error.value)
    dataset = grammar_dataset(tokenizer, source=path, unusable_rows="drop")
    assert len(dataset) == len(dataset.examples) == 1
    assert dataset.report.dropped_ids == {"no text": [f"{path}:2"]}
    assert "None" not in tokenizer.words


def test_blank_cell_of_a_csv_file_is_refused_by_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("input,output\na,b\n,c\nd,\ne\n")
    with pytest.raises(UserError) as error:
        grammar_dataset(WordTokenizer(), source=str(path))
    message = str(error.value)
    assert "3 rows cannot be used" in message
    assert f"{path}:3 has a blank input" in message
    assert f"{path}:4 has a blank output" in message
    assert f"{path}:5 has no output" in message


def test_open_quote_of_a_csv_file_is_refused_even_where_rows_are_dropped(tmp_path):
    """The rest of the file was one row that is dropped."""
    path = tmp_path / "p.csv"
    path.write_text('input,output\na,b\nc,"d\n' + "e,f\n" * 200)
    with pytest.raises(UserError) as error:
        grammar_dataset(WordTokenizer(), source=str(path), unusable_rows="drop")
    assert f"{path}:3 (to line 203) is not CSV: a quote is not closed" in str(error.value)


def test_wrong_arguments_are_all_named():
    with pytest.raises(UserError) as error:
        grammar_dataset(WordTokenizer(), source="embedded", prompt="Fix", max_rows=0, max_seq_len=0)
    assert len(error.value.problems) == 3


def test_real_learner_sentences_with_four_corrections_can_be_read(tmp_path, data_dir):
    folder = data_dir / "jfleg"
    if not folder.is_dir():
        pytest.skip(f"no JFLEG at {folder}")
    sources = (folder / "dev.src").read_text(encoding="utf-8").splitlines()
    targets = [(folder / f"dev.ref{n}").read_text(encoding="utf-8").splitlines() for n in range(4)]
    rows = [
        {"input": source, "output": list(corrections)}
        for source, *corrections in zip(sources, *targets, strict=True)
    ]
    tokenizer = WordTokenizer()
    path = write_rows(tmp_path / "jfleg.jsonl", rows)
    dataset = grammar_dataset(tokenizer, source=path, unusable_rows="drop")
    dropped = sum(map(len, dataset.report.dropped.values()))
    assert len(dataset) + dropped == len(rows) == 754
    assert dropped < 10
    by_id = {f"{path}:{n}": row for n, row in enumerate(rows, start=1)}
    for sample, example in zip(dataset, dataset.examples, strict=True):
        row = by_id[sample["id"]]
        assert (example.input, example.references) == (row["input"], row["output"])
        wanted = " ".join(row["output"][0].split())
        assert trained_text(sample, tokenizer) == f"{wanted} <eot>"
