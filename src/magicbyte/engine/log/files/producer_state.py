"""The state of a log's producers and leader epochs at an offset, updated batch by batch.

Kafka keeps it in memory and writes it as `.snapshot` files, `.txnindex` entries and `leader-epoch-checkpoint`. It can
be rebuilt from the log alone. Only magic 2 has it. Sources: Kafka's ProducerStateManager, ProducerAppendInfo and
LeaderEpochFileCache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files import indexes
from magicbyte.engine.log.files.checkpoints import LeaderEpoch
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry, ProducerSnapshot
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlRecord, ControlType, marker_of
from magicbyte.engine.records.layout import (
    CONTROL_BIT,
    PARTITION_LEADER_EPOCH,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from magicbyte.engine.records.scan import BatchTable
from magicbyte.engine.records.transactions import AbortedRange, BatchFacts, OpenTransactions
from magicbyte.engine.releases import MarkerRule
from magicbyte.engine.sentinels import NO_EPOCH, NO_OFFSET, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy.typing as npt

REMEMBERED = 5
"""Batches per producer that a leader recognizes as duplicates: as many as a client may have in flight."""


class AppendedBatch(NamedTuple):
    """A batch in the log; `timestamp` is its largest, in ms."""

    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStates:
    """The producers of one partition, and its open transactions, as far as `append` has gone.

    `indexes_empty`: up to 2.7 an ABORT marker of a producer without an open transaction counts as one, of its own
    offset alone. A broker forgets producers of long ago when it loads a snapshot; here none is forgotten.
    `remembered`: how many batches of each producer to keep for `recent_batches`.
    """

    def __init__(
        self, marker_rule: MarkerRule = MarkerRule.TIMESTAMP, *, indexes_empty: bool = False, remembered: int = 0
    ) -> None:
        self._rule = marker_rule
        self._indexes_empty = indexes_empty
        self._remembered = remembered
        self._recent: dict[int, deque[AppendedBatch]] = {}
        self._producers: dict[int, ProducerEntry] = {}
        self._transactions = OpenTransactions()

    def append(self, table: BatchTable) -> list[indexes.AbortedTransaction]:
        """Apply the entries of `table`, unmerged. Return the transactions that they abort, as in a `.txnindex`.

        Raises CorruptRecordError for an invalid marker, with its position in the table's buffer.
        """
        aborted = []
        for row in telling_rows(table, max(1, self._remembered)):
            position = int(table.position[row])
            batch = RecordBatch(table.buffer[position : position + int(table.size[row])])
            try:
                found = self.add(batch, marker_of(batch))
            except CorruptRecordError as error:
                error.position = position
                raise error.locate(offsets=(batch.base_offset, batch.last_offset)) from None
            if found is not None:
                aborted.append(found)
        return aborted

    def start_from(self, snapshot: ProducerSnapshot) -> None:
        """Load a snapshot, before the first `append`."""
        for entry in snapshot.producers:
            self._producers[entry.producer_id] = entry._replace(current_txn_first_offset=NO_OFFSET)
            if self._remembered and entry.last_offset >= 0:
                first = entry.last_offset - entry.offset_delta
                last = AppendedBatch(
                    entry.first_sequence, entry.last_sequence, first, entry.last_offset, entry.timestamp
                )
                self._recent[entry.producer_id] = deque([last], self._remembered)
            if entry.current_txn_first_offset != NO_OFFSET:
                self._transactions.first_offsets[entry.producer_id] = entry.current_txn_first_offset

    def snapshot(self) -> ProducerSnapshot:
        """Return the state as in a `.snapshot` file, by producer id."""
        open_at = self._transactions.first_offsets
        return ProducerSnapshot(
            tuple(
                self._producers[key]._replace(current_txn_first_offset=open_at.get(key, NO_OFFSET))
                for key in sorted(self._producers)
            )
        )

    @property
    def recent_batches(self) -> Mapping[int, Sequence[AppendedBatch]]:
        """The last `remembered` batches of each producer in its current epoch. A snapshot's batch comes first."""
        return self._recent

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction, None if none is open."""
        return min(self._transactions.first_offsets.values(), default=None)

    def begin_of(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction, None if it has none."""
        return self._transactions.first_offsets.get(producer_id)

    def add(self, batch: RecordBatch, marker: ControlRecord | None) -> indexes.AbortedTransaction | None:
        """Apply one batch of a producer, with its `marker_of`; return the transaction that it aborts.

        Raises as `append` does.
        """
        producer, epoch = batch.producer_id, batch.producer_epoch
        old = self._producers.get(producer)
        if old is None:
            old = _no_batches(producer, epoch)
        elif epoch != old.producer_epoch:  # a newer one: earlier batches and their timestamp are forgotten
            coordinator_epoch = old.coordinator_epoch
            old = _no_batches(producer, epoch)._replace(coordinator_epoch=coordinator_epoch)
            self._recent.pop(producer, None)
        kind, is_control = None if marker is None else marker.type, batch.is_control
        if not is_control:
            old = ProducerEntry(
                producer,
                epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset_delta,
                batch.max_timestamp,
                old.coordinator_epoch,
                old.current_txn_first_offset,
            )
            self._remember(batch)
        elif marker is not None and marker.coordinator_epoch is not None:
            old = old._replace(coordinator_epoch=marker.coordinator_epoch)
            if self._rule is not MarkerRule.NOTHING:
                old = old._replace(timestamp=batch.max_timestamp)
            if self._rule is MarkerRule.IS_A_BATCH:
                old = old._replace(last_offset=batch.last_offset, offset_delta=0)
        else:
            return None  # KRaft's own control records, or a marker emptied by compaction
        self._producers[producer] = old
        ended = self._transactions.append(
            BatchFacts(producer, batch.base_offset, batch.last_offset, batch.is_transactional, is_control, kind)
        )
        if ended is None and self._indexes_empty and kind is ControlType.ABORT:
            stable = self._transactions.last_stable_offset(batch.next_offset)
            ended = AbortedRange(producer, batch.base_offset, batch.last_offset, stable)
        return None if ended is None else indexes.AbortedTransaction(indexes.TRANSACTION_VERSION, *ended)

    def _remember(self, batch: RecordBatch) -> None:
        """Add a data batch with a sequence to `recent_batches`."""
        if self._remembered and batch.base_sequence > NO_SEQUENCE:
            recent = self._recent.setdefault(batch.producer_id, deque(maxlen=self._remembered))
            recent.append(
                AppendedBatch(
                    batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.max_timestamp
                )
            )


