"""/metrics against a ledger that the test keeps of what it sent and got, read by a Prometheus parser; /health."""

import asyncio
import http.client
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from builders import run
from cli.command import run as command
from magicbyte.access.net.scrape import PageAccess
from magicbyte.access.net.scrape import scrape as scrape_page
from magicbyte.cli.logs import JsonFormatter
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import ErrorCode, InvalidConfigError, NetworkError
from magicbyte.engine.log.cleaning.maintenance import Action
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from magicbyte.engine.protocol.messages.fetch import FetchResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.encode import Format
from magicbyte.server.broker import pages
from magicbyte.server.broker.broker import Broker
from magicbyte.server.serving.metrics import (
    BOUNDS_NS,
    MOST_ASKINGS,
    MOST_CLIENTS,
    OTHERS,
    ClientSoftware,
    Conversion,
    Metrics,
    Moved,
    Times,
)
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.testing.certificates import Authority
from server.broker.builders import PRODUCE_VERSION, asking, fetch, made, produce, read, records
from server.broker.serving import Peer, Running

SERVED = {"http.address": "127.0.0.1:0"}
TOPICS = "kafka_server_brokertopicmetrics_"
DASHBOARDS = (  # what Strimzi's dashboard of brokers and its alerts ask of one, without what is the JVM's
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_network_requestmetrics_errors_total",
    "kafka_network_requestmetrics_localtimems",
    "kafka_network_requestmetrics_remotetimems",
    "kafka_network_requestmetrics_requests_total",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_fetchmessageconversions_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_producemessageconversions_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_replicamanager_isrexpands_total",
    "kafka_server_replicamanager_isrshrinks_total",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    *(["kafka_server_kafkaserver_linux_disk_write_bytes", "process_open_fds"] if sys.platform == "linux" else []),
)


async def page(broker: Broker, path: str, accept: str = "") -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        return response.status, response.read().decode()

    return await asyncio.to_thread(ask)


