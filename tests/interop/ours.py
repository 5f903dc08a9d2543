"""magicbyte's side of the comparisons: the same shapes as `batches` and `jvm` use. The only file here that calls it."""

from interop.batches import Json, b64
from magicbyte.errors import CorruptRecordError
from magicbyte.records import decode as records_decode
from magicbyte.records.columns import Record
from magicbyte.records.layout import TimestampType


def line(record: Record) -> Json:
    """Return one record as a line of records.jsonl."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TimestampType(record.timestamp_type).label,
        "key": b64(record.key),
        "value": b64(record.value),
        "headers": [[name, b64(value)] for name, value in record.headers],
    }


def decode_to_damage(data: bytes, *, packed: bool = False) -> tuple[list[Json], CorruptRecordError | None]:
    """Return the records of log bytes in front of the first damage, and the damage."""
    lines: list[Json] = []
    try:
        for columns in records_decode.decode(memoryview(data), records_decode.DecodeOptions(packed=packed)):
            lines.extend(map(line, columns))
    except CorruptRecordError as error:
        return lines, error
    return lines, None


def decode(data: bytes, *, packed: bool = False) -> list[Json]:
    """Return all records of log bytes, which are sound."""
    lines, damage = decode_to_damage(data, packed=packed)
    assert damage is None, damage
    return lines
