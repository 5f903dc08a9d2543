"""This tree and an earlier commit: what a change of the structure cost, by pairs of processes.

The earlier tree is taken out of the repository. Each figure is CPU time (user and system), which load on the machine
changes little; a pair is one process of each tree, one after the other, in alternating order. `ratio` is the median
over the pairs of this tree's time over the earlier one's: below 1 is faster. `spread`: the smallest and the largest
ratio.

- decode: all records of an uncompressed log of 8 MB with values of 100 bytes, kernels loaded; time of the whole.
- append 16 kB: `prepare` of an LZ4 set of 16 records of 1000 bytes, as a leader's log calls it.
- produce, fetch, metadata, creation: a request from its frame to its answer, without a socket: one record of 100 bytes
  or 1 kB to be appended; a set of 100 such records to be fetched as it is stored; a topic, or 100 of 100 partitions, to
  be described; a topic to be created.
- transaction: its five requests, likewise: 10 records of 1 kB over 3 partitions, committed.
- verify --deep: the command over a log of 32 MB of records of 100 bytes, with its start.
- serve: from the process' start until it listens; and what is resident then (MB).
- import: `import magicbyte`, and of the broker's main module.

Run: python benchmarks/house.py COMMIT [CASE …]   (written to benchmarks/results/house.json)
"""

import asyncio
import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).parent
PAIRS = 15
ROUND_SECONDS = 0.3
RESIDENT = "serve, resident"
HEADER = 8  # bytes of a response before its first field: size and correlation id


