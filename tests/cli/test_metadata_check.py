"""`magicbyte metadata check`: what Kafka would do with the directories of a node. It did start on the golden ones."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import FOLDER, KraftNode, nodes
from magicbyte.engine.log.files.filesystem import LocalFiles

CLEAN, TRIMMED = KraftNode("4.3.1/clean-a", "node"), KraftNode("4.3.1/trimmed-a", "node")


def checked(*paths: Path) -> list[dict[str, str]]:
    """Return the findings but for notes."""
    done = run("metadata", "check", *paths, "--json")
    found = [each for each in json.loads(done.stdout)["findings"] if each["severity"] != "note"]
    assert done.exit_code == bool(found), done.stderr
    return found


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_a_node_that_kafka_stopped_starts_without_loss(node: KraftNode, tmp_path: Path) -> None:
    assert checked(node.unpacked(tmp_path)) == []


def rewritten(path: Path, pattern: str, text: str) -> None:
    content = path.read_text()
    changed = re.sub(pattern, text, content)
    assert changed != content
    path.write_text(changed)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no meta.properties": (lambda node: remove(node / "meta.properties"), "owner", "does not start"),
    "a broker of ZooKeeper's": (
        lambda node: rewritten(node / "meta.properties", "version=1", "version=0"), "owner", "ZooKeeper"),
    "no cluster id": (lambda node: rewritten(node / "meta.properties", "cluster.id=.*", ""), "cluster.id", "add it"),
    "no metadata log": (lambda node: remove(node / FOLDER), "metadata log", "starts as an empty cluster"),
    "a later state of the quorum": (
        lambda node: rewritten(node / FOLDER / "quorum-state", '"data_version":0', '"data_version":2'),
        "data_version", "later release"),
    "a garbled state of the quorum": (
        lambda node: (node / FOLDER / "quorum-state").write_text("{"), "quorum state", "move it away"),
    "no topic id": (lambda node: remove(node / "alpha-one-0" / "partition.metadata"), "topic id", "-stray"),
    "another topic id": (
        lambda node: shutil.copy(node / "alpha-two-0/partition.metadata", node / "alpha-one-0"), "topic id", "-stray"),
    "a garbled topic id": (
        lambda node: (node / "alpha-one-0/partition.metadata").write_text("version: 0\n"), "file", "-stray"),
    "no folder": (lambda node: remove(node / "alpha-one-0"), "folder of alpha-one-0", "an empty folder"),
    "a folder without a record": (
        lambda node: shutil.copytree(node / "alpha-one-0", node / "alpha-one-9"), "partition", "-stray"),
    "later epochs": (
        lambda node: (node / "alpha-one-0/leader-epoch-checkpoint").write_text("0\n1\n77 0\n"),
        "last epoch", "forgets"),
    "another directory": (
        lambda node: rewritten(node / "meta.properties", "directory.id=.*", "directory.id=Q65irXao47qar2FXyoLEwA"),
        "directory id", "assigns it again"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "what", "advice"), DAMAGE.values(), ids=DAMAGE)
def test_what_keeps_a_node_from_its_records_is_found(
    damage: Callable[[Path], object], what: str, advice: str, tmp_path: Path
) -> None:
    node = CLEAN.unpacked(tmp_path)
    damage(node)
    found = checked(node)
    assert {each["what"] for each in found} == {what}
    assert all(advice in each["advice"] for each in found)


def test_a_log_whose_snapshot_is_gone_counts_as_empty(tmp_path: Path) -> None:
    node = TRIMMED.unpacked(tmp_path, without=r"\.checkpoint$")
    (found,) = checked(node)
    assert found["what"] == "snapshot"
    assert "starts as an empty cluster" in found["advice"]


def test_a_torn_end_is_a_warning_and_an_unknown_record_an_error(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path)
    last = max((node / FOLDER).glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    assert {each["severity"] for each in checked(node)} == {"warning"}
    first = min((node / FOLDER).glob("*.log"))
    data = bytearray(first.read_bytes())
    data[200] ^= 1
    first.write_bytes(data)
    for snapshot in (node / FOLDER).glob("*.checkpoint"):
        snapshot.unlink()
    (found,) = [each for each in checked(node) if each["severity"] == "error"]
    assert found["path"] == str(first)
    assert "does not start" in found["advice"]


def test_directories_of_two_nodes_are_not_those_of_one(tmp_path: Path) -> None:
    first, second = CLEAN.unpacked(tmp_path / "a"), KraftNode("4.3.1/dynamic-a", "c100").unpacked(tmp_path / "b")
    assert {each["what"] for each in checked(first, second)} >= {"node.id", "metadata log"}


def test_a_node_with_two_directories_has_its_folders_in_both(tmp_path: Path) -> None:
    first, second = CLEAN.unpacked(tmp_path / "a"), tmp_path / "b"
    second.mkdir()
    (first / "alpha-one-0").rename(second / "alpha-one-0")
    shutil.copy(first / "meta.properties", second)
    assert {each["what"] for each in checked(first, second)} == {"directory.id"}
    rewritten(second / "meta.properties", "directory.id=.*", "directory.id=Q65irXao47qar2FXyoLEwA")
    assert checked(first, second) == []
    assert {each["what"] for each in checked(first)} == {"folder of alpha-one-0"}


def test_a_formatted_directory_is_sound_and_an_empty_one_is_none(tmp_path: Path) -> None:
    formatted = CLEAN.unpacked(tmp_path, without="[^/]*-[0-9]+(/|[.])|-checkpoint|_cleanshutdown")
    assert sorted(each.name for each in formatted.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert checked(formatted) == []
    said = run("metadata", "check", formatted).stdout
    assert "no node has started on it yet" in said
    assert "clean stop" not in said, "there are no logs that it would be about"
    (tmp_path / "empty").mkdir()
    assert {each["what"] for each in checked(tmp_path / "empty")} == {"owner", "metadata log"}


def test_the_text_says_what_to_do(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path)
    assert run("metadata", "check", node).stdout.endswith(
        ": nothing here keeps the node from starting or hides a folder; `magicbyte verify` checks the logs\n"
    )
    remove(node / "alpha-one-0" / "partition.metadata")
    done = run("metadata", "check", node)
    assert done.exit_code == 1
    assert "error: " in done.stdout
    assert "to do: Kafka renames the folder to -stray" in done.stdout


def test_a_directory_in_use_is_in_a_note(tmp_path: Path) -> None:
    node = CLEAN.unpacked(tmp_path)
    lock = LocalFiles().lock(str(node / ".lock"))
    try:
        done = run("metadata", "check", node)
    finally:
        lock.release()
    assert done.exit_code == 0
    assert "expected a stopped node, found a running one" in done.stdout
