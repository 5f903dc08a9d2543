"""Whether members of consumer groups may commit and fetch offsets: by their epochs.

Source: Kafka's ConsumerGroup.validateOffsetCommit and validateOffsetFetch (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer.members import NEW, MemberProgress
from magicbyte.engine.protocol.first_versions import OFFSET_COMMIT_WITH_EPOCH, OFFSET_FETCH_WITH_EPOCH
from magicbyte.engine.protocol.messages.offset_commit import OffsetCommitRequest
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from magicbyte.engine.groups.consumer.group import ConsumerGroup
    from magicbyte.engine.groups.table import GroupTable

_TRANSACTIONAL_WITH_EPOCH: Final = 6
"""The version of TxnOffsetCommit from which STALE_MEMBER_EPOCH is known."""


def commit_refusal(table: GroupTable, group: ConsumerGroup, version: int, request: OffsetCommitRequest) -> ErrorCode:
    """Return why the offsets of an OffsetCommit are refused, or NONE."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    if epoch < 0 and not group.subscribers:
        return ErrorCode.NONE
    if member_id not in group.subscribers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = group.subscribers[member_id].classic is not None
    if version < OFFSET_COMMIT_WITH_EPOCH and not is_classic:
        return ErrorCode.UNSUPPORTED_VERSION
    places = ((topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics)
    code = _epoch_refusal(table, group.progress.get(member_id, NEW), epoch, places)
    return ErrorCode.ILLEGAL_GENERATION if code and is_classic else code


def transactional_refusal(
    table: GroupTable, group: ConsumerGroup, version: int, request: TxnOffsetCommitRequest
) -> ErrorCode:
    """Return why the offsets of a TxnOffsetCommit are refused, or NONE. Without member data they are not checked."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    if not member_id and request.group_instance_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id not in group.subscribers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    places = ((topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics)
    code = _epoch_refusal(table, group.progress.get(member_id, NEW), epoch, places)
    is_older = version < _TRANSACTIONAL_WITH_EPOCH or group.subscribers[member_id].classic is not None
    return ErrorCode.ILLEGAL_GENERATION if code and is_older else code


def fetch_refusal(group: ConsumerGroup, version: int, asked: OffsetFetchRequestGroup) -> ErrorCode:
    """Return why the offsets of a group are not returned to a member, or NONE. Others than members are not checked."""
    if version < OFFSET_FETCH_WITH_EPOCH or (asked.member_id is None and asked.member_epoch < 0):
        return ErrorCode.NONE
    if asked.member_id is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if asked.member_id not in group.subscribers:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if asked.member_epoch == group.progress.get(asked.member_id, NEW).epoch:
        return ErrorCode.NONE
    is_classic = group.subscribers[asked.member_id].classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _epoch_refusal(
    table: GroupTable, progress: MemberProgress, epoch: int, places: Iterable[tuple[str, Sequence[int]]]
) -> ErrorCode:
    """Return STALE_MEMBER_EPOCH unless the member has this epoch, or had all these partitions at it already."""
    if epoch == progress.epoch:
        return ErrorCode.NONE
    if not table.config.consumer.keeps_assignment_epochs or epoch > progress.epoch or epoch < 0:
        return ErrorCode.STALE_MEMBER_EPOCH
    for name, partitions in places:
        topic = table.topics.find(name)
        if topic is None:
            return ErrorCode.STALE_MEMBER_EPOCH
        assigned, revoking = progress.assigned.get(topic.id, {}), progress.revoking.get(topic.id, {})
        for partition in partitions:
            since = assigned.get(partition, revoking.get(partition))
            if since is None or since > epoch:
                return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE
