"""Index files made from log bytes: Kafka's own vectors, and every segment that real brokers wrote and index.

What a broker appended at once is not in its log. So the logs fall into kinds: of wrappers and batches that a leader
appended (one to an append: everything must be equal), of plain messages (the borders are unknown), of what the cleaner
wrote (likewise, up to 3.9.0).
"""

import bisect
import itertools
import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.log.appended import batch_of, batch_of_two, indexes_of, is_plain, rules_of
from golden_data import GOLDEN, Case, log_case, log_cases
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.index_writer import IndexRules, SegmentIndexer
from magicbyte.engine.log.files.indexes import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry, ProducerSnapshot
from magicbyte.engine.log.files.producer_state import ProducerStates
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import MAX_TIMESTAMP, V1_TIMESTAMP
from magicbyte.engine.records.scan import BatchTable, scan
from magicbyte.engine.releases import LINES, MarkerRule


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def test_an_offset_index_is_written_as_kafka_writes_it() -> None:
    index = OffsetIndex(100, ints(103, 120), ints(0, 4200))
    assert index.to_bytes().hex() == "00000003000000000000001400001068"


def test_a_time_index_is_written_as_kafka_writes_it() -> None:
    index = TimeIndex(100, ints(1000, 2000), ints(103, 119))
    assert index.to_bytes().hex() == "00000000000003e80000000300000000000007d000000013"


def test_a_transaction_index_is_written_as_kafka_writes_it() -> None:
    index = TransactionIndex((AbortedTransaction(0, 9, 105, 118, 110),))
    assert index.to_bytes().hex() == "0000000000000000000900000000000000690000000000000076000000000000006e"


def test_a_snapshot_is_written_as_kafka_writes_it() -> None:
    snapshot = ProducerSnapshot((ProducerEntry(9, 1, 44, 102, 2, 5000, -1, 100),))
    assert snapshot.to_bytes().hex() == (
        "00011d97e01400000001000000000000000900010000002c0000000000000066000000020000000000001388"
        "ffffffff0000000000000064"
    )


def test_six_sets_get_the_entries_that_kafka_gives_them() -> None:
    log = b"".join(batch_of_two(2 * at, time) for at, time in enumerate((10, 30, 20, 40, 40, 50)))
    found = indexes_of(log, 0, replace(IndexRules.of("3.9.0"), interval_bytes=100))
    assert found.offset_index is not None
    assert found.offset_index.hex() == "00000005000000c20000000900000184"
    assert found.time_index is not None
    assert found.time_index.hex() == (
        "000000000000001e00000003" + "000000000000002800000007" + "00000000000000320000000b"
    )
    assert found.transaction_index is None
    assert found.largest_timestamp == 50


def test_sets_of_several_batches_get_one_entry_up_to_3_9_0_and_one_per_batch_from_3_9_1_on() -> None:
    log = b"".join(batch_of_two(2 * at, 10 + at) for at in range(6))
    at_once = {}
    for version in ("3.9.0", "3.9.1"):
        indexer = SegmentIndexer(0, replace(IndexRules.of(version), interval_bytes=100))
        indexer.append(scan(memoryview(log)), 0, appends=[0, 3])
        index = OffsetIndex.parse(indexer.finish().offset_index or b"", 0)
        at_once[version] = list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True))
    assert at_once == {"3.9.0": [(11, 291)], "3.9.1": [(5, 194), (9, 388)]}


@pytest.mark.parametrize("version", ["", "0.7.2", "4.5", "5.0.0", "3.9.x", "3.9.1.1.1", "-1"])
def test_a_version_whose_rules_are_not_known_is_refused_with_what_is(version: str) -> None:
    with pytest.raises(LogDirectoryError, match=r"expected a version of 0\.8\.0 to 4\.4, such as"):
        IndexRules.of(version)


def test_every_known_line_has_rules_and_so_has_each_of_its_releases() -> None:
    for line in LINES:
        of_line = IndexRules.of(line)
        assert replace(IndexRules.of(f"{line}.1"), release=of_line.release) == of_line


def test_an_offset_that_no_index_of_the_segment_can_name_is_damage() -> None:
    for base_offset in (2, -(2**31)):
        with pytest.raises(CorruptRecordError, match="offset in the segment"):
            indexes_of(batch_of_two(0, 1), base_offset, IndexRules.of("4.3.1"))


def test_a_position_that_no_index_can_name_is_damage() -> None:
    indexer = SegmentIndexer(0)
    indexer.append(scan(memoryview(batch_of_two(0, 1))), 2**31 - 1)
    with pytest.raises(CorruptRecordError, match=r"position 2147483648: position in the segment"):
        indexer.append(scan(memoryview(batch_of_two(2, 1))), 2**31)


