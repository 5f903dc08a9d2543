"""Consumer groups at the target of a mirror: where they continue, and which offset there has a record of the source."""

import asyncio
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import pass_time
from cli.command import run as command
from magicbyte.access.client import Client, admin
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.group_admin import GroupList
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing import Broker
from magicbyte.tools.mirror import group_names
from magicbyte.tools.mirror.group_sync import saved_reaches
from magicbyte.tools.mirror.mirror import GROUP_SECONDS, Mirror
from magicbyte.tools.mirror.offset_map import OffsetRun
from magicbyte.tools.mirror.offset_topic import OFFSET_TOPIC, KnownMaps
from magicbyte.tools.mirror.plan import Choice
from magicbyte.tools.mirror.progress import DEFAULT_GROUP
from tools.mirror.pair import Pair, crash, give
from tools.mirror.sets import marker, some, stored, transaction

WITH_GROUPS = Choice(re.compile(".*"), sync_groups=True)


def commit(pair: Pair, group: str, *offsets: int, at_target: bool = False) -> None:
    places = {("topic", partition): Committed(offset) for partition, offset in enumerate(offsets)}
    pair.run(lambda here, there: commit_offsets(there if at_target else here, group, places))


def committed(pair: Pair, group: str, partitions: int = 1, topic: str = "topic") -> list[int]:
    async def work(_: Client, there: Client) -> list[int]:
        found = await committed_offsets(there, group, [(topic, each) for each in range(partitions)])
        return [each.offset for _, each in sorted(found.items())]

    result: list[int] = pair.run(work)
    return result


def headless(pair: Pair, before: int) -> None:
    """Let the source's log begin at an offset."""
    pair.run(lambda here, _: admin.delete_records(here, "topic", 0, before))


def test_a_group_continues_at_the_record_that_it_would_have_read_next(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)
    headless(pair, 34)
    commit(pair, "readers", 57, 100)
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers", 2) == [57 - 34, 100]

    async def same(here: Client, there: Client) -> None:
        wanted = [each.value async for part in read_records(here, "topic", 0, 57, 100) for each in part]
        found = [each.value async for part in read_records(there, "topic", 0, 23, 66) for each in part]
        assert found == wanted

    pair.run(same)


def test_a_group_moves_on_with_the_source_and_never_back(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    commit(pair, "readers", 20)
    pair.mirror(WITH_GROUPS)
    commit(pair, "readers", 50)
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [50]
    commit(pair, "readers", 70, at_target=True)
    commit(pair, "readers", 60)
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [70]


def test_what_is_not_copied_yet_is_where_the_copy_ends(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    pair.run(lambda here, _: send(here, "topic", 0, some(0, 10)))
    commit(pair, "readers", 105)
    asked = ["--topic", "topic", "--partition", "0", "--offset", "105"]
    result = command("mirror", "translate", "--to", pair.addresses[1], *asked)
    assert result.stdout == "topic-0, offset 105: topic-0, offset 100; nothing after it is copied yet\n"
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [105]


def test_a_group_with_members_at_the_target_is_left_alone(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    commit(pair, "readers", 40)
    program = (
        "import sys, kafka\n"
        "consumer = kafka.KafkaConsumer('topic', bootstrap_servers=sys.argv[1], group_id='readers',"
        " auto_offset_reset='earliest', enable_auto_commit=False)\n"
        "next(consumer)\nprint('joined', flush=True)\nsys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", program, pair.addresses[1]]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "joined\n"
        pair.mirror(WITH_GROUPS)
        assert committed(pair, "readers") == []
        reader.kill()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0"])
def test_groups_that_an_old_source_does_not_list_are_found_in_its_offsets(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 0.10.1 list groups with members alone. Each record of the topic is read once."""
    read: list[tuple[int, int | None]] = []

    async def none(_: Client) -> GroupList:
        return GroupList([], [])

    def noted(client: Client, topic: str, partition: int, start: int, end: int, **options: Any) -> Any:
        read.append((start, end))
        return read_records(client, topic, partition, start, end, **options)

    monkeypatch.setattr(group_names, "list_groups", none)
    monkeypatch.setattr(group_names, "read_records", noted)
    settings = {"as.version": version, "offsets.topic.num.partitions": "1"}
    with Broker(settings) as source, Broker() as target:
        create_topic(source)
        pair = Pair(source, target)
        pair.run(lambda here, _: send(here, "topic", 0, some(0, 350)))
        commit(pair, "first", 300)

        async def work(here: Client, there: Client) -> None:
            mirror = Mirror(here, there, WITH_GROUPS)
            await mirror.catch_up()
            await commit_offsets(here, "second", {("topic", 0): Committed(200)})
            pass_time(GROUP_SECONDS)
            await mirror.catch_up()
            assert mirror.groups_left_out == {}

        pair.run(work)
        assert committed(pair, "first") == [300]
        assert committed(pair, "second") == [200]
    assert read == [(0, 1), (1, 2)]


def create_topic(broker: Broker) -> None:
    thread = broker._thread
    assert thread is not None
    thread.run(broker.served.topics.create("topic"))


@pytest.mark.usefixtures("impatient")
def test_groups_whose_offsets_may_not_be_read_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: Client, topic: str, partition: int) -> tuple[int, int]:
        raise BrokerError(f"offsets of {topic}-{partition}", ErrorCode.TOPIC_AUTHORIZATION_FAILED, broker="broker 0")

    monkeypatch.setattr(group_names, "bounds", refused)
    with Broker({"as.version": "0.9.0"}) as source, Broker() as target:
        create_topic(source)
        pair = Pair(source, target)
        pair.run(lambda here, _: send(here, "topic", 0, some(0, 10)))
        commit(pair, "listed", 3)
        result = pair.command("--sync-groups", "--until-caught-up")
        assert committed(pair, "listed") == [3]
    assert result.stdout.splitlines()[-1] == (
        "group (groups without members) is left out: its brokers do not list groups without members, and broker 0: "
        "offsets of __consumer_offsets-0: TOPIC_AUTHORIZATION_FAILED (29)"
    )


def test_each_omitted_group_is_reported_with_the_reason(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("spread", 3)))
    pair.fill("spread", [Codec.GZIP])
    commit(pair, "taken", 40, 50)
    commit(pair, "further", 40, 50)
    commit(pair, "of-another-mirror", 1)

    async def prepare(here: Client, there: Client) -> None:
        await commit_offsets(here, "spread", {("spread", 0): Committed(7), ("topic", 0): Committed(8)})
        await commit_offsets(here, "mirrors", {("topic", 0): Committed(9, f'{{"{DEFAULT_GROUP}": 1}}')})
        await admin.create_topic(there, admin.NewTopic("topic", 2))
        await commit_offsets(there, "further", {("topic", 1): Committed(90)})
        await commit_offsets(here, "worker", {("topic", 0): Committed(5)})

    pair.run(prepare)
    asyncio.run(join(pair.addresses[0], "worker", "connect"))
    asyncio.run(join(pair.addresses[1], "of-another-mirror", "consumer"))
    result = pair.command("--sync-groups", "--until-caught-up")
    assert result.exit_code == 0, result.stderr
    assert [each for each in result.stdout.splitlines() if each.startswith("group ")] == [
        "group further is left out: the target's offsets are higher in topic-1",
        "group mirrors is left out: its offsets are the progress of a mirror",
        "group of-another-mirror is left out: it has members at the target",
        "group spread is left out: records are distributed by key in spread-0",
        "group worker is left out: it is a group of type connect, not of consumers",
    ]
    assert committed(pair, "taken", 2) == [40, 50]
    assert committed(pair, "further", 2) == [40, 90]
    assert committed(pair, "spread", 2) == [8]


async def join(address: str, group: str, kind: str) -> None:
    """Let a member join a group and say nothing more: it stays as long as its session."""
    connection = await Connection.open(*_host_and_port(address), client_id="member")
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip
    assert (await connection.send(request, versions=range(3, 4))).error_code == ErrorCode.NONE
    await connection.aclose()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def test_in_a_chain_the_place_of_one_mirror_is_no_group_for_the_next(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    commit(pair, "readers", 7)
    pair.mirror(Choice(re.compile(".*"), "first", sync_groups=True))
    with Broker() as third:
        pair.addresses = pair.addresses[1], third.bootstrap_servers
        pair.mirror(Choice(re.compile(".*"), "second", sync_groups=True))
        assert committed(pair, "readers") == [7]
        assert committed(pair, "first") == []


def test_translate_says_where_offsets_and_groups_are_under_a_prefix_too(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)
    headless(pair, 34)
    pair.mirror(Choice(re.compile("topic"), "other", "old-"))
    commit(pair, "readers", 57, 10)
    common = ["--to", pair.addresses[1], "--prefix", "old-", "--mirror-group", "other"]
    asked = ["--topic", "topic", "--partition", "0", "--offset"]
    for offset, expected in ((20, 0), (34, 0), (35, 1), (100, 66)):
        notes = "; nothing after it is copied yet" if offset == 100 else ""
        result = command("mirror", "translate", *common, *asked, str(offset))
        assert result.stdout == f"topic-0, offset {offset}: old-topic-0, offset {expected}{notes}\n"
    result = command("mirror", "translate", *common, "--from", pair.addresses[0], "--group", "readers")
    assert result.stdout.splitlines() == [
        "readers: topic-0, offset 57: old-topic-0, offset 23",
        "readers: topic-1, offset 10: old-topic-1, offset 10",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "topic", "--partition", "0"], "expected --topic, --partition and --offset, or --from and --group"),
        (
            ["--topic", "topic", "--partition", "0", "--offset", "3"],
            "topic-0: expected the progress and the offset map of group",
        ),
    ],
)
def test_what_cannot_be_translated_is_said(pair: Pair, arguments: list[str], message: str) -> None:
    result = command("mirror", "translate", "--to", pair.addresses[1], *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_log_without_holes_has_one_run_for_each_start_of_the_mirror(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    pair.run(lambda here, _: send(here, "topic", 0, some(0, 10)))
    pair.mirror()

    async def runs(_: Client, there: Client) -> dict[tuple[str, int], list[OffsetRun]]:
        known = KnownMaps(DEFAULT_GROUP)
        await known.refresh(there)
        return {place: each.runs() for place, each in known.maps.items()}

    assert pair.run(runs) == {("topic", 0): [OffsetRun(0, 0), OffsetRun(100, 100)]}


@pytest.mark.parametrize("form", [Format.V2, Format.V1])
def test_behind_holes_markers_and_sets_with_holes_no_record_is_missed(pair: Pair, form: Format) -> None:
    """Only inside a set that has holes, or is not counted, do records come again."""
    holed = encode_records(some(40, 8, holes=True), form, Codec.GZIP)
    sets = [stored(form, Codec.GZIP), stored(form, Codec.GZIP, 21), holed, stored(form, Codec.GZIP, 60)]
    give(pair, [*sets, transaction(70, 7), marker(80, 7, ControlType.COMMIT), stored(Format.V2, Codec.GZIP, 81)])
    pair.mirror()
    offsets = [*range(10), *range(21, 31), *range(40, 55, 2), *range(60, 80), *range(81, 91)]
    inside = {*range(41, 55)} if form is Format.V2 else {*range(11, 31), *range(32, 55), *range(56, 70)}

    async def translations(_: Client, there: Client) -> None:
        (reach,) = (await saved_reaches(there, DEFAULT_GROUP, "", [("topic", 0)])).values()
        for offset in range(92):
            told, right = reach.translate(offset), sum(each < offset for each in offsets)
            assert told.offset <= right
            assert (told.offset == right and told.exact) or offset in inside, offset

    pair.run(translations)


def test_after_a_crash_the_map_still_tells_where_each_record_is(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.fill("topic", [Codec.GZIP, Codec.NONE])
    headless(pair, 20)
    commit(pair, "readers", 63)
    crash(pair, monkeypatch, 3, arrives=True)
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [43]


def test_old_wrappers_that_are_not_counted_are_exact_once_the_next_one_tells(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], Format.V1)
    commit(pair, "readers", 57)
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [57]
    commit(pair, "readers", 97)  # in the last set
    pair.mirror(WITH_GROUPS)
    assert committed(pair, "readers") == [90]


@pytest.mark.parametrize("arguments", [["--to", "localhost:9", "--identical"], ["--to", "./folder"]])
def test_groups_of_identical_copies_are_not_copied(arguments: list[str]) -> None:
    result = command("mirror", "--from", "localhost:9", "--topics", "x", "--sync-groups", *arguments)
    assert result.exit_code == 2
    assert "--sync-groups: " in result.stderr


def test_a_record_that_is_no_run_ends_the_translation_and_is_named(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    pair.run(lambda _, there: send(there, OFFSET_TOPIC, 0, [Record(0, 0, 0, b"{}", b"{}")]))
    asked = ["--topic", "topic", "--partition", "0", "--offset", "3"]
    result = command("mirror", "translate", "--to", pair.addresses[1], *asked)
    assert result.exit_code == 2
    assert f"{OFFSET_TOPIC}, offset 1: expected a run of an offset map, found key b'{{}}'" in result.stderr


def test_the_map_is_not_copied_on(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.mirror()
    with Broker() as third:
        pair.addresses = pair.addresses[1], third.bootstrap_servers
        assert OFFSET_TOPIC in pair.run(lambda here, _: here.topics())
        assert list(pair.mirror()) == ["topic"]


def test_metrics_show_the_copied_records_during_the_run(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    ends = ["--from", pair.addresses[0], "--to", pair.addresses[1]]
    arguments = [*ends, "--topics", "topic", "--yes", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "magicbyte", "mirror", *arguments], stdout=subprocess.PIPE, text=True
    )

    async def arrived(_: Client, there: Client) -> None:
        while not (await there.topics()).get("topic") or (await bounds(there, "topic", 0))[1] < 100:
            await asyncio.sleep(0.01)

    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        pair.run(arrived)
        found: dict[str, float] = {}
        while found.get("magicbyte_mirror_records_total") != 100.0:
            with urllib.request.urlopen(line.split()[-1]) as page:
                families = list(text_string_to_metric_families(page.read().decode()))
            found = {
                each.name: each.value
                for family in families
                for each in family.samples
                if each.labels.get("state", "closed") == "closed"
            }
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
    assert found["magicbyte_mirror_sets_total"] == 10
    assert found["magicbyte_mirror_lag_offsets"] == 0


def test_options_and_settings_of_the_clients_come_from_a_file(pair: Pair, tmp_path: Path) -> None:
    pair.fill("topic", [Codec.GZIP])
    pair.fill("other", [Codec.GZIP])
    file = tmp_path / "mirror.properties"
    file.write_text(
        f"from={pair.addresses[0]}\nto={pair.addresses[1]}\ntopics=topic\nuntil-caught-up=true\nyes=true\n"
        "source.client.id=copier\ntarget.request.timeout.ms=5000\n"
    )
    result = command("mirror", "--config", str(file))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("topic: ")
    result = command("mirror", "--config", str(file), "--topics", "other")
    assert result.stdout.startswith("other: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("topic=x", "no option or client setting is called 'topic': is it 'topics'?"),
        ("source.request.timeout=5", "is it 'source.request.timeout.ms'?"),
        ("target.request.timeout.ms=soon", "expected a number of milliseconds, found 'soon'"),
        ("config=other", "no option or client setting is called 'config'"),
    ],
)
def test_a_line_of_the_file_that_means_nothing_is_refused(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "mirror.properties"
    file.write_text(line + "\n")
    result = command("mirror", "--config", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_settings_of_a_file_and_of_options_are_checked_together_and_named_with_their_side(tmp_path: Path) -> None:
    file = tmp_path / "mirror.properties"
    file.write_text("source.security.protocol=SASL_PLAINTEXT\nsource.sasl.mechanism=PLAIN\nsource.sasl.username=me\n")
    result = command("mirror", "--config", str(file), "-X", "source.sasl.password=secret")
    assert "Missing option '--from'" in result.stderr  # the settings are complete
    for options in ((), ("-X", "source.sasl.password=secret", "-X", "source.security.protocol=NOPE")):
        result = command("mirror", "--config", str(file), *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Invalid value for --config, -X: source.s" in result.stderr
        assert "secret" not in result.stderr
