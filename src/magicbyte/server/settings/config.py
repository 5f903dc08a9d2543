"""The broker's settings: a table of names, types, defaults and descriptions, and the values in force.

Names and defaults are Kafka's; docs/reference/configuration.md is generated from here and lists different defaults.
Sources: the definitions in Kafka 3.9 and 2.8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.log.files.filesystem import listed_paths
from magicbyte.engine.log.files.properties import parse_properties
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.releases import LAST_WITH_NAMES, MAGIC_NAMES, PROTOCOL_OF_MAGIC, line_of, protocol_name
from magicbyte.server.settings.cluster_settings import ClusterSettings
from magicbyte.server.settings.coordinator_settings import CoordinatorSettings
from magicbyte.server.settings.kafka_settings import other_setting
from magicbyte.server.settings.listener_settings import is_of_security
from magicbyte.server.settings.listeners import http_address, inter_broker_listener, is_loopback, listeners
from magicbyte.server.settings.offer import FIRST_RELEASE, LAST_RELEASE, OWN, Offer, offer_of
from magicbyte.server.settings.quota_settings import QuotaSettings, connection_rates, is_of_rates
from magicbyte.server.settings.security_settings import SecuritySettings
from magicbyte.server.settings.settings import (
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

_INT = SettingType.INT
_ANY_TIME = UpdateMode.CLUSTER_WIDE
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_ALIKE: Final = 0.85  # similarity, of 1, at which an unknown setting counts as a misspelling
_WORDS: Final = re.compile("[._-]")
_DIALECT: Final = re.compile(r"listener\.name\.([a-z0-9_.-]+)\.magicbyte\.dialect")


class BrokerConfig(ClusterSettings, SecuritySettings, QuotaSettings, CoordinatorSettings):
    """A broker's settings. Each attribute below is the value in force, which `change` may replace.

    `static` are those from the file and the command line, `of_all` and `of_this` the dynamic ones for all brokers and
    for this one. `texts` has the values in force as text, None for no value. `of_directory` are those of the log
    directory, used unless given; `remembered` are all of these: see `broker/adoption.py`.
    """

    # ---- who and where

    broker_id = integer("broker.id", 0, "The id of this broker in its cluster.", least=0, kind=_INT)
    broker_rack = text("broker.rack", None, "The rack of the broker, as clients see it in metadata.")
    log_dirs = text("log.dirs", None, "The log directory. Exactly one is supported.")
    log_dir = text("log.dir", "kafka-logs", "The log directory when log.dirs is not set.")
    listeners_text = text(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "The addresses to listen on, as NAME://HOST:PORT,... An empty host stands for all interfaces, port 0 for a "
        "free port.",
    )
    advertised_listeners_text = text(
        "advertised.listeners",
        None,
        "The addresses that clients are given, for listeners where these differ from listeners.",
    )
    protocol_map_text = text(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "The delay of the response to a failed authentication.",
        least=0,
        most=10_000,
        kind=_INT,
    )
    inter_broker_protocol_version = protocol_version(
        "inter.broker.protocol.version", "2.8-IV1", "The Kafka version whose protocol brokers use among themselves."
    )

    as_version = text(
        "as.version",
        None,
        "A Kafka release from 0.8.2 to 4.4 to imitate. The broker offers the APIs, API versions and message formats "
        "of that release, so that clients fall back as they would there.",
    )

    # ---- topics

    auto_create_topics_enable = boolean(
        "auto.create.topics.enable", True, "Whether a request for an unknown topic creates it."
    )
    delete_topic_enable = boolean("delete.topic.enable", True, "Whether clients may delete topics.")
    num_partitions = integer(
        "num.partitions", 1, "The number of partitions of a topic that is created without one.", least=1, kind=_INT
    )
    default_replication_factor = integer(
        "default.replication.factor", 1, "The replication factor of a topic that is created without one.", kind=_INT
    )

    # ---- the logs

    compression_type = choice(
        "compression.type",
        "producer",
        "The codec of stored batches. producer: the codec that the producer chose.",
        _CODECS,
        update=_ANY_TIME,
    )
    message_max_bytes = integer(
        "message.max.bytes",
        1_048_588,
        "The maximum size of a record batch, or of a message in the older formats, both as sent and as stored.",
        least=0,
        kind=_INT,
        update=_ANY_TIME,
    )
    max_decompressed_message_bytes = integer(
        "max.decompressed.message.bytes",
        DEFAULT_MAX_BATCH_BYTES,
        "The maximum size of a batch after decompression.",
        least=1,
        update=_ANY_TIME,
    )
    log_message_format_version = message_format(
        "log.message.format.version",
        "3.0-IV1",
        "The stored message format: 0, 1, 2, enriched, or the Kafka version that introduced it. A topic that is "
        "created while this is enriched stays enriched.",
        update=_ANY_TIME,
    )
    log_message_downconversion_enable = boolean(
        "log.message.downconversion.enable",
        True,
        "Whether fetches by consumers that do not know the stored format are down-converted. Otherwise they fail with "
        "an error.",
        update=_ANY_TIME,
    )
    log_message_timestamp_type = choice(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether timestamps are the producer's (CreateTime) or the broker's (LogAppendTime).",
        ("CreateTime", "LogAppendTime"),
        update=_ANY_TIME,
    )
    log_message_timestamp_difference_max_ms = integer(
        "log.message.timestamp.difference.max.ms",
        LONG_MAX,
        "The maximum difference between a record's timestamp and the broker's clock, in both directions. Applies "
        "where log.message.timestamp.before.max.ms or log.message.timestamp.after.max.ms is not set.",
        least=0,
        update=_ANY_TIME,
    )
    log_message_timestamp_before_max_ms = integer(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "The maximum time by which a record's timestamp may be earlier than the broker's clock.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.message.timestamp.difference.max.ms", 1),),
    )
    log_message_timestamp_after_max_ms = integer(
        "log.message.timestamp.after.max.ms",
        LONG_MAX,
        "The maximum time by which a record's timestamp may be later than the broker's clock.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.message.timestamp.difference.max.ms", 1),),
    )
    enriched_append_mode = choice(
        "enriched.append.mode",
        "verify",
        "verify: check the tags of an enriched wrapper against its records before it is stored. trust: rely "
        "on the tags.",
        ("verify", "trust"),
        update=_ANY_TIME,
    )
    min_insync_replicas = integer(
        "min.insync.replicas",
        1,
        "The minimum number of in-sync replicas for a produce request with acks=all.",
        least=1,
        kind=_INT,
        update=_ANY_TIME,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether an out-of-sync replica may become leader when no in-sync replica is left. Committed records may be "
        "lost.",
        update=_ANY_TIME,
    )
    log_segment_bytes = integer(
        "log.segment.bytes", 1 << 30, "The maximum size of a segment.", least=14, kind=_INT, update=_ANY_TIME
    )
    log_roll_ms = integer(
        "log.roll.ms",
        None,
        "The maximum age of the active segment before a new one is rolled.",
        least=1,
        update=_ANY_TIME,
        synonyms=(("log.roll.hours", _HOUR_MS),),
    )
    log_roll_hours = integer("log.roll.hours", 168, "The default of log.roll.ms, in hours.", least=1, kind=_INT)
    log_roll_jitter_ms = integer(
        "log.roll.jitter.ms",
        None,
        "The maximum random time subtracted from the roll age, so that segments do not roll all at once.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.roll.jitter.hours", _HOUR_MS),),
    )
    log_roll_jitter_hours = integer(
        "log.roll.jitter.hours", 0, "The default of log.roll.jitter.ms, in hours.", least=0, kind=_INT
    )
    log_index_size_max_bytes = integer(
        "log.index.size.max.bytes", 10 << 20, "The maximum size of an index file.", least=4, kind=_INT, update=_ANY_TIME
    )
    log_index_interval_bytes = integer(
        "log.index.interval.bytes",
        4096,
        "The bytes of log between two index entries.",
        least=0,
        kind=_INT,
        update=_ANY_TIME,
    )
    max_open_files = integer(
        "max.open.files",
        None,
        "The maximum number of open log files. The least recently used are closed and reopened on demand. Not set: "
        "half of the process's limit of file descriptors.",
        least=16,
        kind=_INT,
    )
    log_preallocate = boolean(
        "log.preallocate", False, "Whether the file of a new segment is allocated at its full size.", update=_ANY_TIME
    )
    log_flush_policy = choice(
        "log.flush.policy",
        "kafka",
        "kafka: sync logs by record count and by time. group-commit: sync before a batch is acknowledged.",
        ("kafka", "group-commit"),
        update=_ANY_TIME,
    )
    log_flush_interval_messages = integer(
        "log.flush.interval.messages",
        LONG_MAX,
        "The number of records between syncs of a log.",
        least=1,
        update=_ANY_TIME,
    )
    log_flush_interval_ms = integer(
        "log.flush.interval.ms",
        None,
        "The maximum time between syncs of a log.",
        least=0,
        update=_ANY_TIME,
        synonyms=(("log.flush.scheduler.interval.ms", 1),),
    )
    log_flush_scheduler_interval_ms = integer(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "The maximum time between syncs of a log when log.flush.interval.ms is not set.",
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "The interval of the checkpoint of recovery points.",
        least=0,
        kind=_INT,
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "The interval of the checkpoint of log start offsets.",
        least=0,
        kind=_INT,
    )
    replica_high_watermark_checkpoint_interval_ms = integer(
        "replica.high.watermark.checkpoint.interval.ms", 5000, "The interval of the checkpoint of high watermarks."
    )
    log_retention_bytes = integer(
        "log.retention.bytes",
        -1,
        "The maximum size of a partition before its oldest segments are deleted. -1: no limit.",
        least=-1,
        update=_ANY_TIME,
    )
    log_retention_ms = integer(
        "log.retention.ms",
        None,
        "The age at which segments are deleted. -1: never.",
        least=-1,
        update=_ANY_TIME,
        synonyms=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    )
    log_retention_minutes = integer(
        "log.retention.minutes", None, "The default of log.retention.ms, in minutes.", kind=_INT
    )
    log_retention_hours = integer(
        "log.retention.hours",
        168,
        "The default of log.retention.ms, in hours, when log.retention.minutes is not set.",
        kind=_INT,
    )
    log_retention_check_interval_ms = integer(
        "log.retention.check.interval.ms",
        300_000,
        "The interval of checks for segments that retention may delete.",
        least=1,
    )
    log_initial_task_delay_ms = integer(
        "log.initial.task.delay.ms",
        30_000,
        "The delay between the start of the broker and the first run of retention and compaction.",
        least=0,
    )
    log_segment_delete_delay_ms = integer(
        "log.segment.delete.delay.ms",
        60_000,
        "The time between a file's removal from the log and its deletion from disk.",
        least=0,
        update=_ANY_TIME,
    )
    log_cleanup_policy = words(
        "log.cleanup.policy",
        "delete",
        "delete: delete old segments. compact: keep the latest record of each key.",
        ("compact", "delete"),
        update=_ANY_TIME,
    )
    log_head_truncation = boolean(
        "log.head.truncation",
        False,
        "Whether retention may cut off the beginning of a segment. Otherwise it deletes whole segments only.",
        update=_ANY_TIME,
    )
    log_cleaner_enable = boolean("log.cleaner.enable", True, "Whether the log cleaner compacts logs.")
    log_cleaner_min_cleanable_ratio = number(
        "log.cleaner.min.cleanable.ratio",
        "0.5",
        "The minimum ratio of dirty bytes to all bytes of a log before it is compacted.",
        least=0,
        most=1,
        update=_ANY_TIME,
    )
    log_cleaner_delete_retention_ms = integer(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "The time that tombstones are kept.",
        least=0,
        update=_ANY_TIME,
    )
    log_cleaner_min_compaction_lag_ms = integer(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "The minimum age of a record before compaction may remove it.",
        least=0,
        update=_ANY_TIME,
    )
    log_cleaner_max_compaction_lag_ms = integer(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "The maximum age of a dirty record before its log is compacted, whatever the dirty ratio.",
        least=1,
        update=_ANY_TIME,
    )
    log_cleaner_backoff_ms = integer(
        "log.cleaner.backoff.ms",
        15_000,
        "The time that the log cleaner sleeps when no log is due.",
        least=0,
        update=_ANY_TIME,
    )
    log_cleaner_dedupe_buffer_size = integer(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        "The memory for the key map of one compaction.",
        least=1 << 20,
        update=_ANY_TIME,
    )
    log_cleaner_io_buffer_size = integer(
        "log.cleaner.io.buffer.size",
        512 << 10,
        "The memory for the read and write buffers of the log cleaner.",
        least=1024,
        kind=_INT,
        update=_ANY_TIME,
    )
    log_cleaner_io_buffer_load_factor = number(
        "log.cleaner.io.buffer.load.factor",
        "0.9",
        "The maximum load factor of the key map.",
        least=0.01,
        most=1,
        update=_ANY_TIME,
    )
    log_cleaner_io_max_bytes_per_second = number(
        "log.cleaner.io.max.bytes.per.second",
        "1.7976931348623157E308",
        "The maximum bytes per second that the log cleaner reads and writes.",
        least=1,
        most=1.8e308,
        update=_ANY_TIME,
    )

    # ---- connections and requests

    socket_request_max_bytes = integer(
        "socket.request.max.bytes", 100 << 20, "The maximum size of a request.", least=1, kind=_INT
    )
    queued_max_request_bytes = integer(
        "queued.max.request.bytes",
        512 << 20,
        "The maximum memory for requests in progress, with their decompressed and converted forms. A request that "
        "waits 30 s for memory is refused. -1: no limit, which is Kafka's default.",
    )
    max_connections = integer(
        "max.connections", INT_MAX, "The maximum number of open connections.", least=0, kind=_INT, update=_ANY_TIME
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of open connections from one IP address.",
        least=0,
        kind=_INT,
        update=_ANY_TIME,
    )
    connections_max_idle_ms = integer(
        "connections.max.idle.ms", 600_000, "The idle time after which a connection is closed."
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes", 55 << 20, "The maximum bytes of a fetch response.", least=1024, kind=_INT
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        "The maximum partitions of a response to DescribeTopicPartitions.",
        least=1,
        kind=_INT,
    )

    # ---- operation

    http_address = text(
        "http.address",
        None,
        "HOST:PORT of the HTTP endpoint with /metrics and /health. Port 0 stands for a free port. Not set: no "
        "endpoint.",
    )
    http_token_file = text(
        "http.token.file",
        None,
        "A file with a bearer token. Requests to the HTTP endpoint must have it. Read at the start. Not set: requests "
        "need no token.",
    )
    http_ssl_keystore_location = text(
        "http.ssl.keystore.location",
        None,
        "A PEM file with a private key and its certificates. The HTTP endpoint then speaks TLS. Read at the start.",
    )
    http_ssl_truststore_location = text(
        "http.ssl.truststore.location",
        None,
        "A PEM file with trusted certificates. Clients of the HTTP endpoint must then have a certificate. Needs "
        "`http.ssl.keystore.location`.",
    )
    slow_request_ms = integer(
        "slow.request.ms",
        -1,
        "The processing time from which a request is logged as slow. Waits for records and for group members do not "
        "count. 0: all requests, -1: none.",
        least=-1,
        update=_ANY_TIME,
    )

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """Parse settings by Kafka's names. Raises InvalidConfigError for an invalid value."""
        given = _renamed(static or {})
        self.offer = _offer(given)
        self.is_in_cluster = False
        self.static: Mapping[str, str] = given
        self.of_all: Mapping[str, str] = {}
        self.of_this: Mapping[str, str] = {}
        self.remembered: Mapping[str, str] = {}
        self.of_directory = _of_directory(self, self.static)
        self.texts, self.values = _in_force({**self.of_directory, **self.static})
        for name, value in self.static.items():
            if (other := other_setting(name)) is not None:
                other.parse(value)
        self.listeners = listeners(
            self.texts["listeners"], self.texts["advertised.listeners"], self.protocol_map_text, self.static
        )
        self.inter_broker_name, self.inter_broker_listener = inter_broker_listener(
            self.listeners, self.inter_broker_listener_name, self.security_inter_broker_protocol
        )
        is_named = self.inter_broker_name is not None or self.inter_broker_listener.security_protocol == "PLAINTEXT"
        if self.zookeeper_connect is not None and not is_named:
            raise InvalidConfigError("inter.broker.listener.name: expected one, as no listener is PLAINTEXT")
        self.connection_rates = connection_rates(self.static, self.listeners)
        self.log_directory = _only_directory(self)
        self.http = http_address(self.texts["http.address"])
        _check_together(self)

    @property
    def tree_protocol(self) -> tuple[int, ...] | None:
        """The protocol version of the oldest broker that reads the metadata tree; None if no other broker reads it."""
        return self.inter_broker_protocol_version if self.is_in_cluster else None

    def internal_factor(self, replication_factor: int) -> int:
        """Return the replication factor of an internal topic, for which one is set: without a cluster 1."""
        return replication_factor if self.is_in_cluster else 1

    @classmethod
    def parse(cls, properties: bytes, overrides: Mapping[str, str] | None = None) -> BrokerConfig:
        """Parse the bytes of a server.properties, with `overrides` taking precedence. Raises as `__init__`."""
        return cls({**parse_properties(properties), **(overrides or {})})

    def change(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> None:
        """Apply the dynamic settings of all brokers and of this one. Raises as `__init__`, unchanged."""
        self._apply({**self.static, **of_all, **of_this})
        self.of_all, self.of_this = dict(of_all), dict(of_this)

    def adopt(self, remembered: Mapping[str, str]) -> tuple[Format, tuple[int, ...]]:
        """Use the log directory's `FORMAT` and `PROTOCOL` unless they are given.

        Return the resulting `plain_format` and protocol without dynamic settings. Raises as `__init__`, unchanged.
        """
        before, self.remembered = self.remembered, dict(remembered)
        try:
            self._apply(self.static)
            static = self.plain_format, self.inter_broker_protocol_version
            self._apply({**self.static, **self.of_all, **self.of_this})
        except InvalidConfigError:
            self.remembered = before
            self._apply({**self.static, **self.of_all, **self.of_this})
            raise
        return static

    def _apply(self, given: Mapping[str, str]) -> None:
        before = self.of_directory, self.texts, self.values
        try:
            self.of_directory = _of_directory(self, given)
            self.texts, self.values = _in_force({**self.of_directory, **given})
            _check_together(self)
        except InvalidConfigError:
            self.of_directory, self.texts, self.values = before
            raise

    @property
    def plain_format(self) -> Format:
        """The format of topics without their own; enriched topics always have their own."""
        stored = self.log_message_format_version
        if stored is not Format.ENRICHED:
            return stored
        return Format.V2 if self.inter_broker_protocol_version >= _NEEDED[Format.V2] else Format.V1

    def unknown(self) -> list[str]:
        """Return the names of given settings without effect."""
        return sorted(
            name
            for name in self.static
            if not (name in SETTINGS or _DIALECT.fullmatch(name) or is_of_security(name) or is_of_rates(name))
        )

    def misspelt(self) -> dict[str, str]:
        """Return given settings without effect whose names are misspellings, with the names that are meant.

        Names are similar word by word, and as a whole. Other settings of Kafka are similar as a whole, but differ in a
        word or have one more: queued.max.requests.
        """
        import difflib

        meant = {}
        for name in self.unknown():
            words = _WORDS.split(name)
            for close in difflib.get_close_matches(name, SETTINGS, 3, _ALIKE):
                others = close.split(".")
                if len(words) == len(others) and all(
                    map(difflib.get_close_matches, words, ([each] for each in others))
                ):
                    meant[name] = close
                    break
        return meant

    def warnings(self) -> list[str]:
        """Return warnings about these settings, a line each."""
        lines = [f"{name}: unknown, or without effect here{_suggested_name(name)}" for name in self.unknown()]
        for each in self.listeners:
            if not each.is_loopback and not each.security_protocol.startswith("SASL"):
                where = each.host or "all interfaces"
                may = "is User:ANONYMOUS" if self.authorizer_class_name else "can read, write and delete everything"
                lines.append(
                    f"listener {each.name} is open to the network ({where}:{each.port}) without authentication: "
                    f"every client that reaches it {may}"
                )
        reached = [each.name for each in self.listeners if not each.is_loopback]
        if self.zookeeper_connect is not None and not self.authorizer_class_name and reached:
            lines.append(
                f"without an authorizer every client that reaches a listener ({', '.join(reached)}) may send requests "
                "of brokers to this cluster: acknowledge records for followers, delete replicas, depose leaders, end "
                "transactions of others (authorizer.class.name with super.users for the brokers closes that)"
            )
        protocol = self.inter_broker_protocol_version
        if self.zookeeper_connect is not None and line_of(protocol) > LAST_WITH_NAMES:
            lines.append(
                f"inter.broker.protocol.version {protocol_name(protocol)}: Kafka's brokers with more than "
                f"{protocol_name(LAST_WITH_NAMES)} fetch by topic id, which is not supported: they cannot replicate "
                f"from this broker (set {protocol_name(LAST_WITH_NAMES)} on every broker of a cluster that has some)"
            )
        is_open = self.http_token_file is None and self.http_ssl_truststore_location is None
        if self.http is not None and is_open and not is_loopback(self.http[0]):
            lines.append(
                f"the pages at {self.http_address} are open to the network: they name topics and clients "
                "(http.token.file or http.ssl.truststore.location closes them)"
            )
        return lines


SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    each.name: each
    for kind in (BrokerConfig, ClusterSettings, SecuritySettings, QuotaSettings, CoordinatorSettings)
    for each in vars(kind).values()
    if isinstance(each, Setting)
}
"""The table of the broker's settings, by Kafka's names."""

