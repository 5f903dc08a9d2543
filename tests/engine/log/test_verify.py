"""What verify finds, and that it finds nothing in sound logs."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import golden_data
from fuzz import agreement
from golden_data import Case
from magicbyte.engine.codecs import Codec, Lz4Header, compress
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import LeaderEpoch, format_leader_epochs, format_offset_checkpoint
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message
from magicbyte.tools.offline.findings import Depth, Finding, Severity
from magicbyte.tools.offline.verify import verify
from magicbyte.tools.offline.writer import LogDirectoryWriter
from simulation import damaged_logs

TORN = {"crash-tear.crashed", "crash-flip.crashed", "crash-zeros.crashed"}


def findings(path: Path, depth: Depth = Depth.DEEP, **options) -> list[Finding]:
    return list(verify(discover([str(path)]), depth=depth, **options))


def serious(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.severity is not Severity.NOTE]


@pytest.mark.parametrize("case", golden_data.log_cases(), ids=str)
def test_a_log_of_a_real_broker_has_findings_only_where_it_was_damaged(case: Case):
    found = serious(findings(case.partition_dir(named=True), threads=2))
    if case.name in TORN:
        logs = [each for each in found if each.path.endswith(".log")]
        assert len(logs) == 1
        expected = "crc" if "flip" in case.name else "end of the log"
        assert logs[0].what.startswith(expected)
        segment = logs[0].path.rpartition("/")[2]
        size = len(case.segments()[segment])
        assert logs[0].end == size
        assert all(each.path.endswith(("index", segment)) for each in found)
    else:
        assert found == []


@pytest.mark.parametrize("depth", list(Depth))
def test_each_depth_finds_nothing_in_a_sound_log(depth: Depth):
    for name in ("2.8.2/basic-lz4", "0.10.2.2/basic-gzip", "0.9.0.1/basic-none", "3.9.1/txn-zstd"):
        if any(case.id == name for case in golden_data.all_log_cases()):
            assert serious(findings(golden_data.log_case(name).partition_dir(named=True), depth)) == []


# ---- one fault each, in a log of our own


BATCHES = [damaged_logs.batch(damaged_logs.random.Random(at), 6, Codec.LZ4, None, 6 * at) for at in range(40)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log directory with one sound partition, t-0."""
    out = LogDirectoryWriter(tmp_path / "log")
    with out.partition("t", 0) as writer:
        for batch in BATCHES:
            writer.append(batch)
        writer.finish()
    out.finish()
    return tmp_path / "log"


def segment(log: Path) -> Path:
    return log / "t-0" / f"{0:020}.log"


def overwrite(path: Path, position: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(new)] = new
    path.write_bytes(content)


def only(log: Path, depth: Depth = Depth.USUAL) -> Finding:
    (finding,) = findings(log, depth)
    return finding


START = sum(map(len, BATCHES[:20]))


def test_a_log_written_here_is_sound(log: Path):
    assert findings(log) == []


def test_a_flipped_bit_is_found_with_its_bytes_and_offsets_and_what_lies_behind_is_checked(log: Path):
    overwrite(segment(log), START + 100, b"\xff\xff\xff")
    overwrite(segment(log), segment(log).stat().st_size - 5, b"\xff")
    first, second = findings(log, Depth.QUICK)
    assert (first.position, first.end, first.offsets) == (START, START + len(BATCHES[20]), (120, 125))
    assert (first.what, first.severity) == ("crc", Severity.ERROR)
    assert second.offsets == (234, 239)


def test_an_offset_that_goes_back_is_found(log: Path):
    overwrite(segment(log), START, struct.pack(">q", 3))
    found = only(log, Depth.QUICK)
    assert (found.what, found.position, found.offsets) == ("offset", START, (3, 8))


