"""One connection to a broker with pipelined requests, each in a version that both sides support."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from magicbyte.access.client.login import NO_CREDENTIALS, Credentials, log_in
from magicbyte.access.client.versions import RELEASE_0_8_2, RELEASE_0_9, BrokerVersions, versions_told
from magicbyte.access.net.network import Network, SocketNetwork
from magicbyte.access.net.stream import Buffer, Stream
from magicbyte.access.net.tls import TlsStream
from magicbyte.engine.errors import BrokerError, ErrorCode, MagicbyteError, NetworkError, ProtocolError, SecurityError
from magicbyte.engine.protocol import APIS, Api, Frames, Message, read_response, write_request
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.framing import correlation_id_of, framed
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.protocol.messages.response_header import ResponseHeader

READ_BYTES: Final = 64 << 10
LARGEST_RESPONSE: Final = 128 << 20  # more than the limits of fetches
IN_FLIGHT: Final = 8  # requests per connection without a response yet; more wait
SILENCE_MS: Final = 500  # after which a broker may be a 0.9, and is sent a request that it knows

_NAME, _VERSION = "magicbyte", "0.1"
_TLS_ALERT: Final = b"\x15\x03"
RENEWED_AT: Final = 0.85  # of an authentication's lifetime


class _Answer(NamedTuple):
    """A request that waits for its response, of the class `kind`. `deadline` is by the loop's clock."""

    future: asyncio.Future[Message]
    kind: type[Message]
    deadline: float
    timeout_ms: int


class _Waiting(NamedTuple):
    api: Api
    version: int
    correlation_id: int
    answer: _Answer


