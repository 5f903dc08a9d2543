"""Compact one log with many workers: each writes some of the segments that the log cleaner would write one by one.

The log cleaner groups adjacent segments by size before it begins, so its groups are known at once. From group to group
it carries the state of transactions. The transaction indexes show which transaction an offset belongs to. Producers
with a batch before a group follow from the effect of each segment (`Passage`), which is computed together with the
marks. The output replaces the groups by the log's own swap.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.log.cleaning.cleaned_transactions import CleanedTransactions
from magicbyte.engine.log.cleaning.compaction import Compaction, CompactionReport
from magicbyte.engine.log.cleaning.compaction_sets import SetFilter
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.health import Health
from magicbyte.engine.log.files.open_files import bounded
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.log.live.loading import Loaded
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.log.live.segment import Segment
from magicbyte.engine.log.live.segment_names import CLEANED
from magicbyte.engine.ports import Moment
from magicbyte.tools.offline.compact import CompactOptions, exchange, looked_at

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.cleaned_transactions import Passage
    from magicbyte.engine.log.cleaning.compaction import CleanableOffsets
    from magicbyte.engine.log.cleaning.compaction_sets import Rules
    from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.live.config import LogConfig


class SegmentGroup(Struct, frozen=True):
    """Segments of the log in `folder` that become one, with the necessary state of the others. It can be pickled.

    `segments`: base, and whether its old-format deletes must be kept; `end` is the base after them. `size` in bytes;
    `modified_ms`: modification time of the last one. `rules` has the producers whose last batch may be in it. `seen`
    and `committed` are those of CleanedTransactions; `aborted` are overlapping transactions.
    """

    folder: str
    config: LogConfig
    options: CompactOptions
    selection: CleanableOffsets
    segments: tuple[tuple[int, bool], ...]
    end: int
    size: int
    modified_ms: int
    rules: Rules
    aborted: tuple[AbortedTransaction, ...] = ()
    seen: frozenset[int] = frozenset()
    committed: frozenset[int] = frozenset()

    @property
    def base_offset(self) -> int:
        """That of the resulting segment."""
        return self.segments[0][0]


class WrittenGroup(Struct, frozen=True):
    """The segment written for a group, with its indexes, alone in `folder`. `report`: as if there were no others."""

    folder: str
    report: CompactionReport


def plan_groups(
    partition: PartitionDirectory, options: CompactOptions, passages: Iterable[Passage]
) -> list[SegmentGroup] | None:
    """Return the groups of a log with marks; None if aborted transactions do not end where its indexes say.

    Such a log is compacted as a whole. `passages` are those of its cleanable segments. Raises CorruptRecordError.
    """
    with looked_at(partition, options) as (log, selection):
        compaction = Compaction(
            log,
            selection,
            options.config,
            now=Moment.fixed(options.now_ms),
            secret=options.secret,
            marks=options.marks,
        )
        end, rules = selection.first_uncleanable, compaction.rules()
        sources = compaction.sources(end)
        retains_deletes = compaction.retains_deletes(sources)
        parts = list(compaction.groups(sources))
        groups = [
            SegmentGroup(
                log.folder,
                log.config,
                replace(options, marks=None),
                selection,
                tuple((each.base_offset, retains_deletes[each.base_offset]) for each in group),
                behind,
                sum(each.size for each in group),
                log.files.modified_ms(group[-1].path(LOG)),
                _rules_of(rules, group[0].base_offset, behind),
            )
            for group, behind in zip(parts, [*(each[0].base_offset for each in parts[1:]), end], strict=True)
        ]
        aborted = compaction.aborted(sources, end, trusts_indexes=True)  # which the passages then prove or refute
        return _with_transactions(groups, aborted, passages)


def _rules_of(rules: Rules, first: int, end: int) -> Rules:
    """Return the rules with the producers whose last batch may be in a group."""
    producers = {
        number: each
        for number, each in rules.producers.items()
        if each.last_offset < 0 or first <= each.last_offset < end
    }
    return replace(rules, producers=producers)


def _with_transactions(
    groups: Sequence[SegmentGroup], aborted: Iterable[AbortedTransaction], passages: Iterable[Passage]
) -> list[SegmentGroup] | None:
    """Return the groups, each with the state of transactions before it."""
    planned, ways = [], iter(passages)
    seen, committed = frozenset[int](), frozenset[int]()
    for group, known in zip(groups, overlapping([group.base_offset for group in groups], aborted), strict=True):
        planned.append(replace(group, aborted=known, seen=seen, committed=committed))
        for _ in group.segments:
            passage = next(ways)
            if not passage.fits:
                return None
            seen, committed = passage.behind(seen, committed)
    return planned


def overlapping(bases: Sequence[int], aborted: Iterable[AbortedTransaction]) -> list[tuple[AbortedTransaction, ...]]:
    """Return the overlapping transactions for each of the pieces of a log that begin at `bases`, ascending."""
    found: list[list[AbortedTransaction]] = [[] for _ in bases]
    for each in aborted:
        begin = max(bisect.bisect_right(bases, each.first_offset) - 1, 0)
        for at in range(begin, bisect.bisect_right(bases, each.last_offset)):
            found[at].append(each)
    return [tuple(each) for each in found]


@contextlib.contextmanager
def some_segments(
    folder: str, bases: Iterable[int], end: int, config: LogConfig, *, into: str | None = None
) -> Iterator[PartitionLog]:
    """Yield some segments of a log as if there were no others, without their indexes; new ones are made in `into`.

    `bases` and `end`, the base after the last one, are offsets. Raises OSError for a missing segment.
    """
    into = folder if into is None else into
    files = bounded(LocalFiles(), health := Health(into))
    loaded = Loaded([], end, config.rules.producer_states(), LeaderEpochs())
    try:
        for base in bases:
            loaded.segments.append(Segment.of_log(files, folder, base, config))
        yield PartitionLog(files, into, config, loaded, health, lambda: None, lambda _most: 0)
    finally:
        for segment in loaded.segments:  # including new ones
            segment.release()


def write_group(group: SegmentGroup, marks: OffsetMarks, folder: str) -> WrittenGroup:
    """Write the segment for a group into the new `folder`; the group is unchanged.

    Raises CorruptRecordError for unreadable data, LogDirectoryOfflineError.
    """
    LocalFiles().make_directory(folder)
    bases = [base for base, _ in group.segments]
    with some_segments(group.folder, bases, group.end, group.config, into=folder) as log:
        sources, options = list(log.segments), group.options
        compaction = Compaction(
            log,
            group.selection,
            options.config,
            now=Moment.fixed(options.now_ms),
            secret=options.secret,
            marks=marks,
        )
        transactions = CleanedTransactions(group.seen, group.committed)
        transactions.add_aborted(group.aborted)
        sets, report = SetFilter(marks, group.rules, transactions), compaction.report
        for _ in compaction.write(sources, sets, dict(group.segments), beside_ms=group.modified_ms):
            pass
        report.dropped, report.records = sets.dropped, sets.records_seen
        return WrittenGroup(folder, report)


def join_groups(
    partition: PartitionDirectory, options: CompactOptions, written: Iterable[WrittenGroup]
) -> CompactionReport:
    """Replace all groups of a log by the written segments, and return the report that one worker would return.

    A repetition after a crash has the same result. Raises LogDirectoryError, CorruptRecordError.
    """
    assert options.marks is not None
    report = CompactionReport(0, options.marks.latest + 1, keys=options.marks.keys)

    def put(log: PartitionLog) -> int:
        for each in written:
            _put_group(log, each, Moment.fixed(options.now_ms))
            report.first_dirty = each.report.first_dirty
            report.add(each.report)
        return report.end_offset

    exchange(partition, options, put)
    return report


def _put_group(log: PartitionLog, written: WrittenGroup, now: Moment) -> None:
    (bases,) = written.report.groups
    for path in sorted(Path(written.folder).iterdir()):
        target = Path(log.folder, f"{path.name}{CLEANED}")
        target.unlink(missing_ok=True)
        target.hardlink_to(path)
    segment = Segment.of_log(log.files, log.folder, bases[0], log.config, suffix=CLEANED)
    segment.open_indexes()
    log.replace([each for each in log.segments if each.base_offset in bases], segment, now)
