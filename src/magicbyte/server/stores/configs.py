"""Describe settings, and compute changes of them, without requests and storage.

Sources: Kafka's ConfigHelper and ConfigAdminManager, and responses of brokers of 2.8 and 3.9.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.errors import InvalidConfigError, InvalidRequestError
from magicbyte.server.serving import loggers
from magicbyte.server.settings.config import SETTINGS, BrokerConfig
from magicbyte.server.settings.group_settings import GROUP_SETTINGS
from magicbyte.server.settings.kafka_settings import is_only_per_listener, of_one_listener, other_setting
from magicbyte.server.settings.settings import Setting, SettingType, UpdateMode, text
from magicbyte.server.settings.topic_config import TOPIC_SETTINGS

if TYPE_CHECKING:
    from magicbyte.server.stores.topics import ServedTopic


_FOR_TOPICS: Final = {each.broker.name for each in TOPIC_SETTINGS.values() if each.broker is not None}
"""Settings of the broker that are defaults of topic settings."""
_HIDDEN: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Settings of the authorizer, which Kafka does not show."""
_READ_ONLY: Final = {
    "advertised.listeners": False,
    "listener.security.protocol.map": False,
    "listeners": False,
    "log.message.format.version": True,
}
"""3.9.1's read-only flags of settings whose update mode differs here, so that admin tools behave alike."""


_THREAD_COUNTS: Final = {
    "background.threads": 10,
    "num.io.threads": 8,
    "num.network.threads": 3,
    "num.recovery.threads.per.data.dir": 1,
    "num.replica.fetchers": 1,
}
"""Sizes of thread pools, with Kafka's defaults."""


class ConfigSource(enum.IntEnum):
    """The source of a value, by the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


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
    for name in sorted({*SETTINGS, *config.static, *config.of_all, *config.of_this}):
        setting = broker_setting(name)
        synonyms = tuple(_of_broker(setting, config))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = config.texts[name] if name in SETTINGS else synonyms[0].value
        read_only = _READ_ONLY.get(name, setting.update is UpdateMode.READ_ONLY)
        described.append(_shown(Described(name, value, source, read_only, False, setting, synonyms)))
    return described


def broker_setting(name: str) -> Setting[Any]:
    """Return the definition of a broker's setting, with the kind `UNKNOWN` for one that Kafka 3.9 does not have."""
    known = SETTINGS.get(name) or other_setting(name)
    if known is not None:
        return known
    general = of_one_listener(name)
    if general is not None:
        known = SETTINGS.get(general) or other_setting(general)
    kind = SettingType.UNKNOWN if known is None else known.kind
    return text(name, None, "An unknown setting." if known is None else known.doc, kind=kind)


def _shown(described: Described) -> Described:
    """Return a broker's setting as responses show it: without values that may be secret.

    As in Kafka these are passwords, and settings of unknown type, among them those of the authorizer.
    """
    if described.setting.kind not in (SettingType.PASSWORD, SettingType.UNKNOWN) and described.name not in _HIDDEN:
        return described
    synonyms = tuple(each._replace(value=None) for each in described.synonyms)
    return described._replace(value=None, is_sensitive=True, synonyms=synonyms)


def describe_all_brokers(config: BrokerConfig) -> list[Described]:
    """Return the dynamic settings of all brokers, by name."""
    found = []
    for name, value in sorted(config.of_all.items()):
        setting, synonyms = broker_setting(name), (Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        read_only = name not in SETTINGS and setting.update is UpdateMode.READ_ONLY
        found.append(_shown(Described(name, value, synonyms[0].source, read_only, False, setting, synonyms)))
    return found


def describe_loggers() -> list[Described]:
    """Return the level of each logger, by name."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        Described(name, level, source, False, False, text(name, None, "A logger.", kind=SettingType.UNKNOWN), ())
        for name, level in loggers.levels().items()
    ]


def describe_group(own: Mapping[str, str], known: frozenset[str], config: BrokerConfig) -> list[Described]:
    """Return the settings of a group, by name; `known` are the names that the release has."""
    described = []
    for name, setting in sorted(GROUP_SETTINGS.items()):
        if name not in known or (setting.is_hidden and name not in own):
            continue
        synonyms = [Synonym(name, own[name], ConfigSource.GROUP)] if name in own else []
        broker = setting.setting if setting.broker is None else setting.broker
        source = ConfigSource.STATIC_BROKER if broker.name in config.static else ConfigSource.DEFAULT
        synonyms.append(Synonym(broker.name, setting.default(config), source))
        value, source = synonyms[0].value, synonyms[0].source
        described.append(Described(name, value, source, False, False, setting.setting, tuple(synonyms)))
    return described


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
        (ConfigSource.DEFAULT, {name: text for name in names if (text := broker_setting(name).default) is not None}),
    )
    found = (Synonym(name, given[name], source) for source, given in places for name in names if name in given)
    return itertools.dropwhile(lambda each: each.name != setting.name, found)


def changed(
    own: Mapping[str, str], current: Mapping[str, str | None], changes: Iterable[ConfigChange]
) -> dict[str, str]:
    """Return the own settings of a topic, broker or group after `changes`; `current` are those in force.

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
    owned = TOPIC_SETTINGS.get(name) or GROUP_SETTINGS.get(name)
    setting = broker_setting(name) if owned is None else owned.setting
    if setting.kind is not SettingType.LIST:
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

    Unknown settings are kept, as in Kafka: they may be for plugins. Passwords are not: the tree would show them.
    """
    for name in sorted(before.keys() | after.keys()):
        setting = broker_setting(name)
        if setting.kind is SettingType.UNKNOWN or before.get(name) == after.get(name):
            continue
        if is_only_per_listener(name):
            raise InvalidRequestError(f"{name}: it can be changed only for one listener: listener.name.NAME.{name}")
        if setting.kind is SettingType.PASSWORD and name in after:
            raise InvalidRequestError(f"{name}: passwords are read from the file of settings only, at the start")
        if setting.update is UpdateMode.READ_ONLY and of_one_listener(name) is None:
            raise InvalidRequestError(f"{name}: it cannot be changed while the broker runs")
        if name in after:
            try:
                setting.parse(after[name])
            except InvalidConfigError as error:
                raise InvalidRequestError(str(error)) from error


def check_thread_counts(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise InvalidRequestError if a thread pool would more than double, or shrink to less than half, as Kafka does.

    Most of these settings have no effect here. Source: Kafka's DynamicThreadPool.
    """
    for name, default in _THREAD_COUNTS.items():
        count, wanted = (_thread_count(name, config, default) for config in (before, after))
        bound = None
        if wanted < count // 2:
            bound = "should be at least half the current value"
        elif wanted > 2 * count:
            bound = "should not be greater than double the current value"
        if bound is not None:
            raise InvalidRequestError(
                f"Dynamic thread count update validation failed for {name}={wanted}, value {bound} {count}"
            )


def _thread_count(name: str, config: BrokerConfig, default: int) -> int:
    setting = broker_setting(name)
    given = next(iter(_of_broker(setting, config)), None)
    return default if given is None or given.value is None else int(setting.parse(given.value))
