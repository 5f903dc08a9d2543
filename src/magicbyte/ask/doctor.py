"""Examine log directories: damage, gaps, growth and what causes it, formats, clocks, open transactions; with advice.

Each diagnosis has its evidence, and a command or a setting as a remedy. Records are not decoded. The rules for
damage, missing parts and ignored folders are those of `verify`.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from magicbyte.ask.space import Amount, HeldBack, PartitionSpace, Space, SpaceOptions, TopicSpace
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.internal_topics import COMPACTED
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.gaps import gaps_of
from magicbyte.engine.log.files.partitions import choose
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import time_text
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.tools.offline.findings import COPY, DELETE, NOTHING, REBUILD, SALVAGE, WAIT, Severity, of_missing
from magicbyte.tools.offline.inventory import CompanionCheck

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import FoundLogs, PartitionDirectory
    from magicbyte.engine.log.files.missing import Missing
    from magicbyte.engine.records.layout import Dialect

Json = dict[str, Any]

_HOUR_MS: Final = 3_600_000
_DIRTY_RATIO: Final = 0.5  # Kafka's default of min.cleanable.dirty.ratio
_SKEW: Final = 4  # times the median of a topic's partitions
_SMALL_BATCHES, _HEADER_SHARE = 1000, 0.2
_NAMED: Final = 3  # of many
_RANK: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Diagnosis(Struct, frozen=True):
    """A condition of a log directory: `kind` names it, `what` says it, `evidence` shows it, `advice` is the remedy.

    `where`: a partition or a path. `bytes`: how many it concerns, 0 if it concerns none or that is not known.
    """

    severity: Severity
    kind: str
    where: str
    what: str
    evidence: str
    advice: str
    bytes: int = 0

    def to_json(self) -> Json:
        """Return it as printed by `magicbyte doctor --format json`."""
        return {
            "severity": self.severity.value,
            "kind": self.kind,
            "where": self.where,
            "what": self.what,
            "evidence": self.evidence,
            "advice": self.advice,
            "bytes": self.bytes,
        }


class DoctorOptions(Struct, frozen=True):
    """How to examine. `now_ms`: the date. `min_bytes`: less growth or skew than this is not worth a diagnosis."""

    now_ms: int
    topics: Sequence[str] = ()
    dialect: Dialect | None = None
    min_bytes: int = 64 << 20
    limit: int = DEFAULT_MAX_BATCH_BYTES


def examine(
    logs: FoundLogs, options: DoctorOptions, progress: Callable[[int], None] = lambda _: None
) -> list[Diagnosis]:
    """Return the diagnoses of log directories, the gravest first, and of equal ones those with the most bytes first.

    `progress` receives the bytes of segments that were read. Raises UnknownTopicError.
    """
    partitions = choose(logs.partitions, options.topics)
    space = Space(
        SpaceOptions(now_ms=options.now_ms, dialect=options.dialect, limit=options.limit),
        sum(each.size for each in partitions),
    )
    diagnoses = [*_of_gaps(logs, options), *_of_checkpoints(logs)]
    for partition in partitions:
        space.add(partition, progress=progress)
        diagnoses += _of_partition(space.partitions[-1], options)
    diagnoses += _of_cleaning(logs, space.partitions, options)
    topics = space.topics()
    diagnoses += [*_of_formats(topics), *_of_small_batches(topics), *_of_skew(topics, options)]
    diagnoses += _of_shutdown(logs)
    return sorted(diagnoses, key=lambda each: (_RANK[each.severity], -each.bytes, each.kind, each.where))


# ---- folders


def _of_gaps(logs: FoundLogs, options: DoctorOptions) -> Iterator[Diagnosis]:
    gaps = gaps_of(logs, options.topics)
    alike: dict[tuple[str, Severity, str], list[Missing]] = {}
    for missing in gaps.missing:
        key = missing.path.rpartition("/")[0], of_missing(missing).severity, missing.what
        alike.setdefault(key, []).append(missing)
    for (folder_path, severity, _), group in alike.items():
        first = group[0]
        evidence = f"expected {first.expected}, found {first.found}"
        evidence = evidence if first.evidence is None else f"{evidence}; {first.evidence}"
        names = ", ".join(each.path.rpartition("/")[2] for each in group[:_NAMED])
        yield Diagnosis(
            severity,
            "missing",
            first.path if len(group) == 1 else folder_path,
            f"{first.what} is missing: {first.cause}",
            evidence if len(group) == 1 else f"{len(group)} of them, such as {names}; of the first: {evidence}",
            COPY if first.may_have_records else NOTHING,
        )
    for folder in gaps.left_out:
        if folder.partition.state.value == "current":
            continue  # the quorum's own log
        advice = "no other folder has these records: check it with `magicbyte verify`, then keep or delete it"
        yield Diagnosis(
            Severity.WARNING if folder.is_only_copy else Severity.NOTE,
            "ignored folder",
            folder.partition.path,
            f"brokers ignore this folder: {folder.why}",
            f"the name of the folder, and {len(folder.partition.segments)} segments in it",
            advice if folder.is_only_copy else DELETE,
            folder.partition.size,
        )


def _of_checkpoints(logs: FoundLogs) -> Iterator[Diagnosis]:
    for directory in logs.directories:
        for name in checkpoints.OFFSET_CHECKPOINTS:
            try:
                directory.offsets(name)
            except CorruptRecordError as error:
                yield Diagnosis(
                    Severity.WARNING,
                    "damaged checkpoint",
                    directory.path,
                    f"{name} is damaged: {error.what}",
                    f"{error.path}: expected {error.expected}, found {error.found}",
                    "nothing: a broker makes it again, after it checked all segments or cleaned from the start",
                )


def _of_shutdown(logs: FoundLogs) -> Iterator[Diagnosis]:
    for directory in logs.directories:
        if checkpoints.RECOVERY_POINT in directory.texts and checkpoints.CLEAN_SHUTDOWN not in directory.texts:
            yield Diagnosis(
                Severity.NOTE,
                "unclean shutdown",
                directory.path,
                "the broker runs, or was killed: at its next start it checks the last segments of all partitions",
                f"no {checkpoints.CLEAN_SHUTDOWN}",
                "nothing if it runs; else a long start with many partitions: raise num.recovery.threads.per.data.dir",
            )


# ---- one partition


def _of_partition(measured: PartitionSpace, options: DoctorOptions) -> Iterator[Diagnosis]:
    partition = measured.partition
    yield from _of_damage(measured)
    yield from _of_other_files(measured)
    if partition.state.value != "current":
        return
    yield from _of_transactions(measured, options)
    yield from _of_clock(measured, options)


def _of_damage(measured: PartitionSpace) -> Iterator[Diagnosis]:
    for error in measured.damage:
        offsets = "" if error.offsets is None else f", offsets {error.offsets[0]}..{error.offsets[1]}"
        yield Diagnosis(
            Severity.ERROR,
            "damage",
            measured.partition.name,
            f"a log is damaged: {error.what}",
            f"{error.path}, position {error.position}{offsets}: expected {error.expected}, found {error.found}",
            SALVAGE,
        )
    beside: list[CorruptRecordError] = []
    check = CompanionCheck(measured.partition, beside)
    check.indexes()
    check.beside()
    for error in beside:
        yield Diagnosis(
            Severity.WARNING,
            "damaged index",
            measured.partition.name,
            f"a file beside the log is damaged: {error.what}",
            f"{error.path}: expected {error.expected}, found {error.found}",
            REBUILD,
        )


def _of_other_files(measured: PartitionSpace) -> Iterator[Diagnosis]:
    partition = measured.partition
    for kind, files, what, advice in (
        ("leftovers", partition.leftovers, "a broker left work unfinished", WAIT),
        ("orphans", partition.orphans, "index files have no .log file", DELETE),
        ("foreign files", partition.others, "files that are not Kafka's", "move them elsewhere: they take space"),
    ):
        if files:
            names = ", ".join(sorted(each.name for each in files)[:3])
            size = sum(each.size for each in files)
            yield Diagnosis(
                Severity.NOTE, kind, partition.name, what, f"{len(files)} files, such as {names}", advice, size
            )


def _of_transactions(measured: PartitionSpace, options: DoctorOptions) -> Iterator[Diagnosis]:
    for held in measured.held_back:
        transaction = held.transaction
        if options.now_ms - transaction.last_timestamp < _HOUR_MS:
            continue  # in progress: longer than transaction.max.timeout.ms, 15 minutes by default, none should be
        yield Diagnosis(
            Severity.ERROR,
            "hanging transaction",
            measured.partition.name,
            "a transaction has no end: consumers with read_committed wait before it, and no cleaner goes past it",
            f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}, from offset "
            f"{transaction.first_offset}; last written {time_text(transaction.last_timestamp)}",
            "in a running cluster `magicbyte transactions find-hanging`, then `abort`; `magicbyte convert` writes a "
            "copy for a new cluster, in which it is ended",
            held.bytes,
        )


def _of_clock(measured: PartitionSpace, options: DoctorOptions) -> Iterator[Diagnosis]:
    newest = measured.tally.max_timestamp
    if newest is not None and newest > options.now_ms + _HOUR_MS:
        yield Diagnosis(
            Severity.WARNING,
            "future timestamps",
            measured.partition.name,
            "records are dated in the future: retention keeps their segments until that date has passed",
            f"the newest record is of {time_text(newest)}",
            "correct the producer's clock, and bound timestamps by message.timestamp.after.max.ms (before 3.6: "
            "message.timestamp.difference.max.ms); retention.bytes frees the space",
            measured.log_bytes,
        )


# ---- several partitions


def _of_formats(topics: Sequence[TopicSpace]) -> Iterator[Diagnosis]:
    for topic in topics:
        tally = topic.tally
        old = {name: count for name, count in tally.formats.items() if name[0] < 2}
        if old:
            names = ", ".join(sorted({f"v{magic}" for magic, _ in old}))
            yield Diagnosis(
                Severity.NOTE,
                "old format",
                topic.name,
                f"batches are in formats that Kafka 4 does not write: {names}",
                f"{sum(each.batches for each in old.values())} of {tally.batches} batches",
                "`magicbyte convert --to v2` writes a log in the present format",
                sum(each.bytes for each in old.values()),
            )


def _of_small_batches(topics: Sequence[TopicSpace]) -> Iterator[Diagnosis]:
    for topic in topics:
        amount = Amount()
        for measured in topic.partitions:
            amount.add(measured.entries)
        if amount.batches >= _SMALL_BATCHES and amount.header_bytes >= _HEADER_SHARE * amount.bytes:
            yield Diagnosis(
                Severity.NOTE,
                "small batches",
                topic.name,
                "batches are so small that their headers take much of the space",
                f"{amount.batches} batches of {amount.bytes // amount.batches} bytes on average; headers are "
                f"{100 * amount.header_bytes // amount.bytes}% of all bytes",
                "linger.ms and batch.size of the producer; a compression.type saves more with larger batches",
                amount.header_bytes,
            )


def _of_cleaning(logs: FoundLogs, partitions: Sequence[PartitionSpace], options: DoctorOptions) -> Iterator[Diagnosis]:
    """Yield the compacted partitions whose cleaner stands still, with the cause if the log shows it."""
    cleaned: dict[str, dict[TopicPartition, int]] = {}
    for directory in logs.directories:
        with contextlib.suppress(CorruptRecordError):  # `_of_checkpoints` reports it
            cleaned[directory.path] = directory.offsets(checkpoints.CLEANER) or {}
    for measured in partitions:
        partition = measured.partition
        if partition.topic is None or partition.partition is None or partition.state.value != "current":
            continue
        key = TopicPartition(partition.topic, partition.partition)
        offset = cleaned.get(partition.log_directory or "", {}).get(key)
        if offset is None and partition.topic not in COMPACTED:
            continue
        closed = partition.segments[:-1]  # the active segment is never cleaned
        dirty = sum(each.log.size for each in closed if each.base_offset >= (offset or 0))
        total = sum(each.log.size for each in closed)
        if dirty < max(options.min_bytes, _DIRTY_RATIO * total, 1):
            continue
        cause, severity = _why_not_cleaned(measured, partition, offset or 0)
        at = "never" if offset is None else f"up to offset {offset}"
        yield Diagnosis(
            severity,
            "not cleaned",
            partition.name,
            "the log grows because the cleaner does not compact it",
            f"cleaned {at}, although {100 * dirty // total}% of its closed segments are dirty; {cause}",
            "remove the cause and restart the broker, whose log-cleaner.log names the partition; "
            "`magicbyte compact` compacts a stopped broker's log",
            dirty,
        )


def _why_not_cleaned(measured: PartitionSpace, partition: PartitionDirectory, dirty: int) -> tuple[str, Severity]:
    last_closed = partition.segments[-1].base_offset
    for error in measured.damage:
        return f"damage at {error.path}, position {error.position}", Severity.ERROR
    held: HeldBack | None = min(measured.held_back, key=lambda each: each.transaction.first_offset, default=None)
    if held is not None and dirty <= held.transaction.first_offset < last_closed:
        transaction = held.transaction
        return f"producer {transaction.producer_id} has an open transaction from offset {transaction.first_offset}", (
            Severity.ERROR
        )
    return "the log shows no cause: the cleaner was off, or its thread had ended", Severity.WARNING


def _of_skew(topics: Sequence[TopicSpace], options: DoctorOptions) -> Iterator[Diagnosis]:
    for topic in topics:
        largest = max(topic.partitions, key=lambda each: each.log_bytes)
        others = [each.log_bytes for each in topic.partitions if each is not largest]
        if len(others) < 2 or topic.name in COMPACTED:
            continue
        median = statistics.median(others)
        if largest.log_bytes >= max(options.min_bytes, _SKEW * median):
            yield Diagnosis(
                Severity.NOTE,
                "skew",
                largest.partition.name,
                "one partition is much larger than the others of its topic: few keys have most of the bytes",
                f"{largest.log_bytes} bytes, the median of the others is {median:.0f}",
                "`magicbyte space --deep` names the heaviest keys",
                largest.log_bytes,
            )
