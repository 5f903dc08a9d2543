"""The plan: what the numbers of a broker say of its clients, and rehearsals, checked by work that is counted."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from builders import run
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.net.scrape import Scrape, scrape
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.cleaning.maintenance import Action
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.ports import Moment
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.server.broker.broker import Broker
from magicbyte.tools.migration import planner, rehearsal
from magicbyte.tools.migration.planner import (
    BrokerUsage,
    Estimate,
    MigrationPlan,
    Sample,
    TopicFacts,
    TopicPlan,
    load_of,
    upgraded,
)
from magicbyte.tools.migration.rehearsal import Cost, Load, rehearse
from magicbyte.tools.migration.sightings import CLIENT_ID
from magicbyte.tools.offline.migration import Phase, Step, StoredEntries, stage_of
from server.broker.builders import asking, fetch, made, produce, read, records
from server.broker.serving import Clock, Peer, Running
from server.broker.test_admin import background_of

SERVED = {"http.address": "127.0.0.1:0"}
ESTIMATE = Estimate(cpu_s=0.1, converted_records=0, converted_bytes=0, zero_copy_bytes=0, memory_bytes=0)
V0, V1, V2 = Format.V0, Format.V1, Format.V2


async def used(broker: Broker) -> BrokerUsage:
    return planner.usage(None, await scrape(f"127.0.0.1:{broker.http_port}"))


async def read_all(peer: Peer, version: int, end: int) -> int:
    offset = fetches = 0
    while offset < end:
        offset = read(await fetch(peer, version, asking("topic", offset)))[-1].offset + 1
        fetches += 1
    return fetches


async def test_clients_of_a_topic_are_known_by_their_requests(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "1"})
        peer = await Peer.of(broker)
        await peer.ask(
            ApiVersionsRequest(client_software_name="library", client_software_version="1.2"),
            3,
            ApiVersionsResponse,
        )
        old, new = made(records(10), V0, Codec.GZIP), made(records(30), V1, Codec.GZIP)
        for data, form in ((old, V0), (new, V1), (new, V1)):
            await produce(peer, "topic", data, form)
        await read_all(peer, 1, 70)
        slices = await read_all(peer, 11, 70)
        old_writer, writer, old_reader, reader = (await used(broker)).uses["topic"]
        assert [each.is_consumer for each in (old_writer, writer, old_reader, reader)] == [False, False, True, True]
        assert [each.format for each in (old_writer, writer, old_reader, reader)] == [V0, V1, V0, V2]
        assert {each.software for each in (old_writer, writer, old_reader, reader)} == {"library 1.2"}
        assert (old_writer.records, old_writer.converted, old_writer.bytes) == (10, 10, len(old))
        assert (writer.records, writer.converted, writer.closed_sets) == (60, 0, 2)
        assert old_reader.converted == 70
        assert (reader.converted, reader.closed_sets) == (0, slices)
        assert reader.bytes == broker.replicas.partition("topic", 0).log.size
        peer.close()


async def test_between_two_looks_only_what_happened_meanwhile_counts(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(10), V2), V2)
        before = await scrape(f"127.0.0.1:{broker.http_port}")
        await produce(peer, "topic", made(records(7), V2), V2)
        found = planner.usage(before, await scrape(f"127.0.0.1:{broker.http_port}"))
        (writer,) = found.uses["topic"]
        assert writer.records == 7
        assert writer.records_per_s == pytest.approx(7 / found.looked_s)
        peer.close()


NUMBERS = """# TYPE process_start_time_seconds gauge
process_start_time_seconds 1000
# TYPE magicbyte_moved_bytes counter
{bytes}
# TYPE magicbyte_moved_sets counter
{sets}
# TYPE magicbyte_moved_records counter
{records}
"""
PRODUCE = (
    'direction="produce",topic="t",source="{}",target="1",version="2",client_id="p",software="",software_version=""'
)
FETCH = 'direction="fetch",topic="t",source="1",target="{}",version="{}",client_id="c",software="",software_version=""'


def numbers(*rows: tuple[str, int, int, int]) -> BrokerUsage:
    """What a broker says that has run for 10 s."""
    names = ("bytes", "sets", "records")
    lines = {
        name: "\n".join(f"magicbyte_moved_{name}_total{{{row[0]}}} {row[at]}" for row in rows)
        for at, name in enumerate(names, 1)
    }
    return planner.usage(None, Scrape(NUMBERS.format(**lines), Moment(1_010_000, 7)))


def test_rates_are_of_the_time_that_passed_and_not_of_what_the_wall_clock_says() -> None:
    row = f"magicbyte_moved_bytes_total{{{{{PRODUCE.format(1)}}}}} {{}}".format
    before = Scrape(NUMBERS.format(bytes=row(0), sets="", records=""), Moment(1_010_000, 7_000))
    after = Scrape(NUMBERS.format(bytes=row(9), sets="", records=""), Moment(10_000, 9_000))
    assert planner.usage(before, after).looked_s == 2.0


def facts(configured: Format) -> TopicFacts:
    sample = Sample(records(100), Codec.LZ4, 25, 10)
    return TopicFacts("t", settings={"message.format.version": configured.value}, sample=sample)


def test_a_load_has_the_sizes_shares_and_readers_that_were_counted() -> None:
    found = numbers(
        (PRODUCE.format(0), 31_000, 30, 3000),  # a quarter of the records
        (PRODUCE.format(1), 90_000, 90, 9000),
        (FETCH.format(1, 3), 240_000, 60, 0),  # as much as two readers get, four sets at a time
        (FETCH.format(0, 1), 120_000, 999, 12_000),
    )
    load = load_of(facts(V1), found.uses["t"], V1)
    assert load is not None
    assert load.records_per_set == 100
    assert load.producers == {V0: 2, V1: 8}
    assert sorted(load.consumers) == [1, 3, 3]
    assert load.sets_per_fetch == 4
    assert (load.codec, load.stored) == (Codec.LZ4, V1)


def test_a_load_without_producers_has_entries_as_they_are_stored() -> None:
    load = load_of(facts(V1), numbers((FETCH.format(1, 3), 240_000, 60, 0)).uses["t"], V1)
    assert load is not None
    assert (load.records_per_set, load.producers, list(load.consumers)) == (25, {V1: 1}, [3])


def test_without_clients_there_is_no_load() -> None:
    assert load_of(facts(V1), (), V1) is None


def test_after_an_upgrade_the_old_clients_are_as_new_ones() -> None:
    uses = numbers((PRODUCE.format(0), 31_000, 30, 3000), (FETCH.format(0, 1), 120_000, 9, 12_000)).uses["t"]
    stage = stage_of(V1, [V1], uses)
    assert (stage.phase, stage.step) == (Phase.TWO, Step.UPGRADE_CONSUMERS)
    assert [(each.format, each.request_version) for each in upgraded(uses, stage)] == [(V0, 2), (V1, 3)]


def test_where_a_broker_shows_its_numbers_is_found_in_its_settings(tmp_path: Path) -> None:
    async def found(address: str | None) -> tuple[str | None, int]:
        settings = {} if address is None else {"http.address": address}
        async with Running(tmp_path, settings) as broker, Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client:
            pages = await planner.metrics_pages(client, [])
            return next(iter(pages.values()), None), 0 if address is None else broker.http_port

    assert run(found(None)) == (None, 0)
    nothing, port = run(found("127.0.0.1:0"))
    assert nothing is None  # any port that is free: the settings do not say which
    assert run(found(f"127.0.0.1:{port}")) == (f"127.0.0.1:{port}", port)


# ---- rehearsals


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", "plain")
    for name, value in (
        ("WARM_BYTES", 1),
        ("AGAIN_BYTES", 1),
        ("LEAST_CPU_S", 0.0),
        ("ROUNDS", 3),
        ("QUIET_S", 0.05),
    ):
        monkeypatch.setattr(rehearsal, name, value)


@pytest.mark.usefixtures("short")
def test_a_rehearsal_does_the_work_of_the_load() -> None:
    """Each record is read by four consumers: two of them know the present format only."""
    load = Load(V0, records(200), Codec.GZIP, 20, {V0: 1, V1: 1}, [1, 1, 2, 11], 2)
    today, tomorrow = asyncio.run(rehearse(load, replace(load, stored=V1)))
    assert (today.converted_records, today.converted_bytes) == (0, 0)
    assert tomorrow.converted_records == 2
    assert tomorrow.zero_copy_bytes == pytest.approx(2 * tomorrow.stored_bytes, rel=0.02)
    assert tomorrow.converted_bytes == pytest.approx(2 * tomorrow.stored_bytes, rel=0.02)
    assert today.zero_copy_bytes == pytest.approx(4 * today.stored_bytes, rel=0.02)
    assert today.cpu_s > 0 < tomorrow.cpu_s


@pytest.mark.usefixtures("short")
def test_a_plan_of_a_broker_that_runs_has_its_step_and_what_that_converts(tmp_path: Path) -> None:
    async def work() -> MigrationPlan:
        async with Running(tmp_path, SERVED) as broker:
            await broker.topics.create("topic", configs={"message.format.version": "0"})
            peer = await Peer.of(broker)
            for _ in range(4):
                await produce(peer, "topic", made(records(50), V1, Codec.SNAPPY), V1)
            await read_all(peer, 1, 200)
            async with Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}", client_id=CLIENT_ID) as client:
                found = await planner.look_at_cluster(client, [], 4)
            used_so_far = await used(broker)
            peer.close()
            return await planner.plan(found.topics, used_so_far, now_ms=0, notes=found.notes)

    found = run(work())
    assert any("without compiled loops" in note for note in found.notes)
    assert not any("the broker has not loaded" in note for note in found.notes)
    (topic,) = found.topics
    assert (topic.stage.phase, topic.stage.step, topic.stage.target) == (Phase.ONE, Step.UPGRADE_CONSUMERS, V1)
    assert topic.facts.stored.keys() == {(V0, Codec.SNAPPY)}
    assert topic.now is not None
    assert topic.after is not None
    written = sum(each.records_per_s for each in topic.uses if not each.is_consumer)
    assert topic.now.converted_records == 0 == topic.after.zero_copy_bytes
    assert topic.after.converted_records == pytest.approx(written)


@pytest.mark.parametrize(
    "known", [facts(V1), replace(facts(V0), sample=None)], ids=["the format stays", "no record is known"]
)
def test_a_step_that_changes_no_load_is_not_rehearsed(known: TopicFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Load) -> list[Cost]:
        raise AssertionError("nothing to rehearse")

    monkeypatch.setattr(planner, "rehearse", refused)
    uses = numbers((PRODUCE.format(1), 90_000, 90, 9000), (FETCH.format(1, 3), 240_000, 60, 0))
    (topic,) = asyncio.run(planner.plan({"t": known}, uses, now_ms=0, target=V1)).topics
    assert (topic.now, topic.after) == (None, None)


@pytest.mark.slow
def test_a_rehearsal_has_the_compiled_loops_that_a_broker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were they not on the disk it would compile them first; what is loaded is what the cost is of."""
    monkeypatch.delenv("MAGICBYTE_KERNELS", raising=False)
    monkeypatch.setattr(rehearsal, "LEAST_CPU_S", 0.0)
    rows = [each._replace(value=b"value" * 200) for each in records(100)]
    load = Load(V2, rows, Codec.NONE, 100, {V2: 1}, [11])
    (cost,) = asyncio.run(rehearse(load))
    assert cost.has_kernels


