"""`magicbyte cluster`: our brokers as processes, on a real ZooKeeper that is started with them.

The commands of docs/commands/cluster.md.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import run
from interop import jvm, kafka_oracle
from magicbyte.tools.launch.cluster import LocalCluster
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

JARS = "3.9.1"
PATIENCE_S = 240
QUICK = ("zookeeper.session.timeout.ms=8000",)


class Local:
    """The cluster in a folder, by the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def said(self, command: str, *arguments: str, status: int = 0) -> str:
        result = run("cluster", command, "--directory", self.folder, *arguments)
        assert result.exit_code == status, (result.stdout, result.stderr)
        return result.stdout

    def up(self, *arguments: str) -> str:
        settings = [part for each in QUICK for part in ("--set", each)]
        return self.said("up", "--zookeeper-classpath", str(kafka_oracle.fetch(JARS)), *settings, *arguments)

    @property
    def loaded(self) -> LocalCluster:
        return LocalCluster.load(self.folder, print)

    def status(self) -> Any:
        return json.loads(run("cluster", "status", "--directory", self.folder, "--format", "json").stdout)

    def topics(self, *arguments: str) -> str:
        result = run("topics", arguments[0], "-b", self.loaded.bootstrap, *arguments[1:])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def until(self, condition: Callable[[Any], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition(self.status()):
            assert time.monotonic() < end, self.status()
            time.sleep(0.2)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    found = Local(tmp_path / "cluster")
    yield found
    if found.folder.exists():
        for each in found.loaded.members:
            if each.process is not None:
                each.process.send(signal.SIGKILL)
        if (zookeeper := found.loaded.zookeeper_process) is not None:
            zookeeper.send(signal.SIGKILL)


def test_a_cluster_from_its_first_start_to_its_deletion(local: Local) -> None:
    bootstrap, zookeeper = (line.split() for line in local.up("--port", "0").splitlines())
    assert bootstrap == ["bootstrap", local.loaded.bootstrap]
    assert zookeeper == ["zookeeper", local.loaded.zookeeper]
    local.topics("create", "orders", "--partitions", "3", "--replicas", "3", "min.insync.replicas=2")
    local.until(lambda status: status["healthy"] and status["partitions"] == 3)
    assert "3 partitions: 0 unavailable, 0 under-replicated, 0 replicas offline" in local.said("status")
    killed = local.loaded.members[1]
    assert killed.process is not None
    os.kill(killed.process.pid, signal.SIGKILL)
    local.until(lambda status: len(status["underReplicated"]) == 3 and not status["unavailable"])
    text = local.said("status", status=1)
    assert f"2  {killed.address}" in text
    assert "stopped" in text
    assert "3 under-replicated, 3 replicas offline" in text
    untouched = local.loaded.members[0].process
    local.up()
    assert local.loaded.members[0].process == untouched
    local.until(lambda status: status["healthy"])
    local.up("--brokers", "4")
    local.topics("reassign", "--topics", "orders", "--replicas", "4", "--execute", "--wait")
    assert local.status()["brokers"][3]["id"] == 4
    local.said("down")
    for each in ("broker-1", "broker-4"):
        assert (local.folder / each / ".kafka_cleanshutdown").exists()
    assert local.said("status", status=2).count("stopped") == 5
    local.up()
    (orders,) = json.loads(local.topics("describe", "orders", "--format", "json"))
    assert [len(each["replicas"]) for each in orders["partitions"]] == [4, 4, 4]
    local.said("down", "--delete")
    assert not local.folder.exists()


def test_clusters_share_a_zookeeper_that_runs_already_and_folders_of_another_one_are_refused(
    local: Local, tmp_path: Path
) -> None:
    folder, port = tmp_path / "zookeeper", free_port()
    folder.mkdir()
    pid = kafka_oracle.start_zookeeper(JARS, folder, port, jvm.SECONDS)
    try:
        given = ["--port", "0", "--brokers", "1", "--zookeeper"]
        local.up(*given, f"127.0.0.1:{port}/one")
        other = Local(tmp_path / "other")
        other.up(*given, f"127.0.0.1:{port}/two")
        ids = {each.status()["clusterId"] for each in (local, other)}
        assert len(ids) == 2
        for each in (local, other):
            each.said("down")
        (local.folder / "broker-1").rename(tmp_path / "kept")
        (other.folder / "broker-1").rename(local.folder / "broker-1")
        result = run("cluster", "up", "--directory", local.folder)
        assert result.exit_code == 2
        assert "broker 1 ended at its start: magicbyte: the metadata is of cluster" in result.stderr
    finally:
        kafka_oracle.stop_process(pid, str(folder), signal.SIGTERM)


def test_a_broker_that_cannot_start_is_named_and_nothing_is_left_running(local: Local) -> None:
    result = run(
        "cluster", "up", "--directory", local.folder, "--port", "0", "--set", "log.segment.bytes=none",
        "--zookeeper-classpath", str(kafka_oracle.fetch(JARS)),
    )  # fmt: skip
    assert result.exit_code == 2
    assert "ended at its start: magicbyte: log.segment.bytes: expected" in result.stderr
    assert not any(each.is_alive for each in local.loaded.members)
    zookeeper = local.loaded.zookeeper_process
    assert zookeeper is not None
    assert not zookeeper.is_alive
