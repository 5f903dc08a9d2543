"""`magicbyte metadata check --repair`: a directory from what can be read of a damaged one, and what was dropped."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import FOLDER, KraftNode
from magicbyte.engine.cluster.metadata_fold import records_of
from magicbyte.engine.log.files.checkpoints import parse_offset_checkpoint
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch, build_batch, single_record
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum_check import check_node

CLEAN, KILLED = KraftNode("4.3.1/clean-a", "node"), KraftNode("3.9.1/killed-a", "node")
LOG = f"{FOLDER}/{0:020}.log"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def append_unknown(node: Path) -> None:
    """Append a batch with a record of a type that no release has."""
    newest = max((node / FOLDER).glob("*.log"))
    end = read_metadata(str(node)).end
    assert end is not None
    made = build_batch(single_record(None, b"\x01\x63\x00\x00"), base_offset=end, last_offset_delta=0,
                       base_timestamp=0, max_timestamp=0, record_count=1, partition_leader_epoch=1)  # fmt: skip
    newest.write_bytes(newest.read_bytes() + made)


def cut_snapshots(node: Path) -> None:
    for path in (node / FOLDER).glob("*.checkpoint"):
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-75])  # a footer's batch


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a torn tail": (
        lambda node: (newest := max((node / FOLDER).glob("*.log"))).write_bytes(newest.read_bytes()[:-5]),
        "the log ends before it"),
    "a flipped bit in the middle": (
        lambda node: [cut_snapshots(node), flip(node / LOG, 3000)], "what follows is dropped"),
    "an unknown record": (append_unknown, "type of a metadata record"),
    "snapshots without a footer": (cut_snapshots, "no footer"),
    "a damaged snapshot": (
        lambda node: [(newest := max((node / FOLDER).glob("*.checkpoint"))).chmod(0o600), flip(newest, 200)],
        "the snapshot is passed over"),
    "a garbled state of the quorum": (lambda node: (node / FOLDER / "quorum-state").write_text("{"), "quorum state"),
    "a folder without a record": (
        lambda node: shutil.copytree(node / "alpha-one-0", node / "alpha-one-9"), "do not give it to node 1"),
    "another topic's id": (
        lambda node: shutil.copy(node / "alpha-two-0/partition.metadata", node / "alpha-one-0"),
        "it is of another topic"),
    "no folder": (lambda node: shutil.rmtree(node / "alpha-one-0"), "folder of alpha-one-0: there is none"),
}  # fmt: skip
HIDDEN = {
    "another topic's id": {"folder of alpha-one-0"},
    "no folder": {"folder of alpha-one-0"},
    "a flipped bit in the middle": {  # topics that were deleted later
        "folder of alpha-again-0", "folder of alpha-again-1", "folder of alpha-gone-0", "folder of alpha-gone-1",
        "folder of alpha-gone-2"},
}  # fmt: skip
"""Damage after which partitions are empty: their records are in no directory of the node."""


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_repaired_starts_and_what_was_dropped_is_named(what: str, tmp_path: Path) -> None:
    node, out = CLEAN.unpacked(tmp_path / "node"), tmp_path / "out"
    change, message = DAMAGE[what]
    change(node)
    done = run("metadata", "check", node, "--repair", "--out", out)
    assert done.exit_code == 1, done.stderr
    assert message in done.stderr
    assert all(each.startswith("magicbyte: dropped: ") for each in done.stderr.splitlines())
    left = {each.what for each in check_node([str(out)]).findings if each.severity.name != "NOTE"}
    assert left == HIDDEN.get(what, set())


def test_a_sound_directory_is_written_again_and_nothing_is_dropped(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path / "node")
    done = run("metadata", "check", node, "--repair", "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr) == (0, "")
    assert run("metadata", "diff", node, tmp_path / "out").exit_code == 0


def test_a_killed_node_keeps_its_logs_and_kafka_recovers_them(tmp_path: Path) -> None:
    node = KILLED.unpacked(tmp_path / "node")
    done = run("metadata", "check", node, "--repair", "--out", tmp_path / "out")
    assert done.exit_code == (1 if done.stderr else 0)
    assert not (tmp_path / "out" / ".kafka_cleanshutdown").exists()
    assert check_node([str(tmp_path / "out")]).is_sound


def test_a_topic_id_that_cannot_be_read_is_written_again(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path / "node")
    before = (node / "alpha-one-0/partition.metadata").read_bytes()
    (node / "alpha-one-0/partition.metadata").write_text("version: 0\n")
    assert run("metadata", "check", node, "--repair", "--out", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out/alpha-one-0/partition.metadata").read_bytes() == before


def test_the_owner_is_asked_for_if_nothing_says_it_and_another_cluster_id_can_be_given(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path / "node")
    (node / "meta.properties").write_text("version=9\n")
    done = run("metadata", "check", node, "--repair", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "names no node id" in done.stderr.splitlines()[-1]
    given = ("--node-id", "1", "--cluster-id", "b3JhY2xlLW9yYWNsZS1vcg")
    assert run("metadata", "check", node, "--repair", "--out", tmp_path / "out", *given).exit_code == 1
    assert "cluster.id=b3JhY2xlLW9yYWNsZS1vcg\n" in (tmp_path / "out/meta.properties").read_text()
    assert check_node([str(tmp_path / "out")]).is_sound


def test_a_log_that_no_snapshot_continues_is_refused_in_one_line(tmp_path: Path) -> None:
    node = KraftNode("4.3.1/trimmed-a", "node").unpacked(tmp_path / "node", without=r"\.checkpoint$")
    done = run("metadata", "check", node, "--repair", "--out", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "no complete snapshot has what was before" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["--repair"], ["--out", "x"], ["--repair", "--out", "x", "--json"]])
def test_the_options_belong_together(words: list[str], tmp_path: Path) -> None:
    assert run("metadata", "check", tmp_path, *words).exit_code == 2


def test_records_after_the_damage_are_not_applied(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path / "node", without=r"checkpoint$")
    data, at = (node / LOG).read_bytes(), 0
    while at < 2000:
        batch = RecordBatch.parse(memoryview(data)[at:])
        assert batch is not None
        at += batch.size
    damaged = RecordBatch.parse(memoryview(data)[at:])
    assert damaged is not None
    before = read_metadata(str(node), damaged.base_offset - 1)
    flip(node / LOG, at + damaged.size - 1)
    shutil.rmtree(node / "alpha-one-0", ignore_errors=True)
    run("metadata", "check", node, "--repair", "--out", tmp_path / "out")
    after = read_metadata(str(tmp_path / "out"))
    assert (after.end, list(records_of(after.image))) == (damaged.base_offset, list(records_of(before.image)))


def in_two(node: Path, second: Path) -> None:
    """Move a partition into another log directory of the node."""
    second.mkdir()
    (node / "alpha-one-0").rename(second / "alpha-one-0")
    for name in ("meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        shutil.copy(node / name, second)
    owner = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text(re.sub("directory.id=.*", "directory.id=Q65irXao47qar2FXyoLEwA", owner))


def test_log_directories_of_one_node_become_one(tmp_path: Path) -> None:
    node, second, out = CLEAN.unpacked(tmp_path / "a"), tmp_path / "b", tmp_path / "out"
    before = {name: data for name, data in CLEAN.files().items() if name.endswith(".log") and FOLDER not in name}
    in_two(node, second)
    (second / "alpha-one-0/partition.metadata").unlink()
    done = run("metadata", "check", second, node, "--repair", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert list(check_node([str(out)]).findings) == []
    kept = {name: data for name, data in before.items() if "-delete/" not in name}
    assert {name: (out / name).read_bytes() for name in kept} == kept
    points = parse_offset_checkpoint((out / "recovery-point-offset-checkpoint").read_bytes())
    assert TopicPartition("alpha-one", 0) in points
    assert (out / ".kafka_cleanshutdown").exists()


def test_a_directory_that_was_not_closed_leaves_no_mark_of_a_clean_stop(tmp_path: Path) -> None:
    node, second = CLEAN.unpacked(tmp_path / "a"), tmp_path / "b"
    in_two(node, second)
    (second / ".kafka_cleanshutdown").unlink()
    assert run("metadata", "check", node, second, "--repair", "--out", tmp_path / "out").exit_code == 0
    assert not (tmp_path / "out/.kafka_cleanshutdown").exists()


def test_directories_that_are_not_those_of_one_node_are_refused(tmp_path: Path) -> None:
    node, second, out = CLEAN.unpacked(tmp_path / "a"), tmp_path / "b", tmp_path / "out"
    in_two(node, second)
    owner = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text(owner.replace("node.id=1", "node.id=2"))
    words = ("metadata", "check", node, second, "--repair", "--out", out)
    assert f"one node: {second}: node.id: expected 1" in run(*words).stderr
    (second / "meta.properties").write_text(owner)
    shutil.copytree(node / "alpha-one-1", second / "alpha-one-1")
    assert "expected alpha-one-1 in one log directory, found it in several" in run(*words).stderr
    shutil.copytree(node / FOLDER, second / FOLDER)
    done = run(*words)
    assert f"{FOLDER} is in {node} and {second}" in done.stderr
    assert done.exit_code == 2
    assert not out.exists()
