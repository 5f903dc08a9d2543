"""Conditions planted in log directories: each is named, with its evidence, and nothing else is."""

from collections.abc import Callable
from pathlib import Path

import pytest

import golden_data
from engine.log.appended import batch_of
from magicbyte.ask.doctor import Diagnosis, DoctorOptions, examine
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import CleanShutdown, format_clean_shutdown, format_offset_checkpoint
from magicbyte.engine.log.files.directory import discover, survey
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TRANSACTIONAL_BIT, TimestampType
from magicbyte.tools.offline.findings import Severity
from magicbyte.tools.offline.rebuild import put, rebuild

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
AFTERWARDS_MS = 1_900_000_000_000  # later than any golden log
DAY_MS = 24 * HOUR_MS
ORDERS = TopicPartition("orders", 0)
NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR


def segment(directory: Path, partition: str, base: int, content: bytes) -> Path:
    folder = directory / partition
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020}.log"
    path.write_bytes(content)
    return path


def finished(directory: Path, cleaned: dict[TopicPartition, int] | None = None) -> None:
    """Write the files that a broker has beside the logs, and their indexes."""
    ends: dict[TopicPartition, int] = {}
    for each in discover([str(directory)]):
        for rebuilt in rebuild(each, LATEST_RULES):
            put(Path(each.path), rebuilt, all_files=True)
        assert each.topic is not None
        assert each.partition is not None
        ends[TopicPartition(each.topic, each.partition)] = each.segments[-1].base_offset
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK, checkpoints.LOG_START):
        (directory / name).write_bytes(format_offset_checkpoint(ends if name != checkpoints.LOG_START else {}))
    (directory / checkpoints.CLEANER).write_bytes(format_offset_checkpoint(cleaned or {}))
    (directory / checkpoints.CLEAN_SHUTDOWN).write_bytes(format_clean_shutdown(CleanShutdown(0, -1)))


def sound(directory: Path, partition: str = "orders-0", *, segments: int = 3, timestamp: int = NOW_MS - DAY_MS) -> None:
    """Write a partition of five records a segment, in two batches."""
    for number in range(segments):
        base = 5 * number
        segment(directory, partition, base, batch_of(base, timestamp, 3) + batch_of(base + 3, timestamp, 2))


def diagnoses(directory: Path, min_bytes: int = 1) -> list[Diagnosis]:
    return examine(survey([str(directory)]), DoctorOptions(now_ms=NOW_MS, min_bytes=min_bytes))


def kinds(directory: Path, min_bytes: int = 1) -> list[tuple[Severity, str, str]]:
    return [(each.severity, each.kind, each.where) for each in diagnoses(directory, min_bytes)]


def damaged_header(directory: Path) -> None:
    path = directory / "orders-0" / f"{5:020}.log"
    content = bytearray(path.read_bytes())
    content[16] = 9  # the magic byte
    path.write_bytes(content)


def old_batch(directory: Path) -> None:
    record = Record(15, NOW_MS - DAY_MS, TimestampType.CREATE_TIME, b"k", b"v")
    segment(directory, "orders-0", 15, encode_records([record], Format.V1))


def open_transaction(last_written_ms: int) -> Callable[[Path], object]:
    batch = batch_of(
        15, last_written_ms, 1, producer_id=7, producer_epoch=2, base_sequence=0, attributes=TRANSACTIONAL_BIT
    )
    return lambda directory: segment(directory, "orders-0", 15, batch)


def small_batches(directory: Path) -> None:
    segment(directory, "orders-0", 15, b"".join(batch_of(15 + number, NOW_MS - DAY_MS) for number in range(1200)))


def skewed(directory: Path) -> None:
    for number in (1, 2):
        sound(directory, f"orders-{number}")
    segment(
        directory, "orders-0", 15, b"".join(batch_of(15 + number, NOW_MS - DAY_MS, 60) for number in range(0, 6000, 60))
    )


def uncleaned(directory: Path) -> None:
    sound(directory, "__consumer_offsets-3", segments=6)


