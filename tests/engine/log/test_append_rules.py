"""Each row of the table of inputs in docs/internals/append.md, for each version of the request; settings of a topic."""

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.log.made_sets import (
    NOW,
    TWO,
    A,
    B,
    batch,
    batch_with,
    gzip_members,
    kafka_set,
    key_length,
    lz4_frame,
    message,
    messages,
    patched,
    payload_in,
    resealed,
    section,
    section_of,
    wrapped,
    wrapper,
    zstd,
)
from magicbyte.engine.codecs import Codec, compress
from magicbyte.engine.codecs.snappy import HEADER as XERIAL_HEADER
from magicbyte.engine.errors import AppendRefusedError, ErrorCode, InvalidConfigError
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.producer_check import ProducerChecks
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules, stored_format
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry, ProducerSnapshot
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    INT8,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    MESSAGE_ATTRIBUTES,
    MESSAGE_CRC,
    OFFSET,
    PARTITION_LEADER_EPOCH,
    RECORD_COUNT,
    SIZE,
    V1_TIMESTAMP,
    Field,
    TimestampType,
)
from magicbyte.engine.records.message import build_message
from topic_settings import append_rules

PAGE = Path(__file__).parents[3] / "docs/internals/append.md"
VERSIONS = {"v0–v2": (0, 1, 2), "v3–v6": (3, 4, 5, 6), "v7": (7,), "v8+": (8, 9, 11)}
NAMES_RECORDS = {"null-key", "time"}
LOOKED_AT_BEFORE_THE_MAGIC = {"nothing", "damaged-outside", "too-large"}
MAGIC = Field(16, INT8)
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 10}


class Row(NamedTuple):
    codes: dict[str, int]
    stored: str


@cache
def rows() -> dict[str, Row]:
    lines = PAGE.read_text(encoding="utf-8").partition("## Every input")[2].partition("\n## ")[0].splitlines()
    table = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    _, _, *columns, _ = table[0]
    assert tuple(columns) == tuple(VERSIONS)
    return {
        row[0]: Row({column: int(code) for column, code in zip(columns, row[2:6], strict=True)}, row[6])
        for row in table[1:]
    }


class Case(NamedTuple):
    """An input, and the settings of the topic that it is sent to."""

    data: bytes
    settings: dict[str, str] = {}  # noqa: RUF012  (never changed)

    @property
    def rules(self) -> AppendRules:
        return append_rules({"message.timestamp.difference.max.ms": "1000", **self.settings})


def to(magic: int, **more: str) -> dict[str, str]:
    """Settings of a topic: its format, and others with _ for a dot."""
    return {"message.format.version": str(magic)} | {name.replace("_", "."): value for name, value in more.items()}


COMPACT = {"cleanup.policy": "compact"}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
LARGE = (A, Record(1, NOW, 0, b"x", bytes(2000)))
EACH_TARGET = tuple(to(magic) for magic in (0, 1, 2))
KEYLESS = (A, Record(1, NOW, 0, None, b"v"))
SMALL_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))


def spoilt_lz4(content: bytes) -> Iterator[bytes]:
    """Frames that are refused in every format."""
    frame = bytearray(compress(Codec.LZ4, content))
    descriptor = {"version 0": (4, 0x20), "reserved bit": (4, 0x61), "block maximum": (5, 0x30)}
    for at, value in descriptor.values():
        yield bytes(frame[:at] + bytes((value,)) + frame[at + 1 :])
    yield bytes(frame[:-4])  # no end mark
    yield lz4_frame(content * 9000, block_linked=True, block_size=4)
    for options in ({"content_checksum": True}, {"block_checksum": True}):
        yield lz4_frame(content, **options)[:-5] + b"\x01" + lz4_frame(content, **options)[-4:]
    sized = bytearray(lz4_frame(content, store_size=True))
    sized[6] ^= 1
    yield bytes(sized)