def test_a_broker_that_has_no_compiled_loops_yet_is_noted_where_the_rehearsal_had_them() -> None:
    uses = numbers((PRODUCE.format(1), 90_000, 90, 9000))
    rehearsed = TopicPlan(facts(V1), stage_of(V1, [V1], ()), (), 0, now=ESTIMATE)
    (note,) = planner._notes_on_kernels(uses, [rehearsed])
    assert "the broker has not loaded" in note
    assert not list(planner._notes_on_kernels(replace(uses, has_kernels=True), [rehearsed]))


# ---- stored records


def test_a_cluster_and_its_directory_report_the_same_stored_formats(tmp_path: Path) -> None:
    async def work() -> dict[str, TopicFacts]:
        async with Running(tmp_path, SERVED) as broker:
            await broker.topics.create("topic", configs={"message.format.version": "1", "retention.ms": "77"})
            peer = await Peer.of(broker)
            for codec in (Codec.NONE, Codec.GZIP):
                await produce(peer, "topic", made(records(5), V1, codec), V1)
            async with Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client:
                told = (await planner.look_at_cluster(client, ["topic"], 1)).topics
            peer.close()
        stored = planner.look_at_directories(discover([str(tmp_path)]), {})
        assert told["topic"].stored == stored["topic"].stored
        return planner.joined(stored, told)

    found = run(work())["topic"]
    assert found.stored[V1, Codec.NONE].entries == 5
    assert found.stored[V1, Codec.GZIP] == StoredEntries(1, len(made(records(5), V1, Codec.GZIP)))
    assert (found.configured, found.config.retention_ms, found.shares) == (V1, 77, False)
    assert (len(found.partitions), found.unread) == (1, [])


