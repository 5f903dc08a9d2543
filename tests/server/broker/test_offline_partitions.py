"""Names that only look like partitions, and partitions that cannot be opened: the others are served."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from builders import run
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.log.files.names import MOST_PARTITIONS
from magicbyte.engine.ports import CreateNode
from magicbyte.engine.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from magicbyte.engine.records.encode import Format
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes import layout
from server.broker.builders import asking, fetch, made, produce, read, records
from server.broker.serving import Peer, Running
from server.broker.test_pages import scrape

GOOD = "good"


async def created(peer: Peer, name: str, partitions: int = 1) -> tuple[int, str]:
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
    topic = (await peer.ask(request, 5, CreateTopicsResponse)).topics[0]
    return topic.error_code, topic.error_message or ""


async def described(peer: Peer, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return (await peer.ask(request, 9, MetadataResponse)).topics[0]


async def takes_records(peer: Peer, topic: str = GOOD) -> None:
    answer = await produce(peer, topic, made(records(3), Format.V2), Format.V2)
    assert answer.error_code == 0
    assert len(read(await fetch(peer, 11, asking(topic, answer.base_offset)))) == 3


def with_good_topic(folder: Path, *more: str) -> None:
    """Make a directory with topics that hold records, and close it."""

    async def work() -> None:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            for name in (GOOD, *more):
                assert (await created(peer, name))[0] == 0
                await takes_records(peer, name)

    run(work())


def after_a_start(folder: Path, look: Any, *, repairs: bool = False) -> None:
    """Start a broker; the good topic is served; let `look` see to the rest."""

    async def work() -> None:
        config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
        broker = Broker(BrokerConfig(config), repairs=repairs)
        await broker.start()
        try:
            peer = await Peer.of(broker)
            await takes_records(peer)
            await look(broker, peer)
        finally:
            await broker.stop()

    run(work())


def test_the_topic_of_the_quorum_is_refused_and_nothing_else_suffers(folder: Path) -> None:
    with_good_topic(folder)

    async def look(_: Broker, peer: Peer) -> None:
        code, why = await created(peer, "__cluster_metadata")
        assert (code, why) == (
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        )
        assert (await described(peer, "__cluster_metadata")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await takes_records(peer)

    after_a_start(folder, look)
    after_a_start(folder, look)


def test_a_topic_of_the_quorum_that_an_earlier_version_made_costs_the_others_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_good_topic(folder, "other")
    (folder / "other-0").rename(folder / "__cluster_metadata-0")

    async def rename(broker: Broker, _: Peer) -> None:
        node = broker.metadata.get(layout.topic_path("other"))
        broker.metadata.transaction([CreateNode(layout.topic_path("__cluster_metadata"), node.data)])

    after_a_start(folder, rename)
    caplog.clear()

    async def look(_: Broker, peer: Peer) -> None:
        answer = await produce(peer, "__cluster_metadata", made(records(1), Format.V2), Format.V2)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        await takes_records(peer)

    after_a_start(folder, look)
    assert [each for each in caplog.messages if "is the quorum's own" in each]
    assert (folder / "__cluster_metadata-0" / f"{0:020}.log").stat().st_size > 0


@pytest.mark.parametrize(
    ("kind", "when"),
    [(kind, when) for kind in ("file", "pipe", "dead link") for when in ("before", "while it runs")]
    + [("folder", "while it runs")],
)
def test_a_topic_whose_folder_something_else_has_is_refused(folder: Path, kind: str, when: str) -> None:
    with_good_topic(folder)
    taken = folder / "foo-0"

    def take() -> None:
        if kind == "file":
            taken.write_bytes(b"mine")
        elif kind == "folder":
            taken.mkdir()
        elif kind == "pipe":
            os.mkfifo(taken)
        else:
            taken.symlink_to(folder / "gone")

    if when == "before":
        take()

    async def look(_: Broker, peer: Peer) -> None:
        if when != "before":
            take()
        code, why = await created(peer, "foo", 2)
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "foo-0" in why
        assert (await described(peer, "foo")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await takes_records(peer)

    after_a_start(folder, look)
    assert taken.is_symlink() or taken.exists()


def test_a_partition_whose_folder_something_else_has_is_not_added(folder: Path) -> None:
    with_good_topic(folder)
    (folder / "good-1").write_bytes(b"mine")

    async def look(_: Broker, peer: Peer) -> None:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=GOOD, count=2)], timeout_ms=1000)
        result = (await peer.ask(request, 1, CreatePartitionsResponse)).results[0]
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "good-1" in (result.error_message or "")
        assert len((await described(peer, GOOD)).partitions) == 1
        await takes_records(peer)

    after_a_start(folder, look)


@pytest.mark.parametrize("name", ["..-0", ".-0", "far-9999999", "far-99999", f"far-{MOST_PARTITIONS}", "far-0007"])
def test_a_folder_that_no_topic_can_have_is_one_line(folder: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with_good_topic(folder)
    (folder / name).mkdir()

    async def look(broker: Broker, _: Peer) -> None:
        assert broker.topics.adopted == []
        assert broker.topics.names() == [GOOD]

    after_a_start(folder, look)
    assert len([each for each in caplog.messages if f"{folder}/{name}:" in each]) == 1
    assert list(folder.glob("far-*")) == ([folder / name] if name.startswith("far") else [])


def test_adopting_costs_as_many_nodes_as_there_are_folders(folder: Path) -> None:
    with_good_topic(folder)
    (folder / f"far-{MOST_PARTITIONS - 1}").mkdir()

    async def look(broker: Broker, peer: Peer) -> None:
        assert broker.topics.adopted == ["far"]
        assert broker.topics.known("far").partitions == MOST_PARTITIONS
        assert broker.metadata.children(layout.partitions_path("far")) == [str(MOST_PARTITIONS - 1)]
        await broker.topics.raise_leader_epoch("far", 3, 5)
        assert dict(broker.topics.led_at_once(broker.topics.known("far")))[3] == 5
        await takes_records(peer, "far")

    after_a_start(folder, look)
    assert sorted(each.name for each in folder.glob("far-*")) == ["far-0", f"far-{MOST_PARTITIONS - 1}"]


def test_a_folder_beyond_the_partitions_of_its_topic_is_reported_and_kept(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_good_topic(folder)
    (folder / "good-7").mkdir()

    async def look(broker: Broker, _: Peer) -> None:
        assert broker.topics.known(GOOD).partitions == 1
        assert broker.topics.offline() == []

    after_a_start(folder, look)
    assert len([each for each in caplog.messages if f"{folder}/good-7: topic good has 1 partitions" in each]) == 1


def test_a_log_cut_short_beside_the_mark_is_one_offline_partition_until_it_is_repaired(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_good_topic(folder, "bad")
    file = folder / "bad-0" / f"{0:020}.log"
    content = file.read_bytes()
    file.write_bytes(content[:-5])

    async def look(broker: Broker, peer: Peer) -> None:
        assert len([each for each in caplog.messages if str(file) in each and "--repair" in each]) == 1
        part = (await described(peer, "bad")).partitions[0]
        assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ((0,), (0,), (0,))
        answer = await produce(peer, "bad", made(records(1), Format.V2), Format.V2)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "--repair" in (answer.error_message or "")
        assert (await fetch(peer, 11, asking("bad", 0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fetch(peer, 2, asking("bad", 0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [str(each) for each in broker.topics.offline()] == ["bad-0"]

    after_a_start(folder, look)
    assert file.read_bytes() == content[:-5], "nothing is changed unless it is asked for"

    async def repaired(broker: Broker, peer: Peer) -> None:
        assert broker.topics.offline() == []
        await takes_records(peer, "bad")

    after_a_start(folder, repaired, repairs=True)
    (kept,) = (folder / "quarantine").iterdir()
    assert kept.name == f"bad-0.{0:020}.0.bytes"
    caplog.clear()
    after_a_start(folder, repaired)
    size = kept.stat().st_size
    assert [each for each in caplog.messages if "quarantine" in each] == [
        f"{folder}/quarantine: files that were cut off or replaced are kept until you delete them: 1, of {size} bytes"
    ]

    async def measured() -> None:
        async with Running(folder, {"http.address": "127.0.0.1:0"}) as broker:
            page = await scrape(broker)
            assert page.one("magicbyte_quarantine_files") == 1
            assert page.one("magicbyte_quarantine_bytes") == size

    run(measured())


def test_a_topic_with_an_offline_partition_can_be_deleted_and_does_not_come_back(folder: Path) -> None:
    with_good_topic(folder, "bad")
    (folder / "bad-0" / f"{0:020}.log").unlink()

    async def look(_: Broker, peer: Peer) -> None:
        request = DeleteTopicsRequest(topic_names=["bad"], timeout_ms=1000)
        assert (await peer.ask(request, 4, DeleteTopicsResponse)).responses[0].error_code == 0
        assert (await created(peer, "bad"))[0] == 0
        await takes_records(peer, "bad")

    after_a_start(folder, look)

    async def again(broker: Broker, _: Peer) -> None:
        assert broker.topics.offline() == []
        assert broker.topics.names() == ["bad", GOOD]

    after_a_start(folder, again)


def test_groups_of_an_offline_partition_are_not_answered_as_if_they_had_committed_nothing(folder: Path) -> None:
    with_good_topic(folder)

    async def make(broker: Broker, _: Peer) -> None:
        await broker.groups.ensure_topic()
        for index in range(broker.topics.known("__consumer_offsets").partitions):
            await broker.replicas.opened("__consumer_offsets", index)

    after_a_start(folder, make)
    for each in folder.glob("__consumer_offsets-*"):
        (each / f"{0:020}.log").unlink()
        (each / f"{0:020}.log").mkdir()

    async def look(_: Broker, peer: Peer) -> None:
        answer = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 5, OffsetFetchResponse)
        assert answer.error_code != 0

    after_a_start(folder, look)


def test_the_lines_of_a_start_are_warnings_and_those_of_offline_partitions_errors(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_good_topic(folder, "bad")
    (folder / "bad-0" / f"{0:020}.log").unlink()
    (folder / "strange").mkdir()
    caplog.set_level(logging.INFO)

    async def look(_: Broker, __: Peer) -> None:
        found = {each.levelno for each in caplog.records if "bad-0" in each.getMessage()}
        assert found == {logging.ERROR}
        assert {each.levelno for each in caplog.records if "strange" in each.getMessage()} == {logging.WARNING}

    after_a_start(folder, look)
