"""Bytes written by kafka-clients 3.9.0, and hand-checked bytes of the enriched dialect: read, and written again.

Records at base offset 5. Magic 0: k/v, null/w. Magic 1: k/v at 1000, null/null at 1005. Magic 2: the same, the second
with headers h=01, n=null.
"""

import pytest

from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import UnsupportedCompressionError
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.control import ControlType, build_marker, control_records
from magicbyte.engine.records.enriched import (
    EnrichedMessage,
    Tag,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.entry import dialect_doubt, entries
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.message import MessageView, build_message, build_wrapper

CREATE, APPEND, NO_TYPE = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME, TimestampType.NO_TIMESTAMP_TYPE

PLAIN = {
    "v0": (
        "0000000000000005000000101fecd70a0000000000016b000000017600000000000000060000000fa50b8f630000ffffffff0000000177"
    ),
    "v1": (
        "000000000000000500000018e4e321bc010000000000000003e8000000016b0000000176000000000000000600000016ec61a466"
        "010000000000000003edffffffffffffffff"
    ),
    "v1 append": (
        "0000000000000005000000187cedad1f010800000000000007d0000000016b0000000176000000000000000600000016dce46c07"
        "010800000000000007d0ffffffffffffffff"
    ),
}
WRAPPERS = {
    "v0 lz4": (
        "00000000000000060000004fa49cc5440003ffffffff0000004104224d1860401a32000000120001009105000000101fecd70a0f"
        "0071016b00000001760c00f0070000060000000fa50b8f630000ffffffff000000017700000000"
    ),
    "v1 lz4": (
        "00000000000000060000005929e1a2d4010300000000000003edffffffff0000004304224d1860408234000000160001006318e4"
        "e321bc0110007003e8000000016b050013761300001b005016ec61a4660900000200a003edffffffffffffffff00000000"
    ),
    "v1 lz4 append": (
        "000000000000000600000057dd26101c010b00000000000007d0ffffffff0000004104224d18604082320000001600010072187c"
        "edad1f010811007007d0000000016b050012761200a6000100000016dce46c07240080ffffffffffffffff00000000"
    ),
    "v1 snappy": (
        "0000000000000006000000621a1de0d4010200000000000003edffffffff0000004c82534e415050590000000001000000010000"
        "003846000019011818e4e321bc010009011803e8000000016b0105007609120000011b1016ec61a4660109340000000003edffff"
        "ffffffffffff"
    ),
}
BATCHES = {
    "plain": (
        "000000000000000500000048ffffffff020ab543a200000000000100000000000003e800000000000003edffffffffffffffffff"
        "ffffffffff0000000210000000026b0276001a000a0201010402680201026e01"
    ),
    "append": (
        "000000000000000500000048ffffffff0286a68c4100080000000100000000000003e800000000000007d0ffffffffffffffffff"
        "ffffffffff0000000210000000026b0276001a000a0201010402680201026e01"
    ),
    "lz4": (
        "000000000000000500000057ffffffff02d66bd2a300030000000100000000000003e800000000000003edffffffffffffffffff"
        "ffffffffff0000000204224d186040821700008010000000026b0276001a000a0201010402680201026e0100000000"
    ),
    "zstd": (
        "000000000000000500000054ffffffff02eb6724db00040000000100000000000003e800000000000003edffffffffffffffffff"
        "ffffffffff0000000228b52ffd0058b8000010000000026b0276001a000a0201010402680201026e01010000"
    ),
    "transactional": (
        "0000000000000064000000420000000302e0b204b100100000000100000000000003e800000000000003e8000000000000000900"
        "010000002a0000000210000000026b0276000e000102026b0100"
    ),
    "emptied": (
        "00000000000000640000003100000003028b7646a3001000000001ffffffffffffffff00000000000003e8000000000000000900"
        "010000002a00000000"
    ),
    "commit": (
        "000000000000000700000042000000020241e2529e0030000000000000000000000bb80000000000000bb8000000000000000900"
        "01ffffffff000000012000000008000000010c00000000000400"
    ),
    "abort": (
        "0000000000000007000000420000000202b5dc84d60030000000000000000000000bb80000000000000bb8000000000000000900"
        "01ffffffff000000012000000008000000000c00000000000400"
    ),
}
ENRICHED = {
    "plain": ("0000000000000005000000181780f65001006553f100ffffffff000000016b0000000176"),
    "tag 0": ("000000000000000500000021c895075701006553f10000000009000000018bcfe5687b000000016b0000000176"),
    "tags 0, 99": (
        "000000000000000500000025ebd3280101006553f1000000000d000000018bcfe5687b63010203000000016b0000000176"
    ),
    "produced": (
        "00000000000000000000007518ed69360103ffffffff00000009200000000221012200ffffffff0000005604224d186040824700"
        "0080000000000000000000000018b82b07240100ffffffffffffffff000000016b000000017600000000000000010000001705fd"
        "c0870100ffffffffffffffffffffffff000000017700000000"
    ),
    "appended": (
        "0000000000000064000000754a6e7c7b01036553f10000000009200000000221012200ffffffff0000005604224d186040824700"
        "0080000000000000000000000018b82b07240100ffffffffffffffff000000016b000000017600000000000000010000001705fd"
        "c0870100ffffffffffffffffffffffff000000017700000000"
    ),
    "mirrored": (
        "00000000000000640000007498e74f7a01036553f10000000009200000000221002201ffffffff0000005504224d186040824600"
        "00800000000000000000000000179542dd160100ffffffffffffffffffffffff000000017800000000000000070000001705fdc0"
        "870100ffffffffffffffffffffffff000000017700000000"
    ),
}

LIMIT = 1 << 20


def message(raw: bytes) -> MessageView:
    found = MessageView.parse(memoryview(raw))
    assert found is not None
    found.verify()
    return found


def batch(raw: bytes | str) -> RecordBatch:
    found = RecordBatch.parse(memoryview(bytes.fromhex(raw) if isinstance(raw, str) else raw))
    assert found is not None
    found.verify()
    return found


def enriched(raw: bytes | str) -> EnrichedMessage:
    found = EnrichedMessage.parse(memoryview(bytearray.fromhex(raw) if isinstance(raw, str) else bytearray(raw)))
    assert found is not None
    found.verify()
    return found


def contents(found: MessageView) -> tuple[object, ...]:
    key, value = found.key, found.value
    return (
        found.magic,
        found.offset,
        found.timestamp,
        found.timestamp_type,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
    )


EXPECTED_PLAIN = {
    "v0": [(0, 5, -1, NO_TYPE, b"k", b"v"), (0, 6, -1, NO_TYPE, None, b"w")],
    "v1": [(1, 5, 1000, CREATE, b"k", b"v"), (1, 6, 1005, CREATE, None, None)],
    "v1 append": [(1, 5, 2000, APPEND, b"k", b"v"), (1, 6, 2000, APPEND, None, None)],
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_messages_read_as_kafka_wrote_them_and_build_to_the_same_bytes(name: str) -> None:
    raw = bytes.fromhex(PLAIN[name])
    found = [entry for _, entry in entries(raw)]
    assert all(isinstance(entry, MessageView) for entry in found)
    for entry in found:
        entry.verify()
    assert [contents(entry) for entry in found if isinstance(entry, MessageView)] == EXPECTED_PLAIN[name]
    assert [(entry.codec, entry.is_wrapper, entry.record_count) for entry in found] == [(Codec.NONE, False, 1)] * 2
    assert [(entry.base_offset, entry.last_offset, entry.next_offset) for entry in found] == [(5, 5, 6), (6, 6, 7)]
    rebuilt = [
        build_message(magic, offset, timestamp, key, value, kind)
        for magic, offset, timestamp, kind, key, value in EXPECTED_PLAIN[name]
    ]
    assert b"".join(rebuilt) == raw


EXPECTED_WRAPPERS = {  # magic, codec, timestamp, type, inner offsets, inner timestamps
    "v0 lz4": (0, Codec.LZ4, -1, NO_TYPE, [5, 6], [-1, -1]),
    "v1 lz4": (1, Codec.LZ4, 1005, CREATE, [0, 1], [1000, 1005]),
    "v1 lz4 append": (1, Codec.LZ4, 2000, APPEND, [0, 1], [2000, 2000]),
    "v1 snappy": (1, Codec.SNAPPY, 1005, CREATE, [0, 1], [1000, 1005]),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_read_as_kafka_wrote_them_and_build_to_the_same_content(name: str) -> None:
    raw = bytes.fromhex(WRAPPERS[name])
    wrapper = message(raw)
    magic, codec, timestamp, kind, offsets, timestamps = EXPECTED_WRAPPERS[name]
    assert (wrapper.magic, wrapper.codec, wrapper.timestamp, wrapper.timestamp_type) == (magic, codec, timestamp, kind)
    assert (wrapper.is_wrapper, wrapper.key, wrapper.record_count) == (True, None, None)
    assert (wrapper.base_offset, wrapper.last_offset, wrapper.next_offset) == (None, 6, 7)
    assert wrapper.value is not None
    header = Lz4Header.BROKEN if magic == 0 else Lz4Header.CORRECT
    inner = bytes(decompress(codec, wrapper.value, limit=LIMIT, lz4_header=header))
    found = [entry for _, entry in entries(inner) if isinstance(entry, MessageView)]
    for entry in found:
        entry.verify()
    assert [(entry.magic, entry.offset, entry.timestamp) for entry in found] == [
        (magic, offset, at) for offset, at in zip(offsets, timestamps, strict=True)
    ]
    again = message(build_wrapper(magic, codec, inner, 6, timestamp, kind))
    assert contents(again)[:5] == contents(wrapper)[:5]
    assert again.attributes == wrapper.attributes
    assert again.value is not None
    assert bytes(decompress(codec, again.value, limit=LIMIT, lz4_header=header)) == inner


def test_an_lz4_wrapper_has_the_broken_header_checksum_in_magic_0_and_the_correct_one_in_magic_1() -> None:
    frames = [message(build_wrapper(magic, Codec.LZ4, b"x" * 100, 0, -1)).value for magic in (0, 1)]
    assert [bytes(frame[:7]).hex() for frame in frames if frame is not None] == ["04224d1860401a", "04224d18604082"]


@pytest.mark.parametrize("magic", [0, 1])
def test_no_wrapper_is_built_with_zstd(magic: int) -> None:
    with pytest.raises(UnsupportedCompressionError):
        build_wrapper(magic, Codec.ZSTD, b"", 0, -1)


def batch_fields(found: RecordBatch) -> tuple[object, ...]:
    return (
        found.base_offset,
        found.last_offset,
        found.partition_leader_epoch,
        found.codec,
        found.timestamp_type,
        found.base_timestamp,
        found.max_timestamp,
        found.producer_id,
        found.producer_epoch,
        found.base_sequence,
        found.last_sequence,
        found.record_count,
        found.is_transactional,
        found.is_control,
    )


NO_PRODUCER = (-1, -1, -1, -1)
EXPECTED_BATCHES = {
    "plain": (5, 6, -1, Codec.NONE, CREATE, 1000, 1005, *NO_PRODUCER, 2, False, False),
    "append": (5, 6, -1, Codec.NONE, APPEND, 1000, 2000, *NO_PRODUCER, 2, False, False),
    "lz4": (5, 6, -1, Codec.LZ4, CREATE, 1000, 1005, *NO_PRODUCER, 2, False, False),
    "zstd": (5, 6, -1, Codec.ZSTD, CREATE, 1000, 1005, *NO_PRODUCER, 2, False, False),
    "transactional": (100, 101, 3, Codec.NONE, CREATE, 1000, 1000, 9, 1, 42, 43, 2, True, False),
    "emptied": (100, 101, 3, Codec.NONE, CREATE, -1, 1000, 9, 1, 42, 43, 0, True, False),
    "commit": (7, 7, 2, Codec.NONE, CREATE, 3000, 3000, 9, 1, -1, -1, 1, True, True),
    "abort": (7, 7, 2, Codec.NONE, CREATE, 3000, 3000, 9, 1, -1, -1, 1, True, True),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_read_as_kafka_wrote_them_and_build_to_the_same_bytes(name: str) -> None:
    found = batch(BATCHES[name])
    assert batch_fields(found) == EXPECTED_BATCHES[name]
    assert (found.magic, found.delete_horizon_ms, found.size) == (2, None, len(BATCHES[name]) // 2)
    rebuilt = build_batch(
        found.records_section,
        base_offset=found.base_offset,
        last_offset_delta=found.last_offset_delta,
        base_timestamp=found.base_timestamp,
        max_timestamp=found.max_timestamp,
        record_count=found.record_count,
        attributes=found.attributes,
        partition_leader_epoch=found.partition_leader_epoch,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=found.base_sequence,
    )
    assert rebuilt.hex() == BATCHES[name]


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_a_compressed_batch_holds_the_records_of_the_plain_one(name: str) -> None:
    found = batch(BATCHES[name])
    assert decompress(found.codec, found.records_section, limit=LIMIT) == batch(BATCHES["plain"]).records_section


@pytest.mark.parametrize(("name", "kind"), [("commit", ControlType.COMMIT), ("abort", ControlType.ABORT)])
def test_transaction_markers_read_as_kafka_wrote_them_and_build_to_the_same_bytes(name: str, kind: ControlType) -> None:
    (record,) = control_records(batch(BATCHES[name]))
    assert (record.offset, record.version, record.type, record.type_id) == (7, 0, kind, int(kind))
    assert (record.coordinator_epoch, record.ends_transaction) == (4, True)
    rebuilt = build_marker(
        kind,
        base_offset=7,
        timestamp=3000,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=4,
        partition_leader_epoch=2,
    )
    assert rebuilt.hex() == BATCHES[name]


# ---- the enriched dialect

KV_0 = build_enriched_message(0, b"k", b"v")
W_1 = build_enriched_message(1, None, b"w")


@pytest.mark.parametrize(
    ("name", "tags", "timestamp"),
    [
        ("plain", {}, 1_700_000_000_000),
        ("tag 0", {Tag.TIMESTAMP: 1_700_000_000_123}, 1_700_000_000_123),
        ("tags 0, 99", {Tag.TIMESTAMP: 1_700_000_000_123}, 1_700_000_000_123),
    ],
)
def test_plain_enriched_messages_read_and_build_to_the_same_bytes(
    name: str, tags: dict[int, int], timestamp: int
) -> None:
    found = enriched(ENRICHED[name])
    assert (found.offset, found.seconds, found.timestamp, found.tags) == (5, 1_700_000_000, timestamp, tags)
    assert (found.key, found.value, found.is_wrapper, found.is_control) == (b"k", b"v", False, False)
    assert (found.base_offset, found.last_offset, found.record_count) == (5, 5, 1)
    assert found.unknown_tags == (b"\x63\x01\x02\x03" if "99" in name else b"")
    area = encode_tags(found.tags) + bytes(found.unknown_tags)
    assert build_enriched_message(5, b"k", b"v", seconds=1_700_000_000, tags=area).hex() == ENRICHED[name]


@pytest.mark.parametrize(
    ("name", "start", "seconds", "honor_ship", "non_keyed", "inner", "offsets"),
    [
        ("produced", 0, -1, True, False, KV_0 + W_1, [0, 1]),
        ("appended", 100, 1_700_000_000, True, False, KV_0 + W_1, [100, 101]),
        (
            "mirrored",
            100,
            1_700_000_000,
            False,
            True,
            build_enriched_message(0, None, b"x") + build_enriched_message(7, None, b"w"),
            [100, 101],
        ),
    ],
)
def test_enriched_wrappers_read_and_build_to_the_same_content(
    name: str, start: int, seconds: int, honor_ship: bool, non_keyed: bool, inner: bytes, offsets: list[int]
) -> None:
    found = enriched(ENRICHED[name])
    assert (found.offset, found.seconds, found.codec, found.is_wrapper) == (start, seconds, Codec.LZ4, True)
    assert (found.num_messages, found.honor_ship, found.non_keyed) == (2, honor_ship, non_keyed)
    assert found.last_offset == (None if honor_ship else 101)
    assert found.value is not None
    assert decompress(Codec.LZ4, found.value, limit=LIMIT) == inner
    inside = [entry for _, entry in entries(inner, Dialect.ENRICHED) if isinstance(entry, EnrichedMessage)]
    for entry in inside:
        entry.verify()
    assert [found.absolute_offset(i, entry.offset) for i, entry in enumerate(inside)] == offsets
    again = enriched(
        build_enriched_wrapper(
            Codec.LZ4,
            inner,
            num_messages=2,
            non_keyed=non_keyed,
            start_offset=start,
            seconds=seconds,
            honor_ship=honor_ship,
        )
    )
    assert (again.offset, again.seconds, again.tags_area) == (start, seconds, found.tags_area)
    assert again.value is not None
    assert decompress(Codec.LZ4, again.value, limit=LIMIT) == inner


def test_an_appending_broker_changes_offset_seconds_and_crc_and_nothing_else() -> None:
    wrapper = enriched(ENRICHED["produced"])
    wrapper.set_offset(100)
    wrapper.set_metadata(seconds=1_700_000_000)
    assert wrapper.buffer.hex() == ENRICHED["appended"]


def test_the_mirrored_vector_with_its_flag_set_to_honor_has_offsets_100_and_107() -> None:
    wrapper = enriched(ENRICHED["mirrored"])
    wrapper.set_metadata(tags={Tag.HONOR_SHIP: 1})
    wrapper.verify()
    assert [wrapper.absolute_offset(i, relative) for i, relative in enumerate([0, 7])] == [100, 107]


def test_an_enriched_message_without_tags_reads_as_magic_1_with_a_far_timestamp_and_is_doubted() -> None:
    raw = bytes.fromhex(ENRICHED["plain"])
    found = message(raw)
    assert (found.timestamp, found.key, found.value) == (7301444407494967295, b"k", b"v")
    doubt = dialect_doubt(memoryview(raw), Dialect.KAFKA)
    assert doubt is not None
    assert "7301444407494967295" in doubt
    assert dialect_doubt(memoryview(raw), Dialect.ENRICHED) is None
