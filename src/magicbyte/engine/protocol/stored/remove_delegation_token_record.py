"""Generated from RemoveDelegationTokenRecord.json. Do not edit: the schema compiler makes it.

RemoveDelegationTokenRecord: version 0, flexible 0+.
"""

from __future__ import annotations

from magicbyte.engine.protocol.fields import read_string, read_unknown_tags, write_string, write_tags
from magicbyte.engine.protocol.message import Message, Tags, Writer


class RemoveDelegationTokenRecord(Message, gc=False, kw_only=True):
    """In the metadata log: a delegation token was removed.

    token_id: Names the token; its secret follows from it.
    """

    API_KEY = 26
    VALID_VERSIONS = range(1)
    FLEXIBLE_VERSIONS = range(1)

    token_id: str = ""  # string, versions 0+
    unknown_tags: Tags = ()

    def _write(self, out: Writer, version: int) -> None:
        buffer = out.buffer
        write_string(buffer, self.token_id, True, "token_id")
        if self.unknown_tags:
            write_tags(buffer, (), self.unknown_tags)
        else:
            buffer.append(0)

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[RemoveDelegationTokenRecord, int]:
        self = RemoveDelegationTokenRecord()
        self.token_id, at = read_string(data, at, True, "token_id")
        self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)
        return self, at
