"""Replication as a follower: fetch partitions from their leaders, and append the records.

`replication/fetcher.py` decides what to request and how to apply responses; here requests are sent and logs are
changed. There are `num.replica.fetchers` fetchers for each leader, each with its own connection and task.

Invariants:
1. One task for each leader and number sends one request at a time, and applies its response before the next.
2. A partition has at most one fetcher: `follow` comes after `forget` (`Replicas.take_orders`).
3. A log is changed with the lock of its partition held and `logs_lock` shared, in the lock order of `appends.py`. When
   the lock is there, the decision is dropped unless the partition is still followed in the same epoch (`_follows`), and
   records unless the log still ends where they begin.
4. A follower appends whole entries, unchanged, at the end of its log. Its high watermark is at most its log's end, and
   its log start offset at most its high watermark.
5. A response that is dropped restarts the fetch session, in which the leader names a high watermark only once.
6. A failure of one partition delays that partition: a bug, damage, a lack of descriptors. A failed truncation ends its
   replication, except for a lack of descriptors, which is retried.
7. With `log.flush.policy=group-commit` a fetch is sent when the records before its offset are durable (`syncs.py`).

A crash between an append and the next fetch costs nothing: the leader counts only what a fetch asks for. A crash after
a truncation leaves a shorter log, which is compared again. `test_followers.py` has 3, 5 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from magicbyte.engine.errors import (
    BusyError,
    ErrorCode,
    LogDirectoryOfflineError,
    MagicbyteError,
    NetworkError,
    OutOfDescriptorsError,
    code_of,
)
from magicbyte.engine.log.append.prepare import prepare_unchanged
from magicbyte.engine.log.append.rules import ALL_ROOM, KEPT_ROOM, Room, RoomNeeded
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import FETCH_WITH_WHOLE_SETS
from magicbyte.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from magicbyte.engine.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magicbyte.engine.records.layout import LOG_OVERHEAD, OFFSET
from magicbyte.engine.releases import inter_broker_versions
from magicbyte.engine.replication.fetcher import (
    Answered,
    Append,
    AskEpochs,
    AskOffsets,
    Fetch,
    Fetcher,
    FetchFrom,
    Truncate,
    Wait,
)
from magicbyte.engine.replication.truncation import EpochEnd
from magicbyte.engine.sentinels import NO_EPOCH
from magicbyte.server.partitions.writes import PartitionLocks, WrittenSet, memory_for, write, write_all

if TYPE_CHECKING:
    from magicbyte.access.client.connection import Connection
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.protocol import Message
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.syncs import Syncs
    from magicbyte.server.partitions.throttles import ReplicationThrottle
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.links import Links

M = TypeVar("M", bound="Message")

log = logger(__name__)

_FIRST_WITH_SESSIONS: Final = 7
_FIRST_THAT_COMPARES_EPOCHS: Final = 12
_ANSWERED_WITHIN_S: Final = 0.02  # unless the leader waits for records
_EARLIEST, _LATEST = -2, -1
_PASSING: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors while a leader learns of a leader epoch before or after its followers."""
_NO_SESSION, _NEW_SESSION, _LAST_SESSION_EPOCH = -1, 0, (1 << 31) - 1


class FollowedLog:
    """A follower's log as seen by the rules of replication: `replication.fetcher.FollowerLog`."""

    def __init__(self, partition: ServedPartition) -> None:
        self._partition = partition

    @property
    def log_start_offset(self) -> int:
        """The first offset."""
        return self._partition.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record."""
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are known to be committed."""
        return self._partition.log.high_watermark

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record; -1 if unknown."""
        entries = self._partition.log.epochs.entries
        return entries[-1].epoch if entries else NO_EPOCH

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to `epoch` and its end offset."""
        log = self._partition.log
        return EpochEnd(*log.epochs.end_offset_of(epoch, log.log_end_offset))

    def epoch_after(self, epoch: int) -> int:
        """Return the smallest epoch above `epoch`; -1 if there is none."""
        entries = self._partition.log.epochs.entries
        return next((each.epoch for each in entries if each.epoch > epoch), NO_EPOCH)


