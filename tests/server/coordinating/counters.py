"""A coordinator of counters, as small as one can be: its requests, its records, its decisions, and its kind."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec import field

from magicbyte.engine.coordination.decider import Decider, Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store
from magicbyte.engine.coordination.parts import in_parts
from magicbyte.engine.coordination.replay import keyed_records
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.records.scan import scan
from magicbyte.server.coordinating.coordinating import CoordinatorKind, CoordinatorTopic

TOPIC = "__counters"
PARTITIONS = 2
IDLE_MS = 60_000
_VALUE = struct.Struct(">q")


class Add(Message):
    """Add a number to a counter, which is 0 at first."""

    key: str
    number: int


class Read(Message):
    """Ask for the values of counters."""

    keys: list[str]


class Counted(Message):
    """The values, 0 of unknown counters, or an error."""

    error_code: ErrorCode = ErrorCode.NONE
    values: list[int] = field(default_factory=list)


class CountStored(NamedTuple):
    """Give a counter its stored value, and answer. Without a caller it was idle: it goes."""

    key: str
    value: int
    caller: Caller | None


Effect: TypeAlias = Reply | Store[CountStored]


class Counters(Decider[Effect, str, dict[str, int]]):
    """Counters by key. One that is idle for a minute is deleted.

    `values` are stored ones, and `latest` those of the last append, which may still fail.
    """

    def __init__(self) -> None:
        super().__init__(PARTITIONS)
        self.values: dict[str, int] = {}
        self.latest: dict[str, int] = {}

    def answer(self, caller: Caller, request: Message, _now: Moment) -> Work[Effect]:
        if isinstance(request, Add):
            return [self._add(caller, request)]
        assert isinstance(request, Read)
        return self._read(caller, request.keys)

    def _add(self, caller: Caller, request: Add) -> Effect:
        if code := self.status(request.key):
            return Reply(caller, Counted(code))
        value = self.latest.get(request.key, 0) + request.number
        self.latest[request.key] = value
        return self._stored_as(request.key, value, caller)

    def _stored_as(self, key: str, value: int, caller: Caller | None) -> Store[CountStored]:
        partition = self.partition_of(key)
        record = (key.encode(), None if caller is None else _VALUE.pack(value))
        return Store(partition, self.terms[partition].number, (record,), CountStored(key, value, caller))

    def _read(self, caller: Caller, keys: Sequence[str]) -> Work[Effect]:
        values = list[int]()
        for part in in_parts(keys):
            for key in part:
                if code := self.status(key):
                    yield Reply(caller, Counted(code))
                    return
                values.append(self.values.get(key, 0))
            yield Steps(len(part))
        yield Reply(caller, Counted(values=values))

    def _continue(self, store: Store[CountStored], code: ErrorCode, now: Moment) -> Sequence[Effect]:
        key, value, caller = store.then
        is_present = self.terms.is_present(store.partition, store.term)
        if caller is None:
            if is_present and not code and self.latest.get(key) == value:  # not counted on meanwhile
                del self.values[key], self.latest[key]
            return []
        if not code:
            self.values[key] = value
            self.deadlines.set(key, now.monotonic_ms + IDLE_MS)
            return [Reply(caller, Counted(values=[value]))]
        if is_present:
            self.latest[key] = self.values.get(key, 0)
        told = ErrorCode.NOT_COORDINATOR if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else code
        return [Reply(caller, Counted(told))]

    def _deadline_reached(self, key: str, _now: Moment) -> Sequence[Effect]:
        return [self._stored_as(key, self.values[key], None)]

    def _install(self, _partition: int, content: dict[str, int], now: Moment) -> Sequence[Effect]:
        self.values |= content
        self.latest |= content
        for key in content:
            self.deadlines.set(key, now.monotonic_ms + IDLE_MS)
        return []

    def _drop(self, partition: int) -> Sequence[Effect]:
        for key in [key for key in self.latest if self.partition_of(key) == partition]:
            self.values.pop(key, None)
            del self.latest[key]
            self.deadlines.cancel(key)
        return []


class CountersReplay:
    """Read counters again: the last record of each counts."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def read(self, data: memoryview) -> int:
        table, last = scan(data), -1
        for key, record in keyed_records(table, range(len(table))):
            last = record.offset
            self._values.pop(key.decode(), None)
            if record.value is not None:
                (self._values[key.decode()],) = _VALUE.unpack(record.value)
        if table.damage is not None:
            raise table.damage
        return last

    def finish(self) -> dict[str, int]:
        return self._values


KIND = CoordinatorKind(
    TOPIC,
    "counters",
    lambda: CoordinatorTopic(PARTITIONS, 1, {"cleanup.policy": "compact"}),
    CountersReplay,
    timeout_ms=5000,
    expiry_interval_ms=600_000,
)
