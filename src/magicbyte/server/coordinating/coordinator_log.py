"""The log of a coordinator: its records are appended to its topic, in order.

An append does not wait for the replication of the previous one. Outcomes are also reported in order.

Invariants:
1. Of each partition one task appends and one waits for replicas. Records are appended in the order of `store`, and
   outcomes are reported in the same order, each once.
2. Records that were decided in an ended term are not appended (`StoreRules.is_present`, asked last before the append),
   and reported as NOT_LEADER_OR_FOLLOWER.
3. An append that is refused is written in no part: of several effects each is tried alone.
4. A bug fails the effects of one append; the next ones are appended.

A crash before the append leaves nothing, one after it a record without an answer: the next term loads it, and the
client repeats its request. `test_group_moves.py` and `test_transaction_stores.py` have 1 to 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.codecs import Codec
from magicbyte.engine.coordination.effects import Marker, Store, encoded, size_of
from magicbyte.engine.errors import AppendRefusedError, ErrorCode, MagicbyteError, NotLeaderError
from magicbyte.engine.printable import logger
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.server.partitions.appends import Acknowledgement, NewSet

if TYPE_CHECKING:
    from magicbyte.server.partitions.appends import Appends
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)

_TOGETHER: Final = 100  # effects per set
_QUICK_BYTES: Final = 64 << 10  # of records that are encoded on the event loop


class StoreRules(NamedTuple):
    """The treatment of one coordinator's effects.

    `timeout_ms`: the time to wait for replicas, of effects without their own. `is_present`: whether the term of the
    effect is current. `stored` gets the outcome.
    """

    codec: Codec
    timeout_ms: int
    is_present: Callable[[Store[Any]], bool]
    stored: Callable[[Store[Any], ErrorCode], None]


class _Pending(NamedTuple):
    """An effect with the result of its append, and the deadline for its replication."""

    store: Store[Any]
    appended: Acknowledgement | ErrorCode
    deadline_ms: int


class CoordinatorLog:
    """Append the effects of one coordinator to the partitions of its topic.

    `name`: the topic, and its content, for messages. `is_joined`: whether records of several effects may be appended as
    one set.
    """

    def __init__(
        self,
        name: tuple[str, str],
        services: tuple[Runtime, Topics, Replicas, Appends],
        rules: StoreRules,
        *,
        is_joined: bool,
    ) -> None:
        self._topic, self._what = name
        self._runtime, self._topics, self._replicas, self._appends = services
        self._rules, self._is_joined = rules, is_joined
        self._stores: dict[int, deque[Store[Any]]] = {}  # by partition, in the order of their appends
        self._unacknowledged: dict[int, deque[_Pending]] = {}  # appended, but possibly not replicated yet

    def store(self, store: Store[Any]) -> None:
        """Append after all pending appends to the same partition."""
        waiting = self._stores.get(store.partition)
        if waiting is not None:
            waiting.append(store)
            return
        self._stores[store.partition] = deque([store])
        self._runtime.spawn(self._append_all(store.partition))

    async def _append_all(self, partition: int) -> None:
        """Append a partition's pending effects, in order, without waiting for replication."""
        waiting, clock = self._stores[partition], self._runtime.clock
        try:
            while waiting:
                stores = [waiting.popleft()]
                while waiting and self._is_joined and len(stores) < _TOGETHER:
                    stores.append(waiting.popleft())
                began_ms = clock.monotonic_ms()
                outcomes = await self._append(partition, stores)
                self._appended(
                    partition,
                    [
                        _Pending(store, outcome, began_ms + self._timeout_ms(store))
                        for store, outcome in zip(stores, outcomes, strict=True)
                    ],
                )
        finally:
            del self._stores[partition]

    def _timeout_ms(self, store: Store[Any]) -> int:
        return self._rules.timeout_ms if store.timeout_ms is None else store.timeout_ms

    def _appended(self, partition: int, appended: Sequence[_Pending]) -> None:
        """Continue after appends, immediately if they are replicated and nothing before them is waiting."""
        waiting = self._unacknowledged.get(partition)
        if waiting is not None:
            waiting.extend(appended)
        elif None in (codes := [_code_of(each.appended) for each in appended]):
            self._unacknowledged[partition] = deque(appended)
            self._runtime.spawn(self._acknowledge_all(partition))
        else:
            for each, code in zip(appended, codes, strict=True):
                self._stored(each.store, code or ErrorCode.NONE)

    async def _acknowledge_all(self, partition: int) -> None:
        """Wait for the replication of appends, and continue after each in order."""
        waiting, clock = self._unacknowledged[partition], self._runtime.clock
        try:
            while waiting:
                deadline_ms = waiting[0].deadline_ms
                run = list(takewhile(lambda each: each.deadline_ms == deadline_ms, waiting))  # noqa: B023 (used at once)
                left_ms = deadline_ms - clock.monotonic_ms()
                for code in await self._outcomes(partition, [each.appended for each in run], left_ms):
                    self._stored(waiting.popleft().store, code)
        finally:
            del self._unacknowledged[partition]

    def _stored(self, store: Store[Any], code: ErrorCode) -> None:
        """Continue after an append. A bug in that stops nothing else."""
        try:
            self._rules.stored(store, code)
        except Exception:
            log.exception("%s-%d: after an append of %s", self._topic, store.partition, self._what)

    async def _outcomes(
        self, partition: int, appended: Sequence[Acknowledgement | ErrorCode], timeout_ms: int
    ) -> list[ErrorCode]:
        """Wait for the replication of appends; return the result of each."""
        waits = [each for each in appended if isinstance(each, Acknowledgement)]
        codes = await self._appends.replicated(waits, timeout_ms)
        for code in dict.fromkeys(codes):
            if code:
                self._complain(partition, f"the in-sync replicas do not have them: {code.name}")
        acknowledged = iter(codes)
        return [next(acknowledged) if isinstance(each, Acknowledgement) else each for each in appended]

    async def _append(self, partition: int, stores: Sequence[Store[Any]]) -> list[Acknowledgement | ErrorCode]:
        """Append the records of effects as one set; return the acknowledgement of each, or its error."""
        try:
            return await self._append_together(partition, stores)
        except AppendRefusedError as error:
            if len(stores) > 1:  # for instance because one of them is too large: nothing has been written yet
                return [outcome for each in stores for outcome in await self._append(partition, [each])]
            code, why = error.code, str(error)
        except MagicbyteError as error:
            code, why = error.code, str(error)
        except Exception as error:
            log.exception("%s-%d: records of %s could not be stored", self._topic, partition, self._what)
            code, why = ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)
        self._complain(partition, why)
        return [code] * len(stores)

    async def _append_together(self, index: int, stores: Sequence[Store[Any]]) -> list[Acknowledgement | ErrorCode]:
        runtime = self._runtime
        partition = await self._replicas.opened(self._topic, index)
        await runtime.load_numpy()  # needed for encoding
        topic = self._topics.known(self._topic)
        rules, now_ms = topic.config.append, runtime.clock.now_ms()
        if rules.format is not Format.V2 and any(each.marker or each.header.is_transactional for each in stores):
            why = f"format {rules.format.value} has no transactions"
            raise AppendRefusedError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, why)
        encode = partial(_encoded_all, stores, rules.format, self._rules.codec, now_ms)
        size = sum(len(key) + size_of(value) for each in stores for key, value in each.records)
        sets = encode() if size <= _QUICK_BYTES else await runtime.writing.run(encode)
        is_present = [self._rules.is_present(each) for each in stores]
        if not any(is_present):
            raise NotLeaderError("the partition had another leader since the records were created")
        wanted = [each for each, is_wanted in zip(sets, is_present, strict=True) if is_wanted]
        records = wanted[0] if len(wanted) == 1 else memoryview(bytearray().join(wanted))
        least = partition.least_in_sync(topic.config.min_insync_replicas)
        appended = Acknowledgement(
            partition, await self._appends.append(NewSet(partition, records, rules, is_ours=True)), least
        )
        return [appended if is_wanted else NotLeaderError.code for is_wanted in is_present]

    def _complain(self, partition: int, why: str) -> None:
        self._runtime.complaints.line(log, self._topic, self._what, "%s-%d: records of %s could not be stored: %s",
                                     self._topic, partition, self._what, why)  # fmt: skip


