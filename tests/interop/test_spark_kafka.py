"""Our Spark source, on a broker's log directory and on the broker, gives the rows of Spark's Kafka source."""

import base64
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop import jvm, spark_kafka

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSION = "3.9.1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2000
FIRST = 1_700_000_000_000  # ms


def lines(topic: str, rng: random.Random) -> Iterator[str]:
    """Yield random records as Produce takes them: null and empty cells, headers, timestamps out of order."""

    def text(cell: bytes | None) -> str:
        return "~" if cell is None else base64.b64encode(cell).decode()

    for number in range(RECORDS):
        key = rng.choice([None, b"", b"key-%d" % rng.randrange(50)])
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 10, 300, 3000]))
        headers = [cell for _ in range(rng.choice([0, 0, 1, 3])) for cell in (b"name", rng.choice([None, b"", b"x"]))]
        time = FIRST + 10 * number + rng.randrange(-3000, 3000)
        yield "\t".join([topic, str(time), *map(text, [key, value, *headers])]) + "\n"


def transaction(topic: str, rng: random.Random) -> Iterator[str]:
    """Yield the records in four transactions, the second and the last of them aborted."""
    records = list(lines(topic, rng))
    for part, end in enumerate(("commit", "abort", "commit", "abort")):
        yield f"{topic}\tbegin\n"
        yield from records[part * RECORDS // 4 : (part + 1) * RECORDS // 4]
        yield f"{topic}\t{end}\n"


def test_the_rows_are_those_of_sparks_kafka_source_also_when_the_broker_is_stopped(tmp_path: Path) -> None:
    rng = random.Random(20260108)
    topics = {f"topic-{codec}": codec for codec in CODECS} | {"transactions": "lz4"}
    middle = str(FIRST + 10_000)
    queries = [
        {"subscribe": ",".join(topics)},
        {"subscribe": "transactions", "kafka.isolation.level": "read_committed"},
        {"subscribe": "topic-lz4", "startingTimestamp": middle},
        {"subscribe": "topic-lz4", "endingTimestamp": middle},
        {"subscribe": "topic-lz4", "startingOffsetsByTimestamp": f'{{"topic-lz4": {{"0": {middle}}}}}'},
        {"subscribe": "topic-lz4", "endingOffsetsByTimestamp": f'{{"topic-lz4": {{"0": {middle}}}}}'},
        {
            "assign": '{"topic-zstd": [0]}',
            "startingOffsets": '{"topic-zstd": {"0": 700}}',
            "endingOffsets": '{"topic-zstd": {"0": 1500}}',
        },
        {"subscribePattern": "topic-[ln].*"},
        {"subscribe": "topic-gzip", "startingOffsets": "earliest", "endingOffsets": "latest"},
        {
            "assign": '{"topic-none": [0], "topic-lz4": [0]}',
            "startingOffsets": '{"topic-none": {"0": -2}, "topic-lz4": {"0": 1900}}',
            "endingOffsets": '{"topic-none": {"0": 90}, "topic-lz4": {"0": -1}}',
        },
        {"subscribe": "topic-snappy", "includeHeaders": "false"},
        {"subscribe": "topic-none", "minPartitions": "5", "failOnDataLoss": "false"},
        {
            "subscribe": "topic-lz4",
            "startingTimestamp": str(2 * FIRST),
            "startingOffsetsByTimestampStrategy": "latest",
        },
    ]
    with ExitStack() as broker:
        settings = ("log.segment.bytes=1048576", "log.retention.ms=-1")
        state = broker.enter_context(jvm.broker(VERSION, tmp_path, *settings))
        given = "".join(line for topic in list(topics)[:-1] for line in lines(topic, rng))
        given += "".join(transaction("transactions", rng))
        pairs = [f"{topic}={codec}" for topic, codec in topics.items()]
        jvm.run("Produce", state["bootstrap"], *pairs, stdin=given.encode(), version=VERSION)
        command = [sys.executable, spark_kafka.__file__, state["bootstrap"], state["data"]]
        errors = (tmp_path / "errors").open("w+")
        beside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert beside.stdin is not None
            assert beside.stdout is not None
            beside.stdin.write("".join(json.dumps(query) + "\n" for query in queries) + "\n")
            beside.stdin.flush()
            answers = [json.loads(beside.stdout.readline() or "null") for _ in queries]
            broker.close()
            told, _ = beside.communicate("stopped\n", timeout=jvm.SECONDS)
        finally:
            beside.kill()
            beside.wait()
            errors.seek(0)
            said = errors.read()[-3000:]
    assert beside.returncode == 0, said
    for query, answer, again in zip(queries, answers, map(json.loads, told.splitlines()), strict=True):
        assert answer["files"] == answer["cluster"] == again["files"] == [0, 0], query
        assert answer["schema"], query
        assert again["rows"] == answer["rows"], query
    counts = [answer["rows"] for answer in answers]
    assert counts[:2] == [len(topics) * RECORDS, RECORDS // 2]
    assert all(0 < count < RECORDS for count in counts[2:6])
    assert counts[6:] == [800, 2 * RECORDS, RECORDS, 90 + 100, RECORDS, RECORDS, 0]
