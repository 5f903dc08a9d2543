"""The share coordinator: states are begun, read, changed and deleted; epochs fence; snapshots; terms end."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store, encoded
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages import delete_share_group_state as deletion
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialization
from magicbyte.engine.protocol.messages import read_share_group_state as reading
from magicbyte.engine.protocol.messages import read_share_group_state_summary as summary
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.engine.sharing.records import Loading, decode
from magicbyte.engine.sharing.share_coordinator import ShareCoordinator, ShareStateConfig
from magicbyte.engine.sharing.states import StateBatch, StateKey, StateSnapshot, StateUpdate

TOPIC = uuid.UUID(int=7)
KEY = StateKey("g", TOPIC, 0)
NOW = Moment(1_700_000_000_000, 5_000)


class States:
    """A share coordinator of one partition with a log in memory. `held`: appends, while `holds`."""

    def __init__(self, **settings: Any) -> None:
        config = ShareStateConfig(partitions=1, **settings)
        self.coordinator = ShareCoordinator(
            config, lambda topic, partition: topic == TOPIC and 0 <= partition < 2, lambda _: self.end
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.skipped = 0  # offsets that other states have taken
        self.answers: dict[Any, Any] = {}
        self.held: list[Store[Any]] = []
        self.holds, self.code = False, ErrorCode.NONE
        self.load()

    def load(self) -> None:
        self.perform(self.coordinator.resign(0))
        loading = Loading()
        for offset, (key, value) in enumerate(self.log):
            found = decode(key, value)
            assert found is not None
            loading.apply(*found, offset)
        term = self.coordinator.begin_loading(0, 0)
        self.coordinator.loaded(0, term, loading.finish(), NOW)

    @property
    def end(self) -> int:
        return len(self.log) + self.skipped

    def perform(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers[effect.to.ticket] = effect.message
            elif isinstance(effect, Store):
                self.held.append(effect)
                if not self.holds:
                    self.release()
            else:
                assert isinstance(effect, Steps)

    def release(self) -> None:
        while self.held:
            store = self.held.pop(0)
            if not self.code:
                self.log += [(key, encoded(value)) for key, value in store.records]
            self.perform(self.coordinator.stored(store, self.code, NOW))

    def ask(self, message: Any) -> int:
        ticket = len(self.answers) + 100 * len(self.held)
        self.answers[ticket] = None
        self.perform(self.coordinator.answer(Caller(ticket, 1), message, NOW))
        return ticket

    def row(self, message: Any) -> Any:
        return self.answers[self.ask(message)].results[0].partitions[0]

    def begin(self, epoch: int = 1, start: int = -1, partition: int = 0) -> int:
        row = initialization.PartitionData(partition=partition, state_epoch=epoch, start_offset=start)
        topic = initialization.InitializeStateData(topic_id=TOPIC, partitions=[row])
        code: int = self.row(initialization.InitializeShareGroupStateRequest(group_id="g", topics=[topic])).error_code
        return code

    def writing(self, *batches: StateBatch, start: int = 0, epoch: int = 1, leader: int = 0, partition: int = 0) -> Any:
        rows = [
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ]
        row = writing.PartitionData(
            partition=partition, state_epoch=epoch, leader_epoch=leader, start_offset=start,
            delivery_complete_count=2, state_batches=rows,
        )  # fmt: skip
        topic = writing.WriteStateData(topic_id=TOPIC, partitions=[row])
        return writing.WriteShareGroupStateRequest(group_id="g", topics=[topic])

    def write(self, *batches: StateBatch, **fields: int) -> int:
        code: int = self.row(self.writing(*batches, **fields)).error_code
        return code

    def read(self, leader: int = 0, group: str = "g") -> Any:
        row = reading.PartitionData(partition=0, leader_epoch=leader)
        topic = reading.ReadStateData(topic_id=TOPIC, partitions=[row])
        return self.row(reading.ReadShareGroupStateRequest(group_id=group, topics=[topic]))

    def summary(self) -> Any:
        topic = summary.ReadStateSummaryData(topic_id=TOPIC, partitions=[summary.PartitionData(partition=0)])
        return self.row(summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=[topic]))

    def delete(self) -> int:
        topic = deletion.DeleteStateData(topic_id=TOPIC, partitions=[deletion.PartitionData(partition=0)])
        code: int = self.row(deletion.DeleteShareGroupStateRequest(group_id="g", topics=[topic])).error_code
        return code

    def records(self) -> list[StateSnapshot | StateUpdate | None]:
        found = [decode(key, value) for key, value in self.log]
        return [each[1] for each in found if each is not None]


def test_a_state_is_begun_changed_read_and_deleted() -> None:
    states = States()
    assert states.summary().start_offset == -1
    assert states.begin(epoch=2) == 0
    assert states.write(StateBatch(0, 3, 2, 1), StateBatch(4, 4, 0, 1), epoch=2) == 0
    found = states.read()
    assert (found.state_epoch, found.start_offset) == (2, 0)
    assert [(each.first_offset, each.last_offset) for each in found.state_batches] == [(0, 3), (4, 4)]
    assert (states.summary().start_offset, states.summary().delivery_complete_count) == (0, 2)
    states.load()
    assert states.read() == found
    assert states.delete() == 0
    assert states.read().error_code == ErrorCode.INVALID_REQUEST
    assert states.delete() == 0
    assert states.records()[-1] is None
    states.load()
    assert not states.coordinator.states


def test_epochs_fence_and_unknown_states_are_refused() -> None:
    states = States()
    assert states.begin(epoch=2) == 0
    assert states.begin(epoch=1) == ErrorCode.FENCED_STATE_EPOCH
    assert states.begin(partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert states.write(epoch=1) == ErrorCode.FENCED_STATE_EPOCH
    assert states.write(partition=1) == ErrorCode.INVALID_REQUEST
    assert states.read(leader=3).error_code == 0
    assert states.records()[-1] == StateUpdate(0, 3, -1)
    assert states.write(epoch=2, leader=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert states.read(leader=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert states.read(group="x").error_code == ErrorCode.INVALID_REQUEST
    assert states.write(StateBatch(5, 4, 0, 1), epoch=2, leader=3) == ErrorCode.INVALID_REQUEST
    size = len(states.log)
    assert states.read(leader=3).error_code == 0
    assert len(states.log) == size


def test_after_so_many_updates_a_snapshot_is_stored() -> None:
    states = States(updates_per_snapshot=3)
    states.begin()
    for offset in range(8):
        assert states.write(StateBatch(offset, offset, 2, 1), start=offset) == 0
    kinds = [type(each).__name__ for each in states.records()]
    assert kinds == ["StateSnapshot", *["StateUpdate"] * 3, "StateSnapshot", *["StateUpdate"] * 3, "StateSnapshot"]
    last = states.records()[-1]
    assert isinstance(last, StateSnapshot)
    assert (last.snapshot_epoch, last.start, last.batches) == (2, 7, (StateBatch(7, 7, 2, 1),))
    before = states.read()
    states.load()
    assert states.read() == before


def test_a_state_that_is_quiet_gets_a_snapshot() -> None:
    states = States()
    states.begin()
    states.write(StateBatch(0, 0, 2, 1))
    states.perform(states.coordinator.expire(NOW.date_ms + 1))
    assert len(states.log) == 2
    states.perform(states.coordinator.expire(NOW.date_ms + 300_000))
    assert isinstance(states.records()[-1], StateSnapshot)
    states.perform(states.coordinator.expire(NOW.date_ms + 900_000))
    assert len(states.log) == 3, "it has not changed since"
    assert states.coordinator.needed_from() == {0: 2}
    states.skipped = 20_000
    states.perform(states.coordinator.expire(NOW.date_ms + 900_000))
    assert len(states.log) == 4, "older records may be deleted"
    assert states.coordinator.needed_from() == {0: 20_003}


def test_requests_for_a_state_wait_for_its_pending_append_and_a_failed_one_changes_nothing() -> None:
    states = States()
    states.begin()
    states.holds = True
    first = states.ask(states.writing(StateBatch(0, 0, 2, 1)))
    second = states.ask(states.writing(StateBatch(1, 1, 2, 1)))
    assert (len(states.held), states.answers[first], states.answers[second]) == (1, None, None)
    states.code = ErrorCode.NOT_ENOUGH_REPLICAS
    states.release()
    for ticket in (first, second):
        assert states.answers[ticket].results[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert states.coordinator.states[KEY].batches == []


@pytest.mark.parametrize("ends", ["resign", "close"])
def test_the_end_of_a_term_answers_requests(ends: str) -> None:
    states = States()
    states.begin()
    states.holds = True
    first = states.ask(states.writing(StateBatch(0, 0, 2, 1)))
    second = states.ask(states.writing(StateBatch(1, 1, 2, 1)))
    states.perform(states.coordinator.resign(0) if ends == "resign" else states.coordinator.close())
    assert states.answers[second].results[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    states.release()
    code = states.answers[first].results[0].partitions[0].error_code
    assert code == (ErrorCode.NOT_COORDINATOR if ends == "resign" else ErrorCode.NONE)
    expected = ErrorCode.NOT_COORDINATOR if ends == "resign" else ErrorCode.COORDINATOR_NOT_AVAILABLE
    states.holds = False
    assert states.write() == expected
