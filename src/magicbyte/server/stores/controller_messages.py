"""Build the controller's requests to brokers, in the form of the cluster's protocol version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.access.security.settings import PROTOCOLS
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from magicbyte.engine.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from magicbyte.engine.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from magicbyte.engine.releases import inter_broker_versions

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.brokers import RegisteredBroker
    from magicbyte.engine.replication.state import PartitionOrder

_PROTOCOLS: Final = {name: number for number, name in enumerate(PROTOCOLS)}
_FIRST_BY_TOPIC: Final[Mapping[int, int]] = {
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.STOP_REPLICA: 1,
    ApiKey.UPDATE_METADATA: 5,
}
_FIRST_WITH_STATES: Final = 3  # of StopReplica


class ControlMessages:
    """Build the requests of the controller `controller_id` in its `epoch`.

    `brokers`: the live ones. `topic_ids` are looked up when a request is built. `listener` is
    `BrokerConfig.inter_broker_name`.
    """

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        protocol: tuple[int, ...],
        topic_ids: Mapping[str, uuid.UUID],
        listener: str | None,
    ) -> None:
        self._controller_id, self._epoch, self._topic_ids, self._listener = controller_id, epoch, topic_ids, listener
        self._versions = inter_broker_versions(protocol)
        self.brokers: Mapping[int, RegisteredBroker] = {}
        self._last_update: (
            tuple[Sequence[PartitionOrder], Mapping[int, RegisteredBroker], UpdateMetadataRequest] | None
        ) = None

    @property
    def epochs(self) -> dict[int, int]:
        """The epochs of the live brokers."""
        return {each.id: each.epoch for each in self.brokers.values()}

    def failed(self, response: LeaderAndIsrResponse) -> list[TopicPartition]:
        """Return the partitions that a broker cannot open because its disk has failed."""
        errors = [(each.topic_name, each) for each in response.partition_errors]
        if response.topics:
            names = {topic_id: name for name, topic_id in self._topic_ids.items()}
            errors += [
                (names.get(topic.topic_id, ""), each) for topic in response.topics for each in topic.partition_errors
            ]
        return [
            TopicPartition(name, each.partition_index)
            for name, each in errors
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        ]

    def _is_by_topic(self, key: int) -> bool:
        return self._versions[key] >= _FIRST_BY_TOPIC[key]

    def leader_and_isr(self, broker_id: int, orders: Iterable[PartitionOrder]) -> LeaderAndIsrRequest:
        """Return the request with a broker's roles."""
        states: defaultdict[str, list[LeaderAndIsrPartitionState]] = defaultdict(list)
        leaders = set[int]()
        for order in orders:
            states[order.partition.topic].append(
                LeaderAndIsrPartitionState(
                    topic_name=order.partition.topic,
                    partition_index=order.partition.partition,
                    controller_epoch=order.state.controller_epoch,
                    leader=order.state.leader,
                    leader_epoch=order.state.leader_epoch,
                    isr=order.state.isr,
                    partition_epoch=order.version,
                    replicas=order.replicas,
                    adding_replicas=order.move.adding,
                    removing_replicas=order.move.removing,
                    is_new=order.is_new,
                )
            )
            leaders.add(order.state.leader)
        request = LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            broker_epoch=self.brokers[broker_id].epoch,
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=each, host_name=endpoint.host, port=endpoint.port)
                for each in sorted(leaders & self.brokers.keys())
                if (endpoint := self.brokers[each].endpoint(self._listener)) is not None
            ],
        )
        if self._is_by_topic(ApiKey.LEADER_AND_ISR):
            request.topic_states = [
                LeaderAndIsrTopicState(topic_name=topic, topic_id=self._id(topic), partition_states=each)
                for topic, each in states.items()
            ]
        else:
            request.ungrouped_partition_states = [state for each in states.values() for state in each]
        return request

    def update_metadata(self, broker_id: int, orders: Sequence[PartitionOrder]) -> UpdateMetadataRequest:
        """Return the request with all live brokers and the given partitions."""
        epoch, last = self.brokers[broker_id].epoch, self._last_update
        if (
            last is None or last[0] is not orders or last[1] is not self.brokers
        ):  # reuse the request if another broker gets the same
            last = self._last_update = orders, self.brokers, self._update(orders)
        return replace(last[2], broker_epoch=epoch)

    def _update(self, orders: Iterable[PartitionOrder]) -> UpdateMetadataRequest:
        states: defaultdict[str, list[UpdateMetadataPartitionState]] = defaultdict(list)
        for order in orders:
            states[order.partition.topic].append(
                UpdateMetadataPartitionState(
                    topic_name=order.partition.topic,
                    partition_index=order.partition.partition,
                    controller_epoch=order.state.controller_epoch,
                    leader=order.state.leader,
                    leader_epoch=order.state.leader_epoch,
                    isr=order.state.isr,
                    zk_version=order.version,
                    replicas=order.replicas,
                    offline_replicas=order.offline,
                )
            )
        request = UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            live_brokers=[self._member(each) for _, each in sorted(self.brokers.items())],
        )
        if self._is_by_topic(ApiKey.UPDATE_METADATA):
            request.topic_states = [
                UpdateMetadataTopicState(topic_name=topic, topic_id=self._id(topic), partition_states=each)
                for topic, each in states.items()
            ]
        else:
            request.ungrouped_partition_states = [state for each in states.values() for state in each]
        return request

    def _member(self, broker: RegisteredBroker) -> UpdateMetadataBroker:
        member = UpdateMetadataBroker(
            id=broker.id,
            endpoints=[
                UpdateMetadataEndpoint(
                    port=each.port,
                    host=each.host,
                    listener=each.listener,
                    security_protocol=_PROTOCOLS.get(each.security_protocol, 0),
                )
                for each in broker.registration.endpoints
            ],
            rack=broker.registration.rack,
        )
        if (endpoint := broker.endpoint(self._listener)) is not None:
            member.v0_host, member.v0_port = endpoint.host, endpoint.port
        return member

    def stop_replicas(
        self, broker_id: int, partitions: Iterable[TopicPartition], *, deletes: bool
    ) -> StopReplicaRequest:
        """Return the request to stop replicas, and optionally delete their logs."""
        request = StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            broker_epoch=self.brokers[broker_id].epoch,
        )
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for key in partitions:
            by_topic[key.topic].append(key.partition)
        if self._versions[ApiKey.STOP_REPLICA] >= _FIRST_WITH_STATES:
            request.topic_states = [
                StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        StopReplicaPartitionState(partition_index=each, delete_partition=deletes) for each in indexes
                    ],
                )
                for topic, indexes in by_topic.items()
            ]
            return request
        request.delete_partitions = deletes
        if self._is_by_topic(ApiKey.STOP_REPLICA):
            request.topics = [
                StopReplicaTopicV1(name=topic, partition_indexes=tuple(each)) for topic, each in by_topic.items()
            ]
        else:
            request.ungrouped_partitions = [
                StopReplicaPartitionV0(topic_name=topic, partition_index=each)
                for topic, indexes in by_topic.items()
                for each in indexes
            ]
        return request

    def _id(self, topic: str) -> uuid.UUID:
        return self._topic_ids.get(topic, NULL_UUID)
