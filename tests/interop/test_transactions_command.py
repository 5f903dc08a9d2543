"""`magicbyte transactions` with a real broker: a transaction of a client, and one that no coordinator knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cli.command import run
from interop import jvm
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.offsets import LATEST, list_offset
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

HANGING_TOPIC, TOPIC, ID, STRANGER = "hanging", "orders", "tx-open", 4711
TIMEOUT_MS = 600_000  # longer than all the commands take
SETTINGS = (
    "log.retention.ms=-1",  # a record of 2023
    "transaction.partition.verification.enable=false",  # or the late Produce request is refused
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("kafka") / "broker"
    with jvm.broker("3.9.1", folder, *SETTINGS) as state:
        address = state["bootstrap"]
        asyncio.run(_fill(address))
        yield address


async def _fill(address: str) -> None:
    """Make the topics, and send a batch of a transaction that was never begun."""
    record = Record(0, 1_700_000_000_000, 0, None, b"value")
    header = BatchHeader(is_transactional=True, producer_id=STRANGER, producer_epoch=2, base_sequence=0)
    part = PartitionProduceData(index=0, records=encode_records([record], Format.V2, header=header))
    request = ProduceRequest(
        transactional_id="tx-late",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=HANGING_TOPIC, partition_data=[part])],
    )
    async with Client(address) as client:
        for name in (TOPIC, HANGING_TOPIC):
            await create_topic(client, NewTopic(name))

        async def send(node: BrokerNode) -> int:
            response = await client.ask(node, request, ProduceResponse, versions=range(3, 9))
            return response.responses[0].partition_responses[0].error_code

        assert await client.at_leader(HANGING_TOPIC, 0, send) == 0


def listed(bootstrap: str, command: str, *arguments: str, status: int = 0) -> Any:
    result = run("transactions", command, "-b", bootstrap, *arguments, "--format", "json")
    assert result.exit_code == status, result.stderr
    return json.loads(result.stdout)


async def stable_offset(bootstrap: str) -> int:
    async with Client(bootstrap) as client:
        return (await list_offset(client, HANGING_TOPIC, 0, LATEST, committed=True)).offset


def test_a_transaction_of_a_client_is_listed_and_described_and_does_not_hang(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": ID, "transaction.timeout.ms": TIMEOUT_MS}
    producer = Producer({**settings, "log_level": 0})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(TOPIC, b"value", timestamp=1_700_000_000_000)
    assert producer.flush(120) == 0
    (found,) = listed(bootstrap, "list", "--state", "Ongoing")
    assert (found["transactionalId"], found["coordinator"]) == (ID, 0)
    (described,) = listed(bootstrap, "describe", ID)
    assert (described["state"], described["producerId"], described["producerEpoch"]) == (
        "Ongoing", found["producerId"], 0,
    )  # fmt: skip
    assert described["partitions"] == [{"topic": TOPIC, "partition": 0}]
    assert listed(bootstrap, "find-hanging", "-t", TOPIC, "--max-transaction-timeout", "0") == []
    refused = run("transactions", "abort", "-b", bootstrap, "-t", TOPIC, "-p", "0", "--start-offset", "0", "--yes")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "its coordinator knows it and will end it" in refused.stderr
    producer.commit_transaction(120)
    unknown = run("transactions", "list", "-b", bootstrap, "--state", "Open")
    assert "no such state: Open" in unknown.stderr


def test_a_transaction_that_no_coordinator_knows_is_found_and_ended(bootstrap: str) -> None:
    (found,) = listed(bootstrap, "find-hanging", status=1)
    assert (found["topic"], found["producerId"], found["producerEpoch"], found["startOffset"]) == (
        HANGING_TOPIC, STRANGER, 2, 0,
    )  # fmt: skip
    assert asyncio.run(stable_offset(bootstrap)) == 0
    arguments = ("-t", HANGING_TOPIC, "-p", "0", "--start-offset", "0", "--yes")
    result = run("transactions", "abort", "-b", bootstrap, *arguments)
    assert result.exit_code == 0, result.stderr
    assert asyncio.run(stable_offset(bootstrap)) == 2
    assert listed(bootstrap, "find-hanging") == []
