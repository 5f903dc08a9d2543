"""Decoding: magicbyte beside the Java client, aiokafka, kafka-python, memcpy and the codec libraries alone.

Each gets the same bytes (see data.py), verifies the same checksums and ends with every key and value copied:
  java          Kafka's record classes as its consumer uses them: batch checksum, streaming iterator, key and value
                copied to arrays; no ConsumerRecord objects, no list of them ("java consume" has both)
  aiokafka      its Cython record classes: checksum, then an object with key and value as bytes for every record
  kafka-python  its record classes, likewise
  memcpy        the same bytes copied, a mebibyte at a time, into memory that was touched before
  ... alone     the compressed parts of the same batches, decompressed by that library and thrown away
  magicbyte     checksum, then packed columns: offset, timestamp, type, key, value, header counts
aiokafka and kafka-python read the first 32 and 4 MB only; all figures are per record. One core, see harness.py.
Targets: ratio = rival's time / ours.

Run: python benchmarks/decode.py [CASE...]   (written to benchmarks/results/decode.json)
"""

import sys
from pathlib import Path

import numpy as np

import data
import harness
import ours
import peers

LIMITS = {"aiokafka": 32 << 20, "kafka-python": 4 << 20}
ONE_RECORD = "one-record"
PLAIN_TARGETS = {
    2: {"java": 5.0, "aiokafka": 10.0, "kafka-python": 200.0},
    1: {"java": 3.0, "aiokafka": 5.0, "kafka-python": 80.0},
    0: {"java": 3.0, "aiokafka": 5.0, "kafka-python": 80.0},
}


def one_record(path: Path) -> bytes:
    """Return a v2 batch of a single record, built by kafka-python from the first record of `path`."""
    timestamp, key, value = data.read_flat(path)[0]
    builder = peers.kafka.record.memory_records.MemoryRecordsBuilder(2, 0, 2**20)
    builder.append(timestamp=timestamp, key=key, value=value)
    builder.close()
    return bytes(builder.buffer())


def worker(kind: str, path: Path, *options: str) -> None:
    """Be the rival `kind` on the log at `path`."""
    if kind == "magicbyte":
        log = memoryview(path.read_bytes())
        harness.serve(lambda: ours.decode_columns(log, verify="no-crc" not in options), "magicbyte")
    elif kind == "memcpy":
        source = np.fromfile(path, np.uint8)
        target, count = np.ones_like(source), int(options[0])

        def copy() -> int:
            peers.copy_bytes(source, target)
            return count

        harness.serve(copy, f"numpy {np.__version__}")
    elif kind == "library":
        codec, library = options
        parts = peers.compressed_parts(path.read_bytes())
        harness.serve(lambda: peers.decompress_all(codec, parts, library), library)
    else:
        work = {"aiokafka": peers.decode_aiokafka, "kafka-python": peers.decode_kafka_python}
        limited = data.prefix(path, LIMITS[kind])
        harness.serve(lambda: work[kind](limited), kind)


def one_record_worker(kind: str, path: Path) -> None:
    """Be the rival `kind` on a single small batch, a thousand times per pass."""
    single = one_record(path)
    view = memoryview(single)
    work = {
        "magicbyte": lambda: sum(ours.decode_objects(view) for _ in range(1000)),
        "kafka-python": lambda: sum(peers.decode_kafka_python(single) for _ in range(1000)),
        "aiokafka": lambda: sum(peers.decode_aiokafka(single) for _ in range(1000)),
    }
    harness.serve(work[kind], kind)
    if kind == "magicbyte":
        assert "numba" not in sys.modules


def plain(magic: int, size: int) -> dict[str, object]:
    """Compare the uncompressed logs of one format."""
    log = data.log(size, magic, "none")
    rivals = {"magicbyte": harness.python(__file__, "magicbyte", log), "java": harness.java("decode", log)}
    rivals |= {name: harness.python(__file__, name, log) for name in LIMITS}
    if magic == 2:
        rivals["java consume"] = harness.java("consume", log)
    results = harness.compare(rivals)
    targets = PLAIN_TARGETS[magic] if size == 100 or magic < 2 else {}
    return {"results": results, "ratios": harness.ratios(results, targets)}


def without_crc() -> dict[str, object]:
    """Compare decoding of large records without the checksum with copying them."""
    log = data.log(1000, 2, "none")
    rivals = {
        "magicbyte": harness.python(__file__, "magicbyte", log, "no-crc"),
        "memcpy": harness.python(__file__, "memcpy", log, str(data.COUNTS[1000])),
    }
    results = harness.compare(rivals)
    return {"results": results, "ratios": harness.ratios(results, {"memcpy": 0.6})}


def compressed(codec: str, size: int) -> dict[str, object]:
    """Compare decoding of compressed v2 batches with nothing but their decompression, by the fastest library."""
    log = data.log(size, 2, codec)
    rivals = {"magicbyte": harness.python(__file__, "magicbyte", log), "java": harness.java("decode", log)}
    for library in peers.LIBRARIES[codec]:
        rivals[f"{library} alone"] = harness.python(__file__, "library", log, codec, library)
    results = harness.compare(rivals)
    allowed = 2.0 if size == 100 and codec in ("lz4", "snappy") else 1.25
    alone = [name for name in results if name.endswith("alone")]
    fastest = min(alone, key=lambda name: float(results[name]["ns_per_record"]))
    return {"results": results, "ratios": harness.ratios(results, {fastest: 1 / allowed})}


def single() -> dict[str, object]:
    """Compare the decoding of one batch with one record, without Numba."""
    source = data.flat(100)
    names = ("magicbyte", "kafka-python", "aiokafka")
    results = harness.compare({name: harness.python(__file__, ONE_RECORD, name, source) for name in names})
    return {"results": results, "ratios": harness.ratios(results, {"kafka-python": 1.0})}


CASES = {
    f"v{magic} none {size}": lambda magic=magic, size=size: plain(magic, size)
    for magic in (2, 1, 0)
    for size in data.COUNTS
}
CASES |= {"v2 none 1000 without crc": without_crc, "one-record batch": single}
CASES |= {
    f"v2 {codec} {size}": lambda codec=codec, size=size: compressed(codec, size)
    for codec in peers.LIBRARIES
    for size in data.COUNTS
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        if sys.argv[2] == ONE_RECORD:
            one_record_worker(sys.argv[3], Path(sys.argv[4]))
        else:
            worker(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
    else:
        chosen = sys.argv[1:] or list(CASES)
        for name in chosen:
            harness.save("decode", __doc__, {name: CASES[name]()})
