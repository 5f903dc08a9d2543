"""Processes of a rescue that are killed, and run again: nothing comes twice, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

import golden_data
from builders import base64_text
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.source import Source
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.directory import discover
from magicbyte.testing import Broker
from magicbyte.tools.mirror.log_source import LogSource
from magicbyte.tools.rescue import rescue as steps
from tools.mirror.pair import CrashError
from tools.rescue.builders import OLD, backup_of, no_steps, receipt_of
from tools.rescue.old_backups import Row
from tools.rescue.rescue_kills import READ, Campaign, Records

SEED = 24


async def rows_of(source: Source, topics: Iterable[str]) -> Records:
    """Return what a consumer of committed records gets of topics."""
    found: Records = {}
    for topic in topics:
        ends = await bounds(source, topic, 0)
        found[topic] = [
            Row(
                each.offset,
                each.timestamp,
                base64_text(each.key),
                base64_text(each.value),
                tuple(
                    cell for name, value in each.headers for cell in (base64_text(name.encode()), base64_text(value))
                ),
            )
            async for part in read_records(source, topic, 0, *ends, FetchOptions(committed=True))
            for each in part
        ]
    return found


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.campaign])])
def test_a_killed_rescue_into_a_directory_continues_and_the_directory_is_whole(kills: int, tmp_path: Path) -> None:
    def target(number: int) -> str:
        return str(tmp_path / f"out-{number}")

    def judge(number: int, topics: Iterable[str]) -> Records:
        return asyncio.run(rows_of(LogSource(discover([target(number)])), topics))

    found = Campaign(tmp_path, SEED, target, judge, numbered=False).run(kills)
    assert found.killed == kills
    assert found.wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, pytest.param(10, marks=pytest.mark.campaign)])
def test_a_killed_rescue_into_a_cluster_continues_without_duplicates(kills: int, tmp_path: Path) -> None:
    with Broker() as broker:

        def judge(_: int, topics: Iterable[str]) -> Records:
            async def work() -> Records:
                async with Client(broker.bootstrap_servers) as client:
                    await client.topics()
                    return await rows_of(client, topics)

            return asyncio.run(work())

        def done(_: int) -> None:  # the topic of the group, whose name is the same in each round
            async def work() -> None:
                async with Client(broker.bootstrap_servers) as client:
                    await client.topics()
                    await admin.delete_topic(client, golden_data.log_case(READ).topic)

            asyncio.run(work())

        found = Campaign(tmp_path, SEED, lambda _: broker.bootstrap_servers, judge, done).run(kills)
    assert found.killed == kills
    assert found.wrong == {}


@pytest.mark.parametrize("at", ["sync_directory", "rmtree"])
def test_killed_when_the_directory_has_its_name_it_ends_the_work_and_the_receipt_is_the_same(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, out, work = backup_of(OLD, tmp_path / "backup"), tmp_path / "out", tmp_path / "work"
    undisturbed = receipt_of(backup, "--to", tmp_path / "other", status=1)

    def dies(*_: object, **__: object) -> None:
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(shutil if at == "rmtree" else steps, at, dies)
        with pytest.raises(CrashError):
            steps.rescue_into(backup, out, work, steps.RescueOptions(no_steps))
    assert out.exists()
    assert receipt_of(backup, "--to", out, "--work", work, status=1) == undisturbed | {"to": str(out)}
    assert not work.exists()
    assert not list(out.glob("*.jsonl"))
    assert run("rescue", backup, "--to", out, "--work", work).exit_code == 2  # a directory in use, from here on


@pytest.mark.parametrize("removal", [1, 2, "folder"])
def test_killed_while_its_work_is_removed_it_is_run_again_and_nothing_comes_twice(
    removal: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, work = backup_of(OLD, tmp_path / "backup"), tmp_path / "work"
    remove, left = shutil.rmtree, [removal if isinstance(removal, int) else 0]

    def dies_at_the_folder(_: Path) -> None:
        raise CrashError

    def dies(path: Path) -> None:
        left[0] -= 1
        if left[0]:
            return remove(path)
        for each in [each for each in sorted(path.rglob("*")) if each.is_file() and each.name != steps.STATE][:-1]:
            each.unlink()
        raise CrashError

    with Broker() as broker:
        arguments = (backup, "--to", broker.bootstrap_servers, "--work", work)
        target = steps.ClusterTarget(broker.bootstrap_servers, lambda: Client(broker.bootstrap_servers))
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", dies)
            if removal == "folder":
                patch.setattr(Path, "rmdir", dies_at_the_folder)
            with pytest.raises(CrashError):
                steps.rescue_into(backup, target, work, steps.RescueOptions(no_steps))
        again = receipt_of(*arguments, status=1)
        assert again == receipt_of(*arguments, status=1)
    assert not work.exists()


def test_a_rescue_that_fails_early_removes_its_own_files_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, work = backup_of(OLD, tmp_path / "backup"), tmp_path / "work"
    notes = work / "notes.txt"

    def refuses(*_: object, **__: object) -> None:
        notes.write_text("of another program")
        raise LogDirectoryError("the backup cannot be opened")

    monkeypatch.setattr(steps, "open_backup", refuses)
    with pytest.raises(LogDirectoryError, match="cannot be opened"):
        steps.rescue_into(backup, tmp_path / "out", work, steps.RescueOptions(no_steps))
    assert [each.name for each in work.iterdir()] == [notes.name]
    notes.unlink()
    monkeypatch.setattr(shutil, "rmtree", lambda _: pytest.fail("nothing was made that needs it"))
    with pytest.raises(LogDirectoryError, match="cannot be opened"):
        steps.rescue_into(backup, tmp_path / "out", work, steps.RescueOptions(no_steps))


def test_killed_while_it_removes_what_an_early_failure_left_a_rescue_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, work = packed(backup_of(OLD, tmp_path / "backup")), tmp_path / "work"

    def refuses(*_: object, **__: object) -> None:
        raise LogDirectoryError("the backup cannot be opened")

    def dies(path: Path) -> None:
        for each in sorted(path.rglob("*.log")):
            each.unlink()
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(steps, "open_backup", refuses)
        patch.setattr(shutil, "rmtree", dies)
        with pytest.raises(CrashError):
            steps.rescue_into(backup, tmp_path / "out", work, steps.RescueOptions(no_steps))
    found = steps.rescue_into(backup, tmp_path / "out", work, steps.RescueOptions(no_steps))
    assert found.to_json()["to"] == str(tmp_path / "out")
    assert not work.exists()


def packed(folder: Path) -> Path:
    return Path(shutil.make_archive(str(folder), "gztar", folder))
