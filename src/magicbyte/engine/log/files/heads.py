"""Walk the entries of a file by their headers, without reading the content of large entries."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from magicbyte.engine.records.kernels.framing import least_size
from magicbyte.engine.records.layout import LOG_OVERHEAD, V0_MINIMUM, V0_OVERHEAD, Dialect

HEAD: Final = 80
"""Bytes read per entry: a v2 header with the start of its records, and a whole marker."""
LARGE_ENTRY: Final = 8 << 10
"""Size of an entry from which a separate read of the next header takes less time."""

_ENRICHED = Dialect.ENRICHED  # a global, because access to an enum member takes three look-ups
_NO_LIMIT = LOG_OVERHEAD + (1 << 31)
_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")
_LEAST: Final = {magic: least_size.py_func(magic) for magic in (0, 1, 2)}
_LEAST_ENRICHED: Final = {1: _LEAST[1]}


class Readable(Protocol):
    """The source of entries: an open file, or bytes from a network."""

    @property
    def path(self) -> str:
        """Its location, for messages."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at its end."""


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
    """Yield start, end and first bytes of every entry that begins in [start, stop); the log ends at `end`.

    The first bytes are HEAD bytes, fewer only at the end of the file. The walk ends early at a position without a valid
    entry of at most `limit` bytes, or at an entry that extends past `end`; the caller decides what that means.
    `is_sound`: magic bytes were checked before. `window_bytes` is the size of a read while entries are small.
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
