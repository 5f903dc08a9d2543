"""HOST:PORT, in one parser."""

import asyncio

import pytest

from magicbyte.access.client import Client
from magicbyte.access.net.scrape import scrape
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.addresses import LAST_PORT, addresses, host_and_port, zookeeper_addresses
from magicbyte.engine.errors import InvalidConfigError, NetworkError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        (" kafka-1.example:1 ", ("kafka-1.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("::1:9092", ("::1", 9092)),
        ("host_1:0009092", ("host_1", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, expected: tuple[str, int]) -> None:
    assert host_and_port(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "localhost", "localhost:", ":9092", "localhost:9092/", "kafka://localhost:9092", "a:1,b:2", "a b:1",
        "[::1]", "a:-1", "a:\uff19", "a:1e3", "a:" + "9" * 5000,
    ],
)  # fmt: skip
def test_another_text_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST:PORT, such as localhost:9092$"):
        host_and_port(text)


@pytest.mark.parametrize("port", [0, LAST_PORT + 1, 65536 + 9092, 2**31, 2**32 + 9092])
def test_a_port_that_the_system_would_wrap_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match=f"expected a port from 1 to 65535, found {port}$"):
        host_and_port(f"localhost:{port}")
    with pytest.raises(ValueError, match="expected a port"):
        Client(f"localhost:9092,localhost:{port}")
    with pytest.raises(ValueError, match="expected a port"):
        zookeeper_addresses(f"localhost:2181,localhost:{port}/chroot")


@pytest.mark.parametrize("port", [0, -1, LAST_PORT + 1, 65536 + 9092, 2**31 - 1])
def test_a_port_that_a_broker_returns_is_not_wrapped(port: int) -> None:
    with pytest.raises(NetworkError, match=f"expected a port from 1 to 65535, found {port}"):
        asyncio.run(SocketStream.connect("localhost", port))


def test_a_page_of_another_protocol_is_refused() -> None:
    with pytest.raises(NetworkError, match=r"ftp://localhost/x: expected HOST:PORT, or a URL that begins with http"):
        asyncio.run(scrape("ftp://localhost/x"))


@pytest.mark.parametrize("port", [0, LAST_PORT + 1])
@pytest.mark.parametrize("address", ["localhost:{}", "http://localhost:{}/metrics", "https://localhost:{}/metrics"])
def test_a_port_of_a_page_is_not_wrapped(address: str, port: int) -> None:
    with pytest.raises(NetworkError, match=f"expected a port from 1 to 65535, found {port}|nvalid port|no host given"):
        asyncio.run(scrape(address.format(port)))


def test_an_address_to_listen_at_may_have_no_host_and_any_free_port() -> None:
    assert host_and_port(":0", host="", free=True) == ("", 0)
    with pytest.raises(ValueError, match="expected a port from 0 to 65535, found 65536"):
        host_and_port(":65536", host="", free=True)


def test_empty_parts_of_a_list_are_ignored_as_in_kafka() -> None:
    assert addresses("a:1, b:2,,") == [("a", 1), ("b", 2)]
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        addresses(" , ")


def test_a_zookeeper_has_a_default_port_and_a_path() -> None:
    for text in ("localhost", "a:2181,b", "[::1]", "[::1]:2181", "a:2181/kafka:1"):
        assert zookeeper_addresses(text) == text


def test_a_store_refuses_a_bad_zookeeper_address() -> None:
    pytest.importorskip("kazoo")
    from magicbyte.server.metadata.zookeeper import ZooKeeperStore

    with pytest.raises(InvalidConfigError, match=r"zookeeper.connect: 'localhost:99999': expected a port"):
        ZooKeeperStore("localhost:99999")
