"""Batches that lose records without being decoded: the rest equals that of decoding and encoding."""

import random
from typing import Any

import lz4.frame
import numpy as np
import pytest

from fuzz.agreement import kernels
from magicbyte.engine.codecs import Codec, decompress
from magicbyte.engine.log.cleaning import compaction_sets
from magicbyte.engine.log.cleaning.cleaned_transactions import CleanedTransactions
from magicbyte.engine.log.cleaning.compaction_sets import Dropped, Piece, Rules, SetFilter
from magicbyte.engine.log.cleaning.offset_map import OffsetMap
from magicbyte.engine.records import proof_kernels, thin_kernels
from magicbyte.engine.records.batch import HEADER
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import ATTRIBUTES, BATCH_CRC, RECORD_BATCH_OVERHEAD, SIZE, TimestampType
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.thin import GROUP_BYTES, thin_lz4
from magicbyte.engine.wire.checksum import crc32c

NOW = 1_700_000_000_000
RULES = Rules(
    now_ms=NOW,
    delete_retention_ms=0,
    horizons=True,
    keeps_last=False,
    end_offset=1 << 40,
    producers={},
    merges=False,
    max_message_bytes=1 << 20,
)


def batch(rng: random.Random, base: int, *, count: int = 30, most: int = 200, keys: int = 3000) -> bytes:
    """A batch of records with gaps between their offsets, times in any order, and headers of all kinds."""
    records, offset = [], base
    spread = rng.choice((1, 50, 1 << 13, 1 << 40))
    kind = rng.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))
    for _ in range(rng.randrange(1, count)):
        value = rng.choice((b"", rng.randbytes(rng.randrange(most)), b"abcdefg" * rng.randrange(most)))
        headers = tuple(("name", rng.choice((None, b"", b"x" * 130))) for _ in range(rng.choice((0, 0, 1, 70))))
        time = NOW + rng.randrange(-spread, spread)
        records.append(Record(offset, time, kind, b"%d" % rng.randrange(keys), value, headers))
        offset += rng.choice((1, 1, 3))
    header = BatchHeader(
        timestamp_type=kind,
        max_timestamp=NOW if kind is TimestampType.LOG_APPEND_TIME else None,
        last_offset=offset + rng.randrange(3),
        base_timestamp=NOW - 5000 if (horizon := rng.random() < 0.3) else None,
        has_delete_horizon=horizon,
        is_transactional=rng.random() < 0.3,
        partition_leader_epoch=rng.randrange(9),
        producer_id=rng.choice((-1, 7)),
        producer_epoch=3,
        base_sequence=base,
    )
    return encode_records(records, Format.V2, Codec.LZ4, header=header)


def sealed(entry: bytearray) -> bytes:
    entry[SIZE.start : SIZE.start + 4] = (len(entry) - 12).to_bytes(4, "big")
    entry[BATCH_CRC.start : BATCH_CRC.start + 4] = crc32c(bytes(entry[ATTRIBUTES.start :])).to_bytes(4, "big")
    return bytes(entry)


def compacted(data: bytes, form: str) -> tuple[list[Piece], Dropped]:
    """The rest of some batches whose keys are all in the map."""
    with kernels(form):
        end = 1 << 20
        offsets = OffsetMap(
            0, end, dedupe_bytes=1 << 20, load_factor=0.9, secret=bytes(16), compiled=form == "compiled"
        )
        for columns in decode(memoryview(data), DecodeOptions(headers=False)):
            assert offsets.put(columns)
        offsets.read_to(end - 1)
        sets = SetFilter(offsets, RULES, CleanedTransactions())
        sets.begin_segment(0, retains_deletes=True)
        return sets.filter(scan(memoryview(data))), sets.dropped


def told(pieces: list[Piece]) -> list[Any]:
    """Pieces without what depends on the compressor; their sizes and checksums hold."""
    found = []
    for row, data, last in pieces:
        entry = bytes(data)
        assert sealed(bytearray(entry)) == entry
        base, _, epoch, magic, _, *rest = HEADER.unpack_from(entry)
        content = bytes(decompress(Codec.LZ4, entry[RECORD_BATCH_OVERHEAD:], limit=1 << 24))
        found.append((row, last, base, epoch, magic, *rest, content))
    return found


def rows_of(data: bytes, count: int, low: int, gone: "np.ndarray[Any, Any]") -> list[int]:
    """The batches that could be taken."""
    table = scan(memoryview(data))
    return [row for thinned in thin_lz4(table, np.arange(count), low, gone) for row in thinned.rows]


