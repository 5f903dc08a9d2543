"""The last step into a cluster: mirror each topic from files, commit the groups' offsets, and read all records back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from magicbyte.access.client import admin
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.tools.mirror.log_source import LogSource
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice, Mode
from magicbyte.tools.mirror.progress import Book
from magicbyte.tools.rescue.groups import StoredGroups, write_stored_groups
from magicbyte.tools.rescue.receipt import RescuedPartition, RescueReceipt, records_seen

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import TopicPartition

RESCUE_GROUP: Final = "magicbyte-rescue"
Topics = Mapping[str, list[RescuedPartition]]
Steps = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Begins a step, given its name and size in bytes. Yields a callback for the bytes done."""
_LOOK_SECONDS: Final = 0.2  # between two reports of progress


async def planned(target: Client, names: Iterable[TopicPartition]) -> list[str]:
    """Return the plan of a rescue, a line per topic. Nothing is written.

    Raises MirrorError for a topic whose number of partitions at the target differs, BrokerError, NetworkError.
    """
    counts: dict[str, int] = {}
    for each in names:
        counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
    async with target:
        known, lines = await target.topics(), []
        for name, count in counts.items():
            there = known.get(name)
            partitions = f"{count} partition{'' if count == 1 else 's'}"
            if there is None:
                lines.append(f"{name}: will be created at the target with {partitions}")
                continue
            if len(there.partitions) != count:
                raise MirrorError(
                    f"{name}: expected {partitions} at the target, as in the backup, found {len(there.partitions)}: "
                    "delete the topic there, and rescue creates it"
                )
            held = [number for number in there.partitions if (await bounds(target, name, number))[1]]
            told = "holds records" if held else "is empty"
            lines.append(f"{name}: is at the target with {partitions}, and {told}")
    return lines


async def produce_all(
    target: Client,
    topics: Topics,
    staged: Mapping[str, list[PartitionDirectory]],
    groups: StoredGroups,
    receipt: RescueReceipt,
    steps: Steps,
) -> None:
    """Copy the topics and the groups' offsets, then read back and add the digests to the receipt.

    An interrupted copy is continued. Raises MirrorError for a topic with other content at the target, BrokerError and
    NetworkError.
    """
    async with target:
        sources = {name: LogSource(staged[name], _identity(partitions)) for name, partitions in topics.items()}
        known = await target.topics()
        if (await target.versions()).latest(APIS[ApiKey.DESCRIBE_CONFIGS]) is not None:
            for name, partitions in topics.items():
                if name in known:
                    await _check_kept(target, name, partitions)
        size = sum(each.size for folders in staged.values() for each in folders)
        with steps("produce", size) as advance:
            for name, source in sources.items():
                await _copy(target, name, source, advance)
        if groups:
            counts = {name: _count(partitions) for name, partitions in topics.items()}
            synced = await write_stored_groups(target, RESCUE_GROUP, groups, counts)
            receipt.groups, receipt.groups_left_out = synced.written, receipt.groups_left_out | synced.left_out
        with steps("read back", size) as advance:
            await _read_back(target, topics, advance)


def _count(partitions: list[RescuedPartition]) -> int:
    return max(each.name.partition for each in partitions) + 1


def _identity(partitions: list[RescuedPartition]) -> str:
    """Return an identity for a topic of this backup that does not depend on the backup's path."""
    told: list[Any] = [[str(each.name), *each.whole.digest] for each in partitions]
    return f"backup-{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]}"


async def _check_kept(target: Client, name: str, partitions: list[RescuedPartition]) -> None:
    """Raise MirrorError if retention at the target would delete the copied records at once."""
    setting = (await admin.describe_configs(target, admin.ConfigResource.TOPIC, name)).get("retention.ms")
    retention = -1 if setting is None or setting.value is None else int(setting.value)
    times = [each.whole.oldest for each in partitions if each.whole.oldest is not None]
    today_ms = target.clock.now_ms()
    if retention >= 0 and times and min(times) + retention < today_ms:
        raise MirrorError(
            f"{name}: the target deletes records after {retention} ms, and those of the backup are older: "
            f"set retention.ms=-1 first (magicbyte configs set --topic {name} retention.ms=-1)"
        )


async def _copy(target: Client, name: str, source: LogSource, advance: Callable[[int], None]) -> None:
    """Copy the records of a topic that are not at the target yet."""
    mirror = Mirror(source, target, Choice(re.compile(re.escape(name)), RESCUE_GROUP, append_time=True))
    for each in await mirror.plan():
        if each.mode in (Mode.KEYED, Mode.LEFT_OUT):
            raise MirrorError(f"{name}: expected a topic with {each.partitions} partitions at the target: {each.why}")
    copying, done = asyncio.create_task(mirror.catch_up()), 0
    try:
        while not copying.done():
            await asyncio.wait([copying], timeout=_LOOK_SECONDS)
            now = sum(each.closed_bytes + each.opened_bytes for each in mirror.copied().values())
            advance(now - done)
            done = now
    finally:
        copying.cancel()
    await copying


async def _read_back(target: Client, topics: Topics, advance: Callable[[int], None]) -> None:
    """Read the records back from the target, and compute their digests."""
    committed = (await target.versions()).reads_committed
    for name, partitions in topics.items():
        for partition in partitions:
            place = await Book(RESCUE_GROUP, name, partition.name.partition).load(target, 1)
            assert place is not None, "it is kept before the first set is sent"
            start, _ = await bounds(target, *partition.name)
            end = place.lanes[partition.name.partition].target
            partition.written = await records_seen(
                target, *partition.name, start, end, committed=committed, progress=advance, size=partition.salvage.bytes
            )
