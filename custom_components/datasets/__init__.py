"""Rows, messages, tokens and labels, batches."""
