"""Log directories: their files, indexes, checkpoints and producer state."""
