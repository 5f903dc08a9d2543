"""A transactional producer of both transaction protocols, as small as it can be, which says what it does not know.

By itself it is careful: where an answer is lost, it asks for a new epoch before it continues, so nothing that is still
on its way can do harm. `resends`: requests that it sends again on another connection instead, as Kafka's Java client
does (KAFKA-17754).

In protocol 2 (KIP-890) partitions join by their records and by the group's offsets, and each end says the next epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from magicbyte.access.client import Client
from magicbyte.access.client.client import GROUP, TRANSACTION, BrokerNode, only
from magicbyte.engine.errors import ErrorCode, MagicbyteError, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType

M = TypeVar("M", bound=Message)
NONE: Final = (-1, -1)
GROUP_ID: Final = "group"
_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
_WAIT_MS: Final = 2000

WAITS: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Codes that say that nothing was done."""
RETRIED: Final = WAITS | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}  # fmt: skip
FENCED: Final = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


GROUP_FAULTS: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
)
"""Codes of a group that has continued without the requesting member."""


class Membership(NamedTuple):
    """Who a consumer is in its group, in one generation of it."""

    generation: int
    member_id: str


NO_MEMBER: Final = Membership(-1, "")


class UnclearError(Exception):
    """No answer came: it is unknown whether the request was done, or will be."""


class RefusedError(Exception):
    """The request was refused for good. `certain`: it has had no effect, nor have those like it before."""

    def __init__(self, what: str, code: int, *, certain: bool) -> None:
        super().__init__(f"{what}: {code}")
        self.code, self.certain = code, certain


