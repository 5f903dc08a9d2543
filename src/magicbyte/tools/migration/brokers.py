"""Ask each broker of a cluster by itself: its request versions, and its settings of protocol and format.

In a migration brokers of several releases stand in one cluster. What one of them does not answer, another may. What no
broker answers can be given by the operator, and is unknown otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magicbyte.access.client.admin import ConfigResource, SettingInForce, describe_configs
from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.engine.errors import BrokerError, InvalidConfigError, NetworkError, UnsupportedVersionError
from magicbyte.engine.log.append.rules import stored_format
from magicbyte.engine.releases import protocol_version
from magicbyte.tools.migration.status import FORMAT, PROTOCOL, BrokerFacts

_STEERING: Final = (PROTOCOL, FORMAT)
_CHANGED_WHILE_IT_RAN: Final = frozenset({"broker while it ran", "all brokers while they ran"})


@dataclass(frozen=True, slots=True)
class GivenSettings:
    """Settings of brokers that the operator gives: of all brokers that do not return theirs, and of single ones."""

    of_all: Mapping[str, str] = field(default_factory=dict)
    of_broker: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Sequence[str]) -> GivenSettings:
        """Return the settings in texts `NAME=VALUE` and `ID:NAME=VALUE`. Raises InvalidConfigError."""
        of_all, of_broker = dict[str, str](), dict[int, dict[str, str]]()
        for text in texts:
            named, _, value = text.partition("=")
            number, colon, name = named.rpartition(":")
            if name not in _STEERING or (colon and not (number.isascii() and number.isdigit())):
                expected = f"{PROTOCOL}=VERSION or {FORMAT}=VERSION, or ID: before it"
                raise InvalidConfigError(f"expected {expected}, found {text!r}")
            _check(name, value)
            (of_broker.setdefault(int(number), {}) if colon else of_all)[name] = value
        return cls(of_all, of_broker)

    def of(self, broker: int) -> dict[str, str]:
        """Return those of a broker."""
        return {**self.of_all, **self.of_broker.get(broker, {})}


def _check(name: str, value: str) -> None:
    if name == FORMAT:
        stored_format(value)
        return
    try:
        protocol_version(value)
    except ValueError:
        raise InvalidConfigError(f"{name}: expected a version such as 0.10.2, found {value!r}") from None


NOTHING_GIVEN: Final = GivenSettings()


async def look_at_brokers(client: Client, given: GivenSettings = NOTHING_GIVEN) -> list[BrokerFacts]:
    """Return the request versions and settings of each broker of a cluster. Raises NetworkError if none answers."""
    await client.topics([])
    return [await _broker(client, number, node, given) for number, node in sorted(client.cluster.brokers.items())]


async def _broker(client: Client, number: int, node: BrokerNode, given: GivenSettings) -> BrokerFacts:
    address = f"{node.host}:{node.port}"
    try:
        answered = (await client.connection(node)).versions.ranges
    except (BrokerError, NetworkError):
        return BrokerFacts(number, address, None, None)
    try:
        settings = await describe_configs(client, ConfigResource.BROKER, str(number))
    except NetworkError:
        return BrokerFacts(number, address, None, None)
    except (UnsupportedVersionError, BrokerError):  # a broker before 0.11, or one that does not allow it
        told = given.of(number)
        return BrokerFacts(number, address, answered, told or None, given=frozenset(told))
    steering = {name: text for name in _STEERING if (text := _value(settings, name))}
    changed = {name for name in steering if settings[name].source in _CHANGED_WHILE_IT_RAN}
    return BrokerFacts(number, address, answered, steering, "http.address" in settings, dynamic=frozenset(changed))


def _value(settings: Mapping[str, SettingInForce], name: str) -> str | None:
    return settings[name].value if name in settings else None
