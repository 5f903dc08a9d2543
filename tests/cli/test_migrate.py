"""`magicbyte migrate`: of our broker, of request logs, of pages of numbers."""

import asyncio
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, describe_configs
from magicbyte.access.client.fetch import fetch_sets
from magicbyte.access.client.produce import send
from magicbyte.engine.protocol import write_request
from magicbyte.engine.protocol.messages.fetch import FetchRequest, FetchResponse
from magicbyte.engine.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest
from magicbyte.testing import Broker, Cluster
from ports import free_port
from server.broker.builders import records
from tools.migration.packets import connection, pcap, pcapng

PAGE = (Path(__file__).parents[2] / "docs/commands/migrate.md").read_text(encoding="utf-8")
LOGS = Path(__file__).parents[1] / "tools/migration/request_logs"


@contextmanager
def produced_to(bootstrap: str, topic: str) -> Iterator[None]:
    """Produce to a topic, and read it, while the block runs. A first record is there when it begins."""
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        async with Client(bootstrap, client_id="load") as client:
            while not ended.is_set():
                await send(client, topic, 0, records(1))
                await fetch_sets(client, topic, 0, 0)
                begun.set()
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert begun.wait(120)
        yield
    finally:
        ended.set()
        thread.join()


def ask_in_an_old_version(bootstrap: str) -> None:
    async def ask() -> None:
        async with Client(bootstrap, client_id="old-app") as client:
            await client.topics([])
            await client.ask_any(ListOffsetsRequest(topics=[]), ListOffsetsResponse, versions=range(1))

    asyncio.run(ask())


def ask_in_a_new_version(bootstrap: str) -> None:
    async def ask() -> None:
        async with Client(bootstrap, client_id="new-app") as client:
            await client.topics([])

    asyncio.run(ask())


def fetch_in_an_old_version(bootstrap: str) -> None:
    async def ask() -> None:
        async with Client(bootstrap, client_id="old-app") as client:
            await client.topics([])
            await client.ask_any(FetchRequest(topics=[]), FetchResponse, versions=range(3))

    asyncio.run(ask())


def test_our_broker_reports_its_old_clients_settings_and_formats(tmp_path: Path) -> None:
    with Broker({"http.address": "127.0.0.1:0"}) as broker:
        server, address = broker.bootstrap_servers, f"http://127.0.0.1:{broker.served.http_port}/metrics"
        assert run("topics", "create", "-b", server, "orders", "message.format.version=0").exit_code == 0
        assert run("migrate", "check", "-b", server, "--metrics", address).exit_code == 0
        ask_in_an_old_version(server)
        page = tmp_path / "report.html"
        done = run("migrate", "check", "-b", server, "--metrics", address, "--format", "json", "--html", page)
        assert done.exit_code == 1, done.stderr
        found = json.loads(done.stdout)
        (client,) = [each for each in found["findings"] if each["kind"] == "client"]
        assert (client["weight"], client["client"]["id"]) == ("breaks", "old-app")
        assert (client["client"]["software"], client["client"]["address"]) == ("magicbyte", "127.0.0.1")
        (refused,) = client["refused"]
        assert (refused["api"], refused["version"], refused["leastVersion"], refused["requests"]) == (
            "ListOffsets",
            0,
            1,
            1,
        )
        settings = [each["subject"] for each in found["findings"] if each["kind"] == "setting"]
        assert "topic orders: message.format.version=0" in settings
        assert "old-app" in page.read_text()
        text = run("migrate", "check", "-b", server, "--metrics", address).stdout
        assert text.startswith("BREAKS client old-app (magicbyte 0.1, 127.0.0.1)\n")
        assert run("migrate", "check", "-b", server, "--metrics", address, "--to", "3.9").exit_code == 0


