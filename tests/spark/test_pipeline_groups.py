"""Compaction whose groups of segments are written by several workers: the result is the log cleaner's."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import golden_data
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.cleaned_transactions import Passage
from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
from magicbyte.engine.log.files.directory import LOG, TRANSACTION_INDEX, PartitionDirectory
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.indexes import TransactionIndex
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, WritableFile
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.spark.pipeline import driver, shuffle
from magicbyte.spark.pipeline.config import load
from magicbyte.spark.pipeline.driver import PipelineRun
from magicbyte.spark.pipeline.shuffle import Job
from magicbyte.spark.pipeline.stages import copying
from magicbyte.spark.pipeline.stages.copying import CopyDone, CopyPart
from magicbyte.spark.pipeline.work import Work
from magicbyte.tools.offline.compact_groups import SegmentGroup, WrittenGroup, join_groups, write_group
from spark.compactions import compacted
from spark.conftest import lay_out_closed
from spark.in_process import InProcess, KilledError
from spark.logs import START
from stage_proof import contents

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few segments are what one worker copies."""
    monkeypatch.setattr("magicbyte.spark.pipeline.units.LARGEST_PIECE", 5000)


class History:
    """A log that random clients appended to, in small segments: in old formats first, then with transactions."""

    def __init__(self, logs: Path, seed: int, version: str, *, keys: int = 40) -> None:
        self.rng, self.folder, self.keys = random.Random(seed), logs / "users-0", keys
        logs.mkdir(parents=True)
        config = LogConfig(compact=True, delete=False, rules=IndexRules.of(version))
        self.log = PartitionLog.open(LocalFiles(), str(self.folder), config, monotonic_ms=START, clean=True)
        self.sequences: dict[int, int] = {}
        self.is_open: set[int] = set()

    def put(self, data: bytes) -> None:
        self.log.append(record_set(data, self.log.config.rules, self.log.config.dialect), Moment.fixed(START))

    def append(self, target: Format, codec: Codec, producer: int = -1, *, transactional: bool = False) -> None:
        rng, base = self.rng, self.log.log_end_offset
        records = [
            Record(
                base + at,
                -1 if target is Format.V0 else START + 1000 * base - rng.randrange(5000),
                -1 if target is Format.V0 else 0,
                None if rng.random() < 0.05 else b"user-%d" % rng.randrange(self.keys),
                None if rng.random() < 0.15 else rng.randbytes(20),
            )
            for at in range(rng.randrange(1, 6))
        ]
        header = BatchHeader()
        if producer >= 0:
            first = self.sequences.get(producer, 0)
            self.sequences[producer] = first + len(records)
            header = BatchHeader(
                producer_id=producer, producer_epoch=0, base_sequence=first, is_transactional=transactional
            )
        self.put(encode_records(records, target, codec, header=header))

    def end(self, producer: int) -> None:
        kind = self.rng.choice((ControlType.COMMIT, ControlType.ABORT))
        end, epochs = self.log.log_end_offset, {"producer_epoch": 0, "coordinator_epoch": 0}
        self.put(build_marker(kind, base_offset=end, timestamp=START + end, producer_id=producer, **epochs))
        self.is_open.discard(producer)

    def step(self, *, old: bool) -> None:
        rng = self.rng
        if old:
            target = rng.choice((Format.V0, Format.V1))
            self.append(target, rng.choice(CODECS[:2]))
            return
        producer = rng.randrange(8)
        codec = rng.choice(CODECS)
        if producer >= 6:
            self.append(Format.V2, codec, -1 if producer == 6 else 7)
        elif producer in self.is_open and rng.random() < 0.3:
            self.end(producer)
        else:
            self.is_open.add(producer)
            self.append(Format.V2, codec, producer, transactional=True)

    def write(self, *, segments: int, old: int, steps: int = 9) -> None:
        """Write segments, of which the first `old` are of magic 0 and 1, and close the log. An offset takes an hour."""
        for number in range(segments):
            for _ in range(steps):
                self.step(old=number < old)
            self.log.roll(START)
        for producer in sorted(self.is_open):
            self.end(producer)
        self.log.close()
        for path in self.folder.glob(f"*{LOG}"):
            when = START // 1000 + 3600 * int(path.stem)
            os.utime(path, (when, when))


