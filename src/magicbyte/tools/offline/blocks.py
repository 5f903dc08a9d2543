"""Read a partition's log with several threads: they walk it block by block, and return its records in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, cast

from magicbyte.access.workers import in_order
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.committed import CommittedChunk
from magicbyte.engine.log.files.reader import (
    CHUNK_BYTES,
    Buffers,
    DamageHandler,
    Isolation,
    ScanRules,
    SegmentReader,
    Selection,
    Window,
    chosen_rows,
    decode_chunk,
    held_bytes,
    select_records,
    walk_range,
)
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions

if TYPE_CHECKING:
    from magicbyte.engine.ports import ReadableFile
    from magicbyte.engine.records.columns import RecordColumns


class Block:
    """A range of a file that any thread may walk. It is read at once; only the start depends on the block before.

    A block has the entries that begin in it. Every block must be walked, in order or by threads that take them in
    order. `before` and `after`: the position of the first entry, None if there is none.
    """

    def __init__(
        self, file: ReadableFile, buffers: Buffers, start: int, end: int, before: Future[int | None], rules: ScanRules
    ) -> None:
        self.file, self.buffers, self.rules = file, buffers, rules
        self.start, self.end, self.before = start, end, before
        self.after: Future[int | None] = Future()

    def walk(self) -> list[Chunk | CorruptRecordError]:
        """Return the chunks and the damage of the block, in order. Raises OSError."""
        chunks: list[Chunk | CorruptRecordError] = []
        position: int | None = None
        try:
            window = Window(self.file, self.buffers)
            if not (self.before.done() and self.before.result() is None):
                window.prepare(self.start, self.end)
            position = self.before.result()
            if position is not None:
                position = _collect(walk_range(window, position, self.end, self.rules, sliced=True), chunks)
        except BaseException:
            position = None
            raise
        finally:
            self.after.set_result(position)  # in any case: the thread of the next block waits for it
        return chunks


def _collect(
    steps: Generator[Chunk | CorruptRecordError, None, int | None], found: list[Chunk | CorruptRecordError]
) -> int | None:
    """Append all of `steps` to `found`, and return the generator's result."""
    while True:
        try:
            found.append(next(steps))
        except StopIteration as ended:
            return cast("int | None", ended.value)


def read_blocks(file: ReadableFile, buffers: Buffers, rules: ScanRules, start: int = 0) -> Iterator[Block]:
    """Yield blocks that together contain the result of `read_chunks`, to be walked by threads.

    `start` is the position of an entry. Each block must be given to a thread before the next is requested. The file
    must stay open until all are walked.
    """
    before: Future[int | None] = Future()
    before.set_result(start)
    while start < file.size and not (before.done() and before.result() is None):
        block = Block(file, buffers, start, min(start + CHUNK_BYTES, file.size), before, rules)
        yield block
        before, start = block.after, block.end
        del block  # otherwise the file would stay open


def blocks_of(
    reader: SegmentReader, threads: int, *, first: int = 0, merge: bool = False, limit: int = DEFAULT_MAX_BATCH_BYTES
) -> Iterator[Block]:
    """Yield the result of `SegmentReader.chunks` as blocks, for `threads` to walk as for `read_blocks`."""
    buffers = Buffers(kept=2 * threads + 4)
    rules = ScanRules(reader.dialect or reader.partition.dialect, limit, merge)
    for segment in reader.segments_from(first):
        file = reader.partition.files.open(segment.log.path)  # closed with its last block
        yield from read_blocks(file, buffers, rules, reader.start_position(segment, first))
        del file  # so that no segment waits for the last block of the one before


def read_records(
    reader: SegmentReader,
    selection: Selection,
    options: DecodeOptions,
    *,
    threads: int,
    on_damage: DamageHandler,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[RecordColumns]:
    """Yield the result of `SegmentReader.records`, decoded by `threads`."""
    if threads < 2:
        yield from reader.records(selection, options, on_damage=on_damage, progress=progress)
        return
    reader.expect_decoding(selection.first)

    def decoded(
        step: Chunk | CommittedChunk | CorruptRecordError,
    ) -> Iterator[RecordColumns | CorruptRecordError | _Walked]:
        if isinstance(step, CorruptRecordError):
            yield step
            return
        chunk, rows, more = chosen_rows(step, selection)
        if rows:
            yield from _decoded(chunk, rows, options)
        yield _Walked(chunk.table.end, more)

    def work(block: Block) -> Iterator[RecordColumns | CorruptRecordError | _Walked]:
        for step in block.walk():
            for made in decoded(step):
                yield made
                if isinstance(made, _Walked) and not made.more:
                    return

    blocks = blocks_of(reader, threads, first=selection.first, merge=True, limit=options.limit)
    if selection.isolation is Isolation.READ_COMMITTED:
        walked = in_order(blocks, lambda block: iter(block.walk()), threads)
        steps = in_order(reader.released(walked, selection, options.limit), decoded, threads, size=held_bytes)
    else:
        steps = in_order(blocks, work, threads, size=held_bytes)
    for step in steps:
        if isinstance(step, CorruptRecordError):
            on_damage(step)
        elif isinstance(step, _Walked):
            progress(step.size)
            if not step.more:
                return
        else:
            chosen = select_records(step, selection)
            if len(chosen):
                yield chosen


class _Walked(NamedTuple):
    """The bytes of a completed chunk, and whether later ones may have selected records, too."""

    size: int
    more: bool


def _decoded(chunk: Chunk, rows: Sequence[int], options: DecodeOptions) -> Iterator[RecordColumns | CorruptRecordError]:
    """Yield the records of some rows of a chunk, and each damage in its place, as threads must not report it."""
    damage: list[CorruptRecordError] = []
    for columns in decode_chunk(chunk, rows, options, damage.append):
        yield from damage
        damage.clear()
        yield columns
    yield from damage
