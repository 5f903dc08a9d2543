"""Callers and effects of all coordinators, as data: a coordinator answers nothing and writes nothing itself.

Effects can be compared, logged and replayed. The continuation after an append is part of its `Store`, and
`Decider.stored` performs it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.records.encode import BatchHeader

T = TypeVar("T")


class Caller(NamedTuple):
    """A request that waits for its response. `ticket` identifies it, and is opaque here.

    `may_describe`: whether its sender may describe a topic; None: any.
    """

    ticket: Hashable
    version: int  # of the request
    client_id: str = ""
    host: str = ""  # the peer's address, such as "/127.0.0.1"
    may_describe: Callable[[str], bool] | None = None


class Reply(NamedTuple):
    """Answer a request. `steps`: the cost of encoding the response, as `Steps` counts; 0 for most."""

    to: Caller
    message: Message
    steps: int = 0


class Tell(NamedTuple):
    """Report the outcome of work that is no request."""

    ticket: Hashable
    code: ErrorCode


class Steps(NamedTuple):
    """So many steps of long work are done: others may have a turn now. A step takes about 5 µs.

    Until it continues, other calls may change anything. Whatever it has looked up must be looked up again.
    """

    done: int


class Producer(Struct, frozen=True):
    """A producer in whose transaction records are appended."""

    producer_id: int
    epoch: int


class Marker(Struct, frozen=True):
    """The end of a transaction in a partition. `coordinator_epoch`: of the coordinator that decided it."""

    producer: Producer
    coordinator_epoch: int
    commits: bool


class StoredValue(Protocol):
    """The value of a record that is encoded at the append, because it may have megabytes."""

    @property
    def weight(self) -> int:
        """The approximate encoded size in bytes."""

    def to_bytes(self) -> bytes:
        """Return the encoded value."""


class Store(NamedTuple, Generic[T]):
    """Append records to a partition of the coordinator's topic as one batch, and pass the outcome to `Decider.stored`.

    Within one partition outcomes come in the order of the appends. `records` are pairs of a key and a value, None to
    delete. They are not appended after the `term` in which they were decided: the partition may have had another leader
    since. `then` is the continuation. `marker`: a marker, which is appended instead of records. The append may take
    `timeout_ms`, None: as long as the coordinator's kind allows.
    """

    partition: int
    term: int
    records: tuple[tuple[bytes, bytes | StoredValue | None], ...]
    then: T
    header: BatchHeader = BatchHeader()
    marker: Marker | None = None
    timeout_ms: int | None = None


def encoded(value: bytes | StoredValue | None) -> bytes | None:
    """Return the encoded value of a record."""
    return value if value is None or isinstance(value, bytes) else value.to_bytes()


def size_of(value: bytes | StoredValue | None) -> int:
    """Return the approximate encoded size of a value."""
    return len(value or b"") if value is None or isinstance(value, bytes) else value.weight
