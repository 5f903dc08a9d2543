"""Every topic, group and transactional id that a request names is asked about before its handler gets the request.

The schemas mark the fields with such names (`entityType`). A request with one such field goes through the rights of its
route, with an authorizer that notes what it is asked, and allows everything but what is asked about the cluster.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints
from unittest.mock import MagicMock

import pytest
from msgspec import Struct

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.fetch import FetchPartition
from magicbyte.schema import FieldSchema, MessageSchema, load_directory
from magicbyte.schema.names import attributes
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.serving.authorization import AuthorizedCaller
from magicbyte.server.serving.request import ClientConnection, Request
from magicbyte.server.settings.served import SERVED
from server.broker.serving import Running

KINDS = {
    "topicName": ResourceType.TOPIC,
    "groupId": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
NAME = "marked"
BETWEEN_BROKERS = "brokers name what they like: the request needs ClusterAction"
OF_ADMINISTRATORS = "who may alter the cluster may name any topic"
NOT_ASKED = {
    "Fetch forgotten_topics_data.topic": "a topic that a session leaves out needs no right",
    "ElectLeaders topic_partitions.topic": OF_ADMINISTRATORS,
    "AlterPartitionReassignments topics.name": OF_ADMINISTRATORS,
    "ListPartitionReassignments topics.name": "who may describe the cluster may name any topic",
    "DescribeLogDirs topics.topic": "who may describe the cluster may name any topic",
    "AlterReplicaLogDirs dirs.topics.name": OF_ADMINISTRATORS,
    "AddPartitionsToTxn transactions.transactional_id": BETWEEN_BROKERS,
    "AddPartitionsToTxn transactions.topics.name": BETWEEN_BROKERS,
}

AS_THEY_ANSWER = {ApiKey.FETCH, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
"""APIs whose handlers ask about each topic that they look at, so that they need a broker with it."""


class Marked(NamedTuple):
    """A field that holds a name: its API, the attributes that lead to it, its kind, and the latest version with it."""

    key: int
    path: tuple[str, ...]
    kind: ResourceType
    version: int

    def __str__(self) -> str:
        return f"{APIS[self.key].name} {'.'.join(self.path)}"


def marked() -> Iterator[Marked]:
    """Yield the marked fields of all requests that are served."""
    schemas = load_directory(Path(__file__).parents[3] / "schemas/messages")
    for schema in schemas.values():
        key = schema.api_key
        if schema.type == "request" and key in SERVED and schema.name == f"{APIS[key].name}Request":
            versions = SERVED[key].versions
            for path, fields in _fields(schema, schema.fields):
                inside = [version for version in versions if all(version in each.versions for each in fields)]
                if (kind := fields[-1].entity_type) in KINDS and inside:
                    yield Marked(key, path, KINDS[kind], inside[-1])


def _fields(
    schema: MessageSchema, fields: tuple[FieldSchema, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[FieldSchema, ...]]]:
    """Yield the path to each field, and the fields on it: that field comes last."""
    names = attributes(fields)
    for field in fields:
        yield (names[field.name],), (field,)
        if field.type.struct:
            for path, inner in _fields(schema, schema.structs[field.type.name].fields):
                yield (names[field.name], *path), (field, *inner)


def _with_name(kind: type, path: tuple[str, ...]) -> Any:
    """Return a message or struct of this class, empty but for the name at the end of a path."""
    made, hint = kind(), str(get_type_hints(kind)[path[0]])
    is_array = "list[" in hint or "Sequence[" in hint
    value = NAME if len(path) == 1 else _with_name(_class_in(kind, path[0]), path[1:])
    setattr(made, path[0], [value] if is_array else value)
    return made


def _class_in(kind: type, name: str) -> type:
    pending = [get_type_hints(kind)[name]]
    while True:
        each = pending.pop()
        if isinstance(each, type) and issubclass(each, Struct):
            return each
        pending += get_args(each)


class Noting:
    """An authorizer that allows everything but what is asked about the cluster, and notes what it is asked about."""

    def __init__(self) -> None:
        self.asked = set[tuple[ResourceType, str]]()

    def allows(self, _connection: ClientConnection, _operation: AclOperation, kind: ResourceType, name: str) -> bool:
        self.asked.add((kind, name))
        return kind is not ResourceType.CLUSTER

    def allows_any(self, _connection: ClientConnection, _operation: AclOperation, _kind: ResourceType) -> bool:
        return True

    def operations(self, _connection: ClientConnection, _kind: ResourceType, _name: str) -> int:
        return 0


@pytest.mark.parametrize("field", list(marked()), ids=str)
async def test_a_marked_name_is_asked_about(field: Marked, folder: Path) -> None:
    route, authorizer = BROKER_ROUTES.load(field.key), Noting()
    assert route.rights is not None
    message = _with_name(APIS[field.key].request, field.path)
    if field.key in AS_THEY_ANSWER:
        if field.key == ApiKey.FETCH:
            for topic in message.topics:
                topic.partitions = [FetchPartition()]
        async with Running(folder) as broker:
            await broker.topics.create(NAME)
            connection = ClientConnection("127.0.0.1", "peer", broker.config.listeners[0])
            request = Request(message, field.version, None, connection)
            await route.rights(broker.parts, request, MagicMock(), AuthorizedCaller(authorizer, connection))
    else:
        mocked = MagicMock()

        async def handler(_request: Request[Any]) -> Message | None:
            return APIS[field.key].response()

        request = Request(message, field.version, None, mocked)
        await route.rights(MagicMock(), request, handler, AuthorizedCaller(authorizer, mocked))
    is_asked = (field.kind, NAME) in authorizer.asked
    is_of_brokers = route.of_brokers and (ResourceType.CLUSTER, "kafka-cluster") in authorizer.asked
    assert is_asked or is_of_brokers or str(field) in NOT_ASKED, sorted(authorizer.asked)
    assert not (is_asked and str(field) in NOT_ASKED), "asked about after all: it is no exception"


def test_the_exceptions_are_fields_that_are_marked() -> None:
    assert NOT_ASKED.keys() <= {str(field) for field in marked()}
