"""What a task does: takes partitions through their stages, in the worker, with the functions that the commands call.

Nothing is raised for what is wrong with one partition: its outcome says it, and the others go on.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from magicbyte.errors import CorruptRecordError, MagicbyteError
from magicbyte.log import checkpoints
from magicbyte.log.checkpoints import TopicPartition
from magicbyte.log.compact import CompactOptions, compact_logs, mend
from magicbyte.log.compaction import CompactionConfig
from magicbyte.log.directory import PartitionDirectory, discover, parse_file
from magicbyte.log.files import replace_file
from magicbyte.log.index_writer import IndexRules
from magicbyte.log.partitions import log_start_offset
from magicbyte.log.writer import end_offset
from magicbyte.spark.pipeline.config import STAGES, Stage, convert_options
from magicbyte.spark.pipeline.shuffle import Job, marks_of, plan
from magicbyte.spark.pipeline.sink import FORM, Place, files_of
from magicbyte.spark.pipeline.store_sink import StorePlace
from magicbyte.spark.pipeline.units import Unit, identity

if TYPE_CHECKING:
    from magicbyte.log.offset_marks import OffsetMarks

Json = dict[str, Any]
T = TypeVar("T")
_COPY_BYTES = 4 << 20


class Outcome(enum.StrEnum):
    """What became of a partition. With any but the first it has no output of this run."""

    DONE = "done"
    DAMAGED = "damaged"
    DIFFERENT = "different"  # `compare` found that records differ
    CHANGED = "changed"  # the input, while it was read
    FAILED = "failed"


class DamagedError(MagicbyteError):
    """A stage that only looks found damage; what it says has all of it."""


class DifferentError(MagicbyteError):
    """Records differ from those that they were compared with."""


class ChangedError(MagicbyteError):
    """The input changed while it was read."""


def run_units(units: Iterator[Unit]) -> Iterator[Json]:
    """Do what is to be done, and yield what became of each partition. Runs in a worker."""
    from magicbyte.spark import settle

    for unit in units:
        yield run_unit(unit)
    settle()


def run_unit(unit: Unit) -> Json:
    """Take one partition through its stages, commit what came out, and return what there is to say of it."""
    said, place = _begin(unit)

    def do() -> Json:
        work, _ = _attempt(unit, place, said)
        return _committed(work, place, said)

    return _concluded(unit, place, said, do)


@dataclass(slots=True)
class Prepared:
    """A partition in front of `compact`. `job`: its keys go through the shuffle; None: there is nothing to compact."""

    work: Work
    place: AnyPlace
    said: Json
    rest: list[Stage]
    job: Job | None


def prepare(unit: Unit) -> Prepared | Json:
    """Take one partition through the stages in front of `compact`; or return what there is to say, if that is all."""
    said, place = _begin(unit)
    assert place is not None, "what compacts has a sink"

    def do() -> Prepared:
        work, rest = _attempt(unit, place, said, before="compact")
        assert work.root is not None
        options = _compact_options(work, rest[0])
        return Prepared(work, place, said, rest, plan(_opened(work, options), options, work.root / "marks"))

    return _concluded(unit, place, said, do)


def complete(prepared: Prepared, keys: int | str) -> Json:
    """Compact a partition by the marks of its keys, take it through the other stages, and commit it.

    `keys`: how many there are, or what is damaged.
    """
    work, said, (compact, *rest) = prepared.work, prepared.said, prepared.rest

    def do() -> Json:
        if isinstance(keys, str):
            raise DamagedError(keys)
        marks = None if prepared.job is None else marks_of(prepared.job, keys)
        said["stages"].append(work.run(compact, marks))
        _go(work, rest, said)
        return _committed(work, prepared.place, said)

    return _concluded(work.unit, prepared.place, said, do)


AnyPlace = Place | StorePlace


def _begin(unit: Unit) -> tuple[Json, AnyPlace | None]:
    place = _place(unit)
    said = {"unit": unit.name, "path": unit.partition.path, "bytes": unit.size, "stages": [], "error": None}
    return said | {"begun": time.time()}, place


def _place(unit: Unit) -> AnyPlace | None:
    if unit.sink is None:
        return None
    if "://" in unit.sink:
        return StorePlace(unit.sink, unit.name, unit.fingerprint, unit.run, unit.scratch)
    return Place(unit.sink, unit.name, unit.fingerprint)


def _concluded(unit: Unit, place: AnyPlace | None, said: Json, do: Callable[[], T]) -> T | Json:
    """Return what `do` does; of an error what it makes of the partition, of which nothing is left then."""
    try:
        return do()
    except (MagicbyteError, OSError) as error:
        if place is not None:
            place.give_up()
        return _ended(said, _outcome_of(error, unit), str(error))


def _ended(said: Json, outcome: Outcome, error: str | None = None) -> Json:
    seconds = round(time.time() - said.pop("begun"), 3)
    return {**said, "outcome": outcome.value, "error": error, "seconds": seconds}


def _committed(work: Work, place: AnyPlace | None, said: Json) -> Json:
    found = work.finish()
    told = {**_ended(said, Outcome.DONE), **found}
    return told if place is None else place.commit(told)


def _outcome_of(error: Exception, unit: Unit) -> Outcome:
    """Return what an error makes of a partition; of an input that changed, nothing else can be told."""
    with contextlib.suppress(OSError):
        if isinstance(error, ChangedError) or identity(unit.partition) != unit.inputs:
            return Outcome.CHANGED
    if isinstance(error, (CorruptRecordError, DamagedError)):
        return Outcome.DAMAGED
    return Outcome.DIFFERENT if isinstance(error, DifferentError) else Outcome.FAILED


SALVAGE = Stage("salvage", dict.fromkeys(STAGES["salvage"]))


def may_salvage(unit: Unit) -> bool:
    """Whether damage in the way of a partition is to be salvaged, and was not."""
    is_asked = unit.on_damage == "salvage" and unit.sink is not None
    return is_asked and all(each.do != "salvage" for each in unit.stages)


def _attempt(unit: Unit, place: AnyPlace | None, said: Json, before: str | None = None) -> tuple[Work, list[Stage]]:
    """Go through the stages, up to the one called `before`; return what came of it, and the stages that are left.

    If there is damage in the way and it is to be salvaged, that is done, and all stages come behind it.
    """
    stages, salvages = list(unit.stages), may_salvage(unit)
    while True:
        work = Work(unit, None if place is None else place.begin(), unit.partition)
        end = next((at for at, stage in enumerate(stages) if stage.do == before), len(stages))
        try:
            _go(work, stages[:end], said)
            return work, stages[end:]
        except (CorruptRecordError, DamagedError) as error:
            if not salvages or place is None:  # an output there must be, to salvage into
                raise
            place.give_up()
            said["salvagedFor"], said["stages"] = str(error), []
            stages, salvages = [SALVAGE, *stages], False


def _go(work: Work, stages: Iterable[Stage], said: Json) -> None:
    for stage in stages:
        said["stages"].append(work.run(stage))
        if damage := said["stages"][-1].get("damage"):
            raise DamagedError(damage)


@dataclass(slots=True)
class Work:
    """One partition on its way. `root`: the attempt's folder. `log`: the partition as the stages so far made it."""

    unit: Unit
    root: Path | None
    log: PartitionDirectory
    step: int = 0
    owned: bool = False
    clean_to: int | None = None
    tables: list[Path] = field(default_factory=list)

    @property
    def key(self) -> TopicPartition:
        """The partition's name; only what has a sink needs one."""
        assert self.log.topic is not None
        assert self.log.partition is not None
        return TopicPartition(self.log.topic, self.log.partition)

    def run(self, stage: Stage, marks: OffsetMarks | None = None) -> Json:
        """Do one stage; return what it says, its time and the bytes in front of it and behind.

        `marks`: to compact by, if the keys went through the shuffle.
        """
        begun, size = time.monotonic(), self.log.size
        found = _STAGES[stage.do](self, stage) if marks is None else _compact(self, stage, marks)
        seconds = round(time.monotonic() - begun, 3)
        return {"do": stage.do, "seconds": seconds, "bytesIn": size, "bytesOut": self.log.size, **found}

    def next_folder(self) -> Path:
        """Return where the next log directory goes."""
        assert self.root is not None
        return self.root / f"{self.step + 1}"

    def take(self, folder: Path) -> None:
        """Go on with the partition in a new log directory; what was before it goes."""
        (found,) = discover([str(folder / str(self.key))])
        before = self.root / str(self.step) if self.root is not None and self.owned else None
        self.log, self.step, self.owned = found, self.step + 1, True
        if before is not None:
            shutil.rmtree(before)

    def own(self) -> PartitionDirectory:
        """Return the partition in a folder that may be changed: a copy, of what a stage has not written already."""
        if not self.owned:
            folder = self.next_folder()
            copy_partition(self.log, folder, self.key)
            self.take(folder)
        return self.log

    def refresh(self) -> None:
        """Look at the folder anew, behind a change in it."""
        (self.log,) = discover([self.log.path])

    def finish(self) -> Json:
        """Return the record of what was made, if there is a sink."""
        unit = self.unit
        if identity(unit.partition) != unit.inputs:
            raise ChangedError(f"{unit.partition.path}: changed while it was read; run the pipeline again")
        if self.root is None:
            return {}
        if unit.tables:
            outputs = [_output(self.root, path) for path in self.tables]
        else:
            outputs = [_output(self.root, Path(self.own().path))]
        return {
            "form": FORM,
            "fingerprint": unit.fingerprint,
            "logStartOffset": unit.first if unit.tables else log_start_offset(self.log),
            "logEndOffset": None if unit.tables else end_offset(self.log),
            "cleanTo": self.clean_to,
            "inputs": [
                {"name": name, "size": size, "modified": modified, "sha256": _digest_of(unit.partition, name)}
                for name, size, modified in unit.inputs
            ],
            "outputs": outputs,
        }


