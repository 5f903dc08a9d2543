"""Reports on partitions: leaders, in-sync and offline replicas, reassignments, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.access.client.client import Client, Partition, Topic
from magicbyte.access.client.offsets import EARLIEST, LATEST, offsets_now
from magicbyte.access.client.replicas import Reassignment, list_reassignments
from magicbyte.engine.errors import BrokerError, ErrorCode, NetworkError, UnsupportedVersionError
from magicbyte.engine.ports import TopicPartition

_NOT_TOLD: Final = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.UNSUPPORTED_VERSION,  # of a controller before 0.10
)
MOVES_UNKNOWN: Final = (
    "reassignments are unknown: the controller did not list them (it is older than 2.4, cannot be reached, or the "
    "login lacks Describe on the cluster); a partition that is being moved is shown as under-replicated"
)
_STILL: Final = Reassignment((), (), ())


class PartitionReport(Struct, frozen=True):
    """A partition as the cluster sees it. `leader` is None if none is alive.

    `start` and `end` are None if its leader does not return them.

    `leader_epoch` is returned by brokers from 2.1 on. `adding` and `removing`: of a reassignment in progress, None if
    reassignments are unknown.
    """

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    adding: tuple[int, ...] | None
    removing: tuple[int, ...] | None
    start: int | None = None
    end: int | None = None

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync, apart from those that a reassignment is adding."""
        return len(set(self.replicas) - set(self.adding or ())) > len(self.in_sync)

    @property
    def state(self) -> str:
        """The fault in words, or "ok"."""
        words = []
        if self.leader is None:
            words.append("unavailable")
        elif self.is_under_replicated:
            words.append("under-replicated")
        if self.adding or self.removing:
            to = ",".join(str(broker) for broker in self.replicas if broker not in (self.removing or ()))
            words.append(f"moving to {to}")
        return ", ".join(words) or "ok"

    def to_json(self) -> dict[str, Any]:
        """Return the row of `magicbyte topics describe --format json`."""
        return {
            "partition": self.partition,
            "leader": self.leader,
            "leaderEpoch": self.leader_epoch,
            "replicas": list(self.replicas),
            "inSync": list(self.in_sync),
            "offline": list(self.offline),
            "adding": None if self.adding is None else list(self.adding),
            "removing": None if self.removing is None else list(self.removing),
            "underReplicated": self.is_under_replicated,
            "start": self.start,
            "end": self.end,
        }


async def report_partitions(client: Client, topics: Iterable[Topic]) -> list[PartitionReport]:
    """Report all partitions of topics just returned by `Client.topics`, without offsets.

    Reassignments are unknown if brokers are too old, the caller is not authorized, or there is no controller.
    """
    pairs = [
        (TopicPartition(topic.name, index), partition)
        for topic in topics
        for index, partition in sorted(topic.partitions.items())
    ]
    moves: dict[TopicPartition, Reassignment] | None = None
    if pairs:
        try:
            moves = await list_reassignments(client)
        # the release of the controller matters, not that of any other broker
        except (NetworkError, UnsupportedVersionError):
            pass
        except BrokerError as error:
            if error.code not in _NOT_TOLD:
                raise
    return [
        _report(client, each, partition, None if moves is None else moves.get(each, _STILL))
        for each, partition in pairs
    ]


def _report(client: Client, name: TopicPartition, partition: Partition, move: Reassignment | None) -> PartitionReport:
    alive = client.cluster.brokers
    offline = {*partition.offline, *(broker for broker in partition.replicas if broker not in alive)}
    return PartitionReport(
        name.topic,
        name.partition,
        partition.leader if partition.leader in alive else None,
        partition.leader_epoch if partition.leader_epoch >= 0 else None,
        partition.replicas,
        partition.isr,
        tuple(broker for broker in partition.replicas if broker in offline),
        None if move is None else move.adding,
        None if move is None else move.removing,
    )


async def with_offsets(client: Client, reports: Sequence[PartitionReport]) -> list[PartitionReport]:
    """Return the reports with the offsets of those partitions whose leader responds."""
    led = [(each.topic, each.partition) for each in reports if each.leader is not None]
    starts, ends = [await offsets_now(client, led, timestamp) for timestamp in (EARLIEST, LATEST)]
    names = [(each.topic, each.partition) for each in reports]
    return [
        replace(each, start=starts.get(name), end=ends.get(name)) for each, name in zip(reports, names, strict=True)
    ]
