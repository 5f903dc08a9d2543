"""`magicbyte produce` against our broker, and against old ones."""

import json
import subprocess
import sys
from collections.abc import Iterator

import kafka
import pytest
from click.testing import CliRunner, Result

from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.cli.main import main
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from magicbyte.engine.records.scan import scan
from magicbyte.testing import Broker

PRODUCE = 0


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def bootstrap(shared: str) -> Iterator[str]:
    """A broker with an empty topic of three partitions."""
    assert run("topics", "create", "-b", shared, "topic", "--partitions", "3").exit_code == 0
    yield shared
    assert run("topics", "delete", "-b", shared, "topic").exit_code == 0


def produce(bootstrap: str, text: bytes, *arguments: str, topic: str = "topic") -> Result:
    return CliRunner().invoke(main, ["produce", "-b", bootstrap, "-t", topic, *arguments], input=text)


def produced(bootstrap: str, text: bytes, *arguments: str) -> list[list[object]]:
    """What is in the topic when the command has ended: partition, key, value."""
    result = produce(bootstrap, text, *arguments)
    assert (result.exit_code, result.output) == (0, "")
    lines = run("consume", "-b", bootstrap, "-t", "topic", "-e", "-J").stdout.splitlines()
    return [[found["partition"], found["key"], found["value"]] for found in map(json.loads, lines)]


@pytest.mark.parametrize(
    ("text", "arguments", "records"),
    [
        (b"one\ntwo\n", [], [(None, "one"), (None, "two")]),
        (b"one\n\nlast", [], [(None, "one"), (None, ""), (None, "last")]),
        (b"", [], []),
        (b"a;b\nc;", ["-D", ";"], [(None, "a"), (None, "b\nc")]),
        (b"k:v\nno key\n:empty\nk:a:b\n", ["-K", ":"], [("k", "v"), (None, "no key"), ("", "empty"), ("k", "a:b")]),
        (b"k\tv\n\tw\nx\t\n", ["-K", r"\t", "-Z"], [("k", "v"), (None, "w"), ("x", None)]),
        (b"k:v\nw\n", ["-K", ":", "-k", "all"], [("k", "v"), ("all", "w")]),
    ],
)
def test_each_message_is_a_record(
    text: bytes, arguments: list[str], records: list[tuple[str | None, str | None]], bootstrap: str
) -> None:
    assert produced(bootstrap, text, "-p", "1", *arguments) == [[1, key, value] for key, value in records]


def test_keys_choose_the_partitions_that_another_producer_chooses(bootstrap: str) -> None:
    keys = [b"key-%d" % number for number in range(20)]
    found = produced(bootstrap, b"".join(b"%s:ours\n" % key for key in keys), "-K", ":")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    theirs = [producer.send("topic", b"theirs", key).get(10).partition for key in keys]
    producer.close()
    assert {key: partition for partition, key, _ in found} == {
        key.decode(): partition for key, partition in zip(keys, theirs, strict=True)
    }
    assert len(set(theirs)) == 3