PLANTED: dict[str, tuple[Callable[[Path], object], tuple[Severity, str, str], str]] = {
    "damage": (damaged_header, (ERROR, "damage", "orders-0"), "position 0"),
    "future": (
        lambda directory: segment(directory, "orders-0", 15, batch_of(15, NOW_MS + DAY_MS)),
        (WARNING, "future timestamps", "orders-0"),
        "2023-11-15",
    ),
    "old format": (old_batch, (NOTE, "old format", "orders"), "1 of 7 batches"),
    "hanging transaction": (
        open_transaction(NOW_MS - 2 * HOUR_MS),
        (ERROR, "hanging transaction", "orders-0"),
        "producer 7, epoch 2, from offset 15",
    ),
    "small batches": (small_batches, (NOTE, "small batches", "orders"), "1206 batches"),
    "skew": (skewed, (NOTE, "skew", "orders-0"), "the median of the others is"),
    "not cleaned": (uncleaned, (WARNING, "not cleaned", "__consumer_offsets-3"), "the log shows no cause"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_condition_is_named_and_nothing_else(name: str, tmp_path: Path) -> None:
    plant, expected, evidence = PLANTED[name]
    sound(tmp_path)
    if name == "damage":
        finished(tmp_path)
        plant(tmp_path)
    else:
        plant(tmp_path)
        finished(tmp_path)
    (only,) = diagnoses(tmp_path)
    assert (only.severity, only.kind, only.where) == expected
    assert evidence in only.evidence
    assert only.advice


BESIDE: dict[str, tuple[Callable[[Path], object], tuple[Severity, str]]] = {
    "leftover": (lambda at: (at / "orders-0" / f"{0:020}.log.deleted").write_bytes(b"x"), (NOTE, "leftovers")),
    "orphan": (lambda at: (at / "orders-0" / f"{99:020}.index").write_bytes(bytes(8)), (NOTE, "orphans")),
    "foreign": (lambda at: (at / "orders-0" / "notes.txt").write_bytes(b"x"), (NOTE, "foreign files")),
    "killed": (lambda at: (at / checkpoints.CLEAN_SHUTDOWN).unlink(), (NOTE, "unclean shutdown")),
    "index": (
        lambda at: (at / "orders-0" / f"{0:020}.index").write_bytes(b"odd"),
        (WARNING, "damaged index"),
    ),
    "checkpoint": (lambda at: (at / checkpoints.CLEANER).write_bytes(b"x"), (WARNING, "damaged checkpoint")),
    "absent segment": (lambda at: (at / "orders-0" / f"{5:020}.log").unlink(), (ERROR, "missing")),
    "absent partition": (
        lambda at: (at / checkpoints.HIGH_WATERMARK).write_bytes(
            format_offset_checkpoint({ORDERS: 10, TopicPartition("gone", 0): 9})
        ),
        (ERROR, "missing"),
    ),
    "stray": (
        lambda at: (at / "orders-0").rename(at / f"orders-0.{'0' * 32}-stray"),
        (WARNING, "ignored folder"),
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_condition_beside_the_logs_is_named(name: str, tmp_path: Path) -> None:
    plant, expected = BESIDE[name]
    sound(tmp_path)
    finished(tmp_path)
    plant(tmp_path)
    assert expected in [each[:2] for each in kinds(tmp_path)]


def test_many_absent_partitions_of_a_directory_are_one_diagnosis(tmp_path: Path) -> None:
    sound(tmp_path)
    finished(tmp_path)
    absent = {TopicPartition("gone", number): 9 for number in range(40)}
    (tmp_path / checkpoints.HIGH_WATERMARK).write_bytes(format_offset_checkpoint({ORDERS: 10, **absent}))
    (only,) = diagnoses(tmp_path)
    assert (only.severity, only.kind, only.where) == (ERROR, "missing", str(tmp_path))
    assert only.evidence.startswith("40 of them, such as gone-0, gone-1, ")


def test_a_sound_directory_has_no_diagnosis(tmp_path: Path) -> None:
    sound(tmp_path)
    finished(tmp_path)
    assert diagnoses(tmp_path) == []


def test_a_transaction_in_progress_is_not_hanging(tmp_path: Path) -> None:
    sound(tmp_path)
    open_transaction(NOW_MS - HOUR_MS // 2)(tmp_path)
    finished(tmp_path)
    assert diagnoses(tmp_path) == []


def test_a_log_that_the_cleaner_has_reached_is_not_reported(tmp_path: Path) -> None:
    sound(tmp_path, segments=6)
    finished(tmp_path, {ORDERS: 20})
    assert diagnoses(tmp_path) == []
    finished(tmp_path, {ORDERS: 5})
    assert kinds(tmp_path) == [(WARNING, "not cleaned", "orders-0")]
    assert diagnoses(tmp_path, min_bytes=1 << 20) == []


def test_an_open_transaction_is_the_cause_of_a_log_that_is_not_cleaned(tmp_path: Path) -> None:
    sound(tmp_path)
    open_transaction(NOW_MS - DAY_MS)(tmp_path)
    segment(tmp_path, "orders-0", 16, batch_of(16, NOW_MS - DAY_MS))
    finished(tmp_path, {ORDERS: 0})
    stuck = next(each for each in diagnoses(tmp_path) if each.kind == "not cleaned")
    assert stuck.severity is ERROR
    assert "producer 7 has an open transaction from offset 15" in stuck.evidence


def test_the_gravest_and_largest_come_first(tmp_path: Path) -> None:
    sound(tmp_path)
    for plant in ("old format", "hanging transaction"):
        PLANTED[plant][0](tmp_path / plant.replace(" ", "-"))
    severities = [each.severity for each in diagnoses(tmp_path)]
    assert severities == sorted(severities, key=[ERROR, WARNING, NOTE].index)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id)
        for case in golden_data.those_of_each_kind(golden_data.log_cases(state="clean shutdown"))
        if not case.topic.startswith("txn-open")
    ],
)
def test_logs_of_real_brokers_have_no_errors(case: golden_data.Case) -> None:
    found = examine(survey([str(case.partition_dir(named=True))]), DoctorOptions(now_ms=AFTERWARDS_MS))
    assert [each for each in found if each.severity is not NOTE] == []
