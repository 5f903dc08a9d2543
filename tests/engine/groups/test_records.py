"""Records of __consumer_offsets: what Kafka's decoders say of them, every version, damage, junk."""

import base64
import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import unbase64
from golden_data import Case, log_cases
from magicbyte.engine.coordination.stored import UnknownKey, UnknownValue
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.groups.consumer_protocol import Assignment, Subscription, TopicPartitions
from magicbyte.engine.groups.later_records import RECORDS
from magicbyte.engine.groups.records import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    LaterGroupKey,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
    decode_key,
    decode_value,
)

OFFSET = OffsetCommitKey(1, "g", "t", 3)
GROUP = GroupMetadataKey("g")


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compact(data: bytes) -> bytes:
    return bytes([len(data) + 1]) + data


def later(version: int) -> LaterGroupKey:
    return LaterGroupKey(version, RECORDS[version].name, {"groupId": "g"})


def text_of(value: GroupValue | None) -> str:
    return "<DELETE>" if value is None else json.dumps(value.to_json(), separators=(",", ":"))


@pytest.mark.parametrize("case", log_cases(topic="__consumer_offsets"), ids=str)
def test_every_record_of_a_real_group_reads_as_kafkas_decoder_prints_it(case: Case) -> None:
    expected = [line.partition(" key: ")[2] for line in case.decoded() if " key: " in line]
    records = case.records()
    assert len(records) == len(expected) > 0
    for record, line in zip(records, expected, strict=True):
        key = decode_key(base64.b64decode(record["key"]))
        value = decode_value(key, unbase64(record["value"]))
        assert f"{json.dumps(key.to_json(), separators=(',', ':'))} payload: {text_of(value)}" == line


@pytest.mark.parametrize("version", [0, 1])
def test_the_key_of_an_offset_has_two_versions(version: int) -> None:
    data = struct.pack(">h", version) + string("g") + string("t") + struct.pack(">i", 3)
    assert decode_key(data) == OffsetCommitKey(version, "g", "t", 3)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (
            struct.pack(">hq", 0, 7) + string("m") + struct.pack(">q", 1000),
            OffsetCommitValue(0, 7, -1, "m", 1000, -1, None),
        ),
        (
            struct.pack(">hq", 1, 7) + string("m") + struct.pack(">qq", 1000, 2000),
            OffsetCommitValue(1, 7, -1, "m", 1000, 2000, None),
        ),
        (
            struct.pack(">hq", 2, 7) + string("m") + struct.pack(">q", 1000),
            OffsetCommitValue(2, 7, -1, "m", 1000, -1, None),
        ),
        (
            struct.pack(">hqi", 3, 7, 4) + string("m") + struct.pack(">q", 1000),
            OffsetCommitValue(3, 7, 4, "m", 1000, -1, None),
        ),
        (
            struct.pack(">hqi", 4, 7, 4) + compact(b"m") + struct.pack(">qb", 1000, 0),
            OffsetCommitValue(4, 7, 4, "m", 1000, -1, None),
        ),
    ],
    ids=["v0", "v1", "v2", "v3", "v4"],
)
def test_every_version_of_a_committed_offset(data: bytes, value: OffsetCommitValue) -> None:
    assert decode_value(OFFSET, data) == value


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group(version: int) -> None:
    flexible = version >= 4
    texts = (lambda text: compact(text.encode())) if flexible else string
    raw = compact if flexible else sized
    tags = b"\0" if flexible else b""
    member = (
        texts("m-1")
        + (texts("instance") if version >= 3 else b"")
        + texts("client")
        + texts("/127.0.0.1")
        + (struct.pack(">i", 300_000) if version >= 1 else b"")
        + struct.pack(">i", 10_000)
        + raw(b"sub")
        + raw(b"ass")
        + tags
    )
    data = (
        struct.pack(">h", version)
        + texts("connect")
        + struct.pack(">i", 5)
        + texts("range")
        + texts("m-1")
        + (struct.pack(">q", 1000) if version >= 2 else b"")
        + (b"\x02" if flexible else struct.pack(">i", 1))
        + member
        + tags
    )
    instance, timeout = ("instance" if version >= 3 else None), (300_000 if version >= 1 else -1)
    expected = StoredMember("m-1", instance, "client", "/127.0.0.1", timeout, 10_000, b"sub", b"ass")
    value = decode_value(GROUP, data)
    assert value == GroupMetadataValue(version, "connect", 5, "range", "m-1", 1000 if version >= 2 else -1, [expected])
    assert value.to_json()["data"]["members"][0]["subscription"] == base64.b64encode(b"sub").decode()