# ---- golden logs


APPENDED = [case for case in log_cases() if case.state in ("clean shutdown", "before")]
RECOVERED = log_cases(state="recovered")
CLEANED = [case for case in log_cases() if case.state in ("after", "after2")]
PAGE = GOLDEN.parents[1] / "docs/internals/index-files.md"
SUFFIXES = (".index", ".timeindex", ".txnindex")


@pytest.mark.parametrize("case", APPENDED, ids=str)
def test_every_index_of_wrappers_and_batches_is_the_one_that_the_broker_wrote(case: Case) -> None:
    rules, files = rules_of(case), case.partition_files()
    producers = rules.producer_states()
    for name, log in case.segments().items():
        made = indexes_of(log, int(name[:20]), rules, producers).files()
        for suffix in (".txnindex",) if is_plain(log) else SUFFIXES:
            assert made.get(suffix) == files.get(name[:20] + suffix), name[:20] + suffix


@pytest.mark.parametrize("case", RECOVERED, ids=str)
def test_every_index_after_a_crash_is_what_a_recovering_broker_makes_of_the_log(case: Case) -> None:
    files = case.partition_files()
    for name, log in case.segments().items():
        is_last = name == max(case.segments())  # the others had been closed before
        rules = rules_of(case).recovering() if is_last else rules_of(case)
        made = indexes_of(log, int(name[:20]), rules).files()
        for suffix in SUFFIXES:
            assert made.get(suffix) == files.get(name[:20] + suffix), name[:20] + suffix


@pytest.mark.parametrize("case_id", ["0.10.2.2/basic-gzip", "1.1.1/txn-gzip", "3.9.1/txn-none", "4.3.1/basic-none"])
@pytest.mark.parametrize("chunk", [100, 5000])
def test_what_the_indexes_hold_does_not_depend_on_how_the_log_is_cut(case_id: str, chunk: int) -> None:
    case = log_case(case_id)
    whole, cut = rules_of(case).producer_states(), rules_of(case).producer_states()
    for name, log in case.segments().items():
        base = int(name[:20])
        assert indexes_of(log, base, rules_of(case), cut, chunk) == indexes_of(log, base, rules_of(case), whole)
    assert cut.snapshot() == whole.snapshot()


def as_table_of_arrays(table: BatchTable) -> BatchTable:
    """As the compiled scan gives it."""
    columns = ("position", "size", "magic", "attributes", "offset", "count")
    return replace(table, **{name: np.array(getattr(table, name), np.int64) for name in columns})


@pytest.mark.parametrize("case_id", ["0.11.0.3/txn-lz4", "0.9.0.1/basic-gzip"])
def test_tables_of_lists_and_of_arrays_give_the_same(case_id: str) -> None:
    case = log_case(case_id)
    for name, log in case.segments().items():
        table = scan(memoryview(log))
        made = []
        for each in (table, as_table_of_arrays(table)):
            indexer = SegmentIndexer(int(name[:20]), rules_of(case))
            indexer.append(each, 0)
            made.append(indexer.finish())
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("version", "timestamps"), [("0.11.0.3", (60, 80)), ("2.4.0", (50, -1)), ("2.4.1", (60, 80)), ("4.3.1", (60, 80))]
)
def test_what_a_marker_changes_of_its_producer_depends_on_the_version(
    version: str, timestamps: tuple[int, int]
) -> None:
    """Measured with brokers of these versions that recovered such a log."""
    states = IndexRules.of(version).producer_states()
    marker = {"coordinator_epoch": 3}
    log = [
        batch_of(0, 50, 2, producer_id=1, producer_epoch=0, base_sequence=7, attributes=16),
        build_marker(ControlType.COMMIT, base_offset=2, timestamp=60, producer_id=1, producer_epoch=0, **marker),
        batch_of(3, 70, producer_id=2, producer_epoch=0, base_sequence=0, attributes=16),
        build_marker(ControlType.COMMIT, base_offset=4, timestamp=80, producer_id=2, producer_epoch=1, **marker),
    ]
    states.append(scan(memoryview(b"".join(log))))
    if version.startswith("0.11"):
        batches = [(8, 2, 0), (-1, 4, 0)]
    else:
        batches = [(8, 1, 1), (-1, -1, 0)]
    assert states.snapshot().producers == tuple(
        ProducerEntry(number, epoch, *batch, timestamp, 3, -1)
        for number, epoch, batch, timestamp in zip((1, 2), (0, 1), batches, timestamps, strict=True)
    )