def refuse(*_: object) -> None:
    raise AssertionError("a batch is decoded")


def test_the_rest_of_a_batch_equals_that_of_decoding_and_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    data = b"".join(batch(rng, 200 * at) for at in range(300))
    expected, counts = compacted(data, "plain")
    assert counts.sets_rewritten > 100
    assert min(counts.sets_copied, counts.sets_dropped) > 0
    monkeypatch.setattr(compaction_sets, "decode_entries", refuse)
    found, same_counts = compacted(data, "compiled")
    assert told(found) == told(expected)
    assert same_counts == counts


def test_large_batches_are_taken_as_they_fit() -> None:
    rng = random.Random(2)
    sizes = [9_000] * 12 + [60_000, 50, 90_000]
    data = b"".join(batch(rng, 1000 * at, most=size, keys=150) for at, size in enumerate(sizes))
    expected, counts = compacted(data, "plain")
    contents = [len(each[-1]) for each in told(expected)]
    assert max(contents) > GROUP_BYTES
    assert sum(contents) - max(contents) > GROUP_BYTES
    found, same_counts = compacted(data, "compiled")
    assert told(found) == told(expected)
    assert same_counts == counts


def test_unusual_frames_and_records_that_do_not_end_with_theirs_take_the_usual_path() -> None:
    rng = random.Random(3)
    entries = []
    for at in range(20):
        entry = bytearray(batch(rng, 200 * at, keys=200))
        content = bytes(decompress(Codec.LZ4, bytes(entry[RECORD_BATCH_OVERHEAD:]), limit=1 << 24))
        if at % 2:
            entry[RECORD_BATCH_OVERHEAD:] = lz4.frame.compress(content, block_linked=False, content_checksum=True)
        entries.append(sealed(entry))
    data = b"".join(entries)
    expected, counts = compacted(data, "plain")
    found, same_counts = compacted(data, "compiled")
    assert told(found) == told(expected)
    assert same_counts == counts
    assert rows_of(data, 20, 0, np.zeros(4096, np.uint8)) == list(range(0, 20, 2))


@pytest.mark.parametrize("end", [0, 1])
def test_unlisted_offsets_and_lost_batches_are_left_out(end: int) -> None:
    rng = random.Random(4)
    data = batch(rng, 100) + batch(rng, 300)
    gone = np.zeros(150, np.uint8)
    gone[:100] = end
    assert rows_of(data, 2, 100, gone) == ([] if end else [0])
    assert rows_of(data, 2, 101, gone) == []


def test_the_compiled_loop_agrees_with_its_twin() -> None:
    rng = random.Random(5)
    entries = []
    for at in range(40):
        entry = bytearray(batch(rng, 100 * at, count=12, most=40))
        if rng.random() < 0.3:
            entry[rng.randrange(RECORD_BATCH_OVERHEAD + 7, len(entry))] ^= 1 << rng.randrange(8)
        entries.append(entry)
    data = b"".join(entries)
    table = scan(memoryview(data))
    gone = np.array([rng.random() < 0.5 for _ in range(4100)], np.uint8)
    count = len(entries)
    for first in range(count):
        outcomes: list[Any] = []
        for compiled in (False, True):
            numbers = (
                [first, 0],
                [0] * (proof_kernels.SLOTS * proof_kernels.JOB),
                [0] * 2 * count,
                [0, 0],
                [0] * count * thin_kernels.FACTS,
                [0, first],
            )
            places: list[Any] = [table.position, table.size]
            kernel: Any = thin_kernels.thin_batches if compiled else thin_kernels.thin_batches.py_func
            source: Any = np.frombuffer(data, np.uint8) if compiled else data
            arrays: list[Any] = [np.array(each, np.int64) if compiled else list(each) for each in (*places, *numbers)]
            position, size, _, jobs, slots, ends, facts, state = arrays
            memory: Any = (lambda size: np.zeros(size, np.uint8)) if compiled else bytearray
            room, out = memory(proof_kernels.ROOM), memory(1 << 16)
            marks: Any = gone if compiled else bytes(gone)
            status = kernel(source, position, size, 0, marks, room, jobs, slots, ends, out, facts, state)
            done = int(state[thin_kernels.ROW])
            written = bytes(out)[: int(state[thin_kernels.AT])]
            outcomes.append((status, done, written, list(facts[: done * thin_kernels.FACTS])))
        assert outcomes[0] == outcomes[1]
