"""Protocol 2 of transactions (KIP-890) at our broker, and the verification of producers of protocol 1.

Numbers are those of the checks in spec/transactions.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.server.settings.offer import OWN, offer_of
from server.broker.serving import Peer, Running
from server.broker.test_transactions import SETTINGS, A, B, C, markers, serving, states
from server.broker.transacting import (
    Pair,
    add,
    add_offsets,
    batch,
    begin,
    commit_offset,
    committed,
    end,
    end_and_raise,
    ended,
    found,
    read,
    send,
)

RELEASE = "4.1"
SOFTWARE = ApiVersionsRequest(client_software_name="test", client_software_version="1")


async def done(peer: Peer, pair: Pair, *, commit: bool = True) -> Pair:
    """End a transaction, wait until its markers are written, and return what its producer is in the next one."""
    code, following = await end_and_raise(peer, pair, commit=commit)
    assert code == 0
    while (again := await end_and_raise(peer, pair, commit=commit))[0] == 51:
        await asyncio.sleep(0.01)
    assert again == (0, following)
    return following


async def test_29_to_32_partitions_join_by_their_records_and_each_end_raises_the_epoch(tmp_path: Path) -> None:
    async with serving(tmp_path, as_version=RELEASE) as (broker, peer):
        pair = await begin(peer)
        assert await send(peer, pair, A, 0, b"a", version=12) == (0, 0)
        assert await send(peer, pair, A, 1, b"b", version=12) == (0, 1)
        assert await send(peer, pair, B, 0, b"c", version=12) == (0, 0)
        following = await done(peer, pair)
        assert following == Pair(pair.producer_id, 1)
        assert await send(peer, pair, A, 2, b"late", version=12) == (47, -1)
        assert await send(peer, pair, C, 0, b"late", version=12) == (
            47,
            -1,
        )  # only the coordinator knows the epoch there
        assert await send(peer, following, A, 0, b"dropped", version=12) == (0, 3)
        assert await end_and_raise(peer, pair) == (90, Pair(-1, -1))
        last = await done(peer, following, commit=False)
        assert await end_and_raise(peer, last) == (48, Pair(-1, -1))
        assert await end_and_raise(peer, last, commit=False) == (0, Pair(pair.producer_id, 3))
        assert markers(broker, A) == [("COMMIT", 1), ("ABORT", 2)]
        assert markers(broker, B) == [("COMMIT", 1)]
        assert markers(broker, C) == []
        seen = await read(peer, A)
        assert (seen.values, seen.aborted) == ([b"a", b"b", b"dropped"], [(pair.producer_id, 3)])
        assert states(broker) == [
            "Empty 0", "Ongoing 0", "Ongoing 0", "PrepareCommit 1", "CompleteCommit 1", "Ongoing 1",
            "PrepareAbort 2", "CompleteAbort 2", "PrepareAbort 3", "CompleteAbort 3",
        ]  # fmt: skip


async def test_offsets_join_the_transaction_in_which_they_are_committed(tmp_path: Path) -> None:
    async with serving(tmp_path, as_version=RELEASE) as (broker, peer):
        await found(peer, "g", 0)
        pair = await begin(peer)
        assert await commit_offset(peer, pair, "g", A, 5, version=5) == 0
        assert await committed(peer, stable=True) == (-1, 88)
        following = await done(peer, pair)
        assert await committed(peer, stable=True) == (5, 0)
        assert await commit_offset(peer, pair, "g", A, 6, version=5) == 47
        assert await commit_offset(peer, following, "g", A, 7, version=5) == 0
        await done(peer, following, commit=False)
        assert await committed(peer, stable=True) == (5, 0)
        assert states(broker)[1:3] == ["Ongoing 0", "PrepareCommit 1"]


async def test_55_what_was_not_added_is_refused_in_the_code_of_each_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, peer):
        await found(peer, "g", 0)
        pair = await begin(peer)
        assert await add(peer, pair, B) == [0]
        assert [(await send(peer, pair, A, 0, b"a", version=each))[0] for each in (9, 10, 11)] == [48, 48, 120]
        assert [await commit_offset(peer, pair, "g", A, 5, version=each) for each in (3, 4)] == [48, 120]
        assert (await send(peer, Pair(pair.producer_id, 1), B, 0, b"a"))[0] == 47
        assert (await send(peer, Pair(4711, 0), B, 0, b"a"))[0] == 49
        assert (await send(peer, pair, B, 0, b"a", key="another"))[0] == 49
        assert await add(peer, pair, A) == [0]
        assert await send(peer, pair, A, 0, b"a") == (0, 0)
        await add_offsets(peer, pair, "g")
        assert await commit_offset(peer, pair, "g", A, 5) == 0
        await ended(peer, pair)
        assert await send(peer, pair, A, 0, b"a") == (48, -1)  # even a duplicate: no transaction is open
        assert (await read(peer, A)).last_stable_offset == 2


async def test_55_a_partition_that_is_named_twice_is_verified_for_both_of_its_sets(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        sets = [PartitionProduceData(index=A[1], records=batch(pair, at, b"a")) for at in range(2)]
        data = [TopicProduceData(name=A[0], partition_data=sets)]
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=10_000, topic_data=data)
        (told,) = (await peer.ask(request, 9, ProduceResponse)).responses
        assert [each.error_code for each in told.partition_responses] == [48, 48]
        assert (await read(peer, A, committed=False)).values == []


async def test_56_records_wait_at_their_producer_while_no_coordinator_can_be_asked(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        for partition in list(broker.transactions.coordinator.terms):
            broker.transactions.coordinator.resign(partition)
        assert [(await send(peer, pair, A, 0, b"a", version=each))[0] for each in (9, 11)] == [19, 19]
        assert (await read(peer, A, committed=False)).values == []


async def test_69_offsets_wait_in_the_code_of_each_version_while_the_coordinator_of_the_transaction_loads(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (broker, peer):
        await found(peer, "g", 0)
        pair = await begin(peer)
        await add_offsets(peer, pair, "g")
        for partition in list(broker.transactions.coordinator.terms):
            broker.transactions.coordinator.begin_loading(partition, 0)
        told = [await commit_offset(peer, pair, "g", A, 5, version=each) for each in range(4)]
        assert told == [15, 15, 14, 14]


async def test_77_late_records_leave_no_hanging_transaction(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        await send(peer, pair, A, 0, b"a")
        await ended(peer, pair)
        await add(peer, pair, A)
        await send(peer, pair, A, 1, b"b")
        for _ in ("taken", "written"):  # a late one, which is taken for that of the next transaction
            while (code := await end(peer, pair)) == 51:
                await asyncio.sleep(0.01)
            assert code == 0
        assert (await send(peer, pair, A, 2, b"c"))[0] == 48
        assert await add(peer, pair, B) == [0]
        assert (await send(peer, pair, A, 2, b"c"))[0] == 48
        assert (await read(peer, A)).last_stable_offset == 4


async def test_only_clients_that_can_read_the_feature_get_it(tmp_path: Path) -> None:
    async with Running(tmp_path, {**SETTINGS, "as.version": RELEASE}) as broker:
        peer = await Peer.of(broker)
        for version in (3, 4):
            told = await peer.ask(SOFTWARE, version, ApiVersionsResponse)
            supported = [(each.name, each.min_version, each.max_version) for each in told.supported_features]
            both = [("group.version", 0, 1), ("transaction.version", 0, 2)]
            assert supported == (both if version == 4 else [])
            levels = {each.name: (each.min_version_level, each.max_version_level) for each in told.finalized_features}
            assert levels == {"group.version": (1, 1), "transaction.version": (2, 2)}
            assert told.finalized_features_epoch == 0
        peer.close()


@pytest.mark.parametrize(("release", "epoch"), [("2.6", -1), ("2.7", 0), ("3.9", 0)])
async def test_a_broker_without_features_has_an_empty_set_of_them(release: str, epoch: int, tmp_path: Path) -> None:
    async with Running(tmp_path, {**SETTINGS, "as.version": release}) as broker:
        peer = await Peer.of(broker)
        told = await peer.ask(SOFTWARE, 3, ApiVersionsResponse)
        assert (told.finalized_features, told.finalized_features_epoch) == ([], epoch)
        peer.close()


async def test_without_a_release_there_are_consumer_and_share_groups_but_protocol_1(tmp_path: Path) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await Peer.of(broker)
        told = await peer.ask(SOFTWARE, 3, ApiVersionsResponse)
        levels = [(each.name, each.max_version_level) for each in told.finalized_features]
        assert (levels, told.finalized_features_epoch) == ([("group.version", 1), ("share.version", 1)], 0)
        peer.close()


@pytest.mark.parametrize(("release", "level", "verifies"), [
    ("2.8", 0, False), ("3.5", 0, False), ("3.6", 0, True), ("3.9.1", 0, True), ("4.0", 2, True), ("4.1", 2, True),
])  # fmt: skip
def test_releases_have_the_feature_and_the_requests_of_protocol_2_together(
    release: str, level: int, verifies: bool
) -> None:
    offer = offer_of(release)
    assert (offer.transaction_version, offer.verifies_partitions) == (level, verifies)
    assert [key for key, first in ((0, 12), (26, 5), (28, 5)) if first in offer.listed[key]] == (
        [0, 26, 28] if level else []
    )


def test_without_a_release_it_is_protocol_1_since_2_8_cannot_read_values_of_protocol_2() -> None:
    assert (OWN.transaction_version, OWN.verifies_partitions) == (0, True)
    assert [OWN.listed[key][-1] for key in (0, 26, 28)] == [11, 4, 4]


async def test_a_release_without_the_feature_stores_what_it_does(tmp_path: Path) -> None:
    async with serving(tmp_path, as_version="3.9.1") as (broker, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        assert (await send(peer, pair, B, 0, b"a", version=11))[0] == 120
        await ended(peer, pair)
        assert states(broker) == ["Empty 0", "Ongoing 0", "PrepareCommit 0", "CompleteCommit 0"]
        assert [each.value.version for each in broker.transactions.coordinator.transactions.values()] == [0]
