"""Connections between brokers: of known versions, which follow from the protocol version of the cluster."""

from __future__ import annotations

from magicbyte.client.connection import Connection
from magicbyte.client.versions import BrokerVersions
from magicbyte.net.network import Network
from magicbyte.releases import inter_broker_versions


async def connect(
    network: Network,
    broker_id: int,
    host: str,
    port: int,
    *,
    protocol: tuple[int, ...],
    client_id: str,
    timeout_ms: int,
) -> Connection:
    """Return a connection through a `Broker.network` to another broker. Raises NetworkError.

    Requests go out in the versions of `protocol`: brokers do not ask each other for theirs, as all of a cluster
    speak its `inter.broker.protocol.version`.
    """
    stream = await network.connect(host, port, timeout_ms=timeout_ms)
    link = Connection(stream, name=f"broker {broker_id} ({host}:{port})", client_id=client_id)
    versions = inter_broker_versions(protocol)
    link.versions = BrokerVersions({key: range(version, version + 1) for key, version in versions.items()})
    link.begin()
    return link
