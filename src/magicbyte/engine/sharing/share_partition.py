"""The records of one partition that a share group has in hand: who has acquired them, and how often they came.

Records from `start` to below `end` are in flight, in runs of one state each. Nothing here reads a log, stores anything
or has a clock: `acquire` gets the batches that a read has found, and each change of the stored state is returned as a
`DeliveryChange`, which the caller stores.

Invariants:
1. Runs are in order, and cover exactly the records in flight. The first one is not done, unless its change is pending.
2. A record is acquired by one member at most, and until its deadline. Its count grows by one with each delivery, up to
   the limit. A record that is done stays so.
3. While a change is pending its records are neither given to others nor expired.
4. `acquire` and `expire` take a look only at runs that they change: first offsets and deadlines are in heaps. An entry
   that no longer holds is dropped when it comes up.

Source: Kafka's SharePartition (4.3).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.sharing.states import DeliveryState, StateBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""The types of acknowledgements."""
_DONE_BY: Final = {
    GAP: DeliveryState.ARCHIVED,
    ACCEPT: DeliveryState.ACKNOWLEDGED,
    REJECT: DeliveryState.ARCHIVED,
}
MOST_RECORDS: Final = 10_000
"""In flight, whatever the batches are: a batch beyond the limit is acquired as a whole only up to this number."""
MOST_RUNS: Final = 500
"""That one fetch acquires of a partition."""
_FEW: Final = 64
_FIRST: Final = attrgetter("first")


class ShareRules(Struct, frozen=True, kw_only=True):
    """The settings of the records in flight: `group.share.*`. Times in ms.

    `eases_near_limit`: whether records near the delivery limit are given in smaller runs (4.3).
    """

    lock_ms: int = 30_000
    delivery_limit: int = 5
    most_in_flight: int = 2_000
    eases_near_limit: bool = True


