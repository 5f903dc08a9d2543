"""A log on a simulated disk, and its compaction: what the tests of the cleaner share."""

from collections.abc import Iterable, Sequence
from typing import Any

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import (
    CleanableOffsets,
    Compaction,
    CompactionConfig,
    CompactionReport,
    select,
)
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.entry import entries
from magicbyte.testing.disk import SimulatedDisk

NOW = 1_700_000_000_000
DAY = 86_400_000
FOLDER = "/logs/orders-0"


class Cleaned:
    """A log that is appended to and compacted. Keys are numbers as text; values say the offset, None: a tombstone."""

    def __init__(self, disk: SimulatedDisk | None = None, **settings: Any) -> None:
        self.disk = disk or SimulatedDisk()
        if disk is None:
            self.disk.make_directory("/logs")
            self.disk.sync_directory("/")
        # An index is made at its full size: at 10 MiB, filling and copying those takes most of the time.
        settings.setdefault("segment_index_bytes", 1 << 16)
        self.config = LogConfig(compact=True, delete=False, **settings)
        self.log = PartitionLog.open(self.disk, FOLDER, self.config, monotonic_ms=NOW, clean=disk is None)
        self.log.high_watermark = self.log.log_end_offset
        self._sequences: dict[int, int] = {}

    # ---- appending

    def append(
        self,
        keys: Sequence[int | None],
        *,
        producer: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        target: Format = Format.V2,
        deletes: bool = False,
        timestamp: int = NOW,
        sequence: int | None = None,
        value: bytes | None = None,
    ) -> None:
        """Append one batch with these keys."""
        base = self.log.log_end_offset
        records = [
            Record(
                base + at,
                timestamp,
                0,
                None if key is None else str(key).encode(),
                None if deletes else value or f"value {base + at}".encode(),
            )
            for at, key in enumerate(keys)
        ]
        header = BatchHeader()
        if producer >= 0:
            first = self._sequences.get(producer, 0) if sequence is None else sequence
            self._sequences[producer] = first + len(keys)
            header = BatchHeader(
                producer_id=producer, producer_epoch=0, base_sequence=first, is_transactional=transactional
            )
        self.put(encode_records(records, target, codec, header=header))

    def mark(self, kind: ControlType, producer: int) -> None:
        """End a producer's transaction."""
        self.put(
            build_marker(
                kind,
                base_offset=self.log.log_end_offset,
                timestamp=NOW,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
            )
        )

    def commit(self, producer: int) -> None:
        """End a producer's transaction."""
        self.mark(ControlType.COMMIT, producer)

    def put(self, data: bytes) -> None:
        """Append a set whose offsets are final."""
        self.log.append(record_set(data, self.log.config.rules, self.log.config.dialect), Moment.fixed(NOW))
        self.log.high_watermark = self.log.log_end_offset

    def roll(self) -> None:
        """Begin a new segment; the old one was written now."""
        old = self.log.active
        self.log.roll(NOW)
        self.disk.set_modified_ms(old.path(LOG), NOW)

    # ---- compacting

    def clean(
        self, first_dirty: int = 0, *, now_ms: int = NOW, end: int | None = None, **config: Any
    ) -> CompactionReport:
        """Compact from an offset to the active segment, or to `end`."""
        end = self.log.active.base_offset if end is None else end
        selection = CleanableOffsets(first_dirty, end, 0, 1, True, False)
        compaction = Compaction(
            self.log, selection, CompactionConfig(**config), now=Moment.fixed(now_ms), secret=bytes(16)
        )
        for _ in compaction.run():
            pass
        self.log.remove_deleted(now_ms + DAY)
        return compaction.report

    def select(self, checkpoint: int | None = None, *, now_ms: int = NOW, **config: Any) -> CleanableOffsets:
        """What could be compacted."""
        return select(self.log, checkpoint, CompactionConfig(**config), now_ms)

    # ---- the contents of a log

    @property
    def data(self) -> bytes:
        """The bytes of all segments."""
        return b"".join(each.log.read_at(0, each.size) for each in self.log.segments)

    def records(self, *, control: bool = True) -> list[Record]:
        """All records, markers too."""
        options = DecodeOptions(control=control)
        found = decode(memoryview(self.data), options, dialect=self.config.dialect)
        return [record for columns in found for record in columns]

    def offsets(self) -> list[int]:
        """The offsets of all records, markers too."""
        return [record.offset for record in self.records()]

    def keys(self) -> list[int]:
        """The keys of all records but markers."""
        return [int(record.key or b"-1") for record in self.records(control=False)]

    def batches(self) -> list[RecordBatch]:
        """All v2 batches."""
        return [entry for _, entry in entries(self.data) if isinstance(entry, RecordBatch)]

    def last_offsets(self) -> list[int]:
        """The last offset of each batch, empty ones too."""
        return [batch.last_offset for batch in self.batches()]

    def reopened(self, *, forgetful: bool = False) -> "Cleaned":
        """The log as the next process finds it; `forgetful`: without what was known of producers."""
        self.log.close()
        if forgetful:
            for entry in self.disk.list(FOLDER):
                if entry.name.endswith(".snapshot"):
                    self.disk.delete(entry.path)
        names = ("segment_bytes", "segment_index_bytes", "rules")
        settings = {name: getattr(self.config, name) for name in names}
        return Cleaned(self.disk, dialect=self.config.dialect, **settings)


def latest(records: Iterable[Record]) -> dict[bytes | None, Record]:
    """The last record of each key."""
    return {record.key: record for record in records}
