"""The broker's settings: one table of names, types, defaults and meanings, and a broker's values for them.

Names and defaults are Kafka's; docs/reference/configuration.md is made from here and says where a default is another
one. Sources: the definitions in Kafka 3.9 and 2.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from magicbyte.broker.cluster_settings import ClusterSettings
from magicbyte.broker.coordinator_settings import CoordinatorSettings
from magicbyte.broker.listener_security import is_of_security
from magicbyte.broker.listeners import Listener, http_address, is_loopback, listeners
from magicbyte.broker.offer import OWN, Offer, offer_of
from magicbyte.broker.security_settings import SecuritySettings
from magicbyte.broker.settings import (
    INT_MAX,
    LONG_MAX,
    Setting,
    SettingType,
    UpdateMode,
    boolean,
    choice,
    integer,
    message_format,
    number,
    protocol_version,
    text,
    words,
)
from magicbyte.errors import InvalidConfigError
from magicbyte.log.files.properties import parse_properties
from magicbyte.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.records.encode import KAFKA_FORMATS, Format
from magicbyte.releases import MAGIC_NAMES, PROTOCOL_OF_MAGIC, line_of, protocol_name

_INT = SettingType.INT
_ANY_TIME = UpdateMode.CLUSTER_WIDE
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_DIALECT: Final = re.compile(r"listener\.name\.([a-z0-9_.-]+)\.magicbyte\.dialect")


class BrokerConfig(ClusterSettings, SecuritySettings, CoordinatorSettings):
    """A broker's settings. Each attribute below is the value in force, which changes with `change`.

    `static` are those from the file and the command line, `of_all` and `of_this` those that were set while it ran, for
    all brokers and for this one. `texts` has what is in force as text, None where there is no value. `of_directory` are
    those that the log directory is kept with, where they are not given; `remembered` are all of these: see
    `broker/adoption.py`.
    """

    # ---- who and where

    broker_id = integer("broker.id", 0, "The number of this broker in its cluster.", least=0, kind=_INT)
    broker_rack = text("broker.rack", None, "Where the broker stands; clients are told.")
    log_dirs = text("log.dirs", None, "The directory of the logs, exactly one.")
    log_dir = text("log.dir", "kafka-logs", "The directory of the logs, where log.dirs is not set.")
    listeners_text = text(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to listen on, as NAME://HOST:PORT with commas between them. No host: all interfaces. Port 0: a "
        "free one.",
    )
    advertised_listeners_text = text(
        "advertised.listeners", None, "Addresses that clients are told, for those listeners where it is another one."
    )
    protocol_map_text = text(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener, by its name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the answer to a login that is refused is held back.",
        least=0,
        most=10_000,
        kind=_INT,
    )
    inter_broker_protocol_version = protocol_version(
        "inter.broker.protocol.version", "2.8-IV1", "The Kafka version that brokers speak with each other."
    )

    as_version = text(
        "as.version",
        None,
        "A Kafka release, 0.8.2 to 4.1: offer its requests, their versions and its formats, and no later ones, so that "
        "clients fall back as they would.",
    )

    # ---- topics

    auto_create_topics_enable = boolean("auto.create.topics.enable", True, "Make topics that clients ask for.")
    delete_topic_enable = boolean("delete.topic.enable", True, "Let clients delete topics.")
    num_partitions = integer(
        "num.partitions", 1, "Partitions of a topic that is made without a number of them.", least=1, kind=_INT
    )
    default_replication_factor = integer(
        "default.replication.factor", 1, "Replicas of a topic that is made without a number of them.", kind=_INT
    )

    # ---- the logs

    compression_type = choice(
        "compression.type",
        "producer",
        "The codec of what is stored; producer: as it came.",
        _CODECS,
        update=_ANY_TIME,
    )
    message_max_bytes = integer(
        "message.max.bytes",
        1_048_588,
        "The largest batch, or message of the older formats, as it is sent and as it is stored.",
        least=0,
        kind=_INT,
        update=_ANY_TIME,
    )
    max_decompressed_message_bytes = integer(
        "max.decompressed.message.bytes",
        DEFAULT_MAX_BATCH_BYTES,
        "What one batch may decompress to.",
        least=1,
        update=_ANY_TIME,
    )
    log_message_format_version = message_format(
        "log.message.format.version",
        "3.0-IV1",
        "The format that is stored: 0, 1, 2, enriched, or the Kafka version that brought it. A topic that is made "
        "while it is enriched stays so.",
        update=_ANY_TIME,
    )
    log_message_downconversion_enable = boolean(
        "log.message.downconversion.enable",
        True,
        "Convert for readers that do not know the stored format; else they get an error.",
        update=_ANY_TIME,
    )
    log_message_timestamp_type = choice(
        "log.message.timestamp.type",
        "CreateTime",
        "Whose clock timestamps are of: the producer's or the broker's.",
        ("CreateTime", "LogAppendTime"),
        update=_ANY_TIME,
    )
    log_message_timestamp_difference_max_ms = integer(
        "log.message.timestamp.difference.max.ms",
        LONG_MAX,
        "How far a producer's timestamp may be from the broker's time, both ways, where the two settings for one way "
        "are not set.",
        least=0,
        update=_ANY_TIME,
    )
    log_message_timestamp_before_max_ms = integer(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How much older than the broker's time a producer's timestamp may be.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.message.timestamp.difference.max.ms", 1),),
    )
    log_message_timestamp_after_max_ms = integer(
        "log.message.timestamp.after.max.ms",
        LONG_MAX,
        "How much newer than the broker's time a producer's timestamp may be.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.message.timestamp.difference.max.ms", 1),),
    )
    enriched_append_mode = choice(
        "enriched.append.mode",
        "verify",
        "Look into enriched wrappers before they are stored, or trust what their tags say.",
        ("verify", "trust"),
        update=_ANY_TIME,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "Replicas that must have a batch before it is acknowledged with acks=all.",
        least=1,
        kind=_INT,
        update=_ANY_TIME,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Let a replica that is not in sync lead where no other is left: committed records may be lost.",
        update=_ANY_TIME,
    )
    log_segment_bytes = integer(
        "log.segment.bytes", 1 << 30, "The size of a segment.", least=14, kind=_INT, update=_ANY_TIME
    )
    log_roll_ms = integer(
        "log.roll.ms",
        None,
        "The age at which a segment is ended.",
        least=1,
        update=_ANY_TIME,
        synonyms=(("log.roll.hours", _HOUR_MS),),
    )
    log_roll_hours = integer("log.roll.hours", 168, "The same in hours.", least=1, kind=_INT)
    log_roll_jitter_ms = integer(
        "log.roll.jitter.ms",
        None,
        "By how much less, at most, so that not all segments end at once.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.roll.jitter.hours", _HOUR_MS),),
    )
    log_roll_jitter_hours = integer("log.roll.jitter.hours", 0, "The same in hours.", least=0, kind=_INT)
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes", 10 << 20, "The size of an index file.", least=4, kind=_INT, update=_ANY_TIME
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes", 4096, "Bytes between index entries.", least=0, kind=_INT, update=_ANY_TIME
    )
    max_open_files = integer(
        "max.open.files",
        None,
        "Files of logs that are open at a time; those used least recently are closed and opened again when they are "
        "needed. Not set: half of the file descriptors that the process may have.",
        least=16,
        kind=_INT,
    )
    log_preallocate = boolean(
        "log.preallocate", False, "Give a new segment all of its space at once.", update=_ANY_TIME
    )
    log_flush_policy = choice(
        "log.flush.policy",
        "kafka",
        "kafka: logs are synced by number of records and by time. group-commit: before anything is acknowledged.",
        ("kafka", "group-commit"),
        update=_ANY_TIME,
    )
    log_flush_interval_messages = integer(
        "log.flush.interval.messages", LONG_MAX, "Records between syncs of a log.", least=1, update=_ANY_TIME
    )
    log_flush_interval_ms = integer(
        "log.flush.interval.ms",
        None,
        "Time between syncs of a log.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms = integer(
        "log.flush.scheduler.interval.ms", LONG_MAX, "How often it is looked which logs are to be synced."
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are noted.", least=0, kind=_INT
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often log start offsets are noted.",
        least=0,
        kind=_INT,
    )
    replica_high_watermark_checkpoint_interval_ms = integer(
        "replica.high.watermark.checkpoint.interval.ms", 5000, "How often high watermarks are noted."
    )
    log_retention_bytes = integer(
        "log.retention.bytes", -1, "The size from which the oldest segments go; -1: none.", update=_ANY_TIME
    )
    log_retention_ms = integer(
        "log.retention.ms",
        None,
        "The age at which segments go; -1: never.",
        update=_ANY_TIME,
        synonyms=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    )
    log_retention_minutes = integer("log.retention.minutes", None, "The same in minutes.", kind=_INT)
    log_retention_hours = integer("log.retention.hours", 168, "The same in hours.", kind=_INT)
    log_retention_check_interval_ms = integer(
        "log.retention.check.interval.ms", 300_000, "How often it is looked which segments are to go.", least=1
    )
    log_initial_task_delay_ms = integer(
        "log.initial.task.delay.ms", 30_000, "When that is done for the first time after the start.", least=0
    )
    log_segment_delete_delay_ms = integer(
        "log.segment.delete.delay.ms", 60_000, "Time until files that went are deleted.", least=0, update=_ANY_TIME
    )
    log_cleanup_policy = words(
        "log.cleanup.policy",
        "delete",
        "delete: old segments go. compact: all but the latest record of each key go.",
        ("compact", "delete"),
        update=_ANY_TIME,
    )
    log_head_truncation = boolean(
        "log.head.truncation",
        False,
        "Let retention cut a segment's beginning off, not only take whole segments.",
        update=_ANY_TIME,
    )
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Compact logs.")
    log_cleaner_min_cleanable_ratio = number(
        "log.cleaner.min.cleanable.ratio",
        "0.5",
        "The part of a log that is dirty when it is compacted.",
        least=0,
        most=1,
        update=_ANY_TIME,
    )
    log_cleaner_delete_retention_ms = integer(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a record stays that deletes its key.",
        least=0,
        update=_ANY_TIME,
    )
    log_cleaner_min_compaction_lag_ms = integer(
        "log.cleaner.min.compaction.lag.ms", 0, "The age before which no record goes.", least=0, update=_ANY_TIME
    )
    log_cleaner_max_compaction_lag_ms = integer(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "The age at which a log is compacted, however little of it is dirty.",
        least=1,
        update=_ANY_TIME,
    )
    log_cleaner_backoff_ms = integer(
        "log.cleaner.backoff.ms", 15_000, "How long the cleaner waits when nothing is due.", least=0, update=_ANY_TIME
    )
    log_cleaner_dedupe_buffer_size = integer(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        "Memory for the keys of one compaction.",
        least=1 << 20,
        update=_ANY_TIME,
    )
    log_cleaner_io_buffer_size = integer(
        "log.cleaner.io.buffer.size",
        512 << 10,
        "Memory for what the cleaner reads and writes.",
        least=1024,
        kind=_INT,
        update=_ANY_TIME,
    )
    log_cleaner_io_buffer_load_factor = number(
        "log.cleaner.io.buffer.load.factor",
        "0.9",
        "How full the memory for keys may be.",
        least=0.01,
        most=1,
        update=_ANY_TIME,
    )
    log_cleaner_io_max_bytes_per_second = number(
        "log.cleaner.io.max.bytes.per.second",
        "1.7976931348623157E308",
        "What the cleaner reads and writes in a second.",
        least=1,
        most=1.8e308,
        update=_ANY_TIME,
    )

    # ---- connections and requests

    socket_request_max_bytes = integer(
        "socket.request.max.bytes", 100 << 20, "The largest request.", least=1, kind=_INT
    )
    queued_max_request_bytes = integer(
        "queued.max.request.bytes",
        512 << 20,
        "Bytes of all requests that are not answered yet, and of what they are decompressed and converted to. Who does "
        "not get any within 30 s is refused. -1: no bound, as is Kafka's default.",
    )
    max_connections = integer(
        "max.connections", INT_MAX, "Connections at a time.", least=0, kind=_INT, update=_ANY_TIME
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        "Connections at a time from one address.",
        least=0,
        kind=_INT,
        update=_ANY_TIME,
    )
    connections_max_idle_ms = integer(
        "connections.max.idle.ms", 600_000, "Time after which a connection without a request is closed."
    )
    fetch_max_bytes = integer("fetch.max.bytes", 55 << 20, "The most that one fetch returns.", least=1024, kind=_INT)

    # ---- operation

    http_address = text(
        "http.address", None, "HOST:PORT of the pages /metrics and /health. Port 0: a free one. Unset: there are none."
    )
    slow_request_ms = integer(
        "slow.request.ms",
        -1,
        "Requests that take so long are logged, not counting what they wait for records or group members; 0: all, "
        "-1: none.",
        least=-1,
        update=_ANY_TIME,
    )

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Take settings by Kafka's names. Raises InvalidConfigError for a value that a setting cannot have."""
        given = _renamed(static or {})
        self.offer = _offer(given)
        self.static: Mapping[str, str] = given
        self.of_all: Mapping[str, str] = {}
        self.of_this: Mapping[str, str] = {}
        self.remembered: Mapping[str, str] = {}
        self.of_directory = _of_directory(self, self.static)
        self.texts, self.values = _in_force({**self.of_directory, **self.static})
        self.listeners = listeners(
            self.texts["listeners"], self.texts["advertised.listeners"], self.protocol_map_text, self.static
        )
        wanted = self.inter_broker_listener_name
        if wanted is not None and wanted not in {each.name for each in self.listeners}:
            raise InvalidConfigError(f"inter.broker.listener.name: there is no listener {wanted}")
        if self.zookeeper_connect is not None and self.inter_broker_listener.security_protocol != "PLAINTEXT":
            raise InvalidConfigError("inter.broker.listener.name: expected a listener that is PLAINTEXT")
        self.log_directory = _only_directory(self)
        self.http = http_address(self.texts["http.address"])
        _check_together(self)

    @classmethod
    def parse(cls, properties: bytes, overrides: Mapping[str, str] | None = None) -> BrokerConfig:
        """Return what the bytes of a server.properties say, and `overrides` say otherwise. Raises as `__init__`."""
        return cls({**parse_properties(properties), **(overrides or {})})

    def change(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> None:
        """Put in force what was set at run time for all brokers, and for this one. Raises as `__init__`, unchanged."""
        self._put_in_force({**self.static, **of_all, **of_this})
        self.of_all, self.of_this = dict(of_all), dict(of_this)

    def adopt(self, remembered: Mapping[str, str]) -> tuple[Format, tuple[int, ...]]:
        """Let the log directory's `FORMAT` and `PROTOCOL` hold where they are not given.

        Return `plain_format` and protocol as they are then without what was set at run time. Raises as `__init__`,
        unchanged.
        """
        before, self.remembered = self.remembered, dict(remembered)
        try:
            self._put_in_force(self.static)
            static = self.plain_format, self.inter_broker_protocol_version
            self._put_in_force({**self.static, **self.of_all, **self.of_this})
        except InvalidConfigError:
            self.remembered = before
            self._put_in_force({**self.static, **self.of_all, **self.of_this})
            raise
        return static

    def _put_in_force(self, given: Mapping[str, str]) -> None:
        before = self.of_directory, self.texts, self.values
        try:
            self.of_directory = _of_directory(self, given)
            self.texts, self.values = _in_force({**self.of_directory, **given})
            _check_together(self)
        except InvalidConfigError:
            self.of_directory, self.texts, self.values = before
            raise

    @property
    def inter_broker_listener(self) -> Listener:
        """The listener that other brokers connect to."""
        return next(each for each in self.listeners if self.inter_broker_listener_name in (None, each.name))

    @property
    def plain_format(self) -> Format:
        """What topics hold that have no format of their own: those that are enriched have it of their own."""
        stored = self.log_message_format_version
        if stored is not Format.ENRICHED:
            return stored
        return Format.V2 if self.inter_broker_protocol_version >= _NEEDED[Format.V2] else Format.V1

    def warnings(self) -> list[str]:
        """Return what whoever starts the broker should know of these settings, a line each."""
        unknown = sorted(
            name
            for name in self.static
            if name not in SETTINGS and not _DIALECT.fullmatch(name) and not is_of_security(name)
        )
        found = [f"{name}: unknown, or without effect here{_meant(name)}" for name in unknown]
        for each in self.listeners:
            if not each.is_loopback and not each.security_protocol.startswith("SASL"):
                where = each.host or "all interfaces"
                may = "is User:ANONYMOUS" if self.authorizer_class_name else "can read, write and delete everything"
                found.append(
                    f"listener {each.name} is open to the network ({where}:{each.port}) without authentication: "
                    f"whoever reaches it {may}"
                )
        if self.http is not None and not is_loopback(self.http[0]):
            found.append(f"the pages at {self.http_address} are open to the network: they name topics and clients")
        return found


SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    each.name: each
    for kind in (BrokerConfig, ClusterSettings, SecuritySettings, CoordinatorSettings)
    for each in vars(kind).values()
    if isinstance(each, Setting)
}
"""The table of the broker's settings, by Kafka's names."""

