"""Settings: what a file may say, what that means, and what is said of it."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.server.settings.config import REFUSED, SETTINGS, BrokerConfig
from magicbyte.server.settings.kafka_settings import OTHERS, other_setting
from magicbyte.server.settings.listener_settings import OF_LISTENERS
from magicbyte.server.settings.listeners import Listener
from magicbyte.server.settings.settings import SettingType, UpdateMode
from magicbyte.server.settings.topic_config import TOPIC_SETTINGS, resolve

ROOT = Path(__file__).parent.parent.parent.parent
LONGEST = (1 << 63) - 1

SERVER_PROPERTIES = b"""
# as it comes with Kafka, by and large
broker.id=3
listeners=PLAINTEXT://localhost:9092
num.network.threads=3
log.dirs=/var/lib/kafka
num.partitions = 4
log.retention.hours=1
log.segment.bytes=1073741824
zookeeper.connect=localhost:2181
"""


def test_a_file_of_kafkas_own_is_understood() -> None:
    config = BrokerConfig.parse(SERVER_PROPERTIES, {"num.partitions": "5"})
    assert (config.broker_id, config.num_partitions, config.log_directory) == (3, 5, "/var/lib/kafka")
    assert config.log_retention_ms == 3_600_000
    assert config.listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT", "localhost", 9092),)
    assert config.warnings() == ["num.network.threads: unknown, or without effect here"]


def test_an_error_about_a_topics_setting_given_to_the_broker_names_the_brokers_setting() -> None:
    assert BrokerConfig({"message.format.version": "1"}).warnings() == [
        "message.format.version: unknown, or without effect here; the broker's default for topics is "
        "log.message.format.version"
    ]


@pytest.mark.parametrize(
    ("protocol", "zookeeper", "warns"),
    [
        ("3.0", "127.0.0.1:1", False),
        ("3.1-IV0", "127.0.0.1:1", True),
        ("3.9", "127.0.0.1:1", True),
        ("3.9", None, False),
    ],
)
def test_a_protocol_in_which_kafkas_brokers_fetch_by_topic_id_is_warned_of_in_a_cluster(
    protocol: str, zookeeper: str | None, warns: bool
) -> None:
    settings = {"inter.broker.protocol.version": protocol, "zookeeper.connect": zookeeper}
    config = BrokerConfig({name: value for name, value in settings.items() if value is not None})
    assert [line.partition(":")[0] for line in config.warnings()] == [
        f"inter.broker.protocol.version {protocol}"
    ] * warns


def test_a_setting_is_either_in_force_or_one_of_kafkas_others() -> None:
    assert not SETTINGS.keys() & OTHERS.keys()
    assert {setting.kind for name in OTHERS if (setting := other_setting(name)) is not None} == set(SettingType) - {
        SettingType.UNKNOWN
    }


def test_every_default_can_be_read_and_every_setting_says_what_it_is() -> None:
    config = BrokerConfig()
    assert config.warnings() == []
    for name, setting in SETTINGS.items():
        assert setting.doc.endswith("."), name
        assert setting.default is None or setting.parse(setting.default) is not None
        assert {other for other, _ in setting.synonyms} <= SETTINGS.keys()
    for name, topic in TOPIC_SETTINGS.items():
        assert topic.setting.name == name
        assert topic.broker is None or topic.broker.update is UpdateMode.CLUSTER_WIDE, name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 7 * 24 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_the_finest_unit_that_is_given_counts(given: dict[str, str], expected: int) -> None:
    assert BrokerConfig(given).log_retention_ms == expected
    assert resolve({}, BrokerConfig(given)).log.retention_ms == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "0"),
        ("num.io.threads", "abc"),  # of Kafka's settings without effect, too
        ("num.network.threads", "0"),
        ("zookeeper.metadata.migration.enable", "perhaps"),
        ("num.partitions", "many"),
        ("num.partitions", "2147483648"),
        ("num.partitions", "1.5"),
        ("num.partitions", ""),
        ("auto.create.topics.enable", "yes"),
        ("compression.type", "rar"),
        ("log.cleanup.policy", "compact,burn"),
        ("log.cleaner.min.cleanable.ratio", "1.1"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.message.format.version", "3"),
        ("log.message.format.version", "0.7.0"),
        ("log.message.format.version", "9.9"),
        ("inter.broker.protocol.version", "0.11.0-IVx"),
        ("log.dirs", "one,two"),
        ("listeners", "PLAINTEXT:9092"),
        ("listeners", "PLAINTEXT://localhost:99999"),
        ("listeners", ""),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2"),
        ("listeners", "PLAINTEXT://a:1,TLS://b:2"),
        ("listeners", "OTHER://a:1"),
        ("listener.security.protocol.map", "PLAINTEXT"),
        ("advertised.listeners", "OTHER://a:1"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1"),
        ("listener.name.plaintext.magicbyte.dialect", "klingon"),
        *((name, "org.example.Class") for name in REFUSED),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=name.replace(".", r"\.") if name != "log.dirs" else "log.dirs"):
        BrokerConfig({name: value})


def test_several_listeners_have_names_addresses_and_dialects_of_their_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "CLIENTS://0.0.0.0:9092,mirror://[::1]:0",
            "advertised.listeners": "CLIENTS://kafka.example:19092",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,MIRROR:PLAINTEXT",
            "listener.name.mirror.magicbyte.dialect": "enriched",
        }
    )
    assert config.listeners == (
        Listener("CLIENTS", "0.0.0.0", 9092, "PLAINTEXT", "kafka.example", 19092),
        Listener("MIRROR", "::1", 0, "PLAINTEXT", "::1", 0, enriched=True),
    )
    (warning,) = config.warnings()
    assert "CLIENTS is open to the network (0.0.0.0:9092) without authentication" in warning


CLUSTERED = {"zookeeper.connect": "127.0.0.1:2181"}
AUTHORIZED = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
OPEN, LOCAL = {"listeners": "PLAINTEXT://0.0.0.0:9092"}, {"listeners": "PLAINTEXT://127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("given", "is_warned"),
    [
        (CLUSTERED | OPEN, True),
        (CLUSTERED | {"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_SSL://:9093"}, True),
        (CLUSTERED | OPEN | AUTHORIZED, False),
        (CLUSTERED | LOCAL, False),
        (OPEN, False),  # no other broker, so no requests of brokers
    ],
)
def test_a_cluster_without_an_authorizer_that_clients_reach_is_warned_of(
    given: dict[str, str], is_warned: bool
) -> None:
    assert any("may send requests of brokers" in each for each in BrokerConfig(given).warnings()) == is_warned


def test_an_open_listener_without_an_advertised_address_tells_one_that_can_be_reached() -> None:
    (listener,) = BrokerConfig({"listeners": "PLAINTEXT://:9092"}).listeners
    assert (listener.host, listener.advertised_host) == ("", "localhost")


@pytest.mark.parametrize(
    ("version", "stored"),
    [
        ("0", Format.V0),
        ("0.9.0", Format.V0),
        ("0.9.0.1", Format.V0),
        ("1", Format.V1),
        ("0.10.0-IV1", Format.V1),
        ("0.10.2.1", Format.V1),
        ("2", Format.V2),
        ("0.11.0", Format.V2),
        ("3.9-IV0", Format.V2),
        ("enriched", Format.ENRICHED),
    ],
)
def test_a_format_has_several_names(version: str, stored: Format) -> None:
    assert BrokerConfig({"log.message.format.version": version}).log_message_format_version is stored
    assert resolve({"message.format.version": version}, BrokerConfig()).append.format is stored


def test_the_protocol_version_of_the_first_drafts_is_an_alias() -> None:
    given = {"inter.broker.protocol.version": "0.9.0-1", "log.message.format.version": "1"}
    assert BrokerConfig(given).inter_broker_protocol_version == (0, 10, 0, 0)
    with pytest.raises(InvalidConfigError, match=r"needs an inter\.broker\.protocol\.version from 0\.11 on"):
        BrokerConfig({**given, "log.message.format.version": "2"})


def test_kraft_calls_the_broker_id_node_id() -> None:
    assert BrokerConfig({"node.id": "4"}).broker_id == 4
    with pytest.raises(InvalidConfigError, match=r"broker\.id 3 and node\.id 4"):
        BrokerConfig({"node.id": "4", "broker.id": "3"})
    assert BrokerConfig({"broker.id": "-1"}).broker_id == 0


def test_what_is_changed_at_run_time_counts_before_the_file_and_a_wrong_change_changes_nothing() -> None:
    config = BrokerConfig({"log.segment.bytes": "1000"})
    config.change({"log.segment.bytes": "2000", "log.index.interval.bytes": "7"}, {"log.segment.bytes": "3000"})
    assert (config.log_segment_bytes, config.log_index_interval_bytes) == (3000, 7)
    for wrong in ({"log.segment.bytes": "x"}, {"log.message.format.version": "9.9"}):
        with pytest.raises(InvalidConfigError):
            config.change({}, wrong)
        assert config.log_segment_bytes == 3000
    config.change({}, {})
    assert config.log_segment_bytes == 1000


def test_a_topics_own_settings_count_before_the_brokers() -> None:
    config = BrokerConfig({"compression.type": "gzip", "log.segment.bytes": "1000", "message.max.bytes": "77"})
    own = {"compression.type": "zstd", "cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    found = resolve(own, config)
    assert (found.append.codec, found.append.max_message_bytes) == (Codec.ZSTD, 77)
    assert found.append.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (found.log.segment_bytes, found.log.compact, found.log.delete) == (1000, True, False)
    assert found.append.compacted
    assert found.values["max.message.bytes"] == 77
    assert found.compaction.max_message_bytes == 77


@pytest.mark.parametrize(
    ("own", "broker", "before_and_after"),
    [
        ({}, {}, (LONGEST, LONGEST)),
        ({}, {"log.message.timestamp.difference.max.ms": "5"}, (5, 5)),
        ({"message.timestamp.difference.max.ms": "5"}, {"log.message.timestamp.before.max.ms": "9"}, (5, 5)),
        ({"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "1"}, {}, (5, 1)),
        ({}, {"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.after.max.ms": "1"}, (5, 1)),
    ],
)
def test_the_bound_of_both_directions_holds_where_there_is_none_for_one(
    own: dict[str, str], broker: dict[str, str], before_and_after: tuple[int, int]
) -> None:
    rules = resolve(own, BrokerConfig(broker)).append
    assert (rules.before_max_ms, rules.after_max_ms) == before_and_after


def test_without_a_cleaner_compacted_topics_still_want_keys_and_keep_all() -> None:
    found = resolve({"cleanup.policy": "compact"}, BrokerConfig({"log.cleaner.enable": "false"}))
    assert (found.log.compact, found.log.delete, found.append.compacted) == (False, False, True)


def test_only_a_topics_own_setting_makes_it_enriched() -> None:
    config = BrokerConfig({"log.message.format.version": "enriched"})
    assert resolve({}, config).log.dialect is Dialect.KAFKA
    own = resolve({"message.format.version": "enriched"}, config)
    assert (own.log.dialect, own.append.format) == (Dialect.ENRICHED, Format.ENRICHED)
    with pytest.raises(InvalidConfigError, match="enriched"):
        resolve({"message.format.version": "enriched", "cleanup.policy": "compact,delete"}, config)


def test_no_value_of_any_type_gets_past_its_setting() -> None:
    wrong: dict[SettingType, list[str]] = {
        SettingType.BOOLEAN: ["", "1", "wahr"],
        SettingType.INT: ["", "x", "1e3", "0x10", "2147483648", "-2147483649", "١"],
        SettingType.LONG: ["", "x", "9223372036854775808", "1_000"],
        SettingType.SHORT: ["", "32768"],
        SettingType.DOUBLE: ["", "x", "inf", "0x1p3"],
    }
    tried = 0
    for setting in SETTINGS.values():
        for text in wrong.get(setting.kind, []):
            tried += 1
            with pytest.raises(InvalidConfigError, match=setting.name.replace(".", r"\.")):
                setting.parse(text)
    assert tried > 200


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("configuration_tool", ROOT / "tools/configuration.py")
    assert spec is not None
    assert spec.loader is not None
    tool: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool  # type: ignore[no-any-return]


def test_the_page_about_the_settings_is_what_the_table_says() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert page == _tool().page(), "run tools/configuration.py"


def test_the_reference_names_every_setting() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    names = (*SETTINGS, *TOPIC_SETTINGS, *OF_LISTENERS, *REFUSED)
    assert [name for name in names if f"`{name}`" not in page] == []


def test_an_existing_log_directory_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    for name in ("log.dirs", "log.dir"):
        assert BrokerConfig({name: str(tmp_path / "a,b")}).log_directory == str(tmp_path / "a,b")
