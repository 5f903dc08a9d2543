"""Shared by comparisons with real brokers."""

from pathlib import Path


def log_bytes(folder: Path) -> bytes:
    """Return the bytes of a partition's segments."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
