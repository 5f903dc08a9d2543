"""The share coordinator: states of share groups, in the partitions of `__share_group_state` that this broker leads.

Source: Kafka's ShareCoordinatorShard (4.3), KIP-932.

Invariants, besides those of every `Decider`:
1. A state changes when its record is stored. One append of a state is pending at a time; later requests for the state
   wait, in order.
2. Each row of a request is decided by itself, and the response follows the last one.
3. After `updates_per_snapshot` updates the next record is a snapshot, so a state can be read from few records.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from magicbyte.engine.coordination.decider import Decider, Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store
from magicbyte.engine.coordination.gathering import Gatherings
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages import delete_share_group_state as deletion
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialization
from magicbyte.engine.protocol.messages import read_share_group_state as reading
from magicbyte.engine.protocol.messages import read_share_group_state_summary as summary
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.engine.sharing.records import encode
from magicbyte.engine.sharing.states import (
    UNSET,
    StateBatch,
    StateKey,
    StateSnapshot,
    StateUpdate,
    StoredState,
)

_QUIET_MS: Final = 300_000  # without a write, after which a state gets another snapshot
_FAR: Final = 10_000  # records after a snapshot, from which on it is repeated, so that older ones may be deleted
_ROW_STEPS: Final = 4  # for a topic or a partition of a request

NOT_STORED: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""By the error of an append: that of the request. Of others it is COORDINATOR_NOT_AVAILABLE."""


class ShareStateConfig(Struct, frozen=True, kw_only=True):
    """The settings of the share coordinator. `keeps_counts`: records have the number of those that are done (4.2)."""

    partitions: int = 50
    updates_per_snapshot: int = 500
    keeps_counts: bool = True


class _StateRow(NamedTuple):
    """One partition of a request, of the gathering `number`. `decide` returns its record, or refuses it in `result`."""

    number: int
    key: StateKey
    asked: Any
    result: Any
    decide: Callable[[ShareCoordinator, _StateRow, Moment], _StateRecord | None]


class _StateRecord(NamedTuple):
    """A record to store; `value` is None to delete the state."""

    value: StateSnapshot | StateUpdate | None


class EndStateChange(NamedTuple):
    """Apply a stored record to its state, and answer its row; None: no request has asked for it.

    `floor`: the end offset of the log before the append.
    """

    key: StateKey
    value: StateSnapshot | StateUpdate | None
    row: _StateRow | None
    floor: int


ShareEffect: TypeAlias = Reply | Store[EndStateChange]
States: TypeAlias = dict[StateKey, StoredState]