def _encoded_all(stores: Sequence[Store[Any]], target: Format, codec: Codec, now_ms: int) -> list[memoryview]:
    return [set_of(each, target, codec, now_ms) for each in stores]


def set_of(store: Store[Any], target: Format, codec: Codec, now_ms: int) -> memoryview:
    """Return the records of one effect as the set that a Kafka broker would append, in memory of its own."""
    if store.marker is not None:
        return memoryview(bytearray(marker_batch(store.marker, now_ms)))
    rows = [
        Record(offset, now_ms, TimestampType.CREATE_TIME, key, encoded(value))
        for offset, (key, value) in enumerate(store.records)
    ]
    return memoryview(bytearray(encode_records(rows, target, codec, header=store.header)))


def marker_batch(marker: Marker, now_ms: int) -> bytes:
    """Return the batch of a marker, for a leader's append."""
    return build_marker(
        ControlType.COMMIT if marker.commits else ControlType.ABORT,
        base_offset=0,
        timestamp=now_ms,
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
        coordinator_epoch=marker.coordinator_epoch,
    )


def _code_of(appended: Acknowledgement | ErrorCode) -> ErrorCode | None:
    """Return the result of an append; None while its replication must be awaited."""
    return appended.code() if isinstance(appended, Acknowledgement) else appended
