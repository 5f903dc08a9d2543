"""A live log: the situations that Kafka's own tests name, by the numbers of the table that they were taken from."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any, cast

import pytest

from engine.log.appended import batch_of, batch_of_two
from engine.log.builders import bases
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    AppendRefusedError,
    CorruptRecordError,
    ErrorCode,
    LogDirectoryError,
    LogDirectoryOfflineError,
    OffsetOutOfRangeError,
)
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.record_set import indexed, record_set
from magicbyte.engine.log.files.checkpoints import LeaderEpoch
from magicbyte.engine.log.files.filesystem import LocalFile, LocalFiles
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.live.group_commit import GroupCommit
from magicbyte.engine.log.live.lookups import (
    aborted_transactions,
    offset_for_timestamp,
    offsets_before,
    size_in_segment,
)
from magicbyte.engine.log.live.partition_log import Flush, PartitionLog
from magicbyte.engine.log.live.retention import Reason
from magicbyte.engine.log.live.segment import Segment
from magicbyte.engine.ports import Moment, WritableFileSystem
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.enriched import Tag, build_enriched_message, build_enriched_wrapper, encode_tags
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message
from magicbyte.engine.records.scan import scan
from magicbyte.testing.disk import SimulatedDisk
from topic_settings import append_rules, log_config

NOW = 1_700_000_000_000
SIZE = len(batch_of(0, NOW))
FILES = LocalFiles()


def open_log(
    path: str | Path, files: WritableFileSystem = FILES, *, clean: bool = True, **settings: str
) -> PartitionLog:
    named = {name.replace("_", "."): value for name, value in settings.items() if name not in OPENING}
    opening = {name: int(value) for name, value in settings.items() if name in OPENING}
    return PartitionLog.open(files, str(path), log_config(named), monotonic_ms=NOW, clean=clean, **opening)


OPENING = ("recovery_point", "committed", "log_start_offset")


def add(log: PartitionLog, timestamp: int = NOW, *, offset: int | None = None, now: int = NOW, **header: int) -> None:
    base = log.log_end_offset if offset is None else offset
    log.append(record_set(batch_of(base, timestamp, **header), log.config.rules), Moment.fixed(now))


def fill(log: PartitionLog, count: int, first: int = NOW, step: int = 10) -> None:
    for at in range(count):
        add(log, first + at * step)


def read_all(log: PartitionLog) -> list[bytes]:
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset and (part := log.read(offset, 1)) is not None:
        found.append(part.read())
        offset = int.from_bytes(found[-1][:8], "big") + int.from_bytes(found[-1][23:27], "big") + 1
    return found


def index_files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if "index" in each.suffix}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


SMALL = {"segment_bytes": "1500", "index_interval_bytes": "100", "segment_index_bytes": "1200"}


def test_1_a_log_without_its_mark_is_recovered_to_the_same_indexes_and_recovery_point(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 100)
    log.close()
    before = index_files(folder)
    log = open_log(folder, clean=False, recovery_point="10", **SMALL)
    assert (log.log_end_offset, log.recovery_point) == (100, 10)
    assert log.loaded.recovered == bases(log)
    log.flush(NOW)
    assert log.recovery_point == 100
    log.close()
    assert index_files(folder) == before


def test_2_junk_behind_the_log_and_its_index_goes(folder: Path) -> None:
    rng = random.Random(2)
    log = open_log(folder, **SMALL)
    fill(log, 30)
    for _ in range(10):
        kept = read_all(log)
        log.close()
        for suffix in (".log", ".index"):
            with max(folder.glob(f"*{suffix}")).open("ab") as file:
                file.write(rng.randbytes(rng.randint(1, 500)))
        log = open_log(folder, clean=False, **SMALL)
        assert read_all(log) == kept
        add(log)


def test_3_a_corrupt_byte_ends_the_log_there_and_copies_of_the_rest_are_kept(folder: Path, tmp_path: Path) -> None:
    log = open_log(folder, segment_bytes=str(SIZE * 20))
    fill(log, 50)
    log.close()
    path = folder / f"{20:020}.log"
    damaged = bytearray(path.read_bytes())
    damaged[SIZE * 7 + 40] ^= 1
    path.write_bytes(damaged)
    config = log_config({"segment.bytes": str(SIZE * 20)})
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=NOW, quarantine=str(tmp_path / "quarantine"))
    assert (log.log_end_offset, bases(log), path.stat().st_size) == (27, [0, 20], SIZE * 7)
    assert [cut.removed for cut in log.loaded.cuts] == [SIZE * 13, SIZE * 10]
    assert "crc" in log.loaded.cuts[0].reason
    kept = tmp_path / "quarantine" / f"orders-0.{20:020}.{SIZE * 7}.bytes"
    assert kept.read_bytes() == bytes(damaged)[SIZE * 7 :]


def test_4_missing_indexes_are_made_again(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 100)
    log.close()
    before = index_files(folder)
    for path in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
        path.unlink()
    log = open_log(folder, **SMALL)
    assert offset_for_timestamp(log, NOW + 505) == (NOW + 510, 51)
    log.close()
    assert index_files(folder) == before


def test_5_an_index_without_a_log_goes(folder: Path) -> None:
    open_log(folder).close()
    orphan = folder / f"{5:020}.index"
    orphan.write_bytes(b"")
    open_log(folder).close()
    assert not orphan.exists()


def test_6_a_log_that_ends_below_its_start_begins_there_empty(folder: Path) -> None:
    log = open_log(folder)
    fill(log, 5)
    log.close()
    (folder / f"{0:020}.log").write_bytes(b"junk" * 40)
    log = open_log(folder, clean=False, log_start_offset="4")
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.size) == ([4], 4, 4, 0)


def test_7_and_8_offsets_too_far_from_the_base_roll(folder: Path) -> None:
    far = 2**31
    log = open_log(folder)
    for offset in (0, far + 1, far + 2, far + 3):
        add(log, offset=offset)
    assert bases(log) == [0, far + 1]
    old = open_log(folder.parent / "old-0")
    for offset in (0, far + 5):
        message = build_message(1, offset, NOW, None, b"v")
        old.append(record_set(message, old.config.rules), Moment.fixed(NOW))
    assert bases(old) == [0, 6]
    with pytest.raises(LogDirectoryError, match="expected offsets from"):
        add(log, offset=far)


def test_10_without_timestamps_the_clock_rolls(folder: Path) -> None:
    log = open_log(folder, segment_ms="1000")
    for now in (NOW, NOW + 500):
        add(log, -1, now=now)
    assert bases(log) == [0]
    add(log, -1, now=NOW + 1001)
    assert bases(log) == [0, 2]


def test_11_with_timestamps_only_they_roll(folder: Path) -> None:
    log = open_log(folder, segment_ms="1000")
    add(log, NOW)
    add(log, NOW, now=NOW + 10**9)
    add(log, NOW - 10**9)
    add(log, NOW + 1000)
    assert bases(log) == [0]
    add(log, NOW + 1001)
    assert bases(log) == [0, 4]


def test_12_what_holds_nothing_is_not_appended_and_rolls_nothing(folder: Path) -> None:
    log = open_log(folder, segment_ms="1000")
    log.roll(NOW + 5000)
    log.roll(NOW + 10_000)
    assert bases(log) == [0]
    add(log, NOW)
    prepared = prepare(
        memoryview(b""), append_rules({}), next_offset=1, now_ms=NOW + 5000, leader_epoch=0, request_version=2
    )
    assert (prepared.records, prepared.first_offset) == (0, -1)
    for nothing in (b"", batch_of(1, NOW + 5000)[:-1]):
        with pytest.raises(CorruptRecordError):
            record_set(nothing, log.config.rules)
    assert (bases(log), log.log_end_offset) == ([0], 1)


def test_13_jitter_is_taken_off_the_time(folder: Path) -> None:
    config = log_config({"segment.ms": "1000", "segment.jitter.ms": "400"})
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=NOW, clean=True, jitter=lambda most: most // 2)
    add(log, NOW)
    add(log, NOW + 800)
    assert bases(log) == [0]
    add(log, NOW + 801)
    assert bases(log) == [0, 2]


def test_14_size_rolls(folder: Path) -> None:
    log = open_log(folder, segment_bytes=str(10 * (SIZE - 1)))
    fill(log, 11)
    assert len(log.segments) == 2


@pytest.mark.parametrize(("offset", "end", "changes"), [(30, 30, False), (31, 30, False), (15, 15, True), (0, 0, True)])
def test_15_truncation(folder: Path, offset: int, end: int, changes: bool) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 30)
    before = read_all(log)
    assert log.truncate_to(offset, NOW) is changes
    assert (log.log_end_offset, read_all(log)) == (end, before[:end])
    add(log)
    log.close()
    assert open_log(folder, **SMALL).log_end_offset == end + 1


def test_15_an_epoch_in_which_nothing_was_written_is_forgotten_where_no_record_is_cut(folder: Path) -> None:
    log = open_log(folder)
    fill(log, 5)
    log.epoch_file.begin(7, 5)
    assert log.truncate_to(5, NOW) is False
    assert [each.epoch for each in log.epochs.entries if each.epoch == 7] == []
    log.close()
    assert open_log(folder).epochs.entries == log.epochs.entries


def test_16_truncation_into_a_batch_ends_the_log_there_and_its_data_before(folder: Path) -> None:
    log = open_log(folder)
    log.append(record_set(batch_of(0, NOW, 10), log.config.rules), Moment.fixed(NOW))
    log.append(record_set(batch_of(10, NOW, 10), log.config.rules), Moment.fixed(NOW))
    log.truncate_to(13, NOW)
    assert (log.log_end_offset, len(read_all(log))) == (13, 1)
    add(log)
    assert [int.from_bytes(each[:8], "big") for each in read_all(log)] == [0, 13]


@pytest.mark.parametrize("offset", [4, 100])
def test_a_log_that_begins_elsewhere_has_its_high_watermark_at_its_start(folder: Path, offset: int) -> None:
    log = open_log(folder)
    fill(log, 10)
    log.high_watermark = 10
    log.truncate_fully(offset, NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset, offset, offset)
    assert log.recovery_point <= offset


def test_a_gap_at_the_high_watermark_does_not_move_the_start_beyond_it(folder: Path) -> None:
    log = open_log(folder, log_head_truncation="true", retention_ms="10000")
    add(log)
    log.high_watermark = 1
    add(log, NOW + 20_000, offset=4)
    planned = log.retention(NOW + 20_000).plan(log.segments)
    assert [each.head for each in planned[0]] == [True]
    assert log.delete_old_segments(Moment.fixed(NOW + 20_000)) == planned[0]
    assert bases(log)[0] == 4
    assert (planned[1], log.log_start_offset, log.high_watermark) == (1, 1, 1)
    assert read_all(log) == [batch_of(4, NOW + 20_000)]


def test_a_log_has_an_active_segment_at_every_step_of_a_truncation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop asks for it while a thread truncates."""
    log = open_log(folder, **SMALL)
    fill(log, 30)
    assert len(log.segments) > 1
    real, seen = Segment.create, list[int]()

    def create(*arguments: Any, **named: Any) -> Segment:
        seen.append(log.active.base_offset)
        return real(*arguments, **named)

    monkeypatch.setattr(Segment, "create", create)
    log.truncate_fully(100, NOW)
    assert seen == [0]
    assert bases(log) == [100]