REFUSED: Final = {
    "create.topic.policy.class.name": "Java classes cannot be loaded",
    "alter.config.policy.class.name": "Java classes cannot be loaded",
}
"""Settings that cannot be passed over: whoever has set them relies on what they do."""


FORMAT: Final = BrokerConfig.log_message_format_version.name
PROTOCOL: Final = BrokerConfig.inter_broker_protocol_version.name
_NEEDED: Final = {each: PROTOCOL_OF_MAGIC[each.magic] for each in Format}
"""By stored format: the first protocol version that goes with it."""
FORMAT_NAMES: Final[Mapping[Format, str]] = {each: MAGIC_NAMES[each.magic] for each in KAFKA_FORMATS}


def _meant(unknown: str) -> str:
    """Return what to write in place of a topic's setting that was given to the broker; "" if it is none."""
    return f"; the broker's default for topics is log.{unknown}" if f"log.{unknown}" in SETTINGS else ""


def _renamed(static: Mapping[str, str]) -> dict[str, str]:
    """Return the settings, `node.id` under the name that it had before."""
    found = {name: value.strip() for name, value in static.items()}
    node_id = found.pop("node.id", None)
    if node_id is not None and found.setdefault("broker.id", node_id) != node_id:
        raise InvalidConfigError(f"broker.id {found['broker.id']} and node.id {node_id}: expected the same number")
    if found.get("broker.id") == "-1":
        del found["broker.id"]  # in Kafka: any number that is free
    for name, why in REFUSED.items():
        if found.get(name):
            raise InvalidConfigError(f"{name}: {why}")
    return found


