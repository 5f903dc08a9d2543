"""Topics with other numbers of partitions at the target: keys decide, their order is kept, nothing comes twice."""

import random
import re
from typing import Any

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.transactions import AbortedRange
from magicbyte.tools.mirror import copier
from magicbyte.tools.mirror.plan import Choice
from magicbyte.tools.mirror.rewrite import RUN_BYTES, Parcel, Storage, parcels
from magicbyte.tools.mirror.spread import ParcelLoad, by_key
from tools.mirror.pair import Pair, crash, records
from tools.mirror.sets import START, fetched, some, stored

KEYS = [b"key-%d" % at for at in range(7)]


def keyed(start: int, count: int) -> list[Record]:
    """Records of seven keys in turn, each with a value of its own."""
    return [Record(0, START + at, 0, KEYS[at % len(KEYS)], b"value %d" % at) for at in range(start, start + count)]


def keyless(count: int) -> list[Record]:
    return [Record(0, START + at, 0, None, b"value %d" % at) for at in range(count)]


async def make(client: Client, topic: str, partitions: int, form: Format = Format.V2) -> None:
    configs = {"message.format.version": form.value}
    await admin.create_topic(client, admin.NewTopic(topic, partitions, configs=configs))


async def fill(here: Client, topic: str, partitions: int, sets: int = 6, codec: Codec = Codec.GZIP) -> None:
    """Send sets of ten records, each key to the partition that its hash says, as Kafka's producers do."""
    for turn in range(sets):
        for partition in range(partitions):
            chosen = [each for each in keyed(10 * turn, 10) if partition_of(each.key or b"", partitions) == partition]
            if chosen:
                await send(here, topic, partition, chosen, ProduceOptions(codec=codec))


async def of_each_key(client: Client, topic: str) -> dict[bytes | None, list[tuple[int, bytes | None]]]:
    """Times and values of each key, in order. No key is in two partitions."""
    found: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
    for partition in (await client.topics())[topic].partitions:
        inside: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
        for _, time, key, value in await records(client, topic, partition):
            inside.setdefault(key, []).append((time, value))
        assert not inside.keys() & found.keys()
        found |= inside
    return found


def loads(*sets: bytes, home: int = -1, partitions: int = 3) -> list[ParcelLoad]:
    found = fetched(*sets)
    each = parcels(found, 0, Storage(Format.V2), at_boundary=True)
    return list(by_key(each, found.data, home, partitions))


@pytest.mark.parametrize(("source", "target"), [(1, 3), (3, 2), (2, 5)])
@pytest.mark.parametrize("form", [Format.V2, Format.V1])
def test_keys_land_by_their_hash_and_their_order_stays(pair: Pair, source: int, target: int, form: Format) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", source)
        await make(there, "topic", target, form)
        await fill(here, "topic", source)

    pair.run(prepare)
    copied = pair.mirror()["topic"]
    assert (copied.closed_sets, copied.records, copied.lag) == (0, 60, 0)

    async def work(here: Client, there: Client) -> None:
        found = await of_each_key(there, "topic")
        assert found == await of_each_key(here, "topic")
        for partition in range(target):
            keys = {key for _, _, key, _ in await records(there, "topic", partition)}
            assert keys == {key for key in KEYS if partition_of(key, target) == partition}
        await fill(here, "topic", source, sets=2)

    pair.run(work)
    assert pair.mirror()["topic"].records == 20


def test_sets_without_any_key_stay_closed_and_are_spread(pair: Pair) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", 1)
        await make(there, "topic", 3)
        for _ in range(30):
            await send(here, "topic", 0, keyless(4), ProduceOptions(codec=Codec.LZ4))
        await send(here, "topic", 0, keyed(0, 7), ProduceOptions(codec=Codec.LZ4))

    pair.run(prepare)
    copied = pair.mirror()["topic"]
    assert (copied.closed_sets, copied.opened_sets, copied.records) == (30, 1, 127)

    async def work(_: Client, there: Client) -> None:
        sizes = [(await bounds(there, "topic", partition))[1] for partition in range(3)]
        assert sum(sizes) == 127
        assert min(sizes) > 20

    pair.run(work)


