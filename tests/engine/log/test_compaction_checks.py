"""Kafka's rules for its cleaner, situation by situation; the numbers are those of docs/evidence/checks.md."""

import random

import pytest
from msgspec.structs import replace

from engine.log.compacted import DAY, NOW, Cleaned
from magicbyte.engine.codecs import Codec, decompress
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.cleaning.compaction import CleanableOffsets, Compaction, CompactionConfig
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.message import MessageView, build_message, build_wrapper

LATER = NOW + 2 * DAY
FORMATS = pytest.mark.parametrize(
    ("target", "codec"),
    [
        (Format.V0, Codec.NONE),
        (Format.V0, Codec.GZIP),
        (Format.V1, Codec.NONE),
        (Format.V1, Codec.SNAPPY),
        (Format.V2, Codec.NONE),
        (Format.V2, Codec.LZ4),
        (Format.V2, Codec.ZSTD),
    ],
)


@FORMATS
def test_1_superseded_keys_go_and_the_others_stay_in_order(target: Format, codec: Codec) -> None:
    log = Cleaned()
    for first in (0, 4, 8):
        log.append(range(first, first + 4), target=target, codec=codec)
        log.roll()
    log.append([1, 3, 5, 7, 9], target=target, codec=codec)
    log.roll()
    size = sum(each.size for each in log.log.segments)
    report = log.clean()
    assert log.keys() == [0, 2, 4, 6, 8, 10, 11, 1, 3, 5, 7, 9]
    assert (report.bytes_before, report.bytes_read, report.records) == (size, 2 * size, 17)
    assert report.bytes_after == log.log.size < size
    assert report.dropped.superseded == 5


@FORMATS
def test_2_tombstones_take_their_keys_and_then_go_themselves(target: Format, codec: Codec) -> None:
    log = Cleaned()
    log.append(range(10), target=target, codec=codec)
    log.append(range(0, 10, 2), deletes=True, target=target, codec=codec)
    log.roll()
    log.append(range(20, 24), target=target, codec=codec)
    log.roll()
    log.clean()
    assert log.keys() == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8, 20, 21, 22, 23]
    log.clean(19, now_ms=LATER, delete_retention_ms=0)
    assert log.keys() == [1, 3, 5, 7, 9, 20, 21, 22, 23]


@FORMATS
def test_3_records_without_a_key_go_and_are_counted(target: Format, codec: Codec) -> None:
    log = Cleaned()
    log.append([None, 1, None, 2], target=target, codec=codec)
    log.append([None, None], target=target, codec=codec)
    log.roll()
    report = log.clean()
    assert log.offsets() == [1, 3]
    assert report.dropped.without_key == 4


def test_4_a_map_of_one_key_is_enough_to_come_through_in_several_rounds() -> None:
    log = Cleaned()
    for key in (0, 1, 0, 1, 0):
        log.append([key])
    log.roll()
    report = log.clean(2, dedupe_buffer_bytes=48, load_factor=0.75)
    assert log.offsets() == [1, 2, 3, 4]
    report = log.clean(report.end_offset, dedupe_buffer_bytes=48, load_factor=0.75)
    assert (log.offsets(), report.first_dirty) == ([2, 3, 4], 3)
    log.clean(report.end_offset, dedupe_buffer_bytes=48, load_factor=0.75)
    assert log.offsets() == [3, 4]


def test_5_the_map_begins_at_the_dirty_offset_and_ends_when_it_is_full() -> None:
    log = Cleaned()
    for key in (0, 1, 2, 3, 4):
        log.append([key])
    log.roll()
    report = log.clean(2, dedupe_buffer_bytes=72, load_factor=0.75)
    assert (report.keys, report.end_offset) == (2, 4)


def idempotent() -> Cleaned:
    log = Cleaned()
    log.append([1, 2, 3], producer=1)
    log.append([3, 1, 4], producer=2)
    log.append([1, 4], producer=3)
    log.roll()
    return log


def test_6_batches_of_idempotent_producers_keep_what_tells_duplicates() -> None:
    log = idempotent()
    known = log.log.producers.snapshot()
    log.clean()
    assert log.offsets() == [1, 3, 6, 7]
    assert log.last_offsets() == [2, 5, 7]
    assert [batch.last_sequence for batch in log.batches()] == [2, 2, 1]
    assert log.reopened(forgetful=True).log.producers.snapshot() == known