def cases(row: str) -> Iterator[Case]:
    v0, v1, v2 = (kafka_set(magic, Codec.NONE) for magic in (0, 1, 2))
    match row:
        case "nothing":
            for data in (b"", v1[:5], v1[:16], v1[:20], v2[:30], v2[:-1]):
                yield Case(data)
        case "cut-end":
            yield Case(v2 + v2[:40])
            yield Case(v2 + b"\0\0\0")
        case "old-magic":
            for settings in EACH_TARGET:
                for magic in (0, 1):
                    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                        yield Case(kafka_set(magic, codec), settings)
        case "batch-and-other":
            for settings in EACH_TARGET:
                for data in (v2 + v2, v1 + v2, v2 + v0, v2 + wrapper(1, Codec.LZ4)):
                    yield Case(data, settings)
        case "several":
            gzipped, packed = wrapper(1, Codec.GZIP), wrapper(1, Codec.LZ4)
            for settings in EACH_TARGET:
                for data in (gzipped + packed, gzipped + v1, v1 + packed, v0 + v1, v1 + v0, wrapper(0, Codec.GZIP) * 2):
                    yield Case(data, settings)
        case "damaged-outside":
            for settings in EACH_TARGET:
                for magic in (3, -1, 127):
                    yield Case(patched(v0, MAGIC, magic), settings)
                    yield Case(patched(v2, MAGIC, magic, reseal=False), settings)
                for size in (13, 0, -1, -(2**31)):
                    yield Case(patched(v1, SIZE, size, reseal=False), settings)
                    yield Case(patched(v2, SIZE, size, reseal=False), settings)
                yield Case(patched(v2, SIZE, 48, reseal=False), settings)
                for magic, codec in ((0, Codec.NONE), (0, Codec.LZ4), (1, Codec.NONE), (1, Codec.GZIP)):
                    yield Case(patched(kafka_set(magic, codec), MESSAGE_CRC, 5, reseal=False), settings)
                for codec in (Codec.NONE, Codec.SNAPPY):
                    yield Case(patched(batch(codec), BATCH_CRC, 5, reseal=False), settings)
        case "short":
            for settings in EACH_TARGET:
                for size in range(14, 22):
                    content = bytes((1, 0)) + b"\xff" * (size - 6)
                    yield Case(struct.pack(">qiI", 0, size, zlib.crc32(content)) + content, settings)
        case "too-large":
            for settings in EACH_TARGET:
                small = settings | {"max.message.bytes": "1500"}
                for magic in (0, 1, 2):
                    yield Case(kafka_set(magic, Codec.NONE, LARGE), small)
            grown = (A, Record(1, NOW, 0, b"x", bytes(1400)))
            yield Case(batch(Codec.GZIP, LARGE), to(2, max_message_bytes="1500", compression_type="uncompressed"))
            yield Case(batch(Codec.NONE, grown * 1), to(1, max_message_bytes="1430"))
        case "bomb":
            bomb = {"max.decompressed.message.bytes": "1000"}
            for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                yield Case(batch(codec, LARGE), bomb)
                yield Case(batch(codec, LARGE), bomb | to(1))
        case "set-too-large":
            yield Case(batch(Codec.NONE, LARGE), {"segment.bytes": "1500"})
            yield Case(batch(Codec.GZIP, LARGE), {"segment.bytes": "1500", "compression.type": "uncompressed"})
        case "no-payload":
            for settings in EACH_TARGET:
                for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
                    for payload in (b"", b"rubbish", compress(codec, section())[:-3]):
                        if codec is not Codec.LZ4 or payload != compress(codec, section())[:-3]:
                            yield Case(batch_with(payload, codec), settings)
                    yield Case(wrapped(1, codec, b"", payload=b"rubbish"), settings)
                for number in (5, 6, 7):
                    yield Case(patched(v2, ATTRIBUTES, number), settings)
                    yield Case(patched(message(1, A), MESSAGE_ATTRIBUTES, number), settings)
                    yield Case(patched(message(0, A), MESSAGE_ATTRIBUTES, number), settings)
        case "lz4-refused":
            for settings in EACH_TARGET:
                for magic in (0, 1, 2):
                    for frame in spoilt_lz4(section_of(magic)):
                        yield Case(payload_in(magic, Codec.LZ4, frame), settings)
                    if magic:
                        frame = bytearray(compress(Codec.LZ4, section_of(magic)))
                        frame[6] ^= 1
                        yield Case(payload_in(magic, Codec.LZ4, bytes(frame)), settings)
        case "lz4-taken":
            for options in (
                {"store_size": True}, {"content_checksum": True}, {"block_checksum": True},
                {"block_size": 5}, {"block_size": 6}, {"block_size": 7},
            ):  # fmt: skip
                yield Case(batch_with(lz4_frame(section(), **options), Codec.LZ4))
        case "lz4-of-v0":
            for settings in EACH_TARGET:
                for checksum in (0x82, 0x1A, 0x33):
                    frame = bytearray(compress(Codec.LZ4, messages(0)))
                    frame[6] = checksum
                    yield Case(wrapped(0, Codec.LZ4, b"", payload=bytes(frame)), settings)
        case "other-frames":
            yield Case(batch_with(gzip_members(section()), Codec.GZIP))
            xerial = compress(Codec.SNAPPY, section())
            yield Case(batch_with(xerial[len(XERIAL_HEADER) + 4 :], Codec.SNAPPY))
            yield Case(batch_with(xerial[:8] + bytes(7) + b"\x09" + xerial[16:], Codec.SNAPPY))
        case "damaged-inside":
            for settings in EACH_TARGET:
                for magic in (0, 1):
                    inner = messages(magic)
                    bad_crc = patched(message(magic, A), MESSAGE_CRC, 5, reseal=False)
                    bad_size = patched(message(magic, A), SIZE, 13, reseal=False)
                    for content in (
                        bad_crc + message(magic, B),
                        bad_size,
                        inner[:-1],
                        inner + b"\0",
                        inner + inner[:15],
                    ):
                        yield Case(wrapped(magic, Codec.GZIP, content), settings)
        case "lengths":
            for settings in EACH_TARGET:
                for magic in (0, 1):
                    good = message(magic, A)
                    value_length = Field(key_length(magic).start + 5, SIZE.type)
                    for field, length in ((key_length(magic), -2), (key_length(magic), 100), (value_length, -2),
                                          (value_length, 0), (value_length, 2), (value_length, -1)):  # fmt: skip
                        bad = patched(good, field, length)
                        yield Case(bad, settings)
                        yield Case(message(magic, A) + bad, settings)
                        yield Case(wrapped(magic, Codec.SNAPPY, bad), settings)
        case "bad-wrapper":
            for settings in EACH_TARGET:
                for magic in (0, 1):
                    nothing = bytearray(build_message(magic, 0, NOW, None, None))
                    nothing[17] = Codec.GZIP
                    yield Case(resealed(nothing), settings)
                    yield Case(wrapped(magic, Codec.GZIP, b""), settings)
                    for inner in (wrapper(magic, Codec.GZIP), message(magic, A) + wrapper(magic, Codec.LZ4),
                                  message(1 - magic, A), message(magic, A) + message(1 - magic, B)):  # fmt: skip
                        yield Case(wrapped(magic, Codec.GZIP, inner), settings)
                    yield Case(wrapped(magic, Codec.ZSTD, messages(magic), payload=zstd(messages(magic))), settings)
        case "in-order":
            for offset in (1, 0, 1002, -5):
                yield Case(wrapped(1, Codec.LZ4, messages(1), offset=offset), to(1))
        case "out-of-order":
            for offset in (1, 0, 1002, 7):
                for inside in ((0, 2), (0, 0), (1, 0), (5, 6), (1, 2)):
                    yield Case(wrapped(1, Codec.LZ4, messages(1, offsets=inside), offset=offset), to(1))
        case "other-maximum":
            yield Case(patched(v2, MAX_TIMESTAMP, 5))
            yield Case(patched(batch(Codec.LZ4), MAX_TIMESTAMP, -1))
        case "wrapper-key":
            yield Case(wrapped(1, Codec.LZ4, messages(1), key=b"key"), to(1))
        case "null-key":
            for settings in EACH_TARGET:
                for magic in (0, 1, 2):
                    for codec in (Codec.NONE, Codec.GZIP):
                        yield Case(kafka_set(magic, codec, KEYLESS), settings | COMPACT)
        case "time":
            for settings in EACH_TARGET[1:]:
                for magic in (1, 2):
                    for codec in (Codec.NONE, Codec.LZ4):
                        for time in (NOW - 1001, NOW + 1001, -2, 1 << 62):
                            odd = (A, Record(1, time, 0, b"x", b"y"))
                            yield Case(kafka_set(magic, codec, odd), settings)
                for topic in (settings, settings | APPEND_TIME):
                    yield Case(patched(message(1, A), MESSAGE_ATTRIBUTES, 8), topic)
                    yield Case(wrapped(1, Codec.GZIP, messages(1), attributes=8), topic)
                    yield Case(patched(v2, ATTRIBUTES, 8), topic)
        case "odd-time":
            wide = {"message.timestamp.difference.max.ms": str((1 << 63) - 1)}
            for codec in (Codec.NONE, Codec.GZIP):
                yield Case(batch(codec, (A._replace(timestamp=-1), B)))
                yield Case(batch(codec, (A._replace(timestamp=-2), B)), wide)
        case "bad-batch":
            for settings in EACH_TARGET:
                yield Case(patched(v2, ATTRIBUTES, 0x20), settings)
                yield Case(patched(v2, OFFSET, 1000, reseal=False), settings)
                for field, value in ((RECORD_COUNT, 0), (RECORD_COUNT, -1), (RECORD_COUNT, 3), (LAST_OFFSET_DELTA, 0),
                                     (LAST_OFFSET_DELTA, 2)):  # fmt: skip
                    yield Case(patched(v2, field, value), settings)
                for codec in (Codec.NONE, Codec.GZIP):
                    for records in (bytes((12, 0, 0, 2, 1, 1, 0)) * 2, SMALL_RECORD * 2, SMALL_RECORD,
                                    SMALL_RECORD + bytes((12, 0, 0, 2, 1, 1, 0, 0)), SMALL_RECORD * 3,
                                    SMALL_RECORD + bytes((14, 0, 0, 2, 1, 1, 0)), bytes((12, 0, 0, 0, 1, 1, 2)) * 2,
                                    SMALL_RECORD + bytes((12, 0, 0, 4, 1, 1, 0))):  # fmt: skip
                        yield Case(batch_with(compress(codec, records), codec), settings)
            yield Case(batch(**IDEMPOTENT | {"base_sequence": -1}))
        case "no-producer":
            for settings in EACH_TARGET:
                yield Case(batch(is_transactional=True), settings)
        case "cannot-hold":
            headers = (A._replace(headers=(("name", b"value"),)), B)
            for settings in EACH_TARGET[:2]:
                for codec in (Codec.NONE, Codec.GZIP):
                    yield Case(batch(codec, **IDEMPOTENT), settings)
                    yield Case(batch(codec, is_transactional=True, **IDEMPOTENT), settings)
                    yield Case(batch(codec, headers), settings)
        case "zstd":
            yield Case(batch(Codec.ZSTD))
        case "zstd-down":
            for settings in EACH_TARGET[:2]:
                for codec in ("producer", "gzip", "uncompressed"):
                    yield Case(batch(Codec.ZSTD), settings | {"compression.type": codec})
        case "gap":
            for sequence in (11, 13, 9, 0):
                yield Case(batch(**IDEMPOTENT | {"base_sequence": sequence}))
            yield Case(batch(**IDEMPOTENT | {"producer_epoch": 4, "base_sequence": 12}))
        case "old-epoch":
            yield Case(batch(**IDEMPOTENT | {"producer_epoch": 2, "base_sequence": 12}))
        case "again":
            yield Case(batch(**IDEMPOTENT))
        case "ignored":
            for codec in (Codec.NONE, Codec.GZIP):
                yield Case(patched(batch(codec), PARTITION_LEADER_EPOCH, 99, reseal=False))
                for bit in range(6, 15):
                    yield Case(patched(batch(codec), ATTRIBUTES, 1 << bit | codec))


