"""Open a log's folder: clean up leftovers, finish interrupted swaps, recover segments, rebuild producer state.

Sources: Kafka's LogLoader, LogSegment.recover and ProducerStateManager.

The order of `load`:
1. Anything with the name of a log's file that is no file goes to `quarantine/`.
2. Interrupted deletions are finished, then swaps: the logs of a complete one replace the old segments, without indexes.
3. Indexes without a log are deleted.
4. Segments are opened in order. After a crash all from the one with the recovery point on are walked, get new indexes,
   and the log is cut at the first entry that is not sound. A closed segment is walked only if an index is missing or
   contradicts it.
5. The end is settled: a closed log that lost its end continues at its recovery point; a log that ends before its start
   is empty there.
6. Leader epochs and producers are those of the remaining records.
7. Recovered segments are synced. The caller syncs the folder.

Invariants:
1. A crash within any step leaves a folder for which the same steps give the same log: the mark of the clean shutdown is
   gone before the first (`LogDirectory`). So no step needs a mark of its own.
2. Bytes are removed only after a durable copy of them is in `quarantine/`, once and with holes for zeros; zeros alone
   are not copied. A copy is never replaced by other bytes.
3. By itself it removes only a torn end, bytes after the recovery point of a log that was not closed, and a log that
   ends before its start. All other damage raises CorruptRecordError, unless `RepairScope.DAMAGE` allows the cut.
4. No offset is assigned twice, and no record appears that was not there.

One thread opens a log, and nothing else uses its folder. `tests/simulation/test_crashes.py` cuts the power during
recovery, too; `test_damaged_starts.py` and `tests/engine/log/test_damaged_directories.py` have 2 and 3.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct, field

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, OutOfDescriptorsError
from magicbyte.engine.log.files.checkpoints import (
    LEADER_EPOCHS,
    MESSAGE_DIALECT,
    LeaderEpoch,
    format_message_dialect,
    parse_leader_epochs,
    parse_message_dialect,
)
from magicbyte.engine.log.files.directory import INDEXES, LOG, SNAPSHOT, TRANSACTION_INDEX, parse_file
from magicbyte.engine.log.files.filesystem import data_pieces, exists, put_file
from magicbyte.engine.log.files.names import MAX_RELATIVE, is_log_file, is_named_by_offset, offset_file
from magicbyte.engine.log.files.producer_state import LeaderEpochs, ProducerStates
from magicbyte.engine.log.live.parting import part_segment
from magicbyte.engine.log.live.producers import drop_snapshots, producers_at
from magicbyte.engine.log.live.segment import Segment
from magicbyte.engine.log.live.segment_names import CLEANED, DELETED, SWAP, offset_files
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.open_files import OpenFiles
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.ports import WritableFileSystem


class RepairScope(enum.Enum):
    """The damage that may be cut off a log, and quarantined, so that the log can be opened."""

    NOTHING = "nothing"
    TORN_END = "torn end"  # after the recovery point of an unclosed log: the result of a crash
    DAMAGE = "damage"  # anywhere: acknowledged records may be lost with it


class Cut(Struct, frozen=True):
    """Bytes of a segment that recovery cut off.

    `quarantine` is the path of their copy, None without a quarantine or if they were zeros.
    """

    segment: str
    position: int
    removed: int
    reason: str
    quarantine: str | None

    def __str__(self) -> str:
        copy = "no copy: they were zeros" if self.quarantine is None else f"a copy is in {self.quarantine}"
        return f"cut {self.removed} bytes off {self.segment}, position {self.position}: {self.reason}; {copy}"


class Loaded(Struct):
    """The result: the log's segments, at least one and all open, and the state at its end."""

    segments: list[Segment]
    end_offset: int
    producers: ProducerStates
    epochs: LeaderEpochs
    recovered: list[int] = field(default_factory=list)  # base offsets of the walked segments
    cuts: list[Cut] = field(default_factory=list)
    epochs_found: list[LeaderEpoch] = field(default_factory=list)  # in the checkpoint
    # one for each damaged, missing or special file, with the action taken
    notes: list[str] = field(default_factory=list)

    def epochs_changed(self) -> bool:
        """Return whether the log's epochs differ from those of the checkpoint."""
        return self.epochs.entries != self.epochs_found


