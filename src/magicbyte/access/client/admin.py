"""Changes to a cluster: topics, partitions, settings, deletion of records. Needs brokers from 0.10.1 on."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from magicbyte.access.client.client import BrokerNode, Client, ClusterMetadata, only
from magicbyte.engine.errors import BrokerError, ErrorCode, NetworkError, UnsupportedVersionError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import alter_configs as whole
from magicbyte.engine.protocol.messages import incremental_alter_configs as incremental
from magicbyte.engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from magicbyte.engine.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from magicbyte.engine.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from magicbyte.engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

TIMEOUT_MS: Final = 30_000  # for the controller
_BY_NAME: Final = range(6)  # versions of DeleteTopics by name; later ones may use ids
_SET, _DELETE = 0, 1
_SOURCES: Final = {
    1: "topic", 2: "broker while it ran", 3: "all brokers while they ran", 4: "server.properties", 5: "default",
}  # fmt: skip
_OWN_SOURCES: Final = {1, 2}
_OF_ALL_BROKERS: Final = 3  # the number of this config source

T = TypeVar("T")


class ConfigResource(enum.IntEnum):
    """Kinds of resources with settings."""

    TOPIC = 2
    BROKER = 4


class NewTopic(Struct, frozen=True):
    """A topic to create. `assignments`: the brokers of each partition, in place of the two numbers, which are then -1.

    For brokers from 2.4 on, -1 without assignments stands for their own settings.
    """

    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()


class SettingInForce(Struct, frozen=True):
    """A setting in force. `is_own`: set for this topic, or changed on this broker while it ran.

    `source` is the origin of the value in words; None from a broker before 1.1. The value of a sensitive setting is
    None: brokers never return it.
    """

    name: str
    value: str | None
    is_own: bool
    is_read_only: bool
    is_sensitive: bool
    source: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a setting as in `magicbyte configs describe --format json`."""
        return {
            "name": self.name,
            "value": self.value,
            "source": self.source,
            "own": self.is_own,
            "readOnly": self.is_read_only,
            "sensitive": self.is_sensitive,
        }


async def create_topic(client: Client, topic: NewTopic, *, validate_only: bool = False) -> None:
    """Create a topic. Raises BrokerError: TOPIC_ALREADY_EXISTS, among others."""
    made = CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=tuple(brokers))
            for index, brokers in enumerate(topic.assignments)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
    request = CreateTopicsRequest(topics=[made], timeout_ms=TIMEOUT_MS, validate_only=validate_only)

    async def ask(node: BrokerNode) -> None:
        response = await client.ask(node, request, CreateTopicsResponse, wait_ms=TIMEOUT_MS)
        for each in response.topics:
            _check(f"create topic {each.name}", each.error_code, node, each.error_message)

    await client.at_controller(ask)
    client.forget(topic.name)


async def delete_topic(client: Client, name: str) -> None:
    """Delete a topic. Raises BrokerError."""
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)

    async def ask(node: BrokerNode) -> None:
        response = await client.ask(node, request, DeleteTopicsResponse, versions=_BY_NAME, wait_ms=TIMEOUT_MS)
        for each in response.responses:
            _check(f"delete topic {each.name}", each.error_code, node, each.error_message)

    await client.at_controller(ask)
    client.forget(name)


async def create_partitions(client: Client, topic: str, count: int) -> None:
    """Raise a topic's number of partitions to `count`. Raises BrokerError."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=TIMEOUT_MS
    )

    async def ask(node: BrokerNode) -> None:
        response = await client.ask(node, request, CreatePartitionsResponse, wait_ms=TIMEOUT_MS)
        for each in response.results:
            _check(f"create partitions of {each.name}", each.error_code, node, each.error_message)

    await client.at_controller(ask)
    client.forget(topic)


async def delete_records(client: Client, topic: str, partition: int, before: int) -> int:
    """Delete the records below the offset `before`, -1 for all; return the new start. Raises BrokerError."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=before)]
            )
        ],
        timeout_ms=TIMEOUT_MS,
    )

    async def ask(node: BrokerNode) -> int:
        response = await client.ask(node, request, DeleteRecordsResponse, wait_ms=TIMEOUT_MS)
        found = only(only(response.topics, "topics").partitions, "partitions")
        _check(f"delete records of {topic}-{partition}", found.error_code, node)
        return found.low_watermark

    return await client.at_leader(topic, partition, ask)


async def describe_configs(client: Client, resource: ConfigResource, name: str) -> dict[str, SettingInForce]:
    """Return the settings of a topic or broker by their names. Raises BrokerError.

    `name` of a broker is its id. "" stands for the dynamic default of all brokers (from 1.1 on).
    """
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource, resource_name=name, configuration_keys=None)]
    )

    async def ask(node: BrokerNode) -> dict[str, SettingInForce]:
        result = only((await client.ask(node, request, DescribeConfigsResponse)).results, "resources")
        _check(f"settings of {resource.name.lower()} {name}", result.error_code, node, result.error_message)
        return {
            each.name: SettingInForce(
                each.name, each.value, _is_own(each, name), each.read_only, each.is_sensitive, _source(each)
            )
            for each in result.configs
        }

    return await _at_keeper(client, ApiKey.DESCRIBE_CONFIGS, resource, name, ask)


