"""Every request of the table of rights, in every version, as a user with no, some, prefixed and denied rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from copy import copy
from typing import Any, Final, NamedTuple

from magicbyte.access.client.connection import Connection
from magicbyte.access.client.login import Credentials
from magicbyte.engine.cluster.acls import AclOperation, Pattern, Permission, ResourceType
from magicbyte.engine.errors import ErrorCode, NetworkError, UnsupportedVersionError
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages import create_acls, create_topics, delete_acls, list_groups, metadata, produce
from magicbyte.engine.protocol.messages.alter_configs import AlterConfigsRequest
from magicbyte.engine.protocol.messages.describe_configs import DescribeConfigsRequest
from magicbyte.engine.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from magicbyte.engine.protocol.outcomes import codes_of
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from server.broker.test_rights import REFUSED

ALICE: Final = "User:alice"
ANY: Final = 1
OF_SETTINGS: Final = (AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest)
GROUP_SETTINGS: Final = 32  # of ConfigResource: a group
NO_RIGHT: Final = "no right"  # in which each version is asked, otherwise every third
RESOURCES: Final = (
    (ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g"), (ResourceType.TRANSACTIONAL_ID, "x"),
    (ResourceType.CLUSTER, "kafka-cluster"),
)  # fmt: skip
GRANTED: Final = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
)  # fmt: skip
"""What may be granted without that a request of the table changes what the next ones find."""
OF_RIGHTS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)  # fmt: skip
RECORD: Final = Record(0, 1_700_000_000_000, 0, b"key", b"value")
Codes = dict[tuple[str, str, int], Any]  # by who has which right, what is asked, and its version


class Given(NamedTuple):
    """A right that a user is given, or denied, on all of `RESOURCES`."""

    operation: AclOperation
    permission: Permission = Permission.ALLOW
    pattern: Pattern = Pattern.LITERAL
    principal: str = ALICE
    host: str = "*"


def situations() -> Iterator[tuple[str, list[Given]]]:
    """Yield names and rights of what alice may do."""
    yield NO_RIGHT, []
    for operation in GRANTED:
        yield f"{operation.name}", [Given(operation)]
        yield f"{operation.name} by a prefix", [Given(operation, pattern=Pattern.PREFIXED)]
    everything = AclOperation.ALL
    yield "all, denied by a prefix", [
        Given(everything), Given(everything, Permission.DENY), Given(everything, Permission.DENY, Pattern.PREFIXED),
    ]  # fmt: skip
    yield "READ and DESCRIBE, DESCRIBE denied", [
        Given(AclOperation.READ), Given(AclOperation.DESCRIBE), Given(AclOperation.DESCRIBE, Permission.DENY),
    ]  # fmt: skip
    yield "all, of another user", [Given(everything, principal="User:bob")]
    yield "all, from another host", [Given(everything, host="10.0.0.1")]


def creations(given: list[Given]) -> list[create_acls.AclCreation]:
    return [
        create_acls.AclCreation(
            resource_type=kind, resource_name=name, principal=each.principal, host=each.host,
            resource_pattern_type=each.pattern, operation=each.operation, permission_type=each.permission,
        )
        for each in given
        for kind, name in RESOURCES
        if not (kind is ResourceType.CLUSTER and each.pattern is Pattern.PREFIXED)
    ]  # fmt: skip


def without_groups_as_resources(message: Message) -> Message:
    """Return a request about settings without groups: a release before 4.0 refuses all of such a request."""
    if not isinstance(message, OF_SETTINGS):
        return message
    known = copy(message)
    known.resources = [each for each in message.resources if each.resource_type != GROUP_SETTINGS]  # type: ignore[assignment]
    return known


class Asking:
    """Two connections to one broker: of a super user, and of alice, whose one is reopened if a broker ends it."""

    def __init__(self, admin: Connection, address: str, credentials: Credentials) -> None:
        self._admin, self._credentials = admin, credentials
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._alice: Connection | None = None

    async def prepare(self) -> None:
        made = [create_topics.CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in "tu"]
        answer = await self._admin.send(create_topics.CreateTopicsRequest(topics=made, timeout_ms=30_000))
        assert isinstance(answer, create_topics.CreateTopicsResponse)
        assert {each.error_code for each in answer.topics} == {0}
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=each) for each in "tu"])
        while any(each.error_code for each in (await self._admin.send(asked)).topics):  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)

    async def give(self, given: list[Given]) -> None:
        """Replace all rights."""
        everything = delete_acls.DeleteAclsFilter(
            resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY, principal_filter=None,
            host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        deleted = await self._admin.send(delete_acls.DeleteAclsRequest(filters=[everything]))
        assert isinstance(deleted, delete_acls.DeleteAclsResponse)
        assert {each.error_code for each in deleted.filter_results} == {0}
        if given:
            answer = await self._admin.send(create_acls.CreateAclsRequest(creations=creations(given)))
            assert isinstance(answer, create_acls.CreateAclsResponse)
            assert {each.error_code for each in answer.results} == {0}, answer

    async def ask(self, message: Message, version: int) -> Message | None:
        """Return the answer to alice, None where the broker ends the connection."""
        if self._alice is None or self._alice.is_closed:
            self._alice = await Connection.open(
                self._host, self._port, client_id="matrix", credentials=self._credentials
            )
        try:
            return await self._alice.send(message, versions=range(version, version + 1))
        except NetworkError:
            return None

    async def codes(self, situation: str) -> Codes:
        found: Codes = {}
        for number, (message, _) in enumerate(REFUSED):
            assert message.API_KEY is not None
            api = APIS[message.API_KEY]
            collect = codes_of(api.response)
            assert collect is not None
            asked = without_groups_as_resources(message)
            for version in api.versions if situation == NO_RIGHT else api.versions[::3]:
                if isinstance(message, produce.ProduceRequest):  # a real broker stumbles over none
                    form = Format.V0 if version < 2 else Format.V1 if version < 3 else Format.V2
                    message.topic_data[0].partition_data[0].records = encode_records([RECORD], form)
                try:
                    answer = await self.ask(asked, version)
                except UnsupportedVersionError:
                    continue
                told: list[int] = []
                if answer is not None:
                    collect(answer, told)
                key = (situation, f"{api.name} {number}", version)
                found[key] = sorted(set(told) & OF_RIGHTS) if answer is not None else "closed"
        found |= await self._names(situation)
        return found

    async def _names(self, situation: str) -> Codes:
        """Return the names in the answer, and the operations allowed on them."""
        asked = metadata.MetadataRequest(
            topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        )
        topics = await self.ask(asked, 8)
        groups = await self.ask(list_groups.ListGroupsRequest(), 3)
        assert isinstance(topics, metadata.MetadataResponse)
        assert isinstance(groups, list_groups.ListGroupsResponse)
        rights = {each.name: each.topic_authorized_operations for each in topics.topics if each.name in ("t", "u")}
        return {
            (situation, "names and rights of topics", 8): rights,
            (situation, "rights of the cluster", 8): topics.cluster_authorized_operations,
            (situation, "groups", 3): groups.error_code,
        }


async def ask_all(plain: str, secured: str, credentials: Credentials) -> Codes:
    """Return all that one broker says. `plain`: where a super user is; `secured`: where alice logs in."""
    host, _, port = plain.rpartition(":")
    asking = Asking(await Connection.open(host, int(port), client_id="admin"), secured, credentials)
    await asking.prepare()
    found: Codes = {}
    for name, given in situations():
        await asking.give(given)
        found |= await asking.codes(name)
    return found
