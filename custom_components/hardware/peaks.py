"""Peak rates of GPUs, from their makers' data sheets: what a measured rate is held against."""

import torch

_DENSE_BF16_TFLOPS = {
    "B200": 2250.0,
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.0,  # SXM
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 70.0,
    "L4": 121.0,
}
"""Dense bf16 matrix products; part of the device's name, longer names first."""


def find_peak_flop_per_s(device: torch.device, dtype: torch.dtype) -> float | None:
    """Return the device's peak for matrix products, or None where it is not known.

    Args:
        device: CPUs have no peak here: measure one, see ``benchmarks/lora_step.py``.
        dtype: Only bf16 is in the table.
    """
    if device.type != "cuda" or dtype != torch.bfloat16:
        return None
    name = torch.cuda.get_device_name(device)
    return find_peak_by_name(name)


def find_peak_by_name(name: str) -> float | None:
    """Return the dense bf16 peak in FLOP/s of the GPU that calls itself ``name``, if known."""
    words = set(name.replace("-", " ").split())
    for known, tflops in _DENSE_BF16_TFLOPS.items():
        if set(known.split()) <= words:
            return tflops * 1e12
    return None
