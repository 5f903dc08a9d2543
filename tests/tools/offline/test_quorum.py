"""A KRaft node's directory as an image: of real nodes, cut, damaged, and with files missing."""

from pathlib import Path

import pytest

from kraft_data import FOLDER, KraftNode, nodes
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum import DescribedCluster, Note, quorum_folder, read_quorum

CLEAN, KILLED = KraftNode("4.3.1/clean-a", "node"), KraftNode("3.9.1/killed-a", "node")
BROKER, JOINED = KraftNode("4.3.1/dynamic-a", "b1"), KraftNode("4.3.1/dynamic-a", "c101")


def read(path: Path, at: int | None = None) -> DescribedCluster:
    """Read the metadata log of a node's log directory."""
    return read_quorum(quorum_folder(str(path)), at)


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_a_nodes_image_ends_where_kafkas_does(node: KraftNode, tmp_path: Path) -> None:
    found, (last, *_) = read(node.unpacked(tmp_path)), [lines[-1] for lines in node.folds().values()]
    assert found.end == last["end"]
    assert found.notes == ()
    assert found.start is not None


@pytest.mark.parametrize("node", [CLEAN, KILLED, BROKER], ids=str)
def test_without_snapshots_the_log_leads_to_the_same_image(node: KraftNode, tmp_path: Path) -> None:
    whole, bare = node.unpacked(tmp_path / "a"), node.unpacked(tmp_path / "b", without=r"checkpoint$")
    for at in (None, 150, 90):
        found, expected = read(bare, at), read(whole, at)
        assert found.start is None
        assert (found.image, found.end) == (expected.image, expected.end)


def test_an_incomplete_snapshot_is_passed_over_with_a_note(tmp_path: Path) -> None:
    expected = read(CLEAN.unpacked(tmp_path))
    newest = tmp_path / FOLDER / str(expected.start)
    batches, at = [], 0
    data = memoryview(newest.read_bytes())
    while at < len(data):
        batch = RecordBatch(data[at:])
        batches.append(at)
        at += batch.size
    newest.write_bytes(data[: batches[-1]])  # the footer is a batch of its own
    found = read(tmp_path)
    assert found.start is not None
    assert found.start < str(expected.start)
    assert found.notes == (Note(f"{newest.name}: it has no footer, so it is incomplete: passed over", is_damage=True),)
    assert (found.image, found.end) == (expected.image, expected.end)


def test_unfinished_and_deleted_snapshots_are_ignored(tmp_path: Path) -> None:
    expected = read(CLEAN.unpacked(tmp_path))
    for suffix in (".checkpoint.part", ".checkpoint.deleted"):
        (tmp_path / FOLDER / f"{999:020}-{1:010}{suffix}").write_bytes(b"nothing")
    assert read(tmp_path) == expected


def test_a_log_whose_start_no_snapshot_reaches_is_refused(tmp_path: Path) -> None:
    JOINED.unpacked(tmp_path, without=r"\.checkpoint$")
    with pytest.raises(LogDirectoryError, match="begins at offset 333, and no complete snapshot has"):
        read(tmp_path)
    JOINED.unpacked(tmp_path)
    with pytest.raises(LogDirectoryError, match="begins at offset 333, and no complete snapshot has"):
        read(tmp_path, 100)


def test_a_last_batch_cut_at_any_byte_ends_the_log_before_it(tmp_path: Path) -> None:
    expected = read(CLEAN.unpacked(tmp_path))
    newest = max((tmp_path / FOLDER).glob("*.log"))
    data, at = newest.read_bytes(), 0
    while at + (size := RecordBatch(memoryview(data)[at:]).size) < len(data):
        at += size
    last = RecordBatch(memoryview(data)[at:])
    for cut in range(at + 1, len(data)):
        newest.write_bytes(data[:cut])
        found = read(tmp_path)
        assert found.end == last.base_offset <= expected.end
        assert len(found.notes) == 1
        assert newest.name in found.notes[0].text


def test_a_flipped_bit_in_the_last_batch_ends_the_log_and_in_an_earlier_segment_is_refused(tmp_path: Path) -> None:
    BROKER.unpacked(tmp_path, without=r"checkpoint$")
    segments = sorted((tmp_path / FOLDER).glob("*.log"))
    newest = bytearray(segments[-1].read_bytes())
    newest[-1] ^= 4
    segments[-1].write_bytes(newest)
    assert "crc" in read(tmp_path).notes[0].text
    first = bytearray(segments[0].read_bytes())
    first[200] ^= 4
    segments[0].write_bytes(first)
    with pytest.raises(CorruptRecordError, match=segments[0].name):
        read(tmp_path)


@pytest.mark.parametrize("is_formatted_only", [True, False])
def test_91_a_directory_that_was_formatted_and_not_used_shows_what_it_begins_with(
    is_formatted_only: bool, tmp_path: Path
) -> None:
    path = CLEAN.unpacked(tmp_path, without="__cluster_metadata-0/")
    if not is_formatted_only:  # the node has started, and was not elected yet
        (path / FOLDER).mkdir()
        (path / FOLDER / "00000000000000000000.log").touch()
    found = read_metadata(str(path))
    first = read_quorum(quorum_folder(str(CLEAN.unpacked(tmp_path / "used"))), 8).image
    assert found.image.features == first.features
    assert found.image.scram_users.keys() == {"boot-a"}
    assert (found.start, found.end) == ("bootstrap.checkpoint", 0)
    assert found.notes == (Note("the log has no records yet"),)


def test_92_a_log_with_records_wins_over_the_file_that_it_began_with(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    other = KraftNode("3.9.1/clean-a", "node").files()["bootstrap.checkpoint"]
    (path / "bootstrap.checkpoint").write_bytes(other)
    assert read_metadata(str(path)).image.features["metadata.version"] == 30


def test_a_file_to_begin_with_that_was_cut_is_damage(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path, without="__cluster_metadata-0/")
    file = path / "bootstrap.checkpoint"
    data = file.read_bytes()
    file.write_bytes(data[: data.rindex(b"\x02", 0, len(data) - 60)])
    with pytest.raises(CorruptRecordError, match="bootstrap"):
        read_metadata(str(path))
