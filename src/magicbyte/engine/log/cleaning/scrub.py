"""Find damaged batches of a live log, and decide which bytes replace them. Reads only; starts no thread.

A range is damaged if a checksum fails there, if offsets do not ascend, or if a batch has another leader epoch than the
log's file of epochs. Its offsets are those that the sound batches around it leave. In replicas of one log the same
batches have the same bytes: so a replacement has the size of the range, and no position in the segment changes.

Rules of a replacement (`agreed`):
1. A replica counts if it answered in the leader epoch of this one (a request in another epoch is refused), and if all
   of the range is below its high watermark and not before its log start offset. A shorter one does not count.
2. Its bytes count if they are sound: checksums, offsets, and the leader epochs of this log's own file.
3. More than half of all assigned replicas, this one included, must have the same bytes. Else nothing is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.resync import Displaced, Gap, Outlier, RowOrder, Sound, walk
from magicbyte.engine.records.layout import PARTITION_LEADER_EPOCH, Dialect
from magicbyte.engine.records.scan import scan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from magicbyte.engine.log.files.checkpoints import LeaderEpoch
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.log.live.segment import Segment
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.engine.records.scan import BatchTable

_COPY_BYTES: Final = 4 << 20


class DamagedRange(NamedTuple):
    """Damaged bytes of a file, from `position` to `end`; of the offsets from `first_offset` to below `end_offset`."""

    position: int
    end: int
    first_offset: int
    end_offset: int
    error: CorruptRecordError

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.end - self.position


class ReplicaBytes(NamedTuple):
    """What another replica answered: its offsets, and its bytes from the batch with `first_offset` on."""

    broker_id: int
    high_watermark: int
    log_start_offset: int
    records: bytes


class Agreement(NamedTuple):
    """The bytes of a range on which most replicas agree, or the reason why there are none."""

    content: bytes | None
    why: str = ""


class _SoundPiece(NamedTuple):
    """Sound bytes: `row` is the number of their row in the walk."""

    row: int
    position: int
    end: int
    first: int
    last: int


class _Bytes:
    """Bytes as a file."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self._content = path, memoryview(content)
        self.size = len(content)

    def fileno(self) -> None:
        """Return None: there is no descriptor."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end."""
        return bytes(self._content[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return their number."""
        found = self._content[position : position + len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Beginning(_Bytes):
    """The first `size` bytes of a file."""

    def __init__(self, file: ReadableFile, size: int) -> None:
        self.path, self._file, self.size = file.path, file, size

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end."""
        return self._file.read_at(position, max(min(length, self.size - position), 0))

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return their number."""
        return self._file.read_into(position, buffer[: max(self.size - position, 0)])


class SegmentScrub:
    """The check of one segment below a high watermark: `run` it step by step, then `found` has its damage.

    Appends, truncations and an exchange of the segment may happen meanwhile: they do not change the bytes below the
    high watermark of the open file. Damage above it is left to a later check, when other replicas have the records.
    """

    def __init__(self, log: PartitionLog, segment: Segment, high_watermark: int) -> None:
        later = (each.base_offset for each in list(log.segments) if each.base_offset > segment.base_offset)
        self._base, self._end_offset = segment.base_offset, next(later, log.log_end_offset)
        self._high_watermark = high_watermark
        epochs = list(log.epochs.entries) if log.config.rules.has_producers else []
        file = _Beginning(segment.log.opened(), segment.size)
        self._walked = _SoundWalk(file, log.config.dialect, epochs, self._base, self._base + MAX_RELATIVE)
        self.found: list[DamagedRange] = []

    def run(self) -> Iterator[int]:
        """Yield after each piece the number of bytes read. Raises OSError."""
        yield from self._walked.run()
        found = self._walked.damaged(self._base, self._end_offset)
        self.found = [each for each in found if each.end_offset <= self._high_watermark]


class _SoundWalk:
    """The sound pieces of a file."""

    def __init__(
        self, file: ReadableFile, dialect: Dialect, epochs: Sequence[LeaderEpoch], low: int, high: int
    ) -> None:
        self._file, self._dialect, self._epochs, self._limits = file, dialect, epochs, Limits(low, high)
        self._pieces: list[_SoundPiece] = []
        self._errors: dict[int, CorruptRecordError] = {}

    def run(self) -> Iterator[int]:
        """Walk the file; yield the number of bytes after each piece."""
        for row in walk(self._file, self._limits, self._dialect):
            match row:
                case Sound(order=RowOrder.MAIN):
                    self._pieces += self._of_their_epochs(row)
                    yield len(row.view)
                case Sound():
                    yield len(row.view)
                case Gap():
                    self._errors[row.position] = row.error
                    yield row.end - row.position
                case Outlier():
                    self._cut(row.position, row.last)
                case Displaced():
                    self._pieces = [each for each in self._pieces if each.row < row.row]

    def _cut(self, position: int, last: int) -> None:
        """Withdraw the last batch, which begins at `position`."""
        piece = self._pieces.pop()
        if piece.position < position:
            self._pieces.append(piece._replace(end=position, last=last))

    def _of_their_epochs(self, row: Sound) -> Iterator[_SoundPiece]:
        """Yield the parts of a row whose batches have the leader epochs of the log."""
        import numpy as np

        piece = _SoundPiece(row.row, row.position, row.end, row.first, row.last)
        table = scan(row.view, dialect=self._dialect)
        wrong = np.empty(0, np.int64) if not self._epochs else _of_other_epochs(table, self._epochs)
        at = 0
        for number in wrong.tolist():
            position = row.position + int(table.position[number])
            error = CorruptRecordError(
                "leader epoch", expected="that of its offset", found="another", position=position
            )
            self._errors[position] = error.locate(path=self._file.path)
            if number > at:
                yield piece._replace(end=position, last=int(table.offset[number]) - 1)
            at = number + 1
            if at == len(table):
                return
            piece = piece._replace(
                position=row.position + int(table.position[at]), first=int(table.offset[at]), end=row.end, last=row.last
            )
        yield piece

    def damaged(self, first_offset: int, end_offset: int) -> list[DamagedRange]:
        """Return the ranges between the sound pieces."""
        ranges, position, offset = list[DamagedRange](), 0, first_offset
        for piece in (*self._pieces, None):
            begin, first = (self._file.size, end_offset) if piece is None else (piece.position, piece.first)
            if begin > position:
                ranges.append(DamagedRange(position, begin, offset, first, self._error(position, begin, offset)))
            if piece is not None:
                position, offset = piece.end, piece.last + 1
        return ranges

    def _error(self, position: int, end: int, offset: int) -> CorruptRecordError:
        for at in sorted(self._errors):
            if position <= at < end:
                return self._errors[at]
        error = CorruptRecordError("offset", expected=f"{offset}, after the batch before it", found="another")
        error.position = position
        return error.locate(path=self._file.path)


def _of_other_epochs(table: BatchTable, epochs: Sequence[LeaderEpoch]) -> npt.NDArray[np.int64]:
    """Return the rows of the batches whose leader epoch is not the one that `epochs` has for their offset."""
    import numpy as np

    rows: npt.NDArray[np.int64] = np.flatnonzero(np.asarray(table.magic, np.int64) == 2)
    starts = np.array([each.start_offset for each in epochs], np.int64)
    numbers = np.array([each.epoch for each in epochs], np.int64)
    at = np.searchsorted(starts, np.asarray(table.offset, np.int64)[rows], side="right") - 1
    is_wrong: npt.NDArray[np.bool_] = (at >= 0) & (table.gather(PARTITION_LEADER_EPOCH, rows) != numbers[at])
    wrong: npt.NDArray[np.int64] = rows[is_wrong]
    return wrong


# ---- the replacement


def agreed(log: PartitionLog, damaged: DamagedRange, answers: Sequence[ReplicaBytes], replicas: int) -> Agreement:
    """Return the bytes that replace a range, by the answers of other replicas; `replicas`: how many are assigned."""
    votes, refusals = Counter[bytes](), list[str]()
    for answer in answers:
        why = _why_not(log, damaged, answer)
        if why is None:
            votes[answer.records[: damaged.size]] += 1
        else:
            refusals.append(f"broker {answer.broker_id} {why}")
    for content, count in votes.most_common(1):
        if 2 * count > replicas:
            return Agreement(content)
        refusals.append(f"at most {count} of {replicas} replicas have the same sound bytes")
    return Agreement(None, "; ".join(refusals) or "no other replica answered")


def _why_not(log: PartitionLog, damaged: DamagedRange, answer: ReplicaBytes) -> str | None:
    """Return why an answer does not count, None if it does."""
    if answer.high_watermark < damaged.end_offset:
        return f"has committed records up to offset {answer.high_watermark} only"
    if answer.log_start_offset > damaged.first_offset:
        return f"begins at offset {answer.log_start_offset}"
    content = answer.records[: damaged.size]
    if len(content) < damaged.size:
        return "has other batches there"
    epochs = log.epochs.entries if log.config.rules.has_producers else []
    file = _Bytes(f"broker {answer.broker_id}", content)
    walked = _SoundWalk(file, log.config.dialect, epochs, damaged.first_offset, damaged.end_offset - 1)
    for _ in walked.run():
        pass
    if walked.damaged(damaged.first_offset, damaged.end_offset):
        return "has no sound batches of these offsets there"
    return None


def copy_with(segment: Segment, contents: Sequence[tuple[DamagedRange, bytes]], path: str) -> Iterator[int]:
    """Write a copy of a closed segment's log to `path`, with these contents in place of damaged ranges.

    Yields the number of bytes after each piece. A crash leaves a file that the next start deletes. Nothing is synced:
    `PartitionLog.replace` does so.
    """
    with segment.files.create(path) as copy:
        position = 0
        while position < segment.size:
            piece = segment.log.read_at(position, min(_COPY_BYTES, segment.size - position))
            copy.write_at(position, piece)
            position += len(piece)
            yield len(piece)
        for damaged, content in contents:
            copy.write_at(damaged.position, content)
