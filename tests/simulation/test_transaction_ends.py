"""A broker dies after each write of the end of a transaction: the next start ends it, and all partitions agree.

The writes are the decision in `__transaction_state`, a marker in each partition, and the completion. A kill keeps all
writes so far. With group commit a cut of the power may lose those that were not synced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.fetch import FetchOptions, fetch_sets, records_of
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.transactions.rules import IDLE
from magicbyte.testing.disk import SimulatedDisk
from magicbyte.testing.world import SimulatedBroker, World
from simulation.transactional_client import TransactionalClient

PLACES = [TopicPartition("topic", each) for each in range(3)]
VALUES = {place: [f"{place} {at}" for at in range(2 + place.partition)] for place in PLACES}
TIMEOUT_MS = 3000
SETTLED_S = 60
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
Copy = Callable[[SimulatedDisk, int], SimulatedDisk]


async def _at_once(_what: str, _node: BrokerNode) -> None:
    """Do nothing before a request."""


def _producer(client: Client) -> TransactionalClient:
    return TransactionalClient(client, "producer", TIMEOUT_MS, resends=(), phase=_at_once)


async def _ended(
    world: World, broker: SimulatedBroker, *, commits: bool, copy: Copy
) -> list[tuple[str, SimulatedDisk]]:
    """End a transaction; return the file of each write to a log, and the disk that was left if it was the last one."""
    await broker.start()
    async with world.client() as client:
        await create_topic(client, NewTopic("topic", len(PLACES), 1))
        producer = _producer(client)
        await producer.begin()
        await producer.add(PLACES)
        for place, values in VALUES.items():
            await producer.send(place, values, patience=0)
        disk = broker.disk
        left = [("", copy(disk, 0))]

        def note(kind: str, path: str) -> None:
            if kind == "write" and path.endswith(".log"):
                left.append((path, copy(disk, len(left))))

        disk.observer = note
        await producer.end(commit=commits)
        await asyncio.sleep(1)
        disk.observer = None
    return left


async def _settled(world: World, broker: SimulatedBroker) -> dict[TopicPartition, list[str]]:
    """Start on the remaining files, and wait for the end of all transactions; return the committed values."""
    await broker.start()
    until = world.virtual_s + SETTLED_S
    found = dict[TopicPartition, list[str]]()
    async with world.client() as client:
        while (open_ids := _open(broker)) and world.virtual_s < until:
            await asyncio.sleep(0.1)
        assert not open_ids
        for place in PLACES:
            log = broker.served.logs.logs[place]
            assert log.last_stable_offset == log.log_end_offset
            sets = await fetch_sets(client, *place, 0, FetchOptions(committed=True))
            found[place] = [
                bytes(record.value or b"").decode()
                for columns in records_of(sets, 0, options=FetchOptions(committed=True))
                for record in columns
            ]
        await _producer(client).begin()  # the next one can begin
    return found


def _open(broker: SimulatedBroker) -> list[str]:
    coordinator = broker.served.transactions.coordinator
    if not all(coordinator.terms.is_active(each) for each in coordinator.terms) or not coordinator.terms:
        return ["the log of the coordinator is loaded"]
    unstable = [
        str(key) for key, log in broker.served.logs.logs.items() if log.producers.first_unstable_offset(1 << 62)
    ]
    unfinished = [key for key, each in coordinator.transactions.items() if each.state not in IDLE or each.pending]
    return unstable + unfinished


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("policy", ["kafka", "group-commit"])
def test_each_prefix_of_the_end_of_a_transaction_is_completed(policy: str, commits: bool) -> None:
    copy = SimulatedDisk.after_a_kill if policy == "kafka" else SimulatedDisk.after_a_cut
    with World(11, settings={**SETTINGS, "log.flush.policy": policy}) as world:
        broker = world.broker(1)

        async def history() -> list[tuple[str, dict[TopicPartition, list[str]]]]:
            outcomes = []
            for path, disk in await _ended(world, broker, commits=commits, copy=copy):
                broker.kill()
                broker.disk = disk
                outcomes.append((path, await _settled(world, broker)))
            return outcomes

        outcomes = world.run(history())
    folders = [path.rsplit("/", 2)[-2] if path else "" for path, _ in outcomes]
    assert folders[:2] == ["", f"{STATE_TOPIC}-0"]
    assert sorted(folders[2:5]) == list(map(str, PLACES))
    assert folders[5:] == [f"{STATE_TOPIC}-0"]
    nothing: dict[TopicPartition, list[str]] = {place: [] for place in PLACES}
    assert outcomes[0][1] == nothing, "without a decision the transaction times out"
    for path, values in outcomes[1 if policy == "kafka" else 2 :]:
        assert values == (VALUES if commits else nothing), path
    if policy == "group-commit":  # the decision may not be durable yet
        assert outcomes[1][1] in ((VALUES, nothing) if commits else (nothing,))
