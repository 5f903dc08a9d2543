"""Fetch sessions: later requests name only the partitions that changed (KIP-227).

Plain state: requests in, the partitions to read out. Source: Kafka's FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.errors import ErrorCode

if TYPE_CHECKING:
    from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

SLOTS: Final = 1000
MOST_PARTITIONS: Final = 500_000  # of all sessions
KEPT_MS: Final = 120_000  # a session used within this time is not evicted
_NO_SESSION, _NEW, _LAST_EPOCH = -1, 0, (1 << 31) - 1
_NOTHING_SENT: Final = -1

Key = tuple[str, int]


class _SessionPartition(Struct):
    """A partition of a session: the reader's request, and the last response."""

    asked: FetchPartition
    high_watermark: int = _NOTHING_SENT
    log_start_offset: int = _NOTHING_SENT


class FetchSession(Struct):
    """The partitions of one reader, in reading order: those that gave records move to the end.

    `used_at_ms`: the last use, by the monotonic clock.
    """

    id: int
    used_at_ms: int
    next_epoch: int = 1
    counted: int = 0  # its share in the total of all sessions
    partitions: dict[Key, _SessionPartition] = field(default_factory=dict)

    def update(self, message: FetchRequest) -> Iterator[int]:
        """Apply the partitions that a request adds and removes; yield a step for each."""
        for topic in message.forgotten_topics_data:
            for index in topic.partitions:
                yield 1
                self.partitions.pop((topic.topic, index), None)
        for asked in message.topics:
            for wanted in asked.partitions:
                yield 1
                known = self.partitions.get((asked.topic, wanted.partition))
                if known is None:
                    self.partitions[asked.topic, wanted.partition] = _SessionPartition(wanted)
                else:
                    known.asked = wanted

    def news(self, found: Sequence[tuple[str, PartitionData, int]]) -> list[tuple[str, PartitionData, int]]:
        """Return the part of a response that the reader does not know: topic, data and bytes of records."""
        changed = []
        for answer in found:
            topic, data, size = answer
            known = self.partitions.get((topic, data.partition_index))
            if known is None:  # removed meanwhile, by a request that did not wait for this response
                changed.append(answer)
                continue
            marks = data.high_watermark, data.log_start_offset
            is_told = data.diverging_epoch.end_offset >= 0 or data.preferred_read_replica >= 0
            if size or data.error_code or is_told or marks != (known.high_watermark, known.log_start_offset):
                changed.append(answer)
                known.high_watermark, known.log_start_offset = marks
                if data.error_code:
                    # so that an error is reported as long as it lasts, and its end as well
                    known.high_watermark = _NOTHING_SENT
            if size:
                self.partitions[topic, data.partition_index] = self.partitions.pop((topic, data.partition_index))
        return changed


class BegunFetch(NamedTuple):
    """The partitions to read, in order; `session` if one is kept; `is_incremental`: respond with changes only."""

    partitions: list[tuple[str, FetchPartition]]
    session: FetchSession | None = None
    is_incremental: bool = False
    error: ErrorCode = ErrorCode.NONE


class Sessions:
    """All sessions of a broker. `new_id` draws a number from 1 to the largest int32."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._sessions: dict[int, FetchSession] = {}  # the most recently used comes last
        self._known = 0  # partitions of all sessions
        self._new_id = new_id

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, message: FetchRequest, monotonic_ms: int) -> BegunFetch:
        """Return the partitions to read, and update the session."""
        steps = self.begin_in_steps(message, monotonic_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                begun: BegunFetch = end.value
                return begun

    def begin_in_steps(self, message: FetchRequest, monotonic_ms: int) -> Generator[int, None, BegunFetch]:
        """Begin as `begin` does; yield a step for each partition, so that others get their turn."""
        number, epoch = message.session_id, message.session_epoch
        if epoch in (_NEW, _NO_SESSION):
            self.close(number)
            once: dict[Key, FetchPartition] = {}  # of a repeated partition the last entry counts
            for topic in message.topics:
                for each in topic.partitions:
                    yield 1
                    once[topic.topic, each.partition] = each
            asked = [(name, each) for (name, _), each in once.items()]
            opened = self._open(len(asked), monotonic_ms) if epoch == _NEW and asked else None
            if opened is not None:
                yield from self._update(opened, message)
            return BegunFetch(asked, opened)
        session = self._sessions.get(number)
        if session is None:
            return BegunFetch([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.next_epoch:
            return BegunFetch([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.next_epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_at_ms = monotonic_ms
        self._sessions[number] = self._sessions.pop(number)
        yield from self._update(session, message)
        if self._known > MOST_PARTITIONS:
            self.close(number)  # its reader opens another one, if there is room
            return BegunFetch([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        asked = [(topic, known.asked) for (topic, _), known in session.partitions.items()]
        return BegunFetch(asked, session, is_incremental=True)

    def _open(self, partitions: int, monotonic_ms: int) -> FetchSession | None:
        while len(self._sessions) >= SLOTS or self._known + partitions > MOST_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or monotonic_ms - oldest.used_at_ms < KEPT_MS:
                return None
            self.close(oldest.id)
        number = self._new_id()
        while number in self._sessions:
            number = self._new_id()
        session = self._sessions[number] = FetchSession(number, monotonic_ms)
        return session

    def _update(self, session: FetchSession, message: FetchRequest) -> Iterator[int]:
        yield from session.update(message)
        if self._sessions.get(session.id) is session:  # it may have been closed meanwhile
            self._known += len(session.partitions) - session.counted
            session.counted = len(session.partitions)

    def close(self, number: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.pop(number, None)
        if session is not None:
            self._known -= session.counted