def test_7_a_producers_last_batch_stays_though_nothing_is_left_in_it() -> None:
    log = idempotent()
    log.clean()
    log.append([2], producer=4)
    log.roll()
    known = log.log.producers.snapshot()
    log.clean(8)
    assert (log.offsets(), log.last_offsets()) == ([3, 6, 7, 8], [2, 5, 7, 8])
    assert [batch.record_count for batch in log.batches()] == [0, 1, 2, 1]
    assert log.reopened(forgetful=True).log.producers.snapshot() == known


def test_8_only_the_last_batch_of_each_producer_is_kept_empty() -> None:
    log = Cleaned()
    log.append([0])
    for producer in (1, 2, 3):
        log.append([0], producer=producer)
    log.append([1], producer=2)
    log.roll()
    log.clean()
    assert (log.last_offsets(), log.offsets()) == ([1, 3, 4], [3, 4])


def test_9_to_11_a_commit_marker_outlives_the_data_of_its_transaction_by_the_retention_of_deletes() -> None:
    log = Cleaned()
    log.append([1], producer=1, transactional=True)
    log.append([2, 3], producer=1, transactional=True)
    log.commit(1)
    log.append([2], producer=1, transactional=True)
    log.commit(1)
    log.roll()
    log.clean()
    assert log.offsets() == [0, 2, 3, 4, 5]
    log.append([1], producer=1, transactional=True)
    log.append([3], producer=1, transactional=True)
    log.commit(1)
    log.roll()
    log.clean(6)
    log.clean(9)
    assert log.offsets() == [3, 4, 5, 6, 7, 8]
    assert log.batches()[0].delete_horizon_ms == NOW + DAY
    log.clean(9, now_ms=NOW + DAY)
    assert log.offsets() == [4, 5, 6, 7, 8]


def test_12_aborted_data_goes_at_once_and_its_marker_later() -> None:
    log = Cleaned()
    log.append([1], producer=1, transactional=True)
    log.append([2, 3], producer=1, transactional=True)
    log.mark(ControlType.ABORT, 1)
    log.append([3], producer=1, transactional=True)
    log.commit(1)
    log.roll()
    report = log.clean()
    assert (log.offsets(), report.dropped.aborted) == ([3, 4, 5], 3)
    log.clean(6)
    log.clean(6, now_ms=LATER)
    assert log.offsets() == [4, 5]


def test_13_empty_batches_keep_their_markers_and_are_removed_when_their_producer_writes_again() -> None:
    log = Cleaned()
    log.append([2, 3], producer=1, transactional=True)
    log.append([2, 3], producer=2, transactional=True)
    log.commit(2)
    log.roll()
    log.append([2])
    log.append([3])
    log.commit(1)
    log.roll()
    log.clean()
    assert (log.last_offsets(), log.offsets()) == ([1, 3, 4, 5, 6, 7], [4, 5, 6, 7])
    log.clean(8, now_ms=LATER)
    assert log.last_offsets() == [1, 3, 4, 5, 6, 7]
    log.append([1], producer=2, transactional=True)
    log.commit(2)
    log.roll()
    log.clean(8, now_ms=LATER)
    assert log.last_offsets() == [1, 4, 5, 6, 7, 8, 9]
    log.clean(10, now_ms=LATER)
    log.clean(10, now_ms=LATER + DAY)
    assert log.last_offsets() == [1, 5, 6, 7, 8, 9]


def test_14_the_marker_that_alone_tells_a_producers_epoch_is_emptied_not_dropped() -> None:
    log = Cleaned()
    log.commit(1)
    log.append([1])
    log.append([2])
    log.roll()
    known = [(each.producer_id, each.producer_epoch) for each in log.log.producers.snapshot().producers]
    log.clean()
    log.clean(3, now_ms=LATER)
    assert (log.offsets(), log.last_offsets()) == ([1, 2], [0, 1, 2])
    assert (log.batches()[0].record_count, log.batches()[0].is_control) == (0, True)
    log.clean(3, now_ms=LATER)
    assert log.last_offsets() == [0, 1, 2]
    assert known == [(1, 0)]


def test_15_a_coordinator_that_uses_sequences_again_keeps_its_last_batch_only() -> None:
    log = Cleaned()
    for _ in range(2):
        log.append([5], producer=1, transactional=True, sequence=0)
        log.commit(1)
    log.append([5])
    log.roll()
    log.clean()
    assert log.last_offsets() == [1, 2, 3, 4]
    log.clean(5)
    log.clean(5, now_ms=LATER)
    assert (log.last_offsets(), log.offsets()) == ([2, 3, 4], [3, 4])


