"""Generated from PartitionChangeRecord.json. Do not edit: the schema compiler makes it.

PartitionChangeRecord: versions 0-2, flexible 0+.
"""

from __future__ import annotations

import struct
from uuid import UUID

from magicbyte.engine.protocol.fields import (
    NULL_UUID,
    absent,
    read_nullable_array,
    read_nullable_numbers,
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

_B = struct.Struct(">b")
_I = struct.Struct(">i")


class PartitionChangeRecord(Message, gc=False, kw_only=True):
    """In the metadata log: some of a partition's state has changed; absent fields have not.

    partition_id: Number of the partition.
    topic_id: Random id of the topic that it belongs to.
    isr: Brokers in sync.
    leader: The leading broker, also if it is the same in a new epoch; -1: none; -2: unchanged.
    replicas: Brokers with a replica.
    removing_replicas: Replicas that a reassignment removes.
    adding_replicas: Replicas that a reassignment adds.
    leader_recovery_state: 1: the leader was elected out of sync and recovers; 0: it has; -1: unchanged.
    eligible_leader_replicas: Replicas out of sync that have all committed records.
    last_known_elr: Former such replicas that had an unclean stop.
    directories: Id of each replica's log directory.
    """

    API_KEY = 5
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(3)

    partition_id: int = -1  # int32, versions 0+
    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    isr: tuple[int, ...] | None = None  # []int32, versions 0+, nullable, tag 0
    leader: int = -2  # int32, versions 0+, tag 1
    replicas: tuple[int, ...] | None = None  # []int32, versions 0+, nullable, tag 2
    removing_replicas: tuple[int, ...] | None = None  # []int32, versions 0+, nullable, tag 3
    adding_replicas: tuple[int, ...] | None = None  # []int32, versions 0+, nullable, tag 4
    leader_recovery_state: int = -1  # int8, versions 0+, tag 5
    eligible_leader_replicas: tuple[int, ...] | None = None  # []int32, versions 2+, nullable, tag 6
    last_known_elr: tuple[int, ...] | None = None  # []int32, versions 2+, nullable, tag 7
    directories: list[UUID] | None = None  # []uuid, versions 1+, nullable, tag 8
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if version < 2 and self.eligible_leader_replicas is not None:
            raise absent("eligible_leader_replicas")
        if version < 2 and self.last_known_elr is not None:
            raise absent("last_known_elr")
        if version < 1 and self.directories is not None:
            raise absent("directories")
        buffer += _I.pack(self.partition_id)
        write_uuid(buffer, self.topic_id)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[PartitionChangeRecord, int]:
        self = PartitionChangeRecord()
        (self.partition_id,) = _I.unpack_from(data, at)
        at += 4
        self.topic_id, at = read_uuid(data, at)
        self.isr = None
        self.leader = -2
        self.replicas = None
        self.removing_replicas = None
        self.adding_replicas = None
        self.leader_recovery_state = -1
        self.eligible_leader_replicas = None
        self.last_known_elr = None
        self.directories = None
        if version >= 2:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.isr = whole(part, read_nullable_numbers(part, 0, True, "i", "isr"), "isr")
                if 1 in tags:
                    part = tags.pop(1)
                    self.leader = whole(part, (_I.unpack_from(part)[0], 4), "leader")
                if 2 in tags:
                    part = tags.pop(2)
                    self.replicas = whole(part, read_nullable_numbers(part, 0, True, "i", "replicas"), "replicas")
                if 3 in tags:
                    part = tags.pop(3)
                    self.removing_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "removing_replicas"),
                        "removing_replicas",
                    )
                if 4 in tags:
                    part = tags.pop(4)
                    self.adding_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "adding_replicas"),
                        "adding_replicas",
                    )
                if 5 in tags:
                    part = tags.pop(5)
                    self.leader_recovery_state = whole(part, (_B.unpack_from(part)[0], 1), "leader_recovery_state")
                if 6 in tags:
                    part = tags.pop(6)
                    self.eligible_leader_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "eligible_leader_replicas"),
                        "eligible_leader_replicas",
                    )
                if 7 in tags:
                    part = tags.pop(7)
                    self.last_known_elr = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "last_known_elr"),
                        "last_known_elr",
                    )
                if 8 in tags:
                    part = tags.pop(8)
                    self.directories = whole(
                        part,
                        read_nullable_array(part, 0, True, 16, "directories", read_uuid),
                        "directories",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        elif version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.isr = whole(part, read_nullable_numbers(part, 0, True, "i", "isr"), "isr")
                if 1 in tags:
                    part = tags.pop(1)
                    self.leader = whole(part, (_I.unpack_from(part)[0], 4), "leader")
                if 2 in tags:
                    part = tags.pop(2)
                    self.replicas = whole(part, read_nullable_numbers(part, 0, True, "i", "replicas"), "replicas")
                if 3 in tags:
                    part = tags.pop(3)
                    self.removing_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "removing_replicas"),
                        "removing_replicas",
                    )
                if 4 in tags:
                    part = tags.pop(4)
                    self.adding_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "adding_replicas"),
                        "adding_replicas",
                    )
                if 5 in tags:
                    part = tags.pop(5)
                    self.leader_recovery_state = whole(part, (_B.unpack_from(part)[0], 1), "leader_recovery_state")
                if 8 in tags:
                    part = tags.pop(8)
                    self.directories = whole(
                        part,
                        read_nullable_array(part, 0, True, 16, "directories", read_uuid),
                        "directories",
                    )
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.isr = whole(part, read_nullable_numbers(part, 0, True, "i", "isr"), "isr")
                if 1 in tags:
                    part = tags.pop(1)
                    self.leader = whole(part, (_I.unpack_from(part)[0], 4), "leader")
                if 2 in tags:
                    part = tags.pop(2)
                    self.replicas = whole(part, read_nullable_numbers(part, 0, True, "i", "replicas"), "replicas")
                if 3 in tags:
                    part = tags.pop(3)
                    self.removing_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "removing_replicas"),
                        "removing_replicas",
                    )
                if 4 in tags:
                    part = tags.pop(4)
                    self.adding_replicas = whole(
                        part,
                        read_nullable_numbers(part, 0, True, "i", "adding_replicas"),
                        "adding_replicas",
                    )
                if 5 in tags:
                    part = tags.pop(5)
                    self.leader_recovery_state = whole(part, (_B.unpack_from(part)[0], 1), "leader_recovery_state")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.isr is not None:
            part = Writer()
            write_numbers(part.buffer, self.isr, True, "i")
            found.append((0, bytes(part)))
        if self.leader != -2:
            part = Writer()
            part.buffer += _I.pack(self.leader)
            found.append((1, bytes(part)))
        if self.replicas is not None:
            part = Writer()
            write_numbers(part.buffer, self.replicas, True, "i")
            found.append((2, bytes(part)))
        if self.removing_replicas is not None:
            part = Writer()
            write_numbers(part.buffer, self.removing_replicas, True, "i")
            found.append((3, bytes(part)))
        if self.adding_replicas is not None:
            part = Writer()
            write_numbers(part.buffer, self.adding_replicas, True, "i")
            found.append((4, bytes(part)))
        if self.leader_recovery_state != -1:
            part = Writer()
            part.buffer += _B.pack(self.leader_recovery_state)
            found.append((5, bytes(part)))
        if version >= 2 and self.eligible_leader_replicas is not None:
            part = Writer()
            write_numbers(part.buffer, self.eligible_leader_replicas, True, "i")
            found.append((6, bytes(part)))
        if version >= 2 and self.last_known_elr is not None:
            part = Writer()
            write_numbers(part.buffer, self.last_known_elr, True, "i")
            found.append((7, bytes(part)))
        if version >= 1 and self.directories is not None:
            part = Writer()
            write_array(part.buffer, self.directories, True, write_uuid)
            found.append((8, bytes(part)))
        return found
