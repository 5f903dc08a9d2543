"""The settings of topics, whose values come from the topic, else from the broker.

`TOPIC_SETTINGS` is the only list of them, for describing, altering, documenting, and for `log/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.records.encode import Format
from magicbyte.engine.replication.throttle import ThrottledReplicas
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.settings import LONG_MAX, Setting, SettingType, boolean

if TYPE_CHECKING:
    from magicbyte.engine.log.cleaning.compaction import CompactionConfig


class TopicSetting(Struct, frozen=True):
    """A topic setting: its `name`, and the broker's setting with its default, if there is one."""

    name: str
    setting: Setting[Any]
    broker: Setting[Any] | None

    @property
    def synonyms(self) -> tuple[tuple[str, int], ...]:
        """The broker's settings for its default, in order of precedence, with the factor of each."""
        return () if self.broker is None else ((self.broker.name, 1), *self.broker.synonyms)


def _of(name: str, broker: Setting[Any]) -> TopicSetting:
    return TopicSetting(name, replace(broker, name=name), broker)


def _throttled(name: str, who: str) -> TopicSetting:
    doc = (
        f"The replicas that {who}.replication.throttled.rate throttles on the {who}'s side, as PARTITION:BROKER,... or "
        "* for all."
    )
    valid = "a list of PARTITION:BROKER, or *"
    return TopicSetting(name, Setting(name, SettingType.LIST, "", ThrottledReplicas.parse, valid, doc), None)


FOLLOWERS: Final = "follower.replication.throttled.replicas"
LEADERS: Final = "leader.replication.throttled.replicas"
IDENTICAL: Final = "mirror.identical"
_IDENTICAL: Final = (
    "Whether produced batches are stored byte for byte with the offsets that they carry, for mirrors that keep "
    "offsets. No other producer should write to the topic."
)

TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    each.name: each
    for each in (
        _of("cleanup.policy", BrokerConfig.log_cleanup_policy),
        _of("compression.type", BrokerConfig.compression_type),
        _of("delete.retention.ms", BrokerConfig.log_cleaner_delete_retention_ms),
        _of("enriched.append.mode", BrokerConfig.enriched_append_mode),
        _of("file.delete.delay.ms", BrokerConfig.log_segment_delete_delay_ms),
        _of("flush.messages", BrokerConfig.log_flush_interval_messages),
        _of("flush.ms", BrokerConfig.log_flush_interval_ms),
        _throttled(FOLLOWERS, "follower"),
        _of("index.interval.bytes", BrokerConfig.log_index_interval_bytes),
        _throttled(LEADERS, "leader"),
        _of("log.flush.policy", BrokerConfig.log_flush_policy),
        _of("log.head.truncation", BrokerConfig.log_head_truncation),
        _of("max.compaction.lag.ms", BrokerConfig.log_cleaner_max_compaction_lag_ms),
        _of("max.decompressed.message.bytes", BrokerConfig.max_decompressed_message_bytes),
        _of("max.message.bytes", BrokerConfig.message_max_bytes),
        _of("message.downconversion.enable", BrokerConfig.log_message_downconversion_enable),
        _of("message.format.version", BrokerConfig.log_message_format_version),
        _of("message.timestamp.after.max.ms", BrokerConfig.log_message_timestamp_after_max_ms),
        _of("message.timestamp.before.max.ms", BrokerConfig.log_message_timestamp_before_max_ms),
        _of("message.timestamp.difference.max.ms", BrokerConfig.log_message_timestamp_difference_max_ms),
        _of("message.timestamp.type", BrokerConfig.log_message_timestamp_type),
        TopicSetting(IDENTICAL, boolean(IDENTICAL, False, _IDENTICAL), None),
        _of("min.cleanable.dirty.ratio", BrokerConfig.log_cleaner_min_cleanable_ratio),
        _of("min.compaction.lag.ms", BrokerConfig.log_cleaner_min_compaction_lag_ms),
        _of("min.insync.replicas", BrokerConfig.min_insync_replicas),
        _of("preallocate", BrokerConfig.log_preallocate),
        _of("retention.bytes", BrokerConfig.log_retention_bytes),
        _of("retention.ms", BrokerConfig.log_retention_ms),
        _of("segment.bytes", BrokerConfig.log_segment_bytes),
        _of("segment.index.bytes", BrokerConfig.log_index_size_max_bytes),
        _of("segment.jitter.ms", BrokerConfig.log_roll_jitter_ms),
        _of("segment.ms", BrokerConfig.log_roll_ms),
        _of("unclean.leader.election.enable", BrokerConfig.unclean_leader_election_enable),
    )
}

KEEPS_ALL: Final = {"retention.bytes": "-1", "retention.ms": "-1"}
"""Settings with which nothing is deleted."""
KEEPS_RECORDS: Final = {
    **KEEPS_ALL,
    "min.compaction.lag.ms": str(LONG_MAX),
    "max.compaction.lag.ms": str(LONG_MAX),
}
"""Settings with which nothing is deleted or compacted."""
FORMAT: Final = "message.format.version"
_CLEANER = ("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size")
_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_BOTH_BOUNDS = "message.timestamp.difference.max.ms"