def test_a_folder_of_request_logs_is_read_whole(tmp_path: Path) -> None:
    for name, release in {"kafka-request.log": "3.9.1", "kafka-request.log.2026-11-25-08": "0.9.0.1"}.items():
        (tmp_path / name).write_bytes((LOGS / f"{release}.log").read_bytes())
    (tmp_path / "server.log").write_bytes((LOGS / "0.9.0.1.log").read_bytes())
    done = run("migrate", "check", "--request-log", tmp_path, "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.exit_code, finding["subject"]) == (1, "orders-service (127.0.0.1)")
    assert [(each["api"], each["version"], each["requests"]) for each in finding["refused"]] == [("Fetch", 1, 1)]
    assert run("migrate", "check", "--request-log", tmp_path / "kafka-request.log").exit_code == 0


@pytest.mark.parametrize("option", ["--request-log", "--capture"])
def test_a_fifo_is_refused_instead_of_waited_for(option: str, tmp_path: Path) -> None:
    fifo = tmp_path / "kafka-request.log"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path) if option == "--request-log" else (fifo,):
        done = run("migrate", "check", option, path)
        assert done.exit_code == 2
        assert f"{fifo}: expected a regular file, found a FIFO: copy its content to a file first" in done.stderr


def test_clients_that_have_gone_can_be_left_out(tmp_path: Path) -> None:
    text = (LOGS / "0.9.0.1.log").read_text()
    (tmp_path / "kafka-request.log.1").write_text(re.sub(r"\[20\d\d-", "[2016-", text))
    recent = (LOGS / "3.9.1.log").read_text()
    (tmp_path / "kafka-request.log").write_text(re.sub(r"\[20\d\d-", f"[{datetime.now(UTC).year + 1}-", recent))
    check = ["migrate", "check", "--request-log", tmp_path]
    assert run(*check, "--days", "36500").exit_code == run(*check).exit_code == 1
    done = run(*check, "--days", "30")
    assert done.exit_code == 0
    assert "kinds of requests are left out: the last was more than 30 days ago" in done.stdout


# ---- no evidence


def test_what_tells_nothing_is_not_known_and_says_what_to_give(tmp_path: Path) -> None:
    empty, folder, capture = tmp_path / "empty.log", tmp_path / "folder", tmp_path / "clients.pcap"
    empty.write_text("[2026-11-25 08:22:04,061] INFO nothing\n")
    folder.mkdir()
    capture.write_bytes(pcap(connection([(b"", b"")])))
    for option, path, what in (
        ("--request-log", empty, "no requests in it"),
        ("--request-log", folder, "no file kafka-request.log* in it"),
        ("--request-log", capture, "it is a packet capture, no request log"),
        ("--capture", capture, "no Kafka requests in it"),
    ):
        done = run("migrate", "check", option, path)
        assert done.exit_code == 2
        assert f"NOT KNOWN evidence {path}\n  {what}" in done.stdout
        assert "-> give --request-log, --capture or --metrics" in done.stdout
        assert "Kafka 4.4: not known: 0 would break" in done.stdout


def test_one_source_that_tells_nothing_is_not_hidden_by_another(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    check = ["migrate", "check", "--request-log", LOGS / "3.9.1.log", "--request-log", tmp_path / "empty.log"]
    assert run(*check).exit_code == 2
    assert run(*check, "--request-log", LOGS / "0.9.0.1.log").exit_code == 1  # what breaks is known


def test_compressed_logs_and_captures_are_read_whatever_their_names(tmp_path: Path) -> None:
    log = gzip.compress((LOGS / "0.9.0.1.log").read_bytes())
    (tmp_path / "kafka-request.log.2026-11-25-08.gz").write_bytes(log)
    (tmp_path / "old.log").write_bytes(log)
    (tmp_path / "cut.log").write_bytes(log[:-20])
    for path in (tmp_path, tmp_path / "old.log", tmp_path / "cut.log"):
        done = run("migrate", "check", "--request-log", path)
        assert (done.exit_code, "BREAKS client orders-service" in done.stdout) == (1, True)
        assert ("damaged or cut off, and read up to there" in done.stdout) == (path.name == "cut.log")
    request = b"".join(
        map(bytes, write_request(FetchRequest(topics=[]), 2, correlation_id=1, client_id="app").buffers())
    )
    for name, capture in (("a.pcap.gz", pcap), ("b.pcapng.gz", pcapng)):
        (tmp_path / name).write_bytes(gzip.compress(capture(connection([(request, b"")]))))
        assert run("migrate", "check", "--capture", tmp_path / name).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "expected -b HOST:PORT, --request-log FILE, --capture FILE or --metrics URL"),
        (["-b", "127.0.0.1:1", "--to", "2.8"], "expected 3.0 or later"),
        (["-b", "127.0.0.1:1", "--to", "9"], "expected a version of"),
        (["-b", "127.0.0.1:1"], "is a broker running there?"),
        (["--metrics", "http://127.0.0.1:1/metrics"], "http://127.0.0.1:1/metrics"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments: list[str], why: str) -> None:
    done = run("migrate", "check", *arguments)
    assert done.exit_code == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_commands_of_the_page_work_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kafka-request.log").write_bytes((LOGS / "3.9.1.log").read_bytes())
    sent = bytes(write_request(MetadataRequest(), 9, correlation_id=1, client_id="app").buffer)
    (tmp_path / "clients.pcapng").write_bytes(pcapng(connection([(sent, b"")])))
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with Broker({"http.address": f"127.0.0.1:{free_port()}"}) as broker:
        ask_in_a_new_version(broker.bootstrap_servers)
        for line in block.splitlines():
            line = line.replace("localhost:9092", broker.bootstrap_servers)
            line = line.replace("localhost:9404", f"127.0.0.1:{broker.served.http_port}")
            done = run(*shlex.split(line)[1:])
            assert done.exit_code == 0, (line, done.stdout)


