"""Generated from OffsetCommitKey.json and OffsetCommitValue.json. Do not edit: the schema compiler makes it.

OffsetCommitKey: versions 0-1.
OffsetCommitValue: versions 0-4, flexible 4+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_string,
    read_tags,
    read_uuid,
    unknown,
    whole,
    write_string,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_Q = struct.Struct(">q")
_QI = struct.Struct(">qi")
_QQ = struct.Struct(">qq")


class OffsetCommitKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of the offset that a group has committed for a partition. It follows an int16, the
    version; both versions have the same fields.

    group: Group that committed the offset.
    topic: Name of the topic, unique in the cluster.
    partition: Number of the partition within its topic, counted from 0.
    """

    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(0)

    group: str = ""  # string, versions 0-1
    topic: str = ""  # string, versions 0-1
    partition: int = 0  # int32, versions 0-1

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group, False, "group")
        write_string(buffer, self.topic, False, "topic")
        buffer += _I.pack(self.partition)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetCommitKey, int]:
        self = OffsetCommitKey()
        self.group, at = read_string(data, at, False, "group")
        self.topic, at = read_string(data, at, False, "topic")
        (self.partition,) = _I.unpack_from(data, at)
        at += 4
        return self, at


class OffsetCommitValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets of an offset that a group has committed; a null value deletes the offset. It follows
    an int16, the version.

    offset: Offset of the next record to read.
    leader_epoch: Leader epoch of the last record read; -1 if it is not known.
    metadata: Free text committed with the offset; empty if there was none.
    commit_timestamp: When it was committed, in milliseconds since 1970. In version 0 the time counts for its end as
        well.
    expire_timestamp: When it may be dropped, in milliseconds since 1970; -1 leaves that to the broker's
        offsets.retention.minutes.
    topic_id: Id of the topic, to notice that it was deleted and created again; all zeros if it was not kept.
    """

    VALID_VERSIONS = range(5)
    FLEXIBLE_VERSIONS = range(4, 5)

    offset: int = 0  # int64, versions 0+
    leader_epoch: int = -1  # int32, versions 3+, ignorable
    metadata: str = ""  # string, versions 0+
    commit_timestamp: int = 0  # int64, versions 0+
    expire_timestamp: int = -1  # int64, versions 1, ignorable
    topic_id: UUID = NULL_UUID  # uuid, versions 4+, ignorable, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 4
        buffer = out.buffer
        if version >= 3:
            buffer += _QI.pack(self.offset, self.leader_epoch)
        else:
            buffer += _Q.pack(self.offset)
        write_string(buffer, self.metadata, flexible, "metadata")
        if version >= 2:
            buffer += _Q.pack(self.commit_timestamp)
        elif version >= 1:
            buffer += _QQ.pack(self.commit_timestamp, self.expire_timestamp)
        else:
            buffer += _Q.pack(self.commit_timestamp)
        if version >= 4:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[OffsetCommitValue, int]:
        self = OffsetCommitValue()
        flexible = version >= 4
        if version >= 3:
            self.offset, self.leader_epoch = _QI.unpack_from(data, at)
            at += 12
        else:
            (self.offset,) = _Q.unpack_from(data, at)
            at += 8
            self.leader_epoch = -1
        self.metadata, at = read_string(data, at, flexible, "metadata")
        if version >= 2:
            (self.commit_timestamp,) = _Q.unpack_from(data, at)
            at += 8
            self.expire_timestamp = -1
        elif version >= 1:
            self.commit_timestamp, self.expire_timestamp = _QQ.unpack_from(data, at)
            at += 16
        else:
            (self.commit_timestamp,) = _Q.unpack_from(data, at)
            at += 8
            self.expire_timestamp = -1
        self.topic_id = NULL_UUID
        if version >= 4:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.topic_id = whole(part, read_uuid(part, 0), "topic_id")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 4 and self.topic_id != NULL_UUID:
            part = Writer()
            write_uuid(part.buffer, self.topic_id)
            found.append((0, bytes(part)))
        return found
