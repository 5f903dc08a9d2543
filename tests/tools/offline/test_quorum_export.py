"""A cluster as the directory of a KRaft node: reading it returns the same image."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import run
from kraft_data import FOLDER, KraftNode, nodes
from magicbyte.engine.cluster.features import METADATA_VERSION
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.checkpoints import (
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
    parse_quorum_state,
)
from magicbyte.engine.protocol.fields import id_text
from magicbyte.engine.records.batch import build_batch, single_record
from magicbyte.engine.releases import Release
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum_check import check_node
from magicbyte.tools.offline.quorum_export import ControllerListener, ExportedNode, ExportOptions, export_to_kraft

NOW_MS = 1_790_000_000_000
LATEST = ExportOptions(Release.of("4.4"))
CLEAN = KraftNode("4.3.1/clean-a", "node")


def exported(source: Path, out: Path, options: ExportOptions = LATEST, at: int | None = None) -> ExportedNode:
    """Write the cluster of a directory."""
    return export_to_kraft(read_metadata(str(source), at), out, options, NOW_MS)


@pytest.mark.parametrize("node", nodes(), ids=str)
def test_a_directory_written_of_a_golden_log_has_the_same_image_at_offsets_all_over_it(
    node: KraftNode, tmp_path: Path
) -> None:
    source = node.unpacked(tmp_path / "node")
    whole, compared, out = read_metadata(str(source)), 0, tmp_path / "out"
    assert whole.end is not None
    for at in [*range(20, whole.end - 1, 37), whole.end - 1]:
        try:
            before = read_metadata(str(source), at)
        except LogDirectoryError:  # before the log's start
            continue
        done = exported(source, out, at=at)
        assert done.left_out == []
        after = read_metadata(str(out))
        assert (after.image, after.end, after.epoch, after.notes) == (before.image, before.end, before.epoch, ())
        shutil.rmtree(out)
        compared += 1
    assert compared > 1


def test_the_files_of_a_static_and_of_a_dynamic_quorum(tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    exported(source, tmp_path / "static")
    owner = parse_meta_properties((source / "meta.properties").read_bytes())
    assert parse_meta_properties((tmp_path / "static/meta.properties").read_bytes()).properties == owner.properties
    state = parse_quorum_state((tmp_path / "static" / FOLDER / "quorum-state").read_bytes())
    known = parse_quorum_state((source / FOLDER / "quorum-state").read_bytes())
    assert state == known | {"leaderId": -1, "appliedOffset": 0}
    exported(
        source, tmp_path / "dynamic", LATEST._replace(listener=ControllerListener("CONTROLLER", "localhost", 9093))
    )
    state = parse_quorum_state((tmp_path / "dynamic" / FOLDER / "quorum-state").read_bytes())
    assert state == {
        "leaderId": -1, "leaderEpoch": known["leaderEpoch"], "votedId": -1, "votedDirectoryId": "A" * 22,
        "data_version": 1,
    }  # fmt: skip
    assert read_metadata(str(tmp_path / "dynamic")).image == read_metadata(str(source)).image


def test_logs_are_copied_and_kafka_would_find_nothing_wrong(tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    done = exported(source, tmp_path / "out", LATEST._replace(logs=[source]))
    assert check_node([str(tmp_path / "out")]).is_sound
    folders = {each.name for each in source.iterdir() if each.is_dir() and not each.name.endswith("-delete")}
    assert {each.name for each in (tmp_path / "out").iterdir() if each.is_dir()} == folders
    assert len(done.copied) == len(folders) - 1
    for path in source.glob("*/*.log"):
        if path.parent.name in folders - {FOLDER}:
            assert (tmp_path / "out" / path.relative_to(source)).read_bytes() == path.read_bytes()
    assert read_metadata(str(tmp_path / "out")).image.topics.keys() == done.image.topics.keys()
    marker = parse_clean_shutdown((tmp_path / "out/.kafka_cleanshutdown").read_bytes())
    assert marker.broker_epoch == done.image.brokers[1].epoch


def test_the_only_node_has_everything_and_forgets_the_others(tmp_path: Path) -> None:
    source = KraftNode("3.9.1/static-a", "b1").unpacked(tmp_path / "node")
    done = exported(source, tmp_path / "out", ExportOptions(Release.of("4.3"), node_id=7, is_alone=True))
    image = read_metadata(str(tmp_path / "out")).image
    assert image == done.image
    assert image.brokers.keys() == {7}
    assert not image.controllers
    partitions = [each for topic in image.topics.values() for each in topic.partitions]
    assert {each.replicas for each in partitions} == {(7,)}
    assert {each.known.state.isr for each in partitions if each.known} == {(7,)}
    assert image.features[METADATA_VERSION] == 21
    before = read_metadata(str(source)).image
    assert image.topic_names == before.topic_names


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder is missing": (lambda node: shutil.rmtree(node / "alpha-one-0"), "no folder of alpha-one-0"),
    "no record names a folder": (
        lambda node: shutil.copytree(node / "alpha-one-0", node / "alpha-one-9"), "do not give partition alpha-one-9"),
    "a folder has another id": (
        lambda node: [shutil.copy(node / "alpha-two-0/partition.metadata", each) for each in node.glob("alpha-one-?")],
        "expected the id"),
    "folders of a topic differ": (
        lambda node: shutil.copy(node / "alpha-two-0/partition.metadata", node / "alpha-one-0"),
        "another topic id than other folders"),
    "enriched sets": (
        lambda node: (node / "alpha-one-0/message.dialect").write_text("version: 0\ndialect: enriched\n"), "enriched"),
    "not closed": (lambda node: (node / ".kafka_cleanshutdown").unlink(), "not shut down cleanly"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_what_kafka_would_rename_or_make_empty_is_refused_and_nothing_is_written(what: str, tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    change, message = DAMAGE[what]
    change(source)
    with pytest.raises(LogDirectoryError, match=message):
        exported(source, tmp_path / "out", LATEST._replace(logs=[source]))
    assert [each.name for each in tmp_path.iterdir()] == ["node"]


def test_an_output_in_use_or_inside_the_source_is_refused(tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    for out, message in ((tmp_path / "used", "in use"), (source / "new", "which is an input")):
        with pytest.raises(LogDirectoryError, match=message):
            exported(source, out)


def test_the_leader_epoch_rises_to_that_of_the_log_and_a_missing_topic_id_is_written(tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    logs = tmp_path / "logs"
    shutil.copytree(source, logs)
    before = read_metadata(str(source)).image
    topic = before.topics["alpha-one"]
    (logs / "alpha-one-0/partition.metadata").unlink()
    (logs / "alpha-one-0/leader-epoch-checkpoint").write_text("0\n1\n900 0\n")
    done = exported(source, tmp_path / "out", LATEST._replace(logs=[logs]))
    known = done.image.topics["alpha-one"].partitions[0].known
    assert known is not None
    assert known.state.leader_epoch == 900
    written = (tmp_path / "out/alpha-one-0/partition.metadata").read_bytes()
    assert parse_partition_metadata(written).topic_id == topic.id


def test_124_a_missing_directory_id_is_drawn_and_partitions_are_in_it(tmp_path: Path) -> None:
    source = CLEAN.unpacked(tmp_path / "node")
    owner = (source / "meta.properties").read_text().splitlines()
    (source / "meta.properties").write_text("\n".join(each for each in owner if not each.startswith("directory.id")))
    done = exported(source, tmp_path / "out", LATEST._replace(logs=[source]))
    known = parse_meta_properties((tmp_path / "out/meta.properties").read_bytes()).directory_id
    assert known is not None
    details = [each.quorum for topic in done.image.topics.values() for each in topic.partitions]
    assert {id_text(at) for each in details if each is not None for at in each.directories} == {known}
    assert check_node([str(tmp_path / "out")]).findings == []


def leveled(path: Path, level: int) -> Path:
    """A golden node whose log ends with a level of `metadata.version`."""
    source = CLEAN.unpacked(path)
    end, name = read_metadata(str(source)).end, METADATA_VERSION.encode()
    assert end is not None
    record = b"\x01\x0c\x00" + bytes([len(name) + 1]) + name + level.to_bytes(2, "big") + b"\0"
    newest = max((source / FOLDER).glob("*.log"))
    batch = build_batch(single_record(None, record), base_offset=end, last_offset_delta=0, base_timestamp=0,
                        max_timestamp=0, record_count=1, partition_leader_epoch=1)  # fmt: skip
    newest.write_bytes(newest.read_bytes() + batch)
    return source


@pytest.mark.parametrize(("level", "release", "most"), [(99, "4.4", 33), (33, "4.3", 30)])
def test_134_a_level_above_that_of_the_release_is_refused_and_nothing_is_written(
    level: int, release: str, most: int, tmp_path: Path
) -> None:
    source = leveled(tmp_path / "node", level)
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    with pytest.raises(
        LogDirectoryError, match=f"metadata.version {level}: Kafka {release} has up to {most}, and would"
    ):
        exported(source, tmp_path / "out", ExportOptions(Release.of(release)))
    for words in (["export", source, "--to-kraft", tmp_path / "out", "--release", release],
                  ["check", source, "--repair", "--out", tmp_path / "out"])[: 2 if level == 99 else 1]:  # fmt: skip
        done = run("metadata", *words)
        assert done.exit_code == 2
        assert f"metadata.version {level}: " in done.stderr
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    assert [each.name for each in tmp_path.iterdir()] == ["node"]
