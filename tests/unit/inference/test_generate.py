"""Generation: equal to decoding without a cache, blind to its neighbours, and without a trace."""

import custom_components.compat  # noqa: F401

import copy

import pytest
import torch
from torch._dynamo.utils import counters
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import LoRALinear

from custom_components.errors import UserError
from custom_components.inference.generate import find_prompt_problems, generate
from custom_components.models.causal_lm import CausalLM

VOCAB_SIZE = 97
CONTEXT = 48
PAD_ID = 96
LENGTHS = [3, 17, 1, 9, 17, 30, 2]
SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "num_layers": 3,
    "num_heads": 8,
    "num_kv_heads": 2,  # grouped-query attention, 4 queries a key
    "embed_dim": 64,
    "max_seq_len": CONTEXT,
    "intermediate_dim": 96,
}


@pytest.fixture(scope="module")
def decoder() -> TransformerDecoder:
    torch.manual_seed(3)
    decoder = llama3(**SHAPE)
    with torch.no_grad():
        for name, weight in decoder.named_parameters():
            if weight.dim() == 2 and name != "tok_embeddings.weight":
                weight.mul_(4)  # as initialised, the layers do little and outputs run in circles
    return decoder


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [
        torch.randint(VOCAB_SIZE - 1, (length,), generator=generator).tolist() for length in LENGTHS
    ]


@torch.no_grad()
def decode_without_cache(
    decoder: TransformerDecoder, prompt: list[int], *, max_new_tokens: int, stop_tokens: list[int]
) -> list[int]:
    """The plain definition: the whole sequence again for every token, through torchtune's forward.

    It asserts that the choice is not a near tie, so that rounding cannot decide a test.
    """
    tokens = list(prompt)
    for _ in range(min(max_new_tokens, CONTEXT - len(prompt))):
        logits = decoder(torch.tensor([tokens]))[0, -1]
        first, second = logits.topk(2).values.tolist()
        assert first - second > 1e-5, "near tie: choose another seed"
        token = int(logits.argmax())
        if token in stop_tokens:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def reference_outputs(
    decoder: TransformerDecoder, prompts: list[list[int]], stop_tokens: list[int]
) -> list[list[int]]:
    decoder = copy.deepcopy(decoder).eval()
    return [
        decode_without_cache(decoder, prompt, max_new_tokens=12, stop_tokens=stop_tokens)
        for prompt in prompts
    ]


def run(
    decoder: TransformerDecoder,
    prompts: list[list[int]],
    stop_tokens: list[int],
    max_new_tokens: int = 12,
) -> list[list[int]]:
    return generate(
        CausalLM(decoder),
        prompts,
        max_new_tokens=max_new_tokens,
        stop_tokens=stop_tokens,
        pad_id=PAD_ID,
    )


