"""Load the groups of a partition of `__consumer_offsets`: the last record of each key counts.

Offsets committed in a transaction count from its marker on. A long log has few keys: records are kept undecoded until
all is read, and only the last ones are decoded. Source: Kafka's GroupMetadataManager (3.9).

Invariants:
1. Those of every `Replay`.
2. Offsets of a transaction wait for its marker. COMMIT makes those count that no later commit has superseded, ABORT
   none.
3. Records of unknown types are counted and left out.
"""

from __future__ import annotations

from itertools import groupby

from msgspec import Struct, field

from magicbyte.engine.coordination.replay import LogRecord, keyed_records
from magicbyte.engine.groups.consumer.records import GroupRecord, decode
from magicbyte.engine.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from magicbyte.engine.groups.share.records import ShareRecord
from magicbyte.engine.groups.share.records import decode as decode_share
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, marker_of
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from magicbyte.engine.records.scan import BatchTable, scan


class LoadedPartition(Struct):
    """The groups of a partition, and the offsets of all of them.

    `pending`: offsets of open transactions, by group, as `Group.pending_offsets`. `consumers`: the records of consumer
    groups, in order, `shares` of share groups. `passed_over` counts records of unknown types.
    """

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitValue]] = field(default_factory=dict)
    pending: dict[str, dict[TopicPartition, dict[int, OffsetCommitValue | None]]] = field(default_factory=dict)
    consumers: dict[str, list[GroupRecord]] = field(default_factory=dict)
    shares: dict[str, list[ShareRecord]] = field(default_factory=dict)
    passed_over: int = 0


class Loading:
    """Read the log of a partition, piece by piece."""

    def __init__(self) -> None:
        self._last: dict[bytes, LogRecord] = {}
        self._open: dict[int, dict[bytes, LogRecord]] = {}  # of open transactions, by producer

    def read(self, data: memoryview) -> int:
        """Read the whole entries of `data`, which follow those read before.

        Return their last offset, -1 if there are none. Raises CorruptRecordError.
        """
        table = scan(data)
        for special, rows in groupby(range(len(table)), key=_specials(table).__contains__):
            if not special:
                self._last.update(keyed_records(table, rows))
                continue
            for row in rows:
                batch = RecordBatch(_entry(table, row))
                if batch.is_control:
                    batch.verify()
                    self._end(batch)
                else:
                    self._open.setdefault(batch.producer_id, {}).update(keyed_records(table, [row]))
        if table.damage is not None:
            raise table.damage
        if not len(table):
            return -1
        last = parse_entry(_entry(table, len(table) - 1))
        return last.last_offset if isinstance(last, RecordBatch) else int(table.offset[-1])

    def _end(self, batch: RecordBatch) -> None:
        marker = marker_of(batch)
        if marker is None or not marker.ends_transaction:
            return
        for key, record in self._open.pop(batch.producer_id, {}).items():
            before = self._last.get(key)
            later = before is None or before.offset < record.offset  # otherwise it was committed again meanwhile
            if marker.type == ControlType.COMMIT and later:
                self._last[key] = record

    def finish(self) -> LoadedPartition:
        """Return the state after all that was read. Raises CorruptRecordError."""
        content = LoadedPartition()
        _take(content, self._last)
        opened = [
            (record, producer, raw) for producer, records in self._open.items() for raw, record in records.items()
        ]
        for record, producer, raw in sorted(opened):
            key, later = decode_key(raw), self._last.get(raw)
            if not isinstance(key, OffsetCommitKey):
                content.passed_over += 1
                continue
            value = decode_value(key, record.value) if later is None or later.offset < record.offset else None
            places = content.pending.setdefault(key.group, {})
            pending = places.setdefault(TopicPartition(key.topic, key.partition), {})
            pending[producer] = value if isinstance(value, OffsetCommitValue) else None
        return content


def _specials(table: BatchTable) -> frozenset[int]:
    """Return the rows of transactional batches and of markers."""
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return frozenset(row for row in range(len(table)) if table.attributes[row] & bits and table.magic[row] == 2)


def _entry(table: BatchTable, row: int) -> memoryview:
    position = int(table.position[row])
    return table.buffer[position : position + int(table.size[row])]


def _take(content: LoadedPartition, records: dict[bytes, LogRecord]) -> None:
    """Decode records in the order of their offsets: keys of different versions may mean the same."""
    for raw, record in sorted(records.items(), key=lambda each: each[1].offset):
        key = decode_key(raw)
        counts = isinstance(key, (OffsetCommitKey, GroupMetadataKey))
        match key, decode_value(key, record.value) if counts else None:
            case OffsetCommitKey(), OffsetCommitValue() as value:
                content.offsets.setdefault(key.group, {})[TopicPartition(key.topic, key.partition)] = value
            case OffsetCommitKey(), None:
                content.offsets.get(key.group, {}).pop(TopicPartition(key.topic, key.partition), None)
            case GroupMetadataKey(), GroupMetadataValue() as value:
                content.groups[key.group] = value
            case GroupMetadataKey(), None:
                content.groups.pop(key.group, None)
            case _ if (found := decode(raw, record.value)) is not None:
                if found.value is not None:
                    content.consumers.setdefault(found.group_id, []).append(found)
            case _ if (shared := decode_share(raw, record.value)) is not None:
                if shared.value is not None:
                    content.shares.setdefault(shared.group_id, []).append(shared)
            case _:
                content.passed_over += 1
