"""The transactional producer: records of any partitions and offsets of any groups become visible atomically.

It uses protocol 1 (KIP-98, KIP-360), which brokers from 0.11 to 4.x support, so all requests use versions without
KIP-890's protocol 2. Sources: docs/protocol; Kafka's TransactionManager.

One difference to Kafka's producers: after an EndTxn whose response was lost, they begin the next transaction in the
same epoch. A late copy of that request would end the next transaction (KAFKA-17754), so here the next one begins with a
new epoch, if brokers can raise it (2.5 and later).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, Self

from msgspec.structs import replace

from magicbyte.access.client.client import TRANSACTION, BrokerNode, Client
from magicbyte.access.client.groups import Committed, TopicPartition, by_topic
from magicbyte.access.client.produce import (
    ACKS_ALL,
    DEFAULT_PRODUCE,
    TOO_LARGE,
    ProduceOptions,
    numbered,
    send_in_transaction,
    sets_of,
)
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    BrokerError,
    ErrorCode,
    MagicbyteError,
    NetworkError,
    ProtocolError,
    UnknownOutcomeError,
    UnsupportedVersionError,
)
from magicbyte.engine.protocol.message import Records
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from magicbyte.engine.records.columns import Record, RecordColumns
from magicbyte.engine.records.encode import BatchHeader, Format
from magicbyte.engine.sentinels import NO_EPOCH, NO_PRODUCER_ID

TIMEOUT_MS: Final = 60_000
"""The default of `transaction.timeout.ms` in Kafka's producers."""

# versions without protocol 2
_INIT, _ADD, _ADD_OFFSETS, _OFFSETS, _END = range(6), range(4), range(4), range(5), range(5)
# the first version of InitProducerId that distinguishes a producer from the successor that fenced it
_KEEPS_PAIR: Final = 3
_GONE: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)  # errors that end the producer, and its open transaction
_REFUSED: Final = _GONE | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}  # errors of EndTxn after which nothing was done

_FENCED: Final = (
    "another producer began with this transactional id, or the transaction was open for longer than its timeout of "
    "{timeout_ms} ms and was aborted: start a new producer, and commit more often if it was the timeout"
)
_ADVICE: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the coordinator knows the transactional id with another producer, or not "
    "at all (transactional.id.expiration.ms): start a new producer",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow WRITE and DESCRIBE on this transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "a timeout of {timeout_ms} ms is above the brokers' "
    "transaction.max.timeout.ms (15 minutes unless it is set)",
    ErrorCode.CONCURRENT_TRANSACTIONS: "markers of the previous transaction are still not written: `magicbyte "
    "transactions describe` names the partitions that lack one",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "has __transaction_state enough brokers for "
    "transaction.state.log.replication.factor and min.isr?",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic stores records in format 0 or 1, which hold no transactions: "
    "see its message.format.version",
}


