"""Notes what clients do and see, as a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from magicbyte.testing.checker.history import ClientOperation, Kind, OperationOutcome, Polled, Sent, Value

Records = Mapping[str, Iterable[tuple[int, Value]]]


class Pending:
    """An operation that was begun. Until `ok` or `fail` is called, its outcome is unknown.

    As a context manager it notes when its block ends; an exception leaves the outcome as it is, and is raised.
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
        """Note a record that is sent. Call it before sending: what is not noted is not expected by anybody."""
        self._add(Sent(partition, value, offset, key, may_repeat))

    def polled(self, records: Records) -> None:
        """Note the records of a poll: offsets and values by partition."""
        self._add(Polled({key: tuple(each) for key, each in records.items()}))

    def repositioned(self, partitions: Iterable[str]) -> None:
        """Note that the position in partitions was set anew, by a rebalance or a seek."""
        self.operation = replace(self.operation, repositioned=(*self.operation.repositioned, *partitions))

    def ok(self, *offsets: int | None) -> None:
        """Note that it took effect, and at which offsets the records are that it sent, in their order, where known."""
        steps, left = list(self.operation.steps), list(offsets)
        for at, each in enumerate(steps):
            if left and isinstance(each, Sent):
                steps[at] = Sent(each.partition, each.value, left.pop(0), each.key, each.may_repeat)
        if left:
            raise ValueError(f"{len(offsets)} offsets: the operation sent {len(offsets) - len(left)} records")
        self.operation = replace(self.operation, steps=tuple(steps))
        self._end(OperationOutcome.OK)

    def fail(self) -> None:
        """Note that it had no effect and never will. A timeout or a lost connection does not say that."""
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
    """Notes the operations of many processes, in the order in which they begin. Threads may share it.

    `monotonic_ms` gives the times. Each method begins an operation and returns it for its outcome to be noted.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms, self._pending = monotonic_ms, list[Pending]()

    @property
    def history(self) -> list[ClientOperation]:
        """The operations so far; the outcome of those that have not ended is unknown."""
        return [each.operation for each in self._pending]

    def send(
        self, process: str, partition: str, value: Value, *, key: str | None = None, may_repeat: bool = False
    ) -> Pending:
        """Begin to send one record: note `ok(offset)`, or `fail()`."""
        return self._begin(process, Kind.SEND, (Sent(partition, value, None, key, may_repeat),))

    def poll(self, process: str) -> Pending:
        """Begin a poll: note `polled(records)` and `ok()`."""
        return self._begin(process, Kind.POLL)

    def transaction(self, process: str) -> Pending:
        """Begin a transaction: note each `send` and `polled`, and the outcome: `fail()` if it was aborted."""
        return self._begin(process, Kind.TRANSACTION)

    def assign(self, process: str, partitions: Iterable[str]) -> Pending:
        """Begin to assign partitions: those that were assigned before keep their position."""
        return self._begin(process, Kind.ASSIGN, partitions=tuple(partitions))

    def subscribe(self, process: str, partitions: Iterable[str]) -> Pending:
        """Begin to subscribe to topics with these partitions."""
        return self._begin(process, Kind.SUBSCRIBE, partitions=tuple(partitions))

    def crash(self, process: str) -> None:
        """Note that a client ended: the next one of that name knows nothing of what it did."""
        self._begin(process, Kind.CRASH)

    def _begin(
        self, process: str, kind: Kind, steps: tuple[Sent | Polled, ...] = (), partitions: tuple[str, ...] = ()
    ) -> Pending:
        begun = ClientOperation(process, kind, OperationOutcome.INFO, steps, partitions, start_ms=self._monotonic_ms())
        pending = Pending(begun, self._monotonic_ms)
        self._pending.append(pending)
        return pending
