"""What fuzzing and damaged bytes once broke, each as a test of its own; and the bounds that hostile logs must keep."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc

import pytest

import golden_data
from fuzz import agreement, targets
from fuzz.mutations import sealed, split
from magicbyte.engine.codecs import Codec, compress
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, TruncatedLogError
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import EVERYTHING, Isolation, SegmentReader, Selection, read_chunks
from magicbyte.engine.records import arrays
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.control import ControlType, build_marker, marker_of
from magicbyte.engine.records.decode import DEFAULT_OPTIONS, DecodeOptions, decode
from magicbyte.engine.records.enriched import build_enriched_wrapper
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message, build_wrapper
from magicbyte.tools.offline.blocks import read_records

MIB = 1 << 20
A_RECORD = b"\x0c\0\0\0\1\1\0"  # the smallest: null key, null value, no headers
FORMS = pytest.mark.parametrize("form", ["plain", "compiled"])
COMPRESSED = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda c: c.name)


def batch(section: bytes, *, count: int, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    return build_batch(
        compress(codec, section),
        base_offset=base_offset,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=0,
        max_timestamp=0,
        record_count=count,
        attributes=int(codec),
    )


def complaint(log: bytes, options: DecodeOptions | None = None) -> CorruptRecordError:
    with pytest.raises(CorruptRecordError) as caught:
        list(decode(memoryview(log), options or DecodeOptions()))
    return caught.value


# ---- places


def test_a_wrapper_smaller_than_its_header_ends_at_the_buffer() -> None:
    message = bytearray(build_message(0, 5, -1, b"", b""))
    message[17] = Codec.GZIP
    assert complaint(bytes(message), DecodeOptions(verify=False)).position == 0


def test_bad_tags_of_an_enriched_wrapper_are_reported_with_its_position_and_skipped() -> None:
    sound = build_enriched_wrapper(Codec.GZIP, b"", num_messages=1, non_keyed=True, timestamp_ms=5)
    cut = bytearray(sound)
    cut[26 + 4 + 1 :] = cut[26 + 4 + 1 + 3 :]  # three bytes of a tag less, and the area says so
    struct.pack_into(">i", cut, 22, struct.unpack_from(">i", cut, 22)[0] - 3)
    message = sealed(cut)
    _, damage = targets.read_log(message + message, DecodeOptions(), Dialect.ENRICHED)
    assert [error.position for error in damage] == [0, len(message)]


@FORMS
@COMPRESSED
def test_of_two_compressed_batches_the_damaged_one_is_named(codec: Codec, form: str) -> None:
    bad, good = batch(A_RECORD[:-1] + b"\7", count=1, codec=codec), batch(A_RECORD, count=1, codec=codec)
    with agreement.kernels(form):
        found, damage = targets.read_log(good + bad + good, DecodeOptions(), Dialect.KAFKA)
    assert [error.position for error in damage] == [len(good)]
    assert len(found) == 2


@pytest.mark.parametrize("offset", [-(1 << 63), -(1 << 63) + 5, (1 << 63) - 1])
@pytest.mark.parametrize("last", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_wrapper_offsets_at_the_ends_of_int64_mean_the_same_in_both_forms(offset: int, last: int) -> None:
    inner = build_message(1, last, 7, b"k", b"v")
    agreement.assert_agreement(build_wrapper(1, Codec.GZIP, inner, offset, 7), DecodeOptions(), Dialect.KAFKA)


def test_a_control_batch_that_claims_less_than_no_records_is_damage() -> None:
    marker = bytearray(
        build_marker(
            ControlType.COMMIT, base_offset=0, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
        )[:61]
    )
    struct.pack_into(">i", marker, 57, -1)
    control = RecordBatch.parse(memoryview(sealed(marker)))
    assert control is not None
    with pytest.raises(CorruptRecordError, match="record count"):
        marker_of(control)


def test_a_marker_that_says_nothing_is_damage_with_a_place_and_does_not_end_the_reading() -> None:
    case = golden_data.log_case("3.9.1/txn-none")
    entries = split(b"".join(case.segments().values()))[0]
    number = next(i for i, entry in enumerate(entries) if entry[22] & 0x20)
    broken = bytearray(entries[number])
    broken[65] = 3  # the length of the record's key, or what is near it
    broken[66] = 0xFF
    position = sum(map(len, entries[:number]))
    log = b"".join([*entries[:number], sealed(broken), *entries[number + 1 :]])
    reader = SegmentReader(targets.partition_of(log, b"", Dialect.KAFKA))
    damage: list[CorruptRecordError] = []
    list(reader.records(Selection(isolation=Isolation.READ_COMMITTED), on_damage=damage.append))
    assert [(error.path, error.position) for error in damage] == [(targets.MemoryFile.path, position)]


def test_records_with_impossible_offsets_are_shown() -> None:
    log = batch(A_RECORD, count=1, base_offset=-5) + batch(A_RECORD, count=1, base_offset=(1 << 63) - 1)
    reader = SegmentReader(targets.partition_of(log, b"", Dialect.KAFKA))
    found = [record.offset for columns in reader.records() for record in columns]
    assert found == [-5, (1 << 63) - 1]


# ---- time


@pytest.mark.parametrize(
    ("magic", "form"),
    [
        (0, "compiled"),
        (2, "plain"),
        pytest.param(0, "plain", marks=pytest.mark.slow),
        pytest.param(2, "compiled", marks=pytest.mark.slow),
    ],
)
def test_ten_thousand_damaged_entries_in_a_row_are_each_told(magic: int, form: str) -> None:
    entry = bytearray(batch(b"", count=0) if magic == 2 else build_message(0, 0, -1, None, None))
    entry[20 if magic == 2 else 15] ^= 1  # the checksum
    with agreement.kernels(form):
        found, damage = targets.read_log(bytes(entry) * 10_000, DecodeOptions(), Dialect.KAFKA)
    assert not found
    assert [error.position for error in damage] == list(range(0, 10_000 * len(entry), len(entry)))


def test_a_file_that_shrinks_while_it_is_read_ends_the_walk() -> None:
    class Shrinking(targets.MemoryFile):
        def __init__(self, data: bytes) -> None:
            super().__init__(data[: len(data) // 2 + 3])
            self.size = len(data)

    entry = batch(A_RECORD, count=1)
    damage: list[CorruptRecordError] = []
    chunks = list(read_chunks(Shrinking(entry * 10), on_damage=damage.append))
    assert sum(len(chunk.table) for chunk in chunks) == 5
    assert [type(error) for error in damage] == [TruncatedLogError]
    assert list(read_chunks(Shrinking(b""), on_damage=damage.append)) == []


# ---- memory


@COMPRESSED
def test_a_bomb_stops_at_the_limit(codec: Codec) -> None:
    entry = batch(bytes(64 * MIB), count=1, codec=codec)
    tracemalloc.start()
    try:
        error = complaint(entry, DecodeOptions(limit=8 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, BatchTooLargeError)
    assert (error.position, error.offsets) == (0, (0, 0))
    assert peak < 40 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda c: c.name)
@pytest.mark.parametrize("magic", [0, 1])
def test_compression_inside_compression_is_refused(magic: int, codec: Codec) -> None:
    inner = build_wrapper(magic, codec, build_message(magic, 0, 5, None, b"v"), 0, 5)
    error = complaint(build_wrapper(magic, codec, inner, 0, 5))
    assert (error.what, error.position) == ("type of a message inside a wrapper", 0)


@FORMS
@pytest.mark.parametrize("count", [-1, 3, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda c: c.name)
def test_a_count_that_the_bytes_cannot_hold_costs_nothing(codec: Codec, count: int, form: str) -> None:
    entry = bytearray(batch(A_RECORD * 2, count=2, codec=codec))
    struct.pack_into(">i", entry, 57, count)
    with agreement.kernels(form):
        complaint(sealed(entry))  # kernels and libraries are loaded once: no part of what the input costs
        arrays._idle.clear()  # memory that waits from another test would hide what this one takes
        tracemalloc.start()
        try:
            error = complaint(sealed(entry))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert error.position == 0
    assert peak < 3 * MIB


@pytest.mark.parametrize("size", [(1 << 31) - 1, 65 * MIB, 1 << 26, -1, -(1 << 31)])
def test_a_size_that_no_batch_may_have_is_damage_and_costs_nothing(size: int) -> None:
    entry = bytearray(batch(A_RECORD, count=1))
    struct.pack_into(">i", entry, 8, size)
    tracemalloc.start()
    try:
        found, damage = targets.read_log(bytes(entry) * 3, DecodeOptions(), Dialect.KAFKA)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not found
    assert [(type(error), error.position, error.offsets) for error in damage] == [
        (BatchTooLargeError if size > 0 else CorruptRecordError, 0, (0, 0))
    ]
    assert peak < MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of its memory from /proc")
def test_millions_of_records_out_of_a_few_bytes_take_bounded_memory() -> None:
    """64 MiB of the smallest records, from 6 kB: the columns take 41 bytes each, and no list is made of them."""
    program = """
