"""Blocks that threads walk: the same entries and the same damage as one walk finds, wherever blocks begin and end."""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from golden_data import log_cases
from magicbyte.access.workers import in_order
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files import entry_search, reader, resync
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.log.files.reader import Buffers, ScanRules, SegmentReader, read_chunks
from magicbyte.engine.log.files.resync import Sound, walk
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.tools.offline import blocks as archive_blocks
from magicbyte.tools.offline.blocks import Block, blocks_of, read_blocks

LIMIT = 5 << 20  # beyond a chunk: what is smaller may come with others, and is refused when it is decoded
SEGMENTS = [
    path
    for case in log_cases()[::9]
    if "enriched" not in case.name
    for path in sorted(case.partition_dir().glob("*.log"))
    if path.stat().st_size > 4000
][::4]


def chunks_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let chunks and blocks have so many bytes."""
    for module in (reader, archive_blocks):
        monkeypatch.setattr(module, "CHUNK_BYTES", size)


def entries(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """Yield position in the file and size of each entry."""
    for position, size in zip(chunk.table.position, chunk.table.size, strict=True):
        yield chunk.position + int(position), int(size)


def by_chunks(path: Path) -> list[object]:
    """Return what one walk finds."""
    damage: list[object] = []
    with LocalFile(str(path)) as file:
        chunks = read_chunks(file, limit=LIMIT, on_damage=lambda error: damage.append(str(error)))
        found: list[object] = [each for chunk in chunks for each in entries(chunk)]
    return found + damage


def by_blocks(path: Path, threads: int) -> list[object]:
    """Return what threads find."""
    with LocalFile(str(path)) as file:
        blocks = read_blocks(file, Buffers(), ScanRules(Dialect.KAFKA, LIMIT))
        steps = list(in_order(blocks, lambda block: iter(block.walk()), threads))
    damage: list[object] = [str(step) for step in steps if isinstance(step, CorruptRecordError)]
    return [each for step in steps if isinstance(step, Chunk) for each in entries(step)] + damage


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [50, 1000, 70_000])
def test_blocks_have_the_entries_of_one_walk(monkeypatch: pytest.MonkeyPatch, threads: int, size: int) -> None:
    for path in SEGMENTS:
        chunks_of(monkeypatch, 4 << 20)
        expected = by_chunks(path)
        chunks_of(monkeypatch, size)
        assert by_blocks(path, threads) == expected, path


@pytest.mark.parametrize("known", [0, 1])
def test_a_buffer_in_use_is_given_to_no_other_thread(monkeypatch: pytest.MonkeyPatch, known: int) -> None:
    class Contended(deque[bytearray]):
        """Says that there is one more than there is: another thread has it just now."""

        def __len__(self) -> int:
            return known + 1

        def popleft(self) -> bytearray:
            if self.taken == known:
                raise IndexError
            self.taken += 1
            return super().popleft()

        taken = 0

    buffers = Buffers()
    in_use = [buffers.unused(100) for _ in range(known)]
    monkeypatch.setattr(buffers, "_known", Contended(buffers._known))
    with buffers.unused(100) as view:
        assert len(view) >= 100
        assert all(each.obj is not view.obj for each in in_use)


@pytest.mark.parametrize("slack", [0, 20, 300])
@pytest.mark.parametrize("room", [0, 500])
def test_entries_that_continue_after_a_block_are_returned_whole(
    monkeypatch: pytest.MonkeyPatch, slack: int, room: int
) -> None:
    monkeypatch.setattr(reader.Window, "SLACK", min(slack, room))
    monkeypatch.setattr(reader.Window, "ROOM", room)
    for path in SEGMENTS[::3]:
        expected = by_chunks(path)
        chunks_of(monkeypatch, 700)
        assert by_blocks(path, 2) == expected, path
        monkeypatch.undo()


def damaged(path: Path, damage: str) -> bytes:
    """Return a segment with damage in its middle."""
    content = bytearray(path.read_bytes())
    positions = [each[0] for each in by_chunks(path) if isinstance(each, tuple)]
    at = positions[len(positions) // 2] if positions else 0
    match damage:
        case "cut":
            del content[at + 10 :]
        case "zeros":
            content[at:] = bytes(5000)
        case "size":
            content[at + 8 : at + 12] = (1).to_bytes(4, "big")
        case "magic":
            content[at + 16 : at + 17] = b"\x09"
        case "too large":
            content[at:at] = bytes(8) + (LIMIT + 12).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(LIMIT + 7)
    return bytes(content)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("damage", ["cut", "zeros", "size", "magic", "too large"])
def test_damage_is_reported_as_by_a_single_walk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: int, damage: str
) -> None:
    for number, path in enumerate(SEGMENTS[::4]):
        broken = tmp_path / f"{number:020}.log"
        broken.write_bytes(damaged(path, damage))
        chunks_of(monkeypatch, 4 << 20)
        expected = by_chunks(broken)
        chunks_of(monkeypatch, 3000)
        assert by_blocks(broken, threads) == expected, path


@pytest.mark.parametrize("size", [400, 3000])
@pytest.mark.parametrize("damage", ["none", "cut", "size", "magic"])
def test_a_walk_with_a_thread_that_reads_ahead_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str, size: int
) -> None:
    def events(pool: ThreadPoolExecutor | None) -> list[str]:
        """Return what is found, with the pieces of a row put together."""
        found: list[str] = []
        with LocalFile(str(broken)) as file:
            for event in walk(file, Limits(), pool=pool):
                if isinstance(event, Sound):
                    found += [f"{position + event.position} {event.order}" for position in scan(event.view).position]
                else:
                    found.append(str(event))
        return found

    monkeypatch.setattr(reader.Window, "SLACK", 100)
    monkeypatch.setattr(reader.Window, "ROOM", 300)
    with ThreadPoolExecutor(2) as pool:
        for number, path in enumerate(SEGMENTS[::2]):
            broken = tmp_path / f"{number:020}.log"
            broken.write_bytes(damaged(path, damage))
            for module in (resync, entry_search):
                monkeypatch.setattr(module, "CHUNK_BYTES", 4 << 20)
            expected = events(None)
            for module in (resync, entry_search):
                monkeypatch.setattr(module, "CHUNK_BYTES", size)
            assert events(pool) == expected, path


def test_a_read_that_fails_ends_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(LocalFile):
        def read_into(self, position: int, buffer: memoryview) -> int:
            if position >= 2000:
                raise OSError(5, "Input/output error", self.path)
            return super().read_into(position, buffer)

    chunks_of(monkeypatch, 1000)
    blocks: list[Block] = []

    def walk(block: Block) -> Iterator[Chunk | CorruptRecordError]:
        blocks.append(block)
        yield from block.walk()

    with Broken(str(SEGMENTS[0])) as file, pytest.raises(OSError, match="Input/output"):
        list(in_order(read_blocks(file, Buffers(), ScanRules(Dialect.KAFKA, LIMIT)), walk, 3))
    assert all(block.after.done() for block in blocks), "no thread may wait for what never comes"


def test_a_buffer_that_is_used_again_does_not_grow() -> None:
    buffers = Buffers()
    sizes = []
    for _ in range(3):
        view = buffers.unused(1 << 16)
        assert isinstance(view.obj, bytearray)
        sizes.append(sys.getsizeof(view.obj))  # with what it has room for
        del view
    assert sizes == sizes[:1] * 3


def test_blocks_of_a_segment_do_not_wait_for_those_of_the_one_before(tmp_path: Path) -> None:
    for number, path in enumerate(SEGMENTS[:3]):
        (tmp_path / f"{number:020}.log").write_bytes(path.read_bytes())
    (partition,) = discover([str(tmp_path)])
    found: list[Block] = []
    taker = threading.Thread(target=lambda: found.extend(blocks_of(SegmentReader(partition), 2)), daemon=True)
    taker.start()
    taker.join(60)  # no other thread reads them
    assert len(found) == 3
    files = [weakref.ref(block.file) for block in found]
    assert all(block.walk() for block in found)
    found.clear()
    assert [each() for each in files] == [None] * 3, "a file stays open"