def repeated(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call: of as many as take about 0.3 s."""
    work()
    start = time.process_time()
    work()
    calls = max(1, round(ROUND_SECONDS / max(time.process_time() - start, 1e-6)))
    start = time.process_time()
    for _ in range(calls):
        work()
    return (time.process_time() - start) / calls


def sets(count: int, size: int) -> list[bytes]:
    """Return uncompressed batches of 100 records of so many bytes."""
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format, encode_records

    value = (b"a line of text that says little 0123456789 " * 30)[:size]
    return [
        bytes(encode_records([Record(base + at, 1_700_000_000_000, 0, None, value) for at in range(100)], Format.V2))
        for base in range(0, 100 * count, 100)
    ]


# ---- what a worker measures, in its tree


def decode() -> float:
    """Decode 8 MB."""
    from magicbyte.engine.compiled.kernel import warm
    from magicbyte.engine.records.decode import decode as decoded

    warm()
    data = memoryview(b"".join(sets(700, 100)))
    return repeated(lambda: sum(len(each) for each in decoded(data)))


def append() -> float:
    """Prepare a set of 16 kB."""
    from magicbyte.engine.codecs import Codec
    from magicbyte.engine.compiled.kernel import warm
    from magicbyte.engine.log.append.prepare import prepare
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format, encode_records

    warm()
    rows = [Record(at, 1_700_000_000_000, 0, None, b"%d words of a text " % at * 60) for at in range(16)]
    data, rules = memoryview(encode_records(rows, Format.V2, Codec.LZ4)), AppendRules(format=Format.V2)
    return repeated(
        lambda: prepare(data, rules, next_offset=7, now_ms=1_700_000_100_000, leader_epoch=1, request_version=9)
    )


async def requests(which: str, folder: str) -> float:
    """Answer requests of a broker in this process; return the CPU seconds of one."""
    from magicbyte.engine.protocol import Message, write_request
    from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format, encode_records
    from magicbyte.server.broker.broker import Broker
    from magicbyte.server.serving.parts import FilePart
    from magicbyte.server.serving.request import ClientConnection
    from magicbyte.server.settings.config import BrokerConfig

    def frame(request: Message, version: int) -> bytes:
        return bytes(write_request(request, version, correlation_id=1, client_id="client"))[4:]

    def produced(data: bytes, partition: int = 0, transactional_id: str | None = None) -> bytes:
        part = PartitionProduceData(index=partition, records=memoryview(data))
        topics = [TopicProduceData(name="topic", partition_data=[part])]
        return frame(ProduceRequest(acks=1, timeout_ms=1000, transactional_id=transactional_id, topic_data=topics), 7)

    def created(names: Iterable[str], partitions: int) -> bytes:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        return frame(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 4)

    broker = Broker(
        BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", "log.dirs": folder})
    )
    await broker.start()
    try:
        handle = broker.handler_of(ClientConnection("127.0.0.1", "peer", broker.config.listeners[0]))

        async def answer(data: bytes) -> bytes:
            pieces = []
            for piece in await handle(memoryview(bytearray(data))) or ():
                if isinstance(piece, FilePart):
                    piece.close()
                else:
                    pieces.append(bytes(piece))
            return b"".join(pieces)

        async def spent(calls: int, work: Callable[[int], Awaitable[object]]) -> float:
            start = time.process_time()
            for at in range(calls):
                await work(at)
            return (time.process_time() - start) / calls

        await answer(created(["topic"], 3))
        if which == "creation of a topic":
            return await spent(300, lambda at: answer(created([f"another-{at}"], 1)))
        if which == "transaction":
            transaction = await transactions(answer, frame, produced)
            await spent(100, transaction)
            return await spent(1000, transaction)
        if which == "metadata of 10,000 partitions":
            for at in range(10):
                await answer(created([f"wide-{at}-{each}" for each in range(10)], 100))
            data = frame(MetadataRequest(topics=None), 9)
            await spent(3, lambda _: answer(data))
            return await spent(30, lambda _: answer(data))
        size = 1000 if which.endswith("1 kB") else 100
        for each in sets(50, size):
            await answer(produced(each))
        if which.startswith("produce"):
            data = produced(bytes(encode_records([Record(0, 1_700_000_000_000, 0, None, b"v" * size)], Format.V2)))
        elif which.startswith("fetch"):
            asked = FetchPartition(partition=0, fetch_offset=2000, partition_max_bytes=130 * size)
            topics = [FetchTopic(topic="topic", partitions=[asked])]
            data = frame(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)
        else:
            data = frame(MetadataRequest(topics=[MetadataRequestTopic(name="topic")]), 9)
        await spent(300, lambda _: answer(data))  # warms it up
        return await spent(3000, lambda _: answer(data))
    finally:
        await broker.stop()


async def transactions(
    answer: Callable[[bytes], Awaitable[bytes]], frame: Callable[..., bytes], produced: Callable[..., bytes]
) -> Callable[[int], Awaitable[None]]:
    """Return what does a transaction of 10 records of 1 kB over 3 partitions."""
    from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
    from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest
    from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from magicbyte.engine.records.batch import RecordBatch, batch_attributes, build_batch
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format, encode_records

    await answer(frame(FindCoordinatorRequest(key="benchmark", key_type=1), 2))  # creates the coordinator's topic
    asked = frame(InitProducerIdRequest(transactional_id="benchmark", transaction_timeout_ms=60_000), 1)
    async with asyncio.timeout(30):
        while (reply := InitProducerIdResponse.read((await answer(asked))[HEADER:], 1)).error_code != 0:
            await asyncio.sleep(0.05)  # the coordinator loads its partition
    producer = {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="benchmark",
        v3_and_below_producer_id=reply.producer_id,
        v3_and_below_producer_epoch=reply.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="topic", partitions=[0, 1, 2])],
    )
    begun, ended = frame(added, 0), frame(EndTxnRequest(transactional_id="benchmark", committed=True, **producer), 1)
    counts, now = (4, 3, 3), 1_700_000_000_000
    rows = [Record(at, now, 0, None, b"v" * 1000) for at in range(max(counts))]
    sections = [RecordBatch(memoryview(encode_records(rows[:each], Format.V2))).records_section for each in counts]

    numbers = itertools.count()

    async def transaction(_number: int) -> None:
        number = next(numbers)
        async with asyncio.timeout(30):
            while (await answer(begun))[-2:] != b"\0\0":
                await asyncio.sleep(0.01)  # the markers of the one before are written
        for partition, (section, count) in enumerate(zip(sections, counts, strict=True)):
            data = build_batch(
                section,
                base_offset=0,
                last_offset_delta=count - 1,
                base_timestamp=now,
                max_timestamp=now,
                record_count=count,
                attributes=batch_attributes(is_transactional=True),
                base_sequence=number * count,
                **producer,
            )
            await answer(produced(data, partition, "benchmark"))
        reply = EndTxnResponse.read((await answer(ended))[HEADER:], 1)
        assert reply.error_code == 0, reply

    return transaction


def in_folder(which: str) -> float:
    """Return what `requests` measures, in a new log directory."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(requests(which, folder))


WORKERS: dict[str, Callable[[], float]] = {
    **{
        name: partial(in_folder, name)
        for name in (
            "produce 100 B",
            "produce 1 kB",
            "fetch 100 B",
            "fetch 1 kB",
            "transaction",
            "metadata of a topic",
            "metadata of 10,000 partitions",
            "creation of a topic",
        )
    },
    "append 16 kB": append,
    "decode 100 B": decode,
}

# ---- what is measured from outside


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of a process that is of a tree, and that keeps its bytecode as an installed one does."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree / "src")}


def used(command: list[str], tree: Path) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment(tree), check=False, stdout=subprocess.DEVNULL)
    assert done.returncode in (0, 1), "1: a log without index files, which is a warning"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def served(tree: Path, what: Callable[[int], float]) -> float:
    """Return what is measured of a broker's process once it listens."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "magicbyte", "serve", "--dir", folder, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, env=environment(tree), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        process.stdout.readline()
        found = what(process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, two seconds from now: modules are loaded after the first answer."""
    time.sleep(2)
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def worker(name: str, tree: Path) -> float:
    """Return what a worker measures in a tree."""
    command = [sys.executable, __file__, "--worker", name]
    return float(subprocess.run(command, env=environment(tree), check=True, capture_output=True, text=True).stdout)


