"""Leaders in responses (KIP-951): a broker that does not lead a partition names the broker that does."""

from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages import fetch, produce
from magicbyte.engine.records.encode import Format
from server.broker.builders import asking, made, records
from server.broker.clusters import cluster, make, until
from server.broker.serving import Peer

NOT_LEADER = 6


@pytest.mark.parametrize("factor", [2, 1], ids=["a follower", "a broker without a replica"])
async def test_19_another_broker_names_the_leader_from_produce_10_and_fetch_16_on(folder: Path, factor: int) -> None:
    async with cluster(folder, 2) as members, Client(members.bootstrap) as client:
        await make(members, client, factor)
        leader = members.leader("t")
        (other,) = [each for each in members.brokers.values() if each is not leader]
        await until(lambda: other.cluster_view.leader(TopicPartition("t", 0)) == leader.config.broker_id)
        here = leader.config.broker_id
        address = here, "127.0.0.1", next(iter(leader.ports.values()))
        peer = await Peer.of(other)
        part = produce.PartitionProduceData(records=made(records(1), Format.V2))
        topic = produce.TopicProduceData(name="t", partition_data=[part])
        sent = produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        for version in (9, 10, 11):
            told = await peer.ask(sent, version, produce.ProduceResponse)
            (row,) = told.responses[0].partition_responses
            found = row.current_leader.leader_id, [(each.node_id, each.host, each.port) for each in told.node_endpoints]
            assert (row.error_code, *found) == (NOT_LEADER, *((-1, []) if version == 9 else (here, [address])))
            assert (row.current_leader.leader_epoch >= 0) == (version >= 10)
        asked = asking("t", 0)
        asked.topics[0].topic_id = other.topics.known("t").id
        for version in (12, 15, 16, 18):
            read = await peer.ask(asked, version, fetch.FetchResponse)
            (data,) = read.responses[0].partitions
            addresses = [(each.node_id, each.host, each.port) for each in read.node_endpoints]
            is_named = factor == 1 and version >= 16  # a follower is read from
            assert data.error_code == (NOT_LEADER if factor == 1 else 0)
            assert (data.current_leader.leader_id, addresses) == ((here, [address]) if is_named else (-1, []))
        peer.close()
