"""The worked examples of docs/formats are real: every line is read back and compared with what our views say."""

import re
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from magicbyte.engine.codecs import Lz4Header, decompress
from magicbyte.engine.records import layout
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import control_records
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import MessageView

PAGES = Path(__file__).parents[3] / "docs" / "formats"
FIXED = {
    "int8": layout.INT8,
    "int16": layout.INT16,
    "int32": layout.INT32,
    "int64": layout.INT64,
    "uint32": layout.UINT32,
}
EXAMPLE = re.compile(r"^## (Example.*?)$.*?^```hex\n(.*?)^```\n\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
TYPES = {"message-v0.md": MessageView, "message-v1.md": MessageView, "record-batch-v2.md": RecordBatch}
NAMES = {  # fields of the pages that layout.py calls otherwise
    "message-v0.md": {"message_size": "SIZE", "key_length": "V0_KEY_LENGTH"},
    "message-v1.md": {"message_size": "SIZE", "timestamp": "V1_TIMESTAMP", "key_length": "V1_KEY_LENGTH"},
    "record-batch-v2.md": {
        "base_offset": "OFFSET",
        "batch_length": "SIZE",
        "crc": "BATCH_CRC",
        "attributes": "ATTRIBUTES",
    },
    "enriched.md": {"message_size": "SIZE", "seconds": "ENRICHED_SECONDS", "tags_length": "ENRICHED_TAGS_LENGTH"},
}


class Line(NamedTuple):
    field: str
    type: str
    at: int
    shown: str
    value: str


class Example(NamedTuple):
    page: str
    title: str
    raw: bytes
    lines: list[Line]

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"


def rows(table: str) -> list[list[str]]:
    """Cells of the rows of a markdown table, without its head."""
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]


def examples() -> list[Example]:
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for title, raw, table in EXAMPLE.findall(page.read_text()):
            lines = [Line(field, kind, int(at), shown, value) for field, kind, at, shown, value in rows(table)]
            found.append(Example(page.name, title, bytes.fromhex(raw), lines))
    return found


EXAMPLES = examples()


def dialect(page: str) -> Dialect:
    return Dialect.ENRICHED if page == "enriched.md" else Dialect.KAFKA


def test_every_format_has_a_page_with_two_examples() -> None:
    assert sorted({example.page for example in EXAMPLES}) == sorted(NAMES)
    assert len(EXAMPLES) == 2 * len(NAMES)


def varint(data: bytes) -> int:
    value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))
    assert [byte >= 0x80 for byte in data] == [True] * (len(data) - 1) + [False]
    return (value >> 1) ^ -(value & 1)


def shown_as(kind: str, field: str, data: bytes) -> str:
    if kind in FIXED:
        (number,) = FIXED[kind].unpack(data)
        return f"{number:#010x}" if field == "crc" else str(number)
    if kind in ("varint", "varlong"):
        return str(varint(data))
    return f'`"{data.decode()}"`' if data.isalnum() else f"{len(data)} bytes"


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_lines_of_an_example_cover_its_bytes_and_say_what_they_mean(example: Example) -> None:
    ends = [line.at for line in example.lines[1:]] + [len(example.raw)]
    assert example.lines[0].at == 0
    for line, end in zip(example.lines, ends, strict=True):
        data = example.raw[line.at : end]
        hex_shown = line.shown.strip("`")
        assert data.hex() == hex_shown or (hex_shown.endswith("…") and data.hex().startswith(hex_shown[:-1])), line
        assert shown_as(line.type, line.field, data) == line.value, line


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_one_sound_entry_and_its_view_has_the_fields_of_the_page(example: Example) -> None:
    walk = entries(example.raw, dialect(example.page))
    ((_, entry),) = walk
    assert walk.tail is None
    assert isinstance(entry, TYPES.get(example.page, EnrichedMessage))
    entry.verify()
    compared = 0
    for line in example.lines:
        if line.field.startswith("tags["):
            assert isinstance(entry, EnrichedMessage)
            assert str(entry.tags[int(line.field[5:-1])]) == line.value
        elif hasattr(entry, line.field):
            value = getattr(entry, line.field)
            size = len(value) if isinstance(value, memoryview) else struct.calcsize(FIXED[line.type].format)
            data = example.raw[line.at : line.at + size]
            if isinstance(value, memoryview):
                assert value == data, line
            elif not (line.field == "key_length" and isinstance(entry, EnrichedMessage)):
                assert value == FIXED[line.type].unpack(data)[0], line
            compared += 1
    assert compared >= 7


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.page == "record-batch-v2.md"], ids=str)
def test_the_records_of_a_batch_on_the_page_are_those_that_decoding_gives(example: Example) -> None:
    batch = RecordBatch.parse(memoryview(example.raw))
    assert batch is not None
    values = {line.field: line.value for line in example.lines}
    if batch.is_control:
        (control,) = control_records(batch)
        assert (str(control.version), str(control.type_id), str(control.coordinator_epoch)) == (
            values["records[0].key.version"],
            values["records[0].key.type"],
            values["records[0].value.coordinator_epoch"],
        )
        return
    found = [record for columns in decode(example.raw, DecodeOptions()) for record in columns]
    assert len(found) == batch.record_count == 2
    for i, record in enumerate(found):
        assert record.offset == batch.base_offset + int(values[f"records[{i}].offset_delta"])
        assert record.timestamp == batch.base_timestamp + int(values[f"records[{i}].timestamp_delta"])


@pytest.mark.parametrize(
    ("example", "offsets"),
    [
        (example, {"message-v0.md": [5, 6], "message-v1.md": [0, 1], "enriched.md": [0, 1]}[example.page])
        for example in EXAMPLES
        if "wrapper" in example.title
    ],
    ids=str,
)
def test_what_is_wrapped_on_the_page_has_the_offsets_that_the_text_says(example: Example, offsets: list[int]) -> None:
    ((_, wrapper),) = entries(example.raw, dialect(example.page))
    assert isinstance(wrapper, MessageView | EnrichedMessage)
    assert wrapper.value is not None
    header = Lz4Header.BROKEN if wrapper.magic == 0 else Lz4Header.CORRECT
    inner = decompress(wrapper.codec, wrapper.value, limit=1 << 16, lz4_header=header)
    assert [entry.base_offset for _, entry in entries(inner, dialect(example.page))] == offsets


@pytest.mark.parametrize("page", NAMES)
def test_the_positions_in_the_table_of_a_page_are_those_of_the_layout(page: str) -> None:
    table = re.search(
        r"^\| Field \| Type \| At \| Meaning \|\n(.*?)\n\n", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL
    )
    assert table is not None
    compared = 0
    for field, kind, at, _ in rows("\n" + table[1]):
        if kind in FIXED and at.isdecimal():
            default = f"MESSAGE_{field.upper()}" if field in ("crc", "attributes") else field.upper()
            known = getattr(layout, NAMES[page].get(field, default))
            assert (known.start, known.type) == (int(at), FIXED[kind]), field
            compared += 1
    assert compared >= 6
