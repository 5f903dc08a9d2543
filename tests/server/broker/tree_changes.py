"""Every change that a broker makes to the metadata tree for a client, and the first release that reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as scram
from magicbyte.engine.protocol.messages import create_acls, create_partitions, create_topics, delete_topics
from magicbyte.engine.protocol.messages import incremental_alter_configs as alter
from server.broker.serving import Peer
from server.broker.test_quotas import put
from server.broker.test_rights import rule

TOPIC, GONE = "t", "gone"
_ATTEMPTS = 100
Change = Callable[[Peer], Awaitable[int]]
Release = tuple[int, ...]


async def _settings(kind: int, name: str, setting: str, peer: Peer, value: str = "7200000") -> int:
    config = alter.AlterableConfig(name=setting, config_operation=0, value=value)
    resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await peer.ask(request, 0, alter.IncrementalAlterConfigsResponse)
    return answer.responses[0].error_code


async def _quota(entity: dict[str, str | None], name: str, peer: Peer) -> int:
    return int(await put(peer, entity, **{name: 1024}))


async def _acl(values: dict[str, Any], peer: Peer) -> int:
    creation = rule(values.pop("name", TOPIC), **values)
    answer = await peer.ask(create_acls.CreateAclsRequest(creations=[creation]), 1, create_acls.CreateAclsResponse)
    return answer.results[0].error_code


async def _user(peer: Peer) -> int:
    one = scram.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
    )
    request = scram.AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])
    answer = await peer.ask(request, 0, scram.AlterUserScramCredentialsResponse)
    return answer.results[0].error_code


async def _topic(name: str, peer: Peer) -> int:
    config = create_topics.CreatableTopicConfig(name="retention.ms", value="-1")
    topic = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[config])
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
    return (await peer.ask(request, 4, create_topics.CreateTopicsResponse)).topics[0].error_code


async def _partitions(peer: Peer) -> int:
    topic = create_partitions.CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)
    request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=20_000)
    return (await peer.ask(request, 0, create_partitions.CreatePartitionsResponse)).results[0].error_code


async def _deletion(peer: Peer) -> int:
    request = delete_topics.DeleteTopicsRequest(topic_names=[GONE], timeout_ms=20_000)
    return (await peer.ask(request, 1, delete_topics.DeleteTopicsResponse)).responses[0].error_code


def changes_by(broker_id: int) -> dict[str, tuple[Change, Release]]:
    """Return each change, made at a broker, with the first release that reads what it leaves in the tree."""
    quota = "producer_byte_rate"
    return {
        "topic": (partial(_topic, TOPIC), (0, 9)),
        "partitions": (_partitions, (0, 9)),
        "topic to delete": (partial(_topic, GONE), (0, 9)),
        "deletion": (_deletion, (0, 9)),
        "settings of a topic": (partial(_settings, 2, TOPIC, "retention.ms"), (0, 9)),
        "several policies": (partial(_settings, 2, TOPIC, "cleanup.policy", value="compact,delete"), (0, 10, 1)),
        "zstd": (partial(_settings, 2, TOPIC, "compression.type", value="zstd"), (2, 1)),
        "a format by its magic": (partial(_settings, 2, TOPIC, "message.format.version", value="0"), (0, 9)),
        "a format of 0.10": (partial(_settings, 2, TOPIC, "message.format.version", value="0.10.0"), (0, 10, 0)),
        "a format of 0.11": (partial(_settings, 2, TOPIC, "message.format.version", value="0.11.0"), (0, 11, 0)),
        "a format of 2.8": (partial(_settings, 2, TOPIC, "message.format.version", value="2.8"), (2, 8)),
        "settings of a broker": (partial(_settings, 4, str(broker_id), "log.retention.ms"), (0, 10, 1)),
        "settings of all brokers": (partial(_settings, 4, "", "log.retention.ms"), (1, 1)),
        "quota of a client": (partial(_quota, {"client-id": "app"}, quota), (0, 9)),
        "quota of all clients": (partial(_quota, {"client-id": None}, quota), (0, 10, 1)),
        "quota of a user": (partial(_quota, {"user": "bob"}, quota), (0, 10, 1)),
        "quota of all users": (partial(_quota, {"user": None}, quota), (0, 10, 1)),
        "quota of a user's client": (partial(_quota, {"user": "bob", "client-id": "app"}, quota), (0, 10, 1)),
        "quota of an address": (partial(_quota, {"ip": "10.0.0.1"}, "connection_creation_rate"), (2, 8)),
        "quota of all addresses": (partial(_quota, {"ip": None}, "connection_creation_rate"), (2, 8)),
        "SCRAM user": (_user, (0, 10, 1)),
        "ACL of a topic": (partial(_acl, {}), (0, 9)),
        "ACL of a group": (partial(_acl, {"resource_type": 3}), (0, 9)),
        "ACL of the cluster": (
            partial(_acl, {"resource_type": 4, "operation": 9, "name": "kafka-cluster"}),
            (0, 9),
        ),
        "ACL of a transactional id": (partial(_acl, {"resource_type": 5}), (0, 11)),
        "ACL of a delegation token": (partial(_acl, {"resource_type": 6, "operation": 8}), (1, 1)),
        "ACL of a user": (partial(_acl, {"resource_type": 7, "operation": 13, "name": "User:bob"}), (3, 3)),
        "ACL of a prefix": (partial(_acl, {"resource_pattern_type": 4}), (2, 0)),
        "ACL to describe settings": (partial(_acl, {"operation": 10}), (0, 11)),
        "ACL to alter settings": (partial(_acl, {"operation": 11}), (0, 11)),
        "ACL to write idempotently": (
            partial(_acl, {"resource_type": 4, "operation": 12, "name": "kafka-cluster"}),
            (0, 11),
        ),
    }


async def make_all(peer: Peer, broker_id: int) -> dict[str, ErrorCode]:
    """Make all changes, one after the other; return the error code of each."""
    return {name: await _until_known(change, peer) for name, (change, _) in changes_by(broker_id).items()}


async def _until_known(change: Change, peer: Peer) -> ErrorCode:
    """Make a change; a topic that was created is not known to the broker at once."""
    for _ in range(_ATTEMPTS):
        code = ErrorCode(await change(peer))
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            break
        await asyncio.sleep(0.1)
    return code
