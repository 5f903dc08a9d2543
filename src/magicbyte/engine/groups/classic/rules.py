"""The states of a group and the allowed transitions, as tables. docs/internals/groups.md is drawn from them."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from magicbyte.engine.errors import ErrorCode


class GroupState(enum.Enum):
    """The states of a group. The values are those in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Transition(NamedTuple):
    """A transition between two states, and its cause."""

    source: GroupState
    event: str
    target: GroupState


TRANSITIONS: Final = (
    Transition(GroupState.EMPTY, "a member joins", GroupState.PREPARING_REBALANCE),
    Transition(GroupState.PREPARING_REBALANCE, "all have joined, or timeout", GroupState.COMPLETING_REBALANCE),
    Transition(GroupState.PREPARING_REBALANCE, "the last member left", GroupState.EMPTY),
    Transition(GroupState.COMPLETING_REBALANCE, "the leader's assignment is stored", GroupState.STABLE),
    Transition(GroupState.COMPLETING_REBALANCE, "a member rejoins, leaves or expires", GroupState.PREPARING_REBALANCE),
    Transition(GroupState.STABLE, "a member joins, changes, leaves or expires", GroupState.PREPARING_REBALANCE),
    Transition(GroupState.EMPTY, "deleted, unloaded, or its last offset expired", GroupState.DEAD),
    Transition(GroupState.PREPARING_REBALANCE, "unloaded", GroupState.DEAD),
    Transition(GroupState.COMPLETING_REBALANCE, "unloaded", GroupState.DEAD),
    Transition(GroupState.STABLE, "unloaded", GroupState.DEAD),
)
ALLOWED: Final = frozenset((each.source, each.target) for each in TRANSITIONS)

HEARTBEAT_REPLY: Final = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: ErrorCode.NONE,  # 0.9 to 0.10 responded REBALANCE_IN_PROGRESS
    GroupState.STABLE: ErrorCode.NONE,
}
SYNC_REPLY: Final = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING_REBALANCE: None,  # it waits for the leader's assignment
    GroupState.STABLE: ErrorCode.NONE,
}
COMMIT_REPLY: Final = {
    GroupState.EMPTY: ErrorCode.NONE,
    GroupState.PREPARING_REBALANCE: ErrorCode.NONE,  # offsets of the last generation are still worth storing
    GroupState.COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.STABLE: ErrorCode.NONE,
}
"""The replies to members of the current generation."""

LOADING_REPLY: Final = {
    "SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS,  # the member joins again, at this coordinator
    "Heartbeat": ErrorCode.NONE,  # there is no reason to expel it
}
"""The replies while the groups are being loaded, for requests other than those that get
COORDINATOR_LOAD_IN_PROGRESS.
"""

OFFSETS_NOT_STORED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The replies to a commit whose append failed; other codes are passed on."""

GROUP_NOT_STORED: Final = {
    **OFFSETS_NOT_STORED,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The replies to members if the append of their group's record failed."""
