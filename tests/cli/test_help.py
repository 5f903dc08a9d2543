"""Examples and colors: what every command has in common for the eye."""

import asyncio
import contextlib
import fcntl
import itertools
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.command import run
from magicbyte.cli.base import Command
from magicbyte.cli.main import main
from magicbyte.cli.mirror_translate import translate
from magicbyte.testing import Broker
from pages import LEAVES, ROOT, make_orders

COMMANDS = {" ".join(words): command for words, command in LEAVES.items()} | {"mirror translate": translate}
NOT_RUN = {
    "magicbyte tour": "tests/cli/test_tour.py",
    "magicbyte topics elect": "tests/cli/test_topics.py",
    "magicbyte topics reassign": "tests/cli/test_topics_reassign.py",
    "magicbyte transactions abort": "tests/cli/test_transactions.py",
    "magicbyte migrate canary -b localhost:9092 --broker 2": "tests/cli/test_migrate.py",
    "magicbyte migrate rollback": "tests/cli/test_migrate.py",
    "magicbyte serve": "tests/cli/test_serve.py",
    "magicbyte cluster status --dir": "tests/interop/test_cluster_command.py",
    "magicbyte cluster up": "tests/interop/test_cluster_command.py",
    "magicbyte cluster down": "tests/interop/test_cluster_command.py",
    "magicbyte metadata": "tests/interop/test_handover.py",
    "magicbyte pipeline": "tests/spark/test_pipeline.py",
    "magicbyte warm": "tests/cli/test_main.py",
}
"""How examples begin that are not run here, and the test that runs such a command."""
BEFORE = {
    "topics delete": ["magicbyte topics create -b localhost:9092 events"],
    "diff": ["magicbyte convert tour/logs/kafka-0.8.2.2 --to v2 --codec zstd --out newer"],
    "mirror translate": [
        "magicbyte mirror --from old:9092 --to new:9092 --topics orders --sync-groups --until-caught-up --yes"
    ],
    "transactions describe": [
        "echo paid | magicbyte produce -b localhost:9092 -t orders --transactional-id payments-1"
    ],
    "schema check": ["magicbyte schema show MetadataRequest > schemas/MetadataRequest.json"],
    "schema generate": ["magicbyte schema show MetadataRequest > schemas/MetadataRequest.json"],
}
"""What has to be typed before the examples of a command."""
STATUS = {"migrate check": {0, 1, 2}, "migrate canary": {0, 1}, "cluster status": {0, 1}, "doctor": {0, 1}}
"""Exit statuses that are verdicts; of all other commands it is 0."""
COLOR_AND_SIZE = ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
ADDRESS = re.compile(r"\b(localhost|old|new):9092\b")


def test_each_command_has_examples_that_fit_80_columns_and_each_group_shows_one_of_each() -> None:
    for name, command in COMMANDS.items():
        assert isinstance(command, Command), name
        assert command.examples, name
        shown = run(*name.split(), "--help").stdout
        for each in command.examples:
            assert f"\n  {each}\n" in shown
            assert len(each) <= 78, each
            assert f"magicbyte {name}" in each
    topics = run("topics", "--help").stdout
    assert topics.index("Commands:") < topics.index("Examples:") < topics.index("  magicbyte topics list -b ")


def typed(line: str, addresses: dict[str, str]) -> click.testing.Result:
    """Run a line as a shell does: with pipes into a command, files in and out, and names with stars."""
    line = ADDRESS.sub(lambda match: addresses[match[1]], line)
    before, _, command = line.rpartition(" | ")
    command, _, out = command.partition(" > ")
    command, _, source = command.partition(" < ")
    if found := re.fullmatch(r'eval "\$\((.*)\)"', command):
        command = found[1]
    given = subprocess.run(["sh", "-c", before], capture_output=True, check=True).stdout if before else b""
    given += Path(source.strip()).read_bytes() if source else b""
    words = shlex.split(command)[1:]
    named = [(sorted(map(str, Path().glob(word))) if "/" in word and "*" in word else [word]) for word in words]
    result = CliRunner().invoke(main, list(itertools.chain(*named)), input=given)
    if out:
        path = Path(out.replace("~", str(Path.cwd())))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(result.stdout_bytes)
    return result


