"""Appending: its cost, compared with that of decompression alone, and with that of recompression.

A produced set goes through `prepare` as a leader's log does it, compiled kernels loaded. Compressed sets whose format
and codec match the topic: time of the append over that of decompressing the same payload (`decompress`, the codec
alone, into an existing buffer). Compared with the way without KIP-31: the same set decoded, its offsets assigned and
its records compressed again (`recompress`). Uncompressed batches: over a CRC-32C of the same bytes (`crc32c`). Records
of 1000 bytes as in data.py. One process on one core; the rivals of a case take turns, 11 rounds of about 50 ms; medians
of CPU time.

`one record`: quantiles of single calls, wall clock.

Run: python benchmarks/append.py [CASE...]   (written to benchmarks/results/append.json)
"""

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable

import data
import harness
from magicbyte.engine.codecs import Codec, decompress_into
from magicbyte.engine.compiled.kernel import warm
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.reencode import rebuild
from magicbyte.engine.log.append.rules import AppendRules, Request
from magicbyte.engine.log.append.sets import validate
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.wire.checksum import crc32c

NOW = 1_700_000_100_000
ROUNDS = 11
ROUND_SECONDS = 0.05
SIZES = {"16 kB": 16, "128 kB": 130, "1 MB": 1020}
IN_PLACE, PLAIN, ONE_RECORD_US = 1.3, 3.0, 40.0
SAVINGS = {Codec.GZIP: 5.0, Codec.ZSTD: 3.0, Codec.LZ4: 2.0}
LARGE = {"max_message_bytes": 1 << 24}
Work = Callable[[], object]
Figures = dict[str, float | bool]


def produced(form: Format, codec: Codec, count: int) -> memoryview:
    """Return a set of `count` records of 1000 bytes."""
    records = [
        Record(at, each.timestamp, 0, each.key, each.value)
        for at, each in enumerate(itertools.islice(data.records(1000), count))
    ]
    return memoryview(encode_records(records, form, codec))


def alternating(works: dict[str, Work]) -> dict[str, float]:
    """Return the median CPU time of each, in microseconds a call."""
    calls = {}
    for name, work in works.items():
        work()
        start = time.process_time()
        work()
        calls[name] = max(1, round(ROUND_SECONDS / max(time.process_time() - start, 1e-6)))
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            start = time.process_time()
            for _ in range(calls[name]):
                work()
            rounds[name].append((time.process_time() - start) / calls[name])
    return {name: round(1e6 * statistics.median(times), 2) for name, times in rounds.items()}


def append(records: memoryview, rules: AppendRules, version: int) -> object:
    """Append a set."""
    return prepare(records, rules, next_offset=7, now_ms=NOW, leader_epoch=1, request_version=version)


def compressed(form: Format, codec: Codec, count: int) -> Figures:
    """Compare for a set whose format and codec are the topic's."""
    records, rules = produced(form, codec, count), AppendRules(format=form, **LARGE)
    version = 8 if form is Format.V2 else 2
    entry = parse_entry(records)
    payload = entry.value if isinstance(entry, MessageView) else records[61:]
    assert payload is not None
    out = memoryview(bytearray(4 << 20))

    def recompress() -> object:
        found = validate(records, rules, Request(version), NOW)
        return rebuild(found, codec, rules, Request(version), 7, NOW, 1)

    found = alternating(
        {
            "append_us": lambda: append(records, rules, version),
            "decompress_us": lambda: decompress_into(codec, payload, out),
            "recompress_us": recompress,
        }
    )
    ratio, saving = found["append_us"] / found["decompress_us"], found["recompress_us"] / found["append_us"]
    figures: Figures = {**found, "over_decompress": round(ratio, 2), "target": IN_PLACE, "reached": ratio <= IN_PLACE}
    figures["saving"] = round(saving, 1)
    if codec in SAVINGS:
        figures |= {"saving_target": SAVINGS[codec], "saving_reached": saving >= SAVINGS[codec]}
    return figures


def plain(count: int) -> Figures:
    """Compare for an uncompressed batch."""
    records, rules = produced(Format.V2, Codec.NONE, count), AppendRules(**LARGE)
    found = alternating({"append_us": lambda: append(records, rules, 8), "crc32c_us": lambda: crc32c(records)})
    ratio = found["append_us"] / found["crc32c_us"]
    return {**found, "bytes": len(records), "over_crc32c": round(ratio, 2), "target": PLAIN, "reached": ratio <= PLAIN}


def one_record() -> Figures:
    """Time single appends of a batch of one record of 100 bytes."""
    records = memoryview(encode_records([Record(0, NOW, 0, b"key", bytes(100))], Format.V2))
    rules, times = AppendRules(), []
    for _ in range(20_000):
        start = time.perf_counter_ns()
        append(records, rules, 8)
        times.append((time.perf_counter_ns() - start) / 1000)
    cuts = statistics.quantiles(times, n=100)
    return {"p50_us": round(cuts[49], 1), "p99_us": round(cuts[98], 1), "target": ONE_RECORD_US,
            "reached": cuts[49] <= ONE_RECORD_US}  # fmt: skip


CASES: dict[str, Callable[[], Figures]] = {
    f"v2 none {size}": lambda count=count: plain(count) for size, count in SIZES.items()
}
CASES["one record"] = one_record
CASES |= {
    f"{form.name.lower()} {codec.name.lower()} {size}": lambda form=form, codec=codec, count=count: compressed(
        form, codec, count
    )
    for form in (Format.V2, Format.V1)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    for size, count in SIZES.items()
    if form is Format.V2 or codec is not Codec.ZSTD
}

if __name__ == "__main__":
    os.sched_setaffinity(0, {int(harness.CORE)})
    warm()
    for case in sys.argv[1:] or CASES:
        harness.save("append", __doc__, {case: CASES[case]()})
