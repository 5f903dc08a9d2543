"""Who may do what, over a connection. Numbers in brackets are those of the specification's checks."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.produce import send
from magicbyte.engine.cluster.acls import (
    AccessControlEntry,
    AclOperation,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import ANONYMOUS
from magicbyte.engine.errors import ErrorCode, InvalidConfigError, UnsupportedVersionError
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.protocol import APIS, Message, write_request
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import add_partitions_to_txn as extend
from magicbyte.engine.protocol.messages import alter_client_quotas as requotas
from magicbyte.engine.protocol.messages import alter_configs as alter
from magicbyte.engine.protocol.messages import alter_partition_reassignments as reassign
from magicbyte.engine.protocol.messages import alter_replica_log_dirs as move
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as rescram
from magicbyte.engine.protocol.messages import (
    create_acls,
    create_topics,
    delete_acls,
    describe_acls,
    describe_cluster,
    describe_groups,
    fetch,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    metadata,
    produce,
    sync_group,
)
from magicbyte.engine.protocol.messages import create_partitions as grow
from magicbyte.engine.protocol.messages import delete_groups as drop
from magicbyte.engine.protocol.messages import delete_records as cut
from magicbyte.engine.protocol.messages import delete_share_group_state as delete_state
from magicbyte.engine.protocol.messages import delete_topics as remove
from magicbyte.engine.protocol.messages import describe_client_quotas as quotas
from magicbyte.engine.protocol.messages import describe_configs as configs
from magicbyte.engine.protocol.messages import describe_log_dirs as disks
from magicbyte.engine.protocol.messages import describe_producers as producers
from magicbyte.engine.protocol.messages import describe_user_scram_credentials as scram
from magicbyte.engine.protocol.messages import elect_leaders as elect
from magicbyte.engine.protocol.messages import find_coordinator as find
from magicbyte.engine.protocol.messages import incremental_alter_configs as increment
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialize_state
from magicbyte.engine.protocol.messages import list_offsets as offsets
from magicbyte.engine.protocol.messages import list_partition_reassignments as moves
from magicbyte.engine.protocol.messages import offset_commit as commit
from magicbyte.engine.protocol.messages import offset_delete as forget
from magicbyte.engine.protocol.messages import offset_fetch as committed
from magicbyte.engine.protocol.messages import offset_for_leader_epoch as epochs
from magicbyte.engine.protocol.messages import read_share_group_state as read_state
from magicbyte.engine.protocol.messages import read_share_group_state_summary as summarize_state
from magicbyte.engine.protocol.messages import txn_offset_commit as of_group
from magicbyte.engine.protocol.messages import write_share_group_state as write_state
from magicbyte.engine.protocol.messages import write_txn_markers as mark
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.engine.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from magicbyte.engine.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from magicbyte.engine.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from magicbyte.engine.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from magicbyte.engine.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from magicbyte.engine.protocol.messages.describe_transactions import DescribeTransactionsRequest
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.list_config_resources import ListConfigResourcesRequest
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.engine.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from magicbyte.engine.protocol.messages.share_fetch import ShareFetchRequest
from magicbyte.engine.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from magicbyte.engine.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from magicbyte.engine.protocol.outcomes import codes_of
from magicbyte.engine.records.columns import Record
from magicbyte.server.apis.broker_routes import BROKER_ROUTES
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.offer import OWN
from magicbyte.server.settings.served import SERVED
from server.broker import transacting
from server.broker.builders import BY_ID, name_by_id
from server.broker.serving import CLOSED, Peer, Running

ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TOPIC, NO_GROUP, NO_CLUSTER = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)


async def give(
    broker: Broker, operation: AclOperation, kind: ResourceType = TOPIC, name: str = "t", **named: Any
) -> None:
    """Allow an operation for all users, or deny it."""
    assert broker.authorizer is not None
    permission = named.get("permission", Permission.ALLOW)
    resource = ResourcePattern(
        kind, "kafka-cluster" if kind is CLUSTER else name, named.get("pattern", Pattern.LITERAL)
    )
    await broker.authorizer.change(resource, add=frozenset({AccessControlEntry(ANONYMOUS, permission, operation)}))


@contextlib.asynccontextmanager
async def serving(folder: Path, settings: dict[str, str] | None = None) -> AsyncIterator[tuple[Broker, Peer]]:
    """Yield a broker with ACLs and with the topics `t` and `u`, and a connection to it."""
    async with Running(folder, {**ACLS, **(settings or {})}) as broker:
        await broker.parts.topic_changes.create("t")
        await broker.parts.topic_changes.create("u")
        peer = await Peer.of(broker)
        try:
            yield broker, peer
        finally:
            peer.close()


OF_TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""Requests that are refused to all."""