def test_a_sync_that_a_truncation_overtakes_does_not_raise_the_recovery_point(folder: Path) -> None:
    log = open_log(folder)
    fill(log, 10)
    flush = log.begin_flush()
    assert flush is not None
    flush.run()

    class Overtaken:
        """The finished sync; a thread truncates the log between its check and its end."""

        generation = flush.generation

        @property
        def end_offset(self) -> int:
            log.truncate_to(3, NOW)
            fill(log, 5)
            return flush.end_offset

    log.flushed(cast(Flush, Overtaken()), NOW)
    assert log.recovery_point <= 3
    log.flush(NOW)
    assert log.recovery_point == 8


def test_17_after_truncation_to_nothing_indexes_have_all_their_room(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 20)
    log.truncate_to(0, NOW)
    assert {path.name[20:]: path.stat().st_size for path in folder.glob("*index")} == {
        ".index": 1200,
        ".timeindex": 1200,
    }
    assert [each.count for each in log.active.indexes.by_kind.values()] == [0, 0]


def test_18_and_19_reads_at_a_hole_at_the_end_and_outside(folder: Path) -> None:
    log = open_log(folder)
    for offset in (0, 1, 50):
        add(log, offset=offset)
    assert log.read(2, 1000) == log.read(50, 1000)
    assert log.read(51, 1000) is None
    for outside in (52, -1):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(outside, 1000)


