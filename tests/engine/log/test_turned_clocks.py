"""The wall clock of a machine is turned: what a log waits for comes when it is due, and ages count from dates."""

from __future__ import annotations

import pytest

from engine.log.appended import batch_of
from engine.log.compacted import NOW
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import CompactionConfig
from magicbyte.engine.log.cleaning.maintenance import BACKOFF_MS, RETENTION_INTERVAL_MS, Action, Maintenance
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing.disk import SimulatedDisk
from topic_settings import log_config

DAY_MS, HOUR_MS = 86_400_000, 3_600_000
BEGUN = 5_000
KEY = TopicPartition("orders", 0)


@pytest.fixture(params=[-HOUR_MS, -20_000, DAY_MS], ids=["back an hour", "back 20 s", "on a day"])
def turned_ms(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def directory_of(**settings: str) -> LogDirectory:
    config = log_config({name.replace("_", "."): value for name, value in settings.items()})
    made = Settings(config_of=lambda _key: config, token=lambda: f"{len(tokens):032x}")
    tokens: list[str] = []
    return LogDirectory.open(SimulatedDisk(1), "/data", made, monotonic_ms=BEGUN)


def append(log: PartitionLog, now: Moment, timestamp: int = NOW) -> None:
    log.append(record_set(batch_of(log.log_end_offset, timestamp), log.config.rules), now)
    log.high_watermark = log.log_end_offset


def test_a_flush_is_due_when_its_interval_has_passed(turned_ms: int) -> None:
    directory = directory_of(flush_ms="1000")
    log = directory.create(KEY, monotonic_ms=BEGUN)
    append(log, Moment(NOW + turned_ms, BEGUN))
    assert directory.flush_due(BEGUN + 999) == []
    assert directory.flush_due(BEGUN + 1000) == [log]
    log.flush(BEGUN + 1000)
    append(log, Moment(NOW, BEGUN + 1500))
    assert directory.flush_due(BEGUN + 1999) == []


def test_files_go_when_their_delay_has_passed(turned_ms: int) -> None:
    directory = directory_of(file_delete_delay_ms="1000", segment_bytes="100", retention_ms="1")
    log = directory.create(KEY, monotonic_ms=BEGUN)
    for _ in range(3):
        append(log, Moment(NOW, BEGUN), timestamp=NOW - DAY_MS * 2)
    assert log.delete_old_segments(Moment(NOW + turned_ms, BEGUN))
    assert directory.remove_deleted(BEGUN + 999) == 0
    assert directory.remove_deleted(BEGUN + 1000) == 3
    directory.delete(KEY, monotonic_ms=BEGUN)
    assert directory.remove_deleted(BEGUN + 999) == 0
    assert directory.remove_deleted(BEGUN + 1000) == 1


def test_records_without_timestamps_are_in_a_new_segment_after_its_age(turned_ms: int) -> None:
    log = directory_of(segment_ms="60000").create(KEY, monotonic_ms=BEGUN)
    for at, passed_ms in enumerate((0, 60_000, 60_001)):
        moved = encode_records([Record(at, -1, 0, b"k", b"v")], Format.V0)
        log.append(record_set(moved, log.config.rules), Moment(NOW + turned_ms * at, BEGUN + passed_ms))
    assert [each.base_offset for each in log.segments] == [0, 2]


def test_retention_and_compaction_are_looked_for_in_their_intervals(turned_ms: int) -> None:
    directory = directory_of(cleanup_policy="compact,delete", retention_ms=str(10 * DAY_MS), segment_bytes="100")
    log = directory.create(KEY, monotonic_ms=BEGUN)
    worker = Maintenance(directory, lambda _key: CompactionConfig(), secret=lambda: bytes(16))
    append(log, Moment(NOW, BEGUN), timestamp=NOW - 20 * DAY_MS)
    append(log, Moment(NOW, BEGUN))
    assert worker.step(1 << 20, Moment(NOW, BEGUN)).action is Action.RETAINED
    while (result := worker.step(1 << 20, Moment(NOW, BEGUN))).action is Action.COMPACTED:
        pass
    assert (result.action, result.next_ms) == (Action.NOTHING, BEGUN + BACKOFF_MS)
    append(log, Moment(NOW, BEGUN), timestamp=NOW - 20 * DAY_MS)
    log.roll(BEGUN)
    turned = NOW + turned_ms
    assert worker.step(1 << 20, Moment(turned, BEGUN + BACKOFF_MS - 1)).action is Action.NOTHING
    assert worker.step(1 << 20, Moment(turned, BEGUN + BACKOFF_MS)).action is Action.COMPACTED
    while worker.step(1 << 20, Moment(turned, BEGUN + BACKOFF_MS)).action is Action.COMPACTED:
        pass
    assert worker.step(1 << 20, Moment(turned, BEGUN + RETENTION_INTERVAL_MS)).action is Action.RETAINED


def test_a_byte_rate_is_of_the_time_that_passed(turned_ms: int) -> None:
    directory = directory_of(cleanup_policy="compact", segment_bytes="100")
    log = directory.create(KEY, monotonic_ms=BEGUN)
    for _ in range(4):
        append(log, Moment(NOW, BEGUN))
    worker = Maintenance(directory, lambda _key: CompactionConfig(), secret=lambda: bytes(16), bytes_per_second=100)
    worker.step(1, Moment(NOW, BEGUN))
    first = worker.step(1, Moment(NOW, BEGUN))
    assert first.next_ms > BEGUN
    assert worker.step(1, Moment(NOW + turned_ms, first.next_ms - 2)).action is Action.WAITED
    assert worker.step(1, Moment(NOW + turned_ms, first.next_ms)).action is Action.COMPACTED
