"""What one request may cost: bytes, objects, and the time of others. Nothing here measures time."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import run
from magicbyte.access.net.server import SMALL_FRAME
from magicbyte.engine.coordination import parts
from magicbyte.engine.errors import TooManyElementsError
from magicbyte.engine.log.live import lookups
from magicbyte.engine.protocol import APIS, Message, write_request
from magicbyte.engine.protocol.message import Allowance, Writer
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from magicbyte.engine.protocol.messages.request_header import RequestHeader
from magicbyte.server.apis import offsets
from magicbyte.server.broker.broker import Broker
from magicbyte.server.serving import dispatch, turns
from magicbyte.server.serving.dispatch import FEW_ELEMENTS
from magicbyte.server.settings.served import SERVED
from server.broker.asked_much import TAGS, Case, cases
from server.broker.serving import CLOSED, Peer, Running

CASES = list(cases())
NO_NEW_TOPICS = {"auto.create.topics.enable": "false"}


def framed(message: Message, version: int) -> bytes:
    return bytes(write_request(message, version, correlation_id=7, client_id="much"))


def test_every_api_that_is_served_is_in_the_sweep_and_has_a_bound() -> None:
    arrays = {case.key for case in CASES if case.path != (TAGS,)}
    assert {APIS[key].name for key in SERVED.keys() - arrays} == {
        "ControlledShutdown", "Heartbeat", "ApiVersions", "InitProducerId", "DescribeAcls", "DescribeCluster",
        "SaslHandshake", "SaslAuthenticate", "AddOffsetsToTxn", "EndTxn", "AllocateProducerIds",
        "RenewDelegationToken", "ExpireDelegationToken",
    }  # fmt: skip
    flexible = {key for key, served in SERVED.items() if served.versions[-1] in APIS[key].flexible_versions}
    assert {case.key for case in CASES if case.path == (TAGS,)} == flexible
    told = {key for key in SERVED if APIS[key].name in OF_THE_CONTROLLER}
    assert max(served.most_elements for key, served in SERVED.items() if key not in told) <= 50_000
    assert {(SERVED[key].most_elements, SERVED[key].most_bytes) for key in told} == {(500_000, 64 << 20)}
    assert [APIS[key].name for key, served in SERVED.items() if served.most_bytes is None] == ["Produce"]
    for key, served in SERVED.items():
        assert key in told or served.most_bytes is None or SMALL_FRAME <= served.most_bytes <= 16 << 20


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_count_beyond_the_bound_is_refused_before_an_element_is_read(case: Case) -> None:
    body = case.make(1001, 1).encode(case.version)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElementsError, match="up to 1000 elements"):
            APIS[case.key].request.read_within(body, 0, case.version, Allowance(1000))
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


def test_ten_thousand_topics_or_partitions_or_groups_are_within_all_bounds() -> None:
    named = 0
    for case in CASES:
        served = SERVED[case.key]
        if served.most_elements < 10_000 or case.path[-1] == TAGS:
            continue
        one, more = [len(framed(case.make(count, 249), case.version)) for count in (300, 400)]
        assert one + 97 * (more - one) <= (served.most_bytes or 100 << 20), str(case)
        named += 1
    assert named > 50


@pytest.mark.parametrize("key", sorted(SERVED))
async def test_a_frame_larger_than_its_api_may_send_is_refused_when_its_head_is_there(key: int, folder: Path) -> None:
    most = SERVED[key].most_bytes
    if most is None:
        return

    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        head = key.to_bytes(2, "big") + SERVED[key].versions[-1].to_bytes(2, "big")
        assert await peer.exchange((most + 1).to_bytes(4, "big") + head) == CLOSED
        assert broker.runtime.memory.peak == 0
        peer.close()


async def test_an_api_that_is_not_served_may_not_send_megabytes(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        assert await peer.exchange((1 << 20).to_bytes(4, "big") + b"\x00\x28\x00\x00") == CLOSED
        peer.close()


async def test_ten_million_tags_of_api_versions_are_not_read(folder: Path) -> None:
    message = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    body = message.encode(3)[:-1] + b"\xff\xff\xff\x04" + bytes(60_000)
    header = RequestHeader(request_api_key=18, request_api_version=3, client_id="x").encode(2)
    frame = header + body

    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        tracemalloc.start()
        try:
            assert await peer.exchange(len(frame).to_bytes(4, "big") + frame) == CLOSED
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
        finally:
            tracemalloc.stop()
        peer.close()


async def test_tags_of_a_header_are_read_up_to_forty_kilobytes_of_it(folder: Path) -> None:
    out = Writer()
    tags = tuple((at, b"") for at in range(500_000))
    RequestHeader(request_api_key=0, request_api_version=9, client_id="x", unknown_tags=tags).write(out, 2)
    frame = bytes(out)
    assert len(frame) > 1 << 20

    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await broker.runtime.load_numpy()
        tracemalloc.start()
        try:
            assert await peer.exchange(len(frame).to_bytes(4, "big") + frame) == CLOSED
            assert tracemalloc.get_traced_memory()[1] < len(frame) + (8 << 20)
        finally:
            tracemalloc.stop()
        peer.close()


# ---- other clients meanwhile


class Seen:
    """Whose threads read and write messages, and the steps of each slice of their work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slices = list[int]()
        self.written = set[str]()
        self.threads = set[str]()
        read, write = Message.__dict__["read_within"].__func__, dispatch.write_response

        def noted_read(cls: type[Message], buffer: Any, at: int, version: int, allowance: Allowance) -> Any:
            try:
                return read(cls, buffer, at, version, allowance)
            finally:
                if allowance.used <= allowance.limit:
                    self.threads.add(threading.current_thread().name.partition("_")[0])

        def noted_write(*arguments: Any, **named: Any) -> Any:
            self.written.add(threading.current_thread().name.partition("_")[0])
            self.threads.add(threading.current_thread().name.partition("_")[0])
            return write(*arguments, **named)

        monkeypatch.setattr(Message, "read_within", classmethod(noted_read))
        monkeypatch.setattr(dispatch, "write_response", noted_write)
        give = turns.Turns.give

        async def noted_slice(turn: turns.Turns) -> None:
            self.slices.append(turn.steps - (turn.next - turns.STEPS_AT_ONCE))
            await give(turn)

        monkeypatch.setattr(turns.Turns, "give", noted_slice)


