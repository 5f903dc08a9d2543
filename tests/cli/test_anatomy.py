"""`magicbyte dump --anatomy`: every byte of an entry is named once, and named right."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from golden_data import Case, log_case, log_cases
from magicbyte.cli.main import main
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records import layout
from magicbyte.engine.records.anatomy import UNREADABLE, FieldPart, anatomy, inside
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.enriched import Tag, build_enriched_message, build_enriched_wrapper, encode_tags
from magicbyte.engine.records.entry import Entry, entries
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message, build_wrapper

PAGES = Path(__file__).parents[2] / "docs" / "formats"
LIMIT = 64 << 20
SOUND = [case for case in log_cases() if case.state != "crashed"]
LOG = "00000000000000000000.log"
V2_FIELDS = {
    "base_offset": layout.OFFSET,
    "batch_length": layout.SIZE,
    "partition_leader_epoch": layout.PARTITION_LEADER_EPOCH,
    "magic": layout.MAGIC,
    "crc": layout.BATCH_CRC,
    "attributes": layout.ATTRIBUTES,
    "last_offset_delta": layout.LAST_OFFSET_DELTA,
    "base_timestamp": layout.BASE_TIMESTAMP,
    "max_timestamp": layout.MAX_TIMESTAMP,
    "producer_id": layout.PRODUCER_ID,
    "producer_epoch": layout.PRODUCER_EPOCH,
    "base_sequence": layout.BASE_SEQUENCE,
    "record_count": layout.RECORD_COUNT,
}
MESSAGE_FIELDS = {
    "offset": layout.OFFSET,
    "message_size": layout.SIZE,
    "crc": layout.MESSAGE_CRC,
    "magic": layout.MAGIC,
    "attributes": layout.MESSAGE_ATTRIBUTES,
}
V0_FIELDS = {**MESSAGE_FIELDS, "key_length": layout.V0_KEY_LENGTH}
V1_FIELDS = {**MESSAGE_FIELDS, "timestamp": layout.V1_TIMESTAMP, "key_length": layout.V1_KEY_LENGTH}


def check_cover(parts: list[FieldPart], size: int) -> None:
    at = 0
    for part in parts:
        assert part.start == at
        assert part.size > 0
        at += part.size
    assert at == size


def first_entries(case: Case) -> list[Entry]:
    """The first entry of each segment."""
    return [entry for _, content in case.segments().items() for _, entry in list(entries(content[: 1 << 20]))[:1]]


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_every_byte_of_real_entries_is_in_one_part_and_the_header_is_where_layout_says(case: Case) -> None:
    for entry in first_entries(case):
        parts = anatomy(entry.buffer)
        check_cover(parts, entry.size)
        assert UNREADABLE not in {part.type for part in parts}
        named = {part.field: part for part in parts}
        fields = V2_FIELDS if entry.magic == 2 else V1_FIELDS if entry.magic == 1 else V0_FIELDS
        for name, field in fields.items():
            assert (named[name].start, named[name].value) == (field.start, field.read(entry.buffer)), name
        assert named["crc"].note == "right"


@pytest.mark.parametrize("case", SOUND, ids=str)
def test_the_parts_of_real_entries_hold_the_keys_and_values_of_their_records(case: Case) -> None:
    for entry in first_entries(case):
        data, parts = entry.buffer, anatomy(entry.buffer)
        found = inside(entry.buffer, limit=LIMIT)
        assert (found is not None) == (entry.codec is not Codec.NONE)
        if found is not None:
            data, parts = found.data, found.parts
            check_cover(parts, len(data))
        expected = [record for columns in decode(entry.buffer, DecodeOptions(control=True)) for record in columns]
        keys, values = cells(data, parts, "key"), cells(data, parts, "value")
        if entry.is_control:
            assert keys == values == []  # markers have fields of their own
        else:
            assert keys == [record.key for record in expected if record.key]
            assert values == [record.value for record in expected if record.value]
            assert header_names(data, parts) == [name for record in expected for name, _ in record.headers if name]
        offsets = [part.note for part in parts if part.field.endswith("].offset_delta")]
        if entry.magic == 2:
            assert offsets == [f"offset {record.offset}" for record in expected]
        elif found is not None:
            assert inner_offsets(parts) == [record.offset for record in expected]


def cells(data: memoryview, parts: list[FieldPart], name: str) -> list[bytes]:
    return [
        bytes(data[part.start : part.start + part.size])
        for part in parts
        if part.type == "bytes" and part.field.rpartition(".")[2] == name
    ]


def header_names(data: memoryview, parts: list[FieldPart]) -> list[str]:
    return [name.decode() for name in cells(data, parts, "header_key")]


def inner_offsets(parts: list[FieldPart]) -> list[int | None]:
    """Absolute offsets: the stored one, or what the note says."""
    stored = [part for part in parts if part.field.endswith("].offset")]
    return [int(part.note.removeprefix("offset ")) if part.note else part.value for part in stored]


# ---- the worked examples of the format pages


def examples() -> list[tuple[str, bytes, list[list[str]]]]:
    """Page, bytes and table of each example of docs/formats that is an entry."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        if not page.name.startswith(("message", "record", "enriched")):
            continue
        for piece in page.read_text().split("\n## Example")[1:]:
            raw = bytes.fromhex(piece.partition("```hex\n")[2].partition("```")[0])
            table = piece.partition("```hex\n")[2].partition("```\n\n")[2].partition("\n\n")[0].strip().splitlines()[2:]
            found.append((page.name, raw, [[cell.strip() for cell in row.strip("|").split("|")] for row in table]))
    return found


