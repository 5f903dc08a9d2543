"""The modes of our mirror with real brokers at one end or both: identical, keyed, enriched, too large, circles."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop import jvm
from interop.mirrored import (
    KEYS,
    START,
    Real,
    compacted,
    line,
    log_bytes,
    only,
    records,
    running,
    with_holes,
    with_transactions,
)
from magicbyte.access.client import Client, admin
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.layout import Dialect
from magicbyte.testing import Broker
from magicbyte.tools.mirror.identical import IdenticalMirror
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.oversize import OnOversize

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SOURCE, TARGET = "2.8.2", "3.9.1"
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SHALLOW://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SHALLOW:PLAINTEXT",
    "listener.name.shallow.magicbyte.dialect": "enriched",
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    with running(SOURCE, TARGET, tmp_path_factory.mktemp("mirror-modes")) as both:
        yield both


def consumed(bootstrap: str, topic: str, isolation: str) -> list[str]:
    return jvm.run("Consume", bootstrap, topic, isolation, version=SOURCE).decode().splitlines()


def test_identical_copies_are_the_very_files_of_the_source(real: Real, tmp_path: Path) -> None:
    """Transactions, markers, aborted batches; into a folder, and into our topic that Java consumers read."""
    real.make("identical")
    real.produce("identical", "gzip", with_transactions("identical"))

    async def copy(here: Client, _: Client) -> None:
        with LogTarget(tmp_path / "copy") as target:
            await IdenticalMirror(here, target, only("identical")).catch_up()

    real.run(copy)
    expected = log_bytes(real.data / "identical-0")
    assert expected
    assert log_bytes(tmp_path / "copy" / "identical-0") == expected
    with Broker(directory=tmp_path / "ours") as ours:
        choice = only("identical", identical=True)
        real.mirror(choice, real.source, ours.bootstrap_servers)
        assert log_bytes(tmp_path / "ours" / "identical-0") == expected
        for isolation in ("read_committed", "read_uncommitted"):
            found = consumed(ours.bootstrap_servers, "identical", isolation)
            assert found == consumed(real.source, "identical", isolation)
            assert len(found) == (60 if isolation == "read_committed" else 90)
        assert real.mirror(choice, real.source, ours.bootstrap_servers)["identical"].closed_sets == 0


def test_a_compacted_source_is_copied_with_its_holes_or_without(real: Real, tmp_path: Path) -> None:
    compacted(real, "compacted", with_holes(real, "compacted", "none"))
    source = real.run(lambda here, _: records(here, "compacted"))

    async def copy(here: Client, _: Client) -> None:
        with LogTarget(tmp_path / "copy") as target:
            await IdenticalMirror(here, target, only("compacted")).catch_up()

    real.run(copy)
    with Broker(directory=tmp_path / "copy") as served:
        assert real.run(lambda _, there: records(there, "compacted"), real.source, served.bootstrap_servers) == source
    assert [offset for offset, *_ in source] != list(range(len(source)))
    copied = real.mirror(only("compacted"))["compacted"]
    assert copied.opened_sets > 0
    found = real.run(lambda _, there: records(there, "compacted"))
    assert [each[1:] for each in found] == [each[1:] for each in source]
    assert [each[0] for each in found] == list(range(len(source)))


def test_offsets_are_not_kept_in_kafka(real: Real) -> None:
    real.make("refused")
    with pytest.raises(MirrorError, match="refused: only magicbyte's brokers and log directories keep offsets"):
        real.mirror(only("refused", identical=True))


def test_keys_land_by_their_hash_and_their_order_stays(real: Real) -> None:
    real.make("keyed")
    real.run(lambda _, there: admin.create_topic(there, admin.NewTopic("keyed", 3)))
    for codec in ("gzip", "zstd"):
        real.produce("keyed", codec, [line("keyed", at) for at in range(200)])
    assert real.mirror(only("keyed"))["keyed"].records == 400

    async def work(here: Client, there: Client) -> None:
        source, inside = await records(here, "keyed"), {}
        for partition in range(3):
            found = await records(there, "keyed", partition)
            for key in {key for _, _, key, _ in found}:
                assert key is not None
                assert key not in inside
                assert partition_of(key, 3) == partition
                inside[key] = [(when, value) for _, when, each, value in found if each == key]
        assert len(inside) == KEYS
        for key, values in inside.items():
            assert values == [(when, value) for _, when, each, value in source if each == key]

    real.run(work)


@pytest.mark.parametrize("policy", [OnOversize.SPLIT, OnOversize.PARK])
def test_sets_that_a_real_broker_does_not_take(real: Real, tmp_path: Path, policy: OnOversize) -> None:
    """Several sets are on their way when the large one is refused; those after it are sent again."""
    topic = f"large-{policy.value}"
    chance = random.Random(1)
    large = [Record(0, START + at, 0, b"key", chance.randbytes(1000)) for at in range(9)]

    async def fill(here: Client, there: Client) -> None:
        await admin.create_topic(here, admin.NewTopic(topic))
        await admin.create_topic(there, admin.NewTopic(topic, configs={"max.message.bytes": "4000"}))
        for turn in range(30):
            chosen = large if turn % 10 == 3 else [Record(0, START + turn, 0, None, b"small %d" % turn)]
            await send(here, topic, 0, chosen, ProduceOptions(codec=Codec.GZIP))

    real.run(fill)
    park = tmp_path / "parked" if policy is OnOversize.PARK else None
    copied = real.mirror(only(topic, on_oversize=policy, park=park))[topic]
    source = [each[1:] for each in real.run(lambda here, _: records(here, topic))]
    found = [each[1:] for each in real.run(lambda _, there: records(there, topic))]
    if park is None:
        assert (found, copied.opened_sets, copied.parked) == (source, 3, 0)
    else:
        assert found == [each for each in source if each[1] != b"key"]
        assert copied.parked == 3
        with LogTarget(park) as target:
            assert len(target.offsets(topic, 0, 0)) == 27


def test_partitions_of_a_real_source_are_added_at_a_real_target(real: Real) -> None:
    real.make("growing")
    real.produce("growing", "gzip", [line("growing", at) for at in range(20)])
    real.mirror(only("growing"))
    real.run(lambda here, _: admin.create_partitions(here, "growing", 3))
    real.produce("growing", "gzip", [line("growing", at) for at in range(40)])
    assert real.mirror(only("growing"))["growing"].records == 40

    async def same(here: Client, there: Client) -> None:
        for partition in range(3):
            assert await records(there, "growing", partition) == await records(here, "growing", partition)

    real.run(same)


def test_two_real_clusters_mirror_each_other_by_prefixes_and_without_is_refused(real: Real) -> None:
    real.make("circle")
    real.produce("circle", "gzip", [line("circle", at) for at in range(20)])
    for turn in range(2):
        forth = real.mirror(only(r"(a\.|b\.)*circle", prefix="a."))
        assert {topic: each.records for topic, each in forth.items()} == {"circle": 0 if turn else 20}
        assert real.mirror(only(r"(a\.|b\.)*circle", prefix="b."), real.target, real.source) == {}
    with pytest.raises(MirrorError, match=r"a\.circle: it came from cluster [^ ]+, the target: a loop"):
        real.mirror(only(r"a\.circle"), real.target, real.source)


def test_from_a_real_topic_to_our_enriched_one_and_back_to_a_real_one(real: Real) -> None:
    real.make("enriched")
    real.produce("enriched", "lz4", [line("enriched", at) for at in range(60)])
    enriched = admin.NewTopic("enriched", 2, configs={"message.format.version": "enriched"})
    with Broker(LISTENERS) as ours:
        shallow = ours.address("SHALLOW")
        real.run(lambda _, there: admin.create_topic(there, enriched), real.source, shallow)
        choice = only("enriched", to_dialect=Dialect.ENRICHED)
        assert real.mirror(choice, real.source, shallow)["enriched"].records == 60
        back = only("enriched", from_dialect=Dialect.ENRICHED)
        assert real.mirror(back, shallow, real.target)["enriched"].records == 60

    async def same(here: Client, there: Client) -> None:
        found: list[tuple[bytes | None, bytes | None]] = []
        for partition in range(2):
            inside = await records(there, "enriched", partition)
            assert {partition_of(key or b"", 2) for _, _, key, _ in inside} == {partition}
            found += [(key, value) for *_, key, value in inside]
        source = [(key, value) for *_, key, value in await records(here, "enriched")]
        assert sorted(found, key=str) == sorted(source, key=str)
        for key in {key for key, _ in source}:
            assert [value for each, value in found if each == key] == [value for each, value in source if each == key]

    real.run(same)