def append(case: Case, version: int | None) -> RecordSet:
    return prepare(
        memoryview(case.data), case.rules, next_offset=100, now_ms=NOW, leader_epoch=7, request_version=version
    )


def known_producers() -> ProducerChecks:
    """A log that holds the batch IDEMPOTENT at offset 40."""
    producers, first = ProducerChecks(), append(Case(batch(**IDEMPOTENT)), 8)
    assert first.producer is not None
    producers.appended(first.producer, 40, 41, NOW)
    return producers


@pytest.mark.parametrize("row", list(rows()))
def test_each_input_gets_the_code_of_its_row_in_every_version(row: str) -> None:
    inputs = list(cases(row))
    assert inputs
    for column, versions in VERSIONS.items():
        for version in versions:
            for number, case in enumerate(inputs):
                old = version >= 3 and case.data[16:17] in (b"\0", b"\1") and row not in LOOKED_AT_BEFORE_THE_MAGIC
                code = rows()["old-magic" if old else row].codes[column]
                named = version >= 8 and row in NAMES_RECORDS and not old
                check(case, version, row, code, named=named, where=f"{row}, version {version}, input {number}")


def check(case: Case, version: int, row: str, code: int, *, named: bool, where: str) -> None:
    refusal: AppendRefusedError | None = None
    known = None
    try:
        done = append(case, version)
        known = done.producer and known_producers().check(done.producer)
    except AppendRefusedError as error:
        refusal = error
    if refusal is None:
        assert code == 0, where
        assert (known is not None) == (row == "again"), where
        check_stored(row, case, done)
        return
    assert refusal.code == code, (where, refusal)
    assert refusal.message
    assert bool(refusal.record_errors) == named, (where, refusal.record_errors)


