"""Fixtures of the end-to-end tests."""

import signal

import pytest


@pytest.fixture
def signals_kept():
    """Put the signal handlers back that torchrun's agent sets in its own process."""
    kept = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
