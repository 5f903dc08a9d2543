"""Several brokers as a cluster: leaders, followers, what they acknowledge, and what they survive."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import hurried
from interop import racing
from magicbyte.access.client import Client, admin
from magicbyte.access.client.admin import ConfigResource, alter_configs, delete_records, delete_topic, describe_cluster
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.cluster.changes import BrokerRegistered, BrokerUnregistered
from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import (
    ErrorCode,
    MetadataError,
    NetworkError,
    NodeExistsError,
    SessionExpiredError,
)
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.ports import CreateNode, MetadataStore, SessionEvent, SessionListener, SetNode, TopicPartition
from magicbyte.engine.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.releases import line_of, protocol_version
from magicbyte.engine.replication.state import PartitionOrder
from magicbyte.server.metadata.on_loop import LoopStore, OpenSession
from magicbyte.server.serving.threads import ended
from magicbyte.server.stores import znodes
from magicbyte.server.stores.znodes import cluster as cluster_of_membership
from magicbyte.server.stores.znodes import layout, member_store
from magicbyte.server.stores.zookeeper_membership import ZooKeeperMembership
from magicbyte.testing.tree import SimulatedSession
from server.broker.builders import commit, committed, records
from server.broker.clusters import PATIENCE_S, Members, cluster, make, replicas, replicated, until, values
from server.broker.serving import Peer


async def test_what_is_acknowledged_is_in_every_replica_byte_for_byte(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        for _ in range(5):
            await send(client, "t", 0, records(10))
            ends = [found.log.log_end_offset for found in replicas(members)]
            assert min(ends) == max(ends)
        found = members.contents("t")
        assert len(found) == 3
        assert len(set(found.values())) == 1
        await until(lambda: {each.log.high_watermark for each in replicas(members)} == {50})
        assert len(await values(client, "t")) == 50


async def test_a_killed_leader_is_succeeded_and_comes_back_as_a_follower(folder: Path) -> None:
    async with cluster(folder) as members:
        async with Client(members.bootstrap) as client:
            await make(members, client)
            await send(client, "t", 0, records(10))
            first = members.leader("t").node_id
            await members.kill(first)
            await send(client, "t", 0, records(10))
        second = members.leader("t").node_id
        assert second != first
        assert members.isr("t") == {1, 2, 3} - {first}
        await members.start(first)
        await until(lambda: members.isr("t") == {1, 2, 3})
        async with Client(members.bootstrap) as client:
            await send(client, "t", 0, records(10))
            assert len(await values(client, "t")) == 30
        assert len(set(members.contents("t").values())) == 1


async def test_a_returning_broker_serves_no_client_before_the_controller_knows_of_it(folder: Path) -> None:
    async with cluster(folder, 2) as members:
        earlier = members.sessions[2]
        await members.brokers.pop(2).abort()
        members.tree.cut(earlier)
        started = asyncio.create_task(members.start(2))
        await until(lambda: members.sessions[2] is not earlier)
        for _ in range(20):  # its session from before the crash continues: nothing else can happen
            await asyncio.sleep(0)
        assert not started.done()
        members.tree.expire_session(earlier)
        again = await started
        async with Client(f"127.0.0.1:{again.ports['PLAINTEXT']}") as client:
            assert len((await describe_cluster(client)).brokers) == 2


async def test_a_broker_that_the_controller_has_told_nothing_tells_no_client_that_there_are_no_brokers(
    folder: Path,
) -> None:
    async with cluster(folder, 1) as members:
        broker = members.brokers[1]
        this_broker = broker.cluster_view.live[1]
        broker.cluster_store.follow([BrokerUnregistered(1)])
        async with Client(members.bootstrap) as client:
            asked = asyncio.create_task(describe_cluster(client))
            await until(lambda: bool(broker.cluster_view._waiting))
            broker.cluster_store.follow([BrokerRegistered(this_broker)])
            assert len((await asked).brokers) == 1


async def test_a_broker_that_stops_hands_over_what_it_leads_first(folder: Path) -> None:
    async with replicated(folder, partitions=3) as (members, client):
        await send(client, "t", 0, records(10))
        first = members.leader("t").node_id
        leaders = {members.leader("t", index).node_id for index in range(3)}
        assert leaders == {1, 2, 3}
        await members.stop(first)
        await until(lambda: len(members.leaders("t")) == 1)  # the controller has changed the tree: the rest follows
        assert members.leader("t").node_id != first
        await send(client, "t", 0, records(10))
        assert len(await values(client, "t")) == 20


async def test_groups_move_with_their_partition_and_keep_what_they_committed(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(3))
        await commit_offsets(client, "group", {TopicPartition("t", 0): Committed(2)})
        for _ in range(2):
            topic = "__consumer_offsets"
            index = next(each for each in range(2) if any(contents(members, topic, each)))
            await members.kill(members.leader(topic, index).node_id)
            found = await committed_offsets(client, "group", None)
            assert found[TopicPartition("t", 0)].offset == 2
            await commit_offsets(client, "group", {TopicPartition("t", 0): Committed(2)})


def contents(members: Members, topic: str, index: int) -> list[bytes]:
    return list(members.contents(topic, index).values())


async def test_a_deleted_topic_is_gone_from_every_broker_and_its_name_is_free(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(3))
        await delete_topic(client, "t")
        assert members.brokers[1].topics.get("t") is None
        await until(lambda: members.sessions[1].exists("/brokers/topics/t") is None)
        assert not replicas(members)
        await make(members, client)
        await send(client, "t", 0, records(1))
        assert len(await values(client, "t")) == 1


async def test_deleted_records_are_gone_from_every_replica(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(10))
        assert await delete_records(client, "t", 0, 4) == 4
        assert {each.log.log_start_offset for each in replicas(members)} == {4}


async def test_a_session_that_expires_is_followed_by_another(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(1))
        leader = members.leader("t").node_id
        for number in (leader, members.brokers[leader].cluster_view.controller_id):
            members.tree.expire_session(members.sessions[number])
            await until(lambda: members.isr("t") == {1, 2, 3})
            await send(client, "t", 0, records(1))


async def test_a_coordinator_whose_session_has_ended_answers_nothing_until_it_is_ordered_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a controller it does not learn which offsets were committed elsewhere meanwhile."""
    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(1))
        await commit_offsets(client, "g", {TopicPartition("t", 0): Committed(6)})  # which makes the topic
        place = partition_for("g", 2)
        await until(lambda: members.isr(OFFSETS_TOPIC, place) == {1, 2, 3})
        coordinator = members.leader(OFFSETS_TOPIC, place)
        peer = await Peer.of(coordinator)
        await until_answered(peer, ErrorCode.NONE)
        assert await commit(peer, 7) == ErrorCode.NONE

        session = members.tree.session

        def refused(**_named: object) -> None:
            raise NetworkError("the tree is away")

        monkeypatch.setattr(members.tree, "session", refused)
        members.tree.expire_session(members.sessions[coordinator.node_id])
        await until_answered(peer, ErrorCode.NOT_COORDINATOR)
        assert coordinator in members.leaders(OFFSETS_TOPIC, place)  # it still takes itself for the leader
        assert await commit(peer, 8) == ErrorCode.NOT_COORDINATOR

        monkeypatch.setattr(members.tree, "session", session)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                again = await Peer.of(members.leader(OFFSETS_TOPIC, place))
                if (answer := await committed(again))[0] == ErrorCode.NONE:
                    break
                again.close()
                await asyncio.sleep(0.05)
        assert answer == (ErrorCode.NONE, [7])


