"""Generated from BrokerRegistrationChangeRecord.json. Do not edit: the schema compiler makes it.

BrokerRegistrationChangeRecord: versions 0-3, flexible 0+.
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
    read_uuid,
    unknown,
    whole,
    write_array,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_B = struct.Struct(">b")
_IQ = struct.Struct(">iq")


class BrokerRegistrationChangeRecord(Message, gc=False, kw_only=True):
    """In the metadata log: some of a broker's registration has changed; absent fields have not.

    broker_id: Node id of the broker.
    broker_epoch: Epoch of its registration.
    fenced: 1: it may no longer lead partitions; -1: it may; 0: unchanged.
    in_controlled_shutdown: 1: it is being stopped; 0: unchanged.
    log_dirs: Ids of its log directories; empty: unchanged.
    cordoned_log_dirs: Ids of directories that get no new replicas; null: unchanged.
    """

    API_KEY = 17
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(4)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = 0  # int64, versions 0+
    fenced: int = 0  # int8, versions 0+, tag 0
    in_controlled_shutdown: int = 0  # int8, versions 1+, tag 1
    log_dirs: list[UUID] = field(default_factory=list)  # []uuid, versions 2+, tag 2
    cordoned_log_dirs: list[UUID] | None = None  # []uuid, versions 3+, nullable, tag 3
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 1 and self.in_controlled_shutdown != 0:
            raise absent("in_controlled_shutdown")
        if version < 2 and len(self.log_dirs) > 0:
            raise absent("log_dirs")
        if version < 3 and self.cordoned_log_dirs is not None:
            raise absent("cordoned_log_dirs")
        buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BrokerRegistrationChangeRecord, int]:
        self = BrokerRegistrationChangeRecord()
        self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
        at += 12
        self.fenced = 0
        self.in_controlled_shutdown = 0
        self.log_dirs = []
        self.cordoned_log_dirs = None
        if version >= 3:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.fenced = whole(part, (_B.unpack_from(part)[0], 1), "fenced")
                if 1 in tags:
                    part = tags.pop(1)
                    self.in_controlled_shutdown = whole(part, (_B.unpack_from(part)[0], 1), "in_controlled_shutdown")
                if 2 in tags:
                    part = tags.pop(2)
                    self.log_dirs = whole(part, read_array(part, 0, True, 16, "log_dirs", read_uuid), "log_dirs")
                if 3 in tags:
                    part = tags.pop(3)
                    self.cordoned_log_dirs = whole(
                        part,
                        read_nullable_array(part, 0, True, 16, "cordoned_log_dirs", read_uuid),
                        "cordoned_log_dirs",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 2:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.fenced = whole(part, (_B.unpack_from(part)[0], 1), "fenced")
                if 1 in tags:
                    part = tags.pop(1)
                    self.in_controlled_shutdown = whole(part, (_B.unpack_from(part)[0], 1), "in_controlled_shutdown")
                if 2 in tags:
                    part = tags.pop(2)
                    self.log_dirs = whole(part, read_array(part, 0, True, 16, "log_dirs", read_uuid), "log_dirs")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.fenced = whole(part, (_B.unpack_from(part)[0], 1), "fenced")
                if 1 in tags:
                    part = tags.pop(1)
                    self.in_controlled_shutdown = whole(part, (_B.unpack_from(part)[0], 1), "in_controlled_shutdown")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.fenced = whole(part, (_B.unpack_from(part)[0], 1), "fenced")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.fenced != 0:
            part = Writer()
            part.buffer += _B.pack(self.fenced)
            found.append((0, bytes(part)))
        if version >= 1 and self.in_controlled_shutdown != 0:
            part = Writer()
            part.buffer += _B.pack(self.in_controlled_shutdown)
            found.append((1, bytes(part)))
        if version >= 2 and len(self.log_dirs) > 0:
            part = Writer()
            write_array(part.buffer, self.log_dirs, True, write_uuid)
            found.append((2, bytes(part)))
        if version >= 3 and self.cordoned_log_dirs is not None:
            part = Writer()
            write_array(part.buffer, self.cordoned_log_dirs, True, write_uuid)
            found.append((3, bytes(part)))
        return found
