"""Three of our brokers and ZooKeeper under faults and load from real clients: is each acknowledged record there, once?

Brokers are killed and stopped for longer and shorter than their sessions last, the controller among them; ZooKeeper is
stopped; connections are cut between brokers, and between a broker and ZooKeeper (see processes.py). Producers are
Java's, idempotent, with acks=all; librdkafka's consumer reads all the while. librdkafka's producer, up to 2.16, cannot
judge: it sends a new batch to a new leader before it repeats what the old leader refused. So it loses records of a
producer that the new leader does not know, and duplicates others (its issue 4953, and 921 of its Go binding).

What clients saw is judged by the checker of histories; the logs of the replicas, by a reader that shares no line with
the product, and byte for byte with each other. After three of four faults all replicas have to be in sync again without
a hand, and records to be acknowledged; after the others the next fault follows at once.

Run: PYTHONPATH=tests python -m interop.run_cluster_kills --minutes 30 --out tests/interop/cluster_kill_figures.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import wire_reader
from builders import add_run
from interop import jvm, kafka_oracle
from interop.builders import log_bytes
from interop.processes import BROKERS, DIES_WITH_US, HERE, PATIENCE_S, TREE, BadDayError, Member, Tree, own_network
from magicbyte.testing.checker import ClientOperation, HistoryRules, OperationOutcome, Pending, Recorder, Sent, check

TOPIC: Final = "kept"
PARTITIONS: Final = 6
TOPIC_SETTINGS: Final = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "segment.bytes": "300000",
}
PRODUCERS: Final = 2
PER_SECOND: Final = 60  # of each producer: the machine has other work
HEALED_S: Final = 180.0
NOT_HEALED: Final = 0.25  # how many faults follow on one that is not healed yet

SHORT, LONG = (0.5, 2.5), (7.0, 11.0)  # beside a session of four seconds


def name_of(partition: int) -> str:
    return f"{TOPIC}-{partition}"


def value_of(message: Message) -> str:
    return (message.value() or b"").split(b":")[0].decode()


# ---- clients


def common(bootstrap: str) -> dict[str, Any]:
    """Return the settings of all clients."""
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 2,  # they tell of each connection that ends
        "reconnect.backoff.max.ms": 1000,
        "socket.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 5000,
    }


def produce(
    number: int,
    classes: Path,
    bootstrap: str,
    recorder: Recorder,
    stop: threading.Event,
    seed: int,
    latest: dict[tuple[int, int], int],
) -> None:
    """Send records with Java's producer until the event. A record that is not answered is of unknown outcome.

    `latest`: the latest offset that was acknowledged to each producer in each partition.
    """
    pending: dict[str, Pending] = {}
    arguments = (bootstrap, TOPIC, PARTITIONS, f"p{number}", seed, PER_SECOND, int(HEALED_S))
    command = kafka_oracle.tool_command(jvm.ALL_FORMATS, "ProduceUntil", [str(each) for each in arguments], [classes])
    with subprocess.Popen(
        [*DIES_WITH_US, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as producer:
        assert producer.stdin is not None
        assert producer.stdout is not None
        ends = threading.Thread(target=_end, args=(stop, producer.stdin))
        ends.start()
        for line in producer.stdout:
            what, partition, value, *rest = line.split(maxsplit=3)
            if what == "sent":
                pending[value] = recorder.send(f"producer-{number}", name_of(int(partition)), value)
            elif what == "acked":
                pending.pop(value).ok(int(rest[0]))
                latest[number, int(partition)] = int(rest[0])
            else:
                raise BadDayError(f"producer {number}: {line}")
        if not stop.is_set() or producer.wait():
            raise BadDayError(f"producer {number} ended by itself with {producer.wait()}")
        ends.join()
    if pending:
        raise BadDayError(f"producer {number}: {len(pending)} records are not answered after {HEALED_S} s")


def _end(stop: threading.Event, stdin: IO[str]) -> None:
    """End a program's input behind the event."""
    stop.wait()
    stdin.close()


