"""Administer transactions: list and describe them, find hanging ones, and abort them.

A transaction *hangs* in a partition if its coordinator does not know of it, for instance after a late Produce request:
no coordinator will write its marker, and the last stable offset remains before it. Sources: KIP-664; Kafka's
TransactionsCommand. Needs brokers from 3.0 on: those of 2.8 report producers only, earlier ones nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from typing import Any, Final

from msgspec import Struct

from magicbyte.access.client.client import TRANSACTION, BrokerNode, Client, only
from magicbyte.access.client.groups import TopicPartition, by_topic
from magicbyte.engine.errors import BrokerError, ErrorCode, NetworkError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from magicbyte.engine.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Json = dict[str, Any]

_MARKERS = range(2)  # version 2 refuses the epoch of the open transaction, which must be used here

MAX_TIMEOUT_MS: Final = 900_000
"""Kafka's default of `transaction.max.timeout.ms`: no coordinator keeps a transaction open for longer."""


class ListedTransaction(Struct, frozen=True):
    """A transactional id, the state of its latest transaction, and its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str

    def to_json(self) -> Json:
        """Return the row of `magicbyte transactions list --format json`."""
        return {
            "transactionalId": self.transactional_id,
            "coordinator": self.coordinator,
            "producerId": self.producer_id,
            "state": self.state,
        }


class DescribedTransaction(Struct, frozen=True):
    """A transactional id as its coordinator returns it. `start_ms` is -1 if no transaction is open.

    `partitions`: those without a marker of the latest transaction so far.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]

    def to_json(self) -> Json:
        """Return the transactional id as printed by `magicbyte transactions describe --format json`."""
        return {
            "transactionalId": self.transactional_id,
            "coordinator": self.coordinator,
            "producerId": self.producer_id,
            "producerEpoch": self.producer_epoch,
            "state": self.state,
            "timeoutMs": self.timeout_ms,
            "startMs": None if self.start_ms < 0 else self.start_ms,
            "partitions": [{"topic": topic, "partition": index} for topic, index in self.partitions],
        }


class PartitionTransaction(Struct, frozen=True):
    """An open transaction in a partition, by the producer state of the partition's leader."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int

    def to_json(self) -> Json:
        """Return the row of `magicbyte transactions find-hanging --format json`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "producerId": self.producer_id,
            "producerEpoch": self.producer_epoch,
            "coordinatorEpoch": self.coordinator_epoch,
            "startOffset": self.start_offset,
            "lastTimestamp": self.last_timestamp,
        }


class HangingTransactions(Struct, frozen=True):
    """Hanging transactions, and the reasons why some partitions could not be asked."""

    transactions: list[PartitionTransaction]
    unasked: list[str]


async def list_transactions(
    client: Client, states: Collection[str] = (), producer_ids: Collection[int] = ()
) -> list[ListedTransaction]:
    """Return the transactional ids of all brokers, by name: all, or those in these states and of these producers.

    Raises BrokerError, also for a state unknown to the brokers, NetworkError and UnsupportedVersionError.
    """
    connection = await client.any_connection()
    connection.versions.choose(APIS[ApiKey.LIST_TRANSACTIONS], None, connection.name)
    await client.topics([])
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=tuple(producer_ids))
    found: dict[str, ListedTransaction] = {}
    for node in client.cluster.brokers.values():
        listed = await client.retried(functools.partial(_listed_at, client, node, request))
        found |= {each.transactional_id: each for each in listed}
    return [each for _, each in sorted(found.items())]


async def _listed_at(client: Client, node: BrokerNode, request: ListTransactionsRequest) -> list[ListedTransaction]:
    response = await client.ask(node, request, ListTransactionsResponse)
    _check("list transactions", response.error_code, node)
    if unknown := response.unknown_state_filters:
        detail = (
            f"no such state: {', '.join(unknown)}; expected Empty, Ongoing, PrepareCommit, CompleteAbort or another"
        )
        raise BrokerError("list transactions", ErrorCode.INVALID_REQUEST, broker=str(node), detail=detail)
    return [
        ListedTransaction(each.transactional_id, node.id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ]


async def describe_transaction(client: Client, transactional_id: str) -> DescribedTransaction:
    """Return a transactional id's state at its coordinator. Raises BrokerError and NetworkError."""

    async def ask(node: BrokerNode) -> DescribedTransaction:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = await client.ask(node, request, DescribeTransactionsResponse)
        state = only(response.transaction_states, "transactional ids")
        unknown = state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        hint = "`magicbyte transactions list` shows those that there are" if unknown else None
        _check(f"describe transactional id {transactional_id}", state.error_code, node, hint)
        return DescribedTransaction(
            transactional_id,
            node.id,
            state.producer_id,
            state.producer_epoch,
            state.transaction_state,
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
            tuple((each.topic, index) for each in state.topics for index in each.partitions),
        )

    return await client.at_coordinator(transactional_id, ask, TRANSACTION)


# ---- transactions in partitions


async def open_transactions(client: Client, topic: str, partition: int) -> list[PartitionTransaction]:
    """Return the open transactions in a partition. Raises BrokerError and NetworkError."""

    async def ask(node: BrokerNode) -> list[PartitionTransaction]:
        (code, message, found) = (await _open_at(client, node, [(topic, partition)]))[topic, partition]
        _check(f"describe producers of {topic}-{partition}", code, node, message)
        return found

    return await client.at_leader(topic, partition, ask)


async def _open_at(
    client: Client, node: BrokerNode, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, str | None, list[PartitionTransaction]]]:
    """Return error code, message and open transactions of partitions that a broker leads."""
    topics = by_topic(partitions).items()
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=tuple(indexes)) for topic, indexes in topics]
    )
    response = await client.ask(node, request, DescribeProducersResponse)
    return {
        (topic.name, answer.partition_index): (
            answer.error_code,
            answer.error_message,
            [
                PartitionTransaction(
                    topic.name, answer.partition_index, each.producer_id, each.producer_epoch,
                    max(each.coordinator_epoch, 0), each.current_txn_start_offset, each.last_timestamp,
                )
                for each in answer.active_producers
                if each.current_txn_start_offset >= 0
            ],
        )
        for topic in response.topics
        for answer in topic.partitions
    }  # fmt: skip


