"""Copies with the offsets and bytes of the source: into a log directory, and into a topic of our broker."""

import asyncio
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.command import run as command
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send, send_made
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode, LogDirectoryError, MirrorError
from magicbyte.engine.log.live.log_directory import LogDirectory
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import Dialect
from magicbyte.testing import Broker
from magicbyte.tools.mirror import identical
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.identical import FolderReplica, IdenticalMirror
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.plan import Choice, Mode, TopicMirrorPlan
from magicbyte.tools.mirror.progress import Origin
from magicbyte.tools.mirror.rewrite import Storage
from tools.mirror.pair import ALL, CrashError, Pair, records
from tools.mirror.sets import some, stored

CHOICE = Choice(ALL.topics, identical=True)
MARKED = {"mirror.identical": "true", "retention.ms": "-1"}
OLD = {Format.V0: [Codec.NONE, Codec.GZIP], Format.V1: [Codec.LZ4, Codec.SNAPPY, Codec.NONE], Format.V2: list(Codec)}


def marker(offset: int, producer: int, kind: ControlType) -> bytes:
    record = some(offset, 1)[0]._replace(key=bytes([0, 0, 0, kind]), value=bytes(6))
    header = BatchHeader(
        producer_id=producer, producer_epoch=0, is_control=True, is_transactional=True, partition_leader_epoch=7
    )
    return encode_records([record], Format.V2, header=header)


def part(offset: int, producer: int, sequence: int = 0) -> bytes:
    """A set of ten records in a transaction."""
    header: dict[str, Any] = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return stored(Format.V2, Codec.GZIP, offset, **header, is_transactional=True)


EMPTY = build_batch(
    b"",
    base_offset=60,
    last_offset_delta=9,
    base_timestamp=-1,
    max_timestamp=-1,
    record_count=0,
    partition_leader_epoch=7,
)
LOG = [
    stored(Format.V0, Codec.GZIP, 10),
    stored(Format.V1, Codec.LZ4, 20),
    encode_records(some(30, 3), Format.V1),
    part(40, 5),
    part(50, 6),
    EMPTY,
    marker(70, 5, ControlType.ABORT),
    marker(71, 6, ControlType.COMMIT),
    encode_records(some(80, 5, holes=True), Format.V2, Codec.ZSTD, header=BatchHeader(partition_leader_epoch=7)),
    stored(Format.V2, Codec.LZ4, 90),
]
"""A compacted log of all formats, with holes, transactions, markers and an empty batch."""


async def make(client: Client, topic: str = "topic", partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await admin.create_topic(client, admin.NewTopic(topic, partitions, configs={**MARKED, **named}))


async def fill(client: Client, sets: list[bytes], topic: str = "topic") -> None:
    for each in sets:
        await send_made(client, topic, 0, memoryview(each), 2, Codec.NONE)


async def stored_bytes(client: Client, topic: str = "topic", dialect: Dialect = Dialect.KAFKA) -> bytes:
    ends = await bounds(client, topic, 0)
    options = FetchOptions(dialect=dialect)
    return b"".join([bytes(each.data) async for each in read_sets(client, topic, 0, *ends, options)])


def logs(folder: Path, partition: str = "topic-0") -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / partition).glob("*.log")))


class Copies:
    """A source, and a copy of it that is a topic or a folder; the same is asked of both."""

    def __init__(self, pair: Pair, folder: Path | None) -> None:
        self.pair = pair
        self.folder = folder

    def run(self, choice: Choice = CHOICE) -> Copied:
        async def work(here: Client, there: Client) -> Copied:
            if self.folder is None:
                return await round_of(IdenticalMirror(here, there, choice))
            with LogTarget(self.folder) as target:
                return await round_of(IdenticalMirror(here, target, choice))

        async def round_of(mirror: IdenticalMirror) -> Copied:
            await mirror.catch_up()
            return mirror.copied()["topic"]

        found: Copied = self.pair.run(work)
        return found

    def bytes(self) -> bytes:
        if self.folder is not None:
            return logs(self.folder)
        found: bytes = self.pair.run(lambda _, there: stored_bytes(there))
        return found

    def start(self) -> int:
        if self.folder is not None:
            with LogTarget(self.folder) as target:
                return target.log("topic", 0).log_start_offset
        return int(self.pair.run(lambda _, there: bounds(there, "topic", 0))[0])


@pytest.fixture(params=["topic", "folder"])
def copies(request: pytest.FixtureRequest, pair: Pair, tmp_path: Path) -> Copies:
    return Copies(pair, tmp_path / "copy" if request.param == "folder" else None)


