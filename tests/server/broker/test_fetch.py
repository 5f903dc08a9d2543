"""Fetch: limits, waiting, isolation, epochs, conversion of any size, enriched topics."""

import asyncio
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.live.segment import FileSlice
from magicbyte.engine.protocol import APIS, read_response, write_request
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.server.apis import fetch as broker_fetch
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions import conversion
from magicbyte.server.partitions.conversion import CHUNK_BYTES
from magicbyte.server.serving.metrics import ClientSoftware, Conversion
from server.broker.builders import FORMATS, TIME, asking, fetch, made, produce, read, records
from server.broker.serving import Peer, Running


def facts(found: Sequence[Record], form: Format) -> list[tuple[object, ...]]:
    return [(each.offset, -1 if form is Format.V0 else each.timestamp, each.key, each.value) for each in found]


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("produced", FORMATS)
async def test_every_format_that_is_produced_is_read_by_every_version_from_every_format(
    produced: Format, stored: Format, folder: Path
) -> None:
    sent = records(30)

    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.format.version": stored.value})
        peer = await Peer.of(broker)
        at = 0
        for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
            answer = await produce(peer, "topic", made(sent, produced, codec), produced)
            assert (answer.error_code, answer.base_offset) == (0, at)
            at += len(sent)
        for version in range(13):
            reader = (Format.V0, Format.V0, Format.V1, Format.V1)[version] if version < 4 else Format.V2
            poorest = min(produced, stored, reader, key=lambda each: each.magic)
            found = read(await fetch(peer, version, asking("topic", 0)))
            wanted = [each._replace(offset=each.offset + base) for base in (0, 30, 60) for each in sent]
            assert facts(found, poorest) == facts(wanted, poorest), version
        peer.close()


async def test_a_fetch_that_needs_no_conversion_gives_the_stored_bytes_and_is_counted_so(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "1"})
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(10), Format.V1, Codec.GZIP), Format.V1)
        for version in (2, 3, 4, 12):
            log = broker.replicas.partition("topic", 0).log
            found = await fetch(peer, version, asking("topic", 0))
            assert found.records == log.active.log.read_at(0, log.active.size)
        counters = broker.metrics.of("topic")
        assert counters.recompressions_avoided == 1
        assert all(each.source is each.target for each in counters.fetched)
        await fetch(peer, 1, asking("topic", 0))
        assert counters.fetched[Conversion(Format.V1, Format.V0, 1, ClientSoftware("test"))].sets == 1
        peer.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_a_large_fetch_is_converted_while_it_is_sent_and_returns_a_prefix(codec: Codec, folder: Path) -> None:
    sent, batch = records(1000, 2000), 20

    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for at in range(0, len(sent), batch):
            part = [each._replace(offset=each.offset - at) for each in sent[at : at + batch]]
            assert (await produce(peer, "topic", made(part, Format.V2, codec), Format.V2)).base_offset == at
        for version in (0, 2, 3):
            offset, found = 0, list[Record]()
            while offset < len(sent):
                data = await fetch(peer, version, asking("topic", offset, limit=8 << 20))
                got = [each for each in read(data) if each.offset >= offset]
                assert got, f"version {version} makes no progress at {offset}"
                found += got
                offset = found[-1].offset + 1
            poorest = Format.V0 if version == 0 else Format.V1
            assert facts(found, poorest) == facts(sent, poorest)
            counted = broker.metrics.of("topic").fetched[
                Conversion(Format.V2, poorest, version, ClientSoftware("test"))
            ]
            assert counted.sets >= len(sent) // batch
            assert counted.bytes >= broker.replicas.partition("topic", 0).log.size
        peer.close()


async def test_the_memory_of_a_conversion_does_not_grow_with_the_fetch(folder: Path) -> None:
    part, count = records(10, 10_000), 240
    data = made(part, Format.V2)

    async def drained(peer: Peer, request: FetchRequest) -> int:
        await peer.stream.write([bytes(write_request(request, 2, correlation_id=1, client_id="me"))])
        size = int.from_bytes(await peer._exactly(4), "big")
        left = size
        while left:
            left -= len(await peer.stream.read(min(left, 65_536)))
        return size

    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for _ in range(count):
            await produce(peer, "topic", data, Format.V2)
        tracemalloc.start()
        try:
            size = await drained(peer, asking("topic", 0, limit=100 << 20))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert size >= count * len(data)
        assert peak < 8 * CHUNK_BYTES
        peer.close()