def consume(bootstrap: str, recorder: Recorder, stop: threading.Event) -> None:
    """Read all partitions, each in its order, to their ends behind the event."""
    consumer = Consumer(
        {
            **common(bootstrap), "group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )  # fmt: skip
    positions, ends = dict.fromkeys(range(PARTITIONS), 0), dict[int, int]()
    is_refused = False  # by a broker that led before and is behind
    deadline = float("inf")
    try:
        consumer.assign([TopicPartition(TOPIC, partition, start) for partition, start in positions.items()])
        while len(ends) < PARTITIONS or any(positions[each] < end for each, end in ends.items()):
            if stop.is_set() and len(ends) < PARTITIONS:
                deadline = min(deadline, time.monotonic() + HEALED_S)
                with contextlib.suppress(KafkaException):  # of a leader that changes: asked again
                    place = TopicPartition(TOPIC, len(ends))
                    ends[len(ends)] = consumer.get_watermark_offsets(place, timeout=30)[1]
            if time.monotonic() > deadline:
                raise BadDayError(f"the reader is at {positions}; the partitions end at {ends}")
            with recorder.poll("reader") as poll:
                records: dict[str, list[tuple[int, str]]] = {}
                for message in consumer.consume(500, timeout=0.3):
                    error = message.error()
                    if error is not None:
                        if not error.retriable() and error.code() in (
                            KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE,
                        ):  # fmt: skip
                            is_refused = True
                        continue
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    records.setdefault(name_of(partition), []).append((offset, value_of(message)))
                    positions[partition] = offset + 1
                poll.polled(records)
                poll.ok()
            if is_refused:  # assigned again: `seek` fails while librdkafka looks for the leader
                consumer.assign([TopicPartition(TOPIC, partition, start) for partition, start in positions.items()])
                is_refused = False
    finally:
        consumer.close()


# ---- faults


@dataclass
class Cluster:
    """All processes, and the clients' view of them. `has_network`: connections can be cut."""

    tree: Tree
    members: dict[int, Member]
    admin: AdminClient
    pick: random.Random
    has_network: bool
    clients: list[asyncio.Task[None]]
    latest: dict[tuple[int, int], int] = field(default_factory=dict)  # acknowledged to each producer in each partition
    tally: Counter[str] = field(default_factory=Counter)
    judged: dict[str, Any] = field(default_factory=dict)

    async def controller(self) -> int:
        """Return the controller in the metadata of clients; any broker if none answers."""
        with contextlib.suppress(KafkaException):
            found = (await asyncio.to_thread(self.admin.list_topics, TOPIC, 5)).controller_id
            if found in self.members:
                return int(found)
        return self.pick.choice(BROKERS)

    async def is_healed(self) -> bool:
        """Return whether all replicas of all partitions are in sync, and each has a leader."""
        try:
            told = await asyncio.to_thread(self.admin.list_topics, TOPIC, 5)
        except KafkaException:
            return False
        partitions = told.topics[TOPIC].partitions.values()
        return (
            len(partitions) == PARTITIONS
            and len(told.brokers) == len(BROKERS)
            and all(each.leader in BROKERS and set(each.isrs) == set(BROKERS) for each in partitions)
        )

    async def heal(self, why: str) -> None:
        began = time.monotonic()
        while not await self.is_healed():
            if time.monotonic() > began + HEALED_S:
                raise BadDayError(f"not all replicas are in sync {HEALED_S} s after {why}")
            await asyncio.sleep(0.3)

    async def leader(self, partition: int) -> int:
        """Return the leader in the metadata of clients."""
        told = await asyncio.to_thread(self.admin.list_topics, TOPIC, PATIENCE_S)
        return int(told.topics[TOPIC].partitions[partition].leader)

    async def end_cleanly(self, number: int) -> None:
        if status := await self.members[number].end(signal.SIGTERM):
            raise BadDayError(f"broker {number} did not end cleanly: {status}")

    def check_clients(self, why: str) -> None:
        """Raise what a client failed of."""
        for each in self.clients:
            if each.done():
                raise BadDayError(f"a client ended after {why}") from each.exception()

    async def await_progress(self, why: str) -> None:
        """Wait until records are acknowledged to each producer in each partition again."""
        before, began = dict(self.latest), time.monotonic()
        each_in_each = list(itertools.product(range(PRODUCERS), range(PARTITIONS)))
        while any(self.latest.get(each, -1) <= before.get(each, -1) for each in each_in_each):
            self.check_clients(why)
            if time.monotonic() > began + HEALED_S:
                raise BadDayError(
                    f"after {why}: {before} were the latest offsets, {self.latest} are {HEALED_S} s later"
                )
            await asyncio.sleep(0.1)


async def _kill(cluster: Cluster, *numbers: int, seconds: float) -> None:
    for number in numbers:
        status = await cluster.members[number].end(signal.SIGKILL)
        assert status == -signal.SIGKILL, f"broker {number} had ended by itself"
    await asyncio.sleep(seconds)
    for number in numbers:
        await cluster.members[number].start(cluster.tree.address)


async def _halt(cluster: Cluster, number: int, seconds: float) -> None:
    cluster.members[number].signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    cluster.members[number].signal(signal.SIGCONT)


async def kill(cluster: Cluster) -> None:
    await _kill(cluster, cluster.pick.choice(BROKERS), seconds=cluster.pick.uniform(0, 8))


async def kill_controller(cluster: Cluster) -> None:
    await _kill(cluster, await cluster.controller(), seconds=cluster.pick.uniform(0, 8))


async def kill_two(cluster: Cluster) -> None:
    await _kill(cluster, *cluster.pick.sample(BROKERS, 2), seconds=cluster.pick.uniform(0, 8))


async def kill_all(cluster: Cluster) -> None:
    await _kill(cluster, *cluster.pick.sample(BROKERS, 3), seconds=cluster.pick.uniform(0, 5))


async def bounce(cluster: Cluster) -> None:
    number = cluster.pick.choice(BROKERS)
    await cluster.end_cleanly(number)
    await asyncio.sleep(cluster.pick.uniform(0, 3))
    await cluster.members[number].start(cluster.tree.address)


async def halt_short(cluster: Cluster) -> None:
    await _halt(cluster, cluster.pick.choice(BROKERS), cluster.pick.uniform(*SHORT))


async def halt_long(cluster: Cluster) -> None:
    await _halt(cluster, cluster.pick.choice(BROKERS), cluster.pick.uniform(*LONG))


async def halt_controller(cluster: Cluster) -> None:
    await _halt(cluster, await cluster.controller(), cluster.pick.uniform(*LONG))


async def _halt_tree(cluster: Cluster, seconds: float) -> None:
    cluster.tree.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    cluster.tree.signal(signal.SIGCONT)


async def halt_zookeeper_short(cluster: Cluster) -> None:
    await _halt_tree(cluster, cluster.pick.uniform(*SHORT))


async def halt_zookeeper_long(cluster: Cluster) -> None:
    await _halt_tree(cluster, cluster.pick.uniform(*LONG))


async def kill_while_zookeeper_is_stopped(cluster: Cluster) -> None:
    halt = asyncio.create_task(_halt_tree(cluster, cluster.pick.uniform(*LONG)))
    number = cluster.pick.choice(BROKERS)
    await asyncio.sleep(cluster.pick.uniform(0, 1))
    await cluster.members[number].end(signal.SIGKILL)
    await halt
    await cluster.members[number].start(cluster.tree.address)


@contextlib.asynccontextmanager
async def _cut(*pairs: tuple[Member, str]) -> AsyncIterator[None]:
    for member, host in pairs:
        member.cut(host)
    yield
    for member, host in pairs:
        member.mend(host)


async def cut_peers(cluster: Cluster) -> None:
    """Lose what one broker sends to another, answers included."""
    one, other = (cluster.members[each] for each in cluster.pick.sample(BROKERS, 2))
    async with _cut((one, other.host)):
        await asyncio.sleep(cluster.pick.uniform(2, 12))


async def cut_from_zookeeper(cluster: Cluster) -> None:
    async with _cut((cluster.members[cluster.pick.choice(BROKERS)], TREE)):
        await asyncio.sleep(cluster.pick.uniform(2, 12))


async def cut_from_peers(cluster: Cluster) -> None:
    """Leave a broker its session and its clients, but none of its peers."""
    one = cluster.members[cluster.pick.choice(BROKERS)]
    async with _cut(*((one, each.host) for each in cluster.members.values() if each is not one)):
        await asyncio.sleep(cluster.pick.uniform(4, 12))


async def cut_from_peers_and_zookeeper(cluster: Cluster) -> None:
    """Leave a broker, which may lead and be the controller, nothing but clients."""
    number = await cluster.controller() if cluster.pick.random() < 0.5 else cluster.pick.choice(BROKERS)
    one = cluster.members[number]
    hosts = [each.host for each in cluster.members.values() if each is not one]
    async with _cut(*((one, host) for host in [TREE, *hosts])):
        await asyncio.sleep(cluster.pick.uniform(4, 12))


async def cut_off(cluster: Cluster) -> None:
    """Cut a broker off from all others."""
    one = cluster.members[cluster.pick.choice(BROKERS)]
    hosts = [each.host for each in cluster.members.values() if each is not one]
    async with _cut(*((one, host) for host in [TREE, HERE, *hosts])):
        await asyncio.sleep(cluster.pick.uniform(4, 12))


async def kill_behind_cut(cluster: Cluster) -> None:
    """Kill a broker while another is cut off from its peers: no two remain that reach each other."""
    one, other = (cluster.members[each] for each in cluster.pick.sample(BROKERS, 2))
    async with _cut(*((one, each.host) for each in cluster.members.values() if each is not one)):
        await asyncio.sleep(cluster.pick.uniform(1, 8))
        await _kill(cluster, other.number, seconds=cluster.pick.uniform(0, 6))


Fault = Callable[[Cluster], Awaitable[None]]
FAULTS: Final[tuple[Fault, ...]] = (
    kill, kill_controller, kill_two, kill_all, bounce, halt_short, halt_long, halt_controller, halt_zookeeper_short,
    halt_zookeeper_long, kill_while_zookeeper_is_stopped,
)  # fmt: skip
CUTS: Final[tuple[Fault, ...]] = (
    cut_peers, cut_from_zookeeper, cut_from_peers, cut_from_peers_and_zookeeper, cut_off, kill_behind_cut
)  # fmt: skip


def faults(pick: random.Random, *, has_network: bool) -> list[Fault]:
    """Return each fault once, in an order of the seed."""
    chosen = [*FAULTS, *(CUTS if has_network else ())]
    pick.shuffle(chosen)
    return chosen


# ---- the judgement


def judge_history(history: list[ClientOperation]) -> dict[str, Any]:
    """Judge what clients saw, of which the last reads were to the end of each partition. Raises BadDayError."""
    report = check(history, HistoryRules())
    if not report.is_sound:
        raise BadDayError(str(report))
    return {"acknowledged": report.acknowledged, "read": report.read, "unknown": report.unknown}


def judge_logs(history: list[ClientOperation], folders: list[Path]) -> dict[str, int]:
    """See that replicas are equal, and that each acknowledged record is at its offset, once. Raises BadDayError."""
    expected: dict[str, dict[int, str]] = {name_of(each): {} for each in range(PARTITIONS)}
    for operation in history:
        for step in operation.steps:
            if isinstance(step, Sent) and operation.outcome is OperationOutcome.OK and step.offset is not None:
                expected[step.partition][step.offset] = str(step.value)
    sizes = Counter[str]()
    for name, acknowledged in expected.items():
        replicas = [log_bytes(folder / name) for folder in folders]
        if len(set(replicas)) != 1:
            raise BadDayError(f"{name}: the replicas differ; they have {[len(each) for each in replicas]} bytes")
        found = wire_reader.records(replicas[0])
        sizes["bytes"] += len(replicas[0])
        sizes["records"] += len(found)
        if [each.offset for each in found] != list(range(len(found))):
            raise BadDayError(f"{name}: the offsets are not 0 to {len(found) - 1}")
        values = [(each.value or b"").split(b":")[0].decode() for each in found]
        if len(set(values)) != len(values):
            raise BadDayError(f"{name}: a record is there twice")
        for offset, value in acknowledged.items():
            if offset >= len(values) or values[offset] != value:
                raise BadDayError(f"{name}: {value} was acknowledged at {offset}, and is not there")
    return dict(sizes)


# ---- the campaign


@contextlib.asynccontextmanager
async def under_load(folder: Path, *, seed: int, has_network: bool) -> AsyncIterator[Cluster]:
    """Give a cluster that clients produce to and consume from; behind the block judge it. Raises BadDayError."""
    tree = Tree(folder, has_network=has_network)
    members = {number: Member(number, folder, has_network=has_network) for number in BROKERS}
    recorder = Recorder(lambda: time.monotonic_ns() // 1_000_000)
    stop, read_to_end = threading.Event(), threading.Event()
    clients = list[asyncio.Task[None]]()
    classes = kafka_oracle.compile_source(jvm.ALL_FORMATS, jvm.HERE / "java" / "ProduceUntil.java")
    try:
        await tree.start()
        for member in members.values():
            await member.start(tree.address)
        bootstrap = ",".join(each.address for each in members.values())
        cluster = Cluster(tree, members, AdminClient(common(bootstrap)), random.Random(seed), has_network, clients)
        made = cluster.admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, len(BROKERS), config=TOPIC_SETTINGS)], request_timeout=PATIENCE_S
        )
        await asyncio.to_thread(made[TOPIC].result, PATIENCE_S)
        await cluster.heal("the topic was made")
        for number in range(PRODUCERS):
            work = asyncio.to_thread(produce, number, classes, bootstrap, recorder, stop, seed + number, cluster.latest)
            clients.append(asyncio.create_task(work))
        reader = asyncio.create_task(asyncio.to_thread(consume, bootstrap, recorder, read_to_end))
        clients.append(reader)
        await cluster.await_progress("the start of the clients")
        yield cluster
        stop.set()
        await asyncio.wait_for(asyncio.gather(*clients[:PRODUCERS]), 2 * HEALED_S)
        read_to_end.set()
        await asyncio.wait_for(reader, 2 * HEALED_S)
        await cluster.heal("the end")
        for number in members:
            await cluster.end_cleanly(number)
    finally:
        stop.set()
        read_to_end.set()
        await asyncio.gather(*clients, return_exceptions=True)
        for member in members.values():
            await member.close()
        await tree.close()
    for member in members.values():
        member.check_log()
    history = recorder.history
    cluster.judged = judge_history(history)
    cluster.judged["logs"] = judge_logs(history, [each.folder for each in members.values()])


