"""The service side of a coordinator: the partitions of its topic, its requests, its timer, and its log.

It is the same for all. The decisions of a coordinator are in its `Decider` (`engine/coordination/`), the properties of
its topic in its `CoordinatorKind`.

Invariants:
1. A partition is served only in a term: from `elected`, after its log was loaded, to `resigned`. Orders of an earlier
   leader epoch are ignored.
2. A load and an append belong to the term in which they began, and have no effect in another one.
3. Effects are performed at once, in order, on the event loop; the decider is called only there, so nothing is locked.
   Long work lets others run at its `Steps`, where all its effects until then are performed.
4. A log is loaded with `logs_lock` shared: no segment is replaced while it is read. Loads run one after the other.

A log that cannot be read fails its term: its content is unknown, and must not seem empty. A lack of descriptors is
retried. `test_kit.py`, `test_group_moves.py`, `test_transaction_moves.py` and `test_transaction_stores.py` have these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.decider import Decider, Work
from magicbyte.engine.coordination.effects import Caller, Reply, Steps, Store, Tell
from magicbyte.engine.coordination.replay import Replay
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
from magicbyte.server.coordinating.coordinator_log import CoordinatorLog, StoreRules
from magicbyte.server.serving.metrics import now_ns
from magicbyte.server.serving.turns import Turns

if TYPE_CHECKING:
    from typing import Any

    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.serving.request import Request
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.topics import ServedTopic, Topics

log = logger(__name__)

READ_BYTES: Final = 4 << 20  # of a partition's log per read, when it is loaded
_NEVER: Final = 1 << 63
_LOAD_AGAIN_S: Final = 1.0  # before a log is read again that lacked descriptors

C = TypeVar("C")
D = TypeVar("D", bound="Decider[Any, Any, Any]")
T = TypeVar("T")


class CoordinatorTopic(NamedTuple):
    """The parameters for creating the topic."""

    partitions: int
    replication_factor: int
    settings: dict[str, str | None]


class CoordinatorKind(NamedTuple, Generic[C]):
    """The topic and the log of a coordinator.

    `content` is a name of its content, for messages. `plan` returns the parameters for creating the topic. `replay`
    reads a partition's log. `timeout_ms`: the time to wait for the in-sync replicas of an append that has none of its
    own. `is_joined`: whether the batches of several effects may be appended as one set. `awaits_commit`: whether an
    elected partition is loaded only when all its records are on its in-sync replicas.
    """

    topic: str
    content: str
    plan: Callable[[], CoordinatorTopic]
    replay: Callable[[], Replay[C]]
    timeout_ms: int
    expiry_interval_ms: int
    codec: Codec = Codec.NONE
    is_joined: bool = False
    awaits_commit: bool = False


class Coordinating(Generic[D]):
    """A coordinator for the partitions of its topic that a broker leads, on its event loop.

    A partition is added by `elected` and removed by `resigned`. Its log is loaded in the background, one after the
    other; until then requests get COORDINATOR_LOAD_IN_PROGRESS. `coordinator` decides. `performs` has a function for
    each kind of effect of its own, by class.
    """

    def __init__(
        self,
        services: CoordinatorServices,
        kind: CoordinatorKind[Any],
        coordinator: D,
        performs: Mapping[type[Any], Callable[[Any], None]] | None = None,
    ) -> None:
        self._runtime, self._topics, self._logs = services.runtime, services.topics, services.logs
        self._replicas, self._led_at_once = services.replicas, services.led_at_once
        self.kind, self.coordinator, self._performs = kind, coordinator, performs or {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self.log = CoordinatorLog(
            (kind.topic, kind.content),
            (services.runtime, services.topics, services.replicas, services.appends),
            StoreRules(
                kind.codec,
                kind.timeout_ms,
                lambda store: self.coordinator.terms.is_present(store.partition, store.term),
                self._stored,
            ),
            is_joined=kind.is_joined,
        )
        self._to_load: dict[int, int] = {}  # terms by partition
        self._loader: asyncio.Task[None] | None = None
        topic = self._topics.get(kind.topic)
        if topic is not None:
            self._elect_at_once(topic)
        self._runtime.spawn(self._expire(kind.expiry_interval_ms))

    # ---- partitions

    def _elect_at_once(self, topic: ServedTopic) -> None:
        """Coordinate the partitions that this broker leads without an order of a controller."""
        for partition, leader_epoch in self._led_at_once(topic):
            self.elected(partition, leader_epoch)

    def elected(self, partition: int, leader_epoch: int) -> None:
        """Coordinate a partition that this broker leads in `leader_epoch`.

        It is loaded first, unless this broker has led it before without interruption. A resignation or a later epoch
        makes the load void.
        """
        decider, topic = self.coordinator, self.kind.topic
        if decider.terms.is_stale(partition, leader_epoch):
            return
        if decider.terms.is_active(partition):
            decider.terms.continue_term(partition, leader_epoch)
            return
        key = TopicPartition(topic, partition)
        decider.partitions = self._topics.known(topic).partitions
        term = decider.begin_loading(partition, leader_epoch)
        known = self._logs.logs.get(key)
        if key in self._logs.offline:  # its records are in the offline log
            decider.load_failed(partition, term)
        elif known is None or not known.size:
            self._loaded(partition, term, self.kind.replay().finish())
        elif self.kind.awaits_commit and known.high_watermark < known.log_end_offset:
            self._runtime.spawn(self._load_committed(partition, term, known.log_end_offset))
        else:
            self._load_soon(partition, term)

    def _loaded(self, partition: int, term: int, content: object) -> None:
        self.perform(self.coordinator.loaded(partition, term, content, Moment.of(self._runtime.clock)))

    async def _load_committed(self, partition: int, term: int, end: int) -> None:
        """Load a partition when its records before `end` are committed. The end of the term ends this as well."""
        is_loading = self.coordinator.terms.is_loading
        replica = await self._replicas.known_partition(self.kind.topic, partition)
        if replica is not None:  # otherwise it was deleted, and the term has ended
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
        if not self.coordinator.terms.is_stale(partition, leader_epoch):
            self.perform(self.coordinator.resign(partition))

    def suspend(self) -> None:
        """Stop coordinating all partitions until a controller orders it again: others may coordinate them by now."""
        for partition in list(self.coordinator.terms):
            self.perform(self.coordinator.resign(partition))

    async def ensure_topic(self) -> ServedTopic:
        """Return the topic, created if needed. Raises as `Topics.create` does."""
        runtime, topics = self._runtime, self._topics
        topic = topics.get(self.kind.topic)
        if topic is None:
            async with runtime.directory:
                topic = topics.get(self.kind.topic)
                if topic is None:
                    topic = await self._make_topic(self.kind.plan())
        if not self.coordinator.terms:
            self._elect_at_once(topic)
        return topic

    async def _make_topic(self, plan: CoordinatorTopic) -> ServedTopic:
        topics, name = self._topics, self.kind.topic
        with suppress(TopicExistsError):  # another broker created it, and the controller will announce it
            await topics.create(name, *plan)
        topic = topics.get(name)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{name} is being created")
        if led := dict(self._led_at_once(topic)):
            # Logs are created on demand; the last one preserves the partition count if the tree is lost.
            await self._runtime.writing.run(topics.log, name, max(led))
        return topic

    def topic_deleted(self, topic: str) -> None:
        """Forget everything, if the deleted topic is the coordinator's own."""
        if topic == self.kind.topic:
            self.coordinator.terms.forget_epochs()
            for partition in list(self.coordinator.terms):
                self.perform(self.coordinator.resign(partition))

    # ---- requests and time

    async def ask(self, request: Request[Any], may_describe: Callable[[str], bool] | None = None) -> Message:
        """Return the coordinator's response to a request, once it is available. `may_describe`: as in `Caller`."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection = request.connection
        caller = Caller(answer, request.version, request.client_id or "", f"/{connection.host}", may_describe)
        work = self.coordinator.answer(caller, request.message, Moment.of(self._runtime.clock))
        if isinstance(work, list):  # nearly always
            self.perform(work)
        else:
            await self._perform_in_turns(work, request.turns)
        started = now_ns()
        try:
            reply = await answer
        finally:
            connection.waited_ns += now_ns() - started
        if reply.steps:
            await request.turns.take(reply.steps)
        return reply.message

    async def call(self, message: Message, version: int) -> Message:
        """Return the coordinator's response to a request of this broker itself, once it is available."""
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        work = self.coordinator.answer(Caller(answer, version), message, Moment.of(self._runtime.clock))
        await self._perform_in_turns(work, Turns())
        return (await answer).message

    async def _perform_in_turns(self, work: Work[Any], turns: Turns) -> None:
        """Perform effects; others have a turn where the work is long."""
        for effect in work:
            if isinstance(effect, Steps):
                await turns.take(effect.done)
            else:
                self.perform((effect,))
        self.set_timer()

    def perform(self, effects: Iterable[Any]) -> None:
        """Perform effects, and set the timer."""
        for effect in effects:
            match effect:
                case Reply(to=Caller(ticket=asyncio.Future() as answer)):
                    set_result_if_pending(answer, effect)
                case Store():
                    self.log.store(effect)
                case Tell(ticket=asyncio.Future() as answer, code=code):
                    set_result_if_pending(answer, code)
                case _:
                    self._performs[type(effect)](effect)
        self.set_timer()

    def set_timer(self) -> None:
        """Set the timer for the coordinator's next deadline, unless it is set for that time or an earlier one.

        A timer that is too early sets itself again: most deadlines are cancelled, and setting it costs more than that.
        """
        next_ms = self.coordinator.next_ms()
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms) or self.coordinator.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        delay_ms = max(next_ms - self._runtime.clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._due)

    def clock_turned(self) -> None:
        """Reset the timer: the event loop has another clock than the one that a test has advanced."""
        self._timer_ms = _NEVER
        self.set_timer()

    def _due(self) -> None:
        self._timer = None
        self.perform(self.coordinator.due(Moment.of(self._runtime.clock)))

    def close(self) -> None:
        """Answer waiting requests; later ones are refused."""
        self.perform(self.coordinator.close())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _expire(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self._perform_in_turns(self.coordinator.expire(self._runtime.clock.now_ms()), Turns())

    # ---- the log

    def _stored(self, store: Store[Any], code: ErrorCode) -> None:
        self.perform(self.coordinator.stored(store, code, Moment.of(self._runtime.clock)))

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
                    self._runtime.complaints.line(log, self.kind.topic, "load", why, self.kind.topic, partition, error)
                    self._to_load.setdefault(partition, term)
                    await asyncio.sleep(_LOAD_AGAIN_S)
        finally:
            self._loader = None

    async def _load(self, partition: int, term: int) -> None:
        runtime, key = self._runtime, TopicPartition(self.kind.topic, partition)
        known = self._logs.logs.get(key)
        if known is None or not self.coordinator.terms.is_loading(partition, term):
            return  # it was resigned
        try:
            await runtime.logs_lock.acquire_shared()  # no segment is replaced while it is read
            try:
                content = await runtime.reading.run(partial(self._read, known))
            finally:
                runtime.logs_lock.release_shared()
            self._loaded(partition, term, content)
        except OutOfDescriptorsError:
            raise
        except Exception as error:
            is_ours = not isinstance(error, CorruptRecordError | LogDirectoryError | OSError)
            if self.coordinator.terms.is_loading(partition, term):
                log.critical(
                    "%s cannot be read, its %s are not served: %s", key, self.kind.content, error, exc_info=is_ours
                )
                self.coordinator.load_failed(partition, term)
            elif is_ours:
                log.exception("%s: after the load of %s", key, self.kind.content)

    def _read(self, partition: PartitionLog) -> object:
        """Load a partition's log, in a thread. Raises CorruptRecordError."""
        return read_log(self.kind.replay(), partition)


def set_result_if_pending(answer: asyncio.Future[T], value: T) -> None:
    """Set the response of a request, unless the request has been cancelled."""
    if not answer.done():
        answer.set_result(value)


def has_partition(topics: Topics, topic: str, partition: int) -> bool:
    """Return whether a topic has a partition, as far as this broker knows."""
    return 0 <= partition < topics.partition_count(topic)


def read_log(replay: Replay[C], partition: PartitionLog) -> C:
    """Return the content of a partition's log. Raises CorruptRecordError."""
    offset = partition.log_start_offset
    while (part := partition.read(offset, READ_BYTES)) is not None:
        last = replay.read(memoryview(part.read()))
        if last < offset:
            break
        offset = last + 1
    return replay.finish()


def own_topic(
    config: BrokerConfig, partitions: int, replication_factor: int, settings: Mapping[str, str]
) -> CoordinatorTopic:
    """Return the parameters of a compacted internal topic, which is never in the enriched format."""
    found: dict[str, str | None] = {"cleanup.policy": "compact", **settings}
    if config.log_message_format_version is Format.ENRICHED:
        found["message.format.version"] = config.plain_format.value
    return CoordinatorTopic(partitions, config.internal_factor(replication_factor), found)