def test_partitions_that_no_directory_holds_are_not_known() -> None:
    """One broker's directory tells nothing of the partitions on the others."""
    stored = {"topic": TopicFacts("topic", numbers={0}), "other": TopicFacts("other", numbers={1})}
    told = {
        "topic": TopicFacts("topic", numbers={0, 1, 2}, shares=True),
        "elsewhere": TopicFacts("elsewhere", numbers={0}, shares=True),
    }
    found = planner.joined(stored, told)
    assert {name: facts.unread for name, facts in found.items()} == {"topic": [1, 2], "other": [], "elsewhere": [0]}
    assert planner.joined({}, told) == told


# ---- when the old format will have left

TICK_MS = 10_000  # between two sets, and two looks of retention


@pytest.mark.parametrize(
    "settings",
    [{"retention.ms": "300000"}, {"retention.ms": "-1", "retention.bytes": "8000"}],
    ids=["by age", "by size"],
)
async def test_the_old_format_leaves_a_broker_that_runs_when_its_plan_said(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """Settings and segments, rates and the clock are those of the broker; its own maintenance deletes."""
    clock = Clock()
    given = {"log.initial.task.delay.ms": "100000000", "log.retention.check.interval.ms": str(TICK_MS)}

    async with (
        Running(tmp_path, SERVED | given, clock) as broker,
        Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client,
    ):
        peer = await Peer.of(broker)
        own = {"message.format.version": "1", "segment.bytes": "2000", "file.delete.delay.ms": "0", **settings}
        await create_topic(client, NewTopic("topic", 1, 1, configs=own))

        async def tick(form: Format) -> None:
            clock.advance(TICK_MS)
            rows = [Record(at, clock.ms, 0, b"key", b"value") for at in range(5)]
            answer = await produce(peer, "topic", made(rows, form), form)
            assert not answer.error_code
            maintenance = background_of(broker).maintenance()
            while maintenance.step(1, Moment.fixed(clock.ms)).action is not Action.NOTHING:
                pass

        async def look() -> Scrape:
            found = await scrape(f"127.0.0.1:{broker.http_port}")
            found.at = Moment.of(clock)
            return found

        for _ in range(25):
            await tick(V1)
        await alter_configs(client, ConfigResource.TOPIC, "topic", {**own, "message.format.version": "2"})
        before = await look()
        await tick(V2)
        used = planner.usage(before, await look())
        told = (await planner.look_at_cluster(client, [], 0)).topics
        found = planner.joined(planner.look_at_directories(discover([str(tmp_path)]), {}), told)
        (topic,) = (await planner.plan(found, used, now_ms=clock.ms, rehearsals=0)).topics
        assert (topic.stage.phase, topic.stage.step) == (Phase.TWO, Step.WAIT)
        said = topic.leaves_ms
        assert said is not None
        assert said > clock.ms
        while has_older_format(tmp_path):
            assert clock.ms < said + 2 * TICK_MS, "it is still there"
            await tick(V2)
        assert abs(clock.ms - said) <= 2 * TICK_MS  # sets come whole, and retention looks once in a tick
        peer.close()


def has_older_format(folder: Path) -> bool:
    (facts_now,) = planner.look_at_directories(discover([str(folder)]), {}).values()
    return any(form is not V2 for form, _ in facts_now.stored)