@pytest.mark.parametrize(("page", "raw", "table"), examples())
def test_the_examples_of_the_format_pages_come_apart_as_they_say(page: str, raw: bytes, table: list[list[str]]) -> None:
    parts = anatomy(memoryview(raw), Dialect.ENRICHED if page == "enriched.md" else Dialect.KAFKA)
    check_cover(parts, len(raw))
    assert [[part.field, part.type, str(part.start)] for part in parts] == [row[:3] for row in table]
    for part, row in zip(parts, table, strict=True):
        if part.value is not None and part.field != "crc":
            assert str(part.value) == row[4], part


def test_every_page_has_examples() -> None:
    assert len(examples()) == 8


# ---- the enriched dialect, and what no real log has


def test_an_enriched_wrapper_shows_its_tags_and_its_inside() -> None:
    inner = build_enriched_message(0, b"k", b"v", tags=encode_tags({Tag.TIMESTAMP: 5})) + build_enriched_message(
        1, None, b"w"
    )
    raw = memoryview(build_enriched_wrapper(Codec.LZ4, inner, num_messages=2, non_keyed=False, start_offset=40))
    parts = anatomy(raw, Dialect.ENRICHED)
    check_cover(parts, len(raw))
    tags = {part.field: part.value for part in parts if part.field.startswith("tags[")}
    assert tags == {"tags[32]": 2, "tags[33]": 1, "tags[34]": 0}
    found = inside(raw, Dialect.ENRICHED, limit=LIMIT)
    assert found is not None
    assert bytes(found.data) == inner
    check_cover(found.parts, len(inner))
    assert inner_offsets(found.parts) == [40, 41]
    assert next(part.value for part in found.parts if part.field == "messages[0].tags[0]") == 5