async def test_a_set_that_is_larger_than_the_limit_is_cut_for_old_versions_and_comes_whole_first_for_new_ones(
    folder: Path,
) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await broker.topics.create("old", configs={"message.format.version": "0"})
        await broker.topics.create("new")
        old = made(records(1, 1000), Format.V0)
        for _ in range(2):
            await produce(peer, "old", old, Format.V0)
            await produce(peer, "new", made(records(1, 1000), Format.V2), Format.V2)
        log = broker.replicas.partition("new", 0).log.active
        new = log.log.read_at(0, log.size // 2)
        assert (await fetch(peer, 0, asking("old", 0, limit=500))).records == old[:500]
        assert (await fetch(peer, 4, asking("new", 0, limit=500))).records == new
        two = asking("new", 0, limit=500)
        two.topics.append(FetchTopic(topic="old", partitions=[FetchPartition(partition_max_bytes=500)]))
        response = await peer.ask(two, 4, FetchResponse)
        assert [bytes(each.partitions[0].records or b"") for each in response.responses] == [new, b""]  # type: ignore[arg-type]
        for limit in (len(new), len(new) + 50):
            found = await fetch(peer, 4, asking("new", 0, limit=1 << 20, max_bytes=limit))
            assert found.records == log.log.read_at(0, limit)
        peer.close()


async def test_a_fetch_waits_for_records_and_is_answered_when_they_come(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        reader, writer = await Peer.of(broker), await Peer.of(broker)
        waiting = asyncio.create_task(fetch(reader, 11, asking("topic", 0, wait_ms=30_000)))
        while not broker.replicas.partition("topic", 0).waiting:
            await asyncio.sleep(0)
        await produce(writer, "topic", made(records(3), Format.V2), Format.V2)
        assert [each.offset for each in read(await waiting)] == [0, 1, 2]
        assert not broker.replicas.partition("topic", 0).waiting
        reader.close()
        writer.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_what_a_reader_waits_for_is_converted_and_counted_once_however_often_it_is_looked_at(
    version: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions: list[int] = []

    def counted(found: FileSlice, *arguments: Any) -> Any:
        conversions.append(found.length)
        return conversion.converted(found, *arguments)

    monkeypatch.setattr(broker_fetch, "converted", counted)
    data = made(records(10), Format.V1)

    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "1"})
        reader, writer = await Peer.of(broker), await Peer.of(broker)
        wanted = asking("topic", 0, wait_ms=30_000, min_bytes=3 * len(data))
        waiting = asyncio.create_task(fetch(reader, version, wanted))
        watching = broker.replicas.partition("topic", 0).waiting
        for _ in range(3):
            while not watching:
                await asyncio.sleep(0)
            look = next(iter(watching))
            await produce(writer, "topic", data, Format.V1)
            while look in watching:
                await asyncio.sleep(0)
        assert [each.offset for each in read(await waiting)] == [*range(30)]
        assert sum(conversions) == (3 * len(data) if version == 1 else 0)
        (counters,) = broker.metrics.of("topic").fetched.values()
        assert counters.bytes == 3 * len(data)
        reader.close()
        writer.close()


async def test_a_fetch_that_waits_is_answered_when_its_time_is_over_or_the_broker_stops(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        assert (await fetch(peer, 11, asking("topic", 0, wait_ms=20))).records == b""
        waiting = asyncio.create_task(fetch(peer, 11, asking("topic", 0, wait_ms=600_000)))
        while not broker.replicas.partition("topic", 0).waiting:
            await asyncio.sleep(0)
    assert (await waiting).error_code == 0


async def test_errors_are_reported_by_partition_and_do_not_wait(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        await broker.topics.create("zstd", configs={"compression.type": "zstd"})
        peer = await Peer.of(broker)
        slow = {"wait_ms": 600_000}
        for topic, version, more, code in (
            ("topic", 0, {}, 1),
            ("topic", 12, {}, 1),
            ("nowhere", 11, {}, 3),
            ("zstd", 9, {}, 76),
            ("topic", 9, {"current_leader_epoch": 5}, 75),
        ):
            data = await fetch(peer, version, asking(topic, 5, **slow, **more))
            assert (data.error_code, data.high_watermark, data.records) == (code, -1, b""), topic
        response = await peer.ask(asking("topic", 0, session_id=5, session_epoch=1), 11, FetchResponse)
        assert (response.error_code, response.responses) == (70, [])
        peer.close()


async def test_a_reader_that_would_need_a_conversion_is_refused_where_that_is_switched_off(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.downconversion.enable": "false"})
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(3), Format.V2), Format.V2)
        assert (await fetch(peer, 3, asking("topic", 0))).error_code == 35
        assert (await fetch(peer, 4, asking("topic", 0))).error_code == 0
        peer.close()


ENRICHED = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SHALLOW://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SHALLOW:PLAINTEXT",
    "listener.name.shallow.magicbyte.dialect": "enriched",
}


async def enriched_topic(broker: Broker) -> tuple[Peer, Peer]:
    await broker.topics.create("topic", configs={"message.format.version": "enriched"})
    return await Peer.of(broker, "PLAINTEXT"), await Peer.of(broker, "SHALLOW")


@pytest.mark.parametrize("produced", FORMATS)
async def test_ordinary_clients_of_every_version_read_what_they_wrote_to_an_enriched_topic(
    produced: Format, folder: Path
) -> None:
    sent = records(20)

    async with Running(folder, ENRICHED) as broker:
        ordinary, _ = await enriched_topic(broker)
        answer = await produce(ordinary, "topic", made(sent, produced, Codec.GZIP), produced)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        for version in (0, 1, 2, 3, 4, 11, 12):
            found = read(await fetch(ordinary, version, asking("topic", 0)))
            assert facts(found, Format.V0) == facts(sent, Format.V0), version
            assert version < 2 or all(each.timestamp >= TIME for each in found)


async def test_an_enriched_listener_exchanges_closed_wrappers_and_the_payload_stays(folder: Path) -> None:
    sent = records(20)

    async with Running(folder, ENRICHED) as broker:
        ordinary, shallow = await enriched_topic(broker)
        wrapper = made(sent, Format.ENRICHED, Codec.GZIP)
        answer = await produce(shallow, "topic", wrapper, Format.ENRICHED)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        data = await fetch(shallow, 2, asking("topic", 0))
        assert isinstance(data.records, memoryview)
        payload = scan(memoryview(wrapper), dialect=Dialect.ENRICHED)
        assert len(payload) == 1
        assert bytes(data.records[-200:]) == wrapper[-200:]
        columns = decode(data.records, dialect=Dialect.ENRICHED)
        found = [record for each in columns for record in each]
        assert [(each.offset, each.key, each.value) for each in found] == [
            (each.offset, each.key, each.value) for each in sent
        ]
        assert facts(read(await fetch(ordinary, 11, asking("topic", 0))), Format.V0) == facts(sent, Format.V0)
        assert broker.metrics.of("topic").recompressions_avoided == 1


async def test_an_answer_to_a_fetch_has_the_size_it_says_though_its_records_come_from_a_file(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(1000), Format.V2), Format.V2)
        frame = bytes(write_request(asking("topic", 0), 12, correlation_id=3, client_id="me"))
        for _ in range(3):
            answer = await peer.exchange(frame)
            header, response = read_response(answer[4:], APIS[1], 12)
            assert header.correlation_id == 3
            assert isinstance(response, FetchResponse)
        peer.close()


