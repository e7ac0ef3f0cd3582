"""Records on disk, the W&B view, the terminal."""