def load(
    files: OpenFiles,
    folder: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    committed: int = 0,
    log_start_offset: int = 0,
    quarantine: str | None = None,
    repair_scope: RepairScope = RepairScope.TORN_END,
) -> Loaded:
    """Clean up the existing `folder` of a log and open it.

    `clean`: the last owner closed the log, so indexes can be trusted, and it ends at `recovery_point` or later.
    Otherwise everything from the segment with `recovery_point` on is walked, and cut after the last sound entry. With
    group commit a cut below the `committed` offset is no result of a crash: records were durable before they counted.
    `quarantine`: the directory for bytes that are cut off or replaced. Changes are durable once the folder is synced,
    which `PartitionLog.open` does last. Raises CorruptRecordError if something is missing, or must be cut off and
    `repair_scope` does not allow it.
    """
    loaded = Loaded([], 0, config.rules.producer_states(), LeaderEpochs())
    _quarantine_non_files(files, folder, loaded, quarantine, repair_scope)
    finish_swaps(files, folder, config)
    logs = {base for base, kind, _ in offset_files(files, folder) if kind == LOG}
    lost = [(base, kind) for base, kind, _ in offset_files(files, folder) if kind in INDEXES and base not in logs]
    for base, kind in lost:
        # An interrupted deletion may leave indexes without a log, too; a closed log has none.
        if clean and files.entry(f"{folder}/{base:020}{kind}").size:
            error = CorruptRecordError("segment", expected=f"a file, as there is its {kind}", found="none")
            error.locate(path=f"{folder}/{base:020}{LOG}")
            if repair_scope is not RepairScope.DAMAGE:
                raise error
            loaded.notes.append(f"{error}: its records are lost")
    for base, kind in lost:
        files.delete(f"{folder}/{base:020}{kind}")
    loaded.epochs = _epochs(files, folder, config, loaded)
    loaded.epochs_found = list(loaded.epochs.entries)
    try:
        opening = _Opening(files, folder, config, loaded, sorted(logs), clean, quarantine, repair_scope)
        opening.durable_end = max(recovery_point, committed) if config.group_commit else 0
        producers = opening.run(recovery_point)
        if clean:
            _check_end(loaded, folder, recovery_point, log_start_offset if logs else 0, repair_scope)
    except (CorruptRecordError, OutOfDescriptorsError, OSError):
        for segment in loaded.segments:
            segment.release()
        raise
    if clean and loaded.end_offset < recovery_point:
        loaded.segments.append(Segment.create(files, folder, recovery_point, config))
        loaded.end_offset = recovery_point  # so that no offset is assigned twice
        producers = None
    if loaded.segments and loaded.end_offset < log_start_offset:
        for segment in loaded.segments:
            if segment.size:
                opening.put_aside(segment, 0, "before the log start offset")
            segment.release()
            delete_files(files, folder, segment.base_offset)
        loaded.segments.clear()
        producers = None
    if not loaded.segments:
        loaded.segments.append(Segment.create(files, folder, log_start_offset, config))
        loaded.end_offset = log_start_offset
    loaded.epochs.truncate_end(loaded.end_offset)
    if config.rules.has_producers:
        drop_snapshots(files, folder, [each.base_offset for each in loaded.segments], loaded.end_offset)
        if clean or producers is None:
            producers = producers_at(
                files, folder, config, loaded.segments, loaded.end_offset, replays=not clean, notes=loaded.notes
            )
        loaded.producers = producers
    for segment in loaded.segments:
        if segment.base_offset in loaded.recovered:
            segment.sync()
    return loaded


def settle_dialect(files: WritableFileSystem, folder: str, dialect: Dialect) -> None:
    """Store the dialect in the folder; Kafka's own dialect needs no file.

    Raises LogDirectoryError if the log has another dialect.
    """
    path = f"{folder}/{MESSAGE_DIALECT}"
    found = parse_file(files, path, parse_message_dialect) if exists(files, path) else Dialect.KAFKA
    if found is dialect:
        return
    if any(entry.size for entry in files.list(folder) if entry.name.endswith(LOG)):
        raise LogDirectoryError(f"{folder}: a log in the dialect {found.value}: expected {dialect.value}")
    put_file(files, path, format_message_dialect(dialect))


