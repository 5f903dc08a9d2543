"""Shared by comparisons with real brokers."""

import re
from pathlib import Path


def log_bytes(folder: Path) -> bytes:
    """Return the bytes of a partition's segments."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


INTERVAL = 600  # bytes between index entries: small logs have some, too


LAST_TIME = 1_700_000_000_000


SETTINGS = (f"log.index.interval.bytes={INTERVAL}", "log.cleaner.enable=false", "log.retention.ms=-1")


def complaints(said: str, topic: str, end_offset: int | None) -> list[str]:
    """The lines in which a broker tells of work on a log that a sound one does not need.

    From 3.0 on it always says that it rebuilds the producers' state from the end of the log: of nothing, that is.
    """
    lines = [
        line
        for line in said.splitlines()
        if topic in line and re.search(r"\((kafka\.log|org\.apache\.kafka\.storage)", line)
    ]
    usual = re.compile(rf"(rebuilding producer state|Producer state recovery took .*) from offset {end_offset} ")
    trouble = re.compile("recover|rebuil|corrupt|truncat|unclean|sanity|stray|invalid|delet|ERROR|WARN", re.IGNORECASE)
    return [line for line in lines if trouble.search(line.partition("]")[2]) and not usual.search(line)]
