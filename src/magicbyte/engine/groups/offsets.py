"""Committed offsets: commit, fetch and delete them, for the coordinator.

Offsets of a transaction count from its COMMIT marker on. Until it ends they are pending, and a client that requires
stable offsets must retry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from magicbyte.engine.coordination.decider import Work
from magicbyte.engine.coordination.effects import Caller, Marker, Producer, Reply, Steps, Store, Tell
from magicbyte.engine.coordination.parts import is_long, once_if_long, topic_parts
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.group import Group
from magicbyte.engine.groups.classic.rules import COMMIT_REPLY, OFFSETS_NOT_STORED, GroupState
from magicbyte.engine.groups.consumer.offset_checks import commit_refusal, fetch_refusal, transactional_refusal
from magicbyte.engine.groups.effects import (
    OFFSETS_HEADER,
    AfterStore,
    AnswerOffsetDelete,
    CommitOffsets,
    Effect,
    EndTransaction,
    GatheredPart,
    PartitionCode,
    TopicCodes,
)
from magicbyte.engine.groups.records import CONSUMER, OffsetCommitKey, OffsetCommitValue
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.protocol.first_versions import (
    OFFSET_COMMIT_WITH_EPOCH,
    OFFSET_FETCH_OF_GROUPS,
    OFFSET_FETCH_WITH_CODE,
)
from magicbyte.engine.protocol.messages import offset_commit, offset_delete, offset_fetch
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from magicbyte.engine.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable

LOADING_CODE: Final = 2  # version of TxnOffsetCommit from which COORDINATOR_LOAD_IN_PROGRESS is known
C = TypeVar("C", offset_commit.OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition)

_Commit: TypeAlias = offset_commit.OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def commit(table: GroupTable, caller: Caller, request: offset_commit.OffsetCommitRequest, now: Moment) -> Work[Effect]:
    """Store offsets of a member, or of a client that assigns partitions itself; answer when they are stored.

    Version 0, which stores offsets in ZooKeeper, is not handled here.
    """

    def refusal() -> ErrorCode:
        if code := table.status(request.group_id, may_be_empty=True):
            return code
        if (consumer := table.consumers.get(request.group_id)) is not None:
            return commit_refusal(table, consumer, caller.version, request)
        if request.group_id in table.shares:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = table.groups.get(request.group_id)
        if group is None and request.generation_id_or_member_epoch >= 0 and table.config.consumer.names_missing_group:
            is_known = caller.version >= OFFSET_COMMIT_WITH_EPOCH
            return ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
        return _commit_refusal(group, request, now)

    topics = [(each.name, each.partitions) for each in request.topics]
    return _commit(table, caller, request.group_id, topics, refusal, lambda each: _value(table, request, each, now))


def _commit(
    table: GroupTable,
    caller: Caller,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[C]]],
    refusal: Callable[[], ErrorCode],
    value: Callable[[C], OffsetCommitValue],
    producer: Producer | None = None,
) -> Work[Effect]:
    """Store offsets: of most requests as one set, as Kafka does; of long ones as several, of which none is too large.

    `refusal` returns why no offset of the request is stored now. `producer`: of the offsets' transaction.
    """
    if is_long(topics):
        return _commit_in_parts(table, caller, group_id, topics, refusal, value, producer)
    taken, codes = _taken(table, topics, refusal(), value)
    if not taken:
        return [Reply(caller, _commit_answer(codes, producer))]
    return [_commit_store(table, caller, group_id, taken, codes, producer)]


def _commit_in_parts(
    table: GroupTable,
    caller: Caller,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[C]]],
    refusal: Callable[[], ErrorCode],
    value: Callable[[C], OffsetCommitValue],
    producer: Producer | None,
) -> Work[Effect]:
    number = table.gatherings.begin(caller, [], lambda parts: _commit_answer(_joined(parts), producer))
    gathering = table.gatherings[number]
    for index, (some, size) in enumerate(topic_parts(topics)):
        taken, codes = _taken(table, some, refusal(), value)
        gathering.outcome.append(codes)
        if taken:
            gathering.waiting += 1
            yield _commit_store(table, caller, group_id, taken, codes, producer, GatheredPart(number, index))
        yield Steps(size)
    yield from table.gatherings.decided(number)


def _commit_store(
    table: GroupTable,
    caller: Caller,
    group_id: str,
    taken: Sequence[tuple[TopicPartition, OffsetCommitValue]],
    codes: Sequence[TopicCodes],
    producer: Producer | None,
    gathered: GatheredPart | None = None,
) -> Store[AfterStore | None]:
    group, header, producer_id = table.group_of(group_id), OFFSETS_HEADER, None
    if producer is not None:
        group.unstable.update(place for place, _ in taken)
        producer_id = producer.producer_id
        header = header._replace(is_transactional=True, producer_id=producer_id, producer_epoch=producer.epoch)
    then = CommitOffsets(caller, group_id, tuple(taken), tuple(codes), producer_id, gathered)
    return Store(group.partition, group.term, _offset_records(group_id, taken), then, header)


def committed(table: GroupTable, then: CommitOffsets, code: ErrorCode) -> Sequence[Effect]:
    """Apply the offsets that were appended, and answer; after a failed append nothing has changed."""
    group = table.groups.get(then.group_id)
    if group is not None and then.producer_id is not None:
        group.unstable -= Counter(place for place, _ in then.offsets)
    if not code and not table.status(then.group_id, may_be_empty=True):
        group = table.group_of(then.group_id)  # a group that was deleted meanwhile exists again, as in the log
        if then.producer_id is not None:
            table.is_transacting(group, then.producer_id)
        for place, value in then.offsets:
            if then.producer_id is None:
                _count(group, place, value)
            else:
                pending = group.pending_offsets.setdefault(place, {})
                pending.pop(then.producer_id, None)  # reinserted, because its order is that of its last record
                pending[then.producer_id] = value
    codes = _with_code(then.codes, OFFSETS_NOT_STORED.get(code, code))
    if then.gathered is None:
        return [Reply(then.caller, _commit_answer(codes, then.producer_id))]
    table.gatherings[then.gathered.number].outcome[then.gathered.place] = codes
    return table.gatherings.stored(then.gathered.number)


def _with_code(codes: Iterable[TopicCodes], code: ErrorCode) -> list[TopicCodes]:
    """Return codes with that of the append for the partitions that have no error of their own."""
    return [(topic, tuple((index, refusal or code) for index, refusal in partitions)) for topic, partitions in codes]


def _joined(parts: Iterable[Sequence[TopicCodes]]) -> list[TopicCodes]:
    """Return the codes of all parts of a request; a topic that was divided is one again."""
    joined = list[TopicCodes]()
    for codes_of_part in parts:
        for at, (topic, codes) in enumerate(codes_of_part):
            if at == 0 and joined and joined[-1][0] == topic:
                joined[-1] = (topic, joined[-1][1] + codes)
            else:
                joined.append((topic, codes))
    return joined


def _count(group: Group, partition: TopicPartition, value: OffsetCommitValue, before: int | None = None) -> None:
    """Set a committed offset, which supersedes pending ones that were appended earlier.

    `before`: the producer whose offset was pending until now; None: it was appended just now.
    """
    group.offsets[partition] = value
    pending = group.pending_offsets.get(partition, {})
    for producer in pending:
        if producer == before:
            break
        pending[producer] = None


def end_transaction(table: GroupTable, ticket: Hashable, partition: int, marker: Marker) -> list[Effect]:
    """Append a marker that ends a transaction in a partition, and report its outcome.

    Without the groups of the partition it is unknown which offsets become valid: the caller must retry.
    """
    if table.closed or not table.terms.is_active(partition):
        return [Tell(ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    then = EndTransaction(ticket, marker.producer.producer_id, marker.commits)
    return [Store(partition, table.terms[partition].number, (), then, marker=marker)]


def ended(table: GroupTable, then: EndTransaction, partition: int, code: ErrorCode) -> list[Effect]:
    """Apply or discard the offsets that a producer has committed to the groups of a partition."""
    names = set() if code else table.transacting.pop((partition, then.producer_id), set())
    for group in [found for name in sorted(names) if (found := table.groups.get(name)) is not None]:
        for key, pending in list(group.pending_offsets.items()):
            if then.producer_id not in pending:  # it belongs to a later group of that name, or its offsets were deleted
                continue
            value = pending[then.producer_id]
            if then.commits and value is not None:
                _count(group, key, value, then.producer_id)
            del pending[then.producer_id]
            if not pending:
                del group.pending_offsets[key]
    return [Tell(then.ticket, code)]


def commit_in_transaction(
    table: GroupTable, caller: Caller, request: TxnOffsetCommitRequest, now: Moment
) -> Work[Effect]:
    """Store offsets as part of a transaction; answer when they are stored. They count when it commits."""

    def refusal() -> ErrorCode:
        if code := _known_in(caller.version, table.status(request.group_id)):
            return code
        if (consumer := table.consumers.get(request.group_id)) is not None:
            return transactional_refusal(table, consumer, caller.version, request)
        if request.group_id in table.shares:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return _transactional_refusal(table.groups.get(request.group_id), request)

    topics = [(each.name, each.partitions) for each in request.topics]
    producer = Producer(request.producer_id, request.producer_epoch)
    return _commit(
        table, caller, request.group_id, topics, refusal, lambda each: _made(table, each, now.date_ms), producer
    )


def _transactional_refusal(group: Group | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return why a consumer's offsets are refused. Requests without member data are not checked (KIP-447)."""
    member_id, instance_id, generation = (
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
    )
    if not member_id and instance_id is None and generation < 0:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.members.fault(member_id, instance_id)
    if code or generation == group.generation:
        return code
    return ErrorCode.ILLEGAL_GENERATION


