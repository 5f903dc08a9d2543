"""The inputs of the benchmarks: the same bytes for every rival, made once by Kafka's own Java builder.

Records: a key of 16 bytes (of 100,000 different ones), a value like a line of a JSON event log; key and value together
are 100 or 1000 bytes. gzip shrinks the batches to about a third. Batches are closed where the Java producer closes
them (batch.size=16384). Everything follows from one seed. Files lie in $MAGICBYTE_BENCHMARK_DATA
(default ~/.cache/magicbyte-benchmarks) and are made again when this file or the Java source changes.

Run: python benchmarks/data.py   (makes all of them; the benchmarks make what they need)
"""

import hashlib
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "interop"))

import kafka_oracle  # noqa: E402  (the launcher of the interop tests is no installed package)

KAFKA = "3.9.1"  # the last release whose classes write all three formats
SEED = 20260101
KEY_BYTES = 16
COUNTS = {100: 1_000_000, 1000: 200_000}  # records by size; 100 and 200 MB: beyond any cache
CODECS = {
    0: ("none", "gzip", "snappy", "lz4"),
    1: ("none", "gzip", "snappy", "lz4"),
    2: ("none", "gzip", "snappy", "lz4", "zstd"),
}
HEADER = struct.Struct(">qi")  # timestamp, key length
LENGTH = struct.Struct(">i")

EVENTS = ("click", "view", "purchase", "refund", "login", "logout", "search", "share")
SYLLABLES = (
    "an",
    "be",
    "co",
    "dra",
    "el",
    "fi",
    "gu",
    "ho",
    "in",
    "ka",
    "lo",
    "ma",
    "ne",
    "or",
    "pu",
    "ra",
    "si",
    "ta",
)


class Record(NamedTuple):
    """One record as its producer gives it; milliseconds and bytes."""

    timestamp: int
    key: bytes
    value: bytes


def folder() -> Path:
    """Return the folder of the inputs that belong to this very version of the sources."""
    home = Path(os.environ.get("MAGICBYTE_BENCHMARK_DATA", "~/.cache/magicbyte-benchmarks")).expanduser()
    sources = Path(__file__).read_bytes() + (HERE / "java/MakeInputs.java").read_bytes()
    path = home / hashlib.sha256(sources).hexdigest()[:12]
    path.mkdir(parents=True, exist_ok=True)
    return path


def text(rng: random.Random, size: int) -> Iterator[str]:
    """Yield lines of `size` ASCII characters without end: a JSON event, filled up with words of a small language."""
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(2000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    while True:
        pool = rng.choices(words, weights, k=200_000)
        at = 0
        while at < len(pool) - size:
            name, event, ms = rng.getrandbits(32), rng.choice(EVENTS), rng.randrange(10_000)
            start = f'{{"id":"{name:08x}","event":"{event}","ms":{ms},"text":"'
            room = size - len(start) - 2
            yield f'{start}{" ".join(pool[at : at + room // 2])[:room]:.<{room}}"}}'
            at += room // 5


def records(size: int) -> Iterator[Record]:
    """Yield the records whose key and value are `size` bytes together."""
    rng = random.Random(SEED + size)
    timestamp = 1_700_000_000_000
    values = text(rng, size - KEY_BYTES)
    for _ in range(COUNTS[size]):
        timestamp += rng.randrange(4)
        yield Record(timestamp, b"user-%011d" % rng.randrange(100_000), next(values).encode())


def flat(size: int) -> Path:
    """Return the file of the records alone: timestamp (int64), key length (int32), key, value length, value."""
    path = folder() / f"records-{size}.flat"
    if not path.exists():
        draft = path.with_suffix(".draft")
        with draft.open("wb") as file:
            for record in records(size):
                file.write(HEADER.pack(record.timestamp, len(record.key)) + record.key)
                file.write(LENGTH.pack(len(record.value)) + record.value)
        draft.rename(path)
    return path


def read_flat(path: Path) -> list[Record]:
    """Return the records of a file that `flat` made."""
    data = path.read_bytes()
    found, at = [], 0
    while at < len(data):
        timestamp, key_length = HEADER.unpack_from(data, at)
        key = data[at + 12 : at + 12 + key_length]
        at += 12 + key_length
        (value_length,) = LENGTH.unpack_from(data, at)
        found.append(Record(timestamp, key, data[at + 4 : at + 4 + value_length]))
        at += 4 + value_length
    return found


def log(size: int, magic: int, codec: str) -> Path:
    """Return the file of the same records in one format and codec, batch after batch as in a segment."""
    path = folder() / f"v{magic}-{codec}-{size}.log"
    if not path.exists():
        draft = path.with_suffix(".draft")
        classes = kafka_oracle.compile_source(KAFKA, HERE / "java/MakeInputs.java")
        command = [
            kafka_oracle.jdk_program("java"),
            "-Xmx1g",
            "-cp",
            f"{classes}:{kafka_oracle.fetch(KAFKA)}/*",
            "MakeInputs",
        ]
        subprocess.run([*command, flat(size), draft, str(magic), codec], check=True, stderr=subprocess.DEVNULL)
        draft.rename(path)
    return path


def prefix(path: Path, limit: int) -> bytes:
    """Return the whole batches among the first `limit` bytes of a file."""
    with path.open("rb") as file:
        data = file.read(limit)
    end = 0
    while end + 12 <= len(data):
        size = 12 + LENGTH.unpack_from(data, end + 8)[0]
        if end + size > len(data):
            break
        end += size
    return data[:end]


def gibibyte_segment() -> Path:
    """Return a log directory of one segment of 1 GiB: v2 lz4 of 1000 B records, with consecutive offsets."""
    path = folder() / "gibibyte" / "benchmark-0" / "00000000000000000000.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        source = memoryview(log(1000, 2, "lz4").read_bytes())
        draft = path.with_suffix(".draft")
        base = written = 0
        with draft.open("wb") as file:
            while written < 2**30:
                at = 0
                while at < len(source) and written < 2**30:
                    size = 12 + LENGTH.unpack_from(source, at + 8)[0]
                    count = LENGTH.unpack_from(source, at + 57)[0]
                    file.write(struct.pack(">q", base))  # no checksum covers the offset
                    file.write(source[at + 8 : at + size])
                    base += count
                    written += size
                    at += size
        draft.rename(path)
    return path.parent.parent


if __name__ == "__main__":
    for record_size in COUNTS:
        for magic_value, names in CODECS.items():
            for name in names:
                made = log(record_size, magic_value, name)
                print(f"{made.stat().st_size:>12,} {made}")
    print(gibibyte_segment())