async def campaign(folder: Path, minutes: float, *, seed: int, has_network: bool) -> dict[str, Any]:
    """Bring about one fault after another for so long; return what happened. Raises BadDayError."""
    began = time.monotonic()
    async with under_load(folder, seed=seed, has_network=has_network) as cluster:
        await _bring_about(cluster, time.monotonic() + minutes * 60)
    return {
        "seed": seed, "seconds": round(time.monotonic() - began), "cuts": has_network, **cluster.judged,
        "faults": dict(sorted(cluster.tally.items())),
    }  # fmt: skip


async def _bring_about(cluster: Cluster, until: float) -> None:
    waiting: list[Fault] = []
    while time.monotonic() < until:
        waiting = waiting or faults(cluster.pick, has_network=cluster.has_network)
        fault = waiting.pop()
        await asyncio.sleep(cluster.pick.uniform(0.5, 2))
        print(f"{fault.__name__}", flush=True)
        began = time.monotonic()
        await fault(cluster)
        repaired = time.monotonic()
        cluster.tally[fault.__name__] += 1
        cluster.check_clients(fault.__name__)
        if cluster.pick.random() < NOT_HEALED:
            print(f"  {repaired - began:.1f} s; the next one finds it not healed", flush=True)
            cluster.tally["next_before_healing"] += 1
            continue
        await cluster.heal(fault.__name__)
        await cluster.await_progress(fault.__name__)
        print(f"  {repaired - began:.1f} s; healed after {time.monotonic() - repaired:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help="an empty folder that stays; else a temporary one")
    parser.add_argument("--out", type=Path, help="a file to add the figures to, a run each")
    chosen = parser.parse_args()
    has_network = own_network()
    with tempfile.TemporaryDirectory() as made:
        folder = chosen.scratch or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        figures = asyncio.run(campaign(folder, chosen.minutes, seed=chosen.seed, has_network=has_network))
    print(json.dumps(figures))
    if chosen.out is not None:
        add_run(chosen.out, figures)


if __name__ == "__main__":
    main()
