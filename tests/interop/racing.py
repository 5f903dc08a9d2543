"""Requests that create the same topics at once at all brokers of a cluster, and their codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from magicbyte.access.client import Client
from magicbyte.access.client.admin import delete_topic
from magicbyte.access.client.connection import Connection
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

NAMES = [f"new-{index}" for index in range(6)]
CODES = {"Metadata": {0, 3, 5}, "FindCoordinator": {0, 15}, "CreateTopics": {0, 7, 36, 41}}
"""What Kafka 2.8.2 may answer. Clients retry all of these, except for 36 of CreateTopics."""


async def raced_codes(ports: Sequence[int], all_made: Callable[[], Awaitable[None]]) -> dict[str, set[int]]:
    """Create topics by Metadata, FindCoordinator and CreateTopics at once, delete them, create them again at once.

    `all_made` waits until the topics are known. Return the codes of each request.
    """
    found: dict[str, set[int]] = {api: set() for api in CODES}

    async def metadata(connection: Connection) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in (*NAMES, "__consumer_offsets")]
        answer = await connection.send(MetadataRequest(topics=wanted))
        assert isinstance(answer, MetadataResponse)
        found["Metadata"] |= {each.error_code for each in answer.topics}

    async def coordinator(connection: Connection) -> None:
        answer = await connection.send(FindCoordinatorRequest(key="g"), versions=range(4))
        assert isinstance(answer, FindCoordinatorResponse)
        found["FindCoordinator"].add(answer.error_code)

    async def create(connection: Connection) -> None:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
        answer = await connection.send(CreateTopicsRequest(topics=topics, timeout_ms=0))
        assert isinstance(answer, CreateTopicsResponse)
        found["CreateTopics"] |= {each.error_code for each in answer.topics}

    connections = [await Connection.open("127.0.0.1", port, client_id="") for port in ports * 3]
    asks = (metadata, coordinator, create)
    for _ in range(4):
        async with asyncio.TaskGroup() as group:
            for index, connection in enumerate(connections):
                group.create_task(asks[index // len(ports)](connection))
        await all_made()
        async with Client(",".join(f"127.0.0.1:{port}" for port in ports)) as client:
            for name in NAMES:
                await delete_topic(client, name)
        for connection in connections[: len(ports)] * 5:
            await metadata(connection)
    for connection in connections:
        await connection.aclose()
    return found