class Scraped:
    """What a Prometheus parser reads: numbers by name and some of the labels."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        names = [each.name for each in families]
        assert len(names) == len(set(names)), "a family stands in one place"
        self.samples = [each for family in families for each in family.samples]
        self.types = {each.name: each.type for each in families}

    def find(self, name: str, **labels: str) -> list[tuple[Mapping[str, str], float]]:
        return [
            (each.labels, each.value)
            for each in self.samples
            if each.name == name and labels.items() <= each.labels.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        ((_, value),) = self.find(name, **labels)
        return value

    def total(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.find(name, **labels))

    def of_all(self, name: str) -> float:
        """The one without labels."""
        ((_, value),) = [found for found in self.find(name) if not found[0]]
        return value


async def scrape(broker: Broker) -> Scraped:
    status, text = await page(broker, "/metrics")
    assert status == HTTPStatus.OK
    return Scraped(text)


async def test_the_counters_equal_those_of_a_ledger_of_sent_and_fetched_records(tmp_path: Path) -> None:
    ledger: Counter[tuple[str, ...]] = Counter()

    async with Running(tmp_path, SERVED) as broker:
        peer = await Peer.of(broker)
        for stored in (Format.V0, Format.V1, Format.V2):
            topic = f"stored.{stored.value}"
            await broker.topics.create(topic, configs={"message.format.version": stored.value})
            end = 0
            for sent in (Format.V0, Format.V1, Format.V2):
                for codec, count in ((Codec.NONE, 3), (Codec.GZIP, 5)):
                    data = made(records(count), sent, codec)
                    await produce(peer, topic, data, sent)
                    ledger["requests", "Produce", str(PRODUCE_VERSION[sent])] += 1
                    ledger["in", topic] += count
                    ledger["bytes", topic] += len(data)
                    ledger["converted in", topic] += count if sent is not stored else 0
                    ledger["sets", topic, sent.value] += 1
                    end += count
            for version in (1, 2, 11):
                offset = 0
                while offset < end:
                    found = read(await fetch(peer, version, asking(topic, offset)))
                    ledger["requests", "Fetch", str(version)] += 1
                    ledger["out", topic] += len(found)
                    if stored.magic > min(version - 1, 2):
                        ledger["converted out", topic] += len(found)
                    offset = found[-1].offset + 1
        scraped = await scrape(broker)
        for topic in ("stored.0", "stored.1", "stored.2"):
            assert scraped.one(TOPICS + "messagesin_total", topic=topic) == ledger["in", topic]
            assert scraped.one(TOPICS + "bytesin_total", topic=topic) == ledger["bytes", topic]
            converted = scraped.one(TOPICS + "producemessageconversions_total", topic=topic)
            assert converted == ledger["converted in", topic]
            converted = scraped.one(TOPICS + "fetchmessageconversions_total", topic=topic)
            assert converted == ledger["converted out", topic]
            for source in "012":
                moved = scraped.total("magicbyte_moved_sets_total", topic=topic, source=source, direction="produce")
                assert moved == ledger["sets", topic, source]
            assert scraped.one("kafka_log_log_size", topic=topic) == broker.replicas.partition(topic, 0).log.size
            assert scraped.one("kafka_log_log_logendoffset", topic=topic) == ledger["in", topic]
            out = scraped.one(TOPICS + "bytesout_total", topic=topic)
            assert out == scraped.total("magicbyte_moved_bytes_total", topic=topic, direction="fetch")
            zero_copy = scraped.one("magicbyte_zero_copy_bytes_total", topic=topic)
            assert zero_copy == out if topic == "stored.0" else zero_copy < out
        for (what, *rest), count in ledger.items():
            if what == "requests":
                found = scraped.one("kafka_network_requestmetrics_requests_total", request=rest[0], version=rest[1])
                assert found == count
        fetches = sum(count for what, count in ledger.items() if what[:2] == ("requests", "Fetch"))
        assert scraped.one("kafka_network_requestmetrics_totaltimems_count", request="Fetch") == fetches
        assert scraped.of_all(TOPICS + "messagesin_total") == sum(
            count for what, count in ledger.items() if what[0] == "in"
        )
        peer.close()


async def test_a_set_that_stays_closed_counts_as_a_recompression_avoided_and_one_that_is_opened_as_done(
    tmp_path: Path,
) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic", configs={"message.format.version": "1"})
        peer = await Peer.of(broker)
        for form in (Format.V1, Format.V1, Format.V2):
            await produce(peer, "topic", made(records(10), form, Codec.GZIP), form)
        scraped = await scrape(broker)
        assert scraped.one("magicbyte_recompressions_avoided_total", topic="topic") == 2
        assert scraped.one("magicbyte_recompressions_done_total", topic="topic") == 1
        peer.close()


async def test_readers_and_writers_are_shown_by_client_id_software_and_version(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        hello = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.1")
        await peer.ask(hello, 3, ApiVersionsResponse)
        await produce(peer, "topic", made(records(1), Format.V1), Format.V1)
        scraped = await scrape(broker)
        ((labels, count),) = scraped.find("magicbyte_moved_records_total", topic="topic")
        assert count == 1
        assert labels == {
            "topic": "topic",
            "direction": "produce",
            "source": "1",
            "target": "2",
            "version": "2",
            "client_id": "test",
            "software": "librdkafka",
            "software_version": "2.16.1",
        }
        name = {"software": "librdkafka", "software_version": "2.16.1", "listener": "PLAINTEXT"}
        assert scraped.one("magicbyte_connections", **name) == 1
        peer.close()


async def test_errors_are_those_of_a_ledger_of_what_was_answered(tmp_path: Path) -> None:
    """By request and by Kafka's name of the code, of each partition in an answer; NONE for those that went well."""

    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic", partitions=2)
        peer = await Peer.of(broker)
        ledger: Counter[tuple[str, str]] = Counter()
        sound = made(records(3), Format.V2)
        broken = bytearray(sound)
        broken[-1] ^= 1
        for indexes, data in (((0, 1), sound), ((0, 1, 9), sound), ((0,), bytes(broken))):
            parts = [PartitionProduceData(index=index, records=data) for index in indexes]
            asked = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="topic", partition_data=parts)])
            answer = await peer.ask(asked, 7, ProduceResponse)
            for each in answer.responses[0].partition_responses:
                ledger["Produce", ErrorCode(each.error_code).name] += 1
        for offset in (0, 3, 77):
            found = await peer.ask(asking("topic", offset), 11, FetchResponse)
            for each in (found, found.responses[0].partitions[0]):
                ledger["Fetch", ErrorCode(each.error_code).name] += 1
        assert {code for _, code in ledger} == {
            "NONE",
            "CORRUPT_MESSAGE",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "OFFSET_OUT_OF_RANGE",
        }
        scraped = await scrape(broker)
        told = {
            (labels["request"], labels["error"]): count
            for labels, count in scraped.find("kafka_network_requestmetrics_errors_total")
        }
        assert told == ledger
        peer.close()


