"""Followers while roles change, after our own bugs, and after unknown answers."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.log.made_sets import enriched_set
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic, delete_records
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import ErrorCode, OutOfDescriptorsError
from magicbyte.engine.log.append.rules import KEPT_SCRATCH
from magicbyte.engine.log.live.partition_log import Flush, PartitionLog
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.replication.fetcher import Answered, Append, FetchFrom, Truncate
from magicbyte.server.partitions.appends import NewSet
from magicbyte.server.partitions.partition import ServedPartition
from magicbyte.server.partitions.replica_fetchers import ReplicaFetchers
from magicbyte.server.partitions.writes import OPENED_BYTES
from magicbyte.server.stores.orders import MetadataUpdate
from server.broker.builders import made, produce, records
from server.broker.clusters import Members, cluster, make, replicated, until
from server.broker.serving import Peer

LEADER_ONLY = ProduceOptions(acks=1)
PATIENT_LEADERS = {
    "replica_fetch_wait_max_ms": "60000",
    "replica_lag_time_max_ms": "120000",
    "num_replica_fetchers": "1",
}


async def followed(members: Members, index: int = 0) -> tuple[ReplicaFetchers, ServedPartition]:
    """Return the fetchers of topic t's only follower, and its partition, once that is in sync."""
    await until(lambda: members.is_settled("t", index))
    follower = members.brokers[3 - members.leader("t", index).node_id]
    partition = members.replica(follower, "t", index)
    assert partition is not None
    return follower.replicas.replication.fetchers, partition


def refuse_once(patch: pytest.MonkeyPatch, code: int) -> list[FetchResponse]:
    """Put an error into the first partition of the next fetch response that has any; return what was changed."""
    real, changed = Connection.send, list[FetchResponse]()

    async def refusing(link: Connection, *given: Any, **named: Any) -> Message:
        answer = await real(link, *given, **named)
        if isinstance(answer, FetchResponse) and answer.responses and not changed:
            changed.append(answer)
            answer.responses[0].partitions[0].error_code = code
        return answer

    patch.setattr(Connection, "send", refusing)
    return changed


async def test_a_log_is_not_cut_by_what_the_leader_of_an_earlier_epoch_said(folder: Path) -> None:
    """The decision was made, and the lock awaited, when the controller appointed another leader."""

    async with replicated(folder, 2) as (members, client):
        await send(client, "t", 0, records(3))
        fetchers, partition = await followed(members)
        key = TopicPartition("t", 0)
        fetcher = fetchers._by_key[key]
        async with partition.lock:
            cutting = asyncio.create_task(fetcher._truncate_all([Truncate(key, 0)]))
            await asyncio.sleep(0)
            partition.follow(partition.leader_id, partition.leader_epoch + 1)
        await cutting
        assert partition.log.log_end_offset == 3
        await fetcher._truncate_all([Truncate(key, 1)])
        assert partition.log.log_end_offset == 1


async def test_a_log_that_could_not_be_cut_is_followed_again_with_what_is_to_be_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures, known = PartitionLog.truncate_to, list[int](), list[int]()

    def failing(log: PartitionLog, offset: int, monotonic_ms: int) -> None:
        if not failures:
            failures.append(offset)
            raise OutOfDescriptorsError("no descriptors")
        real(log, offset, monotonic_ms)

    async with replicated(folder, 2, replica_fetch_backoff_ms="10") as (members, client):
        await send(client, "t", 0, records(3))
        fetchers, partition = await followed(members)
        fetcher, key = fetchers._by_key[TopicPartition("t", 0)], TopicPartition("t", 0)
        follow = fetcher._fetcher.follow

        def following(*given: Any, known_epoch: int, **named: Any) -> list[Truncate]:
            known.append(known_epoch)
            return follow(*given, known_epoch=known_epoch, **named)

        monkeypatch.setattr(fetcher._fetcher, "follow", following)
        monkeypatch.setattr(PartitionLog, "truncate_to", failing)
        await fetcher._truncate_all([Truncate(key, 1, known_epoch=7)])
        assert key not in fetcher._fetcher.partitions
        await until(lambda: key in fetcher._fetcher.partitions)
        assert (failures, known) == ([1], [7])
        await send(client, "t", 0, records(1), LEADER_ONLY)
        await until(lambda: partition.log.log_end_offset == 4)


async def test_a_new_partition_does_not_wait_for_the_records_of_others(folder: Path) -> None:
    """A leader answers one fetch of a follower after the other, and waits for a minute where it has no records."""

    async with replicated(folder, 2, **PATIENT_LEADERS) as (members, client):
        fetchers, _ = await followed(members)
        fetcher = fetchers._by_key[TopicPartition("t", 0)]
        await until(lambda: fetcher._waits_for is not None)
        leader = members.leader("t").node_id
        await create_topic(client, NewTopic("u", -1, -1, assignments=[(leader, 3 - leader)]))
        await send(client, "u", 0, records(1))  # acknowledged by both


