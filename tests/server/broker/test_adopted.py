"""Log directories that real brokers left, served by ours: what their consumer saw is what ours gives."""

import base64
import shutil
from pathlib import Path

import pytest

import golden_data
from builders import run
from golden_data import Case
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.groups import Committed, commit_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.groups.records import GroupMetadataValue, GroupValue, OffsetCommitValue, decode_key, decode_value
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from magicbyte.engine.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.entry import entries
from magicbyte.engine.releases import line_of
from magicbyte.server.metadata.sqlite import SqliteStore
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes.kept_settings import forget_settings
from server.broker.serving import Clock, Peer, Running

CASES = [each for each in golden_data.log_cases(state="clean shutdown") if each.has_records and each.codec == "lz4"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_topic_of_a_real_broker_is_served_with_nothing_but_its_folder(case: Case, folder: Path) -> None:
    shutil.copytree(case.partition_dir(), folder / f"{case.topic}-{case.partition}")

    async def work() -> list[tuple[int, int, bytes | None, bytes | None]]:
        async with Running(folder) as broker:
            assert broker.topics.adopted == [case.topic]
            address = f"127.0.0.1:{next(iter(broker.ports.values()))}"
            async with Client(address) as client:
                start, end = await bounds(client, case.topic, case.partition)
                found = read_records(client, case.topic, case.partition, start, end)
                return [(each.offset, each.timestamp, each.key, each.value) async for part in found for each in part]

    assert run(work()) == [
        (
            each["offset"],
            -1 if each["timestamp"] is None else each["timestamp"],
            *(None if each[cell] is None else base64.b64decode(each[cell]) for cell in ("key", "value")),
        )
        for each in case.records()
    ]


# ---- in which format a directory is kept

KEPT = {
    "0.8.2.2": (0, (0, 9, 0)), "0.9.0.1": (0, (0, 9, 0)), "0.10.0.1": (1, (0, 10, 0)), "0.10.2.2": (1, (0, 10, 1)),
    "0.11.0.3": (2, (0, 11, 0)), "1.1.1": (2, (0, 11, 0)), "2.8.2": (2, (2, 8)), "3.9.1": (2, (2, 8)),
    "4.3.1": (2, (2, 8)),
}  # fmt: skip
"""By release: the newest magic of a topic in its default format, and the first protocol that reads all of it."""
GROUPS = {each.version: each for each in golden_data.log_cases(topic="__consumer_offsets")}
Written = dict[str, list[int]]


def lay_out(folder: Path, version: str) -> str:
    """Put a topic of a real broker, and its groups where these are golden, into a folder; return the topic."""
    case = next(each for each in CASES if each.version == version and each.name == "basic-lz4")
    for each in [case, *([GROUPS[version]] if version in GROUPS else [])]:
        shutil.copytree(each.partition_dir(), folder / f"{each.topic}-{each.partition}")
    return case.topic


def magics(folder: Path) -> Written:
    """The magic bytes of all entries, by partition."""
    return {
        each.name: [entry.magic for file in sorted(each.glob("*.log")) for _, entry in entries(file.read_bytes())]
        for each in folder.iterdir()
        if each.is_dir()
    }


def values(folder: Path) -> list[GroupValue | None]:
    """What the log of the groups holds."""
    found = []
    for file in sorted(folder.glob("__consumer_offsets-*/*.log")):
        for _, entry in entries(file.read_bytes()):
            records = [record for columns in decode(entry.buffer) for record in columns]
            found += [decode_value(decode_key(each.key or b""), each.value) for each in records]
    return found


def use(folder: Path, topic: str, settings: dict[str, str] | None = None) -> BrokerConfig:
    """Run our broker on the directory: clients write, create a topic, join a group, leave it, commit."""

    async def work() -> BrokerConfig:
        async with Running(folder, {"group.initial.rebalance.delay.ms": "0", **(settings or {})}) as broker:
            address = f"127.0.0.1:{next(iter(broker.ports.values()))}"
            async with Client(address) as client:
                for name in (topic, "made"):
                    if broker.topics.get(name) is None:
                        await broker.topics.create(name)
                    await send(client, name, 0, [Record(0, 1_700_000_000_000, 0, b"key", b"value")])
                await commit_offsets(client, "simple", {(topic, 0): Committed(1)})
                peer = await Peer.of(broker)
                join = JoinGroupRequest(
                    group_id="left", session_timeout_ms=30_000, protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
                )  # fmt: skip
                joined = await peer.ask(join, 0, JoinGroupResponse)
                sync = SyncGroupRequest(group_id="left", generation_id=joined.generation_id, member_id=joined.member_id)
                assert (await peer.ask(sync, 0, SyncGroupResponse)).error_code == 0
                leave = LeaveGroupRequest(group_id="left", member_id=joined.member_id)
                assert (await peer.ask(leave, 0, LeaveGroupResponse)).error_code == 0
                peer.close()
                await commit_offsets(client, "left", {(topic, 0): Committed(1)})
            return broker.config

    found: BrokerConfig = run(work())
    return found


def check_readable(written: Written, stored: list[GroupValue | None], magic: int, protocol: tuple[int, ...]) -> None:
    """A broker of that protocol can read all of it."""
    assert all(each <= magic for found in written.values() for each in found), written
    groups = [each for each in stored if isinstance(each, GroupMetadataValue)]
    offsets = [each for each in stored if isinstance(each, OffsetCommitValue)]
    assert offsets
    assert all(each.version <= (3 if protocol >= (2, 1) else 1) for each in offsets)
    newest = 3 if protocol >= (2, 3) else 2 if protocol >= (2, 1) else 1 if protocol >= (0, 10, 1) else 0
    assert all(each.version <= newest for each in groups)
    assert all(each.protocol is not None and each.leader is not None for each in groups) or protocol >= (0, 10, 1)


@pytest.mark.parametrize("version", KEPT)
def test_a_directory_is_kept_as_the_oldest_broker_would_that_can_have_written_it(version: str, folder: Path) -> None:
    """Also by a second start, and where the metadata is lost in between."""
    topic, (magic, protocol) = lay_out(folder, version), KEPT[version]
    before, known = magics(folder), values(folder)
    assert max(each for found in before.values() for each in found) == magic
    for lap in range(3):
        config = use(folder, topic)
        assert (config.log_message_format_version.magic, line_of(config.inter_broker_protocol_version)) == (
            magic,
            protocol,
        )
        if lap == 1:
            (folder / "magicbyte-metadata.sqlite").unlink()
    after = magics(folder)
    assert {name: found[: len(before.get(name, []))] for name, found in after.items() if name in before} == before
    assert len(after[f"{topic}-0"]) == len(before[f"{topic}-0"]) + 3
    assert len(after["made-0"]) == 3
    check_readable(after, values(folder)[len(known) if version in GROUPS else 0 :], magic, protocol)


@pytest.mark.parametrize(
    ("settings", "magic", "protocol"),
    [
        ({"log.message.format.version": "2"}, 2, (0, 11, 0)),
        ({"inter.broker.protocol.version": "2.8"}, 1, (2, 8)),
        ({"log.message.format.version": "3.0", "inter.broker.protocol.version": "2.8"}, 2, (2, 8)),
    ],
)
def test_settings_go_beyond_by_name_which_is_said_once_and_remembered(
    settings: dict[str, str], magic: int, protocol: tuple[int, ...], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = lay_out(folder, "0.10.0.1")
    use(folder, topic)
    (said,) = (each for each in caplog.messages if "are adopted" not in each)
    assert said == (
        f"{folder} stays readable for Kafka 0.10.0: log.message.format.version=0.10.0, "
        "inter.broker.protocol.version=0.10.0; set them to use later formats"
    )
    caplog.clear()
    for given in (settings, {}):
        config = use(folder, topic, given)
        assert (config.log_message_format_version.magic, line_of(config.inter_broker_protocol_version)) == (
            magic,
            protocol,
        )
        beyond = [each for each in caplog.messages if "require" in each]
        name = ".".join(map(str, protocol))
        line = f"{folder} was readable for Kafka 0.10.0, and no longer is: the settings require {name}"
        assert beyond == ([line] if given else [])
        caplog.clear()
    assert max(magics(folder)["made-0"]) == magic


def test_settings_that_were_given_hold_for_starts_without_them(folder: Path) -> None:
    use(folder, "topic", {"log.message.format.version": "0.10.2", "inter.broker.protocol.version": "0.10.2"})
    config = use(folder, "topic")
    assert (config.log_message_format_version.magic, line_of(config.inter_broker_protocol_version)) == (1, (0, 10, 2))
    check_readable(magics(folder), values(folder), 1, (0, 10, 2))


def test_a_new_directory_has_the_latest_format_and_nothing_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        config = use(folder, "topic")
        assert (config.log_message_format_version.magic, line_of(config.inter_broker_protocol_version)) == (2, (2, 8))
    assert caplog.messages == []


def test_a_topic_with_an_older_format_of_its_own_does_not_decide_over_a_new_directory(folder: Path) -> None:
    async def work() -> None:
        async with Running(folder) as broker:
            await broker.topics.create("old", configs={"message.format.version": "0.9.0"})
            async with Client(f"127.0.0.1:{next(iter(broker.ports.values()))}") as client:
                await send(client, "old", 0, [Record(0, 1_700_000_000_000, 0, b"key", b"value")])

    run(work())
    assert use(folder, "topic").log_message_format_version.magic == 2


def test_a_topic_with_partitions_beyond_its_directory_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = lay_out(folder, "0.10.0.1")

    async def work() -> None:
        async with Running(folder) as broker:
            caplog.clear()
            await broker.topics.create("new", configs={"message.format.version": "2"})
            await broker.topics.alter(topic, lambda _: {"message.format.version": "0.11.0"})
            await broker.topics.create("old", configs={"message.format.version": "0.9.0"})

    run(work())
    assert caplog.messages == [
        f"topic {each} stores format 2 from now on: Kafka 0.10.0 can no longer read the directory"
        for each in ("new", topic)
    ]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2"])
def test_an_older_release_is_offered_with_what_its_brokers_can_read(version: str, folder: Path) -> None:
    config = use(folder, "topic", {"as.version": version})
    protocol = (0, 9, 0) if version == "0.9.0.1" else (0, 10, 2)
    assert config.inter_broker_protocol_version == protocol
    check_readable(magics(folder), values(folder), 0 if version == "0.9.0.1" else 1, protocol)


@pytest.mark.parametrize("damaged", ["topic", "groups"])
def test_a_log_that_is_damaged_does_not_keep_the_others_from_telling(damaged: str, folder: Path) -> None:
    topic = lay_out(folder, "0.10.2.2")
    name = f"{topic}-0" if damaged == "topic" else "__consumer_offsets-0"
    (file,) = (folder / name).glob("*.log")
    content = bytearray(file.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    file.write_bytes(content)
    (folder / ".kafka_cleanshutdown").touch()  # so that recovery does not cut it off

    async def work() -> tuple[int, tuple[int, ...]]:
        async with Running(folder) as broker:
            return broker.config.log_message_format_version.magic, broker.config.inter_broker_protocol_version

    assert run(work()) == (1, (0, 10, 1) if damaged == "topic" else (0, 10, 0))


def test_what_is_forgotten_follows_from_the_records_again(folder: Path) -> None:
    """As after an import of metadata: another broker had the directory meanwhile."""
    use(folder, "topic", {"log.message.format.version": "0.10.2", "inter.broker.protocol.version": "0.10.2"})
    store = SqliteStore(str(folder / "magicbyte-metadata.sqlite"), Clock())
    forget_settings(store)
    store.close()
    config = use(folder, "topic")
    assert (config.log_message_format_version.magic, line_of(config.inter_broker_protocol_version)) == (1, (0, 10, 1))
