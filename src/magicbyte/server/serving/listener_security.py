"""The security of a listener, parsed from Kafka's settings, its own before the general ones, at the broker's start."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from magicbyte.access.security.jaas import parse_jaas
from magicbyte.access.security.names import MappingRules
from magicbyte.access.security.sasl import OAUTHBEARER, PLAIN
from magicbyte.access.security.scram import HASHES
from magicbyte.access.security.settings import ClientSecurity, file_of, resolved, stores
from magicbyte.access.security.tls import TlsSettings, server_context
from magicbyte.engine.errors import InvalidConfigError, LogDirectoryError
from magicbyte.engine.log.files.filesystem import read_regular
from magicbyte.engine.printable import logger
from magicbyte.server.settings.listener_settings import (
    AUDIENCE,
    ISSUER,
    JWKS,
    MAPPING,
    OF_CLIENTS,
    PRINCIPAL_CLAIM,
    REAUTHENTICATION,
    SKEW,
    TLS,
)

if TYPE_CHECKING:
    from magicbyte.access.security.oauth import TokenRules
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.listeners import Listener

log = logger(__name__)
T = TypeVar("T")

NO_RULES: Final = MappingRules(())


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security of a listener. `rules` map the owner of a client certificate to a user, without SASL.

    `passwords` are those of PLAIN, by user; `lifetimes_ms` of authentications, by mechanism. `tokens`: the requirements
    for OAUTHBEARER tokens.
    """

    context: ssl.SSLContext | None
    rules: MappingRules
    mechanisms: tuple[str, ...] = ()
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    lifetimes_ms: Mapping[str, int] = field(default_factory=dict)
    tokens: TokenRules | None = None


def security_of(listener: Listener, config: BrokerConfig) -> ListenerSecurity:
    """Return the security of a listener from the given settings. Reads files. Raises InvalidConfigError."""
    static = config.static
    prefix = f"listener.name.{listener.name.lower()}."
    protocol = listener.security_protocol

    def given(name: str) -> str | None:
        found = static.get(prefix + name, static.get(name))
        return None if found is None else resolved(name, found)

    context = None
    if protocol.endswith("SSL"):
        trusted, own = stores({name: value for name in TLS if (value := given(name)) is not None})
        versions = tuple(each.strip() for each in (given("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3").split(","))
        wanted = static.get(f"{prefix}ssl.client.auth") if protocol.startswith("SASL") else given("ssl.client.auth")
        settings = TlsSettings(trusted, own, versions=versions, ciphers=given("ssl.cipher.suites"))
        context = server_context(settings, wanted or "none")
    if not protocol.startswith("SASL"):
        return ListenerSecurity(context, MappingRules.parse(given(MAPPING) or "DEFAULT"))
    mechanisms = _mechanisms(prefix, static)
    known = (PLAIN, *HASHES, OAUTHBEARER)
    if not mechanisms or not set(mechanisms) <= set(known):
        raise InvalidConfigError(
            f"sasl.enabled.mechanisms: listener {listener.name} needs one or more of {', '.join(known)}, found "
            f"{', '.join(mechanisms) or 'none'}"
        )
    passwords = _passwords(prefix, static) if PLAIN in mechanisms else {}
    lifetimes = {each: _lifetime_ms(f"{prefix}{each.lower()}.{REAUTHENTICATION}", config) for each in mechanisms}
    tokens = _tokens(given) if OAUTHBEARER in mechanisms else None
    return ListenerSecurity(context, NO_RULES, mechanisms, passwords, lifetimes, tokens)


def _tokens(given: Callable[[str], str | None]) -> TokenRules:
    """Return the requirements for tokens. Reads the file of the keys. Raises InvalidConfigError."""
    from magicbyte.access.security.oauth import TokenRules, load_keys

    path = file_of(given(JWKS) or "")
    if path is None:
        raise InvalidConfigError(f"{JWKS}: expected file:///PATH, a JWKS file")
    try:
        keys = load_keys(path, read_regular(path))
    except LogDirectoryError as error:
        raise InvalidConfigError(f"{JWKS}: {error}") from None
    except OSError as error:
        raise InvalidConfigError(f"{JWKS}: {path}: {error.strerror}") from None
    audiences = frozenset(each.strip() for each in (given(AUDIENCE) or "").split(",") if each.strip())
    skew = given(SKEW) or "30"
    if not skew.isascii() or not skew.isdigit() or len(skew) > 6:
        raise InvalidConfigError(f"{SKEW}: expected a number of seconds, found {skew[:80]!r}")
    return TokenRules(keys, audiences, given(ISSUER), int(skew) * 1000, given(PRINCIPAL_CLAIM) or "sub")


def client_of(listener: Listener, config: BrokerConfig) -> ClientSecurity:
    """Return a broker's client settings for this listener of other brokers. Raises InvalidConfigError."""
    prefix, protocol, static = f"listener.name.{listener.name.lower()}.", listener.security_protocol, config.static
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings |= {each: static[name] for each in OF_CLIENTS for name in (each, prefix + each) if name in static}
    if protocol.startswith("SASL"):
        mechanism = config.sasl_mechanism_inter_broker_protocol
        if mechanism not in _mechanisms(prefix, static):
            raise InvalidConfigError(
                f"sasl.mechanism.inter.broker.protocol: {mechanism} is not among the sasl.enabled.mechanisms of "
                f"listener {listener.name}"
            )
        settings["sasl.mechanism"] = mechanism
        login = f"{prefix}{mechanism.lower()}.sasl.jaas.config"
        if login not in static:
            raise InvalidConfigError(f"{login}: expected a login module with username and password of the broker")
        settings["sasl.jaas.config"] = static[login]
    return ClientSecurity.of(settings)


def _mechanisms(prefix: str, static: Mapping[str, str]) -> tuple[str, ...]:
    name = "sasl.enabled.mechanisms"
    found = resolved(name, static.get(prefix + name, static.get(name, "")))
    return tuple(each.strip() for each in found.split(",") if each.strip())


def _lifetime_ms(name: str, config: BrokerConfig) -> int:
    """Return the lifetime of authentications by a mechanism, 0: unlimited."""
    try:
        lifetime_ms = int(config.static.get(name, config.connections_max_reauth_ms))
    except ValueError:
        lifetime_ms = -1
    if lifetime_ms < 0:
        raise InvalidConfigError(f"{name}: expected a number of ms, 0 or more, found {config.static[name]!r}")
    return lifetime_ms


def _passwords(prefix: str, static: Mapping[str, str]) -> dict[str, str]:
    name = f"{prefix}plain.sasl.jaas.config"
    if name not in static:
        raise InvalidConfigError(f'{name}: expected a login module with user_NAME="PASSWORD" for each user of PLAIN')
    options = parse_jaas(name, resolved(name, static[name])).options
    return {key.removeprefix("user_"): value for key, value in options.items() if key.startswith("user_")}