class TopicConfig(Struct, frozen=True):
    """The topic settings in force, and their meaning for each part of `log/`.

    `settings` has the text of each by its name in `TOPIC_SETTINGS`, `values` its typed value; `cleaner` has the typed
    values of those that only the broker has.
    """

    settings: Mapping[str, str]
    values: Mapping[str, Any]
    log: LogConfig
    append: AppendRules
    cleaner: Mapping[str, Any]

    @property
    def leaders(self) -> ThrottledReplicas:
        """The throttled replicas on the leaders' side."""
        replicas: ThrottledReplicas = self.values[LEADERS]
        return replicas

    @property
    def followers(self) -> ThrottledReplicas:
        """The throttled replicas on the followers' side."""
        replicas: ThrottledReplicas = self.values[FOLLOWERS]
        return replicas

    @property
    def compaction(self) -> CompactionConfig:
        """The compaction settings. The first call imports compaction, which takes a while."""
        from magicbyte.engine.log.cleaning.compaction import CompactionConfig

        return CompactionConfig.of({**self.cleaner, **self.values})

    @property
    def min_insync_replicas(self) -> int:
        """The minimum number of in-sync replicas for acks=all."""
        return int(self.values["min.insync.replicas"])

    @property
    def is_identical(self) -> bool:
        """Whether sets keep their own offsets."""
        return bool(self.values[IDENTICAL])

    @property
    def downconversion_enabled(self) -> bool:
        """Whether old clients get newer formats down-converted."""
        return bool(self.values["message.downconversion.enable"])


def resolve(overrides: Mapping[str, str], config: BrokerConfig, rules: IndexRules = LATEST_RULES) -> TopicConfig:
    """Return the settings in force for a topic with these own settings. Raises InvalidConfigError.

    The enriched format is always a topic's own, from its creation: a broker's default of it applies to new topics.
    """
    settings = {}
    for name, each in TOPIC_SETTINGS.items():
        by_broker = each.setting.default if each.broker is None else config.texts[each.broker.name]
        settings[name] = overrides.get(name, by_broker or "").strip()
    for bound in _BOUNDS:
        if _BOTH_BOUNDS in overrides and bound not in overrides:
            settings[bound] = settings[_BOTH_BOUNDS]
    values = typed(settings)
    stored: Format = values[FORMAT]
    enriched = stored is Format.ENRICHED and FORMAT in overrides
    if FORMAT in overrides and stored.magic > config.offer.newest_format.magic:
        raise InvalidConfigError(
            f"{FORMAT} {settings[FORMAT]}: a broker with as.version {config.as_version} stores older formats only"
        )
    if stored is Format.ENRICHED and not enriched:
        values[FORMAT], settings[FORMAT] = config.plain_format, config.plain_format.value
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise InvalidConfigError("min.compaction.lag.ms: expected no more than max.compaction.lag.ms")
    if enriched and {"compact", "delete"} <= set(values["cleanup.policy"]):
        raise InvalidConfigError("cleanup.policy compact,delete: a log of the enriched dialect has one of them")
    log = LogConfig.of(values, rules)
    log = log if config.log_cleaner_enable else replace(log, compact=False)
    cleaner = {name: config.values[name] for name in _CLEANER}
    return TopicConfig(settings, values, log, AppendRules.of(values), cleaner)


def typed(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the typed values of a topic's settings, without unknown ones. Raises InvalidConfigError.

    Only here do texts of a topic's settings become values, also of those of another cluster.
    """
    return {name: TOPIC_SETTINGS[name].setting.parse(text) for name, text in settings.items() if name in TOPIC_SETTINGS}


def usable(stored: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """Return the own settings of a topic from the tree, without invalid ones.

    If any is invalid, the result contains KEEPS_RECORDS.
    """
    try:
        resolve(stored, config)
    except InvalidConfigError:
        valid = {name: text for name, text in stored.items() if name == FORMAT or _is_valid(name, text, config)}
        if FORMAT in valid and own_value(valid, FORMAT) is None:
            del valid[FORMAT]
        return valid | KEEPS_RECORDS
    return dict(stored)


def _is_valid(name: str, text: str, config: BrokerConfig) -> bool:
    try:
        resolve({name: text}, config)
    except InvalidConfigError:
        return False
    return True


def own_value(settings: Mapping[str, str], name: str) -> Any:
    """Return the typed value of a topic's own setting; None if it has none, or an invalid one, which is ignored."""
    try:
        return typed({name: settings[name]})[name] if name in settings else None
    except InvalidConfigError:
        return None


def check_overrides(overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return the valid own settings of a topic. Raises InvalidConfigError."""
    checked = {}
    for name, text in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise InvalidConfigError(f"{name}: unknown topic setting")
        if text is None:
            raise InvalidConfigError(f"{name}: expected {TOPIC_SETTINGS[name].setting.valid}, found nothing")
        typed({name: text})
        checked[name] = text.strip()
    return checked


def of_new_topic(overrides: Mapping[str, str | None], config: BrokerConfig) -> dict[str, str]:
    """Return the own settings of a new topic. Raises InvalidConfigError."""
    own = check_overrides(overrides)
    if FORMAT not in own and config.log_message_format_version is Format.ENRICHED:
        own[FORMAT] = Format.ENRICHED.value
    return own
