"""Histories of transactions in a cluster under faults, each from one seed, and what must hold after them.

Brokers and controller are the product's own code in a `World`; the producers are `TransactionalClient`s. Writers send
to the input partitions in transactions, of which some abort, time out, or are left behind by a crash; transformers
read an input partition as committed, and send what they read to the output partitions together with their group's
offset. Each has a transactional id, under which the next one may begin while the one before still runs: a zombie.
Faults come at any time, and at steps of transactions. At the end everything is healed, the rest is transformed,
and then

* every partition, those of the coordinators' topics, too, is the same at all of its replicas;
* every transaction has ended: the last stable offset is the end of each partition, and each id is idle;
* what clients saw is sound by `testing/checker`: nothing aborted or open was read, nothing committed is lost, torn, or
  there twice;
* each committed record of the input was transformed once, and the group's offsets are at the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import NamedTuple

from magicbyte.access.client import Client
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.fetch import FetchOptions, fetch_sets, records_of
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.scan import scan
from magicbyte.engine.transactions.rules import IDLE
from magicbyte.server.stores.znodes.layout import load_state, state_path
from magicbyte.testing.checker import Polled
from magicbyte.testing.checker.recorder import Pending
from magicbyte.testing.world import SimulatedBroker
from simulation.cluster_faults import HEALED_WITHIN_S, TOPIC, ClusterUnderFaults, UnsoundError
from simulation.transactional_client import (
    GROUP_FAULTS,
    NO_MEMBER,
    Membership,
    RefusedError,
    TransactionalClient,
    UnclearError,
)

COORDINATORS = {STATE_TOPIC: 3, OFFSETS_TOPIC: 2}
Work = Callable[[Pending, list[int]], Awaitable[None]]
"""What is done in a transaction. It notes what it does, and the offsets of what it sends."""
Live = Callable[[str, TransactionalClient], Awaitable[None]]
"""What a client does, from its first epoch to its end. The first argument is its process."""
INPUTS, OUTPUTS = [TopicPartition(TOPIC, each) for each in (0, 1)], [TopicPartition(TOPIC, each) for each in (2, 3)]
COMMITTED = FetchOptions(max_wait_ms=100, committed=True)
DRAINED_WITHIN_S = 180
RELEASE = "4.1"
"""Which has protocol 2 of transactions."""
PROTOCOLS = {1: ("0.11.0", "1.1", "2.4", "2.8"), 2: ("2.8",)}
"""Of brokers among each other, by the protocol of transactions: each has its own way to truncate a follower's log."""


class Fetched(NamedTuple):
    records: list[tuple[int, str]]
    next_offset: int
    last_stable_offset: int


