"""A coordinator at work: the partitions of its topic, its timer, and the log in which it keeps what it knows.

This is what groups (`groups.py`) and transactional ids (`transactions.py`) have in common. Decisions are made in the
rooms `groups/` and `transactions/`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from magicbyte.broker.appends import Acknowledgement, NewSet
from magicbyte.broker.metrics import now_ns
from magicbyte.broker.partition import NO_EPOCH
from magicbyte.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    ErrorCode,
    LogDirectoryError,
    MagicbyteError,
    NotLeaderError,
    TopicExistsError,
)
from magicbyte.groups.effects import Caller
from magicbyte.ports import Moment, TopicPartition
from magicbyte.printable import logger
from magicbyte.protocol.message import Message
from magicbyte.records.encode import Format

if TYPE_CHECKING:
    from typing import Any

    from magicbyte.broker.appends import Appends
    from magicbyte.broker.config import BrokerConfig
    from magicbyte.broker.replicas import Replicas
    from magicbyte.broker.request import Request
    from magicbyte.broker.runtime import Runtime
    from magicbyte.broker.topic_table import ServedTopic, TopicTable
    from magicbyte.broker.topics import Topics
    from magicbyte.groups.terms import CoordinatorTerms
    from magicbyte.log.live.log_directory import LogDirectory
    from magicbyte.log.live.partition_log import PartitionLog

log = logger(__name__)

READ_BYTES: Final = 4 << 20  # of a partition's log at a time, when it is loaded
_QUICK_BYTES: Final = 64 << 10  # of records that are encoded on the event loop


class Stores(Protocol):
    """What a coordinator wants appended to a partition of its topic, decided in one of its terms."""

    @property
    def partition(self) -> int:
        """The partition."""

    @property
    def term(self) -> int:
        """The term."""


S = TypeVar("S", bound=Stores)
E = TypeVar("E")
L = TypeVar("L")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)


class Decider(Protocol[S_contra, E_co]):
    """A coordinator without IO."""

    terms: CoordinatorTerms
    closed: bool

    def load_failed(self, partition: int, term: int) -> None:
        """Give up a partition whose log cannot be read."""

    def next_ms(self) -> int | None:
        """Return when `due` is to be called at the latest."""

    def due(self, now: Moment) -> Sequence[E_co]:
        """Do what is due."""

    def stored(self, store: S_contra, code: ErrorCode, now: Moment) -> Sequence[E_co]:
        """Go on after an append."""


class CoordinatorTopic(NamedTuple):
    """How a topic of the broker's own is made. `replication_factor`: in a cluster."""

    partitions: int
    replication_factor: int
    settings: dict[str, str | None]


class CoordinatorServices(NamedTuple):
    """What a coordinator uses of its broker. `is_alone`: that is a cluster by itself."""

    runtime: Runtime
    topics: Topics
    logs: LogDirectory
    replicas: Replicas
    appends: Appends
    is_alone: bool