import pathlib, sys
from magicbyte.engine.records.decode import decode
rows = sum(len(columns) for columns in decode(memoryview(sys.stdin.buffer.read())))
status = pathlib.Path("/proc/self/status").read_text()
print(rows, status.partition("VmHWM:")[2].split()[0])
"""
    count = 64 * MIB // len(A_RECORD)
    entry = batch(A_RECORD * count, count=count, codec=Codec.ZSTD)
    environment = {name: value for name, value in os.environ.items() if name != "MAGICBYTE_KERNELS"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=entry, env=environment, capture_output=True, check=True
    )
    rows, peak_kib = map(int, done.stdout.split())
    assert rows == count
    assert peak_kib << 10 < 900 * MIB


# ---- threads


@pytest.mark.parametrize("name", ["3.9.1/txn-none", "0.10.2.2/crash-flip.crashed"])
def test_two_threads_find_what_one_finds(name: str) -> None:
    (partition,) = discover([str(golden_data.log_case(name).partition_dir())])
    seen = []
    for threads in (1, 2):
        damage: list[CorruptRecordError] = []
        reader = SegmentReader(partition)
        read = read_records(reader, EVERYTHING, DEFAULT_OPTIONS, threads=threads, on_damage=damage.append)
        found = [record for columns in read for record in columns]
        seen.append((found, sorted(map(str, damage))))
    assert seen[0] == seen[1]
    assert seen[0][0]
