"""`magicbyte transactions` against a broker that answers what a test says; real ones: tests/interop."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.cli.main import main
from magicbyte.engine.protocol.messages import describe_producers as producers
from magicbyte.engine.protocol.messages import describe_transactions as described
from magicbyte.engine.protocol.messages import list_transactions as listed
from magicbyte.engine.protocol.messages import write_txn_markers as markers
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

HANGING, KNOWN, IDLE, RECENT = 1, 2, 3, 4  # producer ids
START = 1_700_000_000_000
FUTURE = 4_000_000_000_000
PAGE = Path(__file__).parents[2] / "docs/commands/transactions.md"
NOT_LEADER, NOT_FOUND, STALE_EPOCH = 6, 105, 47


class Transactions(ScriptedBroker):
    """A broker whose partition 0 has open transactions at 10, 20 and 40, of which the coordinator knows that at 20."""

    def __init__(self, versions: dict[int, range] | None = None, topic: str = "topic") -> None:
        super().__init__(versions=versions, topic=topic)
        self.code_of_partition_1 = 0
        self.code_of_marker = 0
        self.answers |= {10: self.coordinator, 27: self.mark, 61: self.producers, 65: self.describe, 66: self.list}

    def coordinator(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=7, host="127.0.0.1", port=self.port)

    def list(self, request: listed.ListTransactionsRequest, version: int) -> listed.ListTransactionsResponse:
        known = [
            listed.TransactionState(transactional_id="tx-orders", producer_id=KNOWN, transaction_state="Ongoing"),
            listed.TransactionState(transactional_id="tx-a", producer_id=HANGING, transaction_state="Empty"),
        ]
        wanted = request.producer_id_filters
        return listed.ListTransactionsResponse(
            unknown_state_filters=[each for each in request.state_filters if each != "Ongoing"],
            transaction_states=[each for each in known if not wanted or each.producer_id in wanted],
        )

    def describe(
        self, request: described.DescribeTransactionsRequest, version: int
    ) -> described.DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        state = described.TransactionState(transactional_id=name, error_code=NOT_FOUND)
        if name == "tx-a":
            state = described.TransactionState(
                transactional_id=name, transaction_state="Empty", transaction_timeout_ms=60_000,
                transaction_start_time_ms=-1, producer_id=HANGING,
            )  # fmt: skip
        elif name == "tx-orders":
            state = described.TransactionState(
                transactional_id=name, transaction_state="Ongoing", transaction_timeout_ms=60_000,
                transaction_start_time_ms=START, producer_id=KNOWN, producer_epoch=5,
                topics=[described.TopicData(topic="topic", partitions=(0, 1))],
            )  # fmt: skip
        return described.DescribeTransactionsResponse(transaction_states=[state])

    def producers(self, request: producers.DescribeProducersRequest, version: int) -> Any:
        def state(producer_id: int, start: int, last: int = START) -> producers.ProducerState:
            return producers.ProducerState(
                producer_id=producer_id, producer_epoch=3, last_timestamp=last, coordinator_epoch=-1,
                current_txn_start_offset=start,
            )  # fmt: skip

        of_partition_0 = [state(HANGING, 10), state(KNOWN, 20), state(IDLE, -1), state(RECENT, 40, FUTURE)]
        parts = [
            producers.PartitionResponse(
                partition_index=index,
                error_code=self.code_of_partition_1 if index else 0,
                active_producers=[] if index else of_partition_0,
            )
            for index in request.topics[0].partition_indexes
        ]
        topic = producers.TopicResponse(name=request.topics[0].name, partitions=parts)
        return producers.DescribeProducersResponse(topics=[topic])

    def mark(self, request: markers.WriteTxnMarkersRequest, version: int) -> markers.WriteTxnMarkersResponse:
        result = markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=self.code_of_marker)
        topic = markers.WritableTxnMarkerTopicResult(name=self.topic, partitions=[result])
        marker = markers.WritableTxnMarkerResult(producer_id=request.markers[0].producer_id, topics=[topic])
        return markers.WriteTxnMarkersResponse(markers=[marker])


def test_transactional_ids_are_listed_by_name() -> None:
    with scripted(Transactions()) as address:
        text = run("transactions", "list", "-b", address).stdout
        ongoing = run("transactions", "list", "-b", address, "--producer-id", "2", "--format", "json").stdout
    assert text == (
        "transactional id  coordinator  producer id  state\n"
        "tx-a                        7            1  Empty\n"
        "tx-orders                   7            2  Ongoing\n"
    )
    assert json.loads(ongoing) == [
        {"transactionalId": "tx-orders", "coordinator": 7, "producerId": 2, "state": "Ongoing"}
    ]


def test_a_state_that_the_brokers_do_not_know_is_an_error() -> None:
    with scripted(Transactions()) as address:
        result = run("transactions", "list", "-b", address, "--state", "Open")
    assert result.exit_code == 2
    assert "no such state: Open; expected Empty, Ongoing" in result.stderr


def test_a_transactional_id_is_described_by_its_coordinator() -> None:
    broker = Transactions()
    with scripted(broker) as address:
        result = run("transactions", "describe", "-b", address, "tx-orders", "tx-a")
        found = json.loads(run("transactions", "describe", "-b", address, "tx-orders", "--format", "json").stdout)
    assert result.stdout == (
        "tx-orders: Ongoing, coordinator 7\n"
        "producer 2, epoch 5, timeout 60000 ms; began 2023-11-14T22:13:20.000Z\n"
        "partitions without a marker: topic-0, topic-1\n"
        "\n"
        "tx-a: Empty, coordinator 7\n"
        "producer 1, epoch 0, timeout 60000 ms; no transaction is open\n"
        "partitions without a marker: -\n"
    )
    assert found == [
        {
            "transactionalId": "tx-orders", "coordinator": 7, "producerId": 2, "producerEpoch": 5, "state": "Ongoing",
            "timeoutMs": 60_000, "startMs": START,
            "partitions": [{"topic": "topic", "partition": 0}, {"topic": "topic", "partition": 1}],
        }
    ]  # fmt: skip
    assert {(each.key, each.key_type) for each in broker.asked(FindCoordinatorRequest)} == {
        ("tx-a", 1),
        ("tx-orders", 1),
    }


def test_an_unknown_transactional_id_is_an_error_that_says_where_to_look() -> None:
    with scripted(Transactions()) as address:
        result = run("transactions", "describe", "-b", address, "tx-c")
    assert result.exit_code == 2
    assert "TRANSACTIONAL_ID_NOT_FOUND (105): `magicbyte transactions list` shows" in result.stderr


def test_only_idle_transactions_without_a_coordinator_hang() -> None:
    with scripted(Transactions()) as address:
        result = run("transactions", "find-hanging", "-b", address)
        found = json.loads(run("transactions", "find-hanging", "-b", address, "-t", "topic", "--format", "json").stdout)
    assert result.exit_code == 1
    assert result.stdout == (
        "partition  producer id  epoch  coordinator epoch  start offset  last timestamp\n"
        "topic-0              1      3                  0            10  2023-11-14T22:13:20.000Z\n"
    )
    assert found == [
        {
            "topic": "topic", "partition": 0, "producerId": 1, "producerEpoch": 3, "coordinatorEpoch": 0,
            "startOffset": 10, "lastTimestamp": START,
        }
    ]  # fmt: skip


def test_a_partition_that_could_not_be_asked_is_named_and_nothing_is_said_to_be_well() -> None:
    broker = Transactions()
    broker.code_of_partition_1 = NOT_LEADER
    with scripted(broker) as address:
        result = run("transactions", "find-hanging", "-b", address)
    assert result.exit_code == 1
    assert "warning: not asked: broker 7" in result.stderr
    assert "producers of topic-1: NOT_LEADER_OR_FOLLOWER (6)" in result.stderr


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_abort_asks_before_it_writes_a_marker(answer: str) -> None:
    broker = Transactions()
    arguments = ("abort", "-t", "topic", "-p", "0", "--start-offset", "10")
    with scripted(broker) as address:
        result = CliRunner().invoke(main, ["transactions", *arguments, "-b", address], input=answer)
    assert "Abort the transaction of producer 1, epoch 3, from offset 10 of topic-0 on" in result.stdout
    written = broker.asked(markers.WriteTxnMarkersRequest)
    assert len(written) == (answer == "y\n")
    assert ("aborted: " in result.stdout) is (answer == "y\n")
    for request in written:
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (HANGING, 3, 0)
        assert marker.transaction_result is False
        assert [(each.name, tuple(each.partition_indexes)) for each in marker.topics] == [("topic", (0,))]


@pytest.mark.parametrize(
    ("start", "message"),
    [(20, "its coordinator knows it and will end it"), (11, "open transactions begin at offsets 10, 20, 40")],
)
def test_abort_refuses_what_does_not_hang(start: int, message: str) -> None:
    broker = Transactions()
    with scripted(broker) as address:
        arguments = ("-t", "topic", "-p", "0", "--start-offset", str(start), "--yes")
        result = run("transactions", "abort", "-b", address, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not broker.asked(markers.WriteTxnMarkersRequest)


def test_a_marker_that_the_leader_refuses_is_an_error() -> None:
    broker = Transactions()
    broker.code_of_marker = STALE_EPOCH
    with scripted(broker) as address:
        arguments = ("-t", "topic", "-p", "0", "--start-offset", "10", "--yes")
        result = run("transactions", "abort", "-b", address, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "abort the transaction at offset 10 of topic-0: INVALID_PRODUCER_EPOCH (47)" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("describe", "tx"),
        ("find-hanging",),
        ("abort", "-t", "topic", "-p", "0", "--start-offset", "10", "--yes"),
    ],
    ids=lambda each: each[0],
)
def test_an_error_of_an_old_cluster_names_the_first_release_that_can_do_it(arguments: tuple[str, ...]) -> None:
    with scripted(Transactions({61: range(0), 65: range(0), 66: range(0)})) as address:
        result = run("transactions", *arguments, "-b", address)
    assert result.exit_code == 2
    assert "UNSUPPORTED_VERSION (35): brokers from 3.0 on can do it" in result.stderr


def test_the_commands_of_the_page_can_be_typed() -> None:
    lines = [each for each in PAGE.read_text().splitlines() if each.startswith("magicbyte ")]
    assert len(lines) == 4
    with scripted(Transactions(topic="orders")) as address:
        for line in lines:
            arguments = line.replace("localhost:9092", address).split()[1:]
            result = CliRunner().invoke(main, arguments, input="y\n")
            assert result.exit_code == (1 if "find-hanging" in arguments else 0), result.stderr
