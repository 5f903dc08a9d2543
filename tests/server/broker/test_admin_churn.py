"""Topics are made, changed, written, read, compacted and deleted all at once; the broker outlives it."""

import asyncio
import logging
import random
from pathlib import Path

import pytest

from builders import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.admin import ConfigResource, NewTopic
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.errors import BrokerError, ErrorCode, OffsetOutOfRangeError
from magicbyte.engine.records.columns import Record
from magicbyte.server.coordinating import topic_changes
from server.broker.serving import Running

WORKERS, EACH = 6, 70
BUSY = {
    "auto.create.topics.enable": "false",
    "log.initial.task.delay.ms": "0",
    "log.cleaner.backoff.ms": "1",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "20",
}
EXPECTED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,  # fewer than there are
    ErrorCode.POLICY_VIOLATION,  # records of a compacted topic are not deleted
}


def test_appends_to_other_topics_continue_while_a_large_topic_is_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "LOGS_AT_ONCE", 2)
    left = list[int]()

    async def work() -> None:
        async with Running(folder) as broker, Client(f"127.0.0.1:{next(iter(broker.ports.values()))}") as client:
            await admin.create_topic(client, NewTopic("large", 20))
            deleting = asyncio.create_task(admin.delete_topic(client, "large"))
            while not deleting.done():
                await broker.runtime.logs_lock.acquire_shared()  # as each append does
                left.append(sum(key.topic == "large" for key in broker.logs.logs))
                broker.runtime.logs_lock.release_shared()
                await asyncio.sleep(0)
            await deleting

    run(work())
    assert len(set(left)) > 5, "appends came between the steps of the deletion"


async def one_thing(client: Client, chance: random.Random) -> None:
    topic = f"t{chance.randrange(4)}"
    match chance.choice(["make", "write", "write", "write", "read", "change", "erase", "grow", "delete"]):
        case "make":
            configs = {"cleanup.policy": chance.choice(["compact", "delete"]), "segment.bytes": "2000", "flush.ms": "5"}
            await admin.create_topic(client, NewTopic(topic, chance.randrange(1, 4), 1, configs))
        case "write":
            records = [Record(0, 1, 0, b"%d" % chance.randrange(9), bytes(200)) for _ in range(chance.randrange(1, 40))]
            await send(client, topic, 0, records, ProduceOptions(batch_bytes=600))
        case "read":
            start, end = await bounds(client, topic, 0)
            async for _ in read_records(client, topic, 0, start, end):
                pass
        case "change":
            size = str(chance.randrange(1000, 9000))
            await admin.alter_configs(client, ConfigResource.TOPIC, topic, {"segment.bytes": size})
        case "erase":
            await admin.delete_records(client, topic, 0, -1)
        case "grow":
            await admin.create_partitions(client, topic, chance.randrange(2, 6))
        case "delete":
            await admin.delete_topic(client, topic)


@pytest.mark.parametrize("settings", [{}, {"log.flush.policy": "group-commit"}, {"log.flush.interval.messages": "1"}])
def test_a_broker_outlives_all_that_happens_to_its_topics(
    settings: dict[str, str], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[bool] = []

    async def worker(address: str, number: int) -> None:
        chance = random.Random(number)
        async with Client(address, retry_ms=1, backoff_ms=1, request_timeout_ms=10_000) as client:
            for _ in range(EACH):
                try:
                    await one_thing(client, chance)
                    done.append(True)
                except BrokerError as error:
                    if error.code not in EXPECTED:
                        raise
                    done.append(False)
                except OffsetOutOfRangeError:  # deleted between the two questions
                    done.append(False)

    async def work() -> None:
        async with Running(folder, {**BUSY, **settings}) as broker:
            address = f"127.0.0.1:{next(iter(broker.ports.values()))}"
            await asyncio.gather(*(worker(address, number) for number in range(WORKERS)))
            assert broker.logs.health.error is None
            names = broker.topics.names()
        async with Running(folder, {**BUSY, **settings}) as broker:
            assert broker.logs.was_clean
            assert broker.topics.names() == names
            assert broker.topics.adopted == []

    run(work())
    assert done.count(True) > WORKERS * EACH / 10
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
