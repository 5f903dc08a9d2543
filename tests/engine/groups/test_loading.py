"""Loading `__consumer_offsets`: logs of real brokers, ended and open transactions, damage."""

import base64
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.groups.world import START, World
from golden_data import Case, log_cases
from magicbyte.engine.coordination.partitioning import java_hash, partition_for
from magicbyte.engine.errors import CorruptRecordError, ErrorCode
from magicbyte.engine.groups.coordinator import Coordinator
from magicbyte.engine.groups.loading import LoadedPartition, Loading
from magicbyte.engine.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType

CASES = log_cases(topic="__consumer_offsets")
PRODUCER = 9
PLACE = ("t", 0)


def offset(value: int, partition: int = 0) -> tuple[bytes, bytes | None]:
    stored = OffsetCommitValue(3, value, -1, "", START, -1, None)
    return OffsetCommitKey(1, "g", "t", partition).to_bytes(), stored.to_bytes()


def batch(at: int, rows: Sequence[tuple[bytes | None, bytes | None]], producer: int | None = None) -> bytes:
    header = BatchHeader()
    if producer is not None:
        header = BatchHeader(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
    records = [
        Record(at + number, START, TimestampType.CREATE_TIME, key, value) for number, (key, value) in enumerate(rows)
    ]
    return encode_records(records, Format.V2, header=header)


def marker(at: int, kind: ControlType) -> bytes:
    return build_marker(
        kind, base_offset=at, timestamp=START, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0
    )


def loaded(*batches: bytes) -> LoadedPartition:
    loading = Loading()
    loading.read(memoryview(b"".join(batches)))
    return loading.finish()


def place(found: LoadedPartition) -> int | None:
    committed = found.offsets.get("g", {}).get(PLACE)
    return None if committed is None else committed.offset


@pytest.mark.parametrize("case", CASES, ids=str)
def test_of_each_key_of_a_real_log_the_last_record_counts(case: Case) -> None:
    loading = Loading()
    for segment in case.segments().values():
        loading.read(memoryview(segment))
    found = loading.finish()
    last = {record["key"]: record["value"] for record in case.records()}
    groups, offsets = {}, {}
    for raw_key, raw in last.items():
        key = decode_key(base64.b64decode(raw_key))
        value = decode_value(key, None if raw is None else base64.b64decode(raw))
        if isinstance(key, GroupMetadataKey) and value is not None:
            groups[key.group] = value
        elif isinstance(key, OffsetCommitKey) and value is not None:
            offsets[key.group, key.topic, key.partition] = value
    assert groups or offsets
    assert found.groups == groups
    read = {(group, *where): each for group, places in found.offsets.items() for where, each in places.items()}
    assert read == offsets
    world = World()
    for partition in range(world.config.offsets_partitions):
        world.load(partition, found)
    assert set(world.coordinator.groups) == {*groups, *(group for group, *_ in offsets)}


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([batch(0, [offset(1)], PRODUCER)], None),
        ([batch(0, [offset(1)], PRODUCER), marker(1, ControlType.COMMIT)], 1),
        ([batch(0, [offset(1)], PRODUCER), marker(1, ControlType.ABORT)], None),
        ([batch(0, [offset(1)]), batch(1, [offset(2)], PRODUCER), marker(2, ControlType.ABORT)], 1),
        ([batch(0, [offset(2)], PRODUCER), batch(1, [offset(1)]), marker(2, ControlType.COMMIT)], 1),
        ([batch(0, [offset(2)], 8), batch(1, [offset(3)], PRODUCER), marker(2, ControlType.COMMIT)], 3),
        ([batch(0, [offset(2)]), batch(1, [(offset(0)[0], None)])], None),
        ([batch(0, [offset(1), offset(2), offset(5, 1)])], 2),
    ],
    ids=[
        "open", "committed", "aborted", "aborted behind another", "committed before a later one", "of two producers",
        "deleted", "twice in a batch",
    ],
)  # fmt: skip
def test_offsets_of_a_transaction_count_when_it_has_ended_well(batches: list[bytes], expected: int | None) -> None:
    assert place(loaded(*batches)) == expected