def _output(root: Path, path: Path) -> Json:
    return {"name": path.name, "staged": str(path.relative_to(root.parent)), "files": files_of(path)}


def _digest_of(partition: PartitionDirectory, name: str) -> str:
    """Return the SHA-256 of a segment's log."""
    digest = hashlib.sha256()
    (segment,) = (each for each in partition.segments if each.log.name == name)
    with partition.files.open(segment.log.path) as file:
        at = 0
        while piece := file.read_at(at, min(_COPY_BYTES, segment.log.size - at)):
            digest.update(piece)
            at += len(piece)
    return digest.hexdigest()


def copy_partition(source: PartitionDirectory, out: Path, key: TopicPartition) -> None:
    """Make a log directory `out` with a copy of one partition, and what the files beside it say of it.

    Times of change are kept: a cleaner goes by them. Whether its broker was stopped cleanly stays as it was.
    """
    folder = out / str(key)
    folder.mkdir(parents=True)
    beside = [each for segment in source.segments for each in (segment.log, *segment.companions.values())]
    for entry in [*beside, *source.snapshots.values(), *source.texts.values(), *source.leftovers]:
        target = folder / entry.name
        if "://" not in entry.path:
            shutil.copy2(entry.path, target)
            continue
        with source.files.open(entry.path) as file, target.open("wb") as to:
            for at in range(0, entry.size, _COPY_BYTES):
                to.write(file.read_at(at, min(_COPY_BYTES, entry.size - at)))
    above = source.log_directory or source.path.rstrip("/").rpartition("/")[0]
    for name in checkpoints.OFFSET_CHECKPOINTS:
        try:
            known = parse_file(source.files, f"{above}/{name}", checkpoints.parse_offset_checkpoint)
        except FileNotFoundError:
            continue
        replace_file(out / name, checkpoints.format_offset_checkpoint({key: known[key]} if key in known else {}))
    if any(each.name == checkpoints.CLEAN_SHUTDOWN for each in source.files.list(above)):
        marker = parse_file(source.files, f"{above}/{checkpoints.CLEAN_SHUTDOWN}", bytes)
        replace_file(out / checkpoints.CLEAN_SHUTDOWN, marker)


