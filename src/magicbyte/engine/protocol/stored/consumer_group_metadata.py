"""Generated from ConsumerGroupMetadataKey.json and ConsumerGroupMetadataValue.json. Do not edit: the schema compiler

makes it.
ConsumerGroupMetadataKey: version 3.
ConsumerGroupMetadataValue: version 0, flexible 0+.
"""

from __future__ import annotations

import struct

from magicbyte.engine.protocol.fields import read_string, read_tags, unknown, whole, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer

_I = struct.Struct(">i")
_Q = struct.Struct(">q")


class ConsumerGroupMetadataKey(Message, gc=False, kw_only=True):
    """Key in __consumer_offsets of a group with the new consumer protocol (KIP-848). It follows the int16 3, its type.

    group_id: Group by its group.id, as its members are configured.
    """

    VALID_VERSIONS = range(3, 4)
    FLEXIBLE_VERSIONS = range(0)

    group_id: str = ""  # string, versions 3

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.group_id, False, "group_id")

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupMetadataKey, int]:
        self = ConsumerGroupMetadataKey()
        self.group_id, at = read_string(data, at, False, "group_id")
        return self, at


class ConsumerGroupMetadataValue(Message, gc=False, kw_only=True):
    """Value in __consumer_offsets: epoch of a group with the new consumer protocol; null if the group was deleted.

    epoch: Grows whenever members or subscriptions change.
    metadata_hash: Hash over the topics subscribed to, by which the coordinator notices that they changed; 0 if there
        is none.
    """

    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    epoch: int = 0  # int32, versions 0+
    metadata_hash: int = 0  # int64, versions 0+, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        buffer += _I.pack(self.epoch)
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[ConsumerGroupMetadataValue, int]:
        self = ConsumerGroupMetadataValue()
        (self.epoch,) = _I.unpack_from(data, at)
        at += 4
        self.metadata_hash = 0
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.metadata_hash = whole(part, (_Q.unpack_from(part)[0], 8), "metadata_hash")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.metadata_hash != 0:
            part = Writer()
            part.buffer += _Q.pack(self.metadata_hash)
            found.append((0, bytes(part)))
        return found