async def test_a_partition_that_is_refused_is_fetched_again_before_others_have_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2, partitions=2, **PATIENT_LEADERS) as (members, client):
        leader = members.leader("t", 0).node_id
        await create_topic(client, NewTopic("u", -1, -1, assignments=[(leader, 3 - leader)]))
        await followed(members)
        refused = refuse_once(monkeypatch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for _ in range(2):  # the first one ends the wait of a request from before
            await send(client, "t", 0, records(1))
        assert refused


async def test_a_bug_in_a_fetch_does_not_end_replication(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with replicated(folder, 2) as (members, client):
        _, partition = await followed(members)
        real, failures = Connection.send, list[RuntimeError]()

        async def failing(link: Connection, request: Message, *given: Any, **named: Any) -> Message:
            if isinstance(request, FetchRequest) and not failures:
                failures.append(RuntimeError("a bug"))
                raise failures[0]
            return await real(link, request, *given, **named)

        monkeypatch.setattr(Connection, "send", failing)
        await until(lambda: bool(failures))
        await send(client, "t", 0, records(1), LEADER_ONLY)
        await until(lambda: partition.log.log_end_offset == 1)


async def test_a_high_watermark_is_learned_even_if_the_response_that_had_it_was_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is followed in a new epoch when the response comes; the fetch session does not repeat it."""

    async with replicated(folder, 2) as (members, client):
        fetchers, partition = await followed(members)
        rules = fetchers._by_key[TopicPartition("t", 0)]._fetcher
        real, ignored = rules.fetched, list[Answered]()

        def of_an_earlier_epoch(asked: FetchFrom, answer: Answered, now_ms: int) -> Append | Truncate | None:
            if answer.high_watermark < 1 or ignored:
                return real(asked, answer, now_ms)
            ignored.append(answer)
            return None

        monkeypatch.setattr(rules, "fetched", of_an_earlier_epoch)
        await send(client, "t", 0, records(1))
        await until(lambda: bool(ignored) and partition.log.high_watermark == 1)


async def test_an_error_that_is_not_known_delays_only_the_partition_that_has_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2) as (members, client):
        fetchers, partition = await followed(members)
        fetcher = fetchers._by_key[TopicPartition("t", 0)]
        answers = refuse_once(monkeypatch, 9999)
        sessions = list[int]()
        reset = fetcher._session.reset
        monkeypatch.setattr(fetcher._session, "reset", lambda: (sessions.append(0), reset()))
        for _ in range(2):  # the first one may be the answer to a request from before
            end = partition.log.log_end_offset
            await send(client, "t", 0, records(1), LEADER_ONLY)
            await until(lambda end=end: partition.log.log_end_offset == end + 1)
        assert answers
        assert not sessions  # the connection and its fetch session continue


async def test_records_are_not_deleted_from_a_log_that_became_a_followers_meanwhile(folder: Path) -> None:
    async with replicated(folder, 2) as (members, client):
        await send(client, "t", 0, records(3))
        await followed(members)
        leader = members.leader("t")
        partition = leader.replicas.partitions["t", 0]
        async with partition.lock:
            deleting = asyncio.create_task(delete_records(client, "t", 0, 2))
            await asyncio.sleep(0.1)  # it waits for the lock
            partition.follow(3 - leader.node_id, partition.leader_epoch + 1)
        await asyncio.sleep(0.1)
        assert partition.log.log_start_offset == 0
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)


async def test_a_leader_epoch_begins_in_the_log_when_maintenance_does_not_change_it(folder: Path) -> None:
    """Both write the file of leader epochs: at the same time, one of them would not find its own new file."""

    async with cluster(folder, 1) as members, Client(members.bootstrap) as client:
        member = members.brokers[1]
        async with member.runtime.logs_lock:
            making = asyncio.create_task(make(members, client, 1))
            await until(lambda: members.replica(member, "t") is not None)
            partition = members.replica(member, "t")
            assert partition is not None
            await asyncio.sleep(0.1)
            assert partition.log.epochs.entries == []
        await making
        assert [each.epoch for each in partition.log.epochs.entries] == [0]


async def test_a_bug_in_an_append_delays_only_the_partition_that_has_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = PartitionLog.append, list[int]()

    def failing(log: PartitionLog, *given: Any) -> Any:
        if log is partitions[0].log and len(failures) < 3:
            failures.append(0)
            raise RuntimeError("a bug")
        return real(log, *given)

    async with replicated(folder, 2, partitions=3, num_replica_fetchers="1") as (members, client):
        partitions = [(await followed(members, index))[1] for index in range(3)]
        monkeypatch.setattr(PartitionLog, "append", failing)
        for index in range(3):
            await send(client, "t", index, records(1), LEADER_ONLY)
        await until(lambda: [each.log.log_end_offset for each in partitions] == [1, 1, 1])
        assert len(failures) == 3


async def test_a_follower_waits_for_the_memory_to_open_a_large_wrapper(folder: Path) -> None:
    """The header of an enriched wrapper has not its last offset."""
    row = Record(0, 0, TimestampType.CREATE_TIME, b"key", bytes(KEPT_SCRATCH))

    async with (
        cluster(folder, 2, queued_max_request_bytes=str(OPENED_BYTES)) as members,
        Client(members.bootstrap) as client,
    ):
        await make(members, client, 2, message_format_version="enriched")
        _, partition = await followed(members)
        led = members.replica(members.leader("t"), "t")
        assert led is not None
        memory = members.brokers[3 - members.leader("t").node_id].runtime.memory
        before = memory.peak
        async with memory.work(memory.limit):
            new = NewSet(led, memoryview(enriched_set(Codec.GZIP, [row])), None, dialect=Dialect.ENRICHED)
            await members.leader("t").appends.append(new)
            await until(lambda: bool(memory._work.turns))
            assert partition.log.log_end_offset == 0
        await until(lambda: partition.log.log_end_offset == 1)
        assert memory.peak >= before + OPENED_BYTES


async def test_a_topic_that_is_deleted_while_its_records_are_appended_is_refused_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2) as (members, _):
        await until(lambda: members.is_settled("t"))
        leader = members.leader("t")
        real = leader.appends.append_all

        async def deleting(sets: Any) -> Any:
            found = await real(sets)
            update = MetadataUpdate(leader.cluster_view.live, {}, ["t"])
            await leader.cluster_store.updated(update)
            return found

        monkeypatch.setattr(leader.appends, "append_all", deleting)
        peer = await Peer.of(leader)
        found = await produce(peer, "t", made(records(1), Format.V2), Format.V2)
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        peer.close()


async def test_a_follower_that_is_removed_while_its_fetch_is_read_is_refused_as_others_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2) as (members, client):
        await send(client, "t", 0, records(1))
        await followed(members)
        leader = members.leader("t")
        real, follower_id = leader.replicas.read, 3 - leader.node_id

        async def removing(partition: ServedPartition, *work: Any, **named: Any) -> Any:
            found = await real(partition, *work, **named)
            role = partition.led()
            role.renew(role.state, (leader.node_id,), role.version, 0)
            return found

        leader.replicas.partitions["t", 0]._recent.clear()  # it is looked up in a thread
        peer = await Peer.of(leader)
        monkeypatch.setattr(leader.replicas, "read", removing)
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(replica_id=follower_id, topics=[FetchTopic(topic="t", partitions=[asked])])
        found = (await peer.ask(request, 11, FetchResponse)).responses[0].partitions[0]
        assert found.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        peer.close()


async def test_with_group_commit_records_are_durable_before_they_are_acknowledged_by_a_fetch(folder: Path) -> None:
    async with replicated(folder, 2, log_flush_policy="group-commit", **PATIENT_LEADERS) as (members, client):
        _, partition = await followed(members)
        for _ in range(3):
            await send(client, "t", 0, records(1))
            assert (
                partition.log.recovery_point
                == partition.log.log_end_offset
                == members.leader("t").logs[TopicPartition("t", 0)].log_end_offset
            )


async def test_with_group_commit_a_log_is_durable_before_its_broker_leads(folder: Path) -> None:
    async with replicated(folder, 2, log_flush_policy="group-commit") as (members, client):
        await send(client, "t", 0, records(3))
        _, partition = await followed(members)
        before = members.leader("t").node_id
        partition.log.recovery_point = 0  # as if the sync of the last fetch was pending
        await members.kill(before)
        await until(lambda: partition.leader is not None)
        assert partition.log.recovery_point == partition.log.log_end_offset == 3


async def test_a_follower_whose_disk_fails_to_sync_acknowledges_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2, log_flush_policy="group-commit") as (members, client):
        _, partition = await followed(members)
        file, leader, real = partition.log.active.log, members.leader("t"), Flush.run

        def run(flush: Flush) -> None:
            if flush.file is file:
                raise OSError(errno.EIO, "injected")
            real(flush)

        monkeypatch.setattr(Flush, "run", run)
        await send(client, "t", 0, records(1), LEADER_ONLY)
        await until(lambda: partition.log.health.error is not None)
        led = members.replica(leader, "t")
        assert led is not None
        assert led.led().followers[3 - leader.node_id].log_end_offset == 0


async def test_with_group_commit_followers_get_records_that_the_leader_cannot_lose(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicated(folder, 2, log_flush_policy="group-commit") as (members, client):
        _, partition = await followed(members)
        file, real, may_sync = members.leader("t").logs[TopicPartition("t", 0)].active.log, Flush.run, threading.Event()

        def run(flush: Flush) -> None:
            assert flush.file is not file or may_sync.wait(10)
            real(flush)

        monkeypatch.setattr(Flush, "run", run)
        sending = asyncio.create_task(send(client, "t", 0, records(1)))
        await until(lambda: members.leader("t").logs[TopicPartition("t", 0)].log_end_offset == 1)
        await asyncio.sleep(0.1)
        assert partition.log.log_end_offset == 0
        may_sync.set()
        await sending
        assert partition.log.recovery_point == 1
