"""Payloads that Kafka itself compressed: real brokers' logs, and the vectors of docs/formats."""

import re
import struct
import zlib
from pathlib import Path

import pytest

import golden_data
from magicbyte.engine.codecs import Codec, Lz4Header, compress, decompress, lz4_header_checksum
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.records.layout import RECORD_BATCH_OVERHEAD
from magicbyte.engine.records.scan import scan

PAYLOADS = Path(__file__).parent / "payloads"
ROWS = re.findall(r"^\| (\S+-magic(\d)-(\w+)\.bin) \| (\d+) \|", (PAYLOADS / "README.md").read_text(), re.MULTILINE)

V0_PLAIN = bytes.fromhex(
    "0000000000000005000000101fecd70a0000000000016b000000017600000000000000060000000fa50b8f630000ffffffff0000000177"
)
V1_PLAIN = bytes.fromhex(
    "000000000000000000000018e4e321bc010000000000000003e8000000016b0000000176"
    "000000000000000100000016ec61a466010000000000000003edffffffffffffffff"
)
V2_PLAIN = bytes.fromhex("10000000026b0276001a000a0201010402680201026e01")
VECTORS = {  # kafka-clients 3.9.0: codec, header checksum, compressed, plain
    "v0 lz4": (
        Codec.LZ4,
        Lz4Header.BROKEN,
        "04224d1860401a32000000120001009105000000101fecd70a0f0071016b00000001760c00f0070000060000000fa50b8f630000ffffff"
        "ff000000017700000000",
        V0_PLAIN,
    ),
    "v1 lz4": (
        Codec.LZ4,
        Lz4Header.CORRECT,
        "04224d1860408234000000160001006318e4e321bc0110007003e8000000016b050013761300001b005016ec61a4660900000200a003ed"
        "ffffffffffffffff00000000",
        V1_PLAIN,
    ),
    "v1 snappy": (
        Codec.SNAPPY,
        Lz4Header.CORRECT,
        "82534e415050590000000001000000010000003846000019011818e4e321bc010009011803e8000000016b0105007609120000011b1016"
        "ec61a4660109340000000003edffffffffffffffff",
        V1_PLAIN,
    ),
    "v2 lz4": (
        Codec.LZ4,
        Lz4Header.CORRECT,
        "04224d186040821700008010000000026b0276001a000a0201010402680201026e0100000000",
        V2_PLAIN,
    ),
    "v2 zstd": (
        Codec.ZSTD,
        Lz4Header.CORRECT,
        "28b52ffd0058b8000010000000026b0276001a000a0201010402680201026e01010000",
        V2_PLAIN,
    ),
}


def payload(name: str) -> bytes:
    return (PAYLOADS / name).read_bytes()


def count_messages(data: memoryview) -> int:
    """Count the messages of magic 0 and 1, whose own checksums must hold and whose sizes must fill `data`."""
    at = count = 0
    while at < len(data):
        size, crc = struct.unpack_from(">iI", data, at + 8)
        assert zlib.crc32(data[at + 16 : at + 12 + size]) == crc
        at, count = at + 12 + size, count + 1
    assert at == len(data)
    return count