def test_an_abort_of_nothing_is_indexed_up_to_2_7() -> None:
    """Measured with recovering brokers: 0.11.0.3, 2.4.0, 2.4.1 and 2.7.2 have the entry, 2.8.2 and later do not."""
    log = b"".join(
        [
            batch_of(0, 1, producer_id=8, producer_epoch=0, base_sequence=0, attributes=16),
            build_marker(
                ControlType.ABORT, base_offset=1, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=0
            ),
        ]
    )
    found = {version: indexes_of(log, 0, IndexRules.of(version)).transaction_index for version in ("2.7.2", "2.8.0")}
    expected = TransactionIndex((AbortedTransaction(0, 7, 1, 1, 0),))
    assert found == {"2.7.2": expected.to_bytes(), "2.8.0": None}


# ---- plain messages, cleaned segments: the log does not say what was appended at once, but the index says some of it


def appends_behind(log: bytes, base_offset: int, files: dict[str, bytes], rules: IndexRules) -> list[int] | None:
    """Rows that began an append, in a way that explains the index files of the broker; None if no way does.

    An append that was indexed begins at the entry's position. From 2.0 on it ends with the entry's offset, before that
    before a message that would have raised the largest timestamp above the one in the time index.
    """
    table = scan(memoryview(log))
    index = OffsetIndex.parse(files[".index"], base_offset)
    times = TimeIndex.parse(files.get(".timeindex", b""), base_offset).timestamps.tolist()
    magic, timestamps = np.asarray(table.magic), np.full(len(table), -1)
    for number, field in ((1, V1_TIMESTAMP), (2, MAX_TIMESTAMP)):
        rows = np.flatnonzero(magic == number)
        timestamps[rows] = table.gather(field, rows)
    so_far: list[int] = np.maximum.accumulate(timestamps).tolist()
    begins = [*np.searchsorted(table.position, index.positions).tolist(), len(table)]

    def explain(at: int, known: int) -> list[int] | None:
        """Starts from the indexed append `at` on, when `known` entries of the time index were written before it."""
        if at == len(begins) - 1:
            return [] if known in (len(times), len(times) - 1) else None
        begin, end = begins[at], begins[at + 1]
        for now_known in (known, known + 1) if rules.has_time_index and known < len(times) else (known,):
            if rules.names_last_offset:
                last = int(np.searchsorted(last_offsets(table), index.offsets[at]))
            else:
                limit = times[now_known - 1] if now_known else -1
                last = bisect.bisect_right(so_far, limit) - 1 if rules.has_time_index else end
            last = min(last, end - 1)
            one_more = [last + 1] if last + 1 < end else []  # what followed was less than the interval behind
            near = all(table.position[row] - table.position[begin] <= rules.interval_bytes for row in one_more)
            rest = explain(at + 1, now_known) if near and last >= begin else None
            if rest is not None and (now_known == known or so_far[last] == times[known]):
                return [begin, *one_more, *rest]
        return None

    starts = explain(0, 0)
    return None if starts is None else sorted({0, *starts})


UNEXPLAINED = {
    # Converted down to magic 0: the broker indexed timestamps that are not in the log.
    ("0.10.2.2/mixed-none-090-0102", "00000000000000000000.log"),
    # Its cleaner named the last record that it kept of a batch, not the batch's last offset.
    ("2.8.2/compact-none.after2", "00000000000000000000.log"),
    ("2.8.2/compact-lz4.after2", "00000000000000000000.log"),
    ("2.8.2/compact-zstd.after2", "00000000000000000000.log"),
}
GROUPED = [case for case in APPENDED if any(map(is_plain, case.segments().values()))] + CLEANED


def explained_by(case: Case, name: str, log: bytes) -> str:
    """What reproduces the offset and time index of a segment: "entry", each entry by itself; "group"; or "nothing"."""
    files, base = case.partition_files(), int(name[:20])
    there = {suffix: files[name[:20] + suffix] for suffix in SUFFIXES[:2] if name[:20] + suffix in files}
    # Recovery and cleaner never look for the record of a time.
    both = [replace(rules, marker_rule=None) for rules in (rules_of(case), rules_of(case).recovering())]
    if there in [indexes_of(log, base, rules).files() for rules in both]:
        return "entry"
    for rules in both:
        appends = appends_behind(log, base, there, rules)
        if appends is not None:
            indexer = SegmentIndexer(base, rules)
            indexer.append(scan(memoryview(log)), 0, appends)
            if indexer.finish().files() == there:
                return "group"
    return "nothing"


@pytest.mark.parametrize("case", GROUPED, ids=str)
def test_every_index_of_plain_messages_or_of_a_cleaner_is_the_one_that_some_grouping_gives(case: Case) -> None:
    for name, log in case.segments().items():
        assert (explained_by(case, name, log) == "nothing") == ((case.id, name) in UNEXPLAINED), name


