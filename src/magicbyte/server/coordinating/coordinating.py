"""The broker side of a coordinator: the partitions of its topic, its timer, and its log.

This is the common part of groups (`groups.py`) and transactional ids (`transactions.py`). Decisions are made in the
rooms `groups/` and `transactions/`.

Invariants:
1. A partition is served only in a term: from `elected`, after its log was loaded, to `resigned`. Orders of an earlier
   leader epoch are ignored.
2. A load and an append belong to the term in which they began, and have no effect in another one.
3. Effects are performed at once, in order, on the event loop; the decider is called only there, so nothing is locked.
4. A log is loaded with `logs_lock` shared: no segment is replaced while it is read. Loads run one after the other.

A log that cannot be read fails its term: its content is unknown, and must not seem empty. A lack of descriptors is
retried. `test_group_moves.py`, `test_transaction_moves.py` and `test_transaction_stores.py` have these.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

from magicbyte.engine.coordination.effects import Caller
from magicbyte.engine.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    ErrorCode,
    LogDirectoryError,
    OutOfDescriptorsError,
    TopicExistsError,
)
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.records.encode import Format
from magicbyte.server.coordinating.coordinator_log import CoordinatorLog, S, StoreRules
from magicbyte.server.partitions.partition import NO_EPOCH
from magicbyte.server.serving.metrics import now_ns

if TYPE_CHECKING:
    from typing import Any

    from magicbyte.engine.coordination.terms import CoordinatorTerms
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.request import Request
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.topic_table import ServedTopic, TopicTable

log = logger(__name__)

READ_BYTES: Final = 4 << 20  # of a partition's log per read, when it is loaded
_LOAD_AGAIN_S: Final = 1.0  # before a log is read again that lacked descriptors

E = TypeVar("E")
L = TypeVar("L")
T = TypeVar("T")
S_contra = TypeVar("S_contra", contravariant=True)
E_co = TypeVar("E_co", covariant=True)


class Decider(Protocol[S_contra, E_co]):
    """A sans-IO coordinator."""

    terms: CoordinatorTerms
    closed: bool

    def load_failed(self, partition: int, term: int) -> None:
        """Give up a partition whose log cannot be read."""

    def next_ms(self) -> int | None:
        """Return the latest time to call `due`."""

    def due(self, now: Moment) -> Sequence[E_co]:
        """Process deadlines."""

    def stored(self, store: S_contra, code: ErrorCode, now: Moment) -> Sequence[E_co]:
        """Continue after an append."""


class CoordinatorTopic(NamedTuple):
    """The parameters for creating the topic. `replication_factor`: in a cluster."""

    partitions: int
    replication_factor: int
    settings: dict[str, str | None]


class Coordinating(ABC, Generic[S, E, L]):
    """A coordinator for the partitions of `topic` that a broker leads, on its event loop.

    A partition is added by `elected` and removed by `resigned`. Its log is loaded in the background, one after the
    other; until then requests get COORDINATOR_LOAD_IN_PROGRESS. `decider` is the sans-IO coordinator; `what` names its
    content in messages.
    """

    topic: ClassVar[str]
    what: ClassVar[str]
    is_joined: ClassVar[bool]
    """Whether records of several effects may be appended as one set."""
    awaits_commit: ClassVar[bool] = False
    """Whether requests are answered only when all records of an elected partition are on its in-sync replicas."""

    def __init__(self, services: CoordinatorServices, decider: Decider[S, E], expiry_interval_ms: int) -> None:
        self._runtime, self._topics, self._logs, self._replicas, self._appends, self._is_alone = services
        self._decider = decider
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self.log = CoordinatorLog(
            (self.topic, self.what),
            (self._runtime, self._topics, self._replicas, self._appends),
            StoreRules(
                self._encoding,
                self._timeout_ms,
                lambda store: self._decider.terms.is_present(store.partition, store.term),
                self._stored,
            ),
            is_joined=self.is_joined,
        )
        self._leader_epochs: dict[int, int] = {}  # by partition, the latest one known
        self._to_load: dict[int, int] = {}  # terms by partition
        self._loader: asyncio.Task[None] | None = None
        topic = self._topics.get(self.topic)
        if topic is not None and self._is_alone:
            self._elect_alone(topic)
        self._runtime.spawn(self._expire(expiry_interval_ms))

    # ---- implemented by each coordinator

    @abstractmethod
    def _begin(self, partition: int, leader_epoch: int, partitions: int) -> int:
        """Begin a term of a partition, one of `partitions`; return its number."""

    def _go_on(self, partition: int, leader_epoch: int) -> None:
        """Record that a partition which is led already is led in a later epoch."""

    @abstractmethod
    def _end(self, partition: int) -> None:
        """End the term of a partition."""

    @abstractmethod
    def _expire_now(self) -> Sequence[E]:
        """Return the effects of expired items."""

    @staticmethod
    @abstractmethod
    def _read(each: PartitionLog | None) -> L:
        """Load a partition's log, None: one without records. Raises CorruptRecordError."""

    @abstractmethod
    def _loaded(self, partition: int, term: int, found: L) -> None:
        """Install what was loaded from the log of a partition."""

    @abstractmethod
    def _encoding(self, store: S, target: Format, now_ms: int) -> tuple[int, Callable[[], memoryview]]:
        """Return the approximate size of the records, and a function that encodes them. Raises AppendRefusedError."""

    @abstractmethod
    def _timeout_ms(self, store: S) -> int:
        """Return the time to wait for the in-sync replicas."""

    @abstractmethod
    def _plan(self) -> CoordinatorTopic:
        """Return the parameters for creating the topic."""

    @abstractmethod
    def perform(self, effects: Sequence[E]) -> None:
        """Perform effects, and set the timer."""

    # ---- partitions

    def _elect_alone(self, topic: ServedTopic) -> None:
        """Coordinate all partitions: there is no other broker."""
        for partition, leader_epoch in enumerate(topic.leader_epochs):
            self.elected(partition, leader_epoch)

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Coordinate a partition that this broker leads in `leader_epoch`.

        It is loaded first, unless this broker has led it before without interruption. A resignation or a later epoch
        makes the load void.
        """
        if self._is_stale(partition, leader_epoch):
            return
        if self._decider.terms.is_active(partition):
            self._go_on(partition, leader_epoch)
            return
        key = TopicPartition(self.topic, partition)
        term = self._begin(partition, leader_epoch, self._topics.known(self.topic).partitions)
        known = self._logs.logs.get(key)
        if key in self._logs.offline:  # its records are in the offline log
            self._decider.load_failed(partition, term)
        elif known is None or not known.size:
            self._loaded(partition, term, self._read(None))
        elif self.awaits_commit and not self._is_alone and known.high_watermark < known.log_end_offset:
            replica = self._replicas.partitions[self.topic, partition]
            self._runtime.spawn(self._load_committed(replica, term, known.log_end_offset))
        else:
            self._load_soon(partition, term)

    async def _load_committed(self, replica: ServedPartition, term: int, end: int) -> None:
        """Load a partition when its records before `end` are committed. The end of the term ends this as well."""
        partition, is_loading = replica.index, self._decider.terms.is_loading
        await replica.until(lambda: replica.log.high_watermark >= end or not is_loading(partition, term))
        if is_loading(partition, term):
            self._load_soon(partition, term)

    def _load_soon(self, partition: int, term: int) -> None:
        self._to_load[partition] = term
        if self._loader is None:
            self._loader = self._runtime.spawn(self._load_all())

    def resigned(self, partition: int, leader_epoch: int) -> None:
        """Stop coordinating a partition that another broker leads in `leader_epoch`, or that has no leader.

        Waiting requests get NOT_COORDINATOR, and pending appends are dropped.
        """
        if not self._is_stale(partition, leader_epoch):
            self._end(partition)

    def _is_stale(self, partition: int, leader_epoch: int) -> bool:
        """Return whether a later epoch is known; otherwise record this one."""
        if leader_epoch < self._leader_epochs.get(partition, NO_EPOCH):
            return True
        self._leader_epochs[partition] = leader_epoch
        return False

    async def ensure_topic(self) -> ServedTopic:
        """Return the topic, created if needed. Raises as `Topics.create` does."""
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
            with suppress(TopicExistsError):  # another broker created it, and the controller will announce it
                topics.create(self.topic, *plan)
            raise CoordinatorNotAvailableError(f"{self.topic} is being created")
        topic = topics.create(self.topic, plan.partitions, 1, plan.settings)
        # Logs are created on demand; the last one preserves the partition count if the tree is lost.
        topics.log(self.topic, plan.partitions - 1)
        return topic

    def topic_deleted(self, topic: str) -> None:
        """Forget everything, if the deleted topic is the coordinator's own."""
        if topic == self.topic:
            self._leader_epochs.clear()  # a new topic's epochs start again
            for partition in list(self._decider.terms):
                self._end(partition)

    # ---- requests and time

    async def answered(self, request: Request[Any], decide: Callable[[Caller], Sequence[E]]) -> Message:
        """Return the coordinator's response, once it is available."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        caller = Caller(answer, request.version, request.client_id or "", f"/{request.connection.host}")
        self.perform(decide(caller))
        started = now_ns()
        try:
            return await answer
        finally:
            request.connection.waited_ns += now_ns() - started

    def set_timer(self) -> None:
        """Set the timer for the coordinator's next deadline."""
        next_ms = self._decider.next_ms()
        if next_ms == self._timer_ms or self._decider.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, next_ms
        if next_ms is not None:
            delay_ms = max(next_ms - self._runtime.clock.monotonic_ms(), 0)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due)

    def clock_turned(self) -> None:
        """Reset the timer: the event loop has another clock than the one that a test has advanced."""
        self._timer_ms = None
        self.set_timer()

    def _due(self) -> None:
        self._timer = self._timer_ms = None
        self.perform(self._decider.due(Moment.of(self._runtime.clock)))

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _expire(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            self.perform(self._expire_now())

    # ---- the log

    def store(self, store: S) -> None:
        """Append after all pending appends to the same partition."""
        self.log.store(store)

    def _stored(self, store: S, code: ErrorCode) -> None:
        self.perform(self._decider.stored(store, code, Moment.of(self._runtime.clock)))

    async def _load_all(self) -> None:
        """Load the logs of pending partitions. One that cannot be read now is retried later."""
        try:
            while self._to_load:
                partition = next(iter(self._to_load))
                term = self._to_load.pop(partition)
                try:
                    await self._load(partition, term)
                except OutOfDescriptorsError as error:  # transient, and not an error of the log
                    why = "%s-%d is read again later: %s"
                    self._runtime.complaints.line(log, self.topic, "load", why, self.topic, partition, error)
                    self._to_load.setdefault(partition, term)
                    await asyncio.sleep(_LOAD_AGAIN_S)
        finally:
            self._loader = None

    async def _load(self, partition: int, term: int) -> None:
        runtime, key = self._runtime, TopicPartition(self.topic, partition)
        known = self._logs.logs.get(key)
        if known is None or not self._decider.terms.is_loading(partition, term):
            return  # it was resigned
        try:
            await runtime.logs_lock.acquire_shared()  # no segment is replaced while it is read
            try:
                found = await runtime.reading.run(partial(self._read, known))
            finally:
                runtime.logs_lock.release_shared()
            self._loaded(partition, term, found)
        except OutOfDescriptorsError:
            raise
        except Exception as error:
            is_ours = not isinstance(error, CorruptRecordError | LogDirectoryError | OSError)
            if self._decider.terms.is_loading(partition, term):
                log.critical("%s cannot be read, its %s are not served: %s", key, self.what, error, exc_info=is_ours)
                self._decider.load_failed(partition, term)
            elif is_ours:
                log.exception("%s: after the load of %s", key, self.what)


def set_result_if_pending(answer: asyncio.Future[T], value: T) -> None:
    """Set the response of a request, unless the request has been cancelled."""
    if not answer.done():
        answer.set_result(value)


def has_partition(topics: TopicTable, topic: str, partition: int) -> bool:
    """Return whether a topic has a partition, as far as this broker knows."""
    found = topics.get(topic)
    return found is not None and 0 <= partition < found.partitions


class LogLoader(Protocol):
    """A loader of a log, piece by piece."""

    def read(self, data: memoryview) -> int:
        """Read whole entries; return their last offset."""


def read_into(reader: LogLoader, each: PartitionLog) -> None:
    """Feed a partition's log from its start to its end. Raises CorruptRecordError."""
    offset = each.log_start_offset
    while (part := each.read(offset, READ_BYTES)) is not None:
        last = reader.read(memoryview(part.read()))
        if last < offset:
            break
        offset = last + 1


def own_topic(config: BrokerConfig, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of a compacted internal topic, which is never in the enriched format."""
    found: dict[str, str | None] = {"cleanup.policy": "compact", **settings}
    if config.log_message_format_version is Format.ENRICHED:
        found["message.format.version"] = config.plain_format.value
    return found
