"""Sets that are refused, by real brokers and by ours: the same answer, with the log's start where they tell it."""

import asyncio
import struct
import time
from pathlib import Path

import pytest

from interop import jvm
from magicbyte.access.client.admin import NewTopic, create_topic, delete_records
from magicbyte.access.client.client import Client
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.produce import send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.testing import Broker
from server.broker.builders import short_message

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

LONG_AGO = 1_500_000_000_000
START = 3  # of each log
VERSIONS = (5, 7, 8)  # of the request: the first that tells the log's start, that knows zstd, that says more of faults
TOPICS = {
    "plain": {"max.message.bytes": "1000"},
    "strict": {"message.timestamp.difference.max.ms": "600000"},
    "compacted": {"cleanup.policy": "compact,delete"},
}
Answer = tuple[int, int, int, int]


def made(form: Format = Format.V2, codec: Codec = Codec.NONE, key: bytes | None = b"k", value: bytes = b"v") -> bytes:
    return bytes(encode_records([Record(0, LONG_AGO, 0, key, value)], form, codec=codec))


def transactional() -> bytes:
    batch = bytearray(made())
    batch[22] |= 1 << 4
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


SENT = {
    "a wrong checksum": ("plain", -1, made()[:-1] + b"?"),
    "too large": ("plain", -1, made(value=bytes(2000))),
    "of format 1": ("plain", -1, made(Format.V1)),
    "two batches": ("plain", -1, made() + made()),
    "no batch": ("plain", -1, b""),
    "zstd": ("plain", -1, made(codec=Codec.ZSTD)),
    "a base offset": ("plain", -1, b"\0\0\0\0\0\0\0\1" + made()[8:]),
    "too old": ("strict", -1, made()),
    "without a key": ("compacted", -1, made(key=None)),
    "acks of 2": ("plain", 2, made()),
    "an unknown topic": ("unknown", -1, made()),
    "transactional, without a producer id": ("plain", -1, transactional()),
} | {f"of format 1 and {size} bytes": ("plain", -1, short_message(size)) for size in range(14, 22)}


async def answers(address: str) -> dict[tuple[str, int], Answer]:
    """Send each set in each version; return the code, the base offset, the time, and the log's start."""
    now = time.time_ns() // 1_000_000
    host, port = address.rsplit(":", 1)
    found = {}
    async with Client(address) as client:
        for topic, configs in TOPICS.items():
            await create_topic(client, NewTopic(topic, configs=configs))
            await send(client, topic, 0, [Record(at, now, 0, b"key %d" % at, b"value") for at in range(5)])
            await delete_records(client, topic, 0, START)
    connection = await Connection.open(host, int(port), client_id="test")
    for version in VERSIONS:
        for name, (topic, acks, records) in SENT.items():
            part = PartitionProduceData(index=0, records=records)
            data = [TopicProduceData(name=topic, partition_data=[part])]
            request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data)
            response = await connection.send(request, versions=range(version, version + 1))
            assert isinstance(response, ProduceResponse)
            said = response.responses[0].partition_responses[0]
            found[name, version] = said.error_code, said.base_offset, said.log_append_time_ms, said.log_start_offset
    await connection.aclose()
    return found


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_a_refused_set_is_answered_as_a_real_broker_does(version: str, tmp_path: Path) -> None:
    with jvm.broker(version, tmp_path, "auto.create.topics.enable=false", scratch=True) as state:
        theirs = asyncio.run(answers(state["bootstrap"]))
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        ours = asyncio.run(answers(broker.bootstrap_servers))
    assert ours == theirs
    assert {start for *_, start in ours.values()} == {-1, START}
