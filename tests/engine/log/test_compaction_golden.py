"""Logs that real cleaners compacted: ours leaves the same records, and where nothing is compressed the same bytes."""

import base64
import shutil
from pathlib import Path

import pytest

from engine.log.appended import rules_of
from golden_data import Case, log_case, log_cases
from magicbyte.engine.log.cleaning.compaction import Compaction, CompactionReport, select
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.decode import decode
from topic_settings import compaction_config, log_config

FILES = LocalFiles()
BEFORE = [case for case in log_cases(state="before") if "compact" in case.name]
AFTER = [case for case in [*log_cases(state="after"), *log_cases(state="after2")] if "compact" in case.name]
NOW, DAY = 1_700_000_000_000, 86_400_000
Row = tuple[int, str | None, str | None]


def compact(
    case: Case, settings: dict[str, str], folder: Path, *, now_ms: int = NOW, checkpoint: int | None = None
) -> CompactionReport:
    """Compact a copy of the case's log in `folder`."""
    shutil.copytree(case.partition_dir(), folder)
    log = PartitionLog.open(FILES, str(folder), log_config(settings, rules_of(case)), monotonic_ms=0, clean=True)
    log.high_watermark = log.log_end_offset
    config = compaction_config(settings)
    compaction = Compaction(
        log, select(log, checkpoint, config, now_ms), config, now=Moment.fixed(now_ms), secret=bytes(16)
    )
    for _ in compaction.run():
        pass
    log.remove_deleted(now_ms + DAY)
    log.close()
    return compaction.report


def settings_of(case: Case) -> dict[str, str]:
    return {name: str(value) for name, value in case.topic_config.items()}


def rows(folder: Path) -> list[Row]:
    """Offset, key and value of all records."""

    def text(cell: bytes | None) -> str | None:
        return None if cell is None else base64.b64encode(cell).decode()

    return [
        (record.offset, text(record.key), text(record.value))
        for path in sorted(folder.glob("*.log"))
        for columns in decode(memoryview(path.read_bytes()))
        for record in columns
    ]


def horizon_of(case: Case) -> int | None:
    """When the cleaner let the tombstones of a log go, if it had any."""
    found = [line["deleteHorizonMs"] for line in case.batches() if line.get("deleteHorizonMs") is not None]
    return min(found, default=None)


@pytest.mark.parametrize("before", BEFORE, ids=str)
def test_what_survives_is_what_the_real_cleaner_left(before: Case, tmp_path: Path) -> None:
    after = log_case(before.id.replace(".before", ".after"))
    report = compact(before, settings_of(after), tmp_path / "log")
    expected = [(each["offset"], each["key"], each["value"]) for each in after.records()]
    assert rows(tmp_path / "log") == expected
    names = sorted(path.name for path in (tmp_path / "log").glob("*.log"))
    assert names == [name for name in after.partition_names() if name.endswith(".log")]
    gone = before.counts["read_uncommitted"] - len(expected)
    assert report.dropped.records - report.dropped.markers == gone > 0


@pytest.mark.parametrize("before", [case for case in BEFORE if "none" in case.name], ids=str)
def test_segments_and_indexes_of_a_plain_log_are_those_of_the_real_cleaner_byte_for_byte(
    before: Case, tmp_path: Path
) -> None:
    after = log_case(before.id.replace(".before", ".after"))
    horizon = horizon_of(after)
    compact(before, settings_of(after), tmp_path / "log", now_ms=NOW if horizon is None else horizon - DAY)
    for name, content in after.partition_files().items():
        # 0.11 forgets of which transactions it saw data with each segment, and so entries of its transaction index.
        forgotten = before.version == "0.11.0.3" and name.endswith(".txnindex")
        if name.endswith((".log", "index")) and not forgotten:
            assert (tmp_path / "log" / name).read_bytes() == content, name


@pytest.mark.parametrize("case", AFTER, ids=str)
def test_what_a_real_cleaner_has_compacted_loses_nothing_by_ours(case: Case, tmp_path: Path) -> None:
    settings = {**settings_of(case), "delete.retention.ms": str(DAY)}
    compact(case, settings, tmp_path / "log", now_ms=0)  # no horizon has passed
    assert rows(tmp_path / "log") == [(each["offset"], each["key"], each["value"]) for each in case.records()]