def test_every_api_needs_a_right_but_those_before_and_of_a_login() -> None:
    assert {key for key in SERVED if BROKER_ROUTES.load(key).rights is None} == {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        *OF_TOKENS,
    }


REFUSED: list[tuple[Message, set[ErrorCode]]] = [
    (
        produce.ProduceRequest(
            acks=1,
            topic_data=[produce.TopicProduceData(name="t", partition_data=[produce.PartitionProduceData(index=0)])],
        ),
        {NO_TOPIC},
    ),
    (
        fetch.FetchRequest(topics=[fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition()])]),
        {NO_TOPIC},
    ),
    (
        fetch.FetchRequest(replica_id=3, topics=[fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition()])]),
        {NO_TOPIC},
    ),
    (
        offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[offsets.ListOffsetsTopic(name="t", partitions=[offsets.ListOffsetsPartition(timestamp=-1)])],
        ),
        {NO_TOPIC},
    ),
    (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")]), {NO_TOPIC}),
    (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="missing")]), {NO_TOPIC}),
    (
        commit.OffsetCommitRequest(
            group_id="g",
            topics=[commit.OffsetCommitRequestTopic(name="t", partitions=[commit.OffsetCommitRequestPartition()])],
        ),
        {NO_GROUP},
    ),
    (
        committed.OffsetFetchRequest(
            group_id="g",
            topics=[committed.OffsetFetchRequestTopic(name="t", partition_indexes=(0,))],
        ),
        {NO_GROUP},
    ),
    (committed.OffsetFetchRequest(groups=[committed.OffsetFetchRequestGroup(group_id="g", topics=[])]), {NO_GROUP}),
    (find.FindCoordinatorRequest(key="g"), {NO_GROUP}),
    (find.FindCoordinatorRequest(coordinator_keys=["g"]), {NO_GROUP}),
    (join_group.JoinGroupRequest(group_id="g"), {NO_GROUP}),
    (heartbeat.HeartbeatRequest(group_id="g"), {NO_GROUP}),
    (leave_group.LeaveGroupRequest(group_id="g"), {NO_GROUP}),
    (sync_group.SyncGroupRequest(group_id="g"), {NO_GROUP}),
    (describe_groups.DescribeGroupsRequest(groups=["g"]), {NO_GROUP}),
    (ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), {NO_GROUP}),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), {NO_GROUP}),
    (ShareGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]), {NO_GROUP}),
    (ShareGroupDescribeRequest(group_ids=["g"]), {NO_GROUP}),
    (ShareFetchRequest(group_id="g", member_id="m"), {NO_GROUP}),
    (ShareAcknowledgeRequest(group_id="g", member_id="m"), {NO_GROUP}),
    (DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g")]), {NO_GROUP}),
    (AlterShareGroupOffsetsRequest(group_id="g"), {NO_GROUP}),
    (DeleteShareGroupOffsetsRequest(group_id="g"), {NO_GROUP}),
    (
        initialize_state.InitializeShareGroupStateRequest(
            topics=[initialize_state.InitializeStateData(partitions=[initialize_state.PartitionData()])]
        ),
        {NO_CLUSTER},
    ),
    (
        read_state.ReadShareGroupStateRequest(
            topics=[read_state.ReadStateData(partitions=[read_state.PartitionData()])]
        ),
        {NO_CLUSTER},
    ),
    (
        write_state.WriteShareGroupStateRequest(
            topics=[write_state.WriteStateData(partitions=[write_state.PartitionData()])]
        ),
        {NO_CLUSTER},
    ),
    (
        delete_state.DeleteShareGroupStateRequest(
            topics=[delete_state.DeleteStateData(partitions=[delete_state.PartitionData()])]
        ),
        {NO_CLUSTER},
    ),
    (
        summarize_state.ReadShareGroupStateSummaryRequest(
            topics=[summarize_state.ReadStateSummaryData(partitions=[summarize_state.PartitionData()])]
        ),
        {NO_CLUSTER},
    ),
    (drop.DeleteGroupsRequest(groups_names=["g"]), {NO_GROUP}),
    (create_topics.CreateTopicsRequest(topics=[create_topics.CreatableTopic(name="new")]), {NO_TOPIC}),
    (remove.DeleteTopicsRequest(topic_names=["t", "missing"]), {NO_TOPIC}),
    (remove.DeleteTopicsRequest(topics=[remove.DeleteTopicState(name="t")]), {NO_TOPIC}),
    (
        cut.DeleteRecordsRequest(topics=[cut.DeleteRecordsTopic(name="t", partitions=[cut.DeleteRecordsPartition()])]),
        {NO_TOPIC},
    ),
    (init_producer_id.InitProducerIdRequest(transactional_id=None), {NO_CLUSTER}),
    (
        init_producer_id.InitProducerIdRequest(transactional_id="x"),
        {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED},
    ),
    (
        epochs.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[epochs.OffsetForLeaderTopic(topic="t", partitions=[epochs.OffsetForLeaderPartition()])],
        ),
        {NO_TOPIC},
    ),
    (describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), {NO_CLUSTER}),
    (
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.AclCreation(
                    resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3
                )
            ]
        ),
        {NO_CLUSTER},
    ),
    (
        delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
        ),
        {NO_CLUSTER},
    ),
    (
        configs.DescribeConfigsRequest(
            resources=[
                configs.DescribeConfigsResource(resource_type=2, resource_name="t"),
                configs.DescribeConfigsResource(resource_type=4, resource_name="0"),
                configs.DescribeConfigsResource(resource_type=32, resource_name="g"),
            ]
        ),
        {NO_TOPIC, NO_CLUSTER, NO_GROUP},
    ),
    (
        alter.AlterConfigsRequest(
            resources=[
                alter.AlterConfigsResource(resource_type=2, resource_name="t"),
                alter.AlterConfigsResource(resource_type=4, resource_name="0"),
            ]
        ),
        {NO_TOPIC, NO_CLUSTER},
    ),
    (
        increment.IncrementalAlterConfigsRequest(
            resources=[
                increment.AlterConfigsResource(resource_type=2, resource_name="t"),
                increment.AlterConfigsResource(resource_type=32, resource_name="g"),
            ]
        ),
        {NO_TOPIC, NO_GROUP},
    ),
    (quotas.DescribeClientQuotasRequest(components=[]), {NO_CLUSTER}),
    (
        requotas.AlterClientQuotasRequest(
            entries=[
                requotas.AlterClientQuotasRequestEntryData(
                    entity=[requotas.AlterClientQuotasRequestEntityData(entity_type="user", entity_name="alice")],
                    ops=[requotas.OpData(key="producer_byte_rate", value=1024.0)],
                )
            ],
            validate_only=True,
        ),
        {NO_CLUSTER},
    ),
    (scram.DescribeUserScramCredentialsRequest(users=[scram.UserName(name="alice")]), {NO_CLUSTER}),
    (
        rescram.AlterUserScramCredentialsRequest(deletions=[rescram.ScramCredentialDeletion(name="a", mechanism=1)]),
        {NO_CLUSTER},
    ),
    (disks.DescribeLogDirsRequest(topics=None), {NO_CLUSTER}),
    (
        move.AlterReplicaLogDirsRequest(
            dirs=[move.AlterReplicaLogDir(path="/d", topics=[move.AlterReplicaLogDirTopic(name="t", partitions=(0,))])]
        ),
        {NO_CLUSTER},
    ),
    (
        grow.CreatePartitionsRequest(topics=[grow.CreatePartitionsTopic(name="t", count=3, assignments=None)]),
        {NO_TOPIC},
    ),
    (
        elect.ElectLeadersRequest(topic_partitions=[elect.TopicPartitions(topic="t", partitions=(0,))]),
        {NO_CLUSTER},
    ),
    (
        reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name="t", partitions=[reassign.ReassignablePartition(replicas=(0,))])]
        ),
        {NO_CLUSTER},
    ),
    (moves.ListPartitionReassignmentsRequest(), {NO_CLUSTER}),
    (DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), {NO_TOPIC}),
    (
        forget.OffsetDeleteRequest(
            group_id="g",
            topics=[forget.OffsetDeleteRequestTopic(name="t", partitions=[forget.OffsetDeleteRequestPartition()])],
        ),
        {NO_GROUP},
    ),
    (
        producers.DescribeProducersRequest(topics=[producers.TopicRequest(name="t", partition_indexes=(0,))]),
        {NO_TOPIC},
    ),
    (
        extend.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[extend.AddPartitionsToTxnTopic(name="t", partitions=(0,))],
        ),
        {NO_ID},
    ),
    (
        extend.AddPartitionsToTxnRequest(
            transactions=[
                extend.AddPartitionsToTxnTransaction(
                    transactional_id="x", topics=[extend.AddPartitionsToTxnTopic(name="t", partitions=(0,))]
                )
            ]
        ),
        {ErrorCode.CLUSTER_AUTHORIZATION_FAILED},
    ),
    (AddOffsetsToTxnRequest(transactional_id="x", group_id="g"), {NO_ID}),
    (EndTxnRequest(transactional_id="x"), {NO_ID}),
    (
        mark.WriteTxnMarkersRequest(
            markers=[mark.WritableTxnMarker(topics=[mark.WritableTxnMarkerTopic(name="t", partition_indexes=(0,))])]
        ),
        {NO_CLUSTER},
    ),
    (
        of_group.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[
                of_group.TxnOffsetCommitRequestTopic(name="t", partitions=[of_group.TxnOffsetCommitRequestPartition()])
            ],
        ),
        {NO_ID},
    ),
    (DescribeTransactionsRequest(transactional_ids=["x"]), {NO_ID}),
    (ListConfigResourcesRequest(), {NO_CLUSTER}),
]


