"""What connections of a secured listener pass: TLS, then a login by SASL, as Kafka 2.8 and later take it.

Before the login is over only ApiVersions, SaslHandshake and SaslAuthenticate are answered, frames are small, and the
server bounds how long that takes and how many are in it at once. Whoever is refused waits for the answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from magicbyte.broker.listener_security import ListenerSecurity, security_of
from magicbyte.broker.request import ClientConnection
from magicbyte.broker.scram_users import credential_of
from magicbyte.errors import ErrorCode, MagicbyteError, NetworkError, ProtocolError, SecurityError
from magicbyte.net.server import Entered, Handler, Incoming, PeerLimits
from magicbyte.net.tls import TlsStream
from magicbyte.protocol import Message, read_request_header, write_response
from magicbyte.protocol.api import API_VERSIONS
from magicbyte.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from magicbyte.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from magicbyte.security.names import distinguished_name
from magicbyte.security.principal import Principal
from magicbyte.security.sasl import PLAIN
from magicbyte.security.server import LoginRefusedError, PlainServer, ScramServer, ServerMechanism

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.listeners import Listener
    from magicbyte.net.server import Entrance
    from magicbyte.net.stream import Stream
    from magicbyte.protocol.messages.request_header import RequestHeader

M = TypeVar("M", bound=Message)

HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
_LIMITS: Final = PeerLimits(largest_frame=512 << 10)
_MOST_STEPS: Final = 16  # requests before a login is over
_FIRST_WITH_SOFTWARE: Final = 3


def entrances(broker: Broker) -> dict[str, Entrance]:
    """Return what connections pass, by name of the listener; PLAINTEXT ones have none. Reads files.

    Raises InvalidConfigError.
    """
    return {
        each.name: partial(_enter, broker, each, security_of(each, broker.config.static))
        for each in broker.config.listeners
        if each.security_protocol != "PLAINTEXT"
    }


async def _enter(broker: Broker, listener: Listener, security: ListenerSecurity, stream: Stream, host: str) -> Entered:
    subject: Sequence[Sequence[tuple[str, str]]] = ()
    if security.context is not None:
        stream = tls = TlsStream(stream, security.context, server_side=True)
        await tls.handshake()
        subject = tls.subject
    connection = ClientConnection(host, stream.peer, listener)
    incoming = Incoming(stream, _LIMITS, broker.memory)
    handler = broker.handler_of(connection)
    if security.mechanisms:
        login = _Login(broker, security, connection, stream, incoming, handler)
        connection.principal = Principal("User", await login.run())
    elif subject:
        connection.principal = Principal("User", distinguished_name(subject))
    return Entered(stream, incoming, handler)


class _Login:
    """A login on one connection."""

    def __init__(
        self, broker: Broker, security: ListenerSecurity, connection: ClientConnection, stream: Stream,
        incoming: Incoming, handler: Handler,
    ) -> None:  # fmt: skip
        self._broker, self._security, self._connection = broker, security, connection
        self._stream, self._incoming, self._handler = stream, incoming, handler

    async def run(self) -> str:
        """Return the user's name. Raises SecurityError, ProtocolError, NetworkError, when all was said to the peer."""
        mechanism, wraps = await self._agree()
        conversation: ServerMechanism
        if mechanism == PLAIN:
            conversation = PlainServer(self._security.passwords.get)
        else:
            known = partial(credential_of, self._broker.metadata, mechanism)
            conversation = ScramServer(mechanism, known, secrets.token_urlsafe(24))
        for _ in range(_MOST_STEPS):
            await (self._step if wraps else self._raw_step)(conversation)
            if conversation.user is not None:
                return conversation.user
        raise SecurityError(f"{self._stream.peer}: the login by {mechanism} does not come to an end")

    async def _agree(self) -> tuple[str, bool]:
        """Return the mechanism, and whether its tokens come in requests."""
        is_told = False
        for _ in range(_MOST_STEPS):
            frame = await self._frame()
            try:
                api, header, at = read_request_header(frame)
            except MagicbyteError as error:
                await self._hold_back()
                raise SecurityError(f"{self._stream.peer}: expected a login, found no request: {error}") from None
            if api.key == API_VERSIONS and not is_told:
                is_told = await self._tell_versions(frame, header)
                continue
            if api.key != HANDSHAKE:
                await self._hold_back()
                raise SecurityError(f"{self._stream.peer}: expected a login, found {api.name}")
            request = self._read(SaslHandshakeRequest, frame, header, at)
            enabled = list(self._security.mechanisms)
            if request.mechanism in enabled:
                await self._answer(SaslHandshakeResponse(mechanisms=enabled), header)
                return request.mechanism, header.request_api_version > 0
            await self._hold_back()
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            await self._answer(SaslHandshakeResponse(error_code=code, mechanisms=enabled), header)
            raise SecurityError(f"{self._stream.peer}: mechanism {request.mechanism[:40]!r} is not enabled")
        raise SecurityError(f"{self._stream.peer}: the login does not begin")

    async def _tell_versions(self, frame: memoryview, header: RequestHeader) -> bool:
        """Answer ApiVersions as always; say whether it was answered well."""
        answer = await self._handler(frame) or ()
        await self._stream.write([part for part in answer if isinstance(part, bytes | bytearray | memoryview)])
        version = header.request_api_version
        if self._broker.offer.answers(API_VERSIONS, version) is None:
            return False
        return version < _FIRST_WITH_SOFTWARE or self._connection.software_name != ""

    async def _step(self, conversation: ServerMechanism) -> None:
        """Take a token in a request."""
        frame = await self._frame()
        api, header, at = read_request_header(frame)
        if api.key != AUTHENTICATE:
            await self._hold_back()
            raise SecurityError(f"{self._stream.peer}: expected SaslAuthenticate, found {api.name}")
        token = self._read(SaslAuthenticateRequest, frame, header, at).auth_bytes
        try:
            answer = await self._evaluated(conversation, bytes(token))
        except LoginRefusedError as error:
            await self._hold_back()
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            await self._answer(SaslAuthenticateResponse(error_code=code, error_message=str(error)), header)
            raise self._refused(conversation, error) from None
        await self._answer(SaslAuthenticateResponse(error_message="", auth_bytes=answer), header)

    async def _raw_step(self, conversation: ServerMechanism) -> None:
        """Take a token as it is, as clients before 1.0 send it."""
        try:
            answer = await self._evaluated(conversation, bytes(await self._frame()))
        except LoginRefusedError as error:
            await self._hold_back()
            raise self._refused(conversation, error) from None
        await self._stream.write([len(answer).to_bytes(4, "big"), answer])

    async def _evaluated(self, conversation: ServerMechanism, token: bytes) -> bytes:
        return await self._broker.reading.run(conversation.evaluate, token)  # the tree may be elsewhere

    def _read(self, kind: type[M], frame: memoryview, header: RequestHeader, at: int) -> M:
        version = header.request_api_version
        if version not in kind.VALID_VERSIONS:
            raise ProtocolError(f"version of {kind.__name__}", expected=kind.VALID_VERSIONS, found=version, position=2)
        return kind.read_at(frame, at, version)[0]

    async def _answer(self, response: Message, header: RequestHeader) -> None:
        written = write_response(response, header.request_api_version, correlation_id=header.correlation_id)
        await self._stream.write(written.buffers())

    async def _frame(self) -> memoryview:
        self._incoming.release()
        frame = await self._incoming.next()
        if frame is None:
            raise NetworkError(f"{self._stream.peer}: the connection ended before a login")
        return frame

    async def _hold_back(self) -> None:
        await asyncio.sleep(self._broker.config.connection_failed_authentication_delay_ms / 1000)

    def _refused(self, conversation: ServerMechanism, error: LoginRefusedError) -> SecurityError:
        return SecurityError(f"{self._stream.peer}: the login by {conversation.name} is refused: {error}")
