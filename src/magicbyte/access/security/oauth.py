"""OAUTHBEARER at the broker: signed tokens (JWT, RFC 7519), verified with the keys of a JWKS file (RFC 7517).

Only public-key signatures count: the algorithm `none` and keys in tokens are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.access.security.sasl import OAUTHBEARER
from magicbyte.access.security.server import LoginRefusedError
from magicbyte.engine.errors import InvalidConfigError, ProtocolError, SecurityError
from magicbyte.engine.extras import require

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x00\x01]+))?,\x01auth=(?P<scheme>[A-Za-z]+) +(?P<token>[-A-Za-z0-9._~+/]+=*)\x01"
    rb"(?:(?!auth=)[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*\x01"
)
_REFUSED: Final = '{"status":"invalid_token"}'
_MOST_TOKEN_BYTES: Final = 64 << 10
_MOST_KEYS: Final = 100
_CURVES: Final = {"P-256": ("ES256", 32), "P-384": ("ES384", 48), "P-521": ("ES512", 66)}


class TokenRefusedError(SecurityError):
    """A token is invalid. The message is for the broker's log."""


class Bearer(NamedTuple):
    """The owner of a token, and its expiration in ms since 1970."""

    user: str
    expires_ms: int


class PublicKey(NamedTuple):
    """A key of the file: its name, its algorithms, and its verifier, which returns True for a valid signature."""

    id: str | None
    algorithms: frozenset[str]
    verifies: Callable[[str, bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The requirements for a token: signed by one of `keys`, and matching `audiences` and `issuer` if these are set."""

    keys: Sequence[PublicKey] = field(repr=False)
    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 30_000
    principal_claim: str = "sub"

    def bearer(self, token: str, date_ms: int) -> Bearer:
        """Return the owner of a token. Raises TokenRefusedError."""
        parts = token.split(".")
        if len(parts) != 3 or len(token) > _MOST_TOKEN_BYTES:
            raise TokenRefusedError("no signed token")
        head, claims = (_object(each) for each in parts[:2])
        self._check_signature(head, f"{parts[0]}.{parts[1]}".encode(), _decoded(parts[2]))
        expires, begins, issued = (_moment(claims, name) for name in ("exp", "nbf", "iat"))
        if expires is None or expires + self.skew_ms <= date_ms:
            raise TokenRefusedError("it has expired, or has no expiry time")
        if any(each is not None and each - self.skew_ms > date_ms for each in (begins, issued)):
            raise TokenRefusedError("it is not valid yet")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenRefusedError("it is from another issuer")
        named = claims.get("aud")
        audiences = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
        if self.audiences and not self.audiences & audiences:
            raise TokenRefusedError("it is for another audience")
        user = claims.get(self.principal_claim)
        if not isinstance(user, str) or not user.strip():
            raise TokenRefusedError(f"it has no {self.principal_claim}")
        return Bearer(user, expires)

    def _check_signature(self, head: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        algorithm, wanted = head.get("alg"), head.get("kid")
        if not isinstance(algorithm, str) or "crit" in head:
            raise TokenRefusedError("its algorithm is unknown")
        for key in self.keys:
            is_meant = algorithm in key.algorithms and (wanted is None or key.id is None or key.id == wanted)
            if is_meant and key.verifies(algorithm, signed, signature):
                return
        raise TokenRefusedError(f"no key verifies it: algorithm {algorithm[:20]!r}")


class OAuthServer:
    """OAUTHBEARER. `date_ms` returns the date; `refused` receives the reason of a refusal, which the client does
    not.
    """

    name = OAUTHBEARER

    def __init__(self, rules: TokenRules, date_ms: Callable[[], int], refused: Callable[[str], None]) -> None:
        self._rules, self._date_ms, self._tell = rules, date_ms, refused
        self._is_refused = False
        self.user: str | None = None
        self.lifetime_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Return nothing for a valid token, else the error that the client must acknowledge.

        Raises LoginRefusedError, ProtocolError for another scheme.
        """
        if self._is_refused and token == b"\x01":
            raise LoginRefusedError(_REFUSED)
        match = _FIRST.fullmatch(token)
        if match is None:
            why = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            raise LoginRefusedError(f"{why} {self.name}")
        if match["scheme"].lower() != b"bearer":
            raise ProtocolError("a scheme", expected="Bearer", found=match["scheme"][:20].decode(), position=0)
        try:
            date_ms = self._date_ms()
            bearer = self._rules.bearer(match["token"].decode(), date_ms)
        except TokenRefusedError as error:
            self._tell(str(error))
            self._is_refused = True
            return _REFUSED.encode()
        authorization_id = (match["authzid"] or b"").decode(errors="replace")
        if authorization_id not in ("", bearer.user):
            raise LoginRefusedError(
                "Authentication failed: Client requested an authorization id that is different from the token's user"
            )
        self.user, self.lifetime_ms = bearer.user, max(bearer.expires_ms - date_ms, 0)
        return b""


# ---- keys


def load_keys(path: str, data: bytes) -> list[PublicKey]:
    """Return the signing keys of a JWKS file. Raises InvalidConfigError, MissingExtraError."""
    require("security", f"{path}: the signature of a token")
    try:
        listed = json.loads(data)["keys"]
        found = [key for each in listed if (key := _key(each)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TokenRefusedError):
        raise InvalidConfigError(f"{path}: expected a JWKS file: an object with keys") from None
    if not 0 < len(found) <= _MOST_KEYS:
        raise InvalidConfigError(f"{path}: expected 1 to {_MOST_KEYS} RSA or EC keys that sign, found {len(found)}")
    return found


def _key(fields: Mapping[str, Any]) -> PublicKey | None:
    """Return a key, None for one with another purpose."""
    if fields.get("use", "sig") != "sig" or (fields["kty"] == "EC" and fields["crv"] not in _CURVES):
        return None
    made = {"RSA": _rsa, "EC": _curve}.get(fields["kty"])
    if made is None:
        return None
    algorithms, verifies = made(fields)
    if (only := fields.get("alg")) is not None:
        algorithms &= {only}
    return PublicKey(fields.get("kid"), algorithms, verifies)


def _rsa(found: Mapping[str, Any]) -> tuple[frozenset[str], Callable[[str, bytes, bytes], bool]]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    key = rsa.RSAPublicNumbers(_number(found["e"]), _number(found["n"])).public_key()

    def verifies(algorithm: str, signed: bytes, signature: bytes) -> bool:
        hashed = _hash(algorithm)
        pss = padding.PSS(padding.MGF1(hashed), padding.PSS.DIGEST_LENGTH)
        try:
            key.verify(signature, signed, padding.PKCS1v15() if algorithm.startswith("RS") else pss, hashed)
        except (InvalidSignature, ValueError):
            return False
        return True

    return frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}), verifies


def _curve(fields: Mapping[str, Any]) -> tuple[frozenset[str], Callable[[str, bytes, bytes], bool]]:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    algorithm, size = _CURVES[fields["crv"]]
    curve = {32: ec.SECP256R1(), 48: ec.SECP384R1(), 66: ec.SECP521R1()}[size]
    key = ec.EllipticCurvePublicNumbers(_number(fields["x"]), _number(fields["y"]), curve).public_key()

    def verifies(algorithm: str, signed: bytes, signature: bytes) -> bool:
        if len(signature) != 2 * size:
            return False
        pair = encode_dss_signature(int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big"))
        try:
            key.verify(pair, signed, ec.ECDSA(_hash(algorithm)))
        except (InvalidSignature, ValueError):
            return False
        return True

    return frozenset({algorithm}), verifies


def _hash(algorithm: str) -> HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    return {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]


# ---- texts


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise TokenRefusedError("expected base64url") from None


def _number(text: str) -> int:
    return int.from_bytes(_decoded(text), "big")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(_decoded(text))
    except (ValueError, RecursionError):
        raise TokenRefusedError("expected JSON") from None
    if not isinstance(found, dict):
        raise TokenRefusedError("expected an object")
    return found


def _moment(claims: Mapping[str, Any], name: str) -> int | None:
    """Return a claim in ms since 1970, or None."""
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e12:
        raise TokenRefusedError(f"{name} is not a timestamp")
    return int(found * 1000)