def _quarantine_non_files(
    files: WritableFileSystem, folder: str, loaded: Loaded, quarantine: str | None, repair_scope: RepairScope
) -> None:
    """Move directories, pipes and dead links with the name of a log's file into the quarantine.

    A log file that the log needs is moved only if damage is repaired; otherwise raises CorruptRecordError.
    """
    regular = {entry.name for entry in files.list(folder) if not entry.is_directory}
    for name in files.names(folder):
        path = f"{folder}/{name}"
        if name not in regular and is_log_file(name):
            needed = name.endswith(LOG) or name == MESSAGE_DIALECT
            if quarantine is None or (needed and repair_scope is not RepairScope.DAMAGE):
                raise CorruptRecordError("file", expected="a regular one", found="something else").locate(path=path)
            target = move_to_quarantine(files, path, quarantine)
            loaded.notes.append(f"{path}: expected a regular file, found something else, which is in {target} now")
        elif is_named_by_offset(name) and offset_file(name.removesuffix(".tmp")) is None:
            loaded.notes.append(f"{path}: ignored: it is not a file of a log")


def move_to_quarantine(files: WritableFileSystem, path: str, quarantine: str) -> str:
    """Move anything at `path` into the quarantine, durably there; return its new path.

    A crash may bring back its old name: then it is moved again.
    """
    if not exists(files, quarantine):
        files.make_directory(quarantine)
        files.sync_directory(quarantine.rpartition("/")[0])
    above, _, name = path.rpartition("/")
    if above != quarantine.rpartition("/")[0]:
        name = f"{above.rpartition('/')[2]}.{name}"
    taken = set(files.names(quarantine))
    free = next(each for at in itertools.count() if (each := f"{name}.{at}" if at else name) not in taken)
    target = f"{quarantine}/{free}"
    files.rename(path, target)
    files.sync_directory(quarantine)
    return target


def _check_end(
    loaded: Loaded, folder: str, recovery_point: int, log_start_offset: int, repair_scope: RepairScope
) -> None:
    """Raise CorruptRecordError if a closed log lost everything, or would begin after its end.

    If only its end differs, add a note. The difference may be just the offsets at the end of its last set that have no
    records, or the rest of a batch that was truncated as a whole.
    """
    expected = max(recovery_point, log_start_offset)
    if loaded.end_offset >= expected:
        return
    error = CorruptRecordError("end of the log", expected=f"offset {expected}", found=loaded.end_offset)
    error.locate(path=loaded.segments[-1].path(LOG) if loaded.segments else folder)
    if repair_scope is not RepairScope.DAMAGE and (not loaded.segments or log_start_offset > recovery_point):
        raise error
    loaded.notes.append(f"{error}: its records are lost; the next record gets offset {expected}")


def _finish_deletions(files: OpenFiles, folder: str) -> None:
    """Delete the indexes of segments whose logs are renamed to `.deleted`, before those logs: otherwise the logs would
    seem
    lost.
    """
    names = offset_files(files, folder)
    going = {base for base, kind, suffix in names if (kind, suffix) == (LOG, DELETED)}
    going -= {base for base, kind, suffix in names if kind == LOG and not suffix}
    indexes = [(base, kind) for base, kind, suffix in names if kind in INDEXES and not suffix and base in going]
    for base, kind in indexes:
        files.delete(f"{folder}/{base:020}{kind}")
    if indexes:
        files.sync_directory(folder)


