"""Crash simulations of one step each: small logs, and every cut within the operations that the step is made of.

The long simulation (`crashes.run`) does everything now and then; these are short enough to be run with every change,
and dense enough that each sync and each rename of `log/` is missed by one of them (`run_sync_mutations.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from magicbyte.log.checkpoints import TopicPartition
from magicbyte.log.config import LogConfig
from magicbyte.log.partition_log import PartitionLog
from magicbyte.ports import Moment
from magicbyte.testing.disk import SimulatedDisk
from simulation.crashes import (
    COMPACTED,
    CUT,
    PLAIN,
    SMALL,
    START_MS,
    World,
    open_directory,
    put,
    recovery_points,
)
from simulation.ledger import BrokenError, content_of, expect, plain_batch

NAMES = ("rename", "delete", "sync directory")
AIMED: dict[str, Callable[[], None]] = {}


def aimed(function: Callable[[], None]) -> Callable[[], None]:
    AIMED[function.__name__] = function
    return function


class Aimed(World):
    """A world with some logs only, which cuts while `self.cutting`, `cuts` times within each operation.

    `again`: the power goes once more, within each operation of the recovery of what the first cut left, where the names
    that are left end with one of these: of states with equal names one is enough, and operations on names are.
    """

    def __init__(
        self, seed: int, *keys: TopicPartition, cuts: int = 2, again: tuple[str, ...] = (), cutting: bool = False
    ) -> None:
        super().__init__(seed)
        self.cuts, self.again, self.cutting = cuts, again, cutting
        self._states: set[tuple[str, ...]] = set()
        self.open()
        for key in keys:
            self.create(key)

    def observe(self, kind: str, path: str) -> None:
        if self.cutting:
            super().observe(kind, path)

    def check(self, disk: SimulatedDisk, seed: int, where: str) -> None:
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


@aimed
def a_head_that_is_cut_off() -> None:
    for seed in (1, 2):
        world = Aimed(seed, CUT, again=(".swap",))
        several_segments(world, CUT, 1)
        world.disk.now_ms += 55_000
        several_segments(world, CUT, 1)
        world.disk.now_ms += 20_000
        world.flush(CUT)
        world.cutting = True
        world.retention(CUT)


@aimed
def truncation_behind_several_segments() -> None:
    for seed in (1, 2, 3):
        world = Aimed(seed, PLAIN)
        several_segments(world, PLAIN, 3)
        world.checkpoints(PLAIN)
        world.cutting = True
        world.truncate_to(PLAIN, world.log(PLAIN).log_start_offset)
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
    for seed in range(1, 9):
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


FOLDER = "/logs/orders-0"
QUARANTINE = "/logs/quarantine"


@aimed
def recovery_of_a_log_with_damage_inside() -> None:
    """What is cut off lies in the quarantine before it goes, and does not come back behind what is appended then."""
    batches = [plain_batch(at, 0, START_MS, 1, 440) for at in range(9)]
    config = LogConfig.of({**SMALL, "segment.bytes": str(3 * len(batches[0].content))})
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
        expect(log.log_end_offset == 4, "the log ends in front of the damage")
        for at in (4, 5):
            made = plain_batch(at, 1, START_MS + 1, 2, 440)
            allowed.append(made.content)
            put(log, made, START_MS)
        for cut, contents in left:
            log = _opened(cut, config)
            found = [content for _, content in content_of(log)]
            expect(found == contents[: len(found)], "what was cut off came back, or something was invented")
            expect(len(found) >= 4, "what is sound in front of damage is lost")
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


def _opened(disk: SimulatedDisk, config: LogConfig) -> PartitionLog:
    return PartitionLog.open(disk, FOLDER, config, monotonic_ms=START_MS, quarantine=QUARANTINE)


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
            if name.startswith(f"{QUARANTINE}/orders-0.{int(path[-24:-4]):020}.") and name.endswith(".bytes")
        }
        whole = any(at <= kept and copy == content[at:] for at, copy in copies.items())
        expect(kept == len(content) or whole, f"{path}: cut off at {kept}, and there is no copy")


@aimed
def compaction_of_several_segments_into_one() -> None:
    for seed in (1,):
        world = Aimed(seed, COMPACTED, again=(".swap",))
        several_segments(world, COMPACTED, 3, each=1)
        world.ledgers[COMPACTED].cleaned_to = world.log(COMPACTED).active.base_offset
        world.cutting = True
        world.maintenance.step(1 << 20, Moment.fixed(world.disk.now_ms))
        world.cutting = False
        assert world.maintenance.results[COMPACTED].groups[0][1:], "several segments became one"
