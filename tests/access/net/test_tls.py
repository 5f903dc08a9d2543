"""Streams inside TLS: the same bytes come out, whatever their sizes; a peer that is not trusted gets no further."""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.net.network import Door, SocketNetwork
from magicbyte.access.net.stream import Stream
from magicbyte.access.net.tls import TlsStream
from magicbyte.engine.errors import NetworkError, SecurityError
from magicbyte.testing.certificates import Authority

AUTHORITY = Authority()
Pair = tuple[TlsStream, TlsStream]


def contexts(tmp_path: Path, *, hosts: tuple[str, ...] = ("127.0.0.1",), days: int = 1) -> tuple[ssl.SSLContext, ...]:
    path = tmp_path / "own.pem"
    path.write_text("".join(AUTHORITY.issue("broker", hosts, lifetime=datetime.timedelta(days=days))))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=AUTHORITY.certificate)
    return server, client


async def connected() -> tuple[Stream, Stream]:
    """Return both ends of a connection, the taken one first."""
    taken: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    door = Door(lambda stream, _host: taken.set_result(stream), lambda: 1 << 30, lambda _why: None)
    listening = await SocketNetwork().listen("127.0.0.1", 0, door)
    made = await SocketNetwork().connect("127.0.0.1", listening.port)
    stream = await taken
    listening.close()
    return stream, made


async def secured(tmp_path: Path, **facts: Any) -> Pair:
    server_context, client_context = contexts(tmp_path, **facts)
    taken, made = await connected()
    server = TlsStream(taken, server_context, server_side=True)
    client = TlsStream(made, client_context, host="127.0.0.1")
    try:
        await asyncio.gather(server.handshake(), client.handshake())
    except BaseException:
        server.close()
        client.close()
        raise
    return server, client


def run(work: Coroutine[Any, Any, object]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


class Bytes:
    """A file without a descriptor."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def fileno(self) -> None:
        return None

    def read_at(self, position: int, length: int) -> bytes:
        return self.data[position : position + length]


async def test_writes_of_any_sizes_arrive_unchanged(tmp_path: Path) -> None:
    server, client = await secured(tmp_path)
    draw = random.Random(5)
    pieces = [draw.randbytes(size) for size in (0, 1, 100, 16_384, 16_385, 300_000, 3, 0, 700_000)]
    sent = b"".join(pieces)

    async def write() -> None:
        left = client.write_now(pieces)
        while left:
            await client.write(left)
            left = ()
        await client.send_file(Bytes(sent), 5, len(sent) - 5)
        client.close()

    async def read() -> bytes:
        found, buffer = bytearray(), memoryview(bytearray(50_000))
        found += await server.read(7)
        while count := await server.read_into(buffer):
            found += buffer[:count]
        return bytes(found)

    _, found = await asyncio.gather(write(), read())
    assert found == sent + sent[5:]
    assert client.is_closed
    server.close()


async def test_a_listener_is_called_for_bytes_that_were_decrypted_before(tmp_path: Path) -> None:
    server, client = await secured(tmp_path)
    found, done, buffer = bytearray(), asyncio.Event(), memoryview(bytearray(1000))

    def arrived() -> None:  # takes less at a time than a record has
        count = server.read_now(buffer)
        found.extend(buffer[: count or 0])
        if len(found) == 500_000:
            done.set()

    server.listen(arrived)
    await client.write([b"x" * 500_000])
    await done.wait()
    server.close()
    client.close()


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"hosts": ("kafka.example",)}, "IP address mismatch"),
        ({"days": -1}, "certificate has expired"),
    ],
)
def test_a_client_refuses_a_certificate_of_another_host_and_one_that_has_expired(
    tmp_path: Path, facts: dict[str, Any], says: str
) -> None:
    with pytest.raises(SecurityError, match=f"its certificate is not accepted: .*{says}"):
        run(secured(tmp_path, **facts))


@pytest.mark.parametrize("first", [b"\0\0\0\x12\0\x12", b"GET / HTTP/1.1\r\n"])
async def test_plain_bytes_at_a_tls_listener_are_reported_as_such_in_one_line(tmp_path: Path, first: bytes) -> None:
    taken, made = await connected()
    await made.write([first])
    with pytest.raises(SecurityError, match="plain bytes on a TLS listener") as refused:
        await TlsStream(taken, contexts(tmp_path)[0], server_side=True).handshake()
    assert "\n" not in str(refused.value)
    taken.close()
    made.close()


async def test_a_handshake_that_is_cut_is_a_lost_connection(tmp_path: Path) -> None:
    taken, made = await connected()
    await made.write([b"\x16\x03\x01\x02\x00\x01"])
    made.close()
    with pytest.raises(NetworkError, match="inside the TLS handshake"):
        await TlsStream(taken, contexts(tmp_path)[0], server_side=True).handshake()
    taken.close()


async def test_bytes_that_are_no_record_end_the_handshake(tmp_path: Path) -> None:
    taken, made = await connected()
    await made.write([b"\x16" + bytes(range(200))])
    with pytest.raises(SecurityError, match="TLS: "):
        await TlsStream(taken, contexts(tmp_path)[0], server_side=True).handshake()
    taken.close()
    made.close()


async def test_a_client_that_refuses_a_certificate_without_an_alert_is_reported_as_such(tmp_path: Path) -> None:
    """Kafka 2.8.2 on Java 17 sends its first message again, of which six bytes are overwritten."""
    change = b"\x14\x03\x03\x00\x01\x01"

    server_context, client_context = contexts(tmp_path)
    taken, made = await connected()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    await made.write([hello])
    handshake = asyncio.create_task(TlsStream(taken, server_context, server_side=True).handshake())
    await made.read(1 << 16)
    await made.write([change + change + hello[len(change) :]])
    said = "TLS: wrong version number after the broker's certificate was sent: does the client trust it"
    with pytest.raises(SecurityError, match=said):
        await handshake
    taken.close()
    made.close()
