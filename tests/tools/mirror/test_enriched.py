"""Enriched topics at either side: tags decide; keys land by their hash; offsets are assigned by position."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from engine.records.enriched_control import build_enriched_control
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import ProduceOptions, send, send_made
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, MirrorError
from magicbyte.engine.protocol.fields import as_bytes
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    EnrichedMessage,
    LeaderEpochPayload,
    Tag,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.layout import Dialect
from magicbyte.testing import Broker
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.plan import Choice
from magicbyte.tools.mirror.rewrite import Made, Parcel, Storage, forward, parcels
from tools.mirror.pair import ALL, Pair
from tools.mirror.sets import START, counted, fetched, some, stored

ENRICHED = Storage(Format.ENRICHED, zstd=False)
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SHALLOW://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SHALLOW:PLAINTEXT",
    "listener.name.shallow.magicbyte.dialect": "enriched",
}
BOTH = Choice(ALL.topics, from_dialect=Dialect.ENRICHED, to_dialect=Dialect.ENRICHED)
CONFIGS = {"message.format.version": "enriched"}
KEYS = [b"key-%d" % at for at in range(7)]


def inner(offsets: list[int], *, keyed: bool = False) -> bytes:
    return b"".join(build_enriched_message(at, KEYS[at % 7] if keyed else None, b"value %d" % at) for at in offsets)


def wrapper(start: int, offsets: list[int], *, keyed: bool = False, honor: bool = True, **more: Any) -> bytes:
    """A wrapper as a leader stores it."""
    return build_enriched_wrapper(
        Codec.GZIP,
        inner(offsets, keyed=keyed),
        num_messages=len(offsets),
        non_keyed=not keyed,
        start_offset=start,
        seconds=START // 1000,
        honor_ship=honor,
        **more,
    )


def bare(data: bytes, tags: dict[int, int], unknown: bytes = b"") -> bytes:
    """The same wrapper with other tags."""
    message = EnrichedMessage(memoryview(data))
    area = encode_tags(tags) + unknown
    made = bytearray(build_enriched_message(message.offset, None, message.value, seconds=message.seconds, tags=area))
    view = EnrichedMessage(memoryview(made))
    made[17] = Codec.GZIP
    view.set_metadata()
    return bytes(made)


def parts(*sets: bytes, storage: Storage = ENRICHED, end: int = 1 << 40) -> list[Parcel]:
    found = fetched(*sets, dialect=Dialect.ENRICHED, end=end)
    return list(parcels(found, 0, storage, at_boundary=True))


def message_of(made: Made) -> EnrichedMessage:
    found = EnrichedMessage.parse(memoryview(as_bytes(made.data)))
    assert found is not None
    found.verify()
    return found


# ---- sets


def test_a_wrapper_without_keys_is_forwarded_as_a_producer_sends_it_and_never_opened() -> None:
    source = wrapper(100, [0, 7], timestamp_ms=START)
    with counted() as opened:
        (parcel,) = parts(source, end=102)
        made = forward(parcel, ENRICHED)
    assert not opened
    assert (parcel.why, parcel.next_offset, made.records, made.magic) == (None, 102, 2, 1)
    found = message_of(made)
    assert (found.offset, found.seconds) == (0, -1)
    assert found.tags == {Tag.TIMESTAMP: -1, Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 0, Tag.NON_KEYED: 1}
    assert bytes(found.body) == bytes(EnrichedMessage(memoryview(source)).body)
    offsets = [at for each in decode(found.buffer, dialect=Dialect.ENRICHED) for at in each.offset]
    assert offsets == [0, 1]  # positions, though 0 and 7 are written inside


def test_a_missing_honor_ship_tag_is_added_and_the_payload_stays() -> None:
    source = bare(wrapper(5, [0, 1]), {Tag.NUM_MESSAGES: 2, Tag.NON_KEYED: 1})
    (parcel,) = parts(source, end=7)
    found = message_of(forward(parcel, ENRICHED))
    assert found.tags == {Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 0, Tag.NON_KEYED: 1}
    assert bytes(found.body) == bytes(EnrichedMessage(memoryview(source)).body)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (wrapper(0, [0, 1], keyed=True), "it may have keys"),
        (bare(wrapper(0, [0, 1]), {Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 1}), "it may have keys"),
        (bare(wrapper(0, [0, 1]), {Tag.NON_KEYED: 1}), "it has no message count"),
        (build_enriched_message(0, None, b"value"), "it is not compressed"),
    ],
)
def test_what_makes_no_promise_is_opened(source: bytes, why: str) -> None:
    (parcel,) = parts(source)
    assert parcel.why == why


def test_unknown_tags_stay_and_where_they_leave_no_place_for_ours_the_set_is_opened() -> None:
    tags = {int(Tag.NUM_MESSAGES): 2, int(Tag.NON_KEYED): 1}
    later, earlier = (bare(wrapper(0, [0, 1]), tags, unknown) for unknown in (bytes([50, 1]), bytes([20, 1])))
    (parcel,) = parts(later)
    found = message_of(forward(parcel, ENRICHED))
    assert bytes(found.unknown_tags) == bytes([50, 1])
    assert not found.honor_ship
    (parcel,) = parts(earlier)
    assert parcel.why == "its tags have no room for another one"


def test_offsets_behind_a_wrapper_are_known_without_opening_it_but_for_the_last() -> None:
    compacted, following = wrapper(10, [0, 7]), wrapper(30, [0, 1])
    with counted() as opened:
        assert [each.next_offset for each in parts(compacted, following, end=32)] == [30, 32]
    assert not opened
    assert [each.next_offset for each in parts(following, compacted, end=50)] == [10, 18]


def test_control_messages_are_left_out() -> None:
    control = build_enriched_control(0, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(3, 1))
    assert [each.first for each in parts(control, wrapper(1, [0, 1]), end=3)] == [1]


def test_damage_is_not_given_a_new_checksum() -> None:
    source = bytearray(wrapper(0, [0, 1]))
    source[-1] ^= 1
    (parcel,) = parts(bytes(source), end=2)
    with pytest.raises(CorruptRecordError, match="crc"):
        forward(parcel, ENRICHED)


@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.V2])
@pytest.mark.parametrize("keyed", [False, True])
def test_kafkas_formats_get_the_records_with_the_times_of_the_brokers(target: Format, keyed: bool) -> None:
    (parcel,) = parts(wrapper(10, [0, 3], keyed=keyed), storage=Storage(target))
    assert parcel.why == f"enriched where the target stores magic {target.magic}"
    made = forward(parcel, Storage(target))
    found = [each for part in decode(memoryview(as_bytes(made.data))) for each in part]
    time = -1 if target is Format.V0 else START // 1000 * 1000
    assert [(each.timestamp, each.key) for each in found] == [(time, KEYS[at] if keyed else None) for at in (0, 3)]


@pytest.mark.parametrize("source", [Format.V0, Format.V1, Format.V2])
def test_sets_of_kafkas_formats_become_enriched_ones_without_times(source: Format) -> None:
    found = fetched(stored(source, Codec.GZIP))
    (parcel,) = parcels(found, 0, ENRICHED, at_boundary=True)
    assert parcel.why == f"magic {source.magic} where the target stores enriched"
    made = message_of(forward(parcel, ENRICHED))
    assert (made.offset, made.num_messages, made.non_keyed, made.timestamp) == (0, 10, False, -1)


# ---- topics


class EnrichedPair(Pair):
    """Two brokers by the listeners that exchange enriched sets; `ordinary` by the others."""

    def __init__(self, source: Broker, target: Broker) -> None:
        super().__init__(source, target)
        self.ordinary = self.addresses
        self.addresses = source.address("SHALLOW"), target.address("SHALLOW")

    def copy(self, choice: Choice = BOTH) -> Copied:
        return self.mirror(choice)["topic"]


@pytest.fixture
def both() -> Iterator[EnrichedPair]:
    with Broker(LISTENERS) as source, Broker(LISTENERS) as target:
        yield EnrichedPair(source, target)


async def make(client: Client, partitions: int = 1, configs: dict[str, str] = CONFIGS) -> None:
    await admin.create_topic(client, admin.NewTopic("topic", partitions, configs=configs))


async def produce(client: Client, data: bytes, partition: int = 0) -> None:
    await send_made(client, "topic", partition, memoryview(data), 1, Codec.GZIP)


async def seen(client: Client, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all that an enriched listener gives."""
    ends = await bounds(client, "topic", partition)
    found = read_records(client, "topic", partition, *ends, FetchOptions(dialect=Dialect.ENRICHED))
    return [(each.offset, each.key, each.value) async for part in found for each in part]


