"""Evaluation: every row gets its own answer, whatever the batches, and the scores are of those."""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torchtune.data import Message
from torchtune.models.llama3 import llama3

from custom_components.datasets.conversations import Example
from custom_components.errors import UserError
from custom_components.inference import evaluate
from custom_components.inference.evaluate import (
    EvalResult,
    choose_examples,
    evaluate_generation,
    find_example_problems,
    score_copying,
)
from custom_components.inference.generate import generate
from custom_components.inference.gleu import gleu
from custom_components.models.byte_tokenizer import ByteTokenizer
from custom_components.models.causal_lm import CausalLM
from custom_components.training.distributed import World

PAIRS = [
    ("he go home now and then", "he goes home now and then"),
    ("a cat", "a cat"),
    ("they was very late for the dinner at our house", "they were very late for dinner"),
    ("she like it", "she likes it"),
    ("we is here since a long time", "we have been here for a long time"),
]
WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"))


@pytest.fixture
def examples() -> list[Example]:
    return [
        Example(f"pairs.csv:{row}", [Message("user", f"Correct: {source}")], source, [reference])
        for row, (source, reference) in enumerate(PAIRS, start=2)
    ]


def build_model(max_seq_len: int = 256) -> CausalLM:
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
    return CausalLM(decoder)


def evaluate_all(examples: Sequence[Example], **changes: Any) -> EvalResult:
    settings: dict[str, Any] = {"metrics": ["gleu", "exact_match"], "batch_size": 2}
    settings |= {"max_new_tokens": 64, "world": WORLD} | changes
    return evaluate_generation(build_model(), examples, ByteTokenizer(), **settings)


def test_each_row_gets_the_models_own_answer_whatever_the_batch_size(
    examples: list[Example],
) -> None:
    model, tokenizer = build_model(), ByteTokenizer()
    expected = []
    for example in examples:
        prompt, _ = tokenizer.tokenize_messages(
            [*example.messages, Message("assistant", "")], add_end_tokens=False
        )
        (tokens,) = generate(
            model,
            [prompt],
            max_new_tokens=6,
            stop_tokens=tokenizer.stop_tokens,
            pad_id=tokenizer.pad_id,
        )
        expected.append(tokenizer.decode(tokens).strip())
    for batch_size in (1, 2, 64):
        result = evaluate_all(examples, batch_size=batch_size, max_new_tokens=6)
        assert [record.output for record in result.records] == expected
    assert result.num_cut == len(PAIRS)
    assert len(set(expected)) == len(PAIRS)


def answer_from(
    examples: Sequence[Example], answers: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Let the model answer each example as told; return the sizes of the batches it gets."""
    tokenizer = ByteTokenizer()
    batch_sizes: list[int] = []

    def fake_generate(_model: Any, prompts: list[list[int]], **_: Any) -> list[list[int]]:
        batch_sizes.append(len(prompts))
        texts = [tokenizer.decode(prompt) for prompt in prompts]
        return [
            list(answer.encode())
            for text in texts
            for example, answer in zip(examples, answers, strict=True)
            if example.input in text
        ]

    monkeypatch.setattr(evaluate, "generate", fake_generate)
    return batch_sizes


def test_scores_are_those_of_the_answers_and_of_copying(
    examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, references = ([pair[i] for pair in PAIRS] for i in (0, 1))
    answers = [f" {references[0]}\n", *references[1:3], *sources[3:]]
    batch_sizes = answer_from(examples, answers, monkeypatch)
    result = evaluate_all(examples)
    assert batch_sizes == [2, 2, 1]
    outputs = [record.output for record in result.records]
    assert outputs == [*references[:3], *sources[3:]]
    assert result.scores == {
        "gleu": gleu(sources, [references], outputs),
        "exact_match": 3 / 5,
    }
    assert result.as_metrics() == {
        "eval/gleu": result.scores["gleu"],
        "eval/exact_match": 3 / 5,
    }
    copying = score_copying(examples, ["gleu", "exact_match"])
    assert copying == {"gleu": gleu(sources, [references], sources), "exact_match": 1 / 5}
    assert copying["gleu"] < result.scores["gleu"] < 100
    assert result.num_cut == 0


def test_a_record_holds_prompt_references_answer_and_its_own_scores(
    examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = Example(
        "chat.json:1",
        [Message("user", "One?"), Message("assistant", "1"), Message("user", "Two, please?")],
        "Two, please?",
        ["2", "two"],
    )
    rows = [examples[2], chat]
    answer_from(rows, [PAIRS[2][1], "two"], monkeypatch)
    result = evaluate_all(rows, metrics=["gleu", "exact_match", "rouge_1"])
    assert result.records[0].as_dict() == {
        "id": "pairs.csv:4",
        "prompt": f"Correct: {PAIRS[2][0]}",
        "input": PAIRS[2][0],
        "output": PAIRS[2][1],
        "references": [PAIRS[2][1]],
        "exact_match": 1.0,
        "rouge_1": 100.0,
    }
    record = result.records[1].as_dict()
    assert record["prompt"] == "user: One?\n\nassistant: 1\n\nuser: Two, please?"
    assert (record["references"], record["exact_match"]) == (["2", "two"], 1.0)


def test_rows_that_do_not_fit_the_context_are_all_named(examples: list[Example]) -> None:
    model, tokenizer = build_model(max_seq_len=60), ByteTokenizer()
    with pytest.raises(UserError) as caught:
        evaluate_generation(
            model,
            examples,
            tokenizer,
            metrics=["gleu"],
            batch_size=2,
            max_new_tokens=8,
            world=WORLD,
        )
    prefixes = [problem.split(" has ")[0] for problem in caught.value.problems]
    assert prefixes == ["pairs.csv:4: the prompt", "pairs.csv:6: the prompt"]
    assert find_example_problems(model.decoder, examples, tokenizer) == list(caught.value.problems)


def test_an_empty_data_set_is_refused() -> None:
    with pytest.raises(UserError, match="no rows to evaluate"):
        evaluate_all([])


@pytest.mark.parametrize(
    ("num_rows", "num_samples", "chosen"),
    [(10, 4, [0, 2, 5, 7]), (3, 8, [0, 1, 2]), (5, 5, [0, 1, 2, 3, 4]), (0, 4, [])],
)
def test_a_subset_is_spread_over_the_rows(
    num_rows: int, num_samples: int, chosen: list[int]
) -> None:
    rows = [Example(f"f:{row}", [], "", []) for row in range(num_rows)]
    assert [example.id for example in choose_examples(rows, num_samples)] == [
        f"f:{row}" for row in chosen
    ]
