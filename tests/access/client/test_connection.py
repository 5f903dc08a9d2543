"""Connections: which versions are found out, and what happens when brokers are slow, wrong or gone."""

import asyncio
import socket
from typing import Any

import pytest

from access.client.broker import ScriptedBroker, cluster
from builders import run
from magicbyte.access.client.connection import IN_FLIGHT, Connection
from magicbyte.access.client.versions import RELEASE_0_8_2, RELEASE_0_9
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import ErrorCode, NetworkError, ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.produce import ProduceRequest


async def connect(broker: ScriptedBroker) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, client_id="test")


@pytest.mark.parametrize(("manner", "connections"), [("new", 1), ("0.10", 1), ("0.9", 1), ("0.8.2", 3)])
def test_a_broker_of_every_era_is_asked_for_metadata_in_its_version(manner: str, connections: int) -> None:
    broker = ScriptedBroker(manner, {3: range(2)})

    async def work() -> None:
        async with cluster(broker):
            connection = await connect(broker)
            assert isinstance(await connection.send(MetadataRequest(topics=[])), MetadataResponse)
            await connection.aclose()
            releases = {"0.9": RELEASE_0_9, "0.8.2": RELEASE_0_8_2}
            if manner in releases:
                assert connection.versions is releases[manner]
            else:
                assert connection.versions.release is None

    run(work())
    assert [version for _, version in broker.requests] == [0 if manner in ("0.9", "0.8.2") else 1]
    assert broker.connections == connections


async def test_brokers_from_4_0_on_that_name_old_produce_requests_do_not_take_them() -> None:
    broker = ScriptedBroker(versions={0: range(14), 1: range(4, 18)})

    async with cluster(broker):
        connection = await connect(broker)
        assert connection.versions.ranges[0] == range(3, 14)
        with pytest.raises(
            UnsupportedVersionError, match=r"Produce at 127\.0\.0\.1:\d+ has no version 2: known are 3 to 13"
        ):
            await connection.send(ProduceRequest(), versions=range(3))
        await connection.aclose()


async def test_many_requests_are_under_way_at_once_and_each_gets_its_own_answer() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda request, _: ListGroupsResponse(throttle_time_ms=int(request.states_filter[0]))

    async with cluster(broker):
        connection = await connect(broker)
        asked = [connection.send(ListGroupsRequest(states_filter=[str(i)])) for i in range(5 * IN_FLIGHT)]
        found: Any = await asyncio.gather(*asked)
        assert [each.throttle_time_ms for each in found] == list(range(5 * IN_FLIGHT))
        await connection.aclose()


async def test_a_request_whose_caller_went_away_does_not_disturb_the_others() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda request, _: ListGroupsResponse(throttle_time_ms=int(request.states_filter[0]))

    async with cluster(broker):
        connection = await connect(broker)
        tasks = [
            asyncio.create_task(connection.send(ListGroupsRequest(states_filter=[str(i)])))
            for i in range(3 * IN_FLIGHT)
        ]
        for turn, task in enumerate(tasks):
            if turn % 3 == 0:
                await asyncio.sleep(0)
                task.cancel()
        found: Any = await asyncio.gather(*tasks, return_exceptions=True)
        for turn, each in enumerate(found):
            if turn % 3:
                assert each.throttle_time_ms == turn
        assert isinstance(await connection.send(MetadataRequest(topics=[])), MetadataResponse)
        await connection.aclose()


async def test_a_broker_that_closes_the_connection_fails_all_who_wait_and_those_who_come_later() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda *_: None

    async with cluster(broker):
        connection = await connect(broker)
        found = await asyncio.gather(
            *(connection.send(ListGroupsRequest()) for _ in range(2 * IN_FLIGHT)), return_exceptions=True
        )
        assert {type(each) for each in found} == {NetworkError}
        assert connection.is_closed
        with pytest.raises(NetworkError, match=f"127.0.0.1:{broker.port}: the broker closed the connection"):
            await connection.send(MetadataRequest())
        await connection.aclose()


async def test_a_response_that_is_late_closes_the_connection() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda *_: b""

    async with cluster(broker):
        connection = await connect(broker)
        with pytest.raises(NetworkError, match="no response to ListGroups within 20 ms"):
            await connection.send(ListGroupsRequest(), timeout_ms=20)
        assert connection.is_closed
        await connection.aclose()


