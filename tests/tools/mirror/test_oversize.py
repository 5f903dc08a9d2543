"""Sets that the target does not take: an error, or split, or put aside; nothing is lost, nothing comes twice."""

import json
import random
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from cli.command import run as command
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_sets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror import copier
from magicbyte.tools.mirror.oversize import OnOversize
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import ALL, Pair, crashes, records
from tools.mirror.sets import START, some

LIMIT = 4000
SPLIT = Choice(ALL.topics, on_oversize=OnOversize.SPLIT)


def parking(tmp_path: Path, topics: str = ".*") -> Choice:
    return Choice(re.compile(topics), on_oversize=OnOversize.PARK, park=tmp_path / "parked")


def large(count: int, size: int, seed: int = 1) -> list[Record]:
    """Records that no codec makes smaller."""
    chance = random.Random(seed)
    return [Record(0, START + at, 0, b"key-%d" % at, chance.randbytes(size)) for at in range(count)]


def mixed(chance: random.Random, sizes: list[int], count: int) -> list[Record]:
    """Records of several sizes in a set."""
    return [each for size in chance.choices(sizes, k=count) for each in large(1, size, chance.randrange(99))]


async def small_topic(there: Client, topic: str = "topic", form: Format = Format.V2, partitions: int = 1) -> None:
    configs = {"max.message.bytes": str(LIMIT), "message.format.version": form.value, "retention.ms": "-1"}
    await admin.create_topic(there, admin.NewTopic(topic, partitions, configs=configs))


def prepare(pair: Pair, sets: list[list[Record]], *, source: Format = Format.V2, target: Format = Format.V2) -> None:
    """Ten small sets, the given ones, and one more."""
    pair.fill("topic", [Codec.GZIP], source)

    async def work(here: Client, there: Client) -> None:
        await small_topic(there, form=target)
        for each in [*sets, some(0, 5)]:
            await send(here, "topic", 0, each, ProduceOptions(codec=Codec.GZIP, format=source))

    pair.run(work)


def expect(pair: Pair, *, without: Collection[int] = (), topic: str = "topic") -> None:
    """What the source has is at the target, but for these offsets."""

    async def same(here: Client, there: Client) -> None:
        source = [each[1:] for each in await records(here, topic) if each[0] not in without]
        assert [each[1:] for each in await records(there, topic)] == source

    pair.run(same)


def parked_offsets(directory: Path, partition: str = "topic-0") -> list[int]:
    """What `cat` reads of a log directory where sets were put aside."""
    told = command("cat", str(directory / partition), "--format", "jsonl")
    assert told.exit_code == 0, told.stderr
    return [json.loads(line)["offset"] for line in told.stdout.splitlines()]


@pytest.mark.parametrize("form", [Format.V2, Format.V1])
def test_a_closed_set_is_split_only_if_that_is_asked_for(pair: Pair, form: Format) -> None:
    prepare(pair, [large(9, 1000)], source=form, target=form)
    if form is Format.V2:  # without producer ids the next run would send again what this one has sent
        with pytest.raises(
            MirrorError, match=r"topic-0, offsets 100 to 108: a set of 9\d+ bytes is more than the target"
        ):
            pair.mirror()
    copied = pair.mirror(SPLIT)["topic"]
    assert (copied.opened_sets, copied.closed_sets) == (1, 1 if form is Format.V2 else 11)
    expect(pair)


def test_sets_that_were_opened_in_any_case_are_split(pair: Pair) -> None:
    prepare(pair, [large(9, 1000)], source=Format.V1)
    assert pair.mirror()["topic"].records == 114
    expect(pair)


def test_a_record_that_is_too_large_by_itself_cannot_be_split(pair: Pair) -> None:
    prepare(pair, [large(1, 5000)])
    with pytest.raises(MirrorError, match=r"topic-0, offsets 100 to 100: a set of 5\d+ bytes"):
        pair.mirror(SPLIT)


def test_a_set_that_is_too_large_is_put_aside_as_it_is(pair: Pair, tmp_path: Path) -> None:
    prepare(pair, [large(9, 1000), large(2, 20), large(1, 5000)])
    assert pair.mirror(parking(tmp_path))["topic"].parked == 2
    gone = [*range(100, 109), 111]
    expect(pair, without=gone)
    assert parked_offsets(tmp_path / "parked") == gone
    assert pair.mirror(parking(tmp_path))["topic"].parked == 0

    async def stored(here: Client, _: Client) -> bytes:
        return b"".join([bytes(each.data) async for each in read_sets(here, "topic", 0, 100, 109)])

    log = (tmp_path / "parked" / "topic-0" / f"{100:020}.log").read_bytes()
    assert log.startswith(pair.run(stored))


@pytest.mark.parametrize("form", [Format.V2, Format.V1])
def test_of_a_set_that_is_opened_only_the_records_are_put_aside_that_are_too_large(
    pair: Pair, tmp_path: Path, form: Format
) -> None:
    mixed = [*large(3, 100), *large(1, 5000), *large(4, 100, 2), *large(1, 6000), *large(2, 100, 3)]
    prepare(pair, [mixed], source=Format.V1 if form is Format.V2 else Format.V2, target=form)
    assert pair.mirror(parking(tmp_path))["topic"].parked == 2
    expect(pair, without=[103, 108])
    assert parked_offsets(tmp_path / "parked") == [103, 108]


