"""Random operations on a live log beside a dictionary that says what must be in it, on a disk that never fails.

One machine for logs whose head is cut, in Kafka's dialect and the enriched one, and one for compacted logs in both.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from builders import tries
from engine.log.appended import batch_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import OffsetOutOfRangeError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import Compaction, CompactionConfig, select
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.testing.disk import SimulatedDisk
from simulation.ledger import Keyed, content_of, keyed, latest_values
from topic_settings import log_config

START_MS = 1_700_000_000_000
RETENTION_MS = 10_000
SMALL = {
    "segment.bytes": "500",
    "index.interval.bytes": "100",
    "segment.index.bytes": "240",
    "file.delete.delay.ms": "0",
}
CUT = {**SMALL, "retention.ms": str(RETENTION_MS), "log.head.truncation": "true"}
COMPACTED = {**SMALL, "cleanup.policy": "compact"}
ENRICHED = {"message.format.version": "enriched"}


def kafka_batch(base: int, timestamp: int, records: int) -> bytes:
    return batch_of(base, timestamp, records)


def wrapper(base: int, timestamp: int, records: int) -> bytes:
    """An enriched wrapper of records without keys and values."""
    inner = b"".join(build_enriched_message(at, None, b"") for at in range(records))
    return build_enriched_wrapper(
        Codec.LZ4, inner, num_messages=records, non_keyed=True, start_offset=base, seconds=timestamp // 1000,
        timestamp_ms=timestamp,
    )  # fmt: skip


class LiveLog(RuleBasedStateMachine):
    """`batches`: by base offset, last offset, timestamp and bytes of all that was appended and not truncated."""

    config: ClassVar[LogConfig] = log_config(CUT)
    make = staticmethod(kafka_batch)

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.now = START_MS
        self.batches: dict[int, tuple[int, int, bytes]] = {}
        self.log = self.opened(clean=True)
        self.end = 0

    def opened(self, *, clean: bool, start: int = 0, recovery_point: int = 0) -> PartitionLog:
        return PartitionLog.open(
            self.disk,
            "/log-0",
            self.config,
            monotonic_ms=self.now,
            clean=clean,
            log_start_offset=start,
            recovery_point=recovery_point,
        )

    @rule(records=st.integers(1, 4), gap=st.sampled_from((0, 0, 0, 3)), age=st.integers(0, 3000))
    def append(self, records: int, gap: int, age: int) -> None:
        base = self.end + gap
        content = self.make(base, self.now - age, records)
        self.log.append(record_set(content, self.log.config.rules, self.config.dialect), Moment.fixed(self.now))
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
        planned, start = self.log.retention(self.now).plan(self.log.segments)
        before = self.log.log_start_offset
        assert self.log.delete_old_segments(Moment.fixed(self.now)) == planned
        assert self.log.log_start_offset == start
        self.log.remove_deleted(self.now)
        for base, (last, timestamp, _) in self.batches.items():
            if before <= base and last < start:
                assert timestamp < self.now - RETENTION_MS, "it was not due"
        due = [
            base
            for base, (last, timestamp, _) in self.batches.items()
            if last >= before and timestamp >= self.now - RETENTION_MS
        ]
        if self.log.high_watermark == self.end and due:
            assert start <= max(min(due), before)
            older = [base for base, (last, *_) in self.batches.items() if base < min(due) and last >= start]
            assert not older, "all before the first that stays is gone"

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        start, high_watermark = self.log.log_start_offset, self.log.high_watermark
        if clean:
            self.log.close()
        else:
            self.log.flush(self.now)
            self.log.release()
        self.log = self.opened(clean=clean, start=start, recovery_point=self.log.recovery_point if clean else 0)
        assert bool(self.log.loaded.recovered) is not clean
        assert self.log.log_end_offset <= self.end
        self.end = self.log.log_end_offset
        self.log.high_watermark = min(high_watermark, self.end)

    @invariant()
    def holds_what_the_dictionary_says(self) -> None:
        log = self.log
        assert log.log_end_offset == self.end
        expected = [(base, each[2]) for base, each in sorted(self.batches.items()) if each[0] >= log.log_start_offset]
        assert content_of(log) == expected
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
        assert offset_for_timestamp(self.log, wanted) == (later[0] if later else None)


class LiveEnrichedLog(LiveLog):
    """The same in the enriched dialect."""

    config = log_config({**CUT, **ENRICHED})
    make = staticmethod(wrapper)


class LiveCompactedLog(RuleBasedStateMachine):
    """`records` are all that were appended and not truncated, `sets` the first and last offsets of what held them."""

    config: ClassVar[LogConfig] = log_config(COMPACTED)

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.now = START_MS
        self.records: list[Keyed] = []
        self.sets: list[tuple[int, int]] = []
        self.cleaned: int | None = None
        self.log = self.opened(clean=True)

    def opened(self, *, clean: bool) -> PartitionLog:
        return PartitionLog.open(self.disk, "/log-0", self.config, monotonic_ms=self.now, clean=clean)

    def made(self, records: list[Record]) -> bytes:
        codec = Codec.GZIP if len(records) % 2 else Codec.NONE
        return encode_records(records, Format.V2, codec, header=BatchHeader())

    @rule(
        keys=st.lists(
            st.tuples(st.integers(0, 5), st.sampled_from((None, b"v", b"longer" * 9))), min_size=1, max_size=4
        ),
        gap=st.sampled_from((0, 0, 0, 3)),
    )
    def append(self, keys: list[tuple[int, bytes | None]], gap: int) -> None:
        base = self.log.log_end_offset + gap
        records = [Record(base + at, self.now, 0, bytes([key]), value) for at, (key, value) in enumerate(keys)]
        content = self.made(records)
        self.log.append(record_set(content, self.log.config.rules, self.config.dialect), Moment.fixed(self.now))
        self.records += keyed(records)
        self.sets.append((base, base + len(records) - 1))

    @rule(by=st.sampled_from((1, 500, 4000, 11_000)))
    def time_passes(self, by: int) -> None:
        self.now += by
        self.disk.now_ms = self.now

    @rule()
    def replicate(self) -> None:
        self.log.high_watermark = self.log.log_end_offset

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(
        retention=st.sampled_from((0, 5_000)),
        slots=st.sampled_from((48, 96, 4800)),
        ready=st.sampled_from((True, True, False)),
        whole=st.sampled_from((True, True, False)),
    )
    def compact(self, retention: int, slots: int, ready: bool, whole: bool) -> None:
        """Compact what can be; `ready`: which is all, `whole`: to the end."""
        if ready:
            self.log.high_watermark = self.log.log_end_offset
            self.log.roll(self.now)
        config = CompactionConfig(delete_retention_ms=retention, dedupe_buffer_bytes=slots)
        selection = select(self.log, self.cleaned, config, self.now)
        if not selection.cleanable_bytes:
            return
        compaction = Compaction(self.log, selection, config, now=Moment.fixed(self.now), secret=bytes(16))
        steps = compaction.run()
        if not whole:
            next(steps)
            steps.close()
            return
        for _ in steps:
            pass
        assert compaction.report.end_offset <= self.log.high_watermark
        self.cleaned = compaction.report.end_offset
        self.log.remove_deleted(self.now)

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        offset = max(self.log.log_end_offset - back, self.log.high_watermark)
        self.log.truncate_to(offset, self.now)
        cut = min((base for base, last in self.sets if last >= offset), default=offset)
        self.sets = [(base, last) for base, last in self.sets if last < offset]
        self.records = [each for each in self.records if each[0] < cut]

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        high_watermark = self.log.high_watermark
        if clean:
            self.log.close()
        else:
            self.log.flush(self.now)
            self.log.release()
        self.log = self.opened(clean=clean)
        self.log.high_watermark = min(high_watermark, self.log.log_end_offset)

    @invariant()
    def says_of_every_key_what_was_said_last(self) -> None:
        data = b"".join(content for _, content in content_of(self.log))
        found = decode(memoryview(data), DecodeOptions(control=True), dialect=self.config.dialect)
        records = keyed(record for columns in found for record in columns)
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets))
        assert set(records) <= set(self.records)
        assert latest_values(records) == latest_values(self.records)
        dirty = self.cleaned or 0
        assert [each for each in records if each[0] >= dirty] == [each for each in self.records if each[0] >= dirty]


class LiveMergedLog(LiveCompactedLog):
    """The same in the enriched dialect, where neighbouring sets become one."""

    config = log_config({**COMPACTED, **ENRICHED})

    def made(self, records: list[Record]) -> bytes:
        inner = b"".join(build_enriched_message(at, each.key, each.value) for at, each in enumerate(records))
        return build_enriched_wrapper(
            Codec.LZ4, inner, num_messages=len(records), non_keyed=False, start_offset=records[0].offset,
            seconds=self.now // 1000,
        )  # fmt: skip


def with_settings(machine: type[RuleBasedStateMachine], examples: int) -> Any:
    given = settings(
        tries(examples),
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return type("TestCase", (machine.TestCase,), {"settings": given})


test_a_live_log_is_what_a_dictionary_says = with_settings(LiveLog, 40)
test_a_live_enriched_log_is_what_a_dictionary_says = with_settings(LiveEnrichedLog, 20)
test_a_live_compacted_log_is_what_a_dictionary_says = with_settings(LiveCompactedLog, 25)
test_a_live_merged_log_is_what_a_dictionary_says = with_settings(LiveMergedLog, 25)

test_a_live_log_is_that_in_more_histories = pytest.mark.slow(with_settings(LiveLog, 200))
test_a_live_enriched_log_is_that_in_more_histories = pytest.mark.slow(with_settings(LiveEnrichedLog, 100))
test_a_live_compacted_log_is_that_in_more_histories = pytest.mark.slow(with_settings(LiveCompactedLog, 120))
test_a_live_merged_log_is_that_in_more_histories = pytest.mark.slow(with_settings(LiveMergedLog, 120))
