"""The base of generated messages: `Message`, and the `Writer` that collects their bytes.

Bytes are read in place: `records` are views into the frame. Reading past the end raises IndexError or struct.error,
which `Message.read` converts to a ProtocolError; all other errors are ProtocolErrors from the start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias

from msgspec import Struct

from magicbyte.engine.errors import ProtocolError, TooManyElementsError, UnsupportedVersionError

Buffer: TypeAlias = bytes | bytearray | memoryview
COPIED: Final = 2048  # bytes up to which a copy is cheaper than a separate buffer, in the process and in the kernel


class Allowance:
    """The number of elements that one message may have: in all its arrays, nested ones included, and tagged fields.

    A count costs its sender a few bytes, and its reader an object per element: the remaining allowance is checked when
    a count is read, before any element is. `used` is the total so far.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def take(self, count: int, field: str, at: int) -> None:
        """Count elements before they are read. Raises TooManyElementsError."""
        self.used += count
        if self.used > self.limit:
            most = f"up to {self.limit} elements in a message"
            raise TooManyElementsError(field, expected=most, found=self.used, position=at)


current_allowance: Final[ContextVar[Allowance | None]] = ContextVar(
    "allowance", default=None
)  # the allowance of the message being read


class Elsewhere:
    """Bytes that a writer counts but does not hold: the sender of the frame sends `nbytes` of its own in their
    place.
    """

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


Piece: TypeAlias = Buffer | Elsewhere
Records: TypeAlias = Buffer | Sequence[Piece]  # one buffer, or several adjacent ones
Tags: TypeAlias = tuple[tuple[int, bytes], ...]  # tagged fields unknown to the schema


class Writer:
    """Collect the bytes of messages. Long records are not copied: `buffers` returns them as given.

    `buffer` has all other bytes; `attached` has the position in it of each piece that is not copied.
    """

    __slots__ = ("attached", "attached_bytes", "buffer")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.attached: list[tuple[int, Piece]] = []
        self.attached_bytes = 0

    def __len__(self) -> int:
        return len(self.buffer) + self.attached_bytes

    def attach(self, piece: Piece) -> None:
        """Append a piece without a copy, or with one if it is short."""
        size = piece_size(piece)
        if size < COPIED and not isinstance(piece, Elsewhere):
            self.buffer += piece
        else:
            self.attached.append((len(self.buffer), piece))
            self.attached_bytes += size

    def buffers(self) -> list[Buffer]:
        """Return the written bytes as a list of buffers in order: for `writev`, `sendmsg`, `writelines`."""
        return buffers_of(self.pieces())

    def pieces(self) -> list[Piece]:
        """Return the written pieces in order, including those that are elsewhere."""
        if not self.attached:
            return [self.buffer]
        whole, parts, start = memoryview(self.buffer), list[Piece](), 0
        for end, piece in self.attached:
            if end > start:
                parts.append(whole[start:end])
            parts.append(piece)
            start = end
        if start < len(whole):
            parts.append(whole[start:])
        return parts

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers()) if self.attached else bytes(self.buffer)


def buffers_of(pieces: Sequence[Piece]) -> list[Buffer]:
    """Return pieces as buffers. None may be elsewhere: only the owner of such records can send them."""
    found = [each for each in pieces if not isinstance(each, Elsewhere)]
    assert len(found) == len(pieces), "a piece is elsewhere"
    return found


def piece_size(piece: Piece) -> int:
    """Return the size of a piece in bytes."""
    return len(piece) if isinstance(piece, bytes | bytearray) else piece.nbytes


class Writable(Protocol):
    """A generated struct or message."""

    def _write(self, out: Writer, version: int) -> None: ...


class Message(Struct, gc=False):
    """A request, a response, a header or a stored record: one class for all its versions.

    Fields that do not exist in a version keep their defaults when it is read. When it is written, they are omitted if
    they are `ignorable` or have their default; otherwise the write fails. Garbage collection passes over messages: they
    are trees.
    """

    API_KEY: ClassVar[int | None] = None
    VALID_VERSIONS: ClassVar[range]
    FLEXIBLE_VERSIONS: ClassVar[range]

    def _write(self, out: Writer, version: int) -> None:
        raise NotImplementedError

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[Any, int]:
        raise NotImplementedError

    def write(self, out: Writer, version: int) -> None:
        """Append this message in the form of `version`; after an error `out` is unusable.

        Raises UnsupportedVersionError, for the version itself or a field that it does not have, and ProtocolError for a
        value that does not fit its field.
        """
        if version not in self.VALID_VERSIONS:
            raise UnsupportedVersionError(type(self).__name__, version, known=self.VALID_VERSIONS)
        try:
            self._write(out, version)
        except struct.error as error:
            written, _ = _reached(error)
            wrong = ProtocolError(f"a number in {written}", expected="one that its type can hold", found=error)
            raise wrong.of(type(self).__name__, version) from None
        except (ProtocolError, UnsupportedVersionError) as error:
            raise error.of(type(self).__name__, version) from None

    def encode(self, version: int) -> bytes:
        """Return the bytes of this message in the form of `version`. Raises as `write` does."""
        out = Writer()
        self.write(out, version)
        return bytes(out)

    def size(self, version: int) -> int:
        """Return the number of bytes of this message. Records are not copied for it."""
        out = Writer()
        self.write(out, version)
        return len(out)

    @classmethod
    def read(cls, buffer: Buffer, version: int) -> Self:
        """Parse the message that fills `buffer` in the form of `version`.

        Raises UnsupportedVersionError, and ProtocolError for invalid or trailing bytes.
        """
        message, end = cls.read_at(buffer, 0, version)
        if end != (size := len(buffer) if isinstance(buffer, bytes) else memoryview(buffer).nbytes):
            error = ProtocolError("bytes after the message", expected=0, found=size - end, position=end)
            raise error.of(cls.__name__, version)
        return message

    @classmethod
    def read_within(cls, buffer: Buffer, at: int, version: int, allowance: Allowance) -> tuple[Self, int]:
        """Parse untrusted bytes, as `read_at` does. Raises TooManyElementsError beyond the allowance."""
        before = current_allowance.set(allowance)
        try:
            return cls.read_at(buffer, at, version)
        finally:
            current_allowance.reset(before)

    @classmethod
    def read_at(cls, buffer: Buffer, at: int, version: int) -> tuple[Self, int]:
        """Return the message that begins at byte `at`, and the position after it. Raises as `read` does."""
        if version not in cls.VALID_VERSIONS:
            raise UnsupportedVersionError(cls.__name__, version, known=cls.VALID_VERSIONS)
        data = memoryview(buffer)
        if not isinstance(buffer, bytes) and (data.format != "B" or data.ndim != 1):
            data = data.cast("B")
        try:
            return cls._read(data, at, version)
        except (IndexError, struct.error) as error:
            read, position = _reached(error)
            wrong = ProtocolError(read, expected="more bytes", found=f"the end after {len(data)}", position=position)
            raise wrong.of(cls.__name__, version) from None
        except ProtocolError as error:
            raise error.of(cls.__name__, version) from None


def _reached(error: BaseException) -> tuple[str, int | None]:
    """Return the struct that was being read or written at an error, and for reading the position."""
    name, position, trace = "message", None, error.__traceback__
    while trace is not None:
        variables = trace.tb_frame.f_locals
        position = variables.get("at", position)
        if isinstance(found := variables.get("self"), Struct):
            name = type(found).__name__
        trace = trace.tb_next
    return name, position
