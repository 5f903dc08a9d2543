"""Topics of running clusters as sources and targets of pipelines, by the functions of `magicbyte mirror`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.settings import client_arguments
from magicbyte.engine.errors import UnknownTopicError, UnsupportedVersionError
from magicbyte.engine.log.files.directory import PartitionDirectory
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.names import FolderState
from magicbyte.engine.records.layout import Dialect
from magicbyte.spark.pipeline.config import PipelineSource, PipelineTarget, matches
from magicbyte.tools.mirror.copier import Copied, PartitionCopier
from magicbyte.tools.mirror.log_source import LogSource
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.outbox import Outboxes
from magicbyte.tools.mirror.plan import INTERNAL, TopicMirrorPlan
from magicbyte.tools.mirror.rounds import first_of
from magicbyte.tools.mirror.route import Route
from magicbyte.tools.mirror.transactional import TransactionalCopier

Json = dict[str, Any]
_CLEANUP = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Live:
    """A partition of a cluster, with its offsets at look-up.

    `compacts`: whether its topic has cleanup.policy=compact. `settings`: of the client.
    """

    bootstrap: str
    topic: str
    partition: int
    topic_id: uuid.UUID | None
    first: int
    end: int
    compacts: bool
    dialect: Dialect
    settings: Mapping[str, str] = field(repr=False)

    def client(self) -> Client:
        """Return a client of the cluster. Raises InvalidConfigError."""
        return Client(self.bootstrap, **client_arguments(self.settings))

    def directory(self) -> PartitionDirectory:
        """Return the partition as an empty folder, for the functions that plan."""
        return PartitionDirectory(
            f"kafka://{self.bootstrap}/{self.topic}-{self.partition}", LocalFiles(), self.topic, self.partition,
            FolderState.CURRENT, self.dialect, None, (), {}, {}, (), (), (),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aim:
    """The target topic of a partition, with its mirror plan."""

    target: PipelineTarget
    plan: TopicMirrorPlan
    has_map: bool


def client_of_target(target: PipelineTarget) -> Client:
    """Return a client of the target cluster. Raises InvalidConfigError."""
    return Client(target.bootstrap, **client_arguments(target.client))


def look_up(source: PipelineSource) -> list[Live]:
    """Return the partitions of a source cluster. Raises UnknownTopicError, BrokerError, NetworkError."""
    return asyncio.run(_looked_up(source))


async def _looked_up(source: PipelineSource) -> list[Live]:
    assert source.bootstrap is not None
    live = []
    async with Client(source.bootstrap, **client_arguments(source.client)) as client:
        topics = await client.topics()
        for pattern in source.topics:
            if not any(matches(name, (pattern,)) for name in topics):
                raise UnknownTopicError(f"{source.bootstrap}: no topic {pattern!r}")
        for name, topic in sorted(topics.items()):
            if not matches(name, source.topics) if source.topics else topic.is_internal or name in INTERNAL:
                continue
            compacts = await _compacts(client, name)
            for number in sorted(topic.partitions):
                if not source.partitions or number in source.partitions:
                    ends, dialect = await bounds(client, name, number), source.dialect or Dialect.KAFKA
                    live.append(Live(source.bootstrap, name, number, topic.id, *ends, compacts, dialect, source.client))
    return live


async def _compacts(client: Client, topic: str) -> bool:
    """Return whether a topic is compacted. False for clusters before 0.11, where it cannot be asked."""
    try:
        policy = (await admin.describe_configs(client, admin.ConfigResource.TOPIC, topic)).get(_CLEANUP)
    except UnsupportedVersionError:
        return False
    return policy is not None and "compact" in (policy.value or "")


# ---- in workers


def fetch(live: Live, folder: Path) -> int:
    """Copy a partition into a new log directory, with the same offsets and bytes. Return the number of bytes.

    Raises CorruptRecordError for sets with a wrong checksum, OffsetOutOfRangeError, BrokerError, NetworkError.
    """

    async def copied(target: LogTarget) -> int:
        log, size = target.log(live.topic, live.partition, live.topic_id, live.dialect), 0
        async with live.client() as client:
            options = FetchOptions(dialect=live.dialect, ahead=True)
            async for found in read_sets(client, live.topic, live.partition, live.first, live.end, options):
                size += target.append(log, found.data)
        if live.first > log.log_start_offset:
            log.delete_records(min(live.first, log.log_end_offset))
        return size

    with LogTarget(folder) as target:
        return asyncio.run(copied(target))


def send(aim: Aim, partition: int, source: Live | PartitionDirectory) -> Json:
    """Copy a partition to its topic, as closed sets where possible. Return the counts of the copy.

    Continues from the committed offset of the mirror's group. With transactions, an earlier copy is fenced first.
    Raises MirrorError, CorruptRecordError, BrokerError, NetworkError.
    """
    copied = asyncio.run(_sent(aim, partition, source))
    return {name: getattr(copied, name) for name in ("closed_bytes", "opened_bytes", "records", "lost")}


async def _sent(aim: Aim, partition: int, source: Live | PartitionDirectory) -> Copied:
    wanted, copied = aim.plan, Copied()
    transactional_id = wanted.transactional_id(aim.target.transactional_id, partition)
    here: Client | LogSource = source.client() if isinstance(source, Live) else LogSource([source])
    async with here, client_of_target(aim.target) as there:
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
    """The temporary folders of a partition that is sent to a cluster. They are deleted at the end."""

    folders: list[Path] = field(default_factory=list)

    def begin(self) -> Path:
        """Create a temporary folder."""
        self.folders.append(Path(tempfile.mkdtemp(prefix="magicbyte-")))
        return self.folders[-1]

    def commit(self, found: Json) -> Json:
        """Delete the folders: the records are in the cluster."""
        self.give_up()
        return found

    def committed(self) -> Json | None:
        """Return None: the only record of a finished partition is its progress in the cluster."""
        return None

    def give_up(self) -> None:
        """Delete the folders."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
