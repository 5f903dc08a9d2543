"""The interface of a source of records: a cluster, or anything else that answers the same few requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from magicbyte.access.client.client import BrokerNode, ClusterMetadata, Topic
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.engine.protocol import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Source(Protocol):
    """A cluster to read from: a `Client`, or log directories (`mirror/log_source.py`).

    It answers Fetch and ListOffsets, which suffices for `read_sets`, `list_offset` and mirrors.
    """

    cluster: ClusterMetadata

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        """Return topics by name, all if `names` is None."""

    async def versions(self) -> BrokerVersions:
        """Return the request versions that it supports; of several brokers those of one."""

    async def leader(self, topic: str, partition: int) -> BrokerNode:
        """Return the leader of a partition. Raises BrokerError and NetworkError."""

    def forget(self, topic: str) -> None:
        """Invalidate the cached leaders of a topic."""

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `attempt`, retrying it after transient failures."""

    async def at_leader(self, topic: str, partition: int, attempt: Callable[[BrokerNode], Awaitable[T]]) -> T:
        """Return the result of `attempt` for the leader of a partition. Raises BrokerError and NetworkError."""

    async def ask(
        self, node: BrokerNode, request: Message, response: type[M], *, versions: range | None = None, wait_ms: int = 0
    ) -> M:
        """Return the response to a request. `wait_ms`: how long the broker may wait, by the request itself."""
