import json
from pathlib import Path

import pytest

from builders import contents
from cli.command import run
from engine.log.appended import batch_of
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.enriched import build_enriched_message
from magicbyte.engine.records.layout import Dialect
from topic_settings import log_config

FILES = LocalFiles()
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)


def open_logs(path: Path) -> LogDirectory:
    settings_of_topic = {"segment.bytes": "700", "segment.ms": str(10**13), "retention.ms": "-1"}
    config = log_config({**settings_of_topic, "index.interval.bytes": "150"})
    settings = Settings(config_of=lambda _key: config, token=lambda: "0" * 32)
    return LogDirectory.open(FILES, str(path), settings, monotonic_ms=NOW_MS)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty batches of a record, a day apart, in segments of ten; the last is of now. Two are not replicated."""
    monkeypatch.setattr("time.time_ns", lambda: NOW_MS * 1_000_000)
    path = tmp_path / "logs"
    directory = open_logs(path)
    log = directory.create(ORDERS, monotonic_ms=NOW_MS)
    for offset in range(20):
        log.append(
            record_set(batch_of(offset, NOW_MS - (19 - offset) * DAY_MS), log.config.rules), Moment.fixed(NOW_MS)
        )
    log.high_watermark = 18
    directory.close()
    return path


def offsets(path: Path) -> tuple[int, int]:
    """Where the log starts and ends, and that it was closed."""
    directory = open_logs(path)
    assert directory.was_clean
    log = directory[ORDERS]
    assert log.loaded.recovered == []
    found = log.log_start_offset, log.log_end_offset
    directory.close()
    return found


def test_segments_older_than_a_time_go_and_the_log_stays_closed(logs: Path) -> None:
    done = run("retain", "--in-place", logs, "--older-than", "5d")
    assert done.exit_code == 0
    assert "segment 00000000000000000000: offsets 0 to 9" in done.stdout
    assert offsets(logs) == (10, 20)
    assert run("verify", logs).exit_code == 0


def test_a_dry_run_says_the_same_and_changes_nothing(logs: Path) -> None:
    before = contents(logs)
    said = json.loads(run("retain", "--in-place", logs, "--older-than", "5d", "--dry-run", "--format", "json").stdout)
    assert contents(logs) == before
    done = json.loads(run("retain", "--in-place", logs, "--older-than", "5d", "--format", "json").stdout)
    assert {**said, "dryRun": False} == done
    assert done["removedBytes"] > 600


def test_head_truncation_is_exact_to_the_record(logs: Path) -> None:
    said = json.loads(
        run(
            "retain", "--in-place", logs, "--older-than", "5d", "--head-truncation", "--dry-run", "--format", "json"
        ).stdout
    )
    done = json.loads(
        run("retain", "--in-place", logs, "--older-than", "5d", "--head-truncation", "--format", "json").stdout
    )
    assert {**said, "dryRun": False} == done
    assert [each["head"] for each in done["partitions"][0]["removed"]] == [False, True]
    assert offsets(logs) == (14, 20)
    assert run("verify", logs).exit_code == 0


def test_a_log_of_the_enriched_dialect_is_cut_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: NOW_MS * 1_000_000)
    folder = tmp_path / "tags-0"
    config = log_config({"message.format.version": "enriched", "segment.bytes": "600", "index.interval.bytes": "100"})
    log = PartitionLog.open(FILES, str(folder), config, monotonic_ms=NOW_MS, clean=True)
    for offset in range(30):
        seconds = (NOW_MS - (29 - offset) * DAY_MS) // 1000
        content = build_enriched_message(offset, b"k", b"value", seconds=seconds)
        log.append(
            record_set(content, log.config.rules, Dialect.ENRICHED), Moment.fixed(NOW_MS - (29 - offset) * DAY_MS)
        )
    log.close()
    said, done = (
        json.loads(run("retain", "--in-place", folder, "--older-than", "7d", *also, "--format", "json").stdout)
        for also in (["--dry-run"], [])
    )
    assert {**said, "dryRun": False} == done
    assert done["partitions"][0]["logStartOffset"] == 22
    assert done["partitions"][0]["removed"][-1]["head"]
    assert run("verify", folder).exit_code == 0


def test_what_is_not_replicated_stays_however_old_it_is(logs: Path) -> None:
    assert run("retain", "--in-place", logs, "--older-than", "0ms", "--head-truncation").exit_code == 0
    assert offsets(logs) == (18, 20)


def test_bytes_that_stay_are_at_least_those_asked_for(logs: Path) -> None:
    size = sum(path.stat().st_size for path in logs.glob("orders-0/*.log"))
    assert run("retain", "--in-place", logs, "--bytes", str(size // 2)).exit_code == 0
    assert offsets(logs) == (10, 20)
    assert run("retain", "--in-place", logs, "--bytes", str(size)).exit_code == 0
    assert offsets(logs) == (10, 20)


def test_the_log_starts_at_the_offset_that_was_asked_for(logs: Path) -> None:
    assert run("retain", "--in-place", logs, "--before-offset", "13").exit_code == 0
    assert offsets(logs) == (13, 20)
    starts = checkpoints.parse_offset_checkpoint((logs / checkpoints.LOG_START).read_bytes())
    assert starts == {ORDERS: 13}
    assert not (logs / "orders-0/00000000000000000000.log").exists()


def test_a_folder_alone_is_taken_as_it_is(logs: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone" / "orders-0"
    alone.parent.mkdir()
    (logs / "orders-0").rename(alone)
    assert run("retain", "--in-place", alone, "--older-than", "5d").exit_code == 0
    assert sorted(path.name for path in alone.glob("*.log")) == ["00000000000000000010.log"]


def test_a_log_directory_in_use_is_refused(logs: Path) -> None:
    lock = FILES.lock(str(logs / ".lock"))
    done = run("retain", "--in-place", logs, "--older-than", "5d")
    lock.release()
    assert done.exit_code == 2
    assert "using this log directory" in done.stderr


def test_a_log_directory_whose_broker_was_killed_is_refused(logs: Path) -> None:
    (logs / checkpoints.CLEAN_SHUTDOWN).unlink()
    before = contents(logs)
    done = run("retain", "--in-place", logs, "--older-than", "5d")
    assert done.exit_code == 2
    assert "not shut down cleanly" in done.stderr
    assert contents(logs) == before


@pytest.mark.parametrize("arguments", [[], ["--older-than", "5 days"], ["--bytes", "many"]])
def test_limits_that_say_nothing_are_refused(logs: Path, arguments: list[str]) -> None:
    done = run("retain", "--in-place", logs, *arguments)
    assert done.exit_code == 2
    assert "expected" in done.stderr


def test_a_damaged_log_without_indexes_is_not_cut_as_a_broker_would(logs: Path) -> None:
    path = max((logs / str(ORDERS)).glob("*.log"))
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    for each in path.parent.glob("*index"):
        each.unlink()
    done = run("retain", "--in-place", logs, "--bytes", "1")
    assert (done.exit_code, path.name in done.stderr) == (1, True)
    assert path.read_bytes() == damaged


def test_a_retained_copy_is_what_retention_in_place_makes_and_the_log_stays(logs: Path, tmp_path: Path) -> None:
    before, out = contents(logs), tmp_path / "out"
    done = json.loads(run("retain", logs, "--older-than", "5d", "--out", out, "--format", "json").stdout)
    assert contents(logs) == before
    assert [each["path"] for each in done["partitions"]] == [str(out / "orders-0")]
    assert run("retain", "--in-place", logs, "--older-than", "5d").exit_code == 0
    logs_of = {name: content for name, content in contents(logs).items() if name.startswith("orders-0/")}
    assert {name: content for name, content in contents(out).items() if name.startswith("orders-0/")} == logs_of
    assert offsets(out) == (10, 20)


def test_of_a_killed_broker_it_is_said_what_leaves_a_clean_mark(logs: Path, tmp_path: Path) -> None:
    (logs / checkpoints.CLEAN_SHUTDOWN).unlink()
    for more in (["--in-place"], ["--out", str(tmp_path / "out")]):
        done = run("retain", logs, "--older-than", "5d", *more)
        assert (done.exit_code, "salvage or convert" in done.stderr) == (2, True)
    assert run("salvage", logs, "--out", tmp_path / "whole").exit_code == 0
    assert run("retain", tmp_path / "whole", "--older-than", "5d", "--in-place").exit_code == 0


@pytest.mark.parametrize("state", ["in use", "killed", "torn"])
def test_a_dry_run_reads_what_a_running_or_killed_broker_has_and_says_that_figures_may_change(
    logs: Path, state: str
) -> None:
    lock = FILES.lock(str(logs / ".lock")) if state == "in use" else None
    if state != "in use":
        (logs / checkpoints.CLEAN_SHUTDOWN).unlink()
    if state == "torn":
        last = max((logs / str(ORDERS)).glob("*.log"))
        last.write_bytes(last.read_bytes()[:-5])
    before = contents(logs)
    done = run("retain", "--dry-run", logs, "--older-than", "5d")
    assert (done.exit_code, "the figures may change" in done.stderr) == (0, True)
    assert "segment 00000000000000000000: offsets 0 to 9" in done.stdout
    assert contents(logs) == before
    if lock is not None:
        lock.release()


def test_missing_indexes_are_no_damage(logs: Path) -> None:
    for each in (logs / str(ORDERS)).glob("*index"):
        each.unlink()
    before = contents(logs)
    dry = run("retain", "--dry-run", logs, "--older-than", "5d")
    assert (dry.exit_code, contents(logs) == before) == (0, True)
    assert run("retain", "--in-place", logs, "--older-than", "5d").exit_code == 0
    assert offsets(logs) == (10, 20)


def test_a_refused_run_changes_nothing(logs: Path) -> None:
    path = min((logs / str(ORDERS)).glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    (path.with_suffix(".index")).unlink()
    before = contents(logs)
    for _ in range(2):
        done = run("retain", "--in-place", logs, "--older-than", "5d")
        assert (done.exit_code, path.name in done.stderr) == (1, True)
        assert contents(logs) == before


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "users-by-key"])
def test_compacted_topics_are_left_out_unless_they_are_named(logs: Path, topic: str) -> None:
    directory = open_logs(logs)
    key = TopicPartition(topic, 0)
    log = directory.create(key, monotonic_ms=NOW_MS)
    log.append(record_set(batch_of(0, NOW_MS - 90 * DAY_MS), log.config.rules), Moment.fixed(NOW_MS))
    log.high_watermark = 1
    if topic == "users-by-key":
        directory.checkpoint_cleaner(key, 1)
    directory.close()
    found = run("retain", logs, "--older-than", "30d", "--in-place")
    assert f"{topic}-0: left out" in found.stdout
    assert found.exit_code == 0
    assert "0000.log" in str(list((logs / f"{topic}-0").glob("*.log")))
    assert sum(each.stat().st_size for each in (logs / f"{topic}-0").glob("*.log")) > 0
    document = json.loads(run("retain", logs, "--older-than", "30d", "--dry-run", "--format", "json").stdout)
    assert document["leftOut"] == [f"{topic}-0"]
    for named in ([logs, "--topic", topic], [logs / f"{topic}-0"]):
        document = json.loads(run("retain", *named, "--older-than", "30d", "--dry-run", "--format", "json").stdout)
        assert (document["leftOut"], document["removedBytes"] > 0) == ([], True)


@pytest.mark.parametrize(
    "command", [("retain", "--older-than", "5d"), ("compact", "--topic", "orders", "--drop-unkeyed")]
)
def test_a_log_that_may_lack_a_segment_is_changed_in_place_only_on_request(
    logs: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    directory = open_logs(logs)
    for _ in range(3):
        directory[ORDERS].roll(Moment.fixed(NOW_MS))
        directory[ORDERS].append(
            record_set(batch_of(directory[ORDERS].log_end_offset, NOW_MS), directory[ORDERS].config.rules),
            Moment.fixed(NOW_MS),
        )
    directory.close()
    for path in (logs / "orders-0").glob(f"{21:020}.*"):
        path.unlink()
    before = contents(logs)
    done = run(*command, "--in-place", logs)
    assert (done.exit_code, "--accept-missing" in done.stderr, "offsets 21..21 (1)" in done.stderr) == (2, True, True)
    assert contents(logs) == before
    for allowed in (("--dry-run",), ("--out", str(tmp_path / "out")), ("--in-place", "--accept-missing")):
        assert run(*command, *allowed, logs).exit_code == 0
