"""The receipt of a rescue: for each partition counts, a digest of its records, and all losses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.digest import NOTHING, Digest, hash_records
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    from magicbyte.access.client.source import Source
    from magicbyte.engine.log.files.missing import Missing
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.tools.mirror.group_sync import GroupOffset
    from magicbyte.tools.offline.salvage import SalvageReport
    from magicbyte.tools.rescue.backup import BackupReplica, Omission
    from magicbyte.tools.rescue.kraft import KraftReceipt

_COUNTED = DecodeOptions(keys=False, values=False, headers=False)


@dataclass(slots=True)
class RecordsSeen:
    """A summary of the records of a partition that a `read_committed` consumer receives, in order.

    `digest` depends on the order but not on offsets, which change in the new cluster. `oldest`: the lowest timestamp,
    None if no record has one. `aborted`: number of records of aborted transactions.
    """

    digest: Digest = NOTHING
    oldest: int | None = None
    aborted: int = 0


async def records_seen(
    source: Source,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    committed: bool = True,
    progress: Callable[[int], None] = lambda _: None,
    size: int = 0,
) -> RecordsSeen:
    """Read the records between two offsets. `committed`: the source supports transactions.

    `progress` receives `size`, the bytes of the partition, in proportion to the offsets read. Raises
    CorruptRecordError, BrokerError and NetworkError.
    """
    seen, reported = RecordsSeen(), 0
    options = FetchOptions(committed=committed)
    async for columns in read_records(source, topic, partition, start, end, options):
        hashes = hash_records(columns)
        first = seen.digest.records
        hashes.offset = np.arange(first, first + len(hashes), dtype=np.int64)
        seen.digest = seen.digest.plus(hashes.digest())
        times = hashes.timestamp[hashes.timestamp != NO_TIMESTAMP]
        if len(times):
            seen.oldest = int(times.min() if seen.oldest is None else min(seen.oldest, times.min()))
        if len(columns):
            reached = size * (int(columns.offset[-1]) + 1 - start) // (end - start)
            progress(reached - reported)
            reported = reached
    progress(size - reported)
    return seen


async def count_records(source: Source, topic: str, partition: int, start: int, end: int) -> int:
    """Return the number of records between two offsets, including aborted ones."""
    pieces = read_records(source, topic, partition, start, end, decoding=_COUNTED)
    return sum([len(columns) async for columns in pieces])


@dataclass(slots=True)
class RescuedPartition:
    """The result for one partition. `error`: the reason if none of it is at the target.

    `whole`: the sound records. `written`: the records read back from the target, None if they were not.
    """

    name: TopicPartition
    source: str
    size: int
    salvage: SalvageReport
    replicas: list[BackupReplica] = field(default_factory=list)
    whole: RecordsSeen = field(default_factory=RecordsSeen)
    written: RecordsSeen | None = None
    error: str | None = None

    @property
    def is_same(self) -> bool:
        """Whether the records read back are the sound ones, or none were read back."""
        return self.error is None and (self.written is None or self.written.digest == self.whole.digest)

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost, and the target has all records."""
        return self.is_same and not self.salvage.lost and not self.salvage.aside

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of a partition in `magicbyte rescue --json`."""
        return {
            "partition": str(self.name),
            "source": self.source,
            "replicas": [replica._asdict() for replica in self.replicas],
            "bytesIn": self.size,
            "bytesWhole": self.salvage.bytes,
            **self.whole.digest.to_json(),
            "aborted": self.whole.aborted,
            "atTarget": None if self.written is None else self.written.digest.to_json(),
            "same": self.is_same,
            "error": self.error,
            "movedBack": self.salvage.moved,
            "endedTransactions": self.salvage.ended_transactions,
            "lost": [each.to_json() for each in self.salvage.lost],
            "leftOut": [each.to_json() for each in self.salvage.aside],
        }


@dataclass(slots=True)
class RescueReceipt:
    """The result for a backup. `archive`: damage of the archive. `plans`: of a dry run, a line per topic.

    `left_out` and `groups_left_out`: partitions and groups that are not at the target, with reasons. `missing`:
    partitions absent from the backup, below others of their topics. `gaps`: what checkpoints and other files prove to
    be missing. `kept_groups`: groups whose offsets are in the new directory unchanged. `is_of_cluster`: the target is a
    cluster, which gets the offsets of groups, but not the records that hold them. `kraft`: what was done for a KRaft
    node, if the target is its directory.
    """

    backup: str
    to: str
    is_dry: bool
    is_of_cluster: bool = False
    partitions: list[RescuedPartition] = field(default_factory=list)
    archive: list[str] = field(default_factory=list)
    missing: list[TopicPartition] = field(default_factory=list)
    left_out: dict[str, Omission] = field(default_factory=dict)
    gaps: list[Missing] = field(default_factory=list)
    groups: list[GroupOffset] = field(default_factory=list)
    groups_left_out: dict[str, str] = field(default_factory=dict)
    kept_groups: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    kraft: KraftReceipt | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything in the backup was sound, and is at the target."""
        left_out = any(omission.is_loss for omission in self.left_out.values())
        differ = any(replica.differing for each in self.partitions for replica in each.replicas)
        found_all = not self.archive and not left_out and not any(gap.is_loss for gap in self.gaps) and not differ
        return found_all and all(each.is_complete for each in self.partitions)

    @property
    def rescued(self) -> list[RescuedPartition]:
        """The partitions whose records are at the target."""
        return [
            each
            for each in self.partitions
            if each.error is None and not (self.is_of_cluster and each.name.topic == OFFSETS_TOPIC)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the output of `magicbyte rescue --json`."""
        return {
            "backup": self.backup,
            "to": self.to,
            "dryRun": self.is_dry,
            "complete": self.is_complete,
            "records": sum(each.whole.digest.records for each in self.rescued),
            "partitions": [group.to_json() for group in self.partitions],
            "archive": self.archive,
            "missing": list(map(str, self.missing)),
            "gaps": [gap.to_json() for gap in self.gaps],
            "leftOut": {name: omission.why for name, omission in self.left_out.items()},
            "groups": [
                {
                    "group": group.group,
                    "partition": "{}-{}".format(*group.source),
                    "offset": group.offset,
                    "atTarget": group.translation.offset,
                    "exact": group.translation.exact,
                }
                for group in self.groups
            ],
            "groupsLeftOut": self.groups_left_out,
            "groupsKept": self.kept_groups,
            "plans": self.plans,
            "kraft": None if self.kraft is None else self.kraft.to_json(),
        }
