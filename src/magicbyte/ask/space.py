"""Measure what fills log directories: bytes by topic, partition, age, format, codec and batch size, and by key.

Without `contents` only headers are read, and nothing is decompressed. Memory does not grow with the log, only with the
number of partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from magicbyte.ask.contents import Contents
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.headers import Headers, read_headers
from magicbyte.engine.log.files.left_out import why_left_out
from magicbyte.engine.log.files.reader import EVERYTHING, DamageHandler, SegmentReader
from magicbyte.engine.records import layout
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.tools.offline.blocks import read_records
from magicbyte.tools.offline.inventory import EntryCounter, add_up

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.engine.ports import FileEntry
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.tally import OpenTransaction, Tally

Json = dict[str, Any]

_HOUR: Final = 3_600_000
AGES: Final = (0, _HOUR, 24 * _HOUR, 7 * 24 * _HOUR, 30 * 24 * _HOUR, 365 * 24 * _HOUR)
"""Bounds of ages in ms: the first class is in the future, the last one at least a year old."""
BATCH_SIZES: Final = (256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
"""Bounds of sizes of batches in bytes."""
_HEADER_BYTES: Final = np.array((layout.V0_OVERHEAD, layout.V1_OVERHEAD, layout.RECORD_BATCH_OVERHEAD))  # by magic
KINDS: Final = ("indexes", "snapshots", "checkpoints", "leftovers", "orphans", "others")
"""Kinds of files beside the logs of a partition."""


class Amount(Struct):
    """Entries (v2 batches, wrappers, single messages), their bytes and those of their headers."""

    batches: int = 0
    bytes: int = 0
    header_bytes: int = 0

    def add(self, other: Amount) -> None:
        """Add another amount."""
        self.batches += other.batches
        self.bytes += other.bytes
        self.header_bytes += other.header_bytes


class FileAmount(Struct):
    """Files and their bytes."""

    files: int = 0
    bytes: int = 0


class HeldBack(Struct, frozen=True):
    """An open transaction, and the bytes of its log from its first batch on: no cleaner goes past that batch."""

    transaction: OpenTransaction
    bytes: int


class PartitionSpace(Struct):
    """What one partition folder holds. `log_bytes`: of its `.log` files; `beside`: of other files, by kind.

    `entries`: of its logs; `past_retention`: those of them whose records are all older than the retention.
    """

    partition: PartitionDirectory
    tally: Tally
    why_left_out: str | None
    beside: dict[str, FileAmount]
    entries: Amount
    past_retention: Amount
    held_back: list[HeldBack]
    damage: list[CorruptRecordError]

    @property
    def topic(self) -> str:
        """The topic, or the path if nothing names it."""
        return self.partition.topic or self.partition.path

    @property
    def log_bytes(self) -> int:
        """Bytes of the `.log` files."""
        return self.partition.size

    @property
    def bytes(self) -> int:
        """Bytes of all files in the folder."""
        return self.log_bytes + sum(each.bytes for each in self.beside.values())


class SpaceOptions(Struct, frozen=True):
    """How to measure. `now_ms`: the date from which ages count. `retention_ms`: count entries that are older.

    `contents`: decode all records, too. `kept`: how many heavy keys and headers to keep; None: all of them, in memory
    that grows with their number. `delimiters`: bytes, each of which ends the prefix of a key.
    """

    now_ms: int
    dialect: Dialect | None = None
    retention_ms: int | None = None
    contents: bool = False
    kept: int | None = 10_000
    delimiters: bytes = b":/.|"
    limit: int = DEFAULT_MAX_BATCH_BYTES
    threads: int = 1


class Space:
    """What fills some partition folders; `add` measures one more.

    `expected_bytes`: of all folders to come, which decide whether to load compiled kernels.
    """

    def __init__(self, options: SpaceOptions, expected_bytes: int = 0) -> None:
        self.options = options
        self.partitions: list[PartitionSpace] = []
        self.ages = [Amount() for _ in range(len(AGES) + 1)]
        self.undated = Amount()
        self.batch_sizes = [Amount() for _ in range(len(BATCH_SIZES) + 1)]
        self.contents = Contents(options.kept, options.delimiters) if options.contents else None
        self._expected_bytes = expected_bytes

    def add(
        self,
        partition: PartitionDirectory,
        *,
        on_damage: DamageHandler = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Measure a partition folder.

        `on_damage` receives the damage, which may raise; it is in the result, too. `progress` receives read bytes, of
        which there are twice as many with contents.
        """
        options = self.options
        counter = EntryCounter(options.dialect or partition.dialect, deep=False)
        result = PartitionSpace(
            partition, counter.tally, why_left_out(partition), _beside(partition), Amount(), Amount(), [], []
        )

        def damaged(error: CorruptRecordError) -> None:
            result.damage.append(error)
            on_damage(error)

        for segment in partition.segments:
            done = 0
            newest, amount = NO_TIMESTAMP, Amount()
            for block in self._headers(partition, counter.dialect, segment, damaged):
                counter.add(block, None, damaged)
                newest = max(newest, int(block.timestamp.max(initial=NO_TIMESTAMP)))
                amount.add(_amount(block, slice(None)))
                self._add_sizes(block)
                if options.retention_ms is not None:
                    old = (block.timestamp != NO_TIMESTAMP) & (block.timestamp < options.now_ms - options.retention_ms)
                    result.past_retention.add(_amount(block, old))
                progress(block.end - done)
                done = block.end
            progress(segment.log.size - done)
            self._age(newest).add(amount)
            result.entries.add(amount)
        counter.finish()
        result.held_back = [
            HeldBack(each, self._bytes_from(partition, counter.dialect, each.first_offset))
            for each in counter.tally.open_transactions
        ]
        self.partitions.append(result)
        if self.contents is not None:
            self._read_contents(result, counter.dialect, self.contents, on_damage, progress)

    def _headers(
        self, partition: PartitionDirectory, dialect: Dialect, segment: SegmentFiles, on_damage: DamageHandler
    ) -> Iterator[Headers]:
        with partition.files.open(segment.log.path) as file:
            yield from read_headers(
                file,
                dialect=dialect,
                limit=self.options.limit,
                on_damage=on_damage,
                expected_bytes=max(self._expected_bytes, partition.size),
            )

    def _add_sizes(self, block: Headers) -> None:
        which = np.digitize(block.size, BATCH_SIZES)
        for number in np.unique(which).tolist():
            self.batch_sizes[number].add(_amount(block, which == number))

    def _age(self, newest: int) -> Amount:
        return self.undated if newest == NO_TIMESTAMP else self.ages[bisect_right(AGES, self.options.now_ms - newest)]

    def _bytes_from(self, partition: PartitionDirectory, dialect: Dialect, offset: int) -> int:
        """Return the bytes of the entries from an offset on."""
        total = 0
        for segment in SegmentReader(partition, dialect).segments_from(offset):
            for block in self._headers(partition, dialect, segment, lambda _: None):  # damage was reported before
                total += int(block.size[block.last_offset >= offset].sum())
        return total

    def _read_contents(
        self,
        measured: PartitionSpace,
        dialect: Dialect,
        contents: Contents,
        on_damage: DamageHandler,
        progress: Callable[[int], None],
    ) -> None:
        options, known = self.options, {(each.path, each.position) for each in measured.damage}

        def damaged(error: CorruptRecordError) -> None:
            if (error.path, error.position) not in known:  # reported by the walk over headers
                measured.damage.append(error)
                on_damage(error)

        kernel.expect(max(self._expected_bytes, measured.log_bytes))
        log = measured.partition
        begin = log.segments[0].base_offset if log.segments else 0
        end = measured.tally.next_offset if measured.tally.batches else begin
        of_partition = contents.of_partition(measured.topic, begin, end, log.size)
        for columns in read_records(
            SegmentReader(measured.partition, dialect), EVERYTHING, DecodeOptions(limit=options.limit),
            threads=options.threads, on_damage=damaged, progress=progress,
        ):  # fmt: skip
            of_partition.add(columns)
        of_partition.finish()

    # ---- the report

    @property
    def whole(self) -> Tally:
        """The sums of all partitions."""
        return add_up(each.tally for each in self.partitions)

    def topics(self) -> list[TopicSpace]:
        """Return the topics, the largest first."""
        by_name: dict[str, list[PartitionSpace]] = {}
        for each in self.partitions:
            by_name.setdefault(each.topic, []).append(each)
        return sorted(
            (TopicSpace(name, found) for name, found in by_name.items()), key=lambda each: (-each.bytes, each.name)
        )

    def to_json(self, top: int) -> Json:
        """Return the JSON of `magicbyte space`; `top`: partitions, keys, prefixes and headers at most."""
        whole, sizes = self.whole, [0, *BATCH_SIZES]
        largest = sorted(self.partitions, key=lambda each: -each.bytes)
        held_back = [(each, held) for each in self.partitions for held in each.held_back]
        past = self.past_retention
        return {
            "total": {
                "bytes": sum(each.bytes for each in self.partitions),
                "logBytes": sum(each.log_bytes for each in self.partitions),
                "partitions": len(self.partitions),
                "segments": sum(len(each.partition.segments) for each in self.partitions),
                "batches": whole.batches,
                "records": whole.records,
                "minTimestamp": whole.min_batch_timestamp,
                "maxTimestamp": whole.max_timestamp,
                "damage": sum(len(each.damage) for each in self.partitions),
            },
            "topics": [each.to_json() for each in self.topics()],
            "partitions": [_partition_json(each) for each in largest[:top]],
            "formats": whole.to_json()["formats"],
            "ages": [
                {"fromMs": AGES[at - 1] if at else None, "toMs": AGES[at] if at < len(AGES) else None, **_json(amount)}
                for at, amount in enumerate(self.ages)
                if amount.batches
            ]
            + [{"fromMs": None, "toMs": None, **_json(self.undated)}] * bool(self.undated.batches),
            "batchSizes": [
                {"from": sizes[at], "to": BATCH_SIZES[at] if at < len(BATCH_SIZES) else None, **_json(amount)}
                for at, amount in enumerate(self.batch_sizes)
                if amount.batches
            ],
            "beside": [
                {"kind": kind, "files": amount.files, "bytes": amount.bytes}
                for kind, amount in self.beside().items()
                if amount.files
            ],
            "openTransactions": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    **held.transaction.to_json(),
                    "bytes": held.bytes,
                }
                for each, held in held_back
            ],
            "pastRetention": None if past is None else {"retentionMs": self.options.retention_ms, **_json(past)},
            "contents": None if self.contents is None else self.contents.to_json(top),
        }

    @property
    def past_retention(self) -> Amount | None:
        """Entries whose records are all older than the retention time; None without one."""
        if self.options.retention_ms is None:
            return None
        total = Amount()
        for each in self.partitions:
            total.add(each.past_retention)
        return total

    def beside(self) -> dict[str, FileAmount]:
        """Return the files beside the logs by kind."""
        return {kind: _sum([each.beside[kind] for each in self.partitions]) for kind in KINDS}