def earlier(commit: str, folder: Path) -> Path:
    """Take a commit's `src/` out of the repository."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=HERE.parent, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def main(commit: str, *chosen: str) -> None:
    """Measure pairs of all cases or of the chosen ones, and write the results."""
    sys.path.insert(0, str(HERE.parent / "src"))
    import harness

    with tempfile.TemporaryDirectory(prefix="magicbyte-house-") as name:
        folder = Path(name)
        log = folder / "log/topic-0"
        log.mkdir(parents=True)
        (log / f"{0:020}.log").write_bytes(b"".join(sets(2800, 100)))
        trees = {"before": earlier(commit, folder / "before"), "after": HERE.parent}
        python = [sys.executable, "-c"]
        verify = [sys.executable, "-m", "magicbyte", "verify", "--deep", str(log.parent)]
        measures: dict[str, Callable[[Path], float]] = {
            each: lambda tree, each=each: worker(each, tree) for each in WORKERS
        }
        measures["verify --deep"] = lambda tree: used(verify, tree)
        measures["serve, start"] = lambda tree: served(tree, cpu_seconds)
        measures[RESIDENT] = lambda tree: served(tree, resident_mb)
        measures["import magicbyte"] = lambda tree: used([*python, "import magicbyte"], tree)
        measures["import the broker"] = lambda tree: used([*python, "import magicbyte.server.broker.broker"], tree)
        known = json.loads((HERE / "results/house.json").read_text())["cases"]
        cases: dict[str, object] = known.get(commit, {})
        for what in chosen or measures:
            measure, (unit, factor) = measures[what], ("mb", 1) if what == RESIDENT else ("us", 1e6)
            for tree in trees.values():
                measure(tree)  # writes bytecode, and loads files into the system's cache
            figures: dict[str, list[float]] = {"before": [], "after": []}
            for at in range(PAIRS):
                for which in itertools.islice(itertools.cycle(trees), at % 2, at % 2 + 2):
                    figures[which].append(measure(trees[which]))
            ratios = [after / before for before, after in zip(figures["before"], figures["after"], strict=True)]
            cases[what] = {
                **{f"{which}_{unit}": round(factor * statistics.median(each), 1) for which, each in figures.items()},
                "ratio": round(statistics.median(ratios), 3),
                "spread": [round(min(ratios), 3), round(max(ratios), 3)],
                "pairs": PAIRS,
                "load_average": round(os.getloadavg()[0], 1),
            }
            harness.save("house", __doc__, {commit: cases})


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        print(WORKERS[sys.argv[2]]())
    else:
        main(*sys.argv[1:])
