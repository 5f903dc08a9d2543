"""Logins, byte by byte."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable

from magicbyte.access.net.stream import SocketStream, Stream
from magicbyte.access.net.tls import TlsStream
from magicbyte.engine.errors import NetworkError
from magicbyte.testing import Broker

HANDSHAKE_V1, HANDSHAKE_V0 = "0011000100000001000163", "0011000000000001000163"


class Raw:
    """A connection that sends frames as they are."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @classmethod
    async def to(cls, broker: Broker, listener: str | None = None) -> Raw:
        host, _, port = (broker.bootstrap_servers if listener is None else broker.address(listener)).rpartition(":")
        stream: Stream = await SocketStream.connect(host, int(port))
        security = broker.security
        if security is not None and security.authority is not None:
            context = ssl.create_default_context(cafile=security.authority)
            tls = TlsStream(stream, context, host=host)
            await tls.handshake()
            stream = tls
        return cls(stream)

    async def ask(self, frame: bytes | str) -> bytes:
        """Return the frame that answers one, b"" where the connection ends."""
        data = bytes.fromhex(frame) if isinstance(frame, str) else frame
        await self.stream.write([struct.pack(">i", len(data)), data])
        return await self.answer()

    async def answer(self) -> bytes:
        found = b""
        while len(found) < 4 or len(found) < 4 + struct.unpack_from(">i", found)[0]:
            try:
                more = await self.stream.read(65536)
            except NetworkError:
                more = b""
            if not more:
                assert not found
                return b""
            found += more
        return found[4:]

    async def shake(self, mechanism: str = "PLAIN", head: str = HANDSHAKE_V1) -> bytes:
        return await self.ask(bytes.fromhex(head) + struct.pack(">h", len(mechanism)) + mechanism.encode())

    async def authenticate(self, token: bytes, version: int = 1) -> bytes:
        return await self.ask(bytes.fromhex(f"0024{version:04x}00000002000163") + struct.pack(">i", len(token)) + token)

    async def scram(self, first: str, final: Callable[[str], str]) -> tuple[bytes, bytes]:
        """Return both answers to a login by SCRAM-SHA-256; `final` makes the second token of the challenge."""
        await self.shake("SCRAM-SHA-256")
        challenge = await self.authenticate(first.encode())
        if challenge[4:6] != b"\0\0":
            return challenge, b""
        text = challenge[12:-8].decode()
        return challenge, await self.authenticate(final(text).encode())


def error_of(answer: bytes) -> int:
    return int.from_bytes(answer[4:6], "big")