def times(folder: Path) -> dict[str, int]:
    """Return when each log was written, which later cleaners go by."""
    return {path.name: path.stat().st_mtime_ns // 1_000_000 for path in sorted(folder.glob(f"*-[0-9]*/*{LOG}"))}


def same(
    folder: Path,
    source: Path,
    options: str,
    *,
    names: tuple[str, str],
    parted: bool = True,
    shuffled: bool = True,
    before: str = "",
    now: str = "2026-01-07T00:00:00Z",
) -> PipelineRun:
    """Compact by one worker and by several into folders of these names, and compare all that came out."""
    runs = [
        compacted(folder, source, name, options, shuffled=name == names[1], before=before, now=now) for name in names
    ]
    assert [run.status for run in runs] == [0, 0], [unit["error"] for unit in runs[1].units]
    one, other = (folder / name for name in names)
    assert contents(other) == contents(one)
    assert before or times(other) == times(one)
    for path in one.glob("*checkpoint"):
        assert (other / path.name).read_text() == path.read_text(), path.name
    for unit, by_many in zip(runs[0].units, runs[1].units, strict=True):
        told, others = unit["stages"][-1], dict(by_many["stages"][-1])
        assert (others.pop("parts", 1) > 1) == parted
        assert {**others, "seconds": 0} == {**told, "seconds": 0, "shuffled": shuffled}
        assert by_many["inputs"] == unit["inputs"]
        assert [each["files"] for each in by_many["outputs"]] == [each["files"] for each in unit["outputs"]]
    return runs[1]


@pytest.mark.parametrize(
    ("seed", "version", "options"),
    [
        (1, "3.9", ""),
        pytest.param(2, "4.1", "", marks=pytest.mark.slow),
        pytest.param(3, "2.8", "", marks=pytest.mark.slow),
        (4, "1.1", ""),
        (5, "3.9", "merge-sets = true\n"),
    ],
)
def test_a_log_of_transactions_over_many_groups_is_compacted_again_and_again_as_by_one_worker(
    tmp_path: Path, seed: int, version: str, options: str
) -> None:
    History(tmp_path / "logs", seed, version).write(segments=24, old=5)
    options += f'segment-bytes = 3000\nkafka = "{version}"\n'
    done = same(tmp_path, tmp_path / "logs", options, names=("one", "many"))
    dropped = done.units[0]["stages"][0]["dropped"][0]
    assert min(dropped[name] for name in ("superseded", "withoutKey", "aborted", "setsEmptied")) > 0
    options += "from-start = true\n"
    same(tmp_path, tmp_path / "one", options, names=("one-2", "many-2"), now="2026-01-08T12:00:00Z")
    last = same(tmp_path, tmp_path / "one-2", options, names=("one-3", "many-3"), now="2026-01-30T00:00:00Z")
    dropped = last.units[0]["stages"][0]["dropped"][0]
    assert (dropped["markers"] > 0) == (version >= "3.1"), "before that the times of files decide"


def test_the_segment_of_a_group_knows_the_transactions_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that the log would come out otherwise: so the comparison above can fail."""
    History(tmp_path / "logs", 1, "3.9").write(segments=24, old=5)
    options = "segment-bytes = 3000\n"
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    monkeypatch.setattr(Passage, "behind", lambda *_: (frozenset(), frozenset()))
    done = compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True)
    assert done.status == 0
    assert contents(tmp_path / "many") != contents(tmp_path / "one")


@pytest.mark.parametrize(
    ("version", "topics"),
    [("2.8.2", ("txn-none", "txn-zstd")), ("3.9.1", ("txn-none", "txn-snappy"))],
)
def test_logs_of_brokers_are_written_group_by_group_as_by_one_worker(
    tmp_path: Path, version: str, topics: tuple[str, ...]
) -> None:
    lay_out_closed(tmp_path / "logs", [golden_data.log_case(f"{version}/{topic}") for topic in topics])
    split = '[[stage]]\ndo = "split"\nsegment-bytes = 700\n'
    same(tmp_path, tmp_path / "logs", "segment-bytes = 1400\n", names=("one", "many"), before=split)


@pytest.mark.parametrize(
    ("version", "dirty", "start"), [("3.9", 140, 0), ("3.9", 0, 75), ("2.8", 300, 75), ("1.1", 200, 0)]
)
def test_what_was_clean_before_and_what_is_trimmed_count_as_they_do_for_one_worker(
    tmp_path: Path, version: str, dirty: int, start: int
) -> None:
    History(tmp_path / "logs", 7, version, keys=600).write(segments=24, old=5)
    (tmp_path / "logs/cleaner-offset-checkpoint").write_text(f"0\n1\nusers 0 {dirty}\n" if dirty else "0\n0\n")
    (tmp_path / "logs/log-start-offset-checkpoint").write_text(f"0\n1\nusers 0 {start}\n" if start else "0\n0\n")
    (tmp_path / "logs/.kafka_cleanshutdown").touch()
    options = f'segment-bytes = 3000\nkafka = "{version}"\n'
    done = same(tmp_path, tmp_path / "logs", options, names=("one", "many"))
    assert done.units[0]["stages"][0]["dropped"][0]["tombstones"] > 0, "those of old formats are due"


def overlap(folder: Path) -> None:
    """Change the index: an aborted transaction begins where an earlier one of its producer did. The log has both."""
    first: dict[int, int] = {}
    for path in sorted(folder.glob(f"*{TRANSACTION_INDEX}")):
        entries = TransactionIndex.parse(path.read_bytes()).entries
        for at, each in enumerate(entries):
            if each.producer_id in first:
                longer = each._replace(first_offset=first[each.producer_id])
                path.write_bytes(TransactionIndex((*entries[:at], longer, *entries[at + 1 :])).to_bytes())
                return
            first[each.producer_id] = each.first_offset
    raise AssertionError("no producer aborted twice")


def test_a_log_that_is_one_group_or_whose_transaction_indexes_say_else_is_written_by_one_worker(tmp_path: Path) -> None:
    History(tmp_path / "logs", 8, "3.9").write(segments=24, old=5)
    same(tmp_path, tmp_path / "logs", "", names=("one", "many"), parted=False)
    index = min((tmp_path / "logs/users-0").glob(f"*{TRANSACTION_INDEX}"))
    sound = index.read_bytes()
    entries = TransactionIndex.parse(sound).entries
    moved = (entries[0]._replace(last_offset=entries[0].last_offset - 1), *entries[1:])
    index.write_bytes(TransactionIndex(moved).to_bytes())
    same(tmp_path, tmp_path / "logs", "segment-bytes = 3000\n", names=("one-2", "many-2"))  # the index is rebuilt
    index.write_bytes(sound)
    overlap(tmp_path / "logs/users-0")
    same(tmp_path, tmp_path / "logs", "segment-bytes = 3000\n", names=("one-3", "many-3"), parted=False, shuffled=False)


def test_the_tasks_of_the_first_pass_open_their_own_segments_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(tmp_path / "logs", 1, "3.9").write(segments=24, old=5)
    first_pass, edit, opened = shuffle.run, LocalFiles.edit, list[str]()

    def noting(files: LocalFiles, path: str) -> WritableFile:
        opened.append(Path(path).name)
        return edit(files, path)

    def noted(context: "SparkContext", job: Job) -> int | str:
        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "edit", noting)
            return first_pass(context, job)

    monkeypatch.setattr("magicbyte.spark.pipeline.shuffle.run", noted)
    done = compacted(tmp_path, tmp_path / "logs", "many", "segment-bytes = 3000\n", shuffled=True)
    assert done.status == 0
    assert len(opened) > 20
    assert opened == sorted({name for name in opened if name.endswith(LOG)})


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_the_groups_come_out_as_by_one_worker(spark: "SparkSession", tmp_path: Path) -> None:
    History(tmp_path / "logs", 9, "3.9").write(segments=24, old=5)
    options = "segment-bytes = 3000\n"
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    done = compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True, context=spark.sparkContext)
    assert done.status == 0
    assert done.units[0]["stages"][0]["parts"] > 2
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert not (tmp_path / "many/.pipeline").exists()


# ---- bad days


def test_a_segment_that_goes_before_it_is_copied_fails_the_partition_and_the_rerun_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(tmp_path / "logs", 14, "3.9").write(segments=24, old=5)
    path, options = sorted((tmp_path / "logs/users-0").glob(f"*{LOG}"))[12], "segment-bytes = 3000\n"

    copies = copying.parts

    def gone(of: Work) -> list[CopyPart]:
        parts = copies(of)
        path.rename(tmp_path / path.name)
        assert len(parts) > 2
        return parts

    with monkeypatch.context() as patch:
        patch.setattr("magicbyte.spark.pipeline.stages.copying.parts", gone)
        done = compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True)
    assert (done.status, [unit["outcome"] for unit in done.units]) == (2, ["failed"])
    assert str(path) in done.units[0]["error"]
    (tmp_path / path.name).rename(path)
    again = driver.run(load(tmp_path / "many.toml"), context=InProcess(), resume=True)
    assert again.status == 0
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_an_abandoned_attempt_at_a_copy_does_not_disturb_the_result_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a machine that is only thought to be lost: its copy begins when all others are done."""
    History(tmp_path / "logs", 14, "3.9").write(segments=24, old=5)
    options, parts = "segment-bytes = 3000\n", list[CopyPart]()
    copies, join = copying.parts, copying.join

    def noted(of: Work) -> list[CopyPart]:
        parts.extend(copies(of))
        return parts

    def begun(source: PartitionDirectory, folder: Path) -> None:
        for segment in source.segments:
            (folder / segment.log.name).write_bytes(b"")

    def late(of: Work, done: list[CopyDone]) -> None:
        join(of, done)
        with monkeypatch.context() as patch:
            patch.setattr("magicbyte.spark.pipeline.stages.copying.copy_segments", begun)
            assert [copying.do(part).error is None for part in parts] == [False] * len(parts)

    with monkeypatch.context() as patch:
        patch.setattr("magicbyte.spark.pipeline.stages.copying.parts", noted)
        patch.setattr("magicbyte.spark.pipeline.stages.copying.join", late)
        done = compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True)
    assert (done.status, len(parts) > 2) == (0, True), done.units[0]["error"]
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Path, int], None]], None]:
    """Has something happen to the third group, given its folder and base, before it is written."""

    def set_up(happens: Callable[[Path, int], None]) -> None:
        begun = []

        def written(group: SegmentGroup, marks: OffsetMarks, folder: str) -> WrittenGroup:
            begun.append(group.base_offset)
            if len(begun) == 3:
                happens(Path(group.folder), group.base_offset)
            return write_group(group, marks, folder)

        monkeypatch.setattr("magicbyte.spark.pipeline.shuffle.write_group", written)

    return set_up


