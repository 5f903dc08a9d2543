"""Segments whose offsets reach farther than an index can tell are parted when their log is opened, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.log.appended import batch_of
from engine.log.builders import bases
from engine.log.compacted import NOW, Cleaned, latest
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing.disk import SimulatedDisk
from topic_settings import log_config

FAR = 1 << 31
SMALL = {"segment.index.bytes": "240", "index.interval.bytes": "100"}
OFFSETS = (0, 1, FAR - 1, FAR + 5, FAR + 6, 2 * FAR + 9)
FOLDER = "/logs/orders-0"


def a_disk(content: bytes, base: int = 0, **index_files: bytes) -> SimulatedDisk:
    """A disk with one segment on it."""
    disk = SimulatedDisk(1)
    for folder in ("/logs", FOLDER):
        disk.make_directory(folder)
        disk.sync_directory(folder.rpartition("/")[0] or "/")
    for suffix, data in {LOG: content, **{f".{kind}": data for kind, data in index_files.items()}}.items():
        with disk.create(f"{FOLDER}/{base:020}{suffix}") as file:
            file.write_at(0, data)
            file.sync()
    disk.sync_directory(FOLDER)
    return disk


def opened(disk: SimulatedDisk, *, clean: bool = False, **settings: str) -> PartitionLog:
    config = log_config(SMALL | {name.replace("_", "."): value for name, value in settings.items()})
    return PartitionLog.open(disk, FOLDER, config, monotonic_ms=NOW, clean=clean, quarantine="/logs/quarantine")


def batches(offsets: Sequence[int]) -> bytes:
    return b"".join(batch_of(offset, NOW + at) for at, offset in enumerate(offsets))


def content(log: PartitionLog) -> bytes:
    return b"".join(each.log.read_at(0, each.size) for each in log.segments)


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_of_too_many_offsets_is_split_before_each_that_is_too_far(clean: bool) -> None:
    disk = a_disk(batches(OFFSETS), index=b"", timeindex=b"")
    log = opened(disk, clean=clean)
    assert bases(log) == [0, FAR + 5, 2 * FAR + 9]
    assert (content(log), log.log_end_offset, log.log_start_offset) == (batches(OFFSETS), 2 * FAR + 10, 0)
    assert log.loaded.cuts == []
    for at, offset in enumerate(OFFSETS):
        found = log.read(offset, 1)
        assert found is not None
        assert found.read() == batch_of(offset, NOW + at)
        assert offset_for_timestamp(log, NOW + at) == (NOW + at, offset)
    log.close()
    again = opened(disk, clean=True)
    assert (bases(again), again.loaded.recovered) == (bases(log), [])
    assert not [entry.name for entry in disk.list(FOLDER) if entry.name.endswith((".swap", ".cleaned", ".deleted"))]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_and_wrappers_begin_a_part_with_their_first_offset(codec: Codec) -> None:
    data = b"".join(
        encode_records([Record(first + at, NOW, 0, b"k", b"v") for at in range(3)], Format.V1, codec)
        for first in (4, FAR + 20, FAR + 30)
    )
    log = opened(a_disk(data))
    assert bases(log) == [0, FAR + 20]
    assert (content(log), log.log_end_offset) == (data, FAR + 33)


def test_a_first_entry_that_is_too_far_itself_begins_the_log() -> None:
    log = opened(a_disk(batches((FAR + 7, FAR + 8))))
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([FAR + 7], FAR + 7, FAR + 9)


def test_damage_behind_is_cut_off_and_kept_apart() -> None:
    data = batches(OFFSETS)
    log = opened(a_disk(data + b"junk" * 30))
    assert (bases(log), content(log)) == ([0, FAR + 5, 2 * FAR + 9], data)
    assert [(cut.position, cut.removed) for cut in log.loaded.cuts] == [(len(data), 120)]
    assert log.loaded.cuts[0].quarantine is not None


def test_an_offset_of_the_next_segment_is_damage() -> None:
    disk = a_disk(batches((0, 1, FAR + 50)))
    with disk.create(f"{FOLDER}/{FAR + 5:020}{LOG}") as file:
        file.write_at(0, batches((FAR + 5,)))
    log = opened(disk)
    assert (bases(log), log.log_end_offset, len(log.loaded.cuts)) == ([0], 2, 2)


def test_a_segment_between_others_is_parted_in_its_place() -> None:
    disk = a_disk(batches((0, 1, FAR + 5)))
    with disk.create(f"{FOLDER}/{FAR + 90:020}{LOG}") as file:
        file.write_at(0, batches((FAR + 90, FAR + 91)))
    log = opened(disk, clean=True)
    assert (bases(log), log.log_end_offset) == ([0, FAR + 5, FAR + 90], FAR + 92)
    assert content(log) == batches((0, 1, FAR + 5)) + batches((FAR + 90, FAR + 91))


def test_storage_check_9_a_crash_at_any_step_leaves_it_whole_or_in_parts_that_are() -> None:
    disk = a_disk(batches(OFFSETS), index=b"", timeindex=b"")
    cuts: list[SimulatedDisk] = []
    disk.observer = lambda kind, _path: cuts.extend(
        disk.after_a_cut(10 * len(cuts) + at) for at in range(60 if kind == "rename" else 4)
    )
    opened(disk).release()
    disk.observer = None
    assert len(cuts) > 100
    names = {tuple(sorted(entry.name for entry in cut.list(FOLDER) if LOG in entry.name)) for cut in cuts}
    assert {name.rpartition(".")[2] for found in names for name in found} == {"log", "cleaned", "swap"}
    for cut in {tuple(each.walk()): each for each in cuts}.values():
        log = opened(cut)
        assert (bases(log), content(log)) == ([0, FAR + 5, 2 * FAR + 9], batches(OFFSETS))


def test_cleaner_check_25_keys_are_intact_and_the_parts_are_compacted() -> None:
    records = [Record(offset, NOW, 0, b"%d" % (at % 3), b"v") for at, offset in enumerate(OFFSETS)]
    data = b"".join(encode_records([record], Format.V2) for record in records)
    disk = a_disk(data, index=b"", timeindex=b"")
    log = Cleaned(disk, segment_index_bytes=240)
    assert log.records() == records
    assert bases(log.log) == [0, FAR + 5, 2 * FAR + 9]
    log.roll()
    report = log.clean()
    assert report.groups == [[0], [FAR + 5], [2 * FAR + 9]]
    assert log.records() == sorted(latest(records).values())
