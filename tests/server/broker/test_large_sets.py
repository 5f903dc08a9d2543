"""Sets that fill a frame of their own, in which their headers are set: the stored bytes equal those of a copy."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.server.broker.broker import Broker
from server.broker.serving import Clock, Peer, Running

COUNT = 4000
TIMES = ("CreateTime", "LogAppendTime")
CODECS = (Codec.NONE, Codec.LZ4, Codec.GZIP)


def produced(form: Format, codec: Codec, now: int) -> bytes:
    chosen = random.Random(5)
    times = itertools.repeat(-1) if form is Format.V0 else (now - at for at in range(COUNT))
    records = [
        Record(at, time, 0, b"%d" % at, chosen.randbytes(90)) for at, time in zip(range(COUNT), times, strict=False)
    ]
    return encode_records(records, form, codec)


async def produce(peer: Peer, data: bytes, version: int) -> tuple[int, int]:
    """Return error code and base offset."""
    sent = TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=data)])
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[sent])
    (found,) = (await peer.ask(request, version, ProduceResponse)).responses[0].partition_responses
    return found.error_code, found.base_offset


def stored(broker: Broker) -> bytes:
    log = broker.replicas.partition("topic", 0).log
    found = log.read(0, 1 << 30)
    assert found is not None
    return found.read()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("form", [Format.V0, Format.V1, Format.V2])
def test_a_large_set_is_stored_as_it_would_be_from_a_copy(folder: Path, form: Format, time: str, codec: Codec) -> None:
    clock, version = Clock(), 7 if form is Format.V2 else 2
    data = produced(form, codec, clock.now_ms())
    assert len(data) > 200_000
    settings = {"log.message.format.version": form.value, "log.message.timestamp.type": time}

    async def work() -> bytes:
        async with Running(folder, settings, clock) as broker:
            await broker.topics.create("topic")
            peer = await Peer.of(broker)
            assert await produce(peer, data, version) == (0, 0)
            assert await produce(peer, data, version) == (0, COUNT)
            return stored(broker)

    found = asyncio.run(work())
    kind = TimestampType.LOG_APPEND_TIME if time == "LogAppendTime" else TimestampType.CREATE_TIME
    rules = AppendRules(format=form, timestamp_type=kind)
    expected = [
        bytes(prepare(memoryview(data), rules, next_offset=at, now_ms=clock.now_ms(), leader_epoch=0,
                      request_version=version))
        for at in (0, COUNT)
    ]  # fmt: skip
    assert found == b"".join(expected)