def _no_batches(producer: int, epoch: int) -> ProducerEntry:
    """Return the entry of a producer before its first batch."""
    return ProducerEntry(producer, epoch, NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP, NO_EPOCH, NO_OFFSET)


def telling_rows(table: BatchTable, remembered: int = 1) -> list[int]:
    """Return the rows, ascending, that determine the state.

    In a run of data batches of one producer, epoch and kind, without a marker of that producer between them, only the
    first (which may begin a transaction) and the last `remembered` matter.
    """
    import numpy as np

    batches = np.flatnonzero(np.asarray(table.magic, np.int64) == 2)
    producers = table.gather(PRODUCER_ID, batches)
    mine = producers != NO_PRODUCER_ID
    rows = batches[mine]
    if not len(rows):
        return []
    bits = np.asarray(table.attributes, np.int64)[rows] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    facts: Any = np.stack([producers[mine], table.gather(PRODUCER_EPOCH, rows), bits])
    order = np.argsort(facts[0], kind="stable")
    facts = facts[:, order]
    like_next = (facts[:, 1:] == facts[:, :-1]).all(axis=0) & (facts[2, 1:] & CONTROL_BIT == 0)
    inside = np.zeros(len(rows), bool)
    end = len(rows) - remembered
    if end > 1:
        inside[1:end] = like_next[: end - 1]
        for ahead in range(remembered):
            inside[1:end] &= like_next[1 + ahead : end + ahead]
    telling: list[int] = np.sort(rows[order[~inside]]).tolist()
    return telling


