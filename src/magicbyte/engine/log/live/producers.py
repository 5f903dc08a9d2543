"""The producers of a log: the state kept in snapshots, and the checks of a leader.

Invariants:
1. The state is that of the records below the log end offset: `take` follows the write of each batch, in the same
   thread. `_states` is the part that snapshots have, `_checks` the last five batches of each producer, and pending
   guards.
2. A roll makes the snapshot at the new base offset durable before the new segment is part of the log. A snapshot has
   the state before its offset, so a state is made from the newest valid one and the batches after it.
3. A truncation rebuilds the state, and removes all guards.
4. `first_unstable_offset` and guards may be used while another thread writes. All else is for the thread that changes
   the log, or the holder of the partition's lock.

A crash loses nothing: the last two snapshots remain, and a damaged one is passed over (`test_partition_log.py`, check
32).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.append.producer_check import ProducerChecks
from magicbyte.engine.log.files.directory import SNAPSHOT, parse_file
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.files.producer_state import REMEMBERED
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.log.live.segment_names import snapshot_offsets
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.sentinels import NO_SEQUENCE

if TYPE_CHECKING:
    from magicbyte.engine.log.append.producer_check import Guard
    from magicbyte.engine.log.files.producer_state import AppendedBatch, ProducerStates
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.log.live.segment import Segment
    from magicbyte.engine.log.live.segment_indexes import LiveIndexes
    from magicbyte.engine.ports import WritableFileSystem
    from magicbyte.engine.records.batch import RecordBatch
    from magicbyte.engine.records.scan import BatchTable


class LogProducers:
    """The producers of an open log, and their snapshots in its folder. `states`: as of the log's end."""

    def __init__(self, files: WritableFileSystem, folder: str, config: LogConfig, states: ProducerStates) -> None:
        self._files, self._folder, self._config = files, folder, config
        self.start_from(states)

    def start_from(self, states: ProducerStates) -> None:
        """Replace all state."""
        # marker and first offset of ended transactions, until all replicas have the marker
        self._ended = deque[tuple[int, int]]()
        self._last_marker = -1  # the last of these markers: usually all replicas have it, and no search is needed
        self._states, self._checks = states, ProducerChecks()
        self._checks.start_from(states.snapshot(), states.recent_batches)

    def snapshot(self) -> ProducerSnapshot:
        """Return the state as a `.snapshot` file has it, by producer id."""
        return self._states.snapshot()

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest transaction that is open, or whose marker is above the high
        watermark.
        """
        begins = list[int]()
        if self._last_marker >= high_watermark:
            # copied, because a thread appends to it
            begins += [begin for marker, begin in tuple(self._ended) if marker >= high_watermark]
        if (opened := self._states.first_unstable_offset) is not None:
            begins.append(opened)
        return min(begins, default=None)

    def guard(self, producer_id: int, epoch: int, sequence: int, *, joins: bool) -> Guard:
        """Return the guard for the first records of a transaction, which are refused until the coordinator has verified
        it.

        Returns OPEN if the transaction is open already.
        """
        return self._checks.guard(producer_id, epoch, sequence, joins=joins)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of this epoch is open."""
        return self._checks.is_open(producer_id, epoch)

    def check(self, batch: RecordBatch, guard: Guard | None) -> AppendedBatch | None:
        """Return the batch in the log that this one duplicates; None: it must be written.

        Raises AppendRefusedError for a batch that does not follow its producer's state.
        """
        return self._checks.check(batch, guard)

    def check_epoch(self, batch: RecordBatch) -> None:
        """Raise AppendRefusedError for a marker, or committed offsets, of an old epoch or coordinator."""
        marker = marker_of(batch) if batch.is_control else None
        coordinator_epoch = None if marker is None else marker.coordinator_epoch
        self._checks.check_epochs(batch.producer_id, batch.producer_epoch, coordinator_epoch)

    def take(self, batch: RecordBatch, indexes: LiveIndexes, high_watermark: int) -> None:
        """Apply a producer's batch that was written; a transaction that it aborts goes to `indexes`."""
        is_control = batch.is_control
        marker = marker_of(batch) if is_control else None
        if is_control and (begin := self._states.begin_of(batch.producer_id)) is not None:
            while self._ended and self._ended[0][0] < high_watermark:
                self._ended.popleft()
            self._ended.append((batch.last_offset, begin))
            self._last_marker = batch.last_offset
        aborted = self._states.add(batch, marker)
        if aborted is not None:
            indexes.append_aborted(aborted)
        producer, epoch = batch.producer_id, batch.producer_epoch
        if not is_control and batch.base_sequence > NO_SEQUENCE:
            self._checks.appended(batch, batch.base_offset, batch.last_offset, batch.max_timestamp)
        elif marker is not None and marker.coordinator_epoch is not None:
            self._checks.ended(producer, epoch, marker.coordinator_epoch, batch.max_timestamp)

    def truncate(self, segments: Sequence[Segment], offset: int) -> None:
        """Rebuild the state before `offset`, where the log of these segments ends now."""
        drop_snapshots(self._files, self._folder, [each.base_offset for each in segments], offset)
        self.start_from(producers_at(self._files, self._folder, self._config, segments, offset, replays=True))

    def put_snapshot(self, offset: int, segments: Sequence[Segment]) -> None:
        """Write the current producers at `offset`; of the log's segments the last two keep their snapshots."""
        with self._files.create(f"{self._folder}/{offset:020}{SNAPSHOT}") as file:
            file.write_at(0, self.snapshot().to_bytes())
            file.sync()
        self.drop_snapshots_before(min([each.base_offset for each in segments[-2:]], default=0))

    def drop_snapshots_before(self, offset: int) -> None:
        """Delete older snapshots, as a broker up to 2.7 does; later ones keep them as long as their segments."""
        if not self._config.rules.release.keeps_all_snapshots:
            for each in snapshot_offsets(self._files, self._folder):
                if each < offset:
                    self._files.delete(f"{self._folder}/{each:020}{SNAPSHOT}")


