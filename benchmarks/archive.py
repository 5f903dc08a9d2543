"""Archives of any size for pipelines: a closed log directory of many partitions, the same bytes for a seed and a size.

A topic for each of twelve pairs of format and codec. Of the bytes one partition has a quarter, 17 have some percent
each, and 96 next to nothing. Records of 250 bytes; keys of 16, with frequencies 1/rank; a tenth are tombstones, some
have no key. Batches of v2 have rising times; two of their topics are transactions, a third of them aborted. `harm`: of
four partitions a byte differs, of one the end is torn.

A partition repeats a set of batches that was encoded once, with new offsets, and those of v2 with new times and the
checksum that follows. v0 wrappers hold their offsets inside, so that those partitions are small ones.

Run: python benchmarks/archive.py FOLDER BYTES [SEED]   (damage included)
"""

import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

import data
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.wire.checksum import crc32c
from magicbyte.tools.offline.writer import LogDirectoryWriter

START = 1_700_000_000_000
KEYS = 50_000
SET_RECORDS = 20_000
TRANSACTION = 500  # records
RECORD_BYTES = 250
RULES = IndexRules.of(data.KAFKA)
LONG, INT = struct.Struct(">q"), struct.Struct(">i")
KINDS = [
    (Format.V2, Codec.LZ4),
    (Format.V1, Codec.GZIP),
    (Format.V2, Codec.ZSTD),
    (Format.V0, Codec.NONE),
    (Format.V2, Codec.NONE),
    (Format.V1, Codec.SNAPPY),
    (Format.V2, Codec.GZIP),
    (Format.V1, Codec.NONE),
    (Format.V2, Codec.SNAPPY),
    (Format.V1, Codec.LZ4),
    (Format.V0, Codec.GZIP),
    (Format.V0, Codec.SNAPPY),
]
LARGE = 9  # of the kinds: those that can be repeated at any size, in front


@dataclass(frozen=True)
class BatchSet:
    """Batches of one format and codec, of records with offsets from 0 on. `count`: of offsets."""

    table: BatchTable
    count: int

    @property
    def size(self) -> int:
        return len(self.table.buffer)

    def at(self, base: int, *, millis: int = 0) -> bytearray:
        """Return the batches with offsets from `base` on; those of v2 `millis` later."""
        found = bytearray(self.table.buffer)
        positions = np.asarray(self.table.position, np.int64)
        offsets = np.asarray(self.table.offset, np.int64) + base
        cells = np.frombuffer(found, np.uint8)
        cells[positions[:, None] + np.arange(8)] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
        if millis:
            ends = positions + np.asarray(self.table.size, np.int64)
            view = memoryview(found)
            for start, end in zip(positions.tolist(), ends.tolist(), strict=True):
                for at in (start + 27, start + 35):  # the first and the largest time
                    LONG.pack_into(found, at, LONG.unpack_from(found, at)[0] + millis)
                struct.pack_into(">I", found, start + 17, crc32c(view[start + 21 : end]))
        return found


def columns(seed: int, count: int, size: int, *, keys: int = KEYS) -> RecordColumns:
    """Return records of so many bytes of key and value together, with skewed keys, tombstones and some without keys."""
    choice = np.random.default_rng(seed)
    lines = [line.encode() for line in islice(data.text(random.Random(seed), size - 16), 5000)]
    values = BytesColumn(b"".join(lines), np.arange(len(lines)) * (size - 16), [size - 16] * len(lines))
    weights = 1 / np.arange(1, keys + 1)
    chosen = choice.choice(keys, count, p=weights / weights.sum())
    names = b"".join(b"key-%012d" % key for key in chosen.tolist())
    picked = values.take(choice.integers(0, len(lines), count))
    has_value, has_key = choice.random(count) >= 0.1, choice.random(count) >= 0.02
    lengths = np.where(has_value, np.asarray(picked.length), -1)
    nothing = BytesColumn(b"", [0], [], packed=True)
    return RecordColumns(
        np.arange(count),
        START + np.arange(count),
        np.zeros(count, np.int8),
        BytesColumn(names, np.arange(count) * 16, np.where(has_key, 16, -1)),
        BytesColumn(picked.data, picked.start, lengths),
        HeaderColumns(np.zeros(count, np.int32), nothing, nothing),
    )


