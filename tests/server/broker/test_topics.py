"""Topics over a metadata store and a log directory, without a server: what is made, kept, found again, finished."""

import asyncio
import inspect
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from magicbyte.engine.cluster.changes import SettingsChanged
from magicbyte.engine.cluster.image import ConfigEntity, EntityKind
from magicbyte.engine.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    LogDirectoryError,
    MagicbyteError,
    PolicyViolationError,
    UnknownTopicError,
)
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.ports import MetadataStore, TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.serving.threads import Threads
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.topic_control import AnnouncedTopics, OwnTopics
from magicbyte.server.stores.topic_logs import log_config_of
from magicbyte.server.stores.topics import Topics
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import found_cluster
from magicbyte.server.stores.znodes.member_store import MemberStore
from magicbyte.server.stores.znodes.reading import image_of
from magicbyte.server.stores.znodes.store import TreeStore
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes
from server.broker.serving import Clock

NOW = 1_700_000_000_000


def ids() -> Callable[[], uuid.UUID]:
    """Return what gives the ids 1, 2, 3…"""
    last = 0

    def next_id() -> uuid.UUID:
        nonlocal last
        last += 1
        return uuid.UUID(int=last)

    return next_id


class Blocking:
    """Topics whose coroutines run to their end when they are called."""

    def __init__(self, topics: Topics, loop: asyncio.AbstractEventLoop) -> None:
        self._topics, self._loop = topics, loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._topics, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return lambda *arguments, **named: self._loop.run_until_complete(found(*arguments, **named))

    def alter(self, name: str, configs: dict[str, str], **named: Any) -> None:
        self._loop.run_until_complete(self._topics.alter(name, lambda _topic: configs, **named))


