"""Produce requests that were captured at real brokers, sent to ours as they are: answered and stored as theirs.

Judged by a reader that shares nothing with the product (`wire_reader`), beside what the real broker answered and
stored; what differs is in the tables of docs/internals/append.md. Every version of the response, errors before the log
is reached, acks=0.
"""

import struct
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import golden_data
from builders import run
from engine.log.produced import Answer, Replayed, captured_answer, exchanges, now_of, settings_of
from engine.log.test_append_golden import BEFORE_THE_LOG, REFERENCES, differences, what_differs
from golden_data import WireCase
from magicbyte.engine.protocol import write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.server.broker.broker import Broker
from server.broker.builders import short_message
from server.broker.serving import CLOSED, Clock, Peer, Running
from wire_reader import ProduceAnswer, head, produce_answer, produce_request

NOWHERE = 9999  # a partition that no topic has
FOLLOW_UP = bytes(write_request(ApiVersionsRequest(), 0, correlation_id=8, client_id="me"))


def cases(broker: str) -> list[WireCase]:
    return [each for each in golden_data.wire_cases(broker) if each.info["api"] == "Produce"]


async def sent(broker: Broker, peer: Peer, request: bytes) -> ProduceAnswer | None:
    """The answer to a request; None if none is expected, and the connection stays open: else it fails."""
    asked = produce_request(request)
    if asked.acks:
        told = produce_answer(await peer.exchange(request), asked.version)
        assert (told.correlation_id, told.topic, told.partition) == (
            head(request).correlation_id,
            asked.topic,
            asked.partition,
        )
        return told
    other = await Peer.of(broker)
    await other.stream.write([request])
    follows = await other.exchange(FOLLOW_UP)
    assert follows != CLOSED
    assert struct.unpack_from(">i", follows, 4) == (8,), "acks=0 was answered"
    other.close()
    return None


def answered(told: ProduceAnswer | None) -> Answer:
    if told is None:
        return Answer("none", None, None)
    return Answer(str(told.error), told.base_offset, -1 if told.log_append_time is None else told.log_append_time)


def rest_that_differs(ours: ProduceAnswer, response: bytes, version: int) -> list[str]:
    """Names of what two answers say otherwise, beside what `what_differs` looks at."""
    kafka = produce_answer(response[: 4 + int.from_bytes(response[:4], "big")], version)  # one is followed by another
    names = ["correlation_id", "topic", "partition", "throttle_ms"]
    if bool(ours.error) == bool(kafka.error):  # else, and for other codes, the tables have it
        names.append("log_start")
    if ours.error == kafka.error:
        names.append("record_errors")
    return [name for name in names if getattr(ours, name) != getattr(kafka, name)]


@pytest.mark.parametrize("reference", golden_data.wire_brokers_of_each_kind())
def test_a_captured_request_is_answered_and_stored_as_the_broker_did_but_for_the_tables(
    reference: str, folder: Path
) -> None:
    unexpected: list[object] = []
    references, others = differences()

    async def work() -> None:
        clock, found = Clock(), cases(reference)
        async with Running(folder, {"auto.create.topics.enable": "false"}, clock) as broker:
            for topic in {case.info["topic"] for case in found}:
                members = [case for case in found if case.info["topic"] == topic]
                (settings,) = {tuple(settings_of(case).items()) for case in members}
                most = max((case.info["partition"] for case in members if case.info["partition"] != NOWHERE), default=0)
                await broker.topics.create(topic, most + 1, configs=dict(settings))
            peer = await Peer.of(broker)
            for case in found:
                await one(broker, peer, clock, case)
            peer.close()

    async def one(broker: Broker, peer: Peer, clock: Clock, case: WireCase) -> None:
        answers = []
        for request, response, said in exchanges(case):
            clock.ms = now_of(case, said)
            told = await sent(broker, peer, request)
            answers.append((answered(told), captured_answer(said)))
            if told is not None and response:
                version = produce_request(request).version
                unexpected.extend((case.id, name) for name in rest_that_differs(told, response, version))
        if any(fnmatchcase(case.name, each) for each in BEFORE_THE_LOG):
            assert all(ours.code == theirs.code for ours, theirs in answers), case
            return
        log = broker.replicas.partition(case.info["topic"], case.info["partition"]).log
        assert log.high_watermark == log.log_end_offset
        stored = log.active.log.read_at(0, log.active.size)
        what = what_differs(case, Replayed(answers, stored))
        is_reference = produce_request(case.request).version in REFERENCES.get(reference, ())
        rows = references if is_reference else references + others
        if what is not None and not any(row.covers(case, *what) for row in rows):
            unexpected.append((case.id, *what))

    run(work())
    assert unexpected == []


def without_producer_id() -> bytes:
    """A transactional batch that says no producer id."""
    batch = bytearray(encode_records([Record(0, 0, 0, b"k", b"v")], Format.V2))
    batch[22] |= 1 << 4
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


@pytest.mark.parametrize("version", [3, 5, 8, 11])
async def test_a_set_that_its_request_may_not_carry_is_refused_without_the_start_of_the_log(
    version: int, folder: Path
) -> None:
    wanted = {short_message(size): 87 for size in range(14, 22)} | {without_producer_id(): 53}

    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for records, code in wanted.items():
            part = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="topic", partition_data=[part])])
            told = (await peer.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]
            assert (told.error_code, told.base_offset, told.log_start_offset) == (code, -1, -1)
        peer.close()