def test_neighbours_are_opened_together_and_apart_where_they_must_be() -> None:
    gzip, other = (stored(Format.V2, Codec.GZIP, at, 10) for at in (0, 10)), stored(Format.V2, Codec.LZ4, 20, 10)
    bare = encode_records([Record(30 + at, START, 0, None, b"x") for at in range(5)], Format.V2, Codec.LZ4)
    found = loads(*gzip, other, bare, stored(Format.V2, Codec.LZ4, 35, 10))
    assert [(each.parcel.first, each.parcel.next_offset) for each in found] == [(0, 20), (20, 30), (30, 35), (35, 45)]
    assert [each.parcel.why for each in found] == ["its records are distributed by key"] * 2 + [
        None,
        found[0].parcel.why,
    ]
    assert sum(len(each.records) for each in found[0].portions if each.records) == 20
    assert [each.records for each in found[2].portions] == [None]
    large = [encode_records([Record(at, START, 0, b"k", bytes(RUN_BYTES // 2))], Format.V2) for at in range(3)]
    assert [each.parcel.next_offset for each in loads(*large)] == [1, 2, 3]


def test_what_an_aborted_set_parts_is_not_joined() -> None:
    header: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    sets = [stored(Format.V2, Codec.GZIP, 0), stored(Format.V2, Codec.GZIP, 10, **header)]
    found = fetched(*sets, stored(Format.V2, Codec.GZIP, 20), stable=30, aborted=(AbortedRange(5, 10),))
    each: list[Parcel] = [
        load.parcel for load in by_key(parcels(found, 0, Storage(Format.V2), at_boundary=True), found.data, -1, 2)
    ]
    assert [(parcel.first, parcel.next_offset) for parcel in each] == [(0, 10), (20, 30)]


def test_records_without_a_key_stay_in_their_partition_where_there_are_as_many() -> None:
    (load,) = loads(stored(Format.V2, Codec.GZIP), home=2)
    homes = [each.partition for each in load.portions for record in each.records or () if record.key is None]
    assert set(homes) == {2}


def test_records_before_damage_are_sent() -> None:
    bad = bytearray(stored(Format.V2, Codec.GZIP, 10))
    bad[-1] ^= 1
    found = fetched(stored(Format.V2, Codec.GZIP), bytes(bad))
    each = by_key(parcels(found, 0, Storage(Format.V2), at_boundary=True), found.data, -1, 2)
    assert next(each).parcel.next_offset == 10
    with pytest.raises(CorruptRecordError, match="crc"):
        next(each)


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 12), marks=pytest.mark.slow)])
def test_after_any_row_of_crashes_everything_is_there_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Keyed and keyless sets, one partition to three or two to three; places kept often or not at all."""
    for seed in seeds:
        chance, topic = random.Random(seed), f"topic-{seed}"
        choice, partitions = Choice(re.compile(topic)), 1 + seed % 2

        async def prepare(here: Client, there: Client, name: str = topic, count: int = partitions) -> None:
            await make(here, name, count)
            await make(there, name, 3)
            for turn in range(4):
                await fill(here, name, count, 2, (Codec.GZIP, Codec.NONE)[turn % 2])
                await send(here, name, count - 1, keyless(3), ProduceOptions(codec=Codec.GZIP))

        pair.run(prepare)
        for _ in range(chance.randint(1, 4)):
            monkeypatch.setattr(copier, "SAVE_SECONDS", chance.choice([0.0, 1000.0]))
            crash(pair, monkeypatch, chance.randint(1, 4), arrives=chance.random() < 0.6, choice=choice)
        pair.mirror(choice)

        async def same(here: Client, there: Client, name: str = topic) -> None:
            source, target = await of_each_key(here, name), await of_each_key_or_none(there, name)
            assert {key: target[key] for key in KEYS} == {key: source[key] for key in KEYS}, name
            assert sorted(target[None], key=str) == sorted(source[None], key=str)

        pair.run(same)


async def of_each_key_or_none(client: Client, topic: str) -> dict[bytes | None, list[tuple[int, bytes | None]]]:
    """The same, where records without a key may be anywhere."""
    found: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
    for partition in (await client.topics())[topic].partitions:
        for _, time, key, value in await records(client, topic, partition):
            found.setdefault(key, []).append((time, value))
    return found


@pytest.mark.parametrize("crashes", [False, True])
def test_partitions_that_the_target_gets_in_mid_copy_take_part(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", 1)
        await make(there, "topic", 2)
        for turn in range(6):
            await send(here, "topic", 0, keyed(10 * turn, 10), ProduceOptions(codec=(Codec.GZIP, Codec.LZ4)[turn % 2]))

    pair.run(prepare)
    crash(pair, monkeypatch, 4, arrives=crashes)

    async def grow(here: Client, there: Client) -> None:
        await admin.create_partitions(there, "topic", 4)

    pair.run(grow)
    pair.mirror()
    pair.run(lambda here, _: send(here, "topic", 0, keyed(60, 28), ProduceOptions(codec=Codec.GZIP)))
    pair.mirror()

    async def same(here: Client, there: Client) -> None:
        source, target = await of_each_key(here, "topic"), await of_each_key_or_none(there, "topic")
        assert {key: sorted(values) for key, values in target.items()} == source  # keys moved, so their order is lost
        for partition in range(4):
            last = {key for _, time, key, _ in await records(there, "topic", partition) if time >= START + 60}
            assert last == {key for key in KEYS if partition_of(key, 4) == partition}

    pair.run(same)


def test_partitions_that_the_source_gets_are_added_at_the_target(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)
    pair.mirror()

    async def grow(here: Client, _: Client) -> None:
        await admin.create_partitions(here, "topic", 3)
        await send(here, "topic", 2, some(0, 5))

    pair.run(grow)
    explained = pair.command("--explain").stdout
    assert "topic: closed: magic 2 at both; 3 partitions, 2 there at the target, the others to be added" in explained
    assert pair.mirror()["topic"].records == 5

    async def same(here: Client, there: Client) -> None:
        for partition in range(3):
            assert await records(there, "topic", partition) == await records(here, "topic", partition)

    pair.run(same)


def test_a_keyed_topic_stays_so_whatever_partitions_are_added(pair: Pair) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", 1)
        await make(there, "topic", 3)
        await fill(here, "topic", 1)

    pair.run(prepare)
    pair.mirror()

    async def grow(here: Client, _: Client) -> None:
        await admin.create_partitions(here, "topic", 3)
        await send(here, "topic", 2, keyed(60, 7))

    pair.run(grow)
    assert pair.command("--explain").stdout.startswith("topic: keyed: 3 partitions become 3, so keys decide")
    assert pair.mirror()["topic"].records == 7

    async def work(_: Client, there: Client) -> None:
        assert sum([(await bounds(there, "topic", each))[1] for each in range(3)]) == 67
        for partition in range(3):
            keys = {key for _, _, key, _ in await records(there, "topic", partition)}
            assert keys == {key for key in KEYS if partition_of(key, 3) == partition}

    pair.run(work)


def test_a_keyed_target_with_records_of_others_is_refused(pair: Pair) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", 1)
        await make(there, "topic", 2)
        await fill(here, "topic", 1)
        await send(there, "topic", 1, keyed(0, 1))

    pair.run(prepare)
    with pytest.raises(MirrorError, match="topic-0: the target holds records already"):
        pair.mirror()


def test_sets_for_the_target_are_few_where_those_of_the_source_are_many(pair: Pair) -> None:
    async def prepare(here: Client, there: Client) -> None:
        await make(here, "topic", 1)
        await make(there, "topic", 2)
        for turn in range(20):
            await send(here, "topic", 0, keyed(10 * turn, 10), ProduceOptions(codec=Codec.GZIP))

    pair.run(prepare)
    pair.mirror()

    async def work(_: Client, there: Client) -> None:
        for partition in range(2):
            ends = await bounds(there, "topic", partition)
            assert sum([len(each.table) async for each in read_sets(there, "topic", partition, *ends)]) == 1

    pair.run(work)