def test_plain_messages_go_without_the_one_that_is_too_large(pair: Pair, tmp_path: Path) -> None:
    pair.fill("topic", [Codec.NONE], Format.V1)

    async def work(here: Client, there: Client) -> None:
        await small_topic(there, form=Format.V1)
        await send(here, "topic", 0, [*large(3, 100), *large(1, 5000)], ProduceOptions(format=Format.V1))
        await send(here, "topic", 0, some(0, 5), ProduceOptions(format=Format.V1))

    pair.run(work)
    assert pair.mirror(parking(tmp_path))["topic"].parked == 1
    expect(pair, without=[103])


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 10), marks=pytest.mark.slow)])
def test_after_any_row_of_crashes_everything_is_there_once_or_put_aside_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: range
) -> None:
    """Closed and converted sets with large ones among them, split or put aside, over four requests and more."""
    for seed in seeds:
        chance, topic = random.Random(seed), f"topic-{seed}"
        splits = seed % 2 == 0
        sizes = [50, 400, 1500, 1500 if splits else 5000]
        sets = [mixed(chance, sizes, chance.randint(1, 9)) for _ in range(12)]
        form = [Format.V2, Format.V1][seed // 2 % 2]

        async def make(here: Client, there: Client, name: str = topic, kind: Format = form) -> None:
            configs = {"message.format.version": kind.value, "retention.ms": "-1"}
            await admin.create_topic(here, admin.NewTopic(name, configs=configs))
            await small_topic(there, name)

        async def fill(
            here: Client, _: Client, name: str = topic, kind: Format = form, given: list[list[Record]] = sets
        ) -> None:
            for each in given:
                await send(here, name, 0, each, ProduceOptions(codec=Codec.GZIP, format=kind))

        choice = Choice(re.compile(topic), on_oversize=OnOversize.SPLIT) if splits else parking(tmp_path, topic)
        pair.run(make)
        pair.run(fill)
        for _ in range(chance.randint(1, 4)):
            monkeypatch.setattr(copier, "SAVE_SECONDS", chance.choice([0.0, 1000.0]))
            crashes(pair, monkeypatch, chance.randint(1, 3), arrives=chance.random() < 0.6, choice=choice)
        pair.mirror(choice)
        there = tmp_path / "parked" / f"{topic}-0"
        expect(pair, without=parked_offsets(tmp_path / "parked", there.name) if there.exists() else [], topic=topic)
        assert splits != there.exists()


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 6), marks=pytest.mark.slow)])
def test_of_keyed_topics_too_all_is_there_once_or_put_aside_once_after_crashes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: range
) -> None:
    """Sets whose records go to three partitions, some of them too large, split or put aside."""
    for seed in seeds:
        chance, topic, splits = random.Random(seed), f"topic-{seed}", seed % 2 == 0
        sizes = [50, 1500, 3000 if splits else 5000]
        sets = [mixed(chance, sizes, 5) for _ in range(8)]

        async def prepare(here: Client, there: Client, name: str = topic, given: list[list[Record]] = sets) -> None:
            await admin.create_topic(here, admin.NewTopic(name, configs={"retention.ms": "-1"}))
            await small_topic(there, name, partitions=3)
            for turn, each in enumerate(given):
                keyed = [record._replace(key=b"key-%d" % ((turn + at) % 5)) for at, record in enumerate(each)]
                await send(here, name, 0, keyed, ProduceOptions(codec=Codec.GZIP))

        choice = Choice(re.compile(topic), on_oversize=OnOversize.SPLIT) if splits else parking(tmp_path, topic)
        pair.run(prepare)
        for _ in range(chance.randint(1, 3)):
            monkeypatch.setattr(copier, "SAVE_SECONDS", chance.choice([0.0, 1000.0]))
            crashes(pair, monkeypatch, chance.randint(1, 4), arrives=chance.random() < 0.6, choice=choice)
        pair.mirror(choice)
        gone = set() if splits else set(parked_offsets(tmp_path / "parked", f"{topic}-0"))

        async def same(here: Client, there: Client, name: str = topic, without: set[int] = gone) -> None:
            source = [each for each in await records(here, name) if each[0] not in without]
            target = [each for partition in range(3) for each in await records(there, name, partition)]
            assert len(target) == len(source), name
            for key in {key for _, _, key, _ in source}:
                kept = [each[1:] for each in source if each[2] == key]
                assert [each[1:] for each in target if each[2] == key] == kept, name

        pair.run(same)


def test_what_was_put_aside_is_brought_in_by_another_mirror_when_the_limit_is_higher(
    pair: Pair, tmp_path: Path
) -> None:
    prepare(pair, [large(9, 1000)])
    pair.mirror(parking(tmp_path))
    pair.run(
        lambda _, there: admin.alter_configs(there, admin.ConfigResource.TOPIC, "topic", {"max.message.bytes": "20000"})
    )
    with Broker(directory=tmp_path / "parked") as parked:
        late = Pair(parked, parked)
        late.addresses = parked.bootstrap_servers, pair.addresses[1]
        with pytest.raises(MirrorError, match="holds records already"):
            late.mirror(Choice(ALL.topics, group="late"))
        assert late.mirror(Choice(ALL.topics, group="late", merge=True))["topic"].closed_sets == 1

    async def same(here: Client, there: Client) -> None:
        source, target = await records(here, "topic"), await records(there, "topic")
        assert sorted(map(str, (each[1:] for each in target))) == sorted(map(str, (each[1:] for each in source)))

    pair.run(same)


def test_the_command_says_what_was_put_aside_and_where(pair: Pair, tmp_path: Path) -> None:
    prepare(pair, [large(9, 1000)])
    arguments = ["--until-caught-up", "--on-oversize", "park"]
    assert "go together" in pair.command(*arguments).stderr
    result = pair.command(*arguments, "--park", str(tmp_path / "parked"))
    assert result.exit_code == 0, result.stderr
    copied, total = result.stdout.splitlines()[-2:]
    assert copied.endswith("0 offsets behind, 1 put aside")
    assert total == "copied: 105 records of 1 topic"
