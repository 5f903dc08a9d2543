"""What a handler is given: a request, and the connection that it came on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from magicbyte.broker.metrics import UNNAMED, Asked, ClientSoftware
from magicbyte.broker.turns import Turns
from magicbyte.protocol import Message
from magicbyte.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from magicbyte.broker.listeners import Listener

M = TypeVar("M")


@dataclass(slots=True, eq=False, weakref_slot=True)
class ClientConnection:
    """A client's connection. `peer` is its name for messages; what the client says of itself comes with ApiVersions.

    `principal` is who it has proved to be. `client` is who the last request was counted for, `asked` its counters by
    API key and version. `waited_ns`: how long the one in work has waited for others so far, for records to come or for
    members of a group. `throttled_until_ms`: by the monotonic clock, what its handler found of quotas.
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

    @property
    def enriched(self) -> bool:
        """Whether enriched topics are exchanged as they are: the listener's setting."""
        return self.listener.enriched


@dataclass(frozen=True, slots=True)
class Request(Generic[M]):
    """A request in work. `message` may hold views of the frame; it is in the form of `version`.

    `turns`: in which handlers count what they do for it. `is_large`: it names more than most requests do.
    """

    message: M
    version: int
    client_id: str | None
    connection: ClientConnection
    client: ClientSoftware = UNNAMED
    turns: Turns = field(default_factory=Turns)
    is_large: bool = False


Handler: TypeAlias = Callable[[Request[Any]], Awaitable[Message | None]]
"""Returns the response, None where the client expects none. Faults are codes in the response; a MagicbyteError is one
that the response has no place for, and closes the connection."""

UnboundHandler: TypeAlias = Callable[[Any, Request[Any]], Awaitable[Message | None]]
"""A handler as its file has it: what it uses of the broker comes first (`wiring.py`)."""