async def until_answered(peer: Peer, code: ErrorCode) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await committed(peer))[0] != code:
            await asyncio.sleep(0.02)


async def test_a_renewal_that_ends_late_does_not_close_the_session_of_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session has expired while a thread works for it: a cancellation takes effect after that."""

    async with cluster(folder, 1) as members:
        real, broker, late = member_store.finalize, members.brokers[1], list[SimulatedSession]()

        async def finalize(store: LoopStore, number: int, level: int) -> None:
            if not late:
                late.append(members.sessions[number])
                members.tree.expire_session(late[0])
                await ended(asyncio.ensure_future(asyncio.sleep(0.1)))
                raise SessionExpiredError("/", "the session has ended")
            await real(store, number, level)

        monkeypatch.setattr(member_store, "finalize", finalize)
        members.tree.expire_session(members.sessions[1])
        await hurried(until(lambda: bool(late) and late[0] is not members.sessions[1]), 5)
        await until(lambda: broker.cluster_view.controller_id == 1)
        await asyncio.sleep(0.2)  # after the end of the late renewal
        assert not members.sessions[1].is_over
        async with Client(members.bootstrap) as client:
            await make(members, client, 1)


@pytest.mark.parametrize("expires", [False, True])
async def test_a_session_in_which_a_broker_cannot_continue_makes_way_for_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, expires: bool
) -> None:
    """It has registered the broker already, as the connection is lost, or expires before that."""

    async with cluster(folder, 1) as members:
        found, real, broker = list[SimulatedSession](), member_store.finalize, members.brokers[1]

        async def failing(store: LoopStore, number: int, level: int) -> None:
            session = members.sessions[number]
            if expires and session not in found:
                found.append(session)
                if len(found) == 1:
                    members.tree.expire_session(session)
            elif not expires and session.session_id == (await is_registered(store)) and not found:
                found.append(session)
                raise NetworkError("the connection is lost")
            await real(store, number, level)

        async def is_registered(store: LoopStore) -> int:
            node = await store.exists(layout.broker_path(1))
            return 0 if node is None else node.ephemeral_owner

        monkeypatch.setattr(member_store, "finalize", failing)
        assert isinstance(broker.membership, ZooKeeperMembership)
        first = members.sessions[1]
        members.tree.expire_session(first)
        await hurried(until(lambda: bool(found) and found[0] is not members.sessions[1]), 5)
        await until(lambda: broker.cluster_view.controller_id == 1)
        async with Client(members.bootstrap) as client:
            await make(members, client, 1)
            await send(client, "t", 0, records(1))
        assert await is_registered(broker.membership.store) == members.sessions[1].session_id
        assert found[0].is_over


async def test_a_broker_that_is_refused_in_every_new_session_fails_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost connections in between, however many, are no refusals."""
    called = 0

    async def refusing(_store: LoopStore, number: int, _level: int) -> None:
        nonlocal called
        called += 1
        if called <= 20:
            raise NetworkError("the connection is lost")
        raise NodeExistsError(layout.broker_path(number), "another broker has this number")

    async with cluster(folder, 1) as members:
        runtime = members.brokers[1].runtime
        monkeypatch.setattr(member_store, "finalize", refusing)
        members.tree.expire_session(members.sessions[1])
        await hurried(runtime.failed.wait(), 60)
        assert called == 25
        assert "another broker has this number" in str(runtime.failure)


