"""The commands and the Python of the documents run as printed; their links lead somewhere."""

import asyncio
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.command import run
from magicbyte.cli.main import main
from magicbyte.client import Client, admin
from magicbyte.client.groups import Committed, commit_offsets
from magicbyte.client.produce import send
from magicbyte.records.columns import Record
from magicbyte.testing import Broker

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the README are typed: `tour/logs` is there, as its first one makes it."""
    path = tmp_path_factory.mktemp("readme")
    assert run("tour", "--unpack", path / "tour").exit_code == 0
    return path


def test_the_commands_of_the_readme_work_as_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = [line for block in blocks(README, "sh") for line in block.splitlines()]
    assert len(commands) > 5
    for line in commands[1:]:  # the first one made the folder
        program, *arguments = shlex.split(line)
        assert program == "magicbyte"
        result = run(*arguments)
        assert result.exit_code == (1 if set(arguments) >= {"inventory", "--deep"} else 0), (line, result.stderr)
        assert result.stdout or "-o" in arguments, line


def test_the_python_of_the_readme_works_as_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (script,) = blocks(README, "python")
    exec(compile(script, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("34 1480000030000 b'key-003'")


@pytest.mark.parametrize(
    "page", ["convert.md", "diff.md", "rebuild-index.md", "verify.md", "salvage.md", "retain.md", "compact.md"]
)
def test_the_commands_and_the_python_of_a_page_work_as_printed(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for line in (line for block in blocks(text, "sh") for line in block.splitlines()):
        command, _, remark = line.partition("#")
        result = run(*shlex.split(command)[1:])
        assert result.exit_code == ("status 1" in remark), (line, result.stderr)
    (script,) = blocks(text, "python")
    exec(compile(script, page, "exec"), {})


ADDRESS = re.compile(r"\b(localhost|old|new|broker-\d):9092(,broker-\d:9092)*")
LOGS = "/var/kafka-logs"
OLD_AND_NEW = [Record(0, time, 0, b"key", b"value") for time in (1_700_000_000_000, 1_706_700_000_000)]  # 2023, 2024


async def make_orders(address: str) -> None:
    """Make what the pages speak of: the topic `orders`, and the group `readers`, which has read a part of it."""
    async with Client(address) as client:
        await admin.create_topic(client, admin.NewTopic("orders", 3))
        for partition in range(3):
            await send(client, "orders", partition, OLD_AND_NEW * 60)
        await commit_offsets(client, "readers", {("orders", partition): Committed(5) for partition in range(3)})


@pytest.mark.parametrize(
    "page", ["topics.md", "consume.md", "produce.md", "consumer-groups.md", "configs.md", "diff.md", "inventory.md"]
)
def test_the_commands_of_a_page_that_need_a_broker_work_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our broker is where the page has an address, its directory is the page's, and what would wait for ever ends."""
    monkeypatch.chdir(tmp_path)
    Path("lines").write_text("key:value\n")
    with Broker(directory=tmp_path / "logs") as broker:
        address = broker.bootstrap_servers
        if page != "topics.md":  # which makes the topic itself
            asyncio.run(make_orders(address))
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        lines = [line for block in blocks(text, "console") for line in block.splitlines()]
        assert lines
        for line in lines:
            before, _, command = line.partition("#")[0].rpartition(" | ")
            command, _, source = ADDRESS.sub(address, command).replace(LOGS, str(tmp_path / "logs")).partition(" < ")
            given = subprocess.run(["sh", "-c", before], capture_output=True, check=True).stdout if before else b""
            given += Path(source.strip()).read_bytes() if source else b""
            arguments = shlex.split(command)[1:] + (["-c", "1"] if "until Ctrl-C" in line else [])
            result = CliRunner().invoke(main, arguments, input=given)
            assert (result.exit_code, result.stderr) == (0, ""), line
            assert result.stdout_bytes or not DATA.search(line) or "-o orders" in line, line


DATA = re.compile(r"magicbyte (consume|cat|inventory|diff|\w+ (list|describe))")


def test_the_readme_begins_with_the_two_commands() -> None:
    assert [line.split("#")[0].strip() for line in blocks(README, "sh no-run")[0].splitlines()] == [
        "./magicbyte tour",
        "./test",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
