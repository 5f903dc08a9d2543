"""Logs of real brokers, appended batch by batch to one of our logs, or opened as a killed broker had left them."""

import shutil
from pathlib import Path

import pytest

from engine.log.appended import is_plain, rules_of
from golden_data import Case, log_case, log_cases
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.entry import entries
from topic_settings import log_config

FILES = LocalFiles()
APPENDED = [case for case in log_cases(state="clean shutdown") if not any(map(is_plain, case.segments().values()))]
CRASHED = log_cases(state="crashed")


def config_of(case: Case, **settings: str) -> LogConfig:
    return log_config({**{name: str(value) for name, value in case.topic_config.items()}, **settings}, rules_of(case))


def content(folder: Path) -> dict[str, object]:
    """All files by name; of snapshots what they say, for their entries have no order."""
    found: dict[str, object] = {}
    for path in folder.iterdir():
        content = path.read_bytes()
        is_snapshot = path.suffix == ".snapshot"
        found[path.name] = set(ProducerSnapshot.parse(content).producers) if is_snapshot else content
    found.pop("partition.metadata", None)  # the broker's, which knows the topic's id
    return found


def unpacked(case: Case, tmp_path: Path) -> Path:
    folder = tmp_path / "orders-0"
    shutil.copytree(case.partition_dir(), folder)
    return folder


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_batches_of_a_broker_appended_one_by_one_give_its_files_byte_for_byte(case: Case, tmp_path: Path) -> None:
    segments = case.segments()
    folder = tmp_path / "orders-0"
    config = config_of(case)
    start = int(next(iter(segments)).removesuffix(".log"))
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=0, clean=True, log_start_offset=start)
    for content_of_segment in segments.values():
        for _, entry in entries(content_of_segment):
            log.append(record_set(entry.buffer, log.config.rules), Moment.fixed(0))
    if "trimmed" in case.name:
        log.high_watermark = log.log_end_offset
        log.delete_records(77)
    log.close()
    assert content(folder) == content(case.partition_dir())


@pytest.mark.parametrize("case", CRASHED, ids=str)
def test_what_a_killed_broker_left_is_recovered_to_what_the_broker_itself_made_of_it(
    case: Case, tmp_path: Path
) -> None:
    recovered = log_case(case.id.replace(".crashed", ".recovered"))
    folder = unpacked(case, tmp_path)
    log = PartitionLog.open(
        FILES, str(folder), config_of(case), monotonic_ms=0, quarantine=str(tmp_path / "quarantine")
    )
    removed = sum(cut.removed for cut in log.loaded.cuts)
    log.close()
    before, after = (sum(map(len, each.segments().values())) for each in (case, recovered))
    assert removed == before - after
    is_copied = "crash-zeros" not in case.id  # of zeros there is nothing to keep
    assert sum(path.stat().st_size for path in tmp_path.glob("quarantine/*")) == (removed if is_copied else 0)
    assert content(folder) == content(recovered.partition_dir())


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_a_log_that_a_broker_closed_is_opened_closed_and_not_changed(case: Case, tmp_path: Path) -> None:
    folder = unpacked(case, tmp_path)
    before = content(folder)
    config = config_of(case)
    start = 77 if "trimmed" in case.name else 0
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=0, clean=True, log_start_offset=start)
    assert log.loaded.recovered == []
    snapshots = [int(name[:20]) for name in before if name.endswith(".snapshot")]
    assert not snapshots or log.log_end_offset == max(snapshots)
    log.close()
    assert content(folder) == before
