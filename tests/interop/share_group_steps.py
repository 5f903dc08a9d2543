"""A conversation of members of a share group with a broker, and the records that it stored, as plain values.

Ids of topics, dates and hashes are left out, and so are texts of errors.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from interop.consumer_group_steps import NOT_YET, Said, find_coordinator
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.groups.consumer.records import GroupEpoch, TargetEpoch
from magicbyte.engine.groups.share import records as group_records
from magicbyte.engine.groups.share.records import KeptStates, ShareProgress
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC
from magicbyte.engine.protocol.messages import share_acknowledge as acknowledging
from magicbyte.engine.protocol.messages import share_fetch as fetching
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from magicbyte.engine.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sharing import records as state_records
from magicbyte.engine.sharing.states import StateSnapshot
from server.broker.builders import made, produce, records
from server.broker.serving import Peer

ONE, TWO = "lTHNMyrj0PQ8IJetDPElcg", "mTHNMyrj0PQ8IJetDPElcg"


class Script:
    """Asks a broker, and notes what it answers. `epochs`: of the sessions, by member."""

    def __init__(self, peer: Peer, topic: uuid.UUID) -> None:
        self.peer, self.topic, self.said = peer, topic, list[Said]()
        self.epochs = {ONE: 0, TWO: 0}

    async def beat(self, what: str, epoch: int, names: list[str] | None = None, **fields: Any) -> Any:
        given = {"group_id": "g", "member_id": ONE, **fields}
        request = ShareGroupHeartbeatRequest(member_epoch=epoch, subscribed_topic_names=names, **given)
        while True:
            answer = await self.peer.ask(request, 1, ShareGroupHeartbeatResponse)
            if answer.error_code not in NOT_YET:
                break
            await asyncio.sleep(0.05)
        assigned = None
        if answer.assignment is not None:
            assigned = [each.partitions for each in answer.assignment.topic_partitions]
        self.said.append((what, (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms, assigned)))
        return answer

    async def fetch(self, what: str, *acknowledged: tuple[int, int, int], member: str = ONE, **fields: Any) -> None:
        batches = [
            fetching.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            for first, last, kind in acknowledged
        ]
        part = fetching.FetchPartition(partition_index=0, acknowledgement_batches=batches)
        version = fields.pop("version", 2)
        given: dict[str, Any] = {
            "topics": [fetching.FetchTopic(topic_id=self.topic, partitions=[part])], "group_id": "g",
            "max_wait_ms": 1000, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
            "share_session_epoch": self.epochs[member], "member_id": member, **fields,
        }  # fmt: skip
        answer = await self.peer.ask(fetching.ShareFetchRequest(**given), version, fetching.ShareFetchResponse)
        if answer.error_code in (0, -1):
            self.epochs[member] += 1
        runs = [
            (part.error_code, part.acknowledge_error_code, [tuple(_run(run)) for run in part.acquired_records])
            for topic in answer.responses
            for part in topic.partitions
        ]
        self.said.append((what, (answer.error_code, runs)))

    async def acknowledge(
        self, what: str, *batches: tuple[int, int, Sequence[int]], member: str = ONE, **fields: Any
    ) -> None:
        rows = [
            acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(kinds))
            for first, last, kinds in batches
        ]
        part = acknowledging.AcknowledgePartition(partition_index=0, acknowledgement_batches=rows)
        version = fields.pop("version", 2)
        given: dict[str, Any] = {
            "topics": [acknowledging.AcknowledgeTopic(topic_id=self.topic, partitions=[part])],
            "share_session_epoch": self.epochs[member], "group_id": "g", "member_id": member, **fields,
        }  # fmt: skip
        request = acknowledging.ShareAcknowledgeRequest(**given)
        answer = await self.peer.ask(request, version, acknowledging.ShareAcknowledgeResponse)
        if not answer.error_code:
            self.epochs[member] += 1
        codes = [each.error_code for topic in answer.responses for each in topic.partitions]
        self.said.append((what, (answer.error_code, codes)))

    async def produce(self, count: int) -> None:
        assert not (await produce(self.peer, "t", made(records(count), Format.V2), Format.V2)).error_code

    async def stored(self) -> None:
        """Note the records of the group and of its states."""
        for topic in (OFFSETS_TOPIC, SHARE_TOPIC):
            part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 << 20)
            request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])])
            answered = (await self.peer.ask(request, 11, FetchResponse)).responses[0].partitions[0]
            assert isinstance(answered.records, memoryview)
            table = scan(answered.records)
            for columns in decode(answered.records[: table.end]):
                for each in columns:
                    assert each.key is not None
                    self.said.append((topic, _plain(each.key, each.value)))


def _run(run: fetching.AcquiredRecords) -> tuple[int, int, int]:
    return run.first_offset, run.last_offset, run.delivery_count


def _plain(key: bytes, value: bytes | None) -> object:
    if (found := group_records.decode(key, value)) is not None:
        match found.value:
            case GroupEpoch(epoch=epoch) | TargetEpoch(epoch=epoch):
                return found.type, found.member_id, epoch
            case ShareProgress() as progress:
                epochs = progress.epoch, progress.previous_epoch
                return found.type, epochs, list(progress.assigned.values())
            case KeptStates() as kept:
                kinds = kept.initializing.values(), kept.initialized.values()
                return found.type, *map(list, kinds), len(kept.deleting)
            case dict() as target:
                return found.type, list(target.values())
        return found.type, found.value
    state = state_records.decode(key, value)
    assert state is not None
    if isinstance(state[1], StateSnapshot):
        return state[1]._replace(created_ms=0, written_ms=0)
    return state[1]


async def converse(script: Script) -> None:
    """Join, acquire, acknowledge and leave, well and badly."""
    await script.beat("group empty", 0, ["t"], group_id="")
    await script.beat("member too long", 0, ["t"], member_id="m" * 37)
    await script.beat("no names", 0, [])
    await script.beat("epoch -2", -2)
    await script.beat("unknown group", 3)
    await script.beat("join", 0, ["t"])
    while not (await script.beat("with partitions", 2)).assignment:  # the state is being initialized
        script.said.pop()
        await asyncio.sleep(1.2)
    await script.beat("the same epoch", 3)
    await script.beat("the previous one", 2)
    await script.beat("a later one", 9)
    await script.beat("unknown member", 3, member_id=TWO)
    await script.fetch("no session", share_session_epoch=1)
    await script.fetch("acknowledgements at the beginning", (0, 0, 1))
    await script.fetch("nothing yet")
    for count in (4, 4, 4):
        await script.produce(count)
    await script.fetch("record limit", max_records=6, batch_size=6, share_acquire_mode=1)
    await script.fetch("whole batches", max_records=3, batch_size=3)
    await script.fetch("wrong epoch", share_session_epoch=77)
    await script.fetch("unknown mode", share_acquire_mode=2)
    await script.fetch("member too long", member_id="m" * 37)
    await script.acknowledge("at the beginning", (0, 0, [1]), share_session_epoch=0)
    await script.acknowledge("accept", (0, 1, [1]))
    await script.acknowledge("release, reject and gap", (2, 4, [2, 3, 0]))
    await script.fetch("released", max_records=1, batch_size=1)
    await script.fetch("another member", member=TWO, max_wait_ms=0)
    await script.acknowledge("of another", (2, 2, [1]), member=TWO)
    await script.acknowledge("beyond", (5, 40, [1]))
    await script.acknowledge("below", (0, 1, [2]))
    await script.acknowledge("first after last", (7, 6, [1]))
    await script.acknowledge("no types", (6, 7, []))
    await script.acknowledge("too few types", (5, 7, [1, 1]))
    await script.acknowledge("type 5", (6, 6, [5]))
    await script.acknowledge("descending", (7, 7, [1]), (6, 6, [1]))
    await script.acknowledge("overlapping", (5, 6, [1]), (6, 7, [1]))
    await script.acknowledge("renewal without the flag", (6, 6, [4]))
    await script.acknowledge("renewal in version 1", (6, 6, [4]), version=1)
    await script.acknowledge("renewal", (6, 6, [4]), is_renew_ack=True)
    await script.fetch("renewal with a fetch", (6, 6, 4), is_renew_ack=True)
    await script.fetch("accept and fetch", (2, 2, 1), max_wait_ms=0)
    forgotten = [fetching.ForgottenTopic(topic_id=script.topic, partitions=(0,))]
    await script.fetch("forget", topics=[], max_wait_ms=0, forgotten_topics_data=forgotten)
    await script.fetch("close", (5, 5, 1), share_session_epoch=-1)
    await script.fetch("the rest", member=TWO)
    await script.acknowledge("all", (6, 11, [1]), member=TWO)
    request = ShareGroupDescribeRequest(group_ids=["g", "x"])
    described = await script.peer.ask(request, 1, ShareGroupDescribeResponse)
    script.said += [
        ("describe", (each.error_code, each.group_state, each.group_epoch, each.assignment_epoch, each.assignor_name))
        for each in described.groups
    ]
    await script.beat("leave", -1)
    await script.stored()


def conversation(address: str) -> list[Said]:
    """Have the conversation with a new broker."""

    async def work() -> list[Said]:
        host, _, port = address.rpartition(":")
        async with Client(address) as client:
            await create_topic(client, NewTopic("t", 1))
        peer = Peer(await SocketStream.connect(host, int(port)))
        await find_coordinator(peer)
        found: dict[str | None, uuid.UUID] = {}
        while "t" not in found:
            response = await peer.ask(MetadataRequest(topics=None), 12, MetadataResponse)
            found = {each.name: each.topic_id for each in response.topics}
        script = Script(peer, found["t"])
        await converse(script)
        peer.close()
        return script.said

    return asyncio.run(asyncio.wait_for(work(), 300))
