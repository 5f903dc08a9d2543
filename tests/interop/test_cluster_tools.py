"""Kafka's own tools of two eras move and elect leaders of our cluster."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.test_admin_tools import Tools
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, create_topic, describe_configs
from magicbyte.access.client.produce import send
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from server.broker.builders import records
from server.broker.clusters import Members, cluster, until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]


class Operator:
    """Runs a release's tools beside the cluster, with a file of JSON where they want one."""

    def __init__(self, version: str, folder: Path, members: Members) -> None:
        self._tools, self._folder = Tools(version, members.bootstrap), folder

    async def run(self, name: str, *arguments: str, **files: object) -> str:
        """Return what a tool prints. `files`: options and the content of their files."""
        options = []
        for option, content in files.items():
            path = self._folder / f"{option}.json"
            path.write_text(json.dumps(content))
            options += [f"--{option.replace('_', '-')}", str(path)]
        return await asyncio.to_thread(self._tools.run, name, *arguments, *options)


def leads(members: Members, broker_id: int, topic: str = "t") -> Callable[[], bool]:
    return lambda: [each.node_id for each in members.leaders(topic)] == [broker_id]


@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
def test_kafkas_tools_elect_and_reassign(version: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path / "logs", 3) as members, Client(members.bootstrap) as client:
            operator = Operator(version, tmp_path, members)
            await create_topic(client, NewTopic("t", 1, 2, assignments=[[1, 2]]))
            await until(leads(members, 1))
            await send(client, "t", 0, records(10))

            def move(*replicas: int) -> dict[str, object]:
                return {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": replicas}]}

            said = await operator.run("ReassignPartitionsCommand", "--execute", reassignment_json_file=move(2, 3))
            assert "Successfully started partition reassignment for t-0" in said
            await until(leads(members, 2))
            await until(lambda: set(members.contents("t")) == {2, 3})
            assert len(set(members.contents("t").values())) == 1
            said = await operator.run("ReassignPartitionsCommand", "--verify", reassignment_json_file=move(2, 3))
            assert "Reassignment of partition t-0 is complete" in said
            said = await operator.run("ReassignPartitionsCommand", "--list")
            assert "No partition reassignments found" in said
            asked = ListPartitionReassignmentsRequest()
            listed = await client.ask(await client.controller(), asked, ListPartitionReassignmentsResponse)
            assert listed.topics == []

            await operator.run("ReassignPartitionsCommand", "--execute", reassignment_json_file=move(3, 2))
            election = {"partitions": [{"topic": "t", "partition": 0}]}
            chosen = ["--election-type", "preferred"]
            said = await operator.run("LeaderElectionCommand", *chosen, path_to_json_file=election)
            assert "Successfully completed leader election (PREFERRED) for partitions t-0" in said
            await until(leads(members, 3))
            said = await operator.run("LeaderElectionCommand", *chosen, path_to_json_file=election)
            assert "Valid replica already elected for partitions" in said
            await send(client, "t", 0, records(10))

    asyncio.run(work())


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_kafkas_tool_moves_to_a_named_directory_with_a_throttle_which_it_takes_away(
    version: str, tmp_path: Path
) -> None:
    async def throttles(client: Client) -> dict[str, str | None]:
        places = [(ConfigResource.TOPIC, "t"), *((ConfigResource.BROKER, str(each)) for each in (1, 2, 3))]
        found = [(name, await describe_configs(client, *each)) for each in places for name in [each[1]]]
        return {
            f"{name} {key}": each.value
            for name, settings in found
            for key, each in settings.items()
            if "replication.throttled" in key and each.is_own
        }

    async def work() -> None:
        async with cluster(tmp_path / "logs", 3) as members, Client(members.bootstrap) as client:
            operator = Operator(version, tmp_path, members)
            await create_topic(client, NewTopic("t", 1, 2, assignments=[[1, 2]]))
            await until(leads(members, 1))
            await send(client, "t", 0, records(10))
            there = members.brokers[3].logs.path

            def move(path: str) -> dict[str, object]:
                partition = {"topic": "t", "partition": 0, "replicas": [2, 3], "log_dirs": ["any", path]}
                return {"version": 1, "partitions": [partition]}

            said = await operator.run(
                "ReassignPartitionsCommand", "--execute", "--throttle", "50000000", reassignment_json_file=move(there)
            )
            assert "Successfully started partition reassignment for t-0" in said
            moved = "log directory move for: t-0-3", f"moving log directory to {there} for replica t-0 with broker 3"
            assert any(f"Successfully started {each}" in said for each in moved)
            rates = {
                f"{broker} {side}.replication.throttled.rate": "50000000"
                for broker in (1, 2, 3)
                for side in ("leader", "follower")
            }
            replicas = {
                "t leader.replication.throttled.replicas": "0:1,0:2",
                "t follower.replication.throttled.replicas": "0:3",
            }
            assert await throttles(client) == rates | replicas
            await until(lambda: set(members.contents("t")) == {2, 3})
            said = await operator.run("ReassignPartitionsCommand", "--verify", reassignment_json_file=move(there))
            assert "Reassignment of partition t-0 is complete" in said
            assert "Reassignment of replica t-0-3 completed successfully" in said
            assert await throttles(client) == {}
            assert len(set(members.contents("t").values())) == 1
            said = await operator.run("ReassignPartitionsCommand", "--verify", reassignment_json_file=move("/nowhere"))
            assert "Partition t-0 on broker 3 is not being moved from log dir" in said

    asyncio.run(work())