def check_stored(row: str, case: Case, done: RecordSet) -> None:
    """Look at the last column of the table."""
    stored = rows()[row].stored
    if "nothing, base" in stored:
        assert (done.first_offset, done.records, done.pieces) == (-1, 0, [])
        return
    assert done.first_offset == 100
    assert done.last_offset == 100 + done.records - 1
    if "in place" in stored:
        assert not done.rebuilt, row
        assert done.compressed == 0
        assert any(part.obj is case.data for part in done.pieces)
    elif "rebuilt" in stored:
        assert done.rebuilt, row


def test_the_table_has_a_row_for_each_code_that_a_log_answers() -> None:
    codes = {code for row in rows().values() for code in row.codes.values()}
    assert codes == {0, 2, 10, 18, 32, 43, 45, 47, 53, 76, 87}
    assert codes <= {int(code) for code in ErrorCode}


def test_timestamps_win_over_keys_and_all_records_at_fault_are_named() -> None:
    records = (Record(0, NOW, 0, None, b""), Record(1, 5, 0, b"k", b""), Record(2, NOW, 0, b"", b""),
               Record(3, 5, 0, None, b""))  # fmt: skip
    for codec in (Codec.NONE, Codec.LZ4):
        with pytest.raises(AppendRefusedError) as refused:
            append(Case(batch(codec, records), COMPACT), 8)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in refused.value.record_errors] == [0, 1, 3]
        with pytest.raises(AppendRefusedError) as refused:
            append(Case(batch(codec, (records[0], records[2], records[3])), COMPACT), 8)
        assert refused.value.code is ErrorCode.INVALID_RECORD  # of the last record the key is the first fault


