"""Work of pipelines, and the ways that Spark has without them: in one session, `local[2]`, with one set of settings.

A case ends with the records or bytes of its log, so that a small one can be tried; records are those of data.py.

pruning     sum(length(value)) of v2 lz4, 1000 B records, segments of 64 MiB: of all, and of a tenth by offset, by
            timestamp, by both; columns offset, timestamp and value. Target: a tenth takes at most a fifth of the CPU.
            Nothing tells, without opening a batch, that all its records are later than a time: a tenth from the
            middle by timestamp alone, which has to open the later batches, is reported too, without a target.
parquet     100 B records, v2 lz4, two partitions, by `records` of a pipeline; rival: spark-sql-kafka, tuned as in
            spark.py, from Kafka 3.9.1, through Spark's Parquet writer; both with zstd, our default, and with snappy,
            Spark's. Target: 4 x the records per CPU second.
inventory   shallow, of v2 lz4, 1000 B records: bytes that the Python workers read (rchar of /proc, all else that they
            read included) over the headers rounded up to pages. Target: at most 2.
convert     v1 gzip to v2 zstd, 1000 B records, two partitions; rival: spark-sql-kafka reads them from Kafka 3.9.1 and
            its sink writes them to a topic there. Target: a fifth of the CPU.
compact     v2 lz4, 100 B records, keys of 16 bytes, each twice, at random places; 16 partitions, or one that goes
            through the shuffle. Rival: DataFrames of the same logs: the last offset by key with groupBy and max, from
            offsets and keys alone, joined with offsets and records, written as Parquet. Targets: 4 x less CPU, 1.5 x.
workers     the mixed archive of archive.py, converted to v2 zstd on a cluster of one worker, then of two, of a core
            each. Target: 1.5 x less time on the clock, from planning to the commit, Spark and its workers being warm.

CPU is that of this process and all below it: JVM, Python workers, driver; the broker's is reported separately. Each way
is run on a small log first, which warms up the JVM; then they take turns.

Run: python benchmarks/pipeline.py [CASE...]   (written to benchmarks/results/pipeline.json)
"""

import mmap
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import archive
import compact
import data
import harness
import spark as source
from interop import jvm, spark_kafka
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.records.columns import BytesColumn
from magicbyte.engine.records.encode import Format
from magicbyte.spark import local_session
from magicbyte.spark.pipeline import driver, load
from magicbyte.spark.pipeline.cluster import cluster
from magicbyte.tools.offline.writer import LogDirectoryWriter
from pipeline_kills import below

PAGE, HEADER_BYTES = 4096, 61
UNIT = 8 << 20
SMALL = 200_000  # records to warm up with
CODECS = ("zstd", "snappy")  # of Parquet
SETTINGS = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "8"}

Figures = dict[str, Any]
Way = Callable[[], Any]


# ---- logs


def write_log(folder: Path, content: Path, records: int, *, partitions: int = 1) -> int:
    """Write a log directory of topic `log`: the first UNIT bytes of `content`, again and again; return its records."""
    begin = data.prefix(content, UNIT)
    table = archive.scan(memoryview(begin), dialect=archive.Dialect.KAFKA)
    count = int(table.offset[-1]) + max(int(table.count[-1]), 1)  # a wrapper has the offset of its last record
    batches = archive.scanned(begin, count)
    later = 2 * count if int(table.magic[0]) == 2 else 0
    passes = max(round(records / partitions / count), 1)
    directory = LogDirectoryWriter(folder, archive.RULES)
    for number in range(partitions):
        with directory.partition("log", number, segment_bytes=64 << 20) as writer:
            for each in range(passes):
                writer.append(batches.at(each * count, millis=each * later))
            writer.finish()
    directory.finish()
    return passes * partitions * count