def test_a_leader_epoch_that_is_the_odd_one_of_three_is_found(log: Path):
    overwrite(segment(log), START + 12, struct.pack(">i", 7))
    found = [each for each in findings(log) if each.what == "leader epoch"]
    assert [(each.position, each.found) for each in found] == [(START, "7")]
    overwrite(segment(log), START + 12, struct.pack(">i", 1))
    assert [(each.position, each.found) for each in findings(log) if each.what == "leader epoch"] == [(START, "1")]


def test_a_record_count_that_no_offsets_allow_is_found(log: Path):
    with LogDirectoryWriter(log.parent / "other").partition("t", 0) as writer:
        writer.append(
            build_batch(b"\x0c\0\0\0\1\1\0" * 9, base_offset=0, last_offset_delta=3, base_timestamp=0, max_timestamp=0,
                        record_count=9)
        )  # fmt: skip
        writer.finish()
    assert [each.what for each in findings(log.parent / "other", Depth.USUAL)][:1] == ["record count"]


def test_an_index_entry_that_is_no_entry_of_the_log_is_found(log: Path):
    index = segment(log).with_suffix(".index")
    offset, position = struct.unpack_from(">ii", index.read_bytes(), 8)
    overwrite(index, 8, struct.pack(">ii", offset, position + 1))
    found = only(log)
    assert (found.path, found.position, found.what) == (str(index), 8, "offset index")
    overwrite(index, 8, struct.pack(">ii", offset - 7, position))
    assert only(log).offsets == (offset - 7, offset - 7)


def test_a_time_index_that_would_hide_records_is_found(log: Path):
    index = segment(log).with_suffix(".timeindex")
    timestamp, offset = struct.unpack_from(">qi", index.read_bytes(), 0)
    overwrite(index, 0, struct.pack(">qi", timestamp - 1, offset))
    found = only(log)
    assert (found.path, found.position, found.severity) == (str(index), 0, Severity.ERROR)


def test_a_damaged_index_and_a_damaged_snapshot_are_found(log: Path):
    overwrite(segment(log).with_suffix(".index"), 0, b"\x7f")
    (snapshot,) = (log / "t-0").glob("*.snapshot")
    overwrite(snapshot, 3, b"\xee")
    assert {Path(each.path).suffix for each in findings(log)} == {".index", ".snapshot"}


def test_checkpoints_beyond_the_end_of_the_log_are_found(log: Path):
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        (log / name).write_bytes(format_offset_checkpoint({TopicPartition("t", 0): 241}))
    found = only(log)
    assert (found.what, found.offsets, found.path) == ("end of the log", (240, 240), str(log / "t-0"))
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        (log / name).unlink()
    (log / checkpoints.CLEANER).write_bytes(format_offset_checkpoint({TopicPartition("t", 0): 241}))
    assert only(log).found == "241"


def test_leader_epochs_that_the_batches_contradict_are_found(log: Path):
    (log / "t-0" / checkpoints.LEADER_EPOCHS).write_bytes(format_leader_epochs([LeaderEpoch(2, 0)]))
    found = only(log)
    assert found.expected.startswith("epoch 3 from offset 0")


def test_leftovers_of_crashes_and_missing_indexes_are_found(log: Path):
    segment(log).with_suffix(".index").unlink()
    (log / "t-0" / "00000000000000000000.log.swap").write_bytes(b"x")
    (log / "t-0" / "00000000000000000000.log.deleted").write_bytes(b"x")
    (log / "t-0" / "00000000000000000077.index").write_bytes(b"")
    found = {(each.severity, each.what) for each in findings(log)}
    assert found == {
        (Severity.WARNING, "offset index"),
        (Severity.WARNING, "file of unfinished work"),
        (Severity.NOTE, "file that was being deleted"),
        (Severity.WARNING, "index"),
    }


def wrapper(magic: int, header: Lz4Header) -> bytes:
    inner = build_message(magic, 0, 1000, b"k", b"v" * 50)
    value = compress(Codec.LZ4, inner, lz4_header=header)
    body = struct.pack(">bb", magic, 3) + (struct.pack(">q", 1000) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, golden_crc(body)) + body