SMALL_STEPS = 20
COUNT = 400


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of so few steps that hundreds of elements are what ten thousands are else."""
    monkeypatch.setattr(dispatch, "FEW_ELEMENTS", 100)
    monkeypatch.setattr(turns, "STEPS_AT_ONCE", SMALL_STEPS)
    monkeypatch.setattr(parts, "PART", SMALL_STEPS)
    monkeypatch.setattr(parts, "WHOLE", 100)


@pytest.mark.usefixtures("small_steps")
async def test_every_api_gives_the_loop_back_while_it_answers_much(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)

    async with Running(folder, NO_NEW_TOPICS) as broker:
        await broker.groups.ensure_topic()
        for case in CASES:
            if SERVED[case.key].most_elements < COUNT * 10 or case.path[-1] == TAGS:
                continue
            peer = await Peer.of(broker)
            seen.threads.clear()
            seen.slices.clear()
            async with asyncio.timeout(120):
                answer = await peer.exchange(framed(case.make(COUNT, 1), case.version))
            assert answer != CLOSED, str(case)
            assert seen.threads == {"messages"}, str(case)
            named = ".".join((APIS[case.key].name, *case.path))
            if named not in OF_ONE_THING and APIS[case.key].name not in OF_THE_CONTROLLER:
                assert sum(seen.slices) >= COUNT * 3 // 4, f"{case}: {sum(seen.slices)} steps"
                assert max(seen.slices) <= SMALL_STEPS * 2, f"{case}: {max(seen.slices)} steps at once"
            peer.close()
        assert broker.runtime.memory.used == 0


OF_ONE_THING = {  # nothing is done for each of these: they are looked at by a few loops over names, or in a thread
    "Produce.topic_data", "Fetch.topics", "Fetch.forgotten_topics_data", "Fetch.forgotten_topics_data.partitions",
    "SyncGroup.assignments", "CreateTopics.topics.assignments", "CreateTopics.topics.assignments.broker_ids",
    "CreateTopics.topics.configs", "DescribeConfigs.resources.configuration_keys", "AlterConfigs.resources.configs",
    "CreatePartitions.topics.assignments", "CreatePartitions.topics.assignments.broker_ids",
    "IncrementalAlterConfigs.resources.configs", "CreateAcls.creations", "DeleteAcls.filters",
    "AlterPartitionReassignments.topics.partitions.replicas", "AlterPartition.topics.partitions.new_isr",
    "AlterClientQuotas.entries.entity", "AlterClientQuotas.entries.ops",
    "ConsumerGroupHeartbeat.subscribed_topic_names", "ConsumerGroupHeartbeat.topic_partitions",
    "ConsumerGroupHeartbeat.topic_partitions.partitions", "ShareGroupHeartbeat.subscribed_topic_names",
    # of a member without an id, which is refused: test_long_share_requests.py has the others
    "ShareFetch.forgotten_topics_data", "ShareFetch.forgotten_topics_data.partitions", "ShareFetch.topics",
    "ShareFetch.topics.partitions", "ShareFetch.topics.partitions.acknowledgement_batches",
    "ShareFetch.topics.partitions.acknowledgement_batches.acknowledge_types", "ShareAcknowledge.topics",
    "ShareAcknowledge.topics.partitions", "ShareAcknowledge.topics.partitions.acknowledgement_batches",
    "ShareAcknowledge.topics.partitions.acknowledgement_batches.acknowledge_types",
    # of a group or a state that is refused: test_long_share_requests.py has the others
    "WriteShareGroupState.topics.partitions.state_batches", "DescribeShareGroupOffsets.groups.topics",
    "DescribeShareGroupOffsets.groups.topics.partitions", "AlterShareGroupOffsets.topics",
    "AlterShareGroupOffsets.topics.partitions", "DeleteShareGroupOffsets.topics",
    # of a group that is refused: tests/engine/groups/test_long_requests.py has the others
    "LeaveGroup.members", "OffsetDelete.topics", "OffsetDelete.topics.partitions",
}  # fmt: skip
OF_THE_CONTROLLER = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
"""A broker by itself has no controller, and refuses these at once."""


async def _ask(broker: Broker, message: Message, version: int, response: type[Any]) -> Any:
    peer = await Peer.of(broker)
    try:
        return await peer.ask(message, version, response)
    finally:
        peer.close()


def test_one_topic_described_thousands_of_times_is_described_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicbyte.server.stores import configs

    described: list[str] = []
    real = configs.describe_topic

    def noted(topic: Any, config: Any) -> Any:
        described.append(topic.name)
        return real(topic, config)

    monkeypatch.setattr(configs, "describe_topic", noted)
    one = DescribeConfigsResource(resource_type=2, resource_name="topic", configuration_keys=["retention.ms"])
    other = DescribeConfigsResource(resource_type=2, resource_name="topic", configuration_keys=["segment.bytes"])

    async def work() -> None:
        async with Running(folder) as broker:
            await broker.topics.create("topic")
            request = DescribeConfigsRequest(resources=[one] * 20_000 + [other])
            found = await _ask(broker, request, 4, DescribeConfigsResponse)
            assert [each.resource_name for each in found.results] == ["topic"]
            assert [each.name for each in found.results[0].configs] == ["retention.ms", "segment.bytes"]

    run(work())
    assert described == ["topic"]


async def test_settings_that_topics_have_alike_are_one_object_in_an_answer(folder: Path) -> None:
    asked = [
        DescribeConfigsResource(resource_type=2, resource_name=f"t{at}", configuration_keys=None) for at in range(9)
    ]

    from magicbyte.server.apis.admin_configs import describe_configs
    from magicbyte.server.serving.request import ClientConnection, Request

    async with Running(folder) as broker:
        for at in range(9):
            await broker.topics.create(f"t{at}", configs={"retention.ms": "5"} if at == 3 else None)
        connection = ClientConnection("", "", broker.config.listeners[0])
        found = await describe_configs(
            broker.parts,
            Request(DescribeConfigsRequest(resources=asked), 4, None, connection),
        )
        rows = {id(row) for each in found.results for row in each.configs}
        assert len(rows) == len(found.results[0].configs) + 1


async def test_what_is_asked_twice_is_looked_up_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Running(folder, NO_NEW_TOPICS) as broker:
        await broker.topics.create("topic", 2)
        await broker.groups.ensure_topic()
        searched: list[int] = []
        monkeypatch.setattr(
            offsets,
            "offset_for_timestamp",
            lambda log, at: searched.append(at) or lookups.offset_for_timestamp(log, at),
        )
        parts = [ListOffsetsPartition(partition_index=1, timestamp=5)] * 3000
        topics = [ListOffsetsTopic(name="topic", partitions=parts)]
        answer = await _ask(broker, ListOffsetsRequest(replica_id=-1, topics=topics), 5, ListOffsetsResponse)
        assert len(answer.topics[0].partitions) == 3000
        assert searched == [5]
        named = [MetadataRequestTopic(name="topic")] * 3000
        told = await _ask(broker, MetadataRequest(topics=named), 9, MetadataResponse)
        assert [each.name for each in told.topics] == ["topic"]
        keys = ["group"] * 3000 + ["other"]
        found = await _ask(broker, FindCoordinatorRequest(coordinator_keys=keys), 4, FindCoordinatorResponse)
        assert [each.key for each in found.coordinators] == ["group", "other"]
        same = [FetchPartition(partition=1, partition_max_bytes=1)] * 900
        asked = FetchRequest(topics=[FetchTopic(topic="topic", partitions=same)])
        fetched = await _ask(broker, asked, 11, FetchResponse)
        assert [len(each.partitions) for each in fetched.responses] == [1]


@pytest.mark.parametrize("count", [FEW_ELEMENTS // 2, 3 * FEW_ELEMENTS])
async def test_offsets_are_committed_and_told_alike_in_one_piece_and_in_many(count: int, folder: Path) -> None:
    def partitions(names: range) -> list[OffsetCommitRequestPartition]:
        return [OffsetCommitRequestPartition(partition_index=each % 7, committed_offset=each) for each in names]

    async with Running(folder, NO_NEW_TOPICS) as broker:
        for name in ("one", "two"):
            await broker.topics.create(name, 5)
        await broker.groups.ensure_topic()
        half = count // 2
        topics = [
            OffsetCommitRequestTopic(name="one", partitions=partitions(range(half))),
            OffsetCommitRequestTopic(name="two", partitions=partitions(range(half, count))),
        ]
        request = OffsetCommitRequest(group_id="group", topics=topics)
        done = await _ask(broker, request, 6, OffsetCommitResponse)
        assert [(each.name, len(each.partitions)) for each in done.topics] == [("one", half), ("two", count - half)]
        for topic in done.topics:
            for each in topic.partitions:
                assert each.error_code == (3 if each.partition_index >= 5 else 0)
        expected = {
            (name, index): max(each for each in which if each % 7 == index)
            for name, which in (("one", range(half)), ("two", range(half, count)))
            for index in range(5)
        }
        wanted = [OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(5)) * 3) for name in ("one", "two")]
        many = [OffsetFetchRequestTopic(name="none", partition_indexes=tuple(range(count)))]
        told = await _ask(broker, OffsetFetchRequest(group_id="group", topics=many + wanted), 7, OffsetFetchResponse)
        assert [each.name for each in told.topics] == ["none", "one", "two"]
        assert _offsets(told.topics[1:]) == expected
        asked = [OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in wanted]
        groups = [OffsetFetchRequestGroup(group_id=f"g{at}", topics=asked[:1]) for at in range(count // 20)]
        groups.append(OffsetFetchRequestGroup(group_id="group", topics=asked))
        of_many = await _ask(broker, OffsetFetchRequest(groups=groups), 8, OffsetFetchResponse)
        assert [each.group_id for each in of_many.groups] == [each.group_id for each in groups]
        assert _offsets(of_many.groups[-1].topics) == expected


def _offsets(topics: Any) -> dict[tuple[str, int], int]:
    return {(topic.name, each.partition_index): each.committed_offset for topic in topics for each in topic.partitions}


async def test_another_client_is_answered_while_a_large_request_waits_for_its_reading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, proceed = threading.Event(), threading.Event()
    real: Callable[..., Any] = Message.__dict__["read_within"].__func__

    def held(cls: type[Message], buffer: Any, at: int, version: int, allowance: Allowance) -> Any:
        if allowance.limit > FEW_ELEMENTS:
            reading.set()
            assert proceed.wait(120)
        return real(cls, buffer, at, version, allowance)

    monkeypatch.setattr(Message, "read_within", classmethod(held))
    names = [MetadataRequestTopic(name=f"t{at}") for at in range(5000)]

    async with Running(folder, NO_NEW_TOPICS) as broker:
        large = asyncio.ensure_future(_ask(broker, MetadataRequest(topics=names), 9, MetadataResponse))
        while not reading.is_set():
            await asyncio.sleep(0.001)
        assert broker.runtime.memory.used >= 5000 * dispatch.ELEMENT_BYTES
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert (await _ask(broker, asked, 3, ApiVersionsResponse)).error_code == 0
        proceed.set()
        assert len((await large).topics) == 5000
        assert broker.runtime.memory.used == 0
        assert broker.runtime.trimming.is_due


async def test_megabytes_of_members_are_written_in_a_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(4 << 20))
    request = JoinGroupRequest(
        group_id="group", session_timeout_ms=30_000, rebalance_timeout_ms=1000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip

    async with Running(folder, settings) as broker:
        await broker.groups.ensure_topic()
        joined = await _ask(broker, request, 3, JoinGroupResponse)
        assert [each.metadata for each in joined.members] == [bytes(4 << 20)]
        assert seen.written == {"messages"}