def test_keys_of_both_versions_mean_the_same_offset() -> None:
    old = OffsetCommitKey(0, "g", "t", 0).to_bytes()
    for rows, expected in (([(old, offset(1)[1]), offset(2)], 2), ([offset(2), (old, offset(1)[1])], 1)):
        assert place(loaded(batch(0, rows))) == expected
    assert place(loaded(batch(0, [(old, offset(1)[1]), (offset(0)[0], None)]))) is None


def test_a_log_is_read_in_pieces_and_the_last_offset_is_returned() -> None:
    parts = [batch(0, [offset(1), offset(2)]), batch(5, [offset(3)], PRODUCER), marker(6, ControlType.COMMIT)]
    loading = Loading()
    assert [loading.read(memoryview(part)) for part in parts] == [1, 5, 6]
    assert loading.read(memoryview(b"")) == -1
    assert loading.read(memoryview(batch(7, [offset(4)]) + parts[0][:20])) == 7
    assert place(loading.finish()) == 4


def test_offsets_of_an_open_transaction_are_unstable() -> None:
    world = World()
    partition = partition_for("g", world.config.offsets_partitions)
    found = loaded(batch(0, [offset(1)]), batch(1, [offset(2, 1)], PRODUCER))
    world.load(partition, found)
    places = (PLACE, ("t", 1))
    assert world.committed(*places) == [(1, 0), (-1, 0)]
    assert world.committed(*places, stable=True) == [(1, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    world.later(365 * 24 * 3_600_000)
    world.perform(world.coordinator.expire(world.date_ms))
    assert world.committed(*places, stable=True) == [(-1, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]


def test_records_of_unknown_types_are_counted() -> None:
    found = loaded(batch(0, [(b"\0\x63what", b"x"), offset(1), (b"\0\x0b\0\1g", b"\0\0\0\0\0\1\0")]))
    assert (found.passed_over, place(found)) == (2, 1)


def test_a_record_without_a_key_is_damage() -> None:
    with pytest.raises(CorruptRecordError):
        loaded(batch(0, [(None, b"x")]))


def test_a_group_without_members_is_empty_and_one_that_was_deleted_is_not_there() -> None:
    key = GroupMetadataKey("g").to_bytes()
    value = GroupMetadataValue(3, "consumer", 4, None, None, START, []).to_bytes()
    world = World()
    partition = partition_for("g", world.config.offsets_partitions)
    world.load(partition, loaded(batch(0, [(key, value)])))
    group = world.group()
    assert (group.generation, group.protocol_type, group.state_since_ms) == (4, "consumer", START)
    other = Coordinator(
        world.config,
        token=str,
        has_partition=lambda _topic, _partition: True,
        topics=world.topics,
        consumer_config=lambda _group: world.config.consumer,
    )
    found = loaded(batch(0, [(key, value)]), batch(1, [(key, None)]))
    other.loaded(partition, other.begin_loading(partition, 0), found, world.now)
    assert other.groups == {}


@given(text=st.text(max_size=20))
def test_the_hash_is_javas(text: str) -> None:
    units = text.encode("utf-16-be")
    expected = 0
    for at in range(0, len(units), 2):
        expected = 31 * expected + int.from_bytes(units[at : at + 2], "big")
    expected = (expected + (1 << 31)) % (1 << 32) - (1 << 31)
    assert java_hash(text) == expected
    assert 0 <= partition_for(text, 50) < 50


def test_the_partition_is_that_of_the_absolute_hash() -> None:
    """Numbers of Kafka's own: `Utils.abs`, which gives 0 for the lowest int32."""
    assert [java_hash(each) for each in ("g", "simple", "polygenelubricants")] == [103, -902286926, -(1 << 31)]
    assert [partition_for(each, 50) for each in ("g", "simple", "polygenelubricants")] == [3, 26, 0]