class OnLoop:
    """Threads of which the work runs at once."""

    async def run(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return work(*arguments, **named)

    run_short = run


class World:
    """A log directory and a metadata store that outlive the topics over them. `start` is a start of the broker."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder, self.config = folder, BrokerConfig(settings)
        self.metadata: MetadataStore = MemoryStore(Clock())
        self.new_id = ids()
        self.logs: LogDirectory | None = None
        self.brokers: tuple[int, ...] | None = None  # of a cluster
        self.loop = asyncio.new_event_loop()

    def start(self) -> Any:
        return self.loop.run_until_complete(self._start())

    async def _start(self) -> Blocking:
        if self.logs is not None:
            self.logs.close()
        self.cluster_id = found_cluster(self.metadata, None, self.new_id)
        watching, threads = LoopStore(self.metadata), cast("Threads", OnLoop())
        kind = TreeStore if self.brokers is None else MemberStore
        self.store = store = kind(
            self.metadata,
            lambda: watching,
            threads,
            threads,
            lambda work: self.loop.create_task(work),
            lambda: WritingTerms(NOW, None),
        )
        await store.start()
        settings = Settings(log_config_of(lambda: store.image, self.config), lambda: uuid.UUID(int=7).hex)
        self.logs = LogDirectory.open(LocalFiles(), str(self.folder), settings, monotonic_ms=NOW)
        brokers = self.brokers or (0,)
        control = AnnouncedTopics() if self.brokers is not None else OwnTopics(0, self.logs, threads)
        topics = Topics(
            store, self.config, self.logs, Clock(), threads, self.new_id, control=control, brokers=lambda: brokers
        )
        if isinstance(store, MemberStore):
            await store.announced({key.topic for key in self.logs.logs})
        else:
            await topics.finish_pending()
        return Blocking(topics, self.loop)

    def reread(self, *topics: str) -> None:
        """Read settings again, as after the notification of their change."""
        self.loop.run_until_complete(self.store.reread([("topics", each) for each in topics]))

    def announce(self, topic: str) -> None:
        """Have the store read a topic, as after an order of a controller."""
        self.loop.run_until_complete(self.store.announced([topic]))

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()
        if self.logs is not None:
            self.logs.release()


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    yield made
    made.close()


def test_a_topic_is_found_again_as_it_was(world: World) -> None:
    topics = world.start()
    made = topics.create("t", 3, configs={"segment.bytes": "5000"})
    assert (made.partitions, made.configs, made.is_internal) == (3, {"segment.bytes": "5000"}, False)
    topics.create("__consumer_offsets", 2)
    again = world.start()
    assert again.names() == ["__consumer_offsets", "t"]
    assert again.get("t") == made == again.by_id(made.id)
    assert again.known("__consumer_offsets").is_internal
    assert again.adopted == []
    assert dict(again.led_at_once(again.known("t")))[2] == 0


def test_logs_are_made_when_they_are_asked_for_and_only_those_that_there_can_be(world: World) -> None:
    topics = world.start()
    topics.create("t", 2)
    assert world.logs is not None
    assert world.logs.logs == {}
    assert topics.log("t", 1) is topics.log("t", 1)
    assert list(world.logs.logs) == [TopicPartition("t", 1)]
    for topic, partition in (("t", 2), ("t", -1), ("u", 0)):
        with pytest.raises(UnknownTopicError):
            topics.log(topic, partition)


def test_what_is_only_checked_is_not_made(world: World) -> None:
    topics = world.start()
    assert topics.create("t", 2, validate_only=True).partitions == 2
    assert topics.names() == []
    topics.create("t", 2)
    topics.add_partitions("t", 5, validate_only=True)
    topics.alter("t", {"retention.ms": "5"}, validate_only=True)
    assert (topics.known("t").partitions, topics.known("t").configs) == (2, {})
    assert world.start().known("t") == topics.known("t")


def test_the_brokers_numbers_are_taken_where_none_are_given(world: World) -> None:
    world.config = BrokerConfig({"num.partitions": "4"})
    topics = world.start()
    assert topics.create("t").partitions == 4
    assert topics.create("u", assignments={1: [0], 0: [0]}).partitions == 2


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (InvalidTopicError, {"name": "a/b"}),
        (InvalidTopicError, {"name": ".."}),
        (InvalidTopicError, {"name": "ü"}),
        (InvalidTopicError, {"name": "n" * 250}),
        (InvalidTopicError, {"name": "is_there"}),
        (InvalidPartitionsError, {"partitions": 0}),
        (InvalidPartitionsError, {"partitions": (1 << 31) - 1}),
        (InvalidReplicationFactorError, {"replication_factor": 2}),
        (InvalidReplicaAssignmentError, {"assignments": {1: [0]}}),
        (InvalidReplicaAssignmentError, {"assignments": {0: [1]}}),
        (InvalidConfigError, {"configs": {"no.such.thing": "1"}}),
        (InvalidConfigError, {"configs": {"retention.ms": None}}),
        (InvalidConfigError, {"configs": {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}}),
        (InvalidConfigError, {"configs": {"message.format.version": "enriched", "cleanup.policy": "compact,delete"}}),
    ],
)
def test_what_cannot_be_made_leaves_nothing(
    world: World, error: type[MagicbyteError], arguments: dict[str, Any]
) -> None:
    topics = world.start()
    topics.create("is.there")
    with pytest.raises(error):
        topics.create(**{"name": "t", **arguments})
    assert topics.names() == ["is.there"]
    assert world.metadata.children(layout.TOPICS) == world.metadata.children("/config/topics") == ["is.there"]


def test_partitions_are_added_after_the_existing_ones(world: World) -> None:
    topics = world.start()
    first = topics.create("t", 2)
    topics.add_partitions("t", 4, assignments=[[0], [0]])
    assert topics.known("t").partitions == 4
    for count, assignments, error in (
        (4, None, InvalidPartitionsError),
        ((1 << 31) - 1, None, InvalidPartitionsError),
        (6, [[0]], InvalidReplicaAssignmentError),
        (5, [[1]], InvalidReplicaAssignmentError),
    ):
        with pytest.raises(error):
            topics.add_partitions("t", count, assignments=assignments)
    again = world.start().known("t")
    assert (again.partitions, again.id) == (4, first.id)


@pytest.mark.parametrize(
    ("before", "counts", "added"),
    [
        ([[3, 1]], [9, 14], "43 14 21 34 41 12 23 31 43 14 21 34 41"),
        ([[2, 4, 1]] * 6, [11], "423 134 213 324 431"),
        ([[1, 2]] * 4, [5, 9], "13 23 34 41 13"),
    ],
)
def test_added_partitions_get_the_brokers_that_a_cluster_of_kafka_2_8_2_gave_them(
    world: World, before: list[list[int]], counts: list[int], added: str
) -> None:
    world.brokers = (1, 2, 3, 4)
    topics = world.start()
    topics.create("t", assignments=dict(enumerate(before)))
    for count in counts:
        world.announce("t")
        topics.add_partitions("t", count)
    path = layout.topic_path("t")
    replicas = layout.TopicNode.load(path, world.metadata.get(path).data).replicas
    assert [list(replicas[each]) for each in range(len(before), counts[-1])] == [
        [int(broker) for broker in each] for each in added.split()
    ]


def test_settings_that_are_altered_reach_open_logs_and_new_ones(world: World) -> None:
    topics = world.start()
    topics.create("t", 2, configs={"max.message.bytes": "10"})
    log = topics.log("t", 0)
    topics.alter("t", {"segment.bytes": "5000"})
    assert (log.config.segment_bytes, log.active.config.segment_bytes) == (5000, 5000)
    assert topics.log("t", 1).config.segment_bytes == 5000
    assert topics.rules("t").max_message_bytes == 1_048_588  # it is the whole of what the topic has now
    assert world.metadata.children("/config/changes") == ["config_change_0000000000"]


@pytest.mark.parametrize(
    ("strange", "kept"),
    [
        ({"retention.bytes": "-5"}, {}),  # Kafka accepts it
        ({"retention.ms": "1e9", "segment.bytes": "5000"}, {"segment.bytes": "5000"}),
        ({"unclean.leader.election.enable": "yes", "cleanup.policy": "compact"}, {"cleanup.policy": "compact"}),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}, {}),
        ({"leader.replication.throttled.replicas": "none"}, {}),
        ({"message.format.version": "soon"}, {}),
    ],
    ids=lambda each: next(iter(each), "nothing"),
)
def test_settings_that_are_invalid_in_the_tree_keep_no_broker_from_starting_and_delete_nothing(
    world: World, caplog: pytest.LogCaptureFixture, strange: dict[str, str], kept: dict[str, str]
) -> None:
    topics = world.start()
    for name in ("t", "other"):
        topics.create(name)
        topics.log(name, 0)
    stored = strange | {"not.known": "x", "retention.local": "5"}
    path = layout.config_path("topics", "t")
    world.metadata.set(path, layout.dump_config(stored), world.metadata.get(path).version)
    again = world.start()
    config = again.known("t").config
    assert (config.log.retention_ms, config.log.retention_bytes) == (-1, -1)
    assert config.compaction.min_lag_ms == config.compaction.max_lag_ms == (1 << 63) - 1
    assert again.log("t", 0).config == config.log
    assert {name: config.settings[name] for name in kept} == kept
    assert next(iter(strange)) in caplog.text
    world.reread("t", "other")
    again.check_config(world.config)
    again.config_changed()
    assert again.known("t").config == config
    again.alter("t", {"retention.ms": "5"})
    assert again.known("t").config.log.retention_ms == 5


def test_topics_whose_settings_cannot_be_read_delete_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topics = world.start()
    topics.create("t", configs={"retention.ms": "5"})
    topics.log("t", 0)
    world.metadata.set(layout.config_path("topics", "t"), b"no JSON")
    again = world.start()
    config = again.known("t").config
    assert (config.log.retention_ms, config.compaction.min_lag_ms) == (-1, (1 << 63) - 1)
    assert again.log("t", 0).config == config.log
    assert "topic t: its settings cannot be read" in caplog.text
    again.alter("t", {"retention.ms": "7"})
    assert again.known("t").config.log.retention_ms == 7
    assert world.start().known("t").configs == {"retention.ms": "7"}


def test_settings_with_spaces_around_them_are_valid_as_in_kafka(world: World) -> None:
    world.start().create("t")
    stored = {"preallocate": " TRUE ", "message.timestamp.type": " CreateTime", "retention.ms": " 5 "}
    path = layout.config_path("topics", "t")
    world.metadata.set(path, layout.dump_config(stored), world.metadata.get(path).version)
    config = world.start().known("t").config
    assert (config.values["preallocate"], config.log.retention_ms) == (True, 5)


def test_a_topic_is_enriched_from_its_beginning_or_never(world: World) -> None:
    world.config = BrokerConfig({"log.message.format.version": "enriched"})
    topics = world.start()
    assert topics.create("by-default").configs == {"message.format.version": "enriched"}
    topics.create("plain", configs={"message.format.version": "1"})
    for name, configs in (("by-default", {}), ("plain", {"message.format.version": "enriched"})):
        with pytest.raises(InvalidConfigError, match="enriched"):
            topics.alter(name, configs)
    for name, stored in (("by-default", Format.ENRICHED), ("plain", Format.V1)):
        topics.log(name, 0)
        assert topics.rules(name).format is stored
    world.config = BrokerConfig()  # the logs on the disk are of two dialects: both open
    again = world.start()
    assert again.rules("by-default").format is Format.ENRICHED


def test_a_change_of_the_broker_reaches_all_topics_without_the_setting(world: World) -> None:
    topics = world.start()
    topics.create("t")
    topics.create("own", configs={"segment.bytes": "5000"})
    log = topics.log("t", 0)
    world.config.change({"log.segment.bytes": "6000"}, {})
    topics.config_changed()
    assert [topics.known(name).config.log.segment_bytes for name in ("t", "own")] == [6000, 5000]
    assert log.active.config.segment_bytes == 6000


def test_a_deletion_that_a_crash_cut_off_is_finished_at_the_next_start(world: World) -> None:
    topics = world.start()
    topics.create("t", 2, configs={"segment.bytes": "5000"})
    topics.create("stays")
    for partition in range(2):
        topics.log("t", partition)
    world.metadata.create("/admin/delete_topics/t")  # the first step; the process ends here
    again = world.start()
    assert again.names() == ["stays"]
    assert again.adopted == []
    assert world.logs is not None
    assert world.logs.logs == {}
    assert world.metadata.children("/admin/delete_topics") == []
    assert world.metadata.exists("/config/topics/t") is None
    assert again.create("t").configs == {}


def delete(topics: Topics, name: str) -> None:
    topics.begin_delete(name)
    topics.take_away([TopicPartition(name, 0)])
    topics.finish_delete(name)


def test_no_deletion_that_a_crash_cut_off_anywhere_brings_records_back(folder: Path) -> None:
    class CutError(Exception):
        """The process ends."""

    for steps in range(3):
        world = World(folder / str(steps))
        world.folder.mkdir()
        topics = world.start()
        topics.create("t", 1)
        topics.log("t", 0)
        left = [steps]

        def dies(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def step(*arguments: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise CutError
                return call(*arguments, **named)

            return step

        assert world.logs is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.metadata, "transaction", dies(world.metadata.transaction))
            patch.setattr(world.logs, "take_away", dies(world.logs.take_away))
            with pytest.raises(CutError):
                delete(topics, "t")
        again = world.start()
        assert again.names() == (["t"] if steps == 0 else [])
        assert (TopicPartition("t", 0) in world.logs.logs) == (steps == 0)
        world.close()


def test_logs_of_another_brokers_directory_become_topics_of_which_nothing_is_deleted(world: World) -> None:
    topics = world.start()
    made = topics.create("t", 3)
    for partition in (0, 2):
        topics.log("t", partition)
    topics.create("__consumer_offsets", 1)
    topics.log("__consumer_offsets", 0)
    world.metadata = MemoryStore(Clock())  # lost, or never there
    again = world.start()
    assert again.adopted == ["__consumer_offsets", "t"]
    found = again.known("t")
    assert (found.partitions, found.id) == (3, made.id)
    assert (found.config.log.retention_ms, found.config.log.retention_bytes) == (-1, -1)
    assert again.log("t", 0).config.retention_ms == -1
    offsets = again.known("__consumer_offsets").config.log
    assert (offsets.compact, offsets.delete) == (True, False)
    assert world.start().adopted == []


def test_records_of_topics_that_keep_the_latest_of_each_key_or_are_kafkas_own_are_not_deleted(world: World) -> None:
    topics = world.start()
    topics.create("compacted", configs={"cleanup.policy": "compact"})
    topics.create("both", configs={"cleanup.policy": "compact,delete"})
    topics.create("__consumer_offsets", configs={"cleanup.policy": "delete"})
    topics.check_erasable("both")
    for name, error in (
        ("compacted", PolicyViolationError),
        ("__consumer_offsets", InvalidTopicError),
        ("nothing", UnknownTopicError),
    ):
        with pytest.raises(error):
            topics.check_erasable(name)


# ---- the cluster


def test_a_cluster_has_the_id_that_the_directory_says_and_keeps_it(world: World) -> None:
    store = world.metadata
    assert found_cluster(store, "known-before", ids()) == "known-before"
    assert found_cluster(store, None, ids()) == "known-before"
    assert found_cluster(store, "known-before", ids()) == "known-before"
    with pytest.raises(LogDirectoryError, match="the metadata is of cluster known-before, the log directory of other"):
        found_cluster(store, "other", ids())
    assert {"/brokers/ids", "/config/topics", "/admin/delete_topics"} <= set(layout.ALWAYS_THERE)
    assert all(store.exists(path) for path in layout.ALWAYS_THERE)


def test_a_new_cluster_has_an_id_of_22_characters() -> None:
    assert found_cluster(MemoryStore(Clock()), None, ids()) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_what_told_of_a_change_of_settings_is_taken_away_after_a_quarter_of_an_hour(world: World) -> None:
    clock = Clock()
    world.metadata = MemoryStore(clock)
    found_cluster(world.metadata, None, ids())
    for minutes in (0, 10, 20, 40):
        clock.ms = NOW + minutes * 60_000
        changed = [SettingsChanged(ConfigEntity(EntityKind.TOPIC, f"t{minutes}"), {})]
        terms = WritingTerms(clock.ms, None)
        world.metadata.transaction(node_changes(world.metadata, image_of(world.metadata), changed, terms))
        left = world.metadata.children("/config/changes")
        assert (
            left
            == {
                0: ["config_change_0000000000"],
                10: ["config_change_0000000000", "config_change_0000000001"],
                20: ["config_change_0000000001", "config_change_0000000002"],
                40: ["config_change_0000000003"],
            }[minutes]
        )
    data = world.metadata.get("/config/changes/config_change_0000000003").data
    assert data == b'{"version":2,"entity_path":"topics/t40"}'
