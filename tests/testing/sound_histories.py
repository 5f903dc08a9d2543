"""Histories of a sound cluster, from a seed: with crashes, unknown outcomes, rebalances, retries and deletions."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from magicbyte.testing.checker import ClientOperation, HistoryRules, Kind, OperationOutcome, Polled, Sent

PARTITIONS = ("a-0", "a-1", "b-0")
TRIMMED, COMPACTED = "a-1", "b-0"


@dataclass
class Log:
    """The readable records of a partition: offsets rise, with holes where markers and aborted records are."""

    records: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    start: int = 0

    def append(self, value: int) -> int:
        offset = self.end
        self.records.append((offset, value))
        self.end += 1
        return offset


@dataclass
class Consumer:
    positions: dict[str, int] = field(default_factory=dict)
    is_subscribed: bool = False


class World:
    """A cluster and its clients; `history` and `rules` are what they note."""

    def __init__(self, seed: int, *, transactions: bool = True, deletes: bool = True) -> None:
        self.random, self.transactions, self.deletes = random.Random(seed), transactions, deletes
        self.logs = {each: Log() for each in PARTITIONS}
        self.consumers = {f"consumer-{each}": Consumer() for each in range(3)}
        self.history: list[ClientOperation] = []
        self.late: list[tuple[str, int]] = []  # of unknown outcome, and may arrive yet
        self.values, self.keys = 0, dict[int, str]()

    @property
    def rules(self) -> HistoryRules:
        if not self.deletes:
            return HistoryRules()
        return HistoryRules(log_starts={TRIMMED: self.logs[TRIMMED].start}, compacted=frozenset({COMPACTED}))

    def run(self, steps: int) -> list[ClientOperation]:
        for _ in range(steps):
            name = self.random.choice(list(self.consumers))
            action = self.random.choices(
                (self.send, self.poll, self.assign, self.crash, self.late_arrival, self.delete, self.transaction),
                (10, 12, 1, 0.5, 2, 0.5, 3),
            )[0]
            action(name)
        for name in self.consumers:
            self.read_to_end(name)
        return self.history

    def note(
        self, process: str, kind: Kind, outcome: OperationOutcome, steps: Iterable[Sent | Polled] = (), **more: object
    ) -> None:
        self.history.append(ClientOperation(process, kind, outcome, tuple(steps), **more))  # type: ignore[arg-type]

    def new_value(self) -> int:
        self.values += 1
        self.keys[self.values] = f"key-{self.random.randrange(4)}"
        return self.values

    def send(self, name: str) -> None:
        producer, retries = name.replace("consumer", "producer"), self.random.random() < 0.1
        steps, outcome = list[Sent](), self.random.choices(list(OperationOutcome), (8, 1, 1))[0]
        for _ in range(self.random.choice((1, 1, 1, 3))):
            partition, value = self.random.choice(PARTITIONS), self.new_value()
            offset = None
            if outcome is OperationOutcome.OK:
                offset = self.logs[partition].append(value)
                if retries and self.random.random() < 0.5:
                    self.logs[partition].append(value)
                if self.random.random() < 0.1:
                    offset = None  # acks=0, or an answer without offsets
            elif outcome is OperationOutcome.INFO:
                self.late.append((partition, value))
            steps.append(Sent(partition, value, offset, self.keys[value], retries))
        self.note(producer, Kind.SEND, outcome, steps)

    def late_arrival(self, _name: str) -> None:
        if self.late:
            partition, value = self.late.pop(0)
            self.logs[partition].append(value)

    def read(self, consumer: Consumer, most: int) -> Polled:
        polled = dict[str, tuple[tuple[int, int], ...]]()
        for partition, position in consumer.positions.items():
            after = [each for each in self.logs[partition].records if each[0] >= position][:most]
            if after:
                polled[partition] = tuple(after)
                consumer.positions[partition] = after[-1][0] + 1
        return Polled(polled)

    def poll(self, name: str) -> None:
        consumer, outcome, moved = self.consumers[name], self.random.choices(list(OperationOutcome), (20, 1, 1))[0], ()
        if outcome is OperationOutcome.FAIL:
            self.note(name, Kind.POLL, outcome)
            return
        if consumer.is_subscribed and self.random.random() < 0.2:
            moved = tuple(consumer.positions)
            for each in moved:
                consumer.positions[each] = self.random.randint(0, self.logs[each].end)
        self.note(name, Kind.POLL, outcome, [self.read(consumer, self.random.randint(1, 5))], repositioned=moved)

    def assign(self, name: str) -> None:
        consumer, wanted = self.consumers[name], self.random.sample(PARTITIONS, self.random.randint(0, 3))
        consumer.is_subscribed = self.random.random() < 0.4
        kept = consumer.positions
        consumer.positions = {
            each: kept.get(each, self.random.randint(0, self.logs[each].end)) if not consumer.is_subscribed else 0
            for each in wanted
        }
        kind = Kind.SUBSCRIBE if consumer.is_subscribed else Kind.ASSIGN
        self.note(
            name, kind, self.random.choice((OperationOutcome.OK, OperationOutcome.INFO)), partitions=tuple(wanted)
        )

    def crash(self, name: str) -> None:
        self.note(name, Kind.CRASH, OperationOutcome.INFO)
        self.consumers[name] = Consumer()

    def delete(self, _name: str) -> None:
        if not self.deletes:
            return
        log = self.logs[TRIMMED]
        log.start = self.random.randint(log.start, log.end)
        log.records = [each for each in log.records if each[0] >= log.start]
        log, last = self.logs[COMPACTED], dict[str, int]()
        for offset, value in log.records:
            last[self.keys[value]] = offset
        log.records = [each for each in log.records if last[self.keys[each[1]]] == each[0]]

    def transaction(self, name: str) -> None:
        """Read and write at once: all of it is readable when it commits, nothing when it aborts."""
        if not self.transactions:
            return
        consumer, outcome = self.consumers[name], self.random.choices(list(OperationOutcome), (6, 2, 1))[0]
        before = dict(consumer.positions)
        steps: list[Sent | Polled] = [self.read(consumer, 3)]
        is_committed = outcome is OperationOutcome.OK or (
            outcome is OperationOutcome.INFO and self.random.random() < 0.5
        )
        for _ in range(self.random.randint(1, 4)):
            partition, value = self.random.choice(PARTITIONS), self.new_value()
            offset = self.logs[partition].append(value)
            if not is_committed:
                self.logs[partition].records.pop()
            steps.append(Sent(partition, value, offset, self.keys[value]))
        for log in self.logs.values():
            log.end += 1  # a marker
        if outcome is OperationOutcome.FAIL:
            consumer.positions = before
        self.note(name, Kind.TRANSACTION, outcome, steps)

    def read_to_end(self, name: str) -> None:
        consumer = self.consumers[name] = Consumer(dict.fromkeys(PARTITIONS, 0))
        self.note(name, Kind.CRASH, OperationOutcome.INFO)
        self.note(name, Kind.ASSIGN, OperationOutcome.OK, partitions=PARTITIONS)
        while (polled := self.read(consumer, self.random.randint(3, 9))).records:
            self.note(name, Kind.POLL, OperationOutcome.OK, [polled])
