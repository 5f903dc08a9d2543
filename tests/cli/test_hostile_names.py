"""What brokers, clients and files call themselves is shown as text: it moves no cursor and makes no line of its own."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from msgspec import Struct

import magicbyte.access.client.connection as connection
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.groups import Committed, commit_offsets
from magicbyte.access.client.produce import send
from magicbyte.access.net.exposition import gauge
from magicbyte.access.net.stream import SocketStream
from magicbyte.cli.logs import JsonFormatter, TextFormatter
from magicbyte.cli.mirror_display import table
from magicbyte.cli.output import binary_output
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

SOURCES = Path(__file__).resolve().parents[2] / "src" / "magicbyte"
HOSTILE = "\x1b[2J\x07\r\nFORGED line\x08\u202e\x9b31m\x7f\u2028FORGED"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
STRUCTURAL = {"name", "topic_name", "topic", "host"}  # by which a client finds what it asked for, in some answers
COMMANDS: dict[str, tuple[str, ...]] = {
    "topics list": ("topics", "list", "-b", "B"),
    "topics describe": ("topics", "describe", "-b", "B", "orders"),
    "groups list": ("groups", "list", "-b", "B"),
    "groups describe": ("groups", "describe", "-b", "B", "--all-groups"),
    "groups reset": ("groups", "reset-offsets", "-b", "B", "readers", "--topic", "orders", "--to-earliest"),
    "configs of a topic": ("configs", "describe", "-b", "B", "--topic", "orders", "--all"),
    "configs of a broker": ("configs", "describe", "-b", "B", "--broker", "0", "--all"),
    "cat": ("cat", "kafka://B/orders"),
    "inventory": ("inventory", "kafka://B/orders"),
    "consume": ("consume", "-b", "B", "-t", "orders", "-e", "-J"),
    "mirror": ("mirror", "--from", "B", "--to", "C", "--topics", "orders", "--prefix", "x.", "--explain"),
}
Path_ = tuple[str, str]  # class and field


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    async def work(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders"))
            await send(client, "orders", 0, [Record(0, 1, 0, b"key", b"value")])
            await commit_offsets(client, "readers", {("orders", 0): Committed(1)})

    with Broker() as broker, Broker() as other:
        asyncio.run(work(broker.bootstrap_servers))
        yield f"{broker.bootstrap_servers} {other.bootstrap_servers}"


def poisoned(found: Any, choose: Callable[[Path_], bool]) -> Any:
    """Put what is hostile behind the texts of an answer that are chosen."""
    if isinstance(found, list | tuple):
        return type(found)(poisoned(each, choose) for each in found)
    if isinstance(found, Struct):
        for name in found.__struct_fields__:
            value = getattr(found, name)
            if isinstance(value, str | None) and "str" in type(found).__annotations__[name]:
                if choose((type(found).__name__, name)):
                    setattr(found, name, (value or "") + HOSTILE)
            else:
                setattr(found, name, poisoned(value, choose))
    return found


def arguments(command: str, brokers: str) -> list[str]:
    one, other = brokers.split()
    return [each.replace("B", one).replace("C", other) for each in COMMANDS[command]]


def asked(
    bootstrap: str, command: str, monkeypatch: pytest.MonkeyPatch, choose: Callable[[Path_], bool]
) -> tuple[Result, set[Path_]]:
    """Run a command with answers of which some texts are hostile; return all texts that came, too."""
    read, seen = connection.read_response, set[Path_]()

    def changed(*arguments: Any) -> Any:
        header, found = read(*arguments)

        def noted(path: Path_) -> bool:
            seen.add(path)
            return choose(path)

        return header, poisoned(found, noted)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", changed)
        return run(*arguments(command, bootstrap)), seen


def check(result: Result, what: object) -> None:
    for text in (result.stdout, result.stderr):
        assert UNSAFE.search(text) is None, (what, text)
        assert not [line for line in text.split("\n") if line.lstrip().startswith("FORGED")], (what, text)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_text_of_an_answer_reaches_the_terminal_as_it_is(
    command: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, seen = asked(bootstrap, command, monkeypatch, lambda _: False)
    assert result.exit_code in (0, 1), result.stderr
    assert seen
    check(asked(bootstrap, command, monkeypatch, lambda path: path[1] not in STRUCTURAL)[0], "all")
    check(asked(bootstrap, command, monkeypatch, lambda path: path[1] != "host")[0], "names, too")
    assert Client.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "retry_ms", 1)  # a host that is none is tried again and again
    check(asked(bootstrap, command, monkeypatch, lambda path: path[1] == "host")[0], "hosts")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_single_text_of_an_answer_reaches_the_terminal_as_it_is(
    command: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, seen = asked(bootstrap, command, monkeypatch, lambda _: False)
    assert Client.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Client.__init__.__kwdefaults__, "retry_ms", 1)  # a host that is none is tried again and again
    for chosen in sorted(seen):
        check(asked(bootstrap, command, monkeypatch, lambda path, chosen=chosen: path == chosen)[0], chosen)


def test_a_groups_hostile_name_is_shown_and_makes_no_line(bootstrap: str) -> None:
    async def work() -> None:
        async with Client(bootstrap.split()[0]) as client:
            await commit_offsets(client, f"evil{HOSTILE}", {("orders", 0): Committed(1)})

    asyncio.run(work())
    for command in ("groups list", "groups describe"):
        result = run(*arguments(command, bootstrap))
        check(result, command)
        assert "evil\\x1b[2J\\x07\\r\\nFORGED line" in result.stdout
        as_json = run(*arguments(command, bootstrap), "--format", "json")
        check(as_json, command)
        assert f"evil{HOSTILE}" in [each["group"] for each in json.loads(as_json.stdout)]


class _Tty(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_bytes_of_records_are_escaped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{HOSTILE}\n".encode()
    for kind, expected in ((_Tty, None), (io.TextIOWrapper, data)):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", kind(written, encoding="utf-8"))
        with binary_output(None) as stream:
            stream.write(data)
        if expected is None:
            assert UNSAFE.search(written.getvalue().decode()) is None
        else:
            assert written.getvalue() == expected


def test_lines_of_the_log_are_one_line_each_whatever_is_in_them() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, "", 0, "client %s", (HOSTILE,), sys.exc_info())
    text = TextFormatter("%(levelname)s %(message)s").format(record)
    first, *others = text.split("\n")
    assert first.startswith("ERROR client \\x1b[2J\\x07\\r\\nFORGED")
    assert all(each.startswith("    ") for each in others)
    assert UNSAFE.search(text) is None
    line = JsonFormatter().format(record)
    assert UNSAFE.search(line) is None
    assert "\n" not in line
    assert json.loads(line)["message"] == f"client {HOSTILE}"


def test_labels_of_metrics_and_names_in_tables_are_text() -> None:
    family = gauge("name", "help")
    family.add(1, client=HOSTILE)
    assert UNSAFE.search(family.samples[0][1]["client"]) is None
    (cell, *_) = table([[f"[red]{HOSTILE}", *["1"] * 5]], 200).columns[0].cells
    assert UNSAFE.search(str(cell)) is None
    assert str(cell).startswith("[red]\\x1b")


@pytest.mark.parametrize(("host", "port"), [(f"evil{HOSTILE}", 9092), ("127.0.0.1", -1), ("127.0.0.1", 1 << 20)])
def test_an_address_that_none_can_be_is_an_error_of_the_network(host: str, port: int) -> None:
    with pytest.raises(NetworkError):
        asyncio.run(SocketStream.connect(host, port))


def test_commands_write_through_one_function() -> None:
    allowed = {"output.py"}
    for path in (SOURCES / "cli").glob("*.py"):
        if path.name not in allowed:
            assert not re.search(r"click\.s?echo|sys\.std(out|err)\.write", path.read_text()), path