def finish_swaps(files: OpenFiles, folder: str, config: LogConfig) -> None:
    """Delete `.deleted` and incomplete `.cleaned` files, and give the logs of a complete swap their final names.

    They get no indexes here, so that these are rebuilt: one with its final name could be the old segment's. A deleted
    file that a crash brings back is deleted again; the caller makes the deletion durable.
    """
    _finish_deletions(files, folder)
    names = offset_files(files, folder)
    unfinished = min((base for base, _, suffix in names if suffix == CLEANED), default=None)
    swaps = []
    for base, kind, suffix in names:
        if suffix in (DELETED, CLEANED) or (suffix == SWAP and unfinished is not None and base >= unfinished):
            files.delete(f"{folder}/{base:020}{kind}{suffix}")
        elif suffix == SWAP:
            swaps.append((base, kind))
    for entry in files.list(folder):
        if entry.name.endswith(".tmp"):
            files.delete(entry.path)
    if not swaps:
        return
    swapped = {base for base, _ in swaps}
    bases = sorted(base for base, kind in swaps if kind == LOG)
    replaced: set[int] = set()
    if bases:
        end = _end_of(files, folder, bases[-1], config, SWAP)
        logs = sorted(base for base, kind, suffix in names if kind == LOG and not suffix)
        replaced = {base for base, _, suffix in names if not suffix and bases[0] <= base < end}
        before = [base for base in logs if base < bases[0]]
        if before and _end_of(files, folder, before[-1], config, "") > bases[0]:
            replaced.add(before[-1])  # its head was cut off: the swap is the rest of it
    for base, kind, suffix in names:
        # Indexes with a final name may belong to the old segment of the same base, and nothing in them tells: they are
        # deleted and rebuilt from the log. Snapshots are kept, because they describe the producers before the base,
        # which a swap does not change.
        goes = kind != SNAPSHOT if base in replaced else base in swapped and kind in INDEXES
        if goes and not suffix:
            files.delete(f"{folder}/{base:020}{kind}")
    files.sync_directory(folder)  # otherwise a crash could leave an old segment beside the new one
    for base, kind in sorted(swaps):
        path = f"{folder}/{base:020}{kind}"
        if kind == LOG:
            files.rename(f"{path}{SWAP}", path)
            files.sync_directory(folder)  # in order: the remaining `.swap` files come after the renamed ones
        else:
            files.delete(f"{path}{SWAP}")


def _end_of(files: OpenFiles, folder: str, base: int, config: LogConfig, suffix: str) -> int:
    """Return the end offset of a segment without using its indexes."""
    segment = Segment.of_log(files, folder, base, config, suffix=suffix)
    try:
        last = None
        for head in segment.heads(0):
            last = head
        return base if last is None else segment.last_offset_of(last) + 1
    finally:
        segment.release()


def _epochs(files: WritableFileSystem, folder: str, config: LogConfig, loaded: Loaded) -> LeaderEpochs:
    """Return the leader epochs of the checkpoint; none if it is damaged, as in a broker, with a note."""
    epochs = LeaderEpochs(ends_with_older=config.rules.release.ends_epochs_with_older)
    path = f"{folder}/{LEADER_EPOCHS}"
    if config.rules.has_producers and exists(files, path):
        try:
            epochs.entries = parse_file(files, path, parse_leader_epochs)
        except CorruptRecordError as error:
            loaded.notes.append(f"{error}: the earlier leader epochs are lost")
            epochs.entries = []
    return epochs


class _TooFarError(Exception):
    """A sound entry is too far from its segment's base: the segment must be split."""


