"""TLS over any `Stream`: reads are decrypted and writes encrypted, in pieces that fit TLS records.

OpenSSL works on memory instead of a socket, so that it also runs on simulated networks. Its own messages, such as key
updates requested by the peer or the refusal of a renegotiation, are sent before the next read, or with a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, cast

from magicbyte.access.net.stream import Buffer, SendableFile, Stream, read_cached
from magicbyte.engine.errors import NetworkError, SecurityError

_READ_BYTES: Final = 64 << 10
_WRITE_BYTES: Final = 256 << 10  # encrypted before they are sent
_JOINED: Final = 16 << 10  # small buffers up to this total share a TLS record
_TURNS: Final = 16  # consecutive reads before other connections are served
_HANDSHAKE: Final = 22  # the first byte of every TLS connection
_WITHOUT_ALERT: Final = frozenset({"UNEXPECTED_MESSAGE", "WRONG_VERSION_NUMBER"})
"""OpenSSL's reasons for what Java clients send in place of an alert if they refuse a certificate.

Kafka 2.8.2 sends its first message again, from a buffer of which the first bytes are overwritten.
"""


class TlsStream:
    """A `Stream` inside TLS over another one. Call `handshake` first."""

    def __init__(
        self, stream: Stream, context: ssl.SSLContext, *, server_side: bool = False, host: str | None = None
    ) -> None:
        """Wrap a stream from which nothing was read. `host`: the name by which the broker was reached."""
        self.peer = stream.peer
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=host)
        self._unsent: Sequence[Buffer] = ()
        self._scratch: memoryview | None = None
        self._gave = self._is_writing = False
        self._is_server = server_side

    async def handshake(self) -> None:
        """Perform the handshake.

        Raises SecurityError if one side does not trust the other, NetworkError if the peer is gone.
        """
        is_first, is_answered = True, False
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                is_answered = not is_first
            except ssl.SSLError as error:
                await self._flush()  # sends the alert
                is_doubted = self._is_server and is_answered and error.reason in _WITHOUT_ALERT
                hint = " after the broker's certificate was sent: does the client trust it?" if is_doubted else ""
                raise SecurityError(f"{self.peer}: {self._why(error)}{hint}") from None
            data = await self._stream.read(_READ_BYTES)
            if not data:
                raise NetworkError(f"{self.peer}: the connection ended inside the TLS handshake")
            if is_first and data[0] != _HANDSHAKE:
                plain = "plain bytes on a TLS listener: is the client's security.protocol SSL or SASL_SSL?"
                other = "the broker does not speak TLS at this port: is security.protocol PLAINTEXT there?"
                raise SecurityError(f"{self.peer}: {plain if self._is_server else other}")
            is_first = False
            self._incoming.write(data)
        await self._flush()

    @property
    def moved(self) -> int:
        """Bytes in both directions, encrypted."""
        return self._stream.moved

    @property
    def subject(self) -> Sequence[Sequence[tuple[str, str]]]:
        """The subject of the peer's certificate; empty if it has shown none."""
        certificate = self._tls.getpeercert() or {}
        return cast("Sequence[Sequence[tuple[str, str]]]", certificate.get("subject", ()))

    @property
    def is_closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._stream.is_closed

    @property
    def is_abandoned(self) -> bool:
        """Return whether the peer has ended its direction, as far as the system knows; bytes before the end are not
        read.
        """
        return self._stream.is_abandoned

    async def read(self, size: int) -> bytes:
        """Return the bytes that have arrived, at least one and at most `size`; b"" at the end of the stream."""
        while (found := self._decrypted(size)) is None:
            self._reply()
            self._take(await self._stream.read(_READ_BYTES))
        return found

    async def read_into(self, buffer: memoryview) -> int:
        """Fill the start of `buffer` with arrived bytes; return their number, 0 at the end of the stream."""
        while (count := self._decrypted_into(buffer)) is None:
            self._reply()
            self._take(await self._stream.read(_READ_BYTES))
        return count

    def read_now(self, buffer: memoryview) -> int | None:
        """Read as `read_into` does, or return None if nothing has arrived."""
        while (count := self._decrypted_into(buffer)) is None:
            self._reply()
            if self._scratch is None:
                self._scratch = memoryview(bytearray(_READ_BYTES))
            got = self._stream.read_now(self._scratch)
            if got is None:
                return None
            self._take(self._scratch[:got])
        self._gave = count > 0
        return count

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` whenever there is something to read, instead of waiting in `read`."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            for _ in range(_TURNS):  # already decrypted bytes do not make the socket readable
                self._gave = False
                arrived()
                if not self._gave or self.is_closed:
                    return
            loop.call_soon(again)

        def again() -> None:
            if not self.is_closed:
                readable()

        self._stream.listen(readable)
        loop.call_soon(again)

    async def write(self, buffers: Sequence[Buffer], *, more: bool = False) -> None:
        """Send all of `buffers`, one after the other. `more`: further bytes follow immediately."""
        await self._flush()
        for each in _joined(buffers):
            self._encrypt(each)
            if self._outgoing.pending >= _WRITE_BYTES:
                await self._flush(more=True)
        await self._flush(more=more)

    def write_now(self, buffers: Sequence[Buffer], *, more: bool = False) -> Sequence[Buffer]:
        """Send as much of `buffers` as the system accepts without waiting; return the rest.

        If encrypted bytes are left, the result contains an empty buffer, so that the caller writes again.
        """
        waiting = list(_joined(buffers))
        for at, each in enumerate(waiting):
            if self._unsent:
                return waiting[at:]
            self._encrypt(each)
            self._unsent = self._stream.write_now([*self._unsent, self._outgoing.read()], more=more)
        return [b""] if self._unsent else []

    async def send_file(self, file: SendableFile, position: int, count: int, executor: Executor | None = None) -> None:
        """Send `count` bytes of `file` from `position` on, read by threads of `executor` and encrypted."""
        loop, end, descriptor = asyncio.get_running_loop(), position + count, file.fileno()
        scratch = memoryview(bytearray(min(count, _WRITE_BYTES)))
        while position < end:
            wanted = scratch[: end - position]
            have = 0 if descriptor is None else read_cached(descriptor, position, wanted)
            piece: Buffer = wanted[:have]
            if not have:
                piece = await loop.run_in_executor(executor, file.read_at, position, len(wanted))
            if not len(piece):
                raise NetworkError(f"{self.peer}: the file to send has {end - position} bytes less than promised")
            await self.write([piece], more=position + len(piece) < end)
            position += len(piece)
            if position < end:
                await asyncio.sleep(0)  # others have their turn, however fast the peer is

    async def aclose(self) -> None:
        """Close the connection, as `close` does."""
        self.close()

    def close(self) -> None:
        """Close the connection in any state. A waiting reader or writer gets a NetworkError."""
        if not self.is_closed and not self._unsent:
            with contextlib.suppress(ssl.SSLError):  # without waiting for the peer's close_notify
                self._tls.unwrap()
            with contextlib.suppress(NetworkError):
                self._stream.write_now([self._outgoing.read()])
        self._stream.close()

    def abort(self) -> None:
        """Reset the connection: close it and drop the bytes that the system has not sent yet."""
        self._stream.abort()

    async def _flush(self, *, more: bool = False) -> None:
        unsent, self._unsent = self._unsent, ()
        if unsent or self._outgoing.pending:
            self._is_writing = True
            try:
                await self._stream.write([*unsent, self._outgoing.read()], more=more)
            finally:
                self._is_writing = False

    def _reply(self) -> None:
        """Send OpenSSL's own messages, unless a write is in progress: two would mix their bytes."""
        if self._outgoing.pending and not self._is_writing and not self._unsent:
            self._unsent = self._stream.write_now([self._outgoing.read()])

    def _encrypt(self, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        try:
            while len(view):
                view = view[self._tls.write(view) :]
        except ssl.SSLError as error:
            raise NetworkError(f"{self.peer}: {self._why(error)}") from None

    def _take(self, data: Buffer) -> None:
        if len(data):
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _decrypted(self, size: int) -> bytes | None:
        try:
            data = self._tls.read(size)
        except ssl.SSLWantReadError:
            return None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):  # frames have sizes, so a truncation is detected there
            return b""
        except ssl.SSLError as error:
            raise SecurityError(f"{self.peer}: {self._why(error)}") from None
        if data and len(data) < size and self._incoming.pending:
            more = bytearray(min(size - len(data), self._incoming.pending))
            return data + more[: self._decrypted_into(memoryview(more)) or 0]
        return data

    def _decrypted_into(self, buffer: memoryview) -> int | None:
        """Decrypt all received records. OpenSSL returns one at a time, and many clients send records of 1 or 2 KB."""
        read, have, size = self._tls.read, 0, len(buffer)
        try:
            while have < size:
                count: int = read(size - have, buffer[have:])  # type: ignore[assignment]  # with a buffer
                have += count
                if not count or not self._incoming.pending:
                    break
        except ssl.SSLWantReadError:
            return have or None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return have  # where it is more than 0 the next call comes here again
        except ssl.SSLError as error:
            raise SecurityError(f"{self.peer}: {self._why(error)}") from None
        return have

    @staticmethod
    def _why(error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {error.verify_message}"
        reason = (error.reason or str(error)).lower().replace("_", " ")
        # of "sslv3 alert certificate expired", which OpenSSL also reports for TLS 1.3
        _, is_alert, alert = reason.partition(" alert ")
        return f"TLS: the peer ended the handshake: {alert}" if is_alert else f"TLS: {reason}"


def _joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield buffers, with small neighbours joined: each makes separate TLS records."""
    small: list[Buffer] = []
    size = 0
    for buffer in buffers:
        length = buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)
        if size + length > _JOINED and small:
            yield b"".join(small)
            small, size = [], 0
        if length > _JOINED:
            for at in range(0, length, _WRITE_BYTES):
                yield memoryview(buffer).cast("B")[at : at + _WRITE_BYTES]
        elif length:
            small.append(buffer)
            size += length
    if small:
        yield b"".join(small)
