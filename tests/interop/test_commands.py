"""Every command that speaks to clusters, with real brokers of seven eras and ours: the same output for the same data.

What eras lack is said here and nowhere else: times (before 0.10), headers (before 0.11), groups as more than offsets
(before 0.9; those without members before 0.10), offsets in ZooKeeper (none from 4.0 on), and the requests for topics
(from 0.10.1 on), settings (0.11), groups that go (1.1), settings one by one (2.3).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from interop import jvm
from interop.kafka_oracle import version_key
from magicbyte.access.client import Client
from magicbyte.access.client.partitioning import partition_of
from magicbyte.access.client.produce import send
from magicbyte.cli.main import main
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

OURS = "ours"
VERSIONS = (OURS, "0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "2.8.2", "3.9.1", "4.3.1")
START = 1_700_000_000_000  # 2023-11-14T22:13:20Z
COUNT = 10  # records of a partition, a second apart
SETTINGS = ["num.partitions=2", "delete.topic.enable=true", "log.retention.ms=-1"]  # the last one from 0.9 on
SECONDS = 180
KEYS: list[bytes | None] = [b"a", None, b""]
VALUES: list[bytes | None] = [b"value \xc3\xbc", b"", None, b"\xff"]


def records(partition: int) -> list[Record]:
    return [
        Record(0, START + 1000 * at, 0, KEYS[at % 3], VALUES[(at + partition) % 4], ())
        for at in range(COUNT + partition)
    ]


class Cluster:
    """One broker with the data: topic `fixed`, and `lines` by `produce`. `has`: whether it is of a version or later."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version, self.bootstrap = version, bootstrap
        for topic in ("fixed", "lines"):
            if self.has("0.10.1"):
                self.said("topics", "create", topic, "--partitions", "2")
                settle(lambda topic=topic: topic in self.said("topics", "list"))  # by the broker, too
        asyncio.run(asyncio.wait_for(self._fill(), SECONDS))
        made = [] if self.has("0.10.1") else ["--create"]
        self.said("produce", "-t", "lines", "-p", "0", "-K", ":", *made, text=b"a:1\nb\n:2\nc:\nd:\xc3\xbc\n")
        self.said(
            "produce", "-t", "lines", "-K", ":", "-z", "gzip", text=b"".join(b"k%d:v%d\n" % (at, at) for at in range(9))
        )

    async def _fill(self) -> None:
        async with Client(self.bootstrap) as client:
            await client.topics(["fixed"])  # which creates it if it does not exist
            for partition in (0, 1):
                await send(client, "fixed", partition, records(partition))

    def has(self, version: str) -> bool:
        return self.version == OURS or version_key(self.version) >= version_key(version)

    @property
    def has_zookeeper(self) -> bool:
        return self.version == OURS or not self.has("4.0")

    def run(self, command: str, *arguments: str, text: bytes = b"") -> Any:
        """Run a command; -b comes behind its name, and that of what it does."""
        group = command in ("topics", "groups", "configs")
        words = [command, *arguments[:1], "-b", self.bootstrap, *arguments[1:]] if group else [
            command, *([] if command in ("cat", "inventory", "diff") else ["-b", self.bootstrap]), *arguments
        ]  # fmt: skip
        result = CliRunner().invoke(main, words, input=text)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def said(self, command: str, *arguments: str, text: bytes = b"") -> str:
        """Return what a command prints that succeeds and has nothing to complain about."""
        result = self.run(command, *arguments, text=text)
        assert (result.exit_code, result.stderr) == (0, ""), arguments
        return str(result.stdout_bytes.decode("latin-1"))

    def warned(self, command: str, *arguments: str) -> str:
        """Return what a command prints that succeeds, and warns that members of a group may be unknown."""
        result = self.run(command, *arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1), arguments
        assert "has members is not known" in result.stderr
        return str(result.stdout_bytes.decode("latin-1"))

    def refused(self, command: str, *arguments: str) -> str:
        """Return the one line of a command that fails."""
        result = self.run(command, *arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        return str(result.stderr)

    def at(self, path: str) -> str:
        return f"kafka://{self.bootstrap}/{path}"


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    version: str = request.param
    with contextlib.ExitStack() as stack:
        if version == OURS:
            given = dict(each.split("=") for each in SETTINGS)
            bootstrap = stack.enter_context(Broker(given)).bootstrap_servers
        else:
            folder: Path = tmp_path_factory.mktemp(f"commands-{version}")
            settings = SETTINGS[:-1] if version.startswith("0.8") else SETTINGS
            bootstrap = stack.enter_context(jvm.broker(version, folder, *settings, scratch=True))["bootstrap"]
        yield Cluster(version, bootstrap)


def text_of(cell: bytes | None) -> str | None:
    return None if cell is None else cell.decode(errors="backslashreplace")


def lines_of(cluster: Cluster, partition: int) -> list[dict[str, Any]]:
    """What -J and jsonl say of the records of a partition."""
    timed = cluster.has("0.10")
    return [
        {
            "topic": "fixed",
            "partition": partition,
            "offset": at,
            "timestamp": each.timestamp if timed else -1,
            "timestampType": "CreateTime" if timed else "NoTimestampType",
            "key": text_of(each.key),
            "value": text_of(each.value),
            "headers": [],
        }
        for at, each in enumerate(records(partition))
    ]


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_topics(cluster: Cluster) -> None:
    assert cluster.said("topics", "list") == (
        "topic  partitions  replicas\nfixed           2         1\nlines           2         1\n"
    )
    epoch = "0" if cluster.has("2.1") else "-"
    assert cluster.said("topics", "describe", "fixed") == (
        "partition  leader  epoch  replicas  in sync  offline  start  end  state\n"
        f"fixed-0         0      {epoch}  0         0        -            0   10  ok\n"
        f"fixed-1         0      {epoch}  0         0        -            0   11  ok\n"
    )
    assert "is it 'fixed'?" in cluster.refused("topics", "describe", "fixd")
    if not cluster.has("0.10.1"):
        assert "brokers from 0.10.1 on can do it" in cluster.refused("topics", "create", "more")
        assert "brokers from 0.10.1 on can do it" in cluster.refused("topics", "delete", "fixed")
        return
    cluster.said("topics", "create", "more")
    settle(lambda: "more" in cluster.said("topics", "list"))
    assert "TOPIC_ALREADY_EXISTS (36)" in cluster.refused("topics", "create", "more")
    cluster.said("topics", "delete", "more")


def test_consume(cluster: Cluster) -> None:
    expected = [lines_of(cluster, 0), lines_of(cluster, 1)]
    assert parsed(cluster.said("consume", "-t", "fixed", "-e", "-J")) == expected[0] + expected[1]
    assert parsed(cluster.said("consume", "-t", "fixed", "-e", "-J", "-p", "1", "-o", "-3")) == expected[1][-3:]
    assert parsed(cluster.said("consume", "-t", "fixed", "-e", "-J", "-o", "4", "-c", "3")) == expected[0][4:7]
    assert cluster.said("consume", "-t", "fixed", "-e", "-o", "end") == ""
    every = cluster.said("consume", "-t", "fixed", "-e", "-p", "0", "-c", "4", "-f", r"%t %p %o %T %k %K %s %S %h|")
    times = [START + 1000 * at if cluster.has("0.10") else -1 for at in range(4)]
    assert every == (
        f"fixed 0 0 {times[0]} a 1 value \xc3\xbc 8 |fixed 0 1 {times[1]}  -1  0 |"
        f"fixed 0 2 {times[2]}  0  -1 |fixed 0 3 {times[3]} a 1 \xff 1 |"
    )
    if cluster.has("0.10.1"):
        times_of = ["-o", f"s@{START + 2500}", "-o", f"e@{START + 5000}"]
        assert parsed(cluster.said("consume", "-t", "fixed", "-J", "-p", "0", *times_of)) == expected[0][3:5]
    if cluster.has("0.11"):
        committed = cluster.said("consume", "-t", "fixed", "-e", "-J", "--isolation", "read_committed")
        assert parsed(committed) == expected[0] + expected[1]
    else:
        complaint = cluster.refused("consume", "-t", "fixed", "-e", "--isolation", "read_committed")
        assert "brokers from 0.11 on can do it" in complaint


def test_produce(cluster: Cluster) -> None:
    """The records written by the fixture."""
    found = cluster.said("consume", "-t", "lines", "-e", "-f", r"%p %k:%s %K\n").splitlines()
    assert found[:5] == ["0 a:1 1", "0 :b -1", "0 :2 0", "0 c: 1", "0 d:\xc3\xbc 1"]
    assert sorted(found[5:]) == sorted(f"{partition_of(b'k%d' % at, 2)} k{at}:v{at} 2" for at in range(9))
    if cluster.has("0.11"):
        cluster.said("produce", "-t", "lines", "-p", "1", "-H", "name=value", text=b"last\n")
        assert cluster.said("consume", "-t", "lines", "-e", "-p", "1", "-o", "-1", "-f", "%s %h") == "last name=value"
    else:
        assert "has no headers" in cluster.refused("produce", "-t", "lines", "-H", "name=value")
    assert "expected on the brokers, found none of that name" in cluster.refused("produce", "-t", "nowhere")


def test_cat_inventory_and_diff(cluster: Cluster) -> None:
    expected = [lines_of(cluster, 0), lines_of(cluster, 1)]
    whole = cluster.said("cat", cluster.at("fixed"), "--format", "jsonl", "--values", "utf8")
    assert parsed(whole) == expected[0] + expected[1]
    part = cluster.said(
        "cat", cluster.at("fixed/1"), "--from", "2", "--to", "5", "--format", "jsonl", "--values", "utf8"
    )
    assert parsed(part) == expected[1][2:5]
    if cluster.has("0.10"):
        since = cluster.said("cat", cluster.at("fixed/0"), "--since", str(START + 6500), "--format", "csv")
        assert [line.split(",")[2] for line in since.splitlines()] == ["offset", "7", "8", "9"]
    taken = json.loads(cluster.said("inventory", cluster.at("fixed"), "--format", "json"))
    magic = 2 if cluster.has("0.11") else 1 if cluster.has("0.10") else 0
    assert [(each["firstOffset"], each["lastOffset"], each["records"]) for each in taken["partitions"]] == [
        (0, 9, 10),
        (0, 10, 11),
    ]
    assert [(each["magic"], each["codec"]) for each in taken["total"]["formats"]] == [(magic, "none")]
    assert "2 partitions compared" in cluster.said("diff", cluster.at("fixed"), cluster.at("fixed"))
    assert cluster.run("diff", cluster.at("fixed/0"), cluster.at("fixed/1")).exit_code == 1


def test_diff_with_the_same_data_on_our_broker(cluster: Cluster) -> None:
    with Broker({"num.partitions": "2"}) as broker:
        here = Cluster(OURS, broker.bootstrap_servers)
        result = here.run("diff", cluster.at("fixed"), here.at("fixed"))
    assert (result.exit_code, result.stderr) == (0, "")
    lacking = "" if cluster.has("0.10") else (
        "  not compared: timestamps of 21 records, for which the other side's format has no place\n"
    )  # fmt: skip
    assert result.stdout == (
        f"same: 21 records in 2 partitions compared: offset, key, value, timestamps, headers\n{lacking}"
    )


def test_groups_by_offset(cluster: Cluster) -> None:
    reset = ["groups", "reset-offsets", "readers"]
    changed = cluster.said if cluster.has("0.9") else cluster.warned
    dry = changed(*reset, "--to-offset", "4", "-t", "fixed", "--dry-run")
    assert dry.splitlines()[1].split() == ["fixed-0", "-", "4", "0", "10", "6"]
    assert "GROUP_ID_NOT_FOUND (69)" in cluster.refused("groups", "describe", "readers")
    changed(*reset, "--to-offset", "4", "-t", "fixed")
    moved = cluster.run(*reset, "--shift-by", "-5")
    assert moved.stderr.count("-1 is not within 0 to 1") == 2
    changed(*reset, "--to-latest", "-t", "fixed:1")
    state = "Empty" if cluster.has("0.10") else "Dead"
    title = f"readers: {state}, 0 members, coordinator 0"
    if not cluster.has("0.9"):
        title = "readers: offsets only: brokers before 0.9 know no members"
    assert cluster.said("groups", "describe", "readers") == (
        f"{title}\n"
        "partition  offset  end  lag  member  client  host\n"
        "fixed-0         0   10   10  -       -       -\n"
        "fixed-1        11   11    0  -       -       -\n"
    )
    if cluster.has("0.10.1"):
        to_time = cluster.said(*reset, "--to-datetime", str(START + 3500), "-t", "fixed:0", "--format", "json")
        assert [each["offset"] for each in json.loads(to_time)["partitions"]] == [4]
    if not cluster.has("0.9"):
        assert "brokers from 0.9 on can do it" in cluster.refused("groups", "list")
    elif cluster.has("0.10"):
        every = json.loads(cluster.said("groups", "list", "--format", "json"))
        (listed,) = [each for each in every if each["group"] == "readers"]
        expected = ("readers", "Empty" if cluster.has("2.6") else None, "classic" if cluster.has("3.8") else None)
        assert (listed["group"], listed["state"], listed["kind"]) == expected
        described = cluster.said("groups", "describe", "--all-groups", "--format", "json")
        assert "readers" in [each["group"] for each in json.loads(described)]
    if cluster.has("1.1"):
        cluster.said("groups", "delete", "readers")
        assert "readers" not in cluster.said("groups", "list")
    else:
        assert "brokers from 1.1 on can do it" in cluster.refused("groups", "delete", "readers")


def test_offsets_in_zookeeper(cluster: Cluster) -> None:
    reset = ["groups", "reset-offsets", "old", "--to-offset", "3", "-t", "fixed:0", "--zookeeper"]
    if not cluster.has_zookeeper:
        refused = cluster.run(*reset)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "those of 4.0 and later have no ZooKeeper" in refused.stderr
        return
    cluster.warned(*reset)
    title, _, row = cluster.said("groups", "describe", "old").splitlines()
    assert "with offsets in ZooKeeper, of consumers whose members only ZooKeeper knows" in title
    assert row.split() == ["fixed-0", "3", "10", "7", "(ZooKeeper)", "-", "-"]


def test_groups_with_members(cluster: Cluster) -> None:
    if not cluster.has("0.10"):  # librdkafka joins no group of brokers that do not tell their versions
        return
    protocols = ["classic", "consumer"] if cluster.version != OURS and cluster.has("4.0") else ["classic"]
    for protocol in protocols:
        with member(cluster.bootstrap, protocol):
            (found,) = json.loads(cluster.said("groups", "describe", protocol, "--format", "json"))
            (each,) = found["members"]
            assert (found["state"], found["kind"], found["protocolType"]) == ("Stable", protocol, "consumer")
            assert (each["clientId"], each["partitions"]) == ("mine", ["fixed-0", "fixed-1"])
            assert [(row["offset"], row["end"], row["member"]) for row in found["partitions"]] == [
                (2, 10, each["id"]),
                (None, 11, each["id"]),
            ]
            for command in (["delete", protocol], ["reset-offsets", protocol, "--to-latest"]):
                if command[0] != "delete" or cluster.has("1.1"):
                    assert "NON_EMPTY_GROUP (68): 1 member (mine at " in cluster.refused("groups", *command)


@contextlib.contextmanager
def member(bootstrap: str, protocol: str) -> Iterator[None]:
    """A member of the group of that name, with an offset in partition 0, inside the block."""
    settings = {"bootstrap.servers": bootstrap, "group.id": protocol, "client.id": "mine", "enable.auto.commit": False,
                "auto.offset.reset": "earliest", "group.protocol": protocol}  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["fixed"])
        settle(lambda: (consumer.poll(0.05), len(consumer.assignment()) == 2)[1])
        (place,) = [each for each in consumer.assignment() if each.partition == 0]
        place.offset = 2
        consumer.commit(offsets=[place], asynchronous=False)
        yield
    finally:
        consumer.close()


