"""Spark's own Kafka source, fetched with Maven into the cache of the launcher, and its rows beside ours.

Run: python tests/interop/spark_kafka.py BOOTSTRAP LOG_DIRECTORY < QUERIES   (as test_spark_kafka does; a process of its
own, because only a Java machine that starts with the jars finds the source). A query is a line of JSON, the options of
both sources; the answer is a line of JSON: how many rows theirs gave, and how many of both have no equal, for
our source on the cluster and on the log directory. After an empty line, when the broker has been stopped, ours reads
the log directory again for each query: a line of JSON for each says how many rows there were, and how many have no
equal.

The set of jars is one that works together; its Kafka source of 4.2.0 runs on PySpark 4.2 and 4.3.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))

from interop import kafka_oracle

SOURCE = "4.2.0"
COORDINATES = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SOURCE),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


def jars() -> str:
    """Return the jars, separated by commas as `spark.jars` takes them, fetched the first time."""
    home = kafka_oracle.cache_home() / f"spark-sql-kafka-{SOURCE}"
    libs = home / "libs"
    if not libs.is_dir():
        build = home / f"build-{os.getpid()}"
        build.mkdir(parents=True)
        nothing_else = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
            f"{nothing_else}</dependency>\n"
            for group, artifact, number in COORDINATES
        )
        (build / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>oracle</groupId>"
            f"<artifactId>spark-kafka</artifactId><version>1</version>\n"
            f"<dependencies>\n{dependencies}</dependencies></project>\n"
        )
        command = ["mvn", "-q", "-B", kafka_oracle.DEPENDENCY_PLUGIN, "-DoutputDirectory=jars"]
        done = subprocess.run(command, cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"Maven could not resolve Spark's Kafka source:\n{done.stdout[-3000:]}")
        try:
            (build / "jars").rename(libs)
        except OSError:
            if not libs.is_dir():  # not simply another fetch that was faster
                raise
        shutil.rmtree(build)
    return ",".join(str(path) for path in sorted(libs.glob("*.jar")))


def rows(frame: Any) -> Counter[tuple[Any, ...]]:
    """Return all rows, each as the texts of its cells, and how often it comes."""
    return Counter(tuple(map(repr, (row[name] for name in sorted(frame.columns)))) for row in frame.collect())


def unequal(ours: Counter[tuple[Any, ...]], theirs: Counter[tuple[Any, ...]]) -> list[int]:
    """Return how many of our rows are not theirs, and of theirs not ours."""
    return [(ours - theirs).total(), (theirs - ours).total()]


def compare(bootstrap: str, log_directory: str) -> None:
    """Answer the queries of standard input."""
    from magicbyte.spark import local_session

    spark = local_session("local[2]", name="interop", conf={"spark.jars": jars()})
    cluster = {"kafka.bootstrap.servers": bootstrap}

    def of_files(options: dict[str, str]) -> Any:
        return spark.read.format("magicbyte").options(**options).load(log_directory)

    asked = []
    while line := sys.stdin.readline().strip():
        options = {"includeHeaders": "true", **json.loads(line)}
        kafka = spark.read.format("kafka").options(**options, **cluster).load()
        logs, live = of_files(options), spark.read.format("magicbyte").options(**options, **cluster).load()
        theirs = rows(kafka)
        asked.append((options, theirs))
        said = {
            "rows": theirs.total(),
            "files": unequal(rows(logs), theirs),
            "cluster": unequal(rows(live), theirs),
            "schema": kafka.schema == logs.schema == live.schema,
        }
        print(json.dumps(said), flush=True)
    sys.stdin.readline()  # the broker is stopped
    for options, theirs in asked:
        ours = rows(of_files(options))
        print(json.dumps({"rows": ours.total(), "files": unequal(ours, theirs)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    compare(*sys.argv[1:])
