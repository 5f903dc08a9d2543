"""What the files of a log directory prove to be missing."""

import os
import shutil
from pathlib import Path

import pytest

import magicbyte
from engine.log.appended import batch_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.checkpoints import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    format_offset_checkpoint,
)
from magicbyte.engine.log.files.directory import discover, survey
from magicbyte.engine.log.files.missing import Certainty, missing_in
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.message import build_message, build_wrapper

ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 0)
UUID = "0123456789abcdef0123456789abcdef"


def segment(folder: Path, base: int, count: int = 5) -> Path:
    """A segment of `count` records with an empty index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020}.index").write_bytes(b"")
    path = folder / f"{base:020}.log"
    path.write_bytes(batch_of(base, 1_700_000_000_000, count))
    return path


def checkpoint(directory: Path, name: str, offsets: dict[TopicPartition, int]) -> None:
    (directory / name).write_bytes(format_offset_checkpoint(offsets))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory with the segments 0..4, 5..9 and 10..14 of a partition, and its checkpoints."""
    for base in (0, 5, 10):
        segment(tmp_path / "orders-0", base)
    checkpoint(tmp_path, HIGH_WATERMARK, {ORDERS: 15})
    checkpoint(tmp_path, RECOVERY_POINT, {ORDERS: 15})
    return tmp_path


def facts(path: Path, **options: bool) -> list[tuple[str, tuple[int, int] | None, Certainty]]:
    return [(each.what, each.offsets, each.certainty) for each in missing_in(survey(path), **options)]


def test_of_a_whole_directory_nothing_is_missing(directory: Path) -> None:
    assert facts(directory) == []


