"""Generated from ControlledShutdownRequest.json and ControlledShutdownResponse.json. Do not edit: the schema compiler

makes it.
ControlledShutdownRequest: versions 0-3, flexible 3+.
ControlledShutdownResponse: versions 0-3, flexible 3+.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct, field

from magicbyte.engine.protocol.fields import (
    read_string,
    read_structs,
    read_unknown_tags,
    write_string,
    write_structs,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer

_H = struct.Struct(">h")
_I = struct.Struct(">i")
_IQ = struct.Struct(">iq")


class ControlledShutdownRequest(Message, gc=False, kw_only=True):
    """A broker that is about to stop asks the controller to move its leaderships away. Version 0 has a header of its
    own, without a client id.

    broker_id: Broker that is about to stop.
    broker_epoch: Epoch of the broker's registration, so that a request from before its restart is refused; -1 skips
        the check.
    """

    API_KEY = 7
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(3, 4)

    broker_id: int = 0  # int32, versions 0+
    broker_epoch: int = -1  # int64, versions 2+, ignorable
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        if version >= 2:
            buffer += _IQ.pack(self.broker_id, self.broker_epoch)
        else:
            buffer += _I.pack(self.broker_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ControlledShutdownRequest, int]:
        self = ControlledShutdownRequest()
        if version >= 2:
            self.broker_id, self.broker_epoch = _IQ.unpack_from(data, at)
            at += 12
        else:
            (self.broker_id,) = _I.unpack_from(data, at)
            at += 4
            self.broker_epoch = -1
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at


class RemainingPartition(Struct, gc=False, kw_only=True):
    """Partitions that the broker still leads, for lack of another in-sync replica; it asks again while there are any.

    topic_name: Topic by its name, which is unique in the cluster.
    partition_index: Number of the partition within its topic, counted from 0.
    """

    topic_name: str = ""  # string, versions 0+
    partition_index: int = 0  # int32, versions 0+
    unknown_tags: Tags = ()

    @staticmethod
    def _write_each(structs: Sequence[RemainingPartition], out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        for self in structs:
            write_string(buffer, self.topic_name, flexible, "topic_name")
            buffer += _I.pack(self.partition_index)
            if self.unknown_tags:
                write_tags(buffer, (), self.unknown_tags, flexible)
            elif flexible:
                buffer.append(0)

    @staticmethod
    def _read_each(data: memoryview, at: int, count: int, version: int) -> tuple[list[RemainingPartition], int]:
        flexible = version >= 3
        found: list[RemainingPartition] = []
        for _ in range(count):
            self = RemainingPartition()
            self.topic_name, at = read_string(data, at, flexible, "topic_name")
            (self.partition_index,) = _I.unpack_from(data, at)
            at += 4
            if version >= 3:
                self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
            else:
                self.unknown_tags = ()
            found.append(self)
        return found, at


class ControlledShutdownResponse(Message, gc=False, kw_only=True):
    """Whether the broker may stop.

    error_code: Error that concerns the request as a whole, by its number in the protocol; 0 means none.
    remaining_partitions: Partitions that the broker still leads, for lack of another in-sync replica; it asks again
        while there are any.
    """

    API_KEY = 7
    VALID_VERSIONS = range(4)
    FLEXIBLE_VERSIONS = range(3, 4)

    error_code: int = 0  # int16, versions 0+
    remaining_partitions: list[RemainingPartition] = field(default_factory=list)  # []RemainingPartition, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        flexible = version >= 3
        buffer = out.buffer
        buffer += _H.pack(self.error_code)
        write_structs(out, self.remaining_partitions, flexible, RemainingPartition._write_each, version)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags, flexible)
        elif flexible:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ControlledShutdownResponse, int]:
        self = ControlledShutdownResponse()
        flexible = version >= 3
        (self.error_code,) = _H.unpack_from(data, at)
        at += 2
        self.remaining_partitions, at = read_structs(
            data,
            at,
            flexible,
            6,
            "remaining_partitions",
            RemainingPartition._read_each,
            version,
        )
        if version >= 3:
            self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        else:
            self.unknown_tags = ()
        return self, at
