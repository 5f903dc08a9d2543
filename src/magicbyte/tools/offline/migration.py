"""The progress of logs between two message formats: stored formats, clients' formats, the next step, and the time when
the older format will be gone.

Sources: KIP-31, "Migration Plan" (phase 1: the old format on disk, phase 2: the new one), and Kafka's retention.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.headers import read_headers
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format

if TYPE_CHECKING:
    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.headers import Headers
    from magicbyte.engine.log.live.config import LogConfig

_CODECS: Final = 8  # the values of three bits


def format_read_by(fetch_version: int) -> Format:
    """Return the newest format that a consumer understands, by its version of Fetch."""
    return Format.V0 if fetch_version < 2 else Format.V1 if fetch_version < 4 else Format.V2


# ---- stored formats


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """Entries of one format and codec in a log."""

    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts from the headers of a segment. Times in ms: of its first entry, and the newest of all.

    Without timestamps, the modification time of the file; -1 if that is unknown, on remote file systems.
    """

    size: int
    first_ms: int
    newest_ms: int
    stored: Mapping[tuple[Format, Codec], StoredEntries]

    def has_older_than(self, target: Format) -> bool:
        """Return whether it has entries of an older format."""
        return any(form.magic < target.magic for form, _ in self.stored)


def segment_facts(partition: PartitionDirectory) -> list[SegmentFacts]:
    """Return the facts of a log's segments, from headers only. Damage is skipped."""
    facts, expected_bytes = [], partition.size  # computed once, because it sums all segments
    for segment in partition.segments:
        tally, first, newest = np.zeros((2, 3 * _CODECS), np.int64), -1, -1
        with partition.files.open(segment.log.path) as file:
            for block in read_headers(
                file,
                dialect=partition.dialect,
                limit=DEFAULT_MAX_BATCH_BYTES,
                on_damage=_pass_over,
                expected_bytes=expected_bytes,
            ):
                kinds = block.magic * _CODECS + block.codec
                tally[0] += np.bincount(kinds, minlength=3 * _CODECS)
                tally[1] += np.bincount(kinds, block.size, minlength=3 * _CODECS).astype(np.int64)
                times = _timestamps(block)
                if len(times):
                    first = int(times[0]) if first < 0 else first
                    newest = max(newest, int(times.max()))
        modified = -1
        if newest < 0 and isinstance(partition.files, LocalFiles):
            modified = partition.files.modified_ms(segment.log.path)
        stored = {
            (Format(str(kind // _CODECS)), Codec(kind % _CODECS)): StoredEntries(
                int(tally[0, kind]), int(tally[1, kind])
            )
            for kind in np.flatnonzero(tally[0]).tolist()
        }
        facts.append(SegmentFacts(segment.log.size, max(first, modified), max(newest, modified), stored))
    return facts


def _pass_over(_: CorruptRecordError) -> None:
    """Ignore damage, which `inventory` and `verify` report."""


def _timestamps(block: Headers) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the largest timestamp of each entry that has one."""
    fields, magic = block.fields, block.magic
    times = np.where(magic == Format.V2.magic, fields["max_timestamp"], fields["message_timestamp"]).astype(np.int64)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = times[(magic > 0) & (times >= 0)]
    return found


# ---- expiration of the old format


def leaves_ms(
    segments: Sequence[SegmentFacts], target: Format, config: LogConfig, *, now_ms: int, bytes_per_s: float
) -> int | None:
    """Return when retention deletes the last segment with an older format than `target`, ms since 1970.

    `bytes_per_s`: the future write rate of the log, all of it in `target`, with current timestamps. An active segment
    stays until it is rolled, by size or age. 0 if no older format is stored, None if retention never deletes it. A
    broker checks every `log.retention.check.interval.ms`.
    """
    last = max((at for at, each in enumerate(segments) if each.has_older_than(target)), default=-1)
    if last < 0:
        return 0
    if not config.delete or any(each.newest_ms < 0 for each in segments[: last + 1]):
        return None
    due = now_ms
    for at in range(last + 1):
        one = _due_ms(segments, at, config, now_ms, bytes_per_s)
        if one is None:
            return None
        due = max(due, one)
    return due


def _due_ms(
    segments: Sequence[SegmentFacts], at: int, config: LogConfig, now_ms: int, bytes_per_s: float
) -> int | None:
    """Return when one segment is due, after those before it."""
    segment, is_active = segments[at], at + 1 == len(segments)
    newest, ended = segment.newest_ms, now_ms
    behind: float = sum(each.size for each in segments[at + 1 :])
    if is_active and bytes_per_s > 0:
        full = now_ms + max(config.segment_bytes - segment.size, 0) / bytes_per_s * 1000
        aged = segment.first_ms + config.roll_ms
        newest = ended = max(now_ms, int(min(full, aged)))
    due = []
    if config.retention_ms >= 0:
        due.append(max(newest + config.retention_ms + 1, now_ms))
    if config.retention_bytes >= 0 and (behind >= config.retention_bytes or bytes_per_s > 0):
        missing = max(config.retention_bytes - behind, 0)
        due.append(ended + int(missing / bytes_per_s * 1000) if missing else now_ms)
    return min(due, default=None)


# ---- the next step


class Phase(enum.Enum):
    """The format in which new records are stored."""

    UNKNOWN = "not known"
    ONE = "phase 1"
    TWO = "phase 2"
    DONE = "done"


class Step(enum.Enum):
    """The next step of the migration. Those that begin with "see" find out what a further step depends on."""

    UPGRADE_CONSUMERS = "upgrade consumers"
    SEE_FORMAT = "see which message.format.version it has"
    SEE_CONSUMERS = "see that consumers read the format"
    SEE_BROKERS = "see that every broker is ready for the format"
    SET_FORMAT = "set message.format.version"
    UPGRADE_PRODUCERS = "upgrade producers"
    SEE_RETENTION = "see whether retention deletes the older records"
    WAIT = "wait for retention"
    CONVERT = "convert the stored records"
    SEE_STORED = "see which formats every partition stores"
    SEE_CLIENTS = "see that no client uses an older format"
    NOTHING = "nothing"


SEE: Final = frozenset(step for step in Step if step.value.startswith("see "))
"""The steps that find something out, and change nothing."""


@dataclass(frozen=True, slots=True)
class Use:
    """A kind of client of a topic: the newest format that it reads, or the one that it sends.

    `request_version` is of Fetch or Produce. Counts cover `seconds`: `converted` records got another format; `bytes`
    are those that a producer sent, or the stored size of those that a consumer got. `closed_sets` and `closed_bytes`
    show the batching: sets of a producer; slices of a consumer that gets the stored format.
    """

    is_consumer: bool
    format: Format
    request_version: int
    client_id: str
    software: str
    seconds: float
    bytes: float
    records: float
    converted: float
    closed_sets: float
    closed_bytes: float

    @property
    def bytes_per_s(self) -> float:
        """The rate of `bytes`."""
        return self.bytes / self.seconds

    @property
    def records_per_s(self) -> float:
        """The rate of `records`; 0 for consumers without conversion, whose records are not counted."""
        return self.records / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "is": "consumer" if self.is_consumer else "producer",
            "clientId": self.client_id,
            "software": self.software or None,
            "format": self.format.value,
            "requestVersion": self.request_version,
            "bytesPerSecond": round(self.bytes_per_s, 1),
            "recordsPerSecond": round(self.records_per_s, 1),
            "recordsConverted": self.converted,
        }


@dataclass(frozen=True, slots=True)
class TopicStage:
    """A topic's progress towards `target`, and the next step. `who`: the clients concerned by the step."""

    target: Format
    phase: Phase
    step: Step
    who: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicEvidence:
    """The facts about a topic that are known, of those that a step depends on.

    `format`: its `message.format.version`. Without it, the newest stored format shows only what was once set.
    `clients`: all clients; without it, only those that were seen. `brokers`: that every broker is ready for the target.
    `stored`: the formats in all its partitions. `leaves`: whether retention deletes old records, None if unknown.
    """

    format: bool = True
    clients: bool = True
    brokers: bool = True
    stored: bool = True
    leaves: bool | None = True


ALL_KNOWN: Final = TopicEvidence()


def stage_of(
    configured: Format | None,
    stored: Iterable[Format],
    uses: Sequence[Use],
    target: Format | None = None,
    known: TopicEvidence = ALL_KNOWN,
) -> TopicStage:
    """Return the progress of a topic. `target`: None for the configured format while older data is stored, else the
    next one. `configured`: None if neither the setting nor any stored record shows it.

    The order is that of KIP-31: consumers first, then the setting, because producers lose nothing by it; producers of
    the old format, and stored data in it, come last. A step that depends on something unknown is to find it out.
    """
    stored = list(stored)
    if target is None:
        target = _next_target(configured, stored, uses)
    behind = [each for each in uses if each.format.magic < target.magic]
    consumers = tuple(each for each in behind if each.is_consumer)
    producers = tuple(each for each in behind if not each.is_consumer)
    phase = Phase.UNKNOWN if configured is None else Phase.ONE if configured.magic < target.magic else Phase.TWO
    if consumers:
        return TopicStage(target, phase, Step.UPGRADE_CONSUMERS, consumers)
    if phase is not Phase.TWO:
        step = (
            Step.SEE_FORMAT if phase is Phase.UNKNOWN
            else Step.SEE_CONSUMERS if not known.clients
            else Step.SEE_BROKERS if not known.brokers
            else Step.SET_FORMAT
        )  # fmt: skip
        return TopicStage(target, phase, step)
    if producers:
        return TopicStage(target, phase, Step.UPGRADE_PRODUCERS, producers)
    if any(form.magic < target.magic for form in stored):
        step = Step.SEE_RETENTION if known.leaves is None else Step.WAIT if known.leaves else Step.CONVERT
        return TopicStage(target, phase, step)
    missing = (
        Step.SEE_FORMAT if not known.format
        else Step.SEE_STORED if not known.stored
        else Step.SEE_CLIENTS if not known.clients
        else None
    )  # fmt: skip
    return TopicStage(target, Phase.DONE, Step.NOTHING) if missing is None else TopicStage(target, phase, missing)


def _next_target(configured: Format | None, stored: Sequence[Format], uses: Sequence[Use]) -> Format:
    if configured is None:
        return KAFKA_FORMATS[-1]
    is_behind = any(form.magic < configured.magic for form in (*stored, *(each.format for each in uses)))
    return configured if is_behind or configured is Format.V2 else KAFKA_FORMATS[configured.magic + 1]