async def alter_configs(
    client: Client,
    resource: ConfigResource,
    name: str,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Change some settings of a topic or broker and keep the others. None removes a setting. Raises BrokerError.

    `name` is as for `describe_configs`.

    Brokers before 2.3 replace all settings at once: the present ones are read and sent again with the changes. A
    concurrent change by another client may be lost.
    """
    what = f"change settings of {resource.name.lower()} {name}"

    async def ask(node: BrokerNode) -> None:
        connection = await client.connection(node)
        if connection.versions.latest(APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS]) is not None:
            request = _changes(resource, name, changes, validate_only=validate_only)
            response = await client.ask(node, request, incremental.IncrementalAlterConfigsResponse)
            for each in response.responses:
                _check(what, each.error_code, node, each.error_message)
            return
        own = {key: each for key, each in (await describe_configs(client, resource, name)).items() if each.is_own}
        if secret := sorted(key for key, each in own.items() if each.is_sensitive and key not in changes):
            why = f"all settings must be sent again, and brokers do not return the value of {', '.join(secret)}"
            raise BrokerError(what, ErrorCode.INVALID_CONFIG, broker=str(node), detail=why)
        settings = {key: each.value for key, each in own.items()} | dict(changes)
        replacement = _replacement(resource, name, settings, validate_only=validate_only)
        answer = await client.ask(node, replacement, whole.AlterConfigsResponse)
        for other in answer.responses:
            _check(what, other.error_code, node, other.error_message)

    await _at_keeper(client, ApiKey.ALTER_CONFIGS, resource, name, ask)


async def alters_one_by_one(client: Client) -> bool:
    """Return whether brokers change single settings, or replace all at once: see `alter_configs`.

    Raises UnsupportedVersionError before 0.11, where brokers do neither.
    """
    connection = await client.connection(await _keeper_of_topics(client, ApiKey.ALTER_CONFIGS))
    return connection.versions.latest(APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS]) is not None


async def describe_cluster(client: Client) -> ClusterMetadata:
    """Return the brokers, id and controller of the cluster."""
    await client.topics([])
    return client.cluster


def _changes(
    resource: ConfigResource, name: str, changes: Mapping[str, str | None], *, validate_only: bool
) -> incremental.IncrementalAlterConfigsRequest:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    changed = incremental.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return incremental.IncrementalAlterConfigsRequest(resources=[changed], validate_only=validate_only)


def _replacement(
    resource: ConfigResource, name: str, settings: Mapping[str, str | None], *, validate_only: bool
) -> whole.AlterConfigsRequest:
    configs = [whole.AlterableConfig(name=key, value=value) for key, value in settings.items() if value is not None]
    changed = whole.AlterConfigsResource(resource_type=resource, resource_name=name, configs=configs)
    return whole.AlterConfigsRequest(resources=[changed], validate_only=validate_only)


def _is_own(setting: DescribeConfigsResourceResult, name: str) -> bool:
    if setting.config_source >= 0:
        return setting.config_source in _OWN_SOURCES or (not name and setting.config_source == _OF_ALL_BROKERS)
    return not setting.is_default and not setting.read_only  # version 0 knows no more


def _source(setting: DescribeConfigsResourceResult) -> str | None:
    if setting.config_source < 0:
        return "default" if setting.is_default else None
    return _SOURCES.get(setting.config_source, f"source {setting.config_source}")


async def _at_keeper(
    client: Client, api_key: int, resource: ConfigResource, name: str, ask: Callable[[BrokerNode], Awaitable[T]]
) -> T:
    """Send requests about one broker's settings to that broker, all others to the controller.

    In a cluster with brokers of several releases, the controller's may not know the request: then another broker gets
    it. All of them keep these settings in ZooKeeper.
    """
    if resource is ConfigResource.BROKER and name:
        return await client.at_broker(int(name), ask)
    keeper = await _keeper_of_topics(client, api_key)
    if keeper.id == client.cluster.controller:
        return await client.at_controller(ask)
    return await client.retried(lambda: ask(keeper))


async def _keeper_of_topics(client: Client, api_key: int) -> BrokerNode:
    """Return the controller, or else the first broker that knows a request. Raises UnsupportedVersionError."""
    if client.cluster.controller is None:
        await client.topics([])
    nodes = sorted(client.cluster.brokers.values(), key=lambda node: (node.id != client.cluster.controller, node.id))
    refused: UnsupportedVersionError | None = None
    for node in nodes:
        try:
            connection = await client.connection(node)
            connection.versions.choose(APIS[api_key], None, connection.name)
        except UnsupportedVersionError as error:
            refused = refused or error
        except NetworkError:
            if node.id == client.cluster.controller:
                return node  # requests to it are retried, until there is another one
        else:
            return node
    raise refused or NetworkError("no broker of the cluster answers")


def _check(what: str, code: int, node: BrokerNode, detail: str | None = None) -> None:
    if code:
        raise BrokerError(what, code, broker=str(node), detail=detail)
