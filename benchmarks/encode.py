"""Encoding v2 batches: magicbyte beside the Java client, aiokafka and kafka-python.

Each starts with the same records in memory (see data.py) in the form that its caller has them in: arrays of byte
arrays (Java), lists of bytes (aiokafka, kafka-python), columns (magicbyte). Each closes uncompressed batches at
batch.size=16384 as the Java producer does, checksum included, and ends with the bytes of each batch. aiokafka and
kafka-python get the first 200,000 and 30,000 records only; all figures are per record. One core, see harness.py.
Targets: ratio = rival's time / ours.

Run: python benchmarks/encode.py [CASE...]   (written to benchmarks/results/encode.json)
"""

import sys
from pathlib import Path

import data
import harness
import ours
import peers

LIMITS = {"aiokafka": 200_000, "kafka-python": 30_000}
TARGETS = {"java": 4.0, "aiokafka": 10.0, "kafka-python": 150.0}


def worker(kind: str, path: Path) -> None:
    """Be the rival `kind` on the records at `path`."""
    records = data.read_flat(path)[: LIMITS.get(kind)]
    if kind == "magicbyte":
        columns = ours.columns_of(records)
        harness.serve(lambda: ours.encode_columns(columns, peers.BATCH_SIZE), kind)
    else:
        work = {"aiokafka": peers.encode_aiokafka, "kafka-python": peers.encode_kafka_python}
        harness.serve(lambda: work[kind](records), kind)


def plain(size: int) -> dict[str, object]:
    """Compare the encoding of the records of one size, uncompressed."""
    source = data.flat(size)
    rivals = {name: harness.python(__file__, name, source) for name in ("magicbyte", *LIMITS)}
    results = harness.compare(rivals | {"java": harness.java("encode", source)})
    return {"results": results, "ratios": harness.ratios(results, TARGETS if size == 100 else {})}


CASES = {f"v2 none {size}": size for size in data.COUNTS}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], Path(sys.argv[3]))
    else:
        for name in sys.argv[1:] or CASES:
            harness.save("encode", __doc__, {name: plain(CASES[name])})
