"""`magicbyte cat` and `inventory` of topics, beside the folders that their brokers keep of them."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_data
from access.client.broker import ScriptedBroker, scripted
from cli.builders import Topic, folder_of, log_directory, served
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker

START = 1_700_000_000_000
GOLDEN = ["0.8.2.2/basic-none", "0.8.2.2/basic-gzip", "0.10.2.2/basic-lz4", "0.11.0.3/mixed-gzip-090-0102-0110",
          "3.9.1/basic-none", "4.3.1/basic-zstd", "4.3.1/txn-open-none"]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker's address and its log directory: a topic with two partitions of sets in several codecs and formats."""

    async def work(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 2))
            for turn, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)):
                for partition in (0, 1):
                    records = [
                        Record(0, START + 1000 * (20 * turn + at), 0, b"key-%d" % (at % 3), b"value-%d" % at,
                               (("name", b"x"),) if turn == 1 else ())
                        for at in range(20)
                    ]  # fmt: skip
                    await send(client, "orders", partition, records, ProduceOptions(codec=codec, batch_bytes=300))
            old = [Record(0, START + 90_000, 0, None, b"old")] * 3
            await send(client, "orders", 0, old, ProduceOptions(format=Format.V1))

    folder: Path = tmp_path_factory.mktemp("log")
    with Broker(directory=folder) as broker:
        asyncio.run(work(broker.bootstrap_servers))
        yield broker.bootstrap_servers, folder


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--format", "jsonl"],
        ["--format", "csv", "--values", "utf8"],
        ["--from", "7", "--to", "61"],
        ["--partition", "1", "-n", "5"],
        ["--since", str(START + 25_500), "--until", str(START + 70_000)],
        ["--since", "2033-05-18"],
        ["--key", "key-2"],
        ["--isolation", "read_committed", "--threads", "1"],
    ],
    ids=" ".join,
)
def test_cat_gives_of_a_topic_what_it_gives_of_the_log_directory(options: list[str], log: tuple[str, Path]) -> None:
    address, folder = log
    expected = run("cat", folder, "--topic", "orders", *options)
    found = run("cat", f"kafka://{address}/orders", *options)
    assert (found.exit_code, found.stdout, found.stderr) == (0, expected.stdout, expected.stderr)
    assert bool(found.stdout) == ("2033-05-18" not in options)


def test_cat_of_one_partition_and_of_several_addresses(log: tuple[str, Path]) -> None:
    address, folder = log
    for number in (0, 1):
        expected = run("cat", folder / f"orders-{number}").stdout
        assert run("cat", f"kafka://{address}/orders/{number}").stdout == expected
    both = run("cat", f"kafka://{address}/orders/0", f"kafka://{address}/orders/1").stdout
    assert both == run("cat", folder, "--topic", "orders").stdout
    beside = run("cat", folder / "orders-0", f"kafka://{address}/orders/1").stdout
    assert beside == both


def test_cat_writes_parquet_of_a_topic(log: tuple[str, Path], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    address, folder = log
    for name, path in (("a", f"kafka://{address}/orders"), ("b", folder)):
        result = run("cat", path, "--topic", "orders", "--format", "parquet", "-o", tmp_path / name)
        assert result.exit_code == 0, result.stderr
    assert pq.read_table(tmp_path / "a").equals(pq.read_table(tmp_path / "b"))


def test_batches_of_a_topic_are_those_of_its_folder_but_for_names(log: tuple[str, Path]) -> None:
    address, folder = log
    lines = [
        [
            json.loads(line) | {"segment": ""}
            for line in run("cat", path, "--batches", "--from", "30").stdout.splitlines()
        ]
        for path in (f"kafka://{address}/orders/0", folder / "orders-0")
    ]
    first = lines[0][0]["position"]
    assert first == 0
    shift = lines[1][0]["position"]
    assert [each | {"position": each["position"] + shift} for each in lines[0]] == lines[1]
    assert len(lines[0]) > 3


@pytest.mark.parametrize("name", GOLDEN)
def test_the_inventory_of_a_topic_is_that_of_its_folder(name: str, tmp_path: Path) -> None:
    case = golden_data.log_case(name)
    folder = log_directory(tmp_path, case)
    with served(Topic(folder_of(case))) as bootstrap:
        fetched = run("inventory", f"kafka://{bootstrap}/topic", "--format", "json")
        text = run("inventory", f"kafka://{bootstrap}/topic/0").stdout.splitlines()
    expected: Any = json.loads(run("inventory", folder, "--format", "json").stdout)
    found: Any = json.loads(fetched.stdout)
    assert fetched.exit_code == 0
    for one, other in zip(found["partitions"], expected["partitions"], strict=True):
        same = other | {"path": one["path"], "segments": None, "state": None, "leftovers": [], "orphans": []}
        assert one == same
    assert found["total"] | {"segments": 0} == expected["total"] | {"segments": 0, "leftovers": 0, "orphans": 0}
    assert text[1].split()[:2] == ["topic-0", "-"]


@pytest.mark.parametrize("command", ["cat", "inventory", "diff"])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("orders/2", "partition 2 of 'orders': expected one of 0 to 1"),
        ("order", "is it 'orders'?"),
        ("orders/one", "expected kafka://HOST:PORT/TOPIC or kafka://HOST:PORT/TOPIC/PARTITION"),
        ("", "expected kafka://HOST:PORT/TOPIC or"),
    ],
)
def test_what_is_not_there_is_one_line(command: str, path: str, said: str, log: tuple[str, Path]) -> None:
    address = f"kafka://{log[0]}/{path}"
    result = run(command, address, *([address] if command == "diff" else []))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr


def test_a_deep_inventory_is_for_logs_on_disk(log: tuple[str, Path]) -> None:
    result = run("inventory", f"kafka://{log[0]}/orders", "--deep")
    assert result.exit_code == 2
    assert "--deep is for logs on disk" in result.stderr


def test_damage_in_a_fetch_response_is_reported_and_cat_continues_after_it() -> None:
    topic = Topic(folder_of(golden_data.log_case("3.9.1/basic-none")))
    whole = [content for _, content in topic.sets]
    assert len(whole) > 2
    topic.sets[1] = (topic.sets[1][0], whole[1][:-1] + bytes((whole[1][-1] ^ 1,)))
    with served(topic) as bootstrap:
        stopped = run("cat", f"kafka://{bootstrap}/topic/0")
        skipped = run("cat", f"kafka://{bootstrap}/topic/0", "--on-damage", "skip")
    assert (stopped.exit_code, skipped.exit_code) == (1, 1)
    assert "damage: kafka://" in stopped.stderr
    assert len(skipped.stdout.splitlines()) > len(stopped.stdout.splitlines()) > 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("manner", ["0.8.2", "0.9"])
def test_committed_records_of_an_old_broker_are_said_to_be_too_much(manner: str) -> None:
    broker, topic = ScriptedBroker(manner), Topic(folder_of(golden_data.log_case("0.8.2.2/basic-none")))

    def old(request: Any, version: int) -> Any:
        found = topic.list_offsets(request, version)
        each = found.topics[0].partitions[0]
        each.old_style_offsets, each.offset = (each.offset,), -1
        return found

    broker.answers |= {1: topic.fetch, 2: old}
    with scripted(broker) as bootstrap:
        plain = run("cat", f"kafka://{bootstrap}/topic/0", "--since", "0")
        committed = run("cat", f"kafka://{bootstrap}/topic/0", "--isolation", "read_committed")
    assert (plain.exit_code, committed.exit_code) == (0, 2)
    assert "UNSUPPORTED_VERSION (35): brokers from 0.11 on can do it" in committed.stderr
