"""SASL exchanges without a network: a token in, a token out. Sources: RFC 4616, 5802, 7628, as implemented by Kafka."""

from __future__ import annotations

from typing import Final, Protocol

from magicbyte.engine.errors import SecurityError

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class ClientMechanism(Protocol):
    """The client's side of one authentication."""

    name: str

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token, the first if `challenge` is None; return None when the exchange is complete.

        Raises SecurityError if the broker does not prove that it knows the secret.
        """


class PlainClient:
    """PLAIN: user and password in clear text, protected only by TLS."""

    name = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the only token, and None after it."""
        return self._token if challenge is None else None


class OAuthClient:
    """OAUTHBEARER with an existing token."""

    name = OAUTHBEARER

    def __init__(self, token: str) -> None:
        self._token = token
        self._is_refused = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the token, then None; after a broker's error, the byte that acknowledges it."""
        if challenge is None:
            return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
        if not challenge:
            return None
        if self._is_refused:
            raise SecurityError("the broker continued after it refused the token")
        self._is_refused = True
        return b"\x01"
