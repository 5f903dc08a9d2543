"""Generated from AddPartitionsToTxnRequest.json and AddPartitionsToTxnResponse.json. Do not edit: the schema compiler

makes it.
AddPartitionsToTxnRequest: versions 0-5, flexible 3+.
AddPartitionsToTxnResponse: versions 0-5, flexible 3+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    absent,
    read_numbers,
    read_string,
    read_structs,
    read_unknown_tags,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer
from magicbyte.engine.protocol.rows import Rows, read_rows

_I = struct.Struct(">i")
_IH = struct.Struct(">ih")
_QH = struct.Struct(">qh")
_QHT = struct.Struct(">qh?")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_IH_COMPACT = Rows("ih", flexible=True)


class AddPartitionsToTxnTopic(Struct, gc=False, kw_only=True):
    """Partitions of one topic.

    name: Name of the topic.
    partitions: Numbers of the partitions.
    """

    name: str = ""  # string, versions 0+
    partitions: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AddPartitionsToTxnTopic], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_numbers(buffer, self.partitions, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AddPartitionsToTxnTopic], int]:
        flexible = version >= 3
        found: list[AddPartitionsToTxnTopic] = []
        for _ in range(count):
            self = AddPartitionsToTxnTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_numbers(data, at, flexible, "i", "partitions")
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AddPartitionsToTxnTransaction(Struct, gc=False, kw_only=True):
    """Transactions to which partitions are added.

    transactional_id: Name of the transaction.
    producer_id: Producer id that goes with the name.
    producer_epoch: Epoch that goes with the id; the coordinator refuses one lower than it knows.
    verify_only: True asks only whether the partitions are in the transaction already, and adds none.
    topics: Partitions to add, by topic.
    """

    transactional_id: str = ""  # string, versions 4+
    producer_id: int = 0  # int64, versions 4+
    producer_epoch: int = 0  # int16, versions 4+
    verify_only: bool = False  # bool, versions 4+
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)  # []AddPartitionsToTxnTopic, versions 4+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AddPartitionsToTxnTransaction], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.transactional_id, True, "transactional_id")
            buffer += _QHT.pack(self.producer_id, self.producer_epoch, self.verify_only)
            write_structs(out, self.topics, True, AddPartitionsToTxnTopic._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AddPartitionsToTxnTransaction], int]:
        found: list[AddPartitionsToTxnTransaction] = []
        for _ in range(count):
            self = AddPartitionsToTxnTransaction()
            self.transactional_id, at = read_string(data, at, True, "transactional_id")
            self.producer_id, self.producer_epoch, self.verify_only = _QHT.unpack_from(data, at)
            at += 11
            self.topics, at = read_structs(data, at, True, 3, "topics", AddPartitionsToTxnTopic._read_each, version)
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AddPartitionsToTxnRequest(Message, gc=False, kw_only=True):
    """Tells the transaction coordinator which partitions a transaction is going to write to. From version 4 on brokers
    send it, for several transactions at once.

    transactions: Transactions to which partitions are added.
    v3_and_below_transactional_id: Name of the transaction.
    v3_and_below_producer_id: Producer id that goes with the name.
    v3_and_below_producer_epoch: Epoch that goes with the id; the coordinator refuses one lower than it knows.
    v3_and_below_topics: Partitions to add, by topic.
    """

    API_KEY = 24
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    # []AddPartitionsToTxnTransaction, versions 4+
    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)
    v3_and_below_transactional_id: str = ""  # string, versions 0-3
    v3_and_below_producer_id: int = 0  # int64, versions 0-3
    v3_and_below_producer_epoch: int = 0  # int16, versions 0-3
    # []AddPartitionsToTxnTopic, versions 0-3
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version < 4 and len(self.transactions) > 0:
            raise absent("transactions")
        if version > 3 and self.v3_and_below_transactional_id != "":
            raise absent("v3_and_below_transactional_id")
        if version > 3 and self.v3_and_below_producer_id != 0:
            raise absent("v3_and_below_producer_id")
        if version > 3 and self.v3_and_below_producer_epoch != 0:
            raise absent("v3_and_below_producer_epoch")
        if version > 3 and len(self.v3_and_below_topics) > 0:
            raise absent("v3_and_below_topics")
        if version >= 4:
            write_structs(out, self.transactions, flexible, AddPartitionsToTxnTransaction._write_each, version)
        if version <= 3:
            write_string(buffer, self.v3_and_below_transactional_id, flexible, "v3_and_below_transactional_id")
            buffer += _QH.pack(self.v3_and_below_producer_id, self.v3_and_below_producer_epoch)
            write_structs(out, self.v3_and_below_topics, flexible, AddPartitionsToTxnTopic._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AddPartitionsToTxnRequest, int]:
        self = AddPartitionsToTxnRequest()
        flexible = version >= 3
        if version >= 4:
            self.transactions, at = read_structs(
                data,
                at,
                flexible,
                14,
                "transactions",
                AddPartitionsToTxnTransaction._read_each,
                version,
            )
            self.v3_and_below_transactional_id = ""
            self.v3_and_below_producer_id = 0
            self.v3_and_below_producer_epoch = 0
            self.v3_and_below_topics = []
        else:
            self.transactions = []
            self.v3_and_below_transactional_id, at = read_string(data, at, flexible, "v3_and_below_transactional_id")
            self.v3_and_below_producer_id, self.v3_and_below_producer_epoch = _QH.unpack_from(data, at)
            at += 10
            self.v3_and_below_topics, at = read_structs(
                data,
                at,
                flexible,
                3,
                "v3_and_below_topics",
                AddPartitionsToTxnTopic._read_each,
                version,
            )
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class AddPartitionsToTxnPartitionResult(Struct, gc=False, kw_only=True):
    """Result of one partition.

    partition_index: Number of the partition within its topic, counted from 0.
    partition_error_code: Error of this partition; 0 means that it is in the transaction. 55 says that it is only
        refused because of another one.
    """

    partition_index: int = 0  # int32, versions 0+
    partition_error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AddPartitionsToTxnPartitionResult], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.partition_error_code)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AddPartitionsToTxnPartitionResult], int]:
        found: list[AddPartitionsToTxnPartitionResult] = []
        for _ in range(count):
            self = AddPartitionsToTxnPartitionResult()
            self.partition_index, self.partition_error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at

    @staticmethod
    def _read_many(
        data: memoryview,
        at: int,
        most: int,
        version: int,
    ) -> tuple[list[AddPartitionsToTxnPartitionResult], int]:
        found: list[AddPartitionsToTxnPartitionResult] = []
        if version >= 3:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, partition_error_code = row
                self = AddPartitionsToTxnPartitionResult(
                    partition_index=partition_index,
                    partition_error_code=partition_error_code,
                )
                found.append(self)
        else:
            rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, partition_error_code = row
                self = AddPartitionsToTxnPartitionResult(
                    partition_index=partition_index,
                    partition_error_code=partition_error_code,
                )
                found.append(self)
        return found, at


class AddPartitionsToTxnTopicResult(Struct, gc=False, kw_only=True):
    """Results of one topic.

    name: Name of the topic.
    results_by_partition: One result for each partition of the topic.
    """

    name: str = ""  # string, versions 0+
    # []AddPartitionsToTxnPartitionResult, versions 0+
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AddPartitionsToTxnTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(
                out,
                self.results_by_partition,
                flexible,
                AddPartitionsToTxnPartitionResult._write_each,
                version,
            )
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(
        data: memoryview,
        at: int,
        count: int,
        version: int,
    ) -> tuple[list[AddPartitionsToTxnTopicResult], int]:
        flexible = version >= 3
        found: list[AddPartitionsToTxnTopicResult] = []
        for _ in range(count):
            self = AddPartitionsToTxnTopicResult()
            self.name, at = read_string(data, at, flexible, "name")
            self.results_by_partition, at = read_rows(
                data,
                at,
                flexible,
                6,
                "results_by_partition",
                AddPartitionsToTxnPartitionResult,
                version,
            )
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class AddPartitionsToTxnResult(Struct, gc=False, kw_only=True):
    """One result for each transaction of the request.

    transactional_id: Name of the transaction.
    topic_results: Results by topic.
    """

    transactional_id: str = ""  # string, versions 4+
    # []AddPartitionsToTxnTopicResult, versions 4+
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[AddPartitionsToTxnResult], out: Writer, version: int) -> None:
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.transactional_id, True, "transactional_id")
            write_structs(out, self.topic_results, True, AddPartitionsToTxnTopicResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags)
            else:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[AddPartitionsToTxnResult], int]:
        found: list[AddPartitionsToTxnResult] = []
        for _ in range(count):
            self = AddPartitionsToTxnResult()
            self.transactional_id, at = read_string(data, at, True, "transactional_id")
            self.topic_results, at = read_structs(
                data,
                at,
                True,
                3,
                "topic_results",
                AddPartitionsToTxnTopicResult._read_each,
                version,
            )
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            found.append(self)
        return found, at


class AddPartitionsToTxnResponse(Message, gc=False, kw_only=True):
    """Which partitions belong to the transaction now; unless all could be added, none is.

    throttle_time_ms: Milliseconds the client has to wait because it is over its quota, or 0. In version 0 the broker
        held this response back for that long; from version 1 on it answers at once and the client does the waiting.
    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    results_by_transaction: One result for each transaction of the request.
    results_by_topic_v3_and_below: Results by topic, for the only transaction of the request.
    """

    API_KEY = 24
    VALID_VERSIONS = range(6)
    FLEXIBLE_VERSIONS = range(3, 6)

    throttle_time_ms: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 4+, ignorable
    # []AddPartitionsToTxnResult, versions 4+
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)
    # []AddPartitionsToTxnTopicResult, versions 0-3
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version < 4 and len(self.results_by_transaction) > 0:
            raise absent("results_by_transaction")
        if version > 3 and len(self.results_by_topic_v3_and_below) > 0:
            raise absent("results_by_topic_v3_and_below")
        if version >= 4:
            buffer += _IH.pack(self.throttle_time_ms, self.error_code)
        else:
            buffer += _I.pack(self.throttle_time_ms)
        if version >= 4:
            write_structs(out, self.results_by_transaction, flexible, AddPartitionsToTxnResult._write_each, version)
        if version <= 3:
            write_structs(
                out,
                self.results_by_topic_v3_and_below,
                flexible,
                AddPartitionsToTxnTopicResult._write_each,
                version,
            )
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[AddPartitionsToTxnResponse, int]:
        self = AddPartitionsToTxnResponse()
        flexible = version >= 3
        if version >= 4:
            self.throttle_time_ms, self.error_code = _IH.unpack_from(data, at)
            at += 6
            self.results_by_transaction, at = read_structs(
                data,
                at,
                flexible,
                3,
                "results_by_transaction",
                AddPartitionsToTxnResult._read_each,
                version,
            )
            self.results_by_topic_v3_and_below = []
        else:
            (self.throttle_time_ms,) = _I.unpack_from(data, at)
            at += 4
            self.error_code = 0
            self.results_by_transaction = []
            self.results_by_topic_v3_and_below, at = read_structs(
                data,
                at,
                flexible,
                3,
                "results_by_topic_v3_and_below",
                AddPartitionsToTxnTopicResult._read_each,
                version,
            )
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
