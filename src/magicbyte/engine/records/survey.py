"""Collect the facts about a record set that a log needs before it appends the set, in one walk without columns.

Small sets take the plain twins of the kernels, large ones the compiled kernels; the results are the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from magicbyte.engine.codecs import decompress
from magicbyte.engine.compiled.checksums import IEEE
from magicbyte.engine.compiled.kernel import WORTH_WALKING, worth_compiling
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.records import survey_kernels as survey
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.kernels.statuses import (
    AT,
    BAD_VALUE_LENGTH,
    CUT_MESSAGE,
    DELTA,
    DONE,
    EXPECTED,
    FOUND,
    LATER,
    STATE,
)
from magicbyte.engine.records.layout import LOG_OVERHEAD, OFFSET, RECORD_MINIMUM, Dialect, TimestampType
from magicbyte.engine.records.scan import complaint


class Survey(NamedTuple):
    """Facts about a set of `records` records. An index counts them from 0, and is -1 if there is no such record.

    `least` is the smallest timestamp other than -1, None if there is none; `latest` is the largest of all, and
    `latest_at` the first record that has it. `out_of_order`: the first record whose offset field (v0, v1, enriched) or
    offset delta (v2) is not its index. `append_bits`: how many messages are marked LogAppendTime. `nested`: the first
    message that is not plain. `other_magic`: the first message of another magic. `lying`: the error of the first
    message whose key or value length contradicts its size.
    """

    records: int
    null_keys: int
    least: int | None
    latest: int
    latest_at: int
    out_of_order: int
    headers: int
    append_bits: int
    nested: int
    other_magic: int
    lying: CorruptRecordError | None = None


def survey_records(section: memoryview, count: int, base_timestamp: int) -> Survey:
    """Walk the decompressed records section of a v2 batch that claims `count` records, at least one.

    Raises CorruptRecordError, with a position in `section`, unless it consists of exactly these whole records.
    """
    if not 0 < count <= len(section) // RECORD_MINIMUM:
        state = [0] * STATE
        state[EXPECTED], state[FOUND] = count * RECORD_MINIMUM, len(section)
        raise complaint(CUT_MESSAGE, state)
    form = form_for(compiled=worth_compiling(len(section), WORTH_WALKING))
    state = form.zeros(survey.FACTS)
    status = form.form(survey.survey_records)(form.bytes_of(section), 0, len(section), count, base_timestamp, state)
    if status != DONE:
        error = complaint(status, state)
        error.position = int(state[AT])
        raise error
    return _survey(state)


def first_of_time(batch: RecordBatch, timestamp: int, first_offset: int) -> tuple[int, int] | None:
    """Return timestamp (ms) and offset of the first record with `timestamp` or a later one.

    Offsets below `first_offset` are skipped. None if the batch has no such record. Its CRC is not checked. Raises
    CorruptRecordError for incomplete records before the result, and BatchTooLargeError.
    """
    section = batch.records_section
    if batch.codec:
        section = decompress(batch.codec, section, limit=DEFAULT_MAX_BATCH_BYTES)
    form = form_for(compiled=worth_compiling(len(section), WORTH_WALKING))
    state = form.zeros(STATE)
    # then the header's max timestamp is that of every record
    append_time = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    if append_time and batch.max_timestamp < timestamp:
        return None
    wanted = survey.LEAST_TIME if append_time else timestamp
    status = form.form(survey.first_of_time)(
        form.bytes_of(section), 0, len(section), batch.record_count, batch.base_timestamp, wanted,
        first_offset - batch.base_offset, state,
    )  # fmt: skip
    if status == DONE:
        time = batch.max_timestamp if append_time else int(state[DELTA])
        return time, batch.base_offset + int(state[LATER])
    if status == CUT_MESSAGE and state[FOUND] == 0:
        return None
    error = complaint(status, state)
    error.position = int(state[AT])
    raise error.locate(offsets=(batch.base_offset, batch.last_offset))


def survey_messages(
    messages: memoryview, magic: int, *, dialect: Dialect = Dialect.KAFKA, limit: int | None = None
) -> Survey:
    """Walk whole messages: a row of plain ones, or the content of a wrapper of `magic`. Their CRCs are checked.

    Raises CorruptRecordError for damage other than `lying`, with a position in `messages`, and BatchTooLargeError for a
    message of more than `limit` bytes.
    """
    form = form_for(compiled=worth_compiling(len(messages), WORTH_WALKING))
    state = form.zeros(survey.FACTS)
    most = survey.MOST_TIME if limit is None else limit
    status = form.form(survey.survey_messages)(
        form.bytes_of(messages), 0, len(messages), magic, int(dialect is Dialect.ENRICHED), most,
        form.crc_table(IEEE), state,
    )  # fmt: skip
    if status == DONE:
        return _survey(state)
    position, found = int(state[AT]), int(state[FOUND])
    error = (
        BatchTooLargeError("message size", expected=f"<= {most}", found=found)
        if status == survey.TOO_LARGE
        else complaint(status, state)
    )
    error.position = position
    if len(messages) - position >= LOG_OVERHEAD:
        offset = OFFSET.read(messages[position:])
        error.locate(offsets=(offset, offset))
    if status == BAD_VALUE_LENGTH:
        return _survey(state)._replace(lying=error)
    raise error


def _survey(state: Any) -> Survey:
    facts: list[Any] = state[STATE:] if isinstance(state, list) else state[STATE:].tolist()
    if facts[_LEAST] == survey.MOST_TIME:
        facts[_LEAST] = None
    facts[_LYING] = None
    return Survey._make(facts)


_LEAST, _LYING = survey.LEAST - STATE, survey.LYING - STATE
