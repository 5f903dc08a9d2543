"""Rebuilt index files and snapshots beside those that brokers left: what counts as the same, and what is reported."""

import dataclasses
import itertools
import random
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.log.appended import batch_of, is_plain, rules_of
from golden_data import Case, log_case, log_cases
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry, ProducerSnapshot
from magicbyte.engine.ports import ReadableFile
from magicbyte.engine.records.enriched import build_enriched_message
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.rebuild import FileState, put, rebuild, recognise
from magicbyte.tools.offline.writer import PartitionWriter

CLOSED = [
    case
    for case in log_cases()
    if case.state in ("clean shutdown", "before", "recovered")
    and "trimmed" not in case.id  # its head was cut off, and with it a snapshot
    and not any(map(is_plain, case.segments().values()))
]


def partition_of(case: Case) -> PartitionDirectory:
    (found,) = discover([str(case.partition_dir())])
    return found


def copy_of(case_id: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(log_case(case_id).partition_dir(), tmp_path / "orders-0"))


def states(path: Path, rules: IndexRules) -> dict[str, FileState]:
    (found,) = discover([str(path)])
    return {file.name: file.state for segment in rebuild(found, rules) for file in segment.files}


@pytest.mark.parametrize("case", CLOSED, ids=str)
def test_all_files_that_a_broker_closed_are_the_same(case: Case) -> None:
    for segment in rebuild(partition_of(case), rules_of(case)):
        assert not segment.wrong, [(each.name, each.state) for each in segment.files]


@pytest.mark.parametrize("case", [case for case in CLOSED if case.state == "clean shutdown"], ids=str)
def test_the_rules_that_a_folder_shows_are_those_of_its_version_or_give_the_same(case: Case) -> None:
    partition, interval = partition_of(case), rules_of(case).interval_bytes
    shown = recognise(partition, interval_bytes=interval)
    assert shown is not None
    assert shown.release.line >= rules_of(case).release.line
    assert not any(segment.wrong for segment in rebuild(partition, shown))


def test_a_log_is_read_once_for_all_releases_that_may_have_written_it() -> None:
    read: list[int] = []

    class Counting(LocalFiles):
        def open(self, path: str) -> ReadableFile:
            file = super().open(path)
            if path.endswith(".log"):
                read.append(file.size)
            return file

    partition = dataclasses.replace(partition_of(log_case("0.11.0.3/txn-lz4")), files=Counting())
    assert recognise(partition) is not None
    logs = [segment.log.size for segment in partition.segments]
    assert read == [*logs, *logs], "each is looked at for its format, and read"


def test_nothing_is_recognised_where_there_are_no_files(tmp_path: Path) -> None:
    path = copy_of("3.9.1/basic-gzip", tmp_path)
    for file in path.iterdir():
        if file.suffix != ".log":
            file.unlink()
    (found,) = discover([str(path)])
    assert recognise(found) is None


def test_one_missing_file_does_not_hide_the_version(tmp_path: Path) -> None:
    path = copy_of("0.11.0.3/txn-lz4", tmp_path)
    (path / "00000000000000000016.timeindex").unlink()
    (found,) = discover([str(path)])
    shown = recognise(found)
    assert shown is not None
    assert shown.release.line == (0, 11, 0)


@pytest.mark.parametrize("kind", ["kill", "flip", "tear", "zeros"])
def test_indexes_of_a_killed_broker_are_not_closed(kind: str) -> None:
    """Their entries are right, where the log is whole: only room is left behind them."""
    case = log_case(f"3.9.1/crash-{kind}.crashed")
    found = []
    try:
        found += list(itertools.chain.from_iterable(each.files for each in rebuild(partition_of(case), rules_of(case))))
    except CorruptRecordError:
        assert kind in ("tear", "zeros")
    of_last = [each.state for each in found if each.name.endswith("index") and each.found_size]
    assert kind in ("tear", "zeros") or FileState.UNCLOSED in of_last
    assert FileState.DIFFERENT not in of_last or kind == "flip"


