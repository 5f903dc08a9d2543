"""Produce requests of the wire captures, and what our log makes of them: for the tests that replay them."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from golden_data import WireCase
from magicbyte.engine.errors import AppendRefusedError
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.producer_check import ProducerChecks
from magicbyte.engine.log.append.rules import AppendRules
from topic_settings import append_rules
from wire_reader import Produce, produce_request, records

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "1500"},
    "append": {"message.timestamp.type": "LogAppendTime"},
    "strict": {"message.timestamp.difference.max.ms": "60000"},
}


class Answer(NamedTuple):
    """What a response says of a partition. `code` is an error code, or "none" or "closed" where no response came.

    None: what the response does not say.
    """

    code: str
    base_offset: int | None
    log_append_time: int | None


@dataclass
class Log:
    """A partition in memory."""

    rules: AppendRules
    leader_epoch: int = 0
    data: bytes = b""
    next_offset: int = 0
    producers: ProducerChecks = field(default_factory=ProducerChecks)

    def produce(self, request: Produce, now_ms: int) -> Answer:
        """Append a set and return the answer; nothing changes where it is refused."""
        try:
            done = prepare(
                request.records, self.rules, next_offset=self.next_offset, now_ms=now_ms,
                leader_epoch=self.leader_epoch, request_version=request.version,
            )  # fmt: skip
            if done.producer is not None:
                known = self.producers.check(done.producer)
                if known is not None:
                    return Answer("0", known.first_offset, done.log_append_time)
                self.producers.appended(done.producer, done.first_offset, done.last_offset, done.max_timestamp)
        except AppendRefusedError as refusal:
            return Answer(str(int(refusal.code)), -1, -1)
        self.data += bytes(done)
        if done.records:
            self.next_offset = done.last_offset + 1
        return Answer("0", done.first_offset, done.log_append_time)


def settings_of(case: WireCase) -> dict[str, str]:
    """The settings of the topic that a capture was made on."""
    kind = case.info["topicKind"]
    settings = TOPICS[kind] if kind in TOPICS else {"compression.type": kind.removeprefix("to")}
    return {"message.format.version": FORMATS[case.info["storedMagic"]], **settings}


def exchanges(case: WireCase) -> Iterator[tuple[bytes, bytes, dict[str, Any]]]:
    """Each request of a capture in order, what it was answered, and what is said of it."""
    found = sorted(case.exchanges().items(), key=lambda each: len(each[0]))
    said = [case.info, *case.info.get("followingRequests", [])]
    for (_, (request, response)), each in zip(found, said, strict=True):
        yield request, response, each


class Replayed(NamedTuple):
    """What became of one capture: our answers and the broker's, and what we stored."""

    answers: list[tuple[Answer, Answer]]
    stored: bytes


def replay(case: WireCase) -> Replayed:
    """Send the requests of a capture to our log."""
    stored = case.segment
    epoch = struct.unpack_from(">i", stored, 12)[0] if len(stored) > 16 and stored[16] == 2 else 0
    log = Log(append_rules(settings_of(case)), epoch)
    answers = []
    for request, _, said in exchanges(case):
        ours = log.produce(produce_request(request), now_of(case, said))
        answers.append((ours, captured_answer(said)))
    return Replayed(answers, log.data)


def captured_answer(said: dict[str, Any]) -> Answer:
    if said["outcome"] != "response":
        return Answer("closed" if "closed" in said["outcome"] else "none", None, None)
    return Answer(str(said["errorCode"]), said["baseOffset"], said.get("logAppendTime"))


def now_of(case: WireCase, said: dict[str, Any]) -> int:
    """The broker's clock: the time it stored, or what the capture's note says of the record's timestamp."""
    if (delta := re.search(r"Create time (?:(-?[0-9]+) ms from )?now", case.info["note"])) is not None:
        return records(produce_request(case.request).records)[0].timestamp - int(delta[1] or 0)
    if (said.get("logAppendTime") or -1) >= 0:
        return int(said["logAppendTime"])
    if case.info["topicKind"] == "append" and case.segment:
        return max(record.timestamp for record in records(case.segment))
    return 0