def test_a_mixed_batch_equals_decoding_each_prompt_without_a_cache(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    expected = reference_outputs(decoder, prompts, stop_tokens=[])
    assert run(decoder, prompts, stop_tokens=[]) == expected
    assert len({tuple(output) for output in expected}) == len(prompts), "outputs must differ"


def test_every_prompt_alone_equals_its_row_of_the_batch(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    batched = run(decoder, prompts, stop_tokens=[])
    assert [run(decoder, [prompt], stop_tokens=[])[0] for prompt in prompts] == batched
    assert run(decoder, prompts[::-1], stop_tokens=[]) == batched[::-1]


def test_rows_stop_each_at_its_own_stop_token(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    free = run(decoder, prompts, stop_tokens=[])
    # One token stops row 0 in its middle, another row 1 at once.
    stop_tokens = [free[0][5], free[1][0]]
    expected = reference_outputs(decoder, prompts, stop_tokens=stop_tokens)
    assert run(decoder, prompts, stop_tokens=stop_tokens) == expected
    assert expected[1] == []
    assert 0 < len(expected[0]) < 12
    assert any(len(output) == 12 for output in expected), "one row must outlive the others"


def test_decoding_ends_when_every_row_is_finished(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    free = run(decoder, prompts, stop_tokens=[])
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = decoder.norm.register_forward_hook(count)
    try:
        outputs = run(decoder, prompts, stop_tokens=[output[1] for output in free])
    finally:
        handle.remove()
    assert all(len(output) <= 1 for output in outputs)
    assert calls <= 2


def test_ranks_that_are_done_go_on_with_the_others_and_answer_the_same(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    """Sharded weights are gathered at every forward: who stops alone leaves the others waiting."""
    expected = run(decoder, prompts[:2], stop_tokens=[], max_new_tokens=3)
    for own_prompts in (prompts[:2], []):
        asked: list[bool] = []

        def go_on_until_eight(unfinished: bool, asked: list[bool] = asked) -> bool:
            asked.append(unfinished)
            return len(asked) <= 8

        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        handle = decoder.norm.register_forward_hook(count)
        try:
            outputs = generate(
                CausalLM(decoder),
                own_prompts,
                max_new_tokens=CONTEXT,
                stop_tokens=[token for output in expected for token in output[2:]],
                pad_id=PAD_ID,
                is_unfinished_anywhere=go_on_until_eight,
            )
        finally:
            handle.remove()
        assert calls == 8
        assert outputs == [output[:2] for output in expected[: len(own_prompts)]]
        assert asked == [True] * 3 * bool(own_prompts) + [False] * (9 - 3 * bool(own_prompts))


def test_a_row_grows_to_the_end_of_the_context_whatever_its_neighbours(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    outputs = run(decoder, prompts, stop_tokens=[], max_new_tokens=1000)
    assert [len(output) for output in outputs] == [CONTEXT - length for length in LENGTHS]
    alone = run(decoder, [prompts[2]], stop_tokens=[], max_new_tokens=1000)
    assert outputs[2] == alone[0]
    assert len(set(alone[0])) > CONTEXT // 2, "a repeating output would hide wrong positions"


def test_positions_count_from_each_rows_own_first_token(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    """Rotary positions are relative: a shift would only show at the end of the context."""
    seen: list[torch.Tensor] = []

    def record(_module: object, _args: object, kwargs: dict[str, torch.Tensor]) -> None:
        assert not torch.is_grad_enabled()
        seen.append(kwargs["input_pos"])

    handle = decoder.layers[0].register_forward_pre_hook(record, with_kwargs=True)
    try:
        run(decoder, prompts, stop_tokens=[], max_new_tokens=3)
    finally:
        handle.remove()
    positions = torch.cat(seen, dim=1)  # [b, width + 2]
    for row, length in zip(positions, LENGTHS, strict=True):
        assert row[-(length + 2) :].tolist() == list(range(length + 2))


def test_the_pad_id_does_not_matter(decoder: TransformerDecoder, prompts: list[list[int]]) -> None:
    one, other = (
        generate(CausalLM(decoder), prompts, max_new_tokens=6, stop_tokens=[], pad_id=pad_id)
        for pad_id in (0, PAD_ID)
    )
    assert one == other


def test_no_prompts_give_no_outputs(decoder: TransformerDecoder) -> None:
    assert run(decoder, [], stop_tokens=[]) == []


def test_empty_overlong_and_foreign_prompts_are_refused_together_by_number(
    decoder: TransformerDecoder,
) -> None:
    with pytest.raises(UserError) as caught:
        run(
            decoder,
            [[1], [], [1] * CONTEXT, [1] * (CONTEXT - 1), [3, VOCAB_SIZE, 3]],
            stop_tokens=[],
        )
    empty, overlong, unknown = caught.value.problems
    assert empty.startswith("prompt 1 is empty")
    assert overlong.startswith(f"prompt 2 has {CONTEXT} tokens")
    assert f"context of {CONTEXT}" in overlong
    assert unknown.startswith(f"prompt 4 holds the id {VOCAB_SIZE}")


def test_prompt_problems_carry_the_names_they_are_given(decoder: TransformerDecoder) -> None:
    (problem,) = find_prompt_problems(decoder, [[1], []], names=["a.csv:2", "a.csv:3"])
    assert problem.startswith("a.csv:3 is empty")


def snapshot(decoder: TransformerDecoder) -> dict[str, object]:
    """Everything about a decoder that generation might disturb."""
    return {
        "modules": {
            name: (module.training, sorted(module.__dict__), sorted(module._modules))
            for name, module in decoder.named_modules()
        },
        "buffers": sorted(name for name, _ in decoder.named_buffers()),
        "requires_grad": {n: p.requires_grad for n, p in decoder.named_parameters()},
        "grads": {n: p.grad is None for n, p in decoder.named_parameters()},
        "weights": {n: p.detach().clone() for n, p in decoder.named_parameters()},
        "cache_len": decoder.decoder_max_cache_seq_len,
    }


def test_the_decoder_is_left_exactly_as_found(prompts: list[list[int]]) -> None:
    decoder = lora_llama3(
        ["q_proj", "v_proj"],
        **{**SHAPE, "attn_dropout": 0.1},
        lora_rank=4,
        lora_alpha=8,
        lora_dropout=0.5,
    )
    decoder.train()
    decoder.layers[1].eval()  # modes differ between modules
    decoder.tok_embeddings.weight.requires_grad_(False)
    before = snapshot(decoder)
    torch.manual_seed(11)
    rng_state = torch.get_rng_state()

    outputs = run(decoder, prompts, stop_tokens=[])
    assert outputs == run(decoder, prompts, stop_tokens=[]), "dropout must be off"

    after = snapshot(decoder)
    torch.testing.assert_close(after.pop("weights"), before.pop("weights"), rtol=0, atol=0)
    assert after == before
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert torch.is_grad_enabled()
    # It still trains: no leftover cache demands a mask.
    decoder(torch.tensor([prompts[1]])).sum().backward()


def test_the_decoder_is_left_as_found_after_an_error_inside(prompts: list[list[int]]) -> None:
    decoder = llama3(**SHAPE).train()
    before = snapshot(decoder)

    def fail(*_: object) -> None:
        raise RuntimeError("a broken layer")

    handle = decoder.layers[2].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="a broken layer"):
        run(decoder, [[1, 2]], stop_tokens=[])
    handle.remove()
    after = snapshot(decoder)
    del before["weights"], after["weights"]
    assert after == before


def test_a_switched_off_adapter_gives_the_base_models_output(prompts: list[list[int]]) -> None:
    torch.manual_seed(3)
    base = llama3(**SHAPE)
    decoder = lora_llama3(["q_proj", "v_proj"], **SHAPE, lora_rank=4, lora_alpha=64)
    decoder.load_state_dict(base.state_dict(), strict=False)
    adapters = [module for module in decoder.modules() if isinstance(module, LoRALinear)]
    for adapter in adapters:
        torch.nn.init.normal_(adapter.lora_b.weight)
    assert run(decoder, prompts, stop_tokens=[]) != run(base, prompts, stop_tokens=[])
    for adapter in adapters:
        adapter.disabled = True
    assert run(decoder, prompts, stop_tokens=[]) == run(base, prompts, stop_tokens=[])


def test_compiled_layers_run_without_compiling(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    compiled = copy.deepcopy(decoder)
    for layer in compiled.layers:
        layer.compile(backend="eager")
    counters.clear()
    assert run(compiled, prompts, stop_tokens=[]) == run(decoder, prompts, stop_tokens=[])
    assert counters["stats"]["unique_graphs"] == 0


def test_training_does_not_compile_again_after_generation(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    compiled = copy.deepcopy(decoder).train()
    for layer in compiled.layers:
        layer.compile(backend="eager")
    batch = torch.tensor([prompts[1], prompts[4]])
    counters.clear()
    compiled(batch)
    num_graphs = counters["stats"]["unique_graphs"]
    assert num_graphs > 0
    run(compiled, prompts, stop_tokens=[])
    compiled(batch)
    assert counters["stats"]["unique_graphs"] == num_graphs


def test_activation_checkpointing_wrappers_are_transparent(
    decoder: TransformerDecoder, prompts: list[list[int]]
) -> None:
    wrapped = copy.deepcopy(decoder).train()
    for index, layer in enumerate(wrapped.layers):
        wrapped.layers[index] = checkpoint_wrapper(layer)
    assert run(wrapped, prompts, stop_tokens=[]) == run(decoder, prompts, stop_tokens=[])
