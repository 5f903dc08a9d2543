"""One `__consumer_offsets`, in turn a real broker's, ours and the real one's again: groups and offsets go with it.

The same member, with the same id, is heard by all three, and each tells the offsets that the one before has stored.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interop import jvm
from interop.group_steps import SUBSCRIPTION, Talk, join_alone, talk_with
from interop.sweeps import cells
from magicbyte.access.client import Client, groups
from magicbyte.access.client.groups import Committed
from magicbyte.engine.coordination.partitioning import java_hash, partition_for
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.describe_groups import DescribeGroupsRequest
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

PARTITIONS = 7
SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS), "num.partitions": "2"}
OURS = {
    "0.10.2.2": {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"},
    "2.8.2": {"inter.broker.protocol.version": "2.8"},
    "3.9.1": {"inter.broker.protocol.version": "2.8"},
    "4.3.1": {"inter.broker.protocol.version": "2.8"},
}
"""By version of the real broker: the setting with which ours writes the same."""
NAMES = ["simple", "polygenelubricants", "negative-hash-2", "größe", "\U0001f600"]


def offsets_of(place: int, lap: int) -> dict[groups.TopicPartition, Committed]:
    return {("t", 0): Committed(100 * lap + place, f"lap {lap}"), ("t", 1): Committed(7 * lap)}


def at(address: str, work: Callable[[Talk], Awaitable[Any]]) -> Any:
    return talk_with(address, 5, work)


async def lap(talk: Talk, number: int) -> None:
    """Commit offsets of all simple groups."""
    async with Client(f"{talk.host}:{talk.port}") as client:
        for place, name in enumerate(NAMES):
            await groups.commit_offsets(client, name, offsets_of(place, number))


async def told(talk: Talk) -> dict[str, dict[groups.TopicPartition, Committed]]:
    async with Client(f"{talk.host}:{talk.port}") as client:
        return {
            name: {
                where: Committed(each.offset, each.metadata)
                for where, each in (await groups.committed_offsets(client, name, [("t", 0), ("t", 1)])).items()
            }
            for name in NAMES
        }


async def check_member(talk: Talk, member: str, generation: int) -> None:
    """The member is known with all that it had, is heard, and commits."""
    (found,) = (await talk.send(DescribeGroupsRequest(groups=["g"]))).groups
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    (only,) = found.members
    assert (only.member_id, only.client_id, only.client_host) == (member, "c", "/127.0.0.1")
    assert (only.member_metadata, only.member_assignment) == (SUBSCRIPTION, b"assigned")
    beat = HeartbeatRequest(group_id="g", member_id=member, generation_id=generation)
    assert (await talk.send(beat)).error_code == ErrorCode.NONE
    await talk.commit("member", member, generation)
    _, answer = talk.said[-1]
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize("version", cells(OURS))
def test_groups_and_offsets_go_from_a_real_broker_to_ours_and_back(version: str, tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    wanted = [{name: offsets_of(place, number) for place, name in enumerate(NAMES)} for number in (1, 2)]
    with jvm.broker(version, tmp_path, *settings) as state:
        address, data = state["bootstrap"], Path(state["data"])

        async def first(talk: Talk) -> tuple[str, int]:
            await lap(talk, 1)
            return await join_alone(talk)

        member, generation = at(address, first)
    stored = {each.name: sum(file.stat().st_size for file in each.glob("*.log")) for each in data.glob("__consumer*")}
    assert len(stored) == PARTITIONS
    used = {f"__consumer_offsets-{partition_for(name, PARTITIONS)}" for name in [*NAMES, "g"]}
    assert {name for name, size in stored.items() if size} == used

    with Broker({**SETTINGS, **OURS[version]}, directory=data) as broker:

        async def second(talk: Talk) -> Any:
            found = await told(talk)
            await check_member(talk, member, generation)
            await lap(talk, 2)
            return found

        assert at(broker.bootstrap_servers, second) == wanted[0]

    with jvm.broker(version, tmp_path, *settings) as state:

        async def third(talk: Talk) -> Any:
            found = await told(talk)
            await check_member(talk, member, generation)
            return found

        assert at(state["bootstrap"], third) == wanted[1]


def test_the_names_have_hashes_of_both_signs() -> None:
    assert {java_hash(name) < 0 for name in NAMES} == {True, False}
    assert java_hash("polygenelubricants") == -(1 << 31)