class RecordAcknowledgement(NamedTuple):
    """What a member says about records: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class LogBatch(NamedTuple):
    """A batch that a read of the log has found. `is_aborted`: a reader of committed records does not get it."""

    first: int
    last: int
    is_aborted: bool = False


class AcquiredRun(NamedTuple):
    """Records that a member has acquired, with the number of their deliveries, this one included."""

    first: int
    last: int
    deliveries: int


class Wanted(NamedTuple):
    """What a member wants. `is_strict`: not more than `most` records; otherwise whole batches, so possibly more.

    `batch_size`: runs are divided at the end of a batch after so many records.
    """

    most: int
    batch_size: int
    is_strict: bool = False


class Run(Struct):
    """Records in one state. `member` has acquired them until `deadline_ms`. `batch`: how many came together at first.

    `becomes`: their state once a pending change is stored; None if there is none.
    """

    first: int
    last: int
    state: DeliveryState
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    batch: int = 1
    becomes: DeliveryState | None = None

    @property
    def size(self) -> int:
        """How many records they are."""
        return self.last - self.first + 1


class DeliveryChange(Struct):
    """A change of the stored state, with the start offset before it. `complete_count`: how many records are done.

    It has an effect on records with `runs` only once it is committed.
    """

    start: int
    batches: list[StateBatch]
    complete_count: int
    runs: list[Run] = field(default_factory=list)


class SharePartition:
    """The records in flight of a partition. `start`: all before it are done. `end`: all from it on are new.

    `batches`: the states that were stored. Records between them were acquired or new, and are available again.
    """

    def __init__(self, start: int, batches: Iterable[StateBatch], rules: ShareRules) -> None:
        self.start = self.end = start
        self._rules = rules
        self._told_start = start  # in changes: what `acquire` archives moves it with the next change only
        self._skipped = self._log_start = -1  # records that were never in flight when the log came to begin after them
        self._runs: list[Run] = []
        self._complete = 0
        self._available: list[int] = []
        self._deadlines: list[tuple[int, int]] = []
        for batch in batches:
            if batch.last < self.end:
                continue
            first = max(batch.first, self.end)
            if first > self.end:
                self._append(Run(self.end, first - 1, DeliveryState.AVAILABLE, batch=first - self.end))
            self._append(Run(first, batch.last, _known(batch.state), batch.deliveries, batch=batch.last - first + 1))
        self._advance()

    @property
    def runs(self) -> Sequence[Run]:
        """The records in flight."""
        return self._runs

    @property
    def next_ms(self) -> int | None:
        """The latest time to call `expire`; None if nothing is acquired."""
        return self._deadlines[0][0] if self._deadlines else None

    def next_offset(self) -> int | None:
        """Return the offset from which to read, None if no more records may be acquired now."""
        run = self._first_available()
        if run is not None:
            return run.first
        return self.end if self.end - self.start < self._rules.most_in_flight else None

    # ---- deliveries

    def acquire(
        self, member: str, read: Sequence[LogBatch], wanted: Wanted, now_ms: int, *, asked: int | None = None
    ) -> list[AcquiredRun]:
        """Acquire records that a read from `asked` (None: from the first batch) has found; return them in order.

        Records that the log no longer has are done, and aborted ones. If records before those that were read have
        become available meanwhile, nothing is acquired: they come first.
        """
        if not read:
            return []
        lowest, highest = read[0].first if asked is None else asked, read[-1].last
        first = self._first_available()
        if first is not None and first.first < lowest:
            return []
        self._archive_missing(lowest, read)
        acquired, left = list[Run](), wanted.most
        while left > 0 and len(acquired) < MOST_RUNS and (run := self._first_available()) and run.first <= highest:
            most = self._eased(run)
            if most is not None:
                if not acquired:
                    acquired.append(self._acquired(self._head(run, min(run.first + most - 1, highest)), member, now_ms))
                left = 0
                break
            last = min(run.last, highest, run.first + left - 1) if wanted.is_strict else min(run.last, highest)
            acquired.append(self._acquired(self._head(run, last), member, now_ms))
            left -= acquired[-1].size
        if left > 0 and len(acquired) < MOST_RUNS:
            acquired += self._acquire_new(member, read, wanted._replace(most=left), now_ms)
        self._advance()
        runs = [AcquiredRun(each.first, each.last, each.count) for each in acquired]
        if runs and runs[0].first == self._log_start:  # as Kafka: a batch in which the log begins is given as a whole
            runs[0] = runs[0]._replace(first=max(self._skipped, read[0].first))
        return runs

    def _eased(self, run: Run) -> int | None:
        """Return how many records of a run near the delivery limit may be acquired, None for any number."""
        limit = self._rules.delivery_limit
        threshold = max(2, (limit + 1) // 2)
        if not self._rules.eases_near_limit or run.count < threshold:
            return None
        return 1 if run.count >= limit - 1 else max(1, run.batch >> (run.count - threshold + 1))

    def _acquired(self, run: Run, member: str, now_ms: int) -> Run:
        run.state, run.member, run.count = DeliveryState.ACQUIRED, member, run.count + 1
        run.deadline_ms = now_ms + self._rules.lock_ms
        heapq.heappush(self._deadlines, (run.deadline_ms, run.first))
        self._tidy()
        return run

    def _acquire_new(self, member: str, read: Sequence[LogBatch], wanted: Wanted, now_ms: int) -> list[Run]:
        """Acquire records after those in flight, in runs of about a batch size. Those of a batch that are left over are
        available.
        """
        room = self._rules.most_in_flight - (self.end - self.start)
        left, acquired = min(wanted.most, room), list[Run]()
        for run in self._new_runs(read, wanted.batch_size, left):
            if run.state is DeliveryState.AVAILABLE:
                last = run.last if not wanted.is_strict else min(run.last, run.first + left - 1)
                head = self._head(run, last)
                left -= head.size
                acquired.append(self._acquired(head, member, now_ms))
        return acquired

    def _new_runs(self, read: Sequence[LogBatch], batch_size: int, most: int) -> list[Run]:
        """Append the new records of batches, until there are `most`; return their runs."""
        runs = list[Run]()
        counted, limit = 0, self.start + MOST_RECORDS
        for whole in read:
            if whole.last < self.end:
                continue
            if not self._runs:  # a gap before the first one is done at once
                limit = max(self.end, whole.first) + MOST_RECORDS
            batch = whole if whole.is_aborted else whole._replace(last=min(whole.last, limit - 1))
            if counted >= most or len(runs) >= MOST_RUNS or batch.first >= limit:
                break
            first = max(batch.first, self.end)
            if first > self.end and not (runs and runs[-1].state is DeliveryState.AVAILABLE):
                self._append(Run(self.end, first - 1, DeliveryState.ARCHIVED, batch=first - self.end))
            if batch.is_aborted:
                runs.append(self._append(Run(self.end, batch.last, DeliveryState.ARCHIVED, batch=1)))
                continue
            counted += batch.last - self.end + 1
            last = runs[-1] if runs else None
            if last is not None and last.state is DeliveryState.AVAILABLE and last.size < batch_size:
                last.last, self.end = batch.last, batch.last + 1  # the gap between them is of compaction
                last.batch = last.size
            else:
                first = self.end if runs and runs[-1].state is DeliveryState.AVAILABLE else max(batch.first, self.end)
                runs.append(self._append(Run(first, batch.last, DeliveryState.AVAILABLE, batch=batch.last - first + 1)))
        return runs

    def _archive_missing(self, lowest: int, read: Sequence[LogBatch]) -> None:
        """Archive the available records that are not in the log, or aborted, from `lowest` to the last batch."""
        at = lowest
        for batch in read:
            if batch.first > at:
                self._archive(at, batch.first - 1)
            if batch.is_aborted:
                self._archive(batch.first, batch.last)
            at = batch.last + 1

    def _archive(self, first: int, last: int) -> None:
        """Archive the available records among some that are in flight."""
        for run in self._cut(first, min(last, self.end - 1)):
            if run.state is DeliveryState.AVAILABLE:
                self._become(run, DeliveryState.ARCHIVED)

    # ---- acknowledgements

    def acknowledge(
        self, member: str, acknowledgements: Sequence[RecordAcknowledgement], now_ms: int
    ) -> DeliveryChange | ErrorCode | None:
        """Return the change that acknowledgements of a member make, or why none of them counts.

        None: nothing is to be stored, because all were renewals, or of records that are done. Until the change is
        committed or rolled back, its records are in transition. Records before the start offset are ignored.
        """
        for each in acknowledgements:
            if each.last >= self.end:
                return ErrorCode.INVALID_REQUEST
            for run in self._overlapping(each.first, each.last):
                if run.member != member or run.state is not DeliveryState.ACQUIRED or run.becomes is not None:
                    return ErrorCode.INVALID_RECORD_STATE
        changed = list[Run]()
        for each in acknowledgements:
            for kind, first, last in _pieces(each):
                for run in self._cut(first, last):
                    if kind == RENEW:
                        run.deadline_ms = now_ms + self._rules.lock_ms
                        heapq.heappush(self._deadlines, (run.deadline_ms, run.first))
                    else:
                        run.becomes = self._after(kind, run)
                        changed.append(run)
        self._tidy()
        if not changed:
            return None
        self._complete += _done(changed)
        return self._change(changed)

    def _after(self, kind: int, run: Run) -> DeliveryState:
        return self._released(run) if kind == RELEASE else _DONE_BY[kind]

    def _released(self, run: Run) -> DeliveryState:
        has_more = run.count < self._rules.delivery_limit
        return DeliveryState.AVAILABLE if has_more else DeliveryState.ARCHIVED

    def _change(self, runs: list[Run]) -> DeliveryChange:
        batches = list[StateBatch]()
        for run in runs:
            state = run.state if run.becomes is None else run.becomes
            last = batches[-1] if batches else None
            if last is not None and last.last == run.first - 1 and last[2:] == (state, run.count):
                batches[-1] = last._replace(last=run.last)
            else:
                batches.append(StateBatch(run.first, run.last, int(state), run.count))
        complete = self._complete + self.start - self._told_start
        return DeliveryChange(self._told_start, batches, complete, runs)

    def commit(self, change: DeliveryChange) -> None:
        """Apply a change that is stored."""
        for run in change.runs:
            if run.becomes is not None:
                becomes, run.becomes = run.becomes, None
                if becomes.is_final:
                    self._complete -= run.size  # which was counted when the change was made
                self._become(run, becomes)
        for run in change.runs:
            self._merge(run)
        self._advance()
        self._told_start = self.start

    def roll_back(self, change: DeliveryChange) -> None:
        """Undo a change that could not be stored: its records are acquired as before."""
        self._complete -= _done(change.runs)
        for run in change.runs:
            run.becomes = None
            heapq.heappush(self._deadlines, (run.deadline_ms, run.first))

    # ---- the end of locks

    def expire(self, now_ms: int) -> DeliveryChange | None:
        """Release the records whose locks have ended; return the change, which is committed."""
        released: dict[int, Run] = {}  # by first offset: an entry may be there twice
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, first = heapq.heappop(self._deadlines)
            run = self._at(first)
            if run is not None and run.first == first and run.deadline_ms == deadline_ms and _is_held(run):
                released[first] = run
        return self._release_all([released[first] for first in sorted(released)])

    def release(self, member: str) -> DeliveryChange | None:
        """Release all records of a member; return the change, which is committed."""
        firsts = sorted({first for _, first in self._deadlines})
        held = [run for first in firsts if (run := self._at(first)) is not None and run.first == first]
        return self._release_all([run for run in held if run.member == member and _is_held(run)])

    def _release_all(self, runs: list[Run]) -> DeliveryChange | None:
        if not runs:
            return None
        for run in runs:
            self._become(run, self._released(run))
        change = self._change(runs)
        change.runs = []
        for run in runs:
            self._merge(run)
        self._advance()
        self._told_start = self.start
        return change

    def begin_at(self, offset: int) -> None:
        """Move on to the log start offset: records before it are done, unless they are acquired."""
        if offset <= self.start:
            return
        if offset > self.end:
            self._skipped, self._log_start = self.end, offset
            self._append(Run(self.end, offset - 1, DeliveryState.ARCHIVED))
        self._archive(self.start, offset - 1)
        self._advance()
        self._told_start = self.start

    # ---- runs

    def _append(self, run: Run) -> Run:
        self._runs.append(run)
        self.end = run.last + 1
        if run.state.is_final:
            self._complete += run.size
        elif run.state is DeliveryState.AVAILABLE:
            heapq.heappush(self._available, run.first)
        return run

    def _become(self, run: Run, state: DeliveryState) -> None:
        run.state, run.member, run.deadline_ms = state, "", 0
        if state.is_final:
            self._complete += run.size
        else:
            heapq.heappush(self._available, run.first)

    def _index(self, offset: int) -> int:
        return bisect_right(self._runs, offset, key=_FIRST) - 1

    def _at(self, offset: int) -> Run | None:
        """Return the run with a record, None if it is not in flight."""
        index = self._index(offset)
        return self._runs[index] if index >= 0 and offset < self.end else None

    def _first_available(self) -> Run | None:
        while self._available:
            run = self._at(self._available[0])
            if run is not None and run.first == self._available[0] and run.state is DeliveryState.AVAILABLE:
                return run
            heapq.heappop(self._available)
        return None

    def _overlapping(self, first: int, last: int) -> Iterable[Run]:
        for index in range(max(self._index(max(first, self.start)), 0), len(self._runs)):
            run = self._runs[index]
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def _head(self, run: Run, last: int) -> Run:
        """Cut a run after `last`; return the first part."""
        if last < run.last:
            index = self._index(run.first)
            rest = Run(
                last + 1, run.last, run.state, run.count, run.member, run.deadline_ms, run.batch
            )  # of no pending change
            run.last = last
            self._runs.insert(index + 1, rest)
            if rest.state is DeliveryState.AVAILABLE:
                heapq.heappush(self._available, rest.first)
            elif rest.state is DeliveryState.ACQUIRED:
                heapq.heappush(self._deadlines, (rest.deadline_ms, rest.first))
        return run

    def _cut(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly these records, as far as they are in flight; pending changes are left whole."""
        runs = list[Run]()
        for run in list(self._overlapping(first, last)):
            if run.becomes is not None or run.state.is_final:
                continue
            if run.first < first:
                self._head(run, first - 1)
                following = self._at(first)
                assert following is not None, "the second part"
                run = following
            runs.append(self._head(run, last))
        return runs

    def _merge(self, run: Run) -> None:
        """Join a run that is done with its neighbours that are, so that there are few."""
        if not run.state.is_final:
            return
        index = self._index(run.first)
        if index < 0 or self._runs[index] is not run:
            return  # it was joined with another one
        for at in (index + 1, index):
            if 0 < at < len(self._runs):
                before, after = self._runs[at - 1], self._runs[at]
                if before.state is after.state and before.state.is_final:
                    before.last = after.last
                    del self._runs[at]

    def _advance(self) -> None:
        """Move the start offset past the records that are done."""
        done = 0
        for run in self._runs:
            if not run.state.is_final:
                break
            done += 1
            self.start = run.last + 1
            self._complete -= run.size
        del self._runs[:done]

    def _tidy(self) -> None:
        """Drop deadlines that no longer hold, if they are most."""
        if len(self._deadlines) > _FEW + 4 * len(self._runs):
            held = [(run.deadline_ms, run.first) for run in self._runs if run.state is DeliveryState.ACQUIRED]
            self._deadlines = held
            heapq.heapify(self._deadlines)


def _known(state: int) -> DeliveryState:
    """Return a stored state. What a later release archives, and is not finished with, is archived."""
    known = state in (DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED)
    return DeliveryState(state) if known else DeliveryState.ARCHIVED


def _is_held(run: Run) -> bool:
    return run.state is DeliveryState.ACQUIRED and run.becomes is None


def _done(runs: Iterable[Run]) -> int:
    return sum(run.size for run in runs if run.becomes is not None and run.becomes.is_final)


def _pieces(acknowledgement: RecordAcknowledgement) -> Iterable[tuple[int, int, int]]:
    """Yield the type, the first and the last offset of each part of the same type."""
    if len(acknowledgement.types) == 1:
        yield acknowledgement.types[0], acknowledgement.first, acknowledgement.last
        return
    at = acknowledgement.first
    for kind, group in groupby(acknowledgement.types):
        size = sum(1 for _ in group)
        yield kind, at, at + size - 1
        at += size
