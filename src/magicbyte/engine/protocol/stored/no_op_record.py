"""Generated from NoOpRecord.json. Do not edit: the schema compiler makes it.

NoOpRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from magicbyte.engine.protocol.fields import new, read_unknown_tags, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer


@dataclass(slots=True, kw_only=True)
class NoOpRecord(Message):
    """In the metadata log: nothing has changed; the controller still works."""

    API_KEY: ClassVar[int | None] = 20
    VALID_VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_VERSIONS: ClassVar[range] = range(1)

    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[NoOpRecord, int]:
        self = new(NoOpRecord)
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