def source(copies: Copies, sets: list[bytes], **configs: str) -> None:
    async def work(here: Client, _: Client) -> None:
        await make(here, **configs)
        await fill(here, sets)

    copies.pair.run(work)


def test_every_kind_of_set_is_the_same_bytes_at_the_same_offsets(copies: Copies) -> None:
    source(copies, LOG)
    copied = copies.run()
    assert (copied.closed_sets, copied.opened_sets, copied.lag) == (len(LOG) + 2, 0, 0)
    assert copies.bytes() == b"".join(LOG)
    assert copies.run().closed_sets == 0


@pytest.mark.parametrize("form", OLD)
def test_what_producers_sent_in_any_format_is_the_same_bytes(copies: Copies, form: Format) -> None:
    copies.pair.fill("topic", OLD[form], form)
    copies.run()
    assert copies.bytes() == copies.pair.run(lambda here, _: stored_bytes(here))
    copies.pair.run(lambda here, _: send(here, "topic", 0, some(0, 5), ProduceOptions(format=form)))
    copies.run()
    assert copies.bytes() == copies.pair.run(lambda here, _: stored_bytes(here))


def test_a_running_copy_also_gets_the_sets_of_transactions_that_stay_open(pair: Pair) -> None:
    source(Copies(pair, None), [part(0, 5)])

    async def work(here: Client, there: Client) -> None:
        mirror = IdenticalMirror(here, there, CHOICE)
        await mirror.catch_up()
        await fill(here, [part(10, 5, sequence=10)])
        await mirror.catch_up()
        assert await stored_bytes(there) == await stored_bytes(here) == part(0, 5) + part(10, 5, sequence=10)

    pair.run(work)


def test_readers_of_a_copied_topic_see_transactions_as_at_the_source(pair: Pair) -> None:
    copies = Copies(pair, None)
    source(copies, LOG)
    copies.run()

    async def committed(client: Client) -> list[int]:
        ends = await bounds(client, "topic", 0)
        found = read_records(client, "topic", 0, *ends, FetchOptions(committed=True))
        return [each.offset async for columns in found for each in columns]

    async def work(here: Client, there: Client) -> None:
        assert await committed(there) == await committed(here)
        assert not set(range(40, 50)) & set(await committed(there))
        assert (await there.topics())["topic"].partitions[0].leader_epoch == 7

    pair.run(work)


def test_a_copy_begins_where_the_source_does_also_inside_a_set(copies: Copies) -> None:
    source(copies, LOG, cleanup_policy="delete")
    copies.pair.run(lambda here, _: admin.delete_records(here, "topic", 0, 24))
    copies.run()
    assert copies.bytes() == b"".join(LOG[1:])
    assert copies.start() == 24


def test_offsets_that_the_source_deleted_meanwhile_become_a_hole(copies: Copies) -> None:
    source(copies, LOG[:2], cleanup_policy="delete")
    copies.run()
    copies.pair.run(lambda here, _: fill(here, LOG[2:]))
    copies.pair.run(lambda here, _: admin.delete_records(here, "topic", 0, 80))
    assert copies.run().lost == 50
    assert copies.bytes() == b"".join(LOG[:2] + LOG[8:])


def test_a_copied_folder_is_a_log_directory_that_commands_read_and_a_broker_serves(pair: Pair, tmp_path: Path) -> None:
    copies = Copies(pair, tmp_path / "copy")
    source(copies, LOG)
    copies.run()
    told = command("verify", str(tmp_path / "copy"), "--deep")
    assert told.exit_code == 0, told.stdout
    assert len(command("cat", str(tmp_path / "copy")).stdout.splitlines()) == 10 + 10 + 3 + 10 + 10 + 5 + 10
    with Broker(directory=tmp_path / "copy") as served:
        both = Pair(served, served)
        both.addresses = pair.addresses[0], served.bootstrap_servers

        async def same(here: Client, there: Client) -> None:
            assert await records(there, "topic") == await records(here, "topic")
            assert await stored_bytes(there) == await stored_bytes(here)
            assert (await there.topics())["topic"].partitions[0].leader_epoch == 7

        both.run(same)


def test_a_recreated_topic_is_noticed(copies: Copies) -> None:
    source(copies, LOG)
    copies.run()

    async def recreate(here: Client, _: Client) -> None:
        await admin.delete_topic(here, "topic")
        await make(here)
        await fill(here, [*LOG, stored(Format.V2, Codec.GZIP, 100)])

    copies.pair.run(recreate)
    with pytest.raises(MirrorError, match="the topic was recreated: its id was"):
        copies.run()


