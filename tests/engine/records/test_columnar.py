"""Parquet files of records: the same records give the same bytes, however they came."""

import io
import random
from collections.abc import Iterable

import pyarrow.parquet as pq
import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records import columnar
from magicbyte.engine.records.columnar import ParquetWriter
from magicbyte.engine.records.columns import Record, RecordColumns
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType

ROWS, SETS = 60, 40
GROUP_BYTES = 20_000


def log(codec: Codec, *, headers: bool) -> bytes:
    """Sets with null and empty cells, and values of all sizes."""
    chance, found = random.Random(5), bytearray()
    for at in range(SETS):
        rows = [
            Record(
                at * ROWS + each,
                1_700_000_000_000 + at,
                TimestampType.CREATE_TIME,
                None if chance.random() < 0.1 else b"key %d" % chance.randrange(50),
                None if chance.random() < 0.1 else chance.randbytes(chance.randrange(200)),
                (("name", b"of %d" % each),) * chance.randrange(3) if headers else (),
            )
            for each in range(ROWS)
        ]
        found += encode_records(rows, Format.V2, codec)
    return bytes(found)


def parquet(pieces: Iterable[RecordColumns]) -> bytes:
    stream = io.BytesIO()
    writer = ParquetWriter(stream)
    for each in pieces:
        writer.write(each, "topic", 3)
    writer.close()
    return stream.getvalue()


def cut(pieces: Iterable[RecordColumns], seed: int) -> Iterable[RecordColumns]:
    """The same records in pieces of any size."""
    chance = random.Random(seed)
    for each in pieces:
        first = 0
        while first < len(each):
            end = min(first + chance.choice([1, 2, 7, 300, 1000]), len(each))
            yield each.slice(first, end)
            first = end


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_same_records_give_the_same_bytes_in_pieces_of_any_size_and_by_any_decoder(
    codec: Codec, headers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which decoder is taken, and so how much comes at a time, goes by what a process did before."""
    monkeypatch.setattr(columnar, "ROW_GROUP_BYTES", GROUP_BYTES)
    monkeypatch.setattr(columnar, "ROW_GROUP_ROWS", 190)
    data, made = log(codec, headers=headers), []
    for kernels in ("plain", "compiled"):
        monkeypatch.setenv("MAGICBYTE_KERNELS", kernels)
        whole = list(decode(data, DecodeOptions(packed=True)))
        assert sum(map(len, whole)) == ROWS * SETS
        made += [parquet(whole), *(parquet(cut(whole, seed)) for seed in range(3))]
    assert len(set(made)) == 1
    file = pq.ParquetFile(io.BytesIO(made[0]))
    groups = [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)]
    assert len(groups) > 10
    assert max(groups) <= 190
    assert file.read().column("offset").to_pylist() == list(range(ROWS * SETS))


def test_a_row_group_ends_with_the_record_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "ROW_GROUP_BYTES", 1000)
    rows = [Record(at, 0, TimestampType.CREATE_TIME, None, bytes(size)) for at, size in enumerate([900, 400, 5000, 3])]
    file = pq.ParquetFile(io.BytesIO(parquet(decode(encode_records(rows, Format.V2)))))
    assert [file.metadata.row_group(each).num_rows for each in range(file.num_row_groups)] == [2, 1, 1]


def test_a_row_group_has_as_many_topics_as_there_are() -> None:
    rows = decode(encode_records([Record(0, 0, TimestampType.CREATE_TIME, None, b"value")], Format.V2))
    (columns,) = rows
    names = [f"topic-{at}" for at in range(1000)]
    stream = io.BytesIO()
    with ParquetWriter(stream) as writer:
        for name in names:
            writer.write(columns, name, 0)
    file = pq.ParquetFile(io.BytesIO(stream.getvalue()))
    assert file.num_row_groups == 1
    assert file.read().column("topic").to_pylist() == names