async def test_without_a_right_each_api_gets_its_code_in_each_version_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        asked = set[int]()
        for message, codes in REFUSED:
            assert message.API_KEY is not None
            api, told = APIS[message.API_KEY], 0
            collect = codes_of(api.response)
            assert collect is not None
            if message.API_KEY in BY_ID:
                name_by_id(message, {each: broker.topics.known(each).id for each in broker.topics.names()})
            for version in OWN.answered[api.key]:
                try:
                    write_request(message, version, correlation_id=1, client_id="")
                except UnsupportedVersionError:  # a field that the version does not have
                    continue
                response = await peer.ask(message, version, api.response)
                found: list[int] = []
                collect(response, found)
                said = {each for each in found if each}
                assert said <= codes, (api.name, version, found)
                told += said == codes
            assert told, api.name
            asked.add(api.key)
        brokers_only, without_codes = {4, 5, 6, 7, 56, 67}, {16, 17, 18, 36, 60, 66}
        assert asked == set(SERVED) - brokers_only - without_codes - OF_TOKENS
        assert sorted(broker.topics.names()) == ["t", "u"]
        listed = await peer.ask(list_groups.ListGroupsRequest(), 4, list_groups.ListGroupsResponse)  # [63]
        assert (listed.error_code, listed.groups) == (0, [])


