"""LZ4 in kernels: frames are read as the library reads them, and written from hints of any worth."""

import contextlib
import random
from typing import Any

import lz4.frame
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from magicbyte.engine.codecs import Codec, compress, decompress
from magicbyte.engine.codecs import lz4_kernels as lz4k
from magicbyte.engine.codecs.lz4_frame_kernels import BLOCK
from magicbyte.engine.errors import CorruptRecordError

FORMS = ["plain", "compiled"]
CORRECT = 0x82
GUARD = 40  # bytes around each output, to be left alone

WORDS = [b"alpha", b"beta ", b"gamma-", b"delta;", b"epsilon ", b"zeta{", b"eta}", b"theta...."]
RNG = random.Random(8)
TEXT = b"".join(RNG.choices(WORDS, k=8000))
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "a run": b"a" * 100_000,
    "a short run": b"ab" * 20,
    "text": TEXT[:20_000],
    "noise": RNG.randbytes(5000),
    "long literals": RNG.randbytes(700) + TEXT[:900] + RNG.randbytes(300),
    "long matches": TEXT[:900] * 3,
    "several blocks": TEXT + RNG.randbytes(70_000) + TEXT,
}


def in_form(form: str, *arguments: Any) -> list[Any]:
    """Arguments as a form of the kernels takes them: lists of int32, ("state", list), bytes, room as bytearray."""
    if form == "plain":
        return [each[1] if isinstance(each, tuple) else each for each in arguments]
    made: list[Any] = []
    for each in arguments:
        match each:
            case tuple():
                made.append(np.array(each[1], np.int64))
            case list():
                made.append(np.array(each, np.int32))
            case bytes() | bytearray():
                made.append(np.frombuffer(each, np.uint8))
            case _:
                made.append(each)
    return made


def run(form: str, kernel: Any, *arguments: Any) -> int:
    return int((kernel if form == "compiled" else kernel.py_func)(*arguments))


