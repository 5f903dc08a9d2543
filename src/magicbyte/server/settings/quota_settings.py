"""Settings for client quotas and connection rates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from magicbyte.server.settings.settings import INT_MAX, LONG_MAX, SettingType, UpdateMode, integer

if TYPE_CHECKING:
    from magicbyte.server.settings.listeners import Listener

_INT: Final = SettingType.INT
_RATE_OF_LISTENER: Final = re.compile(r"listener\.name\.([a-z0-9_.-]+)\.max\.connection\.creation\.rate")


def is_of_rates(name: str) -> bool:
    """Return whether a setting is the connection rate of one listener."""
    return _RATE_OF_LISTENER.fullmatch(name) is not None


def connection_rates(static: Mapping[str, str], listeners: Iterable[Listener]) -> dict[str, float]:
    """Return the connection rates of listeners that have one. Raises InvalidConfigError."""
    found = {}
    for each in listeners:
        text = static.get(f"listener.name.{each.name.lower()}.{QuotaSettings.max_connection_creation_rate.name}")
        if text is not None:
            found[each.name] = float(QuotaSettings.max_connection_creation_rate.parse(text))
    return found


class QuotaSettings:
    """A part of `BrokerConfig`."""

    quota_window_num = integer(
        "quota.window.num", 11, "The number of samples that the quotas of clients keep.", least=1, most=1000, kind=_INT
    )
    quota_window_size_seconds = integer(
        "quota.window.size.seconds",
        1,
        "The length of each sample of the quotas of clients.",
        least=1,
        most=86_400,
        kind=_INT,
    )
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        "The number of samples whose partitions a client may create or delete at once.",
        least=1,
        most=1000,
        kind=_INT,
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds",
        1,
        "The length of each sample of the quota of created and deleted partitions.",
        least=1,
        most=86_400,
        kind=_INT,
    )
    quota_producer_default = integer(
        "quota.producer.default",
        LONG_MAX,
        "The bytes per second that a client id may produce to this broker where no other quota is set for it. Kafka "
        "removed the setting in 3.0.",
        least=1,
    )
    quota_consumer_default = integer(
        "quota.consumer.default",
        LONG_MAX,
        "The bytes per second that a client id may fetch from this broker where no other quota is set for it. Kafka "
        "removed the setting in 3.0.",
        least=1,
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "The connections per second that this broker takes; more wait. The inter-broker listener is exempt where there "
        "is another one. listener.name.NAME.max.connection.creation.rate limits one listener.",
        least=0,
        kind=_INT,
        update=UpdateMode.CLUSTER_WIDE,
    )
