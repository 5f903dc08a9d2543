"""The broker of the fixtures: many of them at once, and nothing left of any."""

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path

import pytest

from magicbyte.broker.broker import Broker as Served
from magicbyte.client import Client
from magicbyte.client.admin import NewTopic, create_topic
from magicbyte.client.fetch import read_records
from magicbyte.client.produce import send
from magicbyte.errors import InvalidConfigError
from magicbyte.records.columns import Record
from magicbyte.testing import Broker

COUNT = 20


async def round_trip(address: str, value: bytes) -> list[bytes | None]:
    async with Client(address) as client:
        await create_topic(client, NewTopic("topic"))
        await send(client, "topic", 0, [Record(0, -1, 0, None, value)])
        return [each.value async for found in read_records(client, "topic", 0, 0, 1) for each in found]


def test_twenty_brokers_live_in_one_process_and_leave_neither_threads_nor_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(threading.enumerate())

    async def all_of(brokers: list[Broker]) -> list[list[bytes | None]]:
        trips = [round_trip(broker.bootstrap_servers, b"%d" % at) for at, broker in enumerate(brokers)]
        return await asyncio.wait_for(asyncio.gather(*trips), 60)

    with contextlib.ExitStack() as stack:
        brokers = [stack.enter_context(Broker()) for _ in range(COUNT)]
        assert len({broker.bootstrap_servers for broker in brokers}) == len(list(tmp_path.iterdir())) == COUNT
        assert asyncio.run(all_of(brokers)) == [[b"%d" % at] for at in range(COUNT)]
    assert set(threading.enumerate()) <= before
    assert not list(tmp_path.iterdir())


def test_a_directory_that_was_given_stays_with_its_records(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        assert asyncio.run(round_trip(broker.bootstrap_servers, b"kept")) == [b"kept"]

    async def again(address: str) -> list[bytes | None]:
        async with Client(address) as client:
            return [each.value async for found in read_records(client, "topic", 0, 0, 1) for each in found]

    with Broker(directory=tmp_path) as broker:
        assert asyncio.run(again(broker.bootstrap_servers)) == [b"kept"]


@pytest.mark.parametrize(
    ("name", "value", "kept_ms"),
    [
        ("num.partitions", "1", -1),
        ("log.retention.hours", "2", 7_200_000),
        ("log.retention.minutes", "3", 180_000),
        ("log.retention.ms", "4", 4),
    ],
)
def test_records_of_any_date_are_kept_unless_a_retention_time_is_set(name: str, value: str, kept_ms: int) -> None:
    with Broker({name: value}) as broker:
        assert broker.served.config.log_retention_ms == kept_ms


def test_a_setting_that_cannot_be_is_raised_where_the_block_begins() -> None:
    with pytest.raises(InvalidConfigError, match=r"num\.partitions: expected"), Broker({"num.partitions": "many"}):
        pass


def test_a_fault_while_it_stops_is_raised_where_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Served.stop

    async def failing(served: Served) -> None:
        await stop(served)
        raise OSError("a disk that failed")

    monkeypatch.setattr(Served, "stop", failing)
    with pytest.raises(OSError, match="a disk that failed"), Broker():
        pass
