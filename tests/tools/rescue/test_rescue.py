"""Old backups into our brokers and into directories: all whole records, once, whatever interrupts it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_data
from builders import contents, unbase64
from cli.command import run
from engine.log.made_sets import resealed
from magicbyte.access.client import Client, admin
from magicbyte.access.client.groups import committed_offsets
from magicbyte.access.client.produce import send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.offline import writer as writing
from magicbyte.tools.rescue import produce as producing
from magicbyte.tools.rescue import rescue as steps
from tools.mirror.pair import CrashError, Seen, dies, records
from tools.mirror.sets import some, stored
from tools.rescue.builders import OLD, backup_of, by_partition, no_steps, receipt_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


def seen(broker: Broker, topic: str, partition: int = 0) -> Seen:
    async def work() -> Seen:
        async with Client(broker.bootstrap_servers) as client:
            return await records(client, topic, partition)

    return asyncio.run(work())


def expected(name: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return what a consumer of committed records got of the real broker: keys and values."""
    case = golden_data.log_case(name)
    lines = case.committed() if case.has_committed else case.records()
    return [(unbase64(each["key"]), unbase64(each["value"])) for each in lines]


def cells(found: Seen) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, value) for _, _, key, value in found]


def rescue(backup: Path, broker: Broker, work: Path) -> int:
    return run("rescue", backup, "--to", broker.bootstrap_servers, "--work", work).exit_code


