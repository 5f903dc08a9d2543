"""Histories of a partition that a share group reads, in virtual time: one seed, one order of all that happens.

Members acquire records and acknowledge them late, twice or never. Leaders change while writes of the earlier one are
under way. The share coordinator loses appends and answers, and loads its log again. A ledger has the
answers to members: no record is acquired by two at once or delivered above its limit, and an acknowledged one is gone.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import Any

from msgspec import Struct, field

from magicbyte.engine.coordination.effects import Caller, Reply, Store, encoded
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialization
from magicbyte.engine.protocol.messages import read_share_group_state as reading
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.engine.sharing import records, share_coordinator, share_partition
from magicbyte.engine.sharing.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    DeliveryChange,
    LogBatch,
    RecordAcknowledgement,
    ShareRules,
    Wanted,
)
from magicbyte.engine.sharing.states import DeliveryState, StateBatch

TOPIC = uuid.UUID(int=7)
MEMBERS = "abc"
RULES = ShareRules(lock_ms=1_000, delivery_limit=4, most_in_flight=40)
RETRIABLE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Held(Struct):
    """A record that a member has acquired, until a deadline; `changing`: an acknowledgement of it is being stored."""

    member: str
    deadline_ms: int
    changing: bool = False


class PendingChange(Struct):
    """A change under way, and what a member has said: by offset a type, and the number of deliveries by then."""

    change: DeliveryChange
    said: dict[int, tuple[int, int]] = field(default_factory=dict)


class Leader(Struct, eq=False):
    """The records in flight at a leader, with the changes that are being stored in order."""

    epoch: int
    shared: Any
    changes: list[PendingChange] = field(default_factory=list)


class ShareHistory:
    """One history. `outcomes`: how often what was seen."""

    def __init__(self, seed: int, steps: int = 150) -> None:
        self.random, self.steps, self.now = random.Random(seed), steps, 0
        self.outcomes = Counter[str]()
        self.batches, self.log_end, self.log_start = list[LogBatch](), 0, 0
        self.stored = list[tuple[bytes, bytes | None]]()
        self.appends, self.answers = list[Store[Any]](), dict[int, Any]()
        self.is_lossy = False
        config = share_coordinator.ShareStateConfig(partitions=1, updates_per_snapshot=3)
        self.coordinator = share_coordinator.ShareCoordinator(config, lambda *_: True, lambda _: len(self.stored))
        self.owners, self.counts = dict[int, Held](), dict[int, int]()
        self.gone, self.released = set[int](), dict[int, int]()
        self._load()
        row = initialization.PartitionData(partition=0, state_epoch=1, start_offset=0)
        topic = initialization.InitializeStateData(topic_id=TOPIC, partitions=[row])
        asked = self._ask(initialization.InitializeShareGroupStateRequest(group_id="g", topics=[topic]))
        self._append_all()
        assert not self._row(asked).error_code
        self.old = list[Leader]()
        self.leader = self._lead(1)
        self.is_lossy = True

    # ---- the coordinator

    def _load(self) -> None:
        self._perform(self.coordinator.resign(0))
        loading = records.Loading()
        for offset, (key, value) in enumerate(self.stored):
            found = records.decode(key, value)
            assert found is not None
            loading.apply(*found, offset)
        term = self.coordinator.begin_loading(0, 0)
        self.coordinator.loaded(0, term, loading.finish(), self._moment())

    def _moment(self) -> Moment:
        return Moment(1_700_000_000_000 + self.now, self.now)

    def _perform(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers[effect.to.ticket] = effect.message  # type: ignore[index]
            elif isinstance(effect, Store):
                self.appends.append(effect)

    def _ask(self, message: Any) -> int:
        ticket = len(self.answers)
        self.answers[ticket] = None
        self._perform(self.coordinator.answer(Caller(ticket, 1), message, self._moment()))
        return ticket

    def _row(self, ticket: int) -> Any:
        return self.answers[ticket].results[0].partitions[0]

    def _append(self) -> None:
        if self.appends:
            store, code = self.appends.pop(0), ErrorCode.NONE
            if self.is_lossy and self.random.random() < 0.1:
                code = ErrorCode.NOT_ENOUGH_REPLICAS
            else:
                self.stored += [(key, encoded(value)) for key, value in store.records]
            self._perform(self.coordinator.stored(store, code, self._moment()))

    def _append_all(self) -> None:
        while self.appends:
            self._append()

    def _move_coordinator(self) -> None:
        """Another broker loads the log: some pending appends are in it, and none is answered."""
        appends, self.appends = self.appends, []
        for store in appends[: self.random.randrange(1 + len(appends))]:
            self.stored += [(key, encoded(value)) for key, value in store.records]
        self._load()
        for store in appends:
            self._perform(self.coordinator.stored(store, ErrorCode.NOT_LEADER_OR_FOLLOWER, self._moment()))
        self.outcomes["coordinator moved"] += 1

    # ---- leaders

    def _lead(self, epoch: int) -> Leader:
        """Read the stored state as the leader of an epoch, before which others may still store something."""
        row = reading.PartitionData(partition=0, leader_epoch=epoch)
        topic = reading.ReadStateData(topic_id=TOPIC, partitions=[row])
        while True:
            ticket = self._ask(reading.ReadShareGroupStateRequest(group_id="g", topics=[topic]))
            self._append_all()
            state = self._row(ticket)
            if not state.error_code:
                break
            assert state.error_code in RETRIABLE, state
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in state.state_batches
        ]
        shared = share_partition.SharePartition(state.start_offset, batches, RULES)
        shared.begin_at(self.log_start)
        self.owners.clear()
        available = [run for run in shared.runs if run.state is DeliveryState.AVAILABLE]
        self.counts = {offset: run.count for run in available for offset in range(run.first, run.last + 1)}
        for offset, count in self.counts.items():
            assert count >= self.released.get(offset, 0), f"a release of {offset} was answered, and is forgotten"
            assert offset not in self.gone, f"{offset} was acknowledged, and is available again"
        return Leader(epoch, shared)

    def _change_leader(self) -> None:
        self.old.append(self.leader)
        self.leader = self._lead(self.leader.epoch + 1)
        self.outcomes["leader changed"] += 1

    def _store(self, leader: Leader) -> None:
        """Store the first pending change of a leader, whose answer may get lost and is asked for again."""
        if not leader.changes:
            return
        pending = leader.changes[0]
        rows = [
            writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in pending.change.batches
        ]
        row = writing.PartitionData(
            partition=0, state_epoch=1, leader_epoch=leader.epoch, start_offset=pending.change.start,
            delivery_complete_count=pending.change.complete_count, state_batches=rows,
        )  # fmt: skip
        message = writing.WriteShareGroupStateRequest(
            group_id="g", topics=[writing.WriteStateData(topic_id=TOPIC, partitions=[row])]
        )
        ticket = self._ask(message)
        if self.is_lossy and self.random.random() < 0.1:
            self._move_coordinator()
        self._append_all()
        code = ErrorCode(self._row(ticket).error_code)
        if self.is_lossy and not code and self.random.random() < 0.1:
            return  # the answer is lost: the leader asks again
        if code in RETRIABLE and self.random.random() < 0.7:
            return
        leader.changes.pop(0)
        self._settle(leader, pending, code)

    def _settle(self, leader: Leader, pending: PendingChange, code: ErrorCode) -> None:
        """The leader tells the member how it came out."""
        if code:
            if pending.change.runs:
                leader.shared.roll_back(pending.change)
            for offset in pending.said if leader is self.leader else ():
                self.owners[offset].changing = False
            if code is ErrorCode.FENCED_LEADER_EPOCH:
                assert leader is not self.leader
                self.outcomes["fenced"] += 1
            return
        if pending.change.runs:
            leader.shared.commit(pending.change)
        for offset, (kind, count) in pending.said.items():
            if kind != RELEASE or count >= RULES.delivery_limit:
                self.gone.add(offset)
            else:
                self.released[offset] = count
            if leader is self.leader:
                del self.owners[offset]
        self.outcomes["acknowledged"] += len(pending.said)

    # ---- members

    def _fetch(self, member: str) -> None:
        leader = self.leader
        self._expire()
        leader.shared.begin_at(self.log_start)
        offset = leader.shared.next_offset()
        found = [] if offset is None else [each for each in self.batches if each.last >= offset]
        wanted = Wanted(self.random.randrange(1, 9), self.random.randrange(1, 6), is_strict=self.random.random() < 0.5)
        for run in leader.shared.acquire(member, found[:4], wanted, self.now, asked=offset):
            assert 0 < run.deliveries <= RULES.delivery_limit, "no record is delivered above its limit"
            for each in range(run.first, run.last + 1):
                assert each not in self.owners, f"{each} is acquired by two members"
                assert each not in self.gone, f"{each} was acknowledged"
                assert run.deliveries == self.counts.get(each, 0) + 1 or each < self.log_start, "a delivery is counted"
                assert not any(batch.is_aborted and batch.first <= each <= batch.last for batch in self.batches)
                self.counts[each] = run.deliveries
                if each >= self.log_start:
                    self.owners[each] = Held(member, self.now + RULES.lock_ms)
            self.outcomes["delivered"] += run.last - run.first + 1

    def _acknowledge(self) -> None:
        """A member acknowledges records in a row, of which it may have lost some by now."""
        if not self.owners:
            return
        first = last = self.random.choice(sorted(self.owners))
        member = self.owners[first].member if self.random.random() < 0.9 else self.random.choice(MEMBERS)
        while last + 1 in self.owners and self.random.random() < 0.7:
            last += 1
        self._expire()
        offsets = range(first, last + 1)
        kinds = [self.random.choice((GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT)) for _ in offsets]
        is_theirs = all(
            (held := self.owners.get(each)) is not None and held.member == member and not held.changing
            for each in offsets
        )
        change = self.leader.shared.acknowledge(member, [RecordAcknowledgement(first, last, kinds)], self.now)
        assert isinstance(change, DeliveryChange) == is_theirs, f"{member} {first}-{last}: {change}"
        if isinstance(change, DeliveryChange):
            said = {each: (kind, self.counts[each]) for each, kind in zip(offsets, kinds, strict=True)}
            self.leader.changes.append(PendingChange(change, said))
            for each in offsets:
                self.owners[each].changing = True
        else:
            self.outcomes["refused"] += 1

    def _expire(self) -> None:
        self._ended(self.leader.shared.expire(self.now))
        self.owners = {
            offset: held for offset, held in self.owners.items() if held.changing or held.deadline_ms > self.now
        }

    def _leave(self, member: str) -> None:
        self._expire()
        self._ended(self.leader.shared.release(member))
        self.owners = {offset: held for offset, held in self.owners.items() if held.changing or held.member != member}
        self.outcomes["left"] += 1

    def _ended(self, change: DeliveryChange | None) -> None:
        if change is not None:
            change.runs = []
            self.leader.changes.append(PendingChange(change))

    # ---- the log

    def _produce(self) -> None:
        size = self.random.randrange(1, 6)
        self.batches.append(LogBatch(self.log_end, self.log_end + size - 1, self.random.random() < 0.15))
        self.log_end += size

    def _delete_records(self) -> None:
        if self.log_end - self.log_start > 30:
            self.log_start += self.random.randrange(4)
            self.batches = [each for each in self.batches if each.last >= self.log_start]
            self.leader.shared.begin_at(self.log_start)

    # ---- the whole

    def run(self) -> None:
        """Run all steps, and then let one member accept the rest. Raises AssertionError."""
        for _ in range(self.steps):
            self._step()
        self._drain()

    def _step(self) -> None:
        kind = self.random.random()
        if kind < 0.12:
            self._produce()
        elif kind < 0.4:
            self._fetch(self.random.choice(MEMBERS))
        elif kind < 0.6:
            self._acknowledge()
        elif kind < 0.8:
            self._store(self.random.choice([self.leader, self.leader, *self.old]))
        elif kind < 0.9:
            self.now += self.random.choice((1, 100, 400, 1_000))
            self._expire()
        elif kind < 0.94:
            self._leave(self.random.choice(MEMBERS))
        elif kind < 0.96:
            self._delete_records()
        elif kind < 0.98:
            self._move_coordinator()
        else:
            self._change_leader()

    def _drain(self) -> None:
        self.is_lossy = False
        for _ in range(40 + 4 * (self.log_end + RULES.delivery_limit)):
            for leader in (*self.old, self.leader):
                while leader.changes:
                    self._store(leader)
            if self.leader.shared.start == self.log_end:
                break
            self.now += RULES.lock_ms
            self._fetch("a")
            if self.owners:
                first = min(self.owners)
                last = first
                while last + 1 in self.owners:
                    last += 1
                change = self.leader.shared.acknowledge("a", [RecordAcknowledgement(first, last, (ACCEPT,))], self.now)
                assert isinstance(change, DeliveryChange), change
                said = dict.fromkeys(range(first, last + 1), (ACCEPT, 1))
                self.leader.changes.append(PendingChange(change, said))
        assert self.leader.shared.start == self.leader.shared.end == self.log_end, "the group reaches the end"
        self._load()
        self._lead(self.leader.epoch + 1)
