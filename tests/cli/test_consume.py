"""`magicbyte consume` against our broker, and against an old one."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.cli.render import CELLS
from magicbyte.cli.templates import parse_template, unescape
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

START = 1_700_000_000_000
CONSUME = [sys.executable, "-m", "magicbyte", "consume"]
RECORDS = [
    Record(0, START, 0, b"a", b"one", (("name", b"value"), ("empty", None))),
    Record(0, START + 1000, 0, None, b"two"),
    Record(0, START + 2000, 0, b"c", None),
]
MORE = [Record(0, START + 5000, 0, b"d", b"four"), Record(0, START + 6000, 0, b"e", b"\xfffive")]


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in a process of its own, which does not outlive the block."""
    with subprocess.Popen([*CONSUME, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def produce(bootstrap: str, topic: str, partition: int, records: Sequence[Record], codec: Codec = Codec.NONE) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client:
            await send(client, topic, partition, records, ProduceOptions(codec=codec))

    asyncio.run(work())


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with a topic: three records in partition 0, in two sets, two in partition 1."""

    async def work(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("topic", 2))

    with Broker() as broker:
        asyncio.run(work(broker.bootstrap_servers))
        produce(broker.bootstrap_servers, "topic", 0, RECORDS[:2], Codec.GZIP)
        produce(broker.bootstrap_servers, "topic", 0, RECORDS[2:])
        produce(broker.bootstrap_servers, "topic", 1, MORE)
        yield broker.bootstrap_servers


@pytest.fixture
def consume(bootstrap: str) -> Callable[..., bytes]:
    def consumed(*arguments: str) -> bytes:
        result = run("consume", "-b", bootstrap, "-t", "topic", *arguments)
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes

    return consumed


def test_values_come_on_lines_partition_by_partition(consume: Callable[..., bytes]) -> None:
    assert consume("-e") == b"one\ntwo\n\nfour\n\xfffive\n"
    assert consume("-e", "-p", "1") == b"four\n\xfffive\n"
    assert consume("-e", "-p", "1", "-p", "0", "-c", "4") == b"one\ntwo\n\nfour\n"
    assert consume("-e", "-K", r":\t") == b"a:\tone\n:\ttwo\nc:\t\nd:\tfour\ne:\t\xfffive\n"


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (["beginning"], "0 1 2 | 0 1"),
        (["end"], " | "),
        (["1"], "1 2 | 1"),
        (["-1"], "2 | 1"),
        (["-100"], "0 1 2 | 0 1"),
        (["s@2023-11-14T22:13:21"], "1 2 | 0 1"),
        ([f"s@{START + 1001}"], "2 | 0 1"),
        ([f"s@{START + 9000}"], " | "),
        ([f"e@{START + 2000}"], "0 1 | "),
        (["1", f"e@{START + 6000}"], "1 2 | "),
        ([f"e@{START + 9000}"], "0 1 2 | 0 1"),
    ],
)
def test_a_range_begins_and_ends_at_the_given_offsets(
    where: list[str], offsets: str, consume: Callable[..., bytes]
) -> None:
    options = [part for each in where for part in ("-o", each)]
    found = [consume("-e", "-p", str(number), "-f", "%o ", *options).decode().strip() for number in (0, 1)]
    assert found == [each.strip() for each in offsets.split("|")]


def test_a_template_has_every_field_and_escape(consume: Callable[..., bytes]) -> None:
    template = r"%t-%p %o %T %k(%K)=%s(%S) %h 100%%\x21\t\\\n"
    assert consume("-e", "-p", "0", "-f", template).splitlines() == [
        b"topic-0 0 1700000000000 a(1)=one(3) name=value,empty=NULL 100%!\t\\",
        b"topic-0 1 1700000001000 (-1)=two(3)  100%!\t\\",
        b"topic-0 2 1700000002000 c(1)=(-1)  100%!\t\\",
    ]
    assert consume("-e", "-f", "") == b""


def test_json_has_the_members_of_cat(consume: Callable[..., bytes]) -> None:
    lines = [json.loads(line) for line in consume("-e", "-J").splitlines()]
    assert lines[0] == {
        "topic": "topic",
        "partition": 0,
        "offset": 0,
        "timestamp": START,
        "timestampType": "CreateTime",
        "key": "a",
        "value": "one",
        "headers": [["name", "value"], ["empty", None]],
    }
    assert [line["value"] for line in lines] == ["one", "two", None, "four", "\\xfffive"]
    assert json.loads(consume("-e", "-J", "-p", "1", "-o", "1", "--values", "hex"))["value"] == b"\xfffive".hex()


@pytest.mark.parametrize(
    "options", [[], ["-J"], ["-K", ":"], ["-f", r"%t %p %o %T %K %S %k %s %h|"], ["-f", "%%"]], ids=" ".join
)
def test_many_records_are_written_as_few_are(
    options: list[str], consume: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kernels, where there are no headers, as without them."""
    found = []
    for kernels in ("plain", "compiled"):
        monkeypatch.setenv("MAGICBYTE_KERNELS", kernels)
        found.append(consume("-e", *options))
    assert found[0] == found[1]
    assert found[0]


def test_committed_records_are_read_to_their_end(consume: Callable[..., bytes]) -> None:
    assert consume("-e", "--isolation", "read_committed", "-f", "%o") == b"01201"


def test_without_e_it_waits_for_as_many_as_were_asked_for(bootstrap: str) -> None:
    assert run("topics", "create", "-b", bootstrap, "waited").exit_code == 0
    produce(bootstrap, "waited", 0, RECORDS[:1])
    with running("-b", bootstrap, "-t", "waited", "-c", "3") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        produce(bootstrap, "waited", 0, MORE * 2)
        assert process.communicate(timeout=120) == (b"four\n\xfffive\n", b"")
    assert process.returncode == 0


def test_ctrl_c_ends_the_waiting(bootstrap: str) -> None:
    with running("-b", bootstrap, "-t", "topic") as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-t", "topc"], "is it 'topic'?"),
        (["-t", "topic", "-p", "2"], "partition 2 of 'topic': expected one of 0 to 1"),
        (["-t", "topic", "-o", "4", "-p", "0"], "the offset is out of the partition's range"),
        (["-t", "topic", "-o", "soon"], "expected beginning, end, an offset"),
        (["-t", "topic", "-o", "s@soon"], "expected beginning, end, an offset"),
        (["-t", "topic", "-o", "1", "-o", "2"], "expected one place to begin"),
        (["-t", "topic", "-f", "%x"], "'%x': expected one of %s"),
        (["-t", "topic", "-f", "%"], "'%': expected one of %s"),
        (["-t", "topic", "-K", r"\q"], "expected \\n"),
        (["-t", "topic", "-J", "-f", "%s"], "-f and -J contradict each other"),
        (["-L"], "-L does not exist here: `magicbyte topics list`"),
        (["-Q", "-t", "topic:0:-1"], "-Q does not exist here"),
        (["-t", "topic", "-s", "avro", "-r", "http://registry"], "-s does not exist here"),
        (["-t", "topic", "-X", "fetch.min.bytes=1"], "no setting is called 'fetch.min.bytes'"),
    ],
)
def test_what_cannot_be_is_one_line_that_says_what_was_expected(arguments: list[str], why: str, bootstrap: str) -> None:
    result = run("consume", "-b", bootstrap, *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert why in result.stderr


def test_a_delimiter_of_ones_own_is_behind_each_value(bootstrap: str) -> None:
    usual = run("consume", "-b", bootstrap, "-t", "topic", "-e")
    other = run("consume", "-b", bootstrap, "-t", "topic", "-e", "-C", "-q", "-u", "-D", r"\0")
    assert other.stdout.count("\0") == usual.stdout.count("\n") > 0
    assert run("consume", "-b", bootstrap, "-t", "topic", "-e", "-D", "").stdout == usual.stdout.replace("\n", "")


@pytest.mark.usefixtures("impatient")
def test_a_broker_without_transactions_is_said_to_be_too_old_for_committed_records() -> None:
    part = ListOffsetsPartitionResponse(old_style_offsets=(0,))
    broker = ScriptedBroker("0.9")
    broker.answers[2] = lambda *_: ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[part])])
    with scripted(broker) as address:
        result = run("consume", "-b", address, "-t", "topic", "--isolation", "read_committed")
    assert result.exit_code == 2
    assert "read committed records: UNSUPPORTED_VERSION (35): brokers from 0.11 on" in result.stderr


def test_a_template_is_text_and_fields_and_a_delimiter_is_bytes() -> None:
    assert parse_template(r"%k=\n%%") == ["k", b"=", b"\n", b"%"]
    assert parse_template("plain") == [b"plain"]
    assert unescape(r"a\x00\t%s") == b"a\0\t%s"


def test_the_records_of_a_topic_are_those_of_the_log_that_its_broker_keeps(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        assert run("topics", "create", "-b", broker.bootstrap_servers, "topic").exit_code == 0
        produce(broker.bootstrap_servers, "topic", 0, [*RECORDS, *MORE], Codec.ZSTD)
        for values in ([], *(["--values", each] for each in CELLS)):
            found = run("consume", "-b", broker.bootstrap_servers, "-t", "topic", "-e", "--json", *values)
            kept = run("cat", tmp_path / "topic-0", "--json", *values)
            assert found.stdout == kept.stdout != ""
        refused = run("consume", "-b", broker.bootstrap_servers, "-t", "topic", "-e", "--values", "hex")
        assert (refused.exit_code, "--values is for -J" in refused.stderr) == (2, True)
