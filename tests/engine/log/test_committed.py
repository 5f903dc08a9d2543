"""`read_committed` in one pass gives the records of a ledger, for any size of chunks and any limit of waiting ones."""

import weakref
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from engine.log.appended import batch_of
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files import committed, reader
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import Isolation, SegmentReader, Selection
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.decode import DEFAULT_OPTIONS
from magicbyte.engine.records.layout import TRANSACTIONAL_BIT
from magicbyte.tools.offline import blocks
from magicbyte.tools.offline.blocks import read_records

PRODUCERS, SEGMENTS = 4, 3


class Ledger(NamedTuple):
    """A log, as the bytes of its segments by base offset, and the offsets of its committed records."""

    segments: dict[int, list[bytes]]
    committed: list[int]


def data(offset: int, records: int, producer: int) -> bytes:
    return batch_of(offset, 90, records, producer_id=producer, attributes=TRANSACTIONAL_BIT)


def marker(kind: ControlType, offset: int, producer: int, epoch: int = 0) -> bytes:
    return build_marker(
        kind, base_offset=offset, timestamp=90, producer_id=producer, producer_epoch=0, coordinator_epoch=epoch
    )


def ledger(seed: int, steps: int) -> Ledger:
    """Write transactions of several producers that overlap, and plain batches; some may not end."""
    pick, offset = Random(seed), 0
    segments: dict[int, list[bytes]] = {0: []}
    written: dict[int, list[int]] = {}  # by producer whose transaction is open
    sound = list[int]()
    ends = pick.choice([0.03, 0.3, 0.6])
    for step in range(steps):
        if step and not step % (steps // SEGMENTS):
            segments[offset] = []
        log = segments[max(segments)]
        producer, records = pick.randrange(PRODUCERS), pick.randint(1, 3)
        if producer in written and pick.random() < ends:
            kind = pick.choice([ControlType.COMMIT, ControlType.ABORT])
            log.append(marker(kind, offset, producer, pick.randrange(1 << 31)))
            offsets = written.pop(producer)
            sound += offsets if kind is ControlType.COMMIT else []
            records = 1
        elif pick.random() < 0.2:
            log.append(batch_of(offset, 90, records))
            sound += range(offset, offset + records)
        else:
            log.append(data(offset, records, producer))
            written.setdefault(producer, []).extend(range(offset, offset + records))
        offset += records
    stable = min((each[0] for each in written.values()), default=offset)
    return Ledger(segments, sorted(each for each in sound if each < stable))


def reader_of(folder: Path, segments: dict[int, list[bytes]]) -> SegmentReader:
    place = folder / "topic-0"
    place.mkdir()
    for base, sets in segments.items():
        (place / f"{base:020}.log").write_bytes(b"".join(sets))
    return SegmentReader(discover(str(place))[0])


def offsets_of(found: Iterator[object]) -> list[int]:
    return [int(offset) for columns in found for offset in columns.offset]  # type: ignore[attr-defined]


@pytest.mark.parametrize("held", [1, 3000, 1 << 30], ids=["none waits", "some wait", "all wait"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_records_of_committed_transactions_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, held: int
) -> None:
    monkeypatch.setattr(committed, "HELD_BYTES", held)
    for module in (reader, blocks):
        monkeypatch.setattr(module, "CHUNK_BYTES", 700)
    shares = list[float]()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        log = ledger(seed, 150)
        shares.append(len(log.committed) / (1 + log.committed[-1] if log.committed else 1))
        read = reader_of(folder, log.segments)
        for first in (0, 1, 60, 150):
            for end in (100, 1 << 62):
                selection = Selection(first=first, end=end, isolation=Isolation.READ_COMMITTED)
                found = read_records(read, selection, DEFAULT_OPTIONS, threads=threads, on_damage=reader.stop_at_damage)
                assert offsets_of(found) == [each for each in log.committed if first <= each < end]
    assert sum(0.2 < share < 0.9 for share in shares) > 6  # the logs are no trivial ones


def test_no_chunk_waits_without_an_open_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first records come before the last bytes are read, and each byte is read once."""
    monkeypatch.setattr(reader, "CHUNK_BYTES", 700)
    sets = list[bytes]()
    for offset in range(0, 400, 2):
        sets += [data(offset, 1, 7), marker(ControlType.COMMIT, offset + 1, 7)]
    read = reader_of(tmp_path, {0: sets})
    walked = list[int]()
    walk = reader.walk_range

    def counted(window: reader.Window, position: int, stop: int, rules: reader.ScanRules, *, sliced: bool) -> object:
        for step in walk(window, position, stop, rules, sliced=sliced):
            assert isinstance(step, Chunk)
            walked.append(step.table.end)
            yield step

    monkeypatch.setattr(reader, "walk_range", counted)
    found = read.records(Selection(isolation=Isolation.READ_COMMITTED))
    assert offsets_of(iter([next(found)]))[0] == 0
    assert len(walked) < 3
    offsets_of(found)
    assert sum(walked) == sum(map(len, sets))


def test_the_rest_of_a_log_is_walked_ahead_once_behind_a_long_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 700)
    monkeypatch.setattr(committed, "HELD_BYTES", 5000)
    sets = [data(0, 1, 5)]
    for offset in range(1, 401, 2):
        sets += [data(offset, 1, 7), marker(ControlType.ABORT, offset + 1, 7)]
    sets.append(marker(ControlType.COMMIT, 401, 5))
    read = reader_of(tmp_path, {0: sets})
    walks = list[int]()
    ahead = SegmentReader.steps_after
    monkeypatch.setattr(
        SegmentReader, "steps_after", lambda self, chunk, limit: (walks.append(1), ahead(self, chunk, limit))[1]
    )
    assert offsets_of(read.records(Selection(isolation=Isolation.READ_COMMITTED))) == [0]
    assert len(walks) == 1


def test_damage_that_waits_counts_as_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of invalid markers is small, and its errors are not."""
    monkeypatch.setattr(committed, "HELD_BYTES", 100_000)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 700)
    sets, count = [data(0, 1, 5)], 200
    for offset in range(1, 1 + count):
        invalid = bytearray(marker(ControlType.ABORT, offset, 7))
        invalid[70] = 0x02  # a value of one byte
        sets.append(bytes(invalid))
    sets.append(marker(ControlType.COMMIT, 1 + count, 5))
    assert sum(map(len, sets)) < 100_000
    located, most = weakref.WeakSet[CorruptRecordError](), [0]
    locate = CorruptRecordError.locate

    def counted(error: CorruptRecordError, **place: Any) -> CorruptRecordError:
        located.add(error)
        most[0] = max(most[0], len(located) - len(damage))
        return locate(error, **place)

    monkeypatch.setattr(CorruptRecordError, "locate", counted)
    damage = list[CorruptRecordError]()
    found = read_records(
        reader_of(tmp_path, {0: sets}),
        Selection(isolation=Isolation.READ_COMMITTED),
        DEFAULT_OPTIONS,
        threads=1,
        on_damage=damage.append,
    )
    assert offsets_of(found) == [0]
    assert len(damage) == count
    assert 0 < most[0] < count / 2


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("held", [1, 1 << 30])
def test_damage_is_reported_once_and_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, held: int
) -> None:
    monkeypatch.setattr(committed, "HELD_BYTES", held)
    invalid = bytearray(marker(ControlType.ABORT, 3, 7))
    invalid[70] = 0x02  # a value of one byte
    sets = [data(0, 1, 7), marker(ControlType.COMMIT, 1, 7), data(2, 1, 7), bytes(invalid)]
    sets += [data(4, 1, 8), marker(ControlType.COMMIT, 5, 8)]
    read = reader_of(tmp_path, {0: sets, 6: [data(6, 1, 8)[:-2]]})
    damage = list[CorruptRecordError]()
    found = read_records(
        read,
        Selection(isolation=Isolation.READ_COMMITTED),
        DEFAULT_OPTIONS,
        threads=threads,
        on_damage=damage.append,
    )
    assert offsets_of(found) == [0]  # the transaction at offset 2 does not end
    assert [each.what for each in damage] == ["transaction marker value"]
    assert damage[0].position == sum(map(len, sets[:3]))
    assert damage[0].path is not None
    assert damage[0].path.endswith(".log")
