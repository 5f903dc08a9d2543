"""A client's authentication: SaslHandshake, then tokens, in requests or, for brokers before 1.0, without headers."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magicbyte.engine.errors import ErrorCode, NetworkError, SecurityError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from magicbyte.engine.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from magicbyte.access.client.versions import BrokerVersions
    from magicbyte.access.security.settings import ClientSecurity, Login
    from magicbyte.engine.protocol import Message

_MOST_STEPS: Final = 8


class Credentials(NamedTuple):
    """The credentials of connections: a TLS context and a login, or None."""

    context: ssl.SSLContext | None
    login: Login | None

    @classmethod
    def of(cls, security: ClientSecurity | None) -> Credentials:
        """Return the credentials of settings. Reads files. Raises InvalidConfigError."""
        return NO_CREDENTIALS if security is None else cls(security.context(), security.login)


NO_CREDENTIALS: Final = Credentials(None, None)


class LoginChannel(Protocol):
    """The connection to authenticate."""

    @property
    def name(self) -> str:
        """The broker's, for errors."""

    @property
    def versions(self) -> BrokerVersions:
        """The versions that the broker supports."""

    async def exchange(self, request: Message, version: int) -> Message:
        """Send a request; return its response."""

    async def exchange_raw(self, token: bytes) -> bytes:
        """Send a token without a header; return the broker's token, as with brokers before 1.0."""


async def log_in(connection: LoginChannel, login: Login) -> int:
    """Authenticate a connection whose versions are known; return its lifetime in ms, 0: unlimited.

    Raises SecurityError if the broker refuses, or does not prove that it knows the password, NetworkError.
    """
    name, versions = connection.name, connection.versions
    handshake, authenticate = (
        versions.latest(APIS[ApiKey.SASL_HANDSHAKE]),
        versions.latest(APIS[ApiKey.SASL_AUTHENTICATE]),
    )
    if handshake is None:
        raise SecurityError(f"{name}: the broker does not support SaslHandshake: is its listener without SASL?")
    if authenticate is None:
        handshake = 0
    answer = await connection.exchange(SaslHandshakeRequest(mechanism=login.mechanism), handshake)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SecurityError(f"{name}: the listener does not use SASL: set security.protocol to SSL or PLAINTEXT")
    if answer.error_code:
        offered = ", ".join(sorted(answer.mechanisms)) or "none"
        raise SecurityError(
            f"{name}: sasl.mechanism {login.mechanism} is not enabled on the broker: it offers {offered}"
        )
    token_of_endpoint = None
    if login.endpoint is not None:
        from magicbyte.access.net.token_endpoint import fetch_token

        token_of_endpoint = await fetch_token(login.endpoint)
    conversation, challenge, lifetime_ms = login.begin(token_of_endpoint), None, 0
    for _ in range(_MOST_STEPS):
        token = conversation.respond(challenge)
        if token is None:
            return lifetime_ms
        if handshake == 0:
            try:
                challenge = await connection.exchange_raw(token)
            except NetworkError as error:  # such brokers refuse by closing the connection
                why = "brokers before 1.0 do that for a wrong user or password"
                raise SecurityError(f"{name}: the broker ended the {login.mechanism} login ({why}): {error}") from None
            continue
        found = await connection.exchange(SaslAuthenticateRequest(auth_bytes=token), authenticate or 0)
        assert isinstance(found, SaslAuthenticateResponse)
        if found.error_code:
            why = _token_fault(found.error_message or ErrorCode.SASL_AUTHENTICATION_FAILED.name)
            raise SecurityError(f"{name}: the {login.mechanism} login was refused: {why}")
        challenge, lifetime_ms = bytes(found.auth_bytes), found.session_lifetime_ms
    raise SecurityError(f"{name}: the {login.mechanism} login did not complete")


def _token_fault(message: str) -> str:
    """Return why a broker refuses a bearer token, from its JSON response; other messages are returned unchanged."""
    try:
        found = json.loads(message)
    except ValueError:
        return message
    return str(found.get("status", message)) if isinstance(found, dict) else message