class TransactionalClient:
    """One life of a producer. `phase` is called before each request with what the producer is about to do."""

    def __init__(
        self,
        client: Client,
        transactional_id: str,
        timeout_ms: int,
        *,
        protocol: int = 1,
        resends: Collection[str],
        phase: Callable[[str, BrokerNode], Awaitable[None]],
    ) -> None:
        self.client, self.transactional_id, self.timeout_ms = client, transactional_id, timeout_ms
        self.pair, self.protocol = NONE, protocol
        self._resends, self._phase = resends, phase
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self, *, keeps: bool = False) -> None:
        """Get an epoch, which ends all that was before. `keeps`: as the one that has the present epoch (KIP-360)."""
        given = self.pair if keeps else NONE
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=given[0],
            producer_epoch=given[1],
        )

        def code(found: InitProducerIdResponse) -> int:
            self.pair = (found.producer_id, found.producer_epoch)
            return found.error_code

        await self.coordinated("init", request, InitProducerIdResponse, code, versions=range(5), is_harmless=True)
        self._sequences.clear()

    async def add(self, places: Iterable[TopicPartition]) -> None:
        """Take partitions into the transaction, the first of which begin it."""
        if self.protocol == 2:
            return
        producer_id, epoch = self.pair
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=(each,)) for topic, each in places],
        )

        def code(found: AddPartitionsToTxnResponse) -> int:
            topics = found.results_by_topic_v3_and_below
            return max(each.partition_error_code for topic in topics for each in topic.results_by_partition)

        await self.coordinated("add", request, AddPartitionsToTxnResponse, code, versions=range(4))

    async def send(self, place: TopicPartition, values: list[str], *, patience: int) -> int:
        """Produce one batch; return its first offset. It is sent again, `patience` times after lost answers."""
        sequence = self._sequences.get(place, 0)
        now_ms = self.client.clock.now_ms()
        rows = [Record(at, now_ms, TimestampType.CREATE_TIME, None, value.encode()) for at, value in enumerate(values)]
        header = BatchHeader(
            is_transactional=True, producer_id=self.pair[0], producer_epoch=self.pair[1], base_sequence=sequence
        )
        part = PartitionProduceData(index=place.partition, records=encode_records(rows, Format.V2, header=header))
        data = [TopicProduceData(name=place.topic, partition_data=[part])]
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=_WAIT_MS, topic_data=data)
        offset = -1

        def code(found: ProduceResponse) -> int:
            nonlocal offset
            answer = only(only(found.responses, "topics").partition_responses, "partitions")
            offset = answer.base_offset
            return answer.error_code

        async def leader() -> BrokerNode:
            return await self.client.leader(*place)

        def forget() -> None:
            self.client.forget(place.topic)

        versions = range(12, 13) if self.protocol == 2 else range(3, 10)
        await self._asked("produce", request, ProduceResponse, code, leader, forget, versions, patience=patience)
        self._sequences[place] = sequence + len(values)
        return offset

    async def commit_offsets(self, offsets: Mapping[TopicPartition, int], member: Membership = NO_MEMBER) -> None:
        """Have a group's offsets count when the transaction commits. They are refused where `member` is one no more."""
        producer_id, epoch = self.pair
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=GROUP_ID
        )
        if self.protocol == 1:
            await self.coordinated(
                "add offsets", adding, AddOffsetsToTxnResponse, lambda found: found.error_code, versions=range(4)
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP_ID,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=offset)],
                )
                for (topic, each), offset in offsets.items()
            ],
        )

        def code(found: TxnOffsetCommitResponse) -> int:
            return max(each.error_code for topic in found.topics for each in topic.partitions)

        await self.coordinated(
            "commit offsets", request, TxnOffsetCommitResponse, code,
            versions=range(5, 6) if self.protocol == 2 else range(4), key=GROUP_ID, kind=GROUP,
        )  # fmt: skip

    async def end(self, *, commit: bool) -> None:
        """End the transaction."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            committed=commit,
        )

        def code(found: EndTxnResponse) -> int:
            if self.protocol == 2 and not found.error_code:
                self.pair = (found.producer_id, found.producer_epoch)
                self._sequences.clear()
            return found.error_code

        versions = range(5, 6) if self.protocol == 2 else range(4)
        await self.coordinated("commit" if commit else "abort", request, EndTxnResponse, code, versions=versions)

    async def committed(self, place: TopicPartition, *, stable: bool) -> int:
        """Return the offset that the group has committed, 0 for none."""
        topics = [OffsetFetchRequestTopic(name=place.topic, partition_indexes=(place.partition,))]
        request = OffsetFetchRequest(group_id=GROUP_ID, topics=topics, require_stable=stable)
        offset = 0

        def code(found: OffsetFetchResponse) -> int:
            nonlocal offset
            if found.error_code:
                return found.error_code
            answer = only(only(found.topics, "topics").partitions, "partitions")
            offset = max(answer.committed_offset, 0)
            return answer.error_code

        await self.coordinated(
            "fetch offsets", request, OffsetFetchResponse, code,
            versions=range(7, 8), key=GROUP_ID, kind=GROUP, is_harmless=True,
        )  # fmt: skip
        return offset

    # ---- requests

    async def coordinated(
        self,
        what: str,
        request: Message,
        response: type[M],
        code: Callable[[M], int],
        *,
        versions: range,
        key: str | None = None,
        kind: int = TRANSACTION,
        is_harmless: bool = False,
    ) -> None:
        """Ask a coordinator until it says yes."""
        name = self.transactional_id if key is None else key

        async def find() -> BrokerNode:
            return await self.client.coordinator(name, kind)

        def forget() -> None:
            self.client.forget_coordinator(name, kind)

        patience = 1_000_000 if is_harmless or what in self._resends else 0
        await self._asked(what, request, response, code, find, forget, versions, patience=patience)

    async def _asked(
        self,
        what: str,
        request: Message,
        response: type[M],
        code: Callable[[M], int],
        find: Callable[[], Awaitable[BrokerNode]],
        forget: Callable[[], None],
        versions: range,
        *,
        patience: int,
    ) -> None:
        """Send a request until it is answered without an error. Raises UnclearError, RefusedError."""
        pause_s, certain = _PAUSE_S, True
        while True:
            try:
                node = await find()
                await self.client.connection(node)
            except MagicbyteError:  # nothing was sent
                forget()
            else:
                await self._phase(what, node)
                try:
                    found = await self.client.ask(node, request, response, versions=versions, wait_ms=_WAIT_MS)
                except NetworkError as error:
                    forget()
                    certain = False
                    if not patience:
                        raise UnclearError(f"{what}: {error}") from error
                    patience -= 1
                else:
                    number = code(found)
                    if not number:
                        return
                    if number not in RETRIED:
                        raise RefusedError(what, number, certain=certain and number in FENCED)
                    if number not in WAITS:
                        forget()
                        certain = False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
