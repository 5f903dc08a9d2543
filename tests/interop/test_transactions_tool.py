"""kafka-transactions.sh with our broker: it lists, describes and aborts transactions."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from interop import kafka_oracle
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

TOOL = "org.apache.kafka.tools.TransactionsCommand"
PLACE = ("--topic", "t", "--partition", "0")
SECONDS = 240
TIMEOUT_MS = 600_000  # longer than all runs of the tool take


@pytest.mark.parametrize(("version", "as_version"), [("3.9.1", "3.9"), ("4.3.1", "4.1")])
def test_the_tool_lists_describes_and_aborts_transactions(version: str, as_version: str) -> None:
    async def open_one(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await create_topic(client, NewTopic("t"))
            producer = await TransactionalProducer.begin(client, "open", timeout_ms=TIMEOUT_MS)
            await producer.send("t", 0, [Record(0, -1, 0, None, b"pending")])

    with Broker({"as.version": as_version}) as broker:

        def rows(*arguments: str) -> list[dict[str, str]]:
            """Return the table that the tool prints."""
            command = kafka_oracle.tool_command(
                version, TOOL, ["--bootstrap-server", broker.bootstrap_servers, *arguments]
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            assert done.returncode == 0, done.stderr
            names, *cells = [[each.strip() for each in line.split("\t")] for line in done.stdout.splitlines()] or [[]]
            return [dict(zip(names, each, strict=True)) for each in cells]

        asyncio.run(open_one(broker.bootstrap_servers))
        assert [(each["TransactionalId"], each["TransactionState"]) for each in rows("list")] == [("open", "Ongoing")]
        (told,) = rows("describe", "--transactional-id", "open")
        assert (told["TransactionState"], told["TopicPartitions"]) == ("Ongoing", "t-0")
        assert (
            rows("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "1") == []
        )  # it has its coordinator
        assert [each["CurrentTransactionStartOffset"] for each in rows("describe-producers", *PLACE)] == ["0"]
        assert rows("abort", *PLACE, "--start-offset", "0") == []
        assert [each["CurrentTransactionStartOffset"] for each in rows("describe-producers", *PLACE)] == ["None"]
