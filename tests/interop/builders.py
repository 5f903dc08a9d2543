"""What several comparisons with real brokers make or read."""

from pathlib import Path


def log_bytes(folder: Path) -> bytes:
    """Return what the segments of a partition hold."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
