"""Generated from PartitionRecord.json. Do not edit: the schema compiler makes it.

PartitionRecord: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from msgspec import field

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_array,
    read_nullable_numbers,
    read_numbers,
    read_tags,
    read_uuid,
    unknown,
    whole,
    write_array,
    write_numbers,
    write_tags,
    write_uuid,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Shapes

_B = struct.Struct(">b")
_I = struct.Struct(">i")
_II = struct.Struct(">ii")
_SHAPES__I_I_I_II_COMPACT = Shapes("[i[i[i[ii", flexible=True)


class PartitionRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a partition was created, or its whole state is repeated.

    partition_id: Number of the partition.
    topic_id: Random id of the topic that it belongs to.
    replicas: Brokers with a replica; the first is the preferred leader.
    isr: Brokers in sync.
    removing_replicas: Replicas that a reassignment removes.
    adding_replicas: Replicas that a reassignment adds.
    leader: The leading broker; -1: none.
    leader_recovery_state: 1: the leader was elected out of sync and recovers; 0 otherwise.
    leader_epoch: Grows with each change of the leader.
    partition_epoch: Grows with each change of the partition.
    directories: Id of each replica's log directory, in the order of the replicas.
    eligible_leader_replicas: Replicas out of sync that have all committed records; null: not known.
    last_known_elr: Former such replicas that had an unclean stop; null: not known.
    """

    API_KEY = 3
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    partition_id: int = -1  # int32, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    replicas: tuple[int, ...] = ()  # []int32, versions 0+
    isr: tuple[int, ...] = ()  # []int32, versions 0+
    removing_replicas: tuple[int, ...] = ()  # []int32, versions 0+
    adding_replicas: tuple[int, ...] = ()  # []int32, versions 0+
    leader: int = -1  # int32, versions 0+
    leader_recovery_state: int = 0  # int8, versions 0+, tag 0
    leader_epoch: int = -1  # int32, versions 0+
    partition_epoch: int = -1  # int32, versions 0+
    directories: list[UUID] = field(default_factory=list)  # []uuid, versions 1+
    eligible_leader_replicas: tuple[int, ...] | None = None  # []int32, versions 2+, nullable, tag 1
    last_known_elr: tuple[int, ...] | None = None  # []int32, versions 2+, nullable, tag 2
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        lengths: tuple[int, ...]
        if version < 1 and len(self.directories) > 0:
            raise absent("directories")
        if version < 2 and self.eligible_leader_replicas is not None:
            raise absent("eligible_leader_replicas")
        if version < 2 and self.last_known_elr is not None:
            raise absent("last_known_elr")
        buffer += _I.pack(self.partition_id)
        write_uuid(buffer, self.topic_id)
        lengths = len(self.replicas), len(self.isr), len(self.removing_replicas), len(self.adding_replicas)
        buffer += _SHAPES__I_I_I_II_COMPACT[lengths](
            lengths[0] + 1,
            *self.replicas,
            lengths[1] + 1,
            *self.isr,
            lengths[2] + 1,
            *self.removing_replicas,
            lengths[3] + 1,
            *self.adding_replicas,
            self.leader,
        )
        buffer += _II.pack(self.leader_epoch, self.partition_epoch)
        if version >= 1:
            write_array(buffer, self.directories, True, write_uuid)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[PartitionRecord, int]:
        self = PartitionRecord()
        (self.partition_id,) = _I.unpack_from(data, at)
        at += 4
        self.topic_id, at = read_uuid(data, at)
        self.replicas, at = read_numbers(data, at, True, "i", "replicas")
        self.isr, at = read_numbers(data, at, True, "i", "isr")
        self.removing_replicas, at = read_numbers(data, at, True, "i", "removing_replicas")
        self.adding_replicas, at = read_numbers(data, at, True, "i", "adding_replicas")
        (self.leader,) = _I.unpack_from(data, at)
        at += 4
        self.leader_recovery_state = 0
        self.leader_epoch, self.partition_epoch = _II.unpack_from(data, at)
        at += 8
        if version >= 1:
            self.directories, at = read_array(data, at, True, 16, "directories", read_uuid)
        else:
            self.directories = []
        self.eligible_leader_replicas = None
        self.last_known_elr = None
        if version >= 2:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.leader_recovery_state = whole(part, (_B.unpack_from(part)[0], 1), "leader_recovery_state")
                if 1 in tags:
                    part = tags.pop(1)
                    self.eligible_leader_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "eligible_leader_replicas"),
                        "eligible_leader_replicas",
                    )
                if 2 in tags:
                    part = tags.pop(2)
                    self.last_known_elr = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "last_known_elr"),
                        "last_known_elr",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.leader_recovery_state = whole(part, (_B.unpack_from(part)[0], 1), "leader_recovery_state")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.leader_recovery_state != 0:
            part = Writer()
            part.buffer += _B.pack(self.leader_recovery_state)
            found.append((0, bytes(part)))
        if version >= 2 and self.eligible_leader_replicas is not None:
            part = Writer()
            write_numbers(part.buffer, self.eligible_leader_replicas, True, "i")
            found.append((1, bytes(part)))
        if version >= 2 and self.last_known_elr is not None:
            part = Writer()
            write_numbers(part.buffer, self.last_known_elr, True, "i")
            found.append((2, bytes(part)))
        return found