class ShareCoordinator(Decider[ShareEffect, StateKey, States]):
    """Answer requests about stored states. `has_partition`: whether a topic with an id has a partition.

    `end_offset`: the end offset of the log of a partition of `__share_group_state`.
    """

    def __init__(
        self,
        config: ShareStateConfig,
        has_partition: Callable[[uuid.UUID, int], bool],
        end_offset: Callable[[int], int],
    ) -> None:
        super().__init__(config.partitions)
        self.config = config
        self.states: States = {}
        self._has_partition, self._end_offset = has_partition, end_offset
        self._gatherings = Gatherings()
        self._waiting: dict[StateKey, list[_StateRow]] = {}  # by state with a pending append

    # ---- partitions

    def _install(self, _partition: int, content: States, _now: Moment) -> Sequence[ShareEffect]:
        self.states.update({key: state for key, state in content.items() if self.partition_of(key.text) in self.terms})
        return []

    def _drop(self, partition: int) -> Sequence[ShareEffect]:
        for key in [key for key in self.states if self.partition_of(key.text) == partition]:
            del self.states[key]
        return self._refuse_waiting(lambda key: self.partition_of(key.text) == partition)

    def close(self) -> Sequence[ShareEffect]:
        """Refuse all further requests, and those that wait."""
        super().close()
        return self._refuse_waiting(lambda _: True)

    def _refuse_waiting(self, is_meant: Callable[[StateKey], bool]) -> list[ShareEffect]:
        effects = list[ShareEffect]()
        for key in [key for key in self._waiting if is_meant(key)]:
            for row in self._waiting.pop(key):
                row.result.error_code = ErrorCode.NOT_COORDINATOR
                effects += self._gatherings.stored(row.number)
        return effects

    # ---- requests

    def answer(self, caller: Caller, request: Message, now: Moment) -> Work[ShareEffect]:
        """Answer a request of `_KINDS`."""
        kind = _KINDS[type(request)]
        asked: Any = request
        results = list[Any]()
        number = self._gatherings.begin(caller, results, lambda outcome: kind.response(results=outcome))
        for topic in asked.topics:
            told = [kind.result(partition=each.partition) for each in topic.partitions]
            results.append(kind.topic(topic_id=topic.topic_id, partitions=told))
            yield Steps(_ROW_STEPS)
            for each, result in zip(topic.partitions, told, strict=True):
                key = StateKey(asked.group_id, topic.topic_id, each.partition)
                self._gatherings[number].waiting += 1
                yield from self._take(_StateRow(number, key, each, result, kind.decide), now)
                yield Steps(_ROW_STEPS + (len(each.state_batches) if isinstance(each, writing.PartitionData) else 0))
        yield from self._gatherings.decided(number)

    def _take(self, row: _StateRow, now: Moment) -> list[ShareEffect]:
        """Decide about a row, now or after the pending append of its state."""
        change = None
        if row.key in self._waiting:
            self._waiting[row.key].append(row)
            return []
        if code := self.status(row.key.text):
            row.result.error_code = code
        else:
            change = row.decide(self, row, now)
        if change is None:
            return [*self._gatherings.stored(row.number)]
        return [self._store(row.key, change.value, row)]

    def _store(self, key: StateKey, value: StateSnapshot | StateUpdate | None, row: _StateRow | None) -> ShareEffect:
        self._waiting[key] = []
        partition = self.partition_of(key.text)
        record = encode(key, value, with_counts=self.config.keeps_counts)
        then = EndStateChange(key, value, row, self._end_offset(partition))
        return Store(partition, self.terms[partition].number, (record,), then)

    def _continue(self, store: Store[Any], code: ErrorCode, now: Moment) -> Sequence[ShareEffect]:
        then: EndStateChange = store.then
        effects = list[ShareEffect]()
        is_present = self.terms.is_present(store.partition, store.term)
        if is_present and not code:
            self._apply(then.key, then.value, then.floor)
        if then.row is not None:
            if code:
                then.row.result.error_code = NOT_STORED.get(code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            effects += self._gatherings.stored(then.row.number)
        if is_present:
            for row in self._waiting.pop(then.key, []):
                effects += self._take(row, now)
        return effects

    def _apply(self, key: StateKey, value: StateSnapshot | StateUpdate | None, floor: int) -> None:
        match value:
            case None:
                self.states.pop(key, None)
            case StateSnapshot():
                self.states[key] = StoredState.of(value)
                self.states[key].floor = floor
            case StateUpdate():
                self.states[key].update(value)

    def initialize(self, row: _StateRow, now: Moment) -> _StateRecord | None:
        """Begin a state again, from an offset."""
        asked, state = row.asked, self.states.get(row.key)
        if not self._knows(row):
            return None
        if state is not None and asked.state_epoch < state.state_epoch:
            row.result.error_code = ErrorCode.FENCED_STATE_EPOCH
            return None
        number = 0 if state is None else state.snapshot_epoch + 1
        date = now.date_ms
        complete = 0 if asked.start_offset != UNSET and self.config.keeps_counts else UNSET
        return _StateRecord(StateSnapshot(number, asked.state_epoch, 0, asked.start_offset, date, date, (), complete))

    def read(self, row: _StateRow, now: Moment) -> _StateRecord | None:
        """Return a state to the leader of its partition, whose later epoch is stored first."""
        state = self._fenced(row)
        if state is None:
            return None
        row.result.state_epoch, row.result.start_offset = state.state_epoch, state.start
        row.result.state_batches = [
            reading.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
            for first, last, kind, count in state.batches
        ]
        if row.asked.leader_epoch <= state.leader_epoch:
            return None
        return self._updated(state, StateUpdate(0, row.asked.leader_epoch, UNSET, (), state.complete_count), now)

    def write(self, row: _StateRow, now: Moment) -> _StateRecord | None:
        """Store what has changed."""
        asked = row.asked
        state = self._fenced(row)
        if state is None:
            return None
        if asked.state_epoch < state.state_epoch:
            row.result.error_code = ErrorCode.FENCED_STATE_EPOCH
            return None
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        ]
        if any(not 0 <= each.first <= each.last for each in batches):
            row.result.error_code = ErrorCode.INVALID_REQUEST
            return None
        update = StateUpdate(0, asked.leader_epoch, asked.start_offset, batches, asked.delivery_complete_count)
        return self._updated(state, update, now)

    def _updated(self, state: StoredState, update: StateUpdate, now: Moment) -> _StateRecord:
        if state.updates < self.config.updates_per_snapshot:
            return _StateRecord(update._replace(snapshot_epoch=state.snapshot_epoch))
        after = StoredState.of(state.snapshot(now.date_ms))
        after.update(update)
        return _StateRecord(after.snapshot(now.date_ms)._replace(snapshot_epoch=state.snapshot_epoch + 1))

    def _knows(self, row: _StateRow) -> bool:
        known = self._has_partition(row.key.topic_id, row.key.partition)
        if not known:
            row.result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return known

    def _fenced(self, row: _StateRow) -> StoredState | None:
        """Return the state of a leader's request, unless it is refused."""
        state = self.states.get(row.key)
        if not self._knows(row):
            return None
        if state is None:
            row.result.error_code = ErrorCode.INVALID_REQUEST
        elif UNSET < row.asked.leader_epoch < state.leader_epoch:
            row.result.error_code = ErrorCode.FENCED_LEADER_EPOCH
            return None
        return state

    def remove(self, row: _StateRow, _now: Moment) -> _StateRecord | None:
        """Delete a state, also of a topic that no longer exists."""
        return _StateRecord(None) if row.key in self.states else None

    def summarize(self, row: _StateRow, _now: Moment) -> _StateRecord | None:
        """Return how far a group is."""
        state, result = self.states.get(row.key), row.result
        result.start_offset = UNSET
        if state is not None:
            result.state_epoch, result.leader_epoch = state.state_epoch, state.leader_epoch
            result.start_offset, result.delivery_complete_count = state.start, state.complete_count
        return None

    # ---- time

    def _deadline_reached(self, _key: StateKey, _now: Moment) -> Sequence[ShareEffect]:
        return []

    def expire(self, date_ms: int) -> Work[ShareEffect]:
        """Store snapshots of states that were not written for a while, and have updates or are far back in the log."""
        for key in list(self.states):
            state = self.states.get(key)
            if state is None or key in self._waiting or self.status(key.text):
                continue
            is_far = state.floor + _FAR < self._end_offset(self.partition_of(key.text))
            if (state.updates or is_far) and not state.written_ms <= date_ms < state.written_ms + _QUIET_MS:
                yield self._store(key, state.snapshot(date_ms), None)
            yield Steps(1)

    def needed_from(self) -> dict[int, int]:
        """Return the first offset that is needed in each partition with states that is served here."""
        floors: dict[int, int] = {}
        for key, state in self.states.items():
            partition = self.partition_of(key.text)
            if self.terms.is_active(partition):
                floors[partition] = min(floors.get(partition, state.floor), state.floor)
        return floors


