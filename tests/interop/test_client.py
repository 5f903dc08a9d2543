"""Our client and real brokers of seven eras: Kafka's consumer reads what it writes, it reads what a producer wrote."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import base64_text, unbase64
from interop import jvm
from interop.kafka_oracle import version_key
from magicbyte.access.client import Client, admin, groups
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.groups import Committed
from magicbyte.access.client.offsets import ListedOffset, bounds, list_offset
from magicbyte.access.client.produce import ProduceOptions, send, send_compressed
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, OffsetOutOfRangeError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.scan import scan

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

WITH_ADMIN = ("0.10.2.2", "0.11.0.3", "2.8.2", "3.9.1", "4.3.1")
VERSIONS = ("0.8.2.2", "0.9.0.1", *WITH_ADMIN)  # the first two leave changes of topics and settings to ZooKeeper
START = 1_700_000_000_000
EACH = 50  # records of each codec
Seen = list[tuple[int, int, bytes | None, bytes | None]]  # offset, time, key, value


class Broker:
    """A running broker. `has` says whether it is at least of a version."""

    def __init__(self, version: str, state: dict[str, Any]) -> None:
        self.version = version
        self.bootstrap: str = state["bootstrap"]
        self.codecs = [each for each in Codec if each is not Codec.ZSTD or self.has("2.1")]

    def has(self, version: str) -> bool:
        return version_key(self.version) >= version_key(version)

    def run(self, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            async with Client(self.bootstrap) as client:
                return await work(client)

        return asyncio.run(asyncio.wait_for(inside(), 240))

    async def make(self, client: Client, topic: str) -> None:
        """Make a topic; old brokers do it when they are asked for it, which `send` does."""
        if self.has("0.10.1"):
            await admin.create_topic(client, admin.NewTopic(topic))

    def consumed(self, topic: str) -> Seen:
        """Return what this era's own consumer sees."""
        if self.has("0.10.1"):
            printed = jvm.run("Consume", self.bootstrap, topic, "read_uncommitted", version=self.version)
        else:
            printed = jvm.run("ConsumeSimple", self.bootstrap, topic, version=self.version)
        found = []
        for line in printed.decode().splitlines():
            offset, time, _, key, value, *_ = line.split("\t")
            found.append((int(offset), int(time), *(None if cell == "~" else unbase64(cell) for cell in (key, value))))
        return found


