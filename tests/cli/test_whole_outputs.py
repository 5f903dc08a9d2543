"""The rest of an output when its command is interrupted, or its disk is full; and standard streams that fail."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import golden_data
from cli.command import run
from magicbyte.cli import cat, progress
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import outputs
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.tools.offline import batch_list

CASE = golden_data.log_case("3.9.1/basic-none")
PROGRAM = [sys.executable, "-m", "magicbyte"]
FORMS = ("text", "jsonl", "csv", "arrow", "parquet")

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with two partitions, each of two segments."""
    for name in ("orders-0", "orders-1"):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        for first in (0, 200):
            records = [
                Record(offset, 1_700_000_000_000 + offset, 0, b"%d" % offset, os.urandom(50), ())
                for offset in range(first, first + 200)
            ]
            (folder / f"{first:020}.log").write_bytes(encode_records(records, Format.V2, Codec.NONE))
    return tmp_path / "logs"


def names(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def interrupted_at(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which at its call of that number is interrupted by Ctrl-C, behind what it does."""
    calls = iter(range(1, 1_000_000))

    def call(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return found

    return call


def is_interrupted(result: Result) -> None:
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


# ---- Ctrl-C


@pytest.mark.parametrize("old", [None, b"from before"])
@pytest.mark.parametrize("form", [*FORMS, "batches"])
def test_cat_that_is_interrupted_leaves_what_was_there(
    form: str, old: bytes | None, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name = (batch_list, "list_batches") if form == "batches" else (cat, "read_source")
    monkeypatch.setattr(where, name, interrupted_at(2, getattr(where, name)))
    out = tmp_path / "out" / "records"
    out.parent.mkdir()
    if old is not None:
        out.write_bytes(old)
    is_interrupted(run("cat", logs, "-o", out, *(["--batches"] if form == "batches" else ["--format", form])))
    assert [each.name for each in out.parent.iterdir()] == ([] if old is None else ["records"])
    assert old is None or out.read_bytes() == old


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_the_middle_of_a_parquet_file_ends_the_process_without_a_traceback_and_leaves_nothing(
    number: str, status: int, logs: Path, tmp_path: Path
) -> None:
    script = (
        "import os, signal, sys\n"
        "from magicbyte.engine.records import columnar\n"
        "columnar.ROW_GROUP_ROWS, write = 1, columnar.ParquetWriter.write\n"
        f"def interrupted(self, *given):\n    write(self, *given)\n    os.kill(os.getpid(), signal.{number})\n"
        "columnar.ParquetWriter.write = interrupted\n"
        "from magicbyte.cli.main import main\nmain(prog_name='magicbyte')\n"
    )
    arguments = ["cat", str(logs), "--format", "parquet", "--threads", "2", "-o", str(tmp_path / "out.parquet")]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    assert [each.name for each in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize("command", ["salvage", "convert"])
def test_an_interrupted_log_directory_has_only_whole_partitions_and_is_continued(
    command: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicbyte.tools.offline import writer

    out, whole = tmp_path / "out", tmp_path / "whole"
    arguments = [command, str(logs), *(["--to", "v1"] if command == "convert" else []), "--out"]
    with monkeypatch.context() as patched:
        # behind the second partition's first segment
        patched.setattr(writer.PartitionWriter, "roll", interrupted_at(4, writer.PartitionWriter.roll))
        is_interrupted(run(*arguments, out))
    assert {each.name for each in out.iterdir() if not each.name.startswith(".")} <= {"orders-0", "conversion.jsonl"}
    assert run(*arguments, out).exit_code == 0
    assert run(*arguments, whole).exit_code == 0
    assert names(out) == names(whole)
    assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in names(whole))


def test_a_compaction_that_was_killed_within_a_deletion_is_continued(logs: Path) -> None:
    assert run("rebuild-index", logs, "--write").exit_code == 0
    folder, lost = logs / "orders-0", logs / "orders-1"
    (folder / f"{0:020}.log").rename(folder / f"{0:020}.log.deleted")
    (lost / f"{0:020}.log").unlink()
    assert run("compact", "--in-place", folder).exit_code == 0
    assert not list(folder.glob(f"{0:020}.*"))
    result = run("compact", "--in-place", lost)
    assert (result.exit_code, "expected a file, as there is its" in result.stderr) == (1, True), (
        "here nothing tells why"
    )


def test_rebuilt_indexes_are_whole_or_not_there(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert run("rebuild-index", logs, "--out", whole).exit_code == 0
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted_at(2, os.fsync))
        is_interrupted(run("rebuild-index", logs, "--out", out))
    assert names(out)
    assert set(names(out)) < set(names(whole))
    assert all((out / name).read_bytes() == (whole / name).read_bytes() for name in names(out))


def test_generated_modules_are_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    for name in ("One", "Two"):
        text = f'{{"type": "data", "name": "{name}", "validVersions": "0", "flexibleVersions": "none", "fields": []}}'
        (schemas / f"{name}.json").write_text(text)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted_at(2, os.fsync))
        is_interrupted(run("schema", "generate", schemas, "--out", tmp_path / "out"))
    assert names(tmp_path / "out") == ["one.py"]
    assert run("schema", "generate", schemas, "--out", tmp_path / "out").exit_code == 0
    assert names(tmp_path / "out") == ["one.py", "two.py"]


@pytest.mark.parametrize("option", ["--unpack", "--keep"])
@pytest.mark.parametrize("is_there", [False, True])
def test_logs_that_are_unpacked_are_whole_or_not_there(
    option: str, is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "open", interrupted_at(5, zipfile.ZipFile.open))
    if is_there:
        (tmp_path / "tour").mkdir()
    is_interrupted(run("tour", option, tmp_path / "tour"))
    assert list(tmp_path.rglob("*")) == ([tmp_path / "tour"] if is_there else [])


# ---- permissions, links, what is no regular file


def test_a_new_output_has_the_permissions_that_the_umask_leaves_and_an_old_one_keeps_its_own(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old, seen = tmp_path / "new", tmp_path / "old", []
    old.touch()
    old.chmod(0o604)

    def look(*given: Any, **named: Any) -> Any:
        seen.extend(stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob(f"{outputs.SCRATCH}*"))
        return real(*given, **named)

    real = cat.read_source
    monkeypatch.setattr(cat, "read_source", look)
    before = os.umask(0o027)
    try:
        assert run("cat", logs, "-o", new).exit_code == run("cat", logs, "-o", old).exit_code == 0
    finally:
        os.umask(before)
    assert (set(seen), len(seen)) == ({0o600}, 4), "no other user reads a partial output"
    assert (stat.S_IMODE(new.stat().st_mode), stat.S_IMODE(old.stat().st_mode)) == (0o640, 0o604)


@pytest.mark.parametrize("form", FORMS)
def test_an_output_is_synced_before_it_is_renamed_and_its_folder_after_it(
    form: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("folder synced" if is_folder else f"{os.fstat(descriptor).st_size} bytes synced")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> Path:
        steps.append(f"named {target.name}")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    assert run("cat", logs, "--format", form, "-o", tmp_path / "out").exit_code == 0
    assert steps == [f"{(tmp_path / 'out').stat().st_size} bytes synced", "named out", "folder synced"]


def test_an_output_that_is_a_link_stays_one(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/records")
    assert run("cat", logs, "-o", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there/records").read_text() == run("cat", logs).stdout


def test_a_fifo_is_written_directly(logs: Path, tmp_path: Path) -> None:
    fifo, found = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: found.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert run("cat", logs, "-o", fifo).exit_code == 0
    reader.join(120)
    assert found == [run("cat", logs).stdout_bytes]
    assert fifo.is_fifo()


def test_dev_stdout_is_written_directly(logs: Path, tmp_path: Path) -> None:
    with (tmp_path / "found").open("wb") as file:
        before = os.fstat(file.fileno()).st_ino
        done = subprocess.run([*PROGRAM, "cat", str(logs), "-o", "/dev/stdout"], stdout=file, timeout=240)
    assert (done.returncode, (tmp_path / "found").stat().st_ino) == (0, before)
    assert (tmp_path / "found").read_text() == run("cat", logs).stdout


def test_data_before_damage_is_written(logs: Path, tmp_path: Path) -> None:
    segment = logs / "orders-1" / f"{200:020}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    result = run("cat", logs, "--format", "parquet", "-o", tmp_path / "out")
    assert (result.exit_code, pq.read_metadata(tmp_path / "out").num_rows) == (1, 600)


# ---- a full disk


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_is_one_line_that_names_the_output_and_nothing_is_left(
    form: str, logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "records"
    out.parent.mkdir()
    with files_of_at_most(3000):
        result = run("cat", logs, "--format", form, "-o", out)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.stderr
    assert "cannot write" in result.stderr
    assert str(out) in result.stderr
    assert list(out.parent.iterdir()) == []
    full = run("cat", logs, "--format", form, "-o", "/dev/full")
    assert (full.exit_code, full.stderr) == (
        2,
        "magicbyte: cannot write /dev/full: No space left on device\n",
    )


def test_a_full_disk_under_indexes_and_modules_leaves_nothing_half(logs: Path, tmp_path: Path) -> None:
    with files_of_at_most(5):
        result = run("rebuild-index", logs, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert all(name.endswith((".index", ".txnindex")) for name in names(tmp_path / "out"))
    assert all((tmp_path / "out" / name).stat().st_size == 0 for name in names(tmp_path / "out"))


# ---- standard streams


def shell(line: str, *arguments: str | Path) -> tuple[int, str]:
    """The status and stderr of `"$@"`, one of our commands, followed by `line`."""
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {line}', "bash", *PROGRAM, *map(str, arguments)],
        capture_output=True, text=True, timeout=240,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        (">&-", 2, "magicbyte: cannot write stdout: Bad file descriptor\n"),
        (">/dev/full", 2, "magicbyte: cannot write stdout: No space left on device\n"),
        ("2>/dev/full >/dev/full", 2, ""),
        ("2>&- >&- <&-", 2, ""),
        ("| true", 141, ""),
    ],
)
@pytest.mark.parametrize("arguments", [("inventory",), ("cat", "--format", "jsonl")], ids=lambda given: given[0])
def test_a_stdout_that_cannot_be_written_is_one_line_and_a_status(
    arguments: tuple[str, ...], line: str, status: int, said: str, logs: Path
) -> None:
    assert shell(line, *arguments, logs) == (status, said)


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_written_is_no_traceback(option: str) -> None:
    assert shell(">/dev/full", option)[0] == 2
    assert shell(">&-", option) == (2, "magicbyte: cannot write stdout: Bad file descriptor\n")
    assert shell("| sleep 0", option)[1] == ""


def test_a_closed_stdout_is_nothing_to_a_command_that_writes_a_file(logs: Path, tmp_path: Path) -> None:
    assert shell(">&- <&-", "cat", logs, "-o", tmp_path / "out") == (0, "")
    assert (tmp_path / "out").read_text() == run("cat", logs).stdout


# ---- what is no regular file


PATHS = {
    "inventory": [], "space": [], "doctor": [], "cat": [], "dump": [], "verify": [], "salvage": ["--out", "new"],
    "convert": ["--to", "v1", "--out", "new"], "rebuild-index": [], "compact": ["--in-place"],
    "retain": ["--bytes", "0", "--in-place"],
    "diff": ["LOG"], "tour": ["inventory"],
}  # fmt: skip


@pytest.mark.parametrize("command", PATHS)
def test_a_fifo_is_refused_as_a_segment_and_not_waited_for(
    command: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    segment = logs / "orders-0" / f"{0:020}.log"
    fifo = tmp_path / segment.name
    os.mkfifo(fifo)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for a writer"))
    signal.alarm(20)
    try:
        result = run(command, fifo, *(str(segment) if each == "LOG" else each for each in PATHS[command]))
    finally:
        signal.alarm(0)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"{fifo}: expected a regular file, found a FIFO" in result.stderr
    assert not (tmp_path / "new").exists()


# ---- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_bytes_rate_and_time_left_and_goes() -> None:
    screen, now = Terminal(), iter([0.0, 0.05, 2.0, 2.05, 4.0])
    bar = progress.Bar(100 << 20, screen, lambda: next(now))
    for size in (1, 24, 5, 20):
        bar.advance(size << 20)
    bar.hide()
    lines = screen.getvalue().split("\r\x1b[K")
    assert [line.partition("  ")[2] for line in lines] == [
        "",
        "25.0 MiB of 100 MiB  12.5 MiB/s  0:00:06 left",
        "50.0 MiB of 100 MiB  12.5 MiB/s  0:00:04 left",
        "",
    ]


@pytest.mark.parametrize(
    "command",
    ["verify", "salvage", "convert", "diff", "compact", "retain", "rebuild-index", "inventory", "cat"],
)
def test_each_command_that_reads_much_shows_how_far_it_is(
    command: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {
        "salvage": ["--out", str(tmp_path / "out")], "convert": ["--to", "v1", "--out", str(tmp_path / "out")],
        "diff": [str(logs)], "compact": ["--topic", "orders", "--in-place"],
        "retain": ["--bytes", "1TiB", "--in-place"], "cat": ["-o", os.devnull],
    }  # fmt: skip
    run("rebuild-index", logs, "--write")
    monkeypatch.setattr(progress, "WORTH_SHOWING", 1)
    monkeypatch.setattr(progress, "EACH_SECONDS", 0)
    monkeypatch.setattr(progress, "is_terminal", lambda _stream: True)
    result = run(command, logs, *more.get(command, []))
    assert result.exit_code in (0, 1), result.stderr
    *shown, left = result.stderr.split("\r\x1b[K")
    assert any(" of " in text and "/s" in text for text in shown), "bytes and rate"
    assert "/s" not in left, "at the end it is gone"
    assert result.stdout == result.stdout.replace("\x1b", ""), "the bar is on stderr"


def test_a_line_that_is_said_takes_the_place_of_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from magicbyte.cli.output import complain, say

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(progress, "EACH_SECONDS", 0)
    with progress.progress(100 << 20) as advance:
        advance(50 << 20)
        say("one partition")
        complain("a warning")
        advance(50 << 20)
    written = click.unstyle(screen.getvalue().replace("\r\x1b[K", "|"))
    assert re.sub(r"[^|\n]* of 100 MiB[^|\n]*", "bar", written) == (
        "|bar|one partition\n|magicbyte: a warning\n|bar|"
    ), "no line begins behind a bar"


def test_data_on_a_terminal_has_no_bar_between_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with progress.progress(100 << 20, streams=True) as advance:
        advance(50 << 20)
    assert screen.getvalue() == ""


# ---- dry runs


def forbid_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call that would need permission to write below `folder` fail, as it does for who has none."""

    def guarded(name: str, paths: Callable[..., list[Any]]) -> None:
        real = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            for path in paths(*given, **named):
                if str(path).startswith(str(folder)):
                    raise PermissionError(errno.EACCES, f"{name}: permission denied", str(path))
            return real(*given, **named)

        monkeypatch.setattr(os, name, call)

    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    guarded("open", lambda path, flags=0, *_, **__: [path] if flags & writes else [])
    for name in ("mkdir", "unlink", "rmdir", "utime", "chmod"):
        guarded(name, lambda path, *_, **__: [path])
    for name in ("rename", "replace", "link"):
        guarded(name, lambda source, target, **__: [source, target])
    real_open = io.open

    def opened(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        if set(mode) & set("wax+") and str(file).startswith(str(folder)):
            raise PermissionError(errno.EACCES, "open: permission denied", str(file))
        return real_open(file, mode, *given, **named)

    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr("builtins.open", opened)


@pytest.mark.parametrize("arguments", [["compact", "--topic", "orders"], ["retain", "--bytes", "0"]])
def test_a_dry_run_needs_no_permission_to_write(
    arguments: list[str], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("rebuild-index", logs, "--write").exit_code == 0
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (logs / name).write_text("0\n2\norders 0 400\norders 1 400\n")
    (logs / ".kafka_cleanshutdown").touch()
    (logs / ".lock").touch()
    before = {each: (each.stat().st_mtime_ns, each.stat().st_ino) for each in (logs, *logs.rglob("*"))}
    with monkeypatch.context() as patched:
        forbid_writing(logs, patched)
        result = run(*arguments, "--dry-run", logs)
        assert result.exit_code == 0, result.stderr
        assert "would go" in result.stdout
        assert run(*arguments, "--in-place", logs).exit_code == 2, "the test does forbid writing"
    assert {each: (each.stat().st_mtime_ns, each.stat().st_ino) for each in (logs, *logs.rglob("*"))} == before
    (logs / ".lock").unlink()
    assert run(*arguments, "--dry-run", logs).exit_code == 0
    assert not (logs / ".lock").exists()


@pytest.mark.parametrize("arguments", [["compact", "--topic", "orders"], ["retain", "--bytes", "0"]])
def test_a_dry_run_tells_a_log_directory_that_is_in_use(arguments: list[str], logs: Path) -> None:
    (logs / "replication-offset-checkpoint").write_text("0\n1\norders 0 400\n")
    (logs / ".kafka_cleanshutdown").touch()
    script = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\nprint(flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(logs / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        result = run(*arguments, "--dry-run", logs)
        holder.communicate(b"\n")
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert "a broker is using this log directory: the figures may change" in result.stderr
