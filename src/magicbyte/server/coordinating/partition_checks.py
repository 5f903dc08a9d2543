"""Ask the coordinators of transactions at other brokers about partitions: AddPartitionsToTxn of brokers (KIP-890).

There is one request at a time to each broker, with all its waiting transactions. Source: Kafka's
AddPartitionsToTxnManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import BrokerError, ErrorCode, MagicbyteError, UnsupportedVersionError
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS, codes_of
from magicbyte.engine.transactions.transaction import by_topic
from magicbyte.server.stores.outgoing import Outgoing, PeerQueue
from magicbyte.server.stores.peers import PeerLink

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.transactions import Transactions
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.peers import Peers

log = logger(__name__)

TIMEOUT_MS: Final = 30_000  # for the response of another broker
_MOST: Final = 500  # transactions per request
_VERSIONS: Final = range(FIRST_OF_BROKERS, FIRST_OF_BROKERS + 2)

Codes = dict[TopicPartition, ErrorCode]


class _Question(Struct):
    """A question about one transaction. `joins`: the partitions are added to it, not only verified."""

    transactional_id: str
    producer_id: int
    epoch: int
    joins: bool
    places: set[TopicPartition]
    answer: asyncio.Future[Codes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def is_like(self, other: _Question) -> bool:
        """Return whether one entry of a request can ask both."""
        mine, others = (self.producer_id, self.epoch, self.joins), (other.producer_id, other.epoch, other.joins)
        return mine == others

    def resolve(self, codes: Mapping[TopicPartition, ErrorCode], others: ErrorCode) -> None:
        """Answer it; `others` is the code of partitions without their own."""
        if not self.answer.done():
            self.answer.set_result({each: codes.get(each, others) for each in self.places})

    def message(self) -> AddPartitionsToTxnTransaction:
        """Return the entry of a request."""
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=tuple(ids)) for topic, ids in by_topic(self.places)]
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=not self.joins,
            topics=topics,
        )


class _Questions(PeerQueue[_Question]):
    """The queue for a broker: one question for each transactional id."""

    def __init__(self) -> None:
        super().__init__()
        self._questions: dict[str, _Question] = {}

    def put(self, new: _Question) -> _Question:
        """Add a question; return the one to wait for, which may be merged with a waiting one.

        Of two epochs the lower one is fenced. A question that contradicts the waiting one otherwise must be retried.
        """
        waiting = self._questions.get(new.transactional_id)
        if waiting is not None and waiting.is_like(new):
            waiting.places |= new.places
            return waiting
        if waiting is not None:
            is_same_producer = waiting.producer_id == new.producer_id
            if is_same_producer and new.epoch < waiting.epoch:
                new.resolve({}, ErrorCode.INVALID_PRODUCER_EPOCH)
                return new
            is_fenced = is_same_producer and waiting.epoch < new.epoch
            waiting.resolve({}, ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)
        self._questions[new.transactional_id] = new
        self.added()
        return new

    def _pop(self, most: int | None) -> list[_Question]:
        taken = list(islice(self._questions.values(), most))
        for each in taken:
            del self._questions[each.transactional_id]
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._questions


class PartitionChecks:
    """Ask the coordinators of transactions before a partition appends the first records of one."""

    def __init__(self, runtime: Runtime, transactions: Callable[[], Transactions], peers: Peers) -> None:
        """`transactions` returns this broker's own coordinator."""
        self._runtime, self._transactions, self._peers = runtime, transactions, peers
        self._outgoing = Outgoing[_Questions, _Question](
            runtime,
            _Questions,
            lambda leader: PeerLink(runtime, peers, leader, timeout_ms=TIMEOUT_MS, asks_versions=True),
            self._ask,
            _lost,
            most=_MOST,
        )

    async def ask(
        self, transactional_id: str, who: tuple[int, int], places: Collection[TopicPartition], *, joins: bool
    ) -> Codes:
        """Return the coordinator's code for each partition; `who`: producer id and epoch.

        NETWORK_EXCEPTION: it was unreachable, or did not respond within `TIMEOUT_MS`. A coordinator before 3.6 cannot
        verify: then partitions count as verified.
        """
        leader = self._coordinator(transactional_id)
        if leader == NO_BROKER:
            return dict.fromkeys(places, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if leader == self._runtime.node_id and not joins:
            return self._transactions().coordinator.verify(transactional_id, who, places)
        question = _Question(transactional_id, *who, joins, set(places))
        if leader == self._runtime.node_id:
            request = AddPartitionsToTxnRequest(transactions=[question.message()])
            (told,) = (await self._transactions().joined(request)).results_by_transaction
            return codes_of(told)
        # shielded, because others may wait for it, too
        answered = await asyncio.shield(self._outgoing.to(leader).put(question).answer)
        return {each: answered[each] for each in places}

    def _coordinator(self, transactional_id: str) -> int:
        """Return the coordinator of an id, NO_BROKER if there is none."""
        view = self._peers.view
        partitions = len(view.partitions(STATE_TOPIC))
        if not partitions:
            return NO_BROKER
        return view.leader(TopicPartition(STATE_TOPIC, partition_for(transactional_id, partitions)))

    async def _ask(self, leader: int, link: PeerLink, asked: list[_Question]) -> None:
        """Ask a broker, and answer the questions."""
        try:
            request = AddPartitionsToTxnRequest(transactions=[each.message() for each in asked])
            codes = _codes_by_transaction(await link.send(request, versions=_VERSIONS), link.name)
        except BrokerError as error:
            self._complain(link, "transactions are not verified there", error)
            # this broker is not authorized, not the producer
            is_ours = error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            for each in asked:
                each.resolve({}, ErrorCode.INVALID_TXN_STATE if is_ours else error.code)
        except UnsupportedVersionError as error:
            self._complain(link, "transactions are not verified there", error)
            for each in asked:
                each.resolve({}, ErrorCode.UNSUPPORTED_VERSION if each.joins else ErrorCode.NONE)
        except MagicbyteError as error:
            self._complain(link, "producers are to ask again", error)
            for each in (
                *asked,
                *self._outgoing.to(leader).pop(),
            ):  # the questions that came meanwhile would wait for as long again
                each.resolve({}, ErrorCode.NETWORK_EXCEPTION)
        else:
            for each in asked:
                each.resolve(codes.get(each.transactional_id, {}), ErrorCode.UNKNOWN_SERVER_ERROR)

    def _complain(self, link: PeerLink, what: str, error: Exception) -> None:
        self._runtime.complaints.line(
            log, link.name, "partitions of transactions", "%s: %s: %s", link.name, what, error
        )


def _lost(asked: list[_Question], _error: Exception | None) -> None:
    for each in asked:
        each.resolve({}, ErrorCode.NETWORK_EXCEPTION)


def _codes_by_transaction(response: Message, broker: str) -> dict[str, Codes]:
    """Return the codes of each transaction. Raises BrokerError for an error of the whole response."""
    assert isinstance(response, AddPartitionsToTxnResponse), "the generated class"
    if response.error_code:
        raise BrokerError("AddPartitionsToTxn", response.error_code, broker=broker)
    return {each.transactional_id: codes_of(each) for each in response.results_by_transaction}
