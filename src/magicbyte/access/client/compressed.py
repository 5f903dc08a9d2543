"""Verify closed sets and rewrite their headers for producing them again without recompression.

The fields that a leader sets (offset, leader epoch, append time) are reset; the compressed bytes stay. KIP-31 allows a
leader to renumber the records of a wrapper; in batches of magic 2, brokers refuse offset gaps, so these are refused
here, too. Sources: Enriched Message Metadata, shallow mirroring; Kafka's LogValidator.
"""

from __future__ import annotations

from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import CorruptRecordError, UnsupportedForMessageFormatError
from magicbyte.engine.records.batch import RecordBatch, batch_attributes, build_batch
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.enriched import EnrichedMessage, Tag
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.survey import Survey, survey_messages, survey_records


def as_produced(
    data: bytes | bytearray | memoryview,
    dialect: Dialect = Dialect.KAFKA,
    *,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
) -> tuple[int, bytes]:
    """Return the magic of one compressed wrapper or batch, and its bytes as a producer sends them.

    An enriched wrapper gets missing tags: 32 (the message count), 33 (whether relative offsets are valid) and 34
    (whether no message has a key). Everything is verified, decompressed up to `limit` bytes, but not compressed again.

    Raises CorruptRecordError for bytes that are not one whole and consistent entry, BatchTooLargeError, and
    UnsupportedForMessageFormatError for entries that no producer may send: control batches, parts of transactions,
    offset gaps in a batch of magic 2.
    """
    view = memoryview(data)
    entry = parse_entry(view, dialect)
    if entry is None or entry.size != len(view):
        found = "a part of one" if entry is None else f"{len(view) - entry.size} bytes after it"
        raise CorruptRecordError("a set", expected="one whole wrapper or batch", found=found, position=0)
    entry.verify()
    if entry.codec is Codec.NONE:
        raise CorruptRecordError("codec", expected="one that compresses", found=0, position=0)
    if isinstance(entry, RecordBatch):
        return 2, _batch(entry, limit)
    value = entry.value
    if value is None:
        raise CorruptRecordError("value of a wrapper", expected="a compressed set", found="null", position=0)
    header = Lz4Header.ANY if entry.magic == 0 else Lz4Header.CORRECT
    inner = survey_messages(
        decompress(entry.codec, value, limit=limit, lz4_header=header), entry.magic, dialect=dialect
    )
    _check_inner(inner)
    if isinstance(entry, EnrichedMessage):
        return 1, _enriched(entry, inner)
    return entry.magic, _wrapper(entry, inner)


def _check_inner(inner: Survey) -> None:
    if inner.lying is not None:
        raise inner.lying
    for what, found in (("magic inside a wrapper", inner.other_magic), ("type inside a wrapper", inner.nested)):
        if found >= 0:
            raise CorruptRecordError(what, expected="a plain message of the same magic", found=f"message {found}")
    if not inner.records:
        raise CorruptRecordError("messages in a wrapper", expected="at least 1", found=0)


def _batch(batch: RecordBatch, limit: int) -> bytes:
    if batch.is_control or batch.is_transactional:
        raise UnsupportedForMessageFormatError("control and transactional batches cannot be produced again unchanged")
    section = decompress(batch.codec, batch.records_section, limit=limit)
    survey = survey_records(section, batch.record_count, batch.base_timestamp)
    if survey.out_of_order >= 0 or batch.last_offset_delta != batch.record_count - 1:
        raise UnsupportedForMessageFormatError("a batch with gaps in its offsets: produce its records instead")
    if batch.delete_horizon_ms is not None:
        raise UnsupportedForMessageFormatError("a batch with a delete horizon: produce its records instead")
    return build_batch(
        batch.records_section,
        base_offset=0,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=survey.latest,
        record_count=batch.record_count,
        attributes=batch_attributes(batch.codec),
    )


def _wrapper(wrapper: MessageView, inner: Survey) -> bytes:
    copy = MessageView(memoryview(bytearray(wrapper.buffer)))
    copy.set_offset(inner.records - 1)
    if copy.magic == 1:
        copy.set_max_timestamp(TimestampType.CREATE_TIME, inner.latest)
    return bytes(copy.buffer)


def _enriched(wrapper: EnrichedMessage, inner: Survey) -> bytes:
    told = wrapper.num_messages
    if told is not None and told != inner.records:
        raise CorruptRecordError("messages in a wrapper", expected=told, found=inner.records)
    tags: dict[int, int] = {
        Tag.NUM_MESSAGES: inner.records,
        Tag.HONOR_SHIP: int(inner.out_of_order < 0),
        Tag.NON_KEYED: int(inner.null_keys == inner.records),
    }
    made = EnrichedMessage(memoryview(bytearray(wrapper.with_tags(tags))))
    made.set_offset(0)
    made.set_metadata(seconds=-1)
    return bytes(made.buffer)
