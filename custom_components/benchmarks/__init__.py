"""Measured comparisons, one JSON line a result."""
