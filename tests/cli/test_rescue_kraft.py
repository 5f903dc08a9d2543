"""`magicbyte rescue --to-kraft`: a backup becomes the directory of a KRaft node, from which Kafka deletes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from kraft_data import FOLDER, KraftNode
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.log.files.directory import discover
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum_check import check_node
from magicbyte.tools.rescue.groups import StoredGroups, loaded_groups, stored_groups

NODE = KraftNode("4.3.1/clean-a", "node")


def rescued(backup: Path, out: Path, *words: str | Path) -> dict[str, Any]:
    """Rescue a backup; return the receipt."""
    done = run("rescue", backup, "--to-kraft", out, "--release", "4.3", *words, "--json")
    assert done.exit_code in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def groups_in(path: Path) -> StoredGroups:
    """The offsets of groups in a log directory."""
    groups, damaged = stored_groups(each for each in discover(str(path)) if each.topic == OFFSETS_TOPIC)
    assert not damaged
    return groups


def commit_times(path: Path) -> set[int]:
    """The times of all commits in a log directory."""
    logs = [each for each in discover(str(path)) if each.topic == OFFSETS_TOPIC]
    offsets = [value for each in logs for places in loaded_groups(each).offsets.values() for value in places.values()]
    return {each.commit_timestamp for each in offsets}


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a node, without its metadata."""
    return NODE.unpacked(tmp_path_factory.mktemp("backup") / "logs", without=rf"{FOLDER}|meta\.properties|bootstrap")


def test_a_rescued_node_keeps_records_and_offsets_and_expires_nothing(backup: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    receipt = rescued(backup, out, "--node-id", "3")
    assert check_node([str(out)]).is_sound
    before, after = groups_in(backup), groups_in(out)
    assert after == before
    times = commit_times(out)
    assert len(times) == 1
    assert times != commit_times(backup)
    assert receipt["kraft"]["renewedCommits"] == sum(map(len, before.values()))
    image = read_metadata(str(out)).image
    users = {name for name in image.topics if not name.startswith("__")}
    assert sorted(users) == receipt["kraft"]["unlimitedRetention"]
    settings = {entity.name: dict(each) for entity, each in image.settings.items()}
    assert all(settings[name] == {"retention.ms": "-1", "retention.bytes": "-1"} for name in users)
    assert settings[OFFSETS_TOPIC] == {"cleanup.policy": "compact"}
    assert receipt["kraft"]["metadataVersion"] == image.features["metadata.version"] == 30
    assert {each.replicas for topic in image.topics.values() for each in topic.partitions} == {(3,)}


def test_retention_and_commit_times_can_stay(backup: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    receipt = rescued(backup, out, "--keep-retention", "--keep-commit-times")
    assert receipt["kraft"]["unlimitedRetention"] == []
    assert receipt["kraft"]["renewedCommits"] == 0
    assert commit_times(out) == commit_times(backup)
    names = {entity.name for entity in read_metadata(str(out)).image.settings}
    assert all(name is not None and name.startswith("__") for name in names)


def test_settings_ids_acls_and_users_come_from_a_cluster_if_one_is_named(backup: Path, tmp_path: Path) -> None:
    node, out = NODE.unpacked(tmp_path / "node"), tmp_path / "out"
    rescued(backup, out, "--metadata", node)
    known, image = read_metadata(str(node)).image, read_metadata(str(out)).image
    assert image.acl_ids == known.acl_ids
    assert image.scram_users == known.scram_users
    assert image.quotas == known.quotas
    assert all(topic.id == known.topics[name].id for name, topic in image.topics.items())
    for entity, before in known.settings.items():
        if entity.name in image.topics:
            assert before.items() - image.settings[entity].items() <= {
                (name, before.get(name)) for name in ("retention.ms", "retention.bytes")
            }


def test_one_target_is_needed(backup: Path, tmp_path: Path) -> None:
    for words in ([], ["--to", "./x", "--to-kraft", str(tmp_path / "out")]):
        done = run("rescue", backup, *words)
        assert done.exit_code == 2
        assert "expected either --to or --to-kraft" in done.stderr


def test_the_text_says_that_nothing_is_deleted(backup: Path, tmp_path: Path) -> None:
    done = run("rescue", backup, "--to-kraft", tmp_path / "out")
    assert "retention.ms and retention.bytes are -1, until you set them: alpha-again" in done.stdout
    assert "the commit time is now that of the rescue" in done.stdout
