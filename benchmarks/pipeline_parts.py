"""One huge partition among tiny ones, converted on two cores: by one worker, and in parts by both.

skew SIZE   a log of SIZE bytes, v1 gzip, 1000 B records, segments of 64 MiB, and three of some kB, to v2 zstd at
            local[2], in one Spark context: `part-above` as it is given, and out of reach. They take turns, five rounds;
            one of each in front warms up and does not count. Seconds on the clock, and of the workers as the report has
            them: what parting costs besides.

Run: python benchmarks/pipeline_parts.py [CASE...]   (written to benchmarks/results/pipeline_parts.json)
"""

import shutil
import statistics
import struct
from pathlib import Path
from typing import Any

import numpy as np

import harness
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.spark.pipeline import driver, load
from magicbyte.tools.offline.writer import LogDirectoryWriter

ROUNDS = 5
PER_SET, SETS_AT_ONCE = 100, 64
ABOVE = {"parts": 1 << 20, "one worker": 1 << 50}


def write_partition(directory: LogDirectoryWriter, topic: str, size: int) -> int:
    """Write a partition of about `size` bytes; return how many records it has. All its sets have the same content."""
    words = np.random.default_rng(20260107).integers(97, 101, (PER_SET, 1000), np.uint8)
    records = [Record(at, 1_700_000_000_000 + at, 0, b"key-%d" % at, row.tobytes(), ()) for at, row in enumerate(words)]
    wrapper = encode_records(records, Format.V1, Codec.GZIP)  # inner offsets are relative, and outside of its checksum
    sets = max(size // len(wrapper), 1)
    with directory.partition(topic, 0, segment_bytes=64 << 20) as writer:
        for first in range(0, sets, SETS_AT_ONCE):
            numbers = range(first, min(first + SETS_AT_ONCE, sets))
            writer.append(b"".join(struct.pack(">q", PER_SET * (at + 1) - 1) + wrapper[8:] for at in numbers))
        writer.finish()
    return sets * PER_SET


def skew(size: int, folder: Path) -> dict[str, Any]:
    directory = LogDirectoryWriter(folder / "logs", IndexRules.of("0.10.2.2"))
    records = write_partition(directory, "huge", size)
    for number in range(3):
        write_partition(directory, f"tiny{number}", 4096)
    directory.finish()
    for name, above in ABOVE.items():
        stage = f'[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"\npart-above = {above}\n'
        (folder / f"{name}.toml").write_text(f'{stage}[source]\npath = "logs"\n[sink]\npath = "out"\n')
    seconds: dict[str, list[float]] = {name: [] for name in ABOVE}
    workers: dict[str, list[float]] = {name: [] for name in ABOVE}
    parts = 0
    given = {name: load(folder / f"{name}.toml") for name in ABOVE}
    with driver.started_context("local[2]", given["parts"]) as context:
        for _ in range(ROUNDS + 1):
            for name, pipeline in given.items():
                shutil.rmtree(folder / "out", ignore_errors=True)
                done = driver.run(pipeline, context=context)
                assert done.status == 0, done.units
                seconds[name].append(done.seconds)
                workers[name].append(sum(unit["stages"][0]["seconds"] for unit in done.units))
                parts = max(parts, *(unit["stages"][0].get("parts", 0) for unit in done.units))
    found = {name: round(statistics.median(each[1:]), 2) for name, each in seconds.items()}
    return {
        "bytes": sum(path.stat().st_size for path in (folder / "logs").glob("*/*.log")),
        "records": records,
        "parts": parts,
        "seconds": {name: [round(each, 2) for each in some[1:]] for name, some in seconds.items()},
        "secondsOfWorkers": {name: round(statistics.median(each[1:]), 2) for name, each in workers.items()},
        "ratio": round(found["one worker"] / found["parts"], 2),
    }


CASES = {
    "skew 200 MB": lambda folder: skew(200_000_000, folder),
    "skew 500 MB": lambda folder: skew(500_000_000, folder),
}

if __name__ == "__main__":
    harness.run_cases("pipeline_parts", __doc__, CASES)
