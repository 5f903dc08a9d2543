"""A mirror between two of our brokers: the records that arrive, also after crashes."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from magicbyte.access.client import Client, admin, groups
from magicbyte.access.client.groups import Committed
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror import copier, progress
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import Pair, crash, crashes, payloads, records
from tools.mirror.sets import counted, some

CLOSED = {
    Format.V2: list(Codec),
    Format.V1: [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.NONE],
    Format.V0: [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.NONE],
}


@pytest.mark.parametrize("form", CLOSED)
def test_what_arrives_is_equal_and_nothing_was_decompressed(pair: Pair, form: Format) -> None:
    pair.fill("topic", CLOSED[form], form, partitions=2)
    with counted() as opened:
        copied = pair.mirror()["topic"]
    assert not opened
    assert (copied.opened_sets, copied.lag) == (0, 0)
    assert copied.closed_sets == 20

    async def work(here: Client, there: Client) -> None:
        for partition in (0, 1):
            assert await records(there, "topic", partition) == await records(here, "topic", partition)
        if form is not Format.V0:  # whose inner offsets are absolute: the target recompresses
            assert await payloads(there, "topic") == await payloads(here, "topic")
        settings = await admin.describe_configs(there, admin.ConfigResource.TOPIC, "topic")
        assert settings["message.format.version"].value == form.value

    pair.run(work)


def test_a_second_run_copies_the_records_since_the_first(pair: Pair) -> None:
    pair.fill("topic", [Codec.LZ4])
    assert pair.mirror()["topic"].closed_sets == 10
    assert pair.mirror()["topic"].closed_sets == 0
    pair.run(lambda here, _: send(here, "topic", 0, some(0, 5), ProduceOptions(codec=Codec.GZIP)))
    assert pair.mirror()["topic"].closed_sets == 1
    pair.run(_same)


async def _same(here: Client, there: Client) -> None:
    assert await records(there, "topic") == await records(here, "topic")


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("at", [1, 4, 10])
def test_after_crashes_everything_is_there_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, at: int, arrives: bool
) -> None:
    pair.fill("topic", [Codec.GZIP, Codec.NONE])
    crash(pair, monkeypatch, at, arrives=arrives)
    if at < 10:
        crash(pair, monkeypatch, 1, arrives=not arrives)
    pair.mirror()
    pair.run(_same)


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 12), marks=pytest.mark.slow)])
def test_after_any_row_of_crashes_everything_is_there_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    """Closed and converted sets in turn, the place kept often or not at all, up to four crashes in a row."""

    async def mix(here: Client, there: Client) -> None:
        for form in (Format.V1, Format.V2, Format.V1):
            configs = {"message.format.version": form.value}
            await admin.alter_configs(here, admin.ConfigResource.TOPIC, topic, configs)
            for turn in range(4):
                codec = (Codec.GZIP, Codec.NONE)[turn % 2]
                await send(here, topic, 0, some(10 * turn, 10), ProduceOptions(codec=codec, format=form))

    for seed in seeds:
        chance, topic = random.Random(seed), f"topic-{seed}"
        choice = Choice(re.compile(topic))

        async def make(here: Client, there: Client, name: str = topic) -> None:
            for client in (here, there):
                await admin.create_topic(client, admin.NewTopic(name))

        pair.run(make)
        pair.run(mix)
        for _ in range(chance.randint(1, 4)):
            monkeypatch.setattr(copier, "SAVE_SECONDS", chance.choice([0.0, 1000.0]))
            crashes(pair, monkeypatch, chance.randint(1, 3), arrives=chance.random() < 0.6, choice=choice)
        pair.mirror(choice)

        async def same(here: Client, there: Client, name: str = topic) -> None:
            source, target = await records(here, name), await records(there, name)
            assert target == source, name
            assert len(target) == 120

        pair.run(same)


def test_after_a_crash_converted_sets_are_there_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.fill("topic", [Codec.GZIP, Codec.NONE], Format.V1)
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic")))
    crash(pair, monkeypatch, 6, arrives=True)
    copied = pair.mirror()["topic"]
    assert copied.opened_sets <= 4  # those behind the sixth may have been on their way
    pair.run(_same)


def test_without_producer_ids_nothing_is_lost_after_a_crash(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copier, "SAVE_SECONDS", 1000.0)
    pair.fill("topic", [Codec.GZIP], Format.V1)
    crash(pair, monkeypatch, 4, arrives=True)
    pair.mirror()

    async def work(here: Client, there: Client) -> None:
        source = [each[1:] for each in await records(here, "topic")]
        target = [each[1:] for each in await records(there, "topic")]
        assert target == source[:40] + source  # the place was kept before the first set, and the crash came early

    pair.run(work)


def test_the_page_says_how_much_is_sent_again_after_a_crash() -> None:
    page = (Path(__file__).parents[3] / "docs/commands/mirror.md").read_text(encoding="utf-8")
    assert f"{copier.SAVE_SECONDS:.0f} seconds or {copier.SAVE_BYTES >> 20} MiB are sent again" in page


def test_a_mirror_whose_process_is_killed_continues_at_its_progress(pair: Pair) -> None:
    pair.fill("topic", [Codec.ZSTD], partitions=3)

    async def more(here: Client, _: Client) -> None:
        for turn in range(60):
            await send(here, "topic", turn % 3, some(0, 200), ProduceOptions(codec=Codec.ZSTD))

    async def arrived(_: Client, there: Client) -> None:
        while not (await there.topics()).get("topic") or (await bounds(there, "topic", 1))[1] < 300:
            await asyncio.sleep(0.01)

    arguments = ["mirror", "--from", pair.addresses[0], "--to", pair.addresses[1], "--topics", "topic", "--yes"]
    process = subprocess.Popen([sys.executable, "-m", "magicbyte", *arguments])
    try:
        pair.run(more)
        pair.run(arrived)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    pair.mirror()

    async def work(here: Client, there: Client) -> None:
        for partition in range(3):
            assert await records(there, "topic", partition) == await records(here, "topic", partition)

    pair.run(work)


def test_it_runs_until_it_is_stopped(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    arguments = ["mirror", "--from", pair.addresses[0], "--to", pair.addresses[1], "--topics", "topic", "--yes"]
    process = subprocess.Popen([sys.executable, "-m", "magicbyte", *arguments], stdout=subprocess.PIPE, text=True)

    async def grows(here: Client, there: Client) -> None:
        for end in (100, 105):
            while not (await there.topics()).get("topic") or (await bounds(there, "topic", 0))[1] < end:
                await asyncio.sleep(0.01)
            await send(here, "topic", 0, some(0, 5))

    try:
        pair.run(grows)
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    assert output.startswith("topic: ")
    assert "0 B opened in 0" in output


def test_explain_says_what_would_be_done_and_does_nothing(pair: Pair) -> None:
    pair.fill("new", [Codec.GZIP])
    pair.fill("old", [Codec.GZIP], Format.V1, partitions=2)
    pair.fill("more", [Codec.GZIP])
    pair.fill("formats", [Codec.GZIP], Format.V0)

    async def make(_: Client, there: Client) -> None:
        await admin.create_topic(there, admin.NewTopic("more", 3))
        await admin.create_topic(there, admin.NewTopic("formats"))

    pair.run(make)
    result = pair.command("--explain")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "formats: converted: magic 0 at the source, 2 at the target; 1 partition, there at the target; exactly once",
        "more: keyed: 1 partitions become 3, so keys decide; 1 partition, there at the target; exactly once",
        "new: closed: magic 2 at both; 1 partition, to be created at the target; exactly once",
        "old: closed: magic 1 at both; 2 partitions, to be created at the target; at least once",
    ]
    assert sorted(pair.run(lambda _, there: there.topics())) == ["formats", "more"]


def test_a_target_that_speaks_3_0_stores_magic_2_whatever_its_topics_say() -> None:
    with Broker() as source, Broker({"inter.broker.protocol.version": "3.0"}) as target:
        pair = Pair(source, target)
        pair.fill("topic", [Codec.GZIP], Format.V1)
        result = pair.command("--explain")
    assert result.stdout.startswith("topic: converted: magic 1 at the source, 2 at the target"), result.stderr


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("release", "is_known"), [("0.9.0", True), ("0.10.2", False), ("0.11.0", True)])
def test_a_plan_says_whether_the_format_of_the_target_is_known(release: str, is_known: bool) -> None:
    """Brokers before 0.11 return no settings, and those of 0.9 have one format only."""
    with Broker() as source, Broker({"as.version": release}) as target:
        pair = Pair(source, target)
        pair.fill("topic", [Codec.GZIP], Format.V0)
        explained = pair.command("--explain").stdout
    assert ("not known whether the target stores" in explained) != is_known, explained


def test_a_topic_that_is_made_at_a_target_of_4_has_settings_which_that_takes() -> None:
    old = {"segment.bytes": "20000", "message.timestamp.difference.max.ms": "8000000000000"}
    old["message.format.version"] = "1"
    with Broker() as source, Broker({"as.version": "4.1"}) as target:
        pair = Pair(source, target)
        pair.run(lambda here, _: admin.create_topic(here, admin.NewTopic("topic", configs=old)))
        pair.run(lambda here, _: send(here, "topic", 0, some(0, 10)))
        assert pair.mirror()["topic"].lag == 0
        found = pair.run(lambda _, there: admin.describe_configs(there, admin.ConfigResource.TOPIC, "topic"))
    assert {name: each.value for name, each in found.items() if each.is_own} == {
        "segment.bytes": "1048576",
        "message.timestamp.before.max.ms": "8000000000000",
        "message.timestamp.after.max.ms": "8000000000000",
    }


def test_the_command_says_what_it_copied(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    result = pair.command("--until-caught-up")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(
        r"topic: [\d.]+ KiB closed in 10 sets, 0 B opened in 0, [\d.]+ MB/s, 0 offsets behind\n"
        r"copied: 100 records of 1 topic\n",
        result.stdout,
    )


@pytest.mark.parametrize("option", ["--explain", "--until-caught-up"])
def test_topics_that_are_not_there_are_an_error(pair: Pair, option: str) -> None:
    result = pair.command(option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--topics '.*': expected matching topics at the source, found none" in result.stderr


def test_a_target_with_records_of_others_is_refused(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic")))
    pair.run(lambda _, there: send(there, "topic", 0, some(0, 1)))
    with pytest.raises(MirrorError, match="topic-0: the target holds records already"):
        pair.mirror()


def test_a_circle_is_refused(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    pair.addresses = pair.addresses[1], pair.addresses[0]
    with pytest.raises(MirrorError, match=r"topic: it came from cluster [^ ]+, the target: a loop"):
        pair.mirror()
    pair.addresses = pair.addresses[0], pair.addresses[0]
    with pytest.raises(MirrorError, match="same cluster"):
        pair.mirror()


def test_a_group_that_is_no_mirrors_or_another_ones_is_refused(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()

    def place(metadata: str) -> None:
        offsets = {("topic", 0): Committed(3, metadata)}
        pair.run(lambda _, there: groups.commit_offsets(there, progress.DEFAULT_GROUP, offsets))

    place("")
    with pytest.raises(MirrorError, match="expected the progress of a mirror"):
        pair.mirror()
    place(progress.MirrorPlace(3, {0: progress.Lane(3)}, progress.Origin("elsewhere")).metadata(0))
    with pytest.raises(MirrorError, match="mirrors cluster elsewhere"):
        pair.mirror()


def test_a_recreated_topic_is_noticed(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()

    async def recreate(here: Client, _: Client) -> None:
        await admin.delete_topic(here, "topic")
        await admin.create_topic(here, admin.NewTopic("topic"))

    pair.run(recreate)
    with pytest.raises(MirrorError, match="topic-0: the topic was recreated: its id was"):
        pair.mirror()


def test_records_that_were_deleted_before_the_copy_are_counted(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    pair.run(lambda here, _: send(here, "topic", 0, some(0, 10), ProduceOptions(codec=Codec.GZIP)))
    pair.run(lambda here, _: admin.delete_records(here, "topic", 0, 104))
    copied = pair.mirror()["topic"]
    assert (copied.lost, copied.opened_sets, copied.records) == (4, 1, 6)


def test_a_log_that_begins_inside_a_wrapper_is_copied_from_there_also_after_a_crash(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.fill("topic", [Codec.GZIP], Format.V1)
    pair.run(lambda here, _: admin.delete_records(here, "topic", 0, 34))
    crash(pair, monkeypatch, 1, arrives=False)
    copied = pair.mirror()["topic"]
    assert (copied.opened_sets, copied.closed_sets, copied.lost) == (1, 6, 0)

    async def same(here: Client, there: Client) -> None:
        source = [each[1:] for each in await records(here, "topic")]
        assert [each[1:] for each in await records(there, "topic")] == source
        assert len(source) == 66

    pair.run(same)


def test_headers_that_the_target_cannot_hold_end_the_run(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    record = Record(0, 1_700_000_000_000, 0, None, b"value", (("name", b"x"),))
    pair.run(lambda here, _: send(here, "topic", 0, [record]))
    old = {"message.format.version": "1"}
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic", configs=old)))
    with pytest.raises(MirrorError, match="topic-0, offsets 100 to 100: record headers, which magic 1"):
        pair.mirror()


def test_damage_at_the_source_ends_the_run_behind_what_is_sound(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as source, Broker() as target:
        pair = Pair(source, target)
        pair.fill("topic", [Codec.GZIP])
        with (tmp_path / "topic-0" / f"{0:020}.log").open("r+b") as log:
            log.seek(-1, os.SEEK_END)
            log.write(b"\xff")
        result = pair.command("--until-caught-up")
        ends = pair.run(lambda _, there: bounds(there, "topic", 0))
    assert result.exit_code == 1
    assert result.stderr.startswith("magicbyte: damage: topic-0, position 0, offsets 90..99: crc")
    assert ends == (0, 90)


def test_a_set_that_is_too_large_for_the_target_ends_the_run_and_is_named(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    large = Record(0, 1_700_000_000_000, 0, None, os.urandom(5000))
    pair.run(lambda here, _: send(here, "topic", 0, [large], ProduceOptions(codec=Codec.GZIP)))
    small = {"max.message.bytes": "4000"}
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic", configs=small)))
    with pytest.raises(MirrorError, match=r"topic-0, offsets 100 to 100: a set of 5\d+ bytes is more than"):
        pair.mirror()


def test_lost_places_are_found_again_by_the_headers_of_the_target(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.fill("topic", [Codec.GZIP])
    saves: list[progress.MirrorPlace] = []
    original = progress.Book.save

    async def once(book: progress.Book, client: Client, place: progress.MirrorPlace) -> None:
        saves.append(place)
        if len(saves) == 1:
            await original(book, client, place)

    with monkeypatch.context() as patch:
        patch.setattr(progress.Book, "save", once)
        assert pair.mirror()["topic"].closed_sets == 10
    assert saves[0].offset == 0
    assert pair.mirror()["topic"].closed_sets == 0
    pair.run(_same)
