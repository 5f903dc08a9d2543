"""What tests do to transactions: leave them open, fence their producers, let them and their ids run out of time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from cli.command import run
from magicbyte.testing import Broker, TurnedClock

WAIT_S = 60
HOUR_MS = 3_600_000
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    "transactional.id.expiration.ms": str(2 * HOUR_MS),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Turned(NamedTuple):
    broker: Broker
    clock: TurnedClock


@pytest.fixture(scope="module")
def turned() -> Iterator[Turned]:
    clock = TurnedClock()
    with Broker(SETTINGS, clock=clock) as broker:
        yield Turned(broker, clock)


def begun(turned: Turned, name: str) -> Producer:
    """Return a producer with an open transaction that has a record."""
    settings = {"bootstrap.servers": turned.broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 60_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    assert producer.flush(WAIT_S) == 0
    return producer


def described(turned: Turned, name: str) -> Any:
    told = run("transactions", "list", "-b", turned.broker.bootstrap_servers, "--format", "json")
    assert told.exit_code == 0, told.output
    return {each["transactionalId"]: each["state"] for each in json.loads(told.stdout)}.get(name)


def until(turned: Turned, name: str, state: str | None) -> None:
    end = time.monotonic() + WAIT_S
    while (found := described(turned, name)) != state:
        assert time.monotonic() < end, f"{name} is {found}, not {state}"
        time.sleep(0.02)


def test_a_transaction_stays_open_until_its_time_is_over_by_the_clock_of_the_test(turned: Turned) -> None:
    producer = begun(turned, "open")
    turned.clock.advance(20_000)  # and as long as the machine takes for this, up to 40 s more
    assert described(turned, "open") == "Ongoing"
    turned.clock.advance(50_000)
    until(turned, "open", "CompleteAbort")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED


def test_a_producer_is_fenced_by_another_one_of_its_id(turned: Turned) -> None:
    old = begun(turned, "fenced")
    begun(turned, "fenced").commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED


def test_a_transactional_id_expires_by_the_clock_of_the_test(turned: Turned) -> None:
    begun(turned, "idle").commit_transaction(WAIT_S)
    until(turned, "idle", "CompleteCommit")
    turned.clock.advance(3 * HOUR_MS)
    until(turned, "idle", None)


def test_an_answer_to_a_commit_that_is_lost_is_asked_for_again(turned: Turned) -> None:
    producer = begun(turned, "lost")
    with turned.broker.fault("EndTxn", disconnect="after") as fault:
        producer.commit_transaction(WAIT_S)
    assert fault.hits == 1
    until(turned, "lost", "CompleteCommit")
