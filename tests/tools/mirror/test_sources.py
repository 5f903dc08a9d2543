"""Kinds of sources: compacted, transactional, mixed, recreated during the copy; chains and circles of clusters."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.client import Topic
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send, send_made
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.testing import Broker
from magicbyte.tools.mirror import rounds
from magicbyte.tools.mirror.identical import IdenticalMirror
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import ALL, Pair, give, payloads, records
from tools.mirror.sets import START, marker, seen, some, stored, transaction

SENT = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def empty(offset: int, count: int) -> bytes:
    return build_batch(
        b"", base_offset=offset, last_offset_delta=count - 1, base_timestamp=-1, max_timestamp=-1, record_count=0
    )


def arrived(pair: Pair, topic: str = "topic") -> list[tuple[int, int, bytes | None, bytes | None]]:
    found: list[tuple[int, int, bytes | None, bytes | None]] = pair.run(lambda _, there: records(there, topic))
    return found


def inside(*sets: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [each[1:] for data in sets for each in seen(data)]


@pytest.mark.parametrize("form", [Format.V1, Format.V2])
@pytest.mark.parametrize("codec", SENT)
def test_of_a_compacted_source_all_that_is_left_arrives_without_its_holes(
    pair: Pair, form: Format, codec: Codec
) -> None:
    sets = [encode_records(some(at, 8, holes=True), form, codec) for at in (0, 40)]
    sets += [stored(form, codec, 100), stored(form, codec, 200)]
    give(pair, sets, message_format_version=form.value)
    copied = pair.mirror()["topic"]
    # Wrappers with holes go closed, as the target reassigns offsets; batches with holes would be refused.
    assert (copied.opened_sets, copied.closed_sets) == ((0, 4) if form is Format.V1 else (2, 2))
    found = arrived(pair)
    assert [each[1:] for each in found] == inside(*sets)
    assert [each[0] for each in found] == list(range(36))


def test_only_committed_records_arrive_and_their_batches_stay_closed(pair: Pair) -> None:
    sets = [
        transaction(0, 5),
        transaction(10, 6),
        stored(Format.V2, Codec.ZSTD, 20),
        marker(30, 5, ControlType.ABORT),
        empty(31, 9),
        marker(40, 6, ControlType.COMMIT),
        transaction(41, 5),
        marker(51, 5, ControlType.COMMIT),
        transaction(52, 6),
    ]
    give(pair, sets)
    copied = pair.mirror()["topic"]
    assert (copied.closed_sets, copied.opened_sets, copied.lag) == (3, 0, 0)
    assert [each[1:] for each in arrived(pair)] == inside(sets[1], sets[2], sets[6])
    pair.run(lambda here, _: send_made(here, "topic", 0, memoryview(marker(62, 6, ControlType.COMMIT)), 2, Codec.NONE))
    assert pair.mirror()["topic"].closed_sets == 1
    found = arrived(pair)
    assert [each[1:] for each in found] == inside(sets[1], sets[2], sets[6], sets[8])
    assert [each[0] for each in found] == list(range(40))


@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.V2])
def test_mixed_formats_arrive_in_their_order(pair: Pair, target: Format) -> None:
    placed = []
    for turn, (form, codec) in enumerate((form, codec) for form in (Format.V0, Format.V1, Format.V2) for codec in SENT):
        placed.append(stored(form, codec, 20 * turn, 10))
        placed.append(encode_records(some(20 * turn + 10, 10), form))
    give(pair, placed, message_format_version=target.value)
    assert pair.mirror()["topic"].lag == 0
    found = arrived(pair)
    assert [each[2:] for each in found] == [each[1:] for each in inside(*placed)]
    assert [each[0] for each in found] == list(range(180))


@pytest.mark.parametrize("target", [Format.V1, Format.V2])
def test_lz4_with_the_broken_checksum_of_magic_0_arrives_right(pair: Pair, target: Format) -> None:
    source = stored(Format.V0, Codec.LZ4)
    give(pair, [source], message_format_version=target.value)
    copied = pair.mirror()["topic"]
    assert (copied.opened_sets, copied.closed_sets) == (1, 0)
    assert [each[2:] for each in arrived(pair)] == [each[1:] for each in inside(source)]


def test_times_of_an_append_time_topic_are_those_of_the_producers_in_closed_sets(pair: Pair) -> None:
    later = START + 1_000_000
    sets = [stored(Format.V2, Codec.GZIP, 0, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=later)]
    give(pair, sets)
    assert pair.mirror()["topic"].closed_sets == 1
    assert [each[1] for each in arrived(pair)] == [START + at for at in range(10)]
    assert [time for time, *_ in inside(*sets)] == [later] * 10


def test_a_target_with_append_time_sets_its_own(pair: Pair) -> None:
    give(pair, [stored(Format.V2, Codec.GZIP)], message_timestamp_type="LogAppendTime")
    assert pair.mirror()["topic"].closed_sets == 1
    assert min(each[1] for each in arrived(pair)) > START + 1_000_000


async def recreate(client: Client) -> None:
    await admin.delete_topic(client, "topic")
    await admin.create_topic(client, admin.NewTopic("topic"))


def test_a_topic_that_is_recreated_during_the_copy_ends_the_run(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    pair.fill("topic", [Codec.GZIP])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, ALL)
        await mirror.catch_up()
        await mirror.catch_up()
        await recreate(here)
        for _ in range(11):  # longer than before: only the id tells
            await send(here, "topic", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP))
        with pytest.raises(MirrorError, match=r"the topic was recreated: its id was [0-9a-f-]{36}, and is"):
            await mirror.catch_up()

    pair.run(work)


@pytest.mark.parametrize("filled", [False, True])
def test_a_target_that_is_recreated_during_the_copy_gets_all_records_or_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, filled: bool
) -> None:
    """With a topic go the offsets that groups have in it."""
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    pair.fill("topic", [Codec.GZIP])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, ALL)
        await mirror.catch_up()
        await mirror.catch_up()
        await recreate(there)
        if not filled:
            await mirror.catch_up()
            assert await records(there, "topic") == await records(here, "topic")
            return
        await send(there, "topic", 0, some(0, 1))
        with pytest.raises(MirrorError, match="the target holds records already"):
            await mirror.catch_up()

    pair.run(work)


def test_a_topic_that_is_deleted_and_not_made_again_ends_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 0.0)
    for topic in ("gone", "topic"):
        pair.fill(topic, [Codec.GZIP])

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, ALL)
        await mirror.catch_up()
        await admin.delete_topic(here, "gone")
        await send(here, "topic", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP))
        await mirror.catch_up()
        assert (await bounds(there, "topic", 0), await bounds(there, "gone", 0)) == ((0, 110), (0, 100))

    pair.run(work)


@pytest.mark.parametrize("identical", [False, True])
def test_a_topic_that_the_target_has_and_does_not_tell_of_yet_is_waited_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, identical: bool
) -> None:
    """As while it is recreated: its controller knows of it before the others do."""
    pair.fill("topic", [Codec.GZIP], partitions=2)

    async def work(here: Client, there: Client) -> None:
        configs = {"mirror.identical": "true"} if identical else {}
        await admin.create_topic(there, admin.NewTopic("topic", 2, configs=configs))
        original, looks = Client.topics, []

        async def topics(client: Client, *arguments: Any) -> dict[str, Topic]:
            found = await original(client, *arguments)
            if client is there and not arguments:
                looks.append(1)
                if len(looks) <= 2:
                    del found["topic"]
            return found

        monkeypatch.setattr(Client, "topics", topics)
        mirror = (IdenticalMirror if identical else Mirror)(
            here, there, Choice(re.compile("topic"), identical=identical)
        )
        await mirror.catch_up()
        assert len(looks) >= 3
        assert [await bounds(there, "topic", each) for each in (0, 1)] == [(0, 100), (0, 100)]

    pair.run(work)


# ---- more than two clusters


class Ring:
    """Three clusters."""

    def __init__(self, brokers: list[Broker]) -> None:
        self._brokers = brokers

    def pair(self, source: int, target: int) -> Pair:
        return Pair(self._brokers[source], self._brokers[target])

    def mirror(self, source: int, target: int, prefix: str = "") -> dict[str, int]:
        """Copy once; return how many records of each topic went."""
        copied = self.pair(source, target).mirror(Choice(re.compile(".*"), prefix=prefix))
        return {topic: each.records for topic, each in copied.items()}

    def topics(self, at: int) -> list[str]:
        found = self.pair(at, at).run(lambda here, _: here.topics())
        return sorted(name for name, each in found.items() if not each.is_internal and not name.startswith("__"))


@pytest.fixture
def ring() -> Iterator[Ring]:
    with ExitStack() as running:
        yield Ring([running.enter_context(Broker()) for _ in range(3)])


def test_along_a_chain_payloads_stay_the_same_bytes(ring: Ring) -> None:
    ring.pair(0, 1).fill("topic", list(Codec))
    ring.mirror(0, 1)
    assert ring.mirror(1, 2) == {"topic": 100}

    async def same(here: Client, there: Client) -> None:
        assert await records(there, "topic") == await records(here, "topic")
        assert await payloads(there, "topic") == await payloads(here, "topic")

    ring.pair(0, 2).run(same)


def test_two_clusters_that_mirror_each_other_with_prefixes_send_nothing_back(ring: Ring) -> None:
    for at in (0, 1):
        ring.pair(at, 1 - at).fill("topic", [Codec.GZIP])
    for turn in range(3):
        assert ring.mirror(0, 1, "a.")["topic"] == (0 if turn else 100)
        assert ring.mirror(1, 0, "b.")["topic"] == (0 if turn else 100)
    assert ring.topics(0) == ["b.topic", "topic"]
    assert ring.topics(1) == ["a.topic", "topic"]


def test_a_circle_of_three_ends_where_it_would_come_back(ring: Ring) -> None:
    ring.pair(0, 1).fill("topic", [Codec.GZIP])
    for _ in range(3):
        for at, prefix in enumerate(("a.", "b.", "c.")):
            ring.mirror(at, (at + 1) % 3, prefix)
    assert [ring.topics(at) for at in range(3)] == [["topic"], ["a.topic"], ["b.a.topic"]]
    plain = Choice(re.compile(".*"), group="another")
    assert ring.pair(2, 1).mirror(plain)["b.a.topic"].records == 100  # groups of other names are ignored


def test_a_circle_of_three_without_prefixes_is_refused(ring: Ring) -> None:
    ring.pair(0, 1).fill("topic", [Codec.GZIP])
    ring.mirror(0, 1)
    ring.mirror(1, 2)
    with pytest.raises(MirrorError, match=r"topic: it came from cluster [^ ]+, the target: a loop"):
        ring.mirror(2, 0)