class TransactionHistory(ClusterUnderFaults):
    """One history, of at least so many transactions and client operations, in one of both protocols of transactions.

    `resends`: requests that clients send again when they are not answered, as Kafka's do, rather than
    get a new epoch. Then nothing goes wrong but that these are late: more is not needed to show what that leads to.
    `verifies`: leaders ask whether their partition is in a transaction of protocol 1. `brokers`: in the cluster; one
    alone has no followers, so such a history costs a third.
    """

    def __init__(
        self,
        seed: int,
        *,
        transactions: int = 100,
        operations: int = 0,
        protocol: str | None = None,
        transaction_protocol: int = 1,
        resends: tuple[str, ...] = (),
        verifies: bool = True,
        brokers: int = 3,
    ) -> None:
        settings = {
            "transaction.state.log.replication.factor": str(brokers),
            "transaction.state.log.min.isr": str(min(brokers, 2)),
            "offsets.topic.replication.factor": str(brokers),
            "transaction.state.log.num.partitions": str(COORDINATORS[STATE_TOPIC]),
            "offsets.topic.num.partitions": str(COORDINATORS[OFFSETS_TOPIC]),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
            "transaction.partition.verification.enable": str(verifies).lower(),
        }
        if transaction_protocol == 2:
            settings["as.version"] = RELEASE
        drawn = protocol or Random(f"{seed} protocol").choice(PROTOCOLS[transaction_protocol])
        places = len(INPUTS) + len(OUTPUTS)
        super().__init__(seed, partitions=places, brokers=brokers, protocol=drawn, settings=settings)
        self.transactions, self.operations, self.resends = transactions, operations, resends
        self.transaction_protocol = transaction_protocol
        self.timeout_ms = self.random.choice([3000, 6000, 15_000])
        self.outcomes = Counter[str]()
        self._aims = 0.3 if resends else self.random.choice([0.005, 0.02, 0.04])
        self._is_draining = False
        self._zombies, self._aimed = list[asyncio.Task[bool]](), list[asyncio.Task[None]]()
        self._lives = count(1)

    async def _run(self) -> None:
        await self._start_all()
        roles = [asyncio.create_task(self._keep(f"writer-{each}", self._write)) for each in range(2)]
        roles += [asyncio.create_task(self._keep(role, live)) for role, live in self._transformers().items()]
        readers = [asyncio.create_task(self._read(f"reader-{each}")) for each in range(2)]
        faults = [] if self.resends else [asyncio.create_task(self._fail())]
        await asyncio.gather(*roles)
        self._is_over = True
        await asyncio.gather(*faults, *self._aimed, *readers)
        await self._heal()
        await self._drain()
        await self._heal()
        await self._judge()

    def _transformers(self) -> dict[str, Live]:
        """Return who transforms the inputs, by role."""
        return {f"transformer-{place.partition}": self._transformer(place) for place in INPUTS}

    # ---- lives of clients

    async def _keep(self, role: str, live: Live) -> None:
        """Let one client after the other live, until enough is done. Some crash, others continue as zombies."""
        while not self._is_enough():
            task = asyncio.create_task(self._live(role, live))
            await asyncio.wait([task], timeout=self.random.uniform(3, 40))
            if not task.done() and self.random.random() < 0.5 and not self._is_enough():
                self._note(f"zombie of {role.partition('-')[0]}")
                self._zombies.append(task)
            else:
                if not task.done():
                    self._note(f"crash of {role.partition('-')[0]}")
                await _ended(task)
            await asyncio.sleep(self.random.uniform(0, 1))
        for each in self._zombies:
            await _ended(each)

    def _transactional_id(self, role: str, _process: str) -> str:
        return role

    async def _live(self, role: str, live: Live) -> bool:
        """Live once; return whether the client came to its end, and was not refused before."""
        process = f"{role}.{next(self._lives)}"
        async with self._client(process) as client:
            producer = self._producer(client, self._transactional_id(role, process), self.timeout_ms, process)
            with suppress(RefusedError):
                await producer.begin()
                await live(process, producer)
                return True
        return False

    def _producer(self, client: Client, name: str, timeout_ms: int, process: str) -> TransactionalClient:
        return TransactionalClient(
            client,
            name,
            timeout_ms,
            protocol=self.transaction_protocol,
            resends=self.resends,
            phase=self._phase(process),
        )

    def _is_enough(self) -> bool:
        return sum(self.outcomes.values()) >= self.transactions and len(self.recorder.history) >= self.operations

    async def _transact(self, process: str, producer: TransactionalClient, work: Work, *, commits: bool) -> bool:
        """Do a transaction, and initialize again if its outcome is unknown; return whether it was committed."""
        decides, outcome, offsets = False, "left", list[int]()
        with self.recorder.transaction(process) as pending:
            try:
                await work(pending, offsets)
                decides = commits
                await producer.end(commit=commits)
                outcome = "committed" if commits else "aborted"
            except UnclearError:
                outcome = "unclear" if decides else "given up"
            except RefusedError as error:
                if error.code in GROUP_FAULTS:
                    outcome = "given up"
                else:
                    outcome = "unclear" if decides and not error.certain else "refused"
                    raise
            finally:
                if outcome == "left" and decides:
                    outcome = "unclear"
                if outcome == "committed":
                    pending.ok(*offsets)
                elif outcome != "unclear":
                    pending.fail()
                self.outcomes[outcome] += 1
        if outcome in ("unclear", "given up"):
            await producer.begin(keeps=self.random.random() < 0.3)
        return outcome == "committed"

    async def _write(self, process: str, producer: TransactionalClient) -> None:
        """Send to the inputs, a few batches in each transaction."""
        for number in count():
            if self._is_enough():
                return
            await self._transact(
                process, producer, self._batches(f"{process} {number}", producer), commits=self.random.random() < 0.7
            )
            await asyncio.sleep(self.random.uniform(0, 1))

    def _batches(self, name: str, producer: TransactionalClient) -> Work:
        async def work(pending: Pending, offsets: list[int]) -> None:
            places, values = [self.random.choice(INPUTS) for _ in range(self.random.randint(1, 4))], count()
            if self.random.random() < 0.5:
                await producer.add(dict.fromkeys(places))
                added = set(places)
            else:
                added = set()
            for place in places:
                if place not in added:
                    await producer.add([place])
                    added.add(place)
                batch = [f"{name}.{next(values)}" for _ in range(self.random.randint(1, 3))]
                offsets += await self._send(pending, producer, place, batch)
            if self.random.random() < 0.05:
                await asyncio.sleep(self.random.uniform(0, 1.5) * self.timeout_ms / 1000)

        return work

    async def _send(
        self, pending: Pending, producer: TransactionalClient, place: TopicPartition, values: list[str]
    ) -> range:
        """Send a batch; return its offsets."""
        for each in values:
            pending.send(str(place), each)
        first = await producer.send(place, values, patience=self.random.choice([0, 2, 5]))
        return range(first, first + len(values))

    def _transformer(self, place: TopicPartition) -> Live:
        async def live(process: str, producer: TransactionalClient) -> None:
            """Send on what there is in an input, each record once."""
            self.recorder.assign(process, [str(place)]).ok()
            position = await producer.committed(place, stable=self.random.random() < 0.5)
            pair, is_anew = producer.pair, False
            for number in count():
                if not self._is_draining and self._is_enough():
                    return
                found = await self._fetched(producer.client, place, position)
                if found is None or not found.records:
                    position = position if found is None else found.next_offset
                    if self._is_draining and position >= self._end(place):
                        return
                    await asyncio.sleep(self.random.uniform(0.1, 0.5))
                    continue
                records = found.records[: self.random.randint(1, 6)]
                behind, name = records[-1][0] + 1, f"{process} {number}"
                is_anew = is_anew or pair != producer.pair
                work = self._transforms(name, producer, place, records, behind, is_anew=is_anew)
                pair, is_anew = producer.pair, False
                commits = self.random.random() < 0.85
                if await self._transact(process, producer, work, commits=commits):
                    position = behind
                else:  # another life may have committed since, if this is a zombie
                    position, is_anew = await producer.committed(place, stable=self.random.random() < 0.5), True

        return live

    def _transforms(
        self,
        name: str,
        producer: TransactionalClient,
        source: TopicPartition,
        records: list[tuple[int, str]],
        behind: int,
        *,
        is_anew: bool,
        member: Membership = NO_MEMBER,
    ) -> Work:
        async def work(pending: Pending, offsets: list[int]) -> None:
            if is_anew:  # another life may have continued since the last transaction of this one
                pending.repositioned([str(source)])
            pending.polled({str(source): records})
            by_target: dict[TopicPartition, list[str]] = {}
            for offset, _ in records:
                made = f"{name}: {source}@{offset}"
                by_target.setdefault(self.random.choice(OUTPUTS), []).append(made)
            offsets_first = self.random.random() < 0.3
            if offsets_first:
                await producer.commit_offsets({source: behind}, member)
            await producer.add(by_target)
            for target, values in by_target.items():
                offsets += await self._send(pending, producer, target, values)
            if not offsets_first:
                await producer.commit_offsets({source: behind}, member)

        return work

    async def _fetched(self, client: Client, place: TopicPartition, position: int) -> Fetched | None:
        """Return the committed records from a position on; None without an answer."""
        try:
            found = await fetch_sets(client, *place, position, COMMITTED)
        except MagicbyteError:
            client.forget(place.topic)
            return None
        records = [
            (record.offset, bytes(record.value or b"").decode())
            for columns in records_of(found, position, options=COMMITTED)
            for record in columns
        ]
        return Fetched(records, found.next_offset, found.last_stable_offset)

    async def _read(self, process: str) -> None:
        """Poll all partitions in turn, as committed."""
        positions = dict.fromkeys([*INPUTS, *OUTPUTS], 0)
        self.recorder.assign(process, [str(each) for each in positions]).ok()
        async with self._client(process) as client:
            while not self._is_over:
                for place in positions:
                    await self._poll(client, process, place, positions)
                await asyncio.sleep(self.random.uniform(0.2, 1))

    async def _poll(
        self, client: Client, process: str, place: TopicPartition, positions: dict[TopicPartition, int]
    ) -> bool:
        """Poll once; return whether the last stable offset was reached."""
        with self.recorder.poll(process) as pending:
            found = await self._fetched(client, place, positions[place])
            if found is None:
                return False
            pending.polled({str(place): found.records})
            pending.ok()
        positions[place] = found.next_offset
        return found.next_offset >= found.last_stable_offset

    # ---- faults

    def _phase(self, process: str) -> Callable[[str, BrokerNode], Awaitable[None]]:
        async def phase(what: str, node: BrokerNode) -> None:
            """Perhaps let something go wrong just when a request is on its way."""
            if self._is_over or (self.resends and what not in self.resends) or self.random.random() >= self._aims:
                return
            broker = self.brokers[node.id]
            delay_s = self.random.choice([0, 0.002, 0.02])
            kinds = [self._down, self._down, self._pause, self._expire, self._lose_answers, self._delay_requests]
            kind = self._delay_requests if self.resends else self.random.choice(kinds)
            if kind in (self._lose_answers, self._delay_requests):
                await kind(broker, process)
            else:
                self._aimed.append(asyncio.create_task(_later(delay_s, kind, broker)))
            self.faults[f"aimed at {what}"] += 1

        return phase

    async def _lose_answers(self, broker: SimulatedBroker, process: str) -> None:
        """Let a client's requests arrive, and no answer."""
        self._note("answers are lost", broker, process)
        self.world.network.cut(broker.name, process, one_way=True)
        self._aimed.append(asyncio.create_task(self._heal_later(broker, process)))

    async def _delay_requests(self, broker: SimulatedBroker, process: str) -> None:
        """Let a client's requests arrive late: after those that it sends again."""
        self._note("requests are late", broker, process)
        self.world.network.delay(process, broker.name, self.random.choice([1000, 6000, 9000]))
        self._aimed.append(asyncio.create_task(self._heal_later(broker, process)))

    async def _heal_later(self, broker: SimulatedBroker, process: str) -> None:
        await self._for_a_while(4)
        self.world.network.delay(process, broker.name, 0)
        self.world.network.heal(broker.name, process)

    def _states(self, broker: SimulatedBroker) -> list[str]:
        """Return where the transactions are that a broker coordinates."""
        if not broker.is_running:
            return ["down"]
        found = set[str]()
        for each in broker.served.transactions.coordinator.transactions.values():
            pending = "" if each.pending is None else f" to {each.pending.label}"
            found.add(f"{each.state.label}{pending}")
        return sorted(found) or ["none"]

    # ---- the end

    async def _drain(self) -> None:
        """Transform the remaining records."""
        self._is_draining = True

        async def to_the_end(role: str, live: Live) -> None:
            while not await self._live(role, live):
                pass

        lives = [to_the_end(role, live) for role, live in self._transformers().items()]
        try:
            async with asyncio.timeout(DRAINED_WITHIN_S):
                await asyncio.gather(*lives)
        except TimeoutError:
            raise UnsoundError(f"not all is transformed within {DRAINED_WITHIN_S} virtual seconds") from None

    def _places(self) -> list[TopicPartition]:
        internal = [TopicPartition(topic, each) for topic, most in COORDINATORS.items() for each in range(most)]
        return super()._places() + [each for each in internal if self.tree.exists(state_path(*each)) is not None]

    def _not_whole(self) -> str | None:
        return self._not_idle() or super()._not_whole()

    def _not_idle(self) -> str | None:
        """Return which transaction has not ended, for its coordinator or in a log."""
        for broker in self.brokers:
            for each in broker.served.transactions.coordinator.transactions.values():
                if each.state not in IDLE or each.pending is not None:
                    return f"{broker.name}: {each}"
        for place in self._places():
            state = load_state("", self.tree.get(state_path(*place)).data)
            if state.leader < 0:
                return f"{place} has no leader"
            known = self.brokers[state.leader].served.logs.logs.get(place)
            if known is not None and known.producers.first_unstable_offset(2**63 - 1) is not None:
                return f"{place}: a transaction is open"
        return None

    def _end(self, place: TopicPartition) -> int:
        """Return where the log of a partition ends, which is the same at all replicas."""
        table = scan(memoryview(self._log(self.brokers[0], place)))
        return int(table.offset[-1]) + int(table.count[-1]) if len(table) else 0

    async def _read_all(self, client: Client, place: TopicPartition, positions: dict[TopicPartition, int]) -> None:
        """Read a partition to the end of its log: a leader that is new lets consumers read less for a moment."""
        end, until = self._end(place), self.world.virtual_s + HEALED_WITHIN_S
        while positions[place] < end:
            if self.world.virtual_s > until:
                raise UnsoundError(f"{place}: offsets {positions[place]} to {end} cannot be read")
            if await self._poll(client, "judge", place, positions):
                await asyncio.sleep(0.1)

    async def _judge(self) -> None:
        async with self.world.client("judge") as client:
            positions = dict.fromkeys([*INPUTS, *OUTPUTS], 0)
            self.recorder.assign("judge", [str(each) for each in positions]).ok()
            for place in positions:
                await self._read_all(client, place, positions)
            producer = self._producer(client, "judge", 1000, "judge")
            committed = {place: await producer.committed(place, stable=True) for place in INPUTS}
        self._check()
        read: dict[str, list[tuple[int, str]]] = {str(place): [] for place in positions}
        for operation in self.recorder.history:
            for step in operation.steps if operation.process == "judge" else ():
                assert isinstance(step, Polled), "a poll"
                for name, records in step.records.items():
                    read[name] += [(offset, str(value)) for offset, value in records]
        wanted = Counter(f"{place}@{offset}" for place in INPUTS for offset, _ in read[str(place)])
        made = Counter(value.rpartition(": ")[2] for place in OUTPUTS for _, value in read[str(place)])
        if made != wanted:
            raise UnsoundError(f"not transformed: {wanted - made}; more often than once: {made - wanted}")
        for place, offset in committed.items():
            if offset != (behind := max((each + 1 for each, _ in read[str(place)]), default=0)):
                raise UnsoundError(f"the group is at {offset} of {place}, and has transformed all up to {behind}")


async def _ended(task: asyncio.Task[bool]) -> None:
    """End a client, as a crash does: what it has sent is on its way."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _later(delay_s: float, fault: Callable[[SimulatedBroker], Awaitable[None]], broker: SimulatedBroker) -> None:
    await asyncio.sleep(delay_s)
    await fault(broker)