class Coordinating(ABC, Generic[S, E, L]):
    """A coordinator of the partitions of `topic` that a broker leads, on its event loop.

    A partition comes with `elected` and goes with `resigned`. Its log is read in the background, one after the other;
    requests get COORDINATOR_LOAD_IN_PROGRESS until then. `decider` is the coordinator without IO; `what` says what it
    keeps, for messages.
    """

    topic: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, services: CoordinatorServices, decider: Decider[S, E], expiry_interval_ms: int) -> None:
        self._runtime, self._topics, self._logs, self._replicas, self._appends, self._is_alone = services
        self._decider = decider
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._stores: dict[int, deque[S]] = {}
        self._leader_epochs: dict[int, int] = {}  # by partition, the latest that was heard of
        self._to_load: dict[int, int] = {}  # terms by partition
        self._loader: asyncio.Task[None] | None = None
        topic = self._topics.get(self.topic)
        if topic is not None and self._is_alone:
            self._elect_alone(topic)
        self._runtime.spawn(self._expire(expiry_interval_ms))

    # ---- what differs

    @abstractmethod
    def _begin(self, partition: int, leader_epoch: int, partitions: int) -> int:
        """Begin a term of a partition, one of `partitions`; return its number."""

    def _go_on(self, partition: int, leader_epoch: int) -> None:
        """Take in that a partition which is led already is led in a later epoch."""

    @abstractmethod
    def _end(self, partition: int) -> None:
        """End the term of a partition."""

    @abstractmethod
    def _expire_now(self) -> Sequence[E]:
        """Return what is to be done about what nobody has used for long."""

    @staticmethod
    @abstractmethod
    def _read(each: PartitionLog | None) -> L:
        """Return what a partition's log says, None: that of one without records. Raises CorruptRecordError."""

    @abstractmethod
    def _loaded(self, partition: int, term: int, found: L) -> None:
        """Take in what the log of a partition says."""

    @abstractmethod
    def _encoding(self, store: S, target: Format, now_ms: int) -> tuple[int, Callable[[], memoryview]]:
        """Return about how many bytes are to be appended, and what makes them. Raises AppendRefusedError."""

    @abstractmethod
    def _timeout_ms(self, store: S) -> int:
        """Return how long the in-sync replicas are waited for."""

    @abstractmethod
    def _plan(self) -> CoordinatorTopic:
        """Return how the topic is made."""

    @abstractmethod
    def perform(self, effects: Sequence[E]) -> None:
        """Do what the coordinator wants done, and wake it when it wants to be."""

    # ---- partitions

    def _elect_alone(self, topic: ServedTopic) -> None:
        """Coordinate what all partitions have: no other broker does."""
        for partition, leader_epoch in enumerate(topic.leader_epochs):
            self.elected(partition, leader_epoch)

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Coordinate what a partition has that this broker leads in `leader_epoch`.

        That is loaded first, unless this broker has led it before without a break. What overtakes the load, a
        resignation or a later epoch, makes it void.
        """
        if self._is_stale(partition, leader_epoch):
            return
        if self._decider.terms.is_active(partition):
            self._go_on(partition, leader_epoch)
            return
        key = TopicPartition(self.topic, partition)
        term = self._begin(partition, leader_epoch, self._topics.known(self.topic).partitions)
        known = self._logs.logs.get(key)
        if key in self._logs.offline:  # what counts is in there
            self._decider.load_failed(partition, term)
        elif known is None or not known.size:
            self._loaded(partition, term, self._read(None))
        else:
            self._to_load[partition] = term
            if self._loader is None:
                self._loader = self._runtime.spawn(self._load_all())

    def resigned(self, partition: int, leader_epoch: int) -> None:
        """Coordinate what a partition has no more: it is led by nobody or another broker in `leader_epoch`.

        Whoever waits is told NOT_COORDINATOR, and what is still to be appended is not.
        """
        if not self._is_stale(partition, leader_epoch):
            self._end(partition)

    def _is_stale(self, partition: int, leader_epoch: int) -> bool:
        """Whether a later epoch was heard of; else this is the latest now."""
        if leader_epoch < self._leader_epochs.get(partition, NO_EPOCH):
            return True
        self._leader_epochs[partition] = leader_epoch
        return False

    async def found(self) -> ServedTopic:
        """Return the topic, made if need be. Raises what `Topics.create` does."""
        runtime, topics = self._runtime, self._topics
        topic = topics.get(self.topic)
        if topic is None:
            async with runtime.directory:
                topic = topics.get(self.topic)
                if topic is None:
                    topic = await runtime.writing.run(self._make_topic, self._plan())
        if self._is_alone and not self._decider.terms:
            self._elect_alone(topic)
        return topic

    def _make_topic(self, plan: CoordinatorTopic) -> ServedTopic:
        topics = self._topics
        if not self._is_alone:
            with suppress(TopicExistsError):  # another broker made it, and the controller will tell of it
                topics.create(self.topic, *plan)
            raise CoordinatorNotAvailableError(f"{self.topic} is being made")
        topic = topics.create(self.topic, plan.partitions, 1, plan.settings)
        # Logs are made when they are needed; the last one tells how many there are, if the tree is lost.
        topics.log(self.topic, plan.partitions - 1)
        return topic

    def topic_deleted(self, topic: str) -> None:
        """Forget all, if the topic that is gone is the coordinator's own."""
        if topic == self.topic:
            self._leader_epochs.clear()  # those of a topic that is made later begin anew
            for partition in list(self._decider.terms):
                self._end(partition)

    # ---- requests and time

    async def answered(self, request: Request[Any], decide: Callable[[Caller], Sequence[E]]) -> Message:
        """Return the coordinator's answer, as soon as it has one."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        caller = Caller(answer, request.version, request.client_id or "", f"/{request.connection.host}")
        self.perform(decide(caller))
        started = now_ns()
        try:
            return await answer
        finally:
            request.connection.waited_ns += now_ns() - started

    def set_timer(self) -> None:
        """Have the coordinator woken when it wants to be."""
        next_ms = self._decider.next_ms()
        if next_ms == self._timer_ms or self._decider.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, next_ms
        if next_ms is not None:
            delay_ms = max(next_ms - self._runtime.clock.monotonic_ms(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = self._timer_ms = None
        self.perform(self._decider.due(Moment.of(self._runtime.clock)))

    def close(self) -> None:
        """End what the clock asks for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _expire(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            self.perform(self._expire_now())

    # ---- the log

    def store(self, store: S) -> None:
        """Append after all that is to be appended to the same partition already."""
        waiting = self._stores.get(store.partition)
        if waiting is not None:
            waiting.append(store)
            return
        self._stores[store.partition] = deque([store])
        self._runtime.spawn(self._append_all(store.partition))

    async def _append_all(self, partition: int) -> None:
        """Append what is to be stored in a partition, and go on after each append in that order.

        What is waiting by then is appended, too, before the in-sync replicas are waited for.
        """
        waiting, clock = self._stores[partition], self._runtime.clock
        try:
            while waiting:
                appended = [await self._append(waiting[0])]
                while _is_pending(appended[-1]) and len(appended) < len(waiting):
                    appended.append(await self._append(waiting[len(appended)]))
                began_ms = clock.monotonic_ms()
                timeouts = [self._timeout_ms(store) for store, _ in zip(waiting, appended, strict=False)]
                for timeout_ms, run in groupby(zip(timeouts, appended, strict=True), key=itemgetter(0)):
                    left_ms = timeout_ms - (clock.monotonic_ms() - began_ms)
                    for code in await self._outcomes(partition, [each for _, each in run], left_ms):
                        store = waiting.popleft()
                        self.perform(self._decider.stored(store, code, Moment.of(clock)))
        finally:
            del self._stores[partition]

    async def _outcomes(
        self, partition: int, appended: Sequence[Acknowledgement | ErrorCode], timeout_ms: int
    ) -> list[ErrorCode]:
        """Wait until the in-sync replicas have what was appended; return how each append ends."""
        waits = [each for each in appended if isinstance(each, Acknowledgement)]
        codes = await self._appends.replicated(waits, timeout_ms)
        for code in dict.fromkeys(codes):
            if code:
                self._complain(partition, f"the in-sync replicas do not have them: {code.name}")
        acknowledged = iter(codes)
        return [next(acknowledged) if isinstance(each, Acknowledgement) else each for each in appended]

    async def _append(self, store: S) -> Acknowledgement | ErrorCode:
        """Append the records of one effect as one set; return what acknowledges it, or the code of what went wrong."""
        runtime = self._runtime
        try:
            partition = await self._replicas.opened(self.topic, store.partition)
            await runtime.load_numpy()  # to encode with
            topic = self._topics.known(self.topic)
            rules, now_ms = topic.config.append, runtime.clock.now_ms()
            size, encode = self._encoding(store, rules.format, now_ms)
            records = encode() if size <= _QUICK_BYTES else await runtime.writing.run(encode)
            if not self._decider.terms.is_present(store.partition, store.term):
                raise NotLeaderError("another broker has led the partition since they were decided")
            least = partition.least_in_sync(topic.config.min_insync_replicas)
            return Acknowledgement(partition, await self._appends.append(NewSet(partition, records, rules)), least)
        except MagicbyteError as error:
            self._complain(store.partition, str(error))
            return error.code

    def _complain(self, partition: int, why: str) -> None:
        self._runtime.complaints.line(log, self.topic, self.what, "%s-%d: records of %s could not be stored: %s",
                                     self.topic, partition, self.what, why)  # fmt: skip

    async def _load_all(self) -> None:
        """Read the logs of partitions that are to be loaded."""
        try:
            while self._to_load:
                partition = next(iter(self._to_load))
                await self._load(partition, self._to_load.pop(partition))
        finally:
            self._loader = None

    async def _load(self, partition: int, term: int) -> None:
        runtime, key = self._runtime, TopicPartition(self.topic, partition)
        known = self._logs.logs.get(key)
        if known is None or not self._decider.terms.is_loading(partition, term):
            return  # it was resigned
        try:
            await runtime.logs_lock.acquire_shared()  # no segment is exchanged while it is read
            try:
                found = await runtime.reading.run(partial(self._read, known))
            finally:
                runtime.logs_lock.release_shared()
        except (CorruptRecordError, LogDirectoryError, OSError) as error:
            if self._decider.terms.is_loading(partition, term):
                log.critical("%s cannot be read, its %s are not served: %s", key, self.what, error)
                self._decider.load_failed(partition, term)
            return
        self._loaded(partition, term, found)


def give(answer: asyncio.Future[T], value: T) -> None:
    """Give whoever asked an answer, unless it has gone."""
    if not answer.done():
        answer.set_result(value)


def has_partition(topics: TopicTable, topic: str, partition: int) -> bool:
    """Return whether a topic, as far as is known, has a partition."""
    found = topics.get(topic)
    return found is not None and 0 <= partition < found.partitions


class LogLoader(Protocol):
    """Takes in a log, piece by piece."""

    def read(self, data: memoryview) -> int:
        """Take in whole entries; return their last offset."""


def read_into(reader: LogLoader, each: PartitionLog) -> None:
    """Have a partition's log read from its start to its end. Raises CorruptRecordError."""
    offset = each.log_start_offset
    while (part := each.read(offset, READ_BYTES)) is not None:
        last = reader.read(memoryview(part.read()))
        if last < offset:
            break
        offset = last + 1


def _is_pending(appended: Acknowledgement | ErrorCode) -> bool:
    """Whether the in-sync replicas have to be waited for."""
    return isinstance(appended, Acknowledgement) and appended.code() is None


def own_topic(config: BrokerConfig, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of a compacted topic of the broker's own, which is never in the enriched format."""
    found: dict[str, str | None] = {"cleanup.policy": "compact", **settings}
    if config.log_message_format_version is Format.ENRICHED:
        found["message.format.version"] = config.plain_format.value
    return found
