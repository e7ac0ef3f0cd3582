"""The LoRA recipe on CUDA against the CPU. Skips without a GPU; `make gpu-check` runs it."""

from pathlib import Path

import pytest
import torch

from tests.lora_runs import read_losses, run_lora, write_pairs
from tests.ranks import run_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
METHODS = {
    "lora": [],
    "qlora": ["model.quantize_base=true"],
    "dora": ["model.use_dora=true"],
}
COMMON = ["max_steps=8", "epochs=null", "optimizer.lr=0.01", "lr_scheduler.num_warmup_steps=1"]


@pytest.mark.parametrize(
    ("overrides", "tolerance"),
    [
        (["device=cuda", "dtype=fp32"], 1e-3),
        (["device=cuda", "dtype=bf16"], 0.05),
        (["device=cuda", "dtype=bf16", "compile=true"], 0.05),
        (["device=cuda", "dtype=bf16", "activation_checkpointing=full"], 0.05),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_losses_on_cuda_equal_those_on_the_cpu(
    tmp_path: Path, method: str, overrides: list[str], tolerance: float
) -> None:
    source = f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 24)}"
    common = [*COMMON, source, *METHODS[method]]
    run_ranks(1, run_lora, str(tmp_path), "cpu", common)
    run_ranks(1, run_lora, str(tmp_path), "cuda", [*common, *overrides])
    expected = read_losses(tmp_path / "cpu")
    assert read_losses(tmp_path / "cuda") == pytest.approx(expected, abs=tolerance)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("mode", ["replicate", "shard"])
@pytest.mark.parametrize("method", METHODS)
def test_two_gpus_equal_one(tmp_path: Path, method: str, mode: str) -> None:
    source = f"dataset.source={write_pairs(tmp_path / 'pairs.jsonl', 25)}"
    on_gpu = [*COMMON, source, "device=cuda", "dtype=fp32", *METHODS[method]]
    run_ranks(1, run_lora, str(tmp_path), "one", [*on_gpu, "batch_size=4"])
    run_ranks(2, run_lora, str(tmp_path), "two", [*on_gpu, "batch_size=2", f"data_parallel={mode}"])
    expected = read_losses(tmp_path / "one")
    assert read_losses(tmp_path / "two") == pytest.approx(expected, abs=1e-4)