class TransactionalProducer:
    """Produce records and commit offsets of groups in transactions of one transactional id, one after the other.

        producer = await TransactionalProducer.begin(client, "orders-1")
        async with producer.transaction():
            await producer.send("orders", 0, records)
            await producer.commit_offsets("group", {("input", 0): Committed(17)})

    Several tasks of a loop may call it; records of a partition are in the order of the calls. Transient failures are
    retried for the client's `retry_ms`, and each record is stored exactly once. After any other failure the transaction
    can only be aborted. `commit` and `abort` must not overlap with other calls.
    """

    def __init__(self, client: Client, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._client = client
        self._timeout_ms = timeout_ms
        self._producer_id, self._epoch = NO_PRODUCER_ID, NO_EPOCH
        self._sequences: dict[TopicPartition, int] = {}
        self._turns: dict[TopicPartition, asyncio.Lock] = {}
        self._joining = asyncio.Lock()  # coordinators answer a concurrent request of an id with CONCURRENT_TRANSACTIONS
        self._wanted = set[TopicPartition]()
        self._partitions = set[TopicPartition]()
        self._groups = set[str]()
        self._is_open = False  # or may be open: the addition of a partition was requested
        self._failed = False
        self._must_renew = False  # because sequence numbers are unknown
        self._should_renew = False  # because a copy of a request may still arrive
        self._finished: MagicbyteError | None = None

    @classmethod
    async def begin(cls, client: Client, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Self:
        """Return a producer, and fence all others of its id; their open transaction is aborted.

        `timeout_ms`: after which coordinators abort a transaction. Raises BrokerError, NetworkError, and
        UnsupportedVersionError with brokers before 0.11.
        """
        producer = cls(client, transactional_id, timeout_ms)
        await producer._initialise(_INIT)
        return producer

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commit the transaction at the end of the block, or abort it if the block raises an exception."""
        try:
            yield self
        except BaseException as failure:
            try:
                await self.abort()
            except MagicbyteError as error:
                failure.add_note(f"the transaction is aborted by its timeout of {self._timeout_ms} ms: {error}")
            raise
        await self.commit()

    async def send(
        self,
        topic: str,
        partition: int,
        records: RecordColumns | Iterable[Record],
        options: ProduceOptions = DEFAULT_PRODUCE,
    ) -> list[Produced]:
        """Produce records to a partition, as `produce.send` does, in format 2 with acks=all."""
        options = replace(options, format=Format.V2, acks=ACKS_ALL)
        columns = numbered(records, self._client.clock)

        def make(header: BatchHeader) -> tuple[Iterable[Records], int]:
            return sets_of(columns, Format.V2, options, header), len(columns)

        return await self._send((topic, partition), make, options)

    async def send_made(
        self, topic: str, partition: int, make: Callable[[BatchHeader], tuple[Records, int]], codec: Codec
    ) -> Produced:
        """Produce one batch to a partition: `make` encodes it with the given header, and returns its record count.

        Raises BrokerError and NetworkError, and the errors of `make`. A refused batch that is too large does not end
        the transaction.
        """

        def made(header: BatchHeader) -> tuple[Iterable[Records], int]:
            data, count = make(header)
            return [data], count

        (answer,) = await self._send((topic, partition), made, ProduceOptions(codec), harmless=TOO_LARGE)
        return answer

    async def _send(
        self,
        partition: TopicPartition,
        make: Callable[[BatchHeader], tuple[Iterable[Records], int]],
        options: ProduceOptions,
        harmless: frozenset[ErrorCode] = frozenset(),
    ) -> list[Produced]:
        """Produce sets to a partition, after those sent to it before."""
        await self._prepare()
        async with self._turns.setdefault(partition, asyncio.Lock()):
            with self._failing(harmless):
                await self._join(partition)
                sequence = self._sequences.get(partition, 0)
                header = BatchHeader(
                    is_transactional=True,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    base_sequence=sequence,
                )
                sets, count = make(header)
                answers = [
                    await send_in_transaction(self._client, self.transactional_id, *partition, each, options)
                    for each in sets
                ]
                self._sequences[partition] = sequence + count & 0x7FFFFFFF
                return answers

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets of a group, which must have no members, with the transaction."""
        await self._prepare()
        with self._failing():
            await self._join_group(group)
            await self._client.at_coordinator(group, lambda node: self._commit_offsets(node, group, offsets))

    async def commit(self) -> None:
        """Commit the transaction. When it returns, the decision is stored by the coordinator.

        Raises BrokerError and NetworkError; then the producer is unusable.
        """
        self._check()
        await self._end(commit=True)

    async def abort(self) -> None:
        """Abort the transaction: nothing of it becomes visible. Raises BrokerError and NetworkError."""
        if self._finished is None:
            await self._end(commit=False)

    def _check(self) -> None:
        if self._finished is not None:
            raise self._finished
        if self._failed:
            detail = "a request of this transaction failed, so that it can only be aborted"
            raise BrokerError(
                f"transaction of {self.transactional_id}",
                ErrorCode.INVALID_TXN_STATE,
                broker="this client",
                detail=detail,
            )

    @contextlib.contextmanager
    def _failing(self, harmless: frozenset[ErrorCode] = frozenset()) -> Iterator[None]:
        """Mark the transaction as failed if the block raises anything but harmless codes, or is cancelled."""
        try:
            with self._advising():
                yield
        except BaseException as error:
            self._failed |= not isinstance(error, BrokerError) or error.code not in harmless
            raise

    @contextlib.contextmanager
    def _advising(self) -> Iterator[None]:
        """Add advice to a broker's refusal."""
        try:
            yield
        except BrokerError as error:
            advice = _ADVICE.get(error.code)
            if advice is None:
                raise
            detail = ": ".join(filter(None, (error.detail, advice.format(timeout_ms=self._timeout_ms))))
            raise BrokerError(error.what, error.number, broker=error.broker, detail=detail) from error

    # ---- requests

    async def _prepare(self) -> None:
        """Ensure that the transaction can continue, or begin another, in a new epoch if necessary."""
        self._check()
        async with self._joining:
            if self._is_open or not (self._must_renew or self._should_renew):
                return
            try:
                await self._initialise(_INIT[_KEEPS_PAIR:])
            except UnsupportedVersionError as error:
                if self._must_renew:
                    self._finished = error
                    raise
            except BrokerError as error:
                if error.code in _GONE:
                    self._finished = error
                raise
            else:
                self._sequences.clear()
            self._must_renew = self._should_renew = False

    async def _initialise(self, versions: range) -> None:
        """Request a producer id and epoch, or the next epoch."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )

        async def ask(node: BrokerNode) -> None:
            found = await self._client.ask(node, request, InitProducerIdResponse, versions=versions)
            _check(f"begin as transactional id {self.transactional_id}", found.error_code, node)
            self._producer_id, self._epoch = found.producer_id, found.producer_epoch

        with self._advising():
            await self._at_coordinator(ask)

    async def _at_coordinator(self, ask: Callable[[BrokerNode], Awaitable[None]]) -> None:
        await self._client.at_coordinator(self.transactional_id, ask, TRANSACTION)

    async def _join(self, place: TopicPartition) -> None:
        """Add a partition to the transaction, with all others that are waiting, unless it is in it already."""
        self._wanted.add(place)
        async with self._joining:
            if place in self._partitions:
                return
            wanted = sorted(self._wanted)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes))
                    for topic, indexes in by_topic(wanted).items()
                ],
            )

            async def ask(node: BrokerNode) -> None:
                self._is_open = True
                response = await self._client.ask(node, request, AddPartitionsToTxnResponse, versions=_ADD)
                added = {
                    (topic.name, each.partition_index): each.partition_error_code
                    for topic in response.results_by_topic_v3_and_below
                    for each in topic.results_by_partition
                }
                if added.keys() != set(wanted):
                    raise ProtocolError("partitions", expected=f"the {len(wanted)} of the request", found=len(added))
                # A refused partition keeps the others out: report the error of that one only.
                refused = sorted(added.items(), key=lambda item: item[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
                for (topic, index), code in refused:
                    _check(f"add {topic}-{index} to the transaction of {self.transactional_id}", code, node)

            await self._at_coordinator(ask)
            self._partitions.update(wanted)
            self._wanted.difference_update(wanted)

    async def _join_group(self, group: str) -> None:
        async with self._joining:
            if group in self._groups:
                return
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )

            async def ask(node: BrokerNode) -> None:
                self._is_open = True
                response = await self._client.ask(node, request, AddOffsetsToTxnResponse, versions=_ADD_OFFSETS)
                what = f"add offsets of group {group} to the transaction of {self.transactional_id}"
                _check(what, response.error_code, node)

            await self._at_coordinator(ask)
            self._groups.add(group)

    async def _commit_offsets(self, node: BrokerNode, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[topic, index].offset,
                        committed_leader_epoch=offsets[topic, index].leader_epoch,
                        committed_metadata=offsets[topic, index].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=topics,
        )
        response = await self._client.ask(node, request, TxnOffsetCommitResponse, versions=_OFFSETS)
        for topic in response.topics:
            for each in topic.partitions:
                what = f"commit of group {group} in {topic.name}-{each.partition_index}"
                _check(what, each.error_code, node)

    async def _end(self, *, commit: bool) -> None:
        """End the transaction, if any broker knows of it. After an error the producer is unusable."""
        if self._is_open:
            try:
                with self._advising():
                    await self._ask_for_end(commit=commit)
            except BrokerError as error:
                self._finished = error
                if commit or error.code not in _GONE:  # otherwise it has been aborted already
                    raise
            except BaseException as error:
                what = f"transaction of {self.transactional_id}: its end was cut off"
                self._finished = error if isinstance(error, MagicbyteError) else UnknownOutcomeError(what)
                raise
        self._must_renew |= self._failed
        self._failed = self._is_open = False
        self._partitions.clear()
        self._wanted.clear()
        self._groups.clear()

    async def _ask_for_end(self, *, commit: bool) -> None:
        what = f"{'commit' if commit else 'abort'} the transaction of {self.transactional_id}"
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        lost = False  # the response to an attempt that may have been, or may still be, performed

        async def ask(node: BrokerNode) -> None:
            nonlocal lost
            try:
                response = await self._client.ask(node, request, EndTxnResponse, versions=_END)
                # no transaction is open: nothing to abort
                if commit or response.error_code != ErrorCode.INVALID_TXN_STATE:
                    _check(what, response.error_code, node)
            except (BrokerError, NetworkError) as error:
                lost |= error.code not in _REFUSED
                raise

        try:
            await self._at_coordinator(ask)
        except (BrokerError, NetworkError) as error:
            if commit and lost:
                unknown = f"{error}: it is not known whether it was: either all of it is committed, or nothing"
                raise UnknownOutcomeError(unknown) from error
            raise
        self._should_renew |= lost


def _check(what: str, code: int, node: BrokerNode) -> None:
    if code:
        raise BrokerError(what, code, broker=str(node))
