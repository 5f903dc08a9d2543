"""Compaction of a log, v2 lz4, keys of 16 bytes, half of the records superseded, beside the log cleaner of Kafka 3.9.

Segments of 128 MiB, each key twice, at random places; batches of 16 KiB, the same bytes for both. The rival is Kafka's
own `Cleaner` with the settings of a broker (128 MiB for keys; both get 512 for the ten million keys of 1 GiB of small
records), called on an open log; ours is `Compaction`. Each cleans
a small log first, so that all is compiled, then the log: MB of segments per second of CPU of the whole process, which
goes to the JVM's compilers and collectors, too. Both write and sync their segments. Median of alternating rounds.
The enriched dialect, whose sets are merged, has no rival: v1 is beside it. Target: 2 x.

Run: python benchmarks/compact.py [CASE...]   (written to benchmarks/results/compact.json)
"""

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

import data
import harness
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.cleaning.compaction import CleanableOffsets, Compaction, CompactionConfig
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.encode import Format, encode_chunks
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.writer import LogDirectoryWriter

TARGET = 2.0
ROUNDS = 3
SEGMENT_BYTES = 128 << 20


class Case(NamedTuple):
    """A log of `size` bytes, of records of so many in a format; `key_mib`: memory for keys, enough for one round."""

    record_bytes: int
    size: int
    key_mib: int = 128
    target: Format = Format.V2


CASES = {
    "1000 B records, 1 GiB": Case(1000, 1 << 30),
    "100 B records, 1 GiB": Case(100, 1 << 30, 512),
    "1000 B records, 128 MiB": Case(1000, 1 << 27),
    "100 B records, 128 MiB": Case(100, 1 << 27),
    "v1, 1000 B records, 128 MiB": Case(1000, 1 << 27, target=Format.V1),
    "enriched, 1000 B records, 128 MiB": Case(1000, 1 << 27, target=Format.ENRICHED),
}
WARM_BYTES = 32 << 20
NOW = 1_700_000_000_000
RULES = IndexRules.of(data.KAFKA)


