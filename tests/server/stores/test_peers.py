"""The brokers of a cluster of one: the same code as in a larger one, without any other broker."""

from pathlib import Path

import pytest

from magicbyte.engine.errors import ErrorCode, NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.metadata import MetadataRequest
from magicbyte.engine.transactions.effects import SendMarkers
from magicbyte.server.coordinating.markers import MarkerSender
from magicbyte.server.stores.peers import PeerLink, Peers
from server.broker.serving import Running

PLACE = TopicPartition("topic", 0)


async def test_a_broker_that_is_a_cluster_by_itself_reaches_no_other_one(tmp_path: Path) -> None:
    async with Running(tmp_path) as broker:
        peers = Peers(broker.cluster_view, broker.cluster_store, lambda: broker.links)
        link = PeerLink(broker.runtime, peers, broker.node_id + 1, timeout_ms=100)
        with pytest.raises(NetworkError, match="does not exist"):
            await link.send(MetadataRequest())


async def test_without_the_topic_of_transactions_no_broker_coordinates_them(tmp_path: Path) -> None:
    async with Running(tmp_path) as broker:
        await broker.topics.create(PLACE.topic)
        codes = await broker.coordinators.partition_checks.ask("id", (1, 0), [PLACE], joins=False)
        assert codes == {PLACE: ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_a_marker_is_not_needed_in_a_partition_that_is_being_deleted_or_does_not_exist(tmp_path: Path) -> None:
    missing = TopicPartition("other", 0)
    outcomes = dict[TopicPartition, ErrorCode]()
    async with Running(tmp_path) as broker:
        await broker.topics.create(PLACE.topic)
        await broker.topics.begin_delete(PLACE.topic)
        peers = Peers(broker.cluster_view, broker.cluster_store, lambda: broker.links)
        sender = MarkerSender(
            broker.runtime,
            broker.topics,
            broker.coordinators.marker_writer,
            peers,
            lambda _sent, place, code: outcomes.update({place: code}),
            lambda _sent: False,
        )
        sender.send(SendMarkers("id", 0, 1, 1, 0, 1, commits=True, partitions=(PLACE, missing)))
        while len(outcomes) < 2:
            await broker.writing.run(lambda: None)
    assert outcomes == {PLACE: ErrorCode.NONE, missing: ErrorCode.NONE}
