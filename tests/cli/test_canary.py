"""`magicbyte migrate canary --watch` on three brokers under load: a canary with a planted regression is rolled back."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from cli.command import run
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.errors import BrokerError
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker, Cluster
from server.broker.builders import records

CANARY = 1
WATCHES = 5
"""Watches of a canary without a regression: another process can slow one broker down during three seconds."""
OLD, NEW = range(2), range(2, 3)
"""Versions of Fetch that know format 0 alone, and format 1."""


@contextmanager
def load(cluster: Cluster, fetches: range) -> Iterator[None]:
    """Produce in format 0 to a partition of each broker, and read what was produced, while the block runs."""
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        sending, reading = ProduceOptions(format=Format.V0), FetchOptions(versions=fetches, max_wait_ms=10)
        async with Client(cluster.bootstrap_servers, client_id="load") as client:
            while not ended.is_set():
                for partition in range(3):
                    with suppress(BrokerError):  # planted
                        await send(client, "orders", partition, records(5), sending)
                    _, end = await bounds(client, "orders", partition)
                    await fetch_sets(client, "orders", partition, max(end - 5, 0), reading)
                begun.set()
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        ended.set()
        thread.join()


def store_the_new_format(cluster: Cluster, _broker: Broker) -> None:
    setting = f"log.message.format.version={Format.V1.value}"
    assert run("configs", "set", "-b", cluster.bootstrap_servers, "--broker", str(CANARY), setting).exit_code == 0


def take_thirty_ms_more(cluster: Cluster, broker: Broker) -> None:
    """Appends take longer, as on a slow disk: this is counted as local time."""

    def led() -> list[Any]:
        partitions = broker.served.replicas.partitions.items()
        return [each.log for key, each in partitions if key[0] == "orders" and each.leader_id == CANARY]

    cluster.wait(lambda: len(led()) == 1)  # the broker learns of the controller's decision a moment later
    (log,) = led()
    appended = log.append

    def slowly(*arguments: Any, **given: Any) -> Any:
        threading.Event().wait(0.03)
        return appended(*arguments, **given)

    log.append = slowly  # type: ignore[method-assign]


def refuse_records(cluster: Cluster, _broker: Broker) -> None:
    setting = "message.max.bytes=10"
    assert run("configs", "set", "-b", cluster.bootstrap_servers, "--broker", str(CANARY), setting).exit_code == 0


@pytest.mark.parametrize(
    ("planted", "fetches", "reason"),
    [
        (store_the_new_format, NEW, None),
        (store_the_new_format, OLD, "records a second are converted for consumers"),
        (take_thirty_ms_more, NEW, "Produce takes"),
        (refuse_records, NEW, "of its Produce and Fetch parts failed"),
    ],
    ids=["new consumers", "converts all", "slower", "errors"],
)
def test_a_canary_is_kept_unless_something_is_worse_on_it(planted: Any, fetches: range, reason: str | None) -> None:
    settings = {"http.address": "127.0.0.1:0", "log.message.format.version": Format.V0.value}
    with Cluster(3, settings) as cluster:
        server = cluster.bootstrap_servers
        made = ["topics", "create", "-b", server, "orders", "--partitions", "3", "--replicas", "3"]
        assert run(*made).exit_code == 0
        cluster.wait(lambda: {cluster.leader("orders", each) for each in range(3)} == {1, 2, 3})
        planted(cluster, cluster.brokers[CANARY])
        with load(cluster, fetches):
            pages = [
                option
                for number, each in cluster.brokers.items()
                for option in ("--metrics", f"{number}=http://127.0.0.1:{each.served.http_port}/metrics")
            ]
            watch = ["migrate", "canary", "-b", server, "--broker", str(CANARY), "--watch", "3", "--max-leaders", "50"]
            for _ in range(WATCHES if reason is None else 1):
                done = run(*watch, *pages, "--format", "json")
                assert done.stdout, done.stderr
                found = json.loads(done.stdout)
                if found["verdict"] == "keep":
                    break
        if reason is None:
            assert (done.exit_code, found["verdict"], found["reasons"]) == (0, "keep", [])
        else:
            assert (done.exit_code, found["verdict"]) == (1, "roll back")
            assert any(reason in each for each in found["reasons"]), found
        assert {each["broker"] for each in found["others"]} == {2, 3}