def test_20_a_read_of_a_byte_gives_a_whole_batch_or_a_byte(folder: Path) -> None:
    log = open_log(folder)
    fill(log, 3)
    whole, cut = log.read(1, 1), log.read(1, 1, whole_first=False)
    assert whole is not None
    assert cut is not None
    assert (whole.position, whole.length, cut.length) == (SIZE, SIZE, 1)


def test_reads_end_at_the_upper_bound(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 60)
    part = log.read(0, 10**6, upper=5)
    assert part is not None
    assert part.length == 5 * SIZE
    assert log.read(5, 10**6, upper=5) is None
    edge = bases(log)[1]
    part = log.read(edge - 1, 10**6, upper=edge)
    assert part is not None
    assert part.length == SIZE


def test_bytes_up_to_an_offset_are_counted_in_the_segment_that_has_it_and_in_no_older_one(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 60)
    second, last = bases(log)[1], bases(log)[-1]
    for offset, upper in ((0, 5), (2, second - 1), (last, 60), (last, 59), (59, 60), (5, 5), (60, 60)):
        assert size_in_segment(log, offset, upper) == (upper - offset) * SIZE
    for offset, upper in ((0, second), (second - 1, second), (second - 1, 60), (0, 60), (last - 1, 60)):
        assert size_in_segment(log, offset, upper) is None
    add(log, offset=70)
    assert size_in_segment(log, 62, 71) == SIZE  # from the first entry that reaches it


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(420, 42), (421, 43), (430, 43), (431, 44), (401, 41), (399, 40), (491, None)]
)
def test_21_the_first_record_of_a_time_or_later(folder: Path, timestamp: int, offset: int | None) -> None:
    log = open_log(folder, log_start_offset="40")
    for at in range(40, 50):
        add(log, 10 * at)
    found = offset_for_timestamp(log, timestamp)
    assert found == (None if offset is None else (10 * offset, offset))


