"""A broker as an older release: what it offers is what brokers of that release said, and it turns down as they did.

releases.json has what ApiVersions of real brokers answered, for the APIs that clients use and that are served here, by
release; of transactions (24 to 28, 65, 66) and delegation tokens (38 to 41) it has what the message definitions of the
releases say.
"""

import asyncio
import json
import struct
from pathlib import Path

import pytest

from builders import run
from magicbyte.engine.errors import ErrorCode, InvalidConfigError
from magicbyte.engine.protocol import APIS, write_request
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.settings import offer
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.settings.served import SERVED
from server.broker.serving import CLOSED, Peer, Running

REAL = json.loads((Path(__file__).parent / "releases.json").read_text())
METADATA = MetadataRequest(topics=[])
ANSWER_S, SILENCE_S = 60, 0.2


@pytest.mark.parametrize("name", REAL)
def test_what_is_listed_is_what_that_release_lists_as_far_as_it_is_served_here(name: str) -> None:
    listed = {key: (each[0], each[-1]) for key, each in offer.offer_of(name).listed.items()}
    theirs = {int(key): (least, most) for key, (least, most) in REAL[name].items()}
    assert listed == {
        key: (least, min(most, SERVED[key].versions[-1])) for key, (least, most) in theirs.items() if key in SERVED
    }


def test_before_there_was_api_versions_it_is_not_listed_and_groups_come_with_0_9() -> None:
    assert not offer.offer_of("0.8.2.2").answered.keys() & set(range(11, 60))
    assert offer.offer_of("0.9.0.1").answered.keys() == set(range(17))


@pytest.mark.parametrize("name", ["0.8.1", "4.5", "5.0", "2", "new", "", "3.9.x"])
def test_a_release_that_is_not_known_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"as\.version: expected a release from 0\.8\.2 to 4\.4"):
        BrokerConfig({"as.version": name})


@pytest.mark.parametrize(
    ("name", "stored"), [("0.8.2", Format.V0), ("0.9.0.1", Format.V0), ("0.10.2", Format.V1), ("0.11.0", Format.V2)]
)
def test_a_release_stores_its_own_format_and_none_above(name: str, stored: Format) -> None:
    assert BrokerConfig({"as.version": name}).log_message_format_version is stored
    assert BrokerConfig({"as.version": name, "log.message.format.version": "0"}).log_message_format_version is Format.V0
    if stored is not Format.V2:
        with pytest.raises(InvalidConfigError, match=r"stores no messages above"):
            BrokerConfig({"as.version": name, "log.message.format.version": "2"})


def frame(message: ApiVersionsRequest | MetadataRequest, version: int) -> bytes:
    return bytes(write_request(message, version, correlation_id=7, client_id="test"))


def too_new(key: int, version: int) -> bytes:
    """Return a request without a body in an unknown version, its header that of flexible ones."""
    head = struct.pack(">hhih4sB", key, version, 7, 4, b"test", 0)
    return struct.pack(">i", len(head)) + head


async def of(folder: Path, name: str, *frames: bytes, answers: int | None = None) -> list[bytes]:
    """Return the answers to frames sent at once; b"" where the broker closes.

    There are as many as frames or, if given, `answers`, and no more for a while.
    """
    found, expected = list[bytes](), len(frames) if answers is None else answers
    async with Running(folder, {"as.version": name}) as broker:
        peer = await Peer.of(broker)
        await peer.stream.write(list(frames))
        for _ in frames:
            try:
                wait_s = ANSWER_S if len(found) < expected else SILENCE_S
                found.append(await asyncio.wait_for(peer.next(), wait_s))
            except TimeoutError:
                break
        peer.close()
    return found


def test_0_8_2_closes_where_it_does_not_know_the_request(tmp_path: Path) -> None:
    assert run(of(tmp_path, "0.8.2", frame(ApiVersionsRequest(), 0))) == [CLOSED]


def test_0_9_0_leaves_unknown_requests_unanswered_and_continues(tmp_path: Path) -> None:
    answers = run(of(tmp_path, "0.9.0", frame(ApiVersionsRequest(), 0), frame(METADATA, 0), answers=1))
    assert len(answers) == 1
    assert MetadataResponse.read(memoryview(answers[0])[8:], 0).brokers


