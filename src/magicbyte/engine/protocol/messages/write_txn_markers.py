"""Generated from WriteTxnMarkersRequest.json and WriteTxnMarkersResponse.json. Do not edit: the schema compiler makes

it.
WriteTxnMarkersRequest: versions 0-2, flexible 1+.
WriteTxnMarkersResponse: versions 0-2, flexible 1+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
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
_IB = struct.Struct(">ib")
_IH = struct.Struct(">ih")
_Q = struct.Struct(">q")
_QHT = struct.Struct(">qh?")
_ROWS_IH_CLASSIC = Rows("ih", flexible=False)
_ROWS_IH_COMPACT = Rows("ih", flexible=True)


class WritableTxnMarkerTopic(Struct, gc=False, kw_only=True):
    """Partitions that get the marker, by topic.

    name: Name of the topic.
    partition_indexes: Numbers of the partitions.
    """

    name: str = ""  # string, versions 0+
    partition_indexes: tuple[int, ...] = ()  # []int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WritableTxnMarkerTopic], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_numbers(buffer, self.partition_indexes, flexible, "i")
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[WritableTxnMarkerTopic], int]:
        flexible = version >= 1
        found: list[WritableTxnMarkerTopic] = []
        for _ in range(count):
            self = WritableTxnMarkerTopic()
            self.name, at = read_string(data, at, flexible, "name")
            self.partition_indexes, at = read_numbers(data, at, flexible, "i", "partition_indexes")
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class WritableTxnMarker(Struct, gc=False, kw_only=True):
    """Markers to write.

    producer_id: Producer whose transaction ends.
    producer_epoch: Epoch of that producer, which the partition's leader compares with the one it knows.
    transaction_result: True for a commit, false for an abort.
    topics: Partitions that get the marker, by topic.
    coordinator_epoch: Epoch of the coordinator, that is, leader epoch of its partition of __transaction_state;
        markers of an older one are refused (error 52).
    transaction_version: Version of the transaction protocol in use: from 2 on each transaction has an epoch of its
        own, which the marker must exceed.
    """

    producer_id: int = 0  # int64, versions 0+
    producer_epoch: int = 0  # int16, versions 0+
    transaction_result: bool = False  # bool, versions 0+
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)  # []WritableTxnMarkerTopic, versions 0+
    coordinator_epoch: int = 0  # int32, versions 0+
    transaction_version: int = 0  # int8, versions 2+, ignorable
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WritableTxnMarker], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _QHT.pack(self.producer_id, self.producer_epoch, self.transaction_result)
            write_structs(out, self.topics, flexible, WritableTxnMarkerTopic._write_each, version)
            if version >= 2:
                buffer += _IB.pack(self.coordinator_epoch, self.transaction_version)
            else:
                buffer += _I.pack(self.coordinator_epoch)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[WritableTxnMarker], int]:
        flexible = version >= 1
        found: list[WritableTxnMarker] = []
        for _ in range(count):
            self = WritableTxnMarker()
            self.producer_id, self.producer_epoch, self.transaction_result = _QHT.unpack_from(data, at)
            at += 11
            self.topics, at = read_structs(data, at, flexible, 3, "topics", WritableTxnMarkerTopic._read_each, version)
            if version >= 2:
                self.coordinator_epoch, self.transaction_version = _IB.unpack_from(data, at)
                at += 5
            else:
                (self.coordinator_epoch,) = _I.unpack_from(data, at)
                at += 4
                self.transaction_version = 0
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class WriteTxnMarkersRequest(Message, gc=False, kw_only=True):
    """Sent by a transaction coordinator to the leaders of all partitions of a transaction: write the marker that ends
    it.

    markers: Markers to write.
    """

    API_KEY = 27
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(1, 3)

    markers: list[WritableTxnMarker] = field(default_factory=list)  # []WritableTxnMarker, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_structs(out, self.markers, flexible, WritableTxnMarker._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[WriteTxnMarkersRequest, int]:
        self = WriteTxnMarkersRequest()
        flexible = version >= 1
        self.markers, at = read_structs(data, at, flexible, 17, "markers", WritableTxnMarker._read_each, version)
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class WritableTxnMarkerPartitionResult(Struct, gc=False, kw_only=True):
    """Results by partition.

    partition_index: Number of the partition within its topic, counted from 0.
    error_code: Error that concerns this partition only, by its number in the protocol; 0 means none.
    """

    partition_index: int = 0  # int32, versions 0+
    error_code: int = 0  # int16, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WritableTxnMarkerPartitionResult], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _IH.pack(self.partition_index, self.error_code)
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
    ) -> tuple[list[WritableTxnMarkerPartitionResult], int]:
        found: list[WritableTxnMarkerPartitionResult] = []
        for _ in range(count):
            self = WritableTxnMarkerPartitionResult()
            self.partition_index, self.error_code = _IH.unpack_from(data, at)
            at += 6
            if version >= 1:
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
    ) -> tuple[list[WritableTxnMarkerPartitionResult], int]:
        found: list[WritableTxnMarkerPartitionResult] = []
        if version >= 1:
            rows, at = _ROWS_IH_COMPACT.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = WritableTxnMarkerPartitionResult(partition_index=partition_index, error_code=error_code)
                found.append(self)
        else:
            rows, at = _ROWS_IH_CLASSIC.read(data, at, most)
            for row in rows:
                partition_index, error_code = row
                self = WritableTxnMarkerPartitionResult(partition_index=partition_index, error_code=error_code)
                found.append(self)
        return found, at


class WritableTxnMarkerTopicResult(Struct, gc=False, kw_only=True):
    """Results by topic.

    name: Name of the topic.
    partitions: Results by partition.
    """

    name: str = ""  # string, versions 0+
    # []WritableTxnMarkerPartitionResult, versions 0+
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WritableTxnMarkerTopicResult], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.name, flexible, "name")
            write_structs(out, self.partitions, flexible, WritableTxnMarkerPartitionResult._write_each, version)
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
    ) -> tuple[list[WritableTxnMarkerTopicResult], int]:
        flexible = version >= 1
        found: list[WritableTxnMarkerTopicResult] = []
        for _ in range(count):
            self = WritableTxnMarkerTopicResult()
            self.name, at = read_string(data, at, flexible, "name")
            self.partitions, at = read_rows(
                data,
                at,
                flexible,
                6,
                "partitions",
                WritableTxnMarkerPartitionResult,
                version,
            )
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class WritableTxnMarkerResult(Struct, gc=False, kw_only=True):
    """Results by marker.

    producer_id: Producer whose transaction ends.
    topics: Results by topic.
    """

    producer_id: int = 0  # int64, versions 0+
    # []WritableTxnMarkerTopicResult, versions 0+
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[WritableTxnMarkerResult], out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        for self in structs:
            buffer += _Q.pack(self.producer_id)
            write_structs(out, self.topics, flexible, WritableTxnMarkerTopicResult._write_each, version)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[WritableTxnMarkerResult], int]:
        flexible = version >= 1
        found: list[WritableTxnMarkerResult] = []
        for _ in range(count):
            self = WritableTxnMarkerResult()
            (self.producer_id,) = _Q.unpack_from(data, at)
            at += 8
            self.topics, at = read_structs(
                data,
                at,
                flexible,
                3,
                "topics",
                WritableTxnMarkerTopicResult._read_each,
                version,
            )
            if version >= 1:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class WriteTxnMarkersResponse(Message, gc=False, kw_only=True):
    """Which markers were written.

    markers: Results by marker.
    """

    API_KEY = 27
    VALID_VERSIONS = range(3)
    FLEXIBLE_VERSIONS = range(1, 3)

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)  # []WritableTxnMarkerResult, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 1
        buffer = out.buffer
        write_structs(out, self.markers, flexible, WritableTxnMarkerResult._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[WriteTxnMarkersResponse, int]:
        self = WriteTxnMarkersResponse()
        flexible = version >= 1
        self.markers, at = read_structs(data, at, flexible, 10, "markers", WritableTxnMarkerResult._read_each, version)
        if version >= 1:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
