"""Share groups: rows of the specification's table that need transactions, deleted records or an empty log."""

from __future__ import annotations

from pathlib import Path

from magicbyte.engine.protocol.messages import alter_share_group_offsets as altering
from magicbyte.engine.protocol.messages import delete_records as deleting
from magicbyte.engine.protocol.messages import describe_share_group_offsets as describing
from magicbyte.engine.sharing.states import StateBatch, StateSnapshot, StateUpdate
from server.broker import transacting
from server.broker.share_members import Sharing, serving


async def described(sharing: Sharing) -> tuple[int, int]:
    """Return the start offset and the lag."""
    topic = describing.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=(0,))
    asked = describing.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[topic])
    request = describing.DescribeShareGroupOffsetsRequest(groups=[asked])
    found = await sharing.peer.ask(request, 1, describing.DescribeShareGroupOffsetsResponse)
    (part,) = found.groups[0].topics[0].partitions
    assert part.error_code == 0
    return part.start_offset, part.lag


async def test_r70_records_stay_acquired_when_a_session_is_opened_again(folder: Path) -> None:
    async with serving(folder, 2) as sharing:
        await sharing.join()
        assert await sharing.acquired() == [(0, 1, 1)]
        assert await sharing.acquired(share_session_epoch=0, max_wait_ms=0) == []
        sharing.epoch = 1
        assert await sharing.acknowledge((0, 1, [1])) == 0


async def test_r75_aborted_records_are_archived_and_markers_are_acquired(folder: Path) -> None:
    settings = {"group_share_isolation_level": "read_committed", "transaction_state_log_num_partitions": "1"}
    async with serving(folder, **settings) as sharing:
        assert await transacting.found(sharing.peer) in (0, 15)
        pair = await transacting.begun(sharing.peer, "x")
        for sequence, values, commits in ((0, (b"a", b"b"), False), (2, (b"c",), True), (3, (b"d",), None)):
            await transacting.add(sharing.peer, pair, ("t", 0))
            assert (await transacting.send(sharing.peer, pair, ("t", 0), sequence, *values))[0] == 0
            if commits is not None:
                await transacting.ended(sharing.peer, pair, commit=commits)
        await sharing.join()
        assert await sharing.acquired() == [(2, 4, 1)]
        assert await sharing.acknowledge((3, 3, [1]), (4, 4, [0])) == 0
        change = sharing.stored()[-1]
        assert isinstance(change, StateUpdate)
        assert (change.start, change.batches) == (0, (StateBatch(3, 3, 2, 1), StateBatch(4, 4, 4, 1)))
        assert await sharing.acknowledge((2, 2, [0])) == 0
        assert await sharing.acquired(max_wait_ms=0) == [], "d is open"


async def test_r76_a_batch_in_which_the_log_begins_is_acquired_as_a_whole(folder: Path) -> None:
    async with serving(folder, 3, 3) as sharing:
        await sharing.join()
        assert await sharing.acquired(max_records=3, batch_size=3) == [(0, 2, 1)]
        part = deleting.DeleteRecordsPartition(partition_index=0, offset=4)
        topic = deleting.DeleteRecordsTopic(name="t", partitions=[part])
        request = deleting.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
        deleted = await sharing.peer.ask(request, 2, deleting.DeleteRecordsResponse)
        assert deleted.topics[0].partitions[0].low_watermark == 4
        assert await sharing.acknowledge((0, 2, [1])) == 0
        assert await sharing.acquired() == [(3, 5, 1)]
        assert await sharing.acknowledge((4, 5, [1])) == 0
        change = sharing.stored()[-1]
        assert isinstance(change, StateUpdate)
        assert change.start == 4


async def test_r77_an_offset_beyond_an_empty_log_is_set_and_its_lag_is_negative(folder: Path) -> None:
    async with serving(folder) as sharing:
        await sharing.join()
        left = await sharing.heartbeat(-1)
        assert left.error_code == 0
        epoch = sharing.broker.groups.coordinator.shares["g"].epoch
        row = altering.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
        topic = altering.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[row])
        request = altering.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
        altered = await sharing.peer.ask(request, 0, altering.AlterShareGroupOffsetsResponse)
        assert altered.responses[0].partitions[0].error_code == 0
        assert await described(sharing) == (2, -2)
        snapshot = sharing.stored()[-1]
        assert isinstance(snapshot, StateSnapshot)
        assert (snapshot.snapshot_epoch, snapshot.state_epoch, snapshot.start) == (1, epoch, 2)
