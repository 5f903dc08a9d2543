"""Numbered checks of docs/evidence/checks.md: replication, and a migration between formats, in a cluster of brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic, delete_records
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import MAGIC
from magicbyte.engine.replication.state import PartitionOrder, PartitionState
from magicbyte.server.broker.broker import Broker
from server.broker.builders import records
from server.broker.clusters import Members, cluster, make, replicas, replicated, until, values


async def test_04_a_record_is_refused_if_too_few_replicas_would_have_it_and_stays_if_they_leave_later(
    folder: Path,
) -> None:
    lag = {"replica_lag_time_max_ms": "300"}

    async with cluster(folder, 2, **lag) as members, Client(members.bootstrap, retry_ms=0) as client:
        await make(members, client, 2, min_insync_replicas="2")
        await until(lambda: members.is_settled("t"))
        leader = members.leader("t")
        follower = members.brokers[3 - leader.node_id].replicas
        await until(lambda: TopicPartition("t", 0) in follower.replication.fetchers.partitions)
        follower.replication.fetchers.forget(TopicPartition("t", 0))
        for code in (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_ENOUGH_REPLICAS):
            with pytest.raises(BrokerError) as caught:
                await send(client, "t", 0, records(1))
            assert caught.value.code is code
            assert members.isr("t") == {leader.node_id}
            partition = members.replica(leader, "t")
            assert partition is not None
            assert partition.log.log_end_offset == 1


async def test_07_an_order_of_the_epoch_that_is_known_is_ignored(folder: Path) -> None:
    async with replicated(folder, 1) as (members, client):
        await send(client, "t", 0, records(3))
        taken = members.brokers[1].replicas
        again = PartitionOrder(TopicPartition("t", 0), PartitionState(2, 0, (2,), 1), 5, (1, 2))
        assert await taken.take_orders([again], {}) == {again.partition: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert members.leader("t").node_id == 1
        assert len(await values(client, "t")) == 3


async def test_09_a_partition_whose_replicas_in_sync_are_dead_has_no_leader(folder: Path) -> None:
    async with cluster(folder, 3) as members:
        async with Client(members.bootstrap) as client:
            await create_topic(client, NewTopic("t", -1, -1, assignments=[(1, 2)]))
            await until(lambda: len(members.leaders("t")) == 1)
            await send(client, "t", 0, records(3))
        await members.kill(2)
        await until(lambda: members.isr("t") == {1})
        await members.kill(1)
        await members.start(2)
        async with Client(members.bootstrap, retry_ms=0) as client:
            await until(lambda: members.replica(members.brokers[2], "t") is not None)
            with pytest.raises(BrokerError) as caught:
                await send(client, "t", 0, records(1))
            assert caught.value.code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await members.start(1)
        await until(lambda: bool(members.leaders("t")) and members.isr("t") == {1, 2})
        async with Client(members.bootstrap) as client:
            assert len(await values(client, "t")) == 3


async def test_11_a_follower_far_behind_begins_where_the_leaders_log_does_now(folder: Path) -> None:
    async with cluster(folder, 3, log_segment_bytes="2000") as members:
        async with Client(members.bootstrap) as client:
            await make(members, client, retention_ms="-1")
            await send(client, "t", 0, records(5))
            gone = next(each for each in members.brokers if each != members.leader("t").node_id)
            await members.kill(gone)
            for _ in range(4):
                await send(client, "t", 0, records(10))
            await delete_records(client, "t", 0, 30)
            log = members.replica(members.leader("t"), "t").log
            log.delete_old_segments(now_of(members))
            assert log.segments[0].base_offset > 5
        await members.start(gone)
        await until(lambda: members.isr("t") == {1, 2, 3})
        follower = members.replica(members.brokers[gone], "t").log
        assert (follower.log_start_offset, follower.log_end_offset) == (30, 45)


def now_of(members: Members) -> Moment:
    return Moment.of(next(iter(members.brokers.values())).clock)


async def test_15_records_that_come_corrupt_are_not_appended_and_asked_for_again(folder: Path) -> None:
    async with cluster(folder, 2) as members:
        async with Client(members.bootstrap) as client:
            await make(members, client, 2)
            leader = members.leader("t")
            other = 3 - leader.node_id
            await members.kill(other)
            await send(client, "t", 0, records(5))
        file = next((folder / str(leader.node_id) / "t-0").glob("*.log"))
        sound = file.read_bytes()
        file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
        follower = await members.start(other)
        await until(lambda: complaints(follower) > 0)
        assert members.replica(follower, "t").log.log_end_offset == 0
        file.write_bytes(sound)
        await until(lambda: members.isr("t") == {1, 2})
        assert len(set(members.contents("t").values())) == 1


def complaints(broker: Broker) -> int:
    """Return how many lines there were about replication."""
    return sum(each.count for (kind, _), each in broker.runtime.complaints._windows.items() if kind == "replication")


OLD_READERS = {0: FetchOptions(versions=range(2)), 1: FetchOptions(versions=range(2, 4)), 2: FetchOptions()}
"""By magic: how readers fetch who know no later format."""


async def read_by(client: Client, options: FetchOptions) -> list[tuple[int, bytes | None, bytes | None]]:
    _, end = await bounds(client, "t", 0)
    found = [each async for some in read_records(client, "t", 0, 0, end, options) for each in some]
    return [(each.offset, each.key, each.value) for each in found]


def magics(stored: bytes) -> set[int]:
    """Return the formats of the entries in a log."""
    found, at = set(), 0
    while at < len(stored):
        found.add(stored[at + MAGIC.start])
        at += 12 + int.from_bytes(stored[at + 8 : at + 12], "big")
    return found


@pytest.mark.parametrize(("protocol", "followers_hold"), [("0.9.0", {0}), ("0.9.0-1", {1}), ("0.10.0", {1})])
async def test_the_format_of_a_canary_spreads_only_by_requests_that_have_it(
    folder: Path, protocol: str, followers_hold: set[int]
) -> None:
    """Broker 1 stores format 1, the others format 0 (KIP-31, after phase 1): they copy the partitions that it leads."""

    settings = {"inter_broker_protocol_version": protocol, "log_message_format_version": "0"}
    async with cluster(folder, 0, **settings) as members:
        canary = {"log_message_format_version": "1", "inter_broker_protocol_version": "0.10.0"}
        await members.start(1, **canary)
        for number in (2, 3):
            await members.start(number)
        await until(lambda: all(each.cluster_view.broker_ids() == [1, 2, 3] for each in members.brokers.values()))
        async with Client(members.bootstrap) as client:
            await create_topic(client, NewTopic("t", -1, -1, assignments=[(1, 2, 3)]))
            await until(lambda: len(members.leaders("t")) == 1)
            for form in (Format.V0, Format.V1):  # Produce V1 and V2
                for codec in (Codec.NONE, Codec.GZIP):
                    await send(client, "t", 0, records(3), ProduceOptions(codec=codec, format=form))
            by_canary = {name: await read_by(client, how) for name, how in OLD_READERS.items()}
        stored = members.contents("t")
        assert magics(stored[1]) == {1}
        assert magics(stored[2]) == magics(stored[3]) == followers_hold
        assert (stored[1] == stored[2] == stored[3]) is (followers_hold == {1})
        assert by_canary[0] == by_canary[1] == by_canary[2]
        for number in (1, 2):  # the next replica leads, of which readers see the same
            await members.kill(number)
            await until(lambda: len(members.leaders("t")) == 1)
            # A follower cuts at its high watermark before 0.11: it may lack records until it has fetched (KIP-101).
            await until(lambda: {each.log.high_watermark for each in replicas(members)} == {12})
            async with Client(members.bootstrap) as client:
                for name, how in OLD_READERS.items():
                    assert await read_by(client, how) == by_canary[name], f"magic {name}, behind {number}"


async def test_readers_of_each_format_see_the_same_behind_a_change_of_format(folder: Path) -> None:
    """Phase 2: the stored format is raised while clients of every era produce and read."""

    settings = {"inter_broker_protocol_version": "2.8", "log_message_format_version": "0"}
    async with cluster(folder, **settings) as members:
        async with Client(members.bootstrap) as client:
            await make(members, client)
            await send(client, "t", 0, records(4), ProduceOptions(codec=Codec.GZIP))
        for number in (1, 2, 3):  # a rolling restart
            await until(lambda: members.is_settled("t"))
            await members.stop(number)
            await members.start(number, log_message_format_version="2")
        await until(lambda: members.is_settled("t"))
        async with Client(members.bootstrap) as client:
            for form in (Format.V0, Format.V1, Format.V2):
                await send(client, "t", 0, records(4), ProduceOptions(format=form))
            seen = [await read_by(client, how) for how in OLD_READERS.values()]
            assert seen[0] == seen[1] == seen[2]
            assert [offset for offset, _, _ in seen[0]] == list(range(16))
        found = members.contents("t")
        assert magics(found[1]) == {0, 2}
        assert len(set(found.values())) == 1
