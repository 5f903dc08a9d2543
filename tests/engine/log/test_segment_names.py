"""A file's name only suggests where its offsets begin: no sound batch is lost for the name of its file."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import decode_rows
from magicbyte.engine.records.extent import OFFSETS_AND_TIMES
from magicbyte.engine.records.message import build_message, build_wrapper
from magicbyte.tools.offline.findings import ORDER, Depth, Severity
from magicbyte.tools.offline.salvage import SalvageOptions, SalvageReport, salvage_logs
from magicbyte.tools.offline.verify import verify
from simulation import damaged_logs

FAR = 2**31 + 5
Segments = dict[int, list[int]]

ARRANGED: dict[str, Segments] = {
    "named 0": {0: [FAR, FAR + 1, FAR + 2]},
    "named 0, across the limit of an index": {0: [2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1]},
    "named above its first offset": {FAR: [0, 1, 2, 3]},
    "all named above their first offsets": {1000: [0, 1, 2], 2000: [3, 4, 5]},
    "names exchanged": {0: [500, 501, 502], 500: [0, 1, 2]},
    "names of single batches exchanged": {0: [500], 500: [0], 600: [600]},
    "the next one named too low": {0: [0, 1, 2, 3, 4], 2: [10, 11, 12]},
    "an empty one named too low": {0: [0, 1, 2, 3, 4], 2: []},
    "merged by a cleaner": {0: [0, FAR, 2 * FAR]},
    "merged by a cleaner, with later segments": {0: [0, FAR, 2 * FAR], 3 * FAR: [3 * FAR], 3 * FAR + 1: [3 * FAR + 1]},
}

SHOW_NO_COMPACTION = {name for name in ARRANGED if name.startswith("names of single batches")}
"""Gaps between their segments may be lost segments: no segment of a log with so few records has a gap in it."""


def entry(offset: int, form: str) -> bytes:
    """Return an entry of one record."""
    if form == "batch":
        return damaged_logs.batch(random.Random(offset), 1, Codec.NONE, None, offset)
    if form == "message":
        return build_message(1, offset, 5, b"k", b"v")
    return build_wrapper(1, Codec.GZIP, build_message(1, 0, 5, b"k", b"v"), offset, 5)


def written(folder: Path, segments: Segments, form: str = "batch") -> PartitionDirectory:
    """Write segments of these offsets under these base offsets."""
    folder.mkdir(parents=True)
    for base, offsets in segments.items():
        (folder / f"{base:020}.log").write_bytes(b"".join(entry(offset, form) for offset in offsets))
    (partition,) = discover(folder)
    return partition


def salvaged(partition: PartitionDirectory, out: Path) -> tuple[SalvageReport, PartitionDirectory]:
    (done,) = salvage_logs({TopicPartition("t", 0): partition}, out, SalvageOptions())
    (new,) = discover(done.folder)
    return done.report, new


def offsets_of(partition: PartitionDirectory) -> list[int]:
    return [
        int(offset)
        for chunk in SegmentReader(partition).chunks()
        for columns in decode_rows(chunk.table, list(range(len(chunk.table))), OFFSETS_AND_TIMES)
        for offset in columns.offset
    ]


@pytest.mark.parametrize("form", ["batch", "message", "wrapper"])
@pytest.mark.parametrize("arranged", ARRANGED)
def test_every_sound_entry_is_salvaged_whatever_the_names_of_the_files(
    arranged: str, form: str, tmp_path: Path
) -> None:
    segments = ARRANGED[arranged]
    report, new = salvaged(written(tmp_path / "t-0", segments, form), tmp_path / "out")
    assert offsets_of(new) == sorted(offset for offsets in segments.values() for offset in offsets)
    assert (report.lost, report.aside) == ([], [])
    found = {each.what for each in verify([new], depth=Depth.DEEP) if each.severity is not Severity.NOTE}
    assert found == ({"segment"} if arranged in SHOW_NO_COMPACTION else set())


@pytest.mark.parametrize("arranged", ARRANGED)
def test_the_segments_of_the_new_log_are_named_so_that_their_indexes_hold_all_offsets(
    arranged: str, tmp_path: Path
) -> None:
    _, new = salvaged(written(tmp_path / "t-0", ARRANGED[arranged]), tmp_path / "out")
    bases = [segment.base_offset for segment in new.segments]
    for base, following in zip(bases, [*bases[1:], 1 << 62], strict=True):
        assert all(offset - base <= MAX_RELATIVE for offset in offsets_of(new) if base <= offset < following)
    assert bases[0] <= min(offsets_of(new))


@pytest.mark.parametrize("arranged", ARRANGED)
def test_verify_names_the_file_and_calls_no_entry_out_of_order(arranged: str, tmp_path: Path) -> None:
    findings = list(verify([written(tmp_path / "t-0", ARRANGED[arranged])], depth=Depth.QUICK))
    assert not [each for each in findings if each.advice == ORDER]
    are_wrong = {"base offset in the file's name", "last offset of the segment"}
    gaps = {"segment"} if arranged in SHOW_NO_COMPACTION else set()
    assert {each.what for each in findings} <= are_wrong | gaps
    assert bool(findings) == ("too low" not in arranged)  # such a name is possible for what is in the file


@pytest.mark.parametrize("arranged", ["named above its first offset", "names exchanged"])
def test_damage_at_the_beginning_of_a_misnamed_file_costs_only_the_damaged_batch(arranged: str, tmp_path: Path) -> None:
    segments = ARRANGED[arranged]
    partition = written(tmp_path / "t-0", segments)
    for segment in partition.segments:
        path = Path(segment.log.path)
        path.write_bytes(path.read_bytes()[:30] + b"#damage#" + path.read_bytes()[38:])
    report, new = salvaged(partition, tmp_path / "out")
    assert offsets_of(new) == sorted(offset for offsets in segments.values() for offset in offsets[1:])
    assert len(report.lost) == len(segments)
    assert report.aside == []


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize("bit", range(64))
def test_a_changed_offset_contradicts_no_name_that_the_next_entry_agrees_with(
    bit: int, at: int, tmp_path: Path
) -> None:
    segments = {0: [0, 1, 2, 3, 4], 1000: [1000, 1001, 1002, 1003, 1004], 2000: [2000, 2001]}
    partition = written(tmp_path / "t-0", segments)
    path = Path(partition.segments[1].log.path)
    content = bytearray(path.read_bytes())
    position = at * (len(content) // 5) if at == 0 else content.rindex(struct.pack(">q", 1000 + at))
    struct.pack_into(">Q", content, position, 1000 + at ^ 1 << bit)
    path.write_bytes(content)
    report, new = salvaged(partition, tmp_path / "out")
    whole = [offset for offsets in segments.values() for offset in offsets if offset != 1000 + at]
    assert [offset for offset in offsets_of(new) if offset in whole] == whole
    assert len(offsets_of(new)) + sum(each.entries for each in report.aside) == len(whole) + 1


def test_two_files_with_the_same_offsets_give_them_once(tmp_path: Path) -> None:
    report, new = salvaged(written(tmp_path / "t-0", {0: [0, 1, 2, 3], 500: [0, 1, 2, 3, 4]}), tmp_path / "out")
    assert offsets_of(new) == [0, 1, 2, 3, 4]
    assert [aside.offsets for aside in report.aside] == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    "segments",
    [
        {0: [0, 1, 2], 10: [10, 11, 12], 20: [20, 21, 22], 30: [10, 11, 12, 30, 31, 32]},
        {0: [20, 21, 22, 0, 1, 2], 10: [10, 11, 12], 20: [20, 21, 22], 30: [30, 31, 32]},
        {0: [30, 31, 32, 0, 1, 2], 10: [10, 11, 12], 20: [20, 21, 22], 30: [30, 31, 32]},
    ],
    ids=["of an earlier segment", "of a later segment", "of the last segment"],
)
def test_entries_of_another_segment_in_front_cost_none_of_those_that_the_name_announces(
    segments: Segments, tmp_path: Path
) -> None:
    report, new = salvaged(written(tmp_path / "t-0", segments), tmp_path / "out")
    assert offsets_of(new) == sorted({offset for offsets in segments.values() for offset in offsets})
    assert (report.lost, sum(aside.entries for aside in report.aside)) == ([], 3)


def test_the_last_name_of_a_file_of_which_nothing_is_taken_is_the_log_end_offset(tmp_path: Path) -> None:
    """Its offsets are others', so it is not the last one to be read."""
    segments = {0: [0, 1, 2], 100: [100, 101], 500: [0, 1, 2]}
    report, new = salvaged(written(tmp_path / "t-0", segments), tmp_path / "out")
    assert offsets_of(new) == [0, 1, 2, 100, 101]
    assert ([segment.base_offset for segment in new.segments], report.lost) == ([0, 100, 500], [])


def test_a_misnamed_segment_ends_the_range_of_the_one_before_it_where_its_entries_begin(tmp_path: Path) -> None:
    segments = {0: [0, 1, 2, 3, 900], 500: [500, 501, 502], 1000: [5, 6, 7]}
    report, new = salvaged(written(tmp_path / "t-0", segments), tmp_path / "out")
    assert offsets_of(new) == [0, 1, 2, 3, 5, 6, 7, 500, 501, 502]
    assert [aside.offsets for aside in report.aside] == [(900, 900)]
