"""SASL as conversations without a network: a token in, a token out. Facts: RFC 4616, 5802, 7628 as Kafka has them."""

from __future__ import annotations

from typing import Final, Protocol

from magicbyte.errors import SecurityError

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class ClientMechanism(Protocol):
    """The client's half of one login."""

    name: str

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token, the first where `challenge` is None; None when the login is complete.

        Raises SecurityError where the broker proves not to be the one that knows the secret.
        """


class PlainClient:
    """PLAIN: user and password as they are; only TLS hides them."""

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the only token, and None after it."""
        return self._token if challenge is None else None


class OAuthClient:
    """OAUTHBEARER with a token that somebody else made."""

    name = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token
        self._is_refused = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the token, then None; where the broker tells why it refuses it, the byte that asks it to end."""
        if challenge is None:
            return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
        if not challenge:
            return None
        if self._is_refused:
            raise SecurityError("the broker goes on after it refused the token")
        self._is_refused = True
        return b"\x01"
