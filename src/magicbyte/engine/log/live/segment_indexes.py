"""The indexes of one segment of a live log: offsets, timestamps and aborted transactions, each in its own file.

Sources: Kafka's OffsetIndex, TimeIndex and TransactionIndex, and their use in LogSegment.

Invariants:
1. All of them can be made from the log. A start makes them if the offset index is missing, so `put` renames that last.
2. Entries ascend. Those of offsets and times are a sample; every aborted transaction has one.
3. `is_full` leaves room in the time index for the entry that the roll adds.
4. Any thread may read them while one appends. Corrected transactions replace the file's entries at once, in memory; the
   file follows in `mend_transactions`, and the old one stays open for readers that still use it.
5. Appends sync nothing. A crash leaves any content in the indexes of a segment that was not closed; its recovery makes
   the files again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.directory import ENRICHED_INDEX, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from magicbyte.engine.log.files.filesystem import put_file, read_whole
from magicbyte.engine.log.files.index_file import ENRICHED_ENTRY, OFFSET_ENTRY, TIME_ENTRY, IndexFile
from magicbyte.engine.log.files.indexes import EnrichedIndex, OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.names import LARGEST_OFFSET, MAX_RELATIVE
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from struct import Struct

    from magicbyte.engine.log.append.record_set import IndexEntry
    from magicbyte.engine.log.files.index_file import Entry
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.files.open_files import OpenFile
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.log.live.segment_names import SegmentNames

_OFFSET_COLUMN = {OFFSET_INDEX: 0, TIME_INDEX: 1, ENRICHED_INDEX: 0}
_POSITION_COLUMN = {OFFSET_INDEX: 1, ENRICHED_INDEX: 2}


class WalkedLog(NamedTuple):
    """Facts of a `.log` file of `size` bytes. A walk over its entries, at the positions `starts`, got to `walked`."""

    size: int
    walked: int
    starts: Container[int]
    end_offset: int
    largest_timestamp: int


class LiveIndexes:
    """The open index files of a segment; `by_kind` has those that exist from the beginning.

    Of `config`, only the dialect and the rules, which never change for a log, and the maximum index size are used.
    """

    def __init__(self, names: SegmentNames, config: LogConfig) -> None:
        self._names, self._config = names, config
        self.kinds = _kinds(config)
        self.by_kind: dict[str, IndexFile] = {}
        self._transactions: OpenFile | None = None
        self._superseded: OpenFile | None = None  # its former file, which a reader may still use
        # entries of markers below an offset, in place of the file's, which contradict the log
        self._corrected: tuple[bytes, int] | None = None

    # ---- files

    def begin(self, files: Iterable[OpenFile]) -> None:
        """Take the new empty files, one for each of `kinds`, in order."""
        for kind, file in zip(self.kinds, files, strict=True):
            self._take(kind, file)

    def open(self) -> None:
        """Open the indexes of a closed segment. A missing time index is created, empty.

        Raises CorruptRecordError if an index is missing or cannot be this segment's: then the segment needs recovery.
        """
        names = self._names
        for kind in self.kinds:
            path = names.path(kind)
            if not names.has(kind):
                if kind != TIME_INDEX:
                    raise CorruptRecordError("index", expected="a file", found="none").locate(path=path)
                names.files.create(path).close()
            index = self._take(kind, names.files.edit(path))
            index.verify(_OFFSET_COLUMN[kind])
            before = index.entry(index.count - 2) if index.count > 1 else None
            if before is not None and index.last is not None and not _follows(kind, before, index.last):
                raise CorruptRecordError("index entry", expected=f"larger than {before}", found=index.last).locate(
                    path=path, shift=(index.count - 1) * self.kinds[kind].size
                )
        if names.has(TRANSACTION_INDEX):
            self.transactions(0, 0)  # raises an error for a damaged file
            self._opened_transactions()

    def _take(self, kind: str, file: OpenFile) -> IndexFile:
        index = self.by_kind[kind] = IndexFile(file, self.kinds[kind], self._config.segment_index_bytes)
        return index

    def names_more_than_there_is(self, log: WalkedLog, end_offset: int) -> bool:
        """Return whether an index credibly shows that the log lacks entries, even if it ends between two of them.

        `end_offset`: that of the closed log, or the next segment's base. An index is derived from its log, so it proves
        a loss only if all of it can be true: its entries are in order, those in the log are starts of entries there,
        and those beyond it have offsets, or a timestamp, that nothing in the log has. Otherwise the index is damaged.
        """
        base = self._names.base_offset
        for kind, parse in ((OFFSET_INDEX, OffsetIndex.parse), (ENRICHED_INDEX, EnrichedIndex.parse)):
            if (data := self._content(kind)) is None:
                continue
            try:
                index = parse(data, base)
                index.verify()
            except CorruptRecordError:
                continue
            pairs = list(zip(index.positions.tolist(), index.offsets.tolist(), strict=True))
            missing = [offset for position, offset in pairs if position >= log.size]
            is_of_log = all(position in log.starts for position, _ in pairs if position < log.walked)
            if missing and is_of_log and log.end_offset <= missing[0] and missing[-1] < end_offset:
                return True
        if (data := self._content(TIME_INDEX)) is None:
            return False
        try:
            times = TimeIndex.parse(data, base)
            times.verify()
        except CorruptRecordError:
            return False
        if not len(times):
            return False
        return (
            log.end_offset <= int(times.offsets[-1]) < end_offset and int(times.timestamps[-1]) > log.largest_timestamp
        )

    def _content(self, kind: str) -> bytes | None:
        """Return the bytes of an index file; None without it, or if no index is that large."""
        if kind not in self.kinds or not self._names.has(kind):
            return None
        try:
            return read_whole(self._names.files, self._names.path(kind))
        except (CorruptRecordError, LogDirectoryError):
            return None

    def open_files(self) -> list[OpenFile]:
        """Return the open files in the order in which they are synced."""
        files = [index.file for index in self.by_kind.values()]
        return files if self._transactions is None else [*files, self._transactions]

    def release(self) -> None:
        """Close the open files. Nothing is synced."""
        for file in self.open_files():
            file.close()
        if self._superseded is not None:
            self._superseded.close()

    def grow(self) -> None:
        """Extend each file to its preallocated size."""
        for index in self.by_kind.values():
            index.grow()

    def trim(self) -> None:
        """Remove the preallocated space after the entries."""
        for index in self.by_kind.values():
            index.trim()

    def put(self, made: Mapping[str, bytes], *, durable: bool) -> None:
        """Replace the indexes by these files, by suffix; the file whose absence triggers a rebuild is renamed last."""
        for kind in (TRANSACTION_INDEX, *reversed(self.kinds)):
            self._put(kind, made.get(kind, b""), durable=durable)

    def _put(self, kind: str, content: bytes, *, durable: bool) -> None:
        """Replace an index file; that of aborted transactions only if it has entries."""
        files, path = self._names.files, self._names.path(kind)
        if kind in self.by_kind:
            self.by_kind.pop(kind).file.close()
        elif kind == TRANSACTION_INDEX and self._transactions is not None:
            self._transactions.close()
            self._transactions = None
        if not content and kind == TRANSACTION_INDEX:
            if self._names.has(kind):
                files.delete(path)
            return
        if durable:
            put_file(files, path, content)
            file = files.edit(path)
        else:
            file = files.create(path)
            file.write_at(0, content)
        if kind == TRANSACTION_INDEX:
            self._transactions = file
        else:
            self._take(kind, file)

    def truncate(self, offset: int, log_size: int) -> None:
        """Keep the entries for data that ends before `offset` and begins before position `log_size`."""
        relative = max(offset - self._names.base_offset, 0)
        for kind, index in self.by_kind.items():
            count = index.floor(_OFFSET_COLUMN[kind], relative - 1) + 1
            if kind in _POSITION_COLUMN:
                count = min(count, index.floor(_POSITION_COLUMN[kind], log_size - 1) + 1)
            index.truncate(count)
        kept = [each for each in self.transactions(0, offset) if each.last_offset < offset]
        if self._names.has(TRANSACTION_INDEX):
            self._opened_transactions().truncate(len(kept) * TransactionIndex.ENTRY_SIZE)

    # ---- offsets and timestamps

    @property
    def sizes(self) -> list[int]:
        """The bytes of the entries in each of these files."""
        return [self.by_kind[kind].count * layout.size for kind, layout in self.kinds.items()]

    @property
    def is_full(self) -> bool:
        """Whether one of them may lack room for the next set.

        The last entry of a time index is reserved for the roll.
        """
        for kind, index in self.by_kind.items():  # noqa: SIM110 (each append asks: a generator costs four calls)
            if index.count >= index.capacity - (kind == TIME_INDEX):
                return True
        return False

    def last(self, kind: str) -> Entry | None:
        """Return the last entry of an index, None without one."""
        return self.by_kind[kind].last if kind in self.by_kind else None

    def add(self, entries: Sequence[IndexEntry], begin: int) -> None:
        """Add the index entries of a set that begins at position `begin`."""
        base, rules = self._names.base_offset, self._config.rules
        if self._config.dialect is Dialect.ENRICHED:
            triples = [(each.first_offset - base, each.timestamp, begin + each.position) for each in entries]
            self.by_kind[ENRICHED_INDEX].extend(triples)
            return
        named = [each.last_offset if rules.names_last_offset else each.first_offset for each in entries]
        self.by_kind[OFFSET_INDEX].extend(
            [(offset - base, begin + each.position) for offset, each in zip(named, entries, strict=True)]
        )
        self.add_times([(each.timestamp, each.time_offset) for each in entries])

    def add_times(self, times: Sequence[tuple[int, int]]) -> None:
        """Add timestamps and their offsets to the time index, unless they equal its last entry."""
        index = self.by_kind.get(TIME_INDEX)
        if index is None:
            return
        last, entries = NO_TIMESTAMP if index.last is None else index.last[0], []
        for timestamp, offset in times:
            if timestamp > last:
                entries.append((timestamp, offset - self._names.base_offset))
                last = timestamp
        if entries:
            index.extend(entries)

    def add_last(self, offset: int, timestamp: int, position: int) -> None:
        """Enriched: give the last entry of the log an index entry, unless it has one."""
        index = self.by_kind[ENRICHED_INDEX]
        if index.last is None or index.last[2] < position:
            index.append(offset - self._names.base_offset, timestamp, position)

    def before(self, offset: int) -> Iterator[int]:
        """Yield the positions of index entries at or before `offset`, the nearest first, and at the end 0.

        If the index is right, each is at or before every entry of the log with `offset` or a later one, and the first
        less than an index interval away.
        """
        relative = offset - self._names.base_offset
        if relative >= 0:
            index, step = self.by_kind[self.of_offsets], 1
            at = index.floor(0, min(relative, MAX_RELATIVE))
            while at >= 0:
                entry = index.entry(at)
                if entry[-1]:
                    yield entry[-1]
                at, step = at - step, 2 * step
        yield 0

    @property
    def of_offsets(self) -> str:
        """The suffix of the file that leads from offsets to positions."""
        return ENRICHED_INDEX if self._config.dialect is Dialect.ENRICHED else OFFSET_INDEX

    def offset_after(self, position: int) -> int | None:
        """Return an offset that no entry before `position` reaches; None if the index has none after it."""
        index = self.by_kind[self.of_offsets]
        column = _POSITION_COLUMN[self.of_offsets]
        at = index.floor(column, position - 1) + 1
        return self._names.base_offset + index.entry(at)[0] if at < index.count else None

    def before_timestamp(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """Yield timestamps and offsets of index entries before `timestamp`, the nearest first.

        All entries of the log up to such an offset have that timestamp or smaller ones, if the index is right.
        """
        kind = ENRICHED_INDEX if self._config.dialect is Dialect.ENRICHED else TIME_INDEX
        index, step = self.by_kind.get(kind), 1
        if index is None:
            return
        column, place = (1, 0) if kind == ENRICHED_INDEX else (0, 1)
        at = index.floor(column, timestamp - 1)
        while at >= 0:
            entry = index.entry(at)
            if entry[column] < timestamp:
                yield entry[column], self._names.base_offset + entry[place]
            at, step = at - step, 2 * step

    def largest_timestamp(self) -> tuple[int, int] | None:
        """Return the largest indexed timestamp (ms) and its offset: entries with a larger one are after it.

        None if no index has timestamps.
        """
        base = self._names.base_offset
        if ENRICHED_INDEX in self.kinds:
            last = self.by_kind[ENRICHED_INDEX].last
            return (NO_TIMESTAMP, base) if last is None else (last[1], base + last[0])
        if TIME_INDEX not in self.kinds:
            return None
        last = self.by_kind[TIME_INDEX].last
        if last is not None:
            return last[0], base + last[1]
        places = self.by_kind[OFFSET_INDEX].last
        return NO_TIMESTAMP, base if places is None else base + places[0]

    # ---- aborted transactions

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker was appended to the segment."""
        file = self._opened_transactions()
        file.write_at(file.size, TransactionIndex((aborted,)).to_bytes())

    def put_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Replace all aborted transactions."""
        if self._transactions is not None:
            self._transactions.truncate(0)
        for each in transactions:
            self.append_aborted(each)

    def transactions(self, first: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with an offset in `first` to below `end` whose markers are in this
        segment.
        """
        path = self._names.path(TRANSACTION_INDEX)
        try:
            if (opened := self._transactions) is not None:
                return TransactionIndex.all_in(opened.read_at, opened.size, first, end)
            if not self._names.has(TRANSACTION_INDEX):
                return []
            with self._names.files.open(path) as file:
                return TransactionIndex.all_in(file.read_at, file.size, first, end)
        except CorruptRecordError as error:
            raise error.locate(path=path) from None

    def aborted(self, first: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the result of `transactions`, from the relevant entries, and whether later segments have no more.

        Corrected entries come in place of the file's. Any thread may call it.
        """
        transactions: list[AbortedTransaction] = []
        if (corrected := self._corrected) is not None:
            entries, behind = corrected
            transactions, is_complete = TransactionIndex.search(
                lambda position, length: entries[position : position + length], len(entries), first, end
            )
            if is_complete:
                return transactions, True
            first = max(first, behind)
        file = self._transactions
        if file is None:
            return transactions, False
        try:
            stored, is_complete = TransactionIndex.search(file.read_at, file.size, first, end)
        except CorruptRecordError as error:
            raise error.locate(path=file.path) from None
        return transactions + stored, is_complete

    def correct(self, transactions: Sequence[AbortedTransaction], end_offset: int) -> None:
        """Use these aborted transactions in place of those in the file whose markers are below `end_offset`.

        Any thread may call it; `mend_transactions` writes them.
        """
        self._corrected = TransactionIndex(tuple(transactions)).to_bytes(), end_offset

    def forget_corrections(self) -> None:
        """Use the file's aborted transactions again."""
        self._corrected = None

    def mend_transactions(self) -> None:
        """Replace the file of aborted transactions by a right one, durably, if they were corrected.

        Readers use the corrected entries until the new file is there. They may still use the old one then: it stays
        open until `release`.
        """
        if self._corrected is None:
            return
        entries, behind = self._corrected
        entries += TransactionIndex(tuple(self.transactions(behind, LARGEST_OFFSET))).to_bytes()
        self._corrected = entries, LARGEST_OFFSET
        files, path, old = self._names.files, self._names.path(TRANSACTION_INDEX), self._transactions
        if old is not None:
            old.pin()
        if entries:
            put_file(files, path, entries)
        elif self._names.has(TRANSACTION_INDEX):
            files.delete(path)
        if self._superseded is not None:
            self._superseded.close()
        self._superseded, self._transactions = old, files.edit(path) if entries else None
        self._corrected = None

    def _opened_transactions(self) -> OpenFile:
        """Return the file of aborted transactions, created if needed."""
        if self._transactions is None:
            files, path = self._names.files, self._names.path(TRANSACTION_INDEX)
            self._transactions = files.edit(path) if self._names.has(TRANSACTION_INDEX) else files.create(path)
        return self._transactions


_STRICT = {OFFSET_INDEX: (True, True), TIME_INDEX: (True, False), ENRICHED_INDEX: (True, False, True)}
"""Which fields of an index entry are larger than those of the entry before; the others are at least as large."""


def _follows(kind: str, before: Entry, entry: Entry) -> bool:
    """Return whether an index can have `entry` directly after `before`."""
    return all(
        old < new or (old == new and not strict) for old, new, strict in zip(before, entry, _STRICT[kind], strict=True)
    )


def _kinds(config: LogConfig) -> dict[str, Struct]:
    """Return the index files of a new segment, by suffix, and the struct of their entries."""
    if config.dialect is Dialect.ENRICHED:
        return {ENRICHED_INDEX: ENRICHED_ENTRY}
    if config.rules.has_time_index:
        return {OFFSET_INDEX: OFFSET_ENTRY, TIME_INDEX: TIME_ENTRY}
    return {OFFSET_INDEX: OFFSET_ENTRY}
