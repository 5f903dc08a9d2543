"""Several partitions in one produce request: the request, and the result of each."""

import asyncio
from typing import Any

import pytest

from access.client.broker import ScriptedBroker, cluster
from magicbyte.access.client import Client
from magicbyte.access.client.produce import Addressed, goes_with, send_together
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, ProtocolError
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

SETS = [Addressed("topic", 1, b"one"), Addressed("other", 0, [b"t", b"wo"]), Addressed("topic", 0, b"three")]


def together(broker: ScriptedBroker) -> Any:
    async def inside() -> Any:
        async with cluster(broker), Client(f"127.0.0.1:{broker.port}") as client:
            return await send_together(client, await client.leader("topic", 0), SETS, goes_with(2, Codec.LZ4))

    return asyncio.run(asyncio.wait_for(inside(), 60))


def answering(*topics: TopicProduceResponse) -> ScriptedBroker:
    broker = ScriptedBroker(versions={0: range(10)})
    broker.answers[0] = lambda request, version: ProduceResponse(responses=list(topics))
    return broker


def test_the_results_of_partitions_are_in_the_order_of_the_sets() -> None:
    refused = PartitionProduceResponse(index=0, error_code=6, base_offset=-1)
    broker = answering(
        TopicProduceResponse(
            name="topic", partition_responses=[refused, PartitionProduceResponse(index=1, base_offset=5)]
        ),
        TopicProduceResponse(name="other", partition_responses=[PartitionProduceResponse(index=0, base_offset=7)]),
    )
    first, second, third = together(broker)
    assert first == Produced(5, -1, -1)
    assert second.base_offset == 7
    assert isinstance(third, BrokerError)
    assert third.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (request,) = broker.asked(ProduceRequest)
    asked = {
        (topic.name, each.index): bytes(each.records) for topic in request.topic_data for each in topic.partition_data
    }
    assert asked == {("topic", 1): b"one", ("other", 0): b"two", ("topic", 0): b"three"}


def test_an_answer_about_other_partitions_is_an_error() -> None:
    broker = answering(TopicProduceResponse(name="topic", partition_responses=[PartitionProduceResponse(index=1)]))
    with pytest.raises(ProtocolError, match="partitions: expected the 3 of the request, found 1"):
        together(broker)


def test_sets_that_brokers_take_in_the_same_requests_go_with_each_other() -> None:
    assert goes_with(2, Codec.LZ4) == goes_with(2, Codec.GZIP) != goes_with(2, Codec.ZSTD)
    assert goes_with(1, Codec.NONE) != goes_with(0, Codec.NONE)