class _StateRequest(NamedTuple):
    """The classes of a request's response, and what decides about a row."""

    response: Callable[..., Message]
    topic: Callable[..., Any]
    result: Callable[..., Any]
    decide: Callable[[ShareCoordinator, _StateRow, Moment], _StateRecord | None]


_KINDS: Final[Mapping[type[Message], _StateRequest]] = {
    initialization.InitializeShareGroupStateRequest: _StateRequest(
        initialization.InitializeShareGroupStateResponse,
        initialization.InitializeStateResult,
        initialization.PartitionResult,
        ShareCoordinator.initialize,
    ),
    reading.ReadShareGroupStateRequest: _StateRequest(
        reading.ReadShareGroupStateResponse, reading.ReadStateResult, reading.PartitionResult, ShareCoordinator.read
    ),
    writing.WriteShareGroupStateRequest: _StateRequest(
        writing.WriteShareGroupStateResponse, writing.WriteStateResult, writing.PartitionResult, ShareCoordinator.write
    ),
    deletion.DeleteShareGroupStateRequest: _StateRequest(
        deletion.DeleteShareGroupStateResponse,
        deletion.DeleteStateResult,
        deletion.PartitionResult,
        ShareCoordinator.remove,
    ),
    summary.ReadShareGroupStateSummaryRequest: _StateRequest(
        summary.ReadShareGroupStateSummaryResponse,
        summary.ReadStateSummaryResult,
        summary.PartitionResult,
        ShareCoordinator.summarize,
    ),
}
