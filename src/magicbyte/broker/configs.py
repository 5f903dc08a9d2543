"""Describe settings, and compute changes of them, without requests and storage.

Sources: Kafka's ConfigHelper and ConfigAdminManager, and responses of brokers of 2.8 and 3.9.
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
"""Settings of the broker that are defaults of topic settings."""
_READ_ONLY: Final = {
    "advertised.listeners": False,
    "listener.security.protocol.map": False,
    "listeners": False,
    "log.message.format.version": True,
}
"""3.9.1's read-only flags of settings whose update mode differs here, so that admin tools behave alike."""


class ConfigSource(enum.IntEnum):
    """The source of a value, by the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigOperation(enum.IntEnum):
    """The operations of an incremental change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Synonym(NamedTuple):
    """One source of a value for a setting."""

    name: str
    value: str | None
    source: ConfigSource


class Described(NamedTuple):
    """A setting in force. `synonyms` are all sources with a value, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    setting: Setting[Any]
    synonyms: tuple[Synonym, ...]


class ConfigChange(NamedTuple):
    """One part of an incremental change. `operation` is a number of `ConfigOperation`, or an invalid one."""

    name: str
    operation: int
    value: str | None


def describe_topic(topic: ServedTopic, config: BrokerConfig) -> list[Described]:
    """Return all settings of a topic, by name."""
    described = []
    for name, setting in sorted(TOPIC_SETTINGS.items()):
        synonyms = [Synonym(name, topic.configs[name], ConfigSource.TOPIC)] if name in topic.configs else []
        if setting.broker is not None:
            synonyms += _of_broker(setting.broker, config)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = topic.config.settings[name]
        described.append(Described(name, value, source, False, False, setting.setting, tuple(synonyms)))
    return described


def describe_broker(config: BrokerConfig) -> list[Described]:
    """Return all settings of this broker, by name."""
    described = []
    for name, setting in sorted(SETTINGS.items()):
        synonyms = tuple(_of_broker(setting, config))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        sensitive = setting.kind is SettingType.PASSWORD
        value = None if sensitive else config.texts[name]
        read_only = _READ_ONLY.get(name, setting.update is UpdateMode.READ_ONLY)
        described.append(Described(name, value, source, read_only, sensitive, setting, synonyms))
    return described


def describe_all_brokers(config: BrokerConfig) -> list[Described]:
    """Return the dynamic settings of all brokers, by name."""
    found = []
    for name, value in sorted(config.of_all.items()):
        if name in SETTINGS:
            synonyms = (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
            found.append(Described(name, value, synonyms[0].source, False, False, SETTINGS[name], synonyms))
    return found


def _of_broker(setting: Setting[Any], config: BrokerConfig) -> Iterable[Synonym]:
    """Return the sources of a broker's setting, as Kafka lists them: none before the setting's own first value.

    So `log.retention.hours`, if used for `log.retention.ms`, is not listed for that; and a setting that is also a
    topic's is never listed for another.
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
    """Return the own settings of a topic or broker after `changes`; `current` are those in force.

    Names and values are not validated beyond that. Raises InvalidRequestError, InvalidConfigError.
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
    """Raise InvalidRequestError for changes of read-only or invalid settings.

    Unknown settings are kept, as in Kafka: they may be for plugins.
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
