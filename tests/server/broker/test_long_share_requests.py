"""Long requests of a share group that exists: others have a turn meanwhile. Nothing here measures time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import alter_share_group_offsets as altering
from magicbyte.engine.protocol.messages import delete_share_group_offsets as deleting
from magicbyte.engine.protocol.messages import describe_share_group_offsets as describing
from magicbyte.engine.protocol.messages import share_fetch as fetching
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.server.serving import turns
from server.broker.share_members import Sharing, serving
from server.broker.test_cost import SMALL_STEPS, Seen

COUNT = 300


class Long:
    """A member of a share group that sends long requests, and the slices in which they were answered."""

    def __init__(self, sharing: Sharing, seen: Seen) -> None:
        self.sharing, self.seen = sharing, seen

    async def ask(self, key: ApiKey, message: Message) -> Any:
        """Return the answer, for which others did not wait."""
        self.seen.slices.clear()
        answer = await self.sharing.peer.ask(message, APIS[key].versions[-1], APIS[key].response)
        if key != ApiKey.WRITE_SHARE_GROUP_STATE:  # whose runs are merged at once
            self.check()
        return answer

    def check(self) -> None:
        assert sum(self.seen.slices) >= COUNT * 3 // 4
        assert max(self.seen.slices) <= SMALL_STEPS * 2


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    monkeypatch.setattr(turns, "STEPS_AT_ONCE", SMALL_STEPS)
    return Seen(monkeypatch)


@asynccontextmanager
async def asking(folder: Path, seen: Seen) -> AsyncIterator[Long]:
    """Serve a member that has acquired COUNT records."""
    async with serving(folder, COUNT) as sharing:
        await sharing.join()
        assert await sharing.acquired() == [(0, COUNT - 1, 1)]
        yield Long(sharing, seen)


async def test_offsets_of_many_partitions_and_topics_are_described(folder: Path, seen: Seen) -> None:
    async with asking(folder, seen) as long:
        many = describing.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=tuple(range(COUNT)))
        others = [describing.DescribeShareGroupOffsetsRequestTopic(topic_name=f"t{at}") for at in range(COUNT)]
        for topics in ([many], others):
            group = describing.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
            request = describing.DescribeShareGroupOffsetsRequest(groups=[group])
            answer = await long.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request)
            assert [len(each.partitions) for each in answer.groups[0].topics] == [
                len(each.partitions) for each in topics
            ]


async def test_offsets_of_many_partitions_and_topics_are_altered_and_deleted(folder: Path, seen: Seen) -> None:
    async with asking(folder, seen) as long:
        await long.sharing.heartbeat(-1)
        rows = [altering.AlterShareGroupOffsetsRequestPartition(partition_index=at) for at in range(COUNT)]
        many = altering.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=rows)
        names = [f"t{at}" for at in range(COUNT)]
        others = [altering.AlterShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        for topics in ([many], others):
            altered = altering.AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
            answer = await long.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, altered)
            assert (answer.error_code, len(answer.responses)) == (0, len(topics))
        deleted = [deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ["t", *names]]
        answer = await long.ask(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS, deleting.DeleteShareGroupOffsetsRequest(group_id="g", topics=deleted)
        )
        assert [each.error_code for each in answer.responses] == [0] + [3] * COUNT


async def test_a_session_of_many_partitions_is_opened_and_forgotten(folder: Path, seen: Seen) -> None:
    async with asking(folder, seen) as long:
        parts = [fetching.FetchPartition(partition_index=at) for at in range(COUNT)]
        seen.slices.clear()
        topics = [fetching.FetchTopic(topic_id=long.sharing.topic, partitions=parts)]
        opened = await long.sharing.fetch(topics=topics, share_session_epoch=0, max_wait_ms=0)
        assert [len(each.partitions) for each in opened.responses] == [COUNT]
        long.check()
        long.sharing.epoch = 1
        forgotten = [fetching.ForgottenTopic(topic_id=long.sharing.topic, partitions=tuple(range(COUNT)))]
        seen.slices.clear()
        answer = await long.sharing.fetch(topics=[], forgotten_topics_data=forgotten, max_wait_ms=0)
        assert answer.responses == []
        long.check()


async def test_records_are_acknowledged_in_many_batches(folder: Path, seen: Seen) -> None:
    async with asking(folder, seen) as long:
        seen.slices.clear()
        batches = [(at, at, [1 + at % 2]) for at in range(COUNT)]
        assert await long.sharing.acknowledge(*batches) == 0
        assert max(seen.slices[:10]) <= SMALL_STEPS, "their reading"
        assert sum(seen.slices) >= COUNT * 2, "and the merge of the runs"


async def test_a_change_of_many_runs_is_stored(folder: Path, seen: Seen) -> None:
    async with asking(folder, seen) as long:
        batches = [writing.StateBatch(first_offset=at, last_offset=at, delivery_count=at % 3) for at in range(COUNT)]
        row = writing.PartitionData(partition=0, state_epoch=2, start_offset=0, state_batches=batches)
        topic = writing.WriteStateData(topic_id=long.sharing.topic, partitions=[row])
        request = writing.WriteShareGroupStateRequest(group_id="g", topics=[topic])
        answer = await long.ask(ApiKey.WRITE_SHARE_GROUP_STATE, request)
        assert answer.results[0].partitions[0].error_code == 0
        assert sum(seen.slices) >= COUNT
