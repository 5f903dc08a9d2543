"""Read a log as a `read_committed` consumer does, in one pass: chunks wait until their transactions have ended.

Only the marker after a transaction shows whether it was aborted. A chunk is released once it lies below the last stable
offset, which is soon unless a transaction is long. When the waiting chunks reach HELD_BYTES, the rest of the log is
walked ahead by its headers: it is read twice then, in bounded memory.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.transactions import (
    AbortedRange,
    BatchFacts,
    CommittedFilter,
    OpenTransactions,
    table_facts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from magicbyte.engine.log.files.chunk import Chunk

HELD_BYTES: Final = 64 << 20
"""The memory of what waits above which the rest of the log is walked ahead."""
_FACTS_BYTES: Final = 256  # of a row
_ERROR_BYTES: Final = 2048
_NO_END: Final = (1 << 63) - 1


class CommittedChunk(NamedTuple):
    """A chunk, whether each of its rows is delivered, and the offset from which nothing of the log is."""

    chunk: Chunk
    delivered: list[bool]
    end: int


class _HeldChunk(NamedTuple):
    chunk: Chunk
    facts: list[BatchFacts | None]
    first_offset: int
    last_offset: int


class CommittedChunks:
    """Takes the chunks of a log in order, and releases them with their committed ranges.

    `steps_after` walks the rest of the log after a chunk.
    """

    def __init__(self, steps_after: Callable[[Chunk], Iterable[Chunk | CorruptRecordError]]) -> None:
        self._steps_after = steps_after
        self._open = OpenTransactions()
        self._aborted: list[AbortedRange] = []
        self._held: deque[_HeldChunk | CorruptRecordError] = deque()
        self._held_bytes = 0
        self._end: int | None = None  # the last stable offset, once it is final
        self._final: CommittedFilter | None = None  # of the whole log, then

    def released(
        self, steps: Iterable[Chunk | CorruptRecordError], before: Iterable[Chunk | CorruptRecordError]
    ) -> Iterator[CommittedChunk | CorruptRecordError]:
        """Yield `steps` as soon as they are known, in order; an invalid marker is damage before its chunk.

        `before`: the entries of the log before those of `steps`.
        """
        for step in before:
            if not isinstance(step, CorruptRecordError):
                self._pass(table_facts(step.table))
        self._aborted.clear()
        for step in steps:
            if isinstance(step, CorruptRecordError):
                self._hold(step)
            else:
                self._add(step)
            del step  # so that its buffer can be used again
            yield from self._known(self._stable())
            if self._held_bytes >= HELD_BYTES and self._end is None:
                self._look_ahead()
                yield from self._known(self._stable())
        yield from self._known(self._stable(), at_end=True)

    def _add(self, chunk: Chunk) -> None:
        def report(error: CorruptRecordError) -> None:
            self._hold(error.locate(path=chunk.path, shift=chunk.position))

        facts = table_facts(chunk.table, report)
        if self._end is None:
            self._pass(facts)
        table = chunk.table
        first, _, _ = extent_of(table.buffer, int(table.position[0]))
        _, last, _ = extent_of(table.buffer, int(table.position[-1]))
        self._hold(_HeldChunk(chunk, facts, first, last))

    def _hold(self, step: _HeldChunk | CorruptRecordError) -> None:
        self._held.append(step)
        self._held_bytes += _memory(step)

    def _pass(self, table: list[BatchFacts | None]) -> None:
        """Advance past the rows of a chunk."""
        for facts in table:
            if facts is not None and (aborted := self._open.append(facts)) is not None:
                self._aborted.append(aborted)

    def _stable(self) -> int:
        return self._open.last_stable_offset(_NO_END) if self._end is None else self._end

    def _known(self, stable: int, *, at_end: bool = False) -> Iterator[CommittedChunk | CorruptRecordError]:
        """Yield what waits and lies below the last stable offset; all of it once that is final."""
        committed = self._final
        while self._held:
            step = self._held[0]
            if isinstance(step, CorruptRecordError):
                yield step
            elif step.last_offset < stable or at_end or self._final is not None:
                if committed is None:
                    committed = CommittedFilter(self._aborted, stable)
                yield CommittedChunk(step.chunk, committed.delivered(step.facts), stable)
            else:
                break
            self._held_bytes -= _memory(step)
            del step  # so that its buffer can be used again
            self._held.popleft()
        if self._final is None:
            self._forget()

    def _forget(self) -> None:
        """Forget the aborted transactions that end before all that waits."""
        first = min((each.first_offset for each in self._held if isinstance(each, _HeldChunk)), default=_NO_END)
        self._aborted = [each for each in self._aborted if each.last_offset >= first]

    def _look_ahead(self) -> None:
        """Walk the rest of the log. Its damage is reported when it is read."""
        last = next(each for each in reversed(self._held) if isinstance(each, _HeldChunk))  # the first one is a chunk
        for step in self._steps_after(last.chunk):
            if not isinstance(step, CorruptRecordError):
                self._pass(table_facts(step.table))
        self._end = self._open.last_stable_offset(_NO_END)
        self._final = CommittedFilter(self._aborted, self._end)


def _memory(step: _HeldChunk | CorruptRecordError) -> int:
    if isinstance(step, CorruptRecordError):
        return _ERROR_BYTES
    return len(step.chunk.table.buffer) + len(step.facts) * _FACTS_BYTES
