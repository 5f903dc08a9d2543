"""Generated from ShareGroupMetadataKey.json and ShareGroupMetadataValue.json. Do not edit: the schema compiler makes

it.
ShareGroupMetadataKey: version 11.
ShareGroupMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_IQ = struct.Struct(">iq")


class ShareGroupMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a share group. It follows the int16 11, its type.

    group_id: Share group by its group.id, as its consumers are configured.
    """

    VALID_VERSIONS = range(11, 12)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 11

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupMetadataKey, int]:
        self = ShareGroupMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class ShareGroupMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: epoch of a share group; null if the group was deleted.

    epoch: Grows whenever members or subscriptions change.
    metadata_hash: Hash over the topics subscribed to, by which the coordinator notices that they changed. Not in the
        early form of Kafka 4.0.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    epoch: int = 0  # int32, versions 0+
    metadata_hash: int = 0  # int64, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _IQ.pack(self.epoch, self.metadata_hash)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ShareGroupMetadataValue, int]:
        self = ShareGroupMetadataValue()
        self.epoch, self.metadata_hash = _IQ.unpack_from(data, at)
        at += 12
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