@st.composite
def some_entries(draw: st.DrawFn) -> tuple[bytes, Dialect]:
    key, value = draw(st.none() | st.binary(max_size=20)), draw(st.none() | st.binary(max_size=20))
    offset = draw(st.integers(0, 2**62))
    kind = draw(st.sampled_from(["v0", "v1", "wrapper", "enriched"]))
    if kind == "enriched":
        tags = draw(st.binary(max_size=12))
        return build_enriched_message(offset, key, value, tags=tags), Dialect.ENRICHED
    if kind == "wrapper":
        inner = build_message(1, 0, 1000, key, value)
        return build_wrapper(1, draw(st.sampled_from([Codec.GZIP, Codec.SNAPPY])), inner, offset, 1000), Dialect.KAFKA
    return build_message(int(kind[1]), offset, 1000, key, value), Dialect.KAFKA


@given(made=some_entries())
def test_the_parts_of_any_entry_cover_it(made: tuple[bytes, Dialect]) -> None:
    raw, dialect = made
    check_cover(anatomy(memoryview(raw), dialect), len(raw))


BATCH = bytes(first_entries(log_case("3.9.1/basic-none"))[0].buffer[:400])
GZIP_BATCH = bytes(first_entries(log_case("3.9.1/basic-gzip"))[0].buffer)


@given(
    junk=st.binary(max_size=200),
    magic=st.integers(0, 3),
    dialect=st.sampled_from(Dialect),
    at=st.integers(0, 399),
    flip=st.integers(1, 255),
    cut=st.integers(1, 400),
)
def test_the_parts_of_junk_and_of_damaged_and_cut_batches_cover_them(
    junk: bytes, magic: int, dialect: Dialect, at: int, flip: int, cut: int
) -> None:
    damaged = bytearray(BATCH)
    damaged[at] ^= flip
    for raw in (junk, junk[:16] + bytes([magic]) + junk[16:], bytes(damaged), BATCH[:cut]):
        check_cover(anatomy(memoryview(raw), dialect), len(raw))


@given(at=st.integers(layout.ATTRIBUTES.start, len(GZIP_BATCH) - 1), flip=st.integers(1, 255))
def test_a_damaged_crc_is_said_to_be_wrong(at: int, flip: int) -> None:
    damaged = bytearray(GZIP_BATCH)
    damaged[at] ^= flip
    (crc,) = (part for part in anatomy(memoryview(damaged)) if part.field == "crc")
    assert crc.note.startswith("wrong: the bytes have 0x")


def test_a_cut_batch_ends_in_a_part_that_says_what_is_missing() -> None:
    last = anatomy(memoryview(BATCH)[:50])[-1]
    assert (last.type, last.start) == (UNREADABLE, layout.PRODUCER_ID.start)
    assert last.note == "producer_id: expected 8 bytes, found 7 before the end"


# ---- the command


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["dump", "--anatomy", *map(str, arguments)])


def a_log(tmp_path: Path, *raw: bytes) -> Path:
    path = tmp_path / LOG
    path.write_bytes(b"".join(raw))
    return path


MESSAGES = (build_message(1, 5, 1000, b"k", b"v"), build_message(0, 6, -1, None, bytes(200)))


def test_each_field_is_on_a_line_with_position_bytes_name_and_value(tmp_path: Path) -> None:
    result = dump(a_log(tmp_path, *MESSAGES))
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert rows[0] == ["0", *["00"] * 7, "05", "offset", "5"]
    assert rows[2][-3:-1] == ["crc", f"0x{MESSAGES[0][12:16].hex()}"]
    assert rows[7] == ["30", "6b", "key", "k", "(1", "bytes)"]
    assert len(rows) == 10
    assert "\x1b" not in result.stdout


def test_the_second_entry_is_at_its_position_and_long_fields_are_cut_unless_all_is_wanted(tmp_path: Path) -> None:
    path = a_log(tmp_path, *MESSAGES)
    at = len(MESSAGES[0])
    brief, whole = dump(path, "--at", at), dump(path, "--at", at, "--all-bytes")
    assert brief.stdout.splitlines()[1].split()[0] == str(at)
    assert brief.stdout.splitlines()[-1].strip() == "… 136 more bytes"
    assert sum(line.count(" 00") for line in whole.stdout.splitlines()[8:]) == 200


