"""Log directories as the source of `magicbyte mirror`."""

import asyncio
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import golden_data
from builders import contents
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.testing import Broker
from tools.mirror.pair import Seen, records

OLD = ("0.8.2.2/basic-gzip", "0.10.2.2/basic-lz4", "0.11.0.3/txn-none")
END = f"{0:020}.log"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in OLD:
        case = golden_data.log_case(name)
        shutil.copytree(case.partition_dir(), tmp_path / "logs" / f"{case.topic}-0")
    return tmp_path / "logs"


def seen(broker: Broker, topic: str) -> Seen:
    async def work() -> Seen:
        async with Client(broker.bootstrap_servers) as client:
            return await records(client, topic)

    return asyncio.run(work())


def test_old_logs_are_copied_once_and_only_read(broker: Broker, logs: Path) -> None:
    before = contents(logs)
    arguments = ["mirror", "--from", logs, "--to", broker.bootstrap_servers, "--topics", ".*", "--yes"]
    explained = run(*arguments, "--explain")
    assert (explained.exit_code, len(explained.stdout.splitlines())) == (0, len(OLD))
    for _ in range(2):
        done = run(*arguments)
        assert done.exit_code == 0, done.stderr
        for name in OLD:
            assert [each[3] for each in seen(broker, golden_data.log_case(name).topic)] == golden_data.values(name)
    assert contents(logs) == before

    async def retention() -> str | None:
        async with Client(broker.bootstrap_servers) as client:
            await client.topics()
            return (await admin.describe_configs(client, admin.ConfigResource.TOPIC, "txn-none"))["retention.ms"].value

    assert asyncio.run(retention()) == "-1"


def test_a_directory_goes_into_another_one_byte_for_byte(logs: Path, tmp_path: Path) -> None:
    done = run("mirror", "--from", logs, "--to", tmp_path / "copy", "--topics", ".*")
    assert done.exit_code == 0, done.stderr
    assert run("diff", logs, tmp_path / "copy").exit_code == 0
    inside = run("mirror", "--from", logs, "--to", logs / "copy", "--topics", ".*")
    assert (inside.exit_code, (logs / "copy").exists()) == (2, False)


def test_another_directory_does_not_continue_where_one_has_ended(broker: Broker, logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs, tmp_path / "other")
    for folder, status in ((logs, 0), (tmp_path / "other", 2)):
        done = run("mirror", "--from", folder, "--to", broker.bootstrap_servers, "--topics", "basic-.*", "--yes")
        assert done.exit_code == status, done.stderr
    assert "mirrors cluster directory" in done.stderr
    for each in (logs, tmp_path / "other"):  # of one cluster, they are one source
        (each / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=abc\n")
        done = run("mirror", "--from", each, "--to", broker.bootstrap_servers, "--topics", "txn.*", "--yes")
        assert done.exit_code == 0, done.stderr
    assert [each[3] for each in seen(broker, "txn-none")] == golden_data.values("0.11.0.3/txn-none")


def test_what_cannot_be_copied_is_said_in_one_line(broker: Broker, logs: Path, tmp_path: Path) -> None:
    to = ["--to", broker.bootstrap_servers, "--topics", ".*", "--yes"]
    for arguments, said in (
        (["--from", logs, "--sync-groups"], "magicbyte rescue"),
        (["--from", tmp_path / "nothing"], "nothing"),
        (["--from", "logs"], "./logs"),
    ):
        done = run("mirror", *arguments, *to)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
        assert done.stderr.count("\n") == 1
    (logs / "basic-lz4-0/message.dialect").write_text("version=0\ndialect=enriched\n")
    assert re.search("enriched|message.dialect", run("mirror", "--from", logs, *to).stderr)
    (logs / "basic-lz4-0/message.dialect").unlink()
    path = logs / "basic-gzip-0" / END
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    done = run("mirror", "--from", logs, *to)
    assert (done.exit_code, "crc" in done.stderr, "basic-gzip-0" in done.stderr) == (1, True, True), done.stderr
