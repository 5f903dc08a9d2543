"""Write batches of rows to a cluster, exactly once: each in one transaction together with the batch's number.

Workers stage closed sets. The driver sends them in a transaction that also commits the number, as the offset of a group
that belongs to the writer. A batch with a committed number is skipped. See docs/decisions/0010-writing-rows.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.ports import TopicPartition
from magicbyte.spark.log_sink import WORK, Staged, check_staged, remove_staged
from magicbyte.spark.options import credentials_of

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.access.client.transactions import TransactionalProducer
    from magicbyte.engine.protocol.message import Records
    from magicbyte.engine.records.batch import RecordBatch
    from magicbyte.engine.records.encode import BatchHeader

SENDS_AT_ONCE: Final = 16
"""Partitions that are sent to in parallel, each with a chunk of a file in memory."""


@dataclass(frozen=True, slots=True)
class TransactionSink:
    """A cluster as a sink; it connects for each commit. `staging`: a folder shared by all workers and the driver.

    `security`: client settings of a secured cluster.
    """

    bootstrap: str
    transactional_id: str
    timeout_ms: int
    staging: Path
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    def folder(self, writer: str) -> Path:
        """Return the folder in which a writer's tasks stage their output."""
        return self.staging / WORK / writer

    def give_up(self, writer: str) -> None:
        """Delete the staged output of a writer's tasks."""
        shutil.rmtree(self.folder(writer), ignore_errors=True)
        with contextlib.suppress(OSError):  # other writers have folders in it
            (self.staging / WORK).rmdir()

    def group(self, writer: str) -> str:
        """Return the group whose committed offset is the number of a writer's next batch."""
        return f"{self.transactional_id}-{writer}"

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises UnknownTopicError, NetworkError."""

        async def ask() -> int:
            from magicbyte.access.client import Client

            async with Client(self.bootstrap, security=credentials_of(self.security)) as client:
                return len((await client.existing_topic(topic)).partitions)

        return asyncio.run(ask())

    def commit(self, writer: str, batch: int | None, staged: Sequence[Staged]) -> None:
        """Send staged sets in one transaction, unless this batch of the writer is committed already.

        `batch` None: the commit is not repeated. The transaction of a commit whose query was killed is fenced first, so
        it is committed or aborted before the batch number is read. Raises BrokerError, NetworkError,
        UnknownOutcomeError, UnsupportedVersionError for brokers before 2.5, and LogDirectoryError for missing staged
        files.
        """
        if not staged or asyncio.run(self._commit(writer, batch, staged)):
            self.give_up(writer)
        else:
            remove_staged(staged)  # keep those of the attempt that committed it: it may be at the next batch

    async def _commit(self, writer: str, batch: int | None, staged: Sequence[Staged]) -> bool:
        """Return whether this call committed the batch; False if it was committed before."""
        from magicbyte.access.client import Client
        from magicbyte.access.client.groups import Committed
        from magicbyte.access.client.transactions import TransactionalProducer

        async with Client(self.bootstrap, security=credentials_of(self.security)) as client:
            producer = await TransactionalProducer.begin(client, self.transactional_id, timeout_ms=self.timeout_ms)
            if batch is not None and await _is_committed(client, self.group(writer), batch):
                return False
            check_staged(staged)
            async with producer.transaction():
                await _send(producer, staged)
                if batch is not None:
                    places = {(each.topic, 0): Committed(batch + 1) for each in staged}
                    await producer.commit_offsets(self.group(writer), places)
            return True


async def _is_committed(client: Client, group: str, batch: int) -> bool:
    from magicbyte.access.client.groups import committed_offsets

    found = await committed_offsets(client, group, None, stable=True)
    return any(each.offset > batch for each in found.values())


async def _send(producer: TransactionalProducer, staged: Sequence[Staged]) -> None:
    """Send all files, those of a partition in order."""
    from magicbyte.tools.mirror.rounds import first_of

    files: dict[TopicPartition, list[Staged]] = {}
    for each in staged:
        files.setdefault(TopicPartition(each.topic, each.partition), []).append(each)
    turns = asyncio.Semaphore(SENDS_AT_ONCE)

    async def send(key: TopicPartition, parts: list[Staged]) -> None:
        async with turns:
            for each in parts:
                await _send_file(producer, key, each.path)

    try:
        async with asyncio.TaskGroup() as tasks:
            for key, parts in files.items():
                tasks.create_task(send(key, parts))
    except ExceptionGroup as errors:
        raise first_of(errors) from None


async def _send_file(producer: TransactionalProducer, key: TopicPartition, path: str) -> None:
    from magicbyte.engine.records.batch import RecordBatch

    with LocalFile(path) as file:
        for chunk in read_chunks(file):
            for row in range(len(chunk.table)):
                at = int(chunk.table.position[row])
                batch = RecordBatch.parse(chunk.table.buffer[at : at + int(chunk.table.size[row])])
                assert batch is not None, "the scan found all of it"
                await _send_batch(producer, key, batch)


async def _send_batch(producer: TransactionalProducer, key: TopicPartition, batch: RecordBatch) -> None:
    from magicbyte.tools.mirror.rewrite import ProducerIdentity, closed_batch

    def make(header: BatchHeader) -> tuple[Records, int]:
        identity = ProducerIdentity(header.producer_id, header.producer_epoch, header.base_sequence)
        return closed_batch(batch, identity, transactional=True), batch.record_count

    await producer.send_made(*key, make, batch.codec)