@pytest.mark.parametrize(
    ("name", "change", "state"),
    [
        ("00000000000000000053.timeindex", lambda data: data[:-12], FileState.DIFFERENT),
        ("00000000000000000053.timeindex", lambda data: b"", FileState.DIFFERENT),
        ("00000000000000000053.index", lambda data: data[:-1] + b"\1", FileState.DIFFERENT),
        ("00000000000000000053.index", lambda data: data + bytes(800), FileState.UNCLOSED),
        ("00000000000000000059.txnindex", lambda data: data * 2, FileState.DIFFERENT),
        ("00000000000000000129.snapshot", lambda data: data[:-1] + b"\1", FileState.DIFFERENT),  # its CRC is wrong now
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_found_and_put_right(
    name: str, change: object, state: FileState, tmp_path: Path
) -> None:
    assert callable(change)
    path = copy_of("3.9.1/txn-none", tmp_path)
    before, rules = (path / name).read_bytes(), IndexRules.of("3.9.1")
    (path / name).write_bytes(change(before))
    assert {each: found for each, found in states(path, rules).items() if found is not FileState.SAME} == {name: state}
    (found,) = discover([str(path)])
    assert [each for segment in rebuild(found, rules) for each in put(path, segment)] == [name]
    assert (path / name).read_bytes() == before


def test_an_index_that_the_version_does_not_have_is_left_alone(tmp_path: Path) -> None:
    path = copy_of("0.10.2.2/basic-gzip", tmp_path)
    found = states(path, IndexRules.of("0.9.0.1"))
    assert found == {
        "00000000000000000000.index": FileState.SAME,
        "00000000000000000000.timeindex": FileState.UNNEEDED,
    }


def test_producers_of_segments_that_are_gone_are_known_from_the_snapshot_at_the_start(tmp_path: Path) -> None:
    path = copy_of("3.9.1/txn-none", tmp_path)
    for file in path.glob("*00[035]*.*"):
        if int(file.stem) < 53:
            file.unlink()
    assert set(states(path, IndexRules.of("3.9.1")).values()) == {FileState.SAME}
    (path / "00000000000000000053.snapshot").unlink()
    changed = {name for name, state in states(path, IndexRules.of("3.9.1")).items() if state is not FileState.SAME}
    assert changed == {"00000000000000000059.snapshot"}


def test_producers_that_the_broker_forgot_make_no_difference_unless_a_transaction_is_open(tmp_path: Path) -> None:
    rules = IndexRules.of("4.3.1")
    logs = {"none": b"", "closed": batch_of(0, 5, producer_id=3, producer_epoch=0, base_sequence=0)}
    logs["open"] = batch_of(0, 5, producer_id=3, producer_epoch=0, base_sequence=0, attributes=16)
    other = batch_of(1, 5, producer_id=4, producer_epoch=0, base_sequence=0)
    found = {}
    for name, log in logs.items():
        with PartitionWriter(tmp_path / name / "t-0", rules=rules) as writer:
            writer.append(log + other)
            writer.finish()
        forgetful = ProducerSnapshot((ProducerEntry(4, 0, 0, 1, 0, 5, -1, -1),))
        (tmp_path / name / "t-0/00000000000000000002.snapshot").write_bytes(forgetful.to_bytes())
        found[name] = states(tmp_path / name / "t-0", rules)["00000000000000000002.snapshot"]
    assert found == {"none": FileState.SAME, "closed": FileState.SAME, "open": FileState.DIFFERENT}


def test_segments_before_damage_are_returned_before_the_error() -> None:
    case = log_case("2.8.2/crash-tear.crashed")
    segments = rebuild(partition_of(case), rules_of(case))
    assert next(segments).segment.base_offset == 0
    with pytest.raises(CorruptRecordError, match=r"00000000000000000049\.log, position"):
        list(segments)


def test_what_the_cleaner_of_3_9_1_and_later_writes_is_the_same() -> None:
    for case in log_cases():
        if case.state in ("after", "after2") and case.version in ("3.9.1", "4.3.1"):
            rules = replace(rules_of(case), marker_rule=None)  # transactions: the markers' data may be gone
            for segment in rebuild(partition_of(case), rules):
                of_log = [each for each in segment.files if each.name.endswith((".index", ".timeindex"))]
                assert {each.state for each in of_log} == {FileState.SAME}, case


@pytest.mark.parametrize(
    "case", [case for case in log_cases() if case.state in ("clean shutdown", "before", "after", "after2")], ids=str
)
def test_no_index_of_a_broker_is_called_wrong(case: Case) -> None:
    """Also not those of plain messages and of cleaners, whose entries are other ones."""
    for segment in rebuild(partition_of(case), replace(rules_of(case), marker_rule=None)):
        of_log = {file.name[20:]: file.state for file in segment.files if file.name.endswith((".index", ".timeindex"))}
        assert set(of_log.values()) <= {FileState.SAME, FileState.SOUND}, segment.segment.base_offset


@pytest.mark.parametrize("case", [log_case("0.10.2.2/basic-none"), log_case("2.8.2/compact-lz4.after")], ids=str)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_sound_index_is_no_longer_called_sound_with_a_wrong_entry(case: Case, suffix: str, tmp_path: Path) -> None:
    path = copy_of(case.id, tmp_path)
    for name, state in states(path, rules_of(case)).items():
        content = (path / name).read_bytes()
        if name.endswith(suffix) and content:
            assert state in (FileState.SAME, FileState.SOUND)
            size = 8 if suffix == ".index" else 12
            for at in range(size - 1, len(content), size):  # the last byte of each entry: of its position or offset
                wrong = bytearray(content)
                wrong[at] += 1 if suffix == ".index" else 2
                if suffix == ".timeindex":  # a timestamp that the entries before the offset exceed
                    wrong[at - 11 : at - 3] = bytes(8)
                (path / name).write_bytes(wrong)
                assert states(path, rules_of(case))[name] is FileState.DIFFERENT
            (path / name).write_bytes(content)


def test_the_index_of_the_enriched_dialect_is_rebuilt(tmp_path: Path) -> None:
    log = b"".join(build_enriched_message(at, None, bytes(100), seconds=at) for at in range(100))
    with PartitionWriter(tmp_path / "t-0", dialect=Dialect.ENRICHED) as writer:
        writer.append(log)
        writer.finish()
    name = "00000000000000000000.emindex"
    assert states(tmp_path / "t-0", LATEST_RULES) == {name: FileState.SAME}
    (tmp_path / "t-0" / name).unlink()
    assert states(tmp_path / "t-0", LATEST_RULES) == {name: FileState.MISSING}


def test_each_change_of_a_folder_is_reported_and_there_is_no_other(tmp_path: Path) -> None:
    rng, case = random.Random(20261121), log_case("2.8.2/txn-zstd")
    told: set[FileState] = set()
    damage = []
    for at in range(60):
        files = case.partition_files()
        name = rng.choice([each for each in files if each[:20].isdigit() and files[each]])
        changed = bytearray(files[name])
        place = rng.randrange(len(changed))
        changed[place : place + 8] = rng.choice([rng.randbytes(8), bytes(8), b"\x7f" + b"\xff" * 7, b""])
        (tmp_path / str(at)).mkdir()
        for each, content in files.items():
            (tmp_path / str(at) / each).write_bytes(bytes(changed) if each == name else content)
        try:
            told |= set(
                states(tmp_path / str(at), IndexRules.of(rng.choice(["0.10.2", "1.1", "2.8.2", "4.3"]))).values()
            )
        except CorruptRecordError as error:
            damage.append(error)
    assert told >= {FileState.SAME, FileState.DIFFERENT}
    assert damage
    assert not [error for error in damage if error.path is None or error.position is None]


EPOCHS = "leader-epoch-checkpoint"


@pytest.mark.parametrize(
    ("noted", "state"),
    [
        ("0\n2\n0 0\n1 2\n", FileState.SAME),
        ("0\n3\n0 0\n1 2\n2 3\n", FileState.SAME),  # a leader that has written nothing yet
        ("0\n1\n1 2\n", FileState.SAME),  # the records of epoch 0 were deleted, and are not gone yet
        ("0\n1\n0 0\n", FileState.DIFFERENT),
        ("0\n2\n0 0\n1 3\n", FileState.DIFFERENT),
        ("0\n0\n", FileState.DIFFERENT),
        ("0\nnonsense\n", FileState.DIFFERENT),
        (None, FileState.MISSING),
    ],
)
def test_leader_epochs_are_made_from_the_batches_where_what_is_noted_does_not_hold(
    noted: str | None, state: FileState, tmp_path: Path
) -> None:
    rules = IndexRules.of("3.9.1")
    with PartitionWriter(tmp_path / "t-0", rules=rules) as writer:
        for offset, epoch in enumerate((0, 0, 1)):
            writer.append(batch_of(offset, 5, partition_leader_epoch=epoch))
        writer.finish()
    path = tmp_path / "t-0" / EPOCHS
    right = path.read_text()
    assert right == "0\n2\n0 0\n1 2\n"
    path.unlink()
    if noted is not None:
        path.write_text(noted)
    assert states(tmp_path / "t-0", rules)[EPOCHS] is state
    (partition,) = discover([str(tmp_path / "t-0")])
    written = [name for segment in rebuild(partition, rules) for name in put(tmp_path / "t-0", segment)]
    assert written == ([] if state is FileState.SAME else [EPOCHS])
    assert path.read_text() == (noted if state is FileState.SAME else right)
    assert EPOCHS not in states(tmp_path / "t-0", IndexRules.of("0.10.2.2"))


def test_a_log_without_records_needs_no_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    for kind in ("log", "index", "timeindex"):
        (folder / f"{0:020}.{kind}").write_bytes(b"")
    (partition,) = discover([str(tmp_path)])
    (segment,) = rebuild(partition)
    assert [each.name for each in segment.files if each.name.endswith(".snapshot")] == []
    assert segment.wrong == 0


def test_the_release_of_a_directory_is_that_of_most_files_and_none_that_cannot_write_its_formats(
    tmp_path: Path,
) -> None:
    for partition, content in (("a-0", batch_of(0, 5)), ("b-0", b"")):
        folder = tmp_path / partition
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(content)
        for kind in ("index", "timeindex"):
            (folder / f"{0:020}.{kind}").write_bytes(b"")
    partitions = discover([str(tmp_path)])
    found = recognise(partitions)
    assert found is None or found.release.newest_magic == 2
    alone = recognise(next(each for each in partitions if each.name == "b-0"))
    assert alone is not None
    assert alone.release.number >= (4,)
