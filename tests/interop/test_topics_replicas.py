"""`magicbyte topics describe`, `elect` and `reassign` with real clusters of three brokers, and Kafka's own tool.

In order, on one cluster of three brokers: ZooKeeper's era and KRaft.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from interop import jvm, kafka_oracle
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, create_topic, describe_configs
from magicbyte.access.client.produce import send
from magicbyte.access.client.reassignment import assignment_of, dump_plan
from magicbyte.access.client.replicas import describe_log_dirs
from magicbyte.cli.main import main
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSIONS = ("2.8.2", "4.1.0")
PATIENCE_S = 240
BATCHES, BATCH_BYTES = 30, 100_000
RATE = 65536
THROTTLES = {
    "leader.replication.throttled.replicas": "0:0,0:1",
    "follower.replication.throttled.replicas": "0:2",
}


class Cluster:
    """Three brokers of a version, and the folders of each."""

    def __init__(self, version: str, folder: Path, states: list[dict[str, Any]]) -> None:
        self.version, self.folder = version, folder
        self.bootstrap = ",".join(each["bootstrap"] for each in states)
        self.numbers = itertools.count()
        self.nodes = [folder / str(number) for number in range(len(states))]

    def run(self, *arguments: str | Path, status: int = 0) -> tuple[str, str]:
        """Return what `magicbyte topics` says on stdout and stderr."""
        command, *others = map(str, arguments)
        result = CliRunner().invoke(main, ["topics", command, "-b", self.bootstrap, *others])
        assert result.exit_code == status, (arguments, result.stdout, result.stderr, result.exception)
        return result.stdout, result.stderr

    def json(self, *arguments: str | Path, status: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--format", "json", status=status)[0])

    def ask(self, work: Callable[[Client], Any]) -> Any:
        async def go() -> Any:
            async with Client(self.bootstrap) as client:
                return await work(client)

        return asyncio.run(asyncio.wait_for(go(), PATIENCE_S))

    def topic(self, name: str, *replicas: tuple[int, ...], records: int = 0) -> None:
        """Make a topic that all brokers have heard of."""

        async def make(client: Client) -> None:
            await create_topic(client, NewTopic(name, assignments=replicas))
            for address in self.bootstrap.split(","):
                async with Client(address) as one:
                    while not (found := (await one.topics()).get(name)) or len(found.partitions) < len(replicas):
                        await asyncio.sleep(0.1)
            for _ in range(records):
                await send(client, name, 0, [Record(0, -1, 0, None, bytes(BATCH_BYTES))])

        self.ask(make)

    def partition(self, name: str, index: int = 0) -> Any:
        (found,) = self.json("describe", name)
        return found["partitions"][index]

    def settings(self, kind: ConfigResource, name: str) -> dict[str, str | None]:
        found = self.ask(lambda client: describe_configs(client, kind, name))
        return {key: each.value for key, each in found.items() if each.is_own and "replication.throttled" in key}

    def plan(self, name: str, *replicas: tuple[int, ...]) -> Path:
        path = self.folder / f"{name}-{next(self.numbers)}.json"
        path.write_text(json.dumps(dump_plan({TopicPartition(name, at): each for at, each in enumerate(replicas)})))
        return path


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp(f"replicas-{request.param}")
    settings = ["auto.leader.rebalance.enable=false", "replica.lag.time.max.ms=30000", jvm.SHORT_SESSION]
    with jvm.brokers(request.param, folder, 3, *settings, scratch=True) as states:
        yield Cluster(request.param, folder, states)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so: brokers take a moment to hear of a change."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it has not come so far"
        time.sleep(0.2)


def test_a_partition_has_leader_epoch_replicas_and_no_complaint(cluster: Cluster) -> None:
    cluster.topic("plain", (1, 2), (2, 0), records=1)
    text, _ = cluster.run("describe", "plain")
    assert text == (
        "partition  leader  epoch  replicas  in sync  offline  start  end  state\n"
        "plain-0         1      0  1,2       1,2      -            0    1  ok\n"
        "plain-1         2      0  2,0       2,0      -            0    0  ok\n"
    )
    assert cluster.json("describe", "--under-replicated") == cluster.json("describe", "--unavailable") == []


def test_a_plan_is_made_executed_and_taken_back(cluster: Cluster) -> None:
    cluster.topic("crowded", (0,), (0,), (0,), records=2)
    table, told = cluster.run("reassign", "--topics", "crowded", "--brokers", "0,1,2")
    assert len(table.splitlines()) == 3
    assert "2 of 3 partitions change, 2 replicas to copy" in told
    assert [each["replicas"] for each in cluster.json("describe", "crowded")[0]["partitions"]] == [[0], [0], [0]]
    plan = cluster.folder / "crowded.json"
    plan.write_text(json.dumps(cluster.json("reassign", "--topics", "crowded")))
    back, told = cluster.run("reassign", "--plan", plan, "--execute")
    assert told == "3 of 3 partitions reassigned: the brokers copy now\n"
    table, told = cluster.run("reassign", "--plan", plan, "--wait")
    assert "3 of 3 partitions complete" in told
    assert [line.split()[1] for line in table.splitlines()[1:]] == ["complete"] * 3
    replicas = [each["replicas"] for each in cluster.json("describe", "crowded")[0]["partitions"]]
    assert sorted(replicas) == [[0], [1], [2]]
    plan.write_text(back)
    cluster.run("reassign", "--plan", plan, "--execute", "--wait")
    assert [each["replicas"] for each in cluster.json("describe", "crowded")[0]["partitions"]] == [[0], [0], [0]]
    _, told = cluster.run("reassign", "--plan", plan)
    assert told == "nothing to move: 3 partitions as planned\n"


def test_a_throttled_move_is_followed_and_cancelled(cluster: Cluster) -> None:
    cluster.topic("heavy", (0, 1), records=BATCHES)
    plan = cluster.plan("heavy", (1, 2))
    cluster.run("reassign", "--plan", plan, "--execute", "--throttle", str(RATE))
    until(lambda: cluster.settings(ConfigResource.TOPIC, "heavy") == THROTTLES)
    rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), str(RATE))
    for broker in "012":
        until(lambda broker=broker: cluster.settings(ConfigResource.BROKER, broker) == rates)
    until(lambda: bool(cluster.partition("heavy")["adding"]))
    partition = cluster.partition("heavy")
    assert (partition["adding"], partition["removing"], partition["underReplicated"]) == ([2], [0], False)
    text, told = cluster.run("reassign", "--plan", plan, "--verify", status=1)
    assert "heavy-0    moving  1,2,0     1,2" in text
    assert told.startswith("0 of 1 partition complete, 1 moving: ")
    (found,) = cluster.json("reassign", "--topics", "heavy", "--verify", status=1)["partitions"]
    assert (found["state"], found["planned"]) == ("moving", [1, 2])
    _, told = cluster.run("reassign", "--plan", plan, "--cancel")
    assert told == "1 move cancelled\nthrottle removed\n"
    until(lambda: sorted(cluster.partition("heavy")["replicas"]) == [0, 1])
    for kind, name in ((ConfigResource.TOPIC, "heavy"), (ConfigResource.BROKER, "0"), (ConfigResource.BROKER, "2")):
        until(lambda kind=kind, name=name: not cluster.settings(kind, name))
    _, told = cluster.run("reassign", "--plan", plan, "--cancel")
    assert told == "0 moves cancelled\n"


def test_a_move_that_is_waited_for_loses_its_throttle(cluster: Cluster) -> None:
    cluster.topic("quick", (0, 1), records=2)
    back, told = cluster.run(
        "reassign", "--plan", cluster.plan("quick", (1, 2)), "--execute", "--wait", "--throttle", "50MiB"
    )
    assert told.endswith("throttle removed\n")
    until(lambda: cluster.partition("quick")["replicas"] == [1, 2])
    until(lambda: not cluster.settings(ConfigResource.TOPIC, "quick"))
    until(lambda: not cluster.settings(ConfigResource.BROKER, "1"))
    assert json.loads(back.splitlines()[0])["partitions"][0]["replicas"] == [0, 1]


def test_the_preferred_leader_is_elected_and_only_where_it_is_not(cluster: Cluster) -> None:
    cluster.run("elect", "--all")  # of topics of other tests
    cluster.topic("led", (0, 1), (1, 2))
    cluster.run("reassign", "--plan", cluster.plan("led", (1, 0), (1, 2)), "--execute", "--wait")
    until(lambda: cluster.partition("led")["leader"] == 0)
    assert cluster.run("elect", "-t", "led")[0] == ("partition  election\nled-0      elected\nled-1      not needed\n")
    until(lambda: cluster.partition("led")["leader"] == 1)
    assert cluster.run("elect", "-t", "led", "-p", "0")[0] == "partition  election\nled-0      not needed\n"
    assert cluster.json("elect", "--all") == []


def test_what_cannot_be_is_refused_with_what_there_is(cluster: Cluster) -> None:
    cluster.topic("real", (0,))
    nowhere = cluster.plan("nowhere", (0,))
    for arguments, why in (
        (["reassign", "--plan", nowhere, "--execute"], "topic 'nowhere': expected on the brokers"),
        (["reassign", "--plan", cluster.plan("real", (9,)), "--execute"], "broker 9: expected one of 0, 1, 2"),
        (["reassign", "--plan", cluster.plan("real", (0,), (1,))], "partition real-1: expected 0 to 0"),
        (["reassign", "--topics", "real", "--brokers", "1,7"], "broker 7: expected one of 0, 1, 2"),
        (["reassign", "--topics", "real", "--replicas", "4"], "replication factor 4: there are 3 brokers"),
        (["elect", "-t", "real", "-p", "1"], "partition real-1: expected 0 to 0"),
        (["elect", "-t", "reel"], "is it 'real'?"),
        (["elect", "--unclean", "-t", "nowhere"], "topic 'nowhere'"),
    ):
        stdout, stderr = cluster.run(*arguments, status=2)
        assert stdout == ""
        assert why in stderr


def test_log_directories_tell_where_replicas_are(cluster: Cluster) -> None:
    cluster.topic("sized", (2, 1), records=1)
    for broker in (1, 2):
        until(lambda broker=broker: _sizes(cluster, broker).get(TopicPartition("sized", 0), 0) > BATCH_BYTES)
    assert TopicPartition("sized", 0) not in _sizes(cluster, 0)


def _sizes(cluster: Cluster, broker: int) -> dict[TopicPartition, int]:
    (found,) = cluster.ask(lambda client: describe_log_dirs(client, broker))
    assert found.path == str(cluster.nodes[broker] / "data")
    return {each: replica.size for each, replica in found.replicas.items()}


def test_kafkas_own_tool_continues_our_plan_and_throttle(cluster: Cluster) -> None:
    cluster.topic("shared", (0, 1), records=2)
    plan = cluster.plan("shared", (1, 2))
    cluster.run("reassign", "--plan", plan, "--execute", "--throttle", "50MiB")
    until(lambda: cluster.partition("shared")["replicas"] == [1, 2])
    main_class = "kafka.admin.ReassignPartitionsCommand" if cluster.version < "3" else (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    )  # fmt: skip
    arguments = ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), "--verify"]
    done = subprocess.run(
        kafka_oracle.tool_command(cluster.version, main_class, arguments),
        capture_output=True, text=True, check=True, timeout=jvm.SECONDS,
    )  # fmt: skip
    assert "shared-0 is complete" in done.stdout or "shared-0 is completed" in done.stdout
    until(lambda: not cluster.settings(ConfigResource.TOPIC, "shared"))
    until(lambda: not cluster.settings(ConfigResource.BROKER, "1"))


def test_lost_brokers_show_and_an_unclean_election_gives_a_leader_back(cluster: Cluster) -> None:
    cluster.topic("lost", (2, 1), (0, 1))
    jvm.stop(cluster.nodes[1])
    until(lambda: cluster.partition("lost")["inSync"] == [2])
    (found,) = [each for each in cluster.json("describe", "--under-replicated") if each["topic"] == "lost"]
    assert [(each["offline"], each["underReplicated"]) for each in found["partitions"]] == [([1], True), ([1], True)]
    jvm.stop(cluster.nodes[2], kill=True)
    jvm.restart(cluster.nodes[1])
    until(lambda: cluster.partition("lost")["leader"] is None)
    text, _ = cluster.run("describe", "lost", "--unavailable")
    name, leader, _, replicas, in_sync, *others = text.splitlines()[1].split()
    assert [name, leader, replicas, *others] == ["lost-0", "-", "2,1", "2", "-", "-", "unavailable"]
    assert in_sync in ("2", "-")  # 4.1 keeps it as an eligible leader (KIP-966)
    stdout, stderr = cluster.run("elect", "-t", "lost", "-p", "0", status=2)
    assert "failed: PREFERRED_LEADER_NOT_AVAILABLE" in stdout
    assert "PREFERRED_LEADER_NOT_AVAILABLE (80)" in stderr
    assert "elected" in cluster.run("elect", "--unclean", "-t", "lost", "-p", "0")[0]
    until(lambda: cluster.partition("lost")["leader"] == 1)
    lost = TopicPartition("lost", 0)
    until(lambda: cluster.ask(lambda client: assignment_of(client, ["lost"])).get(lost) == (2, 1))


def test_brokers_before_the_requests_are_said_to_be_too_old(tmp_path: Path) -> None:
    with jvm.broker("0.10.2.2", tmp_path, scratch=True) as state:
        old = Cluster("0.10.2.2", tmp_path, [state])
        old.topic("old", (0,))
        _, told = old.run("elect", "--all", status=2)
        assert "kafka-preferred-replica-election of their release" in told
        plan = old.plan("old", (0,))
        for action in ("--execute", "--verify", "--cancel"):
            stdout, told = old.run("reassign", "--plan", plan, action, status=2)
            assert stdout == ""
            assert "brokers from 2.4 on can do it" in told
            assert "kafka-reassign-partitions of their release" in told
        assert old.json("reassign", "--topics", "old") == json.loads(plan.read_text())
        assert old.run("reassign", "--topics", "old")[1] == "nothing to move: 1 partition as planned\n"
