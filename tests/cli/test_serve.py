"""`magicbyte serve`: what it says, and how it ends."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from http import HTTPStatus
from pathlib import Path

import pytest

import golden_data
from cli.command import run
from magicbyte.engine.log.files.filesystem import LocalLock

SERVE = [sys.executable, "-m", "magicbyte", "serve"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    command = [*SERVE, "--dir", str(tmp_path / "logs"), "--listen", "127.0.0.1:0", "num.partitions=3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on 127.0.0.1:")
    assert line.endswith(f" (PLAINTEXT), logs in {tmp_path / 'logs'}\n")
    socket.create_connection(("127.0.0.1", int(line.split(" (")[0].rpartition(":")[2]))).close()
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "kcat" in errors
    assert errors.endswith("stopped\n")
    assert (tmp_path / "logs/.kafka_cleanshutdown").exists()


def test_its_log_can_be_lines_of_json(tmp_path: Path) -> None:
    command = [*SERVE, "--dir", str(tmp_path), "--listen", "127.0.0.1:0", "--log-format", "json", "slow.request.ms=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    bootstrap = process.stdout.readline().split()[2]
    assert run("topics", "list", "-b", bootstrap).exit_code == 0
    process.terminate()
    _, errors = process.communicate(timeout=120)
    lines = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
    assert {"ApiVersions", "Metadata"} <= {line["api"] for line in lines}
    assert {line["client_id"] for line in lines} == {"magicbyte"}
    assert {line["level"] for line in lines} == {"warning"}


def test_the_commands_of_the_page_on_metrics_work_as_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    serve, *curls = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0].splitlines()
    arguments = shlex.split(serve.replace(":9404", ":0"))[2:]
    process = subprocess.Popen(
        [*SERVE, *arguments, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        port = re.findall(r"http://127\.0\.0\.1:([0-9]+)/metrics, health at /health", process.stdout.readline())[0]
        for line in curls:
            program, url = shlex.split(line)
            assert program == "curl"
            with urllib.request.urlopen(url.replace(":9404", f":{port}"), timeout=120) as response:
                assert response.status == HTTPStatus.OK
    finally:
        process.terminate()
        process.communicate(timeout=120)


# ---- directories of other brokers


def started(*arguments: str | Path) -> tuple[subprocess.Popen[str], str]:
    """Start a broker; return it and its address."""
    command = [*SERVE, *map(str, arguments), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), process.communicate(timeout=120)
    return process, line.split()[2]


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def consumed(bootstrap: str, topic: str) -> int:
    done = run("consume", "-b", bootstrap, "-t", topic, "-e", "-J")
    assert done.exit_code == 0, done.stderr
    return len(done.stdout.splitlines())


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Return the log directory of a real broker, with one topic."""
    case = golden_data.log_case("0.10.2.2/basic-gzip")
    shutil.copytree(case.partition_dir(), tmp_path / "kafka" / "basic-gzip-0")
    return tmp_path / "kafka"


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(folder)): (each.stat().st_mtime_ns, each.read_bytes())
        for each in folder.rglob("*")
        if each.is_file()
    }


def test_a_directory_of_another_broker_is_served_only_if_that_is_said(foreign: Path) -> None:
    before = content(foreign)
    done = run("serve", "--dir", foreign, "--listen", "127.0.0.1:0")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "1 partition, such as basic-gzip-0" in done.stderr
    assert "--adopt" in done.stderr
    assert "--overlay" in done.stderr
    assert content(foreign) == before
    count = len(golden_data.log_case("0.10.2.2/basic-gzip").records())
    for arguments in (["--adopt"], []):  # from then on it is ours
        process, bootstrap = started("--dir", foreign, *arguments)
        assert consumed(bootstrap, "basic-gzip") == count
        ended(process)


def test_an_overlay_takes_all_writes_and_the_directory_stays_unchanged(foreign: Path, tmp_path: Path) -> None:
    (foreign / "meta.properties").write_text("version=0\nbroker.id=7\n")  # no id is given: this one holds
    before, count = content(foreign), len(golden_data.log_case("0.10.2.2/basic-gzip").records())
    for each in foreign.rglob("*"):
        each.chmod(0o555 if each.is_dir() else 0o444)
    for turn in range(2):  # the second one continues with the overlay
        process, bootstrap = started("--dir", foreign, "--overlay", tmp_path / "over")
        assert consumed(bootstrap, "basic-gzip") == count + turn
        command = [*SERVE[:-1], "produce", "-b", bootstrap, "-t", "basic-gzip"]
        assert subprocess.run(command, input=b"line\n", timeout=60).returncode == 0
        assert consumed(bootstrap, "basic-gzip") == count + turn + 1
        ended(process)
        assert content(foreign) == before
        assert "broker.id=7" in (tmp_path / "over" / "meta.properties").read_text()
    for each in (foreign / "basic-gzip-0", *foreign.glob("*/*")):
        each.chmod(0o755)


def test_no_overlay_is_made_of_what_is_in_use_or_over_something_else(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    done = run("serve", "--dir", foreign, "--overlay", tmp_path / "full")
    assert (done.exit_code, "expected a new directory" in done.stderr) == (2, True)
    done = run("serve", "--dir", tmp_path / "nothing", "--overlay", tmp_path / "over")
    assert (done.exit_code, "expected a log directory" in done.stderr) == (2, True)
    lock = LocalLock(str(foreign / ".lock"))
    done = run("serve", "--dir", foreign, "--overlay", tmp_path / "over")
    lock.release()
    assert (done.exit_code, "a broker is using" in done.stderr) == (2, True)
    assert not (tmp_path / "over").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen", "nowhere"], "expected HOST:PORT"),
        (["key"], "expected KEY=VALUE"),
        (["num.partitions=many"], "num.partitions: expected"),
        (["listeners=SSL://127.0.0.1:0"], "ssl.keystore.location: a TLS listener needs a certificate"),
    ],
)
def test_settings_that_cannot_be_are_one_line_and_wrong_use(arguments: list[str], why: str, tmp_path: Path) -> None:
    done = run("serve", "--dir", str(tmp_path / "logs"), *arguments)
    assert done.exit_code == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_of_settings_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(
        "log.dirs=/nowhere\nlisteners=PLAINTEXT://127.0.0.1:0\nno.such.thing=1\n"
    )
    command = [*SERVE, "--config", str(tmp_path / "server.properties"), f"log.dirs={tmp_path / 'logs'}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert str(tmp_path / "logs") in process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert "warning: no.such.thing: unknown" in errors
