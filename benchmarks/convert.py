"""Conversion between formats, lz4 in and lz4 out: magicbyte and Kafka's own Java code.

v1 to v2 in Java is LogValidator, what a broker runs on a produced set, one wrapper at a time; v2 to v0 is downConvert,
what a broker runs for the fetch of an old consumer, on the 128 KiB that it reads at a time. Both decompress,
verify what Kafka verifies there, and compress again. magicbyte converts the same log with its checksums verified; a
match of the old frames is written as a match again, where Java searches, and the result is as small: within 1 % of
that of lz4 1.9.4, the library, for the same 100 B records, and for 1000 B records as large as Java's, 7 % above that
library's. One core, see harness.py; per record. Targets: ratio = rival's time / ours.

Run: python benchmarks/convert.py [CASE...]   (written to benchmarks/results/convert.json)
"""

import sys
from pathlib import Path

import data
import harness
import ours

DIRECTIONS = {"up": (1, 2), "down": (2, 0)}  # magic of the source, of the target


def worker(path: Path, magic: int) -> None:
    """Be magicbyte on the log at `path`."""
    log = memoryview(path.read_bytes())
    harness.serve(lambda: ours.convert_log(log, magic), "magicbyte")


def lz4(direction: str, size: int) -> dict[str, object]:
    """Compare one direction on the records of one size."""
    source, target = DIRECTIONS[direction]
    log = data.log(size, source, "lz4")
    rivals = {"magicbyte": harness.python(__file__, log, str(target)), "java": harness.java(direction, log)}
    results = harness.compare(rivals)
    return {"results": results, "ratios": harness.ratios(results, {"java": 2.0})}


CASES = {
    f"v{source} lz4 to v{target} lz4 {size}": (direction, size)
    for direction, (source, target) in DIRECTIONS.items()
    for size in data.COUNTS
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        for name in sys.argv[1:] or CASES:
            harness.save("convert", __doc__, {name: lz4(*CASES[name])})