@pytest.mark.parametrize("call", ["member_store.finalize", "cluster.register"])
async def test_a_session_that_expires_while_the_broker_joins_is_followed_by_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real, expired = operator.attrgetter(call)(znodes), list[SimulatedSession]()
    members = Members(folder)

    async def expires(*given: Any) -> Any:
        if not expired:
            expired.append(members.sessions[1])
            members.tree.expire_session(expired[0])
        return await real(*given)

    monkeypatch.setattr(f"magicbyte.server.stores.znodes.{call}", expires)

    broker = await members.start(1)
    try:
        assert isinstance(broker.membership, ZooKeeperMembership)
        node = await broker.membership.store.exists(layout.broker_path(1))
        assert node is not None
        assert node.ephemeral_owner == members.sessions[1].session_id != expired[0].session_id
        async with Client(members.bootstrap) as client:
            await make(members, client, 1)
    finally:
        await broker.stop()


async def test_a_late_notice_of_the_end_of_a_session_does_not_end_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members, opened, late = Members(folder), list[SimulatedSession](), list[SessionListener]()
    real, session_of = member_store.finalize, members.session_of

    def telling_late(broker_id: int) -> OpenSession:
        def session(*, listener: SessionListener) -> MetadataStore:
            def told(event: SessionEvent) -> None:
                if event is SessionEvent.EXPIRED and not late:
                    late.append(listener)
                else:
                    listener(event)

            store = session_of(broker_id)(listener=told)
            opened.append(members.sessions[broker_id])
            return store

        return session

    async def expires(*given: Any) -> None:
        if not late:
            members.tree.expire_session(opened[0])
        elif len(opened) == 2:
            late[0](SessionEvent.EXPIRED)
        await real(*given)

    monkeypatch.setattr(members, "session_of", telling_late)
    monkeypatch.setattr(member_store, "finalize", expires)

    broker = await members.start(1)
    try:
        async with Client(members.bootstrap) as client:
            await make(members, client, 1)
        assert [each.is_over for each in opened] == [True, False]
    finally:
        await broker.stop()


