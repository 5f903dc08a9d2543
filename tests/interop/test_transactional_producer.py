"""Transactions of our producer at real brokers, and what Kafka's console consumer reads of them."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import run
from interop import jvm, kafka_oracle
from magicbyte.access.client import Client
from magicbyte.access.client.groups import Committed, committed_offsets
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.cli.main import main
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

CONSUMERS = {"4.3.1": "org.apache.kafka.tools.consumer.ConsoleConsumer"}
SETTINGS = ("offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1", "auto.create.topics.enable=false")
SECONDS = 240


@pytest.fixture(scope="module", params=CONSUMERS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Give the version and the address of a broker with an empty topic."""
    folder: Path = tmp_path_factory.mktemp("kafka") / "broker"
    with jvm.broker(request.param, folder, *SETTINGS, scratch=True) as state:
        made = CliRunner().invoke(main, ["topics", "create", "-b", state["bootstrap"], "lines", "--partitions", "1"])
        assert made.exit_code == 0, made.output
        end = time.monotonic() + SECONDS
        while "lines" not in CliRunner().invoke(main, ["topics", "list", "-b", state["bootstrap"]]).stdout:
            assert time.monotonic() < end, "the broker does not know the topic"
            time.sleep(0.2)  # the controller has made it, and the broker may not have heard of it
        yield request.param, state["bootstrap"]


def produce(bootstrap: str, text: bytes, *arguments: str, status: int = 0) -> None:
    command = ["produce", "-b", bootstrap, "-t", "lines", "--transactional-id", "lines", *arguments]
    done = CliRunner().invoke(main, command, input=text)
    assert done.exit_code == status, done.output


def consumed(version: str, bootstrap: str, isolation: str, count: int, topic: str = "lines") -> list[str]:
    """Return the first `count` values that the console consumer prints, which waits for them."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest",
                 "--isolation-level", isolation, "--max-messages", str(count)]  # fmt: skip
    command = kafka_oracle.tool_command(version, CONSUMERS[version], arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


async def _transactions(bootstrap: str) -> None:
    """Commit offsets with a record; abort others; fence a producer."""
    place = ("lines", 0)
    async with Client(bootstrap) as client:
        old = await TransactionalProducer.begin(client, "lines")
        async with old.transaction():
            await old.send("lines", 0, [Record(0, -1, 0, None, b"with offsets")])
            await old.commit_offsets("group", {place: Committed(5, "told")})
        await old.send("lines", 0, [Record(0, -1, 0, None, b"aborted")])
        await old.commit_offsets("group", {place: Committed(7)})
        await old.abort()
        await old.send("lines", 0, [Record(0, -1, 0, None, b"fenced")])
        new = await TransactionalProducer.begin(client, "lines")
        with pytest.raises(BrokerError, match="another producer began") as refused:
            await old.commit()
        assert refused.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        async with new.transaction():
            await new.send("lines", 0, [Record(0, -1, 0, None, b"last")])
        while not (found := await committed_offsets(client, "group", [place])):
            await asyncio.sleep(0.05)  # until the marker is written
        assert found[place][:2] == (5, "told")


def test_the_console_consumer_reads_committed_records(real: tuple[str, str]) -> None:
    version, bootstrap = real
    lines = [b"%d" % number for number in range(25)]
    produce(bootstrap, b"\n".join(lines))
    produce(bootstrap, b"\n".join(lines), "--transaction-records", "10", "-z", "lz4")
    too_large = bytes(3 << 20)
    produce(bootstrap, b"a\nb\nc\n" + too_large, "--transaction-records", "2", status=2)  # which takes c with it
    run(_transactions(bootstrap), SECONDS)
    committed = 2 * [line.decode() for line in lines] + ["a", "b", "with offsets", "last"]
    assert consumed(version, bootstrap, "read_committed", len(committed)) == committed
    everything = [*committed[:52], "c", "with offsets", "aborted", "fenced", "last"]
    assert consumed(version, bootstrap, "read_uncommitted", len(everything)) == everything


def test_the_console_consumer_reads_what_a_mirror_commits(real: tuple[str, str]) -> None:
    version, bootstrap = real
    with Broker() as source:
        here = source.bootstrap_servers
        arguments = ["mirror", "--from", here, "--to", bootstrap, "--topics", "copied", "--until-caught-up", "--yes"]
        for number in range(3):
            text = b"".join(b"%d\n" % (10 * number + at) for at in range(10))
            command = ["produce", "-b", here, "-t", "copied", "--create", "-z", "lz4"]
            made = CliRunner().invoke(main, command, input=text)
            assert made.exit_code == 0, made.output
            mirrored = CliRunner().invoke(main, [*arguments, "--transactional-id", "mirror"])
            assert mirrored.exit_code == 0, mirrored.output
    assert consumed(version, bootstrap, "read_committed", 30, "copied") == [str(number) for number in range(30)]
