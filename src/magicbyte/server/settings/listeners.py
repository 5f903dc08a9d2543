"""Parse the settings of listening addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from magicbyte.access.security.settings import PROTOCOLS
from magicbyte.engine.addresses import host_and_port
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.records.layout import Dialect

_LISTENER: Final = re.compile(r"([A-Za-z0-9_.-]+)://(.*)")
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 nothing is bound here: no client can connect to these
_LOOPBACK: Final = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable only from this machine."""
    return _LOOPBACK.fullmatch(host) is not None


class Listener(Struct, frozen=True):
    """A listening address, and the one advertised to its clients. Port 0: any free one.

    `enriched`: its clients exchange closed enriched wrappers with topics in that format.
    """

    name: str
    host: str
    port: int
    security_protocol: str
    advertised_host: str
    advertised_port: int
    enriched: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether it is reachable only from this machine."""
        return is_loopback(self.host)


def listeners(
    addresses: str | None, advertised_addresses: str | None, protocol_map: str, static: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Parse `listeners`, `advertised.listeners` and the protocol map.

    `static`: all given settings, including those of single listeners. Raises InvalidConfigError.
    """
    protocols = dict(_pairs("listener.security.protocol.map", protocol_map))
    advertised = {name: (host, port) for name, host, port in _addresses("advertised.listeners", advertised_addresses)}
    listening = []
    for name, host, port in _addresses("listeners", addresses):
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidConfigError(f"listeners: listener.security.protocol.map has no protocol for {name}")
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise InvalidConfigError(f"listener.security.protocol.map: {name}: expected {known}, found {protocol}")
        if advertised.get(name, ("", 0))[0] in _ANY:
            raise InvalidConfigError(f"advertised.listeners: {name}: expected an address that clients can connect to")
        address = advertised.pop(name, (host or "localhost", port))
        if address[0] in _ANY:
            address = ("localhost", address[1])
        dialect = static.get(f"listener.name.{name.lower()}.magicbyte.dialect", Dialect.KAFKA.value)
        if dialect not in (Dialect.KAFKA.value, Dialect.ENRICHED.value):
            raise InvalidConfigError(f"listener.name.{name.lower()}.magicbyte.dialect: expected kafka or enriched")
        listening.append(
            Listener(name, host, port, protocol, address[0], address[1], dialect == Dialect.ENRICHED.value)
        )
    if advertised:
        raise InvalidConfigError(f"advertised.listeners: there is no listener {', '.join(sorted(advertised))}")
    if not listening:
        raise InvalidConfigError("listeners: expected at least one")
    return tuple(listening)


def inter_broker_listener(
    known: Sequence[Listener], name: str | None, protocol: str | None
) -> tuple[str | None, Listener]:
    """Return the configured name of the inter-broker listener, or None, and the listener.

    `protocol`: `security.inter.broker.protocol`, whose listener has the same name. Without one, it is the first
    unsecured listener. Raises InvalidConfigError.
    """
    setting, wanted = "inter.broker.listener.name", name
    if protocol is not None:
        if name is not None:
            raise InvalidConfigError(f"{setting}: expected this or security.inter.broker.protocol, found both")
        setting, wanted = "security.inter.broker.protocol", protocol
    if wanted is None:
        return None, next((each for each in known if each.security_protocol == "PLAINTEXT"), known[0])
    found = next((each for each in known if each.name == wanted.upper()), None)
    if found is None:
        raise InvalidConfigError(f"{setting}: there is no listener {wanted}")
    return found.name, found


def _addresses(setting: str, addresses: str | None) -> list[tuple[str, str, int]]:
    """Return name, host and port of each listener, the names in upper case."""
    parsed = []
    for part in (addresses or "").split(","):
        if not part.strip():
            continue
        match = _LISTENER.fullmatch(part.strip())
        if match is None:
            raise InvalidConfigError(f"{setting}: expected NAME://HOST:PORT, found {part.strip()!r}")
        try:
            parsed.append((match[1].upper(), *host_and_port(match[2], host="", free=True)))
        except ValueError as error:
            raise InvalidConfigError(f"{setting}: {error}") from error
    names = [name for name, _, _ in parsed]
    if len(set(names)) < len(names):
        raise InvalidConfigError(f"{setting}: expected each name once, found {', '.join(names)}")
    ports = [port for _, _, port in parsed if port]
    if setting == "listeners" and len(set(ports)) < len(ports):
        raise InvalidConfigError(f"{setting}: expected each port once, found {', '.join(map(str, ports))}")
    return parsed


def _pairs(setting: str, found: str) -> list[tuple[str, str]]:
    pairs = []
    for part in found.split(","):
        name, colon, value = part.strip().partition(":")
        if not (name and colon and value):
            raise InvalidConfigError(f"{setting}: expected NAME:PROTOCOL, found {part.strip()!r}")
        pairs.append((name.upper(), value.upper()))
    return pairs


def http_address(address: str | None) -> tuple[str, int] | None:
    """Return host and port of the HTTP pages, or None; the default host is the loopback address.

    Raises InvalidConfigError.
    """
    if address is None:
        return None
    try:
        return host_and_port(address, example="localhost:9100", host="127.0.0.1", free=True)
    except ValueError as error:
        raise InvalidConfigError(f"http.address: {error}") from error