def test_old_logs_come_into_a_cluster_record_by_record_and_the_receipt_says_so(broker: Broker, tmp_path: Path) -> None:
    backup = backup_of(OLD, tmp_path / "backup")
    before = contents(backup)
    receipt = receipt_of(backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work", status=1)
    assert contents(backup) == before
    assert not (tmp_path / "work").exists()
    found = by_partition(receipt)
    assert len(found) == len(OLD)
    for name in OLD:
        case = golden_data.log_case(name)
        said = found[f"{case.topic}-{case.partition}"]
        arrived = cells(seen(broker, case.topic))
        assert said["records"] == said["atTarget"]["records"] == len(arrived)
        assert said["digest"] == said["atTarget"]["digest"]
        assert said["same"]
        if case.has_records:
            assert arrived == expected(name)
            assert said["lost"] == []
    flipped = found["crash-flip-0"]
    recovered = expected("0.10.2.2/crash-flip.recovered")  # the broker gave up all from the damage on
    assert cells(seen(broker, "crash-flip"))[: len(recovered)] == recovered
    assert [(each["path"][-24:], each["position"]) for each in flipped["lost"]] == [(f"{43:020}.log", 2728)]
    assert not receipt["complete"]


@pytest.mark.parametrize("name", ["0.10.0.1/logappend-lz4", "0.11.0.3/logappend-lz4", "0.11.0.3/logappend-none"])
def test_records_keep_the_time_of_the_append(name: str, broker: Broker, tmp_path: Path) -> None:
    case = golden_data.log_case(name)
    backup = backup_of((name,), tmp_path / "backup")
    assert rescue(backup, broker, tmp_path / "work") == 0
    arrived = seen(broker, case.topic)
    assert [timestamp for _, timestamp, _, _ in arrived] == [each["timestamp"] for each in case.records()]
    assert cells(arrived) == expected(name)


def test_a_rescue_that_is_done_is_not_done_again(broker: Broker, tmp_path: Path) -> None:
    backup = backup_of(OLD[:3], tmp_path / "backup")
    assert rescue(backup, broker, tmp_path / "work") == 0
    before = [seen(broker, golden_data.log_case(name).topic) for name in OLD[:3]]
    moved = tmp_path / "elsewhere"
    backup.rename(moved)
    assert rescue(moved, broker, tmp_path / "work") == 0
    assert [seen(broker, golden_data.log_case(name).topic) for name in OLD[:3]] == before


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_killed_while_it_produces_and_run_again_nothing_comes_twice(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, *, arrives: bool
) -> None:
    backup, work = backup_of(OLD, tmp_path / "backup"), tmp_path / "work"

    def once() -> None:
        steps.rescue_into(backup, target(broker), work, steps.RescueOptions(no_steps))

    assert dies(once, monkeypatch, at, arrives=arrives)
    assert (work / steps.CONVERTED).exists()
    assert rescue(backup, broker, work) == 1
    for name in OLD:
        case = golden_data.log_case(name)
        if case.has_records:
            assert cells(seen(broker, case.topic)) == expected(name)
    assert not work.exists()


def target(broker: Broker) -> steps.ClusterTarget:
    return steps.ClusterTarget(broker.bootstrap_servers, lambda: Client(broker.bootstrap_servers, retry_ms=2000))


def failing_at(at: int) -> Callable[[writing.PartitionWriter, bytes], None]:
    """Return what appends to a log, and ends the process at its call of this number."""
    appended, calls = writing.PartitionWriter.append, []

    def append(self: writing.PartitionWriter, data: bytes) -> None:
        calls.append(1)
        if len(calls) == at:
            raise CrashError
        appended(self, data)

    return append


def test_after_a_kill_it_continues_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = backup_of(OLD, tmp_path / "backup")
    receipt_of(backup, "--to", tmp_path / "whole", status=1)
    out = tmp_path / "out"
    for at in range(1, 40, 3):
        with monkeypatch.context() as patch:
            patch.setattr(writing.PartitionWriter, "append", failing_at(at))
            try:
                steps.rescue_into(backup, out, tmp_path / "work", steps.RescueOptions(no_steps))
            except CrashError:
                assert not out.exists()
            else:
                break
    else:
        assert run("rescue", backup, "--to", out, "--work", tmp_path / "work").exit_code == 1
    assert contents(out) == contents(tmp_path / "whole")


def test_after_a_kill_before_the_rename_of_the_directory_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, out = backup_of(OLD[:1], tmp_path / "backup"), tmp_path / "out"

    renamed = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if target == out:
            raise CrashError
        return renamed(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(CrashError):
            steps.rescue_into(backup, out, tmp_path / "work", steps.RescueOptions(no_steps))
    assert not out.exists()
    assert receipt_of(backup, "--to", out, "--work", tmp_path / "work")["complete"]
    assert not list(out.glob("*.jsonl"))


def test_a_directory_is_one_that_a_broker_opens(tmp_path: Path) -> None:
    backup = backup_of(OLD, tmp_path / "backup")
    receipt = by_partition(receipt_of(backup, "--to", tmp_path / "out", status=1))
    assert run("verify", tmp_path / "out", "--deep").exit_code == 0
    assert not (tmp_path / "out.rescue").exists()
    with Broker(directory=tmp_path / "out") as broker:
        for name in OLD:
            case = golden_data.log_case(name)
            assert receipt[f"{case.topic}-0"]["same"]
            if case.has_records and not case.has_committed:
                assert cells(seen(broker, case.topic)) == expected(name)


def test_a_batch_that_cannot_be_decompressed_is_left_out_and_those_around_it_are_rescued(tmp_path: Path) -> None:
    batches = [stored(Format.V2, Codec.GZIP, 10 * number) for number in range(3)]
    junk = bytearray(batches[1])
    junk[-20:] = bytes(20)
    batches[1] = resealed(junk)  # the checksum is right: it was written so
    log = tmp_path / "backup/topic-0" / f"{0:020}.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(batches))
    receipt = receipt_of(tmp_path / "backup", "--to", tmp_path / "new", "--work", tmp_path / "work", status=1)
    (found,) = receipt["partitions"]
    assert (found["records"], found["error"]) == (20, None)
    assert [left_out["position"] for left_out in found["leftOut"]] == [len(batches[0])]


def test_a_folder_whose_name_no_topic_can_have_is_not_passed_off_as_rescued(tmp_path: Path) -> None:
    backup = backup_of(OLD[:1], tmp_path / "backup")
    (folder,) = backup.glob("*/basic-gzip-0")
    name = f"{250 * 't'}-0"
    shutil.copytree(folder, folder.with_name(name))
    receipt = receipt_of(backup, "--to", tmp_path / "out", status=1)
    assert name in receipt["leftOut"]
    assert not receipt["complete"]


def test_of_two_replicas_the_better_one_is_taken_and_it_is_said(broker: Broker, tmp_path: Path) -> None:
    case = golden_data.log_case("0.9.0.1/basic-none")
    for each in "abc":
        shutil.copytree(case.partition_dir(), tmp_path / "backup" / each / "logs" / "basic-none-0")
    damaged = max((tmp_path / "backup/a").rglob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-50])
    for each in (tmp_path / "backup/c").rglob("*.log"):
        data = bytearray(each.read_bytes())
        data[100] ^= 1
        each.write_bytes(data)
    receipt = receipt_of(tmp_path / "backup", "--to", broker.bootstrap_servers, "--work", tmp_path / "work")
    (found,) = receipt["partitions"]
    assert "/b/" in found["source"]
    assert sorted(Path(each["path"]).parts[-3] for each in found["replicas"]) == ["a", "c"]
    assert all(each["bytes"] < found["bytesWhole"] and each["why"] for each in found["replicas"])
    assert cells(seen(broker, "basic-none")) == expected("0.9.0.1/basic-none")


def test_groups_continue_at_their_offsets(broker: Broker, tmp_path: Path) -> None:
    backup = backup_of(("1.1.1/consumer-offsets", "0.8.2.2/basic-none"), tmp_path / "backup")
    receipt = receipt_of(backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work")
    (group,) = [each for each in receipt["groups"] if each["partition"] == "basic-none-0"]

    async def committed() -> int:
        async with Client(broker.bootstrap_servers) as client:
            await client.topics()
            found = await committed_offsets(client, group["group"], [("basic-none", 0)])
            return found["basic-none", 0].offset

    assert asyncio.run(committed()) == group["offset"] == group["atTarget"]
    in_directory = receipt_of(backup, "--to", tmp_path / "out")
    assert group["group"] in in_directory["groupsKept"]


def test_a_dry_run_writes_nothing(broker: Broker, tmp_path: Path) -> None:
    backup = backup_of(OLD, tmp_path / "backup")
    receipt = receipt_of(backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work", "--dry-run", status=1)
    assert receipt["dryRun"]
    assert len(receipt["plans"]) == len(OLD)
    assert [each["lost"] != [] for each in receipt["partitions"]].count(True) == 1
    assert list(tmp_path.iterdir()) == [backup]

    async def topics() -> list[str]:
        async with Client(broker.bootstrap_servers) as client:
            return list(await client.topics())

    assert asyncio.run(topics()) == []
    assert run("rescue", backup, "--to", tmp_path / "out", "--dry-run").exit_code == 1
    assert list(tmp_path.iterdir()) == [backup]


def test_topics_that_are_made_keep_what_is_old(broker: Broker, tmp_path: Path) -> None:
    assert rescue(backup_of(OLD[:1], tmp_path / "backup"), broker, tmp_path / "work") == 0

    async def settings() -> dict[str, str | None]:
        async with Client(broker.bootstrap_servers) as client:
            await client.topics()
            found = await admin.describe_configs(client, admin.ConfigResource.TOPIC, "basic-gzip")
            return {name: each.value for name, each in found.items()}

    found = asyncio.run(settings())
    assert (found["retention.ms"], found["cleanup.policy"]) == ("-1", "delete")


def prepared(broker: Broker, topic: str, partitions: int, configs: dict[str, str], records: int = 0) -> None:
    async def work() -> None:
        async with Client(broker.bootstrap_servers) as client:
            await client.topics()
            await admin.create_topic(client, admin.NewTopic(topic, partitions, configs=configs))
            if records:
                await send(client, topic, 0, some(0, records))

    asyncio.run(work())


@pytest.mark.parametrize(
    ("partitions", "configs", "held", "said"),
    [
        (2, {}, 0, "expected 1 partition at the target"),
        (1, {"retention.ms": "60000"}, 0, "retention.ms=-1"),
        (1, {}, 3, "the target holds records already"),
    ],
)
def test_a_target_that_would_not_keep_it_or_is_in_use_is_refused(
    broker: Broker, tmp_path: Path, partitions: int, configs: dict[str, str], held: int, said: str
) -> None:
    backup = backup_of(("0.10.2.2/basic-gzip",), tmp_path / "backup")
    prepared(broker, "basic-gzip", partitions, configs, held)
    result = run("rescue", backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(seen(broker, "basic-gzip")) == held


def test_another_backup_of_the_same_topic_is_refused(broker: Broker, tmp_path: Path) -> None:
    assert rescue(backup_of(("0.10.2.2/basic-gzip",), tmp_path / "a"), broker, tmp_path / "work") == 0
    before = seen(broker, "basic-gzip")
    assert rescue(backup_of(("0.11.0.3/basic-gzip",), tmp_path / "b"), broker, tmp_path / "work") == 2
    assert seen(broker, "basic-gzip") == before


def test_what_the_target_holds_between_is_noticed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, copy = backup_of(("0.10.2.2/basic-gzip",), tmp_path / "backup"), Mirror.catch_up
    prepared(broker, "basic-gzip", 1, {})

    async def with_another(mirror: Mirror) -> None:
        await copy(mirror)
        monkeypatch.setattr(producing, "records_seen", lambda *given, **named: spoiled(*given, **named))

    sight = producing.records_seen

    async def spoiled(*given: object, **named: object) -> object:
        found = await sight(*given, **named)  # type: ignore[arg-type]  # passed on
        found.digest = found.digest._replace(body=0)
        return found

    monkeypatch.setattr(Mirror, "catch_up", with_another)
    receipt = receipt_of(backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "work", status=1)
    assert not receipt["partitions"][0]["same"]
    assert not receipt["complete"]


def test_an_error_is_one_line(tmp_path: Path) -> None:
    backup = backup_of(OLD[:1], tmp_path / "backup")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "text.txt").touch()
    (tmp_path / "empty").mkdir()
    for given, target_, said in (
        (backup, tmp_path / "full", "a new directory"),
        (backup, backup / "inside", "inside"),
        (backup, "localhost:1", "localhost:1"),
        (backup, "rescued", "./rescued"),
        (tmp_path / "text.txt", tmp_path / "out", ".tar.gz"),
        (tmp_path / "empty", tmp_path / "out", "found none"),
    ):
        result = run("rescue", given, "--to", target_, "--work", tmp_path / "work")
        assert result.exit_code == 2, said
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "work").exists(), said
    result = run("rescue", backup, "--to", tmp_path / "out", "--topic", "nope")
    assert result.exit_code == 2
    assert "nope" in result.stderr


def test_the_current_folder_can_be_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = backup_of(OLD[:1], tmp_path / "backup")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert receipt_of(backup, "--to", ".")["complete"]
    assert "basic-gzip-0" in [each.name for each in (tmp_path / "here").iterdir()]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["backup", "here"]


def test_a_working_folder_that_cannot_become_the_target_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = backup_of(OLD[:1], tmp_path / "backup")
    elsewhere, real = tmp_path / "elsewhere", Path.stat
    elsewhere.mkdir()

    def stat(path: Path, **how: Any) -> os.stat_result:
        mode, inode, device, *others = real(path, **how)
        return os.stat_result((mode, inode, device + path.is_relative_to(elsewhere), *others))

    monkeypatch.setattr(Path, "stat", stat)
    result = run("rescue", backup, "--to", tmp_path / "out", "--work", tmp_path / "elsewhere/work")
    assert (result.exit_code, "file system" in result.stderr) == (2, True)
    assert sorted(tmp_path.rglob("*")) == [backup, *sorted(backup.rglob("*")), elsewhere]


def test_a_working_folder_of_another_rescue_is_refused(tmp_path: Path) -> None:
    backup, work = backup_of(OLD[:1], tmp_path / "backup"), tmp_path / "work"
    work.mkdir()
    (work / "mine.txt").touch()
    result = run("rescue", backup, "--to", tmp_path / "out", "--work", work)
    assert (result.exit_code, "mine.txt" in result.stderr) == (2, True)
    (work / "mine.txt").unlink()
    (work / steps.STATE).write_text("{}")
    result = run("rescue", backup, "--to", tmp_path / "out", "--work", work)
    assert (result.exit_code, "another rescue" in result.stderr) == (2, True)
    assert [each.name for each in work.iterdir() if each.name != steps.LOCK] == [steps.STATE]


EVERY_OLD = [
    case for case in golden_data.all_log_cases() if case.version.startswith("0.") and not case.topic.startswith("__")
]


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(EVERY_OLD))
def test_every_old_log_comes_out_whole(case: golden_data.Case, tmp_path: Path) -> None:
    backup = backup_of((case.id,), tmp_path / "backup")
    result = run("rescue", backup, "--to", tmp_path / "out", "--json")
    (found,) = json.loads(result.stdout)["partitions"]
    assert found["error"] is None
    assert run("verify", tmp_path / "out", "--deep").exit_code == 0
    if case.has_records:
        assert found["lost"] == found["leftOut"] == []
        delivered = len(case.committed() if case.has_committed else case.records())
        # What an open transaction held back is given once it is ended.
        assert found["records"] > delivered if "open" in case.topic else found["records"] == delivered
        assert result.exit_code == 0
