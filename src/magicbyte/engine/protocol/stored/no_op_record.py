"""Generated from NoOpRecord.json. Do not edit: the schema compiler makes it.

NoOpRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from magicbyte.engine.protocol.fields import read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer


class NoOpRecord(Message, gc=False, kw_only=True):
    """In the metadata log: nothing has changed; the controller still works."""

    API_KEY = 20
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[NoOpRecord, int]:
        self = NoOpRecord()
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