def test_16_keys_that_look_like_those_of_markers_mean_nothing_to_them() -> None:
    log = Cleaned()
    log.append([1], producer=1, transactional=True)
    log.commit(1)
    log.append([1000])  # four bytes, as a marker's key
    log.roll()
    report = log.clean()
    assert (log.offsets(), report.keys) == ([0, 1, 2], 2)


def test_17_the_clock_and_no_timestamp_decides_when_a_tombstone_goes() -> None:
    log = Cleaned()
    log.append([0], timestamp=NOW + 1000 * DAY)
    log.roll()
    log.clean()
    log.append([0], deletes=True, timestamp=NOW - 1000 * DAY)
    log.roll()
    log.clean(1)
    for key in (1, 2):
        log.append([key])
        log.roll()
        log.clean(key + 1, now_ms=NOW + DAY - 1)
        assert 1 in log.offsets()
    log.clean(4, now_ms=NOW + DAY)
    assert log.offsets() == [2, 3]


def test_18_wrappers_of_magic_1_with_messages_of_magic_0_are_read_and_encoded_again() -> None:
    log = Cleaned()
    for first, keys in ((25, (0, 1, 0, 1)), (50, (3, 4))):
        records = [(offset, str(key).encode()) for offset, key in enumerate(keys, first)]
        content = b"".join(build_message(0, offset, 0, key, b"%d" % offset) for offset, key in records)
        log.put(build_wrapper(1, Codec.GZIP, content, records[-1][0], NOW))
    log.roll()
    log.clean()
    assert [(each.offset, each.value, each.timestamp) for each in log.records()] == [
        (offset, b"%d" % offset, -1) for offset in (27, 28, 50, 51)
    ]
    for _, wrapper in entries(log.data):
        assert isinstance(wrapper, MessageView)
        assert wrapper.magic == 1
        inner = decompress(Codec.GZIP, wrapper.value or b"", limit=1 << 20)
        assert [message.magic for _, message in entries(bytes(inner))] == [1, 1]


def test_19_and_20_a_record_larger_than_every_buffer_is_compacted() -> None:
    log = Cleaned()
    log.append([1], value=bytes(3 << 20))
    log.append([2], value=bytes(5 << 20))
    log.append([1])
    log.roll()
    log.clean(io_buffer_bytes=1024, max_message_bytes=1000)
    assert log.offsets() == [1, 2]


def test_21_a_size_beyond_the_end_is_damage_and_changes_nothing() -> None:
    log = Cleaned()
    log.append([1])
    log.append([1])
    log.roll()
    segment = log.log.segments[0]
    segment.log.write_at(8, (1 << 20).to_bytes(4, "big"))
    with pytest.raises(CorruptRecordError):
        log.clean()
    assert log.log.segments[0] is segment
    assert not [entry.name for entry in log.disk.list("/logs/orders-0") if "cleaned" in entry.name]


@pytest.mark.parametrize("at", [21, 66])
def test_damage_in_the_dirty_part_is_reported_with_file_and_position(at: int) -> None:
    """Attributes, or a byte of the records, of the second set."""
    log = Cleaned()
    for _ in range(2):
        log.append([1, 2], target=Format.V2)
    log.roll()
    segment = log.log.segments[0]
    second = segment.size // 2
    before = bytes(segment.log.read_at(second + at, 1))
    segment.log.write_at(second + at, bytes([before[0] ^ 1]))
    with pytest.raises(CorruptRecordError) as raised:
        log.clean()
    assert str(raised.value.path).endswith("/00000000000000000000.log")
    assert raised.value.position == second
    assert log.log.segments[0] is segment


def test_22_a_compaction_that_is_abandoned_changes_nothing() -> None:
    log = Cleaned()
    for _ in range(3):
        log.append([1])
        log.roll()
    before = log.data
    selection = CleanableOffsets(0, 3, 0, 1, True, False)
    steps = Compaction(log.log, selection, CompactionConfig(), now=Moment.fixed(NOW), secret=bytes(16)).run()
    for _ in range(4):  # into the second pass
        next(steps)
    steps.close()
    assert log.data == before
    assert not [entry.name for entry in log.disk.list("/logs/orders-0") if "cleaned" in entry.name]


