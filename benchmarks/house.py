"""This tree and an earlier commit: what a change of the structure cost, by pairs of processes.

The earlier tree is taken out of the repository. Each figure is CPU time (user and system), which load on the machine
changes little; a pair is one process of each tree, one after the other, in alternating order. `ratio` is the median
over the pairs of this tree's time over the earlier one's: below 1 is faster. `spread`: the smallest and the largest
ratio.

- decode: all records of an uncompressed log of 8 MB with values of 100 bytes, kernels loaded; time of the whole.
- append 16 kB: `prepare` of an LZ4 set of 16 records of 1000 bytes, as a leader's log calls it.
- produce, fetch, metadata: a request from its frame to its answer, without a socket: one record of 100 bytes to be
  appended; a set of 100 such records to be fetched as it is stored; one topic to be described.
- verify --deep: the command over a log of 32 MB of records of 100 bytes, with its start.
- serve: from the process' start until it listens.
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
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).parent
PAIRS = 15
ROUND_SECONDS = 0.3


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


def requests(which: str) -> float:
    """Answer Produce, Fetch or Metadata requests of a broker in this process."""
    from magicbyte.engine.protocol import write_request
    from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format, encode_records
    from magicbyte.server.broker.broker import Broker
    from magicbyte.server.serving.parts import FilePart
    from magicbyte.server.serving.request import ClientConnection
    from magicbyte.server.settings.config import BrokerConfig

    def frame(request: FetchRequest | MetadataRequest | ProduceRequest, version: int) -> bytes:
        return bytes(write_request(request, version, correlation_id=1, client_id="client"))[4:]

    def produced(data: bytes) -> bytes:
        part = PartitionProduceData(index=0, records=memoryview(data))
        topics = [TopicProduceData(name="topic", partition_data=[part])]
        return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 8)

    async def spent(folder: str) -> float:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.retention.ms": "-1", "log.dirs": folder}
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            broker.topics.create("topic")
            handle = broker.handler_of(ClientConnection("127.0.0.1", "peer", broker.config.listeners[0]))
            for each in sets(50, 100):
                await handle(memoryview(bytearray(produced(each))))
            one = encode_records([Record(0, 1_700_000_000_000, 0, None, b"v" * 100)], Format.V2)
            asked = FetchPartition(partition=0, fetch_offset=2000, partition_max_bytes=13_000)
            fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="topic", partitions=[asked])])
            described = MetadataRequest(topics=[MetadataRequestTopic(name="topic")])
            data = {"produce": produced(one), "fetch": frame(fetch, 11), "metadata": frame(described, 9)}[which]
            for calls in (300, 3000):  # the first warm it up
                frames = [memoryview(bytearray(data)) for _ in range(calls)]
                start = time.process_time()
                for each in frames:
                    for piece in await handle(each) or ():
                        if isinstance(piece, FilePart):
                            piece.close()
                seconds = (time.process_time() - start) / calls
            return seconds
        finally:
            await broker.stop()

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(spent(folder))


WORKERS: dict[str, Callable[[], float]] = {
    "produce 100 B": lambda: requests("produce"),
    "fetch 100 B": lambda: requests("fetch"),
    "metadata of a topic": lambda: requests("metadata"),
    "append 16 kB": append,
    "decode 100 B": decode,
}

# ---- what is measured from outside


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of a process that is of a tree."""
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def used(command: list[str], tree: Path) -> float:
    """Return the CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment(tree), check=False, stdout=subprocess.DEVNULL)
    assert done.returncode in (0, 1), "1: a log without index files, which is a warning"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def served(tree: Path) -> float:
    """Return the CPU seconds until a broker listens."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "magicbyte", "serve", "--dir", folder, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, env=environment(tree), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        process.stdout.readline()
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        process.send_signal(signal.SIGTERM)
        process.communicate()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
        measures["serve, start"] = served
        measures["import magicbyte"] = lambda tree: used([*python, "import magicbyte"], tree)
        measures["import the broker"] = lambda tree: used([*python, "import magicbyte.server.broker.broker"], tree)
        known = json.loads((HERE / "results/house.json").read_text())["cases"]
        cases: dict[str, object] = known.get(commit, {})
        for what in chosen or measures:
            measure = measures[what]
            for tree in trees.values():
                measure(tree)  # writes bytecode, and loads files into the system's cache
            figures: dict[str, list[float]] = {"before": [], "after": []}
            for at in range(PAIRS):
                for which in itertools.islice(itertools.cycle(trees), at % 2, at % 2 + 2):
                    figures[which].append(measure(trees[which]))
            ratios = [after / before for before, after in zip(figures["before"], figures["after"], strict=True)]
            cases[what] = {
                **{f"{which}_us": round(1e6 * statistics.median(each), 1) for which, each in figures.items()},
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
