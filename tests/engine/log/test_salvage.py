"""What salvage takes from a damaged segment, what it leaves, and what it says of it."""

from __future__ import annotations

import random
import struct
import time
import zlib

import pytest

from fuzz import agreement
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import TruncatedLogError
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.log.files.resync import Gap, Sound, walk
from magicbyte.engine.log.files.segment_ranges import segment_ranges
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import batch_attributes, build_batch
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message, build_wrapper
from magicbyte.tools.offline.salvage import (
    DUPLICATE,
    IMPOSSIBLE,
    MEANINGLESS,
    UNOPENED,
    SalvageOptions,
    plan_segment,
    salvage_logs,
    salvage_partition,
)
from magicbyte.tools.offline.writer import PartitionWriter
from simulation import damaged_logs
from simulation.memory import Memory

RNG = random.Random(11)
BATCHES = [damaged_logs.batch(RNG, 5, Codec.NONE if at % 2 else Codec.LZ4, None, 5 * at) for at in range(12)]
NESTED = damaged_logs.batch(RNG, 3, Codec.NONE, lambda: BATCHES[7], 60)


def taken(content: bytes, dialect: Dialect = Dialect.KAFKA, limits: Limits | None = None):
    """The plan for a segment, and the bytes that it takes."""
    plan = plan_segment(Memory(content), limits or Limits(0, 2**31 - 1), dialect)
    return plan, b"".join(content[extent.position : extent.end] for extent in plan.extents)


def start(index: int) -> int:
    return sum(map(len, BATCHES[:index]))


def overwrite(content: bytes, position: int, new: bytes) -> bytes:
    return content[:position] + new + content[position + len(new) :]


WHOLE = b"".join(BATCHES)


@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_of_a_sound_segment_every_byte_is_taken_and_nothing_is_said(form):
    with agreement.kernels(form):
        plan, found = taken(WHOLE)
    assert found == WHOLE
    assert (plan.entries, plan.moved, plan.lost, plan.aside) == (12, 0, [], [])


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("at", [0, 3, 4, 11])
@pytest.mark.parametrize(
    ("field", "new"),
    [(8, b"\x7f\xff\xff\xff"), (8, b"\0\0\1\0"), (8, b"\xff\xff\xff\xff"), (16, b"\x09"), (16, b"\1"), (30, b"zz"),
     (0, b"\0" * 40), (70, b"\xee" * 20)],
)  # fmt: skip
def test_one_damaged_batch_costs_that_batch_and_no_other(form, at, field, new):
    with agreement.kernels(form):
        plan, found = taken(overwrite(WHOLE, start(at) + field, new))
    assert found == b"".join(BATCHES[:at] + BATCHES[at + 1 :])
    assert [(loss.position, loss.end) for loss in plan.lost] == [(start(at), start(at + 1))]


@pytest.mark.parametrize("at", [0, 5])
def test_the_lost_offsets_are_those_that_nothing_else_holds(at):
    plan, _ = taken(overwrite(WHOLE, start(at) + 8, b"\x7f\0\0\0"))
    assert [loss.offsets for loss in plan.lost] == [(5 * at, 5 * at + 4)]


def test_batches_in_a_value_do_not_come_out_of_a_damaged_batch():
    content = b"".join([*BATCHES, NESTED, damaged_logs.batch(RNG, 2, Codec.NONE, None, 63)])
    for field, new in ((8, b"\x7f\xff\xff\xff"), (16, b"\7"), (0, b"\0" * 60), (len(NESTED) - 9, b"!!")):
        plan, found = taken(overwrite(content, start(12) + field, new))
        assert found == WHOLE + content[start(12) + len(NESTED) :], (field, new)
        assert plan.aside == []


def test_a_message_whose_value_is_a_message_gives_none():
    inner = build_message(1, 41, 5, b"k", b"v" * 300)
    messages = [build_message(1, at, 5, b"k", inner if at == 40 else b"value") for at in range(60)]
    content, position = b"".join(messages), sum(map(len, messages[:40]))
    for field in (8, 13, 16, 20):
        _, found = taken(overwrite(content, position + field, b"\x7f"))
        assert found == b"".join(messages[:40] + messages[41:])


