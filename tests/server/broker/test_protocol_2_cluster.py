"""Leaders of partitions that ask coordinators at other brokers, in both protocols of transactions (KIP-890).

Numbers are those of the checks in spec/transactions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.engine.errors import ErrorCode, InvalidConfigError, NetworkError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsResponse
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.coordinating.partition_checks import _Question, _Questions
from magicbyte.server.stores.peers import PeerLink
from magicbyte.server.stores.znodes import layout
from server.broker.clusters import Members, cluster, make, replicated, until
from server.broker.serving import Peer
from server.broker.test_protocol_2 import RELEASE, SOFTWARE, done
from server.broker.test_transaction_moves import SETTINGS, A, B, C, coordinator, values
from server.broker.transacting import (
    Pair,
    add,
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

ONE_OF_GROUPS = {"offsets_topic_num_partitions": "1"}
PLACE = TopicPartition("t", 0)


@asynccontextmanager
async def verifying(folder: Path, **settings: str) -> AsyncIterator[Members]:
    """Give three brokers, with a topic of three partitions, each led by another, and a coordinator of transactions."""
    async with replicated(folder, partitions=3, **SETTINGS, **ONE_OF_GROUPS, **settings) as (members, _):
        await until(lambda: all(has_partition(each.topics, *C) for each in members.brokers.values()))
        peer = await Peer.of(members.brokers[1])
        while await found(peer):
            await asyncio.sleep(0.01)
        peer.close()
        yield members


def far(members: Members, broker: Broker) -> list[tuple[str, int]]:
    """Return the two partitions that other brokers lead: test_protocol_2.py has those that the coordinator leads."""
    return [each for each in (A, B, C) if members.leader(*each) is not broker]


async def sent(
    members: Members, pair: Pair, place: tuple[str, int], sequence: int, *given: bytes, version: int = 12
) -> int:
    """Send records to the leader until it has an answer of the coordinator; return the code."""
    while True:
        peer = await Peer.of(members.leader(*place))
        code, _ = await send(peer, pair, place, sequence, *given, version=version)
        peer.close()
        if code not in (19, 51):
            return code
        await asyncio.sleep(0.01)


async def test_partitions_join_by_their_records_at_leaders_on_other_brokers(tmp_path: Path) -> None:
    async with verifying(tmp_path, as_version=RELEASE) as members:
        broker, peer = await coordinator(members)
        pair, places = await begin(peer), far(members, broker)
        for place in places:
            assert await sent(members, pair, place, 0, b"kept") == 0
        following = await done(peer, pair)
        assert following == Pair(pair.producer_id, 1)
        for place in places:
            assert await sent(members, pair, place, 1, b"late") == 47
            assert await sent(members, following, place, 0, b"dropped") == 0
        assert await end_and_raise(peer, pair) == (90, Pair(-1, -1))
        await done(peer, following, commit=False)
        assert [await values(members, place) for place in places] == [[b"kept", b"dropped"]] * 2
        for place in places:
            reader = await Peer.of(members.leader(*place))
            assert (await read(reader, place)).aborted == [(pair.producer_id, 2)]
            reader.close()
        asked = {
            (each.api_key, each.version) for each in members.leader(STATE_TOPIC).metrics.asked if each.api_key == 24
        }
        assert asked == {(24, 5)}
        peer.close()


async def test_offsets_join_a_transaction_that_another_broker_coordinates(tmp_path: Path) -> None:
    async with verifying(tmp_path, as_version=RELEASE) as members:
        broker, peer = await coordinator(members)
        while await found(peer, "g", 0):
            await asyncio.sleep(0.01)
        await until(lambda: len(members.leaders(OFFSETS_TOPIC)) == 1)
        if members.leader(OFFSETS_TOPIC) is broker:  # it has to be another
            await members.stop(broker.node_id)
            await members.start(broker.node_id)
            peer.close()
            broker, peer = await coordinator(members)
        groups = await Peer.of(members.leader(OFFSETS_TOPIC))
        pair = await begin(peer)
        while (code := await commit_offset(groups, pair, "g", A, 5, version=5)) in (14, 15, 16, 51):
            await asyncio.sleep(0.01)
        assert code == 0
        following = await done(peer, pair)
        assert await committed(groups, stable=True) == (5, 0)
        assert await commit_offset(groups, pair, "g", A, 6, version=5) == 47
        assert await end_and_raise(peer, following) == (48, Pair(-1, -1))
        peer.close()
        groups.close()


async def test_55_77_late_records_are_refused_by_leaders_on_other_brokers_in_protocol_1(tmp_path: Path) -> None:
    async with verifying(tmp_path) as members:
        broker, peer = await coordinator(members)
        pair, places = await begin(peer), far(members, broker)
        for place in places:
            assert [await sent(members, pair, place, 0, b"a", version=each) for each in (9, 11)] == [48, 120]
        assert await add(peer, pair, *places) == [0, 0]
        for place in places:
            assert await sent(members, pair, place, 0, b"a", version=9) == 0
        await ended(peer, pair)
        for place in places:
            assert await sent(members, pair, place, 1, b"late", version=9) == 48
            leader = await Peer.of(members.leader(*place))
            assert (await read(leader, place)).last_stable_offset == 2
            leader.close()
        assert await end(peer, pair) == 0
        peer.close()


async def test_56_records_wait_at_their_producer_while_the_coordinator_moves(tmp_path: Path) -> None:
    async with verifying(tmp_path, as_version=RELEASE) as members:
        broker, peer = await coordinator(members)
        pair, place = await begin(peer), far(members, broker)[0]
        await members.kill(broker.node_id)
        peer.close()
        assert await sent(members, pair, place, 0, b"a") == 0
        _, peer = await coordinator(members)
        await done(peer, pair)
        assert await values(members, place) == [b"a"]
        peer.close()


async def test_56_records_are_refused_with_19_while_the_coordinator_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with verifying(tmp_path) as members:
        broker, peer = await coordinator(members)
        pair, place = await begin(peer), far(members, broker)[0]
        await add(peer, pair, place)

        async def silent(*_: object, **__: object) -> None:
            raise NetworkError("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(PeerLink, "send", silent)
            leader = await Peer.of(members.leader(*place))
            assert [(await send(leader, pair, place, 0, b"a", version=each))[0] for each in (9, 11)] == [19, 19]
        assert (await send(leader, pair, place, 0, b"a"))[0] == 0
        await ended(peer, pair)
        peer.close()
        leader.close()


@pytest.mark.parametrize(("code", "told"), [(31, 48), (42, 42)])
async def test_the_producer_gets_the_coordinators_error_for_the_whole_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: int
) -> None:
    async with verifying(tmp_path) as members:
        broker, peer = await coordinator(members)
        pair, place = await begin(peer), far(members, broker)[0]

        async def refusing(*_: object, **__: object) -> AddPartitionsToTxnResponse:
            return AddPartitionsToTxnResponse(error_code=code)

        monkeypatch.setattr(PeerLink, "send", refusing)
        leader = await Peer.of(members.leader(*place))
        assert (await send(leader, pair, place, 0, b"a", version=11))[0] == told
        peer.close()
        leader.close()


async def test_a_coordinator_older_than_3_6_is_not_asked_and_its_transactions_continue(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SETTINGS) as members, Client(members.bootstrap) as client:
        await make(members, client, partitions=3)
        for number in (2, 3):  # leaders of new partitions are spread over all
            await members.stop(number)
            await members.start(number, as_version="3.5")
        await until(lambda: members.isr("t") == {1, 2, 3})
        peer = await Peer.of(members.brokers[1])
        while await found(peer):
            await asyncio.sleep(0.01)
        peer.close()
        broker, peer = await coordinator(members)
        if broker is members.brokers[1]:
            peer.close()
            await members.stop(1)
            await members.start(1)
            broker, peer = await coordinator(members)
        assert broker is not members.brokers[1]
        await until(lambda: members.isr(STATE_TOPIC) == {1, 2, 3})
        pair = await begin(peer)
        asking = members.brokers[1].coordinators.partition_checks
        codes = await asking.ask("x", pair, [PLACE], joins=False)
        assert codes == {PLACE: ErrorCode.NONE}
        assert await asking.ask("x", pair, [PLACE], joins=True) == {PLACE: ErrorCode.UNSUPPORTED_VERSION}
        peer.close()


async def test_many_transactions_are_asked_about_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with verifying(tmp_path) as members:
        broker, peer = await coordinator(members)
        ids = [f"x{each}" for each in range(40)]
        place = far(members, broker)[0]
        pairs = [await begin(peer, each) for each in ids]
        for pair, key in zip(pairs, ids, strict=True):
            assert await add(peer, pair, place, key=key) == [0]
        requests, real = list[AddPartitionsToTxnRequest](), PeerLink.send

        async def noted(self: PeerLink, request: AddPartitionsToTxnRequest, **more: range) -> object:
            requests.append(request)
            return await real(self, request, **more)

        monkeypatch.setattr(PeerLink, "send", noted)
        leader = members.leader(*place)
        checks = leader.coordinators.partition_checks
        where = TopicPartition(*place)
        asked = [checks.ask(key, pair, [where], joins=False) for pair, key in zip(pairs, ids, strict=True)]
        asked += [checks.ask("missing", (4711, 0), [where], joins=False)]
        told = [each[where] for each in await asyncio.gather(*asked)]
        assert told == [ErrorCode.NONE] * 40 + [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
        assert len(requests) <= 2
        assert sum(len(each.transactions) for each in requests) == 41
        peer.close()


# ---- requests that wait together


def question(epoch: int = 0, places: Sequence[int] = (0,), *, producer_id: int = 7, joins: bool = False) -> _Question:
    return _Question("x", producer_id, epoch, joins, {TopicPartition("t", each) for each in places})


async def test_questions_about_one_transaction_are_one_entry_of_a_request() -> None:
    outbox = _Questions()
    first = outbox.put(question(places=[0]))
    assert outbox.put(question(places=[1])) is first
    (taken,) = await outbox.take(500, 1)
    assert taken is first
    assert taken.places == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert outbox.pop() == []


async def test_of_two_epochs_the_lower_one_is_fenced_and_another_question_is_asked_in_place_of_the_first() -> None:
    outbox = _Questions()
    waiting = outbox.put(question(1))
    older, newer = outbox.put(question(0)), outbox.put(question(2))
    fenced = {PLACE: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert (await older.answer, await waiting.answer) == (fenced, fenced)
    another = outbox.put(question(0, producer_id=8))
    assert await newer.answer == {PLACE: ErrorCode.NETWORK_EXCEPTION}
    assert await outbox.take(500, 1) == [another]


async def test_a_request_has_a_bounded_number_of_transactions() -> None:
    outbox = _Questions()
    for each in range(5):
        outbox.put(_Question(f"x{each}", each, 0, False, {PLACE}))
    assert [len(await outbox.take(2, 1)) for _ in range(3)] == [2, 2, 1]


# ---- the level of the cluster


async def test_a_cluster_of_the_release_has_the_feature_and_notes_it_as_kafka_does(tmp_path: Path) -> None:
    async with cluster(tmp_path, as_version=RELEASE) as members:
        for broker in members.brokers.values():
            peer = await Peer.of(broker)
            told = await peer.ask(SOFTWARE, 3, ApiVersionsResponse)
            most = {each.api_key: each.max_version for each in told.api_keys}
            levels = {each.name: each.max_version_level for each in told.finalized_features}
            assert (most[0], most[26], most[28]) == (13, 5, 5)
            assert levels == {"transaction.version": 2, "group.version": 1}
            peer.close()
        node = members.tree.session().get(layout.FEATURES)
        assert node.data == (
            b'{"features":{"transaction.version":{"min_version_level":2,"max_version_level":2}},"status":1,"version":1}'
        )
        await members.stop(2)
        await members.start(2)
        with pytest.raises(InvalidConfigError, match=r"set as\.version to 4\.0 or later"):
            await members.start(4, as_version="3.9")


async def test_a_broker_of_the_release_does_not_join_others(tmp_path: Path) -> None:
    async with cluster(tmp_path) as members:
        with pytest.raises(InvalidConfigError, match=r"broker 1 of its cluster another level: stop all brokers"):
            await members.start(4, as_version=RELEASE)
        assert members.tree.session().exists(layout.FEATURES) is None


async def test_without_features_in_the_protocol_between_brokers_it_is_protocol_1(tmp_path: Path) -> None:
    settings = {"as_version": RELEASE, "inter_broker_protocol_version": "2.6"}
    async with cluster(tmp_path, brokers=1, **settings) as members:
        peer = await Peer.of(members.brokers[1])
        told = await peer.ask(SOFTWARE, 3, ApiVersionsResponse)
        most = {each.api_key: each.max_version for each in told.api_keys}
        assert (most[0], most[26], most[28], told.finalized_features) == (11, 4, 4, [])
        peer.close()


def test_levels_of_later_nodes_are_read() -> None:
    assert layout.load_features(b'{"version":2,"status":1,"features":{"transaction.version":2}}') == {
        "transaction.version": 2
    }
