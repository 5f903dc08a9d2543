"""The walk over the entries of a file by their headers: the rest of large ones is not even read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from magicbyte.records.kernels.framing import least_size
from magicbyte.records.layout import LOG_OVERHEAD, V0_MINIMUM, V0_OVERHEAD, Dialect

HEAD: Final = 80
"""First bytes of an entry that are looked at: a v2 header with the start of its records, and all of a marker."""
LARGE_ENTRY: Final = 8 << 10
"""Size of an entry from which on reading the next header alone takes less time."""

_ENRICHED = Dialect.ENRICHED  # a member of an enum takes three look-ups
_NO_LIMIT = LOG_OVERHEAD + (1 << 31)
_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")
_LEAST: Final = {magic: least_size.py_func(magic) for magic in (0, 1, 2)}
_LEAST_ENRICHED: Final = {1: _LEAST[1]}


class Readable(Protocol):
    """Where entries are read from: an open file, or bytes that were sent."""

    @property
    def path(self) -> str:
        """Where it is, for messages."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`, fewer only where it ends."""


def entry_heads(
    file: Readable,
    start: int,
    stop: int,
    *,
    end: int,
    dialect: Dialect,
    limit: int = _NO_LIMIT,
    window_bytes: int,
    is_sound: bool = False,
) -> Iterator[tuple[int, int, bytes]]:
    """Yield where an entry begins and ends and its first bytes, of all that begin in [start, stop); `end` is the log's.

    These are HEAD bytes but where the file ends. The walk ends early at what is no entry of at most `limit` bytes,
    or goes on behind `end`: what that means is the caller's to say. `is_sound`: magic bytes were looked at before.
    `window_bytes` are read at once to find the headers of small entries.
    """
    read, unpack = file.read_at, _SIZE_AND_MAGIC.unpack_from
    least_of = (_LEAST_ENRICHED if dialect is _ENRICHED else _LEAST).get
    most, last = limit - LOG_OVERHEAD, min(stop - 1, end - V0_OVERHEAD)
    otherwise = V0_MINIMUM if is_sound else limit
    window, base, size, at = b"", start, 0, start
    while at <= last:
        if size < LARGE_ENTRY:
            if at - base + HEAD > len(window) and base + len(window) < end:
                window, base = read(at, min(window_bytes, end - at)), at
            head = window[at - base : at - base + HEAD]
        else:
            head = read(at, HEAD)
        if len(head) < HEAD and len(head) < end - at:  # the file has shrunk
            return
        size, magic = unpack(head)
        behind = at + LOG_OVERHEAD + size
        if not least_of(magic, otherwise) <= size <= most or behind > end:
            return
        yield at, behind, head
        at = behind
