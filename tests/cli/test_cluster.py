"""`magicbyte cluster` without a ZooKeeper: wrong use, folders and ports that cannot be, what status says.

tests/interop/test_cluster_command.py has it with one: the commands of docs/commands/cluster.md.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.access.client.cluster_report import ClusterReport
from magicbyte.testing import Broker
from magicbyte.tools.launch.cluster import STATE, LaunchedBroker, LocalCluster, held


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java: nothing is ever started here."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("MAGICBYTE_ZOOKEEPER_CLASSPATH", "/nowhere.jar")


def refused(*arguments: str | Path) -> str:
    """Return the one complaint of a command that is refused."""
    result = run("cluster", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.stdout
    (complaint,) = [line for line in result.stderr.splitlines() if line.startswith("magicbyte: ")]
    return complaint


def stopped(directory: Path, brokers: int = 3) -> LocalCluster:
    """Return a cluster that ran once."""
    with held(directory, lambda _: None, makes=True) as found:
        found.members = [LaunchedBroker(number, 20000 + number) for number in range(1, brokers + 1)]
        found.zookeeper, found.zookeeper_port = "127.0.0.1:19999", 19999
        found.save()
    for each in found.members:
        (directory / f"broker-{each.id}").mkdir()
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port with a listener."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_a_cluster_that_cannot_start_says_what_to_install_and_may_be_made_otherwise_then(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    assert "JAVA_HOME (/nowhere) has no bin/java" in refused("up", "--directory", folder, "--port", "0")
    told = refused("up", "--directory", folder, "--port", "0", "--brokers", "1")
    assert "JAVA_HOME" in told
    assert len(LocalCluster.load(folder, print).members) == 1


def test_a_port_that_is_taken_is_named_and_nothing_is_started(taken: int, tmp_path: Path) -> None:
    for option in ("--port", "--http"):
        told = refused("up", "--directory", tmp_path / "cluster", "--port", "0", option, str(taken))
        assert f"port {taken} is taken" in told
        assert "choose another with --port or --http" in told
    assert "port 65536: expected at most 65535" in refused("up", "--directory", tmp_path / "other", "--port", "65534")


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    assert "expected an empty folder or the folder of a cluster, found letter in it" in refused(
        "up", "--directory", tmp_path
    )
    for command in ("status", "down"):
        told = refused(command, "--directory", tmp_path)
        assert f"expected the folder of a cluster, found no {STATE}: `magicbyte cluster up` makes one" in told
    assert [each.name for each in tmp_path.iterdir()] == ["letter"]
    assert "found no" in refused("down", "--dir", tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"brokers": [{"id": "x"}]}'])
def test_a_damaged_file_of_a_cluster_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / STATE).write_text(content)
    for command in ("up", "status", "down"):
        assert f"{tmp_path / STATE} is damaged" in refused(command, "--directory", tmp_path)


def test_a_cluster_keeps_its_brokers_and_its_zookeeper(tmp_path: Path) -> None:
    stopped(tmp_path)
    assert "has 3 brokers, not 2" in refused("up", "--directory", tmp_path, "--brokers", "2")
    told = refused("up", "--directory", tmp_path, "--zookeeper", "other:2181")
    assert "is in the ZooKeeper at 127.0.0.1:19999: expected this one or none, found other:2181" in told
    refused("up", "--directory", tmp_path, "--brokers", "5")  # for want of Java
    assert "JAVA_HOME" in refused("up", "--directory", tmp_path, "--brokers", "4")  # the fifth was never there


def test_two_commands_do_not_change_a_cluster_at_once(tmp_path: Path) -> None:
    stopped(tmp_path)
    with held(tmp_path, print):
        for command in ("up", "down"):
            assert "another command is starting or stopping this cluster" in refused(command, "--directory", tmp_path)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--brokers", "0"], "expected a number from 1 to 100"),
        (["--set", "min.insync.replicas"], "expected KEY=VALUE"),
        (["--set", "broker.id=7"], "broker.id: each broker gets its own"),
        (["--port", "many"], "expected a number from 0 to 65535"),
    ],
)
def test_options_that_cannot_be_are_wrong_use(options: list[str], why: str, tmp_path: Path) -> None:
    assert why in refused("up", "--directory", tmp_path / "cluster", *options)
    assert not (tmp_path / "cluster").exists()


def test_the_status_of_a_cluster_that_is_down_says_what_starts_it(tmp_path: Path) -> None:
    stopped(tmp_path, 1)
    result = run("cluster", "status", "--directory", tmp_path)
    assert result.exit_code == 2
    assert "`magicbyte cluster up --dir" in result.stderr
    assert "1  127.0.0.1:20001        -  stopped" in result.stdout
    document = json.loads(run("cluster", "status", "--directory", tmp_path, "--format", "json").stdout)
    assert document.pop("processes") == [{"broker": 1, "address": "127.0.0.1:20001", "alive": False, "pid": None}]
    assert document == dict.fromkeys(ClusterReport(None, None, (), 0, ()).to_json())


def test_any_cluster_has_a_status() -> None:
    with Broker() as broker:
        address = broker.bootstrap_servers
        assert run("topics", "create", "-b", address, "orders", "--partitions", "2").exit_code == 0
        result = run("cluster", "status", "-b", address)
        document = json.loads(run("cluster", "status", "-b", address, "--format", "json").stdout)
    assert result.exit_code == 0
    assert f"    0  {address}        -  in the cluster" in result.stdout
    assert "1 topic, 2 partitions: 0 unavailable, 0 under-replicated, 0 replicas offline" in result.stdout
    assert (document["controller"], document["partitions"], document["healthy"]) == (0, 2, True)
    assert (document["underReplicated"], document["unavailable"], document["offlineReplicas"]) == ([], [], 0)


def test_what_is_down_already_is_stopped_and_its_folder_deleted_only_when_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    stopped(folder)
    assert f"the records are in {folder}" in run("cluster", "down", "--directory", folder).stderr
    assert (folder / "broker-1").is_dir()
    (folder / "mine").touch()
    assert run("cluster", "down", "--directory", folder, "--delete").exit_code == 0
    assert [each.name for each in folder.iterdir()] == ["mine"]
