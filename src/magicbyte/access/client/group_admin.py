"""Administer consumer groups: list, describe and delete them.

Brokers have groups from 0.9 on. Consumers before that commit offsets to ZooKeeper, without a record of members:
`groups.committed_offsets` returns the offsets of both. Sources: KIP-40, KIP-88, KIP-229, KIP-848.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from magicbyte.access.client.client import BrokerNode, Client, only
from magicbyte.access.client.groups import Committed, TopicPartition
from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode
from magicbyte.engine.groups.consumer_protocol import Assignment
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from magicbyte.engine.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from magicbyte.engine.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.engine.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

_CONSUMER: Final = "consumer"
SHARE: Final = "share"
_NOT_OF_THE_NEW_PROTOCOL: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_NO_SUCH_GROUP: Final = "Dead"


class ListedGroup(Struct, frozen=True):
    """A group. `protocol_type` is consumer, connect, or "" if it never had a member.

    `state` is returned by brokers from 2.6 on, `kind` (classic, consumer, share, streams) from 3.8 on; else None.
    """

    name: str
    protocol_type: str
    state: str | None
    kind: str | None

    def to_json(self) -> dict[str, str | None]:
        """Return the group as printed by `magicbyte groups list --format json`."""
        return {"group": self.name, "protocolType": self.protocol_type, "kind": self.kind, "state": self.state}


class GroupMember(Struct, frozen=True):
    """A member and its assigned partitions. `instance_id` is None unless it is a static member."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class DescribedGroup(Struct, frozen=True):
    """A group as its coordinator returns it. `state` is Dead, without members, for an unknown group.

    `kind`: classic, consumer for a group of KIP-848's protocol, or share. `assignor` is "" if there is none.
    """

    name: str
    state: str
    kind: str
    protocol_type: str
    assignor: str
    coordinator: BrokerNode
    members: tuple[GroupMember, ...]

    @property
    def is_known(self) -> bool:
        """Whether the coordinator knows the group."""
        return self.state != _NO_SUCH_GROUP


class GroupList(NamedTuple):
    """Groups by name. `hidden`: the partitions of `__consumer_offsets` without a leader, whose groups are missing."""

    groups: list[ListedGroup]
    hidden: list[int]

    @property
    def warning(self) -> str:
        """What is not known, "" if these are all groups."""
        partitions = ", ".join(f"{OFFSETS_TOPIC}-{index}" for index in self.hidden)
        what = f"not all groups are known: those of {partitions} are missing, where no broker leads"
        return what if self.hidden else ""


async def list_groups(client: Client) -> GroupList:
    """Return the groups of all brokers. Needs brokers from 0.9 on. Raises BrokerError and NetworkError."""
    connection = await client.any_connection()
    connection.versions.choose(APIS[ApiKey.LIST_GROUPS], None, connection.name)
    offsets = (await client.topics()).get(OFFSETS_TOPIC)
    partitions = {} if offsets is None else offsets.partitions
    hidden = [index for index, each in sorted(partitions.items()) if each.leader not in client.cluster.brokers]
    found: dict[str, ListedGroup] = {}
    for node in client.cluster.brokers.values():
        groups = await client.retried(functools.partial(_groups_of, client, node))
        found |= {each.name: each for each in groups}
    return GroupList([each for _, each in sorted(found.items())], hidden)


async def _groups_of(client: Client, node: BrokerNode) -> list[ListedGroup]:
    response = await client.ask(node, ListGroupsRequest(), ListGroupsResponse)
    _check("list groups", response.error_code, node)
    return [
        ListedGroup(each.group_id, each.protocol_type, each.group_state or None, each.group_type.lower() or None)
        for each in response.groups
    ]


