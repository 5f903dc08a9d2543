"""Kinds of real sources, from the oldest on, and our cluster between two real ones."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from interop import mirrored
from interop.mirrored import START, Real, compacted, line, only, records, running, stored, with_holes, with_transactions
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, new_producer_id, send, send_made
from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode, MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.message import MessageView
from magicbyte.testing import Broker
from magicbyte.tools.mirror import copier, rounds
from magicbyte.tools.mirror.mirror import Mirror
from tools.mirror.pair import dies
from tools.mirror.sets import counted, some

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

LIMIT = 1 << 20
PAIRS = {
    "oldest": ("0.8.2.2", "2.8.2"),
    "old": ("0.9.0.1", "0.10.2.2"),
    "middle": ("0.10.2.2", "2.8.2"),
    "new": ("2.8.2", "4.3.1"),
}


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    source, target = PAIRS[request.param]
    with running(source, target, tmp_path_factory.mktemp(f"mirror-{request.param}")) as both:
        yield both


def between(*pairs: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("real", pairs, indirect=True, scope="module")


def seen(real: Real, topic: str) -> tuple[list[Any], list[Any]]:
    """Times, keys and values at both ends."""

    async def work(here: Client, there: Client) -> tuple[list[Any], list[Any]]:
        source, target = await records(here, topic), await records(there, topic)
        return [each[1:] for each in source], [each[1:] for each in target]

    found: tuple[list[Any], list[Any]] = real.run(work)
    return found


# ---- of every era


@between("oldest")
def test_from_the_oldest_to_the_middle_all_records_arrive_and_the_copy_continues(real: Real) -> None:
    """0.8.2 has no ids of clusters, tells no settings and no versions, and makes topics when they are asked for."""
    for turn in range(2):
        real.produce("oldest", "gzip", [line("oldest", 50 * turn + at) for at in range(50)])
        copied = real.mirror(only("oldest"))["oldest"]
        assert copied.opened_sets > 0
        assert copied.lag == 0
    source, target = seen(real, "oldest")
    assert [each[1:] for each in source] == [each[1:] for each in target]
    assert len(target) == 100


@between("old", "oldest")
def test_lz4_with_the_broken_checksum_of_real_producers_arrives_right(real: Real) -> None:
    """To a target of magic 1, and to one of magic 2."""
    real.produce("broken", "lz4", [line("broken", at) for at in range(60)])

    async def frames(client: Client) -> list[tuple[int, memoryview]]:
        found = []
        async for sets in read_sets(client, "broken", 0, *await bounds(client, "broken", 0)):
            for _, entry in entries(sets.data):
                value = entry.value if isinstance(entry, MessageView) else entry.records_section
                assert value is not None
                found.append((entry.magic, value))
        return found

    sent = real.run(lambda here, _: frames(here))
    assert {magic for magic, _ in sent} == {0}
    for _, frame in sent:
        with pytest.raises(CorruptRecordError):
            decompress(Codec.LZ4, frame, limit=LIMIT, lz4_header=Lz4Header.CORRECT)
    assert real.mirror(only("broken"))["broken"].closed_sets == 0
    stored_there = real.run(lambda _, there: frames(there))
    assert {magic for magic, _ in stored_there} == {1 if real.version.startswith("0.9") else 2}
    for _, frame in stored_there:
        assert len(decompress(Codec.LZ4, frame, limit=LIMIT, lz4_header=Lz4Header.CORRECT))
    source, target = seen(real, "broken")
    assert [each[1:] for each in source] == [each[1:] for each in target]
    assert len(target) == 60


# ---- real to ours, ours to real


@between("middle", "new")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_through_our_cluster_closed_sets_are_the_same_bytes_at_each_end(real: Real, codec: str) -> None:
    """A chain: real, ours, real; magic 1 and 2."""
    old = real.version.startswith("0.10")
    topic = f"chain-{codec}"
    configs = {"message.format.version": "0.10.2"} if old else {}
    real.make(topic)
    real.produce(topic, codec, [line(topic, at) for at in range(80)])
    if old:  # whose brokers do not tell the settings of topics
        real.run(lambda _, there: admin.create_topic(there, admin.NewTopic(topic, configs=configs)))
    with Broker() as ours:
        between_them = ours.bootstrap_servers
        made = admin.NewTopic(topic, configs=configs)
        real.run(lambda _, there: admin.create_topic(there, made), real.source, between_them)
        for ends in ((real.source, between_them), (between_them, real.target)):
            with counted() as opened:
                copied = real.mirror(only(topic), *ends)[topic]
            assert not opened
            assert (copied.opened_sets, copied.lag) == (0, 0)
            assert copied.closed_sets > 0

        async def told(_: Client, there: Client) -> tuple[list[Any], list[Any]]:
            return await records(there, topic), await stored(there, topic)

        first = real.run(told, real.target, real.source)
        assert len(first[0]) == 80
        assert {magic for magic, _ in first[1]} == {1 if old else 2}
        assert real.run(told, real.source, between_them) == first
        assert real.run(told) == first


@between("old")
def test_magic_0_goes_closed_from_a_real_broker_to_ours_and_back_where_it_is_compressed_again(real: Real) -> None:
    """Inner offsets are absolute: the bytes are sent as they were fetched, and stored differently."""
    real.produce("plain", "gzip", [line("plain", at) for at in range(80)])
    source = real.run(lambda here, _: records(here, "plain"))
    assert len(source) == 80
    made = admin.NewTopic("plain", configs={"message.format.version": "0.9.0"})
    with Broker() as ours:
        there = ours.bootstrap_servers
        real.run(lambda _, there: admin.create_topic(there, made), real.source, there)
        real.run(lambda here, _: here.topics(["back.plain"]))  # which makes it, in this era
        for ends, prefix in (((real.source, there), ""), ((there, real.source), "back.")):
            with counted() as opened:
                copied = real.mirror(only("plain", prefix=prefix), *ends)["plain"]
            assert not opened
            assert (copied.opened_sets, copied.lag) == (0, 0)
            assert copied.closed_sets > 0
            assert real.run(lambda _, there, to=f"{prefix}plain": records(there, to), *ends) == source


# ---- what a log may hold


@between("new")
def test_formats_that_changed_while_a_topic_was_written_arrive_in_their_order(real: Real) -> None:
    """A 2.8 broker stores what the topic's setting says at the moment: magic 0, 1 and 2 in one log."""
    real.make("mixed", message_format_version="0.9.0")
    for at, form in enumerate(("0.9.0", "0.10.2", "2.8")):
        wanted = {"message.format.version": form}
        real.run(lambda here, _, to=wanted: admin.alter_configs(here, admin.ConfigResource.TOPIC, "mixed", to))
        real.produce("mixed", "lz4", [line("mixed", 40 * at + each) for each in range(40)])
    source = real.run(lambda here, _: stored(here, "mixed"))
    assert list(dict.fromkeys(magic for magic, _ in source)) == [0, 1, 2]
    copied = real.mirror(only("mixed"))["mixed"]
    assert copied.opened_sets > 0
    assert copied.closed_sets > 0
    here, there = seen(real, "mixed")
    assert here == there
    assert len(there) == 120
    target = real.run(lambda _, there: stored(there, "mixed"))
    assert {magic for magic, _ in target} == {2}
    assert Counter(source) & Counter(target) == Counter(each for each in source if each[0] == 2)


