"""Copy partitions with identical offsets and bytes, including gaps, markers and aborted batches, as followers do.

The copy itself holds the progress: its end is the next offset to read at the source. So nothing is duplicated, whatever
fails. docs/decisions/0009 describes how our brokers store such sets.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final, Protocol

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send_made
from magicbyte.access.client.source import Source
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode, MirrorError
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.records.layout import CONTROL_BIT, ENRICHED_CONTROL_BIT, Dialect
from magicbyte.engine.records.scan import BatchTable
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.plan import Choice, TopicMirrorPlan, make_topics, plan, plan_folder
from magicbyte.tools.mirror.progress import Book, Lane, MirrorPlace
from magicbyte.tools.mirror.rewrite import behind_all
from magicbyte.tools.mirror.rounds import Copy, HasCopied, Rounds

SAVE_BYTES: Final = 64 << 20  # copied between two syncs


class Replica(Protocol):
    """The copy of a partition."""

    wanted: TopicMirrorPlan
    partition: int

    async def end(self) -> int:
        """Return its end offset. Raises MirrorError if it is not a copy of this source."""

    async def append(self, found: ClosedSets) -> None:
        """Append sets unchanged."""

    async def start_at(self, offset: int) -> None:
        """Start the copy at an offset: records below it were deleted at the source."""

    async def keep(self) -> None:
        """Sync the log."""


class FolderReplica:
    """A copy in a log directory of this machine."""

    def __init__(self, wanted: TopicMirrorPlan, partition: int, target: LogTarget) -> None:
        self.wanted = wanted
        self.partition = partition
        self._target = target
        self._log: PartitionLog | None = None

    async def _opened(self) -> PartitionLog:
        if self._log is None:
            wanted, known = self.wanted, self.wanted.origin.topic_id
            topic_id = None if known is None else uuid.UUID(known)
            self._log = await asyncio.to_thread(self._target.log, wanted.to, self.partition, topic_id, wanted.dialect)
        return self._log

    async def end(self) -> int:
        """Return its end offset. Raises MirrorError for the log of a topic with another id."""
        return (await self._opened()).log_end_offset

    async def append(self, found: ClosedSets) -> None:
        """Append sets unchanged, in a thread. Raises CorruptRecordError, LogDirectoryOfflineError."""
        await asyncio.to_thread(self._target.append, await self._opened(), found.data)

    async def start_at(self, offset: int) -> None:
        """Start the log at an offset."""
        await asyncio.to_thread((await self._opened()).delete_records, offset)

    async def keep(self) -> None:
        """Sync the log."""
        await asyncio.to_thread(self._target.flush, await self._opened())


class TopicReplica:
    """A copy in a topic of our brokers that stores sets with their offsets (`mirror.identical`)."""

    def __init__(self, wanted: TopicMirrorPlan, partition: int, target: Client, group: str) -> None:
        self.wanted = wanted
        self.partition = partition
        self._target = target
        self._group = group
        self._kept: int | None = None

    @property
    def _book(self) -> Book:
        return Book(self._group, self.wanted.to, self.partition)

    async def end(self) -> int:
        """Return its end offset. Raises MirrorError if others wrote to it, or if it is a copy of another source."""
        _, end = await bounds(self._target, self.wanted.to, self.partition)
        if self._kept is None:
            known, what = await self._book.load(self._target, 0), f"{self.wanted.name}-{self.partition}"
            if known is not None:
                self.wanted.origin.check(known.origin, what, self._group)
            elif end:
                raise MirrorError(
                    f"{what}: the target holds records already, and group {self._group} has no progress of a mirror"
                )
            await self._save(end)
        return end

    async def append(self, sets: ClosedSets) -> None:
        """Append sets unchanged. Raises BrokerError and NetworkError."""
        try:
            await send_made(self._target, self.wanted.to, self.partition, sets.data, 2, Codec.NONE)
        except BrokerError as error:
            # A set that was resent after a lost response may have been stored before.
            _, end = await bounds(self._target, self.wanted.to, self.partition)
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or end < behind_all(sets):
                raise

    async def start_at(self, offset: int) -> None:
        """Start the partition at an offset, unless it is compacted: then the offsets below are a gap."""
        try:
            await admin.delete_records(self._target, self.wanted.to, self.partition, offset)
        except BrokerError as error:
            if error.code is not ErrorCode.POLICY_VIOLATION:
                raise

    async def keep(self) -> None:
        """Commit the progress of the copy in the mirror's group, where it can be seen."""
        _, end = await bounds(self._target, self.wanted.to, self.partition)
        if end != self._kept:
            await self._save(end)

    async def _save(self, end: int) -> None:
        self._kept = end
        await self._book.save(self._target, MirrorPlace(end, {self.partition: Lane(end)}, self.wanted.origin))


