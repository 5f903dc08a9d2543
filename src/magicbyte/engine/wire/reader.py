"""Read Kafka's primitive types one after the other, in their classic or their flexible encoding (KIP-482).

For small inputs: keys and values of internal topics, requests. Record sets have kernels.
"""

import struct
import uuid
from collections.abc import Callable
from typing import TypeVar

from magicbyte.engine.errors import CorruptRecordError

T = TypeVar("T")

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(">" + code) for code in "bhiq")
_UVARINT_BYTES = 5  # enough for 32 bits


class Reader:
    """A position in `data`. Every method reads at it and moves it past the bytes read.

    In a `flexible` version, strings, bytes and arrays are prefixed with an unsigned varint, their length plus one.
    Raises CorruptRecordError, with the position, for missing bytes and impossible lengths.
    """

    def __init__(self, data: bytes | memoryview, *, flexible: bool = False) -> None:
        self.data = memoryview(data)
        self.position = 0
        self.flexible = flexible

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes, not copied."""
        end = self.position + size
        if not 0 <= size <= len(self.data) - self.position:
            left = len(self.data) - self.position
            raise CorruptRecordError("length", expected=f"0 to {left}", found=size, position=self.position)
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def int8(self) -> int:
        """Read an int8."""
        return int(_INT8.unpack(self.take(1))[0])

    def int16(self) -> int:
        """Read an int16."""
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        """Read an int32."""
        return int(_INT32.unpack(self.take(4))[0])

    def int64(self) -> int:
        """Read an int64."""
        return int(_INT64.unpack(self.take(8))[0])

    def unsigned_varint(self) -> int:
        """Read an unsigned varint of up to 32 bits."""
        start, value = self.position, 0
        for at in range(_UVARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * at)
            if byte < 0x80:
                return value
        raise CorruptRecordError("varint", expected=f"<= {_UVARINT_BYTES} bytes", found="more", position=start)

    def uuid(self) -> uuid.UUID:
        """Read 16 bytes."""
        return uuid.UUID(bytes=bytes(self.take(16)))

    def nullable_bytes(self) -> bytes | None:
        """Read bytes, or None for the length -1."""
        size = self.unsigned_varint() - 1 if self.flexible else self.int32()
        return None if size == -1 else bytes(self.take(size))

    def bytes(self) -> bytes:
        """Read bytes that cannot be null."""
        return self._present("bytes", self.nullable_bytes)

    def nullable_string(self) -> str | None:
        """Read a UTF-8 string, or None for the length -1."""
        size = self.unsigned_varint() - 1 if self.flexible else self.int16()
        if size == -1:
            return None
        start, raw = self.position, self.take(size)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRecordError("string", expected="UTF-8", found=raw[:80].hex(), position=start) from error

    def string(self) -> str:
        """Read a UTF-8 string that cannot be null."""
        return self._present("string", self.nullable_string)

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        """Read an array, or None for the length -1. `read` reads an element, which has at least one byte."""
        start = self.position
        size = self.unsigned_varint() - 1 if self.flexible else self.int32()
        if size == -1:
            return None
        left = len(self.data) - self.position
        if not 0 <= size <= left:
            raise CorruptRecordError("array length", expected=f"0 to {left}", found=size, position=start)
        return [read() for _ in range(size)]

    def array(self, read: Callable[[], T]) -> list[T]:
        """Read an array that cannot be null. `read` reads an element."""
        return self._present("array", lambda: self.nullable_array(read))

    def _present(self, what: str, read: Callable[[], T | None]) -> T:
        start = self.position
        value = read()
        if value is None:
            raise CorruptRecordError(what, expected="not null", found="null", position=start)
        return value
