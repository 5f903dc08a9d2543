"""Quotas of clients on a served broker: how long it says to wait, and does; what changes them, and with which codes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from builders import hurried
from engine.cluster.builders import CREDENTIAL
from magicbyte.access.client.connection import Connection
from magicbyte.access.security.quotas import QuotaType
from magicbyte.engine.cluster.changes import QuotasChanged, ScramCredentialChanged
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import BadVersionError, ErrorCode
from magicbyte.engine.ports import MetadataStore, Node, NodeChange, Watch
from magicbyte.engine.protocol.messages import alter_client_quotas as altering
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as scram
from magicbyte.engine.protocol.messages import create_partitions, create_topics, delete_topics
from magicbyte.engine.protocol.messages import describe_client_quotas as describing
from magicbyte.engine.protocol.messages.fetch import FetchRequest, FetchResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.encode import Format
from magicbyte.server.apis.admin_quotas import CLIENT_ID, IP, USER
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.settings.settings import LONG_MAX
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes
from magicbyte.testing.world import World
from server.broker.builders import asking, made, records
from server.broker.serving import Clock, OnClock, Peer

PLAIN: Final = {"listeners": "PLAINTEXT://127.0.0.1:0"}
PRODUCE, FETCH, TIME, MUTATION = (each.value for each in QuotaType)
RATE: Final = "connection_creation_rate"
Entity = dict[str, str | None]


@contextlib.asynccontextmanager
async def served(**settings: str) -> AsyncIterator[tuple[OnClock, Peer]]:
    """Yield a broker whose clock stands still, which has a topic t, and a connection to it."""
    given = PLAIN | {name.replace("_", "."): value for name, value in settings.items()}
    async with OnClock(given) as broker:
        peer = await Peer.of(broker.served)
        await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 8, MetadataResponse)
        yield broker, peer
        peer.close()


def change(entity: Entity, values: dict[str, float | None], *, only: bool = False) -> altering.AlterClientQuotasRequest:
    parts = [
        altering.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
    ]
    ops = [altering.OpData(key=key, value=value or 0, remove=value is None) for key, value in values.items()]
    entry = altering.AlterClientQuotasRequestEntryData(entity=parts, ops=ops)
    return altering.AlterClientQuotasRequest(entries=[entry], validate_only=only)


async def put(peer: Peer, entity: Entity, **values: float | None) -> ErrorCode:
    answer = await peer.ask(change(entity, values), 1, altering.AlterClientQuotasResponse)
    (entry,) = answer.entries
    return ErrorCode(entry.error_code)


@pytest.mark.parametrize("entity", [{USER: "a", CLIENT_ID: "b"}, {CLIENT_ID: "b", USER: None}])
async def test_the_parts_of_a_changed_entity_come_in_kafkas_order(entity: Entity) -> None:
    async with served() as (_, peer):
        answer = await peer.ask(change(entity, {PRODUCE: 1}), 1, altering.AlterClientQuotasResponse)
        assert [part.entity_type for part in answer.entries[0].entity] == [CLIENT_ID, USER]


async def told(
    peer: Peer, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[Any, dict[str, float]]:
    asked = [describing.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    request = describing.DescribeClientQuotasRequest(components=asked, strict=strict)
    answer = await peer.ask(request, 1, describing.DescribeClientQuotasResponse)
    if answer.error_code:
        assert answer.entries is None
        return {"error": {"code": answer.error_code}}
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {one.key: one.value for one in each.values}
        for each in answer.entries or ()
    }


def produced(size: int, acks: int = 1) -> ProduceRequest:
    data = made(records(1, size), Format.V2)
    part = PartitionProduceData(index=0, records=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[part])])


async def produce(peer: Peer, size: int) -> ProduceResponse:
    return await peer.ask(produced(size), 7, ProduceResponse)


# ---- how long clients are held back


async def test_produced_bytes_beyond_the_quota_are_taken_and_the_answer_says_how_long_to_wait() -> None:
    async with served() as (broker, peer):
        assert await put(peer, {CLIENT_ID: "test"}, **{PRODUCE: 1000}) == ErrorCode.NONE
        request = produced(15_000)
        size = request.size(7) + 10 + len("test")  # the header: key, version, number, client id
        first = await peer.ask(request, 7, ProduceResponse)
        assert first.throttle_time_ms == round((size / 10 - 1000) / 1000 * 10_000)
        assert first.responses[0].partition_responses[0].error_code == 0
        other = await Peer.of(broker.served)
        broker.clock.advance(84)
        assert (await produce(other, 15_000)).throttle_time_ms == round(2 * size - 10_084)
        other.close()


async def test_79_a_fetch_beyond_the_quota_gets_nothing_and_the_same_offset_later() -> None:
    async with served() as (broker, peer):
        await produce(peer, 600)
        await produce(peer, 600)
        await put(peer, {USER: None}, **{FETCH: 100})
        first = await peer.ask(asking("t", 0, max_bytes=1), 11, FetchResponse)
        assert first.throttle_time_ms == 0
        assert first.responses[0].partitions[0].records
        other = await Peer.of(broker.served)
        held = await other.ask(asking("t", 1), 11, FetchResponse)
        assert (held.error_code, held.responses, held.session_id) == (0, [], 0)
        assert held.throttle_time_ms > 0
        other.close()
        other = await Peer.of(broker.served)  # bytes that are not sent do not count
        assert (await other.ask(asking("t", 1), 11, FetchResponse)).throttle_time_ms == held.throttle_time_ms
        other.close()
        broker.clock.advance(11_000)
        later = await Peer.of(broker.served)
        again = await later.ask(asking("t", 1), 11, FetchResponse)
        assert again.throttle_time_ms == 0
        assert again.responses[0].partitions[0].records
        later.close()


async def test_a_set_that_is_larger_than_what_may_be_had_at_once_is_refused_again_and_again() -> None:
    async with served() as (broker, peer):
        await produce(peer, 5000)
        await put(peer, {CLIENT_ID: "test"}, **{FETCH: 100})
        for _ in range(3):
            other = await Peer.of(broker.served)
            held = await other.ask(asking("t", 0), 11, FetchResponse)
            assert held.responses == []
            assert held.throttle_time_ms > 30_000
            other.close()
            broker.clock.advance(60_000)


async def test_a_session_continues_after_a_throttled_fetch() -> None:
    async with served() as (broker, peer):
        await produce(peer, 600)
        begun = await peer.ask(asking("t", 0, session_epoch=0), 11, FetchResponse)
        await put(peer, {CLIENT_ID: "test"}, **{FETCH: 10})
        other = await Peer.of(broker.served)
        more = {"max_wait_ms": 0, "min_bytes": 1, "session_id": begun.session_id}
        held = await other.ask(FetchRequest(session_epoch=1, **more), 11, FetchResponse)
        assert (held.responses, held.session_id) == ([], begun.session_id)
        assert held.throttle_time_ms > 0
        other.close()
        assert len(broker.served.fetch_sessions) == 1
        later = await Peer.of(broker.served)
        held = await later.ask(asking("t", 0, session_epoch=0), 11, FetchResponse)
        assert held.session_id == 0
        assert len(broker.served.fetch_sessions) == 1
        later.close()
        await put(await Peer.of(broker.served), {CLIENT_ID: "test"}, **{FETCH: None})
        last = await Peer.of(broker.served)
        got = await last.ask(FetchRequest(session_epoch=2, **more), 11, FetchResponse)
        assert got.responses[0].partitions[0].records
        last.close()


async def test_followers_are_held_back_by_no_quota_of_clients() -> None:
    async with served() as (broker, peer):
        await produce(peer, 600)
        await put(peer, {USER: None}, **{FETCH: 1, TIME: 0})
        other = await Peer.of(broker.served)
        answer = await other.ask(asking("t", 0, replica_id=0), 11, FetchResponse)
        assert answer.throttle_time_ms == 0
        other.close()


async def test_80_time_of_requests_is_limited_for_a_second_at_most() -> None:
    async with served() as (broker, peer):
        await put(peer, {CLIENT_ID: "test"}, **{TIME: 1e-9})
        other = await Peer.of(broker.served)
        answer = await other.ask(MetadataRequest(topics=None), 8, MetadataResponse)
        assert answer.throttle_time_ms == 1000
        other.close()


def in_virtual_time(work: Callable[[World, Connection], Awaitable[None]], **settings: str) -> None:
    with World(1, settings={name.replace("_", "."): value for name, value in settings.items()}) as world:

        async def history() -> None:
            await world.broker(1).start()
            async with world.client(retry_ms=0) as client:
                await work(world, await client.any_connection())

        world.run(history())


async def quota_of(connection: Connection, **values: float) -> None:
    answer = await connection.send(change({USER: "ANONYMOUS"}, dict(values)), versions=range(2))
    assert isinstance(answer, altering.AlterClientQuotasResponse)
    assert {each.error_code for each in answer.entries} == {0}


async def until_leader(connection: Connection) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    while True:
        answer = await connection.send(asked)
        assert isinstance(answer, MetadataResponse)
        if not answer.topics[0].error_code:
            return
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(("version", "acks"), [(7, 1), (2, 1), (7, 0)])
def test_78_the_answer_comes_at_once_and_the_next_request_is_read_when_the_time_is_over(
    version: int, acks: int
) -> None:
    async def work(world: World, connection: Connection) -> None:
        await until_leader(connection)
        await quota_of(connection, **{PRODUCE: 1000})
        began = world.virtual_s
        versions = range(version, version + 1)
        wait_s = 20.0
        if acks:
            first = await connection.send(produced(30_000), versions=versions)
            assert isinstance(first, ProduceResponse)
            assert 20_000 <= first.throttle_time_ms < 20_200
            wait_s = first.throttle_time_ms / 1000
        else:
            await connection.send_unanswered(produced(30_000, acks=0), versions=versions)
        assert world.virtual_s - began < 1
        await connection.send(MetadataRequest(topics=[]))
        assert wait_s <= world.virtual_s - began < wait_s + 1

    in_virtual_time(work)


def test_a_release_before_2_0_holds_the_answer_back() -> None:
    async def work(world: World, connection: Connection) -> None:
        await until_leader(connection)
        began = world.virtual_s
        first = await connection.send(produced(15_000), versions=range(2, 3))
        assert isinstance(first, ProduceResponse)
        assert 5 < first.throttle_time_ms / 1000 <= world.virtual_s - began < 6
        await connection.send(MetadataRequest(topics=[]))
        assert world.virtual_s - began < 6

    in_virtual_time(work, as_version="1.1", quota_producer_default="1000")


def test_an_answer_that_is_held_back_holds_no_memory_of_its_request() -> None:
    async def work(world: World, connection: Connection) -> None:
        await until_leader(connection)
        memory, began = world.brokers[1].served.runtime.memory, world.virtual_s
        produce = asyncio.create_task(connection.send(produced(150_000), versions=range(2, 3)))
        while world.virtual_s - began < 4:
            await asyncio.sleep(0.5)
        assert not produce.done()
        assert memory.peak >= 150_000
        assert memory.used == 0
        await produce
        assert world.virtual_s - began > 5

    in_virtual_time(work, as_version="1.1", quota_producer_default="10000")


# ---- partitions that are made and deleted


def topics(*sizes: int, prefix: str = "new") -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(name=f"{prefix}-{number}", num_partitions=size, replication_factor=1)
            for number, size in enumerate(sizes)
        ],
        timeout_ms=10_000,
    )


async def test_81_topics_are_refused_while_partitions_are_owed_and_before_version_6_made_and_held_back() -> None:
    async with served() as (broker, peer):
        await put(peer, {USER: "ANONYMOUS"}, **{MUTATION: 1})
        broker.clock.advance(60_000)
        strict = await peer.ask(topics(11, 1, 1), 6, create_topics.CreateTopicsResponse)
        assert [each.error_code for each in strict.topics] == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert strict.throttle_time_ms == 1000
        broker.clock.advance(60_000)
        other = await Peer.of(broker.served)
        checked = topics(20, prefix="checked")
        checked.validate_only = True
        answer = await other.ask(checked, 6, create_topics.CreateTopicsResponse)
        assert ([each.error_code for each in answer.topics], answer.throttle_time_ms) == ([0], 0)
        lenient = await other.ask(topics(11, 1, 1, prefix="more"), 5, create_topics.CreateTopicsResponse)
        assert [each.error_code for each in lenient.topics] == [0, 0, 0]
        assert lenient.throttle_time_ms == 2000
        other.close()


async def test_deletions_and_new_partitions_are_counted_too_and_what_is_refused_otherwise_is_not() -> None:
    async with served() as (broker, peer):
        made = await peer.ask(topics(20, 1, 1), 6, create_topics.CreateTopicsResponse)
        assert [each.error_code for each in made.topics] == [0, 0, 0]
        await put(peer, {USER: "ANONYMOUS"}, **{MUTATION: 1})
        again = await peer.ask(topics(20), 6, create_topics.CreateTopicsResponse)
        assert [each.error_code for each in again.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert again.throttle_time_ms == 0
        grown = create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="new-1", count=16, assignments=None)],
            timeout_ms=10_000,
        )
        answer = await peer.ask(grown, 3, create_partitions.CreatePartitionsResponse)
        assert ([each.error_code for each in answer.results], answer.throttle_time_ms) == ([0], 0)
        gone = delete_topics.DeleteTopicsRequest(topic_names=["new-0", "new-2"], timeout_ms=10_000)
        refused = await peer.ask(gone, 5, delete_topics.DeleteTopicsResponse)
        assert [each.error_code for each in refused.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 2
        assert refused.throttle_time_ms == 4000  # 15 were made, of 11 at most
        other = await Peer.of(broker.served)
        done = await other.ask(gone, 4, delete_topics.DeleteTopicsResponse)
        assert [each.error_code for each in done.responses] == [0, 0]
        assert done.throttle_time_ms == 25_000
        other.close()


async def test_topics_that_are_created_by_a_metadata_request_throttle_its_client() -> None:
    async with served() as (_, peer):
        await put(peer, {CLIENT_ID: "test"}, **{MUTATION: 0.1})
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"asked-{number}") for number in range(3)])
        answer = await peer.ask(asked, 8, MetadataResponse)
        assert {each.error_code for each in answer.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
        assert answer.throttle_time_ms == 19_000  # 1.9 of 1.1 are owed


# ---- rates of connections


async def test_82_connections_beyond_the_rate_of_an_address_are_closed_unread_after_a_time() -> None:
    async with served() as (broker, peer):
        await put(peer, {IP: "127.0.0.1"}, **{RATE: 1})
        broker.clock.advance(60_000)
        many = [await Peer.of(broker.served) for _ in range(15)]
        asked = MetadataRequest(topics=[])
        for each in many[:10]:
            await each.ask(asked, 8, MetadataResponse)
        for each in many[10:]:
            assert await hurried(each.stream.read(1), 3) == b""
        assert await put(peer, {IP: "127.0.0.1"}, **{RATE: None}) == ErrorCode.NONE
        more = await Peer.of(broker.served)
        await more.ask(asked, 8, MetadataResponse)
        for each in (*many, more):
            each.close()


async def test_connections_beyond_the_rate_of_a_listener_wait() -> None:
    settings = {"listener.name.plaintext.max.connection.creation.rate": "1", "quota.window.num": "11"}
    async with served(**settings) as (broker, peer):
        loop = asyncio.get_running_loop()
        began = loop.time()
        many = [peer, *[await Peer.of(broker.served) for _ in range(10)]]
        for each in many:
            await each.ask(MetadataRequest(topics=[]), 8, MetadataResponse)
        assert loop.time() - began > 0.9  # a wait, which is no measure of speed: less would be none
        for each in many[1:]:
            each.close()


# ---- what changes quotas, and tells them


async def test_quotas_are_listed_as_filtered() -> None:
    async with served() as (_, peer):
        entities: list[Entity] = [
            {USER: "a b"}, {USER: None}, {USER: "a b", CLIENT_ID: "c/d"}, {USER: None, CLIENT_ID: None},
            {CLIENT_ID: "c/d"}, {CLIENT_ID: None}, {IP: "10.0.0.1"}, {IP: None},
        ]  # fmt: skip
        for number, entity in enumerate(entities):
            assert await put(peer, entity, **{RATE if IP in entity else PRODUCE: number + 1}) == ErrorCode.NONE
        rows = {
            tuple(entity.items()): {RATE if IP in entity else PRODUCE: number + 1.0}
            for number, entity in enumerate(entities)
        }

        def some(*numbers: int) -> dict[Any, dict[str, float]]:
            return {tuple(entities[number].items()): rows[tuple(entities[number].items())] for number in numbers}

        assert await told(peer) == rows
        assert await told(peer, strict=True) == {}
        assert await told(peer, (USER, 0, "a b")) == some(0, 2)
        assert await told(peer, (USER, 0, "a b"), strict=True) == some(0)
        assert await told(peer, (USER, 1, None), strict=True) == some(1)
        assert await told(peer, (USER, 2, None), strict=True) == some(0, 1)
        assert await told(peer, (USER, 2, None), (CLIENT_ID, 2, None)) == some(2, 3)
        assert await told(peer, (CLIENT_ID, 0, "c/d")) == some(2, 4)
        assert await told(peer, (CLIENT_ID, 1, "ignored")) == some(3, 5)
        assert await told(peer, (IP, 0, "10.0.0.1")) == some(6)
        assert await told(peer, (IP, 1, None)) == some(7)
        assert await told(peer, (IP, 2, None), strict=True) == some(6, 7)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("group", 0, "g")], ErrorCode.UNSUPPORTED_VERSION),
        ([("", 0, "g")], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "a"), (USER, 1, None)], ErrorCode.INVALID_REQUEST),
        ([(IP, 0, "10.0.0.1"), (USER, 1, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.UNKNOWN_SERVER_ERROR),
        ([(USER, 0, None)], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_filter_that_is_none_is_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    async with served() as (_, peer):
        assert await told(peer, *components) == {"error": {"code": code}}


BAD: Final[list[tuple[Entity, dict[str, float]]]] = [
    ({}, {PRODUCE: 1}),
    ({USER: ""}, {PRODUCE: 1}),
    ({"group": "g"}, {PRODUCE: 1}),
    ({IP: "10.0.0.1", USER: "a"}, {RATE: 1}),
    ({IP: "no.such.host.example"}, {RATE: 1}),
    ({IP: "::1"}, {RATE: 1}),
    ({USER: "a"}, {"foo": 1}),
    ({USER: "a"}, {RATE: 1}),
    ({IP: "10.0.0.1"}, {PRODUCE: 1}),
    ({USER: "a"}, {PRODUCE: 10.5}),
    ({USER: "a"}, {PRODUCE: -1}),
    ({USER: "a"}, {PRODUCE: 1e30}),
    ({IP: "10.0.0.1"}, {RATE: 1e10}),
]


@pytest.mark.parametrize(("entity", "values"), BAD)
async def test_75_a_change_that_is_none_is_refused_and_others_are_made(
    entity: Entity, values: dict[str, float]
) -> None:
    async with served() as (_, peer):
        both = change({USER: "good"}, {PRODUCE: 7})
        both.entries += change(entity, dict(values)).entries
        answer = await peer.ask(both, 1, altering.AlterClientQuotasResponse)
        assert [each.error_code for each in answer.entries] == [0, ErrorCode.INVALID_REQUEST]
        assert await told(peer) == {((USER, "good"),): {PRODUCE: 7}}


async def test_odd_changes_that_kafka_takes_are_taken() -> None:
    async with served() as (broker, peer):
        assert await put(peer, {USER: "a"}, **{"SCRAM-SHA-256": 1}) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await put(peer, {USER: "a"}, **{PRODUCE: float("nan"), TIME: -5, MUTATION: 1e20}) == ErrorCode.NONE
        assert await told(peer) == {((USER, "a"),): {PRODUCE: 0, TIME: -5, MUTATION: 1e20}}
        assert await put(peer, {USER: "a"}, **{PRODUCE: None, TIME: None, MUTATION: None, "foo": None}) == 0
        assert await told(peer) == {}
        assert await put(peer, {USER: "a"}, **{PRODUCE: float(LONG_MAX)}) == ErrorCode.NONE
        stored = layout.load_config("a", broker.served.metadata.get("/config/users/a").data)
        assert stored == {PRODUCE: str(LONG_MAX)}
        assert await put(peer, {USER: "a"}, **{PRODUCE: None}) == ErrorCode.NONE
        twice = change({USER: "b"}, {PRODUCE: 1})
        twice.entries += change({USER: "b"}, {PRODUCE: 2}).entries
        answer = await peer.ask(twice, 1, altering.AlterClientQuotasResponse)
        assert [each.error_code for each in answer.entries] == [0]
        assert await told(peer) == {((USER, "b"),): {PRODUCE: 2}}
        checked = await peer.ask(change({USER: "c"}, {PRODUCE: 1}, only=True), 1, altering.AlterClientQuotasResponse)
        assert [each.error_code for each in checked.entries] == [0]
        assert await told(peer) == {((USER, "b"),): {PRODUCE: 2}}


async def test_quotas_are_where_kafka_has_them_with_the_secrets_of_users_and_hold_after_a_restart() -> None:
    async with served() as (broker, peer):
        metadata = broker.served.metadata
        metadata.create("/config/users/a%3Db", layout.dump_config({"SCRAM-SHA-256": "kept"}))
        await put(peer, {USER: "a=b"}, **{PRODUCE: 1024, TIME: 200})
        await put(peer, {USER: "a=b", CLIENT_ID: None}, **{FETCH: 5})
        await put(peer, {USER: "new*~", CLIENT_ID: "c"}, **{FETCH: 6})
        await put(peer, {IP: "10.0.0.1"}, **{RATE: 3})
        found = {
            path: layout.load_config(path, metadata.get(path).data)
            for path in (
                "/config/users/a%3Db", "/config/users/a%3Db/clients/<default>", "/config/users/new%2A%7E/clients/c",
                "/config/ips/10.0.0.1",
            )
        }  # fmt: skip
        assert list(found.values()) == [
            {"SCRAM-SHA-256": "kept", PRODUCE: "1024", TIME: "200.0"}, {FETCH: "5"}, {FETCH: "6"}, {RATE: "3"},
        ]  # fmt: skip
        notes = [
            layout.load_config_change(path, metadata.get(path).data)
            for path in (f"{layout.CONFIG_CHANGES}/{each}" for each in metadata.children(layout.CONFIG_CHANGES))
        ]
        assert notes == [
            ("users", "a%3Db"), ("users", "a%3Db/clients/<default>"), ("users", "new%2A%7E/clients/c"),
            ("ips", "10.0.0.1"),
        ]  # fmt: skip
        metadata.set("/config/users/a%3Db", layout.dump_config({PRODUCE: "many", FETCH: "9"}))
        await broker.served.cluster_store.start()
        assert broker.served.runtime.quotas.connections.of_addresses == {"10.0.0.1": 3}
        metadata.set("/config/users/a%3Db", b"no json")
        await broker.served.cluster_store.reread([("users", "a%3Db")])
        assert len(await told(peer)) == 3  # the others


@pytest.mark.parametrize(
    "changes",
    [
        lambda store: node_changes(
            store, ClusterImage(), [QuotasChanged(QuotaEntity("a"), {PRODUCE: 7.0})], WritingTerms(0, None)
        ),
        lambda store: node_changes(
            store, ClusterImage(), [ScramCredentialChanged("a", "SCRAM-SHA-512", CREDENTIAL)], WritingTerms(0, None)
        ),
    ],
    ids=["quotas", "credentials"],
)
def test_what_another_broker_changes_in_the_node_of_a_user_meanwhile_is_not_lost(
    changes: Callable[[MetadataStore], list[NodeChange]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = MemoryStore(Clock()), "/config/users/a"
    store.create(path, layout.dump_config({}), parents=True)
    store.create(layout.CONFIG_CHANGES, parents=True)
    found, look = layout.dump_config({"SCRAM-SHA-256": "kept"}), store.exists

    def exists(asked: str, watch: Watch | None = None) -> Node | None:
        node = look(asked, watch)
        if asked == path and node is not None and node.data != found:
            store.set(path, found)
        return node

    monkeypatch.setattr(store, "exists", exists)
    with pytest.raises(BadVersionError):
        store.transaction(changes(store))
    assert store.get(path).data == found


async def test_a_users_quota_and_credential_that_are_set_at_once_are_both_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (broker, peer):
        runtime, proceed, begun = broker.served.runtime, asyncio.Event(), asyncio.Event()
        run, other = runtime.writing.run, await Peer.of(broker.served)

        async def held(*given: Any) -> Any:
            monkeypatch.undo()
            begun.set()
            await proceed.wait()
            return await run(*given)

        monkeypatch.setattr(runtime.writing, "run", held)
        row = scram.ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
        asked = scram.AlterUserScramCredentialsRequest(upsertions=[row])
        credential = asyncio.ensure_future(peer.ask(asked, 0, scram.AlterUserScramCredentialsResponse))
        await begun.wait()
        quota = asyncio.ensure_future(put(other, {USER: "a"}, **{PRODUCE: 7}))
        await asyncio.wait([quota], timeout=0.1)  # where it does not wait for the other, that is enough
        proceed.set()
        assert [each.error_code for each in (await credential).results] == [0]
        assert await quota == ErrorCode.NONE
        stored = layout.load_config("a", broker.served.metadata.get("/config/users/a").data)
        assert stored.keys() == {"SCRAM-SHA-256", PRODUCE}
        other.close()


async def test_of_two_looks_at_a_quota_the_later_one_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (broker, peer):
        runtime, metadata, proceed = broker.served.runtime, broker.served.metadata, asyncio.Event()
        store = broker.served.cluster_store
        await put(peer, {CLIENT_ID: "test"}, **{PRODUCE: 1000})

        async def late(look: Callable[..., Any], *given: Any) -> Any:
            found = look(*given)
            monkeypatch.undo()
            await proceed.wait()
            return found

        for first in (store.start(), store.reread([("clients", "test")])):
            proceed.clear()
            monkeypatch.setattr(runtime.reading, "run", late)
            earlier = asyncio.ensure_future(first)
            await asyncio.sleep(0)
            metadata.set("/config/clients/test", layout.dump_config({}))
            later = asyncio.ensure_future(store.reread([("clients", "test")]))
            await asyncio.wait([later], timeout=0.1)  # where it does not wait for the other, that is enough
            proceed.set()
            await asyncio.gather(earlier, later)
            assert not runtime.quotas.is_limiting
            metadata.set("/config/clients/test", layout.dump_config({PRODUCE: "1000"}))


def test_quotas_reach_all_brokers_of_a_cluster() -> None:
    with World(1) as world:

        async def history() -> None:
            for number in (1, 2):
                await world.broker(number).start()
            async with world.client(retry_ms=0) as client:
                await quota_of(await client.any_connection(), **{PRODUCE: 1000})
            while not all(world.brokers[number].served.runtime.quotas.is_limiting for number in (1, 2)):
                await asyncio.sleep(0.1)
            world.brokers[2].kill()
            await world.broker(2).start()
            assert world.brokers[2].served.runtime.quotas.is_limiting

        world.run(history())


async def test_numbers_of_clients_with_quotas_are_on_the_page_of_metrics() -> None:
    async with served(http_address="127.0.0.1:0") as (broker, peer):
        await put(peer, {CLIENT_ID: "test"}, **{PRODUCE: 1000})
        wait_ms = (await produce(peer, 15_000)).throttle_time_ms
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.served.http_port)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        assert f'kafka_server_produce_throttle_time{{client_id="test",user=""}} {wait_ms}' in page
        assert 'magicbyte_produce_quota{client_id="test",user=""} 1000' in page
