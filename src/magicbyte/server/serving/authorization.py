"""Authorization of requests: the rights that an API needs, and the response without them.

Rows that a caller may not name are removed from the request before the handler sees it, and refused in the response.
Source: Kafka's KafkaApis of 2.8; docs/broker/acls.md has the differences.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.request import ClientConnection, Handler, Request

T = TypeVar("T")
M = TypeVar("M", bound="Message")
R = TypeVar("R")
A = TypeVar("A", bound="Message")

TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


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


class WholeRight(Struct, Generic[M], frozen=True):
    """A right that a request needs as a whole. `refused` returns the response without it.

    `name` returns the name of the group or id in the message; by default the right is one to the cluster.
    """

    need: Need
    refused: Callable[[Request[M]], Message]
    name: Callable[[M], str] = lambda _: CLUSTER_NAME

    def __str__(self) -> str:
        return str(self.need)

    async def __call__(
        self, _services: object, request: Request[M], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        """Return the handler's response, or the refusal."""
        return await handler(request) if self.is_given(request, caller) else self.refused(request)

    def is_given(self, request: Request[M], caller: AuthorizedCaller) -> bool:
        """Return whether the caller has the right."""
        return caller.may(self.need, self.name(request.message))


class RowRights(Struct, Generic[M, R, A], frozen=True):
    """A right that each row of a request needs, for the name in it; `whole`: another for the request before.

    `rows` returns the rows of a message, `only` the message with some of them, and `refuse` adds the refusal of a row
    to a response.
    """

    need: Need
    rows: Callable[[M], Sequence[R]]
    name: Callable[[R], str]
    only: Callable[[M, list[R]], M]
    refuse: Callable[[A, R, ErrorCode], None]
    whole: WholeRight[M] | None = None

    def __str__(self) -> str:
        return ", ".join(str(each) for each in (self.whole, self.need) if each is not None)

    async def __call__(
        self, _services: object, request: Request[M], handler: Handler, caller: AuthorizedCaller
    ) -> Message | None:
        """Return the handler's response for the permitted rows, and refuse the rest."""
        if self.whole is not None and not self.whole.is_given(request, caller):
            return self.whole.refused(request)
        allowed, refused = caller.split(self.need, self.rows(request.message), self.name)
        if not refused:
            return await handler(request)
        response: Any = await handler(replace(request, message=self.only(request.message, allowed)))
        if response is None:
            raise ProtocolError("a request without a response", expected=f"the right {self.need}", found="none")
        for each in refused:
            self.refuse(response, each, self.need.code)
        answered: Message = response
        return answered
