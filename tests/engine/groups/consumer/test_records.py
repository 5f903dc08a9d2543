"""The records of consumer groups: bytes that brokers of 4.3.1 and 4.1.1 wrote are read, and written again."""

from __future__ import annotations

import uuid

import pytest

from magicbyte.engine.groups.consumer import records
from magicbyte.engine.groups.consumer.members import AWAY, MemberProgress, MemberState, Subscriber
from magicbyte.engine.groups.consumer.records import (
    GroupEpoch,
    GroupRecord,
    RecordValue,
    ResolvedPattern,
    TargetEpoch,
    decode,
    encode,
)
from magicbyte.engine.groups.consumer.topics import GroupTopic, metadata_hash

ID = uuid.UUID("1810ed756560407883212f62cb050282")
T = ID.hex
HASH = 0x9ABD154601B5E315 - (1 << 64)
UNREVOKED, UNRELEASED = MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS
HOST = "0670726f62650b2f3132372e302e302e31"
VT = Subscriber(client_id="probe", client_host="/127.0.0.1", topics=("vt",), rebalance_timeout_ms=5000)

VECTORS = [
    (records.MEMBER, "m1", VT, f"00000000{HOST}0203767400000013880001000100"),
    (
        records.MEMBER,
        "m4",
        Subscriber("i4", "r1", "probe", "/127.0.0.1", ("vt",), "", 5000, "range"),
        f"0000036934037231{HOST}0203767400000013880672616e676501000100",
    ),
    (
        records.MEMBER,
        "m5",
        Subscriber(None, None, "probe", "/127.0.0.1", (), "v.", 5000),
        f"00000000{HOST}0103762e000013880001000100",
    ),
    (records.GROUP, "", GroupEpoch(2, HASH), "0000000000020100089abd154601b5e315"),
    (records.GROUP, "", GroupEpoch(9, 0), "00000000000900"),
    (records.TARGET, "", TargetEpoch(2, 0x1A22715BA79), "000000000002010008000001a22715ba79"),
    (records.TARGET, "", TargetEpoch(1, 0), "00000000000100"),
    (records.TARGET_OF_MEMBER, "m1", {ID: (0, 1)}, f"000002{T}0300000000000000010000"),
    (
        records.CURRENT,
        "m1",
        MemberProgress(2, 0, MemberState.STABLE, {ID: {0: 2, 1: 2}}),
        f"000000000002000000000002{T}0300000000000000010100090300000002000000020100",
    ),
    (
        records.CURRENT,
        "m1",
        MemberProgress(2, 2, UNREVOKED, {ID: {0: 2}}, {ID: {1: 2}}),
        f"000000000002000000020102{T}0200000000010005020000000202{T}0200000001010005020000000200",
    ),
    (
        records.PATTERN,
        "v.",
        ResolvedPattern(("vt",), 0x2EB, 0x1A22715BF3C),
        "00000203767400000000000002eb000001a22715bf3c00",
    ),
    (records.CURRENT, "m2", MemberProgress(3, 2, UNRELEASED), "0000000000030000000202010100"),
    (records.CURRENT, "m4", MemberProgress(AWAY, 0), "0000fffffffe0000000000010100"),
]


@pytest.mark.parametrize(("kind", "member", "value", "expected"), VECTORS)
def test_values_are_those_of_a_real_broker(kind: int, member: str, value: RecordValue, expected: str) -> None:
    record = GroupRecord(kind, "vg", member, value)
    key, data = encode(record, with_epochs=True)
    assert data is not None
    assert data.hex() == expected
    assert decode(key, data) == record


def test_keys_are_those_of_a_real_broker() -> None:
    assert encode(GroupRecord(records.MEMBER, "vg", "m1", None), with_epochs=True) == (
        bytes.fromhex("00050002766700026d31"),
        None,
    )
    assert encode(GroupRecord(records.GROUP, "vg", "", None), with_epochs=True)[0].hex() == "000300027667"


def test_before_4_3_there_are_no_epochs_of_partitions_and_they_are_those_of_the_member() -> None:
    progress = MemberProgress(1, 0, MemberState.STABLE, {ID: {0: 1, 1: 1}})
    key, data = encode(GroupRecord(records.CURRENT, "vg", "m1", progress), with_epochs=False)
    assert data is not None
    assert data.hex() == f"000000000001000000000002{T}030000000000000001000100"
    found = decode(key, data)
    assert found is not None
    assert found.value == progress


def test_the_value_of_a_member_without_the_tag_of_classic_members_is_read_too() -> None:
    key, _ = encode(GroupRecord(records.MEMBER, "vg", "m1", None), with_epochs=True)
    found = decode(key, bytes.fromhex(f"00000000{HOST}0203767400000013880000"))
    assert found is not None
    assert found.value == VT


def test_records_of_other_types_and_versions_are_passed_over() -> None:
    assert decode(bytes.fromhex("000a0002766700026d31"), b"\0\0") is None
    assert decode(bytes.fromhex("00050002766700026d31"), b"\0\1") is None


class _Topics:
    version = position = 0

    def __init__(self, *topics: GroupTopic) -> None:
        self.topics = {each.name: each for each in topics}

    def names(self) -> list[str]:
        return list(self.topics)

    def find(self, name: str) -> GroupTopic | None:
        return self.topics.get(name)

    def find_id(self, topic_id: uuid.UUID) -> GroupTopic | None:
        return None


def test_the_hash_of_topics_is_that_of_a_real_broker() -> None:
    topics = _Topics(GroupTopic("vt", ID, 2))
    assert metadata_hash(topics, ["vt"]) == HASH
    assert metadata_hash(topics, ["vt", "unknown"]) == HASH
    assert metadata_hash(topics, ["unknown"]) == 0
    assert metadata_hash(topics, []) == 0


def test_partitions_and_racks_change_the_hash() -> None:
    found = {
        metadata_hash(_Topics(topic), ["vt"])
        for topic in (
            GroupTopic("vt", ID, 2),
            GroupTopic("vt", ID, 3),
            GroupTopic("vt", ID, 2, (("a",), ("a",))),
            GroupTopic("vt", ID, 2, (("a",), ("a", "b"))),
            GroupTopic("vt", uuid.UUID(int=7), 2),
        )
    }
    assert len(found) == 5
