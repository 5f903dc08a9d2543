"""Conversion from LZ4 to LZ4 on what the old frames repeat: the same records, nearly the same size, in either form."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.records.message import MessageView

LZ4 = Codec.LZ4
CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
FORMS = ["plain", "compiled"]
V0, V1, V2 = Format.V0, Format.V1, Format.V2
WAYS = [(source, target) for source in (V0, V1, V2) for target in (V0, V1, V2) if source is not target]
WORDS = [b"alpha", b"beta ", b"gamma-", b"delta;", b"epsilon ", b"zeta{", b"eta}", b"theta....", b"\x00\x00\x00\x00"]


def records(count: int, words: int, seed: int, first: int = 0) -> list[Record]:
    rng = random.Random(seed)
    time = 1_700_000_000_000
    return [
        Record(
            first + at,
            time := time + rng.randrange(50),
            CREATE,
            None if rng.random() < 0.1 else b"user-%06d" % rng.randrange(500),
            None if rng.random() < 0.1 else b"".join(rng.choices(WORDS, k=rng.randrange(words))),
        )
        for at in range(count)
    ]


def converted(log: bytes, target: Format, form: str = "compiled", **options: Any) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGICBYTE_KERNELS", form)
        return b"".join(convert(log, target, **options))


def cells(log: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row.offset, row.key, row.value) for columns in decode(memoryview(log)) for row in columns]


def opened(log: bytes) -> list[tuple[Any, ...]]:
    """Header fields and content of the wrappers and batches of a log."""
    found = []
    for _, entry in entries(log):
        assert isinstance(entry, MessageView | RecordBatch)
        section = entry.records_section if isinstance(entry, RecordBatch) else entry.value
        assert section is not None
        inside = decompress(entry.codec, section, limit=1 << 26, lz4_header=Lz4Header.ANY)
        found.append((entry.codec, entry.attributes, entry.base_offset, entry.last_offset, entry.max_timestamp, inside))
    return found


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_both_forms_write_the_same_about_as_small_as_a_search_would(source: Format, target: Format) -> None:
    log = b"".join(encode_records(records(150, 30, at, 150 * at), source, LZ4) for at in range(4))
    report = ConversionReport()
    found = converted(log, target, report=report)
    assert converted(log, target, "plain") == found
    assert cells(found) == cells(log)
    assert (report.batches, report.records) == (4, 600)
    blank = [encode_records(records(150, 30, at, 150 * at), target, LZ4) for at in range(4)]
    assert len(found) < 1.06 * sum(map(len, blank))


@pytest.mark.parametrize(("source", "target"), WAYS)
def test_entries_of_several_blocks_and_of_more_than_a_group_are_converted(source: Format, target: Format) -> None:
    small, large = records(20, 10, 1), records(3000, 90, 2, 20)
    huge = [Record(3020, 1, CREATE, b"k", random.Random(1).randbytes(1 << 20) * 4), *records(10, 9, 3, 3021)]
    log = b"".join(encode_records(each, source, LZ4) for each in (small, large, huge, records(20, 10, 4, 3031)))
    found = converted(log, target)
    assert cells(found) == cells(log)
    blank = sum(len(encode_records(each, target, LZ4)) for each in (small, large, huge, records(20, 10, 4, 3031)))
    assert len(found) < 1.06 * blank


@pytest.mark.parametrize("form", FORMS)
def test_frames_that_others_wrote_and_empty_batches_are_converted_between_ours(form: str) -> None:
    first, second, third = (records(30, 20, seed, 40 * seed) for seed in range(3))
    plain = encode_records(second, V2)
    frames = lz4.frame.compress(plain[61:], block_linked=False, store_size=True)
    last = {"last_offset_delta": 29, "base_timestamp": second[0].timestamp, "max_timestamp": second[-1].timestamp}
    other = build_batch(frames, base_offset=40, record_count=30, attributes=LZ4, **last)
    empty = build_batch(
        bytes.fromhex("04224d18604082 00000000"),
        base_offset=100,
        last_offset_delta=3,
        base_timestamp=0,
        max_timestamp=0,
        record_count=0,
        attributes=LZ4,
    )
    log = encode_records(first, V2, LZ4) + other + empty + encode_records(third, V2, LZ4)
    assert cells(converted(log, V1, form)) == [(row.offset, row.key, row.value) for row in first + second + third]
    assert converted(log, V1, "plain") == converted(log, V1, "compiled")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("source", "target"), WAYS)
def test_damage_is_reported_after_the_records_before_it(
    source: Format, target: Format, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    sets = [encode_records(records(30, 20, seed, 40 * seed), source, LZ4) for seed in range(4)]
    for at in (20, len(sets[2]) // 2, len(sets[2]) - 1):
        damaged = bytearray(sets[2])
        damaged[at] ^= 0x10
        found: list[bytes] = []
        with pytest.raises(CorruptRecordError) as caught:
            found.extend(map(bytes, convert(sets[0] + sets[1] + bytes(damaged) + sets[3], target)))
        assert caught.value.position == len(sets[0]) + len(sets[1])
        assert [offset for offset, _, _ in cells(b"".join(found))] == [*range(30), *range(40, 70)]


CELLS = st.none() | st.binary(max_size=300) | st.builds(bytes.__mul__, st.binary(max_size=9), st.integers(0, 60))


@st.composite
def sets(draw: Callable[[Any], Any]) -> list[list[Record]]:
    """The records of some entries."""
    found, offset = [], draw(st.sampled_from((0, 7, 2**31)))
    for _ in range(draw(st.integers(1, 3))):
        rows, kind = [], draw(st.sampled_from((CREATE, APPEND)))
        for _ in range(draw(st.integers(1, 12))):
            time = 77 if kind is APPEND else draw(st.integers(-1, 2**40))
            headers = draw(st.sampled_from(((), (), (("h", b"xyz" * 5), ("h", None)))))
            rows.append(Record(offset, time, kind, draw(CELLS), draw(CELLS), headers))
            offset += draw(st.sampled_from((1, 1, 50)))
        found.append(rows)
    return found


@tries(200)
@given(sets=sets(), way=st.sampled_from(WAYS))
def test_but_for_its_compression_an_entry_is_the_one_that_a_search_would_have_compressed(
    sets: list[list[Record]], way: tuple[Format, Format]
) -> None:
    source, target = way
    log, other = (b"".join(encode_records(rows, source, codec) for rows in sets) for codec in (LZ4, Codec.SNAPPY))
    found = converted(log, target)
    assert found == converted(log, target, "plain")
    assert opened(found) == opened(converted(other, target, codec=LZ4))


def digests() -> list[str]:
    """Of some conversions, for a comparison between processes."""
    found = []
    for source, target in WAYS:
        log = b"".join(encode_records(records(60, 25, seed, 60 * seed), source, LZ4) for seed in range(3))
        found.append(hashlib.sha256(b"".join(convert(log, target))).hexdigest())
    return found


@pytest.mark.slow
def test_kernels_that_check_every_index_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = str(Path(__file__).parents[2])
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "MAGICBYTE_KERNELS": "compiled", "PYTHONPATH": tests}
    done = subprocess.run(
        [sys.executable, str(Path(__file__))], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("MAGICBYTE_KERNELS", "plain")
    assert done.stdout.split() == digests()


if __name__ == "__main__":
    print(*digests())
