"""The authentication of a secured listener's connections: TLS, then SASL, as in Kafka 2.8 and later.

Before it is complete only ApiVersions, SaslHandshake and SaslAuthenticate are answered, frames are small, and the
server bounds its duration and the number of concurrent authentications. The response to a refused client is delayed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magicbyte.access.net.server import AdmittedConnection, Handler, Incoming, PeerLimits
from magicbyte.access.net.tls import TlsStream
from magicbyte.access.security.names import distinguished_name
from magicbyte.access.security.sasl import OAUTHBEARER, PLAIN
from magicbyte.access.security.server import LoginRefusedError, PlainServer, ScramServer, ServerMechanism
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.errors import ErrorCode, MagicbyteError, NetworkError, ProtocolError, SecurityError
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol import Message, read_request_header, write_response
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import API_VERSIONS_WITH_SOFTWARE
from magicbyte.engine.protocol.framing import api_key_of, framed
from magicbyte.engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from magicbyte.engine.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from magicbyte.server.serving.current_files import CurrentFiles
from magicbyte.server.serving.listener_security import ListenerSecurity, security_of
from magicbyte.server.serving.request import ClientConnection

if TYPE_CHECKING:
    from magicbyte.access.net.server import Answer, Entrance
    from magicbyte.access.net.stream import Stream
    from magicbyte.access.security.oauth import TokenRules
    from magicbyte.engine.cluster.scram import Credential
    from magicbyte.engine.protocol.messages.request_header import RequestHeader
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.listeners import Listener

M = TypeVar("M", bound=Message)

log = logger(__name__)

_LIMITS: Final = PeerLimits(largest_frame=512 << 10)
_MOST_STEPS: Final = 16  # requests per authentication
_BETWEEN_LOGINS_MS: Final = 1000  # as in Kafka; an earlier handshake is an ordinary request


class EntranceServices(NamedTuple):
    """The parts of the broker that authentications use.

    `credential_of` returns that of a user for a mechanism, and calls its argument with damage. `secret_of_decoys`
    returns the secret for the challenges of unknown users. `handler_of` returns a connection's request handler.
    """

    runtime: Runtime
    credential_of: Callable[[str, Callable[[str], None], str], Credential | None]
    secret_of_decoys: Callable[[], bytes]
    handler_of: Callable[[ClientConnection], Handler]


def entrances(services: EntranceServices) -> dict[str, Entrance]:
    """Return the authentication of each listener by name; PLAINTEXT ones have none. Reads files, and the tree.

    Raises InvalidConfigError, MetadataError.
    """
    secret = services.secret_of_decoys()
    return {
        each.name: partial(_enter, services, each, CurrentFiles(each, services.runtime, security_of), secret)
        for each in services.runtime.config.listeners
        if each.security_protocol != "PLAINTEXT"
    }


async def _enter(
    services: EntranceServices, listener: Listener, current: CurrentFiles[ListenerSecurity], secret: bytes,
    stream: Stream, host: str,
) -> AdmittedConnection:  # fmt: skip
    security = await current.now()
    subject: Sequence[Sequence[tuple[str, str]]] = ()
    if security.context is not None:
        stream = tls = TlsStream(stream, security.context, server_side=True)
        await tls.handshake()
        subject = tls.subject
    connection = ClientConnection(host, stream.peer, listener)
    incoming = Incoming(stream, _LIMITS, services.runtime.login_memory)
    handler = services.handler_of(connection)
    if security.mechanisms:
        login = _Login(services, security, connection, stream, incoming, handler, secret)
        try:
            await login.run()
        except BaseException:  # the server has no reference to these frames yet
            incoming.release()
            raise
        connection.principal = Principal("User", login.user)
        if login.expires_ms is not None:
            handler = _LimitedLogin(services.runtime, current, login, incoming, handler)
    elif subject:
        connection.principal = Principal("User", security.rules.user_of(distinguished_name(subject)))
    return AdmittedConnection(stream, incoming, handler)


class _LimitedLogin:
    """A connection with an authentication lifetime: handles its requests and re-authentications."""

    def __init__(
        self, runtime: Runtime, current: CurrentFiles[ListenerSecurity], login: _Login, incoming: Incoming,
        handler: Handler,
    ) -> None:  # fmt: skip
        self._runtime, self._current, self._login, self._incoming = runtime, current, login, incoming
        self._handler = handler
        self._again_ms: int | None = None  # start of the last re-authentication

    def __call__(self, frame: memoryview) -> Awaitable[Answer | None]:
        """Return the response to a frame. Raises SecurityError after the lifetime: no response, as in Kafka."""
        now_ms, expires_ms = self._runtime.clock.monotonic_ms(), self._login.expires_ms
        is_early = self._again_ms is not None and now_ms - self._again_ms < _BETWEEN_LOGINS_MS
        if api_key_of(frame) == ApiKey.SASL_HANDSHAKE and not is_early:
            self._again_ms = now_ms
            return self._log_in_again(frame)
        if expires_ms is not None and now_ms > expires_ms:
            raise SecurityError(f"{self._login.peer}: its session has expired, and it did not authenticate again")
        return self._handler(frame)

    async def _log_in_again(self, frame: memoryview) -> None:
        limits = self._incoming.limits
        self._incoming.limits = _LIMITS
        try:
            async with asyncio.timeout(limits.entrance_ms / 1000):
                await self._login.run_again(frame, await self._current.now())
        except TimeoutError:
            raise SecurityError(
                f"{self._login.peer}: it has not authenticated again within {limits.entrance_ms} ms"
            ) from None
        self._incoming.limits = limits


class _Login:
    """The authentication and re-authentications of one connection.

    `user` is set by the first. `expires_ms`: the end of its lifetime by the monotonic clock; None: unlimited.
    """

    def __init__(
        self, services: EntranceServices, security: ListenerSecurity, connection: ClientConnection, stream: Stream,
        incoming: Incoming, handler: Handler, secret_of_decoys: bytes,
    ) -> None:  # fmt: skip
        self._runtime, self._services, self._secret_of_decoys = services.runtime, services, secret_of_decoys
        self._security, self._connection = security, connection
        self._stream, self._incoming, self._handler = stream, incoming, handler
        self._mechanism = self.user = ""
        self.peer = stream.peer
        self.expires_ms: int | None = None

    async def run(self) -> None:
        """Authenticate the peer. Raises SecurityError, ProtocolError, NetworkError, after any response."""
        self._mechanism, wraps = await self._agree()
        self.user = await self._authenticate(self._mechanism, wraps)

    async def run_again(self, frame: memoryview, security: ListenerSecurity) -> None:
        """Handle a handshake, and re-authenticate the same user by the same mechanism. Raises as `run` does.

        `security`: the current one, so that revoked passwords and keys no longer work.
        """
        self._security = security
        _, header, at = read_request_header(frame)
        mechanism = self._read(SaslHandshakeRequest, frame, header, at).mechanism
        if mechanism not in self._security.mechanisms:
            raise SecurityError(f"{self.peer}: mechanism {mechanism[:40]!r} is not enabled")
        await self._answer(SaslHandshakeResponse(mechanisms=list(self._security.mechanisms)), header)
        if mechanism != self._mechanism:
            await self._frame()
            await self._hold_back()
            raise SecurityError(
                f"{self.peer}: it logged in with {self._mechanism} and re-authenticates with {mechanism}"
            )
        await self._authenticate(mechanism, header.request_api_version > 0)

    async def _authenticate(self, mechanism: str, wraps: bool) -> str:
        """Return the user's name after the exchange."""
        conversation: ServerMechanism
        if mechanism == PLAIN:
            conversation = PlainServer(self._security.passwords.get)
        elif mechanism == OAUTHBEARER:
            assert self._security.tokens is not None, "read at the start"
            conversation = self._bearer_conversation(self._security.tokens)
        else:
            known = partial(self._services.credential_of, mechanism, self._teller("damaged credentials", "%s: %s"))
            conversation = ScramServer(
                mechanism,
                known,
                secrets.token_urlsafe(24),
                secret=self._secret_of_decoys,
                takes_prefix=self._runtime.config.offer.takes_prefixed_nonce,
            )
        for _ in range(_MOST_STEPS):
            await (self._step if wraps else self._raw_step)(conversation)
            if conversation.user is not None:
                return conversation.user
        raise SecurityError(f"{self._stream.peer}: the {mechanism} login did not complete")

    async def _agree(self) -> tuple[str, bool]:
        """Return the mechanism, and whether its tokens are in requests."""
        is_told = False
        for _ in range(_MOST_STEPS):
            frame = await self._frame()
            try:
                api, header, at = read_request_header(frame)
            except MagicbyteError as error:
                await self._hold_back()
                raise SecurityError(f"{self._stream.peer}: expected a login, found no request: {error}") from None
            if api.key == ApiKey.API_VERSIONS and not is_told:
                is_told = await self._tell_versions(frame, header)
                continue
            if api.key != ApiKey.SASL_HANDSHAKE:
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
        raise SecurityError(f"{self._stream.peer}: the login did not begin")

    async def _tell_versions(self, frame: memoryview, header: RequestHeader) -> bool:
        """Answer ApiVersions as usual; return whether it succeeded."""
        answer = await self._handler(frame) or ()
        await self._stream.write([part for part in answer if isinstance(part, bytes | bytearray | memoryview)])
        version = header.request_api_version
        if self._runtime.offer.answers(ApiKey.API_VERSIONS, version) is None:
            return False
        return version < API_VERSIONS_WITH_SOFTWARE or self._connection.software_name != ""

    async def _step(self, conversation: ServerMechanism) -> None:
        """Handle a token in a request."""
        frame = await self._frame()
        api, header, at = read_request_header(frame)
        if api.key != ApiKey.SASL_AUTHENTICATE:
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
        lifetime_ms = 0 if conversation.user is None else self._begin_session(conversation)
        response = SaslAuthenticateResponse(error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        await self._answer(response, header)

    async def _raw_step(self, conversation: ServerMechanism) -> None:
        """Handle a token without a header, as clients before 1.0 send it."""
        try:
            answer = await self._evaluated(conversation, bytes(await self._frame()))
        except LoginRefusedError as error:
            await self._hold_back()
            raise self._refused(conversation, error) from None
        if conversation.user is not None:
            self._begin_session(conversation)
        await self._stream.write(framed(answer))

    async def _evaluated(self, conversation: ServerMechanism, token: bytes) -> bytes:
        answer = await self._runtime.reading.run(conversation.evaluate, token)  # it may read the tree
        if self.user and conversation.user not in (None, self.user):
            change = f"User.{self.user}: User.{conversation.user}"
            raise LoginRefusedError(f"Cannot change principals during re-authentication from {change}")
        return answer

    def _begin_session(self, conversation: ServerMechanism) -> int:
        """Return the lifetime of the authentication in ms, 0: unlimited."""
        most_ms = self._security.lifetimes_ms.get(self._mechanism) or None
        limits_ms = [each for each in (most_ms, conversation.lifetime_ms) if each is not None]
        lifetime_ms = min(limits_ms, default=0)
        self.expires_ms = self._runtime.clock.monotonic_ms() + lifetime_ms if limits_ms else None
        return lifetime_ms

    def _bearer_conversation(self, rules: TokenRules) -> ServerMechanism:
        from magicbyte.access.security.oauth import OAuthServer

        return OAuthServer(
            rules, self._runtime.clock.now_ms, self._teller("refused tokens", "%s: a token is refused: %s")
        )

    def _teller(self, kind: str, message: str) -> Callable[[str], None]:
        """Return a function that logs a refusal, rate-limited, callable from any thread."""
        tell = partial(self._runtime.complaints.line, log, self._connection.host, kind, message, self.peer)
        loop = asyncio.get_running_loop()

        def tell_on_loop(why: str) -> None:
            loop.call_soon_threadsafe(tell, why)

        return tell_on_loop

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
        await asyncio.sleep(self._runtime.config.connection_failed_authentication_delay_ms / 1000)

    def _refused(self, conversation: ServerMechanism, error: LoginRefusedError) -> SecurityError:
        return SecurityError(f"{self._stream.peer}: the login by {conversation.name} is refused: {error}")