def test_special_times_and_what_old_list_offsets_answers(folder: Path) -> None:
    disk = SimulatedDisk()
    log = open_log("/orders-0", disk, segment_bytes=str(SIZE * 2))
    for at in range(5):
        disk.now_ms = NOW + 1000 * at
        add(log, NOW + (at + 2) % 5)
    assert offset_for_timestamp(log, -2) == (-1, 0)
    assert offset_for_timestamp(log, -1) == (-1, 5)
    assert offset_for_timestamp(log, -3) == (NOW + 4, 2)
    assert offsets_before(log, -1, 10, NOW + 9000) == [5, 4, 2, 0]
    assert offsets_before(log, -1, 2, NOW + 9000) == [5, 4]
    assert offsets_before(log, -2, 10, NOW + 9000) == [0]
    assert offsets_before(log, NOW + 3500, 10, NOW + 9000) == [2, 0]
    assert offsets_before(log, NOW, 10, NOW + 9000) == []


FIVES = {"segment_bytes": str(SIZE * 5), "file_delete_delay_ms": "0"}


def test_22_nothing_goes_above_the_high_watermark(folder: Path) -> None:
    log = open_log(folder, retention_ms="999", **FIVES)
    fill(log, 50, NOW - 2000, 0)
    assert log.delete_old_segments(Moment.fixed(NOW)) == []
    log.high_watermark = 25
    log.delete_old_segments(Moment.fixed(NOW))
    assert (bases(log)[0], log.log_start_offset) == (25, 25)


def test_23_when_all_is_old_an_empty_segment_stays(folder: Path) -> None:
    log = open_log(folder, retention_ms="999", **FIVES)
    fill(log, 7, NOW - 2000, 0)
    add(log, NOW - 2000, partition_leader_epoch=4)
    log.high_watermark = 8
    removed = log.delete_old_segments(Moment.fixed(NOW))
    assert {each.reason for each in removed} == {Reason.TIME}
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.size) == ([8], 8, 8, 0)
    assert log.epochs.entries == [LeaderEpoch(4, 8)]
    assert log.remove_deleted(NOW) == 2
    assert sorted(path.suffix for path in folder.glob("*.*")) == [".index", ".log", ".snapshot", ".timeindex"]
    add(log)
    assert log.log_end_offset == 9


@pytest.mark.parametrize(("batches", "segments"), [(10, 2), (15, 3), (11, 3), (0, 1)])
def test_24_size_retention(folder: Path, batches: int, segments: int) -> None:
    log = open_log(folder, retention_ms="-1", retention_bytes=str(batches * SIZE), **FIVES)
    fill(log, 15)
    log.high_watermark = 15
    log.delete_old_segments(Moment.fixed(NOW))
    assert len(log.segments) == segments


def test_25_and_26_delete_records(folder: Path) -> None:
    log = open_log(folder, retention_ms="-1", **FIVES)
    fill(log, 15)
    log.high_watermark = 15
    for offset, segments in ((1, 3), (6, 2), (15, 1)):
        assert log.delete_records(offset) == offset
        log.delete_old_segments(Moment.fixed(NOW))
        assert (len(log.segments), log.log_start_offset) == (segments, offset)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(16)
    assert log.delete_records(-1) == 15


@pytest.mark.parametrize(("policy", "stay"), [("compact", 3), ("compact,delete", 1), ("delete", 1)])
def test_27_and_28_policies(folder: Path, policy: str, stay: int) -> None:
    log = open_log(folder, cleanup_policy=policy, retention_ms="10", **FIVES)
    fill(log, 15, NOW - 1000, 0)
    log.high_watermark = 15
    log.delete_old_segments(Moment.fixed(NOW))
    assert len(log.segments) == stay
    log.delete_records(6) if stay == 3 else None
    log.delete_old_segments(Moment.fixed(NOW))
    assert len(log.segments) == (2 if stay == 3 else 1)


def test_29_a_preallocated_file_is_cut_to_its_data(folder: Path) -> None:
    log = open_log(folder, preallocate="true", segment_bytes="5000")
    fill(log, 3)
    path = folder / f"{0:020}.log"
    assert path.stat().st_size == 5000
    log.close()
    assert path.stat().st_size == 3 * SIZE
    assert open_log(folder, preallocate="true", segment_bytes="5000").log_end_offset == 3


def open_killed(folder: Path, quarantine: Path, size: int = 1 << 30) -> PartitionLog:
    config = log_config({"preallocate": "true", "segment.bytes": str(size)})
    return PartitionLog.open(FILES, str(folder), config, monotonic_ms=NOW, quarantine=str(quarantine))


def test_the_room_of_a_preallocated_file_is_no_damage_and_not_copied_however_often_it_is_killed(
    folder: Path, tmp_path: Path
) -> None:
    quarantine = tmp_path / "quarantine"
    for start in range(3):
        log = open_killed(folder, quarantine)
        assert (log.log_end_offset, log.loaded.cuts) == (start, [])
        assert (folder / f"{0:020}.log").stat().st_size == 1 << 30
        add(log)
        log.release()
    assert not quarantine.exists()
    used = sum(each.stat().st_blocks * 512 for each in tmp_path.rglob("*") if each.is_file())
    assert used < 100_000, "3 GiB where each start copies the room"


