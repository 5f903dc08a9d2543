"""The brokers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_PLAINTEXT: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """The address of a broker for clients of one listener."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's registration: its endpoints, its rack, and the latest levels of features."""

    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    features: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A registered broker. `epoch` is the transaction id of its registration."""

    id: int
    epoch: int
    registration: Registration

    def endpoint(self, listener: str | None) -> BrokerEndpoint | None:
        """Return its address for other brokers: of `listener`, by default its first unsecured one."""
        for each in self.registration.endpoints:
            if each.listener == listener or (listener is None and each.security_protocol == _PLAINTEXT):
                return each
        return None
