"""What secures a listener: the texts of Kafka's settings, its own before those of all, read when the broker starts."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from magicbyte.errors import InvalidConfigError
from magicbyte.printable import logger
from magicbyte.security.jaas import parse_jaas
from magicbyte.security.names import MappingRules
from magicbyte.security.sasl import OAUTHBEARER, PLAIN
from magicbyte.security.scram import HASHES
from magicbyte.security.settings import KEYSTORE, TRUSTSTORE, ClientSecurity, file_of, files_named, resolved, stores
from magicbyte.security.tls import TlsSettings, server_context

if TYPE_CHECKING:
    from magicbyte.broker.broker import Broker
    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.listeners import Listener
    from magicbyte.security.oauth import TokenRules

log = logger(__name__)
T = TypeVar("T")

NO_RULES: Final = MappingRules(())
_LOOK_MS: Final = 1000  # between two looks at the files
_OWN: Final = re.compile(
    r"listener\.name\.[a-z0-9_.-]+?\.((?:ssl|sasl)\..*|[a-z0-9-]+\.(?:sasl\.jaas\.config|connections\.max\.reauth\.ms))"
)
_TLS: Final = (*TRUSTSTORE, *KEYSTORE, "ssl.enabled.protocols", "ssl.cipher.suites")
_OF_CLIENTS: Final = (*_TLS, "ssl.endpoint.identification.algorithm")
_REAUTHENTICATION: Final = "connections.max.reauth.ms"
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
_SKEW: Final = "sasl.oauthbearer.clock.skew.seconds"
_PRINCIPAL_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
_TOKENS: Final = (_JWKS, _AUDIENCE, _ISSUER, _SKEW, _PRINCIPAL_CLAIM)
_MAPPING: Final = "ssl.principal.mapping.rules"
_READ_HERE: Final = (*_OF_CLIENTS, *_TOKENS, "ssl.client.auth", "sasl.enabled.mechanisms", _MAPPING)


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How a listener is secured. `rules` say who the owner of a certificate is, where there is no login.

    `passwords` are those of PLAIN, by user; `lifetimes_ms` of logins, by mechanism.
    `tokens`: what those of OAUTHBEARER must be.
    """

    context: ssl.SSLContext | None
    rules: MappingRules
    mechanisms: tuple[str, ...] = ()
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    lifetimes_ms: Mapping[str, int] = field(default_factory=dict)
    tokens: TokenRules | None = None


class CurrentFiles(Generic[T]):
    """What the settings of a listener say at the moment: files count for logins and connections after a change."""

    def __init__(self, listener: Listener, config: BrokerConfig, read: Callable[[Listener, BrokerConfig], T]) -> None:
        """Read the files. Raises InvalidConfigError."""
        self._listener, self._config, self._read = listener, config, read
        self._looked_ms: int | None = None
        self._paths = _files_of(listener, config.static)
        self._stamp = self._look()
        self._now = read(listener, config)

    async def now(self, broker: Broker) -> T:
        """Return it; files are looked at once a second at most."""
        now_ms = broker.clock.monotonic_ms()
        if self._paths and (self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_MS):
            self._looked_ms = now_ms
            await broker.reading.run(self._renew)
        return self._now

    def _renew(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._now = self._read(self._listener, self._config)
        except InvalidConfigError as error:
            log.error("listener %s keeps what its files said before: %s", self._listener.name, error)  # noqa: TRY400 no fault of ours
        else:
            log.info("listener %s: files were read anew", self._listener.name)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp_of(each) for each in self._paths]


def _files_of(listener: Listener, static: Mapping[str, str]) -> list[str]:
    """Return the files that the settings of a listener name, those of all listeners and its own."""
    own = f"listener.name.{listener.name.lower()}."
    shortened = ((name.removeprefix(own), text) for name, text in static.items() if is_of_security(name))
    found = [(name, text) for name, text in shortened if not name.startswith("listener.name.")]
    paths = {text for name, text in found if name in ("ssl.keystore.location", "ssl.truststore.location")}
    paths |= {path for name, text in found if name == _JWKS and (path := file_of(text)) is not None}
    return sorted(paths.union(*(files_named(text) for _, text in found)))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_of_security(name: str) -> bool:
    """Whether a setting is read here, for all listeners or for one. Users are of one listener."""
    own = _OWN.fullmatch(name)
    if own is not None and own[1].endswith((".sasl.jaas.config", f".{_REAUTHENTICATION}")):
        return True
    return (name if own is None else own[1]) in _READ_HERE


