"""What the coordinator is asked by, and what it wants done: it answers nobody and writes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

from magicbyte.errors import ErrorCode
from magicbyte.groups.records import GroupMetadataValue
from magicbyte.ports import Moment
from magicbyte.protocol.message import Message


@dataclass(frozen=True, slots=True)
class Caller:
    """Who waits for an answer. `ticket` tells one request from all others, and means nothing here."""

    ticket: Hashable
    version: int  # of the request
    client_id: str = ""
    host: str = ""  # the peer's address, as "/127.0.0.1"


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request."""

    to: Caller
    message: Message


@dataclass(frozen=True, slots=True)
class Store:
    """Append records to a partition of `__consumer_offsets`, as one set, and do then what `then` returns.

    `records` are pairs of a key and a value, None to delete; a group's value is `encoded` by whoever appends it, since
    it may have megabytes. `then` takes the code of the append and the time; of one partition it is called in the order
    of the appends. `is_group`: the record is a group's, not its offsets'.
    """

    partition: int
    records: tuple[tuple[bytes, bytes | GroupMetadataValue | None], ...]
    then: Callable[[ErrorCode, Moment], list[Effect]]
    is_group: bool = False


Effect: TypeAlias = Reply | Store


def encoded(value: bytes | GroupMetadataValue | None) -> bytes | None:
    """Return the value of a record as it is appended."""
    return value.to_bytes() if isinstance(value, GroupMetadataValue) else value