def test_a_consumer_whose_subscription_is_junk_is_shown_in_base64() -> None:
    member = StoredMember("m", None, "c", "h", 1, 2, b"", b"\0")
    shown = member.to_json(3, "consumer")
    assert (shown["subscription"], shown["assignment"]) == ("", "AA==")


def test_keys_of_the_newer_group_protocols_are_named() -> None:
    key = decode_key(struct.pack(">h", 8) + string("g") + string("m"))
    assert key == LaterGroupKey(8, "ConsumerGroupCurrentMemberAssignment", {"groupId": "g", "memberId": "m"})
    assert key.to_json() == {"type": "8", "data": {"groupId": "g", "memberId": "m"}}
    assert decode_key(struct.pack(">h", 3) + string("g")) == later(3)
    pattern = decode_key(struct.pack(">h", 16) + string("g") + string("t.*"))
    assert pattern.to_json() == {"type": "16", "data": {"groupId": "g", "regularExpression": "t.*"}}


@pytest.mark.parametrize(
    ("key", "data", "shown"),
    [
        (3, "0000 00000007 00", {"epoch": 7}),
        (
            4,
            f"0000 02 {bytes(range(16)).hex()} 0274 00000002 02 00000001 02 0272 00 00 00",
            {
                "topics": [
                    {
                        "topicId": "AAECAwQFBgcICQoLDA0ODw",
                        "topicName": "t",
                        "numPartitions": 2,
                        "partitionMetadata": [{"partition": 1, "racks": ["r"]}],
                    }
                ]
            },
        ),
        (
            5,
            "000001010263022f020274010000ea600101000e010000afc80202720401ff020000",
            {
                "instanceId": "",
                "rackId": "",
                "clientId": "c",
                "clientHost": "/",
                "subscribedTopicNames": ["t"],
                "subscribedTopicRegex": "",
                "rebalanceTimeoutMs": 60000,
                "serverAssignor": "",
                "classicMemberMetadata": {
                    "sessionTimeoutMs": 45000,
                    "supportedProtocols": [{"name": "r", "metadata": "Af8C"}],
                },
            },
        ),
        (6, "0000 00000007 01 05 01 ff", {"assignmentEpoch": 7}),
        (
            8,
            "00000000000700000006010200000000000000000000000000000000030000000000000001000100",
            {
                "memberEpoch": 7,
                "previousMemberEpoch": 6,
                "state": 1,
                "assignedPartitions": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "partitions": [0, 1]}],
                "partitionsPendingRevocation": [],
            },
        ),
        (
            10,
            "000002720263022f02027400",
            {"rackId": "r", "clientId": "c", "clientHost": "/", "subscribedTopicNames": ["t"]},
        ),
        (11, "0000 00000007 0000000000000009 00", {"epoch": 7, "metadataHash": 9}),
        (
            15,
            f"0000 01 02 {bytes(range(16)).hex()} 0274 02 00000001 00 02 {bytes(range(16)).hex()} 0274 00 00",
            {
                "initializingTopics": [],
                "initializedTopics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "topicName": "t", "partitions": [1]}],
                "deletingTopics": [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "topicName": "t"}],
            },
        ),
        (16, "0000 02 0274 0000000000000003 0000000000000004 00", {"topics": ["t"], "version": 3, "timestamp": 4}),
        (3, "0000 00000007 01 00 08 0000000000000009", {"epoch": 7, "metadataHash": 9}),
        (
            14,
            "00000000000700000006010100",
            {"memberEpoch": 7, "previousMemberEpoch": 6, "state": 1, "assignedPartitions": []},
        ),
    ],
    ids=lambda value: f"type {value}" if isinstance(value, int) else "",
)
def test_values_of_the_newer_group_protocols(key: int, data: str, shown: dict[str, Any]) -> None:
    """Types 3, 5, 8, 10 and 14: bytes of Kafka 4.3.1's own classes; others by hand, from its schemas."""
    raw = bytes.fromhex(data)
    value = decode_value(later(key), raw)
    assert value is not None
    assert value.to_json() == {"version": "0", "data": shown}
    for cut in range(len(raw)):
        with pytest.raises(CorruptRecordError):
            decode_value(later(key), raw[:cut])


