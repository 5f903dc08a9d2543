"""Parse human-readable sizes, durations and times: 64MiB, 7d, 2016-11-01."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_SIZE = re.compile(r"([0-9]+)\s*(|k|m|g|t|kb|mb|gb|tb|kib|mib|gib|tib|b)", re.IGNORECASE)
_SHIFTS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w)")
_MILLISECONDS = re.compile(r"-?[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def size_of(text: str) -> int | None:
    """Return the bytes of a size such as 1048576, 64MiB or 1g; None for an invalid one.

    All units are powers of 1024.
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _SHIFTS[found[2][:1].lower()] if found else None


def duration_ms(text: str) -> int | None:
    """Return the ms of a duration such as 7d, 12h or 500ms; None for an invalid one."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * _UNITS_MS[found[2]] if found else None


def parse_time(value: str) -> int:
    """Return the ms since 1970 of an integer (ms), or of a date or time in ISO 8601, which is UTC unless it has an
    offset.

    Raises ValueError.
    """
    return int(value) if _MILLISECONDS.fullmatch(value) else time_ms(datetime.fromisoformat(value))


def time_ms(at: datetime) -> int:
    """Return the ms since 1970 of a time, which is UTC unless it has a time zone."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