def read(form: str, frame: bytes, room: int, matches: int) -> tuple[int, bytes, list[int]]:
    """Status, content and matches of a frame."""
    out = bytearray(b"\xaa" * (GUARD + room + GUARD))
    data, view, notes, state = in_form(form, b"." + frame, out, [0] * (3 * matches), ("state", [GUARD, 0, 0]))
    view = view[: GUARD + room] if form == "compiled" else memoryview(view)[: GUARD + room]
    status = run(form, lz4k.read_frame, data, 1, 1 + len(frame), CORRECT, view, GUARD + room, notes, state)
    assert out[:GUARD] == out[GUARD + room :] == b"\xaa" * GUARD
    end, count = (int(state[at]) for at in (lz4k.AT, lz4k.COUNT))
    return status, bytes(out[GUARD:end]), [int(number) for number in notes[: 3 * count]]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_frame_gives_its_content_and_where_that_repeats(name: str, form: str) -> None:
    plain = SAMPLES[name]
    status, content, matches = read(form, compress(Codec.LZ4, plain), len(plain), len(plain) // 4 + 1)
    assert (status, content) == (lz4k.DONE, plain)
    behind = 0
    for position, size, distance in zip(matches[::3], matches[1::3], matches[2::3], strict=True):
        assert behind <= position
        behind = position + size
        for at in range(position, behind):
            assert plain[at] == plain[at - distance]
    assert (behind > 0) == (name not in ("nothing", "one byte", "noise"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["text", "long literals", "several blocks"])
def test_what_does_not_fit_is_said_and_nothing_is_written_behind_the_room(name: str, form: str) -> None:
    plain = SAMPLES[name]
    frame = compress(Codec.LZ4, plain)
    for room in (0, 1, 100, len(plain) // 2, len(plain) - 1):
        assert read(form, frame, room, len(plain))[0] == lz4k.FULL
    assert read(form, frame, len(plain), 3)[0] == lz4k.FULL


def test_frames_of_another_kind_and_damaged_ones_are_left_to_others() -> None:
    sized = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
    linked = lz4.frame.compress(2 * TEXT, block_linked=True, store_size=False)
    frame = compress(Codec.LZ4, TEXT[:1000])
    wrong = [sized, linked, frame[:-1], frame[:-4], frame[:6], b"", frame[:6] + b"\x1a" + frame[7:], b"x" + frame[1:]]
    for each in wrong:
        for form in FORMS:
            assert read(form, each, 2 * len(TEXT), len(TEXT))[0] == lz4k.ODD


@tries(300)
@given(data=st.data())
def test_a_changed_frame_is_read_as_the_library_reads_it_or_not_at_all(data: st.DataObject) -> None:
    plain = data.draw(st.sampled_from([TEXT[:300], b"ab" * 30, SAMPLES["long literals"], TEXT[:60] * 5]))
    frame = bytearray(compress(Codec.LZ4, plain))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(7, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255) | st.just(frame[at] ^ 1))
    del frame[data.draw(st.integers(7, 3 * len(frame))) :]
    found = [read(form, bytes(frame), 2000, 600) for form in FORMS]
    assert found[0] == found[1] or found[0][0] == found[1][0] != lz4k.DONE
    if found[0][0] == lz4k.DONE:
        assert decompress(Codec.LZ4, bytes(frame), limit=70_000) == found[0][1]
    elif found[0][0] == lz4k.FULL:
        with contextlib.suppress(CorruptRecordError):  # it may be damaged further on
            assert len(decompress(Codec.LZ4, bytes(frame), limit=1 << 20)) > 2000


def written(form: str, data: bytes, matches: list[int], moves: list[int], leads: list[int], period: int = 1) -> bytes:
    room = lz4k.room(len(data), 1)
    out = bytearray(b"\xaa" * (GUARD + room + GUARD))
    source, notes, moved, places, view, state = in_form(
        form, data, matches, moves, [*leads, len(data)], out, ("state", [0, 0, 0])
    )
    end = run(
        form,
        lz4k.write_frame,
        *(source, 0, len(data), CORRECT, notes, len(matches) // 3, moved, places, period, view, GUARD, state),
    )
    assert out[:GUARD] == out[GUARD + room :] == b"\xaa" * GUARD
    assert end <= GUARD + room
    return bytes(out[GUARD:end])


def recast(cells: list[bytes], old_gap: bytes, new_gap: bytes) -> tuple[bytes, bytes, list[int], list[int]]:
    """The same cells behind other gaps: old data, new data, moves, and where each gap begins."""
    old, new, moves, leads = bytearray(), bytearray(), list[int](), list[int]()
    for cell in cells:
        leads.append(len(new))
        moves += [lz4k.GONE - left for left in range(len(old_gap), 0, -1)]
        old += old_gap
        new += new_gap
        moves += [len(new) - len(old)] * len(cell)
        old += cell
        new += cell
    return bytes(old), bytes(new), moves, leads


@pytest.mark.parametrize(
    ("old_gap", "new_gap"), [(b"0123456789", b"-"), (b"-", b"0123456789"), (b"", b""), (b"+", b"")]
)
def test_cells_behind_other_gaps_shrink_nearly_as_much_as_before(old_gap: bytes, new_gap: bytes) -> None:
    rng = random.Random(3)
    cells = [b"".join(rng.choices(WORDS, k=rng.randrange(40))) for _ in range(2500)]
    old, new, moves, leads = recast(cells, old_gap, new_gap)
    assert len(new) > 4 * BLOCK
    status, content, matches = read("compiled", compress(Codec.LZ4, old), len(old), len(old))
    assert (status, content) == (lz4k.DONE, old)
    frames = [written(form, new, matches, moves, leads) for form in FORMS]
    assert frames[0] == frames[1]
    assert decompress(Codec.LZ4, frames[0], limit=len(new)) == new
    assert len(frames[0]) < 1.05 * len(compress(Codec.LZ4, new))


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 17, 40, 1 << 16, (1 << 16) + 1, (1 << 16) + 12])
def test_without_a_hint_all_is_stored(size: int) -> None:
    data = bytes(size)
    frame = written("compiled", data, [], [], [])
    assert decompress(Codec.LZ4, frame, limit=size) == data
    assert len(frame) == size + 11 + 4 * -(-size // BLOCK)


@tries(300)
@given(data=st.data(), alphabet=st.sampled_from((b"a", b"ab", b"abcdefgh")), size=st.integers(0, 300))
def test_no_hint_however_wrong_changes_the_data(data: st.DataObject, alphabet: bytes, size: int) -> None:
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    new = bytes(rng.choices(alphabet, k=size))
    total = rng.randrange(300)
    moves, place = [], 0
    for at in range(total):
        if place >= size or rng.random() < 0.1:
            moves.append(lz4k.GONE - 1 - rng.randrange(3))
        else:
            moves.append(place - at)
            place += 1 if rng.random() < 0.9 else 2
    matches, position = list[int](), 0
    while (position := position + rng.randrange(1, 30)) < total - 4:
        length = min(rng.randrange(4, 40), total - position)
        matches += position, length, rng.randrange(1, position + 1)
        position += length
    leads = sorted(rng.sample(range(size), min(size, rng.randrange(5))))
    period = rng.randrange(1, 3)
    frames = [written(form, new, matches, moves, leads, period) for form in FORMS]
    assert frames[0] == frames[1]
    assert decompress(Codec.LZ4, frames[0], limit=size) == new