def golden_crc(body: bytes) -> int:
    from magicbyte.engine.wire.checksum import crc32

    return crc32(body)


@pytest.mark.parametrize(
    ("magic", "header", "severity"),
    [
        (1, Lz4Header.BROKEN, Severity.ERROR),
        (1, Lz4Header.CORRECT, None),
        (0, Lz4Header.BROKEN, None),
        (0, Lz4Header.CORRECT, Severity.NOTE),
    ],
)
def test_lz4_header_checksums_are_judged_by_the_magic_byte(tmp_path: Path, magic, header, severity):
    folder = damaged_logs.write(tmp_path / "t-0", wrapper(magic, header))
    (folder / f"{0:020}.index").write_bytes(b"")
    found = findings(folder, Depth.USUAL)
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_only_deep_sees_that_a_wrapper_has_the_wrong_timestamp(tmp_path: Path):
    content = bytearray(wrapper(1, Lz4Header.CORRECT))
    struct.pack_into(">q", content, 18, 999)
    struct.pack_into(">I", content, 12, golden_crc(bytes(content[16:])))
    folder = damaged_logs.write(tmp_path / "t-0", content)
    (folder / f"{0:020}.index").write_bytes(b"")
    assert findings(folder, Depth.USUAL) == []
    assert [each.what for each in findings(folder)] == ["timestamp of a wrapper"]


def test_a_wrong_crc_inside_a_wrapper_is_found_by_deep_alone(tmp_path: Path):
    inner = bytearray(build_message(1, 0, 1000, b"k", b"v" * 50))
    inner[12] ^= 1
    value = compress(Codec.GZIP, bytes(inner))
    body = struct.pack(">bbq", 1, 1, 1000) + struct.pack(">ii", -1, len(value)) + value
    folder = damaged_logs.write(tmp_path / "t-0", struct.pack(">qiI", 0, len(body) + 4, golden_crc(body)) + body)
    (folder / f"{0:020}.index").write_bytes(b"")
    assert findings(folder, Depth.USUAL) == []
    assert [each.what for each in findings(folder)] == ["crc of a message"]


def test_the_findings_are_the_same_with_any_number_of_threads(log: Path):
    for at in range(3, 40, 7):
        overwrite(segment(log), sum(map(len, BATCHES[:at])) + 90, b"\xee\xee")
    assert findings(log, threads=1) == findings(log, threads=4)


RNG = random.Random(12)
BLOCKS = [damaged_logs.batch(RNG, 5, Codec.NONE, None, 5 * at) for at in range(12)]


@pytest.mark.parametrize(
    ("order", "moved"),
    [
        pytest.param([0, 1, 2, 8, 9, 3, 4, 5, 6, 7, 10, 11], slice(3, 5), id="a block from behind"),
        pytest.param([0, 1, 4, 5, 6, 7, 8, 2, 3, 9, 10, 11], slice(7, 9), id="a block from in front"),
        pytest.param([0, 1, 2, 3, 4, 2, 3, 5, 6, 7, 8, 9], slice(5, 7), id="a block twice"),
        pytest.param([3, 4, 0, 1, 2, 5, 6, 7, 8, 9, 10, 11], slice(0, 2), id="a block at the start"),
        pytest.param([0, 1, 2, 3, 9, 4, 5, 6, 7, 8, 10, 11], slice(4, 5), id="one batch"),
    ],
)
@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_of_blocks_that_changed_places_the_smaller_one_is_named(
    order: list[int], moved: slice, form: str, tmp_path: Path
):
    path = damaged_logs.write(tmp_path / "t-0", b"".join(BLOCKS[at] for at in order))
    with agreement.kernels(form):
        (found,) = verify(discover([str(path)]), depth=Depth.QUICK)
    sizes = [len(BLOCKS[at]) for at in order]
    assert (found.position, found.end) == (sum(sizes[: moved.start]), sum(sizes[: moved.stop]))
    assert found.offsets == (5 * order[moved][0], 5 * order[moved][-1] + 4)
    assert found.what == "offset"


