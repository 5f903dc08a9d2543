"""The same work done by the other Python clients and by plain libraries: what a magicbyte figure is held against.

Every function returns how many records it went through, as `harness.serve` wants it.
"""

import gzip
import struct

import aiokafka.record.default_records
import aiokafka.record.legacy_records
import aiokafka.record.memory_records
import cramjam
import kafka.record.default_records
import kafka.record.memory_records
import lz4.frame
import numpy as np
import zstandard
from isal import isal_zlib

from data import Record

BATCH_SIZE = 16384
RECORD_COUNT = struct.Struct(">i")


def decode_aiokafka(data: bytes) -> int:
    """Do what aiokafka's consumer does: each batch's CRC checked, each record an object with key and value as bytes."""
    records = aiokafka.record.memory_records.MemoryRecords(data)
    count = 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = record.offset, record.timestamp, record.key, record.value
            count += 1
    return count


def decode_kafka_python(data: bytes) -> int:
    """Do what kafka-python's consumer does, with check_crcs on."""
    records = kafka.record.memory_records.MemoryRecords(data)
    count = 0
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            _ = record.offset, record.timestamp, record.key, record.value
            count += 1
    return count


def encode_aiokafka(records: list[Record]) -> int:
    """Do what aiokafka's producer does: append until the batch is full, then build it."""
    builder, offset = None, 0
    for timestamp, key, value in records:
        if builder is None or builder.append(offset, timestamp, key, value, []) is None:
            if builder is not None:
                builder.build()
            builder, offset = (
                aiokafka.record.default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_SIZE),
                0,
            )
            builder.append(offset, timestamp, key, value, [])
        offset += 1
    if builder is not None:
        builder.build()
    return len(records)


def encode_kafka_python(records: list[Record]) -> int:
    """Do what kafka-python's producer does: append until the batch is full, then build it."""
    builder, offset = None, 0
    for timestamp, key, value in records:
        if builder is None or builder.append(offset, timestamp, key, value, []) is None:
            if builder is not None:
                builder.build()
            builder, offset = kafka.record.default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_SIZE), 0
            builder.append(offset, timestamp, key, value, [])
        offset += 1
    if builder is not None:
        builder.build()
    return len(records)


def copy_bytes(source: np.ndarray, target: np.ndarray) -> None:
    """Copy with memcpy, a mebibyte at a time like the pieces that are decoded, into memory that is there already."""
    for start in range(0, len(source), 2**20):
        target[start : start + 2**20] = source[start : start + 2**20]


def compressed_parts(data: bytes) -> list[tuple[bytes, int]]:
    """Return what the codec itself has to do for the v2 batches in `data`: each compressed part, its record count."""
    parts, at = [], 0
    while at < len(data):
        size = 12 + RECORD_COUNT.unpack_from(data, at + 8)[0]
        parts.append((data[at + 61 : at + size], RECORD_COUNT.unpack_from(data, at + 57)[0]))
        at += size
    return parts


def snappy_blocks(part: bytes) -> list[bytes]:
    """Return the raw snappy blocks of a xerial stream."""
    blocks, at = [], 16
    while at < len(part):
        size = RECORD_COUNT.unpack_from(part, at)[0]
        blocks.append(part[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


def decompress_all(codec: str, parts: list[tuple[bytes, int]], library: str) -> int:
    """Decompress all parts with the library alone."""
    match codec, library:
        case "gzip", "isal":
            for part, _ in parts:
                isal_zlib.decompress(part, 31)
        case "gzip", "zlib":
            for part, _ in parts:
                gzip.decompress(part)
        case "gzip", "cramjam":
            for part, _ in parts:
                cramjam.gzip.decompress(part)
        case "snappy", "cramjam":
            for part, _ in parts:
                for block in snappy_blocks(part):
                    cramjam.snappy.decompress_raw(block)
        case "lz4", "lz4":
            for part, _ in parts:
                lz4.frame.decompress(part)
        case "lz4", "cramjam":
            for part, _ in parts:
                cramjam.lz4.decompress(part)
        case "zstd", "zstandard":
            one = zstandard.ZstdDecompressor().decompressobj
            for part, _ in parts:
                one().decompress(part)
        case "zstd", "cramjam":
            for part, _ in parts:
                cramjam.zstd.decompress(part)
        case _:
            raise ValueError(f"{library} does not do {codec}")
    return sum(count for _, count in parts)


LIBRARIES = {
    "gzip": ("isal", "zlib", "cramjam"),
    "snappy": ("cramjam",),
    "lz4": ("lz4", "cramjam"),
    "zstd": ("zstandard", "cramjam"),
}