class _Opening(Struct):
    """Open the segments in `bases`, ascending, recover those that need it, and end the log where one is cut.

    Segments with offsets too far from their base for an index are split.
    """

    files: OpenFiles
    folder: str
    config: LogConfig
    loaded: Loaded
    bases: list[int]
    clean: bool
    quarantine: str | None
    repair_scope: RepairScope
    closed_at: int = 0  # the log's end when it was closed
    unsure: int = 0  # base of the first segment that a crash may have torn
    durable_end: int = 0  # with group commit: the offset below which a crash tears nothing

    def run(self, recovery_point: int) -> ProducerStates | None:
        """Open the segments; return the producers at the log's end if its last segment was walked."""
        self.closed_at = recovery_point if self.clean else 0
        self.unsure = unsure = max((base for base in self.bases if base <= recovery_point), default=0)
        producers: ProducerStates | None = None  # before the next segment, if known
        loaded = self.loaded
        waiting = list(self.bases)
        while waiting:
            base = waiting.pop(0)
            segment = Segment.of_log(self.files, self.folder, base, self.config)
            loaded.segments.append(segment)
            if (self.clean or base < unsure) and self._opened(segment):
                producers = None
                continue
            if producers is None:
                before = loaded.segments[:-1]
                producers = producers_at(
                    self.files, self.folder, self.config, before, base, replays=True, notes=loaded.notes
                )
            epochs = loaded.epochs if self.config.rules.has_producers else None
            again = not self.clean and base >= unsure  # the next start would repeat it
            try:
                recovered = segment.recover(
                    producers, epochs, functools.partial(self._cut_or_part, segment), durable=not again
                )
            except _TooFarError:
                loaded.segments.pop()
                waiting, producers = [*self._part(segment), *(each for each in waiting if each in self.bases)], None
                continue
            loaded.recovered.append(base)
            loaded.end_offset = max(recovered.end_offset, base)
            if recovered.removed and not self._was_whole(segment):
                break
        return producers

    def _opened(self, segment: Segment) -> bool:
        """Open the indexes of a closed segment; return whether they can be trusted."""
        try:
            segment.open_indexes()
            following = self._following(segment)
            self.loaded.end_offset = segment.base_offset
            if following is None or following - segment.base_offset > MAX_RELATIVE + 1:
                self.loaded.end_offset = segment.end_offset()
            if segment.names.has(TRANSACTION_INDEX):
                segment.verify_aborted(self._entry_with, self.loaded.end_offset if following is None else following)
            if self.config.rules.has_producers and self.config.dialect is Dialect.KAFKA:
                segment.closed_end = self.loaded.end_offset if following is None else following
        except CorruptRecordError as error:  # the log must be walked
            if self._was_whole(segment):
                following = self._following(segment)
                if segment.names_more_than_there_is(self.closed_at if following is None else following):
                    path = segment.path(LOG)
                    missing = CorruptRecordError("log", expected="what its index names", found=f"{segment.size} bytes")
                    if self.repair_scope is not RepairScope.DAMAGE:
                        raise missing.locate(path=path) from None
                    self.loaded.notes.append(f"{missing.locate(path=path)}: the records after them are lost")
                elif not any(str(error.path) in note for note in self.loaded.notes):
                    self.loaded.notes.append(f"{error}: the segment's indexes are rebuilt")
            return False
        return self.loaded.end_offset - segment.base_offset <= MAX_RELATIVE + 1

    def _entry_with(self, offset: int) -> bytes | None:
        """Return the first bytes of the entry with `offset` in the opened segments, None if there is none."""
        before = (each for each in reversed(self.loaded.segments) if each.base_offset <= offset)
        segment = next(before, None)
        return None if segment is None else segment.entry_with(offset)

    def _was_whole(self, segment: Segment) -> bool:
        """Return whether no crash can have torn the segment: it was closed, or lies before the recovery point."""
        return self.clean or segment.base_offset < self.unsure

    def _following(self, segment: Segment) -> int | None:
        return next((base for base in self.bases if base > segment.base_offset), None)

    def _cut_or_part(self, segment: Segment, kept: int, error: CorruptRecordError | None) -> None:
        """Cut the segment, unless its next entry is sound and only too far from its base."""
        head = None if error is None or error.what != "offset" else next(segment.heads(kept), None)
        if head is not None and segment.last_offset_of(head) - segment.base_offset > MAX_RELATIVE:
            following = self._following(segment)
            if following is None or segment.last_offset_of(head) < following:
                raise _TooFarError
        self._cut(segment, kept, error)

    def _part(self, segment: Segment) -> list[int]:
        """Split a segment into several logs and return their bases. Its damaged bytes are quarantined."""
        bases = part_segment(segment, self._following(segment), functools.partial(self._cut, segment))
        finish_swaps(self.files, self.folder, self.config)
        self.bases = sorted({*self.bases, *bases} - ({segment.base_offset} - {*bases}))
        return bases

    def _cut(self, segment: Segment, kept: int, error: CorruptRecordError | None) -> None:
        """Quarantine and cut the rest of the segment, and delete the segments after it, unless the log was closed.

        Raises CorruptRecordError if that is not allowed.
        """
        is_room = self.config.preallocate and self._following(segment) is None
        if is_room and next(data_pieces(segment.log.opened(), kept), None) is None:
            return  # nothing was ever written there
        torn = self.repair_scope is RepairScope.TORN_END and not self._was_whole(segment)
        torn = torn and (not self.durable_end or _end_before(segment, kept) >= self.durable_end)
        if self.repair_scope is not RepairScope.DAMAGE and not torn:
            found = f"{segment.log.size - kept} bytes that are none"
            why = error or CorruptRecordError("end of the log", expected="a whole batch", found=found, position=kept)
            raise why.locate(path=segment.path(LOG))
        # Crash order: the copy in the quarantine is durable first, then later segments are deleted from the last one
        # on, then the folder is synced, and only then the caller cuts this segment. The damage here is the evidence
        # that later segments must go: if it were cut first, a crash would leave a clean segment, and a gap before the
        # next one that looks like compaction.
        reason = "" if error is None else f"{error.what}: expected {error.expected}, found {error.found}"
        self.put_aside(segment, kept, reason)
        later = [] if self._was_whole(segment) else [base for base in self.bases if base > segment.base_offset]
        for base in reversed(later):
            behind = Segment.of_log(self.files, self.folder, base, self.config)
            self.put_aside(behind, 0, "after a segment that was truncated")
            behind.release()
            delete_files(self.files, self.folder, base)
        if later:
            self.files.sync_directory(self.folder)  # before the cut, which is the reason to delete them
            self.bases = [base for base in self.bases if base not in later]

    def put_aside(self, segment: Segment, position: int, reason: str) -> None:
        """Record the bytes that are about to be cut off, and copy them to the quarantine."""
        path, size = segment.path(LOG), segment.log.size
        copy = None if self.quarantine is None else quarantine_bytes(segment, position, size, self.quarantine)
        self.loaded.cuts.append(Cut(path, position, size - position, reason, copy))