def _offer(static: dict[str, str]) -> Offer:
    """Return what is offered."""
    name = static.get("as.version")
    if name is None:
        return OWN
    try:
        return offer_of(name)
    except ValueError:
        raise InvalidConfigError(f"as.version: expected a release from 0.8.2 to 4.1, found {name!r}") from None


def _of_directory(config: BrokerConfig, given: Mapping[str, str]) -> dict[str, str]:
    """Return format and protocol where they are not given: those remembered, and no newer than `as.version` has.

    A format that is given brings the protocol along that it needs.
    """
    stored: Format = SETTINGS[FORMAT].parse(config.remembered.get(FORMAT, SETTINGS[FORMAT].default))
    spoken: tuple[int, ...] = SETTINGS[PROTOCOL].parse(config.remembered.get(PROTOCOL, SETTINGS[PROTOCOL].default))
    if stored.magic > config.offer.newest_format.magic:
        stored = config.offer.newest_format
    spoken = min(line_of(spoken), config.offer.protocol)
    if FORMAT in given:
        spoken = max(spoken, _NEEDED[SETTINGS[FORMAT].parse(given[FORMAT])])
    found = {FORMAT: FORMAT_NAMES[stored], PROTOCOL: protocol_name(spoken)}
    return {name: text for name, text in found.items() if name not in given and not _is_default(name, text)}


