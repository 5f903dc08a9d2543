"""Record the operations of clients as a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from magicbyte.testing.checker.history import ClientOperation, Kind, OperationOutcome, Polled, Sent, Value

Records = Mapping[str, Iterable[tuple[int, Value]]]


class Pending:
    """An operation in progress. Its outcome is unknown until `ok` or `fail` is called.

    As a context manager it records the end of its block. An exception leaves the outcome unchanged, and propagates.
    """

    def __init__(self, begun: ClientOperation, monotonic_ms: Callable[[], int]) -> None:
        self.operation, self._monotonic_ms = begun, monotonic_ms

    def send(
        self,
        partition: str,
        value: Value,
        offset: int | None = None,
        *,
        key: str | None = None,
        may_repeat: bool = False,
    ) -> None:
        """Record a sent record. Call it before sending, because a record that is not in the history is unexpected."""
        self._add(Sent(partition, value, offset, key, may_repeat))

    def polled(self, records: Records) -> None:
        """Record the result of a poll: offsets and values by partition."""
        self._add(Polled({key: tuple(each) for key, each in records.items()}))

    def repositioned(self, partitions: Iterable[str]) -> None:
        """Record that the position in partitions was reset, by a rebalance or a seek."""
        self.operation = replace(self.operation, repositioned=(*self.operation.repositioned, *partitions))

    def ok(self, *offsets: int | None) -> None:
        """Record success, with the offsets of the sent records, in order, where they are known."""
        steps, left = list(self.operation.steps), list(offsets)
        for at, each in enumerate(steps):
            if left and isinstance(each, Sent):
                steps[at] = Sent(each.partition, each.value, left.pop(0), each.key, each.may_repeat)
        if left:
            raise ValueError(f"{len(offsets)} offsets: the operation sent {len(offsets) - len(left)} records")
        self.operation = replace(self.operation, steps=tuple(steps))
        self._end(OperationOutcome.OK)

    def fail(self) -> None:
        """Record that it never has an effect. A timeout or a lost connection does not prove that."""
        self._end(OperationOutcome.FAIL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.operation.end_ms is None:
            self._end(self.operation.outcome)

    def _add(self, step: Sent | Polled) -> None:
        self.operation = replace(self.operation, steps=(*self.operation.steps, step))

    def _end(self, outcome: OperationOutcome) -> None:
        self.operation = replace(self.operation, outcome=outcome, end_ms=self._monotonic_ms())


class Recorder:
    """Record the operations of many processes, in the order of their starts. Threads may share it.

    `monotonic_ms` returns the time. Each method begins an operation, and returns it for its outcome.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms, self._pending = monotonic_ms, list[Pending]()

    @property
    def history(self) -> list[ClientOperation]:
        """The operations so far. Those in progress have an unknown outcome."""
        return [each.operation for each in self._pending]

    def send(
        self, process: str, partition: str, value: Value, *, key: str | None = None, may_repeat: bool = False
    ) -> Pending:
        """Begin to send one record: call `ok(offset)` or `fail()`."""
        return self._begin(process, Kind.SEND, (Sent(partition, value, None, key, may_repeat),))

    def poll(self, process: str) -> Pending:
        """Begin a poll: call `polled(records)` and `ok()`."""
        return self._begin(process, Kind.POLL)

    def transaction(self, process: str) -> Pending:
        """Begin a transaction: call each `send` and `polled`, then the outcome: `fail()` if it was aborted."""
        return self._begin(process, Kind.TRANSACTION)

    def assign(self, process: str, partitions: Iterable[str]) -> Pending:
        """Begin to assign partitions: those assigned before keep their positions."""
        return self._begin(process, Kind.ASSIGN, partitions=tuple(partitions))

    def subscribe(self, process: str, partitions: Iterable[str]) -> Pending:
        """Begin to subscribe to topics with these partitions."""
        return self._begin(process, Kind.SUBSCRIBE, partitions=tuple(partitions))

    def crash(self, process: str) -> None:
        """Record that a client ended. The next one of this name has none of its state."""
        self._begin(process, Kind.CRASH)

    def _begin(
        self, process: str, kind: Kind, steps: tuple[Sent | Polled, ...] = (), partitions: tuple[str, ...] = ()
    ) -> Pending:
        begun = ClientOperation(process, kind, OperationOutcome.INFO, steps, partitions, start_ms=self._monotonic_ms())
        pending = Pending(begun, self._monotonic_ms)
        self._pending.append(pending)
        return pending
