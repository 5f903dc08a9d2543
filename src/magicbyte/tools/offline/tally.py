"""The totals of an inventory, over the entries of one partition or of several."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

Json = dict[str, Any]


@dataclass(slots=True)
class FormatCount:
    """Entries of one magic and codec.

    `records` without control records; None if it is known only after decompression.
    """

    batches: int = 0
    bytes: int = 0
    records: int | None = 0


@dataclass(slots=True)
class Lz4Headers:
    """LZ4 frames by their header checksum: of the descriptor (correct), as Kafka before v1 (broken), or neither."""

    correct: int = 0
    broken: int = 0
    other: int = 0


@dataclass(slots=True)
class Holes:
    """Offset gaps between entries: their number, and the number of missing offsets."""

    count: int = 0
    offsets: int = 0


@dataclass(slots=True)
class RecordFacts:
    """Facts known only after decoding."""

    records: int = 0
    tombstones: int = 0  # records with a null value
    with_key: int = 0
    without_key: int = 0
    with_headers: int = 0
    headers: int = 0

    def add(self, other: RecordFacts) -> None:
        """Add the facts of other records."""
        for each in _FACTS:
            setattr(self, each, getattr(self, each) + getattr(other, each))


_FACTS = tuple(each.name for each in fields(RecordFacts))


class OpenTransaction(NamedTuple):
    """A transaction without a marker at the log's end. In a stopped broker's log it hangs, unless its coordinator ends
    it.

    `producer_epoch` and `last_timestamp` (ms, -1: none) are those of its last batch.
    """

    producer_id: int
    first_offset: int
    producer_epoch: int = -1
    last_timestamp: int = -1

    def to_json(self) -> Json:
        """Return the transaction as printed by `magicbyte inventory --format json`."""
        return {
            "producerId": self.producer_id,
            "producerEpoch": self.producer_epoch,
            "firstOffset": self.first_offset,
            "lastTimestamp": self.last_timestamp,
        }


@dataclass(slots=True)
class Tally:
    """Totals over entries. Timestamps in ms, None if there are none; offsets inclusive."""

    formats: dict[tuple[int, str], FormatCount] = field(default_factory=dict)
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    """Smallest record timestamp; None if it is known only after decompression."""
    max_timestamp: int | None = None
    min_batch_timestamp: int | None = None
    """Smallest of the entries' max timestamps: at least `min_timestamp`, and known without decompression."""
    lz4_headers: Lz4Headers = field(default_factory=Lz4Headers)
    holes: Holes | None = field(default_factory=Holes)
    committed: int = 0  # markers
    aborted: int = 0
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    control_batches: int = 0
    deep: RecordFacts | None = None

    @property
    def next_offset(self) -> int | None:
        """The offset after the last one; None if there is none."""
        return None if self.last_offset is None else self.last_offset + 1

    @property
    def batches(self) -> int:
        """Entries: v2 batches, wrappers, plain messages."""
        return sum(each.batches for each in self.formats.values())

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return sum(each.bytes for each in self.formats.values())

    @property
    def records(self) -> int | None:
        """Records without control records; None if it is known only after decompression."""
        if self.deep is not None:
            return self.deep.records
        counts = [each.records for each in self.formats.values()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def to_json(self) -> Json:
        """Return the totals, without offsets, as printed by `magicbyte inventory --format json`."""
        deep, lz4 = self.deep, self.lz4_headers
        return {
            "batches": self.batches,
            "records": self.records,
            "minTimestamp": self.min_timestamp,
            "maxTimestamp": self.max_timestamp,
            "minBatchTimestamp": self.min_batch_timestamp,
            "formats": [
                {"magic": magic, "codec": codec, "batches": each.batches, "bytes": each.bytes, "records": each.records}
                for (magic, codec), each in sorted(self.formats.items())
            ],
            "lz4Headers": {"correct": lz4.correct, "broken": lz4.broken, "other": lz4.other},
            "holes": None if self.holes is None else {"count": self.holes.count, "offsets": self.holes.offsets},
            "controlBatches": self.control_batches,
            "transactions": {"committed": self.committed, "aborted": self.aborted, "open": len(self.open_transactions)},
            "deep": None
            if deep is None
            else {
                "records": deep.records,
                "tombstones": deep.tombstones,
                "withKey": deep.with_key,
                "withoutKey": deep.without_key,
                "withHeaders": deep.with_headers,
                "headers": deep.headers,
            },
        }
