"""The same admin requests to real brokers and to ours: the same error codes, the same settings from the same places."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interop import jvm, racing
from interop.admin_steps import LISTED, Listed, answers, topic
from magicbyte.access.client.connection import Connection
from magicbyte.engine.protocol.messages.create_topics import CreateTopicsRequest
from magicbyte.engine.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from server.broker.serving import Running

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS = {
    "broker.id": "0",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "background.threads": "10",  # Kafka's default: a change may at most double or halve it
}

SETTLES_S = 5  # of a real broker

OTHERWISE_ON_PURPOSE = {
    "assigned to no broker",  # a real one makes a partition that no broker can lead; here it is refused: 39
    "assigned to another broker",  # the same with a broker that is not there
    "append to an unknown setting",  # -1, a fault of its own; here 40
    "unknown operation",  # -1, too; here 42
    "delete by nothing",  # 29, as if it were not allowed; here 42
}
OTHERWISE_IN_2_8 = {
    "setting without a value",  # 42, later 40
    "alter to nonsense",  # 42, later 40; so are the next five
    "alter out of range",
    "append to no list",
    "append nonsense",
    "change to nonsense",
    "change out of range",
    "alter without a value",  # -1, later 42
    "describe what was changed",  # what is in a list can be appended to it again
    "log directories",  # topics that were not asked for are there without partitions
    "log directories of no topic",
    "places of bounds of time",  # a setting of 3.6
    *(f"offset by {timestamp}, v1" for timestamp in range(-7, -2)),  # the same as -1 there
    *(f"offset by {timestamp}, v{version}" for version in (7, 8, 9) for timestamp in range(-7, 0)),  # later versions
    "what may be done, v12",
    "change a level: no.such 0 INFO",  # 42, later 40; so are the next three
    "change a level: no.such 1 None",
    "change a level: root 0 LOUD",
    "change a level: root 0 info",
    *(f"{what}, v3" for what in ("describe rules", "create two rules", "create no rule", "delete by two filters")),
}


async def _answers(bootstrap: str, settles_s: float = 0) -> dict[str, Any]:
    host, _, port = bootstrap.partition(":")
    return await asyncio.wait_for(answers(lambda: Connection.open(host, int(port), client_id="codes"), settles_s), 240)


async def _ours(folder: Path) -> dict[str, Any]:
    async with Running(folder, SETTINGS) as broker:
        ((_, port),) = broker.ports.items()
        return await _answers(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("version", "otherwise"),
    [("2.8.2", OTHERWISE_ON_PURPOSE | OTHERWISE_IN_2_8), ("3.9.1", OTHERWISE_ON_PURPOSE)],
    ids=["2.8.2", "3.9.1"],
)
def test_a_real_broker_answers_with_the_same_codes(version: str, otherwise: set[str], tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    with jvm.broker(version, tmp_path, *settings, scratch=True) as state:
        theirs = asyncio.run(_answers(state["bootstrap"], SETTLES_S))
    ours = asyncio.run(_ours(tmp_path / "ours"))
    unlike = {step: (ours[step], theirs[step]) for step in theirs if ours[step] != theirs[step]}
    assert unlike.keys() == otherwise, unlike


def test_a_real_4_1_1_lists_the_resources_that_can_have_settings(tmp_path: Path) -> None:
    async def work(bootstrap: str) -> list[Listed]:
        host, _, port = bootstrap.partition(":")
        connection = await Connection.open(host, int(port), client_id="listed")
        asked = CreateTopicsRequest(topics=[topic("bb"), topic("aa")])
        await connection.send(asked)
        found = list[Listed]()
        for row in LISTED:
            request = ListConfigResourcesRequest(resource_types=row.types)
            response = await connection.send(request, ListConfigResourcesResponse, versions=range(1, 2))
            found.append(Listed.of(row.types, response))
        await connection.aclose()
        return found

    with jvm.broker("4.1.1", tmp_path, scratch=True) as state:
        assert asyncio.run(work(state["bootstrap"])) == LISTED


@pytest.mark.campaign
def test_the_codes_of_topics_that_are_created_at_once_are_those_of_a_real_cluster(tmp_path: Path) -> None:
    """tests/server/broker/test_cluster.py does the same with our brokers."""
    with jvm.brokers("2.8.2", tmp_path, 3, "offsets.topic.replication.factor=1", scratch=True) as states:
        ports = [int(each["bootstrap"].rpartition(":")[2]) for each in states]
        found = asyncio.run(racing.raced_codes(ports, lambda: asyncio.sleep(SETTLES_S)))
    assert all(found[api] <= codes for api, codes in racing.CODES.items()), found
    assert {0, 5} <= found["Metadata"]
