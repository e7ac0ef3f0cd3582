"""Batched greedy generation with a key/value cache.

How to use::

    new_tokens = generate(model, prompts, max_new_tokens=64, stop_tokens=[2], pad_id=0)

How it works: prompts are padded on the left to one width, so that every row's newest token stands
in the same column. Each row's positions count from its own first real token and padding is masked
out of attention, so what a row generates does not depend on its neighbours (up to float rounding:
another batch shape may sum in another order). One pass over the prompts fills torchtune's key/value
cache, then each step feeds one token a row.

Several ranks each generate for prompts of their own. Where they share the weights, every forward
gathers them, so all ranks go on until no row of any rank is unfinished: ``is_unfinished_anywhere``
asks the others.

The model is left as it was found: train or eval mode of every module, gradients, caches, random
state. Layers that were compiled run eagerly here, because every new batch shape would compile
again. Memory: ``2 x layers x batch x (prompt + new tokens) x kv_heads x head_dim`` cache elements.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torchtune.modules import MultiHeadAttention, TransformerDecoder
from torchtune.modules.common_utils import local_kv_cache

from custom_components.errors import UserError
from custom_components.inference.evaluation_mode import evaluation_mode
from custom_components.models.causal_lm import CausalLM


def generate(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_tokens: Sequence[int],
    pad_id: int,
    is_unfinished_anywhere: Callable[[bool], bool] = bool,
) -> list[list[int]]:
    """Continue each prompt with the most likely tokens, all prompts in one batch.

    Args:
        model: On its device, in train or eval mode, whole or sharded.
        prompts: Token ids of each prompt, of any mix of lengths. Sort long lists by length and
            cut them into batches before the call: every row is padded to the longest.
        max_new_tokens: The most tokens to add to a prompt. A row also ends where the model's
            context is full.
        stop_tokens: Ids that end a row.
        pad_id: Id that fills a row on the left. Any valid id does: it is never attended to.
        is_unfinished_anywhere: Given whether a row here is unfinished, returns whether one is on
            any rank (``World.any``). Every rank must then make this call with the same
            ``max_new_tokens``, one without prompts too.

    Returns:
        The new tokens of each prompt in the order of ``prompts``, without the stop token.

    Raises:
        UserError: If a prompt is empty, leaves no room in the model's context or holds unknown ids.
    """
    assert max_new_tokens > 0, "max_new_tokens must be positive"
    decoder = model.decoder
    assert not decoder.caches_are_setup(), "the decoder has caches of its own"
    problems = find_prompt_problems(
        decoder, prompts, names=[f"prompt {index}" for index in range(len(prompts))]
    )
    if problems:
        raise UserError(*problems)
    # A row may grow until the context is full, whatever the width of its batch. The cache has room
    # for the forwards of other ranks too, whose rows may grow longer than these.
    limits = [min(max_new_tokens, decoder.max_seq_len - len(prompt)) for prompt in prompts]
    room = min(max_new_tokens, decoder.max_seq_len - 1)
    rows = prompts or [[pad_id]]  # a rank without prompts takes part all the same
    cache_len = max(len(row) for row in rows) + room
    with _cache(model, batch_size=len(rows), cache_len=cache_len):
        return _generate_batch(
            model,
            rows,
            limits=limits,
            cache_len=cache_len,
            stop_tokens=frozenset(stop_tokens),
            pad_id=pad_id,
            is_unfinished_anywhere=is_unfinished_anywhere,
        )


def find_prompt_problems(
    decoder: TransformerDecoder, prompts: Sequence[Sequence[int]], *, names: Sequence[str]
) -> list[str]:
    """Return one sentence for each prompt that cannot be continued.

    Args:
        decoder: The model whose context (``max_seq_len``) the prompts must leave room in.
        prompts: Token ids of each prompt.
        names: What to call each prompt in its sentence, in the same order.
    """
    vocab_size = decoder.tok_embeddings.num_embeddings
    problems = []
    for name, prompt in zip(names, prompts, strict=True):
        if not prompt:
            problems.append(f"{name} is empty: give it at least one token to continue")
        elif max(prompt) >= vocab_size:
            problems.append(
                f"{name} holds the id {max(prompt)} but the model embeds {vocab_size} ids: choose "
                "the tokenizer that belongs to the model"
            )
        elif len(prompt) >= decoder.max_seq_len:
            problems.append(
                f"{name} has {len(prompt)} tokens, which leaves no room for an answer in the "
                f"model's context of {decoder.max_seq_len}: shorten it, or leave the row out "
                "(truncation: drop)"
            )
    return problems


@contextmanager
def _cache(model: CausalLM, *, batch_size: int, cache_len: int) -> Iterator[None]:
    """Set up caches, eval mode and eager layers; put everything back on the way out."""
    decoder = model.decoder
    weight = decoder.tok_embeddings.weight
    max_cache_len = decoder.decoder_max_cache_seq_len
    cache = local_kv_cache(
        decoder,
        batch_size=batch_size,
        device=weight.device,
        dtype=weight.dtype,
        decoder_max_seq_len=cache_len,
    )
    try:
        with evaluation_mode(model), torch.compiler.set_stance("force_eager"), cache:
            yield
    finally:
        decoder.decoder_max_cache_seq_len = max_cache_len
        for module in decoder.modules():
            if isinstance(module, MultiHeadAttention):
                # torchtune leaves an empty submodule where a plain None was; a compiled layer
                # would take that for another model and compile again.
                del module.kv_cache
                module.kv_cache = None


def _generate_batch(
    model: CausalLM,
    rows: Sequence[Sequence[int]],
    *,
    limits: Sequence[int],
    cache_len: int,
    stop_tokens: frozenset[int],
    pad_id: int,
    is_unfinished_anywhere: Callable[[bool], bool],
) -> list[list[int]]:
    """Return the new tokens of the first ``len(limits)`` rows; others only keep the ranks level."""
    device = model.decoder.tok_embeddings.weight.device
    width = max(len(row) for row in rows)
    padded = [[pad_id] * (width - len(row)) + list(row) for row in rows]
    tokens = torch.tensor(padded, device=device)  # [b, width]
    num_pad = torch.tensor([width - len(row) for row in rows], device=device)  # [b]

    outputs: list[list[int]] = [[] for _ in limits]
    growing = set(range(len(limits)))
    column = 0
    while is_unfinished_anywhere(bool(growing)):
        logits = _next_logits(model, tokens, num_pad, column=column, cache_len=cache_len)
        column += tokens.shape[1]
        tokens = logits.argmax(dim=-1, keepdim=True)  # [b, 1]
        # The one device read of a step: which rows go on.
        for row, token in enumerate(tokens[:, 0].tolist()):
            if row not in growing:
                continue
            if token not in stop_tokens:
                outputs[row].append(token)
            if token in stop_tokens or len(outputs[row]) == limits[row]:
                growing.discard(row)
    return outputs


def _next_logits(
    model: CausalLM, tokens: torch.Tensor, num_pad: torch.Tensor, *, column: int, cache_len: int
) -> torch.Tensor:
    """Run ``tokens`` [b, s], which start at cache column ``column``; return logits [b, vocab]."""
    queries = torch.arange(column, column + tokens.shape[1], device=tokens.device)  # [s]
    keys = torch.arange(cache_len, device=tokens.device)  # [cache_len]
    real = keys >= num_pad[:, None]  # [b, cache_len]
    causal = keys <= queries[:, None]  # [s, cache_len]
    # A padding column attends to itself: with nothing to attend to, softmax gives NaN.
    mask = (real[:, None, :] & causal) | (keys == queries[:, None])  # [b, s, cache_len]
    # Clamped below for padding, above for finished rows of a batch that goes on.
    positions = (queries - num_pad[:, None]).clamp(0, model.decoder.max_seq_len - 1)  # [b, s]
    return model.next_logits(tokens, mask=mask, input_pos=positions)
