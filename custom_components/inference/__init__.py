"""Batched generation and task metrics."""