def jsonable(value: Any) -> Any:
    """Return what JSON can hold of a report: dataclasses as objects, errors and paths as texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(jsonable(key)): jsonable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


# ---- the stages: each returns what it has to say


def _inventory(work: Work, stage: Stage) -> Json:
    from magicbyte.log.inventory import take_inventory

    found = take_inventory(work.log, deep=stage.options["deep"], limit=work.unit.limit)
    tally, damage = found.tally, next((str(error) for error in found.damage), None)
    formats = [
        {"magic": magic, "codec": codec, "batches": each.batches, "bytes": each.bytes, "records": each.records}
        for (magic, codec), each in sorted(tally.formats.items())
    ]
    sums = jsonable({name: each for name, each in asdict(tally).items() if name != "formats"})
    return {**sums, "formats": formats, "batches": tally.batches, "records": tally.records,
            "indexDamage": jsonable(found.index_damage), "damage": damage}  # fmt: skip


def _verify(work: Work, stage: Stage) -> Json:
    from magicbyte.log.verify import Depth, Severity, verify

    found = list(verify([work.log], depth=Depth(stage.options["depth"]), limit=work.unit.limit))
    damage = next((str(each) for each in found if each.severity is Severity.ERROR), None)
    return {"findings": [jsonable(each) for each in found], "damage": damage}


def _salvage(work: Work, stage: Stage) -> Json:
    from magicbyte.log.salvage import SalvageOptions, salvage_logs

    folder = work.next_folder()
    options = SalvageOptions(version=stage.options["kafka"], dialect=work.log.dialect, limit=work.unit.limit)
    (done,) = salvage_logs({work.key: work.log}, folder, options)
    work.take(folder)
    report = done.report
    return {
        "batches": report.entries,
        "moved": report.moved,
        "lost": [jsonable(each._asdict()) for each in report.lost],
        "leftOut": [jsonable(each._asdict()) for each in report.aside],
    }


def _convert(work: Work, stage: Stage) -> Json:
    from magicbyte.log.convert import STATE, convert_partitions

    folder = work.next_folder()
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    (done,) = convert_partitions({work.key: work.log}, folder, options)
    if done.error is not None:
        raise done.error
    (folder / STATE).unlink()
    work.take(folder)
    report = done.report
    lost = {name: count for name, count in report.lost().items() if count}
    return {"records": report.records, "passedThrough": report.bytes_passed_through, "lost": lost,
            "lz4HeadersFixed": done.lz4_headers}  # fmt: skip


def _compact_options(work: Work, stage: Stage) -> CompactOptions:
    given = stage.options
    config = CompactionConfig(
        dedupe_buffer_bytes=given["dedupe-buffer"],
        delete_retention_ms=given["delete-retention"],
        min_lag_ms=given["min-lag"],
        max_message_bytes=given["max-message-bytes"],
        merge_sets=given["merge-sets"],
    )
    return CompactOptions(
        now_ms=work.unit.now_ms,
        secret=os.urandom(16),
        config=config,
        segment_bytes=given["segment-bytes"],
        from_start=given["from-start"],
        rules=None if given["kafka"] is None else IndexRules.of(given["kafka"]),
    )


def _opened(work: Work, options: CompactOptions) -> PartitionDirectory:
    """Return the partition in a folder of its own, with all index files.

    Raises CorruptRecordError for a damaged log.
    """
    work.own()
    mend(work.log, options)
    work.refresh()
    return work.log


def _compact(work: Work, stage: Stage, marks: OffsetMarks | None = None) -> Json:
    options = replace(_compact_options(work, stage), marks=marks)
    (done,) = compact_logs([_opened(work, options)], options)
    if done.error is not None:
        raise done.error
    work.refresh()
    if done.rounds:
        work.clean_to = done.rounds[-1].end_offset
    return {
        "rounds": len(done.rounds),
        "shuffled": marks is not None,
        "cleanTo": work.clean_to,
        "keys": [each.keys for each in done.rounds],
        "dropped": [jsonable(each.dropped) for each in done.rounds],
    }


def _retain(work: Work, stage: Stage) -> Json:
    from magicbyte.log.retain import Limits, retain_logs

    given = stage.options
    limits = Limits(
        now_ms=work.unit.now_ms,
        retention_ms=-1 if given["older-than"] is None else given["older-than"],
        retention_bytes=-1 if given["bytes"] is None else given["bytes"],
        before_offset=given["before-offset"],
        head_truncation=given["head-truncation"],
        rules=None if given["kafka"] is None else IndexRules.of(given["kafka"]),
    )
    (done,) = retain_logs([work.own()], limits)
    work.refresh()
    return {
        "removedBytes": done.removed_bytes,
        "segments": len(done.removed),
        "logStartOffset": done.log_start_offset,
        "logEndOffset": done.log_end_offset,
    }


def _resegment(work: Work, stage: Stage) -> Json:
    from magicbyte.log.resegment import resegment

    folder, before, size = work.next_folder(), len(work.log.segments), stage.options["segment-bytes"]
    resegment(work.log, work.key, folder, size, joins=stage.do == "merge", limit=work.unit.limit)
    work.take(folder)
    return {"segmentsIn": before, "segmentsOut": len(work.log.segments)}


def _filter(work: Work, stage: Stage) -> Json:
    from magicbyte.log.filter import Wanted, filter_partition

    given, folder = stage.options, work.next_folder()
    first, end = given["from-offset"] or 0, given["to-offset"]
    limits = {} if end is None else {"end": end}
    wanted = Wanted(given["since"], given["until"], first, keys=given["keys"], prefix=given["key-prefix"], **limits)
    report = filter_partition(work.log, work.key, folder, wanted, limit=work.unit.limit)
    work.take(folder)
    return asdict(report)


def _digest(work: Work, _stage: Stage) -> Json:
    from magicbyte.log.reader import SegmentReader, Selection
    from magicbyte.records.decode import DecodeOptions
    from magicbyte.records.digest import NOTHING, hash_records

    found = NOTHING
    options = DecodeOptions(control=True, limit=work.unit.limit)
    for columns in SegmentReader(work.log).records(Selection(first=log_start_offset(work.log)), options):
        found = found.plus(hash_records(columns).digest())
    return {"digest": found._asdict()}


def _compare(work: Work, stage: Stage) -> Json:
    from magicbyte.log.diff import DiffOptions, DiffReport, Side, diff_partition

    other = work.unit.partition
    if stage.options["with"] is not None:
        (other,) = discover([f"{stage.options['with']}/{work.key}"])
    report = DiffReport()
    options = DiffOptions(limit=work.unit.limit)
    different = list(diff_partition(Side.of(other), Side.of(work.log), options, name=str(work.key), report=report))
    (comparison,) = report.partitions
    if not comparison.same:
        first = different[0]
        raise DifferentError(
            f"{work.key}: {sum(comparison.differing.values())} records differ from {other.path}, the first at offset "
            f"{first.first_offset}: {', '.join(first.what.names)}"
        )
    return {"compared": comparison.compared, "notHeld": dict(comparison.not_held),
            "digest": comparison.digest_b._asdict()}  # fmt: skip


def _records(work: Work, _stage: Stage) -> Json:
    from magicbyte.log.reader import SegmentReader, Selection
    from magicbyte.records.columnar import ParquetWriter
    from magicbyte.records.decode import DecodeOptions

    assert work.root is not None
    rows = size = 0
    for segment in work.log.segments:
        path = work.root / f"{work.key}-{segment.base_offset:020}.parquet"
        reader = SegmentReader(replace(work.log, segments=(segment,)))
        with path.open("wb") as file:
            table = ParquetWriter(file)
            options = DecodeOptions(packed=True, limit=work.unit.limit)
            for columns in reader.records(Selection(first=work.unit.first), options):
                table.write(columns, *work.key)
                rows += len(columns)
            table.close()
        work.tables.append(path)
        size += path.stat().st_size
    return {"records": rows, "tableBytes": size}


_STAGES: Mapping[str, Callable[[Work, Stage], Json]] = {
    "inventory": _inventory,
    "verify": _verify,
    "salvage": _salvage,
    "convert": _convert,
    "compact": _compact,
    "retain": _retain,
    "split": _resegment,
    "merge": _resegment,
    "filter": _filter,
    "digest": _digest,
    "compare": _compare,
    "records": _records,
}
