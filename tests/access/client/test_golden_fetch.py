"""Fetches that real brokers answered once, asked again: the same requests, and the sets that are in the answers."""

from collections.abc import Iterator
from typing import Any

import pytest

import golden_data
from access.client.broker import ScriptedBroker, cluster
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, fetch_sets, read_records
from magicbyte.engine.errors import BrokerError, ErrorCode, OffsetOutOfRangeError
from magicbyte.engine.protocol import APIS, read_request, read_response
from magicbyte.engine.records.decode import decode

FETCH = 1
Exchange = tuple[Any, int, bytes]  # a request, its version, the answer with its size

CASES = [case for broker in golden_data.wire_brokers() for case in golden_data.wire_cases(broker, "fetch-")]


def exchanges(case: golden_data.WireCase) -> Iterator[tuple[str, Exchange]]:
    for label, (request, response) in case.exchanges().items():
        asked = read_request(memoryview(request)[4:])
        if response:
            yield label, (asked.message, asked.header.request_api_version, response)


def options_of(request: Any, version: int) -> FetchOptions:
    return FetchOptions(
        max_bytes=request.topics[0].partitions[0].partition_max_bytes,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        committed=bool(request.isolation_level),
        versions=range(version, version + 1),
    )


def replay(broker: ScriptedBroker, answers: list[bytes]) -> None:
    """Let a broker give these answers, one after the other and then the last for ever."""
    waiting = list(answers)

    def answer(_: Any, version: int) -> Any:
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return read_response(found[4:], APIS[FETCH], version)[1]

    broker.requests.clear()
    broker.answers[FETCH] = answer


async def fetch(client: Client, exchange: Exchange) -> ClosedSets | ErrorCode:
    request, version, _ = exchange
    asked = request.topics[0]
    try:
        return await fetch_sets(client, asked.topic, 0, asked.partitions[0].fetch_offset, options_of(request, version))
    except (BrokerError, OffsetOutOfRangeError) as error:
        return error.code


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_fetch_that_a_broker_answered_is_asked_and_understood(case: golden_data.WireCase) -> None:
    all_of_it = dict(exchanges(case))
    topic = next(iter(all_of_it.values()))[0].topics[0].topic
    broker = ScriptedBroker(versions={FETCH: range(13)}, topic=topic)
    async with cluster(broker, retry_ms=0) as client:
        for label, (request, version, answer) in all_of_it.items():
            replay(broker, [answer, all_of_it[f".v{version}-start"][2]])
            said = case.info["requests"][label.removeprefix(".")]
            found = await fetch(client, (request, version, answer))
            if isinstance(found, ErrorCode):  # of this answer, or of the second one where this holds a cut set
                assert found in (said["errorCode"], case.info["requests"][f"v{version}-start"]["errorCode"])
                continue
            assert not said["errorCode"]
            asked = broker.asked(type(request))
            asked[0].max_bytes = request.max_bytes  # ours is that of the partition
            assert asked[0] == request, label
            assert found.high_watermark == said["highWatermark"]
            if len(asked) == 1:  # else the set was larger than what was asked for first
                place, size = said["recordSetPosition"], said["recordSetSize"]
                assert bytes(found.data) in answer[place : place + size]
            records = [record for columns in decode(found.data) for record in columns]
            if records:
                assert records[-1].offset < found.next_offset


async def test_a_reader_of_committed_records_is_given_what_kafkas_own_consumer_was() -> None:
    wire = next(each for each in CASES if each.id == "3.9.1/fetch-txn")
    request, version, answer = dict(exchanges(wire))[".v11-committed"]

    broker = ScriptedBroker(topic=request.topics[0].topic)
    replay(broker, [answer])
    async with cluster(broker) as client:
        options = options_of(request, version)
        found = [
            record.offset
            async for columns in read_records(client, request.topics[0].topic, 0, 0, 13, options)
            for record in columns
        ]
    assert found == [0, 1, 2, 3, 4, 5, 6]  # 7 to 12 belong to a transaction that is aborted later