def _is_default(name: str, text: str) -> bool:
    value, default = (SETTINGS[name].parse(each) for each in (text, SETTINGS[name].default))
    return bool(line_of(value) == line_of(default) if name == PROTOCOL else value == default)


def _in_force(given: Mapping[str, str]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Return text and value of each setting, those that stand for another one counted in."""
    for name in given.keys() & SETTINGS.keys():
        SETTINGS[name].parse(given[name])
    texts = {name: text_of(each, given) for name, each in SETTINGS.items()}
    return texts, {name: None if found is None else SETTINGS[name].parse(found) for name, found in texts.items()}


def text_of(setting: Setting[Any], given: Mapping[str, str]) -> str | None:
    """Return what a setting is: given, by itself or a synonym, else by default, of itself or a synonym."""
    names = ((setting.name, 1), *setting.synonyms)
    defaults = {name: SETTINGS[name].default for name, _ in names}
    for source in (given, defaults):
        for name, factor in names:
            found = source.get(name)
            if found is not None:
                return found if factor == 1 else str(int(found) * factor if int(found) >= 0 else -1)
    return None


def _only_directory(config: BrokerConfig) -> str:
    found = [each.strip() for each in (config.log_dirs or config.log_dir).split(",") if each.strip()]
    if len(found) != 1:
        raise InvalidConfigError(f"log.dirs: expected one directory, found {len(found)}")
    return found[0]


def _check_together(config: BrokerConfig) -> None:
    most = config.offer.newest_format
    if config.log_message_format_version.magic > most.magic:
        raise InvalidConfigError(
            f"log.message.format.version {config.texts['log.message.format.version']}: {config.as_version} stores no "
            f"messages above {most.value}"
        )
    needed = _NEEDED[config.log_message_format_version][:2]
    if config.inter_broker_protocol_version < needed:
        raise InvalidConfigError(
            f"log.message.format.version {config.texts['log.message.format.version']} needs an "
            f"inter.broker.protocol.version from {'.'.join(map(str, needed))} on"
        )
