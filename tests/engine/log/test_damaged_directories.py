"""Every file of a log directory, wrong in every way, and every name that something in it can have, at a start.

The other partition is served, the one that is concerned is too, or is offline, and a line says what was wrong.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.log.appended import batch_of
from engine.log.damaged_directories import (
    BAD,
    COUNT,
    DAMAGES,
    GOOD,
    IN_FOLDER,
    NOW,
    TOP_FILES,
    Damage,
    copied,
    fill,
    garbled,
    made,
    opened,
    short,
    the_file,
)
from magicbyte.engine.errors import InvalidRequestError, LogDirectoryOfflineError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.filesystem import LocalFile, LocalFiles, LocalWritableFile
from magicbyte.engine.log.files.names import LARGEST_PARTITION, FolderState, folder_name, offset_file, why_not_loaded
from magicbyte.engine.log.live.log_directory import LogDirectory
from magicbyte.engine.ports import Moment, TopicPartition

SECONDS = 10  # for a start that would hang: a pipe is waited for, a sparse file is read
SILENT = {
    # What is missing or empty here is what a sound directory can have.
    *((name, damage) for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint")
      for damage in ("missing", "empty", "a_dead_link")),
    *(("meta.properties", damage) for damage in ("missing", "short", "a_dead_link")),
    *((".kafka_cleanshutdown", damage) for damage in ("missing", "empty", "a_dead_link")),
    *((".lock", damage) for damage in ("missing", "empty", "short", "garbled", "huge")),
    *((f"{which}.index", damage) for which in ("first", "last") for damage in ("empty", "short")),
    *(("last.timeindex", damage) for damage in ("missing", "empty")),
    *(("first.txnindex", damage) for damage in ("missing", "empty", "short")),
    *((name, damage) for name in ("last.snapshot", "leader-epoch-checkpoint", "partition.metadata")
      for damage in ("missing", "empty")),
} - {("last.snapshot", "empty"), ("partition.metadata", "empty")}  # fmt: skip
UNTOLD_AFTER_A_KILL = {  # such a log is recovered and its indexes are rebuilt in any case
    *(("last.index", each.__name__) for each in DAMAGES),
    *(("last.timeindex", each.__name__) for each in DAMAGES),
    *((name, "missing") for name in TOP_FILES),
    *((name, "empty") for name in TOP_FILES),
    *((name, "a_dead_link") for name in TOP_FILES),
    (".kafka_cleanshutdown", "short"),
    ("last.log", "missing"),
    ("first.log", "missing"),  # as a deletion that was cut short leaves it
}


MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def bases() -> Iterator[dict[str, Path]]:
    with tempfile.TemporaryDirectory(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield {state: made(Path(folder) / state, closed=state == "closed") for state in ("closed", "killed")}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory, where there is such a file system: hundreds of files are synced."""
    with tempfile.TemporaryDirectory(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def started(path: Path, *, repairs: bool = False) -> LogDirectory:
    """Open the directory in a bounded time."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(opened, path, repairs=repairs).result(timeout=SECONDS)


def lines_of(logs: LogDirectory) -> list[str]:
    return [*logs.notes, *(each.why for each in logs.offline.values())]


def whole(path: Path) -> bytes:
    """Return all bytes of a log's segments, and of what was kept of it aside."""
    folder, aside = path / str(BAD), path / "quarantine"
    files = [*sorted(folder.glob("*.log")), *(sorted(aside.glob("*")) if aside.is_dir() else [])]
    return b"".join(each.read_bytes() for each in files if each.is_file() and each.stat().st_size < 1 << 20)


NAMES = [*TOP_FILES, *IN_FOLDER]
CASES = [
    pytest.param(
        state, name, damage, id=f"{state}-{name}-{damage.__name__}",
        marks=() if (at + number * 3 + (state == "killed")) % len(DAMAGES) == 0 else pytest.mark.slow,
    )
    for state in ("closed", "killed")
    for number, name in enumerate(NAMES)
    for at, damage in enumerate(DAMAGES)
]  # fmt: skip


@pytest.mark.parametrize(("state", "name", "damage"), CASES)
def test_the_other_log_is_served_and_one_line_names_the_file(
    bases: dict[str, Path], tmp_path: Path, state: str, name: str, damage: Damage
) -> None:
    path = copied(bases[state], tmp_path / "logs")
    file = the_file(path, name)
    damage(file)
    logs = started(path)
    lines = [line for line in lines_of(logs) if str(file) in line]
    kind = (name, damage.__name__)
    untold = kind in SILENT or (state == "killed" and kind in UNTOLD_AFTER_A_KILL)
    assert untold or len(lines) == 1, lines_of(logs)
    assert logs[GOOD].log_end_offset == COUNT
    if BAD in logs.logs:
        assert logs[BAD].log_end_offset >= COUNT - 2, "only behind the recovery point can a crash have torn anything"
    else:
        assert ".log" in name
        assert "--repair" in logs.offline[BAD].why
    before = whole(path)
    logs.close()
    again = started(path, repairs=True)
    assert again[GOOD].log_end_offset == COUNT
    if BAD in again.logs:
        assert again[BAD].log_end_offset >= COUNT - 2
        assert len(whole(path)) >= len(before), "what was cut off is in the quarantine"
    else:
        assert (damage.__name__, "move the folder away" in again.offline[BAD].why) == ("huge", True)
    again.close()


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_a_repaired_log_takes_records_and_gives_no_offset_twice(tmp_path: Path, state: str) -> None:
    path = made(tmp_path / "logs", closed=state == "closed")
    for each in (path / str(BAD)).glob("*.log"):
        if int(each.stem) >= 21:
            each.unlink()
    logs = opened(path)
    if state == "closed":
        assert "end of the log" in logs.offline[BAD].why or "segment" in logs.offline[BAD].why
    logs.close()
    logs = opened(path, repairs=True)
    if state == "closed":
        assert logs[BAD].log_end_offset == COUNT
    end = logs[BAD].log_end_offset
    logs[BAD].append(record_set(batch_of(end, NOW), logs[BAD].config.rules), Moment.fixed(NOW))
    assert logs[BAD].read(end, 1 << 20) is not None
    logs.close()
    logs = opened(path)
    assert (logs[BAD].log_end_offset, logs.offline) == (end + 1, {})
    logs.close()


def test_a_log_that_was_not_recovered_leaves_no_mark_of_a_clean_shutdown(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=False)
    short(the_file(path, "first.log"))
    logs = opened(path)
    assert list(logs.offline) == [BAD]
    logs.close()
    assert not (path / ".kafka_cleanshutdown").exists()
    logs = opened(path, repairs=True)
    assert (logs.offline, logs[BAD].log_end_offset) == ({}, COUNT)
    logs.close()
    assert (path / ".kafka_cleanshutdown").exists()


def test_checkpoints_keep_what_they_say_of_an_offline_log(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    before = {name: (path / name).read_text() for name in TOP_FILES[:4]}
    first = the_file(path, "first.log")
    moved = first.rename(tmp_path / "kept.log")
    logs = opened(path)
    assert list(logs.offline) == [BAD]
    logs.checkpoint_cleaner(GOOD, 1)
    logs.close()
    for name, text in before.items():
        assert [line for line in text.splitlines() if line.startswith("bad")] == [
            line for line in (path / name).read_text().splitlines() if line.startswith("bad")
        ]
    moved.rename(first)
    logs = opened(path)
    assert (logs[BAD].log_start_offset, logs[BAD].log_end_offset) == (3, COUNT)
    logs.close()


def test_a_log_start_that_no_log_reaches_deletes_nothing_of_a_closed_log(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    (path / "log-start-offset-checkpoint").write_text("0\n1\nbad 0 999999\n")
    before = whole(path)
    logs = opened(path)
    assert "offset 999999" in logs.offline[BAD].why
    logs.close()
    assert whole(path) == before


def test_segments_before_the_start_of_a_killed_log_are_quarantined(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=False)
    (path / "log-start-offset-checkpoint").write_text("0\n1\nbad 0 999999\n")
    before = whole(path)
    logs = opened(path)
    assert logs[BAD].log_end_offset == 999999
    logs.close()
    assert len(whole(path)) >= len(before)


@pytest.mark.parametrize("value", [-1, 1 << 20])
def test_an_impossible_index_position_causes_a_rebuild_and_is_named(tmp_path: Path, value: int) -> None:
    path = made(tmp_path / "logs", closed=True)
    index = the_file(path, "first.index")
    content = bytearray(index.read_bytes())
    content[-8:-4] = (1 << 30).to_bytes(4, "big")  # an offset of the next segment: it is not believed
    content[-4:] = value.to_bytes(4, "big", signed=True)
    index.write_bytes(content)
    logs = opened(path)
    assert [line for line in logs.notes if str(index) in line and "rebuilt" in line]
    assert logs[BAD].read(5, 1 << 20) is not None
    logs.close()


@pytest.mark.parametrize("position", [-5, 7])
def test_a_position_in_the_middle_of_an_index_that_is_wrong_is_passed_over_and_named_by_retention(
    tmp_path: Path, position: int
) -> None:
    path = made(tmp_path / "logs", closed=True)
    index = the_file(path, "first.index")
    content = bytearray(index.read_bytes())
    content[12:16] = position.to_bytes(4, "big", signed=True)
    index.write_bytes(content)
    logs = opened(path)
    named: list[str] = []
    offset = int.from_bytes(content[8:12], "big") + int(index.stem)
    for _ in range(2):
        piece = logs[BAD].read(offset, 1)
        assert piece is not None
        assert int.from_bytes(piece.read()[:8], "big") == offset
    logs.retain(Moment.fixed(NOW), lambda _key, _error: None, lambda _key, error: named.append(str(error)))
    assert [str(index) in line and f"found {position}" in line for line in named] == [True]
    logs.retain(Moment.fixed(NOW), lambda _key, _error: None, lambda _key, error: named.append(str(error)))
    assert len(named) == 1
    logs.close()


def test_a_file_of_an_impossible_offset_is_left_unchanged_with_one_line(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    far = path / str(BAD) / f"{10**20 - 1}.log"
    far.write_bytes(b"mine")
    logs = opened(path)
    assert [str(far) in line for line in logs.notes] == [True]
    assert logs[BAD].log_end_offset == COUNT
    logs.close()
    assert far.read_bytes() == b"mine"


STRANGE = [
    *("..-0", ".-0", "foo-00", "foo-2147483648", "foo-99999999999", "foo", "foo-x", "-5", "a" * 250 + "-0"),
    *("__cluster_metadata-0", f"foo-0.{'a' * 32}-future", f"foo-0.{'a' * 32}-stray", "föö-0", "foo bar-0"),
]


LINKS = {
    "to itself": lambda path: path.symlink_to(path.name),
    "through a file": lambda path: path.symlink_to("meta.properties/x"),
    "to a name that is too long": lambda path: path.symlink_to("x" * 300),
    "to nothing": lambda path: path.symlink_to("gone"),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("name", ["foo-0", "notes", "recovery-point-offset-checkpoint", "meta.properties", "bad-0/x"])
def test_a_link_that_cannot_be_followed_takes_nothing_else_offline(tmp_path: Path, kind: str, name: str) -> None:
    path = made(tmp_path / "logs", closed=True)
    (path / name).unlink(missing_ok=True)
    LINKS[kind](path / name)
    logs = opened(path)
    assert {GOOD, BAD} <= logs.logs.keys()
    assert logs.offline.keys() == ({TopicPartition("foo", 0)} if name == "foo-0" else set())
    logs.close()


def test_the_quorums_own_log_is_no_partition_that_is_offline(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    (path / "__cluster_metadata-0").mkdir()
    (path / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(b"the quorum's")
    logs = opened(path)
    assert logs.offline == {}
    assert ["quorum's own" in line for line in logs.notes] == [True]
    logs.close()


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("filled", [True, False], ids=["with files", "empty"])
def test_a_folder_of_no_partition_is_left_unchanged_with_one_line(tmp_path: Path, name: str, filled: bool) -> None:
    path = made(tmp_path / "logs", closed=True)
    (path / name).mkdir()
    if filled:
        (path / name / "00000000000000000000.log").write_bytes(b"mine")
    logs = started(path)
    assert set(logs.logs) == {GOOD, BAD}
    assert [f"{path}/{name}:" in line for line in logs.notes] == [True]
    logs.close()
    assert [each.read_bytes() for each in (path / name).iterdir()] == [b"mine"] * filled


@pytest.mark.parametrize("kind", ["file", "pipe", "dead link"])
def test_a_name_of_a_partition_that_is_no_folder_is_one_offline_partition(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "logs", closed=True)
    key, taken = TopicPartition("foo", 0), path / "foo-0"
    if kind == "file":
        taken.write_bytes(b"mine")
    elif kind == "pipe":
        os.mkfifo(taken)
    else:
        taken.symlink_to(path / "gone")
    logs = started(path)
    assert str(taken) in logs.offline[key].why
    with pytest.raises(LogDirectoryOfflineError, match="foo-0"):
        logs.create(key, monotonic_ms=NOW)
    fill(logs.create(TopicPartition("foo", 1), monotonic_ms=NOW))
    logs.close()


def test_files_added_while_the_directory_was_open_take_no_partition_offline(tmp_path: Path) -> None:
    logs = opened(made(tmp_path / "logs", closed=True))
    (tmp_path / "logs" / "foo-0").write_bytes(b"mine")
    for _ in range(2):
        with pytest.raises(LogDirectoryOfflineError, match="foo-0"):
            logs.create(TopicPartition("foo", 0), monotonic_ms=NOW)
    fill(logs.create(TopicPartition("foo", 1), monotonic_ms=NOW))
    logs.close()


def test_a_log_that_would_not_be_loaded_again_is_not_created(tmp_path: Path) -> None:
    logs = opened(tmp_path / "logs")
    with pytest.raises(InvalidRequestError, match="__cluster_metadata is prohibited"):
        logs.create(TopicPartition("__cluster_metadata", 0), monotonic_ms=NOW)
    logs.close()


def test_one_table_says_of_names_what_they_are() -> None:
    assert folder_name("a-b-3") == (FolderState.CURRENT, TopicPartition("a-b", 3))
    assert folder_name(f"a-{LARGEST_PARTITION}") is not None
    assert folder_name(f"a-{LARGEST_PARTITION + 1}") is None
    assert why_not_loaded("orders-9999999") is None, "how many partitions a topic may have is the topics' rule"
    assert why_not_loaded(".snapshot") == why_not_loaded("quarantine") == why_not_loaded("lost+found") == ""
    assert offset_file(f"{2**63 - 1:020}.log") is not None
    assert offset_file(f"{2**63:020}.log") is None


def test_a_folder_that_is_being_deleted_and_holds_more_than_a_log_stays_with_that(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    gone = path / f"old-0.{'a' * 32}-delete"
    (gone / "more").mkdir(parents=True)
    (gone / "more" / "file").write_bytes(b"mine")
    (gone / f"{0:020}.log").write_bytes(b"")
    logs = opened(path)
    logs.remove_deleted(NOW)
    assert [each.name for each in gone.iterdir()] == ["more"]
    logs[GOOD].flush(NOW)
    logs.close()


def test_damage_before_the_recovery_point_is_no_torn_end(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=False)
    garbled(the_file(path, "first.log"))
    before = whole(path)
    logs = opened(path)
    assert list(logs.offline) == [BAD]
    assert whole(path) == before
    logs.close()


def test_a_folder_whose_files_have_gone_is_offline_not_empty(tmp_path: Path) -> None:
    path = made(tmp_path / "logs", closed=True)
    for each in (path / str(BAD)).iterdir():
        each.unlink()
    logs = opened(path)
    assert f"offset {COUNT}" in logs.offline[BAD].why
    logs.close()


class Forbidden(LocalFiles):
    """Files of this machine, of which those with an ending may not be opened."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def _check(self, path: str) -> None:
        if path.endswith(self.ending):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def open(self, path: str) -> LocalFile:
        self._check(path)
        return super().open(path)

    def edit(self, path: str) -> LocalWritableFile:
        self._check(path)
        return super().edit(path)


@pytest.mark.parametrize("ending", ["bad-0/partition.metadata", f"bad-0/{7:020}.log", "bad-0/leader-epoch-checkpoint"])
def test_a_file_that_may_not_be_opened_is_one_offline_partition(tmp_path: Path, ending: str) -> None:
    path = made(tmp_path / "logs", closed=True)
    logs = opened(path, files=Forbidden(ending))
    assert "Permission denied" in logs.offline[BAD].why
    assert ending in logs.offline[BAD].why
    assert (logs[GOOD].log_end_offset, logs.health.error) == (COUNT, None)
    logs.close()


@pytest.mark.parametrize("damage", [garbled, *DAMAGES[5:7]])
def test_a_damaged_dialect_file_takes_one_partition_offline_and_is_not_guessed(tmp_path: Path, damage: Damage) -> None:
    path = made(tmp_path / "logs", closed=True)
    damage(path / str(BAD) / "message.dialect")
    logs = started(path)
    assert "message.dialect" in logs.offline[BAD].why
    assert logs[GOOD].log_end_offset == COUNT
    logs.close()
