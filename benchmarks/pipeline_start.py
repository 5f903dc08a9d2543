"""How long `magicbyte pipeline run` takes on next to nothing, as a whole process, beside PySpark's hello world.

pipeline        one partition of a few records is verified, converted and compared, into a new sink, at local[2]
hello world     a session at local[2] with Spark's own settings, `spark.range(10).count()`, and its end
context alone   the same without SQL: SparkContext at local[2], `parallelize(range(10)).count()`, and its end

They take turns; each is run once more in front, which does not count. Seconds on the clock, from the start of Python to
its end. Target: the pipeline's median over that of hello world, at most 1.

Run: python benchmarks/pipeline_start.py [ROUNDS]   (5; written to benchmarks/results/pipeline_start.json)
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import harness
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records

RESULT = Path(__file__).parent / "results" / "pipeline_start.json"
PIPELINE = """\
[source]
path = "logs"
[[stage]]
do = "verify"
[[stage]]
do = "convert"
format = "v2"
codec = "zstd"
[[stage]]
do = "compare"
[sink]
path = "out"
"""
HELLO = (
    "from pyspark.sql import SparkSession\n"
    "spark = SparkSession.builder.master('local[2]').getOrCreate()\n"
    "assert spark.range(10).count() == 10\n"
    "spark.stop()\n"
)
CONTEXT = (
    "from pyspark import SparkContext\n"
    "context = SparkContext('local[2]')\n"
    "assert context.parallelize(range(10)).count() == 10\n"
    "context.stop()\n"
)
RUN = ["-m", "magicbyte", "pipeline", "run", "p.toml", "--master", "local[2]"]
COMMANDS = {"pipeline": RUN, "hello world": ["-c", HELLO], "context alone": ["-c", CONTEXT]}


def timed(arguments: list[str], folder: Path) -> float:
    """Run Python with these arguments; return seconds on the clock."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    begun = time.perf_counter()
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True, timeout=300
    )
    return time.perf_counter() - begun


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "p.toml").write_text(PIPELINE)
        (folder / "logs/orders-0").mkdir(parents=True)
        records = [Record(offset, 1_700_000_000_000, 0, b"key", b"value", ()) for offset in range(10)]
        (folder / "logs/orders-0" / f"{0:020}.log").write_bytes(encode_records(records, Format.V1))
        found: dict[str, list[float]] = {each: [] for each in COMMANDS}
        for number in range(rounds + 1):
            for each, arguments in COMMANDS.items():
                seconds = timed(arguments, folder)
                if number:
                    found[each].append(seconds)
                print(f"{each}: {seconds:.2f} s", flush=True)
    rows = {
        each: {"seconds": round(statistics.median(times), 2), "all": [round(time, 2) for time in times]}
        for each, times in found.items()
    }
    ratio = round(statistics.median(found["pipeline"]) / statistics.median(found["hello world"]), 2)
    print(f"ratio: {ratio}")
    about = {
        "machine": harness.machine(),
        "pyspark": version("pyspark"),
        "rounds": rounds,
        "load": os.getloadavg(),
        "ratio": ratio,
        "target": 1.0,
    }
    RESULT.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