def test_a_check_of_a_cluster_with_unseen_clients_is_not_known() -> None:
    with Broker() as broker:
        ask_in_a_new_version(broker.bootstrap_servers)
        done = run("migrate", "check", "-b", broker.bootstrap_servers)
        assert done.exit_code == 2
        assert "NOT KNOWN evidence clients\n  no client was seen\n  -> give --request-log" in done.stdout
        assert "--http" not in done.stdout


def test_status_shows_brokers_old_clients_and_topics_and_the_next_step() -> None:
    settings = {
        "http.address": "127.0.0.1:0",
        "log.message.format.version": "1",
        "inter.broker.protocol.version": "0.10.2",
    }
    with Broker(settings) as broker:
        server, address = broker.bootstrap_servers, f"http://127.0.0.1:{broker.served.http_port}/metrics"
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        fetch_in_an_old_version(server)
        asked = ["migrate", "status", "-b", server, "--metrics", address, "--to", "2", "--rehearse", "0"]
        done = run(*asked, "--format", "json")
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["phase"], found["brokers"]) == ("phase 1", [0])
        assert found["next"].startswith("raise inter.broker.protocol.version")
        (facts,) = found["clusterBrokers"]
        assert (facts["software"], facts["protocol"], facts["format"]) == ("magicbyte", "0.10.2", "1")
        (client,) = found["oldClients"]
        assert (client["clientId"], client["is"], client["requestVersion"]) == ("old-app", "consumer", 2)
        assert [each["topic"] for each in found["plan"]["topics"]] == ["orders"]
        text = run(*asked).stdout
        assert text.startswith("to format v2: phase 1; next: raise inter.broker.protocol.version")
        assert "  old-app (magicbyte 0.1, 127.0.0.1) reads up to v1, Fetch v2" in text.splitlines()


def test_apply_refuses_what_costs_old_consumers_something_and_does_it_with_force() -> None:
    with Broker({"http.address": "127.0.0.1:0", "log.message.format.version": "1"}) as broker:
        server, address = broker.bootstrap_servers, f"http://127.0.0.1:{broker.served.http_port}/metrics"
        assert run("topics", "create", "-b", server, "orders").exit_code == 0

        def configured() -> str | None:
            async def ask() -> str | None:
                async with Client(server) as client:
                    return (await describe_configs(client, ConfigResource.TOPIC, "orders"))[
                        "message.format.version"
                    ].value

            return asyncio.run(ask())

        before = configured()
        fetch_in_an_old_version(server)
        asked = ["migrate", "apply", "-b", server, "--metrics", address, "--to", "2", "--topic", "orders"]
        done = run(*asked)
        assert (done.exit_code, done.stdout, configured()) == (1, "", before)
        assert "refused: old-app (magicbyte 0.1, 127.0.0.1) reads up to v1, Fetch v2" in done.stderr
        done = run(*asked, "--force")
        assert (done.exit_code, configured() != before) == (0, True)
        assert "overridden: old-app" in done.stderr
        assert "new records of orders are stored in format v2" in done.stdout


