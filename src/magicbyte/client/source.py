"""What records are read from: brokers, or whatever answers the same few questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from magicbyte.client.client import BrokerNode, ClusterMetadata, Topic
from magicbyte.client.versions import BrokerVersions
from magicbyte.protocol import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Source(Protocol):
    """A cluster to read from: a `Client`, or log directories (`mirror/log_source.py`).

    It answers Fetch and ListOffsets; `read_sets`, `list_offset` and mirrors need no more.
    """

    cluster: ClusterMetadata

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Return topics by name, all if `names` is None."""

    async def versions(self) -> BrokerVersions:
        """Return the request versions that it answers; of several brokers those of one."""

    async def leader(self, topic: str, partition: int) -> BrokerNode:
        """Return the leader of a partition. Raises BrokerError and NetworkError."""

    def forget(self, topic: str) -> None:
        """Ask for the leaders of a topic again when they are needed next."""

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what `attempt` returns; try again as long as it fails in a way that may pass."""

    async def at_leader(self, topic: str, partition: int, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:
        """Return what `attempt` returns for the leader of a partition. Raises BrokerError and NetworkError."""

    async def ask(
        self, node: BrokerNode, request: Message, response: type[M], *, versions: range | None = None, wait_ms: int = 0
    ) -> M:
        """Return the response to a request. `wait_ms`: what the broker may take by itself."""
