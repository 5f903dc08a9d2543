"""The tour: computed from the logs it is shown, bundled or not."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest

import golden_data
from cli.command import run
from magicbyte.cli import tour, tour_broker
from magicbyte.cli.tour import CHAPTERS

WAITING = click.style("-- Enter: continue; q: quit --", dim=True)
WITHOUT_SPARK = [each for each in CHAPTERS if each not in tour.WITH_SPARK]


@pytest.fixture
def other_logs(tmp_path: Path) -> Path:
    """A log directory that is not bundled: two partitions, one of them damaged."""
    for case_id, name in (("0.11.0.3/txn-lz4", "orders-0"), ("2.8.2/crash-flip.crashed", "clicks-3")):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        for file, content in golden_data.log_case(case_id).partition_files().items():
            (folder / file).write_bytes(content)
    return tmp_path / "data"


def test_the_short_tour_goes_from_what_there_is_to_your_turn() -> None:
    result = run("tour")
    assert (result.exit_code, result.stderr) == (0, "")
    titles = re.findall(r"^── \d  (.*?) ─", result.stdout, re.MULTILINE)
    assert titles == [
        "What is in these logs?",
        "Byte by byte",
        "Damage",
        "An old log, served and mirrored",
        "A migration, planned",
        "Your turn",
    ]
    assert "59 batches recovered" in result.stdout  # the damaged log, salvaged
    assert re.search(r"position \d+,\s+offsets\s+\d+\.\.\d+:\s+crc", result.stdout)
    assert "same: 59 records in 1 partition compared" in result.stdout
    assert "13 key-007 value-89776" in result.stdout  # served
    assert "copied: 531 records of 2 topics" in result.stdout
    assert "magicbyte migrate status -b 127.0.0.1:" in result.stdout
    more = next(line for line in result.stdout.splitlines() if line.startswith("More chapters: magicbyte tour "))
    assert "transactions" in more


def test_each_chapter_can_be_asked_for_and_the_help_lists_them() -> None:
    explained = run("tour", "--help").stdout
    assert all(re.search(rf"^  {name} +{text[:20]}", explained, re.MULTILINE) for name, text in CHAPTERS.items())
    result = run("tour", "convert", "transactions")
    assert result.exit_code == 0
    assert re.findall(r"^── \d  (.*?) ─", result.stdout, re.MULTILINE) == [
        "Old logs for Kafka 4",
        "Transactions",
        "Your turn",
    ]
    assert "--to v2 --codec zstd --out newer" in result.stdout


def test_all_chapters_run_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "present", lambda extra: extra != "spark")
    result = run("tour", "--all")
    assert result.exit_code == 0
    assert len(re.findall(r"^── ", result.stdout, re.MULTILINE)) == len(CHAPTERS) - len(tour.WITH_SPARK) + 1
    assert "More chapters: magicbyte tour pipeline spark" in result.stdout


def test_a_terminal_shows_a_screen_at_a_time_in_color_and_q_ends_the_tour() -> None:
    controlling, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    command = [sys.executable, "-m", "magicbyte", "tour", "bytes", "damage"]
    screens: list[str] = [""]
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment | {"TERM": "xterm"}
    ) as process:
        os.close(terminal)
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(controlling, 65536):
                screens[-1] += data.decode()
                if screens[-1].endswith(WAITING):
                    os.write(controlling, b"q\n" if "Damage" in screens[-1] else b"\n")
                    screens.append("")
        os.close(controlling)
    assert process.returncode == 0
    assert len(screens) > 3
    shown = [click.unstyle(each).replace("\r", "").removesuffix(click.unstyle(WAITING)) for each in screens]
    assert all(each.count("\n") <= 24 for each in shown)  # with the line of the answer
    assert "Damage" in shown[-2]
    assert "whole" not in "".join(shown)  # where the next command would have written
    assert all("\x1b[" in each for each in screens)


def test_other_logs_are_toured_with_their_own_numbers(other_logs: Path) -> None:
    result = run("tour", *WITHOUT_SPARK, other_logs)
    assert result.exit_code == 0
    assert "orders-0" in result.stdout
    assert "clicks-3" in result.stdout
    case = golden_data.log_case("0.11.0.3/txn-lz4")
    uncommitted, committed = (len(list(case.records())), len(list(case.committed())))
    assert re.search(rf"^{uncommitted}$", result.stdout, re.MULTILINE)
    assert re.search(rf"^{committed}$", result.stdout, re.MULTILINE)
    assert "basic-zstd" not in result.stdout


def test_the_logs_it_unpacks_can_be_read(tmp_path: Path) -> None:
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    listed = run("inventory", tmp_path / "tour/logs")
    assert "13 partitions" in listed.stdout
    assert listed.exit_code == 0  # from the headers alone: the damage in one of them is inside


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    result = run("tour", "--keep", tmp_path)
    assert (result.exit_code, "new or empty" in result.stderr) == (2, True)


def test_a_path_without_logs_is_refused(tmp_path: Path) -> None:
    result = run("tour", tmp_path)
    assert result.exit_code == 2
    assert "found no log" in result.stderr


def test_a_word_that_is_no_chapter_and_no_path_is_refused_with_the_chapters() -> None:
    result = run("tour", "transaction")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(r"'transaction': expected a path that exists, or a chapter: inventory, .*, spark", result.stderr)


@pytest.mark.slow
@pytest.mark.spark
def test_the_chapter_on_spark_has_a_query(other_logs: Path) -> None:
    result = run("tour", "spark", other_logs)
    assert result.exit_code == 0
    assert re.search(r"\|orders\s*\|2\s*\|", result.stdout)


class _Stage:
    """Notes what is shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def command(self, text: str) -> None:
        self.shown.append(text)

    def lines(self, lines: list[str]) -> None:
        self.shown += lines


def test_a_broker_of_the_tour_that_does_not_start_shows_why(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with (
        pytest.raises(click.ClickException, match=r"(?s)the broker did not start: .*logs"),
        tour_broker.serving(_Stage(), str(tmp_path / "logs")),  # type: ignore[arg-type]
    ):
        pytest.fail("it cannot start")


def test_a_broker_of_the_tour_that_logs_much_is_not_blocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "loud"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nsys.stderr.write('warning: loud\\n' * 3)\n"
        "print('listening on 127.0.0.1:1 (PLAINTEXT), logs in x', flush=True)\n"
        "for _ in range(2000):\n    print('x' * 1000, file=sys.stderr, flush=True)\n"
        f"open({str(tmp_path / 'end')!r}, 'w').close()\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    stage = _Stage()
    with tour_broker.serving(stage) as address:  # type: ignore[arg-type]
        assert address == "127.0.0.1:1"
        assert stage.shown[-1] == "listening on 127.0.0.1:1 (PLAINTEXT), logs in x"
        deadline = time.monotonic() + 240
        while not (tmp_path / "end").exists():
            assert time.monotonic() < deadline, "it waits for a reader"
            time.sleep(0.01)