def test_a_later_version_of_the_newer_records_is_kept_as_it_is() -> None:
    assert decode_value(later(3), b"\0\1x") == UnknownValue(1, b"\0\1x")


def test_unknown_types_and_versions_say_so() -> None:
    key = decode_key(b"\0\x63rest")
    assert key == UnknownKey(99, b"\0\x63rest")
    assert key.to_json() == {"type": "99", "data": "unknown"}
    value = decode_value(OFFSET, b"\0\x05rest")
    assert value == UnknownValue(5, b"\0\x05rest")
    assert value.to_json() == {"version": "5", "data": "unknown"}
    assert decode_value(OFFSET, None) is None


def test_subscriptions_and_assignments_of_every_version() -> None:
    owned = struct.pack(">i", 1) + string("t") + struct.pack(">iii", 2, 0, 1)
    body = struct.pack(">i", 1) + string("t") + sized(b"u")
    tails = [b"", owned, owned + struct.pack(">i", 9), owned + struct.pack(">i", 9) + string("rack")]
    for version, tail in enumerate(tails):
        found = Subscription.parse(struct.pack(">h", version) + body + tail)
        assert (found.version, found.topics, found.user_data) == (version, ["t"], b"u")
        assert found.owned_partitions == ([TopicPartitions("t", [0, 1])] if version >= 1 else [])
        assert (found.generation_id, found.rack_id) == (9 if version >= 2 else -1, "rack" if version >= 3 else None)
    assert Subscription.parse(struct.pack(">h", 9) + body + tails[3] + b"more").version == 3
    assigned = Assignment.parse(struct.pack(">h", 1) + owned + struct.pack(">i", -1))
    assert (assigned.assigned_partitions, assigned.user_data) == ([TopicPartitions("t", [0, 1])], None)


@pytest.mark.parametrize("case", log_cases(topic="__consumer_offsets"), ids=str)
def test_a_cut_key_or_value_is_corrupt(case: Case) -> None:
    for record in case.records():
        raw = base64.b64decode(record["key"])
        key, value = decode_key(raw), unbase64(record["value"])
        for cut in range(len(raw)):
            with pytest.raises(CorruptRecordError):
                decode_key(raw[:cut])
        for cut in range(len(value or b"")):
            with pytest.raises(CorruptRecordError):
                decode_value(key, value[:cut] if value else None)


@given(junk=st.binary(max_size=80), version=st.integers(0, 24))
def test_junk_is_a_record_or_corrupt_and_nothing_else(junk: bytes, version: int) -> None:
    for content in (junk, struct.pack(">h", version) + junk):
        with contextlib.suppress(CorruptRecordError):
            decode_key(content)
        keys: list[GroupKey] = [OFFSET, GROUP, *map(later, RECORDS)]
        for key in keys:
            with contextlib.suppress(CorruptRecordError):
                value = decode_value(key, content)
                assert value is not None
                json.dumps(value.to_json())
        for parse in (Subscription.parse, Assignment.parse):
            with contextlib.suppress(CorruptRecordError):
                parse(content)
