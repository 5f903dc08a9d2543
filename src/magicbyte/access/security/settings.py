"""Security settings of clients, with the names of Kafka's Java client and of librdkafka.

Secrets are in fields excluded from `repr`, and no message contains the value of a setting that may be secret.
"""

from __future__ import annotations

import difflib
import os
import re
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from msgspec import Struct

from magicbyte.access.security.jaas import parse_jaas
from magicbyte.access.security.sasl import OAUTHBEARER, PLAIN, ClientMechanism, OAuthClient, PlainClient
from magicbyte.access.security.scram import HASHES, ScramClient
from magicbyte.access.security.tls import Store, TlsSettings, client_context
from magicbyte.engine.errors import InvalidConfigError, LogDirectoryError
from magicbyte.engine.log.files.filesystem import open_regular, read_regular
from magicbyte.engine.log.files.properties import parse_properties

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""In the order of their ids in requests between brokers."""
TRUSTSTORE: Final = (
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
)  # fmt: skip
KEYSTORE: Final = (
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.key.password",
)  # fmt: skip
CLIENT_ID: Final = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
CLIENT_SECRET: Final = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
"""The names in Kafka 4.1 and in librdkafka."""
SETTINGS: Final = frozenset(
    {
        "security.protocol", *TRUSTSTORE, *KEYSTORE, "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols",
        "ssl.cipher.suites", "sasl.mechanism", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url",
        *CLIENT_ID, *CLIENT_SECRET, "sasl.oauthbearer.scope",
        # librdkafka's names
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
        "ssl.key.pem", "enable.ssl.certificate.verification", "sasl.mechanisms", "sasl.username", "sasl.password",
        "sasl.oauthbearer.method", "https.ca.location",
    }
)  # fmt: skip
"""The known names."""
_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")
_MOST_TOKEN_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The endpoint from which a client gets tokens, and its credentials.

    `ca_file`: trusted certificates, None: the system's.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """The authentication of a client: by user name and password, or by a token, from a file or an endpoint."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token_file: str | None = None
    endpoint: TokenEndpoint | None = None

    def begin(self, token: str | None = None) -> ClientMechanism:
        """Begin a new exchange; `token`: the endpoint's, if there is an endpoint.

        Reads the file of the token. Raises InvalidConfigError.
        """
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        if self.mechanism in HASHES:
            return ScramClient(self.mechanism, self.user, self.password, secrets.token_urlsafe(24))
        if token is not None:
            return OAuthClient(token)
        assert self.token_file is not None, "the endpoint's is given"
        return OAuthClient(token_in(self.token_file))