def write_twice(folder: Path, records: int, partitions: int) -> None:
    """Write a log directory of topic `log`: 100 B records, each key twice, at random places of its partition."""
    rng = archive.random.Random(data.SEED)
    lines = [line.encode() for line in archive.islice(data.text(rng, 84), 20_000)]
    values = BytesColumn(b"".join(lines), np.arange(len(lines)) * 84, [84] * len(lines))
    directory = LogDirectoryWriter(folder, archive.RULES)
    for number in range(partitions):
        count = records // partitions & ~1
        order = np.random.default_rng(data.SEED + number).permutation(np.arange(count) // 2)
        with directory.partition("log", number, segment_bytes=64 << 20) as writer:
            for first in range(0, count, 20_000):
                keys = order[first : first + 20_000]
                rows = np.random.default_rng(first).integers(0, len(lines), len(keys))
                writer.append(compact.chunk_of(values, keys, first, rows, Format.V2))
            writer.roll(count, keep_empty=True)  # the last segment is active: no cleaner touches it
            writer.finish()
    directory.finish()
    (folder / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


# ---- what is measured


def measured(work: Way, also: Callable[[], float] = lambda: 0.0) -> Figures:
    """Run something; return its seconds on the clock and of CPU, and how much `also` grew meanwhile."""
    cpu, other, begun = source.cpu_seconds(), also(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(source.cpu_seconds() - cpu, 2),
        "other": round(also() - other, 2),
    }


def alternating(ways: dict[str, Way], rounds: int, also: Callable[[], float] = lambda: 0.0) -> dict[str, Figures]:
    """Run each in turn; return by name the run whose CPU is the median, and the CPU of all."""
    runs: dict[str, list[Figures]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            runs[name].append(measured(way, also))
            print(name, runs[name][-1], flush=True)
    return {
        name: sorted(found, key=lambda each: each["cpu_seconds"])[len(found) // 2]
        | {"all": [each["cpu_seconds"] for each in found]}
        for name, found in runs.items()
    }


def judged(found: dict[str, Figures], rivals: list[str], target: float, what: str = "cpu_seconds") -> Figures:
    """Return the results with how many times less than the best rival ours takes."""
    ratio = min(found[rival][what] for rival in rivals) / found["pipeline"][what]
    return {"results": found, "ratio": round(ratio, 2), "target": target, "reached": ratio >= target}


@contextmanager
def session(folder: Path, **more: str) -> Iterator[SparkSession]:
    conf = SETTINGS | {"spark.local.dir": str(folder / "spark"), "spark.jars": spark_kafka.jars()} | more
    found = local_session("local[2]", name="benchmark", conf=conf)
    try:
        yield found
    finally:
        found.stop()


def pipeline(context: Any, logs: Path, stage: str, *, sink: bool = True) -> driver.PipelineRun:
    """Run one stage on a log directory, into a new sink beside it, which goes."""
    out = logs.with_name(f"{logs.name}-out")
    path = logs.with_name(f"{logs.name}.toml")
    to = f'[sink]\npath = "{out}"\n' if sink else ""
    path.write_text(f'[[stage]]\n{stage}\n[source]\npath = "{logs}"\n{to}')
    done = driver.run(load(path), context=context)
    assert done.status == 0, [unit["error"] for unit in done.units]
    shutil.rmtree(out, ignore_errors=True)
    return done


@contextmanager
def broker_with(folder: Path, logs: dict[str, Path]) -> Iterator[tuple[str, Callable[[], float]]]:
    """Run Kafka with the logs as topics, and topics `out-NAME` beside them; give its address and its CPU seconds."""
    settings = ["log.retention.ms=-1", "log.cleaner.enable=false"]
    with jvm.broker(data.KAFKA, folder / "kafka", *settings) as state:
        source.create_topics(state["bootstrap"], [*logs, *(f"out-{name}" for name in logs)])
    for name, log in logs.items():
        for partition in discover([str(log)]):
            to = folder / "kafka/data" / f"{name}-{partition.partition}"
            for path in [*to.glob("*.log"), *to.glob("*index"), *to.glob("*.snapshot")]:
                path.unlink()
            for segment in partition.segments:
                os.link(segment.log.path, to / segment.log.name)
    with jvm.broker(data.KAFKA, folder / "kafka", *settings) as state:
        yield state["bootstrap"], partial(process_cpu, state["pids"]["broker"])


def process_cpu(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / source.TICKS


def kafka_source(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return kafka.options(**source.TUNED).load()


# ---- the cases


def pruning(records: int, folder: Path) -> Figures:
    records = write_log(folder / "log", data.log(1000, 2, "lz4"), records)
    with session(folder) as spark:
        frame = spark.read.format("magicbyte").option("columns", "timestamp").load(str(folder / "log"))
        first, last = frame.agg(F.min("timestamp").cast("double"), F.max("timestamp").cast("double")).collect()[0]
        sixth, seventh, ninth = (datetime.fromtimestamp(first + (last - first) * part / 10, UTC) for part in (6, 7, 9))
        stamp = F.col("timestamp")
        offsets = f"offset >= {records * 6 // 10} and offset < {records * 7 // 10}"
        filters = {
            "all": F.expr("true"),
            "a tenth by offset": F.expr(offsets),
            "the last tenth by timestamp": stamp >= ninth,
            "a tenth by offset and timestamp": F.expr(offsets) & (stamp >= sixth) & (stamp < seventh),
            "a tenth by timestamp alone": (stamp >= sixth) & (stamp < seventh),
        }

        def total(condition: Column) -> tuple[int, int]:
            logs = spark.read.format("magicbyte").option("columns", "offset,timestamp,value")
            rows = logs.option("pushFilters", "true").load(str(folder / "log")).where(condition)
            return tuple(rows.agg(F.count("*"), F.sum(F.length("value"))).collect()[0])

        answers = {name: total(condition) for name, condition in filters.items()}
        found = alternating({name: partial(total, condition) for name, condition in filters.items()}, 5)
    ratios = {name: round(found["all"]["cpu_seconds"] / found[name]["cpu_seconds"], 2) for name in list(filters)[1:]}
    clock = {name: round(found["all"]["seconds"] / found[name]["seconds"], 2) for name in list(filters)[1:]}
    return {
        "bytes": size_of(folder),
        "records": {name: answer[0] for name, answer in answers.items()},
        "results": found,
        "ratio": ratios,
        "ratio_of_seconds": clock,
        "target": 5.0,
        "reached": min(list(ratios.values())[:3]) >= 5,
    }


def parquet(records: int, folder: Path) -> Figures:
    sizes = {"small": SMALL, "large": records}
    written = {
        name: write_log(folder / name, data.log(100, 2, "lz4"), count, partitions=2) for name, count in sizes.items()
    }
    with broker_with(folder, {name: folder / name for name in sizes}) as (bootstrap, cpu), session(folder) as spark:

        def rival(name: str, codec: str) -> None:
            out = folder / f"{name}-{codec}"
            kafka_source(spark, bootstrap, name).write.option("compression", codec).parquet(str(out))
            shutil.rmtree(out)

        def ours(name: str, codec: str) -> None:
            pipeline(spark.sparkContext, folder / name, f'do = "records"\ncodec = "{codec}"')

        def ways(name: str) -> dict[str, Way]:
            return {
                **{f"pipeline, {codec}": partial(ours, name, codec) for codec in CODECS},
                **{f"spark-sql-kafka, {codec}": partial(rival, name, codec) for codec in CODECS},
            }

        alternating(ways("small"), 1)
        found = alternating(ways("large"), 3, cpu)
    used = {name: each["cpu_seconds"] for name, each in found.items()}
    ratios = {each: round(used[f"spark-sql-kafka, {each}"] / used[f"pipeline, {each}"], 2) for each in CODECS}
    return {
        "records": written["large"], "results": found, "ratio": ratios, "target": 4.0,
        "reached": min(ratios.values()) >= 4,
    }  # fmt: skip


def inventory(megabytes: int, folder: Path) -> Figures:
    records = megabytes * 1_000_000 // (data.log(1000, 2, "lz4").stat().st_size // data.COUNTS[1000])
    write_log(folder / "log", data.log(1000, 2, "lz4"), records, partitions=4)
    pages = headers = 0
    for path in (folder / "log").rglob("*.log"):
        starts = np.array(entry_positions(path), np.int64)
        pages += len(np.unique(np.concatenate((starts // PAGE, (starts + HEADER_BYTES - 1) // PAGE))))
        headers += len(starts)
    with session(folder) as spark:

        def work() -> None:
            pipeline(spark.sparkContext, folder / "log", 'do = "inventory"', sink=False)

        work()
        workers = pythons()
        before = {pid: characters(pid) for pid in workers}
        taken = measured(work)
        read = sum(characters(pid) - before.get(pid, 0) for pid in pythons())
    return {
        "bytes": size_of(folder),
        "headers": headers,
        "header_pages_bytes": pages * PAGE,
        "bytes_read": read,
        "results": {"pipeline": taken},
        "ratio": round(read / (pages * PAGE), 3),
        "target": 2.0,
        "reached": read <= 2 * pages * PAGE,
    }


def entry_positions(path: Path) -> list[int]:
    """Return where each entry of a segment begins."""
    found, at = [], 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while at < len(content):
            found.append(at)
            at += 12 + data.LENGTH.unpack_from(content, at + 8)[0]
    return found


def pythons() -> list[int]:
    """Return the Python processes below the session's JVM."""
    return [pid for pid, line in below([os.getpid()]).items() if "pyspark.daemon" in line]


def characters(pid: int) -> int:
    return int(dict(line.split(": ") for line in (Path("/proc") / str(pid) / "io").read_text().splitlines())["rchar"])


def convert(records: int, folder: Path) -> Figures:
    sizes = {"small": SMALL // 2, "large": records}
    written = {
        name: write_log(folder / name, data.log(1000, 1, "gzip"), count, partitions=2) for name, count in sizes.items()
    }
    stage = 'do = "convert"\nformat = "v2"\ncodec = "zstd"'
    with broker_with(folder, {name: folder / name for name in sizes}) as (bootstrap, cpu), session(folder) as spark:

        def rival(name: str) -> None:
            frame = kafka_source(spark, bootstrap, name).selectExpr("key", "value", "partition", "timestamp")
            sink = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            sink.option("kafka.compression.type", "zstd").option("topic", f"out-{name}").save()

        def ways(name: str) -> dict[str, Way]:
            return {
                "pipeline": lambda: pipeline(spark.sparkContext, folder / name, stage),
                "spark-sql-kafka": partial(rival, name),
            }

        alternating(ways("small"), 1)
        found = alternating(ways("large"), 1, cpu)
    result = judged(found, ["spark-sql-kafka"], 5.0)
    return {"records": written["large"], "bytes": size_of(folder / "large"), **result}


def compaction(records: int, partitions: int, target: float, folder: Path) -> Figures:
    write_twice(folder / "small", SMALL, partitions)
    write_twice(folder / "large", records, partitions)
    above = 1 if partitions == 1 else 1 << 40
    stage = f'do = "compact"\ntopics = ["*"]\nshuffle-above = {above}'
    with session(folder) as spark:

        def rival(name: str) -> None:
            logs = spark.read.format("magicbyte")
            keys = logs.option("columns", "partition,offset,key").load(str(folder / name))
            last = keys.groupBy("partition", "key").agg(F.max("offset").alias("offset")).select("partition", "offset")
            whole = spark.read.format("magicbyte").option("columns", "partition,offset,timestamp,key,value")
            kept = whole.load(str(folder / name)).join(last, ["partition", "offset"], "left_semi")
            kept.write.option("compression", "lz4_raw").parquet(str(folder / "out"))
            shutil.rmtree(folder / "out")

        def ways(name: str) -> dict[str, Way]:
            return {
                "pipeline": lambda: pipeline(spark.sparkContext, folder / name, stage),
                "DataFrames": partial(rival, name),
            }

        alternating(ways("small"), 1)
        found = alternating(ways("large"), 1)
    return {"records": records, "bytes": size_of(folder / "large"), **judged(found, ["DataFrames"], target)}


def workers(megabytes: int, folder: Path) -> Figures:
    archive.make(folder / "logs", megabytes * 1_000_000)
    seconds: dict[str, list[float]] = {}
    stage = 'do = "convert"\nformat = "v2"\ncodec = "zstd"'
    for _ in range(2):
        for count in (1, 2):
            with ExitStack() as stack:
                running = stack.enter_context(cluster(count, memory="2g"))
                path = folder / "warm.toml"
                path.write_text(f'[[stage]]\ndo = "digest"\n[source]\npath = "{folder / "logs"}"\n')
                context = stack.enter_context(driver.started_context(running.url, load(path)))
                while context._jsc.sc().getExecutorMemoryStatus().size() < count + 1:
                    time.sleep(0.1)
                pipeline(context, folder / "logs", 'do = "digest"', sink=False)
                done = pipeline(context, folder / "logs", stage)
                seconds.setdefault(f"{count} workers", []).append(done.seconds)
                print(f"{count} workers: {done.seconds} s", flush=True)
    found = {name: {"seconds": min(all_), "all": all_} for name, all_ in seconds.items()}
    ratio = found["1 workers"]["seconds"] / found["2 workers"]["seconds"]
    return {
        "bytes": size_of(folder / "logs"), "results": found, "ratio": round(ratio, 2), "target": 1.5,
        "reached": ratio >= 1.5,
    }  # fmt: skip


def text(records: int) -> str:
    return f"{records // 1_000_000} M records"


CASES: dict[str, Callable[[Path], Figures]] = {
    **{f"pruning, {text(count)}": partial(pruning, count) for count in (1_000_000, 4_000_000, 8_000_000)},
    **{f"parquet, {text(count)}": partial(parquet, count) for count in (2_000_000, 10_000_000)},
    **{f"inventory, {count} MB": partial(inventory, count) for count in (200, 2000, 10_000)},
    **{f"convert, {text(count)}": partial(convert, count) for count in (1_000_000, 4_000_000, 30_000_000)},
    **{f"compact, {text(count)}": partial(compaction, count, 16, 4.0) for count in (2_000_000, 20_000_000)},
    **{f"shuffle, {text(count)}": partial(compaction, count, 1, 1.5) for count in (2_000_000, 20_000_000)},
    **{f"workers, {count} MB": partial(workers, count) for count in (200, 1000)},
}


def main() -> None:
    about = {"pyspark": version("pyspark"), "kafka source": spark_kafka.SOURCE}
    harness.run_cases(
        "pipeline", __doc__, {name: lambda folder, case=case: case(folder) | about for name, case in CASES.items()}
    )


if __name__ == "__main__":
    main()
