"""Generated from BeginTransactionRecord.json. Do not edit: the schema compiler makes it.

BeginTransactionRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from magicbyte.engine.protocol.fields import (
    read_nullable_string,
    read_tags,
    unknown,
    whole,
    write_nullable_string,
    write_tags,
)
from magicbyte.engine.protocol.message import Message, Tags, Writer


class BeginTransactionRecord(Message, gc=False, kw_only=True):
    """In the metadata log: the records after it count once its transaction has ended.

    name: What the transaction does; null: not known.
    """

    API_KEY = 23
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    name: str | None = None  # string, versions 0+, nullable, tag 0
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        tags = self._tags(version)
        if tags or self.unknown_tags:
            write_tags(buffer, tags, self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[BeginTransactionRecord, int]:
        self = BeginTransactionRecord()
        self.name = None
        if data[at]:
            tags, at = read_tags(data, at)
            if 0 in tags:
                part = tags.pop(0)
                self.name = whole(part, read_nullable_string(part, 0, True, "name"), "name")
            self.unknown_tags = unknown(tags)
        else:
            self.unknown_tags, at = (), at + 1
        return self, at

    def _tags(self, version: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        if self.name is not None:
            part = Writer()
            write_nullable_string(part.buffer, self.name, True, "name")
            found.append((0, bytes(part)))
        return found