def batch_set(target: Format, codec: Codec, records: RecordColumns, *, transactional: bool = False) -> BatchSet:
    """Encode records as batches of 16 KiB; or as transactions with their markers, of which each third is aborted."""
    if not transactional:
        return scanned(encode(records, target, codec), len(records))
    pieces: list[bytes | memoryview] = []
    count = 0
    for number, first in enumerate(range(0, len(records), TRANSACTION)):
        some = records.take(np.arange(first, min(first + TRANSACTION, len(records))))
        base = int(some.offset[0]) + number
        some.offset = np.asarray(some.offset) + number
        producer = 1000 + number % 7
        header = BatchHeader(
            is_transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0, partition_leader_epoch=0
        )
        pieces.append(encode(some, target, codec, header=header))
        end = base + len(some)
        kind = ControlType.ABORT if number % 3 == 2 else ControlType.COMMIT
        time = int(some.timestamp[-1])
        pieces.append(
            build_marker(
                kind, base_offset=end, timestamp=time, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
                partition_leader_epoch=0,
            )
        )  # fmt: skip
        count = end + 1
    return scanned(b"".join(pieces), count)


def scanned(content: bytes | memoryview, count: int) -> BatchSet:
    table = scan(memoryview(content), dialect=Dialect.KAFKA)
    assert table.damage is None
    return BatchSet(table, count)


def repeated(batches: BatchSet, size: int, *, rising: bool) -> Iterator[bytearray]:
    """Yield the set again and again, until it is `size` bytes; at least once."""
    base = written = 0
    while written < max(size, 1):
        yield batches.at(base, millis=base if rising else 0)
        base, written = base + batches.count, written + batches.size


def make(folder: Path, size: int, *, seed: int = data.SEED, tiny: int = 96) -> None:
    """Write the mixed archive of about `size` bytes, undamaged, into a new folder."""
    directory = LogDirectoryWriter(folder, RULES)
    shares = [25.0, *([75 / (2 * LARGE - 1)] * (2 * LARGE - 1))]
    per_set = min(SET_RECORDS, max(size // len(shares) // RECORD_BYTES // 4, 200))
    sets = {}
    for number, kind in enumerate(KINDS):
        transactional = kind[0] is Format.V2 and number % 4 == 2
        sets[kind] = batch_set(*kind, columns(seed + number, per_set, RECORD_BYTES), transactional=transactional)
    plan = [(share * size / 100, KINDS[number % LARGE]) for number, share in enumerate(shares)]
    plan += [(0, KINDS[number % len(KINDS)]) for number in range(tiny)]
    names: dict[str, int] = {}
    for wanted, kind in plan:
        topic = f"v{kind[0].magic}-{kind[1].name.lower()}"
        number = names[topic] = names.get(topic, -1) + 1
        with directory.partition(topic, number, segment_bytes=segment_bytes(size)) as writer:
            if wanted:
                for piece in repeated(sets[kind], int(wanted), rising=kind[0] is Format.V2):
                    writer.append(piece)
            else:  # some of the first entries
                table = sets[kind].table
                row = min(number, len(table) - 1)
                writer.append(table.buffer[: int(table.position[row]) + int(table.size[row])])
            writer.finish()
    directory.finish()
    (folder / checkpoints.CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":-1}')


def segment_bytes(size: int) -> int:
    """Return what segments of an archive have at most: a hundredth of all, within 64 KiB and 64 MiB."""
    return min(max(size // 100, 1 << 16), 64 << 20)


def harm(folder: Path, seed: int) -> None:
    """Change a byte in the middle of four partitions, and tear the end off one."""
    rng = random.Random(seed)
    partitions = sorted(path for path in folder.glob("*-[1-9]") if path.is_dir())
    chosen = rng.sample(partitions, 5)
    for path in chosen[:4]:
        log = min(path.glob("*.log"))
        with log.open("r+b") as file:
            at = log.stat().st_size // 2
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1]))
    log = max(chosen[4].glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 9)


if __name__ == "__main__":
    folder, bytes_, *seeds = sys.argv[1:]
    seed = int(seeds[0]) if seeds else data.SEED
    make(Path(folder), int(bytes_), seed=seed)
    harm(Path(folder), seed)
