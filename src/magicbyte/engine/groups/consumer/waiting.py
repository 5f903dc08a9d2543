"""Heartbeats that are refused, and what waits for the pending append of a consumer group: requests and deadlines."""

from __future__ import annotations

from typing import NamedTuple

from magicbyte.engine.coordination.effects import Caller
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.message import Message


class WaitingRequest(NamedTuple):
    """A request that waits for the pending append of its group."""

    caller: Caller
    request: Message


class Expiry(NamedTuple):
    """A deadline of a member that was reached while an append of its group was pending."""

    what: str
    member_id: str


class Refusal(NamedTuple):
    """Why a heartbeat is refused."""

    code: ErrorCode
    message: str | None
