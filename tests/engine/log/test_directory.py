"""What is found at a path: a segment, a partition folder, a log directory, several; here and behind a URL."""

import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_data import checkpoints, log_case
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.checkpoints import CLEANER, RECOVERY_POINT
from magicbyte.engine.log.files.directory import (
    PartitionDirectory,
    discover,
    log_directories,
    parse_topic_partition,
)
from magicbyte.engine.log.files.filesystem import file_system
from magicbyte.engine.log.files.names import FolderState
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect

UUID = "0123456789abcdef0123456789abcdef"


def partition(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names or ("00000000000000000000.log",):
        (folder / name).write_bytes(b"")
    return folder


def names(found: list[PartitionDirectory]) -> list[str]:
    return [each.name for each in found]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory with two golden partitions and the checkpoints of their broker."""
    folder = tmp_path / "data"
    for case_id in ("3.9.1/basic-none", "3.9.1/txn-none"):
        case = log_case(case_id)
        target = folder / f"{case.topic}-{case.partition}"
        target.mkdir(parents=True)
        for name, content in case.partition_files().items():
            (target / name).write_bytes(content)
    stage = next(stage for stage in checkpoints() if stage.id == "3.9.1/clean-shutdown")
    for name, content in stage.files.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_log_directory_gives_its_partitions_their_segments_and_companions(log_dir: Path) -> None:
    basic, transactional = discover([str(log_dir)])
    assert (basic.topic, basic.partition, basic.state) == ("basic-none", 0, FolderState.CURRENT)
    assert (basic.dialect, basic.log_directory) == (Dialect.KAFKA, str(log_dir))
    case = log_case("3.9.1/txn-none")
    assert [segment.log.name for segment in transactional.segments] == list(case.segments())
    assert transactional.size == sum(map(len, case.segments().values()))
    assert [segment.base_offset for segment in transactional.segments] == [0, 31, 53, 59, 129, 138]
    suffixes = {segment.base_offset: set(segment.companions) for segment in transactional.segments}
    assert suffixes[31] == {".index", ".timeindex", ".txnindex"}
    assert suffixes[53] == {".index", ".timeindex"}
    assert list(transactional.snapshots) == [31, 53, 59, 129, 138, 161]
    assert (transactional.leftovers, transactional.orphans, transactional.others) == ((), (), ())


def test_a_partition_reads_its_files_when_asked(log_dir: Path) -> None:
    case = log_case("3.9.1/txn-none")
    _, found = discover([str(log_dir)])
    segment = found.segments[1]
    offsets, times, aborted = found.offset_index(segment), found.time_index(segment), found.transaction_index(segment)
    assert offsets is not None
    assert times is not None
    assert aborted is not None
    assert len(offsets) == len(case.indexes()["00000000000000000031.index"])
    assert len(times) == len(case.indexes()["00000000000000000031.timeindex"])
    assert len(aborted) == len(case.indexes()["00000000000000000031.txnindex"])
    assert found.enriched_index(segment) is None
    assert found.transaction_index(found.segments[2]) is None
    assert len(found.snapshot(161).producers) == len(case.indexes()["00000000000000000161.snapshot"])
    epochs, metadata = found.leader_epochs(), found.metadata()
    assert epochs is not None
    assert epochs[0] == (0, 0)
    assert metadata is not None
    assert len(metadata.topic_id_text) == 22


def test_a_log_directory_reads_its_checkpoints_when_asked(log_dir: Path) -> None:
    (directory,) = log_directories(discover([str(log_dir)]))
    assert directory.path == str(log_dir)
    points, meta, marker = directory.offsets(RECOVERY_POINT), directory.meta_properties(), directory.clean_shutdown()
    assert points is not None
    assert points[TopicPartition("txn-none", 0)] == 161
    assert directory.offsets(CLEANER) == {}
    assert meta is not None
    assert meta.node_id == 0
    assert marker is not None
    assert marker.broker_epoch == -1


def test_a_partition_folder_of_any_name_has_no_topic_unless_it_is_given(tmp_path: Path) -> None:
    folder = log_case("0.8.2.2/basic-none").partition_dir(tmp_path)
    (unknown,) = discover([str(folder)])
    assert (unknown.topic, unknown.partition, unknown.name) == (None, None, str(folder))
    (given,) = discover([str(folder)], parse_topic_partition("orders-eu-7"))
    assert (given.topic, given.partition) == ("orders-eu", 7)


def test_a_log_file_gives_that_segment_alone(log_dir: Path) -> None:
    (found,) = discover([str(log_dir / "txn-none-0" / "00000000000000000059.log")])
    assert [segment.base_offset for segment in found.segments] == [59]
    assert set(found.segments[0].companions) == {".index", ".timeindex", ".txnindex"}
    assert found.name == "txn-none-0"


def test_a_folder_of_log_directories_gives_the_partitions_of_all(tmp_path: Path) -> None:
    for disk in ("kafka-logs-1", "kafka-logs-2"):
        partition(tmp_path / disk / "orders-0")
        (tmp_path / disk / "meta.properties").write_bytes(b"version=0\n")
    partition(tmp_path / "kafka-logs-2" / "orders-1")
    (tmp_path / "kafka-logs-3").mkdir()
    found = discover([str(tmp_path)])
    assert names(found) == ["orders-0", "orders-0", "orders-1"]
    assert len({each.log_directory for each in found}) == 2


def test_partitions_come_in_the_order_of_topic_and_number(tmp_path: Path) -> None:
    for name in ("b-10", "b-9", "a-0"):
        partition(tmp_path / name)
    assert names(discover([str(tmp_path)])) == ["a-0", "b-9", "b-10"]


@pytest.mark.parametrize("state", list(FolderState))
def test_the_name_of_a_folder_tells_its_state(tmp_path: Path, state: FolderState) -> None:
    suffix = "" if state is FolderState.CURRENT else f".{UUID}-{state.value}"
    partition(tmp_path / f"a.b-c-3{suffix}")
    (found,) = discover([str(tmp_path)])
    assert (found.topic, found.partition, found.state) == ("a.b-c", 3, state)


def test_an_empty_partition_folder_of_a_log_directory_is_a_partition_without_segments(tmp_path: Path) -> None:
    partition(tmp_path / "orders-0")
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "notes").mkdir()
    assert [(each.name, len(each.segments)) for each in discover([str(tmp_path)])] == [("orders-0", 1), ("orders-1", 0)]


def test_unfinished_work_orphans_and_strangers_are_reported(tmp_path: Path) -> None:
    folder = partition(
        tmp_path / "orders-0",
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000007.index",
        "00000000000000000000.log.deleted",
        "00000000000000000000.timeindex.cleaned",
        "00000000000000000000.log.swap",
        "leader-epoch-checkpoint",
        "notes.txt",
    )
    (found,) = discover([str(folder)])
    assert sorted(entry.name for entry in found.leftovers) == [
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.swap",
        "00000000000000000000.timeindex.cleaned",
    ]
    assert [entry.name for entry in found.orphans] == ["00000000000000000007.index"]
    assert [entry.name for entry in found.others] == ["notes.txt"]
    assert found.leader_epochs() == []


def test_the_dialect_is_the_one_its_file_names(tmp_path: Path) -> None:
    folder = partition(tmp_path / "orders-0")
    (folder / "message.dialect").write_text("version: 0\ndialect: enriched\n")
    (found,) = discover([str(folder)])
    assert found.dialect is Dialect.ENRICHED
    (folder / "message.dialect").write_text("version: 0\ndialect: klingon\n")
    with pytest.raises(CorruptRecordError, match=r"orders-0/message\.dialect.*expected kafka or enriched"):
        discover([str(folder)])


def test_an_enriched_index_is_a_companion(tmp_path: Path) -> None:
    folder = partition(tmp_path / "orders-0")
    (folder / "00000000000000000000.log").write_bytes(bytes(100))
    (folder / "00000000000000000000.emindex").write_bytes(struct.pack(">iqi", 3, 1000, 50))
    (found,) = discover([str(folder)])
    index = found.enriched_index(found.segments[0])
    assert index is not None
    assert index.floor(5) == (3, 50)


def test_damage_in_a_companion_names_the_file(log_dir: Path) -> None:
    damaged = log_dir / "txn-none-0" / "00000000000000000161.snapshot"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    _, found = discover([str(log_dir)])
    with pytest.raises(CorruptRecordError, match=r"txn-none-0/00000000000000000161\.snapshot"):
        found.snapshot(161)


def test_the_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = partition(tmp_path / "orders-0")
    monkeypatch.chdir(folder)
    for path in (".", "00000000000000000000.log", "./00000000000000000000.log", "../orders-0", "../orders-0/"):
        assert names(discover([path])) == ["orders-0"], path
    monkeypatch.chdir(tmp_path)
    assert names(discover(["orders-0"])) == ["orders-0"]
    partition(tmp_path / "disk/kept/sales-0")
    (tmp_path / "link").symlink_to(tmp_path / "disk/kept/sales-0")
    assert names(discover(["link/.."])) == ["sales-0"], "what is above the folder that the link leads to"
    (tmp_path / "others-0").symlink_to(tmp_path / "disk/kept/sales-0")
    assert names(discover(["./others-0"])) == ["others-0"], "a link at the end keeps its name"


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "nul", "protocol"])
def test_a_path_without_logs_says_in_one_line_what_was_expected(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    paths = {"nul": "a\0b", "protocol": "nosuchprotocol://bucket/logs"}
    expected = "no such file or folder" if kind == "missing" else "expected a"
    with pytest.raises(LogDirectoryError, match=expected) as raised:
        discover([paths.get(kind, str(tmp_path / kind))])
    assert "\n" not in str(raised.value)


def test_a_name_is_given_to_one_partition_only(tmp_path: Path) -> None:
    partition(tmp_path / "a-0")
    partition(tmp_path / "a-1")
    with pytest.raises(LogDirectoryError, match="b-0 names one partition: expected one partition folder, found 2"):
        discover([str(tmp_path)], TopicPartition("b", 0))


@pytest.mark.parametrize("text", ["orders", "orders-", "-1", "orders-x", "or ders-1", f"orders-1.{UUID}-delete"])
def test_a_name_that_is_no_topic_and_number_is_refused(text: str) -> None:
    with pytest.raises(LogDirectoryError, match="expected TOPIC-N"):
        parse_topic_partition(text)


@pytest.fixture
def remote(log_dir: Path) -> Iterator[str]:
    """The log directory, copied into fsspec's file system in memory."""
    memory = fsspec.filesystem("memory")
    for path in log_dir.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/magicbyte-test/{path.relative_to(log_dir)}", path.read_bytes())
    yield "memory://magicbyte-test"
    memory.rm("/magicbyte-test", recursive=True)


def test_a_url_gives_the_same_as_a_path(log_dir: Path, remote: str) -> None:
    here, there = discover([str(log_dir)]), discover([remote])
    assert names(here) == names(there)
    for local, distant in zip(here, there, strict=True):
        assert [segment.base_offset for segment in local.segments] == [one.base_offset for one in distant.segments]
        assert list(local.snapshots) == list(distant.snapshots)
        assert distant.log_directory is not None
        for mine, its in zip(local.segments, distant.segments, strict=True):
            assert mine.log.size == its.log.size
            local_index, distant_index = local.offset_index(mine), distant.offset_index(its)
            assert local_index is not None
            assert distant_index is not None
            assert local_index.offsets.tolist() == distant_index.offsets.tolist()
    (directory,) = log_directories(there)
    assert directory.offsets(RECOVERY_POINT) == log_directories(here)[0].offsets(RECOVERY_POINT)
    (segment,) = discover([f"{remote}/txn-none-0/00000000000000000059.log"])[0].segments
    assert segment.base_offset == 59


def test_a_file_is_read_by_ranges_here_and_behind_a_url(log_dir: Path, remote: str) -> None:
    name = "basic-none-0/00000000000000000000.log"
    content = (log_dir / name).read_bytes()
    for path in (str(log_dir / name), f"{remote}/{name}", f"file://{log_dir}/{name}"):
        files, inside = file_system(path)
        with files.open(inside) as file:
            assert file.size == len(content)
            assert file.read_at(100, 50) == content[100:150]
            assert file.read_at(len(content) - 5, 50) == content[-5:]
            assert file.read_at(len(content) + 5, 50) == b""
            assert file.read_at(0, 0) == b""
            buffer = bytearray(64)
            assert file.read_into(len(content) - 60, memoryview(buffer)) == 60
            assert bytes(buffer[:60]) == content[-60:]


def test_a_small_file_that_is_none_is_not_read(tmp_path: Path) -> None:
    folder = partition(tmp_path / "orders-0")
    with (folder / "leader-epoch-checkpoint").open("wb") as file:
        file.truncate(1 << 40)
    (found,) = discover([str(folder)])
    with pytest.raises(CorruptRecordError, match="file size"):
        found.leader_epochs()


def test_names_of_impossible_offsets_and_partitions_are_strangers(tmp_path: Path) -> None:
    folder = partition(tmp_path / "orders-9999999999", "00000000000000000000.log", "99999999999999999999.log")
    (found,) = discover([str(folder)])
    assert found.topic is None
    assert [segment.base_offset for segment in found.segments] == [0]
    assert [entry.name for entry in found.others] == ["99999999999999999999.log"]


def test_looking_at_a_log_directory_loads_no_heavy_library(log_dir: Path) -> None:
    look = (
        "import sys; from magicbyte.engine.log.files.directory import discover, log_directories; "
        "found = discover([sys.argv[1]]); found[1].snapshot(161); log_directories(found)[0].meta_properties(); "
        "print(sorted({'numpy', 'numba', 'pyarrow', 'fsspec', 'pyspark'} & sys.modules.keys()))"
    )
    printed = subprocess.run([sys.executable, "-c", look, str(log_dir)], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


NAMES = r"0[0-9]{19}(\.(log|index|timeindex|txnindex|emindex|snapshot|swap|deleted|x)){1,2}|[a-z.-]{1,9}"


@given(names=st.lists(st.from_regex(NAMES, fullmatch=True), max_size=6, unique=True))
def test_a_folder_of_any_names_is_a_partition_or_refused(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in set(names) - {".", ".."}:
        (folder / name).write_bytes(b"junk")
    with contextlib.suppress(LogDirectoryError, CorruptRecordError):
        (found,) = discover([str(folder)])
        sorted_ = len(found.segments) + len(found.snapshots) + len(found.texts) + len(found.leftovers)
        companions = sum(len(segment.companions) for segment in found.segments)
        assert sorted_ + companions + len(found.orphans) + len(found.others) == len(set(names) - {".", ".."})


def test_a_link_to_a_partition_folder_is_followed_and_a_dead_one_left_out(tmp_path: Path) -> None:
    partition(tmp_path / "disk" / "orders-0")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "orders-0").symlink_to(tmp_path / "disk" / "orders-0")
    (tmp_path / "logs" / "orders-1").symlink_to(tmp_path / "nowhere")
    assert names(discover([str(tmp_path / "logs")])) == ["orders-0"]