def test_next_prints_what_apply_then_does() -> None:
    """First what is not known, then the topic's format, then the default for topics without one."""
    seen = {"http.address": f"127.0.0.1:{free_port()}"}
    with Broker({"log.message.format.version": "1"}) as broker:
        assert run("topics", "create", "-b", broker.bootstrap_servers, "orders").exit_code == 0
        text = run("migrate", "next", "-b", broker.bootstrap_servers, "--to", "2").stdout
        assert "next: see which clients use older formats" in text
        assert "no client was seen: give --request-log, --capture or --metrics" in text
        done = run("migrate", "apply", "-b", broker.bootstrap_servers, "--to", "2", "--topic", "orders")
        assert (done.exit_code, "whether consumers read format v2 is not known" in done.stderr) == (1, True)
    with Broker({"log.message.format.version": "1", **seen}) as broker:
        server = broker.bootstrap_servers
        ask_in_a_new_version(server)
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        asked = ["migrate", "next", "-b", server, "--to", "2", "--rehearse", "0"]
        text = run(*asked).stdout
        assert "1. orders: store new records in format v2" in text
        (command,) = [line.split() for line in text.splitlines() if "migrate apply" in line]
        assert run(*command[1:]).exit_code == 0
        steps = json.loads(run(*asked, "--format", "json").stdout)
        assert (steps["phase"], steps["next"], steps["brokers"]) == (
            "phase 1",
            "set log.message.format.version, one broker after the other",
            [0],
        )
        assert "log.message.format.version=0.11.0" in steps["steps"][0]["do"]
        assert run("configs", "set", "-b", server, "--broker", "0", "log.message.format.version=2").exit_code == 0
        steps = json.loads(run(*asked, "--format", "json").stdout)
        assert (steps["phase"], [each["command"] for each in steps["steps"]]) == ("done", [None])


def test_clients_that_left_can_be_forgotten(tmp_path: Path) -> None:
    text = (LOGS / "0.9.0.1.log").read_text()
    recent = (LOGS / "3.9.1.log").read_text()
    (tmp_path / "kafka-request.log").write_text(
        re.sub(r"\[20\d\d-", "[2016-", text) + re.sub(r"\[20\d\d-", f"[{datetime.now(UTC).year + 1}-", recent)
    )
    with Broker({"log.message.format.version": "1"}) as broker:
        server = broker.bootstrap_servers
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        apply = ["migrate", "apply", "-b", server, "--to", "2", "--topic", "orders", "--request-log", tmp_path]
        refused = run(*apply)
        assert (refused.exit_code, "refused: orders-service" in refused.stderr) == (1, True)
        assert run(*apply, "--days", "30").exit_code == 0


