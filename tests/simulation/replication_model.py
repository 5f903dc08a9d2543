"""The replication of one partition as a model to be explored completely: three brokers, two records.

A `World` is one state: logs, roles and messages of the brokers, the tree of metadata, the controller. `World.moves`
has every step that may come next. Who leads, who is in sync, which records are committed, where a follower truncates:
all of that is decided by the product's own `replication/`, with the leader epochs of `log/files/`. The model adds the
network, the disks and what fails. `exploration.py` takes every move in every order.

Steps:

* A producer sends each record once, with acks=all, to a broker that believes it leads. It is refused while fewer than
  min.insync.replicas=2 are in sync.
* A follower asks, its leader answers, the follower takes the answer. `Travel` says which of these messages take time.
  An answer has one record at most. A follower asks only if the answer changes anything: a leader waits for news.
* A leader writes a change of the in-sync replicas, the tree takes it, the outcome arrives.
* The controller looks at sessions whenever it likes. It learns of a change by a leader when it writes over it. Its
  orders wait for each broker. It works on one event at a time, as the product's does.

Faults, which are counted: a broker crashes (its log stays, or without what it had not synced; its checkpoint has a high
watermark of 0), shuts down, or loses its session while it lives; the power of all brokers fails at once; a follower
does not catch up for replica.lag.time.max.ms; a leader loses its connection to the tree, and its write arrives later or
never; the preferred leader is elected; another controller takes over, with the orders of the last one sent or not.

Left out: several partitions, retention, retries of producers, changes of the assignment, what happens within one event
of the controller. Times are recent, or longer ago than replica.lag.time.max.ms; waiting times of retries do not count.
Elections prefer the first replica that is assigned, so brokers are not interchangeable.
"""

from __future__ import annotations

import copy
import enum
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication import controller as effects
from magicbyte.engine.replication import truncation
from magicbyte.engine.replication.controller import Controller, Effect
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.fetcher import (
    Answered,
    Append,
    AskEpochs,
    AskOffsets,
    Fetch,
    Fetcher,
    FetchFrom,
    Truncate,
)
from magicbyte.engine.replication.leader import IsrChange, LeaderPartition
from magicbyte.engine.replication.state import KnownState, PartitionOrder, PartitionState
from magicbyte.engine.replication.truncation import EpochEnd
from magicbyte.engine.sentinels import NO_BROKER, NO_EPOCH
from magicbyte.server.apis.fetch import epoch_fault

KEY: Final = TopicPartition("t", 0)
BROKERS: Final = (1, 2, 3)
RECORDS: Final = ("a", "b")
MIN_ISR: Final = 2
NOW_MS, MAX_LAG_MS = 0, 1
LONG_AGO_MS: Final = NOW_MS - MAX_LAG_MS - 1


class BrokenError(Exception):
    """A promise does not hold in a state."""


class Protocol(NamedTuple):
    """What followers do by `inter.broker.protocol.version`.

    `has_epochs`: they ask for the end of a leader epoch, and name their leader epoch in a fetch (KIP-101, 320);
    `compares_epochs`: the answer to a fetch says where the logs diverge (KIP-595).
    """

    has_epochs: bool
    compares_epochs: bool


PROTOCOLS: Final = {
    "0.10.2": Protocol(has_epochs=False, compares_epochs=False),
    "2.6": Protocol(has_epochs=True, compares_epochs=False),
    "2.8": Protocol(has_epochs=True, compares_epochs=True),
}


class Flush(enum.Enum):
    """When a log is synced, and with that what a power failure may take."""

    NEVER = "never"
    """By default the operating system writes what it likes when it likes."""
    LEADER = "by the leader"
    """The leader syncs a record before it counts for the high watermark. Followers do not sync."""
    ALL = "by each replica"
    """Group commit: leaders send what they synced, followers sync before they fetch, brokers before they lead."""


# ---- a broker


class Record(NamedTuple):
    """A record: the epoch of the leader that appended it, and its value."""

    epoch: int
    value: str


@dataclass(slots=True)
class Log:
    """A replica's log, its records by offset. `synced`: a power failure takes nothing before it."""

    has_epochs: bool
    records: tuple[Record, ...] = ()
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    high_watermark: int = 0
    synced: int = 0
    log_start_offset: int = 0

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.entries[-1].epoch if self.epochs.entries else NO_EPOCH

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epochs.end_offset_of(epoch, self.log_end_offset))

    def epoch_after(self, epoch: int) -> int:
        return next((each.epoch for each in self.epochs.entries if each.epoch > epoch), NO_EPOCH)

    def append(self, epoch: int, value: str) -> None:
        self.begin(epoch)
        self.records = (*self.records, Record(epoch, value))

    def begin(self, epoch: int) -> None:
        """Note that a leader epoch begins at the end of the log."""
        if self.has_epochs:
            self.epochs.assign(epoch, self.log_end_offset)

    def truncate(self, offset: int) -> None:
        self.records = self.records[:offset]
        self.epochs.truncate_end(offset)
        self.high_watermark, self.synced = min(self.high_watermark, offset), min(self.synced, offset)

    def twin(self) -> Log:
        epochs = LeaderEpochs()
        epochs.entries = self.epochs.entries.copy()
        return Log(self.has_epochs, self.records, epochs, self.high_watermark, self.synced)


