"""Peaks by the names that devices give themselves."""

import pytest
import torch

from custom_components.hardware.peaks import find_peak_by_name, find_peak_flop_per_s


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_a_device_is_found_by_its_name(name: str, tflops: float | None) -> None:
    assert find_peak_by_name(name) == (None if tflops is None else tflops * 1e12)


def test_a_cpu_has_no_known_peak() -> None:
    assert find_peak_flop_per_s(torch.device("cpu"), torch.bfloat16) is None