async def find_hanging(
    client: Client, topics: Collection[str] | None = None, idle_ms: int = MAX_TIMEOUT_MS
) -> HangingTransactions:
    """Return the hanging transactions in the partitions of `topics`, of all topics if None.

    Those whose producer wrote to the partition within `idle_ms` are skipped: they may have begun, or ended, since the
    coordinators were asked. Raises BrokerError, NetworkError and UnsupportedVersionError; a partition without a leader,
    or whose leader does not respond, is no error but is in `unasked`.
    """
    connection = await client.any_connection()
    connection.versions.choose(APIS[ApiKey.LIST_TRANSACTIONS], None, connection.name)
    unasked: list[str] = []
    by_leader: dict[int, list[TopicPartition]] = {}
    known = await client.topics()
    for name in sorted(known if topics is None else topics):
        topic = known[name] if name in known else await client.existing_topic(name)
        for index, partition in sorted(topic.partitions.items()):
            if partition.leader in client.cluster.brokers:
                by_leader.setdefault(partition.leader, []).append((name, index))
            else:
                unasked.append(f"{name}-{index}: it has no leader")
    suspects: list[PartitionTransaction] = []
    for leader, partitions in sorted(by_leader.items()):
        node = client.cluster.brokers[leader]
        try:
            answers = await client.retried(functools.partial(_open_at, client, node, partitions))
        except NetworkError as error:
            unasked += [f"{name}-{index}: {error}" for name, index in partitions]
            continue
        for (name, index), (code, message, transactions) in answers.items():
            if code:
                unasked.append(str(BrokerError(f"producers of {name}-{index}", code, broker=str(node), detail=message)))
            suspects += transactions
    today = client.clock.now_ms()  # a date, as record timestamps are dates
    idle = [each for each in suspects if today - each.last_timestamp > idle_ms]
    return HangingTransactions(await _without_coordinator(client, idle), unasked)


async def _without_coordinator(client: Client, suspects: list[PartitionTransaction]) -> list[PartitionTransaction]:
    """Return the transactions whose coordinator, if there is one, will not write a marker to their partition."""
    if not suspects:
        return []
    listed = await list_transactions(client, producer_ids=sorted({each.producer_id for each in suspects}))
    expected = dict[int, set[TopicPartition]]()
    for each in listed:
        try:
            described = await describe_transaction(client, each.transactional_id)
        except BrokerError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # otherwise it has expired since
                raise
        else:
            expected.setdefault(described.producer_id, set()).update(described.partitions)
    return [each for each in suspects if (each.topic, each.partition) not in expected.get(each.producer_id, ())]


async def hanging_at(client: Client, topic: str, partition: int, start_offset: int) -> PartitionTransaction:
    """Return the hanging transaction that begins at an offset of a partition.

    Raises BrokerError if no transaction begins there, or if its coordinator will end it.
    """
    what = f"abort the transaction at offset {start_offset} of {topic}-{partition}"
    opened = await open_transactions(client, topic, partition)
    there = [each for each in opened if each.start_offset == start_offset]
    if not there:
        starts = ", ".join(str(each.start_offset) for each in sorted(opened, key=lambda each: each.start_offset))
        detail = f"open transactions begin at offsets {starts}" if opened else "no transaction is open there"
        raise BrokerError(what, ErrorCode.INVALID_REQUEST, broker="the cluster", detail=detail)
    if not await _without_coordinator(client, there):
        detail = (
            f"its coordinator knows it and will end it, at the latest after its timeout: see the transactional id of "
            f"producer {there[0].producer_id} in `magicbyte transactions list`"
        )
        raise BrokerError(what, ErrorCode.CONCURRENT_TRANSACTIONS, broker="the cluster", detail=detail)
    return there[0]


async def abort_transaction(client: Client, transaction: PartitionTransaction) -> None:
    """Abort a transaction in its partition by an ABORT marker. Raises BrokerError and NetworkError."""
    topic, partition = transaction.topic, transaction.partition
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=(partition,))],
        coordinator_epoch=transaction.coordinator_epoch,
    )

    async def ask(node: BrokerNode) -> None:
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await client.ask(node, request, WriteTxnMarkersResponse, versions=_MARKERS)
        written = only(only(only(response.markers, "markers").topics, "topics").partitions, "partitions")
        _check(f"abort the transaction at offset {transaction.start_offset} of {topic}-{partition}",
               written.error_code, node)  # fmt: skip

    await client.at_leader(topic, partition, ask)


def _check(what: str, code: int, node: BrokerNode, detail: str | None = None) -> None:
    if code:
        raise BrokerError(what, code, broker=str(node), detail=detail)