SPECIAL = {
    "dead link": lambda path: path.symlink_to("/nowhere/at/all"),
    "link to itself": lambda path: path.symlink_to(path),
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize(("base", "offsets"), [(0, (0, 4)), (5, (5, 9)), (10, (10, 14))])
def test_a_segment_that_is_no_file_is_missing_with_its_offsets(
    directory: Path, kind: str, base: int, offsets: tuple[int, int]
) -> None:
    path = directory / "orders-0" / f"{base:020}.log"
    path.unlink()
    SPECIAL[kind](path)
    assert facts(directory) == [("segment", offsets, Certainty.RECORDS)]
    (missing,) = missing_in(survey(directory))
    assert missing.path == str(path)
    assert missing.count == 5


@pytest.mark.parametrize(("base", "offsets"), [(5, (5, 9)), (10, (10, 14))])
def test_an_index_beyond_the_first_segment_proves_that_its_log_is_missing(
    directory: Path, base: int, offsets: tuple[int, int]
) -> None:
    (directory / "orders-0" / f"{base:020}.log").unlink()
    assert facts(directory) == [("segment", offsets, Certainty.RECORDS)]


def test_an_index_of_a_segment_that_is_being_deleted_or_older_or_merged_proves_nothing(directory: Path) -> None:
    folder = directory / "orders-0"
    (folder / f"{0:020}.log").unlink()  # retention, interrupted
    (folder / f"{7:020}.index").write_bytes(b"")  # inside of the segment from 5 on, which is whole
    (folder / f"{15:020}.index").write_bytes(b"")
    (folder / f"{15:020}.log.deleted").write_bytes(b"")
    assert facts(directory) == []


def test_a_log_that_ends_below_an_offset_that_it_had_reached_misses_its_end(directory: Path) -> None:
    folder = directory / "orders-0"
    for path in folder.glob(f"{10:020}.*"):
        path.unlink()
    assert facts(directory) == [("end of the log", (10, 14), Certainty.RECORDS)]
    assert facts(directory, reads=False) == []
    assert facts(folder) == [("end of the log", (10, 14), Certainty.RECORDS)], "the checkpoints above it count"
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        (directory / name).unlink()
    assert facts(directory) == []
    (folder / f"{13:020}.snapshot").write_bytes(b"")
    assert facts(directory) == [("end of the log", (10, 12), Certainty.RECORDS)]


GAP = ("segment", (5, 9), Certainty.POSSIBLE)


def without_the_middle(directory: Path) -> Path:
    """Remove the segment 5..9 with its index, and return the partition folder."""
    folder = directory / "orders-0"
    for path in folder.glob(f"{5:020}.*"):
        path.unlink()
    return folder


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_gap_between_the_segments_of_a_gapless_log_may_be_a_lost_segment(directory: Path, magic: int) -> None:
    for path in (directory / "orders-0").glob("*.log"):
        if magic < 2:
            offsets = range(int(path.stem), int(path.stem) + 5)
            path.write_bytes(
                b"".join(
                    build_message(magic=magic, offset=each, timestamp=0, key=None, value=b"value") for each in offsets
                )
            )
    folder = without_the_middle(directory)
    assert facts(directory) == facts(folder) == [GAP]
    assert facts(directory, reads=False) == []
    (missing,) = missing_in(survey(directory))
    assert missing.path == str(folder / f"{5:020}.log")
    assert missing.evidence == str(folder / f"{10:020}.log")
    assert "or its records were removed by log compaction" in str(missing)


def test_no_gap_is_reported_of_a_log_that_shows_compaction_or_whose_gap_is_explained(directory: Path) -> None:
    folder = without_the_middle(directory)
    checkpoint(directory, CLEANER, {ORDERS: 10})
    assert facts(directory) == []
    checkpoint(directory, CLEANER, {BILLS: 10})
    assert GAP in facts(directory)
    checkpoint(directory, CLEANER, {})
    checkpoint(directory, LOG_START, {ORDERS: 10})  # records below it are due for deletion
    assert facts(directory) == []
    checkpoint(directory, LOG_START, {ORDERS: 8})
    assert facts(directory) == [("segment", (8, 9), Certainty.POSSIBLE)]
    (directory / LOG_START).unlink()
    for suffix in (".swap", ".deleted"):
        unfinished = folder / f"{5:020}.log{suffix}"
        unfinished.write_bytes(b"")
        assert facts(directory) == []
        unfinished.unlink()
    last = folder / f"{10:020}.log"
    whole = last.read_bytes()
    last.write_bytes(whole + batch_of(16, 1_700_000_000_000, 2))  # without 15
    assert facts(directory) == []


@pytest.mark.parametrize(("base", "is_reported"), [((1 << 31) - 2, True), ((1 << 31) - 1, False)])
def test_a_gap_is_explained_if_the_next_entry_did_not_fit_into_the_segment(
    directory: Path, base: int, is_reported: bool
) -> None:
    """Kafka splits such segments, which old cleaners merged (KAFKA-6264); so does `salvage`."""
    folder = without_the_middle(directory)
    for path in folder.glob(f"{10:020}.*"):
        path.unlink()
    (folder / f"{base:020}.log").write_bytes(batch_of(base, 1_700_000_000_000, 2))
    gap = ("segment", (5, base - 1), Certainty.POSSIBLE)
    assert facts(directory) == ([gap] if is_reported else [])


@pytest.mark.parametrize("kept", [[0, 1, 2, 3, 4], [0, 2, 4]])
def test_of_wrappers_the_gaps_inside_show_compaction(directory: Path, kept: list[int]) -> None:
    folder = without_the_middle(directory)
    inner = b"".join(build_message(0, offset, 0, None, b"value") for offset in kept)
    (folder / f"{0:020}.log").write_bytes(build_wrapper(0, Codec.GZIP, inner, 4, 0))
    assert facts(directory) == ([GAP] if len(kept) == 5 else [])


def test_salvage_and_convert_from_python_warn_of_gaps_as_the_commands_do(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    without_the_middle(directory)
    segment(directory / f"bills-0.{UUID}-stray", 0)
    out = tmp_path_factory.mktemp("out")
    with pytest.warns(UserWarning, match="left out|missing") as salvaging:
        assert len(magicbyte.salvage(directory, out / "whole")) == 1
    with pytest.warns(UserWarning, match="left out|missing") as converting:
        assert len(magicbyte.convert(directory, out / "new", magicbyte.Format.V2)) == 1
    for caught in (salvaging, converting):
        stray, gap = [str(each.message) for each in caught]
        assert "-stray" in stray
        assert "no other folder has this partition" in stray
        assert "offsets 5..9 (5)" in gap
        assert {each.filename for each in caught} == {__file__}


def test_damage_at_the_end_of_a_segment_is_no_missing_segment(directory: Path) -> None:
    folder = without_the_middle(directory)
    first = folder / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:-1])
    assert facts(directory) == []


