"""`magicbyte topics reassign` and `elect` against scripted brokers: wrong use, plans, and brokers that are too old.

tests/interop/test_topics_replicas.py has both with real clusters: the commands of docs/commands/topics-replicas.md.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.access.client.reassignment import dump_plan, parse_plan
from magicbyte.engine.errors import ErrorCode, InvalidReplicaAssignmentError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from magicbyte.engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from magicbyte.engine.protocol.messages.elect_leaders import ElectLeadersRequest
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from magicbyte.engine.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from magicbyte.testing import Cluster

JSON = ("--format", "json")
METADATA, LOG_DIRS, ELECT, ALTER, LIST = 3, 35, 43, 45, 46


class SmallCluster(ScriptedBroker):
    """Says that it is broker 7, that there are brokers 8 and 9, and that its topic is on 7 alone."""

    def metadata(self, request: Any, version: int) -> MetadataResponse:
        found = super().metadata(request, version)
        others = [MetadataResponseBroker(node_id=each, host="127.0.0.1", port=self.port) for each in (8, 9)]
        found.brokers = [*found.brokers, *others]
        return found


@pytest.fixture
def broker() -> SmallCluster:
    found = SmallCluster()
    found.answers[LIST] = lambda *_: ListPartitionReassignmentsResponse()
    found.answers[LOG_DIRS] = lambda *_: DescribeLogDirsResponse()
    return found


@pytest.fixture
def address(broker: SmallCluster) -> Iterator[str]:
    with scripted(broker) as found:
        yield found


def refused(*arguments: str | Path) -> str:
    """Return the one line of a command line that is refused."""
    result = run("topics", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    return result.stderr


PLAN = {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}


def test_a_plan_of_kafkas_tool_is_read_and_written() -> None:
    found = parse_plan(json.dumps(PLAN))
    assert found == {TopicPartition("a", 0): (1, 2)}
    assert parse_plan(json.dumps(dump_plan(found))) == found


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([], "has no partitions"),
        ([{"topic": "a", "partition": 0, "replicas": [1]}] * 2, "has partition a-0 twice"),
        ([{"topic": "a", "partition": 0, "replicas": [1, 1]}], r"a-0: expected each once, found \[1, 1\]"),
        ([{"topic": "a", "partition": 0, "replicas": []}], "a-0: expected broker ids"),
        ([{"topic": "a", "partition": 0, "replicas": [True]}], "a-0: expected broker ids"),
        ([{"topic": "a", "partition": -1, "replicas": [1]}], 'expected {"topic"'),
        ([{"topic": "a", "replicas": [1]}], 'expected {"topic"'),
        ([7], 'expected {"topic".*found 7'),
        ([{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/disk"]}], "are for Kafka's own tool"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(entries: list[Any], why: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=why):
        parse_plan(json.dumps({"version": 1, "partitions": entries}))


@pytest.mark.parametrize("text", ["", "[1]", '{"version": 2, "partitions": []}', '{"partitions": {}}', "[" * 100_000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match="the plan"):
        parse_plan(text)


def test_a_plan_is_shown_as_a_table_and_as_kafkas_file(address: str) -> None:
    command = ["topics", "reassign", "-b", address, "--topics", "topic", "--brokers", "7,8"]
    result = run(*command)
    assert result.stdout == (
        "partition  now  planned  copies to  deletes from\ntopic-0    7    8        8          7\n"
    )
    assert result.stderr == "1 of 2 partitions change, 1 replica to copy (0 B); --execute does it\n"
    plan = parse_plan(run(*command, "--format", "json").stdout)
    assert plan == {TopicPartition("topic", 0): (8,), TopicPartition("topic", 1): (7,)}


def test_moves_that_are_waited_for_are_two_lines_of_json(broker: SmallCluster, address: str) -> None:
    broker.answers[ALTER] = lambda *_: AlterPartitionReassignmentsResponse()
    command = ["topics", "reassign", "-b", address, "--topics", "topic", "--brokers", "7", "--execute"]
    result = run(*command, "--wait", "--keep-throttle", "--json")
    assert result.exit_code == 0, result.stderr
    before, end = result.stdout.splitlines()
    assert parse_plan(before) == {TopicPartition("topic", at): (7,) for at in (0, 1)}
    assert [each["state"] for each in json.loads(end)["partitions"]] == ["complete"] * 2
    assert run(*command, "--json").stdout == f"{before}\n"


def test_each_move_that_was_cancelled_is_a_line_of_json(broker: SmallCluster, address: str) -> None:
    move = {"replicas": (8, 7), "adding_replicas": (8,), "removing_replicas": (7,)}
    ongoing = [OngoingPartitionReassignment(partition_index=at, **move) for at in (0, 1)]
    broker.answers[LIST] = lambda *_: ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="topic", partitions=ongoing)]
    )
    refused = [
        ReassignablePartitionResponse(partition_index=0),
        ReassignablePartitionResponse(partition_index=1, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    broker.answers[ALTER] = lambda *_: AlterPartitionReassignmentsResponse(
        responses=[ReassignableTopicResponse(name="topic", partitions=refused)]
    )
    result = run("topics", "reassign", "-b", address, "--topics", "topic", "--cancel", "--json")
    assert result.exit_code == 2
    (line,) = result.stdout.splitlines()
    assert json.loads(line) == {
        "topic": "topic", "partition": 0, "state": "cancelled", "replicas": [8, 7], "planned": [8],
    }  # fmt: skip
    assert "topic-1" in result.stderr
    assert result.stderr.endswith("1 move cancelled\n")


def test_a_plan_for_a_broker_topic_or_partition_that_is_not_there_is_refused(address: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    for topic, partition, replica, why in (
        ("topic", 0, 5, "broker 5: expected one of 7, 8, 9, the live brokers"),
        ("topic", 2, 7, "partition topic-2: expected 0 to 1"),
        ("topics", 0, 7, "topic 'topics': expected on the brokers, found none of that name: is it 'topic'?"),
    ):
        plan.write_text(json.dumps(dump_plan({TopicPartition(topic, partition): (replica,)})))
        for action in ([], ["--execute"]):
            assert why in refused("reassign", "-b", address, "--plan", plan, *action)
    for options, why in (
        (["--brokers", "7,5"], "broker 5: expected one of 7, 8, 9"),
        (["--replicas", "4"], "replication factor 4: there are 3 brokers"),
        (["--brokers", "7,x"], "'x': expected broker ids"),
    ):
        assert why in refused("reassign", "-b", address, "--topics", "topic", *options)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "expected either --plan FILE or --topics"),
        (["--plan", "{plan}", "--topics", "a"], "expected either --plan FILE or --topics"),
        (["--plan", "{plan}", "--brokers", "1"], "--plan FILE has its own"),
        (["--topics", "a", "--verify", "--cancel"], "expected one of"),
        (["--topics", "a", "--verify", "--wait"], "expected one of"),
        (["--topics", "a", "--verify", "--brokers", "1"], "not for moves under way"),
        (["--topics", "a", "--throttle", "1MiB"], "--throttle goes with --execute"),
        (["--topics", "a", "--execute", "--throttle", "fast"], "expected 1 to"),
        (["--plan", "/nowhere.json"], "does not exist"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_use(arguments: list[str], why: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(PLAN))
    filled = [each.replace("{plan}", str(plan)) for each in arguments]
    assert why in refused("reassign", "-b", "127.0.0.1:1", *filled)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "expected either -t TOPIC or --all"),
        (["--all", "-t", "a"], "expected either -t TOPIC or --all"),
        (["-t", "a", "-t", "b", "-p", "0"], "expected one -t TOPIC, found 2"),
    ],
)
def test_an_election_of_nothing_in_particular_is_wrong_use(arguments: list[str], why: str) -> None:
    assert why in refused("elect", "-b", "127.0.0.1:1", *arguments)


def test_brokers_that_are_too_old_are_distinguished_by_the_requests_they_lack(
    broker: SmallCluster, address: str
) -> None:
    broker.versions |= {ELECT: range(1), ALTER: range(0), LIST: range(0)}
    told = refused("elect", "-b", address, "--unclean", "-t", "topic")
    assert "elect leaders (unclean): UNSUPPORTED_VERSION (35): brokers from 2.2 on do it for preferred leaders" in told
    assert broker.asked(ElectLeadersRequest) == []
    told = refused("reassign", "-b", address, "--topics", "topic", "--execute")
    assert "through ZooKeeper, with kafka-reassign-partitions of their release" in told
    assert run("topics", "reassign", "-b", address, "--topics", "topic").exit_code == 0


# ---- with our brokers


def test_the_commands_of_the_page_work_as_printed_with_our_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/commands/topics-replicas.md").read_text(encoding="utf-8")
    lines = re.findall(r"^magicbyte (topics .*)", page, re.MULTILINE)
    assert len(lines) >= 8
    with Cluster(3) as cluster:
        for topic in ("orders", "bills"):
            create = ["topics", "create", "-b", cluster.bootstrap_servers, topic, "--partitions", "4"]
            assert run(*create, "--replicas", "2").exit_code == 0
        cluster.wait(lambda: all(knows_topics(each.bootstrap_servers) for each in cluster.brokers.values()))
        for line in lines:
            command, _, output = line.replace("localhost:9092", cluster.bootstrap_servers).partition(" > ")
            result = run(*shlex.split(command))
            assert result.exit_code == 0, (line, result.stderr)
            if output:
                Path(output).write_text(result.stdout)
        leaders = sorted(str(cluster.leader("orders", at)) for at in range(4))
        (orders,) = json.loads(run("topics", "describe", "-b", cluster.bootstrap_servers, "orders", *JSON).stdout)
        before = parse_plan(Path("back.json").read_text())
        assert {TopicPartition("orders", at) for at in range(4)} == before.keys()
    assert [sorted(each["replicas"]) for each in orders["partitions"]] == [[1, 2]] * 4
    assert leaders == ["1", "1", "2", "2"]


def knows_topics(address: str) -> bool:
    """Whether a broker has heard of both topics and of their leaders."""
    return run("topics", "describe", "-b", address, "--unavailable", "orders", "bills").stdout.count("\n") == 1


def test_a_lost_broker_is_seen_and_its_partitions_get_their_leader_back(tmp_path: Path) -> None:
    with Cluster(2) as cluster:
        address = cluster.bootstrap_servers
        assert run("topics", "create", "-b", address, "orders", "--partitions", "2", "--replicas", "2").exit_code == 0
        (led,) = [at for at in (0, 1) if cluster.leader("orders", at) == 2]
        cluster.kill(2)
        cluster.wait(lambda: cluster.leader("orders", led) == 1)
        cluster.wait(lambda: run("cluster", "status", "-b", address).stdout.count(": under-replicated") == 2)
        result = run("topics", "elect", "-b", address, "--all")
        assert result.exit_code == 2
        assert "PREFERRED_LEADER_NOT_AVAILABLE (80)" in result.stderr
        cluster.restart(2)
        cluster.wait(lambda: cluster.isr("orders", led) == {1, 2})
        assert f"orders-{led}   elected" in run("topics", "elect", "-b", address, "--all").stdout
        assert cluster.leader("orders", led) == 2
