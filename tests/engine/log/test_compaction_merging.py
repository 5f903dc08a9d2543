"""Sets that compaction puts together: the enriched dialect's checks 7 to 9, and Kafka's formats where it is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from engine.log.compacted import NOW, Cleaned, latest
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    EnrichedMessage,
    build_enriched_message,
    build_enriched_wrapper,
)
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect

ENRICHED = Dialect.ENRICHED


def wrapper(start: int, relatives: dict[int, bytes], *, honor: bool = True, seconds: int = 1_700_000_000) -> bytes:
    """A wrapper of records with these relative offsets and keys."""
    inner = b"".join(
        build_enriched_message(offset=at, key=key, value=b"value %d" % (start + at)) for at, key in relatives.items()
    )
    return build_enriched_wrapper(
        Codec.GZIP, inner, num_messages=len(relatives), non_keyed=False, start_offset=start, seconds=seconds,
        honor_ship=honor,
    )  # fmt: skip


def sets(log: Cleaned) -> list[EnrichedMessage]:
    return [entry for _, entry in entries(log.data, ENRICHED) if isinstance(entry, EnrichedMessage)]


def enriched_log(*data: bytes, end: int) -> Cleaned:
    log = Cleaned(dialect=ENRICHED)
    for each in data:
        log.put(each)
    log.log.log_end_offset = log.log.high_watermark = end
    log.roll()
    return log


def test_enriched_7_two_sets_become_one_with_the_first_ones_start_and_holes() -> None:
    log = enriched_log(
        wrapper(10, {0: b"a", 1: b"x", 2: b"b"}),
        wrapper(13, {0: b"c", 1: b"d", 2: b"e"}, seconds=1_700_000_005),
        build_enriched_message(offset=16, key=b"x", value=b""),
        build_enriched_message(offset=17, key=b"c", value=b""),
        end=18,
    )
    report = log.clean()
    assert log.offsets() == [10, 12, 14, 15, 16, 17]
    merged, *plain = sets(log)
    assert (merged.offset, merged.num_messages, merged.honor_ship, merged.timestamp) == (10, 4, True, 1_700_000_005_000)
    assert [each.is_wrapper for each in plain] == [False, False]
    assert report.dropped.sets_merged == 1


def test_enriched_8_positions_become_relative_offsets_before_any_goes() -> None:
    log = enriched_log(
        wrapper(20, {0: b"a", 5: b"x", 9: b"b"}, honor=False),
        build_enriched_message(offset=23, key=b"x", value=b""),
        end=24,
    )
    log.clean()
    assert log.offsets() == [20, 22, 23]
    assert (sets(log)[0].offset, sets(log)[0].honor_ship) == (20, True)


def test_enriched_9_sets_that_would_be_too_large_together_stay_two() -> None:
    log = enriched_log(wrapper(0, {0: b"a", 1: b"x"}), wrapper(2, {0: b"b", 1: b"x"}), end=4)
    size = sets(log)[0].size
    log.clean(max_message_bytes=size + 10)
    assert [each.offset for each in sets(log) if each.is_wrapper] == [0, 2]
    assert log.offsets() == [0, 2, 3]


def test_enriched_of_leader_epoch_messages_the_latest_stays_and_sets_are_not_merged_across_one() -> None:
    def epoch(offset: int) -> bytes:
        return build_enriched_message(
            offset=offset, key=None, value=bytes(8), control_type=EnrichedControl.LEADER_EPOCH
        )  # fmt: skip

    log = enriched_log(wrapper(0, {0: b"a"}), epoch(1), wrapper(2, {0: b"b"}), epoch(3), wrapper(4, {0: b"c"}), end=5)
    log.clean()
    assert [each.offset for each in sets(log)] == [0, 3, 4]
    assert log.offsets() == [0, 2, 3, 4]


def test_enriched_sets_are_left_apart_where_merging_is_turned_off() -> None:
    log = enriched_log(wrapper(0, {0: b"a"}), wrapper(1, {0: b"b"}), end=2)
    before = log.data
    log.clean(merge_sets=False)
    assert log.data == before


def test_batches_are_merged_only_within_an_epoch_a_codec_and_without_a_producer() -> None:
    log = Cleaned()

    def put(codec: Codec = Codec.GZIP, **header: int) -> None:
        offset = log.log.log_end_offset
        record = Record(offset, NOW, 0, b"%d" % offset, b"value")
        log.put(encode_records([record], Format.V2, codec, header=BatchHeader(**header)))  # type: ignore[arg-type]

    for _ in range(3):
        put()
    put(partition_leader_epoch=1)
    put(partition_leader_epoch=1)
    put(Codec.SNAPPY, partition_leader_epoch=1)
    put(partition_leader_epoch=1, producer_id=5, producer_epoch=0, base_sequence=0)
    put(partition_leader_epoch=1)
    log.append([7], deletes=True)
    log.roll()
    log.clean(merge_sets=True)
    assert [(batch.base_offset, batch.last_offset, batch.record_count) for batch in log.batches()] == [
        (0, 2, 3),
        (3, 4, 2),
        (5, 5, 1),
        (6, 6, 1),
        (8, 8, 1),
    ]


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("target", [Format.V1, Format.V2])
@tries(25)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=6), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    rolls=st.sets(st.integers(0, 12), max_size=4),
    slots=st.sampled_from([48, 120, 1 << 20]),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP, Codec.LZ4]),
)
def test_the_latest_record_of_every_key_survives_and_no_offset_changes(
    target: Format,
    merge: bool,
    batches: list[tuple[list[int | None], bool]],
    rolls: set[int],
    slots: int,
    codec: Codec,
) -> None:
    log = Cleaned()
    for at, (keys, deletes) in enumerate(batches):
        log.append(keys, deletes=deletes, codec=codec, target=target)
        if at in rolls:
            log.roll()
    log.roll()
    before = log.records()
    end, report = log.log.log_end_offset, log.clean(dedupe_buffer_bytes=slots, merge_sets=merge)
    while report.end_offset < end:
        report = log.clean(report.end_offset, dedupe_buffer_bytes=slots, merge_sets=merge)
    expected = {key: record for key, record in latest(before).items() if key is not None}
    assert sorted(expected.values()) == log.records()
    assert log.log.log_end_offset == end
