"""A broker, and members of a share group (KIP-932) that ask it request by request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import SHARE_TOPIC
from magicbyte.engine.protocol.messages import share_acknowledge as acknowledging
from magicbyte.engine.protocol.messages import share_fetch as fetching
from magicbyte.engine.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from magicbyte.engine.records.encode import Format
from magicbyte.engine.sharing.records import decode
from magicbyte.engine.sharing.states import StateSnapshot, StateUpdate
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating.coordinating import read_log
from server.broker.builders import made, produce, records
from server.broker.serving import Peer, Running

SETTINGS = {
    "as.version": "4.4",
    "auto.create.topics.enable": "false",
    "group.share.auto.offset.reset": "earliest",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
MEMBER = "lTHNMyrj0PQ8IJetDPElcg"


@asynccontextmanager
async def serving(folder: Path, *batches: int, partitions: int = 1, **settings: str) -> AsyncIterator[Sharing]:
    """Run a broker with a topic "t", with batches of so many records in partition 0, and a member of group "g"."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with Running(folder, {**SETTINGS, **named}) as broker:
        if broker.topics.get("t") is None:
            await broker.topics.create("t", partitions)
        await broker.coordinators.groups.ensure_topic()  # as FindCoordinator does
        sharing = Sharing(broker, await Peer.of(broker))
        for count in batches:
            await sharing.produce(count)
        yield sharing
        sharing.peer.close()


class Sharing:
    """A broker, and a member of a share group of it with its session."""

    def __init__(self, broker: Broker, peer: Peer, member: str = MEMBER) -> None:
        self.broker, self.peer, self.member = broker, peer, member
        self.topic = broker.topics.known("t").id
        self.epoch = 0

    async def another(self, member: str) -> Sharing:
        return Sharing(self.broker, await Peer.of(self.broker), member)

    async def produce(self, count: int) -> None:
        part = await produce(self.peer, "t", made(records(count), Format.V2), Format.V2)
        assert part.error_code == 0

    async def heartbeat(self, epoch: int, names: list[str] | None = None, **fields: Any) -> ShareGroupHeartbeatResponse:
        given = {"group_id": "g", "member_id": self.member, **fields}
        request = ShareGroupHeartbeatRequest(member_epoch=epoch, subscribed_topic_names=names, **given)
        while True:
            answer = await self.peer.ask(request, 1, ShareGroupHeartbeatResponse)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # after a restart
                return answer
            await asyncio.sleep(0.02)

    async def join(self) -> ShareGroupHeartbeatResponse:
        """Join the group, and wait for partitions."""
        answer = await self.heartbeat(0, ["t"])
        for _ in range(200):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return answer
            await asyncio.sleep(0.02)
            answer = await self.heartbeat(answer.member_epoch)
            assert answer.error_code == 0
        raise AssertionError("no partitions")

    async def fetch(
        self, *acknowledged: tuple[int, int, int], version: int = 2, **fields: Any
    ) -> fetching.ShareFetchResponse:
        batches = [
            fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in acknowledged
        ]
        part = fetching.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        given: dict[str, Any] = {
            "topics": [fetching.FetchTopic(topic_id=self.topic, partitions=[part])],
            "max_wait_ms": 300, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
            "share_session_epoch": self.epoch, "group_id": "g", "member_id": self.member, **fields,
        }  # fmt: skip
        response = await self.peer.ask(fetching.ShareFetchRequest(**given), version, fetching.ShareFetchResponse)
        if response.error_code in (0, -1):
            self.epoch += 1
        return response

    async def acquired(self, *acknowledged: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        response = await self.fetch(*acknowledged, **fields)
        assert response.error_code == 0
        return runs_of(response)

    async def acknowledge(self, *batches: tuple[int, int, Sequence[int]], version: int = 2, **fields: Any) -> int:
        """Return the code of the partition, or else that of the whole."""
        rows = [
            acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(kinds))
            for first, last, kinds in batches
        ]
        part = acknowledging.AcknowledgePartition(partition_index=0, acknowledgement_batches=rows)
        given: dict[str, Any] = {
            "topics": [acknowledging.AcknowledgeTopic(topic_id=self.topic, partitions=[part])],
            "share_session_epoch": self.epoch, "group_id": "g", "member_id": self.member, **fields,
        }  # fmt: skip
        request = acknowledging.ShareAcknowledgeRequest(**given)
        response = await self.peer.ask(request, version, acknowledging.ShareAcknowledgeResponse)
        if response.error_code:
            return response.error_code
        self.epoch += 1
        return response.responses[0].partitions[0].error_code if response.responses else 0

    def stored(self) -> list[StateSnapshot | StateUpdate | None]:
        """Return the records of `__share_group_state`, in order."""
        found = list[StateSnapshot | StateUpdate | None]()

        class Recorder:
            def read(self, data: memoryview) -> int:
                from magicbyte.engine.coordination.replay import keyed_records
                from magicbyte.engine.records.scan import scan

                table, last = scan(data), -1
                for key, record in keyed_records(table, range(len(table))):
                    decoded, last = decode(key, record.value), record.offset
                    assert decoded is not None
                    found.append(decoded[1])
                return last

            def finish(self) -> None:
                """Nothing is left."""

        read_log(Recorder(), self.broker.logs.logs[(SHARE_TOPIC, 0)])  # type: ignore[index]
        return found


def runs_of(response: fetching.ShareFetchResponse) -> list[tuple[int, int, int]]:
    return [
        (run.first_offset, run.last_offset, run.delivery_count)
        for topic in response.responses
        for part in topic.partitions
        for run in part.acquired_records
    ]
