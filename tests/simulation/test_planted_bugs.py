"""The crash tests prove themselves: each of these mistakes, made on purpose, is found by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from magicbyte.engine.log.files import checkpoints, producer_snapshot
from magicbyte.engine.log.files import filesystem as log_files
from magicbyte.engine.log.live import epoch_file, loading, log_directory, partition_log
from magicbyte.engine.log.live.epoch_file import EpochFile
from magicbyte.engine.log.live.group_commit import GroupCommit
from magicbyte.engine.log.live.log_directory import LogDirectory
from magicbyte.engine.log.live.partition_log import Flush, PartitionLog
from magicbyte.engine.log.live.retention import Retention
from magicbyte.engine.log.live.segment import Segment
from magicbyte.engine.log.live.segment_names import CLEANED, COMPANIONS, DELETED, SWAP, SegmentNames
from magicbyte.testing.disk import SimulatedDisk
from simulation.crashes import run
from simulation.ledger import BrokenError

Patch = pytest.MonkeyPatch
PLANTED: dict[str, Callable[[Patch], None]] = {}
WITHIN = {
    "a_snapshot_whose_crc_is_unchecked": r"sync .*plain.*\.snapshot$",
    "a_retention_that_takes_indexes_before_their_log": r"rename .*\.timeindex$",
}
"""For bugs that few of all cuts can show: on which operations the cuts are spent. Else it is every fifth operation."""
FIRST_SEEDS = {
    "a_snapshot_whose_crc_is_unchecked": 7,
    "a_deleted_partition_whose_name_comes_back": 4,
    "a_group_commit_that_answers_those_whose_records_were_cut_off": 6,
    "a_truncation_that_leaves_the_recovery_point": 3,
    "a_truncation_that_deletes_segments_in_any_order": 6,
    "leftovers_of_half_a_swap_taken_for_whole": 6,
    "a_head_cut_one_entry_too_far": 8,
    "a_swap_that_removes_the_old_segments_first": 8,
    "a_swap_without_the_swap": 14,
    "a_finished_swap_beside_the_old_segments": 3,
    "a_swap_that_trusts_the_order_of_renames": 7,
    "a_retention_that_ignores_the_high_watermark": 2,
    "a_retention_that_takes_indexes_before_their_log": 4,
    "a_retention_that_deletes_segments_in_any_order": 3,
    "a_compaction_above_the_high_watermark": 3,
}
"""Seeds that show a bug soon. Else the search begins with 1."""


def planted(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    PLANTED[function.__name__] = function
    return function


def nothing(*_: Any, **__: Any) -> None:
    pass


class Quiet:
    """A disk of which some calls do nothing while `self.on` says so."""

    def __init__(self, patch: Patch, name: str, when: Callable[[str], bool] = lambda _path: True) -> None:
        real, self.on = getattr(SimulatedDisk, name), False

        def call(disk: SimulatedDisk, path: str) -> None:
            if not (self.on and when(path)):
                real(disk, path)

        patch.setattr(SimulatedDisk, name, call)


def without_directory_syncs(patch: Patch, owner: Any, name: str) -> None:
    """Let `owner.name` do all but sync directories."""
    quiet, real = Quiet(patch, "sync_directory"), getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        before, quiet.on = quiet.on, True
        try:
            return real(*arguments, **named)
        finally:
            quiet.on = before

    patch.setattr(owner, name, call)


@planted
def a_flush_that_syncs_nothing(patch: Patch) -> None:
    patch.setattr(Flush, "run", nothing)


@planted
def a_roll_that_does_not_sync_the_old_segment(patch: Patch) -> None:
    patch.setattr(Segment, "sync", nothing)


@planted
def a_roll_whose_new_names_are_not_durable(patch: Patch) -> None:
    without_directory_syncs(patch, PartitionLog, "roll")


@planted
def a_swap_that_trusts_the_order_of_renames(patch: Patch) -> None:
    without_directory_syncs(patch, PartitionLog, "replace")


@planted
def a_swap_that_removes_the_old_segments_first(patch: Patch) -> None:
    real = PartitionLog.replace

    def replace(self: PartitionLog, old: Any, new: Any, now: Any) -> None:
        for segment in old:
            segment.names.rename(DELETED)
        for segment in old:
            segment.names.rename("")
        real(self, old, new, now)

    patch.setattr(PartitionLog, "replace", replace)


@planted
def a_swap_without_the_swap(patch: Patch) -> None:
    real = SegmentNames.rename

    def rename(self: SegmentNames, suffix: str, **named: Any) -> None:
        if suffix != SWAP:
            real(self, suffix, **named)

    patch.setattr(SegmentNames, "rename", rename)


@planted
def a_truncation_that_is_not_synced(patch: Patch) -> None:
    real, sync = Segment.truncate_to, Segment.sync

    def truncate_to(self: Segment, offset: int) -> int:
        patch.setattr(Segment, "sync", nothing)
        try:
            return real(self, offset)
        finally:
            patch.setattr(Segment, "sync", sync)

    patch.setattr(Segment, "truncate_to", truncate_to)


@planted
def a_truncation_that_leaves_the_recovery_point(patch: Patch) -> None:
    patch.setattr(PartitionLog, "_lower", nothing)


@planted
def a_truncation_that_deletes_segments_in_any_order(patch: Patch) -> None:
    without_directory_syncs(patch, PartitionLog, "truncate_to")


@planted
def a_retention_that_deletes_segments_in_any_order(patch: Patch) -> None:
    without_directory_syncs(patch, PartitionLog, "delete_old_segments")


def renames_indexes_first(self: SegmentNames, suffix: str) -> None:
    """What `SegmentNames.rename` does, the log's own name last."""
    for kind in (*COMPANIONS, ".snapshot", ".log"):
        if self.has(kind):
            self.files.rename(self.path(kind), f"{self.path(kind).removesuffix(self.suffix)}{suffix}")
    self.suffix = suffix


