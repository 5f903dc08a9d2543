"""LZ4 wrappers with the header checksum of the other format: one byte and the CRC change, and nothing else."""

import pytest

import golden_data
from magicbyte.engine.codecs import Codec, Lz4Header, compress, lz4_header_checksum
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import MESSAGE_CRC, Dialect
from magicbyte.engine.records.lz4_repair import repair_lz4_headers
from magicbyte.engine.records.message import MessageView, build_message, build_wrapper
from magicbyte.engine.records.scan import scan
from magicbyte.engine.wire.checksum import crc32

INNER = {
    magic: b"".join(build_message(magic, at, 7, b"k", b"value %d" % at * 9) for at in range(5)) for magic in (0, 1)
}


def wrapper(magic: int, header: Lz4Header, *, key: bytes | None = None) -> bytes:
    """A wrapper as build_wrapper makes it, with this header checksum; its last offset is 4."""
    sound = build_wrapper(magic, Codec.LZ4, INNER[magic], 4, 7)
    old = MessageView(memoryview(sound)).value
    assert old is not None
    frame = compress(Codec.LZ4, INNER[magic], lz4_header=header)
    assert len(frame) == len(old)
    entry = bytearray(sound[: -len(frame)] + frame)
    MESSAGE_CRC.write(memoryview(entry), crc32(entry[16:]))
    return bytes(entry)


def repaired(content: bytes, dialect: Dialect = Dialect.KAFKA) -> tuple[bytes, int]:
    found, count = repair_lz4_headers(scan(memoryview(content), dialect=dialect, merge=True))
    return bytes(found), count


@pytest.mark.parametrize(
    ("magic", "wrong", "right"),
    [(1, Lz4Header.BROKEN, Lz4Header.CORRECT), (0, Lz4Header.CORRECT, Lz4Header.BROKEN)],
)
def test_a_wrapper_with_the_other_checksum_becomes_what_kafka_would_have_written(
    magic: int, wrong: Lz4Header, right: Lz4Header
) -> None:
    before = wrapper(magic, wrong)
    after, count = repaired(before)
    assert (after, count) == (wrapper(magic, right), 1)
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    (frame,) = [entry.value for _, entry in entries(after) if isinstance(entry, MessageView)]
    assert frame is not None
    assert lz4_header_checksum(frame) is right
    assert set(changed) <= {12, 13, 14, 15, len(before) - len(frame) + 6}
    assert [record.offset for columns in decode(memoryview(after)) for record in columns] == list(range(5))


def test_what_is_right_stays_and_is_not_copied() -> None:
    content = memoryview(
        wrapper(0, Lz4Header.BROKEN)
        + wrapper(1, Lz4Header.CORRECT)
        + build_message(1, 9, 7, None, b"x")
        + build_wrapper(1, Codec.GZIP, INNER[1], 14, 7)
    )
    found, count = repair_lz4_headers(scan(content))
    assert count == 0
    assert found.obj is content.obj
    assert found == content


def test_many_are_repaired_between_others() -> None:
    plain, other = build_message(1, 9, 7, None, b"x"), build_wrapper(1, Codec.GZIP, INNER[1], 4, 7)
    wrong, right = wrapper(1, Lz4Header.BROKEN), wrapper(1, Lz4Header.CORRECT)
    assert repaired(plain + wrong + other + wrong + plain * 3 + right) == (
        plain + right + other + right + plain * 3 + right,
        2,
    )


def test_a_damaged_wrapper_gets_no_new_crc() -> None:
    sound = wrapper(1, Lz4Header.BROKEN)
    damaged = bytearray(sound + sound)
    damaged[-9] ^= 1
    with pytest.raises(CorruptRecordError, match=f"position {len(sound)}, .*crc"):
        repaired(bytes(damaged))


def test_bytes_that_are_no_lz4_frame_stay_unchanged() -> None:
    entry = bytearray(wrapper(1, Lz4Header.BROKEN))
    at = entry.index(b"\x04\x22\x4d\x18")
    entry[at] ^= 1
    MESSAGE_CRC.write(memoryview(entry), crc32(entry[16:]))
    assert repaired(bytes(entry)) == (bytes(entry), 0)


@pytest.mark.parametrize("case", [case for case in golden_data.log_cases() if case.codec == "lz4"], ids=str)
def test_what_kafka_wrote_needs_no_repair(case: golden_data.Case) -> None:
    for content in case.segments().values():
        assert repaired(content)[1] == 0
