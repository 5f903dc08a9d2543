"""The broker's side of SASL: PLAIN and SCRAM, and stored credentials."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, Protocol

from magicbyte.access.security.sasl import PLAIN
from magicbyte.access.security.scram import HASHES, LEAST_ITERATIONS, NONCE, decoded, keyed, xor
from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import ProtocolError, SecurityError

_USER: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_EXTENSION: Final = r"[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_USER}))?,(?P<bare>(?:m=[\x01-\x2b\x2d-\x7f]+,)?"
    rf"n=(?P<user>{_USER}),r=(?P<nonce>{NONCE})(?P<extensions>(?:,{_EXTENSION})*))"
)
_FINAL: Final = re.compile(
    rf"(?P<signed>c=[A-Za-z0-9+/=]+,r=(?P<nonce>{NONCE})(?:,{_EXTENSION})*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SALT_BITS: Final = 130


class ServerMechanism(Protocol):
    """The broker's side of one authentication. `user` is set when it is complete; None before.

    `lifetime_ms`: the lifetime of the authentication, None for no limit.
    """

    name: str
    user: str | None
    lifetime_ms: int | None

    def evaluate(self, token: bytes) -> bytes:
        """Return the response to a token. Raises LoginRefusedError, and ProtocolError to end the connection."""


class LoginRefusedError(SecurityError):
    """The broker refuses an authentication. The message is for the client, and contains no secret."""


class PlainServer:
    """PLAIN. `password_of` returns a user's password, None for an unknown user."""

    name = PLAIN
    lifetime_ms: int | None = None

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self._password_of = password_of
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Return nothing for the right password. Raises LoginRefusedError."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefusedError(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
            ) from None
        if len(parts) != 3:
            raise LoginRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise LoginRefusedError("Authentication failed: username not specified")
        if not password:
            raise LoginRefusedError("Authentication failed: password not specified")
        known = self._password_of(user)
        same = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None or not same:
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise LoginRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""


def credential_of_password(
    mechanism: str, password: str, salt: bytes, iterations: int = LEAST_ITERATIONS
) -> Credential:
    """Return the credential of a password."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def credential_of_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential of a salted password, as AlterUserScramCredentials contains it."""
    stored = hashlib.new(HASHES[mechanism], keyed(mechanism, salted, b"Client Key")).digest()
    return Credential(salt, stored, keyed(mechanism, salted, b"Server Key"), iterations)


def decoy(mechanism: str, secret: bytes, user: str) -> Credential:
    """Return a credential that no password fits, always the same for a `secret` and a user.

    Its salt and iterations look like those that Kafka's tools store: 130 random bits in base 36.
    """
    seed = hmac.digest(secret, f"{mechanism}\0{user}".encode(), "sha512")
    number, digits = int.from_bytes(seed) >> (len(seed) * 8 - _SALT_BITS), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return Credential(
        digits.encode(), keyed(mechanism, seed, b"Stored Key"), keyed(mechanism, seed, b"Server Key"), LEAST_ITERATIONS
    )


class ScramServer:
    """The broker's side. `credential_of` returns a user's credential or None; `nonce`: as the client's.

    `secret`: of the decoys, with which unknown users are challenged like known ones. `takes_prefix`: accept a client's
    final nonce that ends with the challenge's, as Kafka up to 3.9: librdkafka before 2.6.1 puts its own before it.
    """

    lifetime_ms: int | None = None

    def __init__(
        self, mechanism: str, credential_of: Callable[[str], Credential | None], nonce: str, *, secret: bytes,
        takes_prefix: bool,
    ) -> None:  # fmt: skip
        self.name = mechanism
        self.user: str | None = None
        self._credential_of, self._nonce, self._secret, self._takes_prefix = (
            credential_of, nonce, secret, takes_prefix
        )  # fmt: skip
        self._first: tuple[str, Credential, str, str] | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Return the challenge, then the proof.

        Raises LoginRefusedError; ProtocolError for a proof of the wrong size.
        """
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise self._refused() from None
        return self._challenge(text) if self._first is None else self._proof(text, *self._first)

    def _challenge(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise self._refused()
        user = match["user"].replace("=2C", ",").replace("=3D", "=")
        if match["authzid"] not in (None, match["user"]):
            raise LoginRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = self._credential_of(user)
        if "tokenauth=true" in match["extensions"]:
            raise self._refused()
        if credential is None or credential.iterations < LEAST_ITERATIONS:
            credential = decoy(self.name, self._secret, user)
        nonce = match["nonce"] + self._nonce
        challenge = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._first = user, credential, nonce, f"{match['bare']},{challenge}"
        return challenge.encode()

    def _proof(self, text: str, user: str, credential: Credential, nonce: str, before: str) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None:
            raise self._refused()
        answered = match["nonce"][-len(nonce) :] if self._takes_prefix else match["nonce"]
        if not hmac.compare_digest(answered, nonce):
            raise self._refused()
        message, proof = f"{before},{match['signed']}".encode(), decoded(match["proof"])
        if len(proof) != len(credential.stored_key):
            raise ProtocolError("a SCRAM proof", expected=f"{len(credential.stored_key)} bytes", found=len(proof),
                                position=0)  # fmt: skip
        client_key = xor(proof, keyed(self.name, credential.stored_key, message))
        if not hmac.compare_digest(hashlib.new(HASHES[self.name], client_key).digest(), credential.stored_key):
            raise self._refused()
        self.user = user
        return b"v=" + base64.b64encode(keyed(self.name, credential.server_key, message))

    def _refused(self) -> LoginRefusedError:
        return LoginRefusedError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {self.name}"
        )