async def describe_group(client: Client, name: str) -> DescribedGroup:
    """Return a group's state and members. Needs brokers from 0.9 on. Raises BrokerError and NetworkError."""

    async def ask(node: BrokerNode) -> DescribedGroup:
        connection = await client.connection(node)
        if connection.versions.latest(APIS[ApiKey.CONSUMER_GROUP_DESCRIBE]) is not None:
            group = await _describe_new(client, node, name)
            if group is not None:
                return group
        if connection.versions.latest(APIS[ApiKey.SHARE_GROUP_DESCRIBE]) is not None:
            group = await _describe_share(client, node, name)
            if group is not None:
                return group
        return await _describe_classic(client, node, name)

    return await client.at_coordinator(name, ask)


async def _describe_new(client: Client, node: BrokerNode, name: str) -> DescribedGroup | None:
    """Return a group of KIP-848's protocol, or None if it is of another."""
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    group = only((await client.ask(node, request, ConsumerGroupDescribeResponse)).groups, "groups")
    if group.error_code in _NOT_OF_THE_NEW_PROTOCOL:
        return None
    _check(f"describe group {name}", group.error_code, node, group.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple((of.topic_name, index) for of in member.assignment.topic_partitions for index in of.partitions),
        )
        for member in group.members
    )
    return DescribedGroup(name, group.group_state, _CONSUMER, _CONSUMER, group.assignor_name, node, members)


async def _describe_share(client: Client, node: BrokerNode, name: str) -> DescribedGroup | None:
    """Return a share group (KIP-932), or None if it is of another kind."""
    request = ShareGroupDescribeRequest(group_ids=[name])
    group = only((await client.ask(node, request, ShareGroupDescribeResponse)).groups, "groups")
    if group.error_code in _NOT_OF_THE_NEW_PROTOCOL:
        return None
    _check(f"describe group {name}", group.error_code, node, group.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            tuple((of.topic_name, index) for of in member.assignment.topic_partitions for index in of.partitions),
        )
        for member in group.members
    )
    return DescribedGroup(name, group.group_state, SHARE, SHARE, group.assignor_name, node, members)


async def share_offsets(client: Client, name: str) -> dict[TopicPartition, Committed]:
    """Return the start offsets of a share group, before which all records are done.

    Raises BrokerError and NetworkError.
    """

    async def ask(node: BrokerNode) -> dict[TopicPartition, Committed]:
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked])
        group = only((await client.ask(node, request, DescribeShareGroupOffsetsResponse)).groups, "groups")
        _check(f"describe offsets of group {name}", group.error_code, node, group.error_message)
        return {
            (topic.topic_name, part.partition_index): Committed(part.start_offset, "")
            for topic in group.topics
            for part in topic.partitions
            if not part.error_code and part.start_offset >= 0
        }

    return await client.at_coordinator(name, ask)


async def _describe_classic(client: Client, node: BrokerNode, name: str) -> DescribedGroup:
    group = only(
        (await client.ask(node, DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse)).groups, "groups"
    )
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(name, _NO_SUCH_GROUP, "classic", "", "", node, ())
    _check(f"describe group {name}", group.error_code, node, group.error_message)
    of_consumers = group.protocol_type == _CONSUMER
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            tuple(_assigned(member.member_assignment)) if of_consumers else (),
        )
        for member in group.members
    )
    return DescribedGroup(name, group.group_state, "classic", group.protocol_type, group.protocol_data, node, members)


def _assigned(data: bytes) -> Iterator[TopicPartition]:
    """Yield the partitions of an assignment; none if it is missing or invalid."""
    if not data:
        return
    try:
        found = Assignment.parse(bytes(data))
    except CorruptRecordError:
        return
    for topic, partitions in found.assigned_partitions:
        for each in partitions:
            yield topic, each


async def delete_group(client: Client, name: str) -> None:
    """Delete a group without members, and its offsets. Needs brokers from 1.1 on. Raises BrokerError."""

    async def ask(node: BrokerNode) -> None:
        response = await client.ask(node, DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        found = only(response.results, "groups")
        _check(f"delete group {name}", found.error_code, node)

    await client.at_coordinator(name, ask)


def _check(what: str, code: int, node: BrokerNode, detail: str | None = None) -> None:
    if code:
        raise BrokerError(what, code, broker=str(node), detail=detail)
