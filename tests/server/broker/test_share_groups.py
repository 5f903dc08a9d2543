"""Share groups (KIP-932) at a broker: members join, acquire records and acknowledge them, as brokers of 4.3 answered.

A test names the rows of the specification's table: R and a number.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.internal_topics import SHARE_TOPIC
from magicbyte.engine.protocol.messages import alter_share_group_offsets as altering
from magicbyte.engine.protocol.messages import delete_share_group_offsets as deleting
from magicbyte.engine.protocol.messages import describe_share_group_offsets as describing
from magicbyte.engine.protocol.messages import share_fetch as fetching
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.engine.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from magicbyte.engine.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from magicbyte.engine.sharing.states import StateBatch, StateSnapshot, StateUpdate
from magicbyte.server.broker.broker import Broker
from server.broker.serving import Peer, Running
from server.broker.share_members import SETTINGS, runs_of, serving


async def test_r61_a_member_joins_and_gets_partitions_once_their_states_are_kept(folder: Path) -> None:
    async with serving(folder, partitions=2) as sharing:
        first = await sharing.heartbeat(0, ["t"])
        assert (first.error_code, first.member_epoch, first.heartbeat_interval_ms) == (0, 2, 5000)
        assert first.assignment is not None
        assert not first.assignment.topic_partitions
        joined = await sharing.join()
        assert joined.assignment is not None
        assert [(each.topic_id, each.partitions) for each in joined.assignment.topic_partitions] == [
            (sharing.topic, (0, 1))
        ]
        assert joined.member_epoch == 3
        described = await sharing.peer.ask(
            ShareGroupDescribeRequest(group_ids=["g", "x"]), 1, ShareGroupDescribeResponse
        )
        group, unknown = described.groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
            "Stable", 3, 3, "simple",
        )  # fmt: skip
        assert [each.assignment.topic_partitions[0].partitions for each in group.members] == [(0, 1)]
        assert unknown.error_code == 69
        listed = await sharing.peer.ask(ListGroupsRequest(types_filter=["share"]), 5, ListGroupsResponse)
        assert [(each.group_id, each.group_state, each.group_type) for each in listed.groups] == [
            ("g", "Stable", "share")
        ]
        left = await sharing.heartbeat(-1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert (await sharing.heartbeat(3)).error_code == 25


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, 42),
        ({"member_id": ""}, 42),
        ({"member_id": "m" * 37}, 42),
        ({"rack_id": ""}, 42),
        ({"names": []}, 42),
        ({"names": None}, 42),
        ({"epoch": -2}, 42),
        ({"epoch": 1}, 69),
    ],
)
async def test_heartbeats_that_are_refused(folder: Path, fields: dict[str, Any], code: int) -> None:
    async with serving(folder) as sharing:
        given = {"epoch": 0, "names": ["t"], **fields}
        assert (await sharing.heartbeat(given.pop("epoch"), given.pop("names"), **given)).error_code == code


async def test_r64_records_are_acquired_and_acknowledged_and_each_change_is_stored(folder: Path) -> None:
    async with serving(folder, 5) as sharing:
        await sharing.join()
        response = await sharing.fetch()
        assert runs_of(response) == [(0, 4, 1)]
        assert response.acquisition_lock_timeout_ms == 30_000
        assert bytes(response.responses[0].partitions[0].records or b"")[16] == 2
        assert await sharing.acknowledge((0, 1, [1])) == 0
        assert await sharing.acknowledge((2, 4, [2, 3, 0])) == 0
        assert await sharing.acquired() == [(2, 2, 2)]
        begun, first, second = sharing.stored()
        assert isinstance(begun, StateSnapshot)
        assert (begun.snapshot_epoch, begun.state_epoch, begun.start) == (0, 2, -1)
        assert first == StateUpdate(0, 0, 0, (StateBatch(0, 1, 2, 1),), 2)
        assert second == StateUpdate(0, 0, 2, (StateBatch(2, 2, 0, 1), StateBatch(3, 4, 4, 1)), 2)


async def test_r65_acknowledgements_of_what_the_member_does_not_have(folder: Path) -> None:
    async with serving(folder, 4) as sharing:
        await sharing.join()
        assert await sharing.acquired() == [(0, 3, 1)]
        other = await sharing.another("n")
        assert await other.acquired(max_wait_ms=0) == []
        assert await other.acknowledge((0, 1, [1])) == 121
        assert await sharing.acknowledge((0, 9, [1])) == 42
        assert await sharing.acknowledge((3, 2, [1])) == 42
        assert await sharing.acknowledge((0, 1, [])) == 42
        assert await sharing.acknowledge((0, 1, [5])) == 42
        assert await sharing.acknowledge((0, 1, [1]), (1, 2, [1])) == 121
        assert await sharing.acknowledge((2, 3, [1]), (0, 1, [1])) == 42
        assert await sharing.acknowledge((0, 1, [1])) == 0
        assert await sharing.acknowledge((0, 1, [1])) == 0, "they are done"
        assert await sharing.acknowledge((2, 2, [4]), is_renew_ack=False) == 42  # R73
        assert await sharing.acknowledge((2, 2, [4]), version=1) == 42
        assert await sharing.acknowledge((2, 2, [4]), is_renew_ack=True) == 0
        other.peer.close()


async def test_sessions_have_epochs(folder: Path) -> None:
    async with serving(folder, 4) as sharing:
        await sharing.join()
        assert (await sharing.fetch(share_session_epoch=1)).error_code == 122
        assert (await sharing.fetch((0, 0, 1), share_session_epoch=0)).error_code == 42
        assert await sharing.acknowledge((0, 0, [1]), share_session_epoch=0) == 123
        assert await sharing.acquired() == [(0, 3, 1)]
        assert (await sharing.fetch(share_session_epoch=5)).error_code == 123
        assert (await sharing.fetch(member_id="")).error_code == 42  # R62
        assert (await sharing.fetch(member_id="m" * 37)).error_code == 42
        assert (await sharing.fetch(share_acquire_mode=2)).error_code == -1  # R72
        assert (await sharing.fetch(is_renew_ack=True)).error_code == 42
        assert sharing.epoch == 2, "the unknown mode has moved it"
        topics = [fetching.FetchTopic(topic_id=uuid.UUID(int=5), partitions=[fetching.FetchPartition()])]
        unknown = await sharing.fetch(topics=topics, max_wait_ms=0)
        assert [part.error_code for topic in unknown.responses for part in topic.partitions] == [100]  # R63


async def test_r66_there_are_no_more_sessions_than_allowed(folder: Path) -> None:
    async with serving(folder, group_share_max_share_sessions="1") as sharing:
        await sharing.join()
        assert await sharing.acquired(max_wait_ms=0) == []
        other = await sharing.another("n")
        assert (await other.fetch(max_wait_ms=1)).error_code == 133
        other.peer.close()


async def test_r69_a_closed_session_and_a_lost_connection_release_records(folder: Path) -> None:
    async with serving(folder, 2) as sharing:
        await sharing.join()
        first = await sharing.another("m1")
        assert await first.acquired() == [(0, 1, 1)]
        assert (await first.fetch((0, 0, 1), share_session_epoch=-1)).error_code == 0
        second = await sharing.another("m2")
        assert await second.acquired() == [(1, 1, 2)]
        second.peer.close()
        assert await sharing.acquired(max_wait_ms=10_000) == [(1, 1, 3)]
        first.peer.close()


async def test_r69_records_of_a_forgotten_partition_stay_acquired(folder: Path) -> None:
    async with serving(folder, 2) as sharing:
        await sharing.join()
        other = await sharing.another("n")
        assert await other.acquired() == [(0, 1, 1)]
        forgotten = [fetching.ForgottenTopic(topic_id=sharing.topic, partitions=(0,))]
        assert await other.acquired(topics=[], forgotten_topics_data=forgotten, max_wait_ms=0) == []
        assert (await other.fetch(topics=[], share_session_epoch=-1)).error_code == 0
        assert await sharing.acquired() == []
        other.peer.close()


async def test_r68_a_lock_that_ends_gives_records_to_others(folder: Path) -> None:
    async with serving(folder, 2, group_share_record_lock_duration_ms="100") as sharing:
        await sharing.join()
        other = await sharing.another("n")
        assert await other.acquired() == [(0, 1, 1)]
        assert await sharing.acquired(max_wait_ms=10_000) == [(0, 1, 2)]
        assert await other.acknowledge((0, 1, [1])) == 121
        other.peer.close()


async def test_a_fetch_waits_for_records(folder: Path) -> None:
    async with serving(folder) as sharing:
        await sharing.join()
        other = await sharing.another("n")
        waiting = asyncio.create_task(other.acquired(max_wait_ms=20_000))
        await asyncio.sleep(0.05)
        await sharing.produce(3)
        assert await waiting == [(0, 2, 1)]
        waiting = asyncio.create_task(sharing.acquired(max_wait_ms=20_000))
        await asyncio.sleep(0.05)
        assert await other.acknowledge((1, 1, [2])) == 0
        assert await waiting == [(1, 1, 2)]
        other.peer.close()


async def test_r72_a_record_limit_divides_batches(folder: Path) -> None:
    async with serving(folder, 4, 4, 4) as sharing:
        await sharing.join()
        assert await sharing.acquired(max_records=6, batch_size=6, share_acquire_mode=1) == [(0, 5, 1)]
        assert await sharing.acquired(max_records=3, batch_size=3) == [(6, 7, 1), (8, 11, 1)]


async def test_states_are_continued_after_a_restart(folder: Path) -> None:
    async with serving(folder, 6) as sharing:
        await sharing.join()
        assert await sharing.acquired() == [(0, 5, 1)]
        assert await sharing.acknowledge((0, 1, [1]), (3, 3, [1]), (4, 4, [2])) == 0
    async with serving(folder) as sharing:
        answer = await sharing.heartbeat(0, ["t"])
        assert answer.error_code == 0
        assert answer.assignment is not None
        assert [each.partitions for each in answer.assignment.topic_partitions] == [(0,)]
        assert await sharing.acquired() == [(2, 2, 1), (4, 4, 2), (5, 5, 1)]


async def test_settings_of_the_group_and_the_releases(folder: Path) -> None:
    async with serving(folder, 3, group_share_auto_offset_reset="latest") as sharing:
        await sharing.join()
        assert await sharing.acquired(max_wait_ms=0) == []
        await sharing.produce(1)
        assert await sharing.acquired() == [(3, 3, 1)]
    async with Running(folder / "other", {**SETTINGS, "as.version": "4.1"}) as broker:
        peer = await Peer.of(broker)
        request = ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"])
        assert (await peer.ask(request, 1, ShareGroupHeartbeatResponse)).error_code == 35
        peer.close()


async def test_r77_offsets_are_described_altered_and_deleted(folder: Path) -> None:
    async with serving(folder, 6) as sharing:
        peer = sharing.peer

        async def described(name: str = "t", group: str = "g") -> list[tuple[int, int, int]]:
            topic = describing.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=(0,))
            asked = describing.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[topic])
            request = describing.DescribeShareGroupOffsetsRequest(groups=[asked])
            found = await peer.ask(request, 1, describing.DescribeShareGroupOffsetsResponse)
            return [(each.start_offset, each.lag, each.error_code) for each in found.groups[0].topics[0].partitions]

        async def altered(offset: int, partition: int = 0) -> tuple[int, list[int]]:
            row = altering.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
            topic = altering.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[row])
            request = altering.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
            found = await peer.ask(request, 0, altering.AlterShareGroupOffsetsResponse)
            return found.error_code, [each.error_code for topic in found.responses for each in topic.partitions]

        async def deleted(name: str = "t") -> tuple[int, list[int]]:
            topic = deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
            request = deleting.DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic])
            found = await peer.ask(request, 0, deleting.DeleteShareGroupOffsetsResponse)
            return found.error_code, [each.error_code for each in found.responses]

        assert await described() == [(-1, -1, 0)]
        assert await described("x", "y") == [(-1, -1, 0)]
        assert await deleted() == (69, [])
        assert await altered(2, partition=9) == (0, [3])
        assert await altered(2) == (0, [0])
        assert await described() == [(2, 4, 0)]
        await sharing.join()
        assert await altered(0) == (68, [])
        assert await deleted() == (68, [])
        assert await sharing.acquired() == [(2, 5, 1)]
        assert await sharing.acknowledge((2, 5, [1])) == 0
        assert await described() == [(2, 0, 0)], "all are done"
        assert (await sharing.fetch(share_session_epoch=-1)).error_code == 0
        await sharing.heartbeat(-1)
        assert await altered(1) == (0, [0])
        sharing.epoch = 0
        assert await sharing.acquired() == [(1, 5, 1)]
        assert (await sharing.fetch(share_session_epoch=-1)).error_code == 0
        assert await deleted("x") == (0, [3])
        assert await deleted() == (0, [0])
        assert await deleted() == (0, [3])
        assert await described() == [(-1, -1, 0)]
        await sharing.heartbeat(0, ["t"])
        await sharing.heartbeat(-1)
        request = DeleteGroupsRequest(groups_names=["g"])
        assert [each.error_code for each in (await peer.ask(request, 2, DeleteGroupsResponse)).results] == [0]
        assert not broker_states(sharing.broker)


def broker_states(broker: Broker) -> object:
    return broker.coordinators.share_states.coordinator.states


async def test_records_that_no_state_needs_are_deleted(folder: Path) -> None:
    settings = {
        "share_coordinator_state_topic_prune_interval_ms": "20",
        "share_coordinator_snapshot_update_records_per_snapshot": "2",
    }
    async with serving(folder, 9, **settings) as sharing:
        await sharing.join()
        assert await sharing.acquired() == [(0, 8, 1)]
        for offset in range(9):
            assert await sharing.acknowledge((offset, offset, [1])) == 0
        log = sharing.broker.logs.logs[(SHARE_TOPIC, 0)]  # type: ignore[index]
        for _ in range(500):
            if log.log_start_offset == 9:
                break
            await asyncio.sleep(0.02)
        assert (log.log_start_offset, log.log_end_offset) == (9, 10), "only the last snapshot is left"
    async with serving(folder, 1, **settings) as sharing:
        await sharing.heartbeat(0, ["t"])
        assert await sharing.acquired() == [(9, 9, 1)]