async def test_readers_at_the_end_and_far_from_it_get_the_same_sets(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"segment.bytes": "20000"})
        peer = await Peer.of(broker)
        partition = broker.replicas.partition("topic", 0)
        for at in range(2 * partition.RECENT):
            await produce(peer, "topic", made(records(2), Format.V2), Format.V2)
            latest = await fetch(peer, 11, asking("topic", 2 * at))
            assert [each.offset for each in read(latest)] == [2 * at, 2 * at + 1]
        for offset in range(0, 4 * partition.RECENT, 7):
            whole = await fetch(peer, 11, asking("topic", offset, limit=1))
            assert [each.offset for each in read(whole)] == [offset - offset % 2, offset - offset % 2 + 1]
        peer.close()


LONG_MS = 600_000


async def test_a_fetch_in_an_older_segment_does_not_wait_for_bytes_that_are_never_added_to_it(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"segment.bytes": "2000", "cleanup.policy": "compact"})
        peer = await Peer.of(broker)
        for _ in range(30):
            await produce(peer, "topic", made(records(2), Format.V2), Format.V2)
        bases = [each.base_offset for each in broker.replicas.partition("topic", 0).log.segments]
        assert len(bases) > 3
        for version in (0, 3, 4, 12):
            at, turns = 0, 0
            while at < bases[-1]:
                given = await fetch(peer, version, asking("topic", at, wait_ms=LONG_MS, min_bytes=1 << 20))
                at, turns = read(given)[-1].offset + 1, turns + 1
            assert turns == len(bases) - 1, version
        peer.close()


async def test_a_fetch_does_not_wait_for_bytes_that_its_own_limits_keep_from_it(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        data = made(records(20), Format.V2)
        for topic in ("one", "two"):
            await broker.topics.create(topic)
            await produce(peer, topic, data, Format.V2)
        limited = asking("one", 0, wait_ms=LONG_MS, min_bytes=len(data), max_bytes=len(data) // 2)
        assert len(read(await fetch(peer, 11, limited))) == 20  # the first set comes whole
        limited.max_bytes, limited.min_bytes = len(data) + 100, len(data) + 50
        limited.topics.append(FetchTopic(topic="two", partitions=[FetchPartition(partition_max_bytes=1 << 20)]))
        response = await peer.ask(limited, 11, FetchResponse)
        assert [bytes(each.partitions[0].records or b"") != b"" for each in response.responses] == [True, False]  # type: ignore[arg-type]
        peer.close()


@pytest.mark.parametrize("more", [{"min_bytes": 1 << 20}, {"limit": 100, "min_bytes": 101}])
async def test_a_fetch_at_the_end_of_the_last_segment_waits_for_the_bytes_it_asks_for(
    more: dict[str, int], folder: Path
) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "1"})
        peer = await Peer.of(broker)
        for _ in range(3):
            await produce(peer, "topic", made(records(1), Format.V1), Format.V1)
        waiting = asyncio.create_task(fetch(peer, 2, asking("topic", 1, wait_ms=LONG_MS, **more)))
        watching = broker.replicas.partition("topic", 0).waiting
        while not watching:
            await asyncio.sleep(0)
        look = next(iter(watching))
        broker.replicas.partition("topic", 0).wake()
        while look in watching:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert watching
        assert not waiting.done()
    await waiting