def test_22_a_truncation_meanwhile_ends_it() -> None:
    log = Cleaned()
    for _ in range(3):
        log.append([1])
        log.roll()
    selection = CleanableOffsets(0, 3, 0, 1, True, False)
    compaction = Compaction(log.log, selection, CompactionConfig(), now=Moment.fixed(NOW), secret=bytes(16))
    steps = compaction.run()
    next(steps)
    log.log.truncate_to(2, NOW)
    assert list(steps)[-1:] != [0]
    assert compaction.report.aborted
    assert log.offsets() == [0, 1]


def group_bases(log: Cleaned) -> list[list[int]]:
    selection = CleanableOffsets(0, log.log.active.base_offset, 0, 1, True, False)
    compaction = Compaction(log.log, selection, CompactionConfig(), now=Moment.fixed(NOW), secret=bytes(16))
    return [[each.base_offset for each in group] for group in compaction.groups(log.log.segments[:-1])]


def test_23_groups_are_bounded_by_the_size_of_a_segment_and_of_its_indexes() -> None:
    log = Cleaned()
    for at in range(4):
        log.append([at], value=bytes(5000))
        log.append([at], value=bytes(5000))
        log.append([at])
        log.roll()
    assert group_bases(log) == [[0, 3, 6, 9]]
    for settings in ({"segment_bytes": 1}, {"segment_index_bytes": 1}):
        log.log.config = replace(log.log.config, **settings)
        assert group_bases(log) == [[0], [3], [6], [9]]
        log.log.config = log.config


def test_24_groups_span_no_more_offsets_than_an_index_can_tell() -> None:
    def at_offset(log: Cleaned, offset: int) -> None:
        log.log.log_end_offset = offset
        log.append([1])

    log = Cleaned()
    at_offset(log, 0)
    log.roll()
    at_offset(log, 2147483646)
    at_offset(log, 2147483647)
    log.roll()
    assert group_bases(log) == [[0, 2147483646]] or group_bases(log) == [[0, 1]]
    at_offset(log, 2147483648)
    log.roll()
    assert len(group_bases(log)) == 2


def test_26_holes_do_not_hold_the_dirty_offset_back() -> None:
    log = Cleaned()
    log.append(range(10))
    log.log.log_end_offset = 11
    log.roll()
    assert log.clean().end_offset == 11


def test_27_clean_and_cleanable_bytes_are_counted_by_whole_segments() -> None:
    log = Cleaned()
    for key in range(6):
        log.append([key], producer=1, transactional=key == 4)
        log.roll()
    one = log.log.segments[0].size
    assert log.select(2) == CleanableOffsets(2, 4, 2 * one, 2 * one, False, False)
    assert log.select(2).ratio == 0.5
    assert log.select(2, min_cleanable_ratio=0.49).is_due


def test_28_a_checkpoint_that_cannot_be_is_not_believed() -> None:
    log = Cleaned()
    log.append([1, 2])
    log.roll()
    log.append([3])
    log.roll()
    log.log.delete_records(1)
    assert log.select(4)[0:1] + log.select(4)[5:] == (1, True)
    assert log.select(0)[0:1] + log.select(0)[5:] == (1, True)
    assert log.select(2)[0:1] + log.select(2)[5:] == (2, False)


def test_29_a_checkpoint_in_the_active_segment_leaves_nothing_to_do() -> None:
    log = Cleaned()
    log.append([1])
    log.roll()
    log.append([2, 3])
    found = log.select(2)
    assert (found.first_dirty, found.first_uncleanable, found.cleanable_bytes, found.is_due) == (2, 2, 0, False)


def test_30_what_is_younger_than_the_lag_is_not_compacted() -> None:
    log = Cleaned()
    for age in (4, 3, 2, 1):
        log.append([age], timestamp=NOW - age * 1_800_000)
        log.roll()
    assert log.select(min_lag_ms=3_600_000).first_uncleanable == 3
    assert log.select(min_lag_ms=3_600_000, now_ms=LATER).first_uncleanable == 4


def test_30_what_waits_longer_than_the_largest_lag_is_due_at_any_ratio() -> None:
    log = Cleaned()
    log.append([1], timestamp=NOW - 3000)
    log.roll()
    assert not log.select(max_lag_ms=3000, min_cleanable_ratio=1.0).is_due
    assert log.select(max_lag_ms=2999, min_cleanable_ratio=1.0).is_due


def test_31_an_open_transaction_holds_its_segment_back() -> None:
    log = Cleaned()
    log.append([1], producer=1, transactional=True)
    log.append([2, 3], producer=1, transactional=True)
    log.roll()
    assert log.select().first_uncleanable == 0
    log.mark(ControlType.ABORT, 1)
    log.roll()
    assert log.select().first_uncleanable == 4


