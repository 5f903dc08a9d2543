"""The settings of groups (KIP-1043's resource type 32), whose values come from the group, else from the broker.

`GROUP_SETTINGS` is the only list of them, for describing, altering and documenting. Those of share and streams groups
are stored and shown, as far as the release has them. Names, defaults and bounds are those of brokers of 4.1, 4.3, 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.settings import Setting, SettingType, boolean, choice, integer, text, words

CONSUMER_SESSION: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
CONSUMER_INTERVAL: Final = "consumer.assignment.interval.ms"
_DURATION: Final = re.compile(r"by_duration:\+?P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?", re.IGNORECASE)
_SESSION: Final = "The session timeout of members."
_HEARTBEAT: Final = "The interval at which members send heartbeats."
_INTERVAL: Final = "The minimum time between two assignments."


class GroupSetting(Struct, frozen=True):
    """A setting of groups. `broker`: the broker's setting with its default, None if there is none.

    `least` and `most`: the broker's settings that bound it. `is_hidden`: it is described only for groups that have it.
    """

    setting: Setting[Any]
    broker: Setting[Any] | None = None
    least: Setting[Any] | None = None
    most: Setting[Any] | None = None
    is_hidden: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        name: str = self.setting.name
        return name

    def default(self, config: BrokerConfig) -> str:
        """Return the value of a group without its own, as text."""
        return _broker_text(config, self.setting if self.broker is None else self.broker)

    def check(self, value: str, config: BrokerConfig) -> None:
        """Raise InvalidConfigError for a value that cannot be parsed, or that the broker does not permit."""
        parsed = self.setting.parse(value)
        least, most = self.bounds(config)
        if (least is not None and parsed < least) or (most is not None and parsed > most):
            raise InvalidConfigError(f"{self.name}: expected a number from {least or 0} to {most}, found {value!r}")

    def bounds(self, config: BrokerConfig) -> tuple[int | None, int | None]:
        """Return the least and the largest value that the broker permits; None: no bound."""
        least, most = (None if each is None else int(_broker_text(config, each)) for each in (self.least, self.most))
        return least, most


def _broker_text(config: BrokerConfig, setting: Setting[Any]) -> str:
    """Return the value of a broker's setting that may be outside `BrokerConfig`."""
    return config.texts.get(setting.name) or config.static.get(setting.name) or setting.default or ""


def _of(
    name: str, doc: str, broker: Setting[int], least: Setting[int] | None = None, most: Setting[int] | None = None
) -> GroupSetting:
    """Return a setting of the type of a broker's setting."""
    return GroupSetting(replace(broker, name=name, doc=doc), broker, least, most)


def _other(name: str, default: int, least: int = 1) -> Setting[int]:
    """Return a setting of Kafka's brokers that is outside `BrokerConfig`."""
    return integer(name, default, "", least=least, kind=SettingType.INT)


def _bounded(name: str, doc: str, default: int, least: int, most: int, *, smallest: int = 1) -> GroupSetting:
    kind, _, what = name.partition(".")
    bounds = _other(f"group.{kind}.min.{what}", least, 0), _other(f"group.{kind}.max.{what}", most, 0)
    return _of(name, doc, _other(f"group.{name}", default, smallest), *bounds)


def _of_members(kind: str) -> Iterable[GroupSetting]:
    """Return the settings that share and streams groups have in common with consumer groups."""
    yield _bounded(f"{kind}.session.timeout.ms", _SESSION, 45_000, 45_000, 60_000)
    yield _bounded(f"{kind}.heartbeat.interval.ms", _HEARTBEAT, 5_000, 5_000, 15_000)
    yield _bounded(f"{kind}.assignment.interval.ms", _INTERVAL, 1_000, 0, 15_000, smallest=0)


def _offload(kind: str) -> GroupSetting:
    setting = boolean(f"{kind}.assignor.offload.enable", True, "Has no effect: assignments are computed at once.")
    return GroupSetting(setting, replace(setting, name=f"group.{setting.name}"), is_hidden=True)


def _reset(found: str) -> str:
    if found not in ("earliest", "latest") and not _DURATION.fullmatch(found):
        raise ValueError(found)
    return found


GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {
    each.name: each
    for each in (
        _of(
            CONSUMER_SESSION,
            _SESSION,
            BrokerConfig.group_consumer_session_timeout_ms,
            BrokerConfig.group_consumer_min_session_timeout_ms,
            BrokerConfig.group_consumer_max_session_timeout_ms,
        ),
        _of(
            CONSUMER_HEARTBEAT,
            _HEARTBEAT,
            BrokerConfig.group_consumer_heartbeat_interval_ms,
            BrokerConfig.group_consumer_min_heartbeat_interval_ms,
            BrokerConfig.group_consumer_max_heartbeat_interval_ms,
        ),
        _of(
            CONSUMER_INTERVAL,
            _INTERVAL,
            BrokerConfig.group_consumer_assignment_interval_ms,
            BrokerConfig.group_consumer_min_assignment_interval_ms,
            BrokerConfig.group_consumer_max_assignment_interval_ms,
        ),
        *_of_members("share"),
        *_of_members("streams"),
        *map(_offload, ("consumer", "share", "streams")),
        GroupSetting(
            Setting(
                "share.auto.offset.reset",
                SettingType.STRING,
                "latest",
                _reset,
                "earliest, latest or by_duration:PnDTnHnMn.nS",
                "Where a share group begins in a partition.",
            )
        ),
        GroupSetting(
            choice(
                "share.isolation.level",
                "read_uncommitted",
                "The isolation level of a share group.",
                ("read_committed", "read_uncommitted"),
            )
        ),
        _bounded("share.record.lock.duration.ms", "The duration of acquisition locks.", 30_000, 15_000, 60_000),
        _bounded("share.delivery.count.limit", "The maximum deliveries of a record.", 5, 2, 10, smallest=2),
        _bounded(
            "share.partition.max.record.locks",
            "The maximum number of records of a partition that are acquired at a time.",
            2_000,
            100,
            4_000,
            smallest=100,
        ),
        GroupSetting(boolean("share.renew.acknowledge.enable", True, "Whether acquisition locks can be renewed.")),
        GroupSetting(
            text("errors.deadletterqueue.topic.name", "", "The topic that gets the rejected records of a share group.")
        ),
        GroupSetting(
            boolean(
                "errors.deadletterqueue.copy.record.enable", False, "Whether that topic gets keys, values and headers."
            )
        ),
        _of(
            "streams.num.standby.replicas",
            "The number of standby replicas of each task.",
            _other("group.streams.num.standby.replicas", 0, 0),
            most=_other("group.streams.max.standby.replicas", 2, 0),
        ),
        _of(
            "streams.initial.rebalance.delay.ms",
            "The time that the coordinator waits for more members before the first assignment.",
            _other("group.streams.initial.rebalance.delay.ms", 3_000, 0),
        ),
        GroupSetting(
            text("streams.assignor.name", "sticky", "The assignor of a streams group."),
            text("group.streams.assignors", "sticky", ""),
        ),
        GroupSetting(
            words("streams.rack.aware.assignment.tags", "", "The client tags that tell racks apart."),
            words("group.streams.rack.aware.assignment.tags", "", ""),
        ),
    )
}


def check_group_settings(settings: Mapping[str, str], known: frozenset[str], config: BrokerConfig) -> None:
    """Raise InvalidConfigError unless a group may have these settings. `known`: the names that the release has."""
    for name in settings:
        if name not in known:
            raise InvalidConfigError(f"{name}: there is no such setting of groups")
    for name, value in settings.items():
        GROUP_SETTINGS[name].check(value, config)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = (
            int(settings.get(name) or GROUP_SETTINGS[name].default(config))
            for name in (f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms")
        )
        is_own = any(name.startswith(f"{kind}.") for name in settings)
        if is_own and session <= heartbeat:
            raise InvalidConfigError(f"{kind}.session.timeout.ms: expected more than {kind}.heartbeat.interval.ms")


def int_of(settings: Mapping[str, str], name: str, config: BrokerConfig) -> int:
    """Return the number that counts for a group with these settings, within the bounds that the broker has now."""
    setting = GROUP_SETTINGS[name]
    if name not in settings:
        return int(setting.default(config))
    value: int = setting.setting.parse(settings[name])
    least, most = setting.bounds(config)
    return min(max(value, value if least is None else least), value if most is None else most)