async def test_what_is_allowed_is_done_and_the_rest_refused_in_one_answer(tmp_path: Path) -> None:  # [55, 56, 58, 59]
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.WRITE)
        parts = [produce.PartitionProduceData(index=0)]
        topics = [produce.TopicProduceData(name=each, partition_data=parts) for each in ("u", "t")]
        told = await peer.ask(produce.ProduceRequest(acks=1, topic_data=topics), 8, produce.ProduceResponse)
        codes = {each.name: each.partition_responses[0].error_code for each in told.responses}
        assert codes["u"] == NO_TOPIC
        assert codes["t"] != NO_TOPIC
        asked = metadata.MetadataRequest(topics=None)
        everything = await peer.ask(asked, 9, metadata.MetadataResponse)
        assert [each.name for each in everything.topics] == ["t"]
        await give(broker, AclOperation.DESCRIBE, name="missing")
        named = [metadata.MetadataRequestTopic(name=each) for each in ("missing", "u")]
        found = await peer.ask(metadata.MetadataRequest(topics=named), 9, metadata.MetadataResponse)
        assert [(each.name, each.error_code) for each in found.topics] == [("missing", NO_TOPIC), ("u", NO_TOPIC)]
        assert sorted(broker.topics.names()) == ["t", "u"]
        silent = produce.ProduceRequest(acks=0, topic_data=topics[:1])
        assert await peer.exchange(bytes(write_request(silent, 8, correlation_id=1, client_id=""))) == CLOSED