REFUSED: Final = {
    "create.topic.policy.class.name": "the broker cannot load Java classes",
    "alter.config.policy.class.name": "the broker cannot load Java classes",
}
"""Settings that cannot be ignored, because their user relies on the effect."""


FORMAT: Final = BrokerConfig.log_message_format_version.name
PROTOCOL: Final = BrokerConfig.inter_broker_protocol_version.name
_NEEDED: Final = {each: PROTOCOL_OF_MAGIC[each.magic] for each in Format}
"""By stored format: the first protocol version that supports it."""
FORMAT_NAMES: Final[Mapping[Format, str]] = {each: MAGIC_NAMES[each.magic] for each in KAFKA_FORMATS}


def _suggested_name(unknown: str) -> str:
    """Return the correct name for a topic's setting that was given to the broker; "" if it is none."""
    return f"; the broker's default for topics is log.{unknown}" if f"log.{unknown}" in SETTINGS else ""


def _renamed(static: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with `node.id` under its earlier name."""
    settings = {name: value.strip() for name, value in static.items()}
    node_id = settings.pop("node.id", None)
    if node_id is not None and settings.setdefault("broker.id", node_id) != node_id:
        raise InvalidConfigError(f"broker.id {settings['broker.id']} and node.id {node_id}: expected the same number")
    if settings.get("broker.id") == "-1":
        del settings["broker.id"]  # in Kafka: assign a free number
    for name, why in REFUSED.items():
        if settings.get(name):
            raise InvalidConfigError(f"{name}: {why}")
    return settings


def _offer(static: dict[str, str]) -> Offer:
    """Return the offered API versions and formats."""
    name = static.get("as.version")
    if name is None:
        return OWN
    try:
        return offer_of(name)
    except ValueError:
        expected = f"{FIRST_RELEASE} to {LAST_RELEASE}"
        raise InvalidConfigError(f"as.version: expected a release from {expected}, found {name!r}") from None


def _of_directory(config: BrokerConfig, given: Mapping[str, str]) -> dict[str, str]:
    """Return format and protocol unless given: the remembered ones, at most those of `as.version`.

    A given format implies the protocol that it needs.
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
    """Return text and value of each setting, including synonyms."""
    for name in given.keys() & SETTINGS.keys():
        SETTINGS[name].parse(given[name])
    texts = {name: text_of(each, given) for name, each in SETTINGS.items()}
    return texts, {name: None if found is None else SETTINGS[name].parse(found) for name, found in texts.items()}


def text_of(setting: Setting[Any], given: Mapping[str, str]) -> str | None:
    """Return the text of a setting: given by its name or a synonym, else the default of either."""
    names = ((setting.name, 1), *setting.synonyms)
    defaults = {name: SETTINGS[name].default for name, _ in names}
    for source in (given, defaults):
        for name, factor in names:
            found = source.get(name)
            if found is not None:
                return found if factor == 1 else str(int(found) * factor if int(found) >= 0 else -1)
    return None


def _only_directory(config: BrokerConfig) -> str:
    found = listed_paths(config.log_dirs or config.log_dir)
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
