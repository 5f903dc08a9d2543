"""What a real Kafka 4.3.1 does with what `magicbyte migrate check` says, and what `status` says of real brokers."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import golden_data
from cli.command import run
from interop import jvm
from magicbyte.access.client import Client
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.protocol import APIS, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.scan import scan
from magicbyte.engine.releases import Release
from magicbyte.tools.migration.capture import read_capture
from magicbyte.tools.migration.check import Facts, Weight, check
from magicbyte.tools.migration.sightings import SeenClient, Sightings

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

RELEASE = "4.3.1"
START = 1_700_000_000_000
SECONDS = 240
STORED = {"v0": "0.8.2.2/basic-gzip", "v1": "0.10.2.2/basic-lz4"}
FORGOTTEN = {
    "inter.broker.protocol.version": "3.9",
    "log.message.format.version": "3.0",
    "log.message.downconversion.enable": "true",
    "offsets.commit.required.acks": "-1",
    "zookeeper.session.timeout.ms": "6000",
    "advertised.host.name": "localhost",
    "quota.producer.default": "1000000",
}
TRAFFIC = Path(__file__).parent / "release_traffic.jsonl"
CAPTURE = Path(__file__).parents[1] / "tools/migration/captures/2.8.2.pcap"
BETWEEN_BROKERS = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown")


def weights(broker: dict[str, str], topic: dict[str, str]) -> dict[str, Weight]:
    facts = Facts(brokers={"0": broker}, topics={"t": topic})
    return {each.subject.split()[2].split("=")[0]: each.weight for each in check(facts, Release.of(RELEASE)).findings}


def test_a_real_broker_starts_with_forgotten_settings_and_serves_old_formats(tmp_path: Path) -> None:
    """It starts with all settings that only change, refuses those of topics, and serves formats 0 and 1 as stored."""
    assert weights(FORGOTTEN, {}) == dict.fromkeys(FORGOTTEN, Weight.CHANGES)
    properties = [f"{name}={value}" for name, value in FORGOTTEN.items()]

    async def create(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            for topic in STORED:
                await create_topic(client, NewTopic(topic, configs={"retention.ms": "-1"}))
            for name, value in {"message.format.version": "2.8", "segment.bytes": "1048575"}.items():
                assert name in weights({}, {name: value})
                with pytest.raises(BrokerError) as refused:
                    await alter_configs(client, ConfigResource.TOPIC, "v0", {name: value}, validate_only=True)
                assert refused.value.code == ErrorCode.INVALID_CONFIG
            await alter_configs(client, ConfigResource.TOPIC, "v0", {"segment.bytes": "1048576"}, validate_only=True)
            assert weights({}, {"segment.bytes": "1048576"}) == {}

    async def read(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            for at, (topic, case) in enumerate(STORED.items()):
                fetched = await fetch_sets(client, topic, 0, 0, FetchOptions(max_bytes=1 << 20))
                assert set(fetched.table.magic) == {at}
                records = [record for columns in decode(fetched.data[: fetched.table.end]) for record in columns]
                assert len(records) == len(golden_data.log_case(case).records())

    folder = tmp_path / "broker"
    with jvm.broker(RELEASE, folder, *properties) as state:
        asyncio.run(create(state["bootstrap"]))
    for topic, case in STORED.items():
        target = folder / "data" / f"{topic}-0"
        for old in target.glob("0*"):
            old.unlink()
        for log in golden_data.log_case(case).partition_dir().glob("*.log"):
            (target / log.name).write_bytes(log.read_bytes())
    for name in CHECKPOINTS:
        (folder / "data" / name).unlink(missing_ok=True)
    try:
        jvm.restart(folder)
        asyncio.run(read(state["bootstrap"]))
    finally:
        jvm.stop(folder)


def test_status_tells_release_protocol_and_format_of_a_real_broker_and_apply_goes_by_them(tmp_path: Path) -> None:
    async def create(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await create_topic(client, NewTopic("topic"))

    settings = ("inter.broker.protocol.version=0.10.2", "log.message.format.version=0.10.2")
    with jvm.broker("2.8.2", tmp_path / "broker", *settings) as state:
        server = state["bootstrap"]
        asyncio.run(create(server))
        done = run("migrate", "status", "-b", server, "--to", "2", "--rehearse", "0", "--format", "json")
        text = run("migrate", "status", "-b", server, "--to", "2", "--rehearse", "0").stdout
        refused = run("migrate", "apply", "-b", server, "--to", "2", "--topic", "topic")
        applied = run("migrate", "apply", "-b", server, "--to", "0", "--topic", "topic")
    assert (refused.exit_code, "0.10.2, below the format" in refused.stderr) == (1, True)
    assert (applied.exit_code, applied.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["phase"], found["brokers"]) == (0, "phase 1", [0])
    assert found["next"].startswith("raise inter.broker.protocol.version")
    (broker,) = found["clusterBrokers"]
    assert (broker["software"], broker["knowsFormat"]) == ("Kafka 2.8", "2")
    assert (broker["protocol"], broker["format"]) == ("0.10.2", "1")
    assert "Kafka 2.8" in text


def test_a_real_canary_goes_back_by_the_procedure_and_loses_nothing(tmp_path: Path) -> None:
    """The first variant of KIP-31: the canary's peer fetches in version 1, so that its copy is converted."""

    async def fill(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await create_topic(client, NewTopic("topic", assignments=[[1, 0]]))
            rows = [Record(at, START + at, 0, b"key", b"value %d" % at) for at in range(50)]
            await send(client, "topic", 0, rows, ProduceOptions(codec=Codec.GZIP))

    async def all_in_sync(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            for _ in range(SECONDS * 2):
                (partition,) = (await client.topics(["topic"]))["topic"].partitions.values()
                if set(partition.isr) == {0, 1}:
                    return
                await asyncio.sleep(0.5)
        raise AssertionError("the canary did not come back into sync")

    async def values(bootstrap: str) -> list[bytes | None]:
        async with Client(bootstrap) as client:
            found = await fetch_sets(client, "topic", 0, 0, FetchOptions(max_bytes=1 << 20))
            return [record.value for columns in decode(found.data[: found.table.end]) for record in columns]

    def stored(number: int) -> set[int]:
        data = (tmp_path / str(number) / "data/topic-0" / f"{0:020}.log").read_bytes()
        return set(scan(memoryview(data)).magic)

    def set_of_canary(protocol: str, form: str) -> None:
        start = tmp_path / "1/start.json"
        command = json.loads(start.read_text())
        for setting in (f"inter.broker.protocol.version={protocol}", f"log.message.format.version={form}"):
            command += ["--prop", setting]
        start.write_text(json.dumps(command))

    old = ("inter.broker.protocol.version=0.9.0", "log.message.format.version=0.9.0", "log.retention.ms=-1")
    with jvm.brokers("1.1.1", tmp_path, 2, *old) as states:
        server = states[0]["bootstrap"]
        jvm.stop(tmp_path / "1")
        set_of_canary("0.10.0", "0.10.0")
        jvm.restart(tmp_path / "1")
        asyncio.run(fill(server))
        asyncio.run(all_in_sync(server))
        assert (stored(0), stored(1)) == ({0}, {1})
        done = run("migrate", "status", "-b", server, "--to", "1", "--rehearse", "0", "--format", "json")
        assert done.stderr == ""
        canary = json.loads(done.stdout)
        assert (canary["phase"], canary["brokers"]) == ("phase 1", [0])  # whose protocol is still to be raised
        done = run("migrate", "rollback", "-b", server, "--broker", "1", "--to", "0", "--format", "json")
        assert done.stderr == ""
        found = json.loads(done.stdout)
        assert (done.exit_code, found["refused"], found["remove"], found["spread"]) == (0, [], ["topic-0"], {})
        jvm.stop(tmp_path / "1")
        alone = run("migrate", "rollback", "-b", server, "--broker", "0", "--to", "0")
        assert alone.exit_code == 0  # it holds nothing newer
        for folder in found["remove"]:
            shutil.rmtree(tmp_path / "1/data" / folder)
        set_of_canary("0.9.0", "0.9.0")
        jvm.restart(tmp_path / "1")
        asyncio.run(all_in_sync(server))
        assert asyncio.run(values(server)) == [b"value %d" % at for at in range(50)]
        assert (stored(0), stored(1)) == ({0}, {0})


def recorded_requests() -> dict[tuple[str, int], bytes]:
    """A frame of each API and version in the recordings: as it was sent, or an empty request where no bytes were kept.

    Recorded are the exchanges with real brokers in `golden/wire`, the capture of real clients, and by API and version
    alone what clients of fifteen kinds sent to brokers of nine releases.
    """
    found: dict[tuple[str, int], bytes] = {}
    for case in golden_data.wire_cases():
        for frame, answer in case.exchanges().values():
            if answer:  # brokers close the connection of a Produce with acks=0 that failed
                found.setdefault((case.info["api"], int.from_bytes(frame[6:8], "big")), frame)
    sightings = Sightings()
    with CAPTURE.open("rb") as file:
        read_capture(file, sightings)
    names = {api.key: api.name for api in APIS.values()}
    by_name = {api.name: api for api in APIS.values()}
    sent = {(names[asking.api_key], asking.version) for asking, _ in sightings}
    for line in TRAFFIC.read_text().splitlines():
        for each in json.loads(line)[-1].split():
            name, version = each.split(":")
            if (
                name not in BETWEEN_BROKERS and int(version) in by_name[name].versions
            ):  # a client that is answered "too new" asks again
                sent.add((name, int(version)))
    clients = {each for each in sent if each[0] not in BETWEEN_BROKERS}
    for name, version in sorted(clients - found.keys()):
        request = write_request(by_name[name].request(), version, correlation_id=9, client_id="recorded")
        found[name, version] = b"".join(map(bytes, request.buffers()))
    return found


async def is_refused(host: str, port: int, frame: bytes) -> bool:
    """Whether a broker closes the connection for a request, or answers UNSUPPORTED_VERSION to ApiVersions.

    A later request is answered even if it is not: some requests get no answer.
    """
    behind = b"".join(map(bytes, write_request(ApiVersionsRequest(), 0, correlation_id=77, client_id="x").buffers()))
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(frame + behind)
        async with asyncio.timeout(SECONDS):
            while True:
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if answer[:4] == (77).to_bytes(4, "big"):
                    return False
                if frame[4:6] == b"\x00\x12" and answer[4:6] == (35).to_bytes(2, "big"):
                    return True
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    finally:
        writer.close()


NEGOTIATED = {("ApiVersions", 5)}
"""Of Kafka 4.4: an older broker answers UNSUPPORTED_VERSION, and the client asks with the version of that answer."""


def test_check_names_exactly_the_recorded_requests_that_a_real_broker_refuses(tmp_path: Path) -> None:
    recorded = recorded_requests()
    assert len(recorded) > 120
    keys = {api.name: api.key for api in APIS.values()}

    async def refused(bootstrap: str) -> set[tuple[str, int]]:
        host, _, port = bootstrap.partition(":")
        return {which for which, frame in recorded.items() if await is_refused(host, int(port), frame)}

    predicted = set[tuple[str, int]]()
    for name, version in recorded:
        facts = Facts()
        facts.sightings.add(SeenClient("recorded"), keys[name], version)
        if check(facts, Release.of(RELEASE)).breaks:
            predicted.add((name, version))
    with jvm.broker(RELEASE, tmp_path / "broker") as state:
        assert asyncio.run(refused(state["bootstrap"])) == predicted | NEGOTIATED
    assert {("Produce", 2), ("Fetch", 3)} < predicted
