"""Administer replicas: elect leaders, move replicas to other brokers, and describe brokers' log directories.

Before brokers had requests for it, tools used nodes in ZooKeeper. Sources: KIP-183, KIP-460 (elections: 2.2, unclean
ones 2.4), KIP-455 (reassignment: 2.4), KIP-113 and KIP-827 (log directories: 1.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.access.client.groups import by_topic
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from magicbyte.engine.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from magicbyte.engine.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from magicbyte.engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from magicbyte.engine.replication.election import ElectionType

TIMEOUT_MS: Final = 30_000  # for the controller
_WITH_ELECTION_TYPE: Final = range(1, 3)  # versions of ElectLeaders


class PartitionOutcome(Struct, frozen=True):
    """The controller's result for one partition: `error` is None if the request succeeded."""

    partition: TopicPartition
    error: BrokerError | None

    @property
    def failure(self) -> BrokerError | None:
        """The error; None also if there was nothing to do."""
        is_needed = self.error is not None and self.error.code is not ErrorCode.ELECTION_NOT_NEEDED
        return self.error if is_needed else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of an election's outcome."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "elected": self.error is None,
            "error": None if self.failure is None else self.failure.code.name,
        }


class Reassignment(Struct, frozen=True):
    """A reassignment in progress: the current replicas of a partition, and those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it has completed."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class ReplicaOnDisk(Struct, frozen=True):
    """A replica of a broker. `offset_lag` is behind the high watermark, or for a future replica behind the current one.

    A future replica is being copied from another log directory of the same broker.
    """

    size: int
    offset_lag: int
    is_future: bool


class DescribedLogDir(Struct, frozen=True):
    """A log directory of a broker. `error` is Kafka's code; sizes are in bytes, None from brokers before 3.3."""

    path: str
    error: int
    replicas: dict[TopicPartition, ReplicaOnDisk]
    total_bytes: int | None
    usable_bytes: int | None


async def elect_leaders(
    client: Client, election: ElectionType, partitions: Iterable[TopicPartition] | None
) -> list[PartitionOutcome]:
    """Elect leaders of partitions, of all if None; return the outcomes, for all only of those that needed an election.

    Needs brokers from 2.2 on, for unclean elections from 2.4 on. Raises BrokerError and NetworkError.
    """
    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic=topic, partitions=tuple(of)) for topic, of in by_topic(partitions).items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
    versions = _WITH_ELECTION_TYPE if election is ElectionType.UNCLEAN else None

    async def ask(node: BrokerNode) -> list[PartitionOutcome]:
        response = await client.ask(node, request, ElectLeadersResponse, versions=versions, wait_ms=TIMEOUT_MS)
        _check("elect leaders", response.error_code, node)
        return [
            _outcome("elect a leader of", topic.topic, each.partition_id, each.error_code, each.error_message, node)
            for topic in response.replica_election_results
            for each in topic.partition_result
        ]

    outcomes = await client.at_controller(ask)
    for each in outcomes:
        client.forget(each.partition.topic)
    return outcomes


async def alter_reassignments(
    client: Client, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> list[PartitionOutcome]:
    """Start to move partitions to other replicas, the preferred leader first; None cancels a move in progress.

    The outcomes tell whether a move has started. Needs brokers from 2.4 on. Raises BrokerError and NetworkError.
    """
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=None if to is None else tuple(to))
                for index in indexes
                for to in (targets[TopicPartition(name, index)],)
            ],
        )
        for name, indexes in by_topic(targets).items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    async def ask(node: BrokerNode) -> list[PartitionOutcome]:
        response = await client.ask(node, request, AlterPartitionReassignmentsResponse, wait_ms=TIMEOUT_MS)
        _check("reassign partitions", response.error_code, node, response.error_message)
        return [
            _outcome("reassign", topic.name, each.partition_index, each.error_code, each.error_message, node)
            for topic in response.responses
            for each in topic.partitions
        ]

    return await client.at_controller(ask)


async def list_reassignments(
    client: Client, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, of some partitions or of all."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=tuple(of))
            for name, of in by_topic(partitions).items()
        ]
    request = ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    async def ask(node: BrokerNode) -> dict[TopicPartition, Reassignment]:
        response = await client.ask(node, request, ListPartitionReassignmentsResponse, wait_ms=TIMEOUT_MS)
        _check("list reassignments", response.error_code, node, response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    return await client.at_controller(ask)


async def describe_log_dirs(
    client: Client, broker_id: int, partitions: Iterable[TopicPartition] | None = None
) -> list[DescribedLogDir]:
    """Return the log directories of a broker, with its replicas of some partitions, or of all."""
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=tuple(of)) for name, of in by_topic(partitions).items()]
    request = DescribeLogDirsRequest(topics=topics)

    async def ask(node: BrokerNode) -> list[DescribedLogDir]:
        response = await client.ask(node, request, DescribeLogDirsResponse)
        _check("describe log directories", response.error_code, node)
        return [
            DescribedLogDir(
                described.log_dir,
                described.error_code,
                {
                    TopicPartition(topic.name, each.partition_index): ReplicaOnDisk(
                        each.partition_size, each.offset_lag, each.is_future_key
                    )
                    for topic in described.topics
                    for each in topic.partitions
                },
                *(None if size < 0 else size for size in (described.total_bytes, described.usable_bytes)),
            )
            for described in response.results
        ]

    return await client.at_broker(broker_id, ask)


def _outcome(task: str, topic: str, index: int, code: int, detail: str | None, node: BrokerNode) -> PartitionOutcome:
    """Return the outcome for one partition. Raises BrokerError if the broker is not the controller."""
    partition = TopicPartition(topic, index)
    error = BrokerError(f"{task} {partition}", code, broker=str(node), detail=detail or None) if code else None
    if error is not None and error.code is ErrorCode.NOT_CONTROLLER:
        raise error
    return PartitionOutcome(partition, error)


def _check(task: str, code: int, node: BrokerNode, detail: str | None = None) -> None:
    if code:
        raise BrokerError(task, code, broker=str(node), detail=detail)