def test_what_is_cut_off_a_preallocated_file_is_copied_once_and_sparsely(folder: Path, tmp_path: Path) -> None:
    quarantine, path, room = tmp_path / "quarantine", folder / f"{0:020}.log", 4 << 20
    log = open_killed(folder, quarantine, room)
    add(log)
    log.release()

    def torn(content: bytes) -> list[int]:
        with path.open("r+b") as file:
            file.seek(SIZE)
            file.write(content)
        log = open_killed(folder, quarantine, room)
        log.release()
        assert log.log_end_offset == 1
        return [cut.removed for cut in log.loaded.cuts]

    assert torn(b"torn" + bytes(100_000) + b"write") == [room - SIZE]
    torn(b"torn" + bytes(100_000) + b"write")  # as after a crash before the cut
    torn(b"another")
    kept = sorted(quarantine.iterdir())
    assert [each.name for each in kept] == [f"orders-0.{0:020}.{SIZE}.2.bytes", f"orders-0.{0:020}.{SIZE}.bytes"]
    assert [each.read_bytes() for each in kept] == [
        content.ljust(room - SIZE, b"\0") for content in (b"another", b"torn" + bytes(100_000) + b"write")
    ]
    assert sum(each.stat().st_blocks for each in kept) * 512 < 100_000


def test_zeros_at_the_end_of_a_log_are_cut_but_not_copied(folder: Path, tmp_path: Path) -> None:
    log = open_log(folder)
    fill(log, 2)
    log.release()
    with (folder / f"{0:020}.log").open("r+b") as file:
        file.truncate(10_000_000)
    config = log_config({})
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=NOW, quarantine=str(tmp_path / "quarantine"))
    assert [(cut.removed, cut.quarantine) for cut in log.loaded.cuts] == [(10_000_000 - 2 * SIZE, None)]
    assert not (tmp_path / "quarantine").exists()


def test_room_is_found_without_reading_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_killed(folder, tmp_path / "quarantine")
    fill(log, 3)
    log.release()
    read = 0

    def counted(self: LocalFile, position: int, length: int) -> bytes:
        nonlocal read
        read += length
        return os.pread(self.fileno(), length, position)

    monkeypatch.setattr(LocalFile, "read_at", counted)
    open_killed(folder, tmp_path / "quarantine").release()
    assert read < 1 << 20


def transactions(log: PartitionLog) -> None:
    """Two producers, aborted across segments, and one transaction that stays open."""

    def data(producer: int, sequence: int) -> None:
        add(log, producer_id=producer, producer_epoch=0, base_sequence=sequence, attributes=16)

    def abort(producer: int) -> None:
        marker = build_marker(
            ControlType.ABORT, base_offset=log.log_end_offset, timestamp=NOW, producer_id=producer, producer_epoch=0,
            coordinator_epoch=0, partition_leader_epoch=0,
        )  # fmt: skip
        log.append(record_set(marker, log.config.rules), Moment.fixed(NOW))

    for sequence in range(8):
        data(1, sequence)
    for sequence in range(4):
        data(2, sequence)
    abort(1)
    data(3, 0)
    for sequence in range(4, 8):
        data(2, sequence)
    abort(2)
    add(log)


def test_a_transaction_is_stable_when_the_high_watermark_has_passed_its_marker(folder: Path) -> None:
    log = open_log(folder)
    add(log, producer_id=1, producer_epoch=0, base_sequence=0, attributes=16)
    end = log.log_end_offset
    marker = build_marker(
        ControlType.COMMIT, base_offset=end, timestamp=NOW, producer_id=1, producer_epoch=0, coordinator_epoch=0,
        partition_leader_epoch=0,
    )  # fmt: skip
    log.append(record_set(marker, log.config.rules), Moment.fixed(NOW))
    found = []
    for log.high_watermark in (end - 1, end, end + 1):
        found.append(log.last_stable_offset)
    assert found == [0, 0, end + 1]


def test_readers_stop_at_the_first_open_transaction_as_the_index_of_the_aborted_one_says(folder: Path) -> None:
    log = open_log(folder)
    for producer, offset in ((1, 100), (2, 103)):
        add(log, offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, attributes=16)
    add(log, offset=109)
    marker = build_marker(
        ControlType.ABORT, base_offset=110, timestamp=NOW, producer_id=1, producer_epoch=0, coordinator_epoch=0,
        partition_leader_epoch=0,
    )  # fmt: skip
    log.append(record_set(marker, log.config.rules), Moment.fixed(NOW))
    add(log, offset=111)
    log.high_watermark = 112
    assert log.last_stable_offset == 103
    (aborted,) = aborted_transactions(log, 0, 112)
    assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (100, 110, 103)