class Request(NamedTuple):
    """A follower's request, on its way to a leader. `epoch`: the leader epoch of the follower."""

    step: AskEpochs | AskOffsets | Fetch
    epoch: int


class Answer(NamedTuple):
    """A leader's answer, on its way to a follower."""

    step: AskEpochs | AskOffsets | Fetch
    content: Any
    record: Record | None = None


class IsrWrite(NamedTuple):
    """A change of the in-sync replicas. `outcome`: the version in the tree, on its way back, None before that."""

    change: IsrChange
    outcome: int | None = None


REFUSED: Final = -1


@dataclass(slots=True)
class Broker:
    """A broker: its log and its role. A crash leaves the log alone.

    `requests`: to and from each leader. `orders`: of the controller, not taken yet. `waits`: the offsets after records
    whose producers wait.
    """

    log: Log
    is_up: bool = True
    epoch: int = NO_EPOCH
    leader: LeaderPartition | None = None
    follows: int = NO_BROKER
    fetcher: Fetcher | None = None
    requests: dict[int, Request | Answer] = field(default_factory=dict)
    orders: tuple[PartitionOrder, ...] = ()
    isr_write: IsrWrite | None = None
    waits: tuple[int, ...] = ()
    flat: Flat | None = field(default=None, repr=False)

    def twin(self) -> Broker:
        """Return a copy that may be changed."""
        broker = Broker(
            self.log.twin(),
            self.is_up,
            self.epoch,
            None,
            self.follows,
            None,
            self.requests.copy(),
            self.orders,
            self.isr_write,
            self.waits,
        )
        if self.leader is not None:
            broker.leader = _twin(self.leader)
        if self.fetcher is not None:
            broker.fetcher = _twin(self.fetcher, broker.log)
        return broker


def _twin(decider: Any, log: Log | None = None) -> Any:
    """Return a copy of an object of replication/ with its own followers, or followed partitions."""
    twin = object.__new__(type(decider))
    for name, value in vars(decider).items():
        content = value
        if isinstance(value, dict):
            content = {key: copy.copy(each) for key, each in value.items()}
            if log is not None:
                for followed in content.values():
                    followed.log, followed.not_before_ms, followed.refusals, followed.committed = log, None, 0, None
        setattr(twin, name, content)
    return twin


_EPOCHS: Final = frozenset({"epoch", "leader_epoch", "known_epoch", "last_epoch", "controller_epoch"})
_VERSIONS: Final = frozenset({"version", "expected_version", "outcome"})


_VALUES: Final = frozenset(
    {PartitionState, PartitionOrder, IsrChange, Fetch, AskEpochs, AskOffsets, FetchFrom, Answered}
)
_KNOWN: Final[dict[Any, Flat]] = {}
"""The flat form of immutable objects, which are the same in many states."""


class Flat:
    """An object as a flat list of numbers and texts, and where in it leader epochs and versions are.

    Of epochs and versions only the order matters, and whether one follows the other: `renumbered` forgets the rest.
    """

    def __init__(self) -> None:
        self.values: list[int | str | None] = []
        self.epochs: list[int] = []
        self.versions: list[int] = []
        self.has_log = False

    def add(self, value: Any, name: str = "") -> Flat:
        """Add an object. `name` is that of the attribute that has it."""
        kind = type(value)
        if kind is int:
            if name in _EPOCHS:
                self.epochs.append(len(self.values))
            elif name in _VERSIONS:
                self.versions.append(len(self.values))
            self.values.append(value)
        elif value is None or kind is str or kind is bool:
            self.values.append(value)
        elif kind in _VALUES:
            if (known := _KNOWN.get(value)) is None:
                known = _KNOWN[value] = Flat().add_fields(value, value.__slots__)
            self.extend(known)
        elif kind is Log:
            if not self.has_log:  # the followed log is the broker's
                self.has_log = True
                self.add_fields(value, ("records", "high_watermark", "synced")).add(value.epochs.entries)
        elif isinstance(value, tuple) and kind is not tuple:
            self.add_fields(value, kind.__match_args__)
        elif kind is tuple or kind is list:
            self.values.append(len(value))
            for each in value:
                self.add(each)
        elif kind is dict:
            self.values.append(len(value))
            for key, each in sorted(value.items()):
                self.add(key)
                self.add(each)
        elif isinstance(value, int):  # an error code
            self.values.append(int(value))
        else:
            self.add_fields(value, value.__slots__ if hasattr(value, "__slots__") else vars(value))
        return self

    def add_fields(self, value: Any, names: Iterable[str]) -> Flat:
        """Add attributes of an object."""
        for name in names:
            self.add(getattr(value, name), name)
        return self

    def extend(self, other: Flat) -> None:
        """Add what another one has."""
        shift = len(self.values)
        self.values += other.values
        self.epochs += [shift + each for each in other.epochs]
        self.versions += [shift + each for each in other.versions]

    def renumbered(self) -> tuple[int | str | None, ...]:
        """Return the values, with the smallest epochs and versions that have the same order."""
        values: list[Any] = self.values
        for positions in (self.epochs, self.versions):
            ranks, before, rank = {-1: -1}, -1, -1
            for number in sorted({values[at] for at in positions}):
                if number >= 0:
                    rank += min(number - before, 2)
                    ranks[number], before = rank, number
            for at in positions:
                values[at] = ranks[values[at]]
        return tuple(values)