async def test_dashboards_made_for_kafka_find_what_they_ask_for(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic")
        await broker.topics.create("lacking", configs={"min.insync.replicas": "2"})
        broker.replicas.partition("lacking", 0)
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(1), Format.V2), Format.V2)
        await fetch(peer, 11, asking("topic", 1, wait_ms=1))
        scraped = await scrape(broker)
        assert [name for name in DASHBOARDS if not scraped.find(name)] == []
        for name, topic, expected in (
            ("underminisr", "lacking", 1),
            ("underminisr", "topic", 0),
            ("atminisr", "lacking", 0),
            ("atminisr", "topic", 1),
        ):
            found = scraped.one(f"kafka_cluster_partition_{name}", topic=topic, partition="0")
            assert found == expected, (name, topic)
        assert scraped.one("kafka_server_replicamanager_underminisrpartitioncount") == 1
        listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        assert scraped.one("kafka_server_socket_server_metrics_connection_count", **listener) == 1
        peer.close()


async def test_syncs_that_appends_wait_for_are_timed(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED | {"log.flush.policy": "group-commit"}) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for _ in range(3):  # each waits for its own
            await produce(peer, "topic", made(records(1), Format.V2), Format.V2)
        scraped = await scrape(broker)
        name = "kafka_log_logflushstats_logflushrateandtimems"
        assert scraped.one(f"{name}_count") == 3
        assert scraped.one(f"{name}_sum") > 0
        assert scraped.one(name, quantile="0.99") >= scraped.one(name, quantile="0.5") > 0
        peer.close()


