"""Produce requests and answers as they are written and read without an object for each partition: the same bytes."""

import random

import pytest

from magicbyte.access.client.produce import Addressed
from magicbyte.access.client.produce_frames import Produced, SetsRequest, SetsResponse
from magicbyte.engine.errors import ProtocolError
from magicbyte.engine.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(13)
LONG = random.Random(3).randbytes(70_000)
SETS = [
    Addressed("topic", 1, [b"head", LONG]),
    Addressed("other", 0, [memoryview(LONG)[:61], memoryview(LONG)[61:17_000]]),
    Addressed("topic", 0, LONG),
    Addressed("topic", 7, [LONG, b"", b"tail"]),
    Addressed("empty", 2, b""),
]
PLAIN = [
    TopicProduceResponse(
        name=name,
        partition_responses=[
            PartitionProduceResponse(index=each, base_offset=1 << 40, log_append_time_ms=each, log_start_offset=2)
            for each in (0, 300, 7)
        ],
    )
    for name in ("topic", "other")
]
REFUSED = PartitionProduceResponse(index=1, error_code=6, base_offset=-1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_that_of_the_generated_class(version: int) -> None:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, partition, data in SETS:
        topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=data))
    generated = ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[TopicProduceData(name=each, partition_data=topics[each]) for each in topics],
    )
    assert SetsRequest(-1, 9000, SETS).encode(version) == generated.encode(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_without_errors_is_read_as_the_generated_class_reads_it(version: int) -> None:
    data = ProduceResponse(responses=PLAIN, throttle_time_ms=5 * (version > 0)).encode(version)
    generated = ProduceResponse.read(data, version)
    answers = SetsResponse.read(data, version).answers
    assert list(answers) == [(topic, each) for topic in ("topic", "other") for each in (0, 300, 7)]
    for topic in generated.responses:
        for each in topic.partition_responses:
            found = answers[topic.name, each.index]
            assert isinstance(found, Produced) == (version >= 5)
            assert found.base_offset == each.base_offset
            assert found.log_append_time_ms == each.log_append_time_ms
            assert found.log_start_offset == each.log_start_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_with_more_to_tell_is_read_by_the_generated_class(version: int) -> None:
    told = [REFUSED]
    if version >= 8:
        errors = [BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="late")]
        told.append(PartitionProduceResponse(index=2, base_offset=0, record_errors=errors))
        told.append(PartitionProduceResponse(index=3, base_offset=0, error_message="odd"))
    if version >= 10:
        told.append(PartitionProduceResponse(index=4, base_offset=0, current_leader=LeaderIdAndEpoch(leader_id=2)))
    for each in told:
        topic = TopicProduceResponse(name="topic", partition_responses=[*PLAIN[0].partition_responses, each])
        data = ProduceResponse(responses=[PLAIN[1], topic]).encode(version)
        (generated,) = [
            answer
            for found in ProduceResponse.read(data, version).responses
            for answer in found.partition_responses
            if answer.index == each.index and found.name == "topic" and answer.index in (1, 2, 3, 4)
        ]
        assert SetsResponse.read(data, version).answers["topic", each.index] == generated


@pytest.mark.parametrize("version", range(9, 13))
def test_tags_that_are_not_known_do_not_matter(version: int) -> None:
    tag = ((9, b"x"),)
    topic = TopicProduceResponse(name="topic", partition_responses=[REFUSED], unknown_tags=tag)
    plain = TopicProduceResponse(name="plain", partition_responses=PLAIN[0].partition_responses, unknown_tags=tag)
    whole = ProduceResponse(responses=PLAIN, unknown_tags=tag)
    for each in (ProduceResponse(responses=[topic]), ProduceResponse(responses=[plain]), whole):
        found = SetsResponse.read(each.encode(version), version).answers
        assert len(found) == sum(len(told.partition_responses) for told in each.responses)
    if version >= 10:
        moved = ProduceResponse(responses=PLAIN, node_endpoints=[NodeEndpoint(node_id=1, host="h", port=1)])
        assert len(SetsResponse.read(moved.encode(version), version).answers) == 6


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12])
def test_bytes_that_are_no_answer_are_an_error(version: int) -> None:
    data = ProduceResponse(responses=PLAIN).encode(version)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            SetsResponse.read(data[:end], version)
    with pytest.raises(ProtocolError):
        SetsResponse.read(data + b"\0", version)