# ---- the world


FAULTS: Final = (
    "crash", "shut_down", "lose_session", "be_late", "lose_tree", "elect_preferred", "replace_controller", "fail_power",
)  # fmt: skip
"""The methods of `World` that are counted as faults."""


class Travel(enum.Enum):
    """Which messages between a follower and its leader take time: others are there at once, or are lost."""

    NONE = "none"
    ANSWERS = "answers"
    REQUESTS = "requests and answers"
    """A leader may answer long after a follower asked, who may have crashed meanwhile."""


class Settings(NamedTuple):
    """What is explored. `loses_power`: a broker that crashes may lose what it did not sync."""

    protocol: Protocol
    flush: Flush = Flush.NEVER
    loses_power: bool = False
    travel: Travel = Travel.ANSWERS
    records: int = len(RECORDS)
    faults: frozenset[str] = frozenset(FAULTS)


class Move(NamedTuple):
    """A step that may come next: a method of `World`, and what it is called with."""

    step: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Whether it is counted."""
        return self.step.__name__ in FAULTS

    def after(self, world: World) -> World:
        """Return the world after this move."""
        after = world.twin()
        self.step(after, *self.arguments)
        return after


class World:
    """One state of everything. It is not changed once it was explored: each move changes a copy.

    `committed`: the values that a leader let consumers read, by offset; of `acknowledged` ones producers know.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.known_key: tuple[int | str | None, ...] | None = None
        self.state, self.version = PartitionState(1, 0, BROKERS, 1), 0
        self.sessions = dict.fromkeys(BROKERS, 1)
        self.ended_sessions = 0
        self.produced = 0
        self.committed: tuple[str, ...] = ()
        self.acknowledged: frozenset[int] = frozenset()
        self.late_writes: frozenset[IsrChange] = frozenset()
        log = Log(settings.protocol.has_epochs)
        self.brokers = {broker_id: Broker(log.twin()) for broker_id in BROKERS}
        self.controller = Controller(1, self.sessions, {KEY: BROKERS}, {KEY: KnownState(self.state, self.version)})
        self._perform(self.controller.start())
        for broker_id in BROKERS:
            self.take_order(broker_id)

    def twin(self) -> World:
        """Return a copy: `own` and `own_controller` copy what of it may be changed."""
        world = World.__new__(World)
        vars(world).update(vars(self))
        world.brokers, world.known_key = dict(self.brokers), None
        return world

    def own(self, broker_id: int) -> Broker:
        """Return a broker of this world that no other world has."""
        broker = self.brokers[broker_id] = self.brokers[broker_id].twin()
        return broker

    def own_controller(self) -> Controller:
        """Return a controller that no other world has."""
        controller = copy.copy(self.controller)
        for name, value in vars(controller).items():
            if isinstance(value, dict | set):
                setattr(controller, name, copy.copy(value))
        self.controller = controller
        return controller

    @property
    def key(self) -> tuple[int | str | None, ...]:
        """The state as a value, of numbers and texts only. States with the same key have the same future."""
        if self.known_key is None:
            self.known_key = self._flat().renumbered()
        return self.known_key

    def _flat(self) -> Flat:
        controller, key = self.controller, Flat()
        for broker in self.brokers.values():
            if broker.flat is None:
                broker.flat = Flat().add(broker)
            key.extend(broker.flat)
        key.add(self.state).add(self.version, "version")
        key.add(self.produced).add(self.committed).add(sorted(self.acknowledged)).add(sorted(self.late_writes, key=str))
        for broker_id in BROKERS:
            session, seen = self.sessions.get(broker_id), controller.brokers.get(broker_id)
            key.add((session is None, seen is None, session == seen))
        key.add(controller.states[KEY]).add(controller.epoch, "controller_epoch")
        key.add(sorted(controller.shutting_down)).add(len(vars(controller)["_refused"]))
        return key

    # ---- what must hold

    def judge(self) -> None:
        """Raise BrokenError unless all promises hold in this state.

        1. The broker that leads by the tree has every acknowledged record, and every record that a consumer has read.
        2. Two replicas are equal below both of their high watermarks.

        Steps check more: a high watermark does not fall, consumers never read two records at one offset, no record is
        acknowledged with fewer than min.insync.replicas, a leader is in sync, leader epochs do not fall.
        """
        for broker_id, broker in self.brokers.items():
            log = broker.log
            if broker.leader is not None and broker.epoch == self.state.leader_epoch:
                for offset, value in enumerate(self.committed):
                    if not _has(log, offset, value):
                        what = "was acknowledged" if offset in self.acknowledged else "was read by a consumer"
                        has = f"broker {broker_id} leads with {_listed(log.records)}"
                        raise BrokenError(f"record {value!r}, offset {offset}, {what}; {has}")
        for one, other in ((1, 2), (1, 3), (2, 3)):
            log, second = self.brokers[one].log, self.brokers[other].log
            both = min(log.high_watermark, second.high_watermark)
            if log.records[:both] != second.records[:both]:
                raise BrokenError(
                    f"below their high watermarks, up to offset {both}, "
                    f"broker {one} has {_listed(log.records[:both])}, broker {other} {_listed(second.records[:both])}"
                )

    def judge_in_sync(self) -> None:
        """Raise BrokenError unless each replica that is in sync by the tree has every committed record.

        Any of them may be elected next, so this promise breaks before those of `judge` do.
        """
        for broker_id in self.state.isr:
            log = self.brokers[broker_id].log
            for offset, value in enumerate(self.committed):
                if not _has(log, offset, value):
                    raise BrokenError(f"broker {broker_id} is in sync without record {value!r}, offset {offset}")

    # ---- the moves

    def moves(self, faults: Collection[str]) -> Iterator[Move]:
        """Yield every step that may come next, with these faults."""
        return (move for move in self._moves() if not move.is_fault or move.step.__name__ in faults)

    def _moves(self) -> Iterator[Move]:
        for broker_id, broker in self.brokers.items():
            if not broker.is_up:
                yield Move(World.start, (broker_id,))
                continue
            if broker.orders:
                yield Move(World.take_order, (broker_id,))
            if broker.leader is not None:
                yield from self._moves_of_leader(broker_id, broker, broker.leader)
            yield from self._moves_of_follower(broker_id, broker)
            yield from self._crashes(broker_id, broker)
        yield from self._moves_of_tree()
        if self.settings.loses_power:
            behind = [each for each, it in self.brokers.items() if it.log.synced < it.log.log_end_offset]
            for count in range(len(behind) + 1):
                for losers in itertools.combinations(behind, count):
                    yield Move(World.fail_power, (losers,))

    def _moves_of_leader(self, broker_id: int, broker: Broker, leader: LeaderPartition) -> Iterator[Move]:
        if self.produced < self.settings.records and len(leader.state.isr) >= MIN_ISR:
            yield Move(World.produce, (broker_id,))
        if self.settings.flush is not Flush.NEVER and broker.log.synced < broker.log.log_end_offset:
            yield Move(World.sync, (broker_id,))
        if broker.isr_write is not None:
            yield Move(World.write_isr if broker.isr_write.outcome is None else World.hear_of_isr, (broker_id,))
            yield Move(World.lose_tree, (broker_id,))
            return
        for follower_id, follower in leader.followers.items():
            is_behind = follower.log_end_offset < leader.log_end_offset
            if is_behind and follower_id in leader.state.isr:
                yield Move(World.be_late, (broker_id, follower_id))
        if vars(leader)["_is_unsettled"]:
            yield Move(World.write_isr_again, (broker_id,))

    def _moves_of_follower(self, broker_id: int, broker: Broker) -> Iterator[Move]:
        """Yield what a follower does, unless it changes nothing: a leader waits with an answer until it has news."""
        for leader_id, request in broker.requests.items():
            if isinstance(request, Answer):
                yield Move(World.take_answer, (broker_id, leader_id))
                yield Move(World.lose_answer, (broker_id, leader_id))
            elif self.brokers[leader_id].is_up:
                yield Move(World.answer, (leader_id, broker_id))
        if broker.fetcher is None or broker.follows in broker.requests or not self.brokers[broker.follows].is_up:
            return
        if not isinstance(broker.fetcher.next(NOW_MS), AskEpochs | AskOffsets | Fetch):
            return
        if self.settings.travel is Travel.NONE:
            yield Move(World.ask_and_take, (broker_id,))
        elif Move(World.ask_and_take, (broker_id,)).after(self).key != self.key:
            yield Move(World.ask_and_answer if self.settings.travel is Travel.ANSWERS else World.ask, (broker_id,))

    def _moves_of_tree(self) -> Iterator[Move]:
        controller = self.controller
        for change in sorted(self.late_writes, key=str):
            yield Move(World.write_isr_late, (change,))
        if controller.brokers != self.sessions:
            yield Move(World.see_brokers)
        if controller.need_of(ElectionType.PREFERRED, KEY) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            yield Move(World.elect_preferred)
        yield Move(World.replace_controller, (False,))
        if any(broker.orders for broker in self.brokers.values()):
            yield Move(World.replace_controller, (True,))

    def _crashes(self, broker_id: int, broker: Broker) -> Iterator[Move]:
        log, end = broker.log, broker.log.log_end_offset
        for cut in range(log.synced if self.settings.loses_power else end, end + 1):
            yield Move(World.crash, (broker_id, cut))
        if broker_id in self.sessions:
            yield Move(World.lose_session, (broker_id,))
            if broker_id == self.state.leader and self.controller.brokers == self.sessions:
                yield Move(World.shut_down, (broker_id,))

    # ---- producers and leaders

    def produce(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.leader is not None
        broker.log.append(broker.leader.state.leader_epoch, RECORDS[self.produced])
        self.produced += 1
        broker.waits = (*broker.waits, broker.log.log_end_offset)
        if self.settings.flush is Flush.NEVER:
            broker.leader.appended(broker.log.log_end_offset, NOW_MS)
            self._publish(broker)

    def sync(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.leader is not None
        broker.log.synced = broker.log.log_end_offset
        broker.leader.appended(broker.log.synced, NOW_MS)
        self._publish(broker)

    def _publish(self, broker: Broker) -> None:
        """Let consumers read up to the leader's high watermark, and answer producers."""
        leader, log = broker.leader, broker.log
        assert leader is not None
        if leader.high_watermark < log.high_watermark:
            raise BrokenError(f"the high watermark falls from {log.high_watermark} to {leader.high_watermark}")
        if leader.high_watermark > log.log_end_offset:
            raise BrokenError(f"the high watermark is {leader.high_watermark}, the log ends at {log.log_end_offset}")
        for offset in range(log.high_watermark, leader.high_watermark):
            value = log.records[offset].value
            if offset >= len(self.committed):
                self.committed = (*self.committed, value)
            elif self.committed[offset] != value:
                raise BrokenError(f"consumers read {self.committed[offset]!r} and {value!r} at offset {offset}")
        log.high_watermark = leader.high_watermark
        for end in broker.waits:
            code = leader.acknowledgement(end, MIN_ISR)
            if code is None:
                continue
            broker.waits = tuple(each for each in broker.waits if each != end)
            if code is ErrorCode.NONE:
                self._acknowledge(leader, end - 1)

    def _acknowledge(self, leader: LeaderPartition, offset: int) -> None:
        if len(leader.state.isr) < MIN_ISR:
            raise BrokenError(f"offset {offset} is acknowledged with in-sync replicas {list(leader.state.isr)}")
        self.acknowledged |= {offset}

    def _change_isr(self, broker: Broker, change: IsrChange | None) -> None:
        if change is not None and broker.isr_write is None:
            broker.isr_write = IsrWrite(change)

    def be_late(self, broker_id: int, follower_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.leader is not None
        follower = broker.leader.followers[follower_id]
        follower.caught_up_ms = follower.last_fetch_ms = LONG_AGO_MS
        self._change_isr(broker, broker.leader.shrinking(NOW_MS))

    def write_isr_again(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.leader is not None
        self._change_isr(broker, broker.leader.shrinking(NOW_MS))

    def hear_of_isr(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.isr_write is not None
        (change, outcome), broker.isr_write = broker.isr_write, None
        if (leader := broker.leader) is None or outcome is None:
            return
        if outcome == REFUSED:
            leader.isr_refused(change, self.state, self.version, NOW_MS)
        else:
            leader.isr_written(change, outcome, NOW_MS)
        self._publish(broker)

    def lose_tree(self, broker_id: int) -> None:
        """The connection is gone: what was on its way to the tree may arrive later, or never."""
        broker = self.own(broker_id)
        assert broker.isr_write is not None
        (change, outcome), broker.isr_write = broker.isr_write, None
        if outcome is None:
            self.late_writes |= {change}
        if broker.leader is not None:
            broker.leader.isr_failed(change)

    # ---- followers

    def ask(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.fetcher is not None
        step = broker.fetcher.next(NOW_MS)
        if self.settings.flush is Flush.ALL:
            broker.log.synced = broker.log.log_end_offset
        broker.requests[broker.follows] = Request(step, broker.epoch)

    def answer(self, leader_id: int, follower_id: int) -> None:
        """A leader answers; what a fetch asks for, the follower has."""
        follower, broker = self.own(follower_id), self.brokers[leader_id]
        request = follower.requests.pop(leader_id)
        assert isinstance(request, Request)
        step, log, record = request.step, broker.log, None
        known = request.epoch if self.settings.protocol.has_epochs else NO_EPOCH
        error = epoch_fault(known, broker.epoch)
        if not error and broker.leader is None:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        content: Any
        match step:
            case AskEpochs():
                content = error, EpochEnd(-1, -1) if error else log.end_of_epoch(step.questions[0].epoch)
            case AskOffsets():
                content = error, log.log_start_offset, log.log_end_offset
            case Fetch():
                asked, diverging = step.partitions[0], None
                if not error and self.settings.protocol.compares_epochs and asked.last_epoch >= 0:
                    diverging = truncation.diverging(asked.last_epoch, asked.offset, log.end_of_epoch(asked.last_epoch))
                if not error and diverging is None and asked.offset > log.log_end_offset:
                    error = ErrorCode.OFFSET_OUT_OF_RANGE
                if not error and diverging is None:
                    self._fetched(leader_id, follower_id, asked.offset)
                    broker = self.brokers[leader_id]
                    end = log.synced if self.settings.flush is Flush.ALL else log.log_end_offset
                    record = next(iter(log.records[asked.offset : end]), None)
                content = Answered(error, broker.log.high_watermark, log.log_start_offset, diverging)
        if follower.is_up:
            follower.requests[leader_id] = Answer(step, content, record)

    def _fetched(self, leader_id: int, follower_id: int, offset: int) -> None:
        broker = self.own(leader_id)
        assert broker.leader is not None
        broker.leader.fetched(follower_id, offset, 0, NOW_MS)
        self._change_isr(broker, broker.leader.expansion(follower_id))
        self._publish(broker)

    def ask_and_answer(self, broker_id: int) -> None:
        leader_id = self.brokers[broker_id].follows
        self.ask(broker_id)
        self.answer(leader_id, broker_id)

    def ask_and_take(self, broker_id: int) -> None:
        leader_id = self.brokers[broker_id].follows
        self.ask_and_answer(broker_id)
        self.take_answer(broker_id, leader_id)

    def lose_answer(self, broker_id: int, leader_id: int) -> None:
        broker = self.own(broker_id)
        answer = broker.requests.pop(leader_id)
        if broker.fetcher is not None and broker.follows == leader_id:
            broker.fetcher.failed(answer.step, NOW_MS)

    def take_answer(self, broker_id: int, leader_id: int) -> None:
        broker = self.own(broker_id)
        answer, fetcher, log = broker.requests.pop(leader_id), broker.fetcher, broker.log
        if fetcher is None or broker.follows != leader_id:
            return
        assert isinstance(answer, Answer)
        step, content = answer.step, answer.content
        cuts: Iterable[Truncate] = ()
        match step:
            case AskEpochs():
                cuts = fetcher.epochs_answered(step, {KEY: content}, NOW_MS)
            case AskOffsets():
                cuts = fetcher.offsets_answered(step, {KEY: content}, NOW_MS)
            case Fetch():
                done = fetcher.fetched(step.partitions[0], content, NOW_MS)
                if isinstance(done, Truncate):
                    cuts = (done,)
                elif isinstance(done, Append):
                    if answer.record is not None:
                        log.append(*answer.record)
                    log.high_watermark = max(log.high_watermark, min(done.high_watermark, log.log_end_offset))
        for cut in cuts:
            log.truncate(cut.offset)
        if KEY not in fetcher.partitions:  # fenced: it waits for the controller
            broker.fetcher = None

    # ---- the tree

    def _put(self, state: PartitionState) -> None:
        if state.leader not in (NO_BROKER, *state.isr) or not state.isr:
            raise BrokenError(f"broker {state.leader} leads, in-sync replicas are {list(state.isr)}")
        if state.leader_epoch < self.state.leader_epoch:
            raise BrokenError(f"leader epoch {state.leader_epoch} comes after {self.state.leader_epoch}")
        self.state, self.version = state, self.version + 1

    def write_isr(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        assert broker.isr_write is not None
        change, outcome = broker.isr_write.change, REFUSED
        if change.expected_version == self.version:
            self._put(change.state)
            outcome = self.version
        broker.isr_write = IsrWrite(change, outcome)

    def write_isr_late(self, change: IsrChange) -> None:
        self.late_writes -= {change}
        if change.expected_version == self.version:
            self._put(change.state)

    # ---- the controller, and its orders

    def see_brokers(self) -> None:
        controller = self.own_controller()
        self._perform(controller.brokers_changed(self.sessions))

    def elect_preferred(self) -> None:
        controller = self.own_controller()
        self._perform(controller.elect(ElectionType.PREFERRED, [KEY]))

    def replace_controller(self, orders_are_lost: bool) -> None:
        if orders_are_lost:
            for broker_id, broker in self.brokers.items():
                if broker.orders:
                    self.own(broker_id).orders = ()
        known = {KEY: KnownState(self.state, self.version)}
        self.controller = Controller(self.controller.epoch + 1, self.sessions, {KEY: BROKERS}, known)
        self._perform(self.controller.start())

    def _perform(self, performed: Iterable[Effect]) -> None:
        for effect in performed:
            match effect:
                case effects.WriteStates((change,)):
                    written, refused = dict[TopicPartition, KnownState](), list[TopicPartition]()
                    if change.expected_version == self.version:
                        self._put(change.state)
                        written[KEY] = KnownState(self.state, self.version)
                    else:
                        refused.append(KEY)
                    self._perform(self.controller.states_written(written, refused))
                case effects.ReadStates():
                    self._perform(self.controller.states_read({KEY: KnownState(self.state, self.version)}))
                case effects.LeaderAndIsr(broker_id, (order,)):
                    self._send(broker_id, order)

    def _send(self, broker_id: int, order: PartitionOrder) -> None:
        """Send an order, unless the broker is down, or would ignore it: it knows this leader epoch."""
        broker = self.brokers[broker_id]
        known = max([broker.epoch, *(each.state.leader_epoch for each in broker.orders)])
        if broker.is_up and order.state.leader_epoch > known:
            self.own(broker_id).orders += (order,)

    def take_order(self, broker_id: int) -> None:
        """Lead or follow, as `Replicas.take_orders` does."""
        broker = self.own(broker_id)
        order, broker.orders = broker.orders[0], broker.orders[1:]
        state = order.state
        if state.leader_epoch <= broker.epoch:
            return
        before, fetcher = broker.follows, broker.fetcher
        known_epoch = NO_EPOCH if fetcher is None else fetcher.known_epoch(KEY)
        followed_epoch = NO_EPOCH if fetcher is None else fetcher.forget(KEY)
        broker.epoch, broker.follows, broker.fetcher = state.leader_epoch, NO_BROKER, None
        if state.leader == broker_id:
            self._lead(broker_id, broker, order)
            return
        broker.leader, broker.isr_write, broker.waits = None, None, ()
        if state.leader == NO_BROKER:
            return
        protocol = self.settings.protocol
        broker.follows = state.leader
        broker.fetcher = Fetcher(asks_epochs=protocol.has_epochs, compares_epochs=protocol.compares_epochs)
        since = followed_epoch if before == state.leader else NO_EPOCH
        cuts = broker.fetcher.follow(KEY, broker.log, state.leader_epoch, followed_epoch=since, known_epoch=known_epoch)
        for cut in cuts:
            broker.log.truncate(cut.offset)
        broker.fetcher.was_cut(KEY, state.leader_epoch)

    def _lead(self, broker_id: int, broker: Broker, order: PartitionOrder) -> None:
        log = broker.log
        if self.settings.flush is Flush.ALL:
            log.synced = log.log_end_offset
        log.begin(order.state.leader_epoch)
        if broker.leader is not None:
            broker.leader.renew(order.state, order.replicas, order.version, NOW_MS)
        else:
            broker.leader = LeaderPartition(
                broker_id,
                order.state,
                order.replicas,
                order.version,
                log_end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
                now_ms=NOW_MS,
                max_lag_ms=MAX_LAG_MS,
            )
        self._publish(broker)

    # ---- crashes and sessions

    def crash(self, broker_id: int, cut: int) -> None:
        log = self.own(broker_id).log
        lost_power = cut < log.log_end_offset
        log.truncate(cut)
        log.high_watermark = 0
        if lost_power:
            log.synced = cut  # the rest is on the disk
        asked = {leader: each for leader, each in self.brokers[broker_id].requests.items() if isinstance(each, Request)}
        self.brokers[broker_id] = Broker(log, is_up=False, requests=asked)
        for other_id, other in self.brokers.items():
            if broker_id in other.requests:
                self._lose_request(other_id, broker_id)
        self.sessions = {each: session for each, session in self.sessions.items() if each != broker_id}

    def fail_power(self, losers: tuple[int, ...]) -> None:
        """Crash all brokers at once; some of them lose all that they had not synced."""
        for broker_id, broker in self.brokers.items():
            if broker.is_up or broker_id in losers:
                self.crash(broker_id, broker.log.synced if broker_id in losers else broker.log.log_end_offset)

    def _lose_request(self, broker_id: int, leader_id: int) -> None:
        if self.brokers[broker_id].is_up:
            self.lose_answer(broker_id, leader_id)
        else:
            del self.own(broker_id).requests[leader_id]

    def start(self, broker_id: int) -> None:
        broker = self.own(broker_id)
        broker.is_up = True
        broker.log.epochs.truncate_end(broker.log.log_end_offset)
        self._register(broker_id)

    def _register(self, broker_id: int) -> None:
        self.ended_sessions += 1
        self.sessions = dict(sorted({**self.sessions, broker_id: 1 + self.ended_sessions}.items()))

    def lose_session(self, broker_id: int) -> None:
        self._register(broker_id)

    def shut_down(self, broker_id: int) -> None:
        controller = self.own_controller()
        self._perform(controller.shut_down(broker_id))
        end = self.brokers[broker_id].log.log_end_offset
        self.crash(broker_id, end)


def _listed(records: tuple[Record, ...]) -> str:
    return ", ".join(f"{value!r} of epoch {epoch}" for epoch, value in records) or "no record"


def _has(log: Log, offset: int, value: str) -> bool:
    return offset < log.log_end_offset and log.records[offset].value == value


# ---- traces in words


def in_words(move: Move, before: World) -> str:
    """Return what happens by a move."""
    step, broker_id = move.step.__name__, move.arguments[0] if move.arguments else None
    after = move.after(before)
    match step:
        case "produce":
            return f"broker {broker_id} appends record {RECORDS[before.produced]!r}"
        case "take_order":
            told = _state(before.brokers[broker_id].orders[0].state)
            return f"broker {broker_id} learns: {told}{_cut(before, after, broker_id)}"
        case "ask" | "ask_and_answer" | "ask_and_take":
            asked = before.twin()
            asked.ask_and_answer(broker_id)
            leader_id = before.brokers[broker_id].follows
            answer = asked.brokers[broker_id].requests[leader_id]
            words = f"broker {broker_id} asks broker {leader_id} {_asked(answer.step)}"
            taken = {"ask_and_answer": ", which is on its way", "ask_and_take": _cut(before, after, broker_id)}
            return words if step == "ask" else f"{words}: {_said(answer)}{taken[step]}"
        case "answer":
            return f"broker {broker_id} answers broker {move.arguments[1]}"
        case "take_answer":
            answer = before.brokers[broker_id].requests[move.arguments[1]]
            return f"broker {broker_id} takes the answer: {_said(answer)}{_cut(before, after, broker_id)}"
        case "lose_answer":
            return f"the answer of broker {move.arguments[1]} to broker {broker_id} is lost"
        case "be_late":
            return f"broker {move.arguments[1]} has not caught up for too long, in the view of broker {broker_id}"
        case "write_isr":
            isr = list(before.brokers[broker_id].isr_write.change.state.isr)
            what = "accepts" if after.version != before.version else "refuses"
            return f"the tree {what} in-sync replicas {isr} of broker {broker_id}"
        case "write_isr_late":
            return f"the tree receives the in-sync replicas {list(move.arguments[0].state.isr)} that were given up"
        case "crash":
            end = before.brokers[broker_id].log.log_end_offset
            lost = f" and loses its records from offset {move.arguments[1]} on" if move.arguments[1] < end else ""
            return f"broker {broker_id} crashes{lost}"
        case "fail_power":
            who = ", ".join(map(str, move.arguments[0]))
            return f"the power fails everywhere{f'; lost unsynced records: brokers {who}' if who else ''}"
        case "see_brokers" | "elect_preferred" | "replace_controller" | "shut_down":
            who = "" if broker_id is None or step == "replace_controller" else f"broker {broker_id} "
            decided = f": {_state(after.state)}" if after.state != before.state else ""
            return f"{who}{_PLAIN[step]}{decided}"
    return f"broker {broker_id} {_PLAIN[step]}"


_PLAIN: Final = {
    "start": "starts",
    "sync": "syncs its log",
    "hear_of_isr": "hears of its in-sync replicas",
    "write_isr_again": "writes its last in-sync replicas again",
    "lose_tree": "loses its connection to the tree while it writes in-sync replicas",
    "lose_session": "loses its session and opens another",
    "shut_down": "shuts down",
    "see_brokers": "the controller sees who is live",
    "elect_preferred": "the preferred leader is elected",
    "replace_controller": "another controller takes over",
}


def _cut(before: World, after: World, broker_id: int) -> str:
    end, now = before.brokers[broker_id].log.log_end_offset, after.brokers[broker_id].log.log_end_offset
    return f"; it truncates its log from offset {end} to {now}" if now < end else ""


def _state(state: PartitionState) -> str:
    who = "no broker leads" if state.leader == NO_BROKER else f"broker {state.leader} leads"
    return f"{who} in epoch {state.leader_epoch}, in sync {list(state.isr)}"


def _asked(step: AskEpochs | AskOffsets | Fetch) -> str:
    match step:
        case AskEpochs():
            return f"where epoch {step.questions[0].epoch} ends"
        case AskOffsets():
            return "where its log ends"
        case Fetch():
            return f"for offset {step.partitions[0].offset}"


def _said(answer: Answer) -> str:
    match answer.step:
        case AskEpochs():
            error, end = answer.content
            return error.name if error else f"epoch {end.epoch} ends at offset {end.end_offset}"
        case AskOffsets():
            error, _, end = answer.content
            return error.name if error else f"the log ends at offset {end}"
        case Fetch():
            found = answer.content
            if found.error:
                return str(found.error.name)
            if found.diverging is not None:
                return f"epoch {found.diverging.epoch} ends at offset {found.diverging.end_offset}"
            what = "no record" if answer.record is None else f"record {answer.record.value!r}"
            return f"{what}, high watermark {found.high_watermark}"