@between("new")
def test_the_times_of_the_producers_come_to_light_where_those_of_the_append_were_kept(real: Real) -> None:
    real.make("appended", message_timestamp_type="LogAppendTime")
    real.run(lambda _, there: admin.create_topic(there, admin.NewTopic("appended")))
    real.produce("appended", "gzip", [line("appended", at) for at in range(30)])
    assert real.mirror(only("appended"))["appended"].opened_sets == 0
    source, target = seen(real, "appended")
    assert [each[1:] for each in source] == [each[1:] for each in target]
    assert [each[0] for each in target] == [START + at for at in range(30)]
    assert min(each[0] for each in source) > START + 1_000_000


@between("new")
def test_a_topic_that_is_made_at_the_target_has_the_settings_and_partitions_of_the_source(real: Real) -> None:
    """As far as 4.3 knows them: segments have a least size there, and times two limits in place of one."""
    same = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "max.message.bytes": "2000000"}
    old = {"segment.bytes": "20000", "message.timestamp.difference.max.ms": "8000000000000", "min.insync.replicas": "1"}
    real.run(lambda here, _: admin.create_topic(here, admin.NewTopic("made", 3, configs=same | old)))
    real.produce("made", "gzip", [line("made", at) for at in range(10)])
    real.mirror(only("made"))

    async def told(_: Client, there: Client) -> tuple[int, dict[str, str | None]]:
        settings = await admin.describe_configs(there, admin.ConfigResource.TOPIC, "made")
        own = {name: each.value for name, each in settings.items() if each.is_own}
        return len((await there.topics())["made"].partitions), own

    sides = dict.fromkeys(("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"), "8000000000000")
    assert real.run(told) == (3, same | sides | {"segment.bytes": "1048576"})


