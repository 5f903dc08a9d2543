"""magicbyte's side of the comparisons: the same shapes as `batches` and `jvm` use. The only file here that calls it."""

from builders import base64_text, unbase64
from interop.batches import CODECS, Json
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import decode as records_decode
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.convert import convert as convert_chunks
from magicbyte.engine.records.encode import BatchHeader, Format, columns_of
from magicbyte.engine.records.encode import encode as encode_columns
from magicbyte.engine.records.layout import TimestampType


def line(record: Record) -> Json:
    """Return one record as a line of records.jsonl."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TimestampType(record.timestamp_type).label,
        "key": base64_text(record.key),
        "value": base64_text(record.value),
        "headers": [[name, base64_text(value)] for name, value in record.headers],
    }


def decode_to_damage(data: bytes, *, packed: bool = False) -> tuple[list[Json], CorruptRecordError | None]:
    """Return the records of log bytes before the first damage, and the damage."""
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


def encode(specs: list[Json]) -> bytes:
    """Return the log bytes of batches described as java/Encode.java says."""
    return b"".join(map(encode_one, specs))


def encode_one(spec: Json) -> bytes:
    """Return the bytes of one batch, wrapper, or row of plain messages."""
    appended = spec["timestampType"] == "LogAppendTime"
    kind = TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME
    records = [
        Record(
            record["offset"],
            spec["logAppendTime"] if appended and spec["magic"] < 2 else record["timestamp"],
            kind,
            unbase64(record["key"]),
            unbase64(record["value"]),
            tuple((name, unbase64(value)) for name, value in record["headers"]),
        )
        for record in spec["records"]
    ]
    header = BatchHeader(
        base_offset=spec["baseOffset"],
        timestamp_type=kind,
        max_timestamp=spec["logAppendTime"] if appended else None,
        is_transactional=spec["transactional"],
        partition_leader_epoch=spec["leaderEpoch"],
        producer_id=spec["producerId"],
        producer_epoch=spec["producerEpoch"],
        base_sequence=spec["baseSequence"],
    )
    codec = Codec(CODECS[2].index(spec["codec"]))
    batches = [(len(records), header)]
    return bytes(encode_columns(columns_of(records), Format(str(spec["magic"])), codec, batches=batches))


def convert(data: bytes, magic: int) -> bytes:
    """Return log bytes in another format, the codecs kept."""
    return b"".join(convert_chunks(memoryview(data), Format(str(magic))))
