"""Produce requests of encoded sets, and their responses: the same bytes as the generated messages, in a third of the
time.

A mirror sends hundreds of thousands of sets, and the generated classes create two objects for each. These create none
for a request, and one tuple for a response. Unusual cases are left to the generated classes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from magicbyte.engine.protocol.fields import (
    read_count,
    read_string,
    write_length,
    write_nullable_records,
    write_nullable_string,
    write_string,
)
from magicbyte.engine.protocol.message import COPIED, Message, Records, Writer
from magicbyte.engine.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse

_PARTITION: Final = struct.Struct(">i")
_HOW: Final = struct.Struct(">hi")
_FIRST_PLAIN: Final = 5  # the first version with all of these five numbers; from 8 on errors, a message and tags follow
_LEAST_ANSWER: Final = 30
_BARE: Final = struct.Struct(">ihqqq0s"), b""
_ANSWERS: Final = {5: _BARE, 6: _BARE, 7: _BARE, 8: (struct.Struct(">ihqqq6s"), b"\0\0\0\0\xff\xff")}
_TAGGED: Final = struct.Struct(">ihqqq3s"), b"\1\0\0"
_THROTTLE_BYTES: Final = 4


class IsAddressed(Protocol):
    """An encoded set with a producer's fields, and its partition."""

    @property
    def topic(self) -> str:
        """The topic of the set."""

    @property
    def partition(self) -> int:
        """The partition of the set."""

    @property
    def data(self) -> Records:
        """The set."""


class Produced(NamedTuple):
    """The response for one set. `base_offset` is that of its first record, -1 with acks=0.

    `log_append_time_ms` is -1 unless the topic has LogAppendTime; `log_start_offset` is -1 before 1.0.
    """

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class SetsRequest(Message):
    """A ProduceRequest of sets of one transaction, or of none, in any order of topics, one per partition."""

    API_KEY: ClassVar[int | None] = 0
    VALID_VERSIONS: ClassVar[range] = range(13)  # from version 13 on topics have ids instead of names
    FLEXIBLE_VERSIONS: ClassVar[range] = ProduceRequest.FLEXIBLE_VERSIONS

    acks: int
    timeout_ms: int
    sets: Sequence[IsAddressed]
    transactional_id: str | None = None

    def _write(self, out: Writer, version: int) -> None:
        flexible, buffer = version in self.FLEXIBLE_VERSIONS, out.buffer
        if version >= 3:
            write_nullable_string(buffer, self.transactional_id, flexible, "transactional_id")
        buffer += _HOW.pack(self.acks, self.timeout_ms)
        topics: dict[str, list[IsAddressed]] = {}
        for each in self.sets:
            topics.setdefault(each.topic, []).append(each)
        write_length(buffer, len(topics), flexible)
        for name, sets in topics.items():
            write_string(buffer, name, flexible, "name")
            write_length(buffer, len(sets), flexible)
            for each in sets:
                buffer += _PARTITION.pack(each.partition)
                data = each.data
                if isinstance(data, list) and len(data) == 2 and len(data[0]) < COPIED <= len(data[1]):
                    write_length(buffer, len(data[0]) + len(data[1]), flexible)
                    buffer += data[0]  # a header, followed by the records, which are not copied
                    out.attached.append((len(buffer), data[1]))
                    out.attached_bytes += len(data[1])
                else:
                    write_nullable_records(out, data, flexible)
                if flexible:
                    buffer.append(0)
            if flexible:
                buffer.append(0)
        if flexible:
            buffer.append(0)


class SetsResponse(Message):
    """A ProduceResponse. `answers`: by topic and partition; those with errors or other data as the generated class."""

    VALID_VERSIONS: ClassVar[range] = SetsRequest.VALID_VERSIONS
    FLEXIBLE_VERSIONS: ClassVar[range] = SetsRequest.FLEXIBLE_VERSIONS

    answers: dict[tuple[str, int], Produced | PartitionProduceResponse]

    @staticmethod
    def _read(data: memoryview, at: int, version: int) -> tuple[SetsResponse, int]:
        plain = _plain(data, at, version) if version >= _FIRST_PLAIN else None
        if plain is not None:
            return plain
        response, end = ProduceResponse.read_at(data, at, version)
        answers = {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
        return SetsResponse(dict(answers)), end


def _plain(data: memoryview, at: int, version: int) -> tuple[SetsResponse, int] | None:
    """Parse a response without errors whose partitions all have the same form; return None for others."""
    flexible = version in SetsRequest.FLEXIBLE_VERSIONS
    answer, plain = _TAGGED if flexible else _ANSWERS[version]
    answers: dict[tuple[str, int], Produced | PartitionProduceResponse] = {}
    topics, at = read_count(data, at, flexible, 1, "responses")
    for _ in range(topics):
        name, at = read_string(data, at, flexible, "name")
        partitions, at = read_count(data, at, flexible, _LEAST_ANSWER, "partition_responses")
        end = at + partitions * answer.size
        if end > len(data):
            return None
        for index, error, base_offset, time_ms, start, behind in answer.iter_unpack(data[at:end]):
            if error or behind != plain:
                return None
            answers[name, index] = Produced(base_offset, time_ms, start)
        if flexible and data[end]:
            return None
        at = end + flexible
    at += _THROTTLE_BYTES
    return None if flexible and data[at] else (SetsResponse(answers), at + flexible)
