"""A log on one machine: look-ups in a large segment, recovery after a crash, appends that share a sync.

`lookup`: in one segment of 1 GiB (v2, lz4, records of 1000 bytes; see data.py) with indexes of its own, in the page
cache: `offset` finds the entry that holds an offset, as a fetch does; `timestamp` the first record of a time, as
ListOffsets does. The times of the segment rise from entry to entry. Random ones, wall clock of each; `bytes_read`
counts the bytes read from the log for one, of which those before the entry that is found must not be
more than an index interval and one entry. Target: <= 100 us.

`recovery`: the same segment without any other file, opened as after a crash: every checksum verified, all indexes
and snapshots rebuilt and synced. Rival: reading the file in pieces of 4 MiB. One core, page cache, alternating; medians
of CPU time and wall clock. Target: >= half of the rival's speed.

`group commit`: 32 writers that each append a batch of one record of 100 bytes and wait until it is durable, with one
sync for all of them (`GroupCommit`, round after round in one thread), beside one writer that syncs each append. Same
log, same disk, alternating; medians of appends a second. Target: >= 0.7 x 32 x.

Run: python benchmarks/live_log.py [CASE...]   (written to benchmarks/results/live_log.json)
"""

import os
import random
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import data
import harness
from magicbyte.engine.compiled.kernel import warm
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.group_commit import GroupCommit
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.entry import entries

NOW = 1_700_000_100_000
LOOKUPS = 20_000
ROUNDS = 9
WRITERS = 32
SECONDS = 1.0  # a round of appends
LOOKUP_US, RECOVERY, SHARED = 100.0, 0.5, 0.7
PIECE = 4 << 20
Figures = dict[str, object]


class Counted:
    """An open file that counts the bytes that are read of it."""

    def __init__(self, file: object) -> None:
        self.file, self.bytes = file, 0

    def read_at(self, position: int, length: int) -> bytes:
        found: bytes = self.file.read_at(position, length)  # type: ignore[attr-defined]
        self.bytes += len(found)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def rising() -> Path:
    """Return the segment of 1 GiB whose largest timestamps rise from entry to entry, in a folder of its own."""
    path = data.folder() / "rising" / "benchmark-0" / "00000000000000000000.log"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        (source,) = data.gibibyte_segment().glob("*/*.log")
        draft = path.with_suffix(".draft")
        content, shift = bytearray(source.read_bytes()), 0
        last = 0
        for _, entry in entries(content):
            assert isinstance(entry, RecordBatch)
            span = entry.max_timestamp - entry.base_timestamp
            shift = max(shift, last - entry.base_timestamp)  # the records repeat after some time
            struct.pack_into(">q", entry.buffer, 27, entry.base_timestamp + shift)
            last = entry.base_timestamp + shift + span
            entry.set_max_timestamp(entry.timestamp_type, last)
        with draft.open("wb", buffering=0) as file:  # as a log is written: it matters to how fast it can be read
            for _, entry in entries(content):
                file.write(entry.buffer)
        draft.rename(path)
    return path


@contextmanager
def copied() -> Iterator[Path]:
    """Give a folder of a log that has the segment, and nothing else."""
    source = rising()
    with tempfile.TemporaryDirectory(dir=data.folder()) as scratch:
        folder = Path(scratch) / "benchmark-0"
        folder.mkdir()
        (folder / source.name).hardlink_to(source)
        yield folder


def opened(folder: Path) -> PartitionLog:
    """Open a log that was not closed."""
    return PartitionLog.open(LocalFiles(), str(folder), LogConfig(), monotonic_ms=NOW, clean=False)


def quantiles(work: Callable[[int], object], wanted: list[int]) -> dict[str, float]:
    """Return median and 99th percentile of single calls in microseconds."""
    times = []
    for value in wanted:
        start = time.perf_counter_ns()
        work(value)
        times.append((time.perf_counter_ns() - start) / 1000)
    cuts = statistics.quantiles(times, n=100)
    return {"p50_us": round(cuts[49], 1), "p99_us": round(cuts[98], 1)}


