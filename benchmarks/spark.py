"""The Spark source beside Spark's own Kafka source: the same records in the same session, `local[2]`.

Kafka 3.9.1 is given the segments of one topic for each codec (data.py's records; 5 million of 100 bytes, 1 million of
1000; two partitions) and serves them from the page cache; we read the same files. Kafka's source is tuned
(max.poll.records=5000, max.partition.fetch.bytes=10485760). The queries:

all columns     sum(length(value)); we hand over all seven columns, as Kafka's source does whatever is asked for
value only      the same; ours reads the value column only
in the worker   the same sum, computed by workers that decode the values and give back one row per segment
shallow         how many records and bytes, in shallow mode: from the headers of the batches, of which nothing is opened

What counts are records per second of CPU, of the JVM, its Python workers and the driver, read from /proc. The broker's
CPU is not counted. Every query is run for ten seconds to warm up; then they take turns. Targets: ratio = our records
per CPU second over those of Kafka's source.

Run: python benchmarks/spark.py [CODEC-SIZE...]   (none-100 to zstd-1000; written to benchmarks/results/spark.json)
"""

import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import data
import harness

sys.path.append(str(data.HERE.parent / "tests"))

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from interop import jvm, kafka_oracle, spark_kafka
from magicbyte.spark import local_session, settle

PASSES = 5  # over the records of data.py
PARTITIONS = 2
CODECS = ("none", "lz4", "zstd")
WARM_UP_SECONDS, ROUNDS = 10, 5  # of each query: as long as the Java rivals of the other benchmarks
TARGETS = {"all columns": 1.6, "value only": 2.3, "in the worker": 10.0, "shallow": 10.0}
TUNED = {"kafka.max.poll.records": "5000", "kafka.max.partition.fetch.bytes": "10485760"}
TICKS = os.sysconf("SC_CLK_TCK")

Query = Callable[[], Any]


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, those that have ended included."""
    parents: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / TICKS)
    ours, found = {os.getpid()}, True
    while found:
        found = {pid for pid, (parent, _) in parents.items() if parent in ours and pid not in ours}
        ours |= found
    return sum(parents[pid][1] for pid in ours)


def topic_of(size: int, codec: str) -> str:
    return f"{codec}-{size}"


def write_partitions(folder: Path, size: int, codec: str) -> None:
    """Replace the segments of the topic's partitions by PASSES times the records, with consecutive offsets."""
    source = memoryview(data.log(size, 2, codec).read_bytes())
    for number in range(PARTITIONS):
        partition = folder / f"{topic_of(size, codec)}-{number}"
        for path in partition.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        base = 0
        with (partition / "00000000000000000000.log").open("wb") as file:
            for _ in range(number, PASSES, PARTITIONS):
                at = 0
                while at < len(source):
                    length = 12 + data.LENGTH.unpack_from(source, at + 8)[0]
                    file.write(struct.pack(">q", base))  # no checksum covers the offset
                    file.write(source[at + 8 : at + length])
                    base += data.LENGTH.unpack_from(source, at + 57)[0]
                    at += length


def create_topics(bootstrap: str, topics: list[str]) -> None:
    for topic in topics:
        arguments = ["--bootstrap-server", bootstrap, "--create", "--topic", topic, "--partitions", str(PARTITIONS)]
        tool = kafka_oracle.tool_command(data.KAFKA, "org.apache.kafka.tools.TopicCommand", arguments)
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)


def value_bytes(path: str) -> int:
    """Return the bytes of all values of a segment. Runs in a worker."""
    import numpy as np

    from magicbyte.engine.log.files.directory import discover
    from magicbyte.engine.log.files.reader import SegmentReader
    from magicbyte.engine.records.decode import DecodeOptions

    (partition,) = discover([path])
    total = 0
    for columns in SegmentReader(partition).records(options=DecodeOptions(keys=False, headers=False)):
        assert columns.value is not None
        total += int(np.maximum(np.asarray(columns.value.length), 0).sum())
    settle()
    return total


