"""Deep decoding of the enriched dialect, in both forms of the kernels."""

import pytest

from engine.records.enriched_control import build_enriched_control
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    TransactionPayload,
    build_enriched_message,
)
from magicbyte.engine.records.layout import Dialect

# One wrapper of the proposal's worked examples: relative offsets 0 and 7, not honoured, not keyed, starting at 100.
MIRRORED = bytes.fromhex(
    "00000000000000640000007498e74f7a01036553f10000000009200000000221002201ffffffff0000005504224d186040824600008000000000"
    "00000000000000179542dd160100ffffffffffffffffffffffff0000000178000000000000000700000017"
    "05fdc0870100ffffffffffffffffffffffff000000017700000000"
)
CONTROL = build_enriched_control(102, EnrichedControl.COMMIT_TRANSACTION, TransactionPayload(7, 3), seconds=5)
PLAIN = build_enriched_message(103, key=b"k", value=None, seconds=1_700_000_000)


def records(log: bytes, **options: bool) -> list[Record]:
    return [
        record
        for columns in decode(memoryview(log), DecodeOptions(**options), dialect=Dialect.ENRICHED)
        for record in columns
    ]


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", request.param)


def test_positions_number_the_messages_of_a_mirrored_wrapper() -> None:
    assert [(record.offset, record.value) for record in records(MIRRORED)] == [(100, b"x"), (101, b"w")]


def test_inner_messages_inherit_the_wrappers_second() -> None:
    assert {(record.timestamp, record.timestamp_type) for record in records(MIRRORED)} == {(1_700_000_000_000, 1)}


def test_control_messages_are_no_records_unless_they_are_asked_for() -> None:
    log = MIRRORED + CONTROL + PLAIN
    assert [record.offset for record in records(log)] == [100, 101, 103]
    asked = records(log, control=True)
    assert [record.offset for record in asked] == [100, 101, 102, 103]
    assert asked[2].value == (7).to_bytes(8, "big") + (3).to_bytes(4, "big")
