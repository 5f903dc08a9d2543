"""The broker of the fixtures: many of them at once, and nothing left of any."""

import asyncio
import contextlib
import gc
import socket
import ssl
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.produce import send
from magicbyte.engine.errors import InvalidConfigError, MissingExtraError
from magicbyte.engine.records.columns import Record
from magicbyte.server.broker.broker import Broker as Served
from magicbyte.testing import Broker, Cluster

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


@pytest.mark.parametrize("value", [3, "3", 3.0])
def test_numbers_and_booleans_are_settings_as_well(value: float | str) -> None:
    settings = {"num.partitions": int(value) if value == 3.0 else value, "auto.create.topics.enable": False}
    with Broker(settings) as broker:
        assert broker.served.config.num_partitions == 3
        assert broker.served.config.auto_create_topics_enable is False


def test_a_value_that_is_neither_text_nor_number_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match=r"setting num\.partitions: expected text, a number or a boolean, found \[3\]"):
        Broker({"num.partitions": [3]})  # type: ignore[dict-item]


@pytest.mark.parametrize("made", [Broker, lambda settings: Cluster(1, settings)], ids=["broker", "cluster"])
def test_a_misspelt_setting_is_refused_and_others_that_are_unknown_are_logged(
    made: Callable[[dict[str, str]], Broker | Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"no setting 'num\.partitons': did you mean 'num\.partitions'\?"),
        made({"num.partitons": "3"}),
    ):
        pass
    with made({"queued.max.requests.of.mine": "3"}):
        pass
    assert "queued.max.requests.of.mine: unknown, or without effect here" in caplog.text


@pytest.mark.parametrize("made", [Broker, lambda **named: Cluster(1, **named)], ids=["broker", "cluster"])
def test_a_secured_broker_names_the_extra_that_is_missing(
    made: Callable[..., Broker | Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magicbyte.engine.extras.obtain", lambda _extra: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'magicbyte\[security\]'"), made(security="SSL"):
        pass


def test_clients_that_check_certificates_strictly_accept_the_brokers() -> None:
    """Python does from 3.13 on: RFC 5280 requires key identifiers and key usages."""
    with Broker(security="SSL") as broker:
        assert broker.security is not None
        context = broker.security.aiokafka()["ssl_context"]
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host):
            pass


def test_connections_that_were_just_accepted_are_closed_with_the_broker() -> None:
    """Their tasks have not begun: the sockets must not be left to the garbage collector."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(10):
            with Broker() as broker:
                host, port = broker.bootstrap_servers.split(":")
                clients = [socket.create_connection((host, int(port))) for _ in range(6)]
            for client in clients:
                client.close()
        gc.collect()
    assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []


def test_a_fault_while_it_stops_is_raised_where_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Served.stop

    async def failing(served: Served) -> None:
        await stop(served)
        raise OSError("a disk that failed")

    monkeypatch.setattr(Served, "stop", failing)
    with pytest.raises(OSError, match="a disk that failed"), Broker():
        pass
