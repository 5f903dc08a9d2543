"""Every conclusion of `groups` and `cluster status`, with its evidence taken away: the tables of their pages are the
cases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from access.client.broker import scripted
from cli.builders import Groups
from cli.command import run
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from magicbyte.engine.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from magicbyte.engine.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pages import EvidenceRow, evidence

DOCS = Path(__file__).parents[2] / "docs/commands"
DESCRIBE_GROUPS, LIST_GROUPS, LIST_REASSIGNMENTS, NEW_DESCRIBE = 15, 16, 46, 69
RESET = ["reset-offsets", "--to-latest"]


class World(Groups):
    """A broker with a group, whose evidence can be taken away: partitions without a leader, and out of sync."""

    def __init__(self, manner: str = "new", versions: dict[int, range] | None = None) -> None:
        super().__init__(manner, {NEW_DESCRIBE: range(0), LIST_REASSIGNMENTS: range(0)} | (versions or {}))
        self.unled, self.unsynced = set[str](), set[str]()
        self.answers |= {
            LIST_GROUPS: lambda *_: ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")]),
            DESCRIBE_GROUPS: lambda *_: DescribeGroupsResponse(
                groups=[DescribedGroup(group_id="g", group_state="Empty", protocol_type="consumer")]
            ),
        }

    def metadata(self, request: Any, version: int) -> MetadataResponse:
        answer = super().metadata(request, version)
        partition = MetadataResponsePartition(partition_index=0, leader_id=7, replica_nodes=(7,), isr_nodes=(7,))
        answer.topics.append(MetadataResponseTopic(name=OFFSETS_TOPIC, partitions=[partition]))
        for topic in answer.topics:
            for each in topic.partitions:
                if topic.name in self.unled:
                    each.leader_id, each.isr_nodes = -1, ()
                if topic.name in self.unsynced:
                    each.replica_nodes = (7, 8)
        return answer


def old() -> World:
    return World("0.8.2")


def unled_offsets() -> World:
    world = World()
    world.unled.add(OFFSETS_TOPIC)
    return world


def unled_topic() -> World:
    world = World()
    world.unled.add("topic")
    return world


def unsynced_topic() -> World:
    world = World()
    world.unsynced.add("topic")
    return world


def no_coordinator() -> World:
    world = World()
    world.answers[DESCRIBE_GROUPS] = lambda *_: DescribeGroupsResponse(
        groups=[DescribedGroup(group_id="g", error_code=30)]
    )
    return world


TAKEN = {
    "a leader of each partition of __consumer_offsets": unled_offsets,
    "ListGroups, which brokers before 0.9 lack": old,
    "DescribeGroups, which brokers before 0.9 lack": old,
    "a leader of the partition": unled_topic,
    "with --zookeeper: registrations in ZooKeeper, which brokers do not report": World,
    "an answer of its coordinator": no_coordinator,
    "the controller, which brokers before 0.10 do not report": old,
    "a leader of each partition": unled_topic,
    "all replicas of each partition in sync": unsynced_topic,
}
STATUS = ""  # the table of cluster.md names no command
ROWS = evidence("groups.md", "cluster.md")


def arguments(row: EvidenceRow, bootstrap: str) -> list[str]:
    everything = {
        "list": ["groups", "list"],
        "describe": ["groups", "describe", "--all-groups" if "--all-groups" in row.conclusion else "g"],
        "reset-offsets": [
            "groups",
            *RESET,
            "g",
            "-t",
            "topic:0",
            *(["--zookeeper"] if "--zookeeper" in row.evidence else []),
        ],
        STATUS: ["cluster", "status"],
    }
    return [*everything[row.command], "-b", bootstrap, "--format", "json"]


def test_no_row_is_without_a_case() -> None:
    assert {row.evidence for row in ROWS} == TAKEN.keys() | {"an answer of a broker"}


def is_not_known(row: EvidenceRow, document: Any) -> bool:
    if row.command == STATUS:
        return document["healthy"] is None
    if "members" in row.conclusion:
        return document[0]["members"] is None
    return [each["lag"] for each in document[0]["partitions"]] == [None]


@pytest.mark.parametrize("row", [row for row in ROWS if row.evidence in TAKEN], ids=lambda row: "-".join(row[:3]))
def test_without_its_evidence_a_conclusion_is_not_drawn(row: EvidenceRow) -> None:
    with scripted(TAKEN[row.evidence]()) as address:
        done = run(*arguments(row, address))
    assert done.exit_code == row.status, done.stderr
    document = json.loads(done.stdout) if done.stdout else None
    match row.without:
        case "a warning names the partitions":
            assert f"those of {OFFSETS_TOPIC}-0 are missing" in done.stderr
        case "a warning, and the offsets are set":
            assert "whether group g has members is not known" in done.stderr
        case "failed":
            assert document is None
        case "not known (null)":
            assert is_not_known(row, document)
        case _:
            assert (row.without, document["healthy"]) == ("not healthy", False)


def test_with_all_evidence_the_conclusions_are_drawn() -> None:
    found = {}
    with scripted(World()) as address:
        for row in ROWS:
            done = run(*arguments(row._replace(evidence=""), address))
            assert (done.exit_code, done.stderr) == (0, "")
            found[row.command] = json.loads(done.stdout)
    assert [each["group"] for each in found["list"]] == ["g"]
    assert (found["describe"][0]["members"], found["describe"][0]["partitions"][0]["lag"]) == ([], 4)
    assert found["reset-offsets"]["partitions"][0]["offset"] == 9
    assert found[STATUS]["healthy"] is True


def test_no_answer_of_a_broker_is_no_verdict(tmp_path: Path) -> None:
    """`tests/cli/test_cluster.py` has the document."""
    (row,) = (row for row in ROWS if row.evidence not in TAKEN)
    done = run("cluster", "status", "-b", "127.0.0.1:1", "--format", "json")
    assert (done.exit_code, done.stdout) == (row.status, "")
