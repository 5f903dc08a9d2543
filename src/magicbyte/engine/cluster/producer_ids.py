"""The decision about producer ids: brokers reserve blocks of them, so that no two brokers have the same."""

from __future__ import annotations

from collections.abc import Callable

from magicbyte.engine.cluster.changes import PRODUCER_ID_BLOCK, ProducerIdsAllocated
from magicbyte.engine.cluster.image import ClusterImage


def next_block(image: ClusterImage, broker_id: int, last_in_logs: Callable[[], int]) -> ProducerIdsAllocated:
    """Return the change that reserves the next block for a broker.

    `last_in_logs` returns the largest id in the logs, -1 if there is none. It counts if the cluster has none: that is
    another broker's, or was lost.
    """
    first = last_in_logs() + 1 if image.next_producer_id is None else image.next_producer_id
    return ProducerIdsAllocated(broker_id, first + PRODUCER_ID_BLOCK)