def test_one_segment_that_was_asked_for_is_not_the_whole_log(directory: Path) -> None:
    assert facts(directory / "orders-0" / f"{0:020}.log") == []


def test_a_partition_that_only_checkpoints_know_is_missing(directory: Path) -> None:
    checkpoint(directory, HIGH_WATERMARK, {ORDERS: 15, BILLS: 57})
    checkpoint(directory, LOG_START, {BILLS: 50})
    assert facts(directory) == [("partition folder", (50, 56), Certainty.RECORDS)]
    shutil.rmtree(directory / "orders-0")
    assert [each.count for each in missing_in(survey(directory))] == [7, 15]
    with pytest.raises(LogDirectoryError, match="has the checkpoints of a broker, but no partition folder"):
        discover(directory)
    assert missing_in(survey(directory), ["orders"])[0].topic == "orders"


def test_a_partition_known_to_be_empty_or_deleted_is_no_loss(directory: Path) -> None:
    checkpoint(directory, HIGH_WATERMARK, {ORDERS: 15, BILLS: 0})
    checkpoint(directory, CLEANER, {TopicPartition("old", 3): 9})
    nothing = Certainty.NOTHING
    assert facts(directory) == [("partition folder", None, nothing), ("partition folder", None, nothing)]
    checkpoint(directory, HIGH_WATERMARK, {ORDERS: 15, BILLS: 4})
    segment(directory / f"bills-0.{UUID}-delete", 0)
    assert facts(directory)[0] == ("partition folder", (0, 3), nothing)


@pytest.mark.parametrize("kind", [each for each in SPECIAL if each != "folder"])
def test_a_partition_folder_that_is_none_is_named_as_what_it_is(directory: Path, kind: str) -> None:
    shutil.rmtree(directory / "orders-0")
    segment(directory / "other-0", 0)
    SPECIAL[kind](directory / "orders-0")
    (missing,) = missing_in(survey(directory))
    assert (missing.what, missing.offsets) == ("partition folder", (0, 14))
    assert kind.split()[0] in missing.found


def test_a_folder_without_its_log_misses_what_its_other_files_know(directory: Path) -> None:
    folder = directory / "orders-0"
    for path in folder.glob("*"):
        path.unlink()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert facts(directory) == [("log", (0, 14), Certainty.RECORDS)]
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        checkpoint(directory, name, {})
    assert facts(directory) == [("log", None, Certainty.UNKNOWN)]
    (folder / f"{57:020}.snapshot").write_bytes(b"")
    assert facts(directory) == [("log", (0, 56), Certainty.RECORDS)]


@pytest.mark.parametrize("name", [f"{5:020}.index", f"{15:020}.snapshot", "leader-epoch-checkpoint"])
def test_another_file_that_cannot_be_read_may_hold_something(directory: Path, name: str) -> None:
    (directory / "orders-0" / name).unlink(missing_ok=True)
    (directory / "orders-0" / name).symlink_to("/nowhere/at/all")
    assert facts(directory) == [("file", None, Certainty.UNKNOWN)]


def test_log_directories_are_found_at_any_depth_and_links_in_a_circle_end(directory: Path, tmp_path: Path) -> None:
    deep = tmp_path / "repository/docker/data/kafka/logs"
    deep.parent.mkdir(parents=True)
    (directory / "orders-0").rename(tmp_path / "kept")
    deep.mkdir()
    (tmp_path / "kept").rename(deep / "orders-0")
    (deep / "orders-0" / "itself").symlink_to(deep / "orders-0")
    (deep / "above").symlink_to(tmp_path)
    assert [each.path for each in discover(tmp_path / "repository")] == [str(deep / "orders-0")]


def test_a_quarantine_is_not_read_as_a_log_directory(directory: Path) -> None:
    shutil.copytree(directory / "orders-0", directory / "quarantine" / "orders-0")
    assert len(discover(directory)) == 1
