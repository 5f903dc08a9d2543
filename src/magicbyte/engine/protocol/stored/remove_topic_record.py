"""Generated from RemoveTopicRecord.json. Do not edit: the schema compiler makes it.

RemoveTopicRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from uuid import UUID

from magicbyte.engine.protocol.fields import NULL_UUID, read_unknown_tags, read_uuid, write_tags, write_uuid
from magicbyte.engine.protocol.message import Message, Tags, Writer


class RemoveTopicRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a topic was deleted, with its settings.

    topic_id: Random id, which differs from that of an earlier topic of the same name.
    """

    API_KEY = 9
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    topic_id: UUID = NULL_UUID  # uuid, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_uuid(buffer, self.topic_id)
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RemoveTopicRecord, int]:
        self = RemoveTopicRecord()
        self.topic_id, at = read_uuid(data, at)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