def settle(condition: Callable[[], bool]) -> None:
    """Wait until something is so: brokers take a moment to hear of a change."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it has not come so far"
        time.sleep(0.01)


def test_configs(cluster: Cluster) -> None:
    where = ["-t", "fixed"]
    if not cluster.has("0.11"):
        for command in (["describe"], ["set", "retention.ms=5"], ["unset", "retention.ms"]):
            assert "brokers from 0.11 on can do it" in cluster.refused("configs", command[0], *where, *command[1:])
        return

    def own(*whose: str) -> dict[str, str]:
        (found,) = json.loads(cluster.said("configs", "describe", *whose, "--format", "json"))
        return {each["name"]: each["value"] for each in found["settings"]}

    def change(*arguments: str) -> None:
        result = cluster.run("configs", *arguments)
        assert result.exit_code == 0, result.stderr
        assert ("replace all settings at once" in result.stderr) == (not cluster.has("2.3"))

    change("set", *where, "retention.ms=123456789", "cleanup.policy=compact")
    settle(lambda: own(*where) == {"retention.ms": "123456789", "cleanup.policy": "compact"})
    assert cluster.said("configs", "describe", *where) == (
        "of     setting         value      set for\n"
        "fixed  cleanup.policy  compact    topic\n"
        "fixed  retention.ms    123456789  topic\n"
    )
    change("unset", *where, "cleanup.policy")
    settle(lambda: own(*where) == {"retention.ms": "123456789"})
    change("set", *where, "retention.ms=5", "--dry-run")
    change("unset", *where, "retention.ms")
    settle(lambda: own(*where) == {})
    change("set", "--broker", "0", "log.segment.bytes=12345678")
    settle(lambda: own("--broker", "0") == {"log.segment.bytes": "12345678"})
    change("unset", "--broker", "0", "log.segment.bytes")
    if cluster.has("1.1"):
        change("set", "--entity-default", "log.segment.bytes=12345678")
        settle(lambda: own("--entity-default").get("log.segment.bytes") == "12345678")  # 4.1 sets one by itself
        settle(lambda: own("--broker", "0") == {})
        change("unset", "--entity-default", "log.segment.bytes")
        settle(lambda: "log.segment.bytes" not in own("--entity-default"))
    assert "is it 'fixed'?" in cluster.refused("configs", "describe", "-t", "fixd")
    assert "broker 7: expected one of 0" in cluster.refused("configs", "describe", "--broker", "7")
    refusal = cluster.run("configs", "set", *where, "cleanup.policy=burn").stderr
    assert "INVALID_CONFIG (40)" in refusal or "INVALID_REQUEST (42)" in refusal
