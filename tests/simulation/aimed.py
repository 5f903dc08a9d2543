"""Crash simulations of one step each: small logs, and every cut within the operations that the step is made of.

The long simulation (`crashes.run`) does everything now and then; these are short enough to be run with every change,
and dense enough that each sync and each rename of `log/` is missed by one of them (`run_sync_mutations.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from unittest.mock import patch

from engine.log.appended import batch_of
from engine.log.compacted import DAY, NOW, Cleaned
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.names import QUARANTINE
from magicbyte.engine.log.files.open_files import DEFAULT_LIMIT
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.lookups import aborted_transactions
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.control import ControlType
from magicbyte.testing.disk import SimulatedDisk, SimulatedFile
from simulation.crashes import (
    COMPACTED,
    CUT,
    PATH,
    PLAIN,
    SMALL,
    START_MS,
    TRANSACTIONAL,
    World,
    open_directory,
    put,
    recovery_points,
)
from simulation.ledger import Batch, BrokenError, content_of, expect, marker, plain_batch
from topic_settings import log_config

NAMES = ("rename", "delete", "sync directory")
AIMED: dict[str, Callable[[], None]] = {}


def aimed(function: Callable[[], None]) -> Callable[[], None]:
    AIMED[function.__name__] = function
    return function


class Aimed(World):
    """A world with some logs only, which cuts while `self.cutting`, `cuts` times within each operation.

    A state after a cut that was checked before, with the same expectations, is not checked again.

    `again`: the power goes once more, within each operation of the recovery of what the first cut left, where the names
    that are left end with one of these: of states with equal names one is enough, and operations on names are.
    """

    def __init__(
        self,
        seed: int,
        *keys: TopicPartition,
        cuts: int = 2,
        again: tuple[str, ...] = (),
        cutting: bool = False,
        within: str = "",
        max_open_files: int = DEFAULT_LIMIT,
    ) -> None:
        super().__init__(seed, within=within, max_open_files=max_open_files)
        self.cuts, self.again, self.cutting = cuts, again, cutting
        self._states: set[tuple[str, ...]] = set()
        self._seen: set[int] = set()
        self.open()
        for key in keys:
            self.create(key)

    def observe(self, kind: str, path: str) -> None:
        if self.cutting:
            super().observe(kind, path)

    def check(self, disk: SimulatedDisk, seed: int, where: str) -> None:
        ledgers = [
            (key, len(it.batches), it.longer is None, it.durable, it.start, it.high_watermark)
            for key, it in self.ledgers.items()
        ]
        stages = [(it.cleaned_to, it.maybe_gone, it.closed is None) for it in self.ledgers.values()]
        state = hash((tuple(disk.walk()), tuple(ledgers), tuple(stages), disk.now_ms))
        if state in self._seen:
            return
        self._seen.add(state)
        self.checked += 1
        try:
            noted = recovery_points(disk)
            if self.again and any(path.endswith(self.again) for path, _ in disk.walk()):
                self.check_again(disk, noted, seed)
            self.verify(disk, noted, goes_on=False)
        except Exception as error:
            raise BrokenError(f"seed {self.seed}, {where}, cut {seed}: {error!r}") from error

    def check_again(self, disk: SimulatedDisk, noted: dict[TopicPartition, int], seed: int) -> None:
        """Cut within each operation of the recovery, too."""
        state = tuple(path for path, _ in disk.walk())
        if state in self._states:
            return
        self._states.add(state)
        mended = disk.after_a_cut(seed)  # all of it is on the disk by now
        left: list[SimulatedDisk] = []

        def observe(kind: str, _path: str) -> None:
            if kind in NAMES:
                left.extend(mended.after_a_cut(seed + 1 + len(left) + at) for at in range(self.cuts))

        mended.observer = observe
        open_directory(mended).release()
        mended.observer = None
        for each in left:
            self.deep += 1
            self.verify(each, noted, goes_on=False)


def appended(world: World, key: TopicPartition, *batches: Batch) -> None:
    """Append these to a log."""
    for each in batches:
        world.ledgers[key].batches.append(each)
        put(world.log(key), each, world.disk.now_ms)


def several_segments(world: World, key: TopicPartition, count: int, each: int = 2) -> None:
    """Append to a log, and roll, so many times; all of it is flushed."""
    for _ in range(count):
        for _ in range(each):
            world.append(key)
        world.roll(key)
    world.flush(key)


@aimed
def retention_of_old_segments() -> None:
    for seed in (1, 2):
        world = Aimed(seed, PLAIN)
        several_segments(world, PLAIN, 3)
        world.disk.now_ms += 10 * 60_000
        world.append(PLAIN)
        world.flush(PLAIN)
        world.cutting = True
        world.retention(PLAIN)
        world.append(PLAIN)
        world.disk.now_ms += 10 * 60_000
        world.remove_deleted(PLAIN)


def latest_first(world: World) -> None:
    """Append a segment in which the time index alone tells of the latest record, and another one; flush."""
    for at, age_ms in enumerate((0, 30_000, 30_000, 30_000)):
        appended(world, PLAIN, plain_batch(at, 0, world.disk.now_ms - age_ms, 1, 200))
    world.roll(PLAIN)
    world.disk.now_ms += 50_000
    appended(world, PLAIN, plain_batch(4, 0, world.disk.now_ms, 1, 200))
    world.flush(PLAIN)


@aimed
def indexes_that_a_recovery_made() -> None:
    """When a checkpoint says that they need no other recovery, they are durable."""
    world = Aimed(1, PLAIN, cuts=12)
    latest_first(world)
    world.kill(PLAIN)
    assert world.log(PLAIN).loaded.recovered == [0, 4]
    world.append(PLAIN)
    world.flush(PLAIN)
    world.cutting = True
    world.checkpoints(PLAIN)


@aimed
def a_retention_of_a_segment_whose_latest_record_is_its_first() -> None:
    """Its time index must not go while the log can come back."""
    world = Aimed(1, PLAIN, cuts=12, within="rename")
    latest_first(world)
    world.checkpoints(PLAIN)
    world.disk.now_ms += 20_000
    world.cutting = True
    world.retention(PLAIN)
    assert len(world.log(PLAIN).segments) == 1


@aimed
def a_start_that_finishes_a_deletion() -> None:
    """An index whose log has gone looks like one whose log is lost, where the log passes for one that was closed."""
    for seed in range(3):
        disk, config = SimulatedDisk(seed), log_config(SMALL)
        disk.make_directory("/logs")
        disk.sync_directory("/")
        log = _opened(disk, config)
        for at in range(3):
            put(log, plain_batch(at, 0, START_MS, 1, 200), START_MS)
            log.roll(START_MS)
        log.close()
        disk.rename(f"{FOLDER}/{0:020}.log", f"{FOLDER}/{0:020}.log.deleted")
        disk.sync_directory(FOLDER)
        cuts: list[SimulatedDisk] = []
        disk.observer = lambda kind, _path, disk=disk, cuts=cuts: (
            cuts.extend(disk.after_a_cut(len(cuts) + at) for at in range(8)) if kind in NAMES else None
        )
        _opened(disk, config, clean=True).release()
        disk.observer = None
        for cut in cuts:
            log = _opened(cut, config, clean=True)
            expect([each.base_offset for each in log.segments] == [1, 2, 3], "the other segments are there")


@aimed
def a_head_that_is_cut_off_twice() -> None:
    world = Aimed(1, CUT, again=(".swap",), within="|".join(NAMES))
    for at in range(3):
        appended(world, CUT, plain_batch(at, 0, world.disk.now_ms, 1, 30))
        world.disk.now_ms += 25_000
    world.roll(CUT)
    world.flush(CUT)
    for start in (1, 2):
        world.cutting = True
        world.log(CUT).delete_old_segments(Moment.fixed(world.disk.now_ms))
        world.cutting = False
        assert world.log(CUT).segments[0].base_offset == start
        world.disk.now_ms += 25_000


@aimed
def truncation_behind_several_segments() -> None:
    for seed in (1, 2, 3):
        world = Aimed(seed, PLAIN)
        several_segments(world, PLAIN, 3)
        world.checkpoints(PLAIN)
        world.cutting = True
        world.truncate_to(PLAIN, world.log(PLAIN).log_start_offset)
        expect(not any(".deleted" in path for path, _ in world.disk.walk()), "what was cut off lies there still")
        for _ in range(3):
            world.append(PLAIN)


@aimed
def truncation_of_a_whole_log() -> None:
    for seed in (1, 2, 3):
        world = Aimed(seed, PLAIN)
        several_segments(world, PLAIN, 2)
        world.checkpoints(PLAIN)
        world.cutting = True
        world.truncate_fully(PLAIN)
        world.append(PLAIN)
        world.flush(PLAIN)
        world.append(PLAIN)


@aimed
def appends_rolls_and_flushes() -> None:
    for seed in (1, 2):
        world = Aimed(seed, PLAIN, cuts=1)
        world.cutting = True
        several_segments(world, PLAIN, 2, each=3)
        world.append(PLAIN)
        world.flush(PLAIN)
        world.append(PLAIN)


@aimed
def a_partition_that_is_deleted_and_made_again() -> None:
    for seed in range(1, 5):
        world = Aimed(seed, PLAIN)
        world.append(PLAIN)
        world.flush(PLAIN)
        world.cutting = True
        world.recreate(PLAIN)
        world.append(PLAIN)
        world.flush(PLAIN)
        world.append(PLAIN)


@aimed
def a_first_start_and_a_first_record() -> None:
    for seed in range(1, 5):
        world = Aimed(seed, PLAIN, cuts=3, cutting=True)
        world.append(PLAIN)
        world.flush(PLAIN)
        world.disk.phase = "behind"
        world.checkpoints(PLAIN)


@aimed
def a_close_and_a_new_start() -> None:
    for seed in (1, 2):
        world = Aimed(seed, PLAIN, CUT)
        several_segments(world, PLAIN, 2)
        world.disk.now_ms += 10 * 60_000
        world.append(PLAIN)
        world.append(CUT)
        world.retention(PLAIN)  # of most producers only snapshots tell from now on
        world.cutting = True
        world.restart(PLAIN)
        world.append(PLAIN)
        world.append(CUT)


@aimed
def a_close_of_a_log_with_an_aborted_transaction() -> None:
    """The index that tells readers of it was made by an append, and its name was not durable before."""
    world = Aimed(1, PLAIN, cuts=4)
    data = batch_of(
        0, START_MS, 2, producer_id=TRANSACTIONAL, producer_epoch=0, base_sequence=0, attributes=16,
        partition_leader_epoch=0,
    )  # fmt: skip
    appended(world, PLAIN, Batch(0, 1, data, START_MS, 0, transaction="data"))
    appended(world, PLAIN, marker(2, 0, START_MS, TRANSACTIONAL, commits=False))
    world.cutting = True
    world.restart(PLAIN)
    assert len(aborted_transactions(world.log(PLAIN), 0, 3)) == 1


@aimed
def a_start_behind_a_truncation_within_a_batch() -> None:
    """The log gets a new segment, of which a crash may leave some files: it was not closed like this."""
    for seed in range(3):
        world = Aimed(seed, COMPACTED, cuts=16, within="(create|truncate|write) /data/compacted")
        log, ledger = world.log(COMPACTED), world.ledgers[COMPACTED]
        while len(ledger.batches) < 2 or ledger.batches[-1].base == ledger.batches[-1].last:
            world.append(COMPACTED)
        offset = ledger.batches.pop().last
        log.truncate_to(offset, world.disk.now_ms)
        world.close()
        world.directory, world.cutting = None, True
        world.reopen(lambda _ledger, end, offset=offset: end == offset)
        assert world.log(COMPACTED).active.base_offset == offset
        for more in range(2):
            appended(world, COMPACTED, plain_batch(offset + more, ledger.epoch, START_MS, 1, 30))
            world.flush(COMPACTED)


@aimed
def appends_and_flushes_with_few_descriptors() -> None:
    """A file that is closed for others is synced first: a failed write is reported to its open descriptors alone."""
    world = Aimed(1, PLAIN, CUT, cuts=2, within="write", max_open_files=1)
    world.cutting = True
    close, unsynced = SimulatedFile.close, list[str]()

    def noted(file: SimulatedFile) -> None:
        if file._is_open and file._disk is world.disk and file._inode.changes:
            unsynced.append(file.path)
        close(file)

    with patch.object(SimulatedFile, "close", noted):
        for _ in range(4):
            for key in (PLAIN, CUT):
                world.append(key)
            for key in (PLAIN, CUT):
                world.flush(key)
    expect(not unsynced, f"closed with what was not synced: {unsynced}")


@aimed
def a_start_that_puts_damaged_files_aside() -> None:
    """When the start continues, unreadable files are in the quarantine, whatever the power does."""
    for seed in range(3):
        world = Aimed(seed, PLAIN)
        world.append(PLAIN)
        world.close()
        disk, damaged = world.disk, b"none of a checkpoint"
        with disk.edit(f"{PATH}/{checkpoints.HIGH_WATERMARK}") as file:
            file.truncate(0)
            file.write_at(0, damaged)
            file.sync()
        named = f"{PATH}/{PLAIN}/{7:020}.index"
        disk.make_directory(named)
        with disk.create(f"{named}/inside") as file:
            file.write_at(0, b"no index")
            file.sync()
        for folder in (named, f"{PATH}/{PLAIN}"):
            disk.sync_directory(folder)
        cuts: list[SimulatedDisk] = []
        disk.observer = lambda kind, _path, disk=disk, cuts=cuts: (
            cuts.extend(disk.after_a_cut(len(cuts) + at) for at in range(4)) if kind in ("create", "write") else None
        )
        directory = open_directory(disk)
        disk.observer = None
        directory.release()
        for name in (checkpoints.HIGH_WATERMARK, named):
            expect(any(name in note for note in directory.notes), f"{name} is reported")
        for each in (disk, *cuts):
            there = dict(each.walk())
            expect({damaged, b"no index"} <= set(there.values()), "what was put aside is lost")
        quarantined = {content for path, content in disk.walk() if path.startswith(f"{PATH}/{QUARANTINE}/")}
        expect(quarantined == {damaged, b"no index"}, "what was put aside is in the quarantine")


FOLDER = "/logs/orders-0"
KEPT_APART = "/logs/quarantine"


@aimed
def recovery_of_a_log_with_damage_inside() -> None:
    """What is cut off lies in the quarantine before it goes, and does not come back behind what is appended then."""
    batches = [plain_batch(at, 0, START_MS, 1, 440) for at in range(9)]
    config = log_config({**SMALL, "segment.bytes": str(3 * len(batches[0].content))})
    for seed in (1, 2, 3):
        disk = SimulatedDisk(seed)
        disk.make_directory("/logs")
        disk.sync_directory("/")
        log = _opened(disk, config)
        for each in batches:
            put(log, each, START_MS)
        log.flush(START_MS)
        log.release()
        with disk.edit(f"{FOLDER}/{3:020}.log") as file:
            file.write_at(len(batches[0].content) + 80, b"damage")
            file.sync()
        before = {path: content for path, content in disk.walk() if path.endswith(".log")}
        left, allowed = list[tuple[SimulatedDisk, list[bytes]]](), [each.content for each in batches[:4]]
        disk.observer = functools.partial(_leave, disk, seed, left, allowed)
        log = _opened(disk, config)
        expect(log.log_end_offset == 4, "the log ends before the damage")
        for at in (4, 5):
            made = plain_batch(at, 1, START_MS + 1, 2, 440)
            allowed.append(made.content)
            put(log, made, START_MS)
        for cut, contents in left:
            log = _opened(cut, config)
            found = [content for _, content in content_of(log)]
            expect(found == contents[: len(found)], "what was cut off came back, or something was invented")
            expect(len(found) >= 4, "sound data before damage is lost")
            _expect_copies(cut, before)


def _leave(
    disk: SimulatedDisk,
    seed: int,
    left: list[tuple[SimulatedDisk, list[bytes]]],
    allowed: list[bytes],
    _kind: str,
    _path: str,
) -> None:
    """Note what three cuts leave now, and what the log may hold then."""
    left += [(disk.after_a_cut(seed + 3 * len(left) + at), list(allowed)) for at in range(3)]


def _opened(disk: SimulatedDisk, config: LogConfig, *, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(disk, FOLDER, config, monotonic_ms=START_MS, clean=clean, quarantine=KEPT_APART)


def _expect_copies(disk: SimulatedDisk, before: dict[str, bytes]) -> None:
    """See that all bytes that there were are in their place still, or in the quarantine."""
    there = dict(disk.walk())
    for path, content in before.items():
        found = there.get(path, b"")
        same = (at for at, (one, other) in enumerate(zip(content, found, strict=False)) if one != other)
        kept = next(same, min(len(content), len(found)))
        copies = {
            int(name.split(".")[2]): copy
            for name, copy in there.items()
            if name.startswith(f"{KEPT_APART}/orders-0.{int(path[-24:-4]):020}.") and name.endswith(".bytes")
        }
        whole = any(at <= kept and copy == content[at:] for at, copy in copies.items())
        expect(kept == len(content) or whole, f"{path}: cut off at {kept}, and there is no copy")


@aimed
def compaction_of_several_segments_into_one() -> None:
    for seed in (1,):
        world = Aimed(seed, COMPACTED, again=(".swap",), within="|".join(NAMES))
        several_segments(world, COMPACTED, 3, each=1)
        world.ledgers[COMPACTED].cleaned_to = world.log(COMPACTED).active.base_offset
        world.cutting = True
        world.maintenance.step(1 << 20, Moment.fixed(world.disk.now_ms))
        world.cutting = False
        assert world.maintenance.results[COMPACTED].groups[0][1:], "several segments became one"


@aimed
def compaction_that_leaves_no_transaction_index() -> None:
    """An old one must not stay beside the new log: a reader would hide the producer's later transactions."""
    log = Cleaned(segment_index_bytes=480)
    log.append([1], producer=1, transactional=True)
    log.mark(ControlType.ABORT, 1)
    log.append([2], producer=1, transactional=True)
    log.commit(1)
    log.roll()
    log.clean()

    before, cuts = content_of(log.log), list[SimulatedDisk]()
    assert len(aborted_transactions(log.log, 0, log.log.log_end_offset)) == 1
    log.disk.observer = lambda kind, _path: (
        cuts.extend(log.disk.after_a_cut(len(cuts) + at) for at in range(150)) if kind == "sync directory" else None
    )
    log.clean(log.log.active.base_offset, now_ms=NOW + DAY, delete_retention_ms=0)
    log.disk.observer = None
    after = content_of(log.log)
    assert after != before
    for cut in {tuple(each.walk()): each for each in cuts}.values():
        found = PartitionLog.open(
            cut, log.log.folder, log.config, monotonic_ms=NOW, recovery_point=log.log.active.base_offset
        )
        has_index = bool(aborted_transactions(found, 0, found.log_end_offset))
        expect(content_of(found) in ([before] if has_index else [before, after]), "the index is not the log's")
