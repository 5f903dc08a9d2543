"""Real KRaft nodes start on directories that `metadata format` and `metadata export --to-kraft` wrote."""

import asyncio
import shutil
from pathlib import Path

import pytest

from cli.command import run
from interop import jvm
from interop.handed_over import Seen, fill, look
from interop.kraft_nodes import SECONDS, kraft_node, troubles
from kraft_data import KraftNode
from magicbyte.testing import Broker
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum import ClusterDifference
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

CI, OTHERS = "4.3.1", ("3.9.1", "4.4.0")
RELEASES = [CI, *(pytest.param(each, marks=pytest.mark.campaign) for each in OTHERS)]
START = 1_790_000_000_000
SETTINGS = {"retention.ms": "-1", "segment.bytes": "1048576"}


def waited(bootstrap: str, first: int | None = None) -> Seen:
    """Read everything, or fill first."""
    if first is not None:
        asyncio.run(asyncio.wait_for(fill(bootstrap, first, START), SECONDS))
    return asyncio.run(asyncio.wait_for(look(bootstrap, SETTINGS), SECONDS))


@pytest.mark.parametrize("release", RELEASES)
def test_a_directory_of_magicbyte_is_taken_over_with_records_offsets_and_settings(release: str, tmp_path: Path) -> None:
    logs, node = tmp_path / "logs", tmp_path / "node"
    ours = {"offsets.topic.num.partitions": "3", "auto.create.topics.enable": "false"}
    with Broker(ours, directory=logs) as broker:
        asyncio.run(fill(broker.bootstrap_servers, 0, START, creates=SETTINGS))
        before = asyncio.run(look(broker.bootstrap_servers, SETTINGS))
    assert before.committed == 7
    done = run("metadata", "export", logs, "--to-kraft", node / "data", "--logs", logs, "--alone", "--node-id", "5",
               "--release", release)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    written = read_metadata(str(node / "data")).image
    with kraft_node(release, node, 5) as bootstrap:
        seen = waited(bootstrap)
        assert seen == before
        later = waited(bootstrap, first=1000)
    assert troubles(node) == []
    assert [part[:50] for part in later.records] == before.records
    assert [len(part) for part in later.records] == [100, 100]
    assert later.committed == 1007
    after = read_metadata(str(node / "data")).image
    assert after.topic_names == written.topic_names
    assert after.brokers.keys() == {5}
    with kraft_node(release, node, 5) as bootstrap:
        assert waited(bootstrap) == later


@pytest.mark.parametrize(
    ("old", "release"),
    [
        ("3.9.1", CI),
        pytest.param("2.8.2", "3.9.1", marks=pytest.mark.campaign),
        pytest.param("1.1.1", "4.4.0", marks=pytest.mark.campaign),
    ],
)
def test_a_cluster_of_zookeepers_starts_on_kraft_from_the_files_of_both(old: str, release: str, tmp_path: Path) -> None:
    source, node = tmp_path / "old", tmp_path / "node"
    with jvm.broker(old, source, "offsets.topic.num.partitions=3", "auto.create.topics.enable=false") as state:
        asyncio.run(asyncio.wait_for(fill(state["bootstrap"], 0, START, creates=SETTINGS), SECONDS))
        before = waited(state["bootstrap"])
    words = ["--to-kraft", node / "data", "--logs", source / "data", "--alone", "--node-id", "0", "--release", release]
    done = run("metadata", "export", source / "zookeeper", *words)
    assert done.exit_code == 0, done.stderr
    with kraft_node(release, node, 0) as bootstrap:
        assert waited(bootstrap) == before
        later = waited(bootstrap, first=1000)
    assert troubles(node) == []
    assert [part[:50] for part in later.records] == before.records
    assert later.committed == 1007


@pytest.mark.campaign
@pytest.mark.parametrize("case", ["3.9.1/clean-a", "4.3.1/clean-a", "4.4.0/clean-a"])
def test_a_node_of_kafkas_continues_a_written_snapshot_with_everything(case: str, tmp_path: Path) -> None:
    source, node, release = tmp_path / "source", tmp_path / "node", case.partition("/")[0]
    KraftNode(case, "node").unpacked(source)
    done = run("metadata", "export", source, "--to-kraft", node / "data", "--logs", source)
    assert done.exit_code == 0, done.stderr
    with kraft_node(release, node, 1, properties={"log.retention.ms": "-1"}):
        pass
    assert troubles(node, has_indexes=False) == []
    changed = ClusterDifference.of(read_metadata(str(source)), read_metadata(str(node / "data"))).events
    assert {each.kind for each in changed} <= {"broker", "controller", "partition"}


@pytest.mark.campaign
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("release", ["3.9.1", "4.3.1", "4.4.0"])
def test_kafka_starts_on_a_formatted_directory(release: str, is_dynamic: bool, tmp_path: Path) -> None:
    port = free_port()
    quorum = f"CONTROLLER://127.0.0.1:{port}" if is_dynamic else f"1@127.0.0.1:{port}"
    option = "--standalone" if is_dynamic else "--controller-quorum-voters"
    done = run("metadata", "format", tmp_path / "data", "--node-id", "1", option, quorum, "--release", release)
    assert done.exit_code == 0, done.stderr
    levels = read_metadata(str(tmp_path / "data")).image.features
    with kraft_node(release, tmp_path, 1, controller_port=port, is_dynamic=is_dynamic) as bootstrap:
        asyncio.run(asyncio.wait_for(fill(bootstrap, 0, START, creates=SETTINGS), SECONDS))
        seen = waited(bootstrap)
    assert [len(part) for part in seen.records] == [50, 50]
    assert troubles(tmp_path) == []
    assert read_metadata(str(tmp_path / "data")).image.features == levels
    shutil.rmtree(tmp_path / "data")
