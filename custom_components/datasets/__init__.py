"""Rows, messages, tokens and labels, batches; and the embedded grammar corpus."""
