"""`magicbyte rescue --to-kraft`: a backup becomes the directory of a KRaft node, from which Kafka deletes nothing."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from golden_data import Case, log_case, log_cases, one_of_each_kind
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
        assert "expected either --to or --to-kraft; with --to-kraft only --to v2" in done.stderr


def test_the_text_says_that_nothing_is_deleted(backup: Path, tmp_path: Path) -> None:
    done = run("rescue", backup, "--to-kraft", tmp_path / "out")
    assert "retention.ms and retention.bytes are -1, until you set them: alpha-again" in done.stdout
    assert "the commit time is now that of the rescue" in done.stdout


OLD = [each for each in log_cases(state="clean shutdown") if set(each.magics) & {0, 1} and each.topic[:2] != "__"]


def segments(folder: Path) -> dict[str, bytes]:
    """The segments that have records, by name."""
    return {path.name: data for path in folder.glob("*.log") if (data := path.read_bytes())}


@pytest.mark.parametrize("case", one_of_each_kind(OLD))
def test_segments_of_formats_0_and_1_stay_byte_for_byte(case: Case, tmp_path: Path) -> None:
    folder = case.partition_dir(tmp_path / "backup", named=True)
    receipt = rescued(tmp_path / "backup", tmp_path / "out")
    assert receipt["kraft"]["oldFormats"] == [case.topic]
    written = segments(tmp_path / "out" / folder.name)
    if set(case.magics) <= {0, 1}:
        assert written == segments(folder)
    assert check_node([str(tmp_path / "out")]).is_sound or receipt["missing"]
    text = run("rescue", tmp_path / "backup", "--to-kraft", tmp_path / "text")
    assert f"records of formats 0 and 1 are those of the backup, byte for byte: {case.topic}\n" in text.stdout


def test_to_v2_converts_them(tmp_path: Path) -> None:
    case = log_case("0.10.2.2/basic-gzip")
    folder = case.partition_dir(tmp_path / "backup", named=True)
    receipt = rescued(tmp_path / "backup", tmp_path / "out", "--to", "v2")
    assert receipt["kraft"]["oldFormats"] == []
    assert run("diff", folder, tmp_path / "out" / folder.name).exit_code == 0
    assert {data[16] for data in segments(tmp_path / "out" / folder.name).values()} == {2}


def test_kafkas_own_topics_are_converted(tmp_path: Path) -> None:
    case = log_case("0.10.2.2/consumer-offsets")
    folder = case.partition_dir(tmp_path / "backup", named=True)
    before = groups_in(tmp_path / "backup")
    receipt = rescued(tmp_path / "backup", tmp_path / "out")
    assert receipt["kraft"]["oldFormats"] == []
    assert {data[16] for data in segments(tmp_path / "out" / folder.name).values()} == {2}
    assert groups_in(tmp_path / "out") == before


def test_an_interrupted_rescue_is_continued_for_the_same_node_and_release_only(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    out = tmp_path / "out"
    words = ("rescue", backup, "--to-kraft", out, "--release", "4.3", "--node-id", "3")
    with monkeypatch.context() as patch:
        patch.setattr("magicbyte.tools.rescue.rescue.add_metadata", full)
        assert run(*words).exit_code == 2
    assert not out.exists()
    for other in (("--node-id", "4"), ("--release", "4.4"), ("--to", "v2"), ("--keep-retention",)):
        refused = run(*words, *other)
        assert refused.exit_code == 2
        assert "the work of another rescue" in refused.stderr
    assert run(*words).exit_code in (0, 1)
    assert check_node([str(out)]).is_sound
    assert not (tmp_path / "out.rescue").exists()