async def payloads(client: Client, partition: int = 0) -> list[str]:
    ends, found = await bounds(client, "topic", partition), []
    async for sets in read_sets(client, "topic", partition, *ends, FetchOptions(dialect=Dialect.ENRICHED)):
        for row in range(len(sets.table)):
            message = EnrichedMessage(sets.data[sets.table.position[row] :])
            found.append(hashlib.sha256(message.buffer[: message.size][-message.size + 60 :]).hexdigest())
    return found


def test_topics_without_keys_stay_closed_and_nothing_is_decompressed(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        for _ in range(10):
            await produce(here, wrapper(0, [0, 1, 2]))

    both.run(fill)
    with counted() as opened:
        copied = both.copy()
    assert not opened
    assert (copied.closed_sets, copied.opened_sets, copied.records, copied.lag) == (10, 0, 30, 0)

    async def same(here: Client, there: Client) -> None:
        assert await seen(there) == await seen(here)
        assert await payloads(there) == await payloads(here)
        settings = await admin.describe_configs(there, admin.ConfigResource.TOPIC, "topic")
        assert settings["message.format.version"].value == "enriched"

    both.run(same)
    assert both.copy().closed_sets == 0


@pytest.mark.parametrize("partitions", [2, 3])
def test_enriched_16_of_a_topic_with_keys_the_sets_are_opened_and_keys_land_by_their_hash(
    both: EnrichedPair, partitions: int
) -> None:
    """Enriched check 16. Also where there are as many partitions: who wrote the source need not have used the hash."""

    async def fill(here: Client, there: Client) -> None:
        await make(here, 2)
        await make(there, partitions)
        for turn in range(6):
            await produce(here, wrapper(0, list(range(5)), keyed=True), turn % 2)

    both.run(fill)
    explained = both.command("--explain", "--from-dialect", "enriched", "--to-dialect", "enriched").stdout
    assert explained.startswith("topic: keyed: enriched: stored as enriched, keys decide;")
    copied = both.copy()
    assert (copied.closed_sets, copied.records) == (0, 30)

    async def work(here: Client, there: Client) -> None:
        arrived = []
        for partition in range(partitions):
            found = await seen(there, partition)
            assert {key for _, key, _ in found} == {
                key for key in KEYS[:5] if partition_of(key, partitions) == partition
            }
            assert [offset for offset, *_ in found] == list(range(len(found)))
            arrived += [(key, value) for _, key, value in found]
        sent = [(key, value) for partition in (0, 1) for _, key, value in await seen(here, partition)]
        assert sorted(arrived) == sorted(sent)

    both.run(work)


def test_sets_without_keys_are_spread_where_the_numbers_of_partitions_differ(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        await make(there, 3)
        for _ in range(30):
            await produce(here, wrapper(0, [0, 1]))

    both.run(fill)
    with counted() as opened:
        assert both.copy().closed_sets == 30
    assert not opened

    async def work(_: Client, there: Client) -> None:
        sizes = [(await bounds(there, "topic", partition))[1] for partition in range(3)]
        assert sum(sizes) == 60
        assert min(sizes) > 5

    both.run(work)


def test_holes_of_the_source_vanish_and_the_flag_stays_reset_from_hop_to_hop(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        await produce(here, wrapper(0, [0, 7, 9]))
        await produce(here, wrapper(0, [0, 1]))

    both.run(fill)
    both.copy()

    async def work(_: Client, there: Client) -> None:
        assert [offset for offset, *_ in await seen(there)] == list(range(5))
        (sets,) = [each async for each in read_sets(there, "topic", 0, 0, 5, FetchOptions(dialect=Dialect.ENRICHED))]
        flags = [EnrichedMessage(sets.data[at:]).honor_ship for at in map(int, sets.table.position)]
        assert flags == [False, False]

    both.run(work)


def test_trust_mode_takes_what_is_forwarded(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        await make(there, configs={**CONFIGS, "enriched.append.mode": "trust"})
        await produce(here, wrapper(0, [0, 1]))
        await produce(here, bare(wrapper(0, [0, 1]), {Tag.NON_KEYED: 1}))

    both.run(fill)
    copied = both.copy()
    assert (copied.closed_sets, copied.opened_sets) == (1, 1)

    async def same(here: Client, there: Client) -> None:
        assert await seen(there) == await seen(here)

    both.run(same)


def values(found: list[tuple[int, bytes | None, bytes | None]]) -> list[tuple[bytes | None, bytes | None]]:
    return sorted(((key, value) for _, key, value in found), key=str)


@pytest.mark.parametrize("form", [Format.V1, Format.V2])
def test_from_an_enriched_topic_to_one_of_kafkas_formats_and_back(both: EnrichedPair, form: Format) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        await make(there, configs={"message.format.version": form.value})
        await produce(here, wrapper(0, [0, 1, 2]))
        await produce(here, wrapper(0, list(range(5)), keyed=True))

    both.run(fill)
    copied = both.copy()
    assert (copied.closed_sets, copied.opened_sets, copied.records) == (0, 1, 8)  # neighbours become one set
    source = both.run(lambda here, _: seen(here))

    with Broker(LISTENERS) as third:
        back = EnrichedPair(third, third)
        back.addresses = both.addresses[1], third.address("SHALLOW")
        back.run(lambda _, there: make(there))
        assert back.copy().records == 8
        found = back.run(lambda _, there: seen(there))
    assert values(found) == values(source)
    assert [offset for offset, *_ in found] == list(range(8))


def test_by_ordinary_listeners_the_brokers_convert(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here)
        await make(there)
        await send(here, "topic", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP))

    both.addresses, shallow = both.ordinary, both.addresses
    both.run(fill)
    assert "topic: converted: magic 2 at the source, 1 at the target" in both.command("--explain").stdout
    assert both.copy(ALL).records == 10
    both.addresses = shallow

    async def same(here: Client, there: Client) -> None:
        assert await seen(there) == await seen(here)

    both.run(same)


def test_record_headers_that_an_enriched_topic_cannot_hold_are_reported(both: EnrichedPair) -> None:
    async def fill(here: Client, there: Client) -> None:
        await make(here, configs={})
        await make(there)
        await send(here, "topic", 0, [Record(0, START, 0, None, b"value", (("name", b"x"),))])

    both.run(fill)
    for choice in (BOTH, ALL):
        with pytest.raises(MirrorError, match="record headers, which"):
            both.copy(choice)


def test_an_enriched_batch_with_zstd_at_the_source_becomes_gzip() -> None:
    found = fetched(encode_records(some(0, 10), Format.V2, Codec.ZSTD))
    (parcel,) = parcels(found, 0, ENRICHED, at_boundary=True)
    assert forward(parcel, ENRICHED).codec is Codec.GZIP
