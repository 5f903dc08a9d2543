"""What a reader types of the pages of `docs/`: in a folder where only what the page names, or makes, is."""

import ast
import asyncio
import re
import shlex
import subprocess
from collections.abc import Iterator
from inspect import iscoroutine
from pathlib import Path
from typing import NamedTuple, cast

import click

from magicbyte.access.client import Client, admin
from magicbyte.access.client.groups import Committed, commit_offsets
from magicbyte.access.client.produce import send
from magicbyte.cli.main import main
from magicbyte.engine.records.columns import Record

ROOT = Path(__file__).parent.parent
OFFLINE = (
    "commands/cat.md", "commands/dump.md", "commands/tour.md", "commands/convert.md", "commands/diff.md",
    "commands/rebuild-index.md", "commands/verify.md", "commands/salvage.md",
    "commands/rescue.md", "commands/retain.md", "commands/space.md", "commands/doctor.md",
    "commands/compact.md", "commands/completion.md",
    "commands/schema.md",
    "python/api.md", "python/checker.md",
)  # fmt: skip
"""Pages whose blocks of `sh` and `python` are typed where `tour/logs` is."""


class Typed(NamedTuple):
    """A command of a page, without the name of the program, and its exit status."""

    words: list[str]
    status: int


def blocks(text: str, kind: str) -> list[str]:
    """Return the content of the blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    """Return the text of a page of `docs/`."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


class EvidenceRow(NamedTuple):
    """A row of a table *Evidence*: without the evidence, the command draws not the conclusion, but the other one."""

    command: str
    conclusion: str
    evidence: str
    without: str
    status: int


def evidence(*names: str) -> list[EvidenceRow]:
    """Return the rows of the tables *Evidence* of pages in `docs/commands`. Where they name no command it is ""."""
    rows = []
    for name in names:
        (table,) = re.findall(
            r"^## Evidence$.*?^\|[-|]+\|$\n((?:\|[^\n]*\n)+)", page(f"commands/{name}"), re.MULTILINE | re.DOTALL
        )
        for line in table.splitlines():
            *command, conclusion, seen, without, status = (
                cell.strip().replace("`", "") for cell in line.strip("|").split("|")
            )
            rows.append(EvidenceRow("".join(command), conclusion, seen, without, int(status)))
    return rows


def commands_of(text: str) -> Iterator[Typed]:
    """Yield the commands of the blocks of `sh`. Lines of a shell are run as they are reached."""
    for line in (line for block in blocks(text, "sh") for line in block.splitlines()):
        if line.startswith("echo "):
            subprocess.run(["sh", "-c", line], check=True)
            continue
        command, _, remark = line.partition("#")
        if command.strip() and "--unpack" not in command:  # what this makes is there
            yield Typed(shlex.split(command)[1:], int("status 1" in remark))


def run_python(script: str, page: str, names: dict[str, object] | None = None) -> None:
    """Run a block as it stands, with an event loop if it awaits something."""
    code = compile(script, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, {} if names is None else names)
    if iscoroutine(found):
        asyncio.run(found)


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Return every command that does something, by the words that call it."""
    if not isinstance(command, click.Group):
        return {path: command}
    names = command.list_commands(click.Context(command))
    found = {} if path == () or command.params == [] else {path: cast("click.Command", command)}
    for name in names:
        each = command.get_command(click.Context(command), name)
        if each is not None and not each.hidden:
            found |= leaves(each, (*path, name))
    return found


LEAVES = leaves(main)


OLD_AND_NEW = [Record(0, time, 0, b"key", b"value") for time in (1_700_000_000_000, 1_706_700_000_000)]  # 2023, 2024


async def make_orders(address: str, group: str = "readers") -> None:
    """Make what the pages speak of: the topic `orders`, and a group, which has read a part of it."""
    async with Client(address) as client:
        await admin.create_topic(client, admin.NewTopic("orders", 3))
        for partition in range(3):
            await send(client, "orders", partition, OLD_AND_NEW * 60)
        await commit_offsets(client, group, {("orders", partition): Committed(5) for partition in range(3)})
