"""Offsets of the source at the target: never behind a record that a reader has not seen; exact where that is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import MirrorError
from magicbyte.tools.mirror.offset_map import MirrorOffsetMap, OffsetRun, Track, line, read_lines

Set = tuple[list[int], bool, bool, bool]  # offsets; whether they are counted, the begin is known; a save after it


@st.composite
def sets(draw: st.DrawFn) -> list[Set]:
    found, at = list[Set](), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 12))):
        offsets = []
        for gap in draw(st.lists(st.sampled_from([0, 0, 0, 0, 0, 1, 3]), min_size=1, max_size=5)):
            offsets.append(at + gap)
            at += gap + 1
        found.append((offsets, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())))
        at += draw(st.sampled_from([0, 0, 0, 2]))
    return found


def follow(found: list[Set], base: int) -> tuple[MirrorOffsetMap, OffsetRun, list[int]]:
    """Copy sets to a target that has `base` records; return the map, the end, and which offset was copied where."""
    track, known, copied, following = Track(), MirrorOffsetMap(), list[int](), found[0][0][0]
    for offsets, counted, begin_known, saved in found:
        first = offsets[0] if begin_known else following
        following = offsets[-1] + 1
        track.copied(first, following, len(offsets) if counted else -1, base + len(copied))
        copied += offsets
        if saved:
            for run in track.take():
                known.add(run)
    for run in track.take():
        known.add(run)
    return known, OffsetRun(following, base + len(copied)), copied


@given(found=sets(), base=st.integers(0, 3))
def test_no_reader_continues_after_a_record_that_it_has_not_seen(found: list[Set], base: int) -> None:
    known, end, copied = follow(found, base)
    for offset in range(end.source + 3):
        right = base + sum(each < offset for each in copied)
        told = known.translate(offset, end)
        assert told.offset <= right
        if told.exact:
            assert told.offset == right


@given(found=sets())
def test_where_all_is_counted_and_no_set_has_holes_every_offset_is_exact(found: list[Set]) -> None:
    whole = [([*range(offsets[0], offsets[0] + len(offsets))], True, True, saved) for offsets, _, _, saved in found]
    known, end, copied = follow(whole, 0)
    for offset in range(end.source + 1):
        told = known.translate(offset, end)
        assert (told.offset, told.exact) == (sum(each < offset for each in copied), True)


def test_a_source_without_holes_needs_one_run() -> None:
    known, end, _ = follow([([*range(at, at + 10)], at % 20 > 0, True, at % 30 == 0) for at in range(0, 1000, 10)], 7)
    assert [run for run in known.runs() if not run.exact] == []
    track = Track()
    for at in range(0, 1000, 10):
        track.copied(at, at + 10, 10, 7 + at)
    assert track.take() == [OffsetRun(0, 7)]
    assert end == OffsetRun(1000, 1007)


def test_after_a_set_in_parts_offsets_are_unknown_until_the_next_set() -> None:
    track = Track()
    track.copied(0, 10, 10, 0)
    track.copied(10, 20, 10, 10, together=False)
    known = MirrorOffsetMap(track.take())
    assert known.translate(15, OffsetRun(30, 40)) == (10, False, True)
    assert known.translate(25, OffsetRun(30, 40)) == (10, False, True)
    track.copied(22, 30, 8, 32)
    for run in track.take():
        known.add(run)
    assert known.translate(25, OffsetRun(30, 40)) == (35, True, True)
    assert known.translate(21, OffsetRun(30, 40)) == (10, False, True)


def test_what_is_not_copied_yet_becomes_the_end() -> None:
    known = MirrorOffsetMap([OffsetRun(0, 100)])
    assert known.translate(50, OffsetRun(40, 140)) == (140, False, False)
    assert known.translate(40, OffsetRun(40, 140)) == (140, True, False)
    assert known.translate(39, OffsetRun(40, 140)) == (139, True, True)


def test_a_set_that_was_not_counted_stands_at_its_first_record_until_the_next_one_tells() -> None:
    track = Track()
    track.copied(0, 10, 10, 0)
    track.copied(10, 20, -1, 10)
    known = MirrorOffsetMap(track.take())
    assert known.translate(15, OffsetRun(20, 11)) == (10, False, True)
    track.copied(20, 30, 10, 20)
    for run in track.take():
        known.add(run)
    assert known.translate(15, OffsetRun(30, 30)) == (15, True, True)


def test_lines_of_a_file_give_the_maps_back() -> None:
    runs = [
        ("a", 0, OffsetRun(0, 5)),
        ("b", 3, OffsetRun(7, 7, exact=False)),
        ("a", 0, OffsetRun(9, 8)),
        ("a", 0, OffsetRun(9, 9)),
    ]
    found = read_lines(line(*each) for each in runs)
    assert {key: each.runs() for key, each in found.items()} == {
        ("a", 0): [OffsetRun(0, 5), OffsetRun(9, 9)],
        ("b", 3): [OffsetRun(7, 7, exact=False)],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        '{"topic": "a", "partition": 0, "source": 1, "target": 2}',
        '{"topic": "a", "partition": 0, "source": -1, "target": 2, "exact": true}',
        '{"topic": "a", "partition": 0, "source": 1, "target": "2", "exact": true}',
    ],
)
def test_another_line_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(MirrorError, match="line 2: expected a run of an offset map, found"):
        read_lines([line("a", 0, OffsetRun(0, 0)), text])
