"""Produce requests that were captured at real brokers, sent to ours: answered and stored as docs/append.md has it.

tests/log/test_append_golden.py holds the log's rules against those brokers; here the answers on the wire are held
against these rules: every version of the response, what comes before a log is looked at, acks=0.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_data
from broker.serving import CLOSED, Clock, Peer, Running, run
from golden_data import WireCase
from log import produced
from magicbyte.broker.broker import Broker
from magicbyte.log.append_rules import AppendRules
from magicbyte.protocol import APIS, read_request, read_response, write_request
from magicbyte.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.protocol.messages.produce import ProduceResponse

BROKERS = ("0.11.0.3", "2.8.2")  # the references of the rules: of v0 to v2, and of v3 and later
REFUSED_BEFORE_THE_LOG = {"acks-2": 21, "unknown-partition": 3}


def cases(broker: str) -> list[WireCase]:
    return [each for each in golden_data.wire_cases(broker) if each.info["api"] == "Produce"]


def settings_of(case: WireCase) -> dict[str, str]:
    kind = case.info["topicKind"]
    own = produced.TOPICS.get(kind, {"compression.type": kind.removeprefix("to")})
    return {"message.format.version": str(case.info["storedMagic"]), **own}


def requests(case: WireCase) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The requests of a case in order, and what is said of each."""
    exchanges = sorted(case.exchanges().items(), key=lambda each: len(each[0]))
    said = [case.info, *case.info.get("followingRequests", [])]
    for (_, (request, _)), each in zip(exchanges, said, strict=True):
        yield request, each


def moved(request: bytes, topic: str, partition: int) -> bytes:
    """The same request for another partition."""
    found = read_request(request[4:])
    message: Any = found.message
    message.topic_data[0].name, message.topic_data[0].partition_data[0].index = topic, partition
    version = found.header.request_api_version
    return bytes(write_request(message, version, correlation_id=7, client_id="test"))


async def answer(broker: Broker, peer: Peer, request: bytes) -> Any:
    """What a request's only partition is answered; with acks=0 whether the connection lives on."""
    version = int.from_bytes(request[6:8], "big")
    if produced.parse(request).acks == 0:
        other = await Peer.of(broker)
        await other.stream.write([request])
        follows = await other.exchange(bytes(write_request(ApiVersionsRequest(), 0, correlation_id=8, client_id="me")))
        other.close()
        return follows != CLOSED
    data = await peer.exchange(request)
    assert data, "the broker closed the connection"
    _, response = read_response(data[4:], APIS[0], version)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def expected(case: WireCase) -> tuple[list[tuple[produced.Answer, bool]], bytes]:
    """What the rules have: an answer to each request, whether nobody waits for it, and what is stored."""
    log = produced.Log(AppendRules.of({**settings_of(case)}))
    answers = []
    for request, said in requests(case):
        parsed = produced.parse(request)
        refused = next((code for name, code in REFUSED_BEFORE_THE_LOG.items() if case.name.startswith(name)), None)
        if refused is not None:
            answers.append((produced.Answer(str(refused), -1, -1), parsed.acks == 0))
            continue
        ours, _ = log.produce(parsed, produced._now(case, said))
        answers.append((ours, parsed.acks == 0))
    return answers, log.data


@pytest.mark.parametrize("reference", BROKERS)
def test_a_captured_request_is_answered_by_the_rules_and_stored_by_them(reference: str, folder: Path) -> None:
    async def work() -> None:
        clock, found = Clock(), cases(reference)
        topics: dict[str, list[WireCase]] = {}
        for case in found:
            topics.setdefault(f"{case.info['topicKind']}-{case.info['storedMagic']}", []).append(case)
        async with Running(folder, {"log.message.format.version": "2"}, clock) as broker:
            peer = await Peer.of(broker)
            for topic, members in topics.items():
                broker.topics.create(topic, len(members), configs=settings_of(members[0]))
                for partition, case in enumerate(members):
                    await one(broker, peer, clock, case, topic, partition)
            peer.close()

    async def one(broker: Broker, peer: Peer, clock: Clock, case: WireCase, topic: str, partition: int) -> None:
        answers, stored = expected(case)
        asked = 9999 if case.name.startswith("unknown-partition") else partition
        for (request, said), (wanted, unanswered) in zip(requests(case), answers, strict=True):
            clock.ms = produced._now(case, said)
            given = await answer(broker, peer, moved(request, topic, asked))
            if unanswered:
                assert given is (wanted.code == "0"), case
                continue
            ours = produced.Answer(str(given.error_code), given.base_offset, given.log_append_time_ms)
            if int.from_bytes(request[6:8], "big") < 2:
                wanted = wanted._replace(log_append_time=-1)
            assert ours == wanted, case
            assert not (given.record_errors and given.error_code == 0), case
        log = broker.partition(topic, partition).log
        assert log.active.log.read_at(0, log.active.size) == stored, case
        assert log.high_watermark == log.log_end_offset

    run(work())
    assert len(cases(reference)) > 100


def test_a_refused_set_is_told_the_start_of_the_log_where_the_captured_broker_told_it(folder: Path) -> None:
    refused = []
    for case in cases("2.8.2"):
        version, data = int.from_bytes(case.request[6:8], "big"), case.info["outcome"] == "response" and case.response
        if data and version >= 5:
            _, response = read_response(data[4:], APIS[0], version)
            assert isinstance(response, ProduceResponse)
            theirs = response.responses[0].partition_responses[0]
            if theirs.error_code:
                refused.append((case, theirs.log_start_offset))

    async def work() -> None:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            for at, (case, start) in enumerate(refused):
                broker.topics.create(f"topic-{at}", configs=settings_of(case))
                given = await answer(broker, peer, moved(case.request, f"topic-{at}", 0))
                assert given.error_code, case
                assert given.log_start_offset == start, case
            peer.close()

    run(work())
    assert {start for _, start in refused} == {-1, 0}


def test_a_response_of_an_unknown_partition_is_no_end_of_the_connection(folder: Path) -> None:
    case = next(each for each in cases("2.8.2") if each.name.startswith("unknown-partition"))

    async def work() -> None:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            for _ in range(2):
                assert await peer.exchange(case.request)
            peer.close()

    run(asyncio.wait_for(work(), 20))