def queries(spark: SparkSession, bootstrap: str, folder: Path, topic: str) -> dict[str, Query]:
    """Return the queries on a topic; each gives the bytes of all its values, `shallow` its records and bytes."""

    def total(frame: DataFrame) -> Any:
        return frame.agg(F.sum(F.length("value"))).collect()[0][0]

    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    logs = spark.read.format("magicbyte").option("subscribe", topic)
    shallow = spark.read.format("magicbyte").option("subscribe", topic).option("mode", "shallow")
    segments = [str(path) for path in sorted(folder.glob(f"{topic}-*/*.log"))]
    return {
        "spark-sql-kafka": lambda: total(kafka.options(**TUNED).load()),
        "all columns": lambda: total(logs.load(str(folder))),
        "value only": lambda: total(
            spark.read.format("magicbyte").option("subscribe", topic).option("columns", "value").load(str(folder))
        ),
        "in the worker": lambda: sum(
            spark.sparkContext.parallelize(segments, len(segments)).map(value_bytes).collect()
        ),
        "shallow": lambda: tuple(
            shallow.option("columns", "count,size").load(str(folder)).agg(F.sum("count"), F.sum("size")).collect()[0]
        ),
    }


def warmed_up(query: Query) -> Any:
    """Run a query until its loops are compiled; return its answer."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < WARM_UP_SECONDS:
        answer = query()
    return answer


def compare(work: dict[str, Query], records: int) -> dict[str, object]:
    """Run the queries alternately."""
    answers = {name: warmed_up(query) for name, query in work.items()}
    assert len({answer for name, answer in answers.items() if name != "shallow"}) == 1, answers
    assert answers["shallow"][0] == records, answers
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, query in work.items():
            cpu, wall = cpu_seconds(), time.perf_counter()
            assert query() == answers[name]
            rounds[name].append((cpu_seconds() - cpu, time.perf_counter() - wall))
    results = {}
    for name, runs in rounds.items():
        rates = [records / cpu for cpu, _ in runs]
        results[name] = {
            "records_per_cpu_second": round(statistics.median(rates)),
            "lowest": round(min(rates)),
            "highest": round(max(rates)),
            "seconds": round(statistics.median(wall for _, wall in runs), 2),
            "runs": len(runs),
        }
    rival = results["spark-sql-kafka"]["records_per_cpu_second"]
    ratios = {}
    for name, target in TARGETS.items():
        ratio = results[name]["records_per_cpu_second"] / rival
        ratios[name] = {"ratio": round(ratio, 2), "target": target, "reached": ratio >= target}
    return {"records": records, "value_bytes": next(iter(answers.values())), "results": results, "ratios": ratios}


def main(names: list[str]) -> None:
    """Run the comparison for some topics, all by default."""
    topics = [(size, codec) for size in data.COUNTS for codec in CODECS if not names or topic_of(size, codec) in names]
    folder = Path(tempfile.mkdtemp(prefix="magicbyte-spark-"))
    settings = ["log.retention.ms=-1"]
    try:
        with jvm.broker(data.KAFKA, folder / "kafka", *settings) as state:
            create_topics(state["bootstrap"], [topic_of(*topic) for topic in topics])
        for topic in topics:
            write_partitions(folder / "kafka" / "data", *topic)
        conf = {"spark.jars": spark_kafka.jars(), "spark.driver.memory": "2g"}
        with jvm.broker(data.KAFKA, folder / "kafka", *settings) as state:
            spark = local_session("local[2]", name="benchmark", conf=conf)
            for size, codec in topics:
                work = queries(spark, state["bootstrap"], folder / "kafka" / "data", topic_of(size, codec))
                found = compare(work, PASSES * data.COUNTS[size]) | {
                    "pyspark": version("pyspark"),
                    "kafka source": spark_kafka.SOURCE,
                }
                harness.save("spark", __doc__, {f"{codec}, {size} B": found})
            spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