def security_of(listener: Listener, config: BrokerConfig) -> ListenerSecurity:
    """Return how a listener is secured, by the settings that are given. Reads files. Raises InvalidConfigError."""
    static = config.static
    prefix = f"listener.name.{listener.name.lower()}."
    protocol = listener.security_protocol

    def given(name: str) -> str | None:
        found = static.get(prefix + name, static.get(name))
        return None if found is None else resolved(name, found)

    context = None
    if protocol.endswith("SSL"):
        trusted, own = stores({name: value for name in _TLS if (value := given(name)) is not None})
        versions = tuple(each.strip() for each in (given("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3").split(","))
        wanted = static.get(f"{prefix}ssl.client.auth") if protocol.startswith("SASL") else given("ssl.client.auth")
        settings = TlsSettings(trusted, own, versions=versions, ciphers=given("ssl.cipher.suites"))
        context = server_context(settings, wanted or "none")
    if not protocol.startswith("SASL"):
        return ListenerSecurity(context, MappingRules.parse(given(_MAPPING) or "DEFAULT"))
    mechanisms = _mechanisms(prefix, static)
    known = (PLAIN, *HASHES, OAUTHBEARER)
    if not mechanisms or not set(mechanisms) <= set(known):
        raise InvalidConfigError(
            f"sasl.enabled.mechanisms: listener {listener.name} needs one or more of {', '.join(known)}, found "
            f"{', '.join(mechanisms) or 'none'}"
        )
    passwords = _passwords(prefix, static) if PLAIN in mechanisms else {}
    lifetimes = {each: _lifetime_ms(f"{prefix}{each.lower()}.{_REAUTHENTICATION}", config) for each in mechanisms}
    tokens = _tokens(given) if OAUTHBEARER in mechanisms else None
    return ListenerSecurity(context, NO_RULES, mechanisms, passwords, lifetimes, tokens)


def _tokens(given: Callable[[str], str | None]) -> TokenRules:
    """Return what tokens must be. Reads the file of the keys. Raises InvalidConfigError."""
    from magicbyte.security.oauth import TokenRules, load_keys

    path = file_of(given(_JWKS) or "")
    if path is None:
        raise InvalidConfigError(f"{_JWKS}: expected file:///PATH, a JWKS file")
    try:
        keys = load_keys(path, Path(path).read_bytes())
    except OSError as error:
        raise InvalidConfigError(f"{_JWKS}: {path}: {error.strerror}") from None
    audiences = frozenset(each.strip() for each in (given(_AUDIENCE) or "").split(",") if each.strip())
    skew = given(_SKEW) or "30"
    if not skew.isascii() or not skew.isdigit() or len(skew) > 6:
        raise InvalidConfigError(f"{_SKEW}: expected a number of seconds, found {skew[:80]!r}")
    return TokenRules(keys, audiences, given(_ISSUER), int(skew) * 1000, given(_PRINCIPAL_CLAIM) or "sub")


def client_of(listener: Listener, config: BrokerConfig) -> ClientSecurity:
    """Return how a broker reaches this listener of the others, by its own settings. Raises InvalidConfigError."""
    prefix, protocol, static = f"listener.name.{listener.name.lower()}.", listener.security_protocol, config.static
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= {each: static[name] for each in _OF_CLIENTS for name in (each, prefix + each) if name in static}
    if protocol.startswith("SASL"):
        mechanism = config.sasl_mechanism_inter_broker_protocol
        if mechanism not in _mechanisms(prefix, static):
            raise InvalidConfigError(
                f"sasl.mechanism.inter.broker.protocol: {mechanism} is not among the sasl.enabled.mechanisms of "
                f"listener {listener.name}"
            )
        found["sasl.mechanism"] = mechanism
        login = f"{prefix}{mechanism.lower()}.sasl.jaas.config"
        if login not in static:
            raise InvalidConfigError(f"{login}: expected a login module with username and password of the broker")
        found["sasl.jaas.config"] = static[login]
    return ClientSecurity.of(found)


def _mechanisms(prefix: str, static: Mapping[str, str]) -> tuple[str, ...]:
    name = "sasl.enabled.mechanisms"
    found = resolved(name, static.get(prefix + name, static.get(name, "")))
    return tuple(each.strip() for each in found.split(",") if each.strip())


def _lifetime_ms(name: str, config: BrokerConfig) -> int:
    """Return how long logins by a mechanism hold, 0: for ever."""
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