def test_segments_after_those_in_question_are_not_searched_for_aborted_transactions(folder: Path) -> None:
    log = open_log(folder)
    for _ in range(4):
        base = log.log_end_offset
        add(log, producer_id=1, producer_epoch=0, base_sequence=base, attributes=16)
        marker = build_marker(
            ControlType.ABORT, base_offset=log.log_end_offset, timestamp=NOW, producer_id=1, producer_epoch=0,
            coordinator_epoch=0, partition_leader_epoch=0,
        )  # fmt: skip
        log.append(record_set(marker, log.config.rules), Moment.fixed(NOW))
        log.roll(NOW)
    known = aborted_transactions(log, 0, log.log_end_offset)
    assert len(known) == 4
    second = log.segments[1].base_offset
    for segment in log.segments[2:4]:
        Path(segment.path(".txnindex")).write_bytes(b"damaged")
    assert aborted_transactions(log, 0, second) == known[:1]
    assert aborted_transactions(log, 0, second + 1) == known[:2]
    with pytest.raises(CorruptRecordError):
        aborted_transactions(log, 0, log.log_end_offset)


def test_30_any_of_a_producers_last_five_batches_sent_again_gets_its_offsets_and_is_not_written(folder: Path) -> None:
    log = open_log(folder)
    rules = append_rules({})

    def send(sequence: int) -> tuple[int, int]:
        produced = batch_of(0, NOW, 2, producer_id=9, producer_epoch=1, base_sequence=sequence)
        prepared = prepare(
            memoryview(produced), rules, next_offset=log.log_end_offset, now_ms=NOW, leader_epoch=0, request_version=9
        )
        return log.append(prepared, Moment.fixed(NOW))

    assert [send(2 * at) for at in range(7)] == [(2 * at, 2 * at + 1) for at in range(7)]
    size = log.size
    assert [send(2 * at) for at in range(2, 7)] == [(2 * at, 2 * at + 1) for at in range(2, 7)]
    for wrong in (0, 20):
        with pytest.raises(AppendRefusedError) as refused:
            send(wrong)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (log.size, log.log_end_offset) == (size, 14)
    log.close()
    log = open_log(folder)
    assert send(12) == (12, 13)
    assert send(14) == (14, 15)
    log.truncate_to(12, NOW)
    assert [send(2 * at) for at in range(1, 6)] == [(2 * at, 2 * at + 1) for at in range(1, 6)]
    assert log.log_end_offset == 12
    assert send(12) == (12, 13)
    log.flush(NOW)
    log.release()
    log = open_log(folder, clean=False)
    assert [send(2 * at) for at in range(2, 7)] == [(2 * at, 2 * at + 1) for at in range(2, 7)]
    assert log.log_end_offset == 14


