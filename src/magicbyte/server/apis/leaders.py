"""Leader discovery: responses name the leader of a partition that this broker does not lead (KIP-951).

A client need not ask for metadata first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH

if TYPE_CHECKING:
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.settings.listeners import Listener
    from magicbyte.server.stores.cluster_view import ClusterMember


def current_leader(broker: BrokerParts, topic: str, partition: int) -> tuple[int, int]:
    """Return the leader of a partition and its epoch: as ordered here, else by the metadata.

    If neither is known: NO_BROKER, NO_EPOCH.
    """
    served = broker.replicas.partitions.get((topic, partition))
    if served is not None:
        return served.leader_id, served.leader_epoch
    known = broker.cluster_view.partitions(topic)
    if 0 <= partition < len(known):
        return known[partition].leader, known[partition].leader_epoch
    return NO_BROKER, NO_EPOCH


def live_leaders(broker: BrokerParts, listener: Listener, leaders: Iterable[int]) -> list[ClusterMember]:
    """Return those of the brokers that are live and have the client's listener, in order."""
    view = broker.cluster_view
    return [member for each in sorted(leaders) if (member := view.member(each, listener.name)) is not None]