def test_a_position_inside_an_entry_says_which_one_holds_it_and_marks_the_field(tmp_path: Path) -> None:
    at = len(MESSAGES[0]) + 14
    result = dump(a_log(tmp_path, *MESSAGES), "--at", at)
    assert result.exit_code == 0
    assert result.stderr == (
        f"magicbyte: position {at} is 14 bytes into the entry at position {at - 14} ({len(MESSAGES[1])} bytes)\n"
    )
    (marked,) = (line for line in result.stdout.splitlines() if line.endswith("<- here"))
    assert " crc " in marked


def test_deep_shows_what_is_compressed(tmp_path: Path) -> None:
    path = a_log(tmp_path, build_wrapper(1, Codec.GZIP, MESSAGES[0], 7, 1000))
    shallow, deep = dump(path), dump(path, "--deep")
    assert "(compressed messages)" in shallow.stdout
    assert "messages[0]" not in shallow.stdout
    assert "messages[0].key " in deep.stdout
    assert "5 (offset 7)" in deep.stdout


def test_jsonl_has_an_object_for_each_field(tmp_path: Path) -> None:
    raw = MESSAGES[0]
    parts = [json.loads(line) for line in dump(a_log(tmp_path, *MESSAGES), "--format", "jsonl").stdout.splitlines()]
    assert bytes.fromhex("".join(part["hex"] for part in parts)) == raw
    assert parts[0] == {
        "position": 0, "size": 8, "inside": False, "field": "offset", "type": "int64", "value": 5, "note": "",
        "hex": raw[:8].hex(),
    }  # fmt: skip


def test_color_is_there_when_asked_for(tmp_path: Path) -> None:
    assert "\x1b[" in dump(a_log(tmp_path, *MESSAGES), "--color", "always").stdout


def test_a_wrong_checksum_is_shown_and_ends_with_1(tmp_path: Path) -> None:
    damaged = bytearray(MESSAGES[0])
    damaged[-1] ^= 1
    result = dump(a_log(tmp_path, damaged))
    assert result.exit_code == 1
    assert "wrong: the bytes have 0x" in result.stdout


def test_behind_damage_the_given_position_is_taken_for_the_start_of_an_entry(tmp_path: Path) -> None:
    damaged = bytearray(MESSAGES[1])
    damaged[16] = 9
    path = a_log(tmp_path, MESSAGES[0], damaged, MESSAGES[0])
    first, second = len(MESSAGES[0]), len(MESSAGES[0]) + len(damaged)
    at_damage, behind = dump(path, "--at", first), dump(path, "--at", second)
    assert (at_damage.exit_code, behind.exit_code) == (1, 1)
    assert "magic: expected 0, 1 or 2, found 9" in at_damage.stdout
    assert f"position {first}, offsets 6..6: magic byte" in behind.stderr
    assert "(right)" in behind.stdout


def test_a_cut_tail_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    result = dump(a_log(tmp_path, MESSAGES[0], MESSAGES[1][:40]), "--at", len(MESSAGES[0]))
    assert result.exit_code == 1
    assert "unreadable: value: expected 200 bytes, found 14 before the end" in result.stdout
    assert result.stderr.startswith("magicbyte: cut short: ")


def test_zeros_at_the_end_are_shown_as_unreadable(tmp_path: Path) -> None:
    path = a_log(tmp_path, MESSAGES[0], bytes(300))
    assert dump(path, "--at", len(MESSAGES[0]) + 100).exit_code == 1


@pytest.mark.parametrize(
    ("name", "content", "arguments", "said"),
    [
        (LOG, MESSAGES[0], ["--at", "36"], "--at 36: expected a position in "),
        (LOG, b"", [], "which has 0 bytes"),
        ("00000000000000000000.index", bytes(8), [], "--anatomy: expected one .log file"),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, name: str, content: bytes, arguments: list[str], said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = dump(path, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
