"""Generated from BrokerHeartbeatRequest.json and BrokerHeartbeatResponse.json. Do not edit: the schema compiler makes

it.
BrokerHeartbeatRequest: versions 0-2, flexible 0+.
BrokerHeartbeatResponse: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from msgspec import field

from magicbyte.engine.protocol.fields import (
    absent,
    read_array,
    read_nullable_array,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_array,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IHTTT = struct.Struct(">ih???")
_IQQTT = struct.Struct(">iqq??")


class BrokerHeartbeatRequest(Message, gc=False, kw_only=True):
    """Sent by a broker to the active controller at short intervals: it is alive, and up to which offset it has read the
    metadata. KRaft only.

    broker_id: Broker that sends this.
    broker_epoch: Epoch of that broker's registration; -1 if it has none.
    current_metadata_offset: Offset up to which the broker has applied the metadata log.
    want_fence: Whether the broker asks to be fenced, so that it leads and serves nothing.
    want_shut_down: True if the broker wants to stop, and the controller is to move its leaderships away.
    offline_log_dirs: Ids of log directories that have failed.
    cordoned_log_dirs: Ids of log directories that work but are to get no new replicas; null if the broker does not
        say.
    """

    API_KEY = 63
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 0+
    current_metadata_offset: int = 0  # int64, versions 0+
    want_fence: bool = False  # bool, versions 0+
    want_shut_down: bool = False  # bool, versions 0+
    offline_log_dirs: list[UUID] = field(default_factory=list)  # []uuid, versions 1+, tag 0
    cordoned_log_dirs: list[UUID] | None = None  # []uuid, versions 2+, nullable, tag 1
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and len(self.offline_log_dirs) > 0:
            raise absent("offline_log_dirs")
        if version < 2 and self.cordoned_log_dirs is not None:
            raise absent("cordoned_log_dirs")
        buffer += _IQQTT.pack(
            self.broker_id,
            self.broker_epoch,
            self.current_metadata_offset,
            self.want_fence,
            self.want_shut_down,
        )
        if version >= 1:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        else:
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BrokerHeartbeatRequest, int]:
        self = BrokerHeartbeatRequest()
        (
            self.broker_id,
            self.broker_epoch,
            self.current_metadata_offset,
            self.want_fence,
            self.want_shut_down,
        ) = _IQQTT.unpack_from(data, at)
        at += 22
        self.offline_log_dirs = []
        self.cordoned_log_dirs = None
        if version >= 2:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.offline_log_dirs = whole(
                        part,
                        read_array(part, 0, True, 16, "offline_log_dirs", read_uuid),
                        "offline_log_dirs",
                    )
                if 1 in tags:
                    part = tags.pop(1)
                    self.cordoned_log_dirs = whole(
                        part,
                        read_nullable_array(part, 0, True, 16, "cordoned_log_dirs", read_uuid),
                        "cordoned_log_dirs",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.offline_log_dirs = whole(
                        part,
                        read_array(part, 0, True, 16, "offline_log_dirs", read_uuid),
                        "offline_log_dirs",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 1 and len(self.offline_log_dirs) > 0:
            part = Writer()
            write_array(part.buffer, self.offline_log_dirs, True, write_uuid)
            found.append((0, bytes(part)))
        if version >= 2 and self.cordoned_log_dirs is not None:
            part = Writer()
            write_array(part.buffer, self.cordoned_log_dirs, True, write_uuid)
            found.append((1, bytes(part)))
        return found


class BrokerHeartbeatResponse(Message, gc=False, kw_only=True):
    """State of the broker at the controller.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    is_caught_up: True if the broker has read far enough to serve clients.
    is_fenced: Whether the broker has to stay fenced, and so may not lead or serve anything yet.
    should_shut_down: True once the broker may stop.
    """

    API_KEY = 63
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    is_caught_up: bool = False  # bool, versions 0+
    is_fenced: bool = True  # bool, versions 0+
    should_shut_down: bool = False  # bool, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IHTTT.pack(
            self.throttle_time_ms,
            self.error_code,
            self.is_caught_up,
            self.is_fenced,
            self.should_shut_down,
        )
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BrokerHeartbeatResponse, int]:
        self = BrokerHeartbeatResponse()
        (
            self.throttle_time_ms,
            self.error_code,
            self.is_caught_up,
            self.is_fenced,
            self.should_shut_down,
        ) = _IHTTT.unpack_from(data, at)
        at += 9
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
