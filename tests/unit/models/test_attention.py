"""Attention of packed rows against a dense mask, by every way of computing it."""

import custom_components.compat  # noqa: F401

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

from custom_components.datasets.collate import Batch, collate, collate_packs
from custom_components.models.adapters import freeze_base
from custom_components.models.attention import (
    DocumentMask,
    attend,
    build_block_mask,
    build_document_mask,
)
from custom_components.models.causal_lm import CausalLM, summed_loss
from custom_components.models.tiny import tiny_llama3_8b, tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from tests.compiler import needs_compiler

PACKS = [[7, 5, 5, 5, 1], [9, 9, 4], []]  # full, with two of padding, all padding
WIDTH = 24


def build_batch(packs: list[list[int]], *, capacity: int = WIDTH, seed: int = 0) -> Batch:
    """Packs of random documents of these lengths, about half of their tokens supervised."""
    generator = torch.Generator().manual_seed(seed)
    return collate_packs(build_packs(packs, generator), pad_id=0, capacity=capacity)


def build_packs(packs: list[list[int]], generator: torch.Generator) -> list[list[dict]]:
    def build_sample(length: int) -> dict:
        tokens = torch.randint(1, 256, (length + 1,), generator=generator)
        is_supervised = torch.rand(length + 1, generator=generator) < 0.5
        is_supervised[-1] = True
        labels = torch.where(is_supervised, tokens, -100)
        return {"tokens": tokens.tolist(), "labels": labels.tolist(), "id": "f:1"}

    return [[build_sample(length) for length in pack] for pack in packs]


def build_dense_mask(packs: list[list[int]]) -> torch.Tensor:
    """True where a query may see a key, ``[b, s, s]``, position by position from the definition."""
    mask = torch.zeros(len(packs), WIDTH, WIDTH, dtype=torch.bool)
    for row, pack in enumerate(packs):
        owner = [number for number, length in enumerate(pack) for _ in range(length)]
        owner += [-1 - i for i in range(WIDTH - len(owner))]  # padding is nobody's
        for query in range(WIDTH):
            for key in range(query + 1):
                mask[row, query, key] = owner[query] == owner[key]
    return mask


@pytest.fixture
def qkv() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(len(PACKS), 2, WIDTH, 16, generator=generator, requires_grad=True)
        for _ in range(3)
    ]


def test_documents_attend_as_under_a_dense_mask(qkv: list[torch.Tensor]) -> None:
    mask = build_document_mask(build_batch(PACKS).input_pos, PACKS)
    assert isinstance(mask, DocumentMask)
    outputs = [
        attend(*qkv, mask, 0.0, False),
        F.scaled_dot_product_attention(*qkv, attn_mask=build_dense_mask(PACKS)[:, None]),
    ]
    torch.testing.assert_close(*outputs)
    weights = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad((output * weights).sum(), qkv) for output in outputs]
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_block_mask_of_cuda_shows_what_a_dense_mask_shows(qkv: list[torch.Tensor]) -> None:
    """Flex attention has no backward on a CPU, but a forward."""
    plain = [t.detach() for t in qkv]
    output = flex_attention(*plain, block_mask=build_block_mask(build_batch(PACKS).input_pos))
    expected = F.scaled_dot_product_attention(*plain, attn_mask=build_dense_mask(PACKS)[:, None])
    torch.testing.assert_close(output, expected)


def test_other_masks_are_left_to_torchtune(qkv: list[torch.Tensor]) -> None:
    """Generation brings a dense mask, unpacked training none."""
    dense = build_dense_mask(PACKS)
    expected = F.scaled_dot_product_attention(*qkv, attn_mask=dense[:, None])
    torch.testing.assert_close(attend(*qkv, dense, 0.0, False), expected)
    causal = F.scaled_dot_product_attention(*qkv, is_causal=True)
    torch.testing.assert_close(attend(*qkv, None, 0.0, True), causal)


def test_equal_neighbours_share_one_call() -> None:
    mask = DocumentMask([[5, 5, 3], [3, 2]], width=14)
    assert mask.runs == [(5, 2), (3, 1), (1, 1), (3, 1), (2, 1), (1, 9)]


