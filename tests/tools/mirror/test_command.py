"""What the command prints after wrong use."""

import asyncio
import contextlib
import os
import pty
import random
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from cli.command import run as command
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import ErrorCode, MirrorError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror import rounds
from magicbyte.tools.mirror.plan import Mode, TopicMirrorPlan
from magicbyte.tools.mirror.progress import Origin
from magicbyte.tools.mirror.rewrite import Storage
from magicbyte.tools.mirror.rounds import Copy, HasCopied, Rounds
from tools.mirror.pair import Pair
from tools.mirror.sets import START

ENDS = ["--from", "localhost:1", "--to", "localhost:2", "--topics", "topic"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--topics", "to(pic"], "'to(pic': missing ), unterminated subpattern at position 2"),
        (
            ["--from", "copy"],
            "--from: 'copy': expected HOST:PORT, such as localhost:9092, or a log directory, such as ./copy",
        ),
        (["--to", "localhost:abc"], "--to: 'localhost:abc': expected HOST:PORT"),
        (["--to", "copy"], "'copy': expected HOST:PORT, such as localhost:9092, or a log directory, such as ./copy"),
        (["--to", __file__], f"--to: {__file__} is no directory"),
        (["--group", ""], "'--group': expected a name"),
        (["--http", "localhost:99999"], "'localhost:99999': expected a port from 0 to 65535, found 99999"),
        (["--on-oversize", "park"], "--on-oversize=park and --park go together"),
        (["--on-oversize", "drop"], "'drop' is not one of 'stop', 'split', 'park'"),
    ],
)
def test_what_is_wrong_in_a_command_line_is_said_with_what_is_expected(changed: list[str], message: str) -> None:
    result = command("mirror", *ENDS, *changed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(("side", "other"), [("--from", "--to"), ("--to", "--from")])
@pytest.mark.parametrize(
    ("address", "message"),
    [("no.such.host.invalid:9092", r"no broker answers: no\.such\.host\.invalid:9092"), ("127.0.0.1:1", "127.0.0.1:1")],
)
def test_an_unreachable_cluster_is_reported_at_once(side: str, other: str, address: str, message: str) -> None:
    with Broker() as broker:
        result = command("mirror", side, address, other, broker.bootstrap_servers, "--topics", "topic")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(message, result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_it_names_the_target_and_asks_before_the_first_write_and_only_then(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    arguments = ["--from", pair.addresses[0], "--to", pair.addresses[1], "--topics", ".*", "--until-caught-up"]

    def topics() -> set[str]:
        async def work(_: Client, there: Client) -> set[str]:
            return set(await there.topics())

        found: set[str] = pair.run(work)
        return found

    refused = command("mirror", *arguments)
    assert (refused.exit_code, refused.stdout, topics()) == (2, "", set())
    named = rf"to {re.escape(pair.addresses[1])}, cluster [\w-]{{22}}, 1 topic"
    assert re.match(
        rf"magicbyte: {named}: this mirror has never written to this target: start it with --yes", refused.stderr
    )
    for answer, status, made in (("n\n", 130, set[str]()), ("y\n", 0, {"topic"})):
        shown, status_found = typed(["mirror", *arguments], answer)
        assert re.search(rf"{named}: begin to write\? \[y/N\]: ", shown)
        assert (status_found, topics() & {"topic"}) == (status, made)
    assert "copied: 100 records of 1 topic" in shown
    again = command("mirror", *arguments)
    assert (again.exit_code, again.stderr) == (0, "")
    assert again.stdout.splitlines()[-1] == "copied: 0 records of 1 topic"
    other = command("mirror", *arguments, "--group", "another", "--merge")
    assert (other.exit_code, "start it with --yes" in other.stderr) == (2, True)


def test_ctrl_c_at_the_question_ends_it(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP])
    controlling, terminal = pty.openpty()
    arguments = ["mirror", "--from", pair.addresses[0], "--to", pair.addresses[1], "--topics", ".*"]
    with subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments], stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while b"begin to write?" not in shown:
            shown += os.read(controlling, 65536)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130
        finally:
            process.kill()
            os.close(controlling)


def typed(arguments: list[str], answer: str) -> tuple[str, int]:
    """Return what a command prints on a terminal where an answer is typed, and its exit status."""
    controlling, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments], stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        os.write(controlling, answer.encode())
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(controlling, 65536):
                shown += data
        os.close(controlling)
    return click.unstyle(shown.decode().replace("\r", "")), process.returncode


