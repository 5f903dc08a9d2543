"""Admin requests, right and wrong ones, in an order in which each finds what the ones before it left.

A broker's answer to a step is what `codes` makes of the response: numbers only. Needs a broker with id 0 and no topics.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from magicbyte.access.client.connection import Connection
from magicbyte.engine.errors import ErrorCode, NetworkError, UnsupportedVersionError
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages import alter_configs as alter
from magicbyte.engine.protocol.messages import alter_replica_log_dirs as move
from magicbyte.engine.protocol.messages import create_acls, delete_acls, describe_acls, list_offsets, metadata
from magicbyte.engine.protocol.messages import create_partitions as grow
from magicbyte.engine.protocol.messages import create_topics as create
from magicbyte.engine.protocol.messages import delete_records as erase
from magicbyte.engine.protocol.messages import delete_topics as delete
from magicbyte.engine.protocol.messages import describe_cluster as cluster
from magicbyte.engine.protocol.messages import describe_configs as describe
from magicbyte.engine.protocol.messages import describe_log_dirs as dirs
from magicbyte.engine.protocol.messages import describe_producers as producers
from magicbyte.engine.protocol.messages import incremental_alter_configs as incremental
from magicbyte.engine.protocol.messages import init_producer_id as init
from magicbyte.engine.protocol.messages import list_config_resources as listing

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
FOR_ALL_BROKERS = 3  # where a setting has its value
BROKER_ID = "0"
NOBODY = uuid.UUID(int=0x0123456789ABCDEF)


class Step(NamedTuple):
    """A request and the version that it is sent in.

    `comes_to`: what its codes are once the broker has heard of the changes before it, which takes real ones a moment.
    """

    name: str
    version: int
    request: Message
    comes_to: Callable[[list[list[Any]]], bool] = lambda _: True


class Listed(NamedTuple):
    """Types of resources, the code of ListConfigResources 1 for them, and the resources: their types and names."""

    types: tuple[int, ...]
    code: int
    resources: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, types: tuple[int, ...], found: listing.ListConfigResourcesResponse) -> Listed:
        """Return what a response lists."""
        return cls(
            types, found.error_code, tuple((each.resource_type, each.resource_name) for each in found.config_resources)
        )


LISTED = [
    Listed((), 0, ((8, "0"), (4, "0"), (2, "aa"), (2, "bb"))),
    Listed((2,), 0, ((2, "aa"), (2, "bb"))),
    Listed((4, 8), 0, ((8, "0"), (4, "0"))),
    Listed((16,), 0, ()),
    Listed((32,), 0, ()),
    Listed((2, 2), 0, ((2, "aa"), (2, "bb"))),
    Listed((64,), 35, ()),
    Listed((2, 0), 35, ()),
]
"""With the topics `aa` and `bb`; tests/interop/test_admin_codes.py asks a real 4.1.1."""


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    *configs: tuple[str, str | None],
    brokers: list[tuple[int, tuple[int, ...]]] | None = None,
) -> create.CreatableTopic:
    return create.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            create.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in brokers or []
        ],
        configs=[create.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


def _creating(
    *topics: create.CreatableTopic, only_check: bool = False, timeout_ms: int = 30_000
) -> create.CreateTopicsRequest:
    return create.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=only_check)


def _growing(
    name: str, count: int, brokers: list[tuple[int, ...]] | None = None, *, only_check: bool = False
) -> grow.CreatePartitionsRequest:
    made = None if brokers is None else [grow.CreatePartitionsAssignment(broker_ids=each) for each in brokers]
    wanted = grow.CreatePartitionsTopic(name=name, count=count, assignments=made)
    return grow.CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=only_check)


def _describing(kind: int, name: str, *keys: str) -> describe.DescribeConfigsRequest:
    resource = describe.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return describe.DescribeConfigsRequest(resources=[resource])


def altering(kind: int, name: str, *configs: tuple[str, str | None], only_check: bool = False) -> Message:
    resource = alter.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    return alter.AlterConfigsRequest(resources=[resource], validate_only=only_check)


def changing(kind: int, name: str, *configs: tuple[str, int, str | None], only_check: bool = False) -> Message:
    resource = incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )
    return incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only_check)


def _erasing(name: str, partition: int, offset: int) -> erase.DeleteRecordsRequest:
    wanted = erase.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return erase.DeleteRecordsRequest(
        topics=[erase.DeleteRecordsTopic(name=name, partitions=[wanted])], timeout_ms=30_000
    )


def _places(kind: int, name: str, *keys: str) -> describe.DescribeConfigsRequest:
    request = _describing(kind, name, *keys)
    request.include_synonyms = True
    return request


def _asking_what_may_be_done(*names: str, with_cluster: bool) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=with_cluster,
    )


def _offset_by(timestamp: int) -> list_offsets.ListOffsetsRequest:
    part = list_offsets.ListOffsetsPartition(timestamp=timestamp)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name="plain", partitions=[part])]
    )


_RULE = create_acls.AclCreation(
    resource_type=TOPIC, resource_name="plain", principal="User:a", host="*", operation=3, permission_type=3
)
_FILTER = delete_acls.DeleteAclsFilter(resource_type_filter=TOPIC, operation=1, permission_type=1)


def _deleting(*names: str) -> delete.DeleteTopicsRequest:
    return delete.DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)


def _looking(name: str, *partitions: int) -> dirs.DescribeLogDirsRequest:
    return dirs.DescribeLogDirsRequest(topics=[dirs.DescribableLogDirTopic(topic=name, partitions=partitions)])


def _moving(path: str, name: str, *partitions: int) -> move.AlterReplicaLogDirsRequest:
    topics = [move.AlterReplicaLogDirTopic(name=name, partitions=partitions)]
    return move.AlterReplicaLogDirsRequest(dirs=[move.AlterReplicaLogDir(path=path, topics=topics)])


_EVERY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
STEPS = [
    Step("create", 4, _creating(topic("plain", 2))),
    Step("create, v0", 0, _creating(topic("old"))),
    Step("create, v7", 7, _creating(topic("new"))),
    Step("create by the broker's numbers", 5, _creating(topic("by-default", -1, -1))),
    Step("create with settings", 5, _creating(topic("set", 1, 1, ("retention.ms", "1000"), ("segment.bytes", "2000")))),
    Step("create an existing topic", 4, _creating(topic("plain"))),
    Step("check a create", 1, _creating(topic("checked"), only_check=True)),
    Step("check a create of an existing topic", 1, _creating(topic("plain"), only_check=True)),
    Step("create twice in one request", 4, _creating(topic("twice"), topic("twice"), topic("once"))),
    Step("no name", 4, _creating(topic(""))),
    Step("name .", 4, _creating(topic("."))),
    Step("name with a blank", 4, _creating(topic("a b"))),
    Step("name of 249", 4, _creating(topic("n" * 249))),
    Step("name of 250", 4, _creating(topic("n" * 250))),
    Step("name with a slash", 4, _creating(topic("a/b"))),
    Step("names that meet, first", 4, _creating(topic("a.b"))),
    Step("names that meet, second", 4, _creating(topic("a_b"))),
    Step("internal name", 4, _creating(topic("__transaction_state"))),
    Step("0 partitions", 4, _creating(topic("zero", 0))),
    Step("-2 partitions", 4, _creating(topic("minus", -2))),
    Step("0 replicas", 4, _creating(topic("zero", 1, 0))),
    Step("-2 replicas", 4, _creating(topic("zero", 1, -2))),
    Step("2 replicas", 4, _creating(topic("two", 1, 2))),
    Step("0 partitions and 2 replicas", 4, _creating(topic("both", 0, 2))),
    Step("bad setting and 2 replicas", 4, _creating(topic("both", 1, 2, ("retention.ms", "x")))),
    Step("bad name and 0 partitions", 4, _creating(topic("a b", 0))),
    Step("assigned", 4, _creating(topic("assigned", -1, -1, brokers=[(0, (0,)), (1, (0,))]))),
    Step("assigned and numbers", 4, _creating(topic("both", 1, 1, brokers=[(0, (0,))]))),
    Step("assigned and partitions", 4, _creating(topic("both", 1, -1, brokers=[(0, (0,))]))),
    Step("assigned with a gap", 4, _creating(topic("gap", -1, -1, brokers=[(0, (0,)), (2, (0,))]))),
    Step("assigned from 1", 4, _creating(topic("gap", -1, -1, brokers=[(1, (0,))]))),
    Step("assigned to no broker", 4, _creating(topic("none", -1, -1, brokers=[(0, ())]), timeout_ms=500)),
    Step("assigned to another broker", 4, _creating(topic("other", -1, -1, brokers=[(0, (9,))]), timeout_ms=500)),
    Step("assigned twice to a broker", 4, _creating(topic("dup", -1, -1, brokers=[(0, (0, 0))]))),
    Step("assigned unevenly", 4, _creating(topic("odd", -1, -1, brokers=[(0, (0,)), (1, (0, 9))]))),
    Step("partition assigned twice", 4, _creating(topic("dup", -1, -1, brokers=[(0, (0,)), (0, (0,))]))),
    Step("unknown setting", 4, _creating(topic("bad", 1, 1, ("no.such.thing", "1")))),
    Step("setting that is no number", 4, _creating(topic("bad", 1, 1, ("retention.ms", "x")))),
    Step("setting out of range", 4, _creating(topic("bad", 1, 1, ("retention.ms", "-2")))),
    Step("setting of wrong words", 4, _creating(topic("bad", 1, 1, ("cleanup.policy", "burn")))),
    Step(
        "cleanup.policy of two words", 4, _creating(topic("both-policies", 1, 1, ("cleanup.policy", "compact,delete")))
    ),
    Step("empty cleanup.policy", 4, _creating(topic("no-policy", 1, 1, ("cleanup.policy", "")))),
    Step("setting without a value", 4, _creating(topic("bad", 1, 1, ("retention.ms", None)))),
    Step("bad boolean", 4, _creating(topic("bad", 1, 1, ("preallocate", "yes")))),
    Step("bad ratio", 4, _creating(topic("bad", 1, 1, ("min.cleanable.dirty.ratio", "1.5")))),
    Step("small segments", 4, _creating(topic("bad", 1, 1, ("segment.bytes", "13")))),
    Step("segments past 2^31", 4, _creating(topic("bad", 1, 1, ("segment.bytes", "2147483648")))),
    Step("number with blanks", 4, _creating(topic("blanks", 1, 1, ("retention.ms", " 5 ")))),
    Step("boolean in capitals", 4, _creating(topic("capitals", 1, 1, ("preallocate", "FALSE")))),
    Step("unknown codec", 4, _creating(topic("bad", 1, 1, ("compression.type", "rar")))),
    Step("unknown timestamp type", 4, _creating(topic("bad", 1, 1, ("message.timestamp.type", "now")))),
    Step("format of a release", 4, _creating(topic("format", 1, 1, ("message.format.version", "0.10.2")))),
    Step("format of no release", 4, _creating(topic("bad", 1, 1, ("message.format.version", "9.9")))),
    Step(
        "compaction lags crossed",
        4,
        _creating(topic("lags", 1, 1, ("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5"))),
    ),
    Step("no topics", 4, _creating()),
    # ---- partitions
    Step("more partitions", 1, _growing("plain", 3)),
    Step("as many partitions", 1, _growing("plain", 3)),
    Step("fewer partitions", 1, _growing("plain", 1)),
    Step("-1 partitions", 1, _growing("plain", -1)),
    Step("partitions of nothing", 1, _growing("nothing", 3)),
    Step("partitions assigned", 1, _growing("plain", 4, [(0,)])),
    Step("partitions assigned, too few", 1, _growing("plain", 6, [(0,)])),
    Step("partitions assigned, too many", 1, _growing("plain", 5, [(0,), (0,)])),
    Step("partitions assigned, none", 1, _growing("plain", 5, [])),
    Step("partitions assigned elsewhere", 1, _growing("plain", 5, [(9,)])),
    Step("partitions assigned twice", 1, _growing("plain", 5, [(0, 0)])),
    Step("partitions assigned to no broker", 1, _growing("plain", 5, [()])),
    Step("check partitions", 1, _growing("plain", 9, only_check=True)),
    Step("check fewer partitions", 1, _growing("plain", 1, only_check=True)),
    # ---- settings
    Step("describe a topic", 1, _describing(TOPIC, "plain", "retention.ms", "nothing.at.all")),
    Step("describe no topic", 1, _describing(TOPIC, "nothing")),
    Step("describe a bad name", 1, _describing(TOPIC, "a b")),
    Step("describe no name", 1, _describing(TOPIC, "")),
    Step("describe the broker", 1, _describing(BROKER, BROKER_ID, "num.partitions")),
    Step("describe all brokers", 1, _describing(BROKER, "", "num.partitions")),
    Step("describe another broker", 1, _describing(BROKER, "9")),
    Step("describe a broker x", 1, _describing(BROKER, "x")),
    Step("describe loggers of another broker", 1, _describing(LOGGER, "9")),
    Step("describe an unknown kind", 1, _describing(3, "x")),
    Step("alter", 0, altering(TOPIC, "plain", ("retention.ms", "5000"))),
    Step("alter, checked", 0, altering(TOPIC, "plain", ("retention.ms", "7"), only_check=True)),
    Step("alter to nonsense", 0, altering(TOPIC, "plain", ("retention.ms", "x"))),
    Step("alter out of range", 0, altering(TOPIC, "plain", ("retention.ms", "-2"))),
    Step("alter an unknown setting", 0, altering(TOPIC, "plain", ("no.such.thing", "1"))),
    Step("alter without a value", 0, altering(TOPIC, "plain", ("retention.ms", None))),
    Step("alter nothing", 0, altering(TOPIC, "nothing", ("retention.ms", "5"))),
    Step("alter nothing to nonsense", 0, altering(TOPIC, "nothing", ("retention.ms", "x"))),
    Step("alter a bad name", 0, altering(TOPIC, "a b", ("retention.ms", "5"))),
    Step("alter the broker", 0, altering(BROKER, BROKER_ID, ("log.retention.ms", "600000"))),
    Step("alter all brokers", 0, altering(BROKER, "", ("log.retention.ms", "700000"))),
    Step("alter another broker", 0, altering(BROKER, "9", ("log.retention.ms", "700000"))),
    Step("alter a broker x", 0, altering(BROKER, "x", ("log.retention.ms", "700000"))),
    Step("alter a read-only setting", 0, altering(BROKER, BROKER_ID, ("num.partitions", "2"))),
    Step("alter the broker to nonsense", 0, altering(BROKER, BROKER_ID, ("log.retention.ms", "x"))),
    Step("alter an unknown setting of the broker", 0, altering(BROKER, BROKER_ID, ("no.such.thing", "1"))),
    Step("alter an unknown kind", 0, altering(3, "x", ("a", "b"))),
    Step("change", 0, changing(TOPIC, "plain", ("retention.ms", SET, "6000"), ("segment.bytes", SET, "3000"))),
    Step("change back", 0, changing(TOPIC, "plain", ("segment.bytes", DELETE, None))),
    Step("take back what is not set", 0, changing(TOPIC, "plain", ("segment.ms", DELETE, None))),
    Step("take back what is unknown", 0, changing(TOPIC, "plain", ("no.such.thing", DELETE, None))),
    Step("append", 0, changing(TOPIC, "plain", ("cleanup.policy", APPEND, "compact"))),
    Step("append once more", 0, changing(TOPIC, "plain", ("cleanup.policy", APPEND, "compact"))),
    Step("subtract", 0, changing(TOPIC, "plain", ("cleanup.policy", SUBTRACT, "delete"))),
    Step("append to no list", 0, changing(TOPIC, "plain", ("retention.ms", APPEND, "1"))),
    Step("append to an unknown setting", 0, changing(TOPIC, "plain", ("no.such.thing", APPEND, "1"))),
    Step("append nonsense", 0, changing(TOPIC, "plain", ("cleanup.policy", APPEND, "burn"))),
    Step("change to nonsense", 0, changing(TOPIC, "plain", ("retention.ms", SET, "x"))),
    Step("change out of range", 0, changing(TOPIC, "plain", ("retention.ms", SET, "-2"))),
    Step("change an unknown setting", 0, changing(TOPIC, "plain", ("no.such.thing", SET, "1"))),
    Step("change without a value", 0, changing(TOPIC, "plain", ("retention.ms", SET, None))),
    Step("change one twice", 0, changing(TOPIC, "plain", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    Step("unknown operation", 0, changing(TOPIC, "plain", ("retention.ms", 7, "1"))),
    Step("change nothing", 0, changing(TOPIC, "nothing", ("retention.ms", SET, "5"))),
    Step("change nothing to nonsense", 0, changing(TOPIC, "nothing", ("retention.ms", SET, "x"))),
    Step("change the broker", 0, changing(BROKER, BROKER_ID, ("log.segment.bytes", SET, "1048576"))),
    Step("change all brokers", 0, changing(BROKER, "", ("log.segment.bytes", SET, "2097152"))),
    Step(
        "change the broker, checked",
        0,
        changing(BROKER, BROKER_ID, ("log.segment.bytes", SET, "7777"), only_check=True),
    ),
    Step("change a read-only setting", 0, changing(BROKER, BROKER_ID, ("num.partitions", SET, "2"))),
    Step("change the broker to nonsense", 0, changing(BROKER, BROKER_ID, ("log.segment.bytes", SET, "x"))),
    Step("change the broker out of range", 0, changing(BROKER, BROKER_ID, ("log.segment.bytes", SET, "1"))),
    Step("change an unknown setting of the broker", 0, changing(BROKER, BROKER_ID, ("no.such.thing", SET, "1"))),
    Step("change another broker", 0, changing(BROKER, "9", ("log.segment.bytes", SET, "1048576"))),
    Step(
        "describe what was changed", 1, _describing(TOPIC, "plain", "retention.ms", "segment.bytes", "cleanup.policy")
    ),
    Step(
        "describe the changed broker",
        1,
        _describing(BROKER, BROKER_ID, "log.segment.bytes", "log.retention.ms", "num.partitions"),
        comes_to=lambda found: any("1048576" in each for each in found),
    ),
    # ---- records, directories, producers, cluster
    Step("delete records", 1, _erasing("new", 0, -1)),
    Step("delete records to 0", 1, _erasing("new", 0, 0)),
    Step("delete records past the end", 1, _erasing("new", 0, 5)),
    Step("delete records to -2", 1, _erasing("new", 0, -2)),
    Step("delete records of a compacted topic", 1, _erasing("plain", 0, -1)),
    Step("delete records of an internal topic", 1, _erasing("__transaction_state", 0, -1)),
    Step("delete records of no partition", 1, _erasing("plain", 99, 0)),
    Step("delete records of no topic", 1, _erasing("nothing", 0, 0)),
    Step("log directories", 1, _looking("plain", 0, 1, 99)),
    Step("log directories of no topic", 1, _looking("nothing", 0)),
    Step("a move to a directory that is not there", 1, _moving("/nowhere", "plain", 0, 99)),
    Step("a move of no topic to a directory that is not there", 2, _moving("/nowhere", "nothing", 0)),
    Step("a move of a topic with a long name", 1, _moving("/nowhere", "l" * 240, 0)),
    Step("log directories, all", 1, dirs.DescribeLogDirsRequest(topics=None)),
    Step("a producer", 0, init.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)),
    Step("a producer again", 3, init.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)),
    Step(
        "a producer with an id",
        4,
        init.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=1000, producer_epoch=1
        ),
    ),
    Step(
        "a producer with an id and no epoch",
        4,
        init.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, producer_id=1000),
    ),
    Step(
        "an empty transactional id", 1, init.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
    ),
    Step(
        "producers",
        0,
        producers.DescribeProducersRequest(
            topics=[
                producers.TopicRequest(name="plain", partition_indexes=(0, 99)),
                producers.TopicRequest(name="nothing", partition_indexes=(0,)),
            ]
        ),
    ),
    Step("the cluster", 0, cluster.DescribeClusterRequest()),
    Step("places of a topic's settings", 4, _places(TOPIC, "plain", "retention.ms", "segment.ms", "flush.ms")),
    Step("places of bounds of time", 4, _places(TOPIC, "plain", "message.timestamp.before.max.ms", "segment.bytes")),
    Step(
        "places of the broker's settings",
        4,
        _places(BROKER, BROKER_ID, "log.roll.hours", "log.segment.bytes"),
        comes_to=lambda found: ["log.segment.bytes", "log.segment.bytes", FOR_ALL_BROKERS] in found,
    ),
    # ---- access, where there is no authorizer
    *(
        Step(
            f"what may be done, v{version}",
            version,
            _asking_what_may_be_done("plain", "nothing", "a b", with_cluster=version < 11),
        )
        for version in (8, 10, 11, 12)
    ),
    *(
        Step(f"{name}, v{version}", version, request)
        for version in range(4)
        for name, request in (
            (
                "describe rules",
                describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
            ),
            ("create two rules", create_acls.CreateAclsRequest(creations=[_RULE, _RULE])),
            ("create no rule", create_acls.CreateAclsRequest()),
            ("delete by two filters", delete_acls.DeleteAclsRequest(filters=[_FILTER, _FILTER])),
        )
    ),
    # ---- offsets by what stands in place of a timestamp
    *(
        Step(f"offset by {timestamp}, v{version}", version, _offset_by(timestamp))
        for version in (1, 7, 8, 9)
        for timestamp in (-1, -2, -3, -4, -5, -6, -7)
    ),
    # ---- deleting
    Step("delete", 3, _deleting("old")),
    Step("delete what is gone", 3, _deleting("nothing")),
    Step("delete a bad name", 3, _deleting("a b")),
    Step("delete no name", 3, _deleting("")),
    Step("delete twice in one request", 3, _deleting("once", "once")),
    Step(
        "delete by name, v6",
        6,
        delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name="format")], timeout_ms=30_000),
    ),
    Step(
        "delete by an unknown id",
        6,
        delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(topic_id=NOBODY)], timeout_ms=30_000),
    ),
    Step("delete by nothing", 6, delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState()], timeout_ms=30_000)),
    Step(
        "delete by both",
        6,
        delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name="set", topic_id=NOBODY)], timeout_ms=30_000),
    ),
    Step(
        "create a deleted topic",
        4,
        _creating(topic("old")),
        comes_to=lambda found: found[0][1] != ErrorCode.TOPIC_ALREADY_EXISTS,
    ),
    Step("set a setting without effect", 1, changing(BROKER, BROKER_ID, ("num.io.threads", SET, "5"))),
    Step("set an unknown setting", 1, changing(BROKER, BROKER_ID, ("my.plugin", SET, "x"))),
    Step(
        "describe settings without effect",
        1,
        _describing(BROKER, BROKER_ID, "num.io.threads", "my.plugin"),
        comes_to=lambda found: len(found) > 2,
    ),
    *(
        Step(f"set {name}={value}", 1, changing(BROKER, BROKER_ID, (name, SET, value)))
        for name, value in (
            ("num.io.threads", "abc"),
            ("num.network.threads", "0"),
            ("log.cleaner.threads", "-1"),
            ("background.threads", "x"),
            ("num.replica.fetchers", "3"),
            ("num.replica.fetchers", "2"),
            ("background.threads", "21"),
            ("background.threads", "20"),
            ("background.threads", "4"),
            ("queued.max.requests", "3"),
            ("ssl.keystore.location", "/nowhere"),
        )
    ),
    Step(
        "set background.threads=40",
        1,
        changing(BROKER, BROKER_ID, ("background.threads", SET, "40")),
        comes_to=lambda found: found[0][0] == ErrorCode.NONE,  # from 20: a broker takes a change after its answer
    ),
    Step("set a level", 1, changing(LOGGER, BROKER_ID, ("root", SET, "INFO"), only_check=True)),
    *(
        Step(f"change a level: {name} {operation} {level}", 1, changing(LOGGER, BROKER_ID, (name, operation, level)))
        for name, operation, level in (
            ("no.such", SET, "INFO"),
            ("no.such", DELETE, None),
            ("root", SET, "LOUD"),
            ("root", SET, "info"),
            ("root", SET, None),
            ("root", DELETE, None),
            ("root", APPEND, "INFO"),
            ("root", SUBTRACT, "INFO"),
        )
    ),
    Step("set a level of another broker", 1, changing(LOGGER, "9", ("root", SET, "INFO"))),
    Step("set levels as the old request", 0, altering(LOGGER, BROKER_ID, ("root", "INFO"))),
    *(
        Step(f"{what} with an unknown {field}", 1, request)
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        for what, request in (
            ("describe rules", describe_acls.DescribeAclsRequest(**{**_EVERY, field: 0})),
            (
                "delete rules",
                delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**{**_EVERY, field: 0})]),
            ),
        )
    ),
]


async def answers(open_connection: Callable[[], Awaitable[Connection]], settles_s: float = 0) -> dict[str, Any]:
    """Return the codes of each step; "closed" where the connection ended instead, None where there is no version.

    `settles_s`: for how long a step may be asked again until it comes to what it should.
    """
    found: dict[str, Any] = {}
    connection = await open_connection()
    for step in STEPS:
        try:
            found[step.name] = await _answer(connection, step, settles_s)
        except UnsupportedVersionError:
            found[step.name] = None
        except NetworkError:
            found[step.name] = "closed"
            await connection.aclose()
            connection = await open_connection()
    await connection.aclose()
    return found


async def _answer(connection: Connection, step: Step, settles_s: float) -> list[list[Any]]:
    """Return the codes of a step; an answer that asks for a retry is retried."""
    end = time.monotonic() + settles_s
    async with asyncio.timeout(120):
        while True:
            response = await connection.send(
                step.request, versions=range(step.version, step.version + 1), timeout_ms=10_000
            )
            found = [list(each) for each in sorted(codes(response), key=str)]
            is_loading = getattr(response, "error_code", 0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if not is_loading and (step.comes_to(found) or time.monotonic() >= end):
                return found
            await asyncio.sleep(0.1)


def codes(response: Any) -> Iterator[tuple[Any, ...]]:
    """Yield what a response says, as far as two brokers can say the same."""
    match response:
        case create.CreateTopicsResponse(topics=made):
            yield from ((one.name, one.error_code, one.num_partitions, one.replication_factor) for one in made)
        case delete.DeleteTopicsResponse(responses=deleted):
            yield from ((one.name or "", one.error_code) for one in deleted)
        case grow.CreatePartitionsResponse(results=grown):
            yield from ((one.name, one.error_code) for one in grown)
        case describe.DescribeConfigsResponse(results=resources):
            for resource in resources:
                yield (resource.error_code, resource.resource_type, resource.resource_name)
                if len(resource.configs) < 5:  # not where all were asked for
                    yield from ((one.name, one.value, one.read_only, one.config_source) for one in resource.configs)
                yield from ((one.name, place.name, place.source) for one in resource.configs for place in one.synonyms)
        case metadata.MetadataResponse(topics=listed):
            yield (response.cluster_authorized_operations,)
            yield from ((one.name, one.error_code, one.topic_authorized_operations) for one in listed)
        case describe_acls.DescribeAclsResponse():
            yield (response.error_code, len(response.resources))
        case create_acls.CreateAclsResponse(results=refused):
            yield from ((one.error_code,) for one in refused)
        case delete_acls.DeleteAclsResponse(filter_results=filtered):
            yield from ((one.error_code, len(one.matching_acls)) for one in filtered)
        case list_offsets.ListOffsetsResponse(topics=looked_up):
            for of_topic in looked_up:
                yield from ((one.error_code, one.timestamp, one.offset) for one in of_topic.partitions)
        case alter.AlterConfigsResponse() | incremental.IncrementalAlterConfigsResponse():
            yield from ((one.error_code, one.resource_type, one.resource_name) for one in response.responses)
        case erase.DeleteRecordsResponse(topics=erased):
            for found in erased:
                yield from (
                    (found.name, one.partition_index, one.error_code, one.low_watermark) for one in found.partitions
                )
        case dirs.DescribeLogDirsResponse(results=directories):
            for directory in directories:
                yield from ((directory.error_code, one.name, len(one.partitions)) for one in directory.topics)
        case move.AlterReplicaLogDirsResponse(results=moved):
            for of_moved in moved:
                yield from ((of_moved.topic_name, one.partition_index, one.error_code) for one in of_moved.partitions)
        case init.InitProducerIdResponse():
            yield (response.error_code, response.producer_id >= 0, response.producer_epoch)
        case producers.DescribeProducersResponse(topics=written):
            for asked in written:
                yield from ((asked.name, one.partition_index, one.error_code) for one in asked.partitions)
        case cluster.DescribeClusterResponse():
            yield (response.error_code, response.controller_id, len(response.brokers))
