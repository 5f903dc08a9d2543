"""Walk the entries of a log: messages, wrappers and batches of any mix of magics, without separators."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.header import check_size
from magicbyte.engine.records.layout import (
    ENRICHED_MINIMUM,
    ENRICHED_TAGS_LENGTH,
    HEADER_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    SIZE,
    V0_MINIMUM,
    V1_TIMESTAMP,
    Dialect,
)
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.wire.checksum import Buffer

Entry: TypeAlias = MessageView | RecordBatch | EnrichedMessage

YEAR_2200_MS = 7_258_118_400_000


def parse_entry(buffer: memoryview, dialect: Dialect = Dialect.KAFKA) -> Entry | None:
    """Return a view of the entry at the start of `buffer`, or None while some of its bytes are missing.

    Raises CorruptRecordError for an impossible size and for an unknown magic.
    """
    if len(buffer) < HEADER_TO_MAGIC:
        if len(buffer) >= LOG_OVERHEAD:
            check_size(SIZE.read(buffer), V0_MINIMUM)
        return None
    if dialect is Dialect.ENRICHED:
        return EnrichedMessage.parse(buffer)
    magic = buffer[MAGIC.start]
    if magic == 2:
        return RecordBatch.parse(buffer)
    if magic <= 1:
        return MessageView.parse(buffer)
    check_size(SIZE.read(buffer), V0_MINIMUM)
    raise CorruptRecordError("magic", expected="0, 1 or 2", found=MAGIC.read(buffer), position=0)


class Tail(NamedTuple):
    """An incomplete entry at the end of a buffer: a torn write, or the end of a fetched slice.

    `needed` is the size of the whole entry in bytes, None if its size field is incomplete.
    """

    position: int
    found: int
    needed: int | None


class Entries(Iterator[tuple[int, Entry]]):
    """Iterates over the entries of `buffer` in order, with their positions.

    A CorruptRecordError has the position, and ends the walk. After a complete walk `tail` is the incomplete entry at
    the end, or None. `position` is that of the next entry.
    """

    def __init__(self, buffer: Buffer, dialect: Dialect = Dialect.KAFKA) -> None:
        self._buffer = memoryview(buffer)
        self._dialect = dialect
        self.position = 0
        self.tail: Tail | None = None

    def __next__(self) -> tuple[int, Entry]:
        position = self.position
        rest = self._buffer[position:]
        try:
            entry = parse_entry(rest, self._dialect)
        except CorruptRecordError as error:
            error.locate(shift=position)
            raise
        if entry is None:
            if rest:
                needed = LOG_OVERHEAD + SIZE.read(rest) if len(rest) >= LOG_OVERHEAD else None
                self.tail = Tail(position, len(rest), needed)
            raise StopIteration
        self.position += entry.size
        return position, entry


def entries(buffer: Buffer, dialect: Dialect = Dialect.KAFKA) -> Entries:
    """Walk the entries of a log, a fetched record set or a decompressed wrapper, without copying or verifying."""
    return Entries(buffer, dialect)


def dialect_doubt(entry: memoryview, dialect: Dialect) -> str | None:
    """Return why the entry at the start of `entry` seems to be of the other dialect, or None. For warnings only.

    An enriched message parsed as Kafka's shows timestamps far in the future; Kafka's parsed as enriched shows
    impossible tag lengths. Neither is proof, and many entries fit both dialects.
    """
    if len(entry) < ENRICHED_TAGS_LENGTH.start + 4 or entry[MAGIC.start] != 1:
        return None
    if dialect is Dialect.KAFKA:
        timestamp = V1_TIMESTAMP.read(entry)
        if timestamp >= YEAR_2200_MS:
            return f"timestamp {timestamp} ms is beyond the year 2200: is this log in the enriched dialect?"
    elif not -1 <= ENRICHED_TAGS_LENGTH.read(entry) <= SIZE.read(entry) - ENRICHED_MINIMUM:
        return f"tags of {ENRICHED_TAGS_LENGTH.read(entry)} bytes: is this log in Kafka's own dialect?"
    return None
