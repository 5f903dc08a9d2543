"""Reassign partitions: Kafka's JSON file, the moves, throttles, and progress.

The file and the throttle settings are those of Kafka's own `kafka-reassign-partitions`; each tool can continue what the
other began. Sources: KIP-73 (throttles), KIP-455.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from magicbyte.access.client.admin import ConfigResource, alter_configs, describe_configs
from magicbyte.access.client.client import Client
from magicbyte.access.client.replicas import Reassignment, describe_log_dirs, list_reassignments
from magicbyte.engine.errors import InvalidReplicaAssignmentError, UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey

Assignment: TypeAlias = dict[TopicPartition, tuple[int, ...]]
"""The replicas of partitions, the preferred leader of each first."""

_ANY_DIRECTORY: Final = "any"
_LEADER_RATE, _FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
_STALE_LOOKS: Final = 10
"""How often to read metadata that disagrees with the controller: brokers hear of a completed move later."""


# ---- Kafka's file


def parse_plan(data: bytes | str) -> Assignment:
    """Parse a file of kafka-reassign-partitions into the replicas of each partition.

    Raises InvalidReplicaAssignmentError for an invalid or contradictory file.
    """
    try:
        plan = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidReplicaAssignmentError(f"the plan is not JSON: {error}") from error
    if not isinstance(plan, dict) or plan.get("version", 1) != 1 or not isinstance(plan.get("partitions"), list):
        raise InvalidReplicaAssignmentError('the plan: expected {"version": 1, "partitions": [...]}')
    assignment: Assignment = {}
    for entry in plan["partitions"]:
        partition, replicas = _entry(entry)
        if partition in assignment:
            raise InvalidReplicaAssignmentError(f"the plan has partition {partition} twice: expected once")
        assignment[partition] = replicas
    if not assignment:
        raise InvalidReplicaAssignmentError("the plan has no partitions")
    return assignment


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    match entry:
        case {"topic": str(topic), "partition": int(index), "replicas": list(replicas)} if index >= 0:
            partition = TopicPartition(topic, index)
        case _:
            expected = 'expected {"topic": "orders", "partition": 0, "replicas": [1, 2]}'
            raise InvalidReplicaAssignmentError(f"the plan: {expected}, found {json.dumps(entry)[:200]}")
    if not replicas or not all(type(broker) is int and broker >= 0 for broker in replicas):
        raise InvalidReplicaAssignmentError(f"the plan: replicas of {partition}: expected broker ids, found {replicas}")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignmentError(f"the plan: replicas of {partition}: expected each once, found {replicas}")
    directories = entry.get("log_dirs", [])
    if not isinstance(directories, list) or any(each != _ANY_DIRECTORY for each in directories):
        what = "moves between log directories are for Kafka's own tool; leave log_dirs out"
        raise InvalidReplicaAssignmentError(
            f"the plan: log_dirs of {partition}: this broker has one directory; expected any, found {what}"
        )
    return partition, tuple(replicas)


def dump_plan(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Return the document that `parse_plan` and kafka-reassign-partitions read."""
    return {
        "version": 1,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
            for each, replicas in sorted(assignment.items())
        ],
    }


# ---- the moves


class Move(Struct, frozen=True):
    """A partition, its replicas before the move (`current`), and afterwards (`target`)."""

    partition: TopicPartition
    current: tuple[int, ...]
    target: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers to which the partition is copied."""
        return tuple(each for each in self.target if each not in self.current)

    @property
    def removing(self) -> tuple[int, ...]:
        """The brokers that delete their replica at the end."""
        return tuple(each for each in self.current if each not in self.target)


async def assignment_of(client: Client, topics: Iterable[str]) -> Assignment:
    """Return the replicas of all partitions of topics, without those that a move in progress is adding."""
    assignment = {
        TopicPartition(name, index): partition.replicas
        for name in dict.fromkeys(topics)
        for index, partition in sorted((await client.existing_topic(name)).partitions.items())
    }
    for each, move in (await _under_way(client, assignment)).items():
        assignment[each] = tuple(broker for broker in move.replicas if broker not in move.adding)
    return assignment


async def moves_of(client: Client, target: Assignment) -> list[Move]:
    """Return the moves that lead to `target`. Raises UnknownTopicError for an unknown partition or broker."""
    current = await assignment_of(client, [each.topic for each in target])
    for each in target:
        if each not in current:
            count = sum(one.topic == each.topic for one in current)
            raise UnknownTopicError(f"partition {each}: expected 0 to {count - 1}, the existing partitions")
    check_brokers(client, {broker for replicas in target.values() for broker in replicas})
    return [Move(each, current[each], replicas) for each, replicas in sorted(target.items())]


def check_brokers(client: Client, brokers: Collection[int]) -> None:
    """Raise UnknownTopicError unless all brokers are in the cluster's cached metadata."""
    if unknown := sorted(set(brokers) - set(client.cluster.brokers)):
        known = ", ".join(map(str, sorted(client.cluster.brokers)))
        raise UnknownTopicError(f"broker {unknown[0]}: expected one of {known}, the live brokers")


async def _under_way(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Reassignment]:
    """Return the moves in progress, none if brokers are too old to report them."""
    connection = await client.any_connection()
    wanted = list(partitions)
    if not wanted or connection.versions.latest(APIS[ApiKey.LIST_PARTITION_REASSIGNMENTS]) is None:
        return {}
    return await list_reassignments(client, wanted)


