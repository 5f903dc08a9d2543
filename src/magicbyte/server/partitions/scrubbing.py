"""Check stored batches in the background, and repair damaged ones from other replicas (`replica.scrub.interval.ms`).

`log/cleaning/scrub.py` finds damage and decides what replaces it; here files are read, replicas asked, and segments
exchanged. A replica is asked as a consumer asks it, by a Fetch from 11 on with the leader epoch of this broker: leaders
and followers answer, Kafka's too, with committed records and only in that epoch. Leaders check their logs as followers
do.

Invariants:
1. Only bytes below the high watermark are checked, of an open file. No lock is held meanwhile.
2. The damaged bytes are in `quarantine/`, durably, before anything changes. The copy of the segment with sound bytes
   has a name that the next start deletes, and is durable when it takes the segment's place (`replace_log`).
3. A segment is exchanged with `Runtime.directory` and `logs_lock` held, if it is part of the log still: compaction and
   retention may have removed it. A compaction of this log that is in progress is abandoned, as it has read the old one.
4. At most `replica.scrub.bytes.per.second` are read.

A crash before the exchange leaves the damaged segment, which the next pass finds again. `test_scrubbing.py` has 2 and
3, `tests/simulation/test_scrub_histories.py` flips bits under faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import LogDirectoryOfflineError, MagicbyteError, code_of
from magicbyte.engine.log.cleaning.scrub import (
    Agreement,
    DamagedRange,
    ReplicaBytes,
    SegmentScrub,
    agreed,
    copy_with,
)
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.names import QUARANTINE
from magicbyte.engine.log.live.loading import quarantine_bytes
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.scan import scan
from magicbyte.server.stores.peers import PeerLink

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.segment import Segment
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.peers import Peers

log = logger(__name__)

_STEP_BYTES: Final = 4 << 20
MOST_REPLACED_BYTES: Final = 64 << 20
"""The largest damaged range that is repaired, and the most of a segment in one pass: all of it is in memory."""
_CONSUMER, _NO_SESSION = -1, -1


class Scrubbing:
    """The check of all replicas of this broker, pass after pass."""

    def __init__(
        self, runtime: Runtime, logs: LogDirectory, replicas: Replicas, background: Background, peers: Peers
    ) -> None:
        self._runtime, self._logs, self._replicas = runtime, logs, replicas
        self._background, self._peers = background, peers
        self._links: dict[int, PeerLink] = {}

    async def run(self) -> None:
        """Check all replicas each `replica.scrub.interval.ms`."""
        try:
            while self._logs.health.error is None:
                await asyncio.sleep(self._runtime.config.replica_scrub_interval_ms / 1000)
                await self.scrub()
        finally:
            for link in self._links.values():
                await link.aclose()

    async def scrub(self) -> None:
        """Check all replicas once."""
        unrepaired = 0
        for key in sorted(self._logs.logs):
            partition = self._replicas.partitions.get(key)
            if partition is None:
                continue
            try:
                for segment in list(partition.log.segments):
                    unrepaired += await self._scrub(partition, segment)
            except LogDirectoryOfflineError:  # it has been logged
                return
            except (MagicbyteError, OSError) as error:
                log.warning("%s: the check of its batches ended: %s", partition, error)
        self._runtime.metrics.scrub_unrepaired = unrepaired

    async def _scrub(self, partition: ServedPartition, segment: Segment) -> int:
        """Check and repair a segment; return how many damaged ranges are left."""
        if segment not in partition.log.segments or not segment.size:
            return 0
        high_watermark = partition.log.high_watermark
        if segment.base_offset >= high_watermark:
            return 0
        check = await self._runtime.reading.run(SegmentScrub, partition.log, segment, high_watermark)
        self._runtime.metrics.scrubbed_bytes += await self._at_rate(check.run())
        contents, left, held = list[tuple[DamagedRange, bytes]](), 0, 0
        for damaged in check.found:
            if contents and held + damaged.size > MOST_REPLACED_BYTES:  # repaired by the next pass
                left += 1
                continue
            content = await self._replacement(partition, segment, damaged)
            if content is None:
                left += 1
            elif content != await self._runtime.reading.run(segment.log.read_at, damaged.position, damaged.size):
                contents.append((damaged, content))
                held += len(content)
        if contents:
            await self._repair(partition, segment, contents)
        return left

    async def _at_rate(self, steps: Iterator[int]) -> int:
        """Do all steps in threads, within the rate; return the bytes read."""
        total = 0
        while size := await self._runtime.reading.run(_some, steps):
            total += size
            await asyncio.sleep(size / self._runtime.config.replica_scrub_bytes_per_second)
        return total

    # ---- other replicas

    async def _replacement(self, partition: ServedPartition, segment: Segment, damaged: DamagedRange) -> bytes | None:
        """Return the bytes that most replicas have in a range, None if they do not agree, which is logged."""
        agreement = await self._agreement(partition, damaged)
        if agreement.content is None:
            log.error(
                "%s: damaged batches in %s, positions %d to %d, offsets %d to %d: %s; not repaired: %s",
                partition, segment.path(LOG), damaged.position, damaged.end, damaged.first_offset,
                damaged.end_offset - 1, damaged.error, agreement.why,
            )  # fmt: skip
        return agreement.content

    async def _agreement(self, partition: ServedPartition, damaged: DamagedRange) -> Agreement:
        """Return on which bytes of a range most replicas agree."""
        if damaged.size > MOST_REPLACED_BYTES:
            return Agreement(None, f"expected a range of up to {MOST_REPLACED_BYTES} bytes, found {damaged.size}")
        assigned = self._peers.store.image.partition(TopicPartition(partition.topic, partition.index))
        replicas = () if assigned is None else assigned.replicas
        others = [each for each in replicas if each != self._runtime.node_id]
        found = await asyncio.gather(*(self._ask(partition, each, damaged) for each in others))
        answers = [each for each in found if isinstance(each, ReplicaBytes)]
        agreement = await self._runtime.reading.run(agreed, partition.log, damaged, answers, len(replicas))
        failures = [each for each in found if isinstance(each, str)]
        return agreement._replace(why="; ".join([*failures, agreement.why]))

    async def _ask(self, partition: ServedPartition, broker_id: int, damaged: DamagedRange) -> ReplicaBytes | str:
        """Return the bytes of a range in another replica, or why there are none."""
        link = self._links.get(broker_id)
        if link is None:
            timeout_ms = self._runtime.config.replica_socket_timeout_ms
            link = self._links[broker_id] = PeerLink(self._runtime, self._peers, broker_id, timeout_ms=timeout_ms)
        records, offset = bytearray(), damaged.first_offset
        while True:
            request = _request(partition, offset, damaged.size - len(records))
            try:
                response = await link.send(request)
            except MagicbyteError as error:
                return f"broker {broker_id} does not answer: {error}"
            assert isinstance(response, FetchResponse), "the generated class"
            data = next((each for topic in response.responses for each in topic.partitions), None)
            if data is None:
                return f"broker {broker_id} answered {code_of(response.error_code).name}"
            if data.error_code:
                return f"broker {broker_id} answered {code_of(data.error_code).name}"
            found = b"" if data.records is None else data.records
            assert isinstance(found, memoryview | bytes), "records are a view into the frame"
            table = scan(memoryview(found))
            records += table.buffer[: table.end]
            if not len(table) or len(records) >= damaged.size or table.damage is not None:
                return ReplicaBytes(broker_id, data.high_watermark, data.log_start_offset, bytes(records))
            offset = int(last_offsets(table)[-1]) + 1

    # ---- repair

    async def _repair(
        self, partition: ServedPartition, segment: Segment, contents: Sequence[tuple[DamagedRange, bytes]]
    ) -> None:
        """Replace damaged ranges of a segment."""
        runtime, served, path = self._runtime, partition.log, segment.path(LOG)
        async with runtime.directory, runtime.logs_lock:
            if not self._has(partition, segment):
                return
            if segment is served.active:
                await runtime.writing.run(served.roll, runtime.clock.monotonic_ms())
        copies = [await runtime.writing.run(self._quarantine, segment, damaged) for damaged, _ in contents]
        await self._copy(segment, contents, f"{path}.tmp")
        async with runtime.directory, runtime.logs_lock:
            if not self._has(partition, segment):
                await runtime.writing.run(self._logs.files.delete, f"{path}.tmp")
                return
            with self._background.without([TopicPartition(partition.topic, partition.index)]):
                await runtime.writing.run(served.replace_log, segment, f"{path}.tmp", Moment.of(runtime.clock))
        runtime.metrics.scrub_repaired += len(contents)
        for (damaged, _), copy in zip(contents, copies, strict=True):
            log.warning(
                "%s: repaired %s, positions %d to %d, offsets %d to %d, from other replicas: %s; %s",
                partition, path, damaged.position, damaged.end, damaged.first_offset, damaged.end_offset - 1,
                damaged.error, "they were zeros" if copy is None else f"the damaged bytes are in {copy}",
            )  # fmt: skip

    def _has(self, partition: ServedPartition, segment: Segment) -> bool:
        """Return whether a partition is served still, and a segment is part of its log."""
        is_served = self._replicas.partitions.get((partition.topic, partition.index)) is partition
        return is_served and segment in partition.log.segments

    def _quarantine(self, segment: Segment, damaged: DamagedRange) -> str | None:
        with self._logs.health:
            return quarantine_bytes(segment, damaged.position, damaged.end, f"{self._logs.path}/{QUARANTINE}")

    async def _copy(self, segment: Segment, contents: Sequence[tuple[DamagedRange, bytes]], path: str) -> None:
        await self._at_rate(self._healthy(copy_with(segment, contents, path)))

    def _healthy(self, steps: Iterator[int]) -> Iterator[int]:
        with self._logs.health:
            yield from steps


def _some(steps: Iterator[int]) -> int:
    """Return the bytes of the next steps, 0 at their end."""
    total = 0
    for size in steps:
        total += size
        if total >= _STEP_BYTES:
            break
    return total


def _request(partition: ServedPartition, offset: int, size: int) -> FetchRequest:
    """Return a consumer's Fetch of committed records, in the leader epoch of this replica."""
    asked = FetchPartition(
        partition=partition.index,
        current_leader_epoch=partition.leader_epoch,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=size,
    )
    return FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=size,
        session_epoch=_NO_SESSION,
        topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
    )
