"""The frame of the command line: what is said, on which stream, with which status, and what is not imported."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import golden_data
from cli.command import run
from magicbyte import __version__
from magicbyte.cli.main import COMMANDS

PROGRAM = [sys.executable, "-m", "magicbyte"]
SMALL = golden_data.log_case("3.9.1/basic-none")
HEAVY = ("numpy", "numba", "pyarrow", "rich", "fsspec", "cramjam", "pyspark")


def imported(*arguments: str) -> set[str]:
    """The heavy packages that a command line imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "magicbyte", *arguments], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    return names & set(HEAVY)


def test_help_lists_every_command_and_imports_nothing_heavy() -> None:
    text = run("--help").stdout
    assert all(f"  {name} " in text for name in COMMANDS)
    assert run().stdout == text
    assert imported("--help") == set()


def test_a_small_cat_imports_neither_numba_nor_arrow() -> None:
    found = imported("cat", str(SMALL.partition_dir()), "-o", os.devnull)
    assert not found & {"numba", "pyarrow", "rich", "pyspark", "fsspec"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_in_the_list_is_there_and_explains_itself(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {name} ")


def test_the_version_is_the_packages() -> None:
    assert run("-V").stdout.split()[-1] == __version__
    assert run("--version").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inventroy", "x"], "did you mean 'inventory'?"),
        (["frobnicate"], "expected one of tour, inventory, space, cat"),
        (["cat"], "Missing argument 'PATH...'"),
        (["cat", "--formt", "jsonl", "x"], "--format"),
        (["cat", "/nowhere/at/all"], "/nowhere/at/all: no such file or folder"),
        (["cat", __file__], "found a file of another name"),
        (["cat", "nowhere://x"], "expected a path or a URL that fsspec can open"),
        (["inventory", "/nowhere/at/all"], "/nowhere/at/all: no such file or folder"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_was_expected_and_status_2(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("magicbyte: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def test_warm_compiles_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from magicbyte.engine.compiled import kernel

    asked = []
    monkeypatch.setattr(kernel, "warm", lambda: asked.append(1) or 7)
    assert run("warm").stdout.startswith("7 kernels are ready")
    assert asked == [1]


def test_a_reader_that_goes_away_ends_cat_quietly() -> None:
    command = [*PROGRAM, "cat", str(SMALL.partition_dir()), "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_ctrl_c_ends_cat_quietly(tmp_path: Path) -> None:
    """The command waits on a pipe without a reader; then Ctrl-C comes."""
    folder = tmp_path / "big-0"
    folder.mkdir()
    content = SMALL.segments()["00000000000000000000.log"]
    (folder / "00000000000000000000.log").write_bytes(content * 40)
    with subprocess.Popen([*PROGRAM, "cat", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_a_full_or_forbidden_output_is_one_line_too(tmp_path: Path) -> None:
    result = run("cat", SMALL.partition_dir(), "-o", tmp_path / "no" / "such" / "folder")
    assert result.exit_code == 2
    folder = tmp_path / "no" / "such"
    assert f"cannot write {folder / 'folder'}: the folder {folder} does not exist" in result.stderr
    assert result.stderr.count("\n") == 1