def test_the_page_says_how_many_segments_are_reproduced_by_what() -> None:
    found: dict[tuple[str, int], list[str]] = {}
    for case in [*APPENDED, *CLEANED, *RECOVERED]:
        for name, log in case.segments().items():
            column = 2 if case in CLEANED else 3 if case in RECOVERED else int(is_plain(log))
            found.setdefault((case.version, column), []).append(explained_by(case, name, log))
    table = PAGE.read_text(encoding="utf-8").partition("| Written by |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0] for row in rows] == list(dict.fromkeys(version for version, _ in found))
    for version, *cells in rows:
        for column, cell in enumerate(cells):
            ways = found.get((version, column), [])
            counts = [ways.count(way) for way in ("entry", "group", "nothing")]
            said = [int(number) for number in re.findall(r"[0-9]+", cell)]
            if " of " in cell:  # 4 of 4: each entry by itself
                assert [*said, 0, 0] == [counts[0], len(ways), *counts[1:]]
            else:  # 11: 2, 8, 1
                expected = [len(ways), *counts] if ways else []
                assert (said + [0] * len(expected))[: len(expected)] == expected, (version, column)


# ---- random logs, against the rules said once more in the plainest way


@st.composite
def batches_of_few_producers(draw: st.DrawFn) -> list[bytes]:
    log, offset = [], 0
    for _ in range(draw(st.integers(1, 40))):
        producer, epoch = draw(st.integers(0, 3)), draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["plain", "idempotent", "transactional", "abort", "commit"]))
        timestamp = draw(st.integers(-1, 30))
        if kind in ("abort", "commit"):
            log.append(
                build_marker(
                    ControlType[kind.upper()],
                    base_offset=offset,
                    timestamp=timestamp,
                    producer_id=producer,
                    producer_epoch=epoch,
                    coordinator_epoch=draw(st.integers(0, 3)),
                )
            )
        else:
            header = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": draw(st.integers(0, 9))}
            header["attributes"] = 16 * (kind == "transactional")
            records = draw(st.integers(1, 3))
            log.append(batch_of(offset, timestamp, records, **(header if kind != "plain" else {})))
        offset += draw(st.integers(3, 6))
    return log


@given(log=batches_of_few_producers(), rule=st.sampled_from(list(MarkerRule)), empty=st.booleans())
def test_producers_and_transactions_of_a_table_are_those_of_its_entries_one_by_one(
    log: list[bytes], rule: MarkerRule, empty: bool
) -> None:
    at_once, singly = (ProducerStates(rule, indexes_empty=empty) for _ in range(2))
    aborted = at_once.append(scan(memoryview(b"".join(log))))
    assert aborted == [each for batch in log for each in singly.append(scan(memoryview(batch)))]
    assert at_once.snapshot() == singly.snapshot()


@given(
    log=batches_of_few_producers(),
    version=st.sampled_from(["1.1", "2.8", "4.3"]),
    interval=st.integers(0, 300),
    cuts=st.sets(st.integers(1, 39)),
)
def test_entries_are_those_that_a_plain_loop_over_the_appends_gives(
    log: list[bytes], version: str, interval: int, cuts: set[int]
) -> None:
    rules = replace(IndexRules.of(version).recovering(), interval_bytes=interval)
    starts = [0, *sorted(cut for cut in cuts if cut < len(log))]
    indexer = SegmentIndexer(0, rules)
    indexer.append(scan(memoryview(b"".join(log))), 0, starts)
    made = indexer.finish()

    appends = [log[start:end] for start, end in itertools.pairwise([*starts, len(log)])]
    if rules.entry_per_batch:
        appends = [[batch] for batch in log]
    offsets, times, position, since, largest = [], [], 0, 0, (-1, 0)
    for append in appends:
        batches = [RecordBatch(memoryview(batch)) for batch in append]
        for batch in batches:
            if batch.max_timestamp > largest[0]:
                largest = batch.max_timestamp, batch.last_offset
        if since > interval:
            offsets.append((batches[-1].last_offset if rules.names_last_offset else batches[0].base_offset, position))
            times += [largest] if largest[0] > (times[-1][0] if times else -1) else []
            since = 0
        size = sum(map(len, append))
        position, since = position + size, since + size
    times += [largest] if largest[0] > (times[-1][0] if times else -1) else []
    index, time_index = OffsetIndex.parse(made.offset_index or b"", 0), TimeIndex.parse(made.time_index or b"", 0)
    assert list(zip(index.offsets.tolist(), index.positions.tolist(), strict=True)) == offsets
    assert list(zip(time_index.timestamps.tolist(), time_index.offsets.tolist(), strict=True)) == times
    assert made.largest_timestamp == largest[0]
