"""A real broker's log directory is served by ours and goes back: records, groups and offsets are there each time."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interop import jvm, sweeps
from interop.group_steps import Talk, join_alone, talk_with
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

START = 1_700_000_000_000
LONG_SESSIONS = "group.max.session.timeout.ms=300000"
KEPT = "log.retention.ms=-1"  # records of 2023
LIVE = "g"
CREATE_TOPICS = 19
DOCUMENTED = {
    "0.9.0.1": {"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.9.0"},
    "0.10.0.1": {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": "0.10.0"},
    "0.10.2.2": {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"},
    "0.11.0.3": {"inter.broker.protocol.version": "0.11.0", "log.message.format.version": "0.11.0"},
}
OLDEST = "0.9.0.1"
STORAGE = re.compile(r"\] (WARN|ERROR) .*\(kafka\.(log|coordinator|message|server\.(ReplicaManager|KafkaApis))\b")
"""Lines in which a broker complains about what lies in its directory, or what it makes of it."""
Seen = list[tuple[int, bytes | None, bytes | None]]


def at(address: str, work: Callable[[Talk], Awaitable[Any]]) -> Any:
    return talk_with(address, 2, work)


def run(address: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        async with Client(address) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(inside(), 240))


async def make(client: Client) -> None:
    if (await client.any_connection()).versions.latest(APIS[CREATE_TOPICS]) is None:
        await client.topics(["t"])  # created by this request
    else:
        await create_topic(client, NewTopic("t"))


async def fill(client: Client, lap: int) -> None:
    """Send fifty records with each of two codecs, and commit an offset of a group without members."""
    for codec in (Codec.NONE, Codec.GZIP):
        rows = [Record(at, START + at, 0, b"key %d" % at, b"value %d of lap %d" % (at, lap)) for at in range(50)]
        await send(client, "t", 0, rows, ProduceOptions(codec=codec))
    await commit_offsets(client, "simple", {("t", 0): Committed(lap * 7, f"lap {lap}")})


async def records(client: Client) -> Seen:
    found = read_records(client, "t", 0, *await bounds(client, "t", 0), FetchOptions())
    return [(each.offset, each.key, each.value) async for part in found for each in part]


async def simple(client: Client) -> tuple[int, str]:
    found = (await committed_offsets(client, "simple", [("t", 0)]))[("t", 0)]
    return found.offset, found.metadata


def consume(address: str, group: str, count: int, version: str) -> list[int]:
    """Let the Java consumer of a release read some records in a group, commit and leave; return their offsets."""
    return [int(line) for line in jvm.run("ConsumeGroup", address, "t", group, str(count), version=version).split()]


async def is_heard(talk: Talk, member: str, generation: int) -> bool:
    beat = HeartbeatRequest(group_id=LIVE, member_id=member, generation_id=generation)
    return bool((await talk.send(beat)).error_code == ErrorCode.NONE)


def complaints(log: str) -> list[str]:
    """Return what a broker of Kafka's own says of its logs and groups that is no mere news."""
    return [each for each in log.splitlines() if STORAGE.search(each)]


def marks(version: str, settings: str) -> list[pytest.MarkDecorator]:
    """CI runs both settings for the oldest release, and those of the documents for the newest."""
    is_in_ci = version == OLDEST or (settings == "documented" and sweeps.is_in_ci(version, DOCUMENTED))
    return [] if is_in_ci else [pytest.mark.campaign]


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        pytest.param(version, settings, marks=marks(version, settings))
        for version in DOCUMENTED
        for settings in ("none", "documented")
    ],
)
def test_a_real_broker_has_its_directory_back_with_all_groups_and_records(
    version: str, settings: str, tmp_path: Path
) -> None:
    with jvm.broker(version, tmp_path, LONG_SESSIONS, KEPT) as state:
        address, data = state["bootstrap"], Path(state["data"])
        run(address, make)
        run(address, lambda client: fill(client, 1))
        assert consume(address, "left", 10, version) == list(range(10))
        member = at(address, join_alone)

    with Broker(DOCUMENTED[version] if settings == "documented" else {}, directory=data) as broker:
        address = broker.bootstrap_servers
        first = run(address, records)
        assert run(address, simple) == (7, "lap 1")
        assert at(address, lambda talk: is_heard(talk, *member))
        assert consume(address, "left", 10, version) == list(range(10, 20))
        assert consume(address, "new", 3, version) == [0, 1, 2]
        run(address, lambda client: fill(client, 2))  # after the records of groups without members
        before = run(address, records)
        assert at(address, lambda talk: is_heard(talk, *member))
    assert before[: len(first)] == first
    assert len(before) == 200

    logged = (tmp_path / "broker.log").stat().st_size
    with jvm.broker(version, tmp_path, LONG_SESSIONS, KEPT) as state:
        address = state["bootstrap"]
        assert run(address, simple) == (14, "lap 2")
        assert at(address, lambda talk: is_heard(talk, *member))
        assert consume(address, "left", 10, version) == list(range(20, 30))
        assert consume(address, "new", 3, version) == [3, 4, 5]
        assert run(address, records) == before
        run(address, lambda client: fill(client, 3))
        assert run(address, records)[:200] == before
        assert complaints((tmp_path / "broker.log").read_bytes()[logged:].decode()) == []