def test_enriched_messages_are_found_again():
    messages = [build_enriched_message(at, b"k", b"v" * at) for at in range(1, 40)]
    content = b"".join(messages)
    position = sum(map(len, messages[:20]))
    for field in (8, 14, 16):
        _, found = taken(overwrite(content, position + field, b"\x33"), Dialect.ENRICHED)
        assert found == b"".join(messages[:20] + messages[21:])


def test_of_a_block_that_is_there_twice_the_first_is_kept_and_the_second_put_aside():
    content = b"".join(BATCHES[:6] + BATCHES[3:6] + BATCHES[6:])
    plan, found = taken(content)
    assert found == WHOLE
    assert [(aside.position, aside.why) for aside in plan.aside] == [
        (start(6), DUPLICATE),
        (start(6) + len(BATCHES[3]), DUPLICATE),
        (start(6) + len(BATCHES[3]) + len(BATCHES[4]), DUPLICATE),
    ]


def test_blocks_that_were_swapped_come_back_in_the_order_of_offsets():
    plan, found = taken(b"".join(BATCHES[:3] + BATCHES[6:8] + BATCHES[5:6] + BATCHES[3:5] + BATCHES[8:]))
    assert found == WHOLE
    assert plan.moved == 3
    assert plan.lost == plan.aside == []


@pytest.mark.parametrize("bit", range(64))
def test_a_batch_whose_offset_changed_is_put_aside_and_its_neighbours_stay(bit):
    changed = struct.unpack_from(">Q", WHOLE, start(6))[0] ^ 1 << bit
    plan, found = taken(overwrite(WHOLE, start(6), struct.pack(">Q", changed)))
    assert found == b"".join(BATCHES[:6] + BATCHES[7:])
    assert [(aside.position, aside.end) for aside in plan.aside] == [(start(6), start(7))]


def test_offsets_of_another_segment_are_put_aside():
    plan, found = taken(WHOLE, limits=Limits(10, 39))
    assert found == WHOLE[start(2) : start(8)]
    assert {aside.why for aside in plan.aside} == {IMPOSSIBLE}


@pytest.mark.parametrize("left", [1, 11, 16, 40, 61, 200])
def test_a_cut_tail_is_a_truncated_log(left):
    plan, found = taken(WHOLE[: start(11) + left])
    assert found == WHOLE[: start(11)]
    assert isinstance(plan.lost[0].error, TruncatedLogError)


def test_zeros_at_the_end_are_a_truncated_log():
    plan, found = taken(WHOLE + bytes(70_000))
    assert found == WHOLE
    assert isinstance(plan.lost[0].error, TruncatedLogError)
    assert (plan.lost[0].position, plan.lost[0].end) == (len(WHOLE), len(WHOLE) + 70_000)


def test_every_byte_is_in_exactly_one_row_or_gap():
    for seed in range(4):
        log = damaged_logs.damaged(seed, "mixed", 1 << 19, 12)
        at = 0
        for event in walk(Memory(log.content), Limits(0, 2**31 - 1)):
            if isinstance(event, Sound | Gap):
                assert event.position == at
                at = event.end
        assert at == len(log.content)


