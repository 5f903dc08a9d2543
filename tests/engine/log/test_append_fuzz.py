"""Promises about any set at all: it is stored whole and reads back, or is refused with a code, and nothing else."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from engine.log.made_sets import NOW, TWO, batch, enriched_set, kafka_set, resealed
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError, CorruptRecordError, ErrorCode
from magicbyte.engine.log.append.prepare import prepare, prepare_unchanged
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect, TimestampType

SOUND = [
    kafka_set(magic, codec, TWO) for magic in (0, 1, 2) for codec in Codec if codec is not Codec.ZSTD or magic == 2
]
SOUND += [SOUND[4] + SOUND[5], SOUND[0] + SOUND[4], batch(producer_id=3, producer_epoch=0, base_sequence=0)]
ENRICHED = [enriched_set(codec) for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4)]
ALLOWED = {
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD,
}  # fmt: skip
RULES = st.builds(
    AppendRules,
    format=st.sampled_from(Format),
    codec=st.sampled_from([None, *Codec]),
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    before_max_ms=st.sampled_from([1000, 1 << 62]),
    after_max_ms=st.sampled_from([1000, 1 << 62]),
    max_message_bytes=st.sampled_from([60, 150, 1 << 20]),
    compacted=st.booleans(),
    verify=st.booleans(),
    max_decompressed_bytes=st.sampled_from([50, 1 << 16]),
)
VERSIONS = st.sampled_from([None, 0, 2, 3, 7, 8])


def check(data: bytes, rules: AppendRules, version: int | None, dialect: Dialect) -> None:
    before = bytes(data)
    done, code = None, None
    try:
        done = prepare(
            memoryview(data),
            rules,
            next_offset=50,
            now_ms=NOW,
            leader_epoch=1,
            request_version=version,
            dialect=dialect,
        )
    except AppendRefusedError as refusal:
        code = refusal.code
    assert data == before
    if done is None:
        assert code in ALLOWED
        return
    stored = bytes(done)
    assert done.size == len(stored)
    trusted = rules.format is Format.ENRICHED and not rules.verify and not done.rebuilt
    if trusted or not done.records:
        return
    options = DecodeOptions(control=True)
    found = [each for columns in decode(memoryview(stored), options, dialect=rules.format.dialect) for each in columns]
    assert [record.offset for record in found] == list(range(50, 50 + done.records))
    assert done.last_offset == 50 + done.records - 1
    taken = prepare_unchanged(memoryview(stored), LATEST_RULES, next_offset=50, dialect=rules.format.dialect)
    assert (bytes(taken), taken.last_offset) == (stored, done.last_offset)


@given(junk=st.binary(max_size=300), rules=RULES, version=VERSIONS, dialect=st.sampled_from(Dialect))
def test_junk_is_refused_or_dropped_and_nothing_else(
    junk: bytes, rules: AppendRules, version: int | None, dialect: Dialect
) -> None:
    check(junk, rules, version, dialect)


@given(data=st.data(), rules=RULES, version=VERSIONS)
def test_a_set_with_changed_bytes_is_stored_so_that_it_reads_back_or_is_refused(
    data: st.DataObject, rules: AppendRules, version: int | None
) -> None:
    enriched = data.draw(st.booleans())
    spoilt = bytearray(data.draw(st.sampled_from(ENRICHED if enriched else SOUND)))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(spoilt) - 1))
        spoilt[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(max(len(spoilt) - 3, 0), len(spoilt)))
    if data.draw(st.booleans()):
        spoilt = bytearray(resealed_all(bytes(spoilt)))
    check(bytes(spoilt[:end]), rules, version, Dialect.ENRICHED if enriched else Dialect.KAFKA)


def resealed_all(data: bytes) -> bytes:
    """The first entry with the checksum that its bytes have now, so that what is wrong inside is met."""
    size = 12 + int.from_bytes(data[8:12], "big", signed=True)
    if not 61 <= size <= len(data):
        return data
    return resealed(data[:size]) + data[size:]


@given(junk=st.binary(max_size=200), dialect=st.sampled_from(Dialect))
def test_what_a_follower_fetched_is_taken_or_corrupt(junk: bytes, dialect: Dialect) -> None:
    with contextlib.suppress(CorruptRecordError):
        assert junk.startswith(bytes(prepare_unchanged(memoryview(junk), LATEST_RULES, next_offset=0, dialect=dialect)))
