"""Conversions for a fetch that Kafka's own tests name, by the numbers of docs/evidence/checks.md."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.log.test_append_checks import mixed
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.live.segment import FileSlice
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import Dialect
from magicbyte.server.partitions import conversion
from magicbyte.server.partitions.conversion import SliceConversion, converted, newest_magic
from simulation.memory import Memory

LIMIT = 1 << 20


def slice_of(data: bytes) -> FileSlice:
    return FileSlice(Memory(data), 0, len(data))


def pieces(data: bytes, target: Format) -> list[bytes]:
    how = SliceConversion(Format.V2, target)
    chunks = converted(slice_of(data), Dialect.KAFKA, how, 0, LIMIT)
    return [bytes(piece) for chunk in chunks for piece in chunk]


def records(data: bytes) -> Sequence[Record]:
    return [record for columns in decode(memoryview(data)) for record in columns]


@pytest.mark.parametrize("target", [Format.V0, Format.V1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_61_whatever_is_converted_at_a_time_the_result_is_the_same(
    codec: Codec, target: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mixed(codec)
    largest = len(encode_records([Record(at, 0, 0, b"k", b"v") for at in range(4)], Format.V2, codec))
    results = set()
    for size in (16 << 10, len(data), len(data) - 1, len(data) // 4, largest + 1, 1):
        monkeypatch.setattr(conversion, "CHUNK_BYTES", size)
        results.add(b"".join(pieces(data, target)))
    (result,) = results
    assert [record.offset for record in records(result)] == [0, 2, 3, 9, 11, 15, 16, 17, 22, 24]


def test_62_a_slice_without_a_whole_entry_is_not_converted() -> None:
    for data in (mixed(Codec.NONE)[:20], encode_records([Record(5, 0, 0, b"k", b"v" * 99)], Format.V2)[:70]):
        assert newest_magic(slice_of(data)) == (-1, 0, None)  # then the bytes go as they are
        assert pieces(data, Format.V0) == []


@pytest.mark.parametrize("target", [Format.V0, Format.V1])
def test_65_of_a_marker_alone_nothing_is_left(target: Format) -> None:
    marker = build_marker(
        ControlType.COMMIT, base_offset=4, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    assert pieces(bytes(marker), target) == []