def test_a_loop_is_idle_as_far_as_it_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0, "cpu": 7.0}
    monkeypatch.setattr(pages.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(pages.time, "thread_time", lambda: clock["cpu"])
    idle = pages.LoopIdle()
    clock.update(now=110.0, cpu=9.0)
    assert idle.share() == pytest.approx(0.8)
    clock.update(now=110.5, cpu=9.0)  # two who look, one behind the other, see nearly the same
    assert idle.share() == pytest.approx(1 - 2 / 10.5)
    clock.update(now=160.0, cpu=59.0)
    assert idle.share() == pytest.approx(1 - 52 / 60)
    clock.update(now=171.0, cpu=59.0)  # what was before the last minute has gone
    assert idle.share() == pytest.approx(1 - 50 / 61)


async def test_a_label_may_hold_any_text(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        strange = 'a "quoted" \\ back\nline é'
        metrics = broker.metrics.of("topic")
        client = broker.metrics.client(strange, "", "")
        metrics.produced[Conversion(Format.V1, Format.V1, 2, client)] = Moved(bytes=1)
        ((labels, _),) = (await scrape(broker)).find("magicbyte_moved_bytes_total")
        assert labels["client_id"] == r'a "quoted" \\ back\nline é'


async def test_a_topic_that_is_deleted_leaves_the_page_and_stays_in_the_sums(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("gone")
        peer = await Peer.of(broker)
        await produce(peer, "gone", made(records(7), Format.V2), Format.V2)
        await peer.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 1, DeleteTopicsResponse)
        scraped = await scrape(broker)
        assert not scraped.find(TOPICS + "messagesin_total", topic="gone")
        assert not scraped.find("kafka_log_log_size", topic="gone")
        assert scraped.of_all(TOPICS + "messagesin_total") == 7
        peer.close()


def documented(page: str) -> set[str]:
    """Return the metrics of the table, without `_total`. An ellipsis repeats the name before up to its last part."""
    table = page[page.index("| Name | Labels | Meaning |") :].split("\n\n", 1)[0]
    found, whole = set[str](), ""
    for name in re.findall(r"`([a-z_…]+)`", " ".join(row.split(" | ")[0] for row in table.splitlines())):
        if name.startswith("…"):
            name = whole[: whole.rindex("_")] + name.removeprefix("…")
        whole = name.removesuffix("_total")
        found.add(whole)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="metrics of memory, files and disks are Linux's")
async def test_the_reference_has_every_metric_and_no_other(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text(encoding="utf-8")

    async with Running(tmp_path, SERVED) as broker:
        assert documented(page) == set((await scrape(broker)).types)


async def test_the_page_is_open_metrics_where_that_is_asked_for(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        await produce(peer, "topic", made(records(3), Format.V2), Format.V2)
        status, text = await page(broker, "/metrics", "application/openmetrics-text; version=1.0.0")
        assert status == HTTPStatus.OK
        names = {each.name for each in openmetrics.text_string_to_metric_families(text)}
        assert names >= {TOPICS + "messagesin", "kafka_log_log_size", "process_cpu_seconds"}
        peer.close()


async def test_health_is_503_once_the_log_directory_has_failed(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        status, text = await page(broker, "/health")
        assert (status, json.loads(text)["ready"]) == (HTTPStatus.OK, True)
        broker.logs.health.error = OSError(5, "Input/output error")
        status, text = await page(broker, "/health")
        found = json.loads(text)
        assert (status, found["ready"], found["live"]) == (HTTPStatus.SERVICE_UNAVAILABLE, False, True)
        assert "Input/output error" in found["logDirectories"][0]["error"]
        assert (await page(broker, "/health/live"))[0] == HTTPStatus.OK
        scraped = await scrape(broker)
        assert scraped.one("kafka_log_logmanager_offlinelogdirectorycount") == 1
        broker.logs.health.error = None  # so that it closes its logs


def test_a_damaged_compacted_log_is_reported_in_one_line_and_two_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> tuple[float, float, int]:
        given = SERVED | {"log.initial.task.delay.ms": "100000"}
        async with Running(tmp_path, given) as broker:
            own = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0"}
            await broker.topics.create("topic", configs=own)
            peer = await Peer.of(broker)
            for _ in range(100):
                await produce(peer, "topic", made(records(3), Format.V2), Format.V2)
            peer.close()
            first = broker.logs[TopicPartition("topic", 0)].segments[0]
            first.log.write_at(100, b"damage")
            assert broker._background is not None
            maintenance = broker._background.maintenance()
            while maintenance.step(1 << 20, Moment.fixed(broker.clock.now_ms())).action is not Action.NOTHING:
                pass
            scraped, prefix = await scrape(broker), "kafka_log_logcleanermanager_uncleanable"
            return scraped.one(f"{prefix}_partitions_count"), scraped.one(f"{prefix}_bytes"), first.size

    partitions, left, size = run(work())
    assert (partitions, left) == (1, size)
    (line,) = (each.getMessage() for each in caplog.records if "uncleanable" in each.getMessage())
    assert line.startswith(f"topic-0: uncleanable: {tmp_path}/topic-0/{0:020}.log, position 0, offsets 0..2: ")
    assert "`magicbyte salvage`" in line


def test_bytes_that_recovery_cuts_off_are_reported_when_the_broker_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Running(tmp_path) as broker:
            await broker.topics.create("topic")
            peer = await Peer.of(broker)
            await produce(peer, "topic", made(records(3), Format.V2), Format.V2)
            peer.close()
        (tmp_path / ".kafka_cleanshutdown").unlink()
        with (tmp_path / "topic-0" / f"{0:020}.log").open("ab") as file:
            file.write(b"torn")
        async with Running(tmp_path):
            pass

    run(work())
    (line,) = (each.getMessage() for each in caplog.records if "recovery cut" in each.getMessage())
    assert line.startswith(f"topic-0: recovery cut 4 bytes off {tmp_path}/topic-0/{0:020}.log, position ")
    assert f"a copy is in {tmp_path}/quarantine/topic-0." in line


@pytest.mark.parametrize("fault", ["no host", "no port"])
def test_an_address_that_cannot_be_is_wrong_use(fault: str, tmp_path: Path) -> None:
    address = {"no host": "nowhere", "no port": "127.0.0.1:99999"}[fault]
    done = command("serve", "--dir", tmp_path, "--listen", "127.0.0.1:0", "--http", address)
    assert done.exit_code == 2
    wanted = {"no host": "expected HOST:PORT", "no port": "expected a port from 0 to 65535, found 99999"}[fault]
    assert f"http.address: {address!r}: {wanted}" in done.stderr


@pytest.mark.parametrize(
    ("address", "where", "is_open"),
    [
        (":9404", ("127.0.0.1", 9404), False),
        ("localhost:9404", ("localhost", 9404), False),
        ("[::1]:0", ("::1", 0), False),
        ("0.0.0.0:9404", ("0.0.0.0", 9404), True),
    ],
)
def test_the_pages_are_for_this_machine_unless_told_otherwise_with_a_warning(
    address: str, where: tuple[str, int], is_open: bool
) -> None:
    config = BrokerConfig({"http.address": address})
    assert config.http == where
    assert any("open to the network" in each for each in config.warnings()) == is_open


async def test_pages_with_a_token_are_for_those_who_have_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3same-zq\n")

    def got(port: int, page: str, authorization: str | None) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", page, headers={} if authorization is None else {"Authorization": authorization})
        response = connection.getresponse()
        found = response.status, response.getheader("WWW-Authenticate"), response.read()
        connection.close()
        return found

    async with Running(tmp_path / "logs", {**SERVED, "http.token.file": str(path)}) as broker:
        for page in ("/metrics", "/health", "/nowhere"):
            for given in (None, "", "s3same-zq", "Bearer", "Bearer s3same", "Bearer s3same-zqx", "Basic s3same-zq"):
                told = await asyncio.to_thread(got, broker.http_port, page, given)
                assert told == (401, "Bearer", b"Unauthorized\n"), (page, given)
        status, _, body = await asyncio.to_thread(got, broker.http_port, "/health", "bearer s3same-zq")
        assert (status, json.loads(body)["ready"]) == (200, True)


async def test_pages_over_tls_are_for_those_with_a_certificate_and_the_token(tmp_path: Path) -> None:
    authority, token, ca = Authority(), tmp_path / "token", tmp_path / "ca.pem"
    ca.write_text(authority.certificate)
    token.write_text("s3same-zq")
    own = authority.write(tmp_path, "own")
    settings = SERVED | {
        "http.token.file": str(token),
        "http.ssl.keystore.location": str(authority.write(tmp_path, "broker")),
        "http.ssl.truststore.location": str(ca),
    }

    async with Running(tmp_path / "logs", settings) as broker:
        url = f"https://127.0.0.1:{broker.http_port}/metrics"
        allowed = await scrape_page(url, PageAccess(ca, own, "s3same-zq"))
        assert "kafka_log_logmanager_offlinelogdirectorycount" in allowed.names()
        for access in (PageAccess(ca, own), PageAccess(ca, token="s3same-zq"), PageAccess(ca, own, "wrong")):
            with pytest.raises(NetworkError):
                await scrape_page(url, access)
        with pytest.raises(NetworkError):
            await scrape_page(f"127.0.0.1:{broker.http_port}")
        assert (await scrape_page(url, PageAccess(ca, own, "s3same-zq"))).names()


@pytest.mark.parametrize("setting", ["http.token.file", "http.ssl.keystore.location"])
def test_a_file_for_the_pages_that_is_none_stops_the_start(tmp_path: Path, setting: str) -> None:
    path = tmp_path / "file"
    path.write_text("two words")

    async def start(settings: dict[str, str]) -> None:
        async with Running(tmp_path / "logs", SERVED | settings):
            pytest.fail("it starts")

    with pytest.raises(InvalidConfigError, match=r"expected http\.ssl\.keystore\.location with it"):
        run(start({"http.ssl.truststore.location": str(path)}))
    for given, expected in ((tmp_path / "none", "none"), (path, "expected a")):
        with pytest.raises(InvalidConfigError, match=expected) as error:
            run(start({setting: str(given)}))
        assert "words" not in str(error.value)


def test_pages_with_a_token_or_for_certificates_are_not_open_to_the_network() -> None:
    for setting in ("http.token.file", "http.ssl.truststore.location"):
        config = BrokerConfig({"http.address": "0.0.0.0:9404", setting: "file"})
        assert not any("the pages" in each for each in config.warnings())


# ---- slow requests


def test_a_slow_request_is_a_line_that_says_whose_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with Running(tmp_path, {"slow.request.ms": "0"}) as broker:
            await broker.topics.create("topic")
            peer = await Peer.of(broker)
            await produce(peer, "topic", made(records(1), Format.V1), Format.V1)
            peer.close()

    with caplog.at_level(logging.WARNING, "magicbyte.server.serving.dispatch"):
        run(work())
    (line,) = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
    assert line.items() >= {"level": "warning", "api": "Produce", "version": 2, "client_id": "test"}.items()
    assert line["peer"].startswith("127.0.0.1:")
    assert line["local_ms"] >= 0 == line["waited_ms"]


def test_the_time_a_fetch_waits_for_records_is_counted_separately(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Running(tmp_path, SERVED | {"slow.request.ms": "0"}) as broker:
            await broker.topics.create("topic")
            peer = await Peer.of(broker)
            await fetch(peer, 4, asking("topic", 0, wait_ms=300))
            scraped = await scrape(broker)
            total = scraped.one("kafka_network_requestmetrics_totaltimems_sum", request="Fetch")
            local = scraped.one("kafka_network_requestmetrics_localtimems_sum", request="Fetch")
            (facts,) = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
            assert facts["waited_ms"] > 0
            remote = scraped.one("kafka_network_requestmetrics_remotetimems_sum", request="Fetch")
            assert total - local == pytest.approx(facts["waited_ms"], abs=0.001)
            assert remote == pytest.approx(facts["waited_ms"], abs=0.001)
            assert local == pytest.approx(facts["local_ms"], abs=0.001)
            peer.close()

    with caplog.at_level(logging.WARNING, "magicbyte.server.serving.dispatch"):
        run(work())


# ---- counters by themselves


def test_a_quantile_is_a_bound_at_most_a_fifth_above_the_time_itself() -> None:
    times, real = Times(), [round(20_000 * 1.1**at) for at in range(150)]
    times.add(reversed(real[::2]))
    times.add(real[1::2])
    for share in (0.5, 0.75, 0.99, 1.0):
        exact = real[min(int(share * len(real)), len(real) - 1)]
        assert exact / 1.1 <= times.quantile(share) <= exact * 1.22
    assert Times().quantile(0.5) == 0
    assert times.quantile(0.5, none=len(real)) == 0
    assert times.quantile(0.75, none=len(real)) == times.quantile(0.5)
    times.add([10**15])
    assert times.quantile(1.0) == BOUNDS_NS[-1]


def test_clients_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics()
    for at in range(MOST_CLIENTS):
        assert metrics.client(f"client {at}", "", "").id == f"client {at}"
    assert metrics.client("one more", "", "") == OTHERS
    assert metrics.client("client 0", "", "").id == "client 0"


def test_clients_beyond_the_bound_are_counted_together_by_version() -> None:
    metrics = Metrics()
    for at in range(MOST_ASKINGS):
        metrics.asking(ClientSoftware(f"client {at}"), "10.0.0.1", 1, 11).count += 1
    metrics.asking(ClientSoftware("one more"), "10.0.0.2", 1, 3).count += 1
    metrics.asking(ClientSoftware("another"), "10.0.0.3", 1, 3).count += 1
    assert metrics.asked[OTHERS, "", 1, 3].count == 2
    assert metrics.asking(ClientSoftware("client 0"), "10.0.0.1", 1, 11).count == 1


async def test_each_client_is_counted_by_address_and_version(tmp_path: Path) -> None:
    async with Running(tmp_path, SERVED) as broker:
        peer = await Peer.of(broker)
        told = ApiVersionsRequest(client_software_name="library", client_software_version="1.2")
        await peer.ask(told, 3, ApiVersionsResponse)
        await peer.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
        await peer.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
        found = await scrape(broker)
        about = {"address": "127.0.0.1", "software": "library", "software_version": "1.2", "request": "Metadata"}
        assert found.one("magicbyte_client_requests_total", version="1", **about) == 2
        last = found.one("magicbyte_client_last_request_timestamp_seconds", version="1", **about)
        assert last == pytest.approx(broker.clock.now_ms() / 1000, abs=60)