def _end_before(segment: Segment, position: int) -> int:
    """Return the offset after the last entry before `position`, up to which all are sound."""
    last = None
    with contextlib.suppress(CorruptRecordError):
        for head in itertools.takewhile(lambda each: each.position < position, segment.heads(0)):
            last = head
    return segment.base_offset if last is None else segment.last_offset_of(last) + 1


def delete_files(files: WritableFileSystem, folder: str, base: int) -> None:
    """Delete all files of a segment. A crash before the next sync of the folder brings back the names."""
    for each, kind, suffix in offset_files(files, folder):
        if each == base and not suffix:
            files.delete(f"{folder}/{each:020}{kind}")


def quarantine_bytes(segment: Segment, position: int, end: int, quarantine: str) -> str | None:
    """Copy a segment's bytes from `position` to `end` into the quarantine, durably, and return the copy's path.

    Zeros become holes; nothing but zeros is not copied. A copy of an earlier start is kept, and never replaced by other
    bytes.
    """
    if next(_data_of(segment, position, end), None) is None:
        return None
    files, partition = segment.files, segment.folder.rpartition("/")[2]
    if not exists(files, quarantine):
        files.make_directory(quarantine)
        files.sync_directory(quarantine.rpartition("/")[0])
    name = f"{quarantine}/{partition}.{segment.base_offset:020}.{position}"
    names = itertools.chain([f"{name}.bytes"], (f"{name}.{number}.bytes" for number in itertools.count(2)))
    path = next(each for each in names if not exists(files, each) or _is_copy(files, each, segment, position, end))
    if not exists(files, path):
        with files.create(f"{path}.tmp") as copy:
            for at, piece in _data_of(segment, position, end):
                copy.write_at(at - position, piece)
            copy.truncate(end - position)
            copy.sync()
        files.rename(f"{path}.tmp", path)
    files.sync_directory(quarantine)
    return path


def _data_of(segment: Segment, position: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a segment's file from `position` to `end` that are not zeros, with their positions."""
    for at, piece in data_pieces(segment.log.opened(), position):
        if at >= end:
            return
        yield at, piece[: end - at]


def _is_copy(files: WritableFileSystem, path: str, segment: Segment, position: int, end: int) -> bool:
    """Return whether the file at `path` has the segment's bytes from `position` to `end`."""
    with files.open(path) as copy:
        return (
            copy.size == end - position
            and all(copy.read_at(at - position, len(data)) == data for at, data in _data_of(segment, position, end))
            and all(segment.log.read_at(position + at, len(data)) == data for at, data in data_pieces(copy, 0))
        )
