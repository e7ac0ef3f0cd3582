"""Evaluate a model by what it writes: generate an answer to each example and score them.

How to use::

    result = evaluate_generation(
        model, examples, tokenizer, metrics=["gleu"], batch_size=16, max_new_tokens=64, world=world
    )
    result.scores["gleu"], result.records[0].output

The examples are spread over the ranks and every rank gets the whole result. A row's answer does not
depend on its batch (see ``generate.py``), so neither do the scores on the number of ranks.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torchtune.data import Message
from torchtune.modules import TransformerDecoder

from custom_components.datasets.conversations import Example
from custom_components.datasets.sft import MessageTokenizer
from custom_components.errors import UserError
from custom_components.inference.generate import find_prompt_problems, generate
from custom_components.inference.task_metrics import score_answers, score_each
from custom_components.models.causal_lm import CausalLM
from custom_components.options import TaskMetric
from custom_components.training.distributed import World


class ChatTokenizer(MessageTokenizer, Protocol):
    """What evaluation needs of a torchtune model tokenizer."""

    stop_tokens: list[int]

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of ids."""


@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """One evaluated example, as it is written to ``samples.jsonl``.

    Args:
        id: ``<file>:<row>``.
        prompt: The messages before the answer as text; with several, each with its role.
        input: The text that the answer is about.
        output: The model's answer.
        references: The wanted answers.
        scores: The answer's own scores: exact match, and the metrics that score single answers.
    """

    id: str
    prompt: str
    input: str
    output: str
    references: list[str]
    scores: dict[TaskMetric, float]

    def as_dict(self) -> dict[str, Any]:
        """Return the record as a flat dictionary."""
        record: dict[str, Any] = asdict(self)
        scores = record.pop("scores")
        return {**record, **scores}


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Scores of one model on some examples.

    Args:
        scores: By metric, see ``task_metrics.py``.
        num_cut: Answers that reached ``max_new_tokens`` without a stop token.
        records: Each example with the model's answer, in the order of the examples.
    """

    scores: dict[TaskMetric, float]
    num_cut: int
    records: list[EvalRecord]

    def as_metrics(self) -> dict[str, float]:
        """Return the scores by their names in ``observability/metrics.py``."""
        return {f"eval/{metric}": score for metric, score in self.scores.items()}


def choose_examples(examples: Sequence[Example], num_samples: int) -> list[Example]:
    """Return ``num_samples`` examples spread evenly, always the same; all if there are fewer.

    Args:
        examples: Those of a data set, in its order.
        num_samples: How many are wanted.
    """
    num_chosen = min(num_samples, len(examples))
    return [examples[number * len(examples) // num_chosen] for number in range(num_chosen)]


def find_example_problems(
    decoder: TransformerDecoder, examples: Sequence[Example], tokenizer: ChatTokenizer
) -> list[str]:
    """Return one sentence for each example whose prompt cannot be continued.

    Args:
        decoder: The model; it may be on the meta device or sharded.
        examples: What is to be evaluated.
        tokenizer: The model's tokenizer.
    """
    return find_prompt_problems(
        decoder,
        [_build_prompt(example, tokenizer) for example in examples],
        names=[f"{example.id}: the prompt" for example in examples],
    )


def evaluate_generation(
    model: CausalLM,
    examples: Sequence[Example],
    tokenizer: ChatTokenizer,
    *,
    metrics: Sequence[TaskMetric],
    batch_size: int,
    max_new_tokens: int,
    world: World,
) -> EvalResult:
    """Generate an answer to every example and score them. Every rank must call it.

    Args:
        model: In any mode, whole or sharded; it is left as found.
        examples: The same on every rank.
        tokenizer: The model's tokenizer.
        metrics: Which scores to compute.
        batch_size: Prompts that a rank generates at a time; they are sorted by length first.
        max_new_tokens: The most tokens of an answer.
        world: The ranks.

    Returns:
        The same on every rank.

    Raises:
        UserError: On every rank, if there is nothing to evaluate or prompts do not fit the model's
            context.
    """
    if not examples:
        raise UserError("there are no rows to evaluate: look at the data set's source and split")
    prompts = [_build_prompt(example, tokenizer) for example in examples]
    names = [f"{example.id}: the prompt" for example in examples]
    problems = find_prompt_problems(model.decoder, prompts, names=names)
    if problems:
        raise UserError(*problems)
    answers = _generate_answers(
        model,
        prompts,
        tokenizer,
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        world=world,
    )
    outputs = [tokenizer.decode(tokens).strip() for tokens in answers]
    # GLEU takes seconds: one rank computes it and the others take it from there.
    scores = _score_all(examples, outputs, metrics) if world.is_main else {}
    return EvalResult(
        scores=world.gather(scores)[0],
        num_cut=sum(len(tokens) == max_new_tokens for tokens in answers),
        records=_build_records(examples, outputs, metrics),
    )


def score_copying(
    examples: Sequence[Example], metrics: Sequence[TaskMetric]
) -> dict[TaskMetric, float]:
    """Return the scores of copying every input unchanged.

    In grammatical error correction that is the score to beat: sentences share most of their words
    with their correction.

    Args:
        examples: At least one.
        metrics: Which scores to compute.
    """
    return _score_all(examples, [example.input for example in examples], metrics)


def _build_prompt(example: Example, tokenizer: ChatTokenizer) -> list[int]:
    # The open, empty assistant turn is what training rows have before their answer.
    messages = [*example.messages, Message("assistant", "")]
    return tokenizer.tokenize_messages(messages, add_end_tokens=False)[0]


def _generate_answers(
    model: CausalLM,
    prompts: Sequence[list[int]],
    tokenizer: ChatTokenizer,
    *,
    batch_size: int,
    max_new_tokens: int,
    world: World,
) -> list[list[int]]:
    """Return the new tokens of each prompt, on every rank."""
    # Neighbours of equal length waste no padding; the longest go first, so that a batch that does
    # not fit in memory fails at once. All ranks make the same calls.
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    own: dict[int, list[int]] = {}
    for start in range(0, len(order), batch_size * world.size):
        batch = order[start : start + batch_size * world.size][world.rank :: world.size]
        new_tokens = generate(
            model,
            [prompts[index] for index in batch],
            max_new_tokens=max_new_tokens,
            stop_tokens=tokenizer.stop_tokens,
            pad_id=tokenizer.pad_id,
            is_unfinished_anywhere=world.any,
        )
        own |= zip(batch, new_tokens, strict=True)
    answers = {index: tokens for part in world.gather(own) for index, tokens in part.items()}
    return [answers[index] for index in range(len(prompts))]


def _score_all(
    examples: Sequence[Example], outputs: Sequence[str], metrics: Sequence[TaskMetric]
) -> dict[TaskMetric, float]:
    inputs = [example.input for example in examples]
    references = [example.references for example in examples]
    return {metric: score_answers(metric, inputs, references, outputs) for metric in metrics}


def _build_records(
    examples: Sequence[Example], outputs: Sequence[str], metrics: Sequence[TaskMetric]
) -> list[EvalRecord]:
    references = [example.references for example in examples]
    scored: list[TaskMetric] = list(dict.fromkeys([*metrics, "exact_match"]))
    each = {metric: score_each(metric, references, outputs) for metric in scored}
    return [
        EvalRecord(
            id=example.id,
            prompt=_describe_prompt(example.messages),
            input=example.input,
            output=output,
            references=example.references,
            scores={metric: own[row] for metric, own in each.items() if own is not None},
        )
        for row, (example, output) in enumerate(zip(examples, outputs, strict=True))
    ]


def _describe_prompt(messages: Sequence[Message]) -> str:
    if len(messages) == 1:
        return str(messages[0].text_content)
    return "\n\n".join(f"{message.role}: {message.text_content}" for message in messages)