async def test_a_producer_needs_its_id_and_the_topics_and_groups_of_its_transaction(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        assert await transacting.send(peer, transacting.Pair(7, 0), ("t", 0), 0, b"a") == (NO_ID, -1)
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
            await give(broker, operation, ResourceType.TRANSACTIONAL_ID, "x")
        assert await transacting.found(peer) == 0
        pair = await transacting.begin(peer)
        assert await transacting.send(peer, pair, ("t", 0), 0, b"a") == (NO_TOPIC, -1)
        await give(broker, AclOperation.WRITE)
        both = ("t", 0), ("u", 0)
        assert await transacting.add(peer, pair, *both, ("t", 9)) == [ErrorCode.OPERATION_NOT_ATTEMPTED, NO_TOPIC, 3]
        await give(broker, AclOperation.WRITE, ResourceType.TOPIC, STATE_TOPIC)
        assert await transacting.add(peer, pair, ("u", 0), (STATE_TOPIC, 0)) == [NO_TOPIC, NO_TOPIC]
        assert await transacting.add(peer, pair, ("t", 0)) == [0]
        assert await transacting.send(peer, pair, ("t", 0), 0, b"a") == (0, 0)
        assert await transacting.add_offsets(peer, pair, "g") == NO_GROUP
        await give(broker, AclOperation.READ, GROUP, "g")
        assert await transacting.found(peer, "g", 0) == 0
        assert await transacting.add_offsets(peer, pair, "g") == 0
        assert [await transacting.commit_offset(peer, pair, "g", each, 1) for each in both] == [NO_TOPIC] * 2
        await give(broker, AclOperation.READ)
        assert [await transacting.commit_offset(peer, pair, "g", each, 1) for each in both] == [0, NO_TOPIC]
        await transacting.ended(peer, pair)
        listed = await peer.ask(ListTransactionsRequest(), 0, ListTransactionsResponse)
        assert [each.transactional_id for each in listed.transaction_states] == ["x"]
        await give(broker, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x", permission=Permission.DENY)
        assert not (await peer.ask(ListTransactionsRequest(), 0, ListTransactionsResponse)).transaction_states


@pytest.mark.parametrize("version", [11, 13])
async def test_a_partition_without_the_right_to_read_stays_in_its_session_and_is_refused_each_time(
    tmp_path: Path, version: int
) -> None:
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.READ)
        partitions = [fetch.FetchPartition(partition_max_bytes=1000)]
        topics = [fetch.FetchTopic(topic="t", topic_id=broker.topics.known("t").id, partitions=partitions)]
        begun = await peer.ask(fetch.FetchRequest(session_epoch=0, topics=topics), version, fetch.FetchResponse)
        assert begun.session_id
        await give(broker, AclOperation.READ, permission=Permission.DENY)
        for epoch in (1, 2):
            again = fetch.FetchRequest(session_id=begun.session_id, session_epoch=epoch)
            told = await peer.ask(again, version, fetch.FetchResponse)
            (part,) = [part for each in told.responses for part in each.partitions]
            assert (part.error_code, part.records) == (NO_TOPIC, b"")  # not null
            assert part.aborted_transactions == (None if version == 11 else [])
            assert (told.error_code, told.session_id) == (0, begun.session_id)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["without a session", "in a session"])
async def test_a_right_that_is_taken_away_while_a_reader_waits_for_records_is_gone_when_they_come(
    tmp_path: Path, epoch: int
) -> None:
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.READ)
        await give(broker, AclOperation.WRITE)
        topics = [fetch.FetchTopic(topic="t", partitions=[fetch.FetchPartition(partition_max_bytes=1000)])]
        message = fetch.FetchRequest(session_epoch=epoch, topics=topics, max_wait_ms=600_000, min_bytes=1)
        waiting = asyncio.create_task(peer.ask(message, 11, fetch.FetchResponse))
        partition = await broker.replicas.known_partition("t", 0)
        assert partition is not None
        while not partition.waiting:
            await asyncio.sleep(0.001)
        await give(broker, AclOperation.READ, permission=Permission.DENY)
        async with Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client:
            await send(client, "t", 0, [Record(0, 0, 0, None, b"secret")])
        told = await waiting
        assert [part.error_code for each in told.responses for part in each.partitions] == [NO_TOPIC]
        assert (told.session_id == 0) == (epoch == -1)
        assert not any(part.records for each in told.responses for part in each.partitions)