def test_damage_in_one_group_is_reported_with_its_position_and_leaves_no_output(
    tmp_path: Path, third: Callable[[Callable[[Path, int], None]], None]
) -> None:
    """It happens after the first pass, which would have found it."""
    damaged = []

    def damage(folder: Path, base: int) -> None:
        path = folder / f"{base:020}{LOG}"
        content = bytearray(path.read_bytes())
        position = int.from_bytes(content[8:12], "big") + 12
        content[position + 8 : position + 12] = b"\0\0\0\1"  # a size that no entry has
        path.write_bytes(content)
        damaged.append((path.name, position))

    History(tmp_path / "logs", 10, "3.9").write(segments=24, old=5)
    third(damage)
    done = compacted(tmp_path, tmp_path / "logs", "many", "segment-bytes = 3000\n", shuffled=True)
    assert [unit["outcome"] for unit in done.units] == ["damaged"]
    ((name, position),) = damaged
    assert f"{name}, position {position}" in done.units[0]["error"]
    assert not [*(tmp_path / "many").glob("users-*"), *(tmp_path / "many").glob(".pipeline/users*")]


def test_a_full_disk_in_one_group_fails_the_partition_and_the_rerun_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: Callable[[Callable[[Path, int], None]], None]
) -> None:
    def full(folder: Path, _base: int) -> None:
        raise OSError(28, "No space left on device", str(folder))

    History(tmp_path / "logs", 11, "3.9").write(segments=24, old=5)
    options = "segment-bytes = 3000\n"
    third(full)
    done = compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True)
    assert (done.status, [unit["outcome"] for unit in done.units]) == (2, ["failed"])
    assert "No space left" in done.units[0]["error"]
    monkeypatch.undo()
    again = driver.run(load(tmp_path / "many.toml"), context=InProcess(), resume=True)
    assert again.status == 0
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_half_a_group_of_a_killed_run_goes_and_the_rerun_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, third: Callable[[Callable[[Path, int], None]], None]
) -> None:
    def kill(_folder: Path, _base: int) -> None:
        raise KilledError

    History(tmp_path / "logs", 12, "3.9").write(segments=24, old=5)
    options = "segment-bytes = 3000\n"
    third(kill)
    with pytest.raises(KilledError):
        compacted(tmp_path, tmp_path / "logs", "many", options, shuffled=True)
    assert len([*(tmp_path / "many/.pipeline").glob("users-0.*/groups/*")]) == 2
    monkeypatch.undo()
    again = driver.run(load(tmp_path / "many.toml"), context=InProcess(), resume=True)
    assert again.status == 0
    compacted(tmp_path, tmp_path / "logs", "one", options, shuffled=False)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
    assert not (tmp_path / "many/.pipeline").exists()


@pytest.mark.parametrize("calls", [3, 8, 20])
def test_groups_whose_putting_in_place_was_cut_short_are_put_there_again_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """As when a worker dies at it, and Spark has another do the task."""
    rename, made = LocalFiles.rename, []

    def cut(self: LocalFiles, source: str, target: str) -> None:
        made.append(source)
        if len(made) == calls:
            raise KilledError
        rename(self, source, target)

    def twice(partition: Any, options: Any, written: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "rename", cut)
            with pytest.raises(KilledError):
                join_groups(partition, options, written)
        return join_groups(partition, options, written)

    History(tmp_path / "logs", 13, "3.9").write(segments=24, old=5)
    monkeypatch.setattr("magicbyte.spark.pipeline.stages.compact.join_groups", twice)
    same(tmp_path, tmp_path / "logs", "segment-bytes = 3000\n", names=("one", "many"))
    assert len(made) == calls
