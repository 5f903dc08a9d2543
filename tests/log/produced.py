"""Produce requests of the wire captures, and what our log makes of them: for the tests that replay them."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from golden_data import WireCase
from magicbyte.codecs import Lz4Header, decompress
from magicbyte.errors import AppendRefusedError
from magicbyte.log.append import PreparedAppend, prepare
from magicbyte.log.append_rules import AppendRules
from magicbyte.log.producer_check import ProducerChecks
from magicbyte.records.batch import RecordBatch
from magicbyte.records.columns import Record
from magicbyte.records.decode import DecodeOptions, decode
from magicbyte.records.entry import entries
from magicbyte.records.message import Message

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "1500"},
    "append": {"message.timestamp.type": "LogAppendTime"},
    "strict": {"message.timestamp.difference.max.ms": "60000"},
}
PRODUCE = 0


class Answer(NamedTuple):
    """What a response says of a partition. `code` is an error code, or "none" or "closed" where no response came.

    None: what the response does not say.
    """

    code: str
    base_offset: int | None
    log_append_time: int | None


class Produce(NamedTuple):
    """A Produce request for one partition."""

    version: int
    acks: int
    records: memoryview


def parse(request: bytes) -> Produce:
    """Read a request of version 0 to 8, with its 4-byte size."""
    api, version = struct.unpack_from(">hh", request, 4)
    assert api == PRODUCE
    assert version <= 8, "later versions are flexible"
    at = 12
    for _ in range(2 if version >= 3 else 1):  # client id, transactional id
        (length,) = struct.unpack_from(">h", request, at)
        at += 2 + max(length, 0)
    acks, _, topics, name = struct.unpack_from(">hiih", request, at)
    at += 12 + name
    partitions, _, size = struct.unpack_from(">iii", request, at)
    assert topics == partitions == 1
    return Produce(version, acks, memoryview(request)[at + 12 :][: max(size, 0)])


@dataclass
class Log:
    """A partition in memory."""

    rules: AppendRules
    leader_epoch: int = 0
    data: bytes = b""
    next_offset: int = 0
    producers: ProducerChecks = field(default_factory=ProducerChecks)

    def produce(self, request: Produce, now_ms: int) -> tuple[Answer, PreparedAppend | None]:
        """Append a set and return the answer; nothing changes where it is refused."""
        try:
            done = prepare(
                request.records, self.rules, next_offset=self.next_offset, now_ms=now_ms,
                leader_epoch=self.leader_epoch, request_version=request.version,
            )  # fmt: skip
            if done.producer is not None:
                known = self.producers.check(done.producer)
                if known is not None:
                    return Answer("0", known.first_offset, done.log_append_time), None
                self.producers.appended(done.producer, done.first_offset, done.last_offset, done.max_timestamp)
        except AppendRefusedError as refusal:
            return Answer(str(int(refusal.code)), -1, -1), None
        self.data += bytes(done)
        if done.records:
            self.next_offset = done.last_offset + 1
        return Answer("0", done.first_offset, done.log_append_time), done


class Replayed(NamedTuple):
    """What became of one capture: our answers and the broker's, our log, and whether all was appended in place."""

    answers: list[tuple[Answer, Answer]]
    log: Log
    in_place: bool


def replay(case: WireCase) -> Replayed:
    """Send the requests of a capture to our log."""
    info = case.info
    kind = info["topicKind"]
    settings = TOPICS[kind] if kind in TOPICS else {"compression.type": kind.removeprefix("to")}
    stored = case.segment
    epoch = struct.unpack_from(">i", stored, 12)[0] if len(stored) > 16 and stored[16] == 2 else 0
    log = Log(AppendRules.of({"message.format.version": FORMATS[info["storedMagic"]], **settings}), epoch)
    answers, appends = [], []
    exchanges = [exchange for _, exchange in sorted(case.exchanges().items(), key=lambda each: len(each[0]))]
    for (request, _), said in zip(exchanges, [info, *info.get("followingRequests", [])], strict=True):
        ours, done = log.produce(parse(request), _now(case, said))
        answers.append((ours, _answer(said)))
        appends.append(done)
    return Replayed(answers, log, all(done is not None and not done.rebuilt for done in appends))


def _answer(said: dict[str, Any]) -> Answer:
    if said["outcome"] != "response":
        return Answer("closed" if "closed" in said["outcome"] else "none", None, None)
    return Answer(str(said["errorCode"]), said["baseOffset"], said.get("logAppendTime"))


def _now(case: WireCase, said: dict[str, Any]) -> int:
    """The broker's clock: the time it stored, or what the capture's note says of the record's timestamp."""
    if (delta := re.search(r"Create time (?:(-?[0-9]+) ms from )?now", case.info["note"])) is not None:
        return decoded(parse(case.request).records)[0].timestamp - int(delta[1] or 0)
    if (said.get("logAppendTime") or -1) >= 0:
        return int(said["logAppendTime"])
    if case.info["topicKind"] == "append" and case.segment:
        return max(record.timestamp for record in decoded(memoryview(case.segment)))
    return 0


def decoded(data: memoryview) -> list[Record]:
    """All records, control records too."""
    return [record for columns in decode(data, DecodeOptions(control=True)) for record in columns]


def unpacked(data: memoryview) -> Iterator[tuple[object, ...]]:
    """What each entry says, and what it holds once decompressed: but sizes and checksums."""
    for _, entry in entries(data):
        if isinstance(entry, Message):
            payload = entry.value
            says: tuple[object, ...] = (entry.magic, entry.attributes, entry.offset, entry.timestamp, entry.key is None)
        else:
            assert isinstance(entry, RecordBatch)
            payload = entry.records_section
            says = (2, entry.attributes, entry.base_offset, entry.last_offset_delta, entry.base_timestamp,
                    entry.max_timestamp, entry.producer_id, entry.producer_epoch, entry.base_sequence,
                    entry.record_count, entry.partition_leader_epoch)  # fmt: skip
        assert payload is not None or not entry.codec
        whole = payload and decompress(entry.codec, payload, limit=1 << 24, lz4_header=Lz4Header.ANY)
        yield *says, None if whole is None else bytes(whole)