def test_headers_that_all_claim_a_lot_do_not_make_the_search_read_everything_again_and_again():
    header = bytearray(build_batch(b"", base_offset=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0,
                                   record_count=1))  # fmt: skip
    size = 400 << 10
    struct.pack_into(">i", header, 8, size // 2)
    log = Memory(bytes(header) * (size // len(header)))
    began = time.process_time()
    with agreement.kernels("compiled"):
        plan = plan_segment(log, Limits(0, 2**31 - 1), Dialect.KAFKA)
    assert plan.entries == 0
    assert log.bytes_read < 300 * size + (256 << 20)
    assert time.process_time() - began < 30


def test_a_salvaged_partition_is_whole_and_its_source_untouched(tmp_path):
    source = damaged_logs.write(tmp_path / "t-0", overwrite(WHOLE, start(4) + 8, b"\x66"))
    before = (source / f"{0:020}.log").read_bytes()
    partition = discover([str(source)])[0]
    with PartitionWriter(tmp_path / "out" / "t-0", rules=LATEST_RULES) as writer:
        report = salvage_partition(partition, writer)
        writer.finish()
    assert (source / f"{0:020}.log").read_bytes() == before
    assert (tmp_path / "out" / "t-0" / f"{0:020}.log").read_bytes() == b"".join(BATCHES[:4] + BATCHES[5:])
    assert (report.entries, report.bytes, len(report.lost)) == (11, len(WHOLE) - len(BATCHES[4]), 1)
    again = discover([str(tmp_path / "out" / "t-0")])[0]
    assert plan_segment(Memory(before), segment_ranges(again)[0].limits, Dialect.KAFKA).entries == 11


def test_a_segment_of_which_nothing_is_left_goes_unless_it_is_the_last(tmp_path):
    source = tmp_path / "t-0"
    source.mkdir()
    for base, content in ((0, BATCHES[0]), (5, b"x" * 200), (10, BATCHES[2]), (15, b"x" * 200)):
        (source / f"{base:020}.log").write_bytes(content)
    with PartitionWriter(tmp_path / "out" / "t-0") as writer:
        salvage_partition(discover([str(source)])[0], writer)
        writer.finish()
    names = {path.name for path in (tmp_path / "out" / "t-0").iterdir() if path.suffix in (".log", ".snapshot")}
    assert names == {f"{base:020}.log" for base in (0, 10, 15)} | {f"{base:020}.snapshot" for base in (10, 15)}


@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_a_marker_that_says_nothing_is_left_out_and_does_not_stop_the_others(tmp_path, form):
    marker = build_marker(
        ControlType.ABORT, base_offset=5, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=3
    )
    body = b"\x00\x00\x00\x04\x00\x00\x01\x00"  # a key of two bytes
    empty = build_batch(
        bytes((2 * len(body),)) + body,
        base_offset=6,
        last_offset_delta=0,
        base_timestamp=1,
        max_timestamp=1,
        record_count=1,
        attributes=batch_attributes(is_transactional=True, is_control=True),
        producer_id=7,
        producer_epoch=0,
    )
    source = damaged_logs.write(tmp_path / "t-0", BATCHES[0] + marker + empty + BATCHES[3])
    with agreement.kernels(form):
        partition = discover([str(source)])[0]
        with PartitionWriter(tmp_path / "out" / "t-0") as writer:
            report = salvage_partition(partition, writer)
            writer.finish()
        assert salvage_partition(partition, None) == report
    assert [(each.offsets, each.why) for each in report.aside] == [((6, 6), MEANINGLESS)]
    assert (report.entries, report.bytes) == (3, len(BATCHES[0] + marker + BATCHES[3]))
    assert (tmp_path / "out" / "t-0" / f"{0:020}.log").read_bytes() == BATCHES[0] + marker + BATCHES[3]


def closed(wrapper: bytes) -> bytes:
    """A wrapper whose compressed data is not to be read, though its checksum holds."""
    broken = wrapper[:-40] + bytes(40)
    return overwrite(broken, 12, struct.pack(">I", zlib.crc32(broken[16:])))


CLOSED = closed(build_wrapper(1, Codec.GZIP, build_message(1, 0, 1, b"k", RNG.randbytes(90)), 5, 1))


@pytest.mark.parametrize(("version", "is_opened"), [("0.9.0.1", True), ("0.10.2.2", True), ("2.8.2", False)])
def test_a_wrapper_that_cannot_be_opened_is_left_out_where_an_index_names_what_is_inside(tmp_path, version, is_opened):
    before = b"".join(build_message(1, at, 1, b"k", b"v" * 3000) for at in range(5))
    after = b"".join(build_message(1, at, 1, b"k", b"v" * 3000) for at in range(6, 9))
    source = damaged_logs.write(tmp_path / "source" / "t-0", before + CLOSED + after)
    name = TopicPartition("t", 0)
    partitions = {name: discover([str(source)])[0]}
    (done,) = salvage_logs(partitions, tmp_path / "out", SalvageOptions(version))
    left_out = [(each.offsets, each.why) for each in done.report.aside]
    assert left_out == ([((5, 5), UNOPENED)] if is_opened else [])
    written = (done.folder / f"{0:020}.log").read_bytes()
    assert written == (before + after if is_opened else before + CLOSED + after)


def test_an_enriched_wrapper_that_cannot_be_opened_is_left_out(tmp_path):
    messages = [build_enriched_message(at, b"k", b"v" * 90) for at in range(6)]
    inner = b"".join(build_enriched_message(at, b"k", RNG.randbytes(90)) for at in range(2))
    wrapper = closed(build_enriched_wrapper(Codec.GZIP, inner, num_messages=2, non_keyed=False, start_offset=6))
    last = build_enriched_message(8, b"k", b"v")
    source = damaged_logs.write(tmp_path / "source" / "t-0", b"".join([*messages, wrapper, last]))
    partitions = {TopicPartition("t", 0): discover([str(source)])[0]}
    (done,) = salvage_logs(partitions, tmp_path / "out", SalvageOptions(dialect=Dialect.ENRICHED))
    assert [(each.offsets, each.why) for each in done.report.aside] == [((6, 6), UNOPENED)]
    assert (done.folder / f"{0:020}.log").read_bytes() == b"".join([*messages, last])


# An ambiguous case: two logs that became the same bytes. docs/internals/salvage.md says which of them salvage takes.
INSIDE = damaged_logs.batch(RNG, 5, Codec.LZ4, None, 30)  # with the offsets of BATCHES[6]
HOLDER = damaged_logs.batch(RNG, 1, Codec.NONE, lambda: RNG.randbytes(300) + INSIDE + RNG.randbytes(300), 30)
WRONG_CRC = overwrite(HOLDER, 17, b"\0\0\0\0")
BEFORE, BEHIND = b"".join(BATCHES[:6]), b"".join(BATCHES[7:])


def test_an_entry_in_a_record_whose_lengths_add_up_is_its_content_though_its_offsets_are_missing():
    at = HOLDER.index(INSIDE)
    # One log had HOLDER there, and its checksum was overwritten. The other one had INSIDE between two other entries,
    # and these were overwritten by the bytes before and after it in the first.
    other = [WRONG_CRC[:at], INSIDE, WRONG_CRC[at + len(INSIDE) :]]
    assert b"".join(other) == WRONG_CRC
    plan, found = taken(BEFORE + WRONG_CRC + BEHIND)
    assert found == BEFORE + BEHIND
    assert [(loss.position, loss.offsets) for loss in plan.lost] == [(len(BEFORE), (30, 34))]


def test_content_whose_record_begins_nowhere_and_whose_offsets_are_missing_just_there_is_an_entry():
    at = HOLDER.index(INSIDE)
    # One log had INSIDE there, between entries that were overwritten. The other one had HOLDER, whose beginning was.
    overwritten = bytes(at) + INSIDE + HOLDER[at + len(INSIDE) :]
    plan, found = taken(BEFORE + overwritten + BEHIND)
    assert found == BEFORE + INSIDE + BEHIND
    assert plan.aside == []


def test_content_with_high_offsets_is_withdrawn_when_the_log_continues_after_it():
    high = [damaged_logs.batch(RNG, 5, Codec.LZ4, None, 1000 + 5 * at) for at in range(2)]
    junk = bytes(RNG.randbytes(200))
    content = b"".join([*BATCHES[:3], junk, *high, *BATCHES[4:]])
    plan, found = taken(content)
    assert found == b"".join(BATCHES[:3] + BATCHES[4:])
    position = start(3) + len(junk)
    assert [aside.position for aside in plan.aside] == [position, position + len(high[0])]
    assert [loss.offsets for loss in plan.lost] == [(15, 19)]


def test_entries_that_fill_a_hole_come_back_from_between_damage():
    junk = bytes(RNG.randbytes(300))
    content = b"".join([*BATCHES[:3], junk, *BATCHES[6:8], junk, *BATCHES[3:5], junk, *BATCHES[8:]])
    plan, found = taken(content)
    assert found == b"".join(BATCHES[:5] + BATCHES[6:])
    assert plan.moved == 2
    assert plan.aside == []


def test_two_entries_with_the_same_offsets_are_distinguished_by_their_positions():
    wandered = overwrite(BATCHES[2], 0, struct.pack(">Q", 30))  # its offset changed into that of BATCHES[6]
    content = b"".join(
        [
            *BATCHES[:2],
            wandered,
            *BATCHES[3:6],
            RNG.randbytes(200),
            BATCHES[7],
            RNG.randbytes(200),
            BATCHES[6],
            *BATCHES[8:],
        ]
    )
    plan, found = taken(content)
    assert found == b"".join(BATCHES[:2] + BATCHES[3:])
    assert [aside.position for aside in plan.aside] == [start(2)]
