"""The brokers of a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

_PLAINTEXT: Final = "PLAINTEXT"


class BrokerEndpoint(Struct, frozen=True):
    """The address of a broker for clients of one listener."""

    listener: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Registration(Struct, frozen=True):
    """A broker's registration: its endpoints, its rack, and the latest levels of features."""

    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    features: Mapping[str, int] = field(default_factory=dict)


class QuorumRegistration(Struct, frozen=True):
    """What a KRaft quorum knows besides of a registered broker.

    `incarnation`: drawn at each start. `is_fenced`: it may not lead partitions. `cordoned`: directories without new
    replicas, None: never told. `oldest_levels`: of features, 0 if it is missing.
    """

    incarnation: uuid.UUID
    is_fenced: bool = False
    is_stopping: bool = False
    uses_zookeeper: bool = False
    directories: tuple[uuid.UUID, ...] = ()
    cordoned: tuple[uuid.UUID, ...] | None = None
    oldest_levels: Mapping[str, int] = field(default_factory=dict)


class RegisteredBroker(Struct, frozen=True):
    """A registered broker. `epoch`: the transaction id of its registration, or the offset of its record."""

    id: int
    epoch: int
    registration: Registration
    quorum: QuorumRegistration | None = None

    def endpoint(self, listener: str | None) -> BrokerEndpoint | None:
        """Return its address for other brokers: of `listener`, by default its first unsecured one."""
        for each in self.registration.endpoints:
            if each.listener == listener or (listener is None and each.security_protocol == _PLAINTEXT):
                return each
        return None


class RegisteredController(Struct, frozen=True):
    """A controller of a KRaft quorum."""

    id: int
    incarnation: uuid.UUID
    registration: Registration
    oldest_levels: Mapping[str, int] = field(default_factory=dict)
    is_ready_to_migrate: bool = False


class ControllerElection(Struct, frozen=True):
    """The controller and its epoch.

    `won`: this session is the controller. Then its writes check that the record of the epoch has `epoch_version`, so
    that they fail once another broker has won.
    """

    controller: int
    epoch: int
    epoch_version: int
    won: bool
