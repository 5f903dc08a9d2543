"""Compression libraries on the bytes of record batches, and magicbyte.engine.codecs beside them, in the same run.

What is compared: decompressing a payload into one large buffer that is used again and again, as magicbyte does with a
log's batches (so a library that returns new bytes pays for copying them there), and compressing a batch to bytes. Each
candidate gets the same payload; sizes that it needs to know are given to it. For snappy and lz4 the libraries get the
blocks without their framing, which magicbyte has to parse. Ratio is compressed by plain size.
Candidates take turns, round after round; a figure is the CPU time of one call in microseconds: the median of the
rounds, with the lowest and the highest.

Needs zlib-ng and python-snappy beside the project's own libraries.
Run: python benchmarks/codec_libraries.py -o benchmarks/results/codecs.json (committed; docs/decisions/0002 has tables).
"""

import argparse
import json
import os
import platform
import random
import statistics
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cramjam
import deflate
import lz4.block
import lz4.frame
import snappy
import zstandard
from isal import isal_zlib
from zlib_ng import zlib_ng

from magicbyte.engine.codecs import Codec, compress, decompress_into

SEED = 20260101
ROUNDS = 7
TURN_SECONDS = 0.015
LIBRARIES = ("cramjam", "deflate", "isal", "lz4", "python-snappy", "zlib-ng", "zstandard")
BATCHES = (16 << 10, 64 << 10, 1 << 20)
RECORDS = (100, 1000)
WORDS = (
    "user",
    "order",
    "cart",
    "payment",
    "session",
    "request",
    "failed",
    "retry",
    "timeout",
    "cache",
    "shard",
    "commit",
)

Decompress = Callable[[memoryview, memoryview], int]
Compress = Callable[[bytes], bytes | bytearray | cramjam.Buffer]
Figures = dict[str, float]


# ---- inputs


def json_value(rng: random.Random, size: int) -> bytes:
    fields = {"id": rng.randrange(10**9), "user": f"user-{rng.randrange(10_000)}", "ok": rng.random() < 0.9}
    text = json.dumps(fields)[:-1]
    while len(text) < size:
        text += f', "{rng.choice(WORDS)}": "{rng.choice(WORDS)}-{rng.randrange(1000)}"'
    return text.encode()[: size - 1] + b"}"


def log_value(rng: random.Random, size: int) -> bytes:
    text = f"2026-01-01T12:{rng.randrange(60):02}:{rng.randrange(60):02}.{rng.randrange(1000):03} INFO [worker-"
    text += f"{rng.randrange(64)}] "
    while len(text) < size:
        text += f"{rng.choice(WORDS)} {rng.choice(WORDS)}={rng.randrange(100_000)} "
    return text.encode()[:size]


