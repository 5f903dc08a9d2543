"""What every command does alike: Ctrl-C at any time, passwords, errors of the system, numbers, questions."""

import asyncio
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

import magicbyte.access.client.client
from cli.builders import BESIDE, options
from cli.command import run
from engine.log.appended import batch_of
from magicbyte.cli.asking import confirm
from magicbyte.cli.output import os_error_text
from magicbyte.engine.printable import without_passwords

INTERRUPTED_IMPORT = """
import runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
runpy.run_module("magicbyte", run_name="__main__", alter_sys=True)
"""
INTERRUPTED_END = """
import atexit, runpy, signal
atexit.register(signal.raise_signal, signal.SIGINT)
runpy.run_module("magicbyte", run_name="__main__", alter_sys=True)
"""
COORDINATED = ("groups", "transactions")
IMPORTED = (
    "magicbyte.cli", "magicbyte.cli.main", "click", "magicbyte.cli.output", "magicbyte.engine.errors",
    "magicbyte.cli.schema", "magicbyte.schema", "magicbyte.schema.check",
)  # fmt: skip


@pytest.mark.parametrize("module", IMPORTED)
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module, "schema", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (-2, 130)
    assert done.stderr.strip() == ""


def test_ctrl_c_while_the_interpreter_ends_prints_no_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_END, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (-2, "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ann:s3cret@host:1/x: refused", "http://ann:***@host:1/x: refused"),
        ("s3://:s3cret@bucket and hdfs://a:s3cret/@x", "s3://:***@bucket and hdfs://a:s3cret/@x"),
        ("'https://ann:s3:cr@et@host'", "'https://ann:***@host'"),
        ("http:/ann:s3cret@host/x: as a path", "http:/ann:***@host/x: as a path"),
        ("http://host:9092/a@b", "http://host:9092/a@b"),
        ("memory:///ann:s3cret@host/x: as fsspec has it", "memory:///ann:***@host/x: as fsspec has it"),
        ("file:///a/b:c@d", "file:///a/b:c@d"),
        ("a:b@c", "a:b@c"),
        ("http://ann@host", "http://ann@host"),
    ],
)
def test_a_password_in_a_url_is_hidden(text: str, shown: str) -> None:
    assert without_passwords(text) == shown


@pytest.mark.parametrize(
    "line",
    [
        "cat {}", "inventory {}", "space {}", "doctor {}", "verify {}", "dump {}", "diff {} {}", "salvage {} --out out",
        "convert {} --to v2 --out out", "rebuild-index {}",
        "rescue {} --to out/", "compact {} --dry-run", "retain {} --bytes 1 --dry-run",
        "migrate check --metrics {}", "topics list -b {}", "mirror --from {} --to a:1 --topics x", "schema diff {} x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "ftp", "kafka", "unknown"])
def test_no_command_prints_the_password_of_a_url(
    line: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*line.replace("{}", f"{scheme}://ann:s3cret@localhost:1/x").split())
    assert result.exit_code != 0
    assert "s3cret" not in result.stdout + result.stderr


OF_STORES = {
    "cat": "{} --format jsonl",
    "convert": "{} --to v1 --out out --format json",
    "convert in words": "{} --to v1 --out out",
    "diff": "{} {} --format json",
    "diff in words": "{} {}",
    "dump": "{} --format jsonl",
    "dump in words": "{}",
    "inventory": "{} --format json",
    "inventory in words": "{}",
    "rebuild-index": "{} --format json",
    "rebuild-index in words": "{}",
    "salvage": "{} --out out --format json",
    "salvage in words": "{} --out out",
    "doctor": "{} --format json",
    "doctor in words": "{}",
    "space": "{} --format json",
    "space in words": "{}",
    "verify": "{} --format json",
    "verify in words": "{}",
}


@pytest.mark.parametrize("command", OF_STORES)
def test_no_output_has_the_password_of_a_store(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = command.split()[0]
    folder = f"memory://ann:s3cret@host/{command.replace(' ', '-')}/orders-0"
    files = fsspec.filesystem("memory")
    damage = b"" if name == "convert" else b"x" * 70  # findings have their paths
    files.pipe_file(f"{folder}/{0:020}.log", batch_of(0, 1, 3) + damage)
    files.pipe_file(f"{folder}/{0:020}.index", b"odd")
    result = run(name, *OF_STORES[command].replace("{}", folder).split())
    assert "orders-0" in result.stdout + result.stderr
    assert "s3cret" not in result.stdout + result.stderr


def test_an_error_of_the_system_names_the_file_first(tmp_path: Path) -> None:
    assert os_error_text(FileNotFoundError(2, "No such file or directory", "x/y")) == "x/y: no such file or folder"
    assert os_error_text(PermissionError(13, "Permission denied", "x")) == "x: Permission denied"
    assert os_error_text(OSError(28, "cannot write: No space left", "x")) == "cannot write x: No space left"
    assert os_error_text(OSError("odd")) == "odd"
    missing = run("cat", tmp_path / "nothing")
    assert missing.stderr == f"magicbyte: {tmp_path / 'nothing'}: no such file or folder\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat . --from abc", "--from': expected a number from 0, found 'abc'"),
        ("topics create -b a:1 t --partitions 0", "--partitions': expected a number from 1, found '0'"),
        ("cluster up --port 70000", "--port': expected a number from 0 to 65535, found '70000'"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(line: str, expected: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert expected in result.stderr


@pytest.mark.parametrize(
    "name",
    sorted({name for name, option in options() if option == "-b" and name.split()[0] in ("groups", "transactions")}),
)
def test_a_dead_address_is_not_tried_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def again(*_: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(magicbyte.access.client.client.asyncio, "sleep", again)
    result = run(*name.split(), "-b", "localhost:1", *BESIDE.get(name, "").split())
    assert result.exit_code == 2
    assert "no broker answers" in result.stderr


def test_a_question_without_anybody_to_answer_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null", encoding="utf-8") as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        with pytest.raises(magicbyte.cli.asking.click.UsageError, match="give --yes instead"):
            asyncio.run(confirm("Delete it?"))
