"""Answers that follow from the cluster's image are encoded once, and equal those that are made for one request."""

import random
from pathlib import Path

import pytest

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.log.live.log_directory import Offline
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import APIS, write_request
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.message import Message
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest
from magicbyte.engine.protocol.messages.describe_cluster import DescribeClusterRequest
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from magicbyte.server.broker.broker import Broker
from magicbyte.server.serving import shared_answers
from magicbyte.server.serving.shared_answers import SharedAnswer, SharedAnswers
from server.broker.serving import Peer, Running

NAMES = ("one", "two", "three")
SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0", "listener.security.protocol.map":
            "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT", "auto.create.topics.enable": "false"}  # fmt: skip


def asked(names: tuple[str, ...] | None, **more: bool) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=each) for each in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True, **more)


QUESTIONS: list[tuple[Message, range]] = [
    *[(asked(names), range(1 if names is None else 0, 13)) for names in (None, ("one",), ("two", "one"), ("none",))],
    (asked(("one",), include_topic_authorized_operations=True), range(8, 13)),
    (asked((), include_cluster_authorized_operations=True), range(8, 11)),
    (ApiVersionsRequest(client_software_name="a", client_software_version="1"), range(5)),
    (DescribeClusterRequest(), range(2)),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), range(2)),
]


async def answers(broker: Broker) -> list[bytes]:
    """Return the answers to all questions in all versions, without their correlation ids."""
    found = list[bytes]()
    for listener in ("PLAINTEXT", "OTHER"):
        peer = await Peer.of(broker, listener)
        for question, versions in QUESTIONS:
            for version in versions:
                number = len(found)
                frame = bytes(write_request(question, version, correlation_id=number, client_id="test"))
                answer = await peer.exchange(frame)
                assert int.from_bytes(answer[4:8], "big") == number
                found.append(answer[:4] + answer[8:])
        peer.close()
    return found


async def change(broker: Broker, source: random.Random) -> None:
    """Change something of what Metadata tells, or of what it does not."""
    name = source.choice(NAMES)
    known = broker.topics.get(name)
    match source.choice(("create or delete", "grow", "settings", "offline")):
        case "create or delete" if known is None:
            await broker.topics.create(name, source.randint(1, 3))
        case "create or delete" if known is not None:
            async with broker.runtime.directory:
                await broker.parts.topic_changes.delete(known)
        case "grow" if known is not None:
            await broker.topics.add_partitions(name, known.partitions + 1)
        case "settings" if known is not None:
            settings = {"retention.ms": str(source.randint(1, 10**9))}
            await broker.topics.alter(name, lambda _topic: settings)
        case "offline" if known is not None:
            key = TopicPartition(name, 0)
            if broker.logs.offline.pop(key, None) is None:
                broker.logs.offline[key] = Offline("a test", has_log=False)


@pytest.mark.parametrize("seed", range(6))
async def test_a_shared_answer_is_the_one_that_is_made_for_one_request(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    async with Running(folder, SETTINGS) as broker:
        await broker.topics.create("one")
        for _ in range(6):
            await change(broker, source)
            first, second = await answers(broker), await answers(broker)
            broker.parts.shared_answers.find(object(), None)  # another image: all are forgotten
            assert first == second == await answers(broker)


async def test_a_topic_that_is_not_there_is_looked_for_each_time(folder: Path) -> None:
    async with Running(folder, {"auto.create.topics.enable": "true"}) as broker:
        peer = await Peer.of(broker)
        codes = []
        for _ in range(3):
            response = await peer.ask(asked(("new",)), 9, MetadataResponse)
            codes.append(response.topics[0].error_code)
        assert codes == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE, ErrorCode.NONE]
        peer.close()


async def test_error_codes_are_counted_for_each_who_gets_a_shared_answer(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await broker.topics.create("one", 2)
        for _ in range(4):
            await peer.ask(asked(("one",)), 9, MetadataResponse)
        counted = broker.metrics.apis[ApiKey.METADATA]
        counted.sort()
        assert counted.errors[ErrorCode.NONE] == 4 * 4  # its own, that of the topic, those of two partitions
        peer.close()


def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answers, "MOST_ROWS", 10)
    kept, image = SharedAnswers(), object()
    made = [SharedAnswer(MetadataResponse(), 9) for _ in range(3)]
    assert kept.find(image, 0) is None
    kept.put(image, 0, made[0], 4)
    kept.put(image, 1, made[1], 11)  # too long by itself
    assert [kept.find(image, each) for each in (0, 1)] == [made[0], None]
    kept.put(image, 2, made[2], 5)
    assert [kept.find(image, each) for each in (0, 2)] == [None, made[2]]
    kept.put(object(), 3, made[0], 1)  # of an image that is not the latest
    assert kept.find(image, 3) is None


def test_a_shared_answer_keeps_no_message() -> None:
    message = MetadataResponse(cluster_id="a")
    answer = SharedAnswer(message, 9)
    answer.make(None)
    message.cluster_id = "b"
    answer.make(None)
    api = APIS[ApiKey.METADATA]
    assert api.response.read(bytes(answer.frame(5))[9:], 9) == MetadataResponse(cluster_id="a")
