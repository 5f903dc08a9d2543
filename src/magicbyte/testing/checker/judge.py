"""Judge a history: find lost records, duplicates, and records that were read or written out of order.

Pure, and linear in the length of the history, besides one sort of each partition's offsets. The rules are those of the
checker of Jepsen's Kafka workload (jepsen.tests.kafka), with offsets instead of its dense positions. An operation is
*sure* if its outcome is ok, or unknown and one of its values was read by an operation with outcome ok.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from magicbyte.engine.sentinels import NO_OFFSET
from magicbyte.testing.checker.cycles import Circles, Read
from magicbyte.testing.checker.history import ClientOperation, HistoryRules, Kind, OperationOutcome, Polled, Sent, Value
from magicbyte.testing.checker.report import Anomaly, AnomalyKind, Report

NO_OPERATION: Final = -1  # in place of an operation's number
MOST_NAMED: Final = 3  # values named in the message of a skipping read


def check(history: Iterable[ClientOperation], rules: HistoryRules | None = None) -> Report:
    """Judge a history, which is read twice: a list, or a `HistoryFile`.

    Raises ValueError for an invalid history: a value sent twice to a partition, or an iterator.
    """
    if iter(history) is history:
        raise ValueError("cannot check an iterator, because it is read twice: give a list, or a HistoryFile")
    evidence = _Evidence(rules or HistoryRules())
    for number, operation in enumerate(history):
        evidence.note(number, operation)
    evidence.close()
    report = Report()
    _count(evidence, report)
    for anomaly in evidence.anomalies():
        report.add(anomaly)
    order = _Order(evidence, report)
    circles = Circles()
    for number, operation in enumerate(history):
        order.judge(number, operation)
        if operation.kind is Kind.TRANSACTION:
            evidence.note_reads(number, operation, circles)
    for anomaly in circles.anomalies():
        report.add(anomaly)
    return report


@dataclass(slots=True)
class _WrittenValue:
    """A value of a partition, its writer, first reader and offsets. Operations are positions in the history."""

    value: Value
    writer: int = NO_OPERATION
    outcome: OperationOutcome | None = None
    sent_offset: int = NO_OFFSET
    key: str | None = None
    may_repeat: bool = False
    reader: int = NO_OPERATION  # the first with outcome ok
    in_transaction: bool = False
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET


@dataclass(slots=True)
class _Partition:
    """The evidence about a partition. `log` has one value per offset, `clashes` further ones.

    `must_be_read`: the offsets that no read may skip, in order.
    """

    log_start: int
    is_compacted: bool
    values: dict[Value, _WrittenValue] = field(default_factory=dict)
    log: dict[int, _WrittenValue] = field(default_factory=dict)
    clashes: dict[int, dict[Value, _WrittenValue]] = field(default_factory=dict)
    repeated: dict[Value, set[int]] = field(default_factory=dict)
    last_of_key: dict[str, int] = field(default_factory=dict)
    doubtful_keys: set[str] = field(default_factory=set)  # a record of these may exist unread
    must_be_read: array[int] = field(default_factory=lambda: array("q"))

    def written(self, value: Value) -> _WrittenValue:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = _WrittenValue(value)
        return found

    def place(self, offset: int, written: _WrittenValue) -> None:
        """Record that a value is at an offset."""
        there = self.log.setdefault(offset, written)
        if there is not written:
            self.clashes.setdefault(offset, {})[written.value] = written
        if written.first_offset == NO_OFFSET:
            written.first_offset = written.last_offset = offset
        elif not written.first_offset == offset == written.last_offset:
            self.repeated.setdefault(written.value, {written.first_offset}).add(offset)
            written.first_offset = min(written.first_offset, offset)
            written.last_offset = max(written.last_offset, offset)

    def close(self) -> None:
        """Compute the derived fields, after all offsets have been recorded."""
        if self.is_compacted:
            for each in self.values.values():
                if each.key is not None and each.last_offset != NO_OFFSET:
                    self.last_of_key[each.key] = max(self.last_of_key.get(each.key, NO_OFFSET), each.last_offset)
                elif each.key is not None and each.outcome is not OperationOutcome.FAIL:
                    self.doubtful_keys.add(each.key)
        self.must_be_read.extend(sorted(offset for offset, each in self.log.items() if not self.may_lack(each, offset)))

    def may_lack(self, written: _WrittenValue, offset: int) -> bool:
        """Return whether the value at an offset may be absent: deleted by retention, or compacted away."""
        if offset < self.log_start:
            return True
        key = written.key
        return self.is_compacted and key is not None and (key in self.doubtful_keys or offset < self.last_of_key[key])

    def skipped(self, before: int, after: int) -> Iterator[int]:
        """Yield the first few offsets between two reads that must not be skipped."""
        if after > before + 1:
            first = bisect_right(self.must_be_read, before)
            yield from self.must_be_read[first : min(bisect_left(self.must_be_read, after), first + MOST_NAMED)]


class _Evidence:
    """The evidence about all partitions of a history, and the anomalies that it shows by itself."""

    def __init__(self, rules: HistoryRules) -> None:
        self.rules, self.partitions = rules, dict[str, _Partition]()
        self.operations = 0
        self._unknown: list[tuple[str, _WrittenValue]] = []  # sends with unknown outcome
        self._own_reads: list[Anomaly] = []

    def partition(self, name: str) -> _Partition:
        found = self.partitions.get(name)
        if found is None:
            start, is_compacted = self.rules.log_starts.get(name, 0), name in self.rules.compacted
            found = self.partitions[name] = _Partition(start, is_compacted)
        return found

    def note(self, number: int, operation: ClientOperation) -> None:
        """Record an operation."""
        self.operations += 1
        own = {(each.partition, each.value) for each in operation.steps if isinstance(each, Sent)}
        for step in operation.steps:
            if isinstance(step, Sent):
                self._note_sent(number, operation, step)
                continue
            for name, records in step.records.items():
                partition = self.partition(name)
                for offset, value in records:
                    written = partition.written(value)
                    partition.place(offset, written)
                    if operation.outcome is OperationOutcome.OK and written.reader == NO_OPERATION:
                        written.reader = number
                    if (name, value) in own:
                        self._own_reads.append(
                            Anomaly(
                                AnomalyKind.PRECOMMITTED_READ, name, (offset,), (value,), (number,),
                                f"{_named(value)} at offset {offset} is read by operation {number}, which wrote it",
                            )
                        )  # fmt: skip

    def _note_sent(self, number: int, operation: ClientOperation, sent: Sent) -> None:
        partition = self.partition(sent.partition)
        written = partition.written(sent.value)
        if written.writer != NO_OPERATION:
            raise ValueError(
                f"{_named(sent.value)} is sent to {sent.partition} by operation {written.writer} and again by "
                f"operation {number}: each value can be sent to a partition once"
            )
        written.writer, written.outcome = number, operation.outcome
        written.key, written.may_repeat = sent.key, sent.may_repeat
        written.in_transaction = operation.kind is Kind.TRANSACTION
        if sent.offset is not None:
            written.sent_offset = sent.offset
        if operation.outcome is OperationOutcome.INFO:
            self._unknown.append((sent.partition, written))
        elif operation.outcome is OperationOutcome.OK and sent.offset is not None:
            partition.place(sent.offset, written)

    def close(self) -> None:
        """Decide which unknown operations took effect, after all operations have been recorded."""
        self.sure = {written.writer for _, written in self._unknown if written.reader != NO_OPERATION}
        for name, written in self._unknown:
            if written.writer in self.sure and written.sent_offset != NO_OFFSET:
                self.partitions[name].place(written.sent_offset, written)
        for each in self.partitions.values():
            each.close()

    def note_reads(self, number: int, operation: ClientOperation, circles: Circles) -> None:
        """Add to `circles` the transactions that a transaction read from, if it also wrote."""
        if operation.outcome is OperationOutcome.FAIL or not any(isinstance(each, Sent) for each in operation.steps):
            return
        for step in operation.steps:
            if isinstance(step, Sent):
                continue
            for name, records in step.records.items():
                values = self.partitions[name].values
                for offset, value in records:
                    written = values[value]
                    if written.in_transaction and written.writer != number:
                        circles.note(number, written.writer, Read(name, offset, value))

    @property
    def unknown(self) -> int:
        """The number of sends with an unknown outcome."""
        return len(self._unknown)

    def anomalies(self) -> Iterator[Anomaly]:
        """Yield the anomalies of values and offsets, which do not depend on the order of operations."""
        yield from self._own_reads
        for name in sorted(self.partitions):
            partition = self.partitions[name]
            yield from _places(name, partition)
            yield from self._losses(name, partition)
            yield from self._reads(name, partition)

    def is_sure(self, written: _WrittenValue) -> bool:
        """Return whether the operation that wrote a value took effect."""
        return written.outcome is OperationOutcome.OK or written.writer in self.sure

    def _losses(self, name: str, partition: _Partition) -> Iterator[Anomaly]:
        last, last_reader = max(
            ((value.first_offset, value.reader) for value in partition.values.values() if value.reader != NO_OPERATION),
            default=(NO_OFFSET, NO_OPERATION),
        )
        for value in partition.values.values():
            if value.reader != NO_OPERATION or value.writer == NO_OPERATION:
                continue
            at = value.last_offset
            if at != NO_OFFSET and partition.may_lack(value, at):
                continue
            offsets, what = () if at == NO_OFFSET else (at,), f"{_named(value.value)} of operation {value.writer}"
            if at != NO_OFFSET and at <= last and self.is_sure(value):
                yield Anomaly(
                    AnomalyKind.LOST_WRITE, name, offsets, (value.value,), (value.writer, last_reader),
                    f"{what} at offset {at} was never read, though operation {last_reader} read offset {last}",
                )  # fmt: skip
            elif self.rules.read_to_end and not self._is_doubtful(partition, value):
                if value.outcome is OperationOutcome.OK:
                    yield Anomaly(
                        AnomalyKind.UNSEEN, name, offsets, (value.value,), (value.writer,),
                        f"{what} was acknowledged and never read, though all was read to the end",
                    )  # fmt: skip
                elif value.in_transaction and self.is_sure(value):
                    yield Anomaly(
                        AnomalyKind.TORN_TRANSACTION, name, offsets, (value.value,), (value.writer,),
                        f"{what} was never read, though other values of this transaction were",
                    )  # fmt: skip

    def _is_doubtful(self, partition: _Partition, written: _WrittenValue) -> bool:
        """Return whether an unread value at an unknown offset may have been deleted."""
        replaced = partition.is_compacted and written.key is not None
        return written.last_offset == NO_OFFSET and (partition.log_start > 0 or replaced)

    def _reads(self, name: str, partition: _Partition) -> Iterator[Anomaly]:
        for value in partition.values.values():
            if value.reader == NO_OPERATION:
                continue
            offset = value.first_offset
            if value.outcome is OperationOutcome.FAIL:
                yield Anomaly(
                    AnomalyKind.ABORTED_READ, name, (offset,), (value.value,), (value.writer, value.reader),
                    f"{_named(value.value)} at offset {offset} was read by operation {value.reader}, though operation "
                    f"{value.writer}, which wrote it, failed",
                )  # fmt: skip
            elif value.writer == NO_OPERATION and self.rules.all_sends_known:
                yield Anomaly(
                    AnomalyKind.UNWRITTEN, name, (offset,), (value.value,), (value.reader,),
                    f"{_named(value.value)} at offset {offset}, read by operation {value.reader}, was never sent",
                )  # fmt: skip


def _places(name: str, partition: _Partition) -> Iterator[Anomaly]:
    """Yield offsets with several values, and values at several offsets."""
    for offset, others in sorted(partition.clashes.items()):
        there = [partition.log[offset], *others.values()]
        values = tuple(each.value for each in there)
        operations = tuple(sorted({number for each in there for number in (each.writer, each.reader)} - {NO_OPERATION}))
        named = ", ".join(map(_named, values))
        yield Anomaly(
            AnomalyKind.INCONSISTENT_OFFSETS, name, (offset,), values, operations,
            f"offset {offset} has several values: {named}",
        )  # fmt: skip
    for value, offsets in partition.repeated.items():
        each = partition.values[value]
        if not each.may_repeat:
            operations = tuple(number for number in (each.writer, each.reader) if number != NO_OPERATION)
            places = ", ".join(map(str, sorted(offsets)))
            yield Anomaly(
                AnomalyKind.DUPLICATE, name, tuple(sorted(offsets)), (value,), operations,
                f"{_named(value)} is at several offsets: {places}",
            )  # fmt: skip


@dataclass(slots=True)
class _Process:
    """The last position of a process in each partition: operation and offset."""

    is_subscribed: bool = False
    polled: dict[str, tuple[int, int]] = field(default_factory=dict)
    sent: dict[str, tuple[int, int]] = field(default_factory=dict)


class _Order:
    """Judge the order of reads and of sends, within operations and between successive operations of a process."""

    def __init__(self, evidence: _Evidence, report: Report) -> None:
        self._evidence, self._report = evidence, report
        self._processes: dict[str, _Process] = {}

    def judge(self, number: int, operation: ClientOperation) -> None:
        """Judge the next operation."""
        name, kind, is_ok = operation.process, operation.kind, operation.outcome is OperationOutcome.OK
        if kind is Kind.CRASH:
            self._processes.pop(name, None)
            return
        process = self._processes.setdefault(name, _Process())
        for each in operation.repositioned:
            process.polled.pop(each, None)
        if kind in (Kind.ASSIGN, Kind.SUBSCRIBE):
            if operation.outcome is not OperationOutcome.FAIL:
                was_subscribed, process.is_subscribed = process.is_subscribed, kind is Kind.SUBSCRIBE
                stays = () if was_subscribed and kind is Kind.ASSIGN else operation.partitions
                process.polled = {key: at for key, at in process.polled.items() if key in stays}
            return
        reads, sends = dict[str, int](), dict[str, int]()
        for step in operation.steps:
            if isinstance(step, Polled):
                for key, records in step.records.items():
                    if records:
                        self._polls(number, operation, process, key, [offset for offset, _ in records], reads)
            elif operation.outcome is not OperationOutcome.FAIL:
                self._sends(number, process, step, sends)
        if is_ok:
            process.polled |= {key: (number, at) for key, at in reads.items()}
            process.sent |= {key: (number, at) for key, at in sends.items()}
        elif operation.outcome is OperationOutcome.INFO and kind is not Kind.SEND:
            process.polled.clear()  # its position is unknown

    def _polls(
        self,
        number: int,
        operation: ClientOperation,
        process: _Process,
        key: str,
        offsets: list[int],
        reads: dict[str, int],
    ) -> None:
        """Compare a step's reads of one partition with each other and with earlier ones."""
        if (before := reads.get(key)) is not None:
            if key not in operation.repositioned:
                self._step(number, number, key, before, offsets[0])
        elif (last := process.polled.get(key)) is not None:
            self._step(last[0], number, key, last[1], offsets[0], is_allowed=process.is_subscribed)
        reads[key] = offsets[-1]
        if key not in operation.repositioned:
            for before, after in itertools.pairwise(offsets):
                if after != before + 1:
                    self._step(number, number, key, before, after)

    def _step(self, first: int, second: int, key: str, before: int, after: int, *, is_allowed: bool = False) -> None:
        """Judge two successive reads; `first` and `second` are equal within one operation."""
        is_internal = first == second
        who = f"operation {second}" if is_internal else f"operation {second}, after operation {first},"
        partition = self._evidence.partitions[key]
        if after <= before:
            kind = AnomalyKind.INT_NONMONOTONIC_POLL if is_internal else AnomalyKind.NONMONOTONIC_POLL
            offsets: tuple[int, ...] = (before, after)
            message = f"{who} read offset {after} after offset {before}"
        elif missed := tuple(partition.skipped(before, after)):
            kind = AnomalyKind.INT_POLL_SKIP if is_internal else AnomalyKind.POLL_SKIP
            offsets = (before, *missed, after)
            message = f"{who} read offset {after} after offset {before}, without {', '.join(map(str, missed))}"
        else:
            return
        values = tuple(partition.log[each].value for each in offsets)
        operations = (second,) if is_internal else (first, second)
        self._report.add(Anomaly(kind, key, offsets, values, operations, message, is_allowed))

    def _sends(self, number: int, process: _Process, sent: Sent, sends: dict[str, int]) -> None:
        """Compare the offset of a sent record, if it is known, with that of the record sent before."""
        key, partition = sent.partition, self._evidence.partitions[sent.partition]
        written = partition.values[sent.value]
        is_placed = sent.offset is not None and self._evidence.is_sure(written)
        at = written.sent_offset if is_placed else written.first_offset
        if at == NO_OFFSET or sent.may_repeat:
            return
        is_internal = key in sends
        first, before = (number, sends[key]) if is_internal else process.sent.get(key, (number, NO_OFFSET))
        sends[key] = at
        if before == NO_OFFSET:
            return
        kind, is_allowed = None, False
        who = f"operation {number}" if is_internal else f"operation {number}, after operation {first},"
        offsets: tuple[int, ...] = (before, at)
        if at <= before:
            kind = AnomalyKind.INT_NONMONOTONIC_SEND if is_internal else AnomalyKind.NONMONOTONIC_SEND
        elif is_internal and (missed := tuple(partition.skipped(before, at))):
            kind, is_allowed, offsets = AnomalyKind.INT_SEND_SKIP, True, (before, *missed, at)
        if kind is not None:
            values = tuple(partition.log[each].value for each in offsets)
            message = f"{who} wrote {_named(sent.value)} at offset {at}, and an earlier value at offset {before}"
            operations = (number,) if is_internal else (first, number)
            self._report.add(Anomaly(kind, key, offsets, values, operations, message, is_allowed))


def _named(value: Value) -> str:
    return f"value {value!r}"


def _count(evidence: _Evidence, report: Report) -> None:
    report.operations, report.partitions, report.unknown = (
        evidence.operations,
        len(evidence.partitions),
        evidence.unknown,
    )
    for partition in evidence.partitions.values():
        for each in partition.values.values():
            report.acknowledged += each.outcome is OperationOutcome.OK
            report.read += each.reader != NO_OPERATION