def token_in(path: str) -> str:
    """Return the bearer token in a file. Raises InvalidConfigError, whose message never contains it."""
    try:
        with open_regular(Path(path)) as file:
            token = file.read(_MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
    except LogDirectoryError as error:  # a FIFO would be waited for
        raise InvalidConfigError(str(error)) from None
    except OSError as error:
        raise InvalidConfigError(f"{path}: {error.strerror}: expected a file with a token") from None
    return checked_token(path, token)


def checked_token(place: str, token: str) -> str:
    """Return a valid bearer token. Raises InvalidConfigError, whose message never contains it."""
    if not re.fullmatch(r"[-A-Za-z0-9._~+/]+=*", token):
        raise InvalidConfigError(f"{place}: expected a bearer token, found something else")
    return token


class ClientSecurity(Struct, frozen=True):
    """The security of a client's connections. `tls` and `login` are None if the protocol has none."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    login: Login | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str], environment: Mapping[str, str] | None = None) -> ClientSecurity:
        """Parse settings by their names. Raises InvalidConfigError.

        A value may contain ${env:NAME} and ${file:PATH:KEY}, as with Kafka's configuration providers.
        """
        for name in settings:
            if name not in SETTINGS:
                raise InvalidConfigError(unknown(name, SETTINGS))
        values = {name: resolved(name, value, environment) for name, value in settings.items()}
        protocol = values.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise InvalidConfigError(f"security.protocol: expected {', '.join(PROTOCOLS)}, found {protocol!r}")
        others = [name for name in values if name != "security.protocol" and not _counts(name, protocol)]
        if others:
            raise InvalidConfigError(f"{others[0]}: security.protocol {protocol} does not use it")
        return cls(
            protocol,
            _tls(values) if protocol.endswith("SSL") else None,
            _login(values) if protocol.startswith("SASL") else None,
        )

    def context(self) -> ssl.SSLContext | None:
        """Return a TLS context, or None without TLS. Reads files. Raises InvalidConfigError."""
        return None if self.tls is None else client_context(self.tls)


def unknown(name: str, known: frozenset[str]) -> str:
    """Return the message for an unknown setting."""
    near = difflib.get_close_matches(name, known, 1)
    return f"no setting is called {name!r}" + (f": did you mean {near[0]!r}?" if near else "")


def stores(found: Mapping[str, str]) -> tuple[Store | None, Store | None]:
    """Return the trust store and the key store of Kafka's settings, or None."""
    trust = [found.get(name) for name in TRUSTSTORE]
    key = [found.get(name) for name in KEYSTORE]
    if trust[0] and trust[3]:
        raise InvalidConfigError("ssl.truststore.certificates: expected these or a location, found both")
    if key[0] and (key[3] or key[4]):
        raise InvalidConfigError("ssl.keystore.key: expected this or a location, found both")
    if bool(key[3]) != bool(key[4]):
        raise InvalidConfigError("ssl.keystore.key: expected it together with ssl.keystore.certificate.chain")
    trusted = Store(trust[0], trust[1] or "", trust[2], trust[3]) if trust[0] or trust[3] else None
    own = None
    if key[0] or key[3]:
        own = Store(key[0], key[1] or "", key[2], key[4], key[3], key_password=key[5])
    return trusted, own


def _counts(name: str, protocol: str) -> bool:
    """Return whether a protocol uses a setting."""
    return protocol.endswith("SSL") if "ssl." in name else protocol.startswith("SASL")


def resolved(name: str, value: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a value with its references resolved. Reads files. Raises InvalidConfigError."""

    def replace(match: re.Match[str]) -> str:
        if match[1] == "env":
            known = os.environ if environment is None else environment
            if match[2] not in known:
                raise InvalidConfigError(f"{name}: there is no environment variable {match[2]}")
            return known[match[2]]
        path, _, key = match[2].rpartition(":")
        try:
            properties = parse_properties(read_regular(path))
        except LogDirectoryError as error:
            raise InvalidConfigError(f"{name}: {error}") from None
        except OSError as error:
            raise InvalidConfigError(f"{name}: {path}: {error.strerror}") from None
        if key not in properties:
            raise InvalidConfigError(f"{name}: {path}: there is no {key}")
        return properties[key]

    return _REFERENCE.sub(replace, value)


def files_named(value: str) -> set[str]:
    """Return the files referenced in a value."""
    return {match[2].rpartition(":")[0] for match in _REFERENCE.finditer(value) if match[1] == "file"}


def file_of(url: str) -> str | None:
    """Return the path of a `file:` URL, None for any other; a URL with a remote host is other."""
    parts = urlparse(url)
    is_here = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return unquote(parts.path) if is_here and parts.path else None


def _tls(values: Mapping[str, str]) -> TlsSettings:
    trusted, own = stores(values)
    if values.get("ssl.ca.location") or values.get("ssl.ca.pem"):
        trusted = Store(values.get("ssl.ca.location"), "PEM", certificates=values.get("ssl.ca.pem"))
    if values.get("ssl.certificate.location") or values.get("ssl.certificate.pem"):
        own = Store(
            values.get("ssl.certificate.location"), "PEM", certificates=values.get("ssl.certificate.pem"),
            key=values.get("ssl.key.pem"), key_location=values.get("ssl.key.location"),
            key_password=values.get("ssl.key.password"),
        )  # fmt: skip
    algorithm = values.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise InvalidConfigError("ssl.endpoint.identification.algorithm: expected https, or none to check no names")
    verifies = values.get("enable.ssl.certificate.verification", "true").lower()
    if verifies not in ("true", "false"):
        raise InvalidConfigError("enable.ssl.certificate.verification: expected true or false")
    versions = tuple(part.strip() for part in values.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(","))
    return TlsSettings(
        trusted, own, verifies == "true", algorithm == "https", versions, values.get("ssl.cipher.suites")
    )


def _login(values: Mapping[str, str]) -> Login:
    mechanism = values.get("sasl.mechanism") or values.get("sasl.mechanisms")
    known = (PLAIN, *HASHES, OAUTHBEARER)
    if mechanism not in known:
        raise InvalidConfigError(f"sasl.mechanism: expected {', '.join(known)}, found {mechanism or 'none'}")
    if mechanism == OAUTHBEARER:
        return _token_login(mechanism, values)
    user, password = values.get("sasl.username"), values.get("sasl.password")
    if (text := values.get("sasl.jaas.config")) is not None:
        options = parse_jaas("sasl.jaas.config", text).options
        user, password = options.get("username", user), options.get("password", password)
    if not user or not password:
        raise InvalidConfigError(f"sasl.jaas.config: {mechanism} needs a username and a password")
    if "\0" in user + password:
        raise InvalidConfigError("sasl.jaas.config: expected a username and a password without a byte 0")
    return Login(mechanism, user, password)


def _token_login(mechanism: str, values: Mapping[str, str]) -> Login:
    setting = "sasl.oauthbearer.token.endpoint.url"
    if values.get("sasl.oauthbearer.method", "oidc").lower() != "oidc":
        raise InvalidConfigError("sasl.oauthbearer.method: expected oidc")
    url = values.get(setting, "")
    if (path := file_of(url)) is not None:
        return Login(mechanism, token_file=path)
    parts = urlparse(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise InvalidConfigError(f"{setting}: expected file:///PATH, a file with a token, or https://HOST/PATH")
    options = {}
    if (text := values.get("sasl.jaas.config")) is not None:
        options = parse_jaas("sasl.jaas.config", text).options
    client_id = next((values[name] for name in CLIENT_ID if name in values), options.get("clientId"))
    secret = next((values[name] for name in CLIENT_SECRET if name in values), options.get("clientSecret"))
    if not client_id or not secret:
        raise InvalidConfigError(f"{CLIENT_ID[0]}: a token endpoint requires it and {CLIENT_SECRET[0]}")
    scope = values.get("sasl.oauthbearer.scope") or options.get("scope") or ""
    return Login(mechanism, endpoint=TokenEndpoint(url, client_id, secret, scope, values.get("https.ca.location")))