async def test_settings_that_change_while_a_broker_starts_are_applied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read its logs and their settings, and is not registered yet."""

    async with replicated(folder, 2) as (members, _):
        await members.stop(2)
        real = cluster_of_membership.wait_for_earlier_session

        async def changing(*given: Any) -> Any:
            monkeypatch.setattr(cluster_of_membership, "wait_for_earlier_session", real)
            session = members.sessions[1]
            session.set(layout.config_path("topics", "t"), layout.dump_config({"retention.ms": "12345"}))
            session.create(layout.CONFIG_CHANGE, layout.dump_config_change("topics", "t"), sequence=True)
            return await real(*given)

        monkeypatch.setattr(cluster_of_membership, "wait_for_earlier_session", changing)
        await members.start(2)
        await until(lambda: retention(members) == {12345})


async def test_settings_of_the_broker_that_cannot_be_read_refuse_the_start_and_later_leave_the_former_ones(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = layout.config_path("brokers", "1")

    async with cluster(folder, 1) as members:
        broker = members.brokers[1]
        session = members.tree.session()

        def put(data: bytes) -> None:
            if session.exists(path) is None:
                session.create(path, data)
            else:
                session.set(path, data)
            session.create(layout.CONFIG_CHANGE, layout.dump_config_change("brokers", "1"), sequence=True)

        put(layout.dump_config({"message.max.bytes": "77"}))
        await until(lambda: broker.config.message_max_bytes == 77)
        put(b"no JSON")
        await until(lambda: "settings of the broker cannot be applied" in caplog.text)
        assert broker.config.message_max_bytes == 77
        await members.stop(1)
        with pytest.raises(MetadataError, match="/config/brokers/1: expected JSON"):
            await members.start(1)
        put(layout.dump_config({"message.max.bytes": "78"}))
        assert (await members.start(1)).config.message_max_bytes == 78


async def test_an_earlier_session_has_as_long_as_its_timeout_to_expire(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[int]()

    async def wait(store: LoopStore, broker_id: int, patience_ms: int) -> Any:
        waited.append(patience_ms)
        return await store.exists(layout.broker_path(broker_id))

    monkeypatch.setattr(cluster_of_membership, "wait_for_earlier_session", wait)

    async with cluster(folder, 1, zookeeper_session_timeout_ms="90000"):
        assert waited
        assert min(waited) > 90000


async def test_a_controller_of_an_earlier_epoch_is_refused(folder: Path) -> None:
    async with replicated(folder, 1) as (members, client):
        stale = UpdateMetadataRequest(controller_id=7, controller_epoch=0, broker_epoch=-1)
        answer = await client.ask_any(stale, UpdateMetadataResponse)
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert members.brokers[1].cluster_view.broker_ids() == [1]


async def test_a_request_that_waits_while_the_broker_registers_again_is_refused(folder: Path) -> None:
    async with cluster(folder, 1) as members, Client(members.bootstrap) as client:
        await client.topics()
        broker = members.brokers[1]
        assert isinstance(broker.membership, ZooKeeperMembership)
        before, turn = broker.replicas.controller, broker.replicas.turn
        async with turn:
            epoch = broker.membership.broker_epoch
            request = UpdateMetadataRequest(controller_id=7, controller_epoch=50, broker_epoch=epoch)
            asking = asyncio.create_task(client.ask_any(request, UpdateMetadataResponse))
            await until(lambda: "waiters:1" in repr(turn))
            broker.membership.broker_epoch += 1
        assert (await asking).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert broker.replicas.controller == before


async def test_a_connection_that_the_controller_has_given_up_is_closed(folder: Path) -> None:
    async def update(connection: Connection, epoch: int) -> None:
        request = UpdateMetadataRequest(controller_id=7, controller_epoch=epoch, broker_epoch=-1)
        answer = await connection.send(request)
        assert isinstance(answer, UpdateMetadataResponse)
        assert answer.error_code == ErrorCode.NONE

    async with cluster(folder, 1) as members:
        port = members.brokers[1].ports["PLAINTEXT"]
        first, second, third = [await Connection.open("127.0.0.1", port, client_id="7") for _ in range(3)]
        await update(first, 50)
        await update(third, 50)
        with pytest.raises(NetworkError):  # read late: older than the one before
            await update(second, 50)
        await update(first, 51)  # of another controller
        await update(third, 51)
        with pytest.raises(NetworkError):
            await update(first, 51)
        again = await Connection.open("127.0.0.1", port, client_id="7")  # as the controller does if it was its own
        await update(again, 51)
        for each in (first, second, third, again):
            await each.aclose()


async def test_topics_are_made_by_the_controller_alone(folder: Path) -> None:
    async with cluster(folder) as members:
        controller = members.brokers[1].cluster_view.controller_id
        other = members.brokers[3 if controller != 3 else 2]
        async with Client(f"127.0.0.1:{other.ports['PLAINTEXT']}") as client:
            await make(members, client)  # the client asks the controller
            assert members.leader("t")


@pytest.mark.parametrize("protocol", ["2.8", "2.6", "0.11.0"])
async def test_a_leader_that_comes_back_loses_what_its_successor_does_not_have(folder: Path, protocol: str) -> None:
    """After an unclean election both logs have records of their own at the same offsets (KIP-101, KIP-279)."""

    settings = {"inter_broker_protocol_version": protocol, "unclean_leader_election_enable": "true"}
    async with cluster(folder, 3, **settings) as members:
        async with Client(members.bootstrap) as client:
            await make(members, client)
            await send(client, "t", 0, records(3))
        lone = members.leader("t").node_id
        others = {1, 2, 3} - {lone}
        for number in others:
            await members.kill(number)
        await until(lambda: members.isr("t") == {lone})
        async with Client(members.bootstrap) as client:
            await send(client, "t", 0, records(5))
        await members.kill(lone)
        for number in others:
            await members.start(number)
        await until(lambda: len(members.leaders("t")) == 1)
        async with Client(members.bootstrap) as client:
            await send(client, "t", 0, [Record(0, 1, 0, b"k", b"other")] * 2)
            await members.start(lone)
            await until(lambda: members.isr("t") == {1, 2, 3})
            assert len(await values(client, "t")) == 5
        assert len(set(members.contents("t").values())) == 1


PROTOCOLS = ("0.9.0", "0.9.0-1", "0.10.0", "0.10.2", "0.11.0", "1.1", "2.4", "2.8")
NEEDED = {"0": (0,), "1": (0, 10), "2": (0, 11)}
"""By stored format: the first protocol version that has it."""


@pytest.mark.parametrize(
    ("protocol", "form"),
    [(each, form) for form in NEEDED for each in PROTOCOLS if line_of(protocol_version(each)) >= NEEDED[form]],
)
async def test_replicas_are_equal_under_every_protocol_version(folder: Path, protocol: str, form: str) -> None:
    """Followers store what their leader has, where the version of their requests has its format."""

    settings = {"inter_broker_protocol_version": protocol, "log_message_format_version": form}
    async with replicated(folder, **settings) as (members, client):
        for codec in (Codec.NONE, Codec.GZIP):
            await send(client, "t", 0, records(5), ProduceOptions(codec=codec))
        found = members.contents("t")
        assert len(found) == 3
        assert len(set(found.values())) == 1
        assert len(await values(client, "t")) == 10


async def test_a_new_leader_does_not_say_less_than_its_predecessor_did(folder: Path) -> None:
    """Followers learn the high watermark with their next fetch: a new leader asks for patience (KIP-207)."""

    async with replicated(folder) as (members, client):
        await send(client, "t", 0, records(10))
        for _ in range(2):
            await members.kill(members.leader("t").node_id)
            assert len(await values(client, "t")) == 10


def retention(members: Members) -> set[int]:
    """Return the retention of topic t that is in force at the brokers."""
    return {each.topics.known("t").config.log.retention_ms for each in members.brokers.values()}


async def test_settings_that_one_broker_changes_hold_for_all_and_a_damaged_notice_hides_none(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await alter_configs(client, ConfigResource.TOPIC, "t", {"retention.ms": "12345"})
        await until(lambda: retention(members) == {12345})
        damaged = CreateNode(layout.CONFIG_CHANGE, b"{", sequence=True)  # both are seen in one look
        sound = CreateNode(layout.CONFIG_CHANGE, layout.dump_config_change("topics", "t"), sequence=True)
        own = SetNode(layout.config_path("topics", "t"), layout.dump_config({"retention.ms": "54321"}))
        members.sessions[1].transaction([own, damaged, sound])
        await until(lambda: retention(members) == {54321})


async def test_partitions_that_a_topic_grows_by_are_led_and_followed(folder: Path) -> None:
    async with replicated(folder) as (members, client):
        await admin.create_partitions(client, "t", 3)
        for index in (1, 2):
            await send(client, "t", index, records(4))
            assert members.leader("t", index).node_id == (members.leader("t").node_id - 1 + index) % 3 + 1
            await until(lambda index=index: members.is_settled("t", index))
            assert len(await values(client, "t", index)) == 4


async def test_leaders_count_the_replicas_that_they_take_out_of_sync_and_into_it(folder: Path) -> None:
    async with replicated(folder, 2, replica_lag_time_max_ms="300") as (members, client):
        await until(lambda: members.is_settled("t"))
        leader = members.leader("t")
        follower = members.brokers[3 - leader.node_id]
        before = leader.runtime.metrics.isr_shrinks, leader.runtime.metrics.isr_expands
        fetchers, key = follower.replicas.replication.fetchers, TopicPartition("t", 0)
        await until(lambda: key in fetchers.partitions)
        fetchers.forget(key)
        await send(client, "t", 0, records(1), ProduceOptions(acks=1))  # which the follower does not have
        await until(lambda: len(members.isr("t")) == 1)
        partition = members.replica(follower, "t")
        assert partition is not None
        address = ("127.0.0.1", leader.ports["PLAINTEXT"])
        await fetchers.follow(partition, address)
        await until(lambda: len(members.isr("t")) == 2)
        await until(lambda: leader.runtime.metrics.isr_expands > before[1])
        assert leader.runtime.metrics.isr_shrinks > before[0]  # once more where the machine stood still meanwhile
        assert leader.runtime.metrics.failed_isr_updates == 0


async def test_a_broker_that_stops_follows_nothing_more_and_ends_each_fetcher_once(folder: Path) -> None:
    async with replicated(folder, 2) as (members, _):
        await until(lambda: len(members.isr("t")) == 2)
        leader = members.leader("t")
        follower = members.brokers[3 - leader.node_id]
        await until(lambda: members.replica(follower, "t") is not None)
        partition = members.replica(follower, "t")
        assert partition is not None
        replicas = follower.replicas
        fetchers, key = replicas.replication.fetchers, TopicPartition("t", 0)
        assert key in fetchers.partitions
        fetchers.forget(key)
        await asyncio.gather(fetchers.close_idle(), replicas.close(), fetchers.close_idle())
        state = members.leader("t").replicas.partition("t", 0).led().state
        later = replace(state, leader_epoch=state.leader_epoch + 1)
        order = PartitionOrder(key, later, 1, (leader.node_id, follower.node_id))
        address = ("127.0.0.1", leader.ports["PLAINTEXT"])
        codes = await replicas.take_orders([order], {leader.node_id: address})
        assert codes == {key: ErrorCode.NONE}
        assert not fetchers.partitions
        assert partition.leader_epoch == later.leader_epoch


async def test_topics_that_many_requests_create_and_delete_at_once_get_codes_that_clients_retry(folder: Path) -> None:
    """Kafka's codes (`tests/interop/test_admin_codes.py`): most producers fail with 36 of Metadata."""

    async with cluster(folder) as members:
        controller = next(each for each in members.brokers.values() if each.cluster_view.is_controller)

        async def all_made() -> None:
            await until(lambda: set(racing.NAMES) <= set(controller.topics.names()))

        ports = [each.ports["PLAINTEXT"] for each in members.brokers.values()]
        found = await racing.raced_codes(ports, all_made)
        assert all(found[api] <= codes for api, codes in racing.CODES.items()), found
