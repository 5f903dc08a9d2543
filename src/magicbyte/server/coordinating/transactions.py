"""The service side of the transaction coordinator: its topic, and the markers that it sends.

Decisions are made in `transactions/`. Here they get the broker's settings, producer ids, and the outcomes of markers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS
from magicbyte.engine.transactions.config import TransactionConfig
from magicbyte.engine.transactions.coordinator import Coordinator
from magicbyte.engine.transactions.effects import SendMarkers
from magicbyte.engine.transactions.loading import Loading
from magicbyte.engine.transactions.rules import MARKED
from magicbyte.server.coordinating.coordinating import (
    Coordinating,
    CoordinatorKind,
    CoordinatorTopic,
    has_partition,
    own_topic,
)
from magicbyte.server.coordinating.markers import MarkerSender

if TYPE_CHECKING:
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.coordinating.markers import MarkerWriter
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.offer import Offer
    from magicbyte.server.stores.peers import Peers
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)


class Transactions(Coordinating[Coordinator]):
    """The transactional ids of the partitions of `__transaction_state` that a broker leads."""

    def __init__(
        self,
        services: CoordinatorServices,
        new_producer_id: Callable[[], int],
        marker_writer: MarkerWriter,
        peers: Peers,
    ) -> None:
        runtime, config = services.runtime, services.runtime.config
        kind = CoordinatorKind(
            STATE_TOPIC,
            "transactional ids",
            partial(_topic, config),
            Loading,
            timeout_ms=config.aborted_transaction_interval_ms,
            expiry_interval_ms=config.expired_id_interval_ms,
            is_joined=True,
            awaits_commit=True,  # a state that is lost later leaves transactions open that were begun by it
        )
        coordinator = Coordinator(
            _config(config, runtime.offer),
            new_producer_id=new_producer_id,
            has_partition=partial(has_partition, services.topics),
            offsets_partitions=partial(_offsets_partitions, config, services.topics),
        )
        self._sender = MarkerSender(
            runtime,
            services.topics,
            marker_writer,
            peers,
            self._marked,
            lambda sent: not coordinator.terms.is_present(sent.partition, sent.term),
        )
        super().__init__(services, kind, coordinator, {SendMarkers: lambda sent: self._sender.send(sent)})

    async def joined(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Return the response to a broker that asks about one transaction."""
        response = await self.call(request, FIRST_OF_BROKERS)
        assert isinstance(response, AddPartitionsToTxnResponse), "the generated class"
        return response

    def _marked(self, sent: SendMarkers, place: TopicPartition, code: ErrorCode) -> None:
        if code not in MARKED:
            self._runtime.complaints.line(log, place.topic, "markers", "%s: a marker of %s was refused: %s",
                                         place, sent.transactional_id, code.name)  # fmt: skip
        self.perform(self.coordinator.marked(sent, place, code))


def _topic(config: BrokerConfig) -> CoordinatorTopic:
    settings = {
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_min_isr),
        "segment.bytes": str(config.transaction_state_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    factor = config.transaction_state_replication_factor
    return own_topic(config, config.transaction_state_num_partitions, factor, settings)


def _offsets_partitions(config: BrokerConfig, topics: Topics) -> int:
    topic = topics.get(OFFSETS_TOPIC)
    return config.offsets_topic_num_partitions if topic is None else topic.partitions


def _config(config: BrokerConfig, offer: Offer) -> TransactionConfig:
    return TransactionConfig(
        transaction_version=offer.transaction_version,
        state_partitions=config.transaction_state_num_partitions,
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        check_interval_ms=config.aborted_transaction_interval_ms,
    )
