"""What every coordinator takes and gives, as data: callers, replies, and the producers of transactions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from magicbyte.engine.protocol.message import Message


class Caller(NamedTuple):
    """A request that waits for its response. `ticket` identifies it, and is opaque here."""

    ticket: Hashable
    version: int  # of the request
    client_id: str = ""
    host: str = ""  # the peer's address, such as "/127.0.0.1"


class Reply(NamedTuple):
    """Answer a request."""

    to: Caller
    message: Message


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer in whose transaction records are appended."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a transaction in a partition. `coordinator_epoch`: of the coordinator that decided it."""

    producer: Producer
    coordinator_epoch: int
    commits: bool