def count_sets(copied: Copied, table: BatchTable, size: int) -> None:
    """Count copied entries of `size` bytes and their records, control records left out."""
    copied.closed_sets += len(table)
    copied.closed_bytes += size
    bit = ENRICHED_CONTROL_BIT if table.dialect is Dialect.ENRICHED else 0
    for row in range(len(table)):
        records = int(table.count[row])
        if records < 0:
            copied.uncounted += 1
        elif not table.attributes[row] & (CONTROL_BIT if table.magic[row] == 2 else bit):
            copied.records += records


class IdenticalCopier:
    """Copy a partition in rounds; `copied` grows meanwhile. Setting `stop` ends it after the current sets."""

    def __init__(self, source: Source, replica: Replica, stop: asyncio.Event, copied: Copied) -> None:
        self.copied = copied
        self._source = source
        self.replica = replica
        self._stop = stop

    async def catch_up(self) -> None:
        """Copy what the source has now.

        Raises MirrorError if the copy is not one of this source, CorruptRecordError for damage there, BrokerError,
        NetworkError, LogDirectoryOfflineError.
        """
        what = f"{self.replica.wanted.name}-{self.replica.partition}"
        start, end = await bounds(self._source, self.replica.wanted.name, self.replica.partition)
        at = await self.replica.end()
        if at > end:
            raise MirrorError(f"{what}: at offset {at} of a source that ends at {end}: was it recreated?")
        if at:
            self.copied.lost += max(start - at, 0)
        try:
            await self._copy(max(at, start), start, end, is_first=not at)
        except CorruptRecordError as error:
            error.locate(path=what)
            raise
        await self.replica.keep()

    async def _copy(self, at: int, start: int, end: int, *, is_first: bool) -> None:
        """Copy from the offset `at` on. `start` is the log start offset of the source."""
        wanted, unsaved = self.replica.wanted, 0
        options = FetchOptions(dialect=wanted.dialect)
        self.copied.lag = end - at
        async for sets in read_sets(self._source, wanted.name, self.replica.partition, at, end, options):
            if not len(sets.table):
                continue
            await self.replica.append(sets)
            if is_first and start:
                await self.replica.start_at(start)
            is_first, unsaved = False, unsaved + len(sets.data)
            count_sets(self.copied, sets.table, len(sets.data))
            self.copied.lag = max(end - behind_all(sets), 0)
            if unsaved >= SAVE_BYTES:
                await self.replica.keep()
                unsaved = 0
            if self._stop.is_set():
                return


class IdenticalMirror(Rounds):
    """Copy topics with identical offsets and bytes, to a magicbyte cluster or into a local log directory."""

    def __init__(self, source: Source, target: Client | LogTarget, choice: Choice) -> None:
        super().__init__(source)
        self._target = target
        self._choice = choice
        self._copiers: dict[tuple[str, int], IdenticalCopier] = {}

    async def plan(self) -> list[TopicMirrorPlan]:
        """Return what would be done, without changes. Raises as `plan` and `plan_folder` of plan.py do."""
        if isinstance(self._target, LogTarget):
            return await plan_folder(self._source, self._target.path, self._choice)
        return await plan(self._source, self._target, self._choice)

    async def _made(self) -> list[TopicMirrorPlan]:
        if isinstance(self._target, LogTarget):
            return await self.plan()
        return await make_topics(self._target, self.plan, self.stop)

    def _begun(self, _: asyncio.TaskGroup) -> Copy:
        async def copy(wanted: TopicMirrorPlan, partition: int) -> None:
            key = wanted.name, partition
            before = self._copiers.get(key)
            if before is None or before.replica.wanted.origin != wanted.origin:
                replica = self._replica(wanted, partition)
                copied = Copied() if before is None else before.copied
                self._copiers[key] = IdenticalCopier(self._source, replica, self.stop, copied)
            await self._copiers[key].catch_up()

        return copy

    def _replica(self, wanted: TopicMirrorPlan, partition: int) -> Replica:
        if isinstance(self._target, LogTarget):
            return FolderReplica(wanted, partition, self._target)
        return TopicReplica(wanted, partition, self._target, self._choice.group)

    def _each(self) -> Mapping[tuple[str, int], HasCopied]:
        return self._copiers