async def test_allowed_operations_are_in_the_answer_if_requested(tmp_path: Path) -> None:  # [67]
    async with serving(tmp_path) as (broker, peer):
        await give(broker, AclOperation.READ)
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name="t")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        told = await peer.ask(asked, 8, metadata.MetadataResponse)
        assert told.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
        assert told.cluster_authorized_operations == 0
        await give(broker, AclOperation.ALL, CLUSTER)
        about = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)
        cluster = await peer.ask(about, 0, describe_cluster.DescribeClusterResponse)
        assert cluster.cluster_authorized_operations == 8096
        await give(broker, AclOperation.ALL, GROUP, "g")
        group = describe_groups.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        described = await peer.ask(group, 3, describe_groups.DescribeGroupsResponse)
        assert described.groups[0].authorized_operations == 328


def rule(name: str, principal: str = "User:alice", **other: int) -> create_acls.AclCreation:
    values = {"resource_type": 2, "operation": 3, "permission_type": 3, **other}
    return create_acls.AclCreation(resource_name=name, principal=principal, host="*", **values)


UNKNOWN, ANY, MATCH, LATER = 0, 1, 2, 99
OF_ACLS = {
    **{(field, LATER): [0, 42] for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")},
    **{(field, -5): [0, 42] for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")},
    **{(field, ANY): [-1, -1] for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")},
    ("resource_pattern_type", MATCH): [-1, -1],
    **{(field, UNKNOWN): None for field in ("resource_type", "resource_pattern_type", "operation", "permission_type")},
}
"""By field and number: the codes of a valid ACL and of one with this number; None: the connection ends. As in 2.8.2."""


async def test_a_number_that_no_acl_has_is_answered_as_in_kafka(tmp_path: Path) -> None:
    anybody: dict[str, Any] = {"principal_filter": None, "host_filter": None}

    async with Running(tmp_path, {**ACLS, "super.users": "User:ANONYMOUS"}) as broker:
        for (field, number), codes in OF_ACLS.items():
            peer, good = await Peer.of(broker), f"good-{field}-{number}"
            request = create_acls.CreateAclsRequest(creations=[rule(good), rule("bad", **{field: number})])
            frame = bytes(write_request(request, 1, correlation_id=1, client_id=""))
            if codes is None:
                assert await peer.exchange(frame) == CLOSED, field
            else:
                made = await peer.ask(request, 1, create_acls.CreateAclsResponse)
                assert [each.error_code for each in made.results] == codes, (field, number)
            assert (broker.metadata.exists(f"/kafka-acl/Topic/{good}") is not None) == (codes == [0, 42])
            peer.close()
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            for number in (UNKNOWN, LATER, -5):
                wanted = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
                wanted[field] = number
                described = describe_acls.DescribeAclsRequest(resource_name_filter=None, **anybody, **wanted)
                filters = [delete_acls.DeleteAclsFilter(resource_name_filter=None, **anybody, **each)
                           for each in ({**wanted, field: LATER}, wanted)]  # fmt: skip
                for request, response in (
                    (described, describe_acls.DescribeAclsResponse),
                    (delete_acls.DeleteAclsRequest(filters=filters), delete_acls.DeleteAclsResponse),
                ):
                    peer = await Peer.of(broker)
                    frame = bytes(write_request(request, 1, correlation_id=1, client_id=""))
                    if number == UNKNOWN:
                        assert await peer.exchange(frame) == CLOSED, field
                    else:
                        found = await peer.ask(request, 1, response)
                        assert [*getattr(found, "resources", ())] == []
                        assert [each.matching_acls for each in getattr(found, "filter_results", ())] in (
                            [],
                            [[], []],
                        )
                    peer.close()


async def test_acls_are_made_described_and_taken_away_and_are_there_after_a_restart(tmp_path: Path) -> None:
    anybody: dict[str, Any] = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    every = describe_acls.DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, **anybody
    )
    settings = {"super.users": "User:ANONYMOUS"}

    async with serving(tmp_path, settings) as (broker, peer):
        wanted = [rule("t"), rule("t", "alice"), rule("u"), rule("a/b"), rule("te", resource_pattern_type=4)]
        made = await peer.ask(create_acls.CreateAclsRequest(creations=wanted), 1, create_acls.CreateAclsResponse)
        assert [each.error_code for each in made.results] == [-1, -1, 0, ErrorCode.INVALID_REQUEST, 0]  # [69]
        data = broker.metadata.get("/kafka-acl/Topic/u").data
        assert data == (
            b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
        )
        assert broker.metadata.get("/kafka-acl-changes/acl_changes_0000000000").data == b"TOPIC:u"
        impossible = create_acls.CreateAclsRequest(creations=[rule("t", operation=0)])
        frame = bytes(write_request(impossible, 1, correlation_id=1, client_id=""))
        assert await peer.exchange(frame) == CLOSED  # [70]

    async with serving(tmp_path, settings) as (broker, peer):
        told = await peer.ask(every, 1, describe_acls.DescribeAclsResponse)
        assert [(each.resource_name, each.pattern_type) for each in told.resources] == [("u", 3), ("te", 4)]
        match = delete_acls.DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter="test", pattern_type_filter=2, **anybody
        )
        gone = await peer.ask(delete_acls.DeleteAclsRequest(filters=[match]), 1, delete_acls.DeleteAclsResponse)
        assert [each.resource_name for each in gone.filter_results[0].matching_acls] == ["te"]
        assert broker.metadata.exists("/kafka-acl-extended/prefixed/Topic/te") is None  # [54]


async def test_what_a_damaged_node_is_about_is_closed_to_all_but_super_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"allow.everyone.if.no.acl.found": "true"}
    async with serving(tmp_path, settings) as (broker, _):
        await give(broker, AclOperation.READ)
        broker.metadata.set("/kafka-acl/Topic/t", b"{")

    async with serving(tmp_path, settings) as (broker, peer):
        asked = metadata.MetadataRequest(topics=None)
        assert [each.name for each in (await peer.ask(asked, 9, metadata.MetadataResponse)).topics] == ["u"]
        creation = create_acls.CreateAclsRequest(creations=[rule("t")])
        made = await peer.ask(creation, 1, create_acls.CreateAclsResponse)
        assert made.results[0].error_code
        assert broker.metadata.get("/kafka-acl/Topic/t").data == b"{"

    assert "/kafka-acl/Topic/t" in caplog.text