def test_of_very_many_records_at_fault_the_first_are_named() -> None:
    records = [Record(at, NOW, 0, None, b"") for at in range(1500)]
    for codec in (Codec.NONE, Codec.GZIP):
        with pytest.raises(AppendRefusedError) as refused:
            append(Case(batch(codec, records), COMPACT), 8)
        assert [error.batch_index for error in refused.value.record_errors] == list(range(1000))


def test_nesting_and_inner_magic_are_named_where_the_broker_itself_appends() -> None:
    inner = message(1, A) + wrapper(1, Codec.GZIP) + message(0, B)
    with pytest.raises(AppendRefusedError) as refused:
        append(Case(wrapped(1, Codec.GZIP, inner), to(1)), None)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.value.record_errors] == [1, 2]


def test_an_early_fault_answers_before_a_later_one() -> None:
    too_large, wrong_crc = messages(1, LARGE), patched(message(1, A), MESSAGE_CRC, 5, reseal=False)
    small = to(1, max_message_bytes="1500")
    for data, code in ((too_large + wrong_crc, 10), (wrong_crc + too_large, 2)):
        with pytest.raises(AppendRefusedError) as refused:
            append(Case(data, small), 2)
        assert refused.value.code == code
    with pytest.raises(AppendRefusedError) as refused:
        append(Case(patched(batch(Codec.GZIP, is_transactional=True), OFFSET, 4, reseal=False)), 8)
    assert refused.value.code is ErrorCode.INVALID_RECORD  # not 53


