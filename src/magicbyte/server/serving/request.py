"""The parameters of a handler: a request, and its connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from magicbyte.engine.cluster.principal import ANONYMOUS, Principal
from magicbyte.engine.protocol import Message
from magicbyte.server.serving.metrics import UNNAMED, Asked, ClientSoftware
from magicbyte.server.serving.turns import Turns

if TYPE_CHECKING:
    from magicbyte.server.settings.listeners import Listener

M = TypeVar("M")


class ClientConnection(Struct, eq=False, weakref=True):
    """A client's connection. `peer` is its name for messages; ApiVersions adds the client's software.

    `principal` is the authenticated one. `client` is the software for which the last request was counted, `asked` its
    counters by API key and version. `waited_ns`: how long the current request has waited so far, for records or for
    members of a group. `throttled_until_ms`: the handler's throttling, by the monotonic clock.
    `number` orders connections by their start.
    """

    host: str
    peer: str
    listener: Listener
    software_name: str = ""
    software_version: str = ""
    client: ClientSoftware | None = None
    asked: dict[tuple[int, int], Asked] = field(default_factory=dict)
    waited_ns: int = 0
    throttled_until_ms: int = 0
    principal: Principal = ANONYMOUS
    number: int = field(default_factory=count(1).__next__)

    @property
    def enriched(self) -> bool:
        """Whether enriched topics are exchanged unchanged: the listener's setting."""
        return self.listener.enriched


class Request(Struct, Generic[M], frozen=True):
    """A request in progress. `message` may contain views of the frame; it has the form of `version`.

    `turns`: counts the handler's steps for it. `is_large`: it has more elements than most requests.
    """

    message: M
    version: int
    client_id: str | None
    connection: ClientConnection
    client: ClientSoftware = UNNAMED
    turns: Turns = field(default_factory=Turns)
    is_large: bool = False


Handler: TypeAlias = Callable[[Request[Any]], Awaitable[Message | None]]
"""Returns the response, or None. Errors are codes in the response; a MagicbyteError is one without a field in the
response, and closes the connection.
"""

UnboundHandler: TypeAlias = Callable[[Any, Request[Any]], Awaitable[Message | None]]
"""A handler as defined in its module: its services are the first parameter."""