def drop_snapshots(files: WritableFileSystem, folder: str, bases: Collection[int], end_offset: int) -> None:
    """Delete producer snapshots that are not at a segment's base, except the newest one, or that are above the log's
    end.
    """
    offsets = snapshot_offsets(files, folder)
    newest = max((each for each in offsets if each <= end_offset), default=-1)
    for each in offsets:
        if each > end_offset or (each not in bases and each != newest):
            files.delete(f"{folder}/{each:020}{SNAPSHOT}")


def producers_at(
    files: WritableFileSystem,
    folder: str,
    config: LogConfig,
    segments: Sequence[Segment],
    offset: int,
    *,
    replays: bool,
    notes: list[str] | None = None,
) -> ProducerStates:
    """Return the producers before `offset`: from the newest valid snapshot, and the batches after it.

    A damaged snapshot is deleted, with a line in `notes`. Without a snapshot the log is read from its beginning; or, if
    not `replays`, no producer is known, as after an upgrade from a version without producers.
    """
    producers, begin = config.rules.producer_states(remembered=REMEMBERED), -1
    if not config.rules.has_producers:
        return producers
    known = [each for each in snapshot_offsets(files, folder) if each <= offset]
    for at in reversed(known):
        path = f"{folder}/{at:020}{SNAPSHOT}"
        try:
            producers.start_from(parse_file(files, path, ProducerSnapshot.parse))
        except CorruptRecordError as error:
            files.delete(path)
            if notes is not None:
                notes.append(f"{error}: the producer state is rebuilt from the records before it")
            continue
        begin = at
        break
    if not known and not replays:
        return producers
    for segment, following in itertools.zip_longest(segments, segments[1:]):
        if following is not None and following.base_offset <= begin:
            continue
        start = segment.position_before(begin)
        for chunk in read_chunks(segment.log, start=start, end=segment.size, dialect=config.dialect):
            producers.append(_between(chunk.table, begin, offset))
    return producers


def _between(table: BatchTable, first: int, end: int) -> BatchTable:
    """Return the rows whose first offset is in `first` to below `end`."""
    import numpy as np

    offsets = np.asarray(table.offset, np.int64)
    rows = np.flatnonzero((offsets >= first) & (offsets < end))
    if len(rows) == len(table):
        return table
    columns: dict[str, Any] = {
        name: np.asarray(getattr(table, name), np.int64)[rows]
        for name in ("position", "size", "magic", "attributes", "offset", "count")
    }
    return replace(table, **columns)
