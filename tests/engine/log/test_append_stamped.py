"""Where the produced bytes are the log's own, headers are set where they lie: the same bytes, without a copy."""

from __future__ import annotations

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType

NOW = 1_700_000_000_000


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("form", [Format.V0, Format.V1, Format.V2])
@pytest.mark.parametrize("count", [1, 300])
def test_bytes_that_are_ours_become_what_a_copy_would(
    count: int, form: Format, codec: Codec, kind: TimestampType
) -> None:
    records = [Record(at, -1 if form is Format.V0 else NOW - at, 0, b"key", b"value") for at in range(count)]
    produced = encode_records(records, form, codec)
    rules, version = AppendRules(format=form, timestamp_type=kind), 8 if form is Format.V2 else 2

    def stored(data: memoryview, *, is_ours: bool) -> list[memoryview]:
        return list(
            prepare(
                data, rules, next_offset=70, now_ms=NOW, leader_epoch=3, request_version=version, is_ours=is_ours
            ).pieces
        )

    ours = bytearray(produced)
    found = stored(memoryview(ours), is_ours=True)
    assert b"".join(found) == b"".join(stored(memoryview(produced), is_ours=False))
    if form is Format.V2 or (codec is Codec.NONE and count > 1):
        assert found == [ours], "in place"


def test_bytes_that_are_not_ours_stay_as_they_are() -> None:
    records = [Record(at, NOW, 0, None, b"value") for at in range(300)]
    for form in (Format.V0, Format.V1, Format.V2):
        produced = encode_records(records, form)
        copy = bytearray(produced)
        version = 8 if form is Format.V2 else 2
        prepare(memoryview(copy), AppendRules(format=form), next_offset=70, now_ms=NOW, leader_epoch=3,
                request_version=version)  # fmt: skip
        assert copy == produced