def test_34_segments_that_retention_deletes_meanwhile_are_left_out() -> None:
    log = Cleaned()
    for key in (1, 2, 1):
        log.append([key])
        log.roll()
    selection = CleanableOffsets(0, 3, 0, 1, True, False)
    steps = Compaction(log.log, selection, CompactionConfig(), now=Moment.fixed(NOW), secret=bytes(16)).run()
    for _ in range(4):
        next(steps)
    log.log.delete_records(1)
    log.log.delete_old_segments(Moment.fixed(NOW))
    for _ in steps:
        pass
    assert log.offsets()[-2:] == [1, 2]


@pytest.mark.parametrize("version", ["2.8", "3.0"])
def test_up_to_3_0_the_time_of_files_decides_over_tombstones_of_batches_too(version: str) -> None:
    log = Cleaned(rules=IndexRules.of(version))
    log.append([1], deletes=True)
    log.append([2])
    log.roll()
    log.append([3])
    log.roll()
    log.clean()
    assert log.offsets() == [0, 1, 2]
    assert log.batches()[0].delete_horizon_ms is None
    log.clean(3, delete_retention_ms=0)
    assert log.offsets() == [1, 2]


# ---- damage


def clean_around_damage(log: Cleaned, now_ms: int) -> dict[int, CorruptRecordError]:
    """Compact from the beginning, around what is damaged; return that."""
    damaged: dict[int, CorruptRecordError] = {}
    selection = CleanableOffsets(0, log.log.active.base_offset, 0, 1, True, False)
    for _ in Compaction(
        log.log, selection, CompactionConfig(), now=Moment.fixed(now_ms), secret=bytes(16), damaged=damaged
    ).run():
        pass
    return damaged


def test_transactions_and_tombstones_that_may_concern_a_damaged_segment_stay() -> None:
    log = Cleaned()
    log.append([1], producer=7, transactional=True)  # 0: aborted, by a marker in the damaged segment
    log.append([2, 3])  # 1, 2
    log.roll()
    log.mark(ControlType.ABORT, 7)  # 3
    log.append([4, 4], producer=8, transactional=True)  # 4, 5
    log.roll()
    log.append([5], producer=7, transactional=True)  # 6: of another transaction, which is committed
    log.mark(ControlType.COMMIT, 7)  # 7
    log.mark(ControlType.COMMIT, 8)  # 8: of what the damaged segment has
    log.append([2], deletes=True)  # 9
    log.append([3], deletes=True)  # 10
    log.append([3])  # 11
    log.roll()
    damaged_log = log.log.segments[1].log
    damaged_log.write_at(damaged_log.size - 1, b"?")
    content = damaged_log.read_at(0, damaged_log.size)
    for now_ms in (NOW, NOW + 10 * DAY, NOW + 20 * DAY):
        assert clean_around_damage(log, now_ms).keys() == {3}
        log.log.remove_deleted(now_ms + DAY)
    kept = {
        each.base_offset: [
            record.offset
            for columns in decode(memoryview(each.log.read_at(0, each.size)), DecodeOptions(control=True))
            for record in columns
        ]
        for each in log.log.segments
        if each.base_offset != 3
    }
    assert kept == {0: [], 6: [6, 7, 8, 9, 11], 12: []}
    (untouched,) = (each for each in log.log.segments if each.base_offset == 3)
    assert untouched.log.read_at(0, untouched.size) == content


@pytest.mark.parametrize("at", range(5))
def test_whichever_segment_is_damaged_no_latest_record_of_the_others_goes(at: int) -> None:
    log, keys = Cleaned(), random.Random(at)
    for _ in range(5):
        for _ in range(4):
            log.append([keys.randrange(12) for _ in range(6)], deletes=keys.random() < 0.2)
        log.roll()
    wanted: dict[bytes | None, int] = {}
    hit = log.log.segments[at]
    for each in log.log.segments:
        if each is not hit:
            data = memoryview(each.log.read_at(0, each.size))
            wanted |= {record.key: record.offset for columns in decode(data) for record in columns}
    hit.log.write_at(70, b"damage")
    assert clean_around_damage(log, NOW).keys() == {hit.base_offset}
    found: list[int] = []
    for each in log.log.segments:
        if each is not hit:
            data = memoryview(each.log.read_at(0, each.size))
            found += [record.offset for columns in decode(data) for record in columns]
    assert sorted(wanted.values()) == found
