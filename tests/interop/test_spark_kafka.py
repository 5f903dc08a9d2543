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


@pytest.mark.parametrize(
    "version",
    [*(pytest.param(each, marks=pytest.mark.campaign) for each in ("0.10.2.2", "0.11.0.3", "2.8.2", "3.9.1")), "4.3.1"],
)
def test_the_rows_are_those_of_sparks_kafka_source_also_when_the_broker_is_stopped(
    version: str, tmp_path: Path
) -> None:
    rng = random.Random(20260108)
    number = tuple(map(int, version.split(".")))
    has_transactions, has_zstd = number >= (0, 11), number >= (2, 1)
    topics = {f"topic-{codec}": codec for codec in CODECS if codec != "zstd" or has_zstd}
    written = "".join(line for topic in topics for line in lines(topic, rng))
    if has_transactions:
        topics |= {"transactions": "lz4"}
        written += "".join(transaction("transactions", rng))
    middle, last = str(FIRST + 10_000), "zstd" if has_zstd else "gzip"
    some = range(1, RECORDS)
    cases: list[tuple[dict[str, str], int | range]] = [
        ({"subscribe": ",".join(topics)}, len(topics) * RECORDS),
        ({"subscribe": "transactions", "kafka.isolation.level": "read_committed"}, RECORDS // 2),
        ({"subscribe": "topic-lz4", "startingTimestamp": middle}, some),
        ({"subscribe": "topic-lz4", "endingTimestamp": middle}, some),
        ({"subscribe": "topic-lz4", "startingOffsetsByTimestamp": f'{{"topic-lz4": {{"0": {middle}}}}}'}, some),
        ({"subscribe": "topic-lz4", "endingOffsetsByTimestamp": f'{{"topic-lz4": {{"0": {middle}}}}}'}, some),
        (
            {
                "assign": f'{{"topic-{last}": [0]}}',
                "startingOffsets": f'{{"topic-{last}": {{"0": 700}}}}',
                "endingOffsets": f'{{"topic-{last}": {{"0": 1500}}}}',
            },
            800,
        ),
        ({"subscribePattern": "topic-[ln].*"}, 2 * RECORDS),
        ({"subscribe": "topic-gzip", "startingOffsets": "earliest", "endingOffsets": "latest"}, RECORDS),
        (
            {
                "assign": '{"topic-none": [0], "topic-lz4": [0]}',
                "startingOffsets": '{"topic-none": {"0": -2}, "topic-lz4": {"0": 1900}}',
                "endingOffsets": '{"topic-none": {"0": 90}, "topic-lz4": {"0": -1}}',
            },
            90 + 100,
        ),
        ({"subscribe": "topic-snappy", "includeHeaders": "false"}, RECORDS),
        ({"subscribe": "topic-none", "minPartitions": "5", "failOnDataLoss": "false"}, RECORDS),
        (
            {
                "subscribe": "topic-lz4",
                "startingTimestamp": str(2 * FIRST),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            0,
        ),
    ]
    if not has_transactions:  # most requests of Spark's source are too new for brokers before 0.11
        cases = [cases[0], cases[6]]
    queries = [query for query, _ in cases]
    with ExitStack() as broker:
        settings = ("log.segment.bytes=1048576", "log.retention.ms=-1")
        state = broker.enter_context(jvm.broker(version, tmp_path, *settings))
        pairs = [f"{topic}={codec}" for topic, codec in topics.items()]
        jvm.run("Produce", state["bootstrap"], *pairs, stdin=written.encode(), version=version)
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
    for (query, expected), answer in zip(cases, answers, strict=True):
        assert answer["rows"] in (expected if isinstance(expected, range) else [expected]), query