def half_random_value(rng: random.Random, size: int) -> bytes:
    return rng.randbytes(size // 2) + log_value(rng, size - size // 2)


VALUES = {"json": json_value, "log": log_value, "half random": half_random_value}


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def records_of_a_batch(kind: str, size: int, batch: int) -> bytes:
    """Return the records section of a magic-2 batch of about `batch` bytes, with values of `size` bytes."""
    rng = random.Random(f"{SEED} {kind} {size}")
    parts: list[bytes] = []
    total = count = 0
    while total < batch:
        value = VALUES[kind](rng, size)
        body = b"\x00" + varint(count // 3) + varint(count) + varint(-1) + varint(len(value)) + value + b"\x00"
        parts.append(varint(len(body)) + body)
        total, count = total + len(parts[-1]), count + 1
    return b"".join(parts)[:batch]


# ---- candidates


def lz4_blocks(frame: memoryview) -> Iterator[tuple[memoryview, bool]]:
    at = 7
    while word := struct.unpack_from("<I", frame, at)[0]:
        size = word & 0x7FFFFFFF
        yield frame[at + 4 : at + 4 + size], bool(word >> 31)
        at += 4 + size


def snappy_blocks(stream: memoryview) -> Iterator[memoryview]:
    at = 16
    while at < len(stream):
        size = struct.unpack_from(">i", stream, at)[0]
        yield stream[at + 4 : at + 4 + size]
        at += 4 + size


def copied(decompress: Callable[[memoryview], bytes | bytearray]) -> Decompress:
    """Turn a function that returns new bytes into one that fills `out`."""

    def into(data: memoryview, out: memoryview) -> int:
        content = decompress(data)
        out[: len(content)] = content
        return len(content)

    return into


def in_blocks(blocks: list[tuple[memoryview, bool]], one: Decompress) -> Decompress:
    """Decompress prepared blocks one after the other; a stored block is copied."""

    def into(_data: memoryview, out: memoryview) -> int:
        at = 0
        for block, stored in blocks:
            if stored:
                out[at : at + len(block)] = block
                at += len(block)
            else:
                at += one(block, out[at:])
        return at

    return into


def each_block(plain: bytes, size: int, one: Compress) -> bytes:
    return b"".join(bytes(one(plain[at : at + size])) for at in range(0, len(plain), size))


def decompressors(codec: Codec, payload: memoryview, size: int) -> dict[str, Decompress]:
    context = zstandard.ZstdDecompressor()
    found: dict[str, Decompress] = {"magicbyte": lambda data, out: decompress_into(codec, data, out)}
    match codec:
        case Codec.GZIP:
            found |= {
                "zlib": copied(lambda data: zlib.decompress(data, 31, size)),
                "isal": copied(lambda data: isal_zlib.decompress(data, 31, size)),
                "isal decompressobj": copied(lambda data: isal_zlib.decompressobj(31).decompress(data, 1 << 22)),
                "zlib-ng": copied(lambda data: zlib_ng.decompress(data, 31, size)),
                "deflate": copied(lambda data: deflate.gzip_decompress(data, size)),
                "cramjam": cramjam.gzip.decompress_into,
            }
        case Codec.SNAPPY:
            blocks = [(block, False) for block in snappy_blocks(payload)]
            found |= {
                "cramjam": in_blocks(blocks, cramjam.snappy.decompress_raw_into),
                "python-snappy": in_blocks(blocks, copied(snappy.uncompress)),
            }
        case Codec.LZ4:
            blocks = list(lz4_blocks(payload))
            one = min(size, 64 << 10)
            found |= {
                "lz4.block": in_blocks(blocks, copied(lambda data: lz4.block.decompress(data, uncompressed_size=one))),
                "lz4.frame": copied(lz4.frame.decompress),
                "cramjam": in_blocks(blocks, cramjam.lz4.decompress_block_into),
            }
        case Codec.ZSTD:
            found |= {
                "zstandard": copied(lambda data: context.decompress(data, max_output_size=size)),
                "zstandard reader": lambda data, out: context.stream_reader(data).readinto(out),
                "cramjam": cramjam.zstd.decompress_into,
            }
    return found


def compressors(codec: Codec) -> dict[str, Compress]:
    context = zstandard.ZstdCompressor(level=3, write_content_size=False)
    found: dict[str, Compress] = {"magicbyte": lambda plain: compress(codec, plain)}
    match codec:
        case Codec.GZIP:
            found |= {
                "zlib 6": lambda plain: zlib.compress(plain, 6, 31),
                "isal 2": lambda plain: isal_zlib.compress(plain, 2, 31),
                "isal 3": lambda plain: isal_zlib.compress(plain, 3, 31),
                "zlib-ng 6": lambda plain: zlib_ng.compress(plain, 6, 31),
                "deflate 3": lambda plain: deflate.gzip_compress(plain, 3),
                "deflate 4": lambda plain: deflate.gzip_compress(plain, 4),
                "deflate 5": lambda plain: deflate.gzip_compress(plain, 5),
                "deflate 6": lambda plain: deflate.gzip_compress(plain, 6),
                "cramjam 6": lambda plain: cramjam.gzip.compress(plain, 6),
            }
        case Codec.SNAPPY:
            found |= {
                "cramjam": lambda plain: each_block(plain, 32 << 10, cramjam.snappy.compress_raw),
                "python-snappy": lambda plain: each_block(plain, 32 << 10, snappy.compress),
            }
        case Codec.LZ4:
            found |= {
                "lz4.block": lambda plain: each_block(
                    plain, 64 << 10, lambda block: lz4.block.compress(block, store_size=False)
                ),
                "lz4.frame": lambda plain: lz4.frame.compress(plain, block_linked=False, store_size=False),
                "cramjam": lambda plain: each_block(
                    plain, 64 << 10, lambda block: cramjam.lz4.compress_block(block, store_size=False)
                ),
            }
        case Codec.ZSTD:
            found |= {
                "zstandard 3": context.compress,
                "cramjam 3": lambda plain: cramjam.zstd.compress(plain, 3),
            }
    return found


def kafka_payload(codec: Codec, plain: bytes) -> bytes:
    """Compress as the JVM would: zlib's level 6, zstd's stream without content size."""
    match codec:
        case Codec.GZIP:
            return zlib.compress(plain, 6, 31)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(plain)
        case _:
            return compress(codec, plain)


# ---- measuring


def alternating(work: dict[str, Callable[[], object]]) -> dict[str, Figures]:
    """Return the CPU microseconds of one call of each candidate: median, lowest and highest of the rounds."""
    loops = {}
    for name, call in work.items():
        call()
        start = time.thread_time()
        for _ in range(3):
            call()
        loops[name] = max(1, round(TURN_SECONDS / ((time.thread_time() - start) / 3)))
    rounds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, call in work.items():
            repeat = range(loops[name])
            start = time.thread_time()
            for _ in repeat:
                call()
            rounds[name].append(1e6 * (time.thread_time() - start) / loops[name])
    return {
        name: {
            "us": round(statistics.median(times), 2),
            "lowest": round(min(times), 2),
            "highest": round(max(times), 2),
        }
        for name, times in rounds.items()
    }


def measure(codec: Codec, kind: str, size: int, plain: bytes) -> dict[str, object]:
    out = memoryview(bytearray(4 << 20))
    payload = memoryview(kafka_payload(codec, plain))
    reading = decompressors(codec, payload, len(plain))
    writing = compressors(codec)
    for name, read in reading.items():
        assert read(payload, out) == len(plain), name
        assert out[: len(plain)] == plain, name
    read_figures = alternating({name: lambda read=read: read(payload, out) for name, read in reading.items()})
    write_figures = alternating({name: lambda write=write: write(plain) for name, write in writing.items()})
    for name, write in writing.items():
        write_figures[name]["ratio"] = round(len(write(plain)) / len(plain), 4)
    return {
        "codec": codec.name.lower(),
        "values": kind,
        "record_bytes": size,
        "batch_bytes": len(plain),
        "payload_bytes": len(payload),
        "decompress_into": read_figures,
        "compress": write_figures,
    }


def two_threads(call: Callable[[], object]) -> float:
    """Return how many times the work of one thread two threads do in the same time, at the best of five tries."""
    calls = range(30)

    def work() -> None:
        for _ in calls:
            call()

    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        work()
        one = time.perf_counter() - start
        threads = [threading.Thread(target=work) for _ in range(2)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = max(best, 2 * one / (time.perf_counter() - start))
    return round(best, 2)


def scaling(codec: Codec, plain: bytes) -> dict[str, float]:
    payload = memoryview(kafka_payload(codec, plain))
    mine = threading.local()

    def read() -> int:
        if not hasattr(mine, "out"):
            mine.out = memoryview(bytearray(2 << 20))
        return decompress_into(codec, payload, mine.out)

    return {"decompress_into": two_threads(read), "compress": two_threads(lambda: compress(codec, plain))}


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    output: Path = parser.parse_args().output
    codecs = [codec for codec in Codec if codec is not Codec.NONE]
    results = []
    for kind in VALUES:
        for size in RECORDS:
            for batch in BATCHES:
                plain = records_of_a_batch(kind, size, batch)
                results += [measure(codec, kind, size, plain) for codec in codecs]
                print(kind, size, batch, flush=True)
    one_record = records_of_a_batch("json", 100, 100)
    large = records_of_a_batch("json", 100, 1 << 20)
    report = {
        "command": "python benchmarks/codec_libraries.py -o benchmarks/results/codecs.json",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in LIBRARIES}
        | {"zlib": zlib.ZLIB_RUNTIME_VERSION, "zlib-ng runtime": zlib_ng.ZLIBNG_RUNTIME_VERSION},
        "rounds": ROUNDS,
        "results": results,
        "one_record_of_100_bytes": [measure(codec, "json", 100, one_record) for codec in codecs],
        "two_threads_on_1_mib": {codec.name.lower(): scaling(codec, large) for codec in codecs},
    }
    output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
