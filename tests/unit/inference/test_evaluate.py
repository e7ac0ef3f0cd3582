"""Evaluation: every row gets its own answer, whatever the batches, and the scores are of those."""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torchtune.data import Message
from torchtune.models.llama3 import llama3

from custom_components.datasets.sft import Example
from custom_components.errors import UserError
from custom_components.inference import evaluate
from custom_components.inference.evaluate import evaluate_generation
from custom_components.inference.generate import generate
from custom_components.inference.gleu import gleu
from custom_components.models.byte_tokenizer import ByteTokenizer

PAIRS = [
    ("he go home now and then", "he goes home now and then"),
    ("a cat", "a cat"),
    ("they was very late for the dinner at our house", "they were very late for dinner"),
    ("she like it", "she likes it"),
    ("we is here since a long time", "we have been here for a long time"),
]


@dataclass(frozen=True)
class Pairs:
    examples: list[Example] = field(default_factory=list)


@pytest.fixture
def dataset() -> Pairs:
    return Pairs(
        [
            Example(f"pairs.csv:{row}", [Message("user", f"Correct: {source}")], source, reference)
            for row, (source, reference) in enumerate(PAIRS, start=2)
        ]
    )


def build_decoder(max_seq_len: int = 256) -> Any:
    torch.manual_seed(0)
    decoder = llama3(
        vocab_size=512,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        embed_dim=32,
        max_seq_len=max_seq_len,
        intermediate_dim=64,
    )
    with torch.no_grad():
        for layer_weight in decoder.layers.parameters():
            layer_weight.mul_(4)  # as initialised, every prompt has the same answer
    return decoder


def test_each_row_gets_the_models_own_answer_whatever_the_batch_size(dataset: Pairs) -> None:
    decoder, tokenizer = build_decoder(), ByteTokenizer()
    expected = []
    for example in dataset.examples:
        prompt, _ = tokenizer.tokenize_messages(
            [*example.messages, Message("assistant", "")], add_end_tokens=False
        )
        (tokens,) = generate(
            decoder,
            [prompt],
            max_new_tokens=6,
            stop_tokens=tokenizer.stop_tokens,
            pad_id=tokenizer.pad_id,
        )
        expected.append(tokenizer.decode(tokens).strip())
    for batch_size in (1, 2, 64):
        result = evaluate_generation(
            decoder, dataset, tokenizer, batch_size=batch_size, max_new_tokens=6
        )
        assert result.hypotheses == expected
    assert result.num_cut == len(PAIRS)
    assert len(set(expected)) == len(PAIRS)


def answer_from(
    dataset: Pairs, answers: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Let the model answer each example as told; return the sizes of the batches it gets."""
    tokenizer = ByteTokenizer()
    batch_sizes: list[int] = []

    def fake_generate(_decoder: Any, prompts: list[list[int]], **_: Any) -> list[list[int]]:
        batch_sizes.append(len(prompts))
        texts = [tokenizer.decode(prompt) for prompt in prompts]
        return [
            list(answer.encode())
            for text in texts
            for example, answer in zip(dataset.examples, answers, strict=True)
            if example.input in text
        ]

    monkeypatch.setattr(evaluate, "generate", fake_generate)
    return batch_sizes


def test_scores_are_those_of_the_answers_and_of_copying(
    dataset: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, references = ([pair[i] for pair in PAIRS] for i in (0, 1))
    answers = [f" {references[0]}\n", *references[1:3], *sources[3:]]
    batch_sizes = answer_from(dataset, answers, monkeypatch)
    result = evaluate_generation(
        build_decoder(), dataset, ByteTokenizer(), batch_size=2, max_new_tokens=64
    )
    assert batch_sizes == [2, 2, 1]
    assert result.hypotheses == [*references[:3], *sources[3:]]
    assert result.gleu == gleu(sources, [references], result.hypotheses)
    assert result.copy_gleu == gleu(sources, [references], sources)
    assert result.copy_gleu < result.gleu < 100
    assert result.exact_match == 3 / 5
    assert result.copy_exact_match == 1 / 5
    assert result.num_cut == 0
    assert result.records[2].as_dict() == {
        "id": "pairs.csv:4",
        "input": sources[2],
        "output": references[2],
        "reference": references[2],
    }


def test_rows_that_do_not_fit_the_context_are_all_named(dataset: Pairs) -> None:
    with pytest.raises(UserError) as caught:
        evaluate_generation(
            build_decoder(max_seq_len=60),
            dataset,
            ByteTokenizer(),
            batch_size=2,
            max_new_tokens=8,
        )
    prefixes = [problem.split(" has ")[0] for problem in caught.value.problems]
    assert prefixes == ["pairs.csv:4: the prompt", "pairs.csv:6: the prompt"]


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(UserError, match="no rows to evaluate"):
        evaluate_generation(
            build_decoder(), Pairs(), ByteTokenizer(), batch_size=2, max_new_tokens=8
        )
