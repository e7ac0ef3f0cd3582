"""Model builders, tokenizers, base weights and adapters."""
