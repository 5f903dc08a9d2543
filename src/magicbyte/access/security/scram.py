"""SCRAM-SHA-256 and -512 (RFC 5802, 7677): the client's side, and the common functions.

Passwords are used unchanged: Kafka does not apply SASLprep.

The signed text is the exact text on the wire, including extensions that other implementations drop.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

from magicbyte.engine.errors import ProtocolError, SecurityError

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
"""The most iterations that a client performs for a broker: a second of CPU time, as the broker is not yet trusted."""
NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_CHALLENGE: Final = re.compile(
    rf"r=(?P<nonce>{NONCE}),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?"
)


class ScramClient:
    """The client's side. `nonce`: printable, random, without a comma."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self.name = mechanism
        self._password, self._nonce = password, nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._expected: bytes | None = None

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token, None when the broker has proved that it knows the password. Raises SecurityError."""
        if challenge is None:
            return f"n,,{self._bare}".encode()
        text = challenge.decode(errors="replace")
        if self._expected is not None:
            if not hmac.compare_digest(challenge, self._expected):
                raise SecurityError(f"{self.name}: the broker did not prove that it knows the password")
            return None
        match = _CHALLENGE.fullmatch(text)
        if match is None:
            raise SecurityError(f"{self.name}: the broker's challenge is invalid")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SecurityError(f"{self.name}: the broker's challenge is not for this login")
        iterations = int(match["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise SecurityError(
                f"{self.name}: iterations: expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}, found {iterations}"
            )
        salted = hashlib.pbkdf2_hmac(HASHES[self.name], self._password.encode(), decoded(match["salt"]), iterations)
        signed = f"c=biws,r={match['nonce']}"
        message = f"{self._bare},{text},{signed}".encode()
        client_key = keyed(self.name, salted, b"Client Key")
        signature = keyed(self.name, hashlib.new(HASHES[self.name], client_key).digest(), message)
        server_signature = keyed(self.name, keyed(self.name, salted, b"Server Key"), message)
        self._expected = b"v=" + base64.b64encode(server_signature)
        return f"{signed},p={base64.b64encode(xor(client_key, signature)).decode()}".encode()


def keyed(mechanism: str, key: bytes, message: bytes) -> bytes:
    """Return the HMAC of a message with a mechanism's hash."""
    return hmac.digest(key, message, HASHES[mechanism])


def xor(left: bytes, right: bytes) -> bytes:
    """Return the xor of two byte strings of equal length."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def decoded(text: str) -> bytes:
    """Decode base64. Raises ProtocolError."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ProtocolError("a SCRAM message", expected="base64", found=f"{len(text)} characters", position=0) from None
