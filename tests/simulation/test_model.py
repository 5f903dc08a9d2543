"""Random operations on a live log beside a dictionary that says what must be in it, on a disk that never fails."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from log.appended import batch_of
from magicbyte.errors import OffsetOutOfRangeError
from magicbyte.log.config import LogConfig
from magicbyte.log.partition_log import PartitionLog
from magicbyte.log.record_set import record_set
from magicbyte.records.entry import entries
from magicbyte.testing.disk import SimulatedDisk

START_MS = 1_700_000_000_000
RETENTION_MS = 10_000
CONFIG = LogConfig.of(
    {
        "segment.bytes": "500",
        "index.interval.bytes": "100",
        "segment.index.bytes": "240",
        "retention.ms": str(RETENTION_MS),
        "file.delete.delay.ms": "0",
        "log.head.truncation": "true",
    }
)


class LiveLog(RuleBasedStateMachine):
    """`batches`: by base offset, last offset, timestamp and bytes of all that was appended and not truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.now = START_MS
        self.batches: dict[int, tuple[int, int, bytes]] = {}
        self.log = self.opened(clean=True)
        self.end = 0

    def opened(self, *, clean: bool, start: int = 0) -> PartitionLog:
        return PartitionLog.open(
            self.disk, "/log-0", CONFIG, now_ms=self.now, clean=clean, log_start_offset=start, recovery_point=0
        )

    @rule(records=st.integers(1, 4), gap=st.sampled_from((0, 0, 0, 3)), age=st.integers(0, 3000))
    def append(self, records: int, gap: int, age: int) -> None:
        base = self.end + gap
        content = batch_of(base, self.now - age, records)
        self.log.append(record_set(content, self.log.config.rules), self.now)
        self.batches[base] = base + records - 1, self.now - age, content
        self.end = base + records

    @rule(by=st.sampled_from((1, 500, 4000, 11_000)))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule()
    def replicate(self) -> None:
        self.log.high_watermark = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.log.log_start_offset)
        self.log.truncate_to(offset, self.now)
        kept = {base: each for base, each in self.batches.items() if each[0] < offset}
        self.batches, self.end = kept, offset

    @precondition(lambda self: self.log.high_watermark > self.log.log_start_offset)
    @rule(at=st.floats(0, 1))
    def delete_records(self, at: float) -> None:
        low, high = self.log.log_start_offset, self.log.high_watermark
        assert self.log.delete_records(low + int((high - low) * at)) >= low

    @rule()
    def retain(self) -> None:
        planned, start = self.log.plan(self.now)
        before = self.log.log_start_offset
        assert self.log.delete_old_segments(self.now) == planned
        assert self.log.log_start_offset == start
        self.log.remove_deleted(self.now)
        for base, (last, timestamp, _) in self.batches.items():
            if before <= base and last < start:
                assert timestamp < self.now - RETENTION_MS, "it was not due"
        due = [base for base, (_, timestamp, _) in self.batches.items() if timestamp >= self.now - RETENTION_MS]
        if self.log.high_watermark == self.end and due:
            assert start <= max(min(due), before)
            older = [base for base, (last, *_) in self.batches.items() if base < min(due) and last >= start]
            assert not older, "all in front of the first that stays is gone"

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        start, high_watermark = self.log.log_start_offset, self.log.high_watermark
        if clean:
            self.log.close()
        else:
            self.log.flush(self.now)
            self.log.release()
        self.log = self.opened(clean=clean, start=start)
        assert bool(self.log.loaded.recovered) is not clean
        assert self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset
        self.log.high_watermark = min(high_watermark, self.end)

    @invariant()
    def holds_what_the_dictionary_says(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        expected = [(base, each[2]) for base, each in sorted(self.batches.items()) if each[0] >= log.log_start_offset]
        found, offset = [], log.log_start_offset
        while offset < self.end and (part := log.read(offset, 200)) is not None:
            for _, entry in entries(part.read()):
                found.append((entry.base_offset, bytes(entry.buffer)))
                offset = entry.last_offset + 1
        assert found == expected
        for outside in (log.log_start_offset - 1, self.end + 1):
            try:
                log.read(outside, 1)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(outside)

    @rule(age=st.integers(0, 15_000))
    def find_by_time(self, age: int) -> None:
        wanted = self.now - age
        start = self.log.log_start_offset
        later = [
            (timestamp, max(base, start))
            for base, (last, timestamp, _) in sorted(self.batches.items())
            if timestamp >= wanted and last >= start
        ]
        assert self.log.offset_for_timestamp(wanted) == (later[0] if later else None)


LiveLog.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
test_a_live_log_is_what_a_dictionary_says = LiveLog.TestCase
