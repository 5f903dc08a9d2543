"""Generated from TransactionLogKey.json and TransactionLogValue.json. Do not edit: the schema compiler makes it.

TransactionLogKey: version 0.
TransactionLogValue: versions 0-1, flexible 1+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_tags,
    read_unknown_tags,
    unknown,
    whole,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_IB = struct.Struct(">ib")
_Q = struct.Struct(">q")
_QQ = struct.Struct(">qq")


class TransactionLogKey(Message, gc=False, kw_only=True):
    """Key in __transaction_state of a transactional id. It follows the int16 0, its type.

    transactional_id: Name that a transactional producer keeps over restarts (transactional.id).
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(0)

    transactional_id: str = ""  # string, versions 0

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.transactional_id, False, "transactional_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TransactionLogKey, int]:
        self = TransactionLogKey()
        self.transactional_id, at = read_string(data, at, False, "transactional_id")
        return self, at


class PartitionsSchema(Struct, gc=False, kw_only=True):
    """Partitions that the transaction has written to and that wait for its marker; null in state Empty.

    topic: Name of the topic, unique in the cluster.
    partition_ids: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partition_ids: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[PartitionsSchema], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, flexible, "topic")
            write_numbers(buffer, self.partition_ids, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[PartitionsSchema], int]:
        flexible = version >= 1
        found: list[PartitionsSchema] = []
        for _ in range(count):
            self = PartitionsSchema()
            self.topic, at = read_string(data, at, flexible, "topic")
            self.partition_ids, at = read_numbers(data, at, flexible, "i", "partition_ids")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class TransactionLogValue(Message, gc=False, kw_only=True):
    """Value in __transaction_state: state of a transactional id; null if it has expired. It follows an int16, the
    version.

    producer_id: Producer id that goes with the name.
    previous_producer_id: Producer id that went with the name before the present one; -1 if there was none.
    next_producer_id: Producer id that takes over after this transaction, as the epochs of the present one are used
        up; -1 if there is none.
    producer_epoch: Latest epoch of the producer.
    next_producer_epoch: Epoch that goes with the next producer id; -1 if there is none.
    transaction_timeout_ms: Milliseconds after which the coordinator aborts an open transaction.
    transaction_status: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6
        Dead, 7 PrepareEpochFence.
    transaction_partitions: Partitions that the transaction has written to and that wait for its marker; null in
        state Empty.
    transaction_last_update_timestamp_ms: When this state began, in milliseconds since 1970.
    transaction_start_timestamp_ms: When the transaction began, in milliseconds since 1970; -1 if there is none.
    client_transaction_version: Transaction version that the client spoke: 0 or 1, or 2 if each transaction has an
        epoch of its own.
    """

    VALID_VERSIONS = range(2)
    FLEXIBLE_VERSIONS = range(1, 2)

    producer_id: int = 0  # int64, versions 0+
    previous_producer_id: int = -1  # int64, versions 1+, tag 0
    next_producer_id: int = -1  # int64, versions 1+, tag 1
    producer_epoch: int = 0  # int16, versions 0+
    next_producer_epoch: int = -1  # int16, versions 1+, tag 3
    transaction_timeout_ms: int = 0  # int32, versions 0+
    transaction_status: int = 0  # int8, versions 0+
    # []PartitionsSchema, versions 0+, nullable
    transaction_partitions: list[PartitionsSchema] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: int = 0  # int64, versions 0+
    transaction_start_timestamp_ms: int = 0  # int64, versions 0+
    client_transaction_version: int = 0  # int16, versions 1+, tag 2
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        if version < 1 and self.previous_producer_id != -1:
            raise absent("previous_producer_id")
        if version < 1 and self.next_producer_id != -1:
            raise absent("next_producer_id")
        if version < 1 and self.next_producer_epoch != -1:
            raise absent("next_producer_epoch")
        if version < 1 and self.client_transaction_version != 0:
            raise absent("client_transaction_version")
        buffer += _Q.pack(self.producer_id)
        buffer += _H.pack(self.producer_epoch)
        buffer += _IB.pack(self.transaction_timeout_ms, self.transaction_status)
        write_structs(out, self.transaction_partitions, flexible, PartitionsSchema._write_each, version)
        buffer += _QQ.pack(self.transaction_last_update_timestamp_ms, self.transaction_start_timestamp_ms)
        if version >= 1:
            tags = self._tags(version)
            if tags or self.unknown_tags:
                write_tags(buffer, tags, self.unknown_tags)
            else:
                buffer.append(0)
        elif self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible=False)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[TransactionLogValue, int]:
        self = TransactionLogValue()
        flexible = version >= 1
        (self.producer_id,) = _Q.unpack_from(data, at)
        at += 8
        self.previous_producer_id = -1
        self.next_producer_id = -1
        (self.producer_epoch,) = _H.unpack_from(data, at)
        at += 2
        self.next_producer_epoch = -1
        self.transaction_timeout_ms, self.transaction_status = _IB.unpack_from(data, at)
        at += 5
        self.transaction_partitions, at = read_nullable_structs(
            data,
            at,
            flexible,
            3,
            "transaction_partitions",
            PartitionsSchema._read_each,
            version,
        )
        self.transaction_last_update_timestamp_ms, self.transaction_start_timestamp_ms = _QQ.unpack_from(data, at)
        at += 16
        self.client_transaction_version = 0
        if version >= 1:
            if data[at]:
                tags, at = read_tags(data, at)
                if 0 in tags:
                    part = tags.pop(0)
                    self.previous_producer_id = whole(part, (_Q.unpack_from(part)[0], 8), "previous_producer_id")
                if 1 in tags:
                    part = tags.pop(1)
                    self.next_producer_id = whole(part, (_Q.unpack_from(part)[0], 8), "next_producer_id")
                if 2 in tags:
                    part = tags.pop(2)
                    self.client_transaction_version = whole(
                        part,
                        (_H.unpack_from(part)[0], 2),
                        "client_transaction_version",
                    )
                if 3 in tags:
                    part = tags.pop(3)
                    self.next_producer_epoch = whole(part, (_H.unpack_from(part)[0], 2), "next_producer_epoch")
                self.unknown_tags = unknown(tags)
            else:
                self.unknown_tags, at = (), at + 1
        else:
            self.unknown_tags = ()
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if version >= 1 and self.previous_producer_id != -1:
            part = Writer()
            part.buffer += _Q.pack(self.previous_producer_id)
            found.append((0, bytes(part)))
        if version >= 1 and self.next_producer_id != -1:
            part = Writer()
            part.buffer += _Q.pack(self.next_producer_id)
            found.append((1, bytes(part)))
        if version >= 1 and self.client_transaction_version != 0:
            part = Writer()
            part.buffer += _H.pack(self.client_transaction_version)
            found.append((2, bytes(part)))
        if version >= 1 and self.next_producer_epoch != -1:
            part = Writer()
            part.buffer += _H.pack(self.next_producer_epoch)
            found.append((3, bytes(part)))
        return found
