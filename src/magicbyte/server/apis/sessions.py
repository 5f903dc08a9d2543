"""Fetch sessions: later requests name only the partitions that changed (KIP-227).

Plain state: requests in, the partitions to read out. A session has topics by name or by id, as the request that opened
it (KIP-516). Source: Kafka's FetchSession.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from magicbyte.engine.errors import ErrorCode

if TYPE_CHECKING:
    from magicbyte.engine.protocol.messages.fetch import (
        FetchPartition,
        FetchRequest,
        FetchTopic,
        ForgottenTopic,
        PartitionData,
    )

SLOTS: Final = 1000
MOST_PARTITIONS: Final = 500_000  # of all sessions
KEPT_MS: Final = 120_000  # a session used within this time is not evicted
_NO_SESSION, _NEW, _LAST_EPOCH = -1, 0, (1 << 31) - 1
_NOTHING_SENT: Final = -1

NameOf: TypeAlias = Callable[[uuid.UUID], str]
"""Returns the name of the topic with an id, "" if there is none."""
Key: TypeAlias = tuple[str | uuid.UUID, int]


class AskedTopic(NamedTuple):
    """A topic of a fetch: by its name, or by its `id`. `name` is "" as long as no topic was found with the id."""

    name: str
    id: uuid.UUID | None = None

    @property
    def key(self) -> str | uuid.UUID:
        """What the reader knows the topic by."""
        return self.name if self.id is None else self.id


FoundPartition: TypeAlias = "tuple[AskedTopic, PartitionData, int]"
"""A partition of a response: its topic, its data, and the bytes of its records."""


class _SessionPartition(Struct):
    """A partition of a session: the reader's request, and the last response."""

    topic: AskedTopic
    asked: FetchPartition
    high_watermark: int = _NOTHING_SENT
    log_start_offset: int = _NOTHING_SENT


class FetchSession(Struct):
    """The partitions of one reader, in reading order: those that gave records move to the end.

    `by_id`: its requests name topics by id. `used_at_ms`: the last use, by the monotonic clock.
    """

    id: int
    used_at_ms: int
    by_id: bool = False
    next_epoch: int = 1
    counted: int = 0  # its share in the total of all sessions
    partitions: dict[Key, _SessionPartition] = field(default_factory=dict)

    def update(self, message: FetchRequest, name_of: NameOf | None) -> Iterator[int]:
        """Apply the partitions that a request adds and removes; yield a step for each."""
        for forgotten in message.forgotten_topics_data:
            key = _asked(forgotten, name_of).key
            for index in forgotten.partitions:
                yield 1
                self.partitions.pop((key, index), None)
        for asked in message.topics:
            topic = _asked(asked, name_of)
            for wanted in asked.partitions:
                yield 1
                known = self.partitions.get((topic.key, wanted.partition))
                if known is None:
                    self.partitions[topic.key, wanted.partition] = _SessionPartition(topic, wanted)
                else:
                    known.asked = wanted

    def to_read(self, name_of: NameOf | None) -> list[tuple[AskedTopic, FetchPartition]]:
        """Return all partitions. An id that had no topic before is looked up again."""
        if name_of is not None:
            for known in self.partitions.values():
                topic = known.topic
                if not topic.name and topic.id is not None and (name := name_of(topic.id)):
                    known.topic = AskedTopic(name, topic.id)
        return [(known.topic, known.asked) for known in self.partitions.values()]

    def news(self, found: Sequence[FoundPartition]) -> list[FoundPartition]:
        """Return the part of a response that the reader does not know."""
        changed = []
        for answer in found:
            topic, data, size = answer
            key = topic.key, data.partition_index
            known = self.partitions.get(key)
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
                self.partitions[key] = self.partitions.pop(key)
        return changed


def _asked(topic: FetchTopic | ForgottenTopic, name_of: NameOf | None) -> AskedTopic:
    return AskedTopic(topic.topic) if name_of is None else AskedTopic(name_of(topic.topic_id), topic.topic_id)


class BegunFetch(NamedTuple):
    """The partitions to read, in order; `session` if one is kept; `is_incremental`: respond with changes only."""

    partitions: list[tuple[AskedTopic, FetchPartition]]
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

    def begin(self, message: FetchRequest, monotonic_ms: int, name_of: NameOf | None = None) -> BegunFetch:
        """Return the partitions to read, and update the session. `name_of`: None if the request has topics by name."""
        steps = self.begin_in_steps(message, monotonic_ms, name_of)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                begun: BegunFetch = end.value
                return begun

    def begin_in_steps(
        self, message: FetchRequest, monotonic_ms: int, name_of: NameOf | None
    ) -> Generator[int, None, BegunFetch]:
        """Begin as `begin` does; yield a step for each partition, so that others get their turn."""
        number, epoch = message.session_id, message.session_epoch
        if epoch in (_NEW, _NO_SESSION):
            self.close(number)
            once: dict[Key, tuple[AskedTopic, FetchPartition]] = {}  # of a repeated partition the last entry counts
            for asked in message.topics:
                topic = _asked(asked, name_of)
                for each in asked.partitions:
                    yield 1
                    once[topic.key, each.partition] = topic, each
            all_asked = list(once.values())
            opened = None
            if epoch == _NEW and all_asked:
                opened = self._open(len(all_asked), monotonic_ms, by_id=name_of is not None)
            if opened is not None:
                yield from self._update(opened, message, name_of)
            return BegunFetch(all_asked, opened)
        session = self._sessions.get(number)
        if session is None:
            return BegunFetch([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.next_epoch:
            return BegunFetch([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id is (name_of is None):  # its epoch does not move: a request of the right kind is answered
            return BegunFetch([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.next_epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_at_ms = monotonic_ms
        self._sessions[number] = self._sessions.pop(number)
        yield from self._update(session, message, name_of)
        if self._known > MOST_PARTITIONS:
            self.close(number)  # its reader opens another one, if there is room
            return BegunFetch([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self.close(number)
            return BegunFetch([])
        return BegunFetch(session.to_read(name_of), session, is_incremental=True)

    def _open(self, partitions: int, monotonic_ms: int, *, by_id: bool) -> FetchSession | None:
        while len(self._sessions) >= SLOTS or self._known + partitions > MOST_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or monotonic_ms - oldest.used_at_ms < KEPT_MS:
                return None
            self.close(oldest.id)
        number = self._new_id()
        while number in self._sessions:
            number = self._new_id()
        session = self._sessions[number] = FetchSession(number, monotonic_ms, by_id)
        return session

    def _update(self, session: FetchSession, message: FetchRequest, name_of: NameOf | None) -> Iterator[int]:
        yield from session.update(message, name_of)
        if self._sessions.get(session.id) is session:  # it may have been closed meanwhile
            self._known += len(session.partitions) - session.counted
            session.counted = len(session.partitions)

    def close(self, number: int) -> None:
        """End a session, if it exists."""
        session = self._sessions.pop(number, None)
        if session is not None:
            self._known -= session.counted
