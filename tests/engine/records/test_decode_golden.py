"""Every record of every golden log, as Kafka's consumers and dump tool saw them, through both forms of the kernels."""

import base64
from collections.abc import Iterator

import pytest

import golden_data
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.layout import TimestampType

CASES = golden_data.log_cases()
FORMS = ["plain", "compiled"]


def records(content: bytes, options: DecodeOptions) -> Iterator[Record]:
    for columns in decode(memoryview(content), options):
        yield from columns


def as_json(record: Record, *, timestamps: bool) -> dict[str, object]:
    def text(cell: bytes | None) -> str | None:
        return None if cell is None else base64.b64encode(cell).decode()

    return {
        "offset": record.offset,
        "timestamp": record.timestamp if timestamps else None,
        "timestampType": TimestampType(record.timestamp_type).label if timestamps else None,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", golden_data.one_of_each_kind(case for case in CASES if case.has_records))
def test_the_records_are_those_that_a_consumer_saw(
    case: golden_data.Case, form: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    expected = list(case.records())
    timestamps = case.version not in ("0.8.2.2", "0.9.0.1")
    found = [
        as_json(record, timestamps=timestamps)
        for content in case.segments().values()
        for record in records(content, DecodeOptions(packed=packed))
    ]
    start = expected[0]["offset"] if case.id.endswith("trimmed-none") else 0
    assert [record for record in found if record["offset"] >= start] == expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [case for case in CASES if not case.has_records], ids=lambda case: case.id)
def test_a_crashed_log_decodes_up_to_the_damage(
    case: golden_data.Case, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    sound = [row for row in case.batches() if row["isvalid"]]
    expected = [
        offset for row in sound for offset in row.get("offsets", range(row["baseOffset"], row["lastOffset"] + 1))
    ]
    found, damage = [], []
    for content in case.segments().values():
        try:
            found.extend(record.offset for record in records(content, DecodeOptions()))
        except CorruptRecordError as error:
            damage.append(error)
    assert found == expected
    assert len(damage) == ("flip" in case.id or "zeros" in case.id)
    if "flip" in case.id:
        broken = [row for row in case.batches() if not row["isvalid"]]
        assert [error.position for error in damage] == [row["position"] for row in broken]