def lookup() -> Figures:
    """Time both kinds of look-up."""
    rng = random.Random(data.SEED)
    with copied() as folder:
        log = opened(folder)
        (segment,) = log.segments
        heads = list(segment.heads(0))
        largest = max(each.size for each in heads)
        ends = {"offset": log.log_end_offset, "timestamp": segment.largest_timestamp}
        first = {"offset": 0, "timestamp": heads[0].timestamp}
        works: dict[str, Callable[[int], object]] = {
            "offset": lambda offset: log.read(offset, 1 << 20),
            "timestamp": lambda timestamp: offset_for_timestamp(log, timestamp),
        }
        found: Figures = {"segment_bytes": segment.size, "entries": len(heads), "largest_entry": largest}
        for name, work in works.items():
            wanted = [rng.randrange(first[name], ends[name]) for _ in range(LOOKUPS)]
            for value in wanted[:1000]:
                work(value)
            figures = quantiles(work, wanted)
            file, read, walked = segment.log, [], []
            counted = Counted(file)
            for value in wanted[:1000]:
                counted.bytes, segment.log = 0, counted  # type: ignore[assignment]
                work(value)
                segment.log = file
                read.append(counted.bytes)
                indexes = segment.indexes
                begin = (indexes.position_before if name == "offset" else indexes.position_before_timestamp)(value)
                head = next(
                    each for each in segment.heads(begin)
                    if (segment.last_offset_of(each) if name == "offset" else each.timestamp) >= value
                )  # fmt: skip
                walked.append(head.position - begin)
            bound = log.config.index_interval_bytes + largest
            reached = figures["p50_us"] <= LOOKUP_US and max(walked) <= bound
            found[name] = figures | {
                "bytes_read": {"median": statistics.median(read), "most": max(read)},
                "walked_over": {"median": statistics.median(walked), "most": max(walked), "bound": bound},
                "target": LOOKUP_US,
                "reached": reached,
            }
        log.release()
    return found


def recovery() -> Figures:
    """Time a recovery beside reading the file."""

    def recover() -> None:
        with copied() as folder:
            begin()
            log = opened(folder)
            end("magicbyte")
            assert log.loaded.recovered == [0]
            log.release()

    def read() -> None:
        begin()
        with rising().open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        end("reading")

    def begin() -> None:
        starts[:] = time.process_time(), time.perf_counter()

    def end(name: str) -> None:
        for kind, start, now in zip(("cpu", "wall"), starts, (time.process_time(), time.perf_counter()), strict=True):
            times.setdefault((name, kind), []).append(now - start)

    buffer, starts = memoryview(bytearray(PIECE)), [0.0, 0.0]
    times: dict[tuple[str, str], list[float]] = {}
    read(), recover()
    times.clear()
    for _ in range(ROUNDS):
        read()
        recover()
    found: Figures = {"bytes": rising().stat().st_size}
    for kind in ("cpu", "wall"):
        medians = {name: statistics.median(times[name, kind]) for name in ("magicbyte", "reading")}
        ratio = medians["reading"] / medians["magicbyte"]
        found[kind] = {
            **{f"{name}_seconds": round(seconds, 3) for name, seconds in medians.items()},
            "of_reading_speed": round(ratio, 2), "target": RECOVERY, "reached": ratio >= RECOVERY,
        }  # fmt: skip
    return found


def group_commit() -> Figures:
    """Count appends that are durable, shared and alone, alternating."""
    records = memoryview(encode_records([Record(0, NOW, 0, b"key", bytes(100))], Format.V2))
    rules = AppendRules()
    with tempfile.TemporaryDirectory(dir=data.folder()) as scratch:
        log = PartitionLog.open(LocalFiles(), f"{scratch}/benchmark-0", LogConfig(), monotonic_ms=NOW, clean=True)

        def append() -> None:
            prepared = prepare(
                records, rules, next_offset=log.log_end_offset, now_ms=NOW, leader_epoch=0, request_version=8
            )
            log.append(prepared, Moment.fixed(NOW))

        def alone() -> int:
            append()
            log.flush(NOW)
            return 1

        def shared() -> int:
            commit: GroupCommit[int] = GroupCommit()
            for writer in range(WRITERS):
                append()
                commit.wait(log, writer)
            begun = commit.begin()
            begun.run()
            return len(commit.end(begun, NOW).durable)

        rates: dict[str, list[float]] = {"alone": [], "shared": []}
        for _ in range(ROUNDS):
            for name, work in (("alone", alone), ("shared", shared)):
                start, count = time.perf_counter(), 0
                while time.perf_counter() < start + SECONDS:
                    count += work()
                rates[name].append(count / (time.perf_counter() - start))
        log.release()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ratio, target = medians["shared"] / medians["alone"], SHARED * WRITERS
    return {
        "appends_per_second": {name: round(median) for name, median in medians.items()},
        "sync_us": round(1e6 / medians["alone"]),
        "ratio": round(ratio, 1),
        "target": target,
        "reached": ratio >= target,
    }


CASES: dict[str, Callable[[], Figures]] = {"lookup": lookup, "recovery": recovery, "group commit": group_commit}

if __name__ == "__main__":
    os.sched_setaffinity(0, {int(harness.CORE)})
    warm()
    harness.save("live_log", __doc__, {name: CASES[name]() for name in sys.argv[1:] or CASES})