@pytest.mark.parametrize("name", ["0.8.2", "0.9.0"])
def test_before_0_10_a_version_that_is_too_new_is_read_as_the_latest_one(name: str, tmp_path: Path) -> None:
    answers = run(of(tmp_path, name, frame(METADATA, 1)))
    assert MetadataResponse.read(memoryview(answers[0])[8:], 0).brokers


@pytest.mark.parametrize("name", ["0.10.0", "2.8", "4.1"])
def test_from_0_10_on_a_version_that_is_too_new_closes(name: str, tmp_path: Path) -> None:
    assert run(of(tmp_path, name, too_new(3, 40))) == [CLOSED]


@pytest.mark.parametrize(
    ("name", "listed"), [("0.10.2", []), ("2.3", []), ("2.4", [(18, 0, 3)]), ("4.0", [(18, 0, 4)])]
)
def test_from_2_4_on_a_client_gets_the_versions_of_api_versions(
    name: str, listed: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    (answer,) = run(of(tmp_path, name, too_new(18, 60)))
    found = ApiVersionsResponse.read(memoryview(answer)[8:], 0)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in found.api_keys] == listed


def test_a_topic_cannot_have_a_format_that_the_release_does_not_know(tmp_path: Path) -> None:
    async def work() -> list[int]:
        async with Running(tmp_path, {"as.version": "0.10.2"}) as broker:
            peer = await Peer.of(broker)
            topics = [
                CreatableTopic(
                    name=f"topic-{value}",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="message.format.version", value=value)],
                )
                for value in ("0.9.0", "0.10.0", "0.11.0")
            ]
            answer = await peer.ask(CreateTopicsRequest(topics=topics), 1, CreateTopicsResponse)
            peer.close()
            return [each.error_code for each in answer.topics]

    assert run(work()) == [0, 0, ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize(("name", "code"), [("0.10.2", ErrorCode.CORRUPT_MESSAGE), ("0.11.0", ErrorCode.NONE)])
def test_before_0_11_a_batch_of_magic_2_is_damage(name: str, code: ErrorCode, tmp_path: Path) -> None:
    async def work() -> int:
        async with Running(tmp_path, {"as.version": name}) as broker:
            await broker.parts.topic_changes.create("topic")
            peer = await Peer.of(broker)
            batch = encode_records([Record(0, 0, 0, None, b"value")], Format.V2)
            part = TopicProduceData(name="topic", partition_data=[PartitionProduceData(index=0, records=batch)])
            answer = await peer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[part]), 2, ProduceResponse)
            peer.close()
            return answer.responses[0].partition_responses[0].error_code

    assert run(work()) == code


async def test_23_r19_a_client_that_means_another_cluster_or_broker_has_to_bootstrap_again(folder: Path) -> None:
    async with Running(folder, {"as.version": "4.4"}) as broker:
        peer = await Peer.of(broker)
        here = broker.config.broker_id
        for cluster, node, code in (
            (None, -1, 0),
            (broker.cluster_id, here, 0),
            (None, 77, 42),
            (broker.cluster_id, -1, 42),
            ("", here, 129),
            ("another", here, 129),
            (broker.cluster_id, here + 1, 129),
        ):
            asked = ApiVersionsRequest(
                client_software_name="a", client_software_version="1", cluster_id=cluster, node_id=node
            )
            told = await peer.ask(asked, 5, ApiVersionsResponse)
            assert (told.error_code, bool(told.api_keys)) == (code, not code), (cluster, node)
        peer.close()


@pytest.mark.parametrize(("name", "latest"), [("4.3", 4), ("4.4", 5)])
async def test_22_r17_the_range_of_api_versions_is_in_the_refusal_of_a_later_one(
    folder: Path, name: str, latest: int
) -> None:
    async with Running(folder, {"as.version": name}) as broker:
        peer = await Peer.of(broker)
        answer = await peer.exchange(too_new(18, 99))
        assert answer[8:] == bytes.fromhex("0023 00000001 0012 0000") + latest.to_bytes(2, "big")
        peer.close()


async def test_requests_for_delegation_tokens_are_refused_as_without_tokens(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        for key in (38, 39, 40, 41):
            api = APIS[key]
            for version in broker.runtime.offer.answered[key]:
                told = await peer.ask(api.request(), version, api.response)
                assert told.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED  # without an authentication
        peer.close()
