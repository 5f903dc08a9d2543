"""Parts of a response other than bytes in memory: slices of files, and conversions made while sending."""

from __future__ import annotations

import os
import struct
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.protocol.message import Elsewhere
from magicbyte.engine.records.layout import RECORD_BATCH_OVERHEAD

if TYPE_CHECKING:
    from types import TracebackType

    from magicbyte.access.net.stream import Stream
    from magicbyte.engine.log.live.segment import FileSlice
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.server.serving.threads import Threads

_HEAD: Final = struct.Struct(">qi")
_LEAST_ENTRY: Final = (
    RECORD_BATCH_OVERHEAD  # the smallest size that a reader of any format treats as an incomplete entry
)
_ZEROS: Final = bytes(64 << 10)


class KeptFile:
    """A log file that stays open until this is closed, although its segment may be closed or deleted meanwhile.

    It refers to the open file, without a descriptor of its own: any number of parts of a file share one.
    """

    __slots__ = ("_file", "_threads", "path", "size")

    def __init__(self, file: ReadableFile, threads: Threads) -> None:
        self._file: ReadableFile | None = file
        self._threads, self.path, self.size = threads, file.path, file.size

    @property
    def _kept(self) -> ReadableFile:
        assert self._file is not None, "not closed yet"
        return self._file

    def fileno(self) -> int | None:
        """Return the descriptor, None if there is none."""
        return self._kept.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""
        return self._kept.read_at(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return their number."""
        return self._kept.read_into(position, buffer)

    def close(self) -> None:
        """Release the file, which is closed with its last reference. A second call does nothing.

        Closing a deleted file may free its blocks, which takes a while: a thread does it.
        """
        if self._file is None:
            return
        descriptor = self._file.fileno()
        box, self._file = [self._file], None
        if descriptor is not None and not os.fstat(descriptor).st_nlink:
            self._threads.pool.submit(box.clear)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class FilePart(Elsewhere):
    """A slice of a log."""

    __slots__ = ("_file", "_position", "_threads")

    def __init__(self, found: FileSlice, threads: Threads) -> None:
        super().__init__(found.length)
        self._file, self._position, self._threads = KeptFile(found.file, threads), found.position, threads

    async def send(self, stream: Stream) -> None:
        """Send the slice, by `sendfile` if possible; threads read what is not in the page cache."""
        await stream.send_file(self._file, self._position, self.nbytes, self._threads.pool)

    def close(self) -> None:
        """Release the file."""
        self._file.close()


class ConvertedPart(Elsewhere):
    """A slice converted while it is sent, for which only an estimate of the size was announced.

    A longer result is cut at that size, a shorter one is filled with the start of an incomplete entry: readers drop an
    incomplete entry at the end of a fetch, and fetch it again. `convert` does one step of it in a thread.
    """

    __slots__ = ("_chunks", "_convert", "_done", "_first")

    def __init__(
        self,
        nbytes: int,
        first: list[memoryview],
        rest: Iterator[list[memoryview]],
        done: Callable[[], None],
        convert: Callable[[Callable[[], list[memoryview]]], Awaitable[list[memoryview]]],
    ) -> None:
        super().__init__(nbytes)
        self._first, self._chunks, self._done, self._convert = first, rest, done, convert

    async def send(self, stream: Stream) -> None:
        """Send as many bytes as were announced.

        Damage in between ends the conversion, and is left to the next fetch.
        """
        left, chunk = self.nbytes, self._first or await self._next()
        self._first = []
        while chunk:
            for buffer in chunk:
                if left:
                    await stream.write([buffer[:left]])
                    left -= min(left, len(buffer))
            chunk = [] if not left else await self._next()
        self._chunks = iter(())  # an unfinished conversion holds its last chunk
        if left:
            await _fill(stream, left)

    async def _next(self) -> list[memoryview]:
        try:
            return await self._convert(partial(next, self._chunks, []))
        except MagicbyteError:  # a reader that gets there gets its error code
            return []

    def close(self) -> None:
        """Drop the rest of the conversion, and report the counts."""
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