def test_plain_records_while_a_transaction_of_the_producer_is_open_are_refused() -> None:
    producers = ProducerChecks()
    first = append(Case(batch(is_transactional=True, **IDEMPOTENT)), 8).producer
    later = append(Case(batch(**IDEMPOTENT | {"base_sequence": 12})), 8).producer
    assert first is not None
    assert later is not None
    producers.appended(first, 0, 1, NOW)
    with pytest.raises(AppendRefusedError) as refused:
        producers.check(later)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    producers.check_epochs(7, 3, 0)
    producers.ended(7, 3, 0, NOW)
    assert producers.check(later) is None


def test_five_batches_are_remembered_and_sequences_wrap_after_the_last_number() -> None:
    producers, sequence = ProducerChecks(), (1 << 31) - 6
    appends = []
    for index in range(6):
        found = append(Case(batch(**IDEMPOTENT | {"base_sequence": (sequence + 2 * index) % (1 << 31)})), 8).producer
        assert found is not None
        assert producers.check(found) is None
        producers.appended(found, 2 * index, 2 * index + 1, NOW)
        appends.append(found)
    assert [batch.base_sequence for batch in appends][-3:] == [0, 2, 4]
    for index, found in enumerate(appends[1:], 1):
        known = producers.check(found)
        assert known is not None
        assert known.first_offset == 2 * index
    with pytest.raises(AppendRefusedError) as refused:
        producers.check(appends[0])
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_a_snapshot_knows_of_a_producer_is_its_last_batch() -> None:
    entry = ProducerEntry(7, 3, last_sequence=11, last_offset=41, offset_delta=1, timestamp=NOW, coordinator_epoch=-1,
                          current_txn_first_offset=-1)  # fmt: skip
    states = LATEST_RULES.producer_states(remembered=5)
    states.start_from(ProducerSnapshot((entry,)))
    producers = ProducerChecks()
    producers.start_from(states.snapshot(), states.recent_batches)
    again, following = (append(Case(batch(**IDEMPOTENT | {"base_sequence": at})), 8).producer for at in (10, 12))
    assert again is not None
    assert following is not None
    known = producers.check(again)
    assert known is not None
    assert (known.first_offset, known.last_offset) == (40, 41)
    assert producers.check(following) is None


def test_a_producer_that_is_silent_for_long_is_forgotten_unless_its_transaction_is_open() -> None:
    for transactional in (False, True):
        producers = ProducerChecks()
        first = append(Case(batch(is_transactional=transactional, **IDEMPOTENT)), 8).producer
        gap = append(Case(batch(is_transactional=transactional, **IDEMPOTENT | {"base_sequence": 50})), 8).producer
        assert first is not None
        assert gap is not None
        producers.appended(first, 0, 1, NOW)
        producers.expire(NOW + 999, 1000)
        with pytest.raises(AppendRefusedError):
            producers.check(gap)
        producers.expire(NOW + 1000, 1000)
        if transactional:
            with pytest.raises(AppendRefusedError):
                producers.check(gap)
        else:
            assert producers.check(gap) is None