def test_source_and_target_may_not_be_one_cluster(pair: Pair) -> None:
    source, _ = pair.addresses
    result = command("mirror", "--from", source, "--to", source, "--topics", "topic")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(r"magicbyte: source and target are the same cluster, [\w-]+\n", result.stderr)


class Failing(Rounds):
    """Copies nothing: when the last of those that are at work at once has begun, it fails first, and then all do."""

    def __init__(self) -> None:
        super().__init__(Client("127.0.0.1:1"))
        self.at_work, self.all_there = 0, asyncio.Event()

    async def plan(self) -> list[TopicMirrorPlan]:
        origin, storage = Origin(), Storage(Format.V2)
        return [
            TopicMirrorPlan(
                "topic", "topic", origin, 50, None, 1, storage, once=True, committed=True, mode=Mode.CLOSED, why=""
            )
        ]

    async def _made(self) -> list[TopicMirrorPlan]:
        return await self.plan()

    def _begun(self, _: asyncio.TaskGroup) -> Copy:
        async def copy(_: TopicMirrorPlan, partition: int) -> None:
            self.at_work += 1
            if self.at_work == rounds.AT_ONCE:
                self.all_there.set()
            await self.all_there.wait()
            raise MirrorError(f"topic-{partition}")

        return copy

    def _each(self) -> Mapping[tuple[str, int], HasCopied]:
        return {}


@pytest.mark.parametrize(
    ("side", "api", "code"),
    [
        ("target", "CreateTopics", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("target", "InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("target", "OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("target", "Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("source", "ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("source", "Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_right_that_is_missing_is_named_at_once(side: str, api: str, code: ErrorCode) -> None:
    """A broker with access control refuses a mirror without rights; another one with the right continues."""
    with Broker() as source, Broker() as target:
        pair = Pair(source, target)
        pair.fill("topic", [Codec.GZIP])
        with (source if side == "source" else target).fault(api, times=None, error=code):
            result = pair.command("--until-caught-up")
        assert result.exit_code == 2
        assert f"{code.name} ({code.value})" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        again = pair.command("--until-caught-up")
        assert (again.exit_code, again.stderr) == (0, "")
        assert re.match(r"topic: [\d.]+ KiB closed in 10 sets, .*, 0 offsets behind", again.stdout)


def test_of_many_partitions_that_fail_together_a_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MirrorError, match="topic-7"):
        asyncio.run(Failing().catch_up())
    *named, last = caplog.messages
    assert len(named) == 3
    assert all(each.startswith("another partition failed, too: topic-") for each in named)
    assert last == "46 partitions more failed, too"


def test_a_folder_that_cannot_be_made_is_named(pair: Pair, tmp_path: Path) -> None:
    pair.fill("topic", [Codec.GZIP])
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "copy")
    result = command("mirror", "--from", pair.addresses[0], "--to", folder, "--topics", "topic", "--until-caught-up")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("magicbyte: ")
    assert folder.rpartition("/")[0] in result.stderr


def test_a_copy_on_a_full_disk_ends_and_a_rerun_continues_when_there_is_space(pair: Pair, tmp_path: Path) -> None:
    """A limit of the size of files stands for a disk that is full; index files take up to 10 MiB at first."""
    chance = random.Random(1)

    async def fill(here: Client, _: Client) -> None:
        await admin.create_topic(here, admin.NewTopic("topic"))
        for _ in range(13):
            await send(here, "topic", 0, [Record(0, START, 0, b"key", chance.randbytes(1_000_000))])

    pair.run(fill)
    arguments = ["--from", pair.addresses[0], "--to", str(tmp_path / "copy"), "--topics", "topic", "--until-caught-up"]
    done = subprocess.run(
        [sys.executable, "-m", "magicbyte", "mirror", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (11 << 20, 11 << 20)),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2
    assert re.search(
        r"^magicbyte: .*copy: offline since \[Errno 27\] File too large: '.*\.log'$", done.stderr, re.MULTILINE
    )
    assert done.stderr.count("is offline: File too large (EFBIG), at ") == 1
    result = command("mirror", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "0 offsets behind" in result.stdout
    verified = command("verify", str(tmp_path / "copy"))
    assert (verified.exit_code, verified.stdout) == (0, "1 partition, 1 segment, 12.4 MiB: sound\n")
