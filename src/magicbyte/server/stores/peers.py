"""The other brokers of a cluster, if there are any, with persistent connections to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import NetworkError

if TYPE_CHECKING:
    from magicbyte.access.client.connection import Connection
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.protocol import Message
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.links import Links


class Peers(NamedTuple):
    """The brokers of a cluster: what is known of them, and connections to others.

    `links` makes connections. A broker that is a cluster by itself knows no other one, so it never calls this.
    """

    view: ClusterView
    store: ClusterStore
    links: Callable[[], Links]


class PeerLink:
    """A connection to one other broker, opened by the first request, and reopened after a failure."""

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        broker_id: int,
        *,
        timeout_ms: int,
        asks_versions: bool = False,
    ) -> None:
        self.name = f"broker {broker_id}"
        self._runtime, self._peers, self._broker_id, self._timeout_ms = runtime, peers, broker_id, timeout_ms
        self._asks_versions = asks_versions
        self._link: Connection | None = None

    async def send(self, request: Message, *, versions: range | None = None) -> Message:
        """Return the response to a request. Raises NetworkError, UnsupportedVersionError."""
        link = await self._connected()
        return await link.send(request, versions=versions, timeout_ms=self._timeout_ms)

    async def _connected(self) -> Connection:
        link, runtime, peers = self._link, self._runtime, self._peers
        if link is not None and not link.is_closed and not link.is_stale:
            return link
        await self.aclose()
        address = peers.view.inter_broker_address(self._broker_id)
        if address is None:
            raise NetworkError(f"{self.name} does not exist")
        self._link = link = await peers.links().connect(
            self._broker_id,
            *address,
            protocol=runtime.config.inter_broker_protocol_version,
            client_id=str(runtime.node_id),
            timeout_ms=self._timeout_ms,
            asks_versions=self._asks_versions,
        )
        return link

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        link, self._link = self._link, None
        if link is not None:
            await link.aclose()