def _known_in(version: int, code: ErrorCode) -> ErrorCode:
    """Return the code for a version of TxnOffsetCommit: early producers fail on COORDINATOR_LOAD_IN_PROGRESS."""
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_CODE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def refused_in_transaction(request: TxnOffsetCommitRequest, version: int, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Return the response that refuses all offsets, in a version of the request."""
    code = _known_in(version, code)
    topics = [
        (topic.name, tuple((each.partition_index, code) for each in topic.partitions)) for topic in request.topics
    ]
    return _transactional_answer(topics)


def _commit_answer(
    codes: Iterable[TopicCodes], producer: Producer | int | None
) -> offset_commit.OffsetCommitResponse | TxnOffsetCommitResponse:
    """Return the response to an OffsetCommit, or to a TxnOffsetCommit if it is of a `producer`."""
    return _plain_answer(codes) if producer is None else _transactional_answer(codes)


def _transactional_answer(codes: Iterable[TopicCodes]) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in partitions
            ],
        )
        for topic, partitions in codes
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _plain_answer(codes: Iterable[TopicCodes]) -> offset_commit.OffsetCommitResponse:
    topics = [
        offset_commit.OffsetCommitResponseTopic(
            name=topic,
            partitions=[
                offset_commit.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                for index, code in partitions
            ],
        )
        for topic, partitions in codes
    ]
    return offset_commit.OffsetCommitResponse(topics=topics)


def _commit_refusal(group: Group | None, request: offset_commit.OffsetCommitRequest, now: Moment) -> ErrorCode:
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    code = group.members.fault(member_id, request.group_instance_id)
    if code or generation != group.generation:
        return code or ErrorCode.ILLEGAL_GENERATION
    code = COMMIT_REPLY[group.state]
    if not code:
        group.touch(group.members[member_id], now)
    return code


def _taken(
    table: GroupTable,
    topics: Iterable[tuple[str, Iterable[C]]],
    code: ErrorCode,
    value: Callable[[C], OffsetCommitValue],
) -> tuple[list[tuple[TopicPartition, OffsetCommitValue]], list[TopicCodes]]:
    """Return the offsets to store and the code of every partition: `code` for all, or the error of its offset."""
    taken, answers = list[tuple[TopicPartition, OffsetCommitValue]](), list[TopicCodes]()
    for topic, partitions in topics:
        codes = list[PartitionCode]()
        for each in partitions:
            refusal = code or _partition_refusal(table, topic, each)
            codes.append((each.partition_index, refusal))
            if not refusal:
                taken.append((TopicPartition(topic, each.partition_index), value(each)))
        answers.append((topic, tuple(codes)))
    return taken, answers


def _partition_refusal(table: GroupTable, topic: str, partition: _Commit) -> ErrorCode:
    if not table.has_partition(topic, partition.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode()) > table.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _value(
    table: GroupTable,
    request: offset_commit.OffsetCommitRequest,
    partition: offset_commit.OffsetCommitRequestPartition,
    now: Moment,
) -> OffsetCommitValue:
    committed_ms = now.date_ms if partition.commit_timestamp == -1 else partition.commit_timestamp
    value = _made(table, partition, committed_ms)
    if request.retention_time_ms == -1:
        return value
    return replace(value, version=1, expire_timestamp=now.date_ms + request.retention_time_ms)


def _made(table: GroupTable, partition: _Commit, committed_ms: int) -> OffsetCommitValue:
    version, expire_ms = table.config.stored.offset_value, -1
    if table.config.stored.expires_by_commit:
        expire_ms = committed_ms + table.config.offsets_retention_ms
    return OffsetCommitValue(
        version=version,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=committed_ms,
        expire_timestamp=expire_ms,
        topic_id=None,
    )


def fetch(table: GroupTable, caller: Caller, request: offset_fetch.OffsetFetchRequest, _now: Moment) -> Work[Effect]:
    """Return committed offsets: of one group, or of several from version 8 on. Version 0 is not handled here."""
    if caller.version >= OFFSET_FETCH_OF_GROUPS:
        groups = list[offset_fetch.OffsetFetchResponseGroup]()
        for asked in once_if_long(request.groups, lambda group: group.group_id):
            consumer = table.consumers.get(asked.group_id)
            if consumer is not None and (code := fetch_refusal(consumer, caller.version, asked)):
                refused = table.status(asked.group_id, may_be_empty=True) or code
                groups.append(offset_fetch.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=refused))
                continue
            groups.append((yield from _fetched(table, caller, asked.group_id, asked.topics, request)))
        yield Reply(caller, offset_fetch.OffsetFetchResponse(groups=groups))
        return
    fetched = yield from _fetched(table, caller, request.group_id, request.topics, request)
    topics = [
        offset_fetch.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                offset_fetch.OffsetFetchResponsePartition(
                    partition_index=asked.partition_index,
                    committed_offset=asked.committed_offset,
                    committed_leader_epoch=asked.committed_leader_epoch,
                    metadata=asked.metadata,
                    error_code=asked.error_code,
                )
                for asked in topic.partitions
            ],
        )
        for topic in fetched.topics
    ]
    yield Reply(caller, offset_fetch.OffsetFetchResponse(topics=topics, error_code=fetched.error_code))


def _fetched(
    table: GroupTable,
    caller: Caller,
    group_id: str,
    topics: Iterable[offset_fetch.OffsetFetchRequestTopic | offset_fetch.OffsetFetchRequestTopics] | None,
    request: offset_fetch.OffsetFetchRequest,
) -> Generator[Steps, None, offset_fetch.OffsetFetchResponseGroup]:
    """Return the offsets of a group. One that becomes unavailable meanwhile is answered as such."""
    if topics is None:
        group = None if table.status(group_id, may_be_empty=True) else table.groups.get(group_id)
        wanted = [] if group is None else list(_by_topic(group.offsets).items())
    else:
        wanted = [(each.name, list(each.partition_indexes)) for each in topics]
    answer = list[offset_fetch.OffsetFetchResponseTopics]()
    for some, size in topic_parts(wanted):
        status = table.status(group_id, may_be_empty=True)
        if status and caller.version >= OFFSET_FETCH_WITH_CODE:
            return offset_fetch.OffsetFetchResponseGroup(group_id=group_id, error_code=status)
        group = None if status else table.groups.get(group_id)
        for at, (topic, which) in enumerate(some):
            partitions = [
                _fetched_partition(group, TopicPartition(topic, each), request.require_stable, status) for each in which
            ]
            if at == 0 and answer and answer[-1].name == topic:  # it was divided
                answer[-1].partitions.extend(partitions)
            else:
                answer.append(offset_fetch.OffsetFetchResponseTopics(name=topic, partitions=partitions))
        yield Steps(1 + size)
    return offset_fetch.OffsetFetchResponseGroup(group_id=group_id, topics=answer)


def delete_offsets(
    table: GroupTable, caller: Caller, request: offset_delete.OffsetDeleteRequest, _now: Moment
) -> Work[Effect]:
    """Answer an OffsetDelete. Offsets of topics to which the group is subscribed are kept."""
    topics = [(each.name, [partition.partition_index for partition in each.partitions]) for each in request.topics]
    if not is_long(topics):
        code, places, codes = _deletable(table, request.group_id, topics)
        group = table.groups.get(request.group_id)
        if code or group is None:
            return [Reply(caller, offset_delete.OffsetDeleteResponse(error_code=code))]
        then = AnswerOffsetDelete(caller, codes)
        return [*table.forget(group, places, then)] or deleted(table, then, ErrorCode.NONE)
    return _delete_in_parts(table, caller, request.group_id, topics)


def _delete_in_parts(
    table: GroupTable, caller: Caller, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
) -> Work[Effect]:
    number = table.gatherings.begin(caller, _Deletion(), _deletion_answer)
    gathering = table.gatherings[number]
    for index, (some, size) in enumerate(topic_parts(topics)):
        code, places, codes = _deletable(table, group_id, some)
        gathering.outcome.parts.append(codes)
        gathering.outcome.code = gathering.outcome.code or code
        if not code:
            then = AnswerOffsetDelete(caller, codes, GatheredPart(number, index))
            stores = table.forget(table.groups[group_id], places, then)
            gathering.waiting += len(stores)
            yield from stores
        yield Steps(size)
    yield from table.gatherings.decided(number)


def _deletable(
    table: GroupTable, group_id: str, topics: Iterable[tuple[str, Sequence[int]]]
) -> tuple[ErrorCode, list[TopicPartition], tuple[TopicCodes, ...]]:
    """Return why a group's offsets cannot be deleted; the places of those that can, and the code of every partition."""
    group, consumer = table.groups.get(group_id), table.consumers.get(group_id)
    code = table.status(group_id)
    subscribed: set[str] | None = set()
    if not code and consumer is not None:
        subscribed = consumer.topics
        group = table.group_of(group_id)
    elif not code and group is None:
        code = ErrorCode.GROUP_ID_NOT_FOUND
    elif not code and group is not None and group.state is not GroupState.EMPTY:
        code = ErrorCode.NONE if group.protocol_type == CONSUMER else ErrorCode.NON_EMPTY_GROUP
        subscribed = subscribed_topics(group)
    places, answers = list[TopicPartition](), list[TopicCodes]()
    if code or group is None:
        return code, places, ()
    for topic, partitions in topics:
        codes = list[PartitionCode]()
        for index in partitions:
            partition, refusal = TopicPartition(topic, index), ErrorCode.NONE
            if not table.has_partition(*partition):
                refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed is None or topic in subscribed:
                refusal = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif partition in group.offsets or partition in group.pending_offsets:
                places.append(partition)
            codes.append((index, refusal))
        answers.append((topic, tuple(codes)))
    return ErrorCode.NONE, places, tuple(answers)


def deleted(table: GroupTable, then: AnswerOffsetDelete, code: ErrorCode) -> Sequence[Effect]:
    """Answer an OffsetDelete after the append of its tombstones."""
    code = OFFSETS_NOT_STORED.get(code, code)
    if then.gathered is None:
        return [Reply(then.caller, _deletion_answer(_Deletion([then.codes], code)))]
    outcome = table.gatherings[then.gathered.number].outcome
    outcome.code = outcome.code or code
    return table.gatherings.stored(then.gathered.number)


class _Deletion(Struct):
    """The outcome of an OffsetDelete so far: the codes of its parts, and the error of the whole."""

    parts: list[tuple[TopicCodes, ...]] = field(default_factory=list)
    code: ErrorCode = ErrorCode.NONE


def _deletion_answer(deletion: _Deletion) -> offset_delete.OffsetDeleteResponse:
    topics = [
        offset_delete.OffsetDeleteResponseTopic(
            name=topic,
            partitions=[
                offset_delete.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                for index, code in partitions
            ],
        )
        for topic, partitions in _joined(deletion.parts)
    ]
    return offset_delete.OffsetDeleteResponse(error_code=deletion.code, topics=topics)


def _offset_records(
    group_id: str, offsets: Iterable[tuple[TopicPartition, OffsetCommitValue]]
) -> tuple[tuple[bytes, bytes | None], ...]:
    return tuple(
        (OffsetCommitKey(1, group_id, topic, partition).to_bytes(), value.to_bytes())
        for (topic, partition), value in offsets
    )


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _fetched_partition(
    group: Group | None, partition: TopicPartition, stable: bool, code: ErrorCode
) -> offset_fetch.OffsetFetchResponsePartitions:
    committed = None if group is None else group.offsets.get(partition)
    if group is not None and stable and (partition in group.pending_offsets or partition in group.unstable):
        committed, code = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
    if committed is None:
        return offset_fetch.OffsetFetchResponsePartitions(
            partition_index=partition.partition, committed_offset=NO_OFFSET, error_code=code
        )
    return offset_fetch.OffsetFetchResponsePartitions(
        partition_index=partition.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def expired_offsets(group: Group, date_ms: int, subscribed: set[str] | None = None) -> Iterator[TopicPartition]:
    """Yield expired offsets: of topics without subscribers, or in a group without members.

    `subscribed`: the topics of a consumer group, which has its offsets here; None: it is a classic one.
    Their retention begins when the group becomes empty (KIP-211), unless an offset has its own expiration time.
    """
    read: set[str] | None = None
    if subscribed is not None:
        read = subscribed
    elif group.state is GroupState.STABLE:
        read = subscribed_topics(group)
    elif group.state is GroupState.EMPTY:
        read = set()
    if read is None:
        return
    by_state = group.state is GroupState.EMPTY and group.protocol_type is not None and group.state_since_ms >= 0
    for partition, committed in group.offsets.items():
        since = group.state_since_ms if by_state else committed.commit_timestamp
        end = since + group.config.offsets_retention_ms
        if committed.expire_timestamp >= 0:
            end = committed.expire_timestamp
        if partition.topic not in read and partition not in group.pending_offsets and end <= date_ms:
            yield partition


def subscribed_topics(group: Group) -> set[str] | None:
    """Return the topics to which members of a consumer group subscribe; None if unknown."""
    if group.protocol_type != CONSUMER or group.protocol is None or not group.members:
        return None
    return group.members.topics(group.protocol)
