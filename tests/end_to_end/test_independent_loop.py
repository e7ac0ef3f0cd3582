"""The recipe against a LoRA training loop written in plain PyTorch, without torchtune's modules."""

import custom_components.compat  # noqa: F401

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torchtune.data import Message

from custom_components.models.adapters import adapter_parameters
from custom_components.models.byte_tokenizer import byte_tokenizer
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from tests.lora_runs import read_losses, run_lora, write_pairs
from tests.ranks import run_ranks

ROWS, BATCH, STEPS, PEAK, WARMUP, DECAY, CLIP = 24, 4, 10, 5e-3, 2, 0.1, 0.05
ALPHA, RANK = 16.0, 8
PROMPT = "Correct: {input}"
ATTENTION = ["q_proj", "k_proj", "v_proj", "output_proj"]


def build_decoder():
    """The same seeded random weights as the recipe's, read as plain tensors below."""
    with torch.device("meta"):
        decoder = tiny_lora_llama3_8b(ATTENTION, apply_lora_to_mlp=True)
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    return decoder


def linear(weights, name, x):
    out = x @ weights[f"{name}.weight"].T
    if f"{name}.lora_a.weight" in weights:
        low = x @ weights[f"{name}.lora_a.weight"].T
        out = out + (ALPHA / RANK) * (low @ weights[f"{name}.lora_b.weight"].T)
    return out


def rms_norm(weights, name, x, eps=1e-5):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weights[f"{name}.scale"]


def rotate(x, base=500_000):
    """Rotary embedding on neighbouring pairs; x is [s, heads, dim]."""
    num, dim = x.shape[0], x.shape[-1]
    theta = base ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angle = torch.outer(torch.arange(num, dtype=torch.float32), theta)[:, None]  # [s, 1, dim/2]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack(
        [even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1
    )
    return turned.flatten(-2)


def attention(weights, name, x, heads, kv_heads):
    s, dim = x.shape[0], x.shape[1] // heads
    q = rotate(linear(weights, f"{name}.q_proj", x).view(s, heads, dim))
    k = rotate(linear(weights, f"{name}.k_proj", x).view(s, kv_heads, dim))
    v = linear(weights, f"{name}.v_proj", x).view(s, kv_heads, dim)
    k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(dim)
    scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -torch.inf)
    mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
    return linear(weights, f"{name}.output_proj", mixed)


def logits_of(weights, tokens, num_layers, heads, kv_heads):
    h = weights["tok_embeddings.weight"][tokens]
    for i in range(num_layers):
        name = f"layers.{i}"
        normed = rms_norm(weights, f"{name}.sa_norm", h)
        h = h + attention(weights, f"{name}.attn", normed, heads, kv_heads)
        x = rms_norm(weights, f"{name}.mlp_norm", h)
        gate = F.silu(linear(weights, f"{name}.mlp.w1", x)) * linear(weights, f"{name}.mlp.w3", x)
        h = h + linear(weights, f"{name}.mlp.w2", gate)
    return linear(weights, "output", rms_norm(weights, "norm", h))


def read_rows(source: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens and labels, one row at a time, straight from the file."""
    tokenizer, rows = byte_tokenizer(), []
    for line in source.read_text().splitlines():
        pair = json.loads(line)
        tokens, mask = tokenizer.tokenize_messages(
            [
                Message("user", PROMPT.format(input=pair["input"]), masked=True),
                Message("assistant", pair["output"], masked=False),
            ]
        )
        labels = [-100 if m else t for t, m in zip(tokens, mask, strict=True)]
        rows.append((torch.tensor(tokens[:-1]), torch.tensor(labels[1:])))
    return rows


def train_independently(source: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    decoder = build_decoder()
    heads, kv_heads = decoder.num_heads, decoder.layers[0].attn.num_kv_heads
    weights = {name: p.detach().clone() for name, p in decoder.named_parameters()}
    adapter = {name: weights[name].requires_grad_(True) for name in adapter_parameters(decoder)}
    first = {n: torch.zeros_like(p) for n, p in adapter.items()}
    second = {n: torch.zeros_like(p) for n, p in adapter.items()}
    rows, losses = read_rows(source), []
    for step in range(STEPS):
        start = step * BATCH % ROWS
        loss_sum, count = torch.zeros(()), 0
        for tokens, labels in rows[start : start + BATCH]:
            logits = logits_of(weights, tokens, len(decoder.layers), heads, kv_heads)
            loss_sum = loss_sum + F.cross_entropy(logits, labels, reduction="sum")
            count += int((labels != -100).sum())
        loss = loss_sum / count
        grads = dict(zip(adapter, torch.autograd.grad(loss, list(adapter.values())), strict=True))
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in grads.values()))
        if step < WARMUP:
            lr = PEAK * (step + 1) / (WARMUP + 1)
        else:
            lr = PEAK * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2
        with torch.no_grad():
            for name, p in adapter.items():
                g = grads[name] * min(1.0, CLIP / norm)
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.999 * second[name] + 0.001 * g * g
                corrected = (second[name] / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
                p -= lr * DECAY * p
                p -= lr * first[name] / (1 - 0.9 ** (step + 1)) / corrected
        losses.append(loss.item())
    return losses, adapter


def run_recipe_and_read_adapter(folder: str, overrides: list[str]) -> dict[str, Any]:
    import custom_lora

    kept = {}
    original = custom_lora.LoraFinetuneRecipe.cleanup

    def keep(self, progress):
        kept.update({n: p.detach().numpy() for n, p in adapter_parameters(self.decoder).items()})
        original(self, progress)

    custom_lora.LoraFinetuneRecipe.cleanup = keep
    run_lora(folder, "run", overrides)
    return kept


def test_recipe_equals_an_independent_pytorch_loop(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "pairs.jsonl", ROWS)
    overrides = [
        f"dataset.source={source}", f"dataset.prompt=\"{PROMPT}\"", "shuffle=false", "epochs=null",
        f"model.lora_attn_modules=[{','.join(ATTENTION)}]", f"max_steps={STEPS}",
        f"batch_size={BATCH}", f"optimizer.lr={PEAK}", f"optimizer.weight_decay={DECAY}",
        f"lr_scheduler.num_warmup_steps={WARMUP}", f"clip_grad_norm={CLIP}",
    ]  # fmt: skip
    [ours] = run_ranks(1, run_recipe_and_read_adapter, str(tmp_path), overrides)
    losses, adapter = train_independently(source)
    assert losses[0] - losses[-1] > 0.1
    assert read_losses(tmp_path / "run") == pytest.approx(losses, rel=1e-6)
    for name, expected in adapter.items():
        distance = float(
            (torch.from_numpy(ours[name]) - expected.detach()).norm() / expected.norm().detach()
        )
        assert distance < 1e-6, name
