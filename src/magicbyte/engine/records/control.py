"""Control records of magic 2, which Kafka writes into logs for its own use.

Source: Kafka's ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import enum
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch, batch_attributes, build_batch, single_record
from magicbyte.engine.records.layout import CODEC_MASK, RECORD_BATCH_OVERHEAD

if TYPE_CHECKING:
    from magicbyte.engine.records.scan import BatchTable
    from magicbyte.engine.wire.checksum import Buffer

MARKER_BYTES = 78
"""Size in bytes of a transaction marker's batch, as `build_marker` writes it."""

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_EPOCH = slice(12, 16)  # of the coordinator, in a marker's record
_EPOCH_TYPE = struct.Struct(">i")
_KEY_PLACE, _VALUE_PLACE = slice(5, 9), slice(10, 16)  # in the same


class ControlType(enum.IntEnum):
    """The type of a control record, by Kafka's numbers. KRaft writes types 2 to 6."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


_TYPES = {int(known): known for known in ControlType if known is not ControlType.UNKNOWN}


class ControlRecord(NamedTuple):
    """One control record, with key and value as stored.

    `type_id` is the stored number, also if `type` is UNKNOWN. `coordinator_epoch` is set for transaction markers, else
    None. The values of KRaft's types are flexible messages and stay bytes here.
    """

    offset: int
    version: int
    type: ControlType
    type_id: int
    key: memoryview
    value: memoryview | None
    coordinator_epoch: int | None

    @property
    def ends_transaction(self) -> bool:
        """Whether this is a transaction marker: COMMIT or ABORT."""
        return self.coordinator_epoch is not None


def parse_control_record(offset: int, key: Buffer | None, value: Buffer | None) -> ControlRecord:
    """Parse a record of a control batch.

    Longer keys, later versions and unknown types are accepted, because Kafka extends the format in these ways. Raises
    CorruptRecordError for a key below 4 bytes, a marker's value below 6 bytes, or a negative version.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(
            "control record key", expected=f">= {_KEY.size} bytes", found=None if key is None else len(key)
        ).locate(offsets=(offset, offset))
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError("control record version", expected=">= 0", found=version).locate(
            offsets=(offset, offset)
        )
    control_type = _TYPES.get(type_id, ControlType.UNKNOWN)
    coordinator_epoch = None
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        coordinator_epoch = _coordinator_epoch(offset, value)
    return ControlRecord(
        offset,
        version,
        control_type,
        type_id,
        memoryview(key),
        None if value is None else memoryview(value),
        coordinator_epoch,
    )


def _coordinator_epoch(offset: int, value: Buffer | None) -> int:
    if value is None or len(value) < _MARKER_VALUE.size:
        raise CorruptRecordError(
            "transaction marker value",
            expected=f">= {_MARKER_VALUE.size} bytes",
            found=None if value is None else len(value),
        ).locate(offsets=(offset, offset))
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptRecordError("transaction marker version", expected=">= 0", found=version).locate(
            offsets=(offset, offset)
        )
    return int(coordinator_epoch)


def control_records(batch: RecordBatch) -> list[ControlRecord]:
    """Return the records of a control batch: usually one, several in KRaft's snapshots, none after compaction emptied
    it.

    Control batches are never compressed, so this needs no codec. Raises CorruptRecordError. For data batches use
    records/decode.py.
    """
    assert batch.is_control
    if batch.codec is not Codec.NONE:
        raise CorruptRecordError("codec of a control batch", expected=Codec.NONE.name, found=batch.codec.name)
    if batch.record_count < 0:
        raise CorruptRecordError("record count", expected=">= 0", found=batch.record_count)
    section = batch.records_section
    at = 0
    records = []
    for _ in range(batch.record_count):
        offset_delta, key, value, at = _read_record(section, at)
        records.append(parse_control_record(batch.base_offset + offset_delta, key, value))
    if at != len(section):
        raise CorruptRecordError("records of a control batch", expected=f"{len(section)} bytes", found=f"{at} bytes")
    return records


