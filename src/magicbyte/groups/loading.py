"""What a partition of `__consumer_offsets` says of its groups: of each key the last record counts.

Offsets that were committed in a transaction count from its marker on. Source: Kafka's GroupMetadataManager (3.9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from magicbyte.errors import CorruptRecordError
from magicbyte.groups.group import TopicPartition
from magicbyte.groups.records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from magicbyte.records.batch import RecordBatch
from magicbyte.records.columns import Record
from magicbyte.records.control import ControlType, marker_of
from magicbyte.records.decode import decode, decode_batch
from magicbyte.records.entry import entries


class Committed(NamedTuple):
    """A committed offset, None for a deleted one, and the offset of the record that says so."""

    record_offset: int
    value: OffsetCommitValue | None


@dataclass(slots=True)
class LoadedPartition:
    """The groups of a partition, and the offsets of all of them, as far as its log was read.

    `open_transactions`: by producer, what it has committed and not ended. `passed_over` counts records of types and
    versions that are not known here, such as those of the newer group protocols.
    """

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    open_transactions: dict[int, list[tuple[OffsetCommitKey, Committed]]] = field(default_factory=dict)
    passed_over: int = 0

    def read(self, data: memoryview) -> int:
        """Take in whole entries of the log, those that follow what was read before.

        Return their last offset, -1 where there are none. Raises CorruptRecordError.
        """
        last = -1
        for _, entry in entries(data):
            last = entry.offset if not isinstance(entry, RecordBatch) else entry.last_offset
            if not isinstance(entry, RecordBatch):
                self._take([record for columns in decode(entry.buffer) for record in columns], None)
            elif entry.is_control:
                self._end(entry)
            else:
                self._take(decode_batch(entry.buffer), entry.producer_id if entry.is_transactional else None)
        return last

    def _take(self, records: list[Record], producer: int | None) -> None:
        for record in records:
            key, value = _decoded(record)
            match key, value:
                case OffsetCommitKey(), OffsetCommitValue() | None:
                    committed = Committed(record.offset, value)
                    if producer is None:
                        self._commit(key, committed)
                    else:
                        self.open_transactions.setdefault(producer, []).append((key, committed))
                case GroupMetadataKey(), GroupMetadataValue():
                    self.groups[key.group] = value
                case GroupMetadataKey(), None:
                    self.groups.pop(key.group, None)
                case _:
                    self.passed_over += 1

    def _commit(self, key: OffsetCommitKey, committed: Committed) -> None:
        offsets = self.offsets.setdefault(key.group, {})
        before = offsets.get((key.topic, key.partition))
        if (
            before is None or before.record_offset < committed.record_offset
        ):  # a transaction may end behind later commits
            offsets[key.topic, key.partition] = committed

    def _end(self, batch: RecordBatch) -> None:
        marker = marker_of(batch)
        if marker is None or not marker.ends_transaction:
            return
        for key, committed in self.open_transactions.pop(batch.producer_id, []):
            if marker.type == ControlType.COMMIT:
                self._commit(key, committed)


def _decoded(record: Record) -> tuple[GroupKey, GroupValue | None]:
    """Return key and value; the value is not looked at where the key is none that counts here."""
    if record.key is None:
        place = (record.offset, record.offset)
        raise CorruptRecordError("key", expected="one in every record", found="null").locate(offsets=place)
    key = decode_key(record.key)
    counts = isinstance(key, (OffsetCommitKey, GroupMetadataKey))
    return key, decode_value(key, record.value) if counts else None
