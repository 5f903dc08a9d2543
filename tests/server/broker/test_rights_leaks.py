"""A user without the right to describe a topic or group learns nothing of it: not by codes, sizes, or work done."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

import magicbyte
from magicbyte.engine.cluster.acls import (
    AccessControlEntry,
    AclOperation,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import ANONYMOUS
from magicbyte.engine.errors import UnsupportedVersionError
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages import offset_commit as commit
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.offer import OWN
from magicbyte.server.stores.znodes.acl_nodes import LITERAL_CHANGES
from server.broker.serving import Peer
from server.broker.test_rights import REFUSED, serving

HOME: Final = str(Path(magicbyte.__file__).parent)
ROOMS: Final = tuple(
    f"{HOME}/{room}/"
    for room in ("server", "access/security", "engine/log", "engine/groups", "engine/coordination", "engine/protocol")
)
OTHERS: Final = {"t": "z", "g": "h"}
"""For a topic and a group that exist, names of the same length that do not."""
M = TypeVar("M")


def named(message: M, names: dict[str, str]) -> M:
    """Return a message with other names."""
    if isinstance(message, str):
        return names.get(message, message)  # type: ignore[return-value]
    if isinstance(message, list):
        return [named(each, names) for each in message]  # type: ignore[return-value]
    if isinstance(message, Struct):
        return replace(message, **{field: named(getattr(message, field), names) for field in message.__struct_fields__})
    return message


class Calls:
    """Counts calls of functions of the broker inside the block, in this thread."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Calls:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOMS):
            self.counts[f"{frame.f_code.co_filename.removeprefix(HOME)}:{frame.f_code.co_qualname}"] += 1


async def with_a_group(broker: Broker, peer: Peer) -> None:
    """Give the group `g` an offset of the topic `t`, with rights that are taken away again."""
    assert broker.authorizer is not None
    entries = frozenset({AccessControlEntry(ANONYMOUS, Permission.ALLOW, AclOperation.READ)})
    resources = [
        ResourcePattern(kind, name, Pattern.LITERAL)
        for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g"))
    ]
    for each in resources:
        await broker.authorizer.change(each, add=entries)
    topic = commit.OffsetCommitRequestTopic(
        name="t", partitions=[commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    )
    request = commit.OffsetCommitRequest(group_id="g", topics=[topic])
    await peer.ask(FindCoordinatorRequest(key="g"), 0, FindCoordinatorResponse)  # which creates the topic of offsets
    while (await peer.ask(request, 7, commit.OffsetCommitResponse)).topics[0].partitions[0].error_code:
        await asyncio.sleep(0.01)
    for each in resources:
        await broker.authorizer.change(each, remove=entries)
    # The store reads the broker's own changes again, which is work of no request. It is notified before a later answer.
    await broker.cluster_store._watching().exists(LITERAL_CHANGES)
    async with asyncio.timeout(30):
        while broker.cluster_store._acls._is_reading:
            await asyncio.sleep(0.01)


async def test_a_topic_or_group_that_may_not_be_described_is_answered_like_a_missing_one_with_the_same_work(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (broker, peer):
        await with_a_group(broker, peer)
        compared: set[str] = set()
        for message, _ in REFUSED:
            assert message.API_KEY is not None
            api, missing = APIS[message.API_KEY], named(message, OTHERS)
            if missing == message:
                continue
            for version in OWN.answered[api.key]:
                try:
                    written = [
                        bytes(write_request(each, version, correlation_id=1, client_id=""))
                        for each in (message, missing)
                    ]
                except UnsupportedVersionError:
                    continue
                for each in written:  # what is loaded or kept at the first request
                    await peer.exchange(each)
                answers, counts = [], []
                for each in written:
                    measured = []
                    for _ in range(3):
                        with Calls() as calls:
                            answer = await peer.exchange(each)
                        measured.append(calls.counts)
                    answers.append(answer)
                    counts.append(measured[0] & measured[1] & measured[2])  # without the work of timers
                there, gone = (read_response(each[4:], api, version)[1] for each in answers)
                assert named(there, OTHERS) == gone, (api.name, version)
                assert len(answers[0]) == len(answers[1]), (api.name, version)
                assert counts[0] == counts[1], (api.name, version, counts[0] - counts[1], counts[1] - counts[0])
                assert counts[0]
                compared.add(api.name)
        assert len(compared) > 20