@pytest.fixture(scope="module", params=VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    version: str = request.param
    settings = [] if version.startswith("0.8") else ["log.retention.ms=-1"]  # the records are from 2023
    folder: Path = tmp_path_factory.mktemp(f"client-{version}")
    with jvm.broker(version, folder, *settings, scratch=True) as state:
        yield Broker(version, state)


def made(start: int, count: int) -> list[Record]:
    cells: list[bytes | None] = [b"", None, b"word " * 40, bytes(3)]
    return [
        Record(0, START + 1000 * at, 0, cells[at % 4] if at % 5 else b"key-%d" % at, cells[(at + 1) % 4])
        for at in range(start, start + count)
    ]


async def seen(client: Client, topic: str, start: int = 0, options: FetchOptions | None = None) -> Seen:
    _, end = await bounds(client, topic, 0)
    found = read_records(client, topic, 0, start, end, options or FetchOptions())
    return [(each.offset, each.timestamp, each.key, each.value) async for part in found for each in part]


def test_records_of_every_codec_are_read_by_kafkas_consumer_and_by_us(broker: Broker) -> None:
    async def work(client: Client) -> tuple[Seen, Seen, bytes, bytes]:
        await broker.make(client, "ours")
        for turn, codec in enumerate(broker.codecs):
            await send(client, "ours", 0, made(turn * EACH, EACH), ProduceOptions(codec=codec, batch_bytes=2000))
        _, end = await bounds(client, "ours", 0)
        whole = [found async for found in read_sets(client, "ours", 0, 0, end)]
        small = FetchOptions(max_bytes=50)  # below the size of any set
        pieces = [found async for found in read_sets(client, "ours", 0, 0, end, small)]
        found = b"".join(bytes(each.data) for each in whole)
        return await seen(client, "ours"), await seen(client, "ours", 77), found, b"".join(each.data for each in pieces)

    ours, later, whole, pieces = broker.run(work)
    sent = made(0, EACH * len(broker.codecs))
    has_times = broker.has("0.10.0")
    assert ours == [(at, each.timestamp if has_times else -1, each.key, each.value) for at, each in enumerate(sent)]
    assert later == ours[77:]
    assert ours == broker.consumed("ours")
    assert whole == pieces
    assert set(scan(memoryview(whole)).codec.tolist()) == {int(each) for each in broker.codecs}


def test_what_kafkas_producer_wrote_is_what_its_consumer_and_we_read(broker: Broker) -> None:
    broker.run(lambda client: broker.make(client, "theirs"))
    lines = [
        "\t".join(
            ["theirs", str(each.timestamp), *(base64_text(cell) if cell is not None else "~" for cell in each[3:5])]
        )
        for each in made(0, 200)
    ]
    text = "".join(line + "\n" for line in lines).encode()
    jvm.run("Produce", broker.bootstrap, "theirs=gzip", stdin=text, version=broker.version)
    ours = broker.run(lambda client: seen(client, "theirs"))
    assert len(ours) == 200
    assert ours == broker.consumed("theirs")


def test_closed_sets_are_copied_from_topic_to_topic_without_being_compressed_again(broker: Broker) -> None:
    async def work(client: Client) -> tuple[Seen, Seen, list[bytes], list[bytes]]:
        await broker.make(client, "source")
        await broker.make(client, "copy")
        compressed = [codec for codec in broker.codecs if codec]
        for turn, codec in enumerate(compressed):
            await send(client, "source", 0, made(turn * EACH, EACH), ProduceOptions(codec=codec))
        _, end = await bounds(client, "source", 0)
        async for found in read_sets(client, "source", 0, 0, end):
            for position, size in zip(found.table.position, found.table.size, strict=True):
                await send_compressed(client, "copy", 0, found.data[position : position + size])
        return (
            await seen(client, "source"),
            await seen(client, "copy"),
            *[[payload async for payload in payloads(client, topic)] for topic in ("source", "copy")],
        )

    source, copy, before, after = broker.run(work)
    assert len(source) == EACH * (len(broker.codecs) - 1)
    assert copy == source
    if broker.has("0.10.0"):  # older ones reassign inner offsets, and recompress
        assert before == after


async def payloads(client: Client, topic: str) -> Any:
    """Yield what is behind the header of each set."""
    _, end = await bounds(client, topic, 0)
    async for found in read_sets(client, topic, 0, 0, end):
        for position, size, magic in zip(found.table.position, found.table.size, found.table.magic, strict=True):
            yield bytes(found.data[position : position + size])[{0: 26, 1: 34, 2: 61}[magic] :]


def test_offsets_of_times_and_ends(broker: Broker) -> None:
    async def work(client: Client) -> tuple[Any, ...]:
        await broker.make(client, "times")
        await send(client, "times", 0, made(0, 40))
        middle = await list_offset(client, "times", 0, START + 30_500)
        late = await list_offset(client, "times", 0, START + 999_999_000)
        with pytest.raises(OffsetOutOfRangeError):
            _ = [each async for each in read_sets(client, "times", 0, 41, 50)]
        return await bounds(client, "times", 0), middle, late

    ends, middle, late = broker.run(work)
    assert ends == (0, 40)
    if broker.has("0.10.1"):
        assert middle == ListedOffset(31, START + 31_000)
        assert late == ListedOffset(None, None)
    else:
        assert middle == ListedOffset(None, None)  # no segment was last written before 2023


def test_a_group_finds_the_offsets_that_it_committed(broker: Broker) -> None:
    places = {("groups", 0): Committed(17, "here")}

    async def work(client: Client) -> Any:
        await broker.make(client, "groups")
        await send(client, "groups", 0, made(0, 20))
        await groups.commit_offsets(client, "readers", places)
        return await groups.committed_offsets(client, "readers", [("groups", 0), ("groups", 1)])

    assert broker.run(work) == places


@pytest.mark.parametrize("broker", WITH_ADMIN, indirect=True)
def test_topics_and_settings_are_changed(broker: Broker) -> None:

    async def work(client: Client) -> None:
        topic = admin.NewTopic("changed", partitions=2, configs={"retention.ms": "123456789"})
        await admin.create_topic(client, topic)
        with pytest.raises(BrokerError) as caught:
            await admin.create_topic(client, replace(topic, partitions=1))
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        if broker.has("0.11"):
            changes = {"retention.ms": None, "segment.bytes": "7654321"}
            await admin.alter_configs(client, admin.ConfigResource.TOPIC, "changed", changes)
            own = await settled(client, "segment.bytes")
            assert own == {"segment.bytes": "7654321"}
            await send(client, "changed", 0, made(0, 10))
            assert await admin.delete_records(client, "changed", 0, 4) == 4
            assert await bounds(client, "changed", 0) == (4, 10)
            number = next(iter(client.cluster.brokers))
            assert await admin.describe_configs(client, admin.ConfigResource.BROKER, str(number))
        if broker.has("1.0"):
            await admin.create_partitions(client, "changed", 3)
            await send(client, "changed", 2, made(0, 1))
            await admin.delete_topic(client, "changed")
        cluster = await admin.describe_cluster(client)
        assert len(cluster.brokers) == 1
        assert cluster.cluster_id

    broker.run(work)


async def settled(client: Client, name: str) -> dict[str, str | None]:
    """Return the settings of the topic alone, once `name` is one: a change takes a moment to arrive."""
    while True:
        found = await admin.describe_configs(client, admin.ConfigResource.TOPIC, "changed")
        own = {each.name: each.value for each in found.values() if each.is_own}
        if name in own:
            return own
        await asyncio.sleep(0.05)