class FollowedLeader(NamedTuple):
    """The leader that a partition followed, and its epoch. `known_epoch`: see `Fetcher.known_epoch`."""

    broker_id: int
    leader_epoch: int
    known_epoch: int


class ReplicaFetchers:
    """All partitions for which this broker follows a leader."""

    def __init__(self, runtime: Runtime, links: Links, throttle: ReplicationThrottle, syncs: Syncs) -> None:
        self._runtime, self._links, self._throttle, self._syncs = runtime, links, throttle, syncs
        self._fetchers: dict[tuple[int, int], _LeaderFetcher] = {}
        self._by_key: dict[TopicPartition, _LeaderFetcher] = {}

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are followed."""
        return self._by_key.keys()

    def forget(self, key: TopicPartition) -> FollowedLeader | None:
        """Stop fetching a partition; return its leader until now. Pending responses for it are ignored."""
        fetcher = self._by_key.pop(key, None)
        return None if fetcher is None else fetcher.forget(key)

    async def follow(
        self, partition: ServedPartition, address: tuple[str, int], before: FollowedLeader | None = None
    ) -> None:
        """Fetch a partition from its leader at the inter-broker `address` from now on. `before`: from `forget`."""
        key = TopicPartition(partition.topic, partition.index)
        number = zlib.crc32(str(key).encode()) % self._runtime.config.num_replica_fetchers
        where = partition.leader_id, number
        fetcher = self._fetchers.get(where)
        if fetcher is None:
            fetcher = self._fetchers[where] = _LeaderFetcher(
                self._runtime, self._links, self._throttle, self._syncs, partition.leader_id, number
            )
        self._by_key[key] = fetcher
        await fetcher.follow(partition, address, before)

    async def close_idle(self) -> None:
        """End the fetchers without partitions."""
        for where, fetcher in list(self._fetchers.items()):
            if not fetcher.partitions and self._fetchers.get(where) is fetcher:  # no other task is closing it
                del self._fetchers[where]
                await fetcher.aclose()


class _Fetched(NamedTuple):
    """Fetched records of one partition, and how to apply them."""

    partition: ServedPartition
    asked: FetchFrom
    records: memoryview
    append: Append


class _LeaderFetcher:
    """Fetch partitions from one leader: one request is in flight at a time."""

    def __init__(
        self,
        runtime: Runtime,
        links: Links,
        throttle: ReplicationThrottle,
        syncs: Syncs,
        leader_id: int,
        number: int,
    ) -> None:
        self._runtime, self._links, self._throttle, self._syncs = runtime, links, throttle, syncs
        self._leader_id = leader_id
        config = runtime.config
        self._protocol = config.inter_broker_protocol_version
        versions = inter_broker_versions(self._protocol)
        self._version = versions[ApiKey.FETCH]
        self._fetcher = Fetcher(
            asks_epochs=ApiKey.OFFSET_FOR_LEADER_EPOCH in versions,
            compares_epochs=self._version >= _FIRST_THAT_COMPARES_EPOCHS,
            backoff_ms=config.replica_fetch_backoff_ms,
        )
        self._name = f"broker-{runtime.node_id}-fetcher-{number}"
        self._address: tuple[str, int] | None = None
        self._link: Connection | None = None
        self._session = _Session(self._version)
        self._partitions: dict[TopicPartition, ServedPartition] = {}
        self._changed = asyncio.Event()
        self._waits_for: Fetch | None = None
        self._hurry: asyncio.TimerHandle | None = None
        self._not_before_ms = 0  # when the next wait may be cut short
        self._task = runtime.spawn(self._run())

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions to fetch."""
        return self._partitions.keys()

    async def follow(self, partition: ServedPartition, address: tuple[str, int], before: FollowedLeader | None) -> None:
        """Add a partition. The leader's address may have changed. `before`: the leader until now."""
        if self._address != address:
            self._address = address
            await self._disconnect()
        key = TopicPartition(partition.topic, partition.index)
        self._partitions[key] = partition
        await self._begin(key, partition, before)

    async def _begin(
        self, key: TopicPartition, partition: ServedPartition, before: FollowedLeader | None = None
    ) -> None:
        epoch, has_same = partition.leader_epoch, before is not None and before.broker_id == self._leader_id
        cuts = self._fetcher.follow(
            key,
            FollowedLog(partition),
            epoch,
            followed_epoch=before.leader_epoch if before is not None and has_same else NO_EPOCH,
            known_epoch=NO_EPOCH if before is None else before.known_epoch,
        )
        await self._truncate_all(cuts)
        self._fetcher.was_cut(key, epoch)
        self._changed.set()
        if self._waits_for is not None and self._hurry is None and self._not_before_ms <= self._now_ms():
            self._hurry = asyncio.get_running_loop().call_later(_ANSWERED_WITHIN_S, self._cut_short, self._waits_for)

    def _cut_short(self, fetch: Fetch) -> None:
        """End a fetch that began before a partition was added, if the leader waits for records of the others.

        This takes a new connection, so it happens at most once per `replica.fetch.wait.max.ms`.
        """
        self._hurry = None
        if self._waits_for is fetch and self._link is not None and not self._link.is_receiving:
            self._not_before_ms = self._now_ms() + self._runtime.config.replica_fetch_wait_max_ms
            self._waits_for = None
            self._link.abort()

    async def _begin_again(self, cut: Truncate, epoch: int) -> None:
        """Restart following a partition that was not truncated, after a delay, if it is followed in the same epoch."""
        await asyncio.sleep(self._runtime.config.replica_fetch_backoff_ms / 1000)
        key, partition = cut.partition, self._partitions.get(cut.partition)
        if partition is not None and partition.leader_epoch == epoch and key not in self._fetcher.partitions:
            await self._begin(key, partition, FollowedLeader(self._leader_id, NO_EPOCH, cut.known_epoch))

    def forget(self, key: TopicPartition) -> FollowedLeader:
        """Stop fetching a partition; return this leader, and the epoch in which it was followed."""
        self._partitions.pop(key, None)
        known_epoch = self._fetcher.known_epoch(key)
        return FollowedLeader(self._leader_id, self._fetcher.forget(key), known_epoch)

    async def aclose(self) -> None:
        """End the task, and close the connection."""
        if self._hurry is not None:
            self._hurry.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._disconnect()

    async def _run(self) -> None:
        try:
            while True:
                step = self._fetcher.next(self._now_ms(), self._holds_back)
                if isinstance(step, Wait):
                    await self._wait(step)
                    continue
                try:
                    await self._do(step)
                except (MagicbyteError, OSError) as error:
                    self._complain("fetch from broker %d failed: %s", self._leader_id, error)
                    await self._restart(step)
                except Exception:
                    log.exception("fetch from broker %d ended because of a bug; it is tried again", self._leader_id)
                    await self._restart(step)
        finally:
            await self._disconnect()

    async def _restart(self, step: AskEpochs | AskOffsets | Fetch) -> None:
        """Retry a failed request later, on a new connection."""
        self._fetcher.failed(step, self._now_ms())
        await self._disconnect()

    def _holds_back(self, key: TopicPartition) -> bool:
        return self._throttle.holds_back(*key)

    async def _wait(self, step: Wait) -> None:
        self._changed.clear()
        left = None if step.until_ms is None else max(step.until_ms - self._now_ms(), 1) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    async def _do(self, step: AskEpochs | AskOffsets | Fetch) -> None:
        match step:
            case AskEpochs():
                answers = await self._ask_epochs(step)
                await self._truncate_all(self._fetcher.epochs_answered(step, answers, self._now_ms()))
            case AskOffsets():
                offsets = await self._ask_offsets(step)
                await self._truncate_all(self._fetcher.offsets_answered(step, offsets, self._now_ms()))
            case Fetch():
                await self._fetch(step)

    # ---- requests

    async def _is_durable(self, step: Fetch) -> bool:
        """Sync what a fetch acknowledges, if `log.flush.policy=group-commit`; return whether the fetch may be sent.

        Not if a log changed meanwhile. Raises LogDirectoryOfflineError.
        """
        syncs: list[tuple[TopicPartition, ServedPartition, asyncio.Future[bool]]] = []
        for each in step.partitions:
            partition = self._partitions.get(each.partition)
            if partition is None or not partition.log.config.group_commit:
                continue
            if partition.log.recovery_point < each.offset:
                syncs.append((each.partition, partition, self._syncs.next(partition)))
        is_durable = True
        for key, partition, sync in syncs:
            if await sync:
                continue
            if partition.log.health.error is not None:
                raise LogDirectoryOfflineError(f"{partition}: cannot sync the records of broker {self._leader_id}")
            self._fetcher.not_appended(key, self._now_ms())
            is_durable = False
        return is_durable

    async def _fetch(self, step: Fetch) -> None:
        # Before the request, not after the append: its offset acknowledges all records before it. A task that is
        # cancelled between the two leaves records that its successor would acknowledge.
        if not await self._is_durable(step):
            return
        config, asked = self._runtime.config, {each.partition: each for each in step.partitions}
        wait_ms = config.replica_fetch_wait_max_ms
        if step.until_ms is not None:
            wait_ms = min(wait_ms, max(step.until_ms - self._now_ms(), 1))
        topics, forgotten = self._session.next(step.partitions, config.replica_fetch_max_bytes)
        request = FetchRequest(
            replica_id=self._runtime.node_id,
            max_wait_ms=wait_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes if self._version >= FETCH_WITH_WHOLE_SETS else 0x7FFFFFFF,
            session_id=self._session.id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        self._waits_for = step
        try:
            response = await self._send(request, FetchResponse)
        except NetworkError:
            if self._waits_for is not None:
                raise
            await self._disconnect()  # it was cut short
            return
        finally:
            self._waits_for = None
        if not self._session.answered(response):
            return
        fetched = list[_Fetched]()
        for topic in response.responses:
            for data in topic.partitions:
                one = asked.get(TopicPartition(topic.topic, data.partition_index))
                if one is not None:
                    fetched += await self._take_in(one, data)
        if fetched:
            await self._append_all(fetched)

    async def _take_in(self, asked: FetchFrom, data: PartitionData) -> list[_Fetched]:
        """Apply the response for one partition; return its records, if they must be appended."""
        end = data.diverging_epoch
        diverging = EpochEnd(end.epoch, end.end_offset) if end.end_offset >= 0 else None
        error = code_of(data.error_code)
        answer = Answered(error, data.high_watermark, data.log_start_offset, diverging)
        done = self._fetcher.fetched(asked, answer, self._now_ms())
        partition = self._partitions.get(asked.partition)
        if error in _PASSING:
            log.info("%s: broker %d answered %s", asked.partition, self._leader_id, error.name)
        elif error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self._complain("%s: broker %d answered %s", asked.partition, self._leader_id, error.name)
        if isinstance(done, Truncate):
            await self._truncate_all([done])
        if not isinstance(done, Append) or partition is None:
            if not error:
                self._ignored()
            return []
        records = memoryview(b"") if data.records is None else data.records
        assert isinstance(records, memoryview | bytes), "records are a view into the frame"
        self._throttle.record(*asked.partition, len(records))
        return [_Fetched(partition, asked, memoryview(records), done)]

    async def _ask_epochs(self, step: AskEpochs) -> dict[TopicPartition, tuple[ErrorCode, EpochEnd]]:
        by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
        for each in step.questions:
            question = OffsetForLeaderPartition(
                partition=each.partition.partition, current_leader_epoch=each.leader_epoch, leader_epoch=each.epoch
            )
            by_topic.setdefault(each.partition.topic, []).append(question)
        topics = [OffsetForLeaderTopic(topic=name, partitions=found) for name, found in by_topic.items()]
        request = OffsetForLeaderEpochRequest(replica_id=self._runtime.node_id, topics=topics)
        response = await self._send(request, OffsetForLeaderEpochResponse)
        return {
            TopicPartition(topic.topic, each.partition): (
                code_of(each.error_code),
                EpochEnd(each.leader_epoch, each.end_offset),
            )
            for topic in response.topics
            for each in topic.partitions
        }

    async def _ask_offsets(self, step: AskOffsets) -> dict[TopicPartition, tuple[ErrorCode, int, int]]:
        first = await self._list_offsets(step.partitions, _EARLIEST)
        last = await self._list_offsets(step.partitions, _LATEST)
        return {key: (first[key][0] or last[key][0], first[key][1], last[key][1]) for key in first.keys() & last.keys()}

    async def _list_offsets(
        self, keys: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, tuple[ErrorCode, int]]:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for key in keys:
            epoch = self._partitions[key].leader_epoch if key in self._partitions else NO_EPOCH
            by_topic.setdefault(key.topic, []).append(
                ListOffsetsPartition(
                    partition_index=key.partition, current_leader_epoch=epoch, timestamp=timestamp, max_num_offsets=1
                )
            )
        topics = [ListOffsetsTopic(name=name, partitions=offsets) for name, offsets in by_topic.items()]
        request = ListOffsetsRequest(replica_id=self._runtime.node_id, topics=topics)
        response = await self._send(request, ListOffsetsResponse)
        offsets = {}
        for topic in response.topics:
            for each in topic.partitions:
                code = code_of(each.error_code)
                offset = each.old_style_offsets[0] if each.old_style_offsets else each.offset
                if offset < 0 and not code:
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                offsets[TopicPartition(topic.name, each.partition_index)] = code, offset
        return offsets

    async def _send(self, request: Message, kind: type[M]) -> M:
        """Return the leader's response. Raises NetworkError."""
        config = self._runtime.config
        if self._link is not None and self._link.is_stale:
            await self._disconnect()
        if self._link is None or self._link.is_closed:
            assert self._address is not None, "set with the first partition"
            self._link = await self._links.connect(
                self._leader_id,
                *self._address,
                protocol=self._protocol,
                client_id=self._name,
                timeout_ms=config.replica_socket_timeout_ms,
            )
        wait_ms = config.replica_fetch_wait_max_ms + config.replica_socket_timeout_ms
        response = await self._link.send(request, timeout_ms=wait_ms)
        assert isinstance(response, kind), "the generated class"
        return response

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        self._session.reset()  # the leader may not have processed the last request
        if link is not None:
            await link.aclose()

    # ---- logs

    async def _truncate_all(self, cuts: Iterable[Truncate]) -> None:
        """Truncate logs as decided now: not those whose roles change while their locks are awaited."""
        found = [(cut, self._partitions.get(cut.partition)) for cut in cuts]
        decided = [(cut, partition, partition.leader_epoch) for cut, partition in found if partition is not None]
        for cut, partition, epoch in decided:
            if cut.fully:
                log.warning("%s: all records are deleted: the log of the leader, broker %d, begins at offset %d",
                            partition, self._leader_id, cut.offset)  # fmt: skip
            elif cut.offset < partition.log.log_end_offset:
                log.info("%s: truncated from offset %d to %d, where the log of the leader, broker %d, parts from this",
                         partition, partition.log.log_end_offset, cut.offset, self._leader_id)  # fmt: skip
            try:
                await self._truncate(partition, cut, epoch)
            except OutOfDescriptorsError as error:
                self._complain("%s: cannot be truncated, and is retried: %s", partition, error)
                self._fetcher.forget(cut.partition)
                self._runtime.spawn(self._begin_again(cut, epoch))
            except (MagicbyteError, OSError) as error:
                self._complain("%s: cannot be truncated, and is no longer replicated: %s", partition, error)
                self._fetcher.forget(cut.partition)

    async def _truncate(self, partition: ServedPartition, cut: Truncate, epoch: int) -> None:
        """Truncate the log of a partition that is still followed in the same epoch."""
        runtime = self._runtime
        async with partition.lock:
            if not self._follows(cut.partition, partition, epoch):
                return
            await runtime.logs_lock.acquire_shared()
            try:
                await runtime.writing.run(_truncate, partition, cut, runtime.clock.monotonic_ms())
            finally:
                runtime.logs_lock.release_shared()

    async def _append_all(self, fetched: Sequence[_Fetched]) -> None:
        """Append the records of partitions in one piece of work; apply high watermarks and log start offsets."""
        async with PartitionLocks([each.partition for each in fetched]):
            current = [each for each in fetched if self._is_current(each)]
            if len(current) < len(fetched):
                self._ignored()
            if not current:
                return
            large = list[_Fetched]()
            for each, outcome in zip(current, await self._write_all(current, KEPT_ROOM), strict=True):
                if isinstance(outcome, RoomNeeded):
                    large.append(each)
                else:
                    self._publish(each, outcome)
            for each in large:
                self._publish(each, await self._write_large(each))

    async def _write_large(self, fetched: _Fetched) -> WrittenSet | Exception:
        """Write a set when there is memory to open its wrappers."""
        try:
            async with memory_for(self._runtime, None):
                (written,) = await self._write_all([fetched], ALL_ROOM)
        except BusyError as error:
            return error
        return written

    async def _write_all(self, fetched: Sequence[_Fetched], room: Room) -> list[WrittenSet | Exception]:
        runtime = self._runtime
        await runtime.logs_lock.acquire_shared()
        try:
            now = Moment.of(runtime.clock)
            return await write_all(runtime, fetched, [partial(_write, each, now, room) for each in fetched])
        finally:
            runtime.logs_lock.release_shared()

    def _ignored(self) -> None:
        """Handle a response that was not applied: an incremental session tells a high watermark only once."""
        self._session.reset()

    def _is_current(self, fetched: _Fetched) -> bool:
        """Return whether records still fit the log: roles may have changed while the lock was awaited."""
        partition, asked = fetched.partition, fetched.asked
        is_followed = self._follows(asked.partition, partition, asked.leader_epoch)
        return is_followed and partition.log.log_end_offset == asked.offset

    def _follows(self, key: TopicPartition, partition: ServedPartition, epoch: int) -> bool:
        """Return whether a partition is still fetched from this leader, in the same epoch."""
        is_same = self._partitions.get(key) is partition
        return is_same and partition.leader is None and partition.leader_epoch == epoch

    def _publish(self, fetched: _Fetched, outcome: WrittenSet | Exception) -> None:
        """Report a written set and the leader's high watermark to its partition; a failed set is fetched again."""
        partition, key = fetched.partition, fetched.asked.partition
        if isinstance(outcome, Exception):
            if isinstance(outcome, MagicbyteError | OSError):
                self._complain("%s: records from broker %d were not appended: %s", key, self._leader_id, outcome)
            else:
                log.error(
                    "%s: records were not appended because of a bug; they are fetched again", key, exc_info=outcome
                )
            self._fetcher.not_appended(key, self._now_ms())
            if not fetched.records:
                self._ignored()
            return
        if (written := outcome.records).size:
            partition.publish(written.first_offset, written.size, written.newest_magic)
        elif fetched.records and self._version < FETCH_WITH_WHOLE_SETS:
            self._complain("%s: a set at offset %d is larger than replica.fetch.max.bytes: replication of this "
                           "partition waits until the setting is raised", key, fetched.asked.offset)  # fmt: skip
            self._fetcher.not_appended(key, self._now_ms())
        partition.advance(min(fetched.append.high_watermark, partition.log.log_end_offset))

    def _now_ms(self) -> int:
        return self._runtime.clock.monotonic_ms()

    def _complain(self, message: str, *arguments: object) -> None:
        self._runtime.complaints.line(log, f"broker {self._leader_id}", "replication", message, *arguments)


def _write(fetched: _Fetched, now: Moment, room: Room) -> WrittenSet:
    """Write records, and raise the log start offset to the leader's, as far as it is replicated. Called in a thread."""
    log, append = fetched.partition.log, fetched.append
    written = write(log, partial(_prepare, log, fetched.records, now, room), now)
    high_watermark = max(log.high_watermark, min(append.high_watermark, log.log_end_offset))
    start = min(append.log_start_offset, high_watermark)
    if start > log.log_start_offset:
        log.high_watermark = high_watermark
        log.delete_records(start)
    return written


def _prepare(log: PartitionLog, records: memoryview, now: Moment, room: Room) -> RecordSet:
    """Return the set of fetched records; an empty log may be moved back to their first offset."""
    end = base = log.log_end_offset
    if not log.size and len(records) >= LOG_OVERHEAD:
        # The leader's log may start inside a batch, which is sent whole: an empty log begins where the batch does.
        base = min(max(OFFSET.read(records), 0), end)
    unchanged = prepare_unchanged(
        records.toreadonly(), log.config.rules, next_offset=base, dialect=log.config.dialect, room=room
    )
    if unchanged.size and unchanged.first_offset < end <= unchanged.last_offset:
        log.truncate_fully(unchanged.first_offset, now.monotonic_ms)
    return unchanged


def _truncate(partition: ServedPartition, cut: Truncate, monotonic_ms: int) -> None:
    if cut.fully:
        partition.log.truncate_fully(cut.offset, monotonic_ms)
    else:
        partition.log.truncate_to(cut.offset, monotonic_ms)


class _Session:
    """The fetch session of one connection: partitions are named again only if they changed (KIP-227)."""

    def __init__(self, version: int) -> None:
        self._has_sessions = version >= _FIRST_WITH_SESSIONS
        self._tells_epoch = version >= _FIRST_THAT_COMPARES_EPOCHS
        self._known: dict[TopicPartition, FetchPartition] = {}
        self.id, self.epoch = 0, _NO_SESSION
        self.reset()

    def reset(self) -> None:
        """Restart the session, with all partitions."""
        self.id, self.epoch = 0, _NEW_SESSION if self._has_sessions else _NO_SESSION
        self._known = {}

    def next(self, partitions: Sequence[FetchFrom], max_bytes: int) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return the partitions of the next request, and those to remove from the session."""
        wanted = {
            fetched.partition: FetchPartition(
                partition=fetched.partition.partition,
                current_leader_epoch=fetched.leader_epoch,
                fetch_offset=fetched.offset,
                last_fetched_epoch=fetched.last_epoch if self._tells_epoch else NO_EPOCH,
                log_start_offset=fetched.log_start_offset,
                partition_max_bytes=max_bytes,
            )
            for fetched in partitions
        }
        gone = self._known.keys() - wanted.keys() if self.epoch > _NEW_SESSION else ()
        named = {key: fetched for key, fetched in wanted.items() if self._known.get(key) != fetched}
        self._known = wanted if self._has_sessions else {}
        topics: dict[str, FetchTopic] = {}
        for key, fetched in named.items():
            topics.setdefault(key.topic, FetchTopic(topic=key.topic)).partitions.append(fetched)
        forgotten: dict[str, list[int]] = {}
        for key in sorted(gone):
            forgotten.setdefault(key.topic, []).append(key.partition)
        return list(topics.values()), [
            ForgottenTopic(topic=name, partitions=tuple(indexes)) for name, indexes in forgotten.items()
        ]

    def answered(self, response: FetchResponse) -> bool:
        """Handle the response; return whether its partitions are valid: else the next request restarts the session."""
        if response.error_code:
            self.reset()
            return False
        if self._has_sessions:
            if response.session_id:
                self.id, self.epoch = response.session_id, 1 if self.epoch == _LAST_SESSION_EPOCH else self.epoch + 1
            else:  # the leader keeps no session
                self.reset()
        return True
