"""Rights of members of share groups: what a group or a topic without the right answers (R67)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from magicbyte.engine.cluster.acls import AclOperation, Permission, ResourceType
from magicbyte.engine.protocol.messages import alter_share_group_offsets as altering
from magicbyte.engine.protocol.messages import delete_share_group_offsets as deleting
from magicbyte.engine.protocol.messages import describe_share_group_offsets as describing
from server.broker.share_members import Sharing, serving
from server.broker.test_rights import ACLS, NO_GROUP, NO_TOPIC, give


@asynccontextmanager
async def member(folder: Path) -> AsyncIterator[Sharing]:
    """Yield a member that has acquired four records, and may read the topic and the group."""
    named = {name.replace(".", "_"): value for name, value in ACLS.items()}
    async with serving(folder, **named) as sharing:
        for operation in (AclOperation.READ, AclOperation.WRITE):
            await give(sharing.broker, operation)
        for operation in (AclOperation.READ, AclOperation.DELETE):
            await give(sharing.broker, operation, ResourceType.GROUP, "g")
        await sharing.join()
        await sharing.produce(4)
        assert await sharing.acquired() == [(0, 3, 1)]
        yield sharing


def parts_of(answer: object) -> list[tuple[int, int]]:
    return [
        (part.error_code, part.acknowledge_error_code)
        for topic in answer.responses  # type: ignore[attr-defined]
        for part in topic.partitions
    ]


async def test_a_topic_that_may_no_longer_be_read_is_refused_in_each_answer_and_its_session_stays(
    folder: Path,
) -> None:
    async with member(folder) as sharing:
        await give(sharing.broker, AclOperation.READ, permission=Permission.DENY)
        for _ in range(2):
            refused = await sharing.fetch((0, 0, 1), max_wait_ms=0)
            assert (refused.error_code, parts_of(refused)) == (0, [(NO_TOPIC, NO_TOPIC)])
        assert await sharing.acknowledge((0, 0, [1])) == NO_TOPIC
        assert sharing.stored()[1:] == [], "nothing was acknowledged"


async def test_records_that_come_after_the_right_to_read_was_taken_away_are_not_delivered(folder: Path) -> None:
    async with member(folder) as sharing:
        waiting = asyncio.create_task(sharing.fetch(max_wait_ms=600_000))
        partition = await sharing.broker.replicas.known_partition("t", 0)
        assert partition is not None
        while not partition.waiting:
            await asyncio.sleep(0.001)
        await give(sharing.broker, AclOperation.READ, permission=Permission.DENY)
        other = await sharing.another("n")
        await other.produce(1)
        assert parts_of(await waiting) == [(NO_TOPIC, 0)]
        other.peer.close()


async def test_offsets_of_a_topic_that_may_not_be_read_are_neither_described_nor_altered_nor_deleted(
    folder: Path,
) -> None:
    async with member(folder) as sharing:
        await give(sharing.broker, AclOperation.ALL, permission=Permission.DENY)
        named = describing.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=(0,))
        for topics in ([named], None):
            group = describing.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
            request = describing.DescribeShareGroupOffsetsRequest(groups=[group])
            found = await sharing.peer.ask(request, 1, describing.DescribeShareGroupOffsetsResponse)
            told = [part.error_code for topic in found.groups[0].topics for part in topic.partitions]
            assert told == ([NO_TOPIC] if topics else []), "of all topics those that may be described"
        await sharing.heartbeat(-1)
        row = altering.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
        topic = altering.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[row])
        altered = altering.AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
        changed = await sharing.peer.ask(altered, 0, altering.AlterShareGroupOffsetsResponse)
        assert [part.error_code for each in changed.responses for part in each.partitions] == [NO_TOPIC]
        deletion = deleting.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
        deleted = deleting.DeleteShareGroupOffsetsRequest(group_id="g", topics=[deletion])
        gone = await sharing.peer.ask(deleted, 0, deleting.DeleteShareGroupOffsetsResponse)
        assert [each.error_code for each in gone.responses] == [NO_TOPIC]


async def test_a_group_that_may_no_longer_be_read_is_refused_as_a_whole(folder: Path) -> None:
    async with member(folder) as sharing:
        await give(sharing.broker, AclOperation.READ, ResourceType.GROUP, "g", permission=Permission.DENY)
        refused = await sharing.fetch()
        assert (refused.error_code, refused.responses) == (NO_GROUP, [])
        assert await sharing.acknowledge((0, 0, [1])) == NO_GROUP
        assert (await sharing.heartbeat(3)).error_code == NO_GROUP