@between("new")
def test_a_log_whose_head_was_deleted_inside_a_set_is_copied_from_there(real: Real) -> None:
    real.make("beheaded")
    for turn in range(3):
        real.produce("beheaded", "zstd", [line("beheaded", 40 * turn + at) for at in range(40)])
    real.run(lambda here, _: admin.delete_records(here, "beheaded", 0, 50))
    copied = real.mirror(only("beheaded"))["beheaded"]
    assert copied.opened_sets == 1
    assert copied.lost == 0
    source, target = seen(real, "beheaded")
    assert source == target
    assert len(target) == 70


@between("new")
def test_of_compacted_transactions_markers_and_empty_batches_are_left_out(real: Real) -> None:
    """Kafka's cleaner keeps the header of the last batch of a producer, of which no record is left."""

    async def superseded(here: Client, _: Client) -> None:
        header = BatchHeader(producer_id=(await new_producer_id(here))[0], producer_epoch=0, base_sequence=0)
        first = encode_records([Record(0, START, 0, b"key-1", b"old")], Format.V2, Codec.GZIP, header=header)
        await send_made(here, "cleaned", 0, memoryview(first), 2, Codec.GZIP)

    def fill() -> None:
        real.run(superseded)
        for _ in range(3):
            real.produce("cleaned", "gzip", with_transactions("cleaned"))

    compacted(real, "cleaned", fill)
    sets = []

    async def look(here: Client, _: Client) -> None:
        async for found in read_sets(here, "cleaned", 0, *await bounds(here, "cleaned", 0)):
            sets.extend((each.is_control, each.record_count) for _, each in entries(found.data))

    real.run(look)
    assert (False, 0) in sets
    assert True in {is_control for is_control, _ in sets}
    copied = real.mirror(only("cleaned"))["cleaned"]
    assert copied.lag == 0
    source, target = seen(real, "cleaned")
    assert source == target
    assert len(target) == mirrored.KEYS + 1


@between("middle")
def test_holes_in_wrappers_of_a_compacted_topic_are_closed_by_the_target(real: Real) -> None:
    """They go unopened, and the target reassigns the inner offsets."""
    compacted(real, "holes", with_holes(real, "holes", "gzip"))
    configs = {"message.format.version": "0.10.2"}
    real.run(lambda _, there: admin.create_topic(there, admin.NewTopic("holes", configs=configs)))
    with counted() as opened:
        copied = real.mirror(only("holes"))["holes"]
    assert not opened
    assert (copied.opened_sets, copied.lag) == (0, 0)

    async def both(here: Client, there: Client) -> None:
        source, target = await records(here, "holes"), await records(there, "holes")
        assert [each[1:] for each in source] == [each[1:] for each in target]
        assert [each[0] for each in source] != list(range(len(source)))
        assert [each[0] for each in target] == list(range(len(target)))

    real.run(both)