def test_records_without_a_key_go_to_the_partitions_in_turn_as_they_arrive(bootstrap: str) -> None:
    command = [sys.executable, "-m", "magicbyte", "produce", "-b", bootstrap, "-t", "topic"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for number in range(4):
            process.stdin.write(b"%d\n" % number)
            process.stdin.flush()
            partition = str(number % 3)
            wait = run("consume", "-b", bootstrap, "-t", "topic", "-p", partition, "-o", str(number // 3), "-c", "1")
            assert wait.stdout == f"{number}\n"
        process.stdin.close()
        assert process.wait(120) == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codec_and_headers_are_those_that_were_asked_for(codec: str, bootstrap: str) -> None:
    result = produce(bootstrap, b"value\n" * 100, "-p", "0", "-z", codec, "-H", "name=value", "-H", "other=")
    assert result.exit_code == 0
    lines = run("consume", "-b", bootstrap, "-t", "topic", "-e", "-J").stdout.splitlines()
    assert len(lines) == 100
    assert json.loads(lines[99])["headers"] == [["name", "value"], ["other", ""]]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_acks_may_be_chosen(acks: str, bootstrap: str) -> None:
    assert produce(bootstrap, b"one\n", "-p", "0", "--acks", acks).exit_code == 0
    assert run("consume", "-b", bootstrap, "-t", "topic", "-p", "0", "-c", "1").stdout == "one\n"


def test_a_topic_is_made_only_if_that_is_asked_for(bootstrap: str) -> None:
    result = produce(bootstrap, b"one\n", topic="topics")
    assert result.exit_code == 2
    assert "is it 'topic'? --create makes it" in result.output
    assert "topics" not in run("topics", "list", "-b", bootstrap).stdout
    assert produce(bootstrap, b"one\n", "--create", topic="topics").exit_code == 0
    assert run("consume", "-b", bootstrap, "-t", "topics", "-e").stdout == "one\n"
    assert run("topics", "delete", "-b", bootstrap, "topics").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-p", "3"], "partition 3 of 'topic': expected one of 0 to 2"),
        (["-H", "name"], "'name': expected NAME=VALUE"),
        (["-H", "name=value", "--magic", "1"], "magic 1 has no headers"),
        (["-D", ""], "expected at least one byte"),
        (["-l", "file"], "-l does not exist here: stdin is read line by line"),
        (["-C"], "-C does not exist here: `magicbyte consume` reads"),
        (["-X", "acks=1"], "no setting is called 'acks'"),
        (["-z", "zstd", "--magic", "1"], "zstd needs magic 2"),
        (["--transaction-records", "5"], "--transaction-records needs --transactional-id"),
        (["--transactional-id", "x", "--acks", "1"], "--transactional-id needs --acks all"),
        (["--transactional-id", "x", "--magic", "1"], "--transactional-id needs --acks all and --magic v2"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(arguments: list[str], why: str, bootstrap: str) -> None:
    result = produce(bootstrap, b"one\n", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert why in result.stderr
    assert run("consume", "-b", bootstrap, "-t", "topic", "-e").stdout == ""


def answer(request: ProduceRequest, _: int) -> ProduceResponse:
    part = PartitionProduceResponse(index=request.topic_data[0].partition_data[0].index)
    return ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=[part])])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("manner", "newest"), [("new", 2), ("0.9", 0), ("0.8.2", 0)])
@pytest.mark.parametrize("magic", [None, 0, 1])
def test_the_message_format_is_the_newest_the_broker_takes_or_the_one_asked_for(
    manner: str, newest: int, magic: int | None
) -> None:
    broker = ScriptedBroker(manner)
    broker.answers[PRODUCE] = answer
    with scripted(broker) as address:
        result = produce(address, b"one\n", *([] if magic is None else ["--magic", str(magic)]))
    if magic == 1 and newest == 0:
        assert result.exit_code == 2
        assert "UNSUPPORTED_VERSION (35): they take other message formats: see --magic" in result.stderr
        return
    assert result.exit_code == 0
    (request,) = broker.asked(ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert scan(records).magic[0] == (newest if magic is None else magic)


def test_headers_are_refused_where_the_broker_takes_only_formats_without() -> None:
    with scripted(ScriptedBroker("0.9")) as address:
        result = produce(address, b"one\n", "-H", "name=value")
    assert result.exit_code == 2
    assert "magic 0 has no headers" in result.stderr


@pytest.mark.usefixtures("impatient")
def test_an_old_broker_makes_a_topic_when_it_is_asked_for_by_name() -> None:
    broker = ScriptedBroker("0.9", topic="other")
    broker.answers[PRODUCE] = answer
    asked = broker.metadata

    def metadata(request: object, version: int) -> object:
        if getattr(request, "topics", None):
            broker.topic = "topic"
        return asked(request, version)

    broker.answers[3] = metadata  # type: ignore[assignment]
    with scripted(broker) as address:
        assert produce(address, b"one\n", "--create").exit_code == 0
    assert len(broker.asked(ProduceRequest)) == 1


def read(bootstrap: str, isolation: str) -> list[str]:
    found = run("consume", "-b", bootstrap, "-t", "topic", "-e", "--isolation", isolation)
    assert found.exit_code == 0
    return found.stdout.splitlines()


def test_the_input_is_one_transaction_or_one_for_so_many_records(bootstrap: str) -> None:
    text = b"".join(b"%d\n" % number for number in range(25))
    for arguments in ([], ["--transaction-records", "10"]):
        result = produce(bootstrap, text, "-p", "0", "--transactional-id", "lines", *arguments)
        assert (result.exit_code, result.output) == (0, "")
    described = json.loads(run("transactions", "describe", "-b", bootstrap, "lines", "--format", "json").stdout)
    assert described[0]["producerEpoch"] == 1
    assert read(bootstrap, "read_uncommitted") == 2 * [str(number) for number in range(25)]
    last = run("consume", "-b", bootstrap, "-t", "topic", "-p", "0", "-e", "-J").stdout.splitlines()[-1]
    assert json.loads(last)["offset"] == 25 + 1 + 24 + 2  # with markers after the first 25, and 10 and 20 of the others


def test_of_a_transaction_that_fails_nothing_is_committed_and_it_is_said_what_was_before(bootstrap: str) -> None:
    text = b"1\n2\n3\n4\n" + bytes(3 << 20)
    for arguments, note in ([], ""), (["--transaction-records", "2"], "4 records were committed before\n"):
        result = produce(bootstrap, text, "-p", "0", "--transactional-id", "fails", *arguments)
        assert result.exit_code == 2
        assert result.stderr.startswith(note)
        assert "MESSAGE_TOO_LARGE (10)" in result.stderr
    produce(bootstrap, b"end\n", "-p", "0", "--transactional-id", "fails")
    assert read(bootstrap, "read_committed") == ["1", "2", "3", "4", "end"]


def test_brokers_without_transactions_are_reported() -> None:
    with Broker({"as.version": "0.10.2"}) as old:
        run("topics", "create", "-b", old.bootstrap_servers, "topic")
        result = produce(old.bootstrap_servers, b"one\n", "--transactional-id", "x")
    assert result.exit_code == 2
    assert "transactions need brokers from 0.11 on" in result.stderr