async def test_the_audit_log_says_who_was_refused_what_from_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "magicbyte.audit"):
        async with serving(tmp_path) as (_, peer):
            topics = [metadata.MetadataRequestTopic(name="t")]
            await peer.ask(metadata.MetadataRequest(topics=topics), 9, metadata.MetadataResponse)
    (line,) = [each for each in caplog.records if each.name == "magicbyte.audit"]
    assert vars(line)["fields"] == {
        "principal": "User:ANONYMOUS",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource": "t",
        "allowed": False,
    }


def test_an_authorizer_of_another_name_is_refused_and_so_are_super_users_that_are_none() -> None:
    with pytest.raises(InvalidConfigError):
        BrokerConfig({"authorizer.class.name": "com.example.Own"})
    with pytest.raises(InvalidConfigError):
        BrokerConfig({"super.users": "alice"})


async def test_a_right_that_is_given_while_all_are_read_again_counts_from_its_answer_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of resources are read before the right is stored, what is said of them afterwards."""

    async with serving(tmp_path) as (broker, _):
        authorizer, threads = broker.authorizer, broker.reading
        assert authorizer is not None
        reading, proceed = asyncio.Event(), asyncio.Event()

        async def paused(look: Callable[..., Any], *given: Any) -> Any:
            found = look(*given)
            monkeypatch.undo()
            reading.set()
            await proceed.wait()
            return found

        monkeypatch.setattr(threads, "run", paused)
        broker.cluster_store.acls_changed()
        await asyncio.wait_for(reading.wait(), 60)
        right = asyncio.ensure_future(give(broker, AclOperation.READ))
        await asyncio.wait([right], timeout=0.1)  # where it does not wait for the other, that is enough
        proceed.set()
        await right
        broker.cluster_store.acls_changed()
        for _ in range(100):
            assert ResourcePattern(ResourceType.TOPIC, "t") in authorizer.acls.of
            await asyncio.sleep(0)
