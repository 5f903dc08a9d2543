"""The health of a cluster in a few numbers: brokers, controller, unavailable and under-replicated partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.access.client.topic_report import PartitionReport, report_partitions


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A cluster as one of its brokers sees it. Partitions are those of all topics, internal ones included."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerNode, ...]
    topics: int
    partitions: tuple[PartitionReport, ...]

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
    def is_healthy(self) -> bool:
        """Whether there is a controller, and no partition has a fault."""
        return self.controller is not None and not self.unavailable and not self.under_replicated

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
    return {**dict.fromkeys(ClusterReport(None, None, (), 0, ()).to_json()), "healthy": False}


def _names(partitions: Iterable[PartitionReport]) -> list[str]:
    return [f"{each.topic}-{each.partition}" for each in partitions]


async def report_cluster(client: Client) -> ClusterReport:
    """Return the current report. Raises NetworkError if no broker responds."""
    topics = await client.topics()
    partitions = await report_partitions(client, [topic for _, topic in sorted(topics.items())])
    cluster = client.cluster
    brokers = tuple(node for _, node in sorted(cluster.brokers.items()))
    controller = cluster.controller if cluster.controller in cluster.brokers else None
    return ClusterReport(cluster.cluster_id, controller, brokers, len(topics), tuple(partitions))
