"""Packed training on CUDA, where documents are kept apart by flex attention, against the CPU."""

from pathlib import Path

import pytest
import torch

from tests.lora_runs import read_losses, run_lora, write_pairs
from tests.ranks import run_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
COMMON = [
    "packed=true", "dataset.max_seq_len=256", "batch_size=2", "epochs=2", "optimizer.lr=0.01",
    "lr_scheduler.num_warmup_steps=1", "dataloader.pin_memory=true",
]  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "tolerance"),
    [
        (["dtype=fp32"], 1e-3),
        (["dtype=bf16"], 0.05),
        (["dtype=bf16", "compile=true"], 0.05),
        (["dtype=bf16", "activation_checkpointing=full"], 0.05),
    ],
)
def test_packed_losses_on_cuda_equal_those_on_the_cpu(
    tmp_path: Path, overrides: list[str], tolerance: float
) -> None:
    common = [*COMMON, f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 25)}"]
    run_ranks(1, run_lora, str(tmp_path), "cpu", [*common, "dataloader.pin_memory=false"])
    run_ranks(1, run_lora, str(tmp_path), "cuda", [*common, "device=cuda", *overrides])
    expected = read_losses(tmp_path / "cpu")
    assert len(expected) > 8
    assert read_losses(tmp_path / "cuda") == pytest.approx(expected, abs=tolerance)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("mode", ["replicate", "shard"])
def test_two_gpus_equal_one(tmp_path: Path, mode: str) -> None:
    source = f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 25)}"
    on_gpu = [*COMMON, source, "device=cuda", "dtype=fp32"]
    run_ranks(1, run_lora, str(tmp_path), "one", on_gpu)
    run_ranks(2, run_lora, str(tmp_path), "two", [*on_gpu, "batch_size=1", f"data_parallel={mode}"])
    assert read_losses(tmp_path / "two") == pytest.approx(read_losses(tmp_path / "one"), abs=1e-4)
