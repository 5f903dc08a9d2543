"""Requests that name topics by id (KIP-516): names are filled in before rights and handlers see them.

So handlers and rights know topics by name alone. Rows of unknown ids are removed from the request, and refused in the
response, like rows that a caller may not name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.request import Handler, Request
    from magicbyte.server.serving.turns import Turns

UNKNOWN_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID


class NamedRow(Protocol):
    """A row of a request or a response that has a topic."""

    name: str
    topic_id: uuid.UUID


M = TypeVar("M", bound="Message")
A = TypeVar("A", bound="Message")
R = TypeVar("R", bound=NamedRow)


class ResolvesIds(Protocol):
    """Knows the topics of ids."""

    def name_of(self, topic_id: uuid.UUID, /) -> str:
        """Return the name of the topic with this id, "" if there is none."""


class HasTopics(Protocol):
    """The services of handlers, as far as ids are concerned."""

    @property
    def topics(self) -> ResolvesIds:
        """The topics of the cluster."""


class ById(Protocol):
    """Answers a request with topics by id: `first` is the first version that has them."""

    @property
    def first(self) -> int:
        """The first version that names topics by id."""

    async def __call__(self, services: Any, request: Request[Any], handle: Handler, /) -> Message | None:
        """Return the response of `handle` to the request with topics by name, completed by the ids."""


class RowsById(Struct, Generic[M, R, A], frozen=True):
    """A request whose rows have a topic each, by id from version `first` on: a `ById`.

    `rows` returns the rows of a message, `only` the message with some of them, and `answered` the rows of a response.
    `parts` returns the partitions of a row, `refused` the refusal of one with UNKNOWN_TOPIC_ID, and `refusal` the row
    of a response that has these.
    """

    first: int
    rows: Callable[[M], Sequence[R]]
    only: Callable[[M, list[R]], M]
    answered: Callable[[A], list[Any]]
    parts: Callable[[R], Iterable[Any]]
    refused: Callable[[Any], Any]
    refusal: Callable[[R, list[Any]], NamedRow]

    async def __call__(self, services: HasTopics, request: Request[M], handle: Handler, /) -> Message | None:
        """Return the response: rows of unknown ids are refused with UNKNOWN_TOPIC_ID, the others are handled."""
        known, unknown = await named(services.topics, self.rows(request.message), request.turns)
        if unknown:
            request = replace(request, message=self.only(request.message, known))
        response: Any = await handle(request)
        if response is None:
            if unknown:
                raise ProtocolError("a request without a response", expected="ids of topics", found="an unknown id")
            return None
        ids = {row.name: row.topic_id for row in known}
        rows = self.answered(response)
        for told in rows:
            told.topic_id = ids[told.name]
        for row in unknown:
            refused = [self.refused(part) async for part in request.turns.over(self.parts(row))]
            rows.append(self.refusal(row, refused))
        answered: Message = response
        return answered


async def named(topics: ResolvesIds, rows: Iterable[R], turns: Turns) -> tuple[list[R], list[R]]:
    """Set the names of rows by their ids; return those with a topic, and the others."""
    known: list[R] = []
    unknown: list[R] = []
    async for row in turns.over(rows):
        row.name = topics.name_of(row.topic_id)
        (known if row.name else unknown).append(row)
    return known, unknown
