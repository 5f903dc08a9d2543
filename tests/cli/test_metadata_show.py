"""`magicbyte metadata show`: the cluster that the metadata log of a real KRaft node describes."""

import json
import re
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import KraftNode, nodes
from magicbyte.tools.offline.quorum import quorum_folder, read_quorum

CLEAN = KraftNode("4.3.1/clean-a", "node")


def test_the_cluster_is_printed_without_a_secret(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    shown, printed = run("metadata", "show", path), run("metadata", "show", path, "--json")
    assert (shown.exit_code, printed.exit_code) == (0, 0)
    assert "features: metadata.version 30" in shown.stdout
    assert "\n  boot-a SCRAM-SHA-512" in shown.stdout
    found = read_quorum(quorum_folder(str(path)))
    assert json.loads(printed.stdout)["endOffset"] == found.end
    credentials = [each for user in found.image.scram_users.values() for each in user.values()]
    secrets = {part for each in credentials for part in each.dump().split(",")[:3]}
    assert len(secrets) > 2
    assert not any(each in printed.stdout + shown.stdout for each in secrets)


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_all_nodes_are_described_with_the_members_of_the_page(node: KraftNode, tmp_path: Path) -> None:
    path = node.unpacked(tmp_path)
    found = json.loads(run("metadata", "show", path, "--json").stdout)
    assert {each["id"] for each in found["brokers"]}
    assert all(partition["replicas"] for topic in found["topics"] for partition in topic["partitions"])


def test_one_topic_is_shown_alone_with_its_settings(tmp_path: Path) -> None:
    shown = run("metadata", "show", CLEAN.unpacked(tmp_path), "--topic", "alpha-one").stdout
    assert re.search(r"^alpha-one +\S{22} +0 ", shown, re.MULTILINE)
    assert "topics alpha-one cleanup.policy=compact" in shown
    assert "alpha-two" not in shown
    assert "features" not in shown


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--topic", "nothing"], 1, "no topic nothing at offset 173"),
        (["--at", "-1"], 2, "-1"),
    ],
)
def test_wrong_arguments_are_explained(words: list[str], status: int, why: str, tmp_path: Path) -> None:
    done = run("metadata", "show", CLEAN.unpacked(tmp_path), *words)
    assert done.exit_code == status
    assert why in done.stderr


def test_a_path_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    path = CLEAN.unpacked(tmp_path)
    done = run("metadata", "show", path / "alpha-one-0")
    assert done.exit_code == 2
    assert "no metadata log of a KRaft node" in done.stderr