def test_next_waits_until_every_broker_has_taken_the_step() -> None:
    with Cluster(2, settings={"log.message.format.version": "1"}) as cluster:
        server = cluster.bootstrap_servers
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        change = ["configs", "set", "-b", server, "log.message.format.version=0.11.0", "--broker"]
        assert run(*change, "1").exit_code == 0
        asked = ["migrate", "next", "-b", server, "--to", "2", "--rehearse", "0", "--wait"]
        late = run(*asked, "0.1", "--format", "json")
        assert late.exit_code == 1
        waited = {"done": False, "left": [2], "away": [], "outOfSync": 0, "unknown": []}
        assert json.loads(late.stdout)["waited"] == waited
        assert "not done after 0.1 s: to do: broker 2" in late.stderr
        waiting = subprocess.Popen(
            [sys.executable, "-m", "magicbyte", *asked, "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert waiting.stderr is not None
            assert "to do: broker 2" in waiting.stderr.readline()
            assert run(*change, "2").exit_code == 0
            said, complaints = waiting.communicate(timeout=60)
        finally:
            waiting.kill()
        assert waiting.returncode == 0, complaints
        assert "every broker has taken the step" in complaints
        assert "\ndone; to format v2: " in said
        done = run(*asked, "60")
        assert done.exit_code == 0
        assert "there is nothing to wait for" in done.stderr


def test_rollback_of_our_broker_leaves_no_setting_that_overrides_its_file() -> None:
    with Broker({"log.message.format.version": "1"}) as broker:
        server = broker.bootstrap_servers
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        text = run("migrate", "rollback", "-b", server, "--broker", "0", "--to", "0").stdout
        assert text.startswith("1. in its server.properties: log.message.format.version=0.9.0\n2. restart broker 0\n")
        change = ["configs", "set", "-b", server, "--broker", "0", "log.message.format.version=0.11.0"]
        assert run(*change).exit_code == 0
        found = json.loads(run("migrate", "status", "-b", server, "--rehearse", "0", "--format", "json").stdout)
        (facts,) = found["clusterBrokers"]
        assert (facts["format"], facts["changedWhileItRan"]) == ("2", ["log.message.format.version"])
        text = run("migrate", "rollback", "-b", server, "--broker", "0", "--to", "0").stdout
        (command,) = [line.split() for line in text.splitlines() if "configs unset" in line]
        assert run(*command[1:]).exit_code == 0
        found = json.loads(run("migrate", "status", "-b", server, "--rehearse", "0", "--format", "json").stdout)
        (facts,) = found["clusterBrokers"]
        assert (facts["format"], facts["changedWhileItRan"]) == ("1", [])
        done = run("migrate", "rollback", "-b", server, "--broker", "7", "--to", "0")
        assert (done.exit_code, "no broker 7 is alive: expected one of 0" in done.stderr) == (2, True)


# ---- the canary


def test_a_canary_is_chosen_by_what_it_leads() -> None:
    with Cluster(2) as cluster:
        server = cluster.bootstrap_servers
        made = ["topics", "create", "-b", server, "orders", "--partitions", "3", "--replicas", "1"]
        assert run(*made).exit_code == 0
        choose = ["migrate", "canary", "-b", server, "--max-leaders", "70", "--format", "json"]
        cluster.wait(lambda: json.loads(run(*choose).stdout)["partitions"] == 3)  # each broker has heard of them
        done = run(*choose)
        found = json.loads(done.stdout)
        assert (done.exit_code, found["leads"] in (1, 2)) == (0, True)  # the controller may lead fewer
        done = run("migrate", "canary", "-b", server, "--broker", str(found["broker"]), "--max-leaders", "20")
        assert done.exit_code == 1
        assert f"broker {found['broker']} leads more than 20 % of the partitions" in done.stderr
        done = run("migrate", "canary", "-b", server, "--broker", "7")
        assert "no broker 7 is alive: expected one of 1, 2" in done.stderr


def test_a_canary_is_watched_beside_others() -> None:
    with Broker({"http.address": "127.0.0.1:0"}) as broker:
        server, page = broker.bootstrap_servers, f"http://127.0.0.1:{broker.served.http_port}/metrics"
        assert run("topics", "create", "-b", server, "orders").exit_code == 0
        watched = ["migrate", "canary", "-b", server, "--broker", "0", "--watch", "1", "--metrics", f"0={page}"]
        assert "expected metrics of the canary and of another broker" in run(*watched).stderr
        done = run(*watched, "--metrics", f"1={page}")
        assert done.exit_code == 1
        assert "broker 0 had no traffic in that time" in done.stdout
        assert "verdict: watch longer" in done.stdout
        with produced_to(server, "orders"):
            done = run(*watched, "--metrics", f"1={page}", "--max-leaders", "100", "--format", "json")
        found = json.loads(done.stdout)
        assert (done.exit_code, found["verdict"], found["reasons"]) == (0, "keep", [])
        assert found["canary"]["recordsInPerSecond"] > 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--watch", "5"], "--watch compares one broker with the others: expected --broker ID"),
        (["--metrics", "http://h/metrics"], "expected ID=URL, such as 1=http://host1:9404/metrics"),
    ],
    ids=["no broker", "no id"],
)
def test_a_canary_that_cannot_be_looked_at_is_wrong_use(options: list[str], why: str) -> None:
    done = run("migrate", "canary", "-b", "127.0.0.1:1", *options)
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())