def count_records(data: memoryview) -> int:
    """Count the records of magic 2, whose lengths must fill `data` and whose offset deltas must rise."""
    at = count = 0
    while at < len(data):
        length, shift = 0, 0
        while True:
            byte = data[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        assert length & 1 == 0
        assert data[at] == 0  # attributes
        at, count = at + length // 2, count + 1
    assert at == len(data)
    return count


def test_the_folder_and_its_table_name_the_same_files() -> None:
    assert {row[0] for row in ROWS} == {path.name for path in PAYLOADS.glob("*.bin")}
    assert len(ROWS) == 14


@pytest.mark.parametrize(("name", "magic", "codec", "count"), ROWS)
def test_what_a_broker_compressed_decompresses_to_sound_records(name: str, magic: str, codec: str, count: str) -> None:
    header = Lz4Header.BROKEN if magic == "0" else Lz4Header.CORRECT
    plain = decompress(Codec[codec.upper()], payload(name), limit=1 << 20, lz4_header=header)
    assert (count_records if magic == "2" else count_messages)(plain) == int(count)


@pytest.mark.parametrize(("name", "magic", "codec", "count"), ROWS)
def test_the_limit_is_met_exactly_and_not_exceeded(name: str, magic: str, codec: str, count: str) -> None:
    kind = Codec[codec.upper()]
    plain = decompress(kind, payload(name), limit=1 << 20, lz4_header=Lz4Header.ANY)
    assert decompress(kind, payload(name), limit=len(plain), lz4_header=Lz4Header.ANY) == plain
    with pytest.raises(BatchTooLargeError):
        decompress(kind, payload(name), limit=len(plain) - 1, lz4_header=Lz4Header.ANY)


@pytest.mark.parametrize(("name", "magic", "codec", "count"), ROWS)
def test_a_cut_payload_is_corrupt_wherever_it_is_cut(name: str, magic: str, codec: str, count: str) -> None:
    kind, data = Codec[codec.upper()], payload(name)
    plain = decompress(kind, data, limit=1 << 20, lz4_header=Lz4Header.ANY)
    ends = xerial_block_ends(data) if kind is Codec.SNAPPY else set()
    block_ends = {end + more for end in ends for more in range(4)}  # Java's reader ignores the start of a length
    for size in range(len(data)):
        if size in block_ends:  # a xerial stream has no end mark: only the count of records shows the loss
            shorter = decompress(kind, data[:size], limit=1 << 20)
            assert len(shorter) < len(plain)
            assert plain[: len(shorter)] == shorter
        else:
            with pytest.raises(CorruptRecordError):
                decompress(kind, data[:size], limit=1 << 20, lz4_header=Lz4Header.ANY)


def xerial_block_ends(data: bytes) -> set[int]:
    ends = {16}
    while max(ends) < len(data):
        ends.add(max(ends) + 4 + struct.unpack_from(">i", data, max(ends))[0])
    return ends


def test_the_client_code_of_0_10_2_wrote_snappy_blocks_of_1_kib() -> None:
    data = payload("0.10.2.2-magic1-snappy.bin")
    assert len(xerial_block_ends(data)) - 1 == -(-len(decompress(Codec.SNAPPY, data, limit=1 << 20)) // 1024)


@pytest.mark.parametrize(("name", "magic", "codec", "count"), [row for row in ROWS if row[2] == "lz4"])
def test_the_magic_of_the_message_decided_the_header_checksum(name: str, magic: str, codec: str, count: str) -> None:
    assert lz4_header_checksum(payload(name)) is (Lz4Header.BROKEN if magic == "0" else Lz4Header.CORRECT)


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_of_the_format_pages_decompresses_to_its_plain_twin(name: str) -> None:
    codec, header, compressed, plain = VECTORS[name]
    assert decompress(codec, bytes.fromhex(compressed), limit=len(plain), lz4_header=header) == plain


def test_what_we_write_begins_like_kafkas_own() -> None:
    assert compress(Codec.LZ4, V1_PLAIN).startswith(bytes.fromhex("04224d18604082"))
    assert compress(Codec.LZ4, V0_PLAIN, lz4_header=Lz4Header.BROKEN).startswith(bytes.fromhex("04224d1860401a"))
    assert compress(Codec.SNAPPY, V1_PLAIN).startswith(bytes.fromhex("82534e4150505900 00000001 00000001"))
    assert compress(Codec.GZIP, V1_PLAIN).startswith(bytes.fromhex("1f8b0800 00000000"))
    assert compress(Codec.ZSTD, V2_PLAIN).startswith(bytes.fromhex("28b52ffd"))


def test_our_stored_blocks_are_byte_for_byte_kafkas() -> None:
    assert compress(Codec.LZ4, V2_PLAIN) == bytes.fromhex(VECTORS["v2 lz4"][2])


def test_lz4_is_compressed_to_the_bytes_that_kafka_wrote() -> None:
    found = 0
    for case in golden_data.all_log_cases():
        for data in case.segments().values() if case.codec == "lz4" and case.version != "0.11.0.3" else ():
            table = scan(memoryview(data))
            for position, size, magic, attributes in zip(
                table.position, table.size, table.magic, table.attributes, strict=True
            ):
                if magic == 2 and attributes & 7 == Codec.LZ4:
                    payload = data[position + RECORD_BATCH_OVERHEAD : position + size]
                    assert compress(Codec.LZ4, decompress(Codec.LZ4, payload, limit=1 << 24)) == payload
                    found += 1
    assert found > 100