@planted
def a_retention_that_takes_indexes_before_their_log(patch: Patch) -> None:
    real = PartitionLog.delete_old_segments

    def rename(self: SegmentNames, suffix: str, **_: Any) -> None:
        renames_indexes_first(self, suffix)
        self.files.sync_directory(self.folder)

    def delete_old_segments(self: PartitionLog, now: Any) -> Any:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(SegmentNames, "rename", rename)
            return real(self, now)

    patch.setattr(PartitionLog, "delete_old_segments", delete_old_segments)


@planted
def a_retention_that_ignores_the_high_watermark(patch: Patch) -> None:
    real = Retention.due

    def due(self: Retention, segments: Any) -> Any:
        return real(replace(self, high_watermark=self.log_end_offset), segments)

    patch.setattr(Retention, "due", due)


@planted
def a_head_cut_one_entry_too_far(patch: Patch) -> None:
    real = Retention._head_size

    def head_size(self: Retention, segment: Segment) -> int:
        size = real(self, segment)
        following = [each.position for each in segment.heads(size) if each.position > size] if size else []
        return following[0] if following else size

    patch.setattr(Retention, "_head_size", head_size)


@planted
def files_replaced_without_a_sync(patch: Patch) -> None:
    def put_file(files: Any, path: str, content: bytes) -> None:
        with files.create(f"{path}.tmp") as file:
            file.write_at(0, content)
        files.rename(f"{path}.tmp", path)
        files.sync_directory(path.rpartition("/")[0])

    for module in (log_files, log_directory, epoch_file):
        patch.setattr(module, "put_file", put_file)


@planted
def a_mark_of_a_clean_end_that_stays(patch: Patch) -> None:
    real = SimulatedDisk.delete

    def delete(disk: SimulatedDisk, path: str) -> None:
        if not path.endswith(".kafka_cleanshutdown"):
            real(disk, path)

    patch.setattr(SimulatedDisk, "delete", delete)


@planted
def a_mark_of_a_clean_end_removed_but_not_durably(patch: Patch) -> None:
    quiet = Quiet(patch, "sync_directory", lambda path: path == "/data")
    real = SimulatedDisk.delete

    def delete(disk: SimulatedDisk, path: str) -> None:
        quiet.on = path.endswith(".kafka_cleanshutdown")
        real(disk, path)

    patch.setattr(SimulatedDisk, "delete", delete)


@planted
def a_mark_of_a_clean_end_before_the_end(patch: Patch) -> None:
    real = LogDirectory.close

    def close(self: LogDirectory) -> None:
        path = f"{self.path}/.kafka_cleanshutdown"
        log_directory.put_file(self.files, path, b"")
        real(self)

    patch.setattr(LogDirectory, "close", close)


@planted
def a_close_that_syncs_nothing(patch: Patch) -> None:
    real, sync = PartitionLog.close, Segment.sync

    def close(self: PartitionLog) -> None:
        patch.setattr(Segment, "sync", nothing)
        try:
            real(self)
        finally:
            patch.setattr(Segment, "sync", sync)

    patch.setattr(PartitionLog, "close", close)