@pytest.mark.parametrize("remembered", [1, 2, 5])
def test_30_the_last_batches_of_each_producer_are_found_among_many(remembered: int) -> None:
    pick = random.Random(3)
    batches = [
        batch_of(at, NOW, producer_id=pick.choice([1, 1, 1, 2, 3]), producer_epoch=at // 40, base_sequence=at)
        for at in range(90)
    ]
    expected: dict[int, list[int]] = {}
    for at, content in enumerate(batches):
        producer = RecordBatch(memoryview(content)).producer_id
        of_epoch = [each for each in expected.get(producer, []) if each // 40 == at // 40]
        expected[producer] = [*of_epoch, at][-remembered:]
    for split in (0, 1, 41, 89):  # tables that end anywhere
        states = LATEST_RULES.producer_states(remembered=remembered)
        for part in (batches[:split], batches[split:]):
            states.append(scan(memoryview(b"".join(part))))
        found = {key: [each.base_sequence for each in recent] for key, recent in states.recent_batches.items()}
        assert found == expected


def test_31_aborted_transactions_are_found_again_without_their_index(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    transactions(log)
    log.high_watermark = log.log_end_offset
    known = aborted_transactions(log, 0, log.log_end_offset)
    assert [each[1:] for each in known] == [(1, 0, 12, 8), (2, 8, 18, 13)]
    assert log.last_stable_offset == 13
    log.flush(NOW)
    log.release()
    for path in (*folder.glob("*.index"), *folder.glob("*.txnindex")):
        path.unlink()
    log = open_log(folder, clean=False, **SMALL)
    log.high_watermark = log.log_end_offset
    assert aborted_transactions(log, 0, log.log_end_offset) == known
    assert log.last_stable_offset == 13


def test_32_a_damaged_snapshot_is_passed_over(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    transactions(log)
    known = log.producers.snapshot()
    log.close()
    newest = max(folder.glob("*.snapshot"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")
    log = open_log(folder, **SMALL)
    assert log.producers.snapshot() == known
    assert ProducerSnapshot.parse(newest.read_bytes()) == known


def test_33_older_messages_end_what_is_known_of_epochs(folder: Path) -> None:
    log = open_log(folder)
    for epoch in (1, 1, 3):
        add(log, partition_leader_epoch=epoch)
    assert log.epochs.entries == [LeaderEpoch(1, 0), LeaderEpoch(3, 2)]
    assert [log.epochs.end_offset_of(epoch, log.log_end_offset) for epoch in (0, 1, 2, 3, 4)] == [
        (0, 0),
        (1, 2),
        (1, 2),
        (3, 3),
        (-1, -1),
    ]
    message = build_message(1, 3, NOW, None, b"v")
    log.append(record_set(message, log.config.rules), Moment.fixed(NOW))
    assert log.epochs.entries == []
    log.close()
    assert open_log(folder).epochs.entries == []


def test_34_a_closed_log_is_not_looked_into_whatever_the_recovery_point(folder: Path) -> None:
    log = open_log(folder, **SMALL)
    fill(log, 60)
    log.close()
    log = open_log(folder, recovery_point="0", **SMALL)
    assert log.loaded.recovered == []
    assert log.recovery_point == 60


# ---- the enriched dialect: checks 10 to 13 of its own table

ENRICHED = {"message_format_version": "enriched", "index_interval_bytes": "100", "file_delete_delay_ms": "0"}


def add_enriched(log: PartitionLog, timestamp: int) -> None:
    tags = encode_tags({Tag.TIMESTAMP: timestamp})
    content = build_enriched_message(log.log_end_offset, b"k", b"v", seconds=timestamp // 1000, tags=tags)
    log.append(record_set(content, log.config.rules, Dialect.ENRICHED), Moment.fixed(timestamp))


def test_enriched_10_segments_go_by_their_last_time_and_the_head_of_the_next_is_cut(folder: Path) -> None:
    log = open_log(folder, retention_ms="10", **ENRICHED)
    for segment in ((8, 10), (15, 20), (20, 21, 25, 30)):
        for timestamp in segment:
            add_enriched(log, timestamp)
        log.roll(NOW)
    log.high_watermark = log.log_end_offset
    removed = log.delete_old_segments(Moment.fixed(31))
    assert [(each.base_offset, each.end_offset, each.head) for each in removed] == [
        (0, 2, False),
        (2, 4, False),
        (4, 5, True),
    ]
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([5, 8], 5, 8)
    assert offset_for_timestamp(log, 22) == (25, 6)


def test_enriched_11_an_active_segment_that_was_never_rolled_goes_as_well(folder: Path) -> None:
    log = open_log(folder, retention_ms="10", **ENRICHED)
    for timestamp in (1, 2, 3):
        add_enriched(log, timestamp)
    log.high_watermark = 3
    log.delete_old_segments(Moment.fixed(100))
    assert (bases(log), log.log_end_offset, log.size) == ([3], 3, 0)


def test_enriched_12_a_restart_or_a_move_of_the_files_changes_no_decision(folder: Path) -> None:
    log = open_log(folder, retention_ms="10", **ENRICHED)
    for timestamp in (1, 2, 30):
        add_enriched(log, timestamp)
    log.close()
    for path in folder.iterdir():
        path.touch()
    log = open_log(folder, retention_ms="10", **ENRICHED)
    log.high_watermark = 3
    log.delete_old_segments(Moment.fixed(31))
    assert log.log_start_offset == 2


def test_enriched_13_times_that_go_back_leave_the_index_in_order(folder: Path) -> None:
    log = open_log(folder, retention_ms="10", **ENRICHED)
    rng = random.Random(13)
    times = [rng.randrange(1000, 2000) for _ in range(60)]
    for timestamp in times:
        add_enriched(log, timestamp)
    index = next(iter(log.active.indexes.by_kind.values()))
    indexed = [index.entry(at)[1] for at in range(index.count)]
    assert len(indexed) > 5
    assert indexed == sorted(indexed)
    for wanted in (1000, 1500, max(times)):
        first = next(at for at, each in enumerate(times) if each >= wanted)
        assert offset_for_timestamp(log, wanted) == (times[first], first)


def test_an_enriched_wrapper_is_found_by_every_offset_in_it_and_cut_whole(folder: Path) -> None:
    log = open_log(folder, **ENRICHED)
    add_enriched(log, 1000)
    inner = b"".join(build_enriched_message(at, None, b"x") for at in range(4))
    wrapper = build_enriched_wrapper(Codec.GZIP, inner, num_messages=4, non_keyed=True, start_offset=1, seconds=2)
    log.append(record_set(wrapper, log.config.rules, Dialect.ENRICHED), Moment.fixed(2000))
    add_enriched(log, 3000)
    assert log.log_end_offset == 6
    for offset in (1, 2, 4):
        part = log.read(offset, 1)
        assert part is not None
        assert part.read() == wrapper
    log.close()
    log = open_log(folder, clean=False, **ENRICHED)
    assert log.log_end_offset == 6
    log.truncate_to(3, NOW)
    assert (log.log_end_offset, log.size) == (3, len(build_enriched_message(0, b"k", b"v", seconds=1)) + 9)


def test_a_log_of_one_dialect_is_not_opened_as_one_of_the_other(folder: Path) -> None:
    log = open_log(folder)
    fill(log, 1)
    log.close()
    with pytest.raises(LogDirectoryError, match="dialect kafka"):
        open_log(folder, **ENRICHED)


# ---- what a failing disk does, and who is answered


def test_a_full_disk_takes_the_log_offline_and_nothing_is_acknowledged() -> None:
    for number in (errno.ENOSPC, errno.EIO):
        disk = SimulatedDisk(number)
        log = open_log("/orders-0", disk)
        fill(log, 3)
        log.flush(NOW)
        disk.failures[disk.operations + 1] = number
        with pytest.raises(LogDirectoryOfflineError, match="taken offline") as found:
            add(log)
        assert found.value.code == 56
        with pytest.raises(LogDirectoryOfflineError, match="offline since"):
            add(log)
        again = open_log("/orders-0", disk.after_a_cut(1), clean=False)
        assert again.log_end_offset >= 3


def test_a_failing_sync_acknowledges_no_append() -> None:
    disk = SimulatedDisk(1)
    log = open_log("/orders-0", disk)
    group: GroupCommit[str] = GroupCommit()
    add(log)
    group.wait(log, "first")
    begun = group.begin()
    disk.failures[disk.operations + 1] = errno.EIO
    with pytest.raises(OSError, match="orders-0") as found:
        begun.run()
    assert group.fail(begun, found.value) == ["first"]
    assert log.recovery_point == 0
    with pytest.raises(LogDirectoryOfflineError):
        add(log)


def test_one_sync_answers_all_who_waited_when_it_began_and_later_ones_wait_for_the_next() -> None:
    disk = SimulatedDisk()
    log = open_log("/orders-0", disk)
    group: GroupCommit[str] = GroupCommit()
    for name in ("a", "b"):
        add(log)
        group.wait(log, name)
    begun = group.begin()
    add(log)
    group.wait(log, "late")
    before = disk.counted["sync", ""]
    begun.run()
    assert disk.counted["sync", ""] == before + 1
    assert group.end(begun, NOW).durable == ["a", "b"]
    assert log.recovery_point == 2
    assert len(group) == 1
    begun = group.begin()
    log.truncate_to(1, NOW)
    begun.run()
    assert group.end(begun, NOW).lost == ["late"]


def test_flush_rules_are_kafkas(folder: Path) -> None:
    log = open_log(folder, flush_messages="3", flush_ms="1000")
    add(log)
    assert not log.is_flush_due(NOW + 999)
    assert log.is_flush_due(NOW + 1000)
    fill(log, 2)
    assert (log.recovery_point, log.is_flush_due(NOW + 5000)) == (3, False)


def test_the_index_entries_of_the_vector(folder: Path) -> None:
    rules = IndexRules.of("3.9.0")
    log = PartitionLog.open(
        FILES, str(folder), log_config({"index.interval.bytes": "100"}, rules), monotonic_ms=0, clean=True
    )
    for at, timestamp in enumerate((10, 30, 20, 40, 40, 50)):
        log.append(record_set(batch_of_two(2 * at, timestamp), log.config.rules), Moment.fixed(0))
    log.roll(0)
    assert (folder / f"{0:020}.index").read_bytes().hex() == "00000005000000c20000000900000184"
    assert (
        folder / f"{0:020}.timeindex"
    ).read_bytes().hex() == "000000000000001e000000030000000000000028000000070000000000000032" + "0000000b"


def test_a_set_of_several_batches_gets_entries_as_the_version_has_it(folder: Path) -> None:
    content = b"".join(batch_of(at, NOW + at) for at in range(10))
    counts = {}
    for version in ("3.9.0", "3.9.1"):
        config = log_config({"index.interval.bytes": "100"}, IndexRules.of(version))
        log = PartitionLog.open(FILES, str(folder.parent / version), config, monotonic_ms=0, clean=True)
        for base in (0, 10):
            moved = bytearray(content)
            for at in range(10):
                moved[at * SIZE : at * SIZE + 8] = (base + at).to_bytes(8, "big")
            log.append(record_set(moved, log.config.rules), Moment.fixed(0))
        counts[version] = next(iter(log.active.indexes.by_kind.values())).count
    assert counts == {"3.9.0": 1, "3.9.1": 9}


@pytest.mark.parametrize("settings", [{}, {"compression.type": "gzip"}, {"message.format.version": "0.10.2"}])
def test_what_a_leader_prepared_is_stored_as_it_is(folder: Path, settings: dict[str, str]) -> None:
    log = open_log(folder, **SMALL)
    rules = append_rules(settings)
    stored = []
    for _ in range(30):
        produced = memoryview(batch_of(0, NOW, 3))
        prepared = prepare(produced, rules, next_offset=log.log_end_offset, now_ms=NOW, leader_epoch=7)
        made = prepared if prepared.batches else indexed(prepared, log.config.rules)
        assert made.due(11, 10, -1, 0) == record_set(bytes(prepared), log.config.rules).due(11, 10, -1, 0)
        log.append(made, Moment.fixed(NOW))
        stored.append(bytes(prepared))
    assert log.log_end_offset == 90
    assert b"".join(segment.log.read_at(0, segment.size) for segment in log.segments) == b"".join(stored)
    assert [each.epoch for each in log.epochs.entries] == ([] if "message.format.version" in settings else [7])