def enriched(offset: int, *, wrapped: int) -> bytes:
    """A wrapper of so many messages; one without for 0."""
    if not wrapped:
        return build_enriched_message(offset, b"k", b"value")
    inside = b"".join(build_enriched_message(at, b"k", b"value") for at in range(wrapped))
    return build_enriched_wrapper(Codec.GZIP, inside, num_messages=wrapped, non_keyed=False, start_offset=offset)


@pytest.mark.parametrize("wrapped", [0, 1, 2, 7])
@pytest.mark.parametrize("depth", Depth)
def test_an_enriched_log_is_sound_whatever_it_ends_in(depth: Depth, wrapped: int, tmp_path: Path):
    end = 4 + max(wrapped, 1)
    writer = LogDirectoryWriter(tmp_path)
    with writer.partition("orders", 0, dialect=Dialect.ENRICHED) as partition:
        partition.append(enriched(0, wrapped=3) + enriched(3, wrapped=0) + enriched(4, wrapped=wrapped))
        assert partition.finish().end_offset == end
    writer.finish()
    assert findings(tmp_path, depth) == []
    path = tmp_path / checkpoints.HIGH_WATERMARK
    path.write_bytes(format_offset_checkpoint({TopicPartition("orders", 0): end + 1}))
    (found,) = findings(tmp_path, depth)
    assert (found.what, found.offsets) == ("end of the log", (end, end))


def test_a_loss_after_an_enriched_wrapper_begins_after_its_last_message(tmp_path: Path):
    damaged = bytearray(enriched(7, wrapped=2))
    damaged[-1] ^= 1
    content = enriched(0, wrapped=7) + damaged + enriched(9, wrapped=2)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(content)
    for depth in Depth:
        assert serious(findings(tmp_path, depth, dialect=Dialect.ENRICHED))[0].offsets == (7, 8)


SECTION = b"".join(bytes((12, 0, 0, 2 * delta, 1, 1, 0)) for delta in range(20))


def lz4_with_checksum() -> bytes:
    import lz4.frame

    whole = lz4.frame.compress(SECTION, content_checksum=True, block_linked=False, store_size=False)
    return whole[:-4] + bytes(4)


READ_BY_KAFKA = {
    "bytes after a gzip member": (Codec.GZIP, compress(Codec.GZIP, SECTION) + bytes(7)),
    "the start of a gzip member": (Codec.GZIP, compress(Codec.GZIP, SECTION) + b"\x1f\x8b\x08"),
    "bytes after a snappy block": (Codec.SNAPPY, compress(Codec.SNAPPY, SECTION) + b"abc"),
    "a wrong checksum of LZ4 content": (Codec.LZ4, lz4_with_checksum()),
}


@pytest.mark.parametrize("name", READ_BY_KAFKA)
def test_what_kafka_reads_though_its_codec_is_odd_is_a_note_of_a_deep_check_and_no_damage(tmp_path: Path, name: str):
    codec, payload = READ_BY_KAFKA[name]
    folder = tmp_path / "t-0"
    folder.mkdir()
    odd, plain = (
        build_batch(each, base_offset=base, last_offset_delta=19, base_timestamp=5, max_timestamp=5, record_count=20,
                    attributes=attributes)
        for each, base, attributes in ((payload, 0, codec), (SECTION, 20, 0))
    )  # fmt: skip
    (folder / f"{0:020}.log").write_bytes(odd + plain)
    about_codec = [each for each in findings(folder) if each.what.startswith(("gzip", "snappy", "lz4"))]
    assert [(each.severity, each.position, each.offsets) for each in about_codec] == [(Severity.NOTE, 0, (0, 19))]
    assert not [each for each in findings(folder) if each.severity is Severity.ERROR]
    assert about_codec[0] not in findings(folder, Depth.USUAL)