class LeaderEpochs:
    """The start offset of each leader epoch of one partition, as far as `append` has gone.

    `ends_with_older`: a message of magic 0 or 1 makes Kafka clear the known epochs (from 2.1.1 on).
    """

    def __init__(self, *, ends_with_older: bool = True) -> None:
        self.entries: list[LeaderEpoch] = []
        self._ends_with_older = ends_with_older
        self._has_ended = False  # the known epochs were cleared

    def append(self, table: BatchTable) -> None:
        """Apply the entries of `table`, unmerged."""
        import numpy as np

        is_batch = np.asarray(table.magic, np.int64) == 2
        if self._ends_with_older and not is_batch.all():
            self.entries.clear()
            self._has_ended = True
            is_batch[: int(np.flatnonzero(~is_batch)[-1])] = False
        rows: npt.NDArray[np.int64] = np.flatnonzero(is_batch)
        epochs = table.gather(PARTITION_LEADER_EPOCH, rows)
        known = self.entries[-1].epoch if self.entries else NO_EPOCH
        highest = np.maximum.accumulate(np.concatenate(([known], epochs)))
        for row in np.flatnonzero(epochs > highest[:-1]).tolist():
            self.entries.append(LeaderEpoch(int(epochs[row]), int(table.offset[rows[row]])))

    def follow(self, later: LeaderEpochs) -> None:
        """Apply the epochs of `later`, which began with the entry after the last one here."""
        if later._has_ended:
            self.entries.clear()
            self._has_ended = True
        known = self.entries[-1].epoch if self.entries else NO_EPOCH
        self.entries += [each for each in later.entries if each.epoch > known]

    def unlike(self, noted: Sequence[LeaderEpoch]) -> Iterator[tuple[LeaderEpoch, int | None]]:
        """Yield the epochs that a checkpoint lacks or has with a later start, and their start there.

        A checkpoint may have more epochs, those of leaders without records. It may lack epochs of deleted records.
        """
        starts = dict(noted)
        for entry in self.entries if noted else []:
            epoch, start = entry
            known = starts.get(epoch)
            if start < noted[0].start_offset and epoch < noted[0].epoch:
                continue
            if known is None or known > max(start, noted[0].start_offset):
                yield entry, known

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add `epoch`, whose leader wrote `start_offset`; return whether it is new."""
        if epoch <= (self.entries[-1].epoch if self.entries else NO_EPOCH):
            return False
        while self.entries and self.entries[-1].start_offset >= start_offset:
            self.entries.pop()
        self.entries.append(LeaderEpoch(epoch, start_offset))
        return True

    def end_with_older(self) -> bool:
        """Apply a message of magic 0 or 1; return whether it removed epochs."""
        forgets = self._ends_with_older and bool(self.entries)
        if forgets:
            self.entries.clear()
        return forgets

    def truncate_end(self, offset: int) -> bool:
        """Remove epochs that begin at `offset` or later; return whether there were any."""
        count = len(self.entries)
        self.entries = [each for each in self.entries if each.start_offset < offset]
        return len(self.entries) < count

    def truncate_start(self, offset: int) -> bool:
        """Remove epochs that end at `offset` or earlier; one that continues then begins there.

        Return whether any changed.
        """
        before = [each for each in self.entries if each.start_offset < offset]
        if not before:
            return False
        rest = self.entries[len(before) :]
        if not rest or rest[0].start_offset > offset:
            rest.insert(0, LeaderEpoch(before[-1].epoch, offset))
        self.entries = rest
        return True

    def end_offset_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch` and its end offset; (-1, -1) if no such epoch is known."""
        if not self.entries or epoch < 0 or epoch > self.entries[-1].epoch:
            return -1, -1
        if epoch == self.entries[-1].epoch:
            return epoch, log_end
        higher = next(each for each in self.entries if each.epoch > epoch)
        known = [each.epoch for each in self.entries if each.epoch <= epoch]
        return (known[-1] if known else epoch), higher.start_offset