class Connection:
    """An open connection to a broker whose versions are known. `name` is the broker's, for messages.

    Any number of tasks may send. If the connection fails in any way, all of them get a NetworkError, and it is unusable
    (`is_closed`). Memory: `IN_FLIGHT` requests, and one response of up to `LARGEST_RESPONSE` at a time.
    """

    def __init__(self, stream: Stream, *, name: str, client_id: str) -> None:
        self.name = name
        self.versions = BrokerVersions({})
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._stream = stream
        self._frames = Frames(LARGEST_RESPONSE, reused=True)
        self._arrived = deque[memoryview]()
        self._first_bytes = memoryview(bytearray(READ_BYTES))
        self._correlation_id = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._outgoing = deque[tuple[Sequence[Buffer], asyncio.Future[None] | None]]()
        self._something_to_send = asyncio.Event()
        self._waiting = deque[_Waiting]()
        self._chosen: dict[tuple[int, range | None], int] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._failure: NetworkError | None = None
        self._writer: asyncio.Task[None] | None = None
        # to a broker that ignores ApiVersions; before an authentication it would close the connection
        self._may_ask_more = True
        self._expires: float | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        name: str | None = None,
        timeout_ms: int = 10_000,
        network: Network | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> Self:
        """Connect, negotiate versions, and authenticate. Raises NetworkError, SecurityError.

        If a broker closes the connection at ApiVersions, its oldest version is tried on a new one; if that is closed as
        well, the broker is assumed to be a 0.8.2.
        """
        for version in (APIS[ApiKey.API_VERSIONS].versions[-1], 0, None):
            stream = await (network or SocketNetwork()).connect(host, port, timeout_ms=timeout_ms)
            is_told = False
            self = cls(stream, name=name or stream.peer, client_id=client_id)
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self.encrypt(credentials, host)
                    self._may_ask_more = credentials.login is None
                    self.versions = RELEASE_0_8_2 if version is None else await self.negotiate(version)
                    is_told = credentials.login is not None  # failures from here on are not about versions
                    await self.log_in(credentials)
            except BaseException as error:
                await stream.aclose()
                if isinstance(error, NetworkError) and version is not None and not is_told:
                    continue
                if isinstance(error, TimeoutError):
                    what = "the login" if is_told else "ApiVersions"
                    raise NetworkError(f"{self.name}: no answer to {what} within {timeout_ms} ms") from None
                raise
            self.begin()
            return self
        raise AssertionError("the last attempt asks nothing")

    async def encrypt(self, credentials: Credentials, host: str) -> None:
        """Start TLS, if configured, before anything is sent. `open` calls it. Raises SecurityError, NetworkError."""
        if credentials.context is not None:
            self._stream = tls = TlsStream(self._stream, credentials.context, host=host)
            await tls.handshake()

    async def log_in(self, credentials: Credentials) -> None:
        """Authenticate, if configured, when the versions are known. `open` calls it. Raises as `login.log_in` does."""
        if credentials.login is not None:
            lifetime_ms = await log_in(self, credentials.login)
            if lifetime_ms:
                self._expires = self._loop.time() + lifetime_ms * RENEWED_AT / 1000

    def begin(self) -> None:
        """Start sending and receiving. `open` calls it; other callers set `versions` first."""
        self._writer = asyncio.create_task(self._send_all())
        self._stream.listen(self._receive)

    @property
    def is_closed(self) -> bool:
        """Whether the connection failed or was closed."""
        return self._failure is not None

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a response has come."""
        return self._frames.has_begun

    @property
    def is_stale(self) -> bool:
        """Whether its authentication expires soon: further requests need another connection."""
        return self._expires is not None and self._loop.time() >= self._expires

    async def retire(self) -> None:
        """Close the connection after its pending responses."""
        await asyncio.gather(*(each.answer.future for each in self._waiting), return_exceptions=True)
        await self.aclose()

    async def send(
        self,
        request: Message,
        response: type[Message] | None = None,
        *,
        versions: range | None = None,
        timeout_ms: int = 30_000,
    ) -> Message:
        """Send a request in the latest version that the broker supports, within `versions`; return the response.

        `response`: the class to parse it as, None: the generated one.

        Raises UnsupportedVersionError, the errors of writing the request and parsing the response, and NetworkError if
        the connection fails or the response takes longer than `timeout_ms`: then the connection is closed.
        """
        api = self._api(request)
        version = self._version(api, versions)
        deadline = self._loop.time() + timeout_ms / 1000
        await self._slot(api, deadline, timeout_ms)
        answer: asyncio.Future[Message] = self._loop.create_future()
        try:
            self._enqueue(request, api, version, _Answer(answer, response or api.response, deadline, timeout_ms))
        except BaseException:
            self._slots.release()
            raise
        return await answer

    async def send_unanswered(self, request: Message, *, versions: range | None = None) -> None:
        """Send a request without a response: Produce with acks=0. Returns when the system has it."""
        api = self._api(request)
        version = self._version(api, versions)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with self._slots:
            self._enqueue(request, api, version, sent=sent)
            await sent

    def abort(self) -> None:
        """Fail pending requests. If there are any, reset the connection, so that no more of them is delivered."""
        self._fail(NetworkError(f"{self.name}: the connection was closed"), is_reset=bool(self._waiting))

    async def aclose(self) -> None:
        """Close the connection; pending requests get a NetworkError."""
        self._fail(NetworkError(f"{self.name}: the connection was closed"))
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)
        await self._stream.aclose()

    # ---- the two directions

    def _version(self, api: Api, wanted: range | None) -> int:
        version = self._chosen.get((api.key, wanted))
        if version is None:
            version = self._chosen[api.key, wanted] = self.versions.choose(api, wanted, self.name)
        return version

    @staticmethod
    def _api(request: Message) -> Api:
        assert request.API_KEY is not None, "a request has a key"
        return APIS[request.API_KEY]

    async def _slot(self, api: Api, deadline: float, timeout_ms: int) -> None:
        """Wait for a free slot."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            failure = self._silence(api, timeout_ms)
            self._fail(failure, is_reset=True)
            raise failure from None

    def _enqueue(
        self,
        request: Message,
        api: Api,
        version: int,
        answer: _Answer | None = None,
        sent: asyncio.Future[None] | None = None,
    ) -> None:
        """Send a request, without waiting as far as the system accepts it, which is usually all of it."""
        if self._failure is not None:
            raise self._failure
        buffers = self._frame(request, version)
        if answer is not None:
            self._waiting.append(_Waiting(api, version, self._correlation_id, answer))
            self._watch(answer.deadline)
        if not self._outgoing:
            try:
                buffers = self._stream.write_now(buffers)
            except NetworkError as error:
                self._fail(error)
                if answer is None:
                    raise
                return
        if buffers:
            self._outgoing.append((buffers, sent))
            self._something_to_send.set()
        elif sent is not None:
            sent.set_result(None)

    def _frame(self, request: Message, version: int) -> Sequence[Buffer]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return write_request(request, version, correlation_id=self._correlation_id, client_id=self._client_id).buffers()

    async def _send_all(self) -> None:
        # A task of its own sends the rest: the cancellation of a caller must not leave half a request on the
        # connection.
        try:
            while True:
                await self._something_to_send.wait()
                self._something_to_send.clear()
                while self._outgoing:
                    buffers, sent = self._outgoing[0]  # it stays in the queue meanwhile, so that no other task writes
                    await self._stream.write(buffers)
                    self._outgoing.popleft()
                    if sent is not None and not sent.done():
                        sent.set_result(None)
        except NetworkError as error:
            self._fail(error)

    def _receive(self) -> None:
        """Receive bytes: a part of a response with its own buffer, or the first bytes of one."""
        try:
            room = self._frames.room()
            count = self._stream.read_now(self._first_bytes if room is None else room)
            if count == 0:
                raise _closed(self.name)
            if count is not None and room is None:
                self._arrived.extend(self._frames.feed(bytes(self._first_bytes[:count])))
            elif count is not None and (frame := self._frames.filled(count)) is not None:
                self._arrived.append(frame)
            while self._arrived:
                self._slots.release()
                self._take(self._arrived.popleft())
        except NetworkError as error:
            self._fail(error)
        except MagicbyteError as error:
            self._fail(NetworkError(f"{self.name}: {error}"))

    def _watch(self, deadline: float) -> None:
        """Check at that time, or earlier, whether a response is late."""
        if self._alarm is not None and self._alarm.when() > deadline:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._alarm, now = None, self._loop.time()
        waiting = [each for each in self._waiting if not each.answer.future.done()]
        late = next((each for each in waiting if each.answer.deadline <= now), None)
        if late is not None:
            self._fail(self._silence(late.api, late.answer.timeout_ms), is_reset=True)
        elif waiting:
            self._watch(min(each.answer.deadline for each in waiting))

    def _silence(self, api: Api, timeout_ms: int) -> NetworkError:
        return NetworkError(f"{self.name}: no response to {api.name} within {timeout_ms} ms")

    def _take(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("a response", expected="a request before it", found=f"{len(frame)} bytes", position=0)
        waiting = self._waiting.popleft()
        answer, correlation_id = waiting.answer.future, correlation_id_of(frame)
        if correlation_id != waiting.correlation_id:
            if not answer.done():
                answer.set_exception(NetworkError(f"{self.name}: responses are out of order"))
            raise ProtocolError("correlation id", expected=waiting.correlation_id, found=correlation_id, position=0)
        if answer.done():  # the caller was cancelled
            return
        try:
            _, response = read_response(frame, waiting.api, waiting.version, waiting.answer.kind)
        except MagicbyteError as error:
            answer.set_exception(error)
        else:
            answer.set_result(response)

    async def exchange(self, request: Message, version: int) -> Message:
        """Return the response to a request, before `begin`. Raises NetworkError, ProtocolError."""
        await self._stream.write(self._frame(request, version))
        frame = await self._next_frame()
        if (correlation_id := correlation_id_of(frame)) != self._correlation_id:
            raise ProtocolError("correlation id", expected=self._correlation_id, found=correlation_id, position=0)
        return read_response(frame, self._api(request), version)[1]

    async def exchange_raw(self, token: bytes) -> bytes:
        """Send a frame that is not a request, and return the response frame, before `begin`. Raises NetworkError."""
        await self._stream.write(framed(token))
        return bytes(await self._next_frame())

    async def _next_frame(self) -> memoryview:
        """Return the next frame, before `_receive` runs."""
        while not self._arrived:
            data = await self._stream.read(READ_BYTES)
            if not data:
                raise _closed(self.name)
            if data.startswith(_TLS_ALERT):  # as a size, it would be impossible
                raise SecurityError(
                    f"{self.name}: the broker expects TLS on this port: set security.protocol to SSL or SASL_SSL"
                )
            self._arrived.extend(self._frames.feed(data))
        return self._arrived.popleft()

    def _fail(self, failure: NetworkError, *, is_reset: bool = False) -> None:
        """End the connection. `is_reset`: drop the requests that were abandoned, which are repeated elsewhere."""
        if self._failure is not None:
            return
        self._failure = failure
        if self._alarm is not None:
            self._alarm.cancel()
        for waiting in self._waiting:
            if not waiting.answer.future.done():
                waiting.answer.future.set_exception(failure)
            self._slots.release()  # waiters are woken one by one, and fail
        for _, sent in self._outgoing:
            if sent is not None and not sent.done():
                sent.set_exception(failure)
        self._waiting.clear()
        self._outgoing.clear()
        if is_reset:
            self._stream.abort()
        else:
            self._stream.close()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()

    # ---- version negotiation

    async def negotiate(self, version: int) -> BrokerVersions:
        """Return the versions that the broker supports.

        `open` calls it. Raises NetworkError, BrokerError, ProtocolError.
        """
        # Before `_receive` runs: only this request may remain without a response.
        response = await self._ask_versions(version)
        if response is not None and response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = [each.max_version for each in response.api_keys if each.api_key == ApiKey.API_VERSIONS]
            response = await self._ask_versions(min(theirs[0], version) if theirs else 0)
        if response is None:
            return RELEASE_0_9
        if response.error_code:
            raise BrokerError("ApiVersions", response.error_code, broker=self.name)
        return versions_told(response)

    async def _ask_versions(self, version: int) -> ApiVersionsResponse | None:
        """Return the response, possibly an error in version 0, or None if the broker does not know the request."""
        request = ApiVersionsRequest()
        if version >= 3:
            request = ApiVersionsRequest(client_software_name=_NAME, client_software_version=_VERSION)
        await self._stream.write(self._frame(request, version))
        asked = self._correlation_id
        reading = asyncio.ensure_future(self._next_frame())
        try:
            await asyncio.wait([reading], timeout=SILENCE_MS / 1000)
            if not reading.done() and self._may_ask_more:  # the network is slow, or the broker ignores unknown requests
                await self._stream.write(self._frame(HeartbeatRequest(group_id="magicbyte"), 0))
            frame = await reading
            header, _ = ResponseHeader.read_at(frame, 0, 0)
            if header.correlation_id != asked:
                return None
            if self._correlation_id != asked:
                await self._next_frame()  # the late response to the earlier request
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, NetworkError):
                await reading
        failed = len(frame) >= 6 and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
        _, response = read_response(frame, APIS[ApiKey.API_VERSIONS], 0 if failed else version)
        assert isinstance(response, ApiVersionsResponse)
        return response


def _closed(name: str) -> NetworkError:
    return NetworkError(f"{name}: the broker closed the connection")
