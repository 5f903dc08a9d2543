"""Groups change their protocol while they have members (KIP-848): from classic to consumer, and back.

Source: Kafka's ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup (4.3).

Invariants:
1. The last assignment of a classic group is what its members have in the consumer group: no partition has two owners.
2. A converted group keeps its epoch: generation, epoch of the group and epochs of the members are equal.
3. Offsets stay where they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.coordination.stored import write_stored
from magicbyte.engine.errors import CorruptRecordError, ErrorCode
from magicbyte.engine.groups.classic.group import Group, stored_value
from magicbyte.engine.groups.classic.members import Member
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.consumer import records
from magicbyte.engine.groups.consumer.members import ClassicMember, MemberProgress, MemberState, Partitions, Subscriber
from magicbyte.engine.groups.consumer.records import GroupEpoch, GroupRecord, TargetEpoch
from magicbyte.engine.groups.consumer.topics import metadata_hash
from magicbyte.engine.groups.consumer_protocol import LATEST_VERSION, Assignment, Subscription
from magicbyte.engine.groups.records import CONSUMER, GroupMetadataKey
from magicbyte.engine.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)

if TYPE_CHECKING:
    from magicbyte.engine.coordination.effects import StoredValue
    from magicbyte.engine.groups.consumer.group import ConsumerGroup
    from magicbyte.engine.groups.effects import Effect
    from magicbyte.engine.groups.table import GroupTable
    from magicbyte.engine.ports import Moment


class Unconvertible(NamedTuple):
    """Why a classic group with members does not become a consumer group."""

    why: str


# ---- classic to consumer


def converted(table: GroupTable, classic: Group) -> list[GroupRecord] | Unconvertible:
    """Return the records that make a consumer group of a classic one with members, as they are stored.

    Each member keeps its last assignment. It has the generation as its epoch, and so has the group.
    """
    config = table.config.consumer
    if not config.migration.upgrades:
        return Unconvertible("online upgrade is disabled")
    if classic.protocol_type != CONSUMER:
        return Unconvertible(f"its protocol type is {classic.protocol_type!r}")
    if len(classic.members) > config.max_size:
        return Unconvertible(f"it has more than {config.max_size} members")
    members = list[tuple[str, Subscriber, Partitions]]()
    for member in classic.members.values():
        try:
            members.append((member.member_id, *_member(table, classic, member)))
        except CorruptRecordError as error:
            return Unconvertible(f"member {member.member_id}: {error}")
        except _UserDataError:
            return Unconvertible("its assignments have user data, which would be lost")
    names = {topic for _, subscriber, _ in members for topic in subscriber.topics}
    epoch = GroupEpoch(classic.generation, metadata_hash(table.topics, names))
    return list(_records(classic.group_id, epoch, members))


class _UserDataError(Exception):
    """An assignment has user data."""


def _member(table: GroupTable, classic: Group, member: Member) -> tuple[Subscriber, Partitions]:
    """Return a member of a classic group. Raises CorruptRecordError, _UserDataError."""
    protocol = classic.protocol or member.protocols[0][0]
    subscription = Subscription.parse(member.metadata(protocol))
    owned = subscription.owned_partitions  # Kafka has none, if a rebalance that was repeated took the assignment
    if member.assignment:
        assignment = Assignment.parse(member.assignment)
        if assignment.user_data:
            raise _UserDataError
        owned = assignment.assigned_partitions
    partitions = partitions_by_id(table, {topic: tuple(sorted(set(numbers))) for topic, numbers in owned})
    subscriber = Subscriber(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    return subscriber, partitions


def partitions_by_id(table: GroupTable, partitions: Mapping[str, tuple[int, ...]]) -> dict[uuid.UUID, tuple[int, ...]]:
    """Return partitions by the ids of their topics; those of unknown topics are left out."""
    found = ((table.topics.find(name), numbers) for name, numbers in partitions.items() if numbers)
    return {topic.id: numbers for topic, numbers in found if topic is not None}


def _records(
    group_id: str, group_epoch: GroupEpoch, members: list[tuple[str, Subscriber, Partitions]]
) -> Iterator[GroupRecord]:
    epoch = group_epoch.epoch
    for member_id, subscriber, _ in members:
        yield GroupRecord(records.MEMBER, group_id, member_id, subscriber)
    yield GroupRecord(records.GROUP, group_id, "", group_epoch)
    for member_id, _, partitions in members:
        yield GroupRecord(records.TARGET_OF_MEMBER, group_id, member_id, partitions)
    yield GroupRecord(records.TARGET, group_id, "", TargetEpoch(epoch, 0))
    for member_id, _, partitions in members:
        held = {topic: dict.fromkeys(numbers, epoch) for topic, numbers in partitions.items()}
        progress = MemberProgress(epoch, epoch, MemberState.STABLE, held, {})
        yield GroupRecord(records.CURRENT, group_id, member_id, progress)


def succeed(table: GroupTable, classic: Group) -> list[Effect]:
    """Keep the offsets alone of a classic group that has become a consumer group; its members are to join again."""
    effects = classic.bury(ErrorCode.REBALANCE_IN_PROGRESS)
    del table.groups[classic.group_id]
    offsets = table.group_of(classic.group_id)
    offsets.offsets, offsets.pending_offsets = classic.offsets, classic.pending_offsets
    offsets.unstable = classic.unstable
    return effects


# ---- consumer to classic


def becomes_classic(table: GroupTable, group: ConsumerGroup, left: frozenset[str], joins: int = 0) -> bool:
    """Return whether a consumer group becomes a classic one once some members are gone, and classic ones join."""
    rest = len(group.subscribers) - len(left) + joins
    is_classic = all(member_id in group.classic or member_id in left for member_id in group.subscribers)
    return table.config.consumer.migration.downgrades and is_classic and 0 < rest <= table.config.max_size


def classic_records(
    table: GroupTable, stored: ConsumerGroup, changes: Iterable[GroupRecord], left: frozenset[str], now: Moment
) -> tuple[tuple[bytes, bytes | StoredValue | None], ...]:
    """Return the records that delete a consumer group after changes, and store it as classic without some members."""
    group = table.new_consumer_group(stored.group_id)
    for record in (*_snapshot(stored), *changes):
        group.replay(record)
    deletions = [
        *(group.record(records.CURRENT, None, each) for each in group.subscribers),
        *(group.record(records.TARGET_OF_MEMBER, None, each) for each in group.subscribers),
        group.record(records.TARGET, None),
        *(group.record(records.MEMBER, None, each) for each in group.subscribers),
        *(group.record(records.PATTERN, None, each) for each in group.patterns),
        group.record(records.TOPICS_OF_4_0, None),
        group.record(records.GROUP, None),
    ]
    encoded = [records.encode(each, with_epochs=True) for each in deletions]
    classic = table.unlisted_group(group.group_id)
    _fill(table, classic, group, left, now)
    value = stored_value(classic, now.date_ms)
    classic.bury(ErrorCode.NOT_COORDINATOR)  # it was made for its record
    group.forget()
    return (*encoded, (GroupMetadataKey(group.group_id).to_bytes(), value))


def _snapshot(group: ConsumerGroup) -> Iterator[GroupRecord]:
    """Return records with the state of a group, as far as a classic group has it."""
    yield group.record(records.GROUP, GroupEpoch(group.epoch, group.metadata_hash))
    yield group.record(records.TARGET, TargetEpoch(group.target_epoch, group.assigned_ms))
    for kind, values in ((records.MEMBER, group.subscribers), (records.TARGET_OF_MEMBER, group.targets)):
        for member_id, value in values.items():
            yield group.record(kind, value, member_id)
    for pattern, resolved in group.patterns.items():
        yield group.record(records.PATTERN, resolved, pattern)


def become_classic(table: GroupTable, group: ConsumerGroup, left: frozenset[str], now: Moment) -> list[Effect]:
    """Make a classic group of a consumer group, without some members.

    The others join again, unless none has left and the assignment is the latest.
    """
    is_complete = not left and group.target_epoch == group.epoch
    classic = table.group_of(group.group_id)
    _fill(table, classic, group, left, now)
    del table.consumers[group.group_id]
    group.forget()
    classic.is_downgraded = not is_complete
    return [] if is_complete else classic.rebalance(now)


def _fill(table: GroupTable, classic: Group, group: ConsumerGroup, left: frozenset[str], now: Moment) -> None:
    """Give a classic group without members those of a consumer group; their assignments are their targets."""
    classic.generation, classic.protocol_type = group.epoch, CONSUMER
    classic.state, classic.state_since_ms = GroupState.STABLE, now.date_ms
    for member_id, subscriber in group.subscribers.items():
        if member_id in left or subscriber.classic is None:
            continue
        member = Member(
            member_id, subscriber.instance_id, subscriber.client_id, subscriber.client_host,
            subscriber.classic.session_timeout_ms, subscriber.rebalance_timeout_ms, subscriber.classic.protocols,
        )  # fmt: skip
        classic.admit(member, now.monotonic_ms + member.session_timeout_ms)
        classic.leader = classic.leader or member_id
    classic.protocol = classic.members.vote()
    for member in classic.members.values():
        version = version_of(member.metadata(classic.protocol))
        target = group.targets.get(member.member_id, {})
        classic.members.assign(member, encoded_assignment(table, target, version))


def encoded_assignment(table: GroupTable, partitions: Partitions, version: int) -> bytes:
    """Return partitions as a client of the classic protocol gets them; those of deleted topics are left out."""
    assigned = [
        TopicPartition(topic=topic.name, partitions=tuple(numbers))
        for topic_id, numbers in partitions.items()
        if (topic := table.topics.find_id(topic_id)) is not None
    ]
    return write_stored(ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None), version)


def version_of(metadata: bytes) -> int:
    """Return the version of a subscription, in which its member gets assignments."""
    return min(max(int.from_bytes(metadata[:2], "big", signed=True), 0), LATEST_VERSION)