# ---- recreated during the copy


async def recreate(client: Client, topic: str) -> None:
    """Delete a topic, and make it as soon as the broker lets its name go."""
    await admin.delete_topic(client, topic)
    async with asyncio.timeout(120):
        while True:
            try:
                return await admin.create_topic(client, admin.NewTopic(topic))
            except BrokerError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                await asyncio.sleep(0.05)


@between("new")
def test_a_real_topic_that_is_recreated_during_the_copy_ends_the_run(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new one is longer than the old one: only its id tells."""
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    real.make("recreated")
    real.produce("recreated", "gzip", [line("recreated", at) for at in range(20)])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, only("recreated"))
        await mirror.catch_up()
        await mirror.catch_up()
        await recreate(here, "recreated")
        for _ in range(3):
            await send(here, "recreated", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP))
        with pytest.raises(MirrorError, match="the topic was recreated: its id was"):
            await mirror.catch_up()
        assert await bounds(there, "recreated", 0) == (0, 20)

    real.run(work)


@between("new")
def test_a_real_topic_that_is_deleted_in_mid_copy_ends_nothing(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    for topic in ("gone-one", "gone-two"):
        real.make(topic)
        real.produce(topic, "gzip", [line(topic, at) for at in range(20)])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, only("gone-.*"))
        await mirror.catch_up()
        await admin.delete_topic(here, "gone-one")
        await send(here, "gone-two", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP))
        await mirror.catch_up()
        assert (await bounds(there, "gone-one", 0), await bounds(there, "gone-two", 0)) == ((0, 20), (0, 30))

    real.run(work)


@between("new")
@pytest.mark.parametrize("filled", [False, True])
def test_a_real_target_that_is_recreated_during_the_copy_gets_all_or_is_refused(
    real: Real, monkeypatch: pytest.MonkeyPatch, filled: bool
) -> None:
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    topic = f"target-{filled}"
    real.make(topic)
    real.produce(topic, "gzip", [line(topic, at) for at in range(20)])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, only(topic))
        await mirror.catch_up()
        await mirror.catch_up()
        await recreate(there, topic)
        if not filled:
            await mirror.catch_up()
            assert await records(there, topic) == await records(here, topic)
            return
        await send(there, topic, 0, some(0, 1))
        with pytest.raises(MirrorError, match="target"):
            await mirror.catch_up()

    real.run(work)


# ---- crashes where keys decide


@between("middle", "new")
@pytest.mark.parametrize(("at", "arrives"), [(1, True), (3, False), (4, True), (6, True)])
def test_after_a_crash_everything_is_there_once_where_keys_decide(
    real: Real, monkeypatch: pytest.MonkeyPatch, at: int, arrives: bool
) -> None:
    """Exactly once into magic 2; into 2.8 also the sets of 0.10 in magic 1."""
    topic = f"keyed-{at}"
    real.make(topic, partitions=2)
    real.run(lambda _, there: admin.create_topic(there, admin.NewTopic(topic, 3)))
    for codec in ("gzip", "snappy"):
        real.produce(topic, codec, [line(topic, each) for each in range(120)])
    monkeypatch.setattr(copier, "SAVE_SECONDS", 1000.0)
    assert dies(lambda: real.mirror(only(topic)), monkeypatch, at, arrives=arrives)
    real.mirror(only(topic))

    async def by_key(client: Client, partitions: int) -> dict[bytes | None, Counter[Any]]:
        found: dict[bytes | None, Counter[Any]] = {}
        for partition in range(partitions):
            for _, when, key, value in await records(client, topic, partition):
                found.setdefault(key, Counter())[when, value] += 1
        return found

    async def same(here: Client, there: Client) -> None:
        source = await by_key(here, 2)
        assert sum(each.total() for each in source.values()) == 240
        assert await by_key(there, 3) == source

    real.run(same)
