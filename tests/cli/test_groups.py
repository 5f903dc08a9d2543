"""`magicbyte groups` against our broker with members in its groups, and against brokers of other eras."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from access.client.broker import scripted
from cli.builders import Groups
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.access.client.groups import Committed, commit_offsets
from magicbyte.access.client.produce import send
from magicbyte.engine.protocol.messages import consumer_group_describe as new
from magicbyte.engine.protocol.messages import describe_share_group_offsets as share_offsets
from magicbyte.engine.protocol.messages import share_group_describe as sharing
from magicbyte.engine.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from magicbyte.engine.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from magicbyte.engine.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
)
from magicbyte.engine.records.columns import Record
from magicbyte.testing import Broker

START = 1_700_000_000_000
RECORDS = 10  # in each partition of topic `orders`, a second apart


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    async def work(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders", 2))
            await admin.create_topic(client, admin.NewTopic("empty"))
            for partition in (0, 1):
                records = [Record(0, START + 1000 * at, 0, None, b"value") for at in range(RECORDS)]
                await send(client, "orders", partition, records)

    with Broker() as broker:
        asyncio.run(work(broker.bootstrap_servers))
        yield broker.bootstrap_servers


@pytest.fixture
def bootstrap(shared: str) -> Iterator[str]:
    """A broker with the group `readers`, at offset 3 of partition 0 and offset 7 of partition 1."""
    commit(shared, "readers", {("orders", 0): 3, ("orders", 1): 7})
    yield shared
    left = [each["group"] for each in json.loads(run("groups", "list", "-b", shared, "--format", "json").stdout)]
    if left:
        assert run("groups", "delete", "-b", shared, *left).exit_code == 0


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int], *, zookeeper: bool = False) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client:
            await commit_offsets(client, group, {at: Committed(to) for at, to in offsets.items()}, zookeeper=zookeeper)

    asyncio.run(work())


@contextlib.contextmanager
def consumer(bootstrap: str, group: str) -> Iterator[None]:
    """A member of the group, with its partitions, inside the block."""
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "mine",
                       "enable.auto.commit": False})  # fmt: skip
    try:
        member.subscribe(["orders"])
        end = time.monotonic() + 120
        while not member.assignment():
            assert time.monotonic() < end, "the group has given it nothing to read"
            member.poll(0.1)
        yield
    finally:
        member.close()


def described(bootstrap: str, group: str) -> dict[str, Any]:
    result = run("groups", "describe", "-b", bootstrap, group, "--format", "json")
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def offsets(bootstrap: str, group: str = "readers") -> dict[str, int]:
    found = described(bootstrap, group)["partitions"]
    return {f"{each['topic']}-{each['partition']}": each["offset"] for each in found}


def test_groups_are_listed_with_their_state(bootstrap: str) -> None:
    assert run("groups", "list", "-b", bootstrap).stdout == (
        "group    for  kind     state\nreaders  -    classic  Empty\n"
    )
    assert json.loads(run("groups", "list", "-b", bootstrap, "--format", "json").stdout) == [
        {"group": "readers", "protocolType": "", "kind": "classic", "state": "Empty"}
    ]


def test_a_group_is_described_with_its_lag(bootstrap: str) -> None:
    assert run("groups", "describe", "-b", bootstrap, "readers").stdout == (
        "readers: Empty, 0 members, coordinator 0\n"
        "partition  offset  end  lag  member  client  host\n"
        "orders-0        3   10    7  -       -       -\n"
        "orders-1        7   10    3  -       -       -\n"
    )


def test_all_groups_are_described_without_being_named(bootstrap: str) -> None:
    commit(bootstrap, "another", {("orders", 0): 1})
    found = run("groups", "describe", "-b", bootstrap, "--all-groups", "--format", "json")
    assert sorted(each["group"] for each in json.loads(found.stdout)) == ["another", "readers"]
    text = run("groups", "describe", "-b", bootstrap, "--all-groups").stdout
    assert "readers: Empty, 0 members, coordinator 0\n" in text
    assert "\n\n" in text
    assert run("groups", "delete", "-b", bootstrap, "another", "readers").exit_code == 0
    assert run("groups", "describe", "-b", bootstrap, "--all-groups").stdout == ""


@pytest.mark.parametrize("arguments", [[], ["readers", "--all-groups"]])
def test_a_description_is_of_some_groups_or_of_all(arguments: list[str], bootstrap: str) -> None:
    result = run("groups", "describe", "-b", bootstrap, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected GROUP..., or --all-groups" in result.stderr


def test_a_member_is_shown_beside_the_partitions_that_it_reads(bootstrap: str) -> None:
    with consumer(bootstrap, "readers"):
        found = described(bootstrap, "readers")
        text = run("groups", "describe", "-b", bootstrap, "readers").stdout.splitlines()
    (member,) = found["members"]
    assert (found["state"], found["protocolType"], found["assignor"]) == ("Stable", "consumer", "range")
    assert (member["clientId"], member["partitions"]) == ("mine", ["orders-0", "orders-1"])
    assert [each["member"] for each in found["partitions"]] == [member["id"]] * 2
    assert text[0] == "readers: Stable, 1 member, range, coordinator 0"
    assert text[2].split()[:6] == ["orders-0", "3", "10", "7", member["id"], "mine"]


def test_a_group_with_members_is_neither_deleted_nor_reset(bootstrap: str) -> None:
    with consumer(bootstrap, "readers"):
        for command in (["delete", "readers"], ["reset-offsets", "readers", "--to-earliest"]):
            result = run("groups", command[0], "-b", bootstrap, *command[1:])
            assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
            assert "NON_EMPTY_GROUP (68): 1 member (mine at 127.0.0.1): stop these consumers first" in result.stderr
    assert offsets(bootstrap) == {"orders-0": 3, "orders-1": 7}


def test_none_is_deleted_where_one_of_two_is_not_there(bootstrap: str) -> None:
    result = run("groups", "delete", "-b", bootstrap, "readers", "reader")
    assert result.exit_code == 2
    assert "group 'reader': GROUP_ID_NOT_FOUND (69): is it 'readers'?" in result.stderr
    assert offsets(bootstrap) == {"orders-0": 3, "orders-1": 7}
    assert run("groups", "delete", "-b", bootstrap, "readers").exit_code == 0
    assert run("groups", "list", "-b", bootstrap).stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], {"orders-0": 0, "orders-1": 0}),
        (["--to-latest"], {"orders-0": 10, "orders-1": 10}),
        (["--to-offset", "5"], {"orders-0": 5, "orders-1": 5}),
        (["--shift-by", "-2"], {"orders-0": 1, "orders-1": 5}),
        (["--to-datetime", str(START + 3500)], {"orders-0": 4, "orders-1": 4}),
        (["--to-datetime", "2033-05-18"], {"orders-0": 10, "orders-1": 10}),
        (["--to-latest", "-t", "orders:1"], {"orders-0": 3, "orders-1": 10}),
        (["--to-latest", "-t", "orders", "-t", "empty"], {"orders-0": 10, "orders-1": 10, "empty-0": 0}),
    ],
    ids=lambda each: " ".join(each),
)
def test_offsets_are_reset_and_a_dry_run_says_the_same_and_does_nothing(
    options: list[str], expected: dict[str, int], bootstrap: str
) -> None:
    before = offsets(bootstrap)
    command = ["groups", "reset-offsets", "-b", bootstrap, "readers", *options, "--format", "json"]
    dry = json.loads(run(*command, "--dry-run").stdout)
    assert offsets(bootstrap) == before
    done = json.loads(run(*command).stdout)
    assert offsets(bootstrap) == expected
    assert (dry["dryRun"], done["dryRun"]) == (True, False)
    assert dry["partitions"] == done["partitions"]
    for each in done["partitions"]:
        name = f"{each['topic']}-{each['partition']}"
        assert (each["was"], each["offset"]) == (before.get(name), expected[name])
        assert each["lag"] == each["end"] - each["offset"]


def test_a_reset_as_a_table_and_what_lies_outside_is_said(bootstrap: str) -> None:
    result = run("groups", "reset-offsets", "-b", bootstrap, "readers", "--shift-by", "5", "--dry-run")
    assert result.stdout == (
        "partition  was  would be  start  end  lag\n"
        "orders-0     3         8      0   10    2\n"
        "orders-1     7        10      0   10    0\n"
    )
    assert result.stderr == "magicbyte: warning: orders-1: 12 is not within 0 to 10: 10 is used\n"


def test_a_group_that_is_not_there_is_made_where_topics_are_named(bootstrap: str) -> None:
    command = ["groups", "reset-offsets", "-b", bootstrap, "fresh", "--to-earliest"]
    assert "is it" not in run(*command).stderr
    assert run(*command, "-t", "orders:0").exit_code == 0
    assert offsets(bootstrap, "fresh") == {"orders-0": 0}


def test_offsets_in_zookeeper_are_said_to_be_there_and_reset_there(bootstrap: str) -> None:
    commit(bootstrap, "old", {("orders", 1): 4}, zookeeper=True)
    text = run("groups", "describe", "-b", bootstrap, "old").stdout
    assert "with offsets in ZooKeeper, of consumers whose members only ZooKeeper knows" in text
    assert text.splitlines()[2].split() == ["orders-1", "4", "10", "6", "(ZooKeeper)", "-", "-"]
    refused = run("groups", "reset-offsets", "-b", bootstrap, "old", "--to-latest")
    assert refused.exit_code == 2
    assert "its offsets are in ZooKeeper, where its consumers look: add --zookeeper" in refused.stderr
    assert run("groups", "reset-offsets", "-b", bootstrap, "old", "--to-latest", "--zookeeper").exit_code == 0
    commit(bootstrap, "old", {("orders", 0): 1})
    assert len(described(bootstrap, "old")["partitions"]) == 1
    both = json.loads(run("groups", "describe", "-b", bootstrap, "old", "--zookeeper", "--format", "json").stdout)
    assert [each["keptIn"] for each in both[0]["partitions"]] == ["kafka", "zookeeper"]
    kept = both[0]["partitions"][1]
    assert (kept["offset"], kept["keptIn"], kept["lag"]) == (10, "zookeeper", 0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "expected one of --to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by, found 0"),
        (["--to-earliest", "--shift-by", "0"], "found 2"),
        (["--to-datetime", "soon"], "'soon': expected a time such as"),
        (["--to-latest", "-t", "orders:one"], "'orders:one': expected TOPIC or TOPIC:N,N"),
        (["--to-latest", "-t", "orders:2"], "partition 2 of 'orders': expected one of 0 to 1"),
        (["--to-latest", "-t", "order"], "is it 'orders'?"),
        (["--shift-by", "1", "-t", "empty"], "empty-0: the group has no committed offset in this partition"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_reset_that_makes_no_sense_is_one_line(options: list[str], said: str, bootstrap: str) -> None:
    result = run("groups", "reset-offsets", "-b", bootstrap, "readers", *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr


# ---- brokers of other eras


def test_a_broker_of_0_8_tells_offsets_alone_and_has_them_reset() -> None:
    broker = Groups("0.8.2")
    with scripted(broker) as address:
        text = run("groups", "describe", "-b", address, "readers").stdout
        listed = run("groups", "list", "-b", address)
        deleted = run("groups", "delete", "-b", address, "readers")
        reset = run("groups", "reset-offsets", "-b", address, "readers", "--to-datetime", "2020-01-01")
    assert text == (
        "readers: offsets only: brokers before 0.9 know no members\n"
        "partition  offset  end  lag  member  client  host\n"
        "topic-0         5    9    4  -       -       -\n"
    )
    assert (listed.exit_code, deleted.exit_code, reset.exit_code) == (2, 2, 0)
    assert "list groups: UNSUPPORTED_VERSION (35): brokers from 0.9 on can do it" in listed.stderr
    assert "delete group readers: UNSUPPORTED_VERSION (35): brokers from 1.1 on can do it" in deleted.stderr
    assert "brokers before 0.10.1 have no index of timestamps" in reset.stderr
    (request,) = broker.asked(OffsetCommitRequest)
    assert [(each.name, each.partitions[0].committed_offset) for each in request.topics] == [("topic", 9)]


@pytest.mark.usefixtures("impatient")
def test_a_broker_of_0_9_tells_members_but_no_state_in_a_list() -> None:
    broker = Groups("0.9")
    member = DescribedGroupMember(member_id="m", client_id="c", client_host="/1.2.3.4", member_assignment=b"")
    broker.answers[16] = lambda *_: ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])
    broker.answers[15] = lambda *_: DescribeGroupsResponse(
        groups=[DescribedGroup(group_id="g", group_state="AwaitingSync", protocol_type="consumer", members=[member])]
    )
    with scripted(broker) as address:
        assert run("groups", "list", "-b", address).stdout == "group  for       kind  state\ng      consumer  -     -\n"
        text = run("groups", "describe", "-b", address, "g").stdout.splitlines()
    assert text[0] == "g: AwaitingSync, 1 member, coordinator 7"
    assert [line.split() for line in text[2:]] == [
        ["topic-0", "5", "9", "4", "-", "-", "-"],
        ["-", "-", "-", "-", "m", "c", "/1.2.3.4"],
    ]


def test_a_group_of_the_new_protocol_is_described_by_its_own_request() -> None:
    broker = Groups()
    share = new.Assignment(topic_partitions=[new.TopicPartitions(topic_name="topic", partitions=(0, 1))])
    member = new.Member(member_id="m", client_id="c", client_host="/h", assignment=share)
    broker.answers[69] = lambda *_: new.ConsumerGroupDescribeResponse(
        groups=[new.DescribedGroup(group_id="g", group_state="Stable", assignor_name="uniform", members=[member])]
    )
    with scripted(broker) as address:
        found = described(address, "g")
    assert (found["kind"], found["state"], found["assignor"]) == ("consumer", "Stable", "uniform")
    assert [(each["offset"], each["lag"], each["member"]) for each in found["partitions"]] == [
        (5, 4, "m"), (None, None, "m"),
    ]  # fmt: skip


def test_a_streams_group_is_said_to_be_one() -> None:
    broker = Groups()
    broker.answers[9] = lambda *_: OffsetFetchResponse()
    broker.answers[16] = lambda *_: ListGroupsResponse(groups=[ListedGroup(group_id="g", group_type="Streams")])
    broker.answers[15] = lambda *_: DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", error_code=69)])
    broker.answers[69] = lambda *_: new.ConsumerGroupDescribeResponse(
        groups=[new.DescribedGroup(group_id="g", error_code=69)]
    )
    with scripted(broker) as address:
        result = run("groups", "describe", "-b", address, "g")
    assert result.exit_code == 2
    assert "group 'g': GROUP_ID_NOT_FOUND (69): it is a streams group" in result.stderr


def test_a_share_group_is_described_and_deleted_and_its_offsets_are_not_reset() -> None:
    broker = Groups()
    missing = new.ConsumerGroupDescribeResponse(groups=[new.DescribedGroup(group_id="g", error_code=69)])
    broker.answers[69] = lambda *_: missing
    assigned = sharing.Assignment(topic_partitions=[sharing.TopicPartitions(topic_name="topic", partitions=(0, 1))])
    member = sharing.Member(member_id="m", client_id="c", client_host="/h", assignment=assigned)
    group = sharing.DescribedGroup(group_id="g", group_state="Stable", assignor_name="simple", members=[member])
    broker.answers[77] = lambda *_: sharing.ShareGroupDescribeResponse(groups=[group])
    rows = [
        share_offsets.DescribeShareGroupOffsetsResponsePartition(partition_index=at, start_offset=5 - 6 * at)
        for at in (0, 1)
    ]
    topic = share_offsets.DescribeShareGroupOffsetsResponseTopic(topic_name="topic", partitions=rows)
    of_group = share_offsets.DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
    broker.answers[90] = lambda *_: share_offsets.DescribeShareGroupOffsetsResponse(groups=[of_group])
    with scripted(broker) as address:
        found = described(address, "g")
        reset = run("groups", "reset-offsets", "-b", address, "g", "--to-earliest")
        refused = run("groups", "delete", "-b", address, "g")
    assert (found["kind"], found["state"], found["assignor"]) == ("share", "Stable", "simple")
    assert [(each["offset"], each["lag"], each["member"]) for each in found["partitions"]] == [
        (5, 4, "m"), (None, None, "m"),
    ]  # fmt: skip
    assert reset.exit_code == 2
    assert "it is a share group" in reset.stderr
    assert "NON_EMPTY_GROUP" in refused.stderr


def test_a_group_that_gets_a_member_meanwhile_is_the_brokers_refusal() -> None:
    broker = Groups()
    broker.answers[69] = lambda *_: new.ConsumerGroupDescribeResponse(
        groups=[new.DescribedGroup(group_id="g", error_code=69)]
    )
    broker.answers[15] = lambda *_: DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")])
    broker.answers[42] = lambda *_: DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=68)])
    with scripted(broker) as address:
        result = run("groups", "delete", "-b", address, "g")
    assert result.exit_code == 2
    assert "broker 7" in result.stderr
    assert "delete group g: NON_EMPTY_GROUP (68)" in result.stderr