def build_model(**lora: bool) -> CausalLM:
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(["q_proj", "v_proj"], **lora) if lora else tiny_llama3_8b()
    if lora:
        freeze_base(decoder)
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    for name, parameter in decoder.named_parameters():
        if "lora_b" in name:  # zero at first, which would leave lora_a without a gradient
            torch.nn.init.normal_(parameter, std=0.02, generator=torch.Generator().manual_seed(2))
    return CausalLM(decoder)


def read_gradients(model: CausalLM) -> dict[str, torch.Tensor]:
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return gradients


def run_one_by_one(model: CausalLM, packs: list[list[int]]) -> tuple[float, dict]:
    samples = [s for pack in build_packs(packs, torch.Generator().manual_seed(0)) for s in pack]
    losses = [summed_loss(model, collate([sample], pad_id=0)) for sample in samples]
    sum(losses).backward()
    return sum(losses).item(), read_gradients(model)


def assert_equal_runs(ours: tuple[float, dict], expected: tuple[float, dict]) -> None:
    assert ours[0] == pytest.approx(expected[0], rel=1e-5)
    assert ours[1].keys() == expected[1].keys()
    for name, gradient in ours[1].items():
        distance = (gradient - expected[1][name]).norm() / expected[1][name].norm()
        assert distance < 1e-5, name


METHODS = [
    {},
    {"apply_lora_to_mlp": True},
    {"apply_lora_to_mlp": True, "quantize_base": True},
    {"apply_lora_to_mlp": True, "use_dora": True},
]


@pytest.mark.parametrize("method", METHODS, ids=["full", "lora", "qlora", "dora"])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_pack_gives_loss_and_gradients_of_its_samples_one_by_one(
    method: dict[str, bool], checkpointing: str
) -> None:
    model = build_model(**method)
    expected = run_one_by_one(model, PACKS)
    model.activation_checkpointing = checkpointing
    loss = summed_loss(model, build_batch(PACKS))
    loss.backward()
    assert_equal_runs((loss.item(), read_gradients(model)), expected)


@pytest.mark.parametrize("fault", ["attention", "label"])
def test_documents_that_see_each_other_are_noticed(fault: str) -> None:
    """The control: attention or one label that crosses a boundary gives another loss.

    Positions that run on would not: rotary embeddings know distances only.
    """
    model = build_model()
    expected, _ = run_one_by_one(model, PACKS)
    batch = build_batch(PACKS)
    if fault == "attention":
        batch = replace(batch, documents=None)
    else:
        last = torch.tensor([PACKS[0][0] - 1])  # of the first document, trained on the second's
        positions = torch.cat([batch.positions, last])
        targets = torch.cat([batch.targets, batch.tokens[0, last + 1]])
        batch = replace(batch, positions=positions, targets=targets)
    assert summed_loss(model, batch).item() != pytest.approx(expected, rel=1e-4)


def test_a_rank_without_a_pack_still_has_every_gradient() -> None:
    """Under sharding every rank must bring the same gradients to the reduction."""
    model = build_model(apply_lora_to_mlp=True)
    loss = summed_loss(model, build_batch([]))
    loss.backward()
    gradients = read_gradients(model)
    assert gradients.keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    assert loss.item() == 0 and all(g.abs().max() == 0 for g in gradients.values())


@needs_compiler
def test_compiled_layers_give_the_same_and_compile_once_for_all_packs() -> None:
    torch._dynamo.reset()
    model = build_model(apply_lora_to_mlp=True)
    expected = run_one_by_one(model, PACKS)
    model.embeddings_need_grad = True
    for layer in model.decoder.layers:
        layer.compile(dynamic=True)
    summed_loss(model, build_batch([[20], [11, 3]])).backward()
    with torch.compiler.set_stance("fail_on_recompile"):
        for packs in ([[4] * 6, [6, 5, 4, 3, 2, 1]], [[23, 1], [8, 8, 8], [2], [1]]):
            summed_loss(model, build_batch(packs)).backward()
        model.zero_grad()
        loss = summed_loss(model, build_batch(PACKS))
        loss.backward()
    assert_equal_runs((loss.item(), read_gradients(model)), expected)
