"""The health of a cluster in a few numbers: brokers, controller, unavailable and under-replicated partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.access.client.topic_report import PartitionReport, report_partitions
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey

_FIRST_WITH_CONTROLLER: Final = 1


class ClusterReport(Struct, frozen=True):
    """A cluster as one of its brokers sees it. Partitions are those of all topics, internal ones included.

    `knows_controller`: whether the broker reports the controller, which brokers before 0.10 do not.
    """

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerNode, ...]
    topics: int
    partitions: tuple[PartitionReport, ...]
    knows_controller: bool = True

    @property
    def unavailable(self) -> list[PartitionReport]:
        """The partitions without a live leader."""
        return [each for each in self.partitions if each.leader is None]

    @property
    def under_replicated(self) -> list[PartitionReport]:
        """The partitions with a replica that is not in sync."""
        return [each for each in self.partitions if each.is_under_replicated]

    @property
    def offline_replicas(self) -> int:
        """The number of replicas on unreachable brokers or disks."""
        return sum(len(each.offline) for each in self.partitions)

    @property
    def has_fault(self) -> bool:
        """Whether a partition has a fault, or there is no controller."""
        without = self.knows_controller and self.controller is None
        return without or bool(self.unavailable) or bool(self.under_replicated)

    @property
    def is_healthy(self) -> bool | None:
        """Whether there is a controller, and no partition has a fault; None if only the controller is unknown."""
        return False if self.has_fault else self.knows_controller or None

    def to_json(self) -> dict[str, Any]:
        """Return the report as printed by `magicbyte cluster status --format json`."""
        return {
            "clusterId": self.cluster_id,
            "controller": self.controller,
            "brokers": [{"id": broker.id, "host": broker.host, "port": broker.port} for broker in self.brokers],
            "topics": self.topics,
            "partitions": len(self.partitions),
            "unavailable": _names(self.unavailable),
            "underReplicated": _names(self.under_replicated),
            "offlineReplicas": self.offline_replicas,
            "healthy": self.is_healthy,
        }


def unknown_health() -> dict[str, Any]:
    """Return the members of `ClusterReport.to_json` for a cluster in which no broker runs."""
    return dict.fromkeys(ClusterReport(None, None, (), 0, ()).to_json())


def _names(partitions: Iterable[PartitionReport]) -> list[str]:
    return [f"{each.topic}-{each.partition}" for each in partitions]


async def report_cluster(client: Client) -> ClusterReport:
    """Return the current report. Raises NetworkError if no broker responds."""
    topics = await client.topics()
    partitions = await report_partitions(client, [topic for _, topic in sorted(topics.items())])
    cluster = client.cluster
    brokers = tuple(node for _, node in sorted(cluster.brokers.items()))
    controller = cluster.controller if cluster.controller in cluster.brokers else None
    version = (await client.any_connection()).versions.latest(APIS[ApiKey.METADATA])
    knows_controller = version is not None and version >= _FIRST_WITH_CONTROLLER
    return ClusterReport(cluster.cluster_id, controller, brokers, len(topics), tuple(partitions), knows_controller)
