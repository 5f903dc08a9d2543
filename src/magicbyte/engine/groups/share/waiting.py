"""What waits for the pending append of a share group: requests, and events that change the group."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from magicbyte.engine.coordination.effects import Caller
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class WaitingShare(NamedTuple):
    """A request that waits for the pending append of its group."""

    caller: Caller
    request: ShareGroupHeartbeatRequest


class ShareExpiry(NamedTuple):
    """The end of a session while an append of its group was pending."""

    member_id: str


class StatesInitialized(NamedTuple):
    """Partitions whose states the share coordinator has begun to keep, by topic."""

    topics: Mapping[uuid.UUID, tuple[int, ...]]


Waiting = WaitingShare | ShareExpiry | StatesInitialized
