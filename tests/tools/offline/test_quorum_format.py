"""A fresh directory of a KRaft node: the files that real `kafka-storage format` wrote, but for ids and times."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from kraft_data import KraftNode, nodes
from magicbyte.engine.cluster.features import LAST_LEVEL, initial_levels, level_of
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.metadata_batches import MOST_BATCH_BYTES, QuorumVoter, snapshot
from magicbyte.engine.cluster.metadata_fold import records_of
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.checkpoints import parse_meta_properties
from magicbyte.engine.log.files.outputs import SCRATCH
from magicbyte.engine.protocol.messages.voters_record import VotersRecord
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, control_records
from magicbyte.engine.releases import Release, release_of_level
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum import BOOTSTRAP, FIRST_SNAPSHOT, read_bootstrap
from magicbyte.tools.offline.quorum_check import check_node
from magicbyte.tools.offline.quorum_format import NodeFormat, format_directory, new_id, parse_id

NOW_MS = 1_790_000_000_000


def formatted(path: Path, release: str = "4.3", **changed: Any) -> NodeFormat:
    """Format a directory of a combined node."""
    chosen = Release.of(release)
    assert chosen.metadata_version is not None
    wanted: dict[str, Any] = {
        "node_id": 1,
        "cluster_id": uuid.UUID(int=1 << 90),
        "directory_id": uuid.UUID(int=1 << 100),
        "release": chosen,
        "roles": frozenset({"broker", "controller"}),
        "levels": initial_levels(chosen.metadata_version, chosen, {}),
        "users": {},
    }
    made = NodeFormat(**wanted | changed)
    format_directory(path, made, NOW_MS)
    return made


def without_times(content: bytes) -> list[bytes]:
    """The batches of a snapshot, with zeros for times and checksums; the time of the last record covered is 0 or 1."""
    found, data = [], memoryview(content)
    while data:
        batch = bytearray(data[: RecordBatch(data).size])
        data = data[len(batch) :]
        batch[17:21] = bytes(4)
        batch[27:43] = bytes(16)
        if not found:
            stored = memoryview(batch)
            value = next(each.value for each in control_records(RecordBatch(stored)))
            assert value is not None
            at = bytes(batch).index(bytes(value)) + 2
            batch[at : at + 8] = bytes([bool(any(batch[at : at + 8]))]) * 8
        found.append(bytes(batch))
    return found


def begun_by(node: KraftNode) -> dict[str, bytes]:
    """The files of a golden directory from before its first start."""
    return {name: data for name, data in node.files().items() if name in (BOOTSTRAP, FIRST_SNAPSHOT)}


@pytest.mark.parametrize("node", [each for each in nodes() if begun_by(each)], ids=str)
def test_the_first_files_are_those_that_kafka_wrote(node: KraftNode, tmp_path: Path) -> None:
    files, release = begun_by(node), Release.of(node.case.partition("/")[0])
    owner = parse_meta_properties(node.files()["meta.properties"])
    first = tmp_path / "first"
    first.mkdir()
    (first / BOOTSTRAP).write_bytes(files.get(BOOTSTRAP) or files[FIRST_SNAPSHOT])
    begun = read_bootstrap(str(first))
    assert begun is not None
    assert owner.cluster_id is not None
    assert owner.node_id is not None
    voters = list[QuorumVoter]()
    if FIRST_SNAPSHOT in files and not release.begins_with_snapshot:
        header = RecordBatch.parse(memoryview(files[FIRST_SNAPSHOT]))
        assert header is not None
        controls = control_records(header)
        stored = next(each.value for each in controls if each.type is ControlType.KRAFT_VOTERS)
        assert stored is not None
        for each in VotersRecord.read(stored, 0).voters:
            at = each.endpoints[0]
            voters.append(QuorumVoter(each.voter_id, each.voter_directory_id, at.name, at.host, at.port))
    levels = initial_levels(begun.image.features["metadata.version"], release, {})
    formatted(
        tmp_path / "made",
        release.version,
        node_id=owner.node_id,
        cluster_id=parse_id(owner.cluster_id),
        directory_id=new_id() if owner.directory_id is None else parse_id(owner.directory_id),
        roles=frozenset({"controller"} if node.name.startswith("c") else {"broker", "controller"}),
        voters=voters,
        users=begun.image.scram_users,
        levels=levels,
    )
    assert dict(begun.image.features) == levels
    for name, content in files.items():
        assert without_times((tmp_path / "made" / name).read_bytes()) == without_times(content)
    written = parse_meta_properties((tmp_path / "made" / "meta.properties").read_bytes())
    assert written.properties == owner.properties


@pytest.mark.parametrize("release", ["3.3", "3.6", "3.7", "3.9", "4.0", "4.2", "4.3", "4.4"])
def test_a_formatted_directory_is_read_and_nothing_keeps_its_node_from_starting(release: str, tmp_path: Path) -> None:
    made = formatted(tmp_path / "data", release)
    assert read_metadata(str(tmp_path / "data")).image.features == made.levels
    assert check_node([str(tmp_path / "data")]).is_sound
    files = {path.relative_to(tmp_path / "data").as_posix() for path in (tmp_path / "data").rglob("*.*")}
    assert files == {"meta.properties", FIRST_SNAPSHOT if release == "4.4" else BOOTSTRAP}


def test_a_broker_of_4_4_gets_its_owner_alone(tmp_path: Path) -> None:
    formatted(tmp_path / "data", "4.4", roles=frozenset({"broker"}))
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["meta.properties"]


def test_a_directory_in_use_is_refused_and_a_new_file_system_is_not(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    formatted(disk)
    before = sorted(disk.rglob("*"))
    assert not [each for each in before if each.name.startswith(SCRATCH)]
    with pytest.raises(LogDirectoryError, match="formatted already"):
        formatted(disk)
    assert sorted(disk.rglob("*")) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "orders-0").mkdir()
    with pytest.raises(LogDirectoryError, match="found orders-0"):
        formatted(tmp_path / "other")


def test_what_a_level_does_not_allow_is_refused(tmp_path: Path) -> None:
    voter = QuorumVoter(1, uuid.UUID(int=1 << 100), "CONTROLLER", "localhost", 9093)
    with pytest.raises(ValueError, match=r"a dynamic quorum: expected metadata.version 21 or later, found 20"):
        formatted(tmp_path / "data", "3.8", voters=[voter])
    with pytest.raises(ValueError, match=r"SCRAM users: expected metadata.version 11"):
        formatted(tmp_path / "data", "3.4", users={"alice": {}})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("level", "release", "chosen", "expected"),
    [
        (27, "4.3.1", {}, {"eligible.leader.replicas.version": 1, "group.version": 1, "transaction.version": 2}),
        (23, "4.1.1", {}, {"group.version": 1}),
        (29, "4.4.0", {"group.version": 0, "share.version": 0}, {
            "eligible.leader.replicas.version": 1, "streams.version": 1, "transaction.version": 2}),
        (7, "4.4", {"transaction.version": 1}, {"transaction.version": 1}),
    ],
)  # fmt: skip
def test_features_have_the_levels_of_a_new_cluster(
    level: int, release: str, chosen: dict[str, int], expected: dict[str, int]
) -> None:
    assert initial_levels(level, Release.of(release), chosen) == {"metadata.version": level} | expected


@pytest.mark.parametrize(
    ("level", "release", "chosen", "message"),
    [
        (31, "4.3", {}, r"Kafka 4.3 has up to 30 \(4.3-IV0\)"),
        (7, "3.2", {}, "before KRaft's 3.3"),
        (21, "3.9", {"streams.version": 1}, "Kafka 3.9 has levels 0 to 0"),
        (22, "4.1", {"eligible.leader.replicas.version": 1}, "expected metadata.version 23"),
        (30, "4.3", {"unheard.of": 1}, "expected one of eligible"),
    ],
)
def test_levels_that_do_not_fit_are_refused(level: int, release: str, chosen: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        initial_levels(level, Release.of(release), chosen)


def test_levels_have_names_and_releases() -> None:
    assert [level_of(each) for each in ("7", "3.3-IV3", "3.6-IV2", "4.0-IV3", "4.4-IV2")] == [7, 7, 14, 25, LAST_LEVEL]
    assert [release_of_level(each).version for each in (7, 10, 22, 33)] == ["3.3", "3.5", "4.0", "4.4"]
    for text in ("6", "34", "3.0-IV1", "4.5-IV0", "", "030000"):
        with pytest.raises(ValueError, match="expected a level from 7"):
            level_of(text)


def test_large_snapshots_are_cut_into_batches_without_gaps() -> None:
    image = ClusterImage(features={f"feature.{at}": 1 for at in range(70_000)})
    batches = list(snapshot(records_of(image), epoch=3, written_ms=NOW_MS, contained_ms=NOW_MS))
    parsed = [RecordBatch(memoryview(each)) for each in batches]
    assert [each.base_offset for each in parsed[1:]] == [each.next_offset for each in parsed[:-1]]
    assert sum(each.record_count for each in parsed) == 70_002
    assert len(parsed) > 3
    assert max(map(len, batches)) < MOST_BATCH_BYTES + 200
    assert {each.partition_leader_epoch for each in parsed} == {3}
