"""magicbyte's side of the benchmarks. The only file here that calls it."""

import numpy as np

import data
from magicbyte.engine.compiled.kernel import expect
from magicbyte.engine.records.columns import BytesColumn, RecordColumns
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format, encode_chunks

PROGRAM = "from magicbyte.cli.main import main; main()"  # for python -c: the command line


def decode_columns(log: memoryview, *, verify: bool = True) -> int:
    """Decode a log into packed columns, keys and values copied, and return the number of records."""
    expect(len(log))
    return sum(map(len, decode(log, DecodeOptions(packed=True, verify=verify))))


def decode_objects(log: memoryview) -> int:
    """Decode a single small batch into Record objects, as a reader of such batches does, and return their number."""
    return len([record for columns in decode(log) for record in columns])


def columns_of(records: list[data.Record]) -> RecordColumns:
    """Return records as columns, as decoding would have given them."""
    offset = np.arange(len(records), dtype=np.int64)
    timestamp = np.array([record.timestamp for record in records], np.int64)
    kind = np.zeros(len(records), np.int8)
    key, value = (packed([record[part] for record in records]) for part in (1, 2))
    return RecordColumns(offset, timestamp, kind, key, value, None)


def packed(cells: list[bytes]) -> BytesColumn:
    """Return cells one behind the other."""
    length = np.array([len(cell) for cell in cells], np.int32)
    start = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(length, out=start[1:])
    return BytesColumn(np.frombuffer(b"".join(cells), np.uint8), start, length, packed=True)


def encode_columns(columns: RecordColumns, batch_bytes: int) -> int:
    """Encode columns as uncompressed v2 batches, and return the number of records."""
    for _ in encode_chunks(columns, Format.V2, batch_bytes=batch_bytes):
        pass
    return len(columns)


def convert_log(log: memoryview, magic: int) -> int:
    """Convert a log to another format, codecs kept, and return the number of records."""
    expect(len(log))
    report = ConversionReport()
    for _ in convert(log, Format(str(magic)), report=report):
        pass
    return report.records
