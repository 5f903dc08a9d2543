"""Generated from DescribeTransactionsRequest.json and DescribeTransactionsResponse.json. Do not edit: the schema

compiler makes it.
DescribeTransactionsRequest: version 0, flexible 0+.
DescribeTransactionsResponse: version 0, flexible 0+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_array,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_array,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IQQH = struct.Struct(">iqqh")


class DescribeTransactionsRequest(Message, gc=False, kw_only=True):
    """Asks a transaction coordinator for the state of transactions.

    transactional_ids: Names of the transactions.
    """

    API_KEY = 65
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    transactional_ids: list[str] = field(default_factory=list)  # []string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_array(buffer, self.transactional_ids, True, write_string, True, "transactional_ids")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTransactionsRequest, int]:
        self = DescribeTransactionsRequest()
        self.transactional_ids, at = read_array(
            data,
            at,
            True,
            1,
            "transactional_ids",
            read_string,
            True,
            "transactional_ids",
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at


class TopicData(Struct, gc=False, kw_only=True):
    """Partitions that belong to the transaction, by topic.

    topic: Name of the topic, unique in the cluster.
    partitions: Numbers of the partitions.
    """

    topic: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TopicData], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic, True, "topic")
            write_numbers(buffer, self.partitions, True, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TopicData], int]:
        found: list[TopicData] = []
        for _ in range(count):
            self = TopicData()
            self.topic, at = read_string(data, at, True, "topic")
            self.partitions, at = read_numbers(data, at, True, "i", "partitions")
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class TransactionState(Struct, gc=False, kw_only=True):
    """One entry per name.

    error_code: Error of this name; 0 means none. 105 says that there is no such transactional id.
    transactional_id: Name of the transaction.
    transaction_state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence
        or Dead.
    transaction_timeout_ms: Milliseconds after which the coordinator aborts an open transaction.
    transaction_start_time_ms: When it began, in milliseconds since 1970; -1 if none is open.
    producer_id: Producer id that goes with the name.
    producer_epoch: Its latest epoch.
    topics: Partitions that belong to the transaction, by topic.
    """

    error_code: int = 0  # int16, versions 0+
    transactional_id: str = ""  # string, versions 0+
    transaction_state: str = ""  # string, versions 0+
    transaction_timeout_ms: int = 0  # int32, versions 0+
    transaction_start_time_ms: int = 0  # int64, versions 0+
    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    topics: list[TopicData] = field(default_factory=list)  # []TopicData, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[TransactionState], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            buffer += _H.pack(self.error_code)
            write_string(buffer, self.transactional_id, True, "transactional_id")
            write_string(buffer, self.transaction_state, True, "transaction_state")
            buffer += _IQQH.pack(
                self.transaction_timeout_ms,
                self.transaction_start_time_ms,
                self.producer_id,
                self.producer_epoch,
            )
            write_structs(out, self.topics, True, TopicData._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[TransactionState], int]:
        found: list[TransactionState] = []
        for _ in range(count):
            self = TransactionState()
            (self.error_code,) = _H.unpack_from(data, at)
            at += 2
            self.transactional_id, at = read_string(data, at, True, "transactional_id")
            self.transaction_state, at = read_string(data, at, True, "transaction_state")
            (
                self.transaction_timeout_ms,
                self.transaction_start_time_ms,
                self.producer_id,
                self.producer_epoch,
            ) = _IQQH.unpack_from(data, at)
            at += 22
            self.topics, at = read_structs(data, at, True, 3, "topics", TopicData._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class DescribeTransactionsResponse(Message, gc=False, kw_only=True):
    """The state of the transactions.

    throttle_time_ms: Milliseconds for which the client should send no further request because it is over its quota;
        0 means it is within it.
    transaction_states: One entry per name.
    """

    API_KEY = 65
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    throttle_time_ms: int = 0  # int32, versions 0+
    transaction_states: list[TransactionState] = field(default_factory=list)  # []TransactionState, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.throttle_time_ms)
        write_structs(out, self.transaction_states, True, TransactionState._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[DescribeTransactionsResponse, int]:
        self = DescribeTransactionsResponse()
        (self.throttle_time_ms,) = _I.unpack_from(data, at)
        at += 4
        self.transaction_states, at = read_structs(
            data,
            at,
            True,
            28,
            "transaction_states",
            TransactionState._read_each,
            version,
        )
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
