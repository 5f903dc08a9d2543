"""What is said of settings, and what a change of them makes of those that were there: no requests, no storage.

Sources: Kafka's ConfigHelper and ConfigAdminManager, and what brokers of 2.8 and 3.9 answered.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.broker.config import SETTINGS, BrokerConfig
from magicbyte.broker.settings import Setting, SettingType, UpdateMode
from magicbyte.broker.topic_config import TOPIC_SETTINGS
from magicbyte.errors import InvalidConfigError, InvalidRequestError

if TYPE_CHECKING:
    from magicbyte.broker.topic_table import ServedTopic


_FOR_TOPICS: Final = {each.broker.name for each in TOPIC_SETTINGS.values() if each.broker is not None}
"""Settings of the broker that stand for those of topics."""
_READ_ONLY: Final = {
    "advertised.listeners": False,
    "listener.security.protocol.map": False,
    "listeners": False,
    "log.message.format.version": True,
}
"""What 3.9.1 says of settings that change at other times here: admin tools know them so."""


class ConfigSource(enum.IntEnum):
    """Where a value comes from, by the numbers that DescribeConfigs has for it."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigOperation(enum.IntEnum):
    """What an incremental change does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """A place that has a value for a setting."""

    name: str
    value: str | None
    source: ConfigSource


class Described(NamedTuple):
    """A setting as it is in force. `synonyms` are all places that have a value, the one that counts first."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    setting: Setting[Any]
    synonyms: tuple[Synonym, ...]


class ConfigChange(NamedTuple):
    """One part of an incremental change. `operation` is a number of `ConfigOperation`, or a wrong one."""

    name: str
    operation: int
    value: str | None


def describe_topic(topic: ServedTopic, config: BrokerConfig) -> list[Described]:
    """Return all settings of a topic, by name."""
    found = []
    for name, each in sorted(TOPIC_SETTINGS.items()):
        synonyms = [Synonym(name, topic.configs[name], ConfigSource.TOPIC)] if name in topic.configs else []
        if each.broker is not None:
            synonyms += _of_broker(each.broker, config)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = topic.config.settings[name]
        found.append(Described(name, value, source, False, False, each.setting, tuple(synonyms)))
    return found


def describe_broker(config: BrokerConfig) -> list[Described]:
    """Return all settings of this broker, by name."""
    found = []
    for name, setting in sorted(SETTINGS.items()):
        synonyms = tuple(_of_broker(setting, config))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        sensitive = setting.kind is SettingType.PASSWORD
        value = None if sensitive else config.texts[name]
        read_only = _READ_ONLY.get(name, setting.update is UpdateMode.READ_ONLY)
        found.append(Described(name, value, source, read_only, sensitive, setting, synonyms))
    return found


def describe_all_brokers(config: BrokerConfig) -> list[Described]:
    """Return what was set at run time for all brokers, by name."""
    found = []
    for name, value in sorted(config.of_all.items()):
        if name in SETTINGS:
            synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
            found.append(Described(name, value, synonyms[0].source, False, False, SETTINGS[name], synonyms))
    return found


def _of_broker(setting: Setting[Any], config: BrokerConfig) -> Iterable[Synonym]:
    """Return the places of a broker's setting, as Kafka lists them: none in front of the setting's own first value.

    So a `log.retention.hours` that stands in for `log.retention.ms` is not listed for that one; and what is a setting
    of topics itself is never listed for another.
    """
    names = [setting.name, *(name for name, _ in setting.synonyms if name not in _FOR_TOPICS)]
    places = (
        (ConfigSource.DYNAMIC_BROKER, config.of_this),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.of_all),
        (ConfigSource.STATIC_BROKER, {**config.of_directory, **config.static}),
        (ConfigSource.DEFAULT, {name: default for name in names if (default := SETTINGS[name].default) is not None}),
    )
    found = (Synonym(name, given[name], source) for source, given in places for name in names if name in given)
    return itertools.dropwhile(lambda each: each.name != setting.name, found)


def changed(
    own: Mapping[str, str], current: Mapping[str, str | None], changes: Iterable[ConfigChange]
) -> dict[str, str]:
    """Return the settings of its own that a topic or broker has after `changes`; `current` are those in force.

    Names and values are not looked at beyond that. Raises InvalidRequestError, InvalidConfigError.
    """
    result, seen = dict(own), set[str]()
    for name, operation, value in changes:
        if name in seen:
            raise InvalidRequestError(f"{name}: expected it once in a request")
        seen.add(name)
        if operation == ConfigOperation.DELETE:
            result.pop(name, None)
            continue
        if operation not in ConfigOperation.__members__.values():
            raise InvalidRequestError(f"{name}: expected operation 0 to 3, found {operation}")
        if value is None:
            raise InvalidRequestError(f"{name}: expected a value")
        if operation == ConfigOperation.SET:
            result[name] = value
        else:
            result[name] = _list_changed(name, result.get(name) or current.get(name) or "", operation, value)
    return result


def _list_changed(name: str, before: str, operation: int, value: str) -> str:
    setting = TOPIC_SETTINGS[name].setting if name in TOPIC_SETTINGS else SETTINGS.get(name)
    if setting is None or setting.kind is not SettingType.LIST:
        raise InvalidConfigError(f"{name}: expected a list to append to or subtract from")
    words = _words(before)
    given = _words(value)
    if operation == ConfigOperation.APPEND:
        known = set(words)
        return ",".join([*words, *(each for each in given if each not in known)])
    gone = set(given)
    return ",".join(each for each in words if each not in gone)


def _words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def check_broker_changes(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise InvalidRequestError for changes of settings that hold from a broker's start to its end, or are wrong.

    Settings that are unknown are kept, as in Kafka: they may be for somebody else.
    """
    for name in sorted(before.keys() | after.keys()):
        setting = SETTINGS.get(name)
        if setting is None or before.get(name) == after.get(name):
            continue
        if setting.update is UpdateMode.READ_ONLY:
            raise InvalidRequestError(f"{name}: it cannot be changed while the broker runs")
        if name in after:
            try:
                setting.parse(after[name])
            except InvalidConfigError as error:
                raise InvalidRequestError(str(error)) from error
