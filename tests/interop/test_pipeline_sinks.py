"""Real brokers open the sink of a pipeline as their own log directory, read every record of it, and append."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from builders import base64_text
from golden_data import log_cases
from interop import jvm
from interop.batches import Json
from interop.builders import LAST_TIME, SETTINGS, complaints
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN, OFFSET_CHECKPOINTS, PARTITION_METADATA
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.spark.pipeline import driver, load
from magicbyte.tools.offline.materialize import materialize
from spark.conftest import lay_out, topic_of
from spark.in_process import InProcess

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SOURCES = ["0.9.0.1/basic-snappy", "0.10.2.2/basic-gzip", "2.8.2/txn-zstd", "2.8.2/compact-lz4.before"]
STAGES = """\
[[stage]]
do = "convert"
format = "v2"
codec = "zstd"
kafka = "{version}"
[[stage]]
do = "compare"
[[stage]]
do = "split"
segment-bytes = 3000
[[stage]]
do = "compact"
topics = ["*compact*", "*txn*"]
segment-bytes = 20000
shuffle-above = 1
kafka = "{version}"
[source]
path = "logs"
[sink]
path = "{sink}"
"""


def consume(bootstrap: str, topics: Iterable[str], version: str) -> dict[str, list[Json]]:
    """Return offset, key and value of all records that the version's consumer gets of each topic."""
    found: dict[str, list[Json]] = {}
    for topic, lines in jvm.consumed(version, bootstrap, topics).items():
        rows = [[None if cell == "~" else cell for cell in line.split("\t")] for line in lines]
        found[topic] = [{"offset": int(row[0] or -1), "key": row[3], "value": row[4]} for row in rows]
    return found


def make_topics(version: str, folder: Path, topics: Iterable[str]) -> dict[str, bytes]:
    """Have a new broker make the topics; return their `partition.metadata`, with the ids that its own metadata know."""
    with jvm.broker(version, folder, *SETTINGS) as state:
        append(state["bootstrap"], version, topics)
    found = {topic: folder / "data" / f"{topic}-0" for topic in topics}
    known = {topic: (path / PARTITION_METADATA).read_bytes() for topic, path in found.items()}
    for path in found.values():
        shutil.rmtree(path)
    return known


def append(bootstrap: str, version: str, topics: Iterable[str]) -> None:
    """Send a record to each topic."""
    lines = "".join(f"{topic}\t{LAST_TIME}\t{base64_text(b'key')}\t{base64_text(b'appended')}\n" for topic in topics)
    jvm.run("Produce", bootstrap, *(f"{topic}=none" for topic in topics), stdin=lines.encode(), version=version)


@pytest.mark.parametrize(
    ("version", "store"),
    [pytest.param("2.8.2", None, marks=pytest.mark.campaign), ("3.9.1", "memory://sink-of-"), ("4.3.1", None)],
)
def test_a_broker_takes_a_sink_as_its_own_log_directory(version: str, store: str | None, tmp_path: Path) -> None:
    """Of a sink in a store of objects it takes the log directory that is made of it."""
    cases = [case for case in log_cases() if case.id in SOURCES]
    assert len(cases) == len(SOURCES)
    lay_out(tmp_path / "logs", cases)
    store = None if store is None else store + tmp_path.name
    has_own_metadata = version.startswith("4.")
    sink = "made" if has_own_metadata else "broker/data"
    (tmp_path / "sink.toml").write_text(STAGES.format(version=version, sink=store or sink))
    done = driver.run(load(tmp_path / "sink.toml"), context=InProcess())
    assert done.status == 0, [unit["error"] for unit in done.units]
    if store is not None:
        assert materialize(store, tmp_path / sink) == len(cases)
    data, left, ends = tmp_path / sink, {}, {}
    for partition in discover([str(data)]):
        topic = str(partition.topic)
        found = [record for columns in SegmentReader(partition).records() for record in columns]
        left[topic] = [{"offset": r.offset, "key": base64_text(r.key), "value": base64_text(r.value)} for r in found]
    for line in (data / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]:
        topic, _, end = line.split()
        ends[topic] = int(end)
    assert left.keys() == ends.keys() == {topic_of(case) for case in cases}
    compacted = next(topic for topic in left if "compact" in topic)
    assert len(left[compacted]) < ends[compacted] / 2, "superseded records went"
    if has_own_metadata:  # docs/spark/pipeline.md has the same as a recipe
        for topic, metadata in make_topics(version, tmp_path / "broker", left).items():
            shutil.copytree(data / f"{topic}-0", tmp_path / "broker/data" / f"{topic}-0")
            (tmp_path / "broker/data" / f"{topic}-0" / PARTITION_METADATA).write_bytes(metadata)
        for name in (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN):
            if (data / name).exists():
                shutil.copy(data / name, tmp_path / "broker/data")
        (tmp_path / "broker/broker.log").unlink()
    with jvm.broker(version, tmp_path / "broker", *SETTINGS) as state:
        append(state["bootstrap"], version, left)
        consumed = consume(state["bootstrap"], left, version)
    said = (tmp_path / "broker/broker.log").read_text()
    for topic, records in left.items():
        assert complaints(said, topic, ends[topic]) == []
        assert consumed[topic] == [
            *records,
            {"offset": ends[topic], "key": base64_text(b"key"), "value": base64_text(b"appended")},
        ]