@planted
def a_recovery_that_begins_behind_the_recovery_point(patch: Patch) -> None:
    real = loading._Opening.run

    def run(self: Any, recovery_point: int) -> None:
        self.clean = self.clean or all(base <= recovery_point for base in self.bases)
        real(self, recovery_point)

    patch.setattr(loading._Opening, "run", run)


@planted
def a_recovery_that_believes_sizes(patch: Patch) -> None:
    """As if every log had been closed."""
    real = partition_log.load

    def load(*arguments: Any, **named: Any) -> Any:
        return real(*arguments, **{**named, "clean": True})

    patch.setattr(partition_log, "load", load)


@planted
def leftovers_of_half_a_swap_taken_for_whole(patch: Patch) -> None:
    real = loading.offset_files

    def names(files: Any, folder: str) -> Any:
        found = real(files, folder)
        for base, kind, suffix in found:
            if suffix == CLEANED:
                files.rename(f"{folder}/{base:020}{kind}{CLEANED}", f"{folder}/{base:020}{kind}{SWAP}")
        return real(files, folder)

    patch.setattr(loading, "offset_files", names)


@planted
def a_finished_swap_beside_the_old_segments(patch: Patch) -> None:
    patch.setattr(loading, "_end_of", lambda files, folder, base, config, suffix: base)


@planted
def leftovers_that_are_left(patch: Patch) -> None:
    patch.setattr(loading, "finish_swaps", nothing)


@planted
def leader_epochs_that_are_not_written(patch: Patch) -> None:
    patch.setattr(EpochFile, "put", nothing)


@planted
def a_deleted_partition_whose_name_comes_back(patch: Patch) -> None:
    without_directory_syncs(patch, LogDirectory, "delete")


@planted
def a_new_partition_whose_name_is_not_durable(patch: Patch) -> None:
    without_directory_syncs(patch, LogDirectory, "create")


@planted
def recovery_points_that_come_too_early(patch: Patch) -> None:
    def checkpoint(self: LogDirectory) -> None:
        self._put_offsets(checkpoints.RECOVERY_POINT, {key: log.log_end_offset for key, log in self.logs.items()})

    patch.setattr(LogDirectory, "checkpoint_recovery_points", checkpoint)


@planted
def a_recovery_point_that_moves_before_the_sync(patch: Patch) -> None:
    real = PartitionLog.begin_flush

    def begin_flush(self: PartitionLog) -> Flush | None:
        flush = real(self)
        if flush is not None:
            self.recovery_point = flush.end_offset
        return flush

    patch.setattr(PartitionLog, "begin_flush", begin_flush)


@planted
def a_snapshot_whose_crc_is_unchecked(patch: Patch) -> None:
    patch.setattr(producer_snapshot, "crc32c", lambda checked: AnyNumber())


class AnyNumber(int):
    """Equal to every number."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@planted
def a_group_commit_that_answers_those_who_came_late(patch: Patch) -> None:
    real = GroupCommit.end

    def end(self: GroupCommit[Any], finished: Any, monotonic_ms: int) -> Any:
        for log, _ in finished.flushes:
            log.recovery_point = log.log_end_offset
        late, self._waiting = self._waiting, []
        finished.waiting.extend(late)
        return real(self, finished, monotonic_ms)

    patch.setattr(GroupCommit, "end", end)


@planted
def a_group_commit_that_answers_those_whose_records_were_cut_off(patch: Patch) -> None:
    def flushed(self: PartitionLog, flush: Flush, monotonic_ms: int) -> None:
        self.recovery_point = max(self.recovery_point, flush.end_offset)

    patch.setattr(PartitionLog, "flushed", flushed)


@planted
def a_compaction_above_the_high_watermark(patch: Patch) -> None:
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda log: log.log_end_offset))


@planted
def a_compaction_whose_segment_is_not_synced(patch: Patch) -> None:
    real, sync = PartitionLog.replace, Segment.sync

    def replace(self: PartitionLog, old: Any, new: Any, now: Any) -> None:
        patch.setattr(Segment, "sync", nothing)
        try:
            real(self, old, new, now)
        finally:
            patch.setattr(Segment, "sync", sync)

    patch.setattr(PartitionLog, "replace", replace)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(BrokenError):
        search(WITHIN.get(name), FIRST_SEEDS.get(name, 1))


def search(within: str | None, first_seed: int) -> None:
    """Look for a cut after which something does not hold."""
    for seed in range(first_seed, first_seed + 8):
        if within is None:
            run(seed, 150, every=5)
        else:
            run(seed, 150, cuts=8, within=within)


def test_at_least_thirty_bugs_are_planted() -> None:
    assert len(PLANTED) >= 30
    assert WITHIN.keys() | FIRST_SEEDS.keys() <= PLANTED.keys()