class TopicSpace(Struct, frozen=True):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[PartitionSpace]

    @property
    def bytes(self) -> int:
        """Bytes of all their files."""
        return sum(each.bytes for each in self.partitions)

    @property
    def tally(self) -> Tally:
        """The sums of their tallies."""
        return add_up(each.tally for each in self.partitions)

    def to_json(self) -> Json:
        """Return the topic as in `Space.to_json`."""
        tally = self.tally
        return {
            "topic": self.name,
            "bytes": self.bytes,
            "logBytes": sum(each.log_bytes for each in self.partitions),
            "partitions": len(self.partitions),
            "segments": sum(len(each.partition.segments) for each in self.partitions),
            "batches": tally.batches,
            "records": tally.records,
            "minTimestamp": tally.min_batch_timestamp,
            "maxTimestamp": tally.max_timestamp,
            "formats": tally.to_json()["formats"],
        }


def _partition_json(measured: PartitionSpace) -> Json:
    partition, tally = measured.partition, measured.tally
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "path": partition.path,
        "leftOut": measured.why_left_out,
        "bytes": measured.bytes,
        "logBytes": measured.log_bytes,
        "segments": len(partition.segments),
        "batches": tally.batches,
        "records": tally.records,
        "damage": [each.to_json() for each in measured.damage],
    }


def _json(amount: Amount) -> Json:
    return {"batches": amount.batches, "bytes": amount.bytes, "headerBytes": amount.header_bytes}


def _sum(files: Sequence[FileAmount]) -> FileAmount:
    return FileAmount(sum(each.files for each in files), sum(each.bytes for each in files))


def _amount(block: Headers, rows: Any) -> Amount:
    sizes = block.size[rows]
    return Amount(len(sizes), int(sizes.sum()), int(_HEADER_BYTES[block.magic[rows]].sum()))


def _beside(partition: PartitionDirectory) -> dict[str, FileAmount]:
    files: dict[str, Iterable[FileEntry]] = {
        "indexes": [each for segment in partition.segments for each in segment.companions.values()],
        "snapshots": partition.snapshots.values(),
        "checkpoints": partition.texts.values(),
        "leftovers": partition.leftovers,
        "orphans": partition.orphans,
        "others": partition.others,
    }
    return {kind: _sum([FileAmount(1, each.size) for each in files[kind]]) for kind in KINDS}
