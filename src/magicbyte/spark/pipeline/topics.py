"""Topics of live clusters as sources and sinks of pipelines: with the functions of `magicbyte mirror`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magicbyte.client import Client, admin
from magicbyte.client.fetch import FetchOptions, read_sets
from magicbyte.client.offsets import bounds
from magicbyte.errors import UnknownTopicError
from magicbyte.log.files.directory import PartitionDirectory
from magicbyte.log.files.filesystem import LocalFiles
from magicbyte.log.files.names import FolderState
from magicbyte.mirror.copier import Copied, PartitionCopier
from magicbyte.mirror.log_source import LogSource
from magicbyte.mirror.log_target import LogTarget
from magicbyte.mirror.outbox import Outboxes
from magicbyte.mirror.plan import INTERNAL, TopicMirrorPlan
from magicbyte.mirror.rounds import first_of
from magicbyte.mirror.route import Route
from magicbyte.mirror.transactional import TransactionalCopier
from magicbyte.records.layout import Dialect
from magicbyte.spark.pipeline.config import PipelineSource, PipelineTarget, matches

Json = dict[str, Any]
_CLEANUP = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Live:
    """A partition of a cluster, with the offsets that it had when it was looked up. `compacts`: as its topic says."""

    bootstrap: str
    topic: str
    partition: int
    topic_id: uuid.UUID | None
    first: int
    end: int
    compacts: bool
    dialect: Dialect

    def directory(self) -> PartitionDirectory:
        """Return the partition as if it were a folder, of which nothing is there yet."""
        return PartitionDirectory(
            f"kafka://{self.bootstrap}/{self.topic}-{self.partition}", LocalFiles(), self.topic, self.partition,
            FolderState.CURRENT, self.dialect, None, (), {}, {}, (), (), (),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aim:
    """The topic of a cluster that a partition goes to, as the mirror's plan says."""

    target: PipelineTarget
    plan: TopicMirrorPlan
    has_map: bool


def look_up(source: PipelineSource) -> list[Live]:
    """Return the partitions of a source that is a cluster. Raises UnknownTopicError, BrokerError, NetworkError."""
    return asyncio.run(_looked_up(source))


async def _looked_up(source: PipelineSource) -> list[Live]:
    assert source.bootstrap is not None
    found = []
    async with Client(source.bootstrap) as client:
        topics = await client.topics()
        for pattern in source.topics:
            if not any(matches(name, (pattern,)) for name in topics):
                raise UnknownTopicError(f"{source.bootstrap}: no topic {pattern!r}")
        for name, topic in sorted(topics.items()):
            if not matches(name, source.topics) if source.topics else topic.is_internal or name in INTERNAL:
                continue
            policy = (await admin.describe_configs(client, admin.ConfigResource.TOPIC, name)).get(_CLEANUP)
            compacts = policy is not None and "compact" in (policy.value or "")
            for number in sorted(topic.partitions):
                if not source.partitions or number in source.partitions:
                    ends, dialect = await bounds(client, name, number), source.dialect or Dialect.KAFKA
                    found.append(Live(source.bootstrap, name, number, topic.id, *ends, compacts, dialect))
    return found


# ---- in workers


def fetch(live: Live, folder: Path) -> int:
    """Copy a partition, offsets and bytes as they are, into a new log directory; return how many bytes there were.

    Raises CorruptRecordError for sets that fail their checksum, OffsetOutOfRangeError, BrokerError, NetworkError.
    """

    async def copied(target: LogTarget) -> int:
        log, size = target.log(live.topic, live.partition, live.topic_id, live.dialect), 0
        async with Client(live.bootstrap) as client:
            options = FetchOptions(dialect=live.dialect, ahead=True)
            async for found in read_sets(client, live.topic, live.partition, live.first, live.end, options):
                size += target.append(log, found.data)
        if live.first > log.log_start_offset:
            log.delete_records(min(live.first, log.log_end_offset))
        return size

    with LogTarget(folder) as target:
        return asyncio.run(copied(target))


def send(aim: Aim, partition: int, source: Live | PartitionDirectory) -> Json:
    """Copy a partition to its topic, closed wherever it can be, and return what was copied.

    A copy goes on where the mirror's group says that the last one stopped. In transactions it fences that one first.
    Raises MirrorError, CorruptRecordError, BrokerError, NetworkError.
    """
    copied = asyncio.run(_sent(aim, partition, source))
    return {name: getattr(copied, name) for name in ("closed_bytes", "opened_bytes", "records", "lost")}


async def _sent(aim: Aim, partition: int, source: Live | PartitionDirectory) -> Copied:
    wanted, copied = aim.plan, Copied()
    transactional_id = wanted.transactional_id(aim.target.transactional_id, partition)
    here: Client | LogSource = Client(source.bootstrap) if isinstance(source, Live) else LogSource([source])
    async with here, Client(aim.target.bootstrap) as there:
        route = Route(
            here, there, wanted.name, partition, aim.target.group, wanted.storage,
            committed=wanted.committed, once=wanted.once and transactional_id is None, to=wanted.to,
            origin=wanted.origin, partitions=wanted.partitions, dialect=wanted.dialect, has_map=aim.has_map,
            transactional_id=transactional_id,
        )  # fmt: skip
        if transactional_id is not None:
            await TransactionalCopier(route, asyncio.Event(), copied).catch_up()
            return copied
        try:
            async with asyncio.TaskGroup() as tasks:
                await PartitionCopier(route, asyncio.Event(), copied).catch_up(Outboxes(there, tasks))
        except ExceptionGroup as errors:
            raise first_of(errors) from None
    return copied


@dataclass(frozen=True, slots=True)
class ScratchPlace:
    """Where a task puts what its stages make of a partition that goes to a cluster. Nothing of it is kept."""

    folders: list[Path] = field(default_factory=list)

    def begin(self) -> Path:
        """Make a folder."""
        self.folders.append(Path(tempfile.mkdtemp(prefix="magicbyte-")))
        return self.folders[-1]

    def commit(self, found: Json) -> Json:
        """Remove what was made: it is in the cluster."""
        self.give_up()
        return found

    def committed(self) -> Json | None:
        """Return None: nothing tells that a partition is in the cluster but its own progress there."""
        return None

    def give_up(self) -> None:
        """Remove what was made."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
