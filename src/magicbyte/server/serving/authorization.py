"""Authorization of requests: the rights that an API needs, and the response without them.

Rows that a caller may not name are removed from the request before the handler sees it, and refused in the response.
Source: Kafka's KafkaApis of 2.8; docs/broker/acls.md has the differences.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.request import ClientConnection, Handler, Request

T = TypeVar("T")

TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NOTHING: Final[Mapping[str, Any]] = {}


class Need(NamedTuple):
    """A right, and the error code without it."""

    operation: AclOperation
    type: ResourceType
    code: ErrorCode

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {name_of(self.operation)} ({self.code.value})"


def name_of(operation: AclOperation) -> str:
    """Return Kafka's name of an operation."""
    return operation.name.title().replace("_", "")


def need_of_cluster(operation: AclOperation) -> Need:
    """Return a right to the cluster."""
    return Need(operation, ResourceType.CLUSTER, CLUSTER_REFUSED)


def need_of_group(operation: AclOperation) -> Need:
    """Return a right to a group."""
    return Need(operation, ResourceType.GROUP, GROUP_REFUSED)


def need_of_topic(operation: AclOperation) -> Need:
    """Return a right to a topic."""
    return Need(operation, ResourceType.TOPIC, TOPIC_REFUSED)


def need_of_id(operation: AclOperation) -> Need:
    """Return a right to a transactional id."""
    return Need(operation, ResourceType.TRANSACTIONAL_ID, ID_REFUSED)


ACT: Final = need_of_cluster(AclOperation.CLUSTER_ACTION)
"""The right of brokers."""
READ_GROUP: Final = need_of_group(AclOperation.READ)
WRITE_ID: Final = need_of_id(AclOperation.WRITE)


class Authorizes(Protocol):
    """Decides whether a connection may do something."""

    def allows(self, connection: ClientConnection, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return whether an operation on a name is allowed."""

    def allows_any(self, connection: ClientConnection, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on any name."""

    def operations(self, connection: ClientConnection, kind: ResourceType, name: str) -> int:
        """Return the authorized operations, as bits."""


class AuthorizedCaller:
    """The caller: a connection with its authorizer."""

    __slots__ = ("_authorizer", "_connection")

    def __init__(self, authorizer: Authorizes, connection: ClientConnection) -> None:
        self._authorizer, self._connection = authorizer, connection

    def may(self, need: Need, name: str) -> bool:
        """Return whether the caller has this right."""
        return self._authorizer.allows(self._connection, need.operation, need.type, name)

    def has(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether an operation is allowed."""
        return self._authorizer.allows(self._connection, operation, kind, name)

    def has_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on any name."""
        return self._authorizer.allows_any(self._connection, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the authorized operations, as bits."""
        return self._authorizer.operations(self._connection, kind, name)

    def split(self, need: Need, asked: Iterable[T], name_of: Callable[[T], str]) -> tuple[list[T], list[T]]:
        """Return the items with an authorized name, and the others."""
        allowed: list[T] = []
        refused: list[T] = []
        for each in asked:
            (allowed if self.may(need, name_of(each)) else refused).append(each)
        return allowed, refused


def id_refusal(caller: AuthorizedCaller, transactional_id: str, group_id: str | None = None) -> ErrorCode:
    """Return why a producer may not use its id, or its offsets are refused for a group."""
    if not caller.may(WRITE_ID, transactional_id):
        return WRITE_ID.code
    is_refused = group_id is not None and not caller.may(READ_GROUP, group_id)
    return READ_GROUP.code if is_refused else ErrorCode.NONE


Rights: TypeAlias = Callable[[Any, "Request[Any]", "Handler", AuthorizedCaller], Awaitable["Message | None"]]
"""Answers a request as far as its caller is authorized: called with the handler's services, the request, the handler
bound to them, and the caller.
"""


class PartitionRows(NamedTuple):
    """The partitions in a row of a request and of a response; `number` is "" if a request has plain numbers."""

    asked: str
    number: str
    answered: str
    row: type[Any]
    said_number: str
    values: Mapping[str, Any] = _NOTHING


@dataclass(frozen=True, slots=True)
class ResponseRows:
    """The rows of a request, and of its response. `name` is "" if a request has plain names."""

    asked: str
    name: str
    answered: str
    row: type[Any]
    said_name: str = "name"
    parts: PartitionRows | None = None

    def name_of(self, asked: Any) -> str:
        """Return the name in a row of a request."""
        return str(getattr(asked, self.name) if self.name else asked)

    def refused(self, asked: Any, code: ErrorCode) -> Any:
        """Return the response row of a refused request row."""
        named = {self.said_name: self.name_of(asked)} if self.said_name else {}
        if (parts := self.parts) is None:
            return self.row(**named, error_code=code)
        rows = []
        for each in getattr(asked, parts.asked):
            number = getattr(each, parts.number) if parts.number else each
            rows.append(parts.row(**{parts.said_number: number}, error_code=code, **parts.values))
        return self.row(**named, **{parts.answered: rows})


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """The required rights of one API: `whole` for a request, `each` for its rows; `name` is the field with the name for
    `whole`.

    `top`: the first version with an error code for the whole response, None: none. `values`: other fields of it if all
    is refused.
    """

    response: type[Any]
    whole: Need | None = None
    name: str | None = None
    rows: ResponseRows | None = None
    each: Need | None = None
    top: int | None = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(str(need) for need in (self.whole, self.each) if need is not None)

    async def __call__(
        self, _services: object, request: Request[Any], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        """Return the handler's response for the permitted rows, and refuse the rest."""
        message, rows = request.message, self.rows
        if self.whole is not None:
            name = CLUSTER_NAME if self.name is None else getattr(message, self.name)
            if not caller.may(self.whole, name):
                return self.refuse_all(message, request.version, self.whole.code)
        if self.each is None or rows is None:
            return await handler(request)
        asked = getattr(message, rows.asked)
        allowed, refused = caller.split(self.each, asked, rows.name_of)
        if not refused:
            return await handler(request)
        response = await handler(replace(request, message=replace(message, **{rows.asked: allowed})))
        if response is None:
            raise ProtocolError("a request without an answer", expected="topics that may be written to", found="others")
        getattr(response, rows.answered).extend(rows.refused(each, self.each.code) for each in refused)
        return response

    def refuse_all(self, message: Any, version: int, code: ErrorCode) -> Message:
        """Return the response to a request that is refused as a whole."""
        values = dict(self.values)
        if self.top is not None and version >= self.top:
            values["error_code"] = code
        if (rows := self.rows) is not None:
            values[rows.answered] = [rows.refused(each, code) for each in getattr(message, rows.asked) or ()]
        response: Message = self.response(**values)
        return response