@pytest.mark.parametrize(
    ("epoch", "coordinator", "code"),
    [(2, 5, ErrorCode.INVALID_PRODUCER_EPOCH), (3, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED)],
)
def test_a_marker_of_an_old_producer_or_coordinator_is_refused(epoch: int, coordinator: int, code: ErrorCode) -> None:
    producers = ProducerChecks()
    producers.ended(7, 3, 5, NOW)
    producers.check_epochs(7, 3, 5)
    producers.check_epochs(8, 0, 0)
    with pytest.raises(AppendRefusedError) as refused:
        producers.check_epochs(7, epoch, coordinator)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("version", "expected"),
    [("0", Format.V0), ("1", Format.V1), ("2", Format.V2), ("0.8.2", Format.V0), ("0.9.0", Format.V0),
     ("0.9.0.X", Format.V0),
     ("0.10.0-IV0", Format.V1), ("0.10.0-IV1", Format.V1), ("0.10.2", Format.V1), ("0.10.2-IV0", Format.V1),
     ("0.11.0-IV0", Format.V2), ("0.11.0", Format.V2), ("1.0", Format.V2), ("2.8", Format.V2),
     ("3.0-IV1", Format.V2)],
)  # fmt: skip
def test_a_format_version_is_a_magic_value_or_one_of_kafkas_names(version: str, expected: Format) -> None:
    assert stored_format(version) is expected
    assert append_rules({"message.format.version": version}).format is expected


def test_settings_have_kafkas_names() -> None:
    rules = append_rules(
        {
            "message.format.version": "0.10.2", "compression.type": "lz4", "message.timestamp.type": "LogAppendTime",
            "message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "6",
            "max.message.bytes": "7", "segment.bytes": "80", "cleanup.policy": "compact,delete",
            "max.decompressed.message.bytes": "9", "enriched.append.mode": "trust", "retention.ms": "1",
        }
    )  # fmt: skip
    assert rules == AppendRules(
        format=Format.V1, codec=Codec.LZ4, timestamp_type=TimestampType.LOG_APPEND_TIME, before_max_ms=5,
        after_max_ms=6, max_message_bytes=7, segment_bytes=80, compacted=True, verify=False, max_decompressed_bytes=9,
    )  # fmt: skip
    assert append_rules({}) == AppendRules()
    assert append_rules({"compression.type": "uncompressed"}).codec is Codec.NONE
    assert append_rules({"compression.type": "producer"}).codec is None
    assert append_rules({"message.format.version": "enriched"}).format is Format.ENRICHED


@pytest.mark.parametrize(
    ("name", "value"),
    [("message.format.version", "3"), ("message.format.version", "new"), ("compression.type", "brotli"),
     ("message.timestamp.type", "createtime"), ("cleanup.policy", "shred"), ("max.message.bytes", "-1"),
     ("segment.bytes", "1k"), ("enriched.append.mode", "hope")],
)  # fmt: skip
def test_a_setting_that_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=name):
        append_rules({name: value})


def test_an_input_of_two_records_is_not_changed_by_what_becomes_of_it() -> None:
    for magic in (0, 1, 2):
        for codec in (Codec.NONE, Codec.GZIP):
            for settings in (*EACH_TARGET, to(2) | APPEND_TIME, to(1) | APPEND_TIME):
                data = bytearray(kafka_set(magic, codec, TWO))
                before = bytes(data)
                append(Case(data, settings), 2)  # type: ignore[arg-type]
                assert data == before


def test_the_timestamp_of_a_wrapper_is_ignored_if_its_messages_have_their_own() -> None:
    done = append(Case(wrapped(1, Codec.GZIP, messages(1), timestamp=5), to(1)), 2)
    assert V1_TIMESTAMP.read(memoryview(bytes(done))) == NOW == done.max_timestamp