async def sizes_of(client: Client, partitions: Iterable[TopicPartition]) -> dict[tuple[TopicPartition, int], int]:
    """Return the bytes of each replica of partitions, by partition and broker, for live brokers."""
    wanted = list(partitions)
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker in sorted(client.cluster.brokers):
        for directory in await describe_log_dirs(client, broker, wanted):
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[partition, broker] = replica.size
    return sizes


# ---- throttles


async def throttle(client: Client, moves: Sequence[Move], bytes_per_second: int) -> None:
    """Limit the copying for `moves` to `bytes_per_second` per broker, separately as a leader and as a follower.

    `unthrottle` removes the limit. Other replication continues at full speed.
    """
    rate = str(bytes_per_second)
    for broker in sorted({broker for each in moves for broker in (*each.current, *each.target)}):
        await alter_configs(client, ConfigResource.BROKER, str(broker), {_LEADER_RATE: rate, _FOLLOWER_RATE: rate})
    for topic in sorted({each.partition.topic for each in moves}):
        own = [each for each in moves if each.partition.topic == topic]
        leaders = [f"{each.partition.partition}:{broker}" for each in own for broker in each.current]
        followers = [f"{each.partition.partition}:{broker}" for each in own for broker in each.adding]
        await alter_configs(
            client, ConfigResource.TOPIC, topic, {_LEADERS: ",".join(leaders), _FOLLOWERS: ",".join(followers)}
        )


async def unthrottle(client: Client, topics: Iterable[str]) -> bool:
    """Remove the throttles of topics and, unless other moves are in progress, of brokers.

    Return whether there were any.
    """
    resources = [(ConfigResource.TOPIC, topic, (_LEADERS, _FOLLOWERS)) for topic in sorted(set(topics))]
    if not await list_reassignments(client):
        brokers = sorted(client.cluster.brokers)
        resources += [(ConfigResource.BROKER, str(broker), (_LEADER_RATE, _FOLLOWER_RATE)) for broker in brokers]
    is_changed = False
    for kind, name, settings in resources:
        known = await describe_configs(client, kind, name)
        own = {each: None for each in settings if each in known and known[each].is_own}
        if own:
            await alter_configs(client, kind, name, own)
            is_changed = True
    return is_changed


# ---- progress


class ReassignmentProgress(Struct, frozen=True):
    """The progress of moves: partitions that have their target, that are moving, and that are neither.

    `copied` of `to_copy` bytes are on the brokers being added, for the moves in progress.
    """

    completed: tuple[TopicPartition, ...]
    moving: dict[TopicPartition, Reassignment]
    differing: dict[TopicPartition, tuple[int, ...]]
    copied: int
    to_copy: int

    def to_json(self, target: Assignment) -> dict[str, Any]:
        """Return the JSON form, with the assignment that it leads to."""
        states = [(partition, "complete", target[partition], target[partition]) for partition in self.completed]
        states += [(partition, "moving", move.replicas, move.target) for partition, move in self.moving.items()]
        states += [
            (partition, "differs", replicas, target[partition]) for partition, replicas in self.differing.items()
        ]
        return {
            "partitions": [row_of(*each) for each in sorted(states)],
            "copiedBytes": self.copied,
            "toCopyBytes": self.to_copy,
        }


def row_of(
    partition: TopicPartition, state: str, replicas: tuple[int, ...], planned: tuple[int, ...]
) -> dict[str, Any]:
    """Return the JSON form of a move in a state: the replicas now, and those that were planned."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "state": state,
        "replicas": list(replicas),
        "planned": list(planned),
    }


async def progress_of(client: Client, target: Assignment) -> ReassignmentProgress:
    """Return the progress of a reassignment. Raises UnknownTopicError for a deleted topic."""
    moving = await list_reassignments(client, target)
    topics = await client.topics()
    completed, differing = [], {}
    for partition_name, replicas in sorted(target.items()):
        topic = topics.get(partition_name.topic)
        partition = None if topic is None else topic.partitions.get(partition_name.partition)
        if partition is None:
            raise UnknownTopicError(f"partition {partition_name} does not exist: was its topic deleted meanwhile?")
        if partition_name in moving:
            continue
        if partition.replicas == replicas:
            completed.append(partition_name)
        else:
            differing[partition_name] = partition.replicas
    sizes = await sizes_of(client, moving) if moving else {}
    copied = to_copy = 0
    for partition_name, move in moving.items():
        whole = max((sizes.get((partition_name, broker), 0) for broker in move.replicas), default=0)
        to_copy += whole * len(move.adding)
        copied += sum(sizes.get((partition_name, broker), 0) for broker in move.adding)
    return ReassignmentProgress(tuple(completed), moving, differing, copied, to_copy)


async def follow(
    client: Client, target: Assignment, report: Callable[[ReassignmentProgress], None], *, interval_ms: int = 1000
) -> ReassignmentProgress:
    """Wait until no partition of `target` is moving; `report` each poll, and return the last progress."""
    stale = 0
    while True:
        found = await progress_of(client, target)
        report(found)
        stale = 0 if found.moving else stale + 1
        if not found.moving and (not found.differing or stale > _STALE_LOOKS):
            return found
        await asyncio.sleep(interval_ms / 1000)
