"""Generated from ShareUpdateKey.json and ShareUpdateValue.json. Do not edit: the schema compiler makes it.

ShareUpdateKey: version 1.
ShareUpdateValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    read_string,
    read_tags,
    read_unknown_tags,
    read_uuid,
    unknown,
    whole,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IIQ = struct.Struct(">iiq")
_QQBH = struct.Struct(">qqbh")
_ROWS_QQBH_COMPACT = Rows("qqbh", flexible=True)


class ShareUpdateKey(Message, gc=False, kw_only=True):
    """Key in __share_group_state of a change since the last full state of a share group in a partition. It follows the
    int16 1, its type.

    group_id: Id of the share group.
    topic_id: Id given to the topic at its creation; one made later under the same name gets another.
    partition: Number of the partition within its topic, counted from 0.
    """

    VALID_VERSIONS = range(1, 2)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 1
    topic_id: UUID = NULL_UUID  # uuid, versions 1
    partition: int = 0  # int32, versions 1

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")
        write_uuid(buffer, self.topic_id)
        buffer += _I.pack(self.partition)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareUpdateKey, int]:
        self = ShareUpdateKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        self.topic_id, at = read_uuid(data, at)
        (self.partition,) = _I.unpack_from(data, at)
        at += 4
        return self, at


class StateBatch(Struct, gc=False, kw_only=True):
    """Delivery states of runs of records since then.

    first_offset: First offset of the run.
    last_offset: Last offset of the run.
    delivery_state: 0 to be handed out, 2 acknowledged, 4 given up.
    delivery_count: Delivery count of these records.
    """

    first_offset: int = 0  # int64, versions 0+
    last_offset: int = 0  # int64, versions 0+
    delivery_state: int = 0  # int8, versions 0+
    delivery_count: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[StateBatch], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _QQBH.pack(self.first_offset, self.last_offset, self.delivery_state, self.delivery_count)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[StateBatch], int]:
        found: list[StateBatch] = []
        for _ in range(count):
            self = StateBatch()
            self.first_offset, self.last_offset, self.delivery_state, self.delivery_count = _QQBH.unpack_from(data, at)
            at += 19
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(data: memoryview, at: int, most: int, version: int) -> tuple[list[StateBatch], int]:
        found: list[StateBatch] = []
        rows, at = _ROWS_QQBH_COMPACT.read(data, at, most)
        for row in rows:
            first_offset, last_offset, delivery_state, delivery_count = row
            self = StateBatch(
                first_offset=first_offset,
                last_offset=last_offset,
                delivery_state=delivery_state,
                delivery_count=delivery_count,
            )
            found.append(self)
        return found, at


class ShareUpdateValue(Message, gc=False, kw_only=True):
    """Value in __share_group_state: a change since the last full state of a share group in a partition.

    snapshot_epoch: Number of the snapshot that this changes.
    leader_epoch: Leader epoch of the writer; -1 as before.
    start_offset: First offset that is not yet done with; -1 as before.
    delivery_complete_count: Number of acknowledged records from the start offset on; -1 if unknown.
    state_batches: Delivery states of runs of records since then.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    snapshot_epoch: int = 0  # int32, versions 0+
    leader_epoch: int = 0  # int32, versions 0+
    start_offset: int = 0  # int64, versions 0+
    delivery_complete_count: int = -1  # int32, versions 0+, tag 0
    state_batches: list[StateBatch] = field(default_factory=list)  # []StateBatch, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IIQ.pack(self.snapshot_epoch, self.leader_epoch, self.start_offset)
        write_structs(out, self.state_batches, True, StateBatch._write_each, version)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareUpdateValue, int]:
        self = ShareUpdateValue()
        self.snapshot_epoch, self.leader_epoch, self.start_offset = _IIQ.unpack_from(data, at)
        at += 16
        self.delivery_complete_count = -1
        self.state_batches, at = read_rows(data, at, True, 20, "state_batches", StateBatch, version)
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.delivery_complete_count = whole(part, (_I.unpack_from(part)[0], 4), "delivery_complete_count")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.delivery_complete_count != -1:
            part = Writer()
            part.buffer += _I.pack(self.delivery_complete_count)
            found.append((0, bytes(part)))
        return found
