"""Evaluate a model on sentence pairs: generate a correction of each input and score them all.

How to use::

    result = evaluate_generation(decoder, dataset, tokenizer, batch_size=16, max_new_tokens=64)
    result.gleu, result.exact_match, result.copy_gleu

Copying the input is the score to beat: sentences share most of their words with their correction,
so a model that changes nothing already scores well.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from torchtune.data import Message
from torchtune.modules import TransformerDecoder

from custom_components.datasets.sft import Example, MessageTokenizer
from custom_components.errors import UserError
from custom_components.inference.generate import find_prompt_problems, generate
from custom_components.inference.gleu import exact_match, gleu


class EvaluationDataset(Protocol):
    """A data set that kept its texts."""

    @property
    def examples(self) -> Sequence[Example]:
        """The pairs, in order."""


class ChatTokenizer(MessageTokenizer, Protocol):
    """What evaluation needs of a torchtune model tokenizer."""

    pad_id: int
    stop_tokens: list[int]

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of ids."""


@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """One evaluated pair, as it is written to ``samples.jsonl``."""

    id: str
    input: str
    output: str
    reference: str

    def as_dict(self) -> dict[str, str]:
        """Return the record as a flat dictionary."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Scores of one model on one data set.

    Args:
        gleu: GLEU of the model's corrections, 0 to 100.
        exact_match: Share of corrections equal to their reference, 0 to 1.
        copy_gleu: GLEU of copying every input unchanged.
        copy_exact_match: Share of inputs equal to their reference.
        num_cut: Answers that reached ``max_new_tokens`` without a stop token.
        records: Each pair with the model's correction, in the data set's order.
    """

    gleu: float
    exact_match: float
    copy_gleu: float
    copy_exact_match: float
    num_cut: int
    records: list[EvalRecord]

    @property
    def hypotheses(self) -> list[str]:
        """The model's corrections, in the data set's order."""
        return [record.output for record in self.records]


def evaluate_generation(
    decoder: TransformerDecoder,
    dataset: EvaluationDataset,
    tokenizer: ChatTokenizer,
    *,
    batch_size: int,
    max_new_tokens: int,
) -> EvalResult:
    """Generate a correction of every example and score them.

    Args:
        decoder: The model, in any mode; it is left as found.
        dataset: Where the examples are.
        tokenizer: The model's tokenizer.
        batch_size: Prompts generated at a time; they are sorted by length first.
        max_new_tokens: The most tokens of an answer.

    Raises:
        UserError: If there is nothing to evaluate or prompts do not fit the model's context.
    """
    examples = dataset.examples
    if not examples:
        raise UserError("dataset: no rows to evaluate; check its source, split and max_rows")
    prompts = [_build_prompt(example, tokenizer) for example in examples]
    problems = find_prompt_problems(
        decoder, prompts, names=[f"{example.id}: the prompt" for example in examples]
    )
    if problems:
        raise UserError(*problems)

    # Neighbours of equal length waste no padding; the longest go first, so that a batch that does
    # not fit in memory fails at once.
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    answers: list[list[int]] = [[] for _ in prompts]
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        new_tokens = generate(
            decoder,
            [prompts[index] for index in batch],
            max_new_tokens=max_new_tokens,
            stop_tokens=tokenizer.stop_tokens,
            pad_id=tokenizer.pad_id,
        )
        for index, tokens in zip(batch, new_tokens, strict=True):
            answers[index] = tokens
    return _score(
        examples,
        [tokenizer.decode(tokens).strip() for tokens in answers],
        num_cut=sum(len(tokens) == max_new_tokens for tokens in answers),
    )


def _build_prompt(example: Example, tokenizer: ChatTokenizer) -> list[int]:
    # The open, empty assistant turn is what training rows have before their answer.
    messages = [*example.messages, Message("assistant", "")]
    return tokenizer.tokenize_messages(messages, add_end_tokens=False)[0]


def _score(examples: Sequence[Example], outputs: Sequence[str], *, num_cut: int) -> EvalResult:
    inputs = [example.input for example in examples]
    references = [example.reference for example in examples]
    return EvalResult(
        gleu=gleu(inputs, [references], outputs),
        exact_match=exact_match(references, outputs),
        copy_gleu=gleu(inputs, [references], inputs),
        copy_exact_match=exact_match(references, inputs),
        num_cut=num_cut,
        records=[
            EvalRecord(
                id=example.id, input=example.input, output=output, reference=example.reference
            )
            for example, output in zip(examples, outputs, strict=True)
        ],
    )
