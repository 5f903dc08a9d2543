"""The partitions of which share groups have states: as an administrator changes them, and when a group is deleted.

Source: Kafka's GroupMetadataManager.sharePartitionsEligibleForOffsetDeletion and its siblings (4.3).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING

from magicbyte.engine.coordination.effects import Tell
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.consumer.records import GroupEpoch
from magicbyte.engine.groups.effects import DeleteStates, Effect
from magicbyte.engine.groups.share import records
from magicbyte.engine.groups.share.heartbeat import store_step
from magicbyte.engine.groups.share.records import KeptStates, ShareRecord, TopicStates

if TYPE_CHECKING:
    from magicbyte.engine.groups.table import GroupTable


def change_refusal(table: GroupTable, group_id: str, *, may_create: bool) -> ErrorCode:
    """Return why the states of a group cannot be changed: it has members, or does not exist."""
    if code := table.status(group_id):
        return code
    group = table.shares.get(group_id)
    if group is None:
        is_other = group_id in table.groups or group_id in table.consumers
        return ErrorCode.NONE if may_create and not is_other else ErrorCode.GROUP_ID_NOT_FOUND
    has_members = group.subscribers or group_id in table.waiting_share
    return ErrorCode.NON_EMPTY_GROUP if has_members else ErrorCode.NONE


def change_states(
    table: GroupTable,
    ticket: Hashable,
    group_id: str,
    added: Mapping[uuid.UUID, TopicStates],
    removed: Collection[uuid.UUID] = (),
) -> list[Effect]:
    """Store of which partitions a group has states, and report the outcome; the group is created if needed."""
    if code := change_refusal(table, group_id, may_create=bool(added)):
        return [Tell(ticket, code)]
    known, changes = table.shares.get(group_id), list[ShareRecord]()
    group = known if known is not None else table.new_share_group(group_id)
    if known is None:
        changes.append(group.record(records.GROUP, GroupEpoch(max(group.epoch, 1), 0)))
    kept = {topic: states for topic, states in group.states.initialized.items() if topic not in removed}
    for topic, (name, partitions) in added.items():
        both = {*group.kept(topic, is_initialized=True), *partitions}
        kept[topic] = TopicStates(name, tuple(sorted(both)))
    initializing = {topic: states for topic, states in group.states.initializing.items() if topic not in removed}
    changes.append(group.record(records.STATES, KeptStates(initializing, kept, group.states.deleting)))
    return [store_step(table, group_id, changes, ticket=ticket)]


def states_deleted(table: GroupTable, deleted: DeleteStates, code: ErrorCode) -> list[Effect]:
    """Delete a group whose states are deleted, unless it has got members meanwhile, or the states are not."""
    code = code or change_refusal(table, deleted.group_id, may_create=False)
    if not code:
        return [table.forget_share(deleted.group_id, deleted.then)]
    for result in table.gatherings[deleted.then.number].outcome:
        if result.group_id == deleted.group_id:
            result.error_code = code
    return [*table.gatherings.stored(deleted.then.number)]