def test_a_source_that_ends_earlier_is_noticed_without_ids(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    source(copies, LOG)
    copies.run()

    async def bounds_of_another(*arguments: Any) -> tuple[int, int]:
        return (0, 50) if arguments[0] is here[0] else await bounds(*arguments)

    here: list[Client] = []
    original = IdenticalMirror.__init__

    def noting(self: IdenticalMirror, source: Client, *rest: Any) -> None:
        here.append(source)
        original(self, source, *rest)

    monkeypatch.setattr(IdenticalMirror, "__init__", noting)
    monkeypatch.setattr(identical, "bounds", bounds_of_another)
    with pytest.raises(MirrorError, match="topic-0: at offset 100 of a source that ends at 50"):
        copies.run()


def test_damage_at_the_source_is_not_copied(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "source") as broken, Broker() as target:
        pair = Pair(broken, target)
        source(Copies(pair, None), LOG)
        with (tmp_path / "source" / "topic-0" / f"{0:020}.log").open("r+b") as log:
            log.seek(-1, 2)
            log.write(b"\xff")
        with pytest.raises(CorruptRecordError, match=r"topic-0, position .*crc"):
            Copies(pair, tmp_path / "copy").run()
        with pytest.raises(BrokerError) as caught:
            Copies(pair, None).run()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("arrives", [False, True])
def test_after_crashes_nothing_is_lost_and_nothing_twice(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    copies = Copies(pair, None)
    source(copies, LOG[:6])

    async def crashing(*arguments: Any) -> Any:
        if arrives:
            await send_made(*arguments)
        raise CrashError

    for sets in (LOG[6:8], LOG[8:]):
        with monkeypatch.context() as patch:
            patch.setattr(identical, "send_made", crashing)
            with pytest.raises(CrashError):
                copies.run()
        pair.run(lambda here, _, sets=sets: fill(here, sets))
    copies.run()
    assert copies.bytes() == b"".join(LOG)


def test_a_set_that_is_sent_again_after_a_lost_response_is_stored_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Copies(pair, None)
    source(copies, LOG)

    async def twice(*arguments: Any) -> Any:
        await send_made(*arguments)
        return await send_made(*arguments)

    monkeypatch.setattr(identical, "send_made", twice)
    copies.run()
    assert copies.bytes() == b"".join(LOG)


def test_a_target_with_records_of_others_or_not_so_marked_is_refused(pair: Pair) -> None:
    copies = Copies(pair, None)
    source(copies, LOG)
    pair.run(lambda _, there: admin.create_topic(there, admin.NewTopic("topic")))
    with pytest.raises(MirrorError, match=r"expected a topic with mirror\.identical=true"):
        copies.run()
    pair.run(lambda _, there: send(there, "topic", 0, some(0, 1)))
    pair.run(lambda _, there: admin.alter_configs(there, admin.ConfigResource.TOPIC, "topic", MARKED))
    with pytest.raises(MirrorError, match="topic-0: the target holds records already"):
        copies.run()


def test_a_marked_topic_refuses_offsets_that_it_has_passed(pair: Pair) -> None:
    async def work(here: Client, _: Client) -> None:
        await make(here)
        await fill(here, LOG)
        with pytest.raises(BrokerError, match="expected offsets from 100 on, found 0") as caught:
            await send(here, "topic", 0, some(0, 1))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await admin.alter_configs(here, admin.ConfigResource.TOPIC, "topic", {"mirror.identical": None})
        (done,) = await send(here, "topic", 0, some(0, 1))
        assert done.base_offset == 100

    pair.run(work)


def test_a_folder_that_a_crash_left_with_a_torn_set_is_recovered_and_continued(pair: Pair, tmp_path: Path) -> None:
    source(Copies(pair, None), LOG[:6])

    async def crash(here: Client, _: Client) -> None:
        with LogTarget(tmp_path / "open") as target:
            await IdenticalMirror(here, target, CHOICE).catch_up()
            shutil.copytree(tmp_path / "open", tmp_path / "copy")

    pair.run(crash)
    (path,) = (tmp_path / "copy" / "topic-0").glob("*.log")
    with path.open("ab") as log:
        log.write(LOG[6][:-1])
    pair.run(lambda here, _: fill(here, LOG[6:]))
    Copies(pair, tmp_path / "copy").run()
    assert logs(tmp_path / "copy") == b"".join(LOG)


def test_logs_of_a_folder_are_opened_outside_of_the_loop_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, count = Origin("cluster", None), 8
    plan = TopicMirrorPlan(
        "topic", "topic", origin, count, None, 1, Storage(Format.V2), once=True, committed=False,
        mode=Mode.IDENTICAL, why="",
    )  # fmt: skip
    real, opening, most, threads = LogDirectory.create, 0, 0, set[str]()

    def create(self: LogDirectory, *given: Any, **named: Any) -> Any:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        threads.add(threading.current_thread().name)
        try:
            return real(self, *given, **named)
        finally:
            opening -= 1

    async def ends(target: LogTarget) -> list[int]:
        replicas = [FolderReplica(plan, partition, target) for partition in range(count)]
        return await asyncio.gather(*(each.end() for each in replicas))

    monkeypatch.setattr(LogDirectory, "create", create)
    with LogTarget(tmp_path / "copy") as target:
        assert asyncio.run(ends(target)) == [0] * count
    assert most == 1
    assert threading.main_thread().name not in threads
    assert len(list((tmp_path / "copy").glob("topic-*"))) == count


def test_a_folder_in_use_is_refused(pair: Pair, tmp_path: Path) -> None:
    with LogTarget(tmp_path / "copy"), pytest.raises(LogDirectoryError, match="another process is using"):
        LogTarget(tmp_path / "copy")


LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SHALLOW://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SHALLOW:PLAINTEXT",
    "listener.name.shallow.magicbyte.dialect": "enriched",
}


@pytest.fixture
def enriched() -> Iterator[Pair]:
    with Broker(LISTENERS) as here, Broker(LISTENERS) as there:
        pair = Pair(here, there)
        pair.addresses = here.address("SHALLOW"), there.address("SHALLOW")
        yield pair


@pytest.mark.parametrize("kind", ["topic", "folder"])
def test_enriched_topics_are_copied_by_listeners_of_their_dialect(enriched: Pair, tmp_path: Path, kind: str) -> None:
    copies = Copies(enriched, tmp_path / "copy" if kind == "folder" else None)

    async def work(here: Client, _: Client) -> None:
        await admin.create_topic(here, admin.NewTopic("topic", configs={"message.format.version": "enriched"}))
        for _ in range(3):
            made = encode_records(some(0, 10), Format.ENRICHED, Codec.GZIP)
            await send_made(here, "topic", 0, memoryview(made), 1, Codec.GZIP)

    enriched.run(work)
    with pytest.raises(MirrorError, match="only a listener of the enriched dialect returns its bytes"):
        copies.run()
    copies.run(Choice(ALL.topics, identical=True, from_dialect=Dialect.ENRICHED, to_dialect=Dialect.ENRICHED))
    expected = enriched.run(lambda here, _: stored_bytes(here, dialect=Dialect.ENRICHED))
    if kind == "folder":
        assert logs(tmp_path / "copy") == expected
    else:
        assert enriched.run(lambda _, there: stored_bytes(there, dialect=Dialect.ENRICHED)) == expected


def test_the_command_copies_into_a_folder_or_a_cluster(pair: Pair, tmp_path: Path) -> None:
    source(Copies(pair, None), LOG)
    folder = str(tmp_path / "copy")
    arguments = ["mirror", "--from", pair.addresses[0], "--topics", "topic", "--yes"]
    explained = command(*arguments, "--to", folder, "--explain")
    assert explained.stdout == (
        "topic: identical: offsets and bytes stay as they are; 1 partition, to be created at the target; exactly once\n"
    )
    assert not Path(folder).exists()
    done = command(*arguments, "--to", folder, "--until-caught-up")
    assert done.exit_code == 0, done.stderr
    copied, said = done.stdout.splitlines()
    assert re.fullmatch(r"topic: [\d.]+ KiB closed in 12 sets, 0 B opened in 0, .*, 0 offsets behind", copied)
    batches = [log for log in LOG if log[16] == 2 and not log[22] & 0x20]
    records = 3 + sum(int.from_bytes(batch[57:61], "big") for batch in batches)  # 3: the messages without a wrapper
    assert said == f"copied: {records} records and those of 2 compressed sets of 1 topic"
    assert logs(tmp_path / "copy") == b"".join(LOG)
    assert command(*arguments, "--to", pair.addresses[1], "--identical", "--until-caught-up").exit_code == 0
    assert pair.run(lambda _, there: stored_bytes(there)) == b"".join(LOG)


def test_it_runs_until_it_is_stopped(pair: Pair, tmp_path: Path) -> None:
    source(Copies(pair, None), LOG[:5])

    async def work(here: Client, _: Client) -> None:
        with LogTarget(tmp_path / "copy") as target:
            mirror = IdenticalMirror(here, target, CHOICE)
            running = asyncio.create_task(mirror.run())
            await until(lambda: logs(tmp_path / "copy") == b"".join(LOG[:5]))
            await fill(here, LOG[5:])
            await until(lambda: logs(tmp_path / "copy") == b"".join(LOG))
            mirror.stop.set()
            await running

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    pair.run(work)