def marker_of(batch: RecordBatch) -> ControlRecord | None:
    """Return the first control record of a batch, a transaction marker; None for an empty batch."""
    if not batch.is_control:
        return None
    if len(batch.buffer) == MARKER_BYTES and batch.record_count == 1 and not batch.attributes & CODEC_MASK:
        body = bytes(batch.buffer[RECORD_BATCH_OVERHEAD:])
        kind = _USUAL.get(body[: _EPOCH.start] + body[_EPOCH.stop :])
        if kind is not None:  # as nearly all are: comparing bytes costs a tenth of parsing
            (epoch,) = _EPOCH_TYPE.unpack(body[_EPOCH])
            return ControlRecord(
                batch.base_offset,
                0,
                kind,
                int(kind),
                memoryview(body)[_KEY_PLACE],
                memoryview(body)[_VALUE_PLACE],
                epoch,
            )
    records = control_records(batch)
    return records[0] if records else None


def marker_types(table: BatchTable, rows: Any) -> list[ControlType | None]:
    """Return the type of the marker in each of some rows with a control batch; None unless it is as brokers write it.

    Such a batch has one uncompressed record, whose bytes differ from those of `build_marker` in the type and the
    coordinator's epoch only: comparing them costs a hundredth of parsing. `rows`: an int64 array.
    """
    import numpy as np

    from magicbyte.engine.records.arrays import at_each_byte

    size: Any = table.size
    codec = np.asarray(table.attributes)[rows] & CODEC_MASK
    is_usual = (size[rows] == MARKER_BYTES) & (codec == 0) & (np.asarray(table.count)[rows] == 1)
    types: list[ControlType | None] = [None] * len(rows)
    usual = np.flatnonzero(is_usual)
    if not len(usual):
        return types
    width = MARKER_BYTES - RECORD_BATCH_OVERHEAD
    bodies = at_each_byte(table.buffer, f"V{width}", RECORD_BATCH_OVERHEAD)[np.asarray(table.position)[rows[usual]]]
    stored = bodies.view(np.uint8).reshape(-1, width)
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        body = np.frombuffer(_marker_body(kind, 0), np.uint8)
        is_kind = (stored[:, : _EPOCH.start] == body[: _EPOCH.start]).all(axis=1)
        is_kind &= (stored[:, _EPOCH.stop :] == body[_EPOCH.stop :]).all(axis=1)
        for at in usual[is_kind].tolist():
            types[at] = kind
    return types


def _read_record(section: memoryview, at: int) -> tuple[int, memoryview | None, memoryview | None, int]:
    """Return the offset delta, key and value of the record at `at`, and the position of the next record."""
    length, at = _read_varint(section, at)
    end = at + length
    if length < 0 or end > len(section):
        raise CorruptRecordError("record length", expected=f"0..{len(section) - at}", found=length)
    record = section[:end]
    _, at = _read_varint(record, at + 1)  # timestamp delta, after a byte of unused attributes
    offset_delta, at = _read_varint(record, at)
    key, at = _read_bytes(record, at)
    value, _ = _read_bytes(record, at)
    return offset_delta, key, value, end


def _read_bytes(record: memoryview, at: int) -> tuple[memoryview | None, int]:
    length, at = _read_varint(record, at)
    if length == -1:
        return None, at
    if not 0 <= length <= len(record) - at:
        raise CorruptRecordError("length in a control record", expected=f"-1..{len(record) - at}", found=length)
    return record[at : at + length], at + length


def _read_varint(buffer: memoryview, at: int) -> tuple[int, int]:
    """Return a zigzag varint of up to ten bytes and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(buffer):
            raise CorruptRecordError("varint", expected="more bytes", found="end of the record")
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise CorruptRecordError("varint", expected="at most 10 bytes", found="more")


def build_marker(
    control_type: ControlType,
    *,
    base_offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Return the batch of a transaction marker as a broker appends it: 78 bytes. `timestamp` is in ms."""
    assert control_type in (ControlType.ABORT, ControlType.COMMIT)
    return build_batch(
        _marker_body(control_type, coordinator_epoch),
        base_offset=base_offset,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=1,
        attributes=batch_attributes(is_transactional=True, is_control=True),
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


@lru_cache(16)
def _marker_body(control_type: ControlType, coordinator_epoch: int) -> bytes:
    """Return the record of a marker, with its length in front."""
    return single_record(_KEY.pack(0, control_type), _MARKER_VALUE.pack(0, coordinator_epoch))


_USUAL = {
    body[: _EPOCH.start] + body[_EPOCH.stop :]: kind
    for kind in (ControlType.ABORT, ControlType.COMMIT)
    for body in [_marker_body(kind, 0)]
}
"""The records of markers without the coordinator's epoch."""