@pytest.mark.parametrize("how", ["late", "aborted", "closed", "aborted when nothing waits"])
async def test_a_connection_whose_request_is_given_up_is_reset(how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(await SocketStream.connect(*server.getsockname()), name="b", client_id="c")
        peer, _ = server.accept()
        connection.versions = RELEASE_0_9
        connection.begin()
        if how != "aborted when nothing waits":
            asking = asyncio.create_task(connection.send(ListGroupsRequest(), timeout_ms=20))
            await asyncio.sleep(0)
            if how == "late":
                await asyncio.wait([asking])
        if how != "closed":
            connection.abort()
        await connection.aclose()
        with peer:
            if how in ("late", "aborted"):
                with pytest.raises(ConnectionResetError):
                    list(iter(lambda: peer.recv(1000), b""))
            else:
                list(iter(lambda: peer.recv(1000), b""))
        if how != "aborted when nothing waits":
            with pytest.raises(NetworkError):
                await asking


async def test_the_first_late_response_is_reported_whatever_the_order_of_the_requests() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda *_: b""

    async with cluster(broker):
        connection = await connect(broker)
        patient = asyncio.create_task(connection.send(ListGroupsRequest(), timeout_ms=10_000))
        away = asyncio.create_task(connection.send(ListGroupsRequest(), timeout_ms=10))
        await asyncio.sleep(0)
        away.cancel()  # whose response no caller awaits
        with pytest.raises(NetworkError, match="no response to ListGroups within 60 ms"):
            await connection.send(ListGroupsRequest(), timeout_ms=60)
        with pytest.raises(NetworkError, match="no response to ListGroups within 60 ms"):
            await patient
        await connection.aclose()


async def test_requests_that_wait_for_a_turn_are_late_in_their_time() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda *_: b""

    async with cluster(broker):
        connection = await connect(broker)
        tasks = [asyncio.create_task(connection.send(ListGroupsRequest())) for _ in range(IN_FLIGHT)]
        await asyncio.sleep(0)
        with pytest.raises(NetworkError, match="no response to ListGroups within 30 ms"):
            await connection.send(ListGroupsRequest(), timeout_ms=30)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {NetworkError}
        await connection.aclose()


async def test_requests_that_the_system_does_not_take_at_once_arrive_in_order() -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda request, _: ListGroupsResponse(throttle_time_ms=len(request.states_filter))

    async with cluster(broker):
        connection = await connect(broker)
        sizes = [1, 400, 2, 401, 3, 402]  # of 5 MB, which sockets do not hold
        asked = [connection.send(ListGroupsRequest(states_filter=["a longer name" * 1000] * size)) for size in sizes]
        found: Any = await asyncio.gather(*asked)
        assert [each.throttle_time_ms for each in found] == sizes
        await connection.aclose()


@pytest.mark.parametrize(
    "junk", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01x", b"\x00\x00\x00\x04\x00\x00\x00\x63"]
)
async def test_frames_that_are_no_responses_close_the_connection(junk: bytes) -> None:
    broker = ScriptedBroker()
    broker.answers[16] = lambda *_: junk

    async with cluster(broker):
        connection = await connect(broker)
        with pytest.raises(NetworkError, match=r"127\.0\.0\.1"):
            await connection.send(ListGroupsRequest())
        assert connection.is_closed
        await connection.aclose()


async def test_a_response_that_cannot_be_read_is_an_error_of_its_request_alone() -> None:
    broker = ScriptedBroker()
    third = (3).to_bytes(4, "big")  # two are for the versions
    broker.answers[16] = lambda *_: b"\x00\x00\x00\x06" + third + b"\x00\x00"

    async with cluster(broker):
        connection = await connect(broker)
        with pytest.raises(ProtocolError, match="ListGroupsResponse"):
            await connection.send(ListGroupsRequest())
        assert isinstance(await connection.send(MetadataRequest(topics=[])), MetadataResponse)
        await connection.aclose()


async def test_a_refused_connection_is_an_error_that_names_the_address() -> None:
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:1: ") as caught:
        await Connection.open("127.0.0.1", 1, client_id="test")
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