def log_of(record_bytes: int, size: int, target: Format = Format.V2) -> Path:
    """Return the partition folder of a log of about `size` bytes, made once."""
    other = "" if target is Format.V2 else f"-{target.value}"
    out = data.folder() / f"compact-{record_bytes}-{size}{other}"
    if not out.exists():
        draft = out.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        directory = LogDirectoryWriter(draft, RULES)
        with directory.partition("benchmark", 0, segment_bytes=SEGMENT_BYTES, dialect=target.dialect) as writer:
            rng = random.Random(data.SEED)
            values = [line.encode() for line in islice(data.text(rng, record_bytes - 16), 20_000)]
            lines = BytesColumn(
                b"".join(values), np.arange(len(values)) * (record_bytes - 16), [record_bytes - 16] * len(values)
            )
            probe = len(chunk_of(lines, np.arange(20_000), 0, np.arange(20_000), target))
            count = size * 20_000 // probe & ~1
            keys = np.random.default_rng(data.SEED).permutation(np.arange(count) // 2)
            for first in range(0, count, 20_000):
                some = keys[first : first + 20_000]
                rows = np.random.default_rng(first).integers(0, len(values), len(some))
                writer.append(chunk_of(lines, some, first, rows, target))
            writer.finish()
        draft.rename(out)
    return out / "benchmark-0"


def chunk_of(lines: BytesColumn, keys: np.ndarray, first: int, rows: np.ndarray, target: Format) -> bytes:
    """Return batches of records with these keys, and of the values `rows`."""
    count = len(keys)
    cells = np.frombuffer(b"".join(b"key-%012d" % key for key in keys.tolist()), np.uint8)
    nothing = BytesColumn(b"", [0], [], packed=True)
    columns = RecordColumns(
        np.arange(first, first + count),
        NOW + np.arange(first, first + count),
        np.zeros(count, np.int8),
        BytesColumn(cells, np.arange(count + 1) * 16, np.full(count, 16), packed=True),
        lines.take(rows),
        HeaderColumns(np.zeros(count, np.int32), nothing, nothing),
    )
    return b"".join(encode_chunks(columns, target, Codec.LZ4))


def compact(folder: Path, case: Case) -> tuple[float, int, int]:
    """Compact a log of a case in place; return CPU seconds, bytes before and after."""
    config = LogConfig(compact=True, delete=False, rules=RULES, dialect=case.target.dialect)
    log = PartitionLog.open(LocalFiles(), str(folder), config, monotonic_ms=NOW, clean=True)
    log.roll(NOW)
    log.high_watermark = log.log_end_offset
    size, begin = log.size, time.process_time()
    selection = CleanableOffsets(0, log.active.base_offset, 0, size, True, False)
    settings = CompactionConfig(dedupe_buffer_bytes=case.key_mib << 20)
    for _ in Compaction(log, selection, settings, now=Moment.fixed(NOW), secret=bytes(16)).run():
        pass
    seconds = time.process_time() - begin
    after = log.size
    log.close()
    return seconds, size, after


def worker(case: str) -> None:
    """Be one of the two in a round: clean a copy of the small log, then one of the case's."""
    with tempfile.TemporaryDirectory(dir=data.folder()) as scratch:
        for _, folder in copies(case, Path(scratch)):
            seconds, size, after = compact(folder, CASES[case])
    print(json.dumps({"case": case, "seconds": seconds, "bytes": size, "after": after}))


def copies(case: str, scratch: Path) -> list[tuple[str, Path]]:
    """Return fresh copies of the small log and of the case's."""
    record_bytes, size, _, format_ = CASES[case]
    found = []
    for name, bytes_ in (("warm", WARM_BYTES), (case, size)):
        target = scratch / name.replace(" ", "-").replace(",", "") / "benchmark-0"
        shutil.copytree(log_of(record_bytes, bytes_, format_), target)
        found.append((name, target))
    return found


def kafka(case: str) -> dict[str, float]:
    """Let Kafka's cleaner do the same."""
    with tempfile.TemporaryDirectory(dir=data.folder()) as scratch:
        folders = [str(folder) for _, folder in copies(case, Path(scratch))]
        classes = data.kafka_oracle.compile_source(data.KAFKA, harness.HERE / "java/Clean.java")
        libs = data.kafka_oracle.fetch(data.KAFKA)
        java = [
            data.kafka_oracle.jdk_program("java"),
            "-Xms2g",
            "-Xmx2g",
            "-XX:+UseSerialGC",
            f"-Dkeys.mib={CASES[case].key_mib}",
            "-cp",
            f"{classes}:{libs}/*",
        ]
        done = subprocess.run(harness.pinned([*java, "Clean", *folders]), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    cases: dict[str, object] = {}
    for case in sys.argv[1:] or CASES:
        record_bytes, size, _, target = CASES[case]
        for each in (WARM_BYTES, size):
            log_of(record_bytes, each, target)
        with_rival = target.dialect is Dialect.KAFKA
        rounds: dict[str, list[dict[str, float]]] = {"magicbyte": []} | ({"Kafka's cleaner": []} if with_rival else {})
        for _ in range(ROUNDS):
            own = subprocess.run(
                harness.python(__file__, case), capture_output=True, text=True, check=True
            ).stdout  # fmt: skip
            rounds["magicbyte"].append(json.loads(own.splitlines()[-1]))
            if with_rival:
                rounds["Kafka's cleaner"].append(kafka(case))
        speeds = {
            name: [round(each["bytes"] / each["seconds"] / 1e6, 1) for each in found] for name, found in rounds.items()
        }
        medians = {name: statistics.median(found) for name, found in speeds.items()}
        found: dict[str, object] = {
            "MB_per_cpu_second": {name: {"median": medians[name], "rounds": found} for name, found in speeds.items()},
            "bytes": {name: [int(found[0]["bytes"]), int(found[0]["after"])] for name, found in rounds.items()},
        }
        if with_rival:
            ratio = medians["magicbyte"] / medians["Kafka's cleaner"]
            found |= {"ratio": round(ratio, 2), "target": TARGET, "reached": ratio >= TARGET}
        cases[case] = found
    harness.save("compact", __doc__, cases)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
