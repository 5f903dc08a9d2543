"""Encode and decode generated messages in records, where a version precedes them; errors are those of records."""

from typing import Any, TypeVar

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError, ProtocolError
from magicbyte.engine.protocol.message import Message, Writer

M = TypeVar("M", bound=Message)

VERSION_BYTES = 2  # an int16 before the message


def read_stored(kind: type[M], data: bytes, version: int) -> M:
    """Return the message after the version at the start of `data`; trailing bytes are ignored.

    Raises CorruptRecordError.
    """
    try:
        message, _ = kind.read_at(data, VERSION_BYTES, version)
    except ProtocolError as error:
        raise CorruptRecordError(
            error.field, expected=error.expected, found=error.found, position=error.position
        ) from error
    return message


def write_stored(message: Message, version: int) -> bytes:
    """Return the encoded key or value of a record: the version, and the message in it."""
    out = Writer()
    out.buffer += version.to_bytes(VERSION_BYTES, "big")
    message.write(out, version)
    return bytes(out)


class UnknownKey(Struct, frozen=True):
    """A key of an unknown type; `data` is all of it."""

    version: int
    data: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return {"type": str(self.version), "data": "unknown"}


class UnknownValue(Struct, frozen=True):
    """A value of an unknown version or record type; `data` is all of it."""

    version: int
    data: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of Kafka's tools."""
        return {"version": str(self.version), "data": "unknown"}
