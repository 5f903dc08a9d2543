"""What a log reads to find something, or to recover: counted, not timed."""

from pathlib import Path

import pytest

from engine.log.appended import batch_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.filesystem import LocalFiles, LocalWritableFile
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records

NOW = 1_700_000_000_000
BATCHES, RECORDS = 300, 20
INTERVAL = 4096
PIECE = 8192  # that headers are walked in


class CountedFile(LocalWritableFile):
    """A file that counts the bytes read from logs, in `counts`."""

    counts: list[int]

    def read_at(self, position: int, length: int) -> bytes:
        found = super().read_at(position, length)
        self.counts[0] += len(found) * self.path.endswith(".log")
        return found

    def read_into(self, position: int, buffer: memoryview) -> int:
        found = super().read_into(position, buffer)
        self.counts[0] += found * self.path.endswith(".log")
        return found


class CountedFiles(LocalFiles):
    """The file system of this machine; `counts[0]`: bytes of logs that were read."""

    def __init__(self) -> None:
        self.counts = [0]

    def edit(self, path: str) -> CountedFile:
        file = CountedFile(path)
        file.counts = self.counts
        return file


def write(folder: Path, codec: Codec) -> int:
    """Write a log of one segment, times rising; return the size of its largest batch."""
    log = PartitionLog.open(LocalFiles(), str(folder), LogConfig(), monotonic_ms=NOW, clean=True)
    largest = 0
    for at in range(BATCHES):
        offsets = range(at * RECORDS, (at + 1) * RECORDS)
        some = [Record(offset, NOW + 10 * offset, 0, b"%d" % offset, b"value" * (offset % 40)) for offset in offsets]
        content = encode_records(some, Format.V2, codec)
        largest = max(largest, len(content))
        log.append(record_set(content, log.config.rules), Moment.fixed(NOW))
    log.close()
    return largest


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_look_up_reads_an_index_interval_and_two_entries_at_most(codec: Codec, tmp_path: Path) -> None:
    largest, files = write(tmp_path / "log-0", codec), CountedFiles()
    log = PartitionLog.open(files, str(tmp_path / "log-0"), LogConfig(), monotonic_ms=NOW, clean=True)
    for wanted in range(0, BATCHES * RECORDS, 7):
        files.counts[0] = 0
        found = log.read(wanted, 1 << 20)
        assert found is not None
        assert files.counts[0] <= INTERVAL + 2 * largest + 2 * PIECE
        files.counts[0] = 0
        assert offset_for_timestamp(log, NOW + 10 * wanted - 5) == (NOW + 10 * wanted, wanted)
        assert files.counts[0] <= INTERVAL + 3 * largest + 2 * PIECE
    log.release()


def test_a_recovery_reads_the_log_once(tmp_path: Path) -> None:
    write(tmp_path / "log-0", Codec.NONE)
    for path in (tmp_path / "log-0").iterdir():
        if path.suffix != ".log":
            path.unlink()
    files = CountedFiles()
    log = PartitionLog.open(files, str(tmp_path / "log-0"), LogConfig(), monotonic_ms=NOW, clean=False)
    assert log.loaded.recovered == [0]
    assert log.log_end_offset == BATCHES * RECORDS
    assert log.size <= files.counts[0] <= log.size + 2 * PIECE
    log.release()


def test_a_recovery_knows_the_producers_of_what_it_walked(tmp_path: Path) -> None:
    log = PartitionLog.open(LocalFiles(), str(tmp_path / "log-0"), LogConfig(), monotonic_ms=NOW, clean=True)
    for at in range(3):
        header = {"producer_id": 7, "producer_epoch": 1, "base_sequence": at}
        log.append(record_set(batch_of(at, NOW, **header), log.config.rules), Moment.fixed(NOW))
    known = log.producers.snapshot()
    log.release()
    again = PartitionLog.open(LocalFiles(), str(tmp_path / "log-0"), LogConfig(), monotonic_ms=NOW, clean=False)
    assert again.producers.snapshot() == known
    assert len(known.producers) == 1
    again.release()