def lay_out(folder: Path) -> None:
    """Put there what examples are about: the logs of the tour, a packed one, lines, values of a message."""
    run("tour", "--unpack", folder / "tour")
    shutil.make_archive(str(folder / "old-logs"), "gztar", folder / "tour/logs", "kafka-0.8.2.2")
    (folder / "lines").write_text("key:value\n")
    (folder / "values.json").write_text('{"topics": [{"name": "orders"}]}')
    (folder / "samples.jsonl").write_text('{"topics": [{"name": "orders"}], "allowAutoTopicCreation": true}\n')


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_work_as_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    lines = [each for each in command.examples if not each.startswith(tuple(NOT_RUN))]
    elsewhere = {path for start, path in NOT_RUN.items() if any(each.startswith(start) for each in command.examples)}
    assert all((ROOT / path).exists() for path in elsewhere)
    assert bool(lines) or bool(elsewhere)
    if not lines:
        return
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    if "/var/kafka-logs" in " ".join(lines):
        logs = tmp_path / "logs"
        with Broker(directory=logs) as broker:
            asyncio.run(make_orders(broker.bootstrap_servers))
        for each in lines:
            assert typed(each.replace("/var/kafka-logs", str(logs)), {}).exit_code == 0, each
        return
    with Broker() as old, Broker() as new:
        addresses = {"localhost": old.bootstrap_servers, "old": old.bootstrap_servers, "new": new.bootstrap_servers}
        asyncio.run(make_orders(old.bootstrap_servers, "billing" if name == "mirror translate" else "readers"))
        for each in BEFORE.get(name, []):
            assert typed(each, addresses).exit_code == 0, each
        for each in lines:
            result = typed(each + (" --until-caught-up" if each.endswith("--yes") else ""), addresses)
            assert result.exit_code in STATUS.get(name, {0}), (each, result.stderr)


def seen(*arguments: str, environment: dict[str, str], columns: int = 80) -> str:
    """Return what a command prints to a terminal."""
    controlling, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    with subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments],
        stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, env=inherited | {"TERM": "xterm"} | environment,
    ) as process:  # fmt: skip
        os.close(terminal)
        found = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(controlling, 65536):
                found += data
        os.close(controlling)
    assert process.returncode in (0, 1, 2)
    return found.decode()


@pytest.mark.parametrize(
    ("given", "environment", "colored"),
    [
        ([], {}, True),
        (["--color", "never"], {}, False),
        ([], {"NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_a_terminal_gets_verdicts_and_errors_in_color_unless_told_otherwise(
    given: list[str], environment: dict[str, str], colored: bool, tmp_path: Path
) -> None:
    run("tour", "--unpack", tmp_path / "tour")
    sound, damaged = tmp_path / "tour/logs/kafka-4.3.1", tmp_path / "tour/logs/kafka-0.10.2.2"
    for arguments in (["verify", sound, *given], [*given, "verify", damaged], ["verify", "no-such-log", *given]):
        assert ("\x1b[" in seen(*map(str, arguments), environment=environment)) is colored, arguments


def test_output_that_no_terminal_shows_is_colored_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    run("tour", "--unpack", tmp_path / "tour")
    for arguments in (["verify", tmp_path / "tour/logs/kafka-4.3.1"], ["verify", tmp_path / "none"]):
        plain, colored = run(*arguments), run(*arguments, "--color", "always")
        assert "\x1b[" not in plain.stdout + plain.stderr
        assert "\x1b[" in colored.stdout + colored.stderr
        assert click.unstyle(colored.stdout + colored.stderr) == plain.stdout + plain.stderr
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert run(*arguments).output == colored.output
        monkeypatch.delenv("FORCE_COLOR")


def test_the_inventory_fits_a_narrow_terminal_and_shows_whole_names_on_a_wide_one(tmp_path: Path) -> None:
    run("tour", "--unpack", tmp_path / "tour")
    (tmp_path / "tour/logs/kafka-4.3.1/basic-zstd-0").rename(tmp_path / f"tour/logs/kafka-4.3.1/{'name-' * 12}0")
    for columns in (80, 140):
        lines = seen("inventory", str(tmp_path / "tour/logs/kafka-4.3.1"), environment={}, columns=columns).splitlines()
        table = [line for line in lines if not line.startswith(" ")]
        assert max(map(len, table)) <= columns
        assert any("name-" * 12 + "0" in line for line in table) is (columns == 140)
