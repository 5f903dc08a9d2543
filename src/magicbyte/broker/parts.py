"""Parts of a response that are not bytes at hand: slices of files, and conversions that are made as they are sent."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from magicbyte.errors import MagicbyteError
from magicbyte.protocol.runtime import Elsewhere

if TYPE_CHECKING:
    from magicbyte.log.segment import FileSlice
    from magicbyte.net.stream import Stream

log = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">qi")
_LEAST_ENTRY: Final = 61  # bytes: what a reader of any format takes for an entry that has not come whole
_ZEROS: Final = bytes(64 << 10)


class FilePart(Elsewhere):
    """A slice of a log. The file stays open for it, though its segment may be deleted meanwhile."""

    __slots__ = ("_descriptor", "_file", "_position")

    def __init__(self, found: FileSlice) -> None:
        super().__init__(found.length)
        descriptor = found.file.fileno()
        self._file, self._position = found.file, found.position
        self._descriptor = None if descriptor is None else os.dup(descriptor)

    def fileno(self) -> int | None:
        """Return the descriptor, None if there is none."""
        return self._descriptor

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`, fewer only where the file ends."""
        return self._file.read_at(position, length)

    async def send(self, stream: Stream) -> None:
        """Send the slice, from the file to the socket where that can be."""
        await stream.send_file(self, self._position, self.nbytes)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class ConvertedPart(Elsewhere):
    """A slice that is converted while it is sent, of which only an estimate of the size was announced.

    What is longer is cut there, what is shorter is filled with the beginning of an entry that never comes: readers
    drop what is not whole at the end of a fetch, and ask again from there.
    """

    __slots__ = ("_chunks", "_done", "_first")

    def __init__(
        self, nbytes: int, first: list[memoryview], rest: Iterator[list[memoryview]], done: Callable[[], None]
    ) -> None:
        super().__init__(nbytes)
        self._first, self._chunks, self._done = first, rest, done

    async def send(self, stream: Stream) -> None:
        """Send as many bytes as were announced. Damage further on ends the conversion, and is found by the next."""
        left, chunk = self.nbytes, self._first
        self._first = []
        while chunk:
            for buffer in chunk:
                if left:
                    await stream.write([buffer[:left]])
                    left -= min(left, len(buffer))
            chunk = [] if not left else await self._next()
        if left:
            await _fill(stream, left)

    async def _next(self) -> list[memoryview]:
        try:
            return await asyncio.to_thread(next, self._chunks, [])
        except MagicbyteError as error:
            log.warning("a conversion ended early: %s", error)
            return []

    def close(self) -> None:
        """Let go of what is not converted yet, and tell whoever counts."""
        self._chunks = iter(())
        self._done()


async def _fill(stream: Stream, left: int) -> None:
    head = _HEAD.pack(-1, max(left + 1, _LEAST_ENTRY))[:left]
    await stream.write([head])
    left -= len(head)
    while left:
        piece = _ZEROS[:left]
        await stream.write([piece])
        left -= len(piece)
