"""What a task does: takes partitions through their stages, in the worker, with the functions that the commands call.

Nothing is raised for what is wrong with one partition: its outcome says it, and the others go on.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import itertools
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from magicbyte.archive.compact import CompactOptions, compact_logs, mend
from magicbyte.archive.compact_groups import WrittenGroup, join_groups
from magicbyte.archive.rebuild import recognise
from magicbyte.archive.writer import end_offset
from magicbyte.errors import CorruptRecordError, MagicbyteError
from magicbyte.log.cleaning.compaction import CompactionConfig, CompactionReport
from magicbyte.log.files import checkpoints
from magicbyte.log.files.directory import SNAPSHOT, TRANSACTION_INDEX, PartitionDirectory, discover, parse_file
from magicbyte.log.files.filesystem import replace_file
from magicbyte.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.log.files.outputs import whole_file
from magicbyte.log.files.partitions import log_start_offset
from magicbyte.ports import TopicPartition
from magicbyte.records.convert import ConversionReport
from magicbyte.records.digest import NOTHING, Digest
from magicbyte.spark.pipeline.config import STAGES, Stage, convert_options
from magicbyte.spark.pipeline.shuffle import GroupPart, Job, Marks, groups_of, marks_of, plan
from magicbyte.spark.pipeline.sink import FORM, Place, files_of, remove
from magicbyte.spark.pipeline.store_sink import StorePlace
from magicbyte.spark.pipeline.units import LARGEST_PIECE, Unit, has_changed, pieces

if TYPE_CHECKING:
    from magicbyte.archive.convert import ConvertOptions
    from magicbyte.archive.parts import WrittenSegment
    from magicbyte.ports import FileEntry
    from magicbyte.spark.pipeline.topics import ScratchPlace

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


def run_units(units: Iterator[Unit], told: Told) -> Iterator[Json]:
    """Do what is to be done, and yield what became of each partition. Runs in a worker."""
    from magicbyte.spark import expect_bytes, settle

    for unit in units:
        expect_bytes(unit.size)
        found = run_unit(unit)
        tell(told, unit, found)
        yield found
    settle()


def tell(told: Told, unit: Unit, found: Json) -> None:
    """Add a partition to the sums of its stages, and of the run."""
    for name in [*stage_names(stage["do"] for stage in found["stages"]), ""]:
        if name in told:
            size, count = told[name]
            size.add(unit.size)
            count.add(1)


def stage_names(kinds: Iterable[str]) -> list[str]:
    """Return what stages are called: one that comes again is told from the first, as `inventory 2`."""
    seen: Counter[str] = Counter()
    names = []
    for kind in kinds:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind} {seen[kind]}")
    return names


def run_unit(unit: Unit) -> Json:
    """Take one partition through its stages, commit what came out, and return what there is to say of it."""
    said, place = _begin(unit)

    def do() -> Json:
        work, _ = _attempt(unit, place, said)
        return _committed(work, place, said)

    return _concluded(unit, place, said, do)


@dataclass(slots=True)
class Prepared:
    """A partition in front of a stage that many workers do. `stages`: that one, and those behind it.

    `task`: what each of them has to know; None if there is nothing to compact. They compact in three steps: they copy
    the source, unless a stage has written it anew, make `marks`, and write what stays.
    """

    work: Work
    place: AnyPlace
    said: Json
    stages: list[Stage]
    task: Task
    marks: Marks | None = None


def prepare(unit: Unit, spread: frozenset[str]) -> Prepared | Json:
    """Take one partition up to the first stage that is one of `spread`; or return what there is to say, if that is all.

    Those stages are done by many workers; each shares the sink's folders with the others.
    """
    said, place = _begin(unit)
    assert place is not None, "what writes has a sink"

    def do() -> Prepared:
        work, rest = _attempt(unit, place, said, before=spread)
        return _prepared(work, place, said, rest)

    return _concluded(unit, place, said, do)


def _prepared(work: Work, place: AnyPlace, said: Json, stages: list[Stage]) -> Prepared:
    stage = stages[0]
    task: Task
    if stage.do == "convert":
        task = parts_of(work, stage)
    elif stage.do == "compare":
        task = _compare_parts(work, stage)
    elif not work.owned and len(work.log.segments) > 1:
        task = copies_of(work)
    else:
        assert work.root is not None
        options = _compact_options(work, stage)
        task = plan(_opened(work, options), options, work.root / "marks")
    said["seconds"] = time.monotonic() - said.pop("begun")
    return Prepared(work, place, said, stages, task)


def go_on(prepared: Prepared, spread: frozenset[str], done: int | str | list[Any]) -> Prepared | Json:
    """Finish the stage that many workers did, and take a partition on, to the next one of those or to its end.

    `done`: the number of its keys, or what is damaged; or what became of its parts.
    """
    work, said, (stage, *rest) = prepared.work, prepared.said, prepared.stages
    said["begun"] = time.monotonic() - said["seconds"]  # each machine's clock has a start of its own

    def do() -> Prepared | Json:
        if isinstance(done, str):
            raise DamagedError(done)
        marks = prepared.marks
        if stage.do == "compact" and isinstance(done, list) and marks is None:
            take_copies(work, done)
            return _prepared(work, prepared.place, said, prepared.stages)
        if isinstance(prepared.task, Job) and isinstance(done, int):
            assert work.root is not None
            marks = marks_of(prepared.task, done)
            if groups := groups_of(prepared.task, marks, work.root / "groups"):
                return replace(prepared, task=groups, marks=marks)
        said["stages"].append(work.run(stage, None if isinstance(done, int) else done, marks))
        end = _end(rest, spread)
        _go(work, rest[:end], said)
        if end < len(rest):
            return _prepared(work, prepared.place, said, rest[end:])
        return _committed(work, prepared.place, said)

    return _concluded(work.unit, prepared.place, said, do)


def _end(stages: Sequence[Stage], before: frozenset[str]) -> int:
    return next((at for at, stage in enumerate(stages) if stage.do in before), len(stages))


Task: TypeAlias = "Job | list[Part] | list[ComparePart] | list[CopyPart] | list[GroupPart] | None"
AnyPlace: TypeAlias = "Place | StorePlace | ScratchPlace"


class Sum(Protocol):
    """What Spark calls an accumulator."""

    def add(self, term: int) -> None:
        """Add to it, in a worker; the driver sees it when the task is done."""


Told = Mapping[str, tuple[Sum, Sum]]
"""Of each stage, and under "" of the run, the bytes of sources and the partitions that are done."""


def _begin(unit: Unit) -> tuple[Json, AnyPlace | None]:
    place = _place(unit)
    said = {"unit": unit.name, "path": unit.partition.path, "bytes": unit.size, "stages": [], "error": None}
    return said | {"begun": time.monotonic()}, place


def _place(unit: Unit) -> AnyPlace | None:
    if unit.aim is not None:
        from magicbyte.spark.pipeline.topics import ScratchPlace

        return ScratchPlace()
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
    said = dict(said)  # that there is an output may still turn out to be wrong
    seconds = round(time.monotonic() - said.pop("begun"), 3)
    return {**said, "outcome": outcome.value, "error": error, "seconds": seconds}


def _committed(work: Work, place: AnyPlace | None, said: Json) -> Json:
    found = work.finish()
    told = {**_ended(said, Outcome.DONE), **found}
    return told if place is None else place.commit(told)


def _outcome_of(error: Exception, unit: Unit) -> Outcome:
    """Return what an error makes of a partition; of an input that changed, nothing else can be told."""
    with contextlib.suppress(OSError):
        if isinstance(error, ChangedError) or has_changed(unit):
            return Outcome.CHANGED
    if isinstance(error, (CorruptRecordError, DamagedError)):
        return Outcome.DAMAGED
    return Outcome.DIFFERENT if isinstance(error, DifferentError) else Outcome.FAILED


SALVAGE = Stage("salvage", dict.fromkeys(STAGES["salvage"]))


def may_salvage(unit: Unit) -> bool:
    """Whether damage in the way of a partition is to be salvaged, and was not."""
    is_asked = unit.on_damage == "salvage" and unit.sink is not None
    return is_asked and all(each.do != "salvage" for each in unit.stages)


def _attempt(
    unit: Unit, place: AnyPlace | None, said: Json, before: frozenset[str] = frozenset()
) -> tuple[Work, list[Stage]]:
    """Go through the stages, up to the first of those called `before`; return what came of it, and what is left.

    If there is damage in the way and it is to be salvaged, that is done, and all stages come behind it.
    """
    stages, salvages = list(unit.stages), may_salvage(unit)
    while True:
        work = Work(unit, None if place is None else place.begin(), unit.partition)
        end = _end(stages, before)
        try:
            work.fetch(stages)
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
    rules: IndexRules | None = None
    tables: list[Path] = field(default_factory=list)
    source_digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of segments of the source, and of files of `log`, by name, that were told on the way."""
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> TopicPartition:
        """The partition's name; only what has a sink needs one."""
        assert self.log.topic is not None
        assert self.log.partition is not None
        return TopicPartition(self.log.topic, self.log.partition)

    def run(self, stage: Stage, parts: list[Any] | None = None, marks: Marks | None = None) -> Json:
        """Do one stage; return what it says, the workers' time and the bytes in front of it and behind.

        `parts`, `marks`: what other workers did of it: parts of it, marks to compact by.
        """
        begun, size = time.monotonic(), self.log.size
        if marks is not None:
            found = _compact(self, stage, marks, parts)
        elif parts is not None:
            found = join(self, stage, parts) if stage.do == "convert" else _compared(self, stage, parts)
        else:
            found = _STAGES[stage.do](self, stage)
        seconds = round(time.monotonic() - begun + found.pop("workerSeconds", 0), 3)
        return {"do": stage.do, "seconds": seconds, "bytesIn": size, "bytesOut": self.log.size, **found}

    def next_folder(self) -> Path:
        """Return where the next log directory goes."""
        assert self.root is not None
        return self.root / f"{self.step + 1}"

    def take(self, folder: Path) -> None:
        """Go on with the partition in a new log directory; what was before it goes."""
        (found,) = discover([str(folder / str(self.key))])
        before = self.root / str(self.step) if self.root is not None and self.owned else None
        self.log, self.step, self.owned, self.digests = found, self.step + 1, True, {}
        self.rules = None
        if before is not None:
            shutil.rmtree(before)

    def fetch(self, stages: Sequence[Stage]) -> None:
        """Fetch what is in a cluster, unless it only goes on to another one."""
        live = self.unit.live
        if live is not None and (self.unit.aim is None or [stage.do for stage in stages] != ["mirror"]):
            from magicbyte.spark.pipeline.topics import fetch

            folder = self.next_folder()
            fetch(live, folder)
            self.take(folder)

    def own(self) -> PartitionDirectory:
        """Return the partition in a folder that may be changed: a copy, of what a stage has not written already."""
        if not self.owned:
            folder = self.next_folder()
            copy_partition(self.log, folder, self.key)
            self.take(folder)
        return self.log

    def recognised(self) -> IndexRules:
        """Return the rules of the log's files, as they were before it was first opened: that mends them."""
        if self.rules is None:
            self.rules = recognise(self.own()) or LATEST_RULES
        return self.rules

    def refresh(self) -> None:
        """Look at the folder anew, behind a change in it."""
        self.digests = {}
        (self.log,) = discover([self.log.path])

    def finish(self) -> Json:
        """Return the record of what was made, if there is a sink."""
        unit = self.unit
        if has_changed(unit):
            raise ChangedError(f"{unit.partition.path}: changed while it was read; run the pipeline again")
        if self.root is None or unit.aim is not None:
            return {}
        if unit.tables:
            outputs = [_output(self.root, path) for path in self.tables]
        else:
            path = Path(self.own().path)
            outputs = [_output(self.root, path, self.digests)]
        return {
            "form": FORM,
            "fingerprint": unit.fingerprint,
            "logStartOffset": unit.first if unit.tables else log_start_offset(self.log),
            "logEndOffset": None if unit.tables else end_offset(self.log),
            "cleanTo": self.clean_to,
            "inputs": self.inputs(),
            "outputs": outputs,
        }

    def inputs(self) -> list[Json]:
        """Return what was read: segments, or offsets of a cluster."""
        unit, live = self.unit, self.unit.live
        if live is not None:
            return [{"name": unit.partition.path, "first": live.first, "end": live.end}]
        return [
            {
                "name": name,
                "size": size,
                "modified": modified,
                "sha256": self.source_digests.get(name) or digest_of(unit.partition, name),
            }
            for name, size, modified in unit.inputs
        ]


def _output(root: Path, path: Path, digests: Mapping[str, str] | None = None) -> Json:
    return {"name": path.name, "staged": str(path.relative_to(root.parent)), "files": files_of(path, digests)}


def digest_of(partition: PartitionDirectory, name: str) -> str:
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
    copy_segments(source, folder)
    for entry in [*source.snapshots.values(), *source.texts.values(), *source.leftovers]:
        _copy(source, entry, folder)
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


def copy_segments(source: PartitionDirectory, folder: Path) -> None:
    """Copy logs and indexes into a folder, with their times of change."""
    for segment in source.segments:
        for entry in (segment.log, *segment.companions.values()):
            _copy(source, entry, folder)


def _copy(source: PartitionDirectory, entry: FileEntry, folder: Path) -> None:
    target = folder / entry.name
    if "://" not in entry.path:
        shutil.copy2(entry.path, target)
        return
    with source.files.open(entry.path) as file, target.open("wb") as to:
        for at in range(0, entry.size, _COPY_BYTES):
            to.write(file.read_at(at, min(_COPY_BYTES, entry.size - at)))


@dataclass(frozen=True, slots=True)
class CopyPart:
    """Some segments of the source that a worker copies. `folder`: in which they go, until all are there."""

    partition: PartitionDirectory
    folder: Path


class CopyDone(NamedTuple):
    """What became of it. `digests`: SHA-256 of logs by name. `folder`: of this attempt's files."""

    digests: dict[str, str]
    folder: Path
    error: tuple[Outcome, str] | None = None


def copies_of(work: Work) -> list[CopyPart]:
    """Make the folder for a copy of the partition, with all but its segments, and return who copies which of these."""
    out = work.next_folder()
    copy_partition(replace(work.log, segments=()), out, work.key)
    above = _copies(out)
    above.mkdir()
    return [CopyPart(replace(piece, snapshots={}, texts={}, leftovers=()), above) for piece in pieces(work.log)]


def _copies(out: Path) -> Path:
    return out.with_name(f"{out.name}.copies")


def copy_one(part: CopyPart) -> CopyDone:
    """Copy segments. Runs in a worker; nothing is raised for what is wrong with them."""
    own = part.folder / uuid.uuid4().hex  # as in `convert_one`
    try:
        own.mkdir()
        copy_segments(part.partition, own)
        names = [segment.log.name for segment in part.partition.segments]
        return CopyDone({name: digest_of(part.partition, name) for name in names}, own)
    except (MagicbyteError, OSError) as error:
        return CopyDone({}, own, _failed(error))


def take_copies(work: Work, parts: list[CopyDone]) -> None:
    """Go on with the copy of the partition."""
    _raise_first(part.error for part in parts)
    out = work.next_folder()
    for each in [path for part in parts if part.folder.is_dir() for path in part.folder.iterdir()]:
        each.rename(out / str(work.key) / each.name)
    if _copies(out).is_dir():  # else this is a second attempt, and the first one came as far
        remove(_copies(out))
    work.take(out)
    for part in parts:
        work.source_digests |= part.digests


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
    from magicbyte.archive.inventory import take_inventory

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
    from magicbyte.archive.verify import Depth, Severity, verify

    found = list(verify([work.log], depth=Depth(stage.options["depth"]), limit=work.unit.limit))
    damage = next((str(each) for each in found if each.severity is Severity.ERROR), None)
    return {"findings": [jsonable(each) for each in found], "damage": damage}


def _salvage(work: Work, stage: Stage) -> Json:
    from magicbyte.archive.salvage import SalvageOptions, salvage_logs

    folder = work.next_folder()
    options = SalvageOptions(
        version=stage.options["kafka"],
        dialect=work.log.dialect,
        limit=work.unit.limit,
        new_cluster=not stage.options["same-cluster"],
    )
    (done,) = salvage_logs({work.key: work.log}, folder, options)
    work.take(folder)
    report = done.report
    return {
        "batches": report.entries,
        "moved": report.moved,
        "endedTransactions": report.ended_transactions,
        "lost": [jsonable(each._asdict()) for each in report.lost],
        "leftOut": [jsonable(each._asdict()) for each in report.aside],
    }


def _convert(work: Work, stage: Stage) -> Json:
    from magicbyte.archive.convert import STATE, convert_partitions

    folder = work.next_folder()
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    (done,) = convert_partitions({work.key: work.log}, folder, options)
    if done.error is not None:
        raise done.error
    (folder / STATE).unlink()
    work.take(folder)
    return _conversion(done.report, done.lz4_headers)


@dataclass(frozen=True, slots=True)
class Part:
    """Some neighbouring segments of a partition that is converted by several workers. `folder`: in which they go.

    `following`: the base of the segment behind them; `segment_bytes` of the whole partition.
    """

    partition: PartitionDirectory
    key: TopicPartition
    stage: Stage
    limit: int
    folder: Path
    following: int | None
    segment_bytes: int

    @property
    def options(self) -> ConvertOptions:
        """How it is converted."""
        options = convert_options(self.stage, dialect=self.partition.dialect, limit=self.limit)
        return replace(options, following=self.following, segment_bytes=self.segment_bytes)


class PartDone(NamedTuple):
    """What became of a part. `error`, if there is one, with the outcome that it makes; digests are SHA-256 by name."""

    segments: list[WrittenSegment]
    report: ConversionReport
    lz4_headers: int
    seconds: float
    source_digests: dict[str, str]
    digests: dict[str, str]
    error: tuple[Outcome, str] | None = None


def parts_of(work: Work, stage: Stage) -> list[Part]:
    """Part a partition by its segments."""
    assert work.root is not None
    above = work.root / f"{work.step + 1}.parts"
    above.mkdir()
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    bases: list[int | None] = [group.segments[0].base_offset if group.segments else 0 for group in groups]
    size = max([1 << 30, *(segment.log.size for segment in work.log.segments)])
    return [
        Part(group, work.key, stage, work.unit.limit, above / str(base), following, size)
        for group, base, following in zip(groups, bases, [*bases[1:], None], strict=True)
    ]


def convert_one(part: Part) -> PartDone:
    """Convert a part. Runs in a worker; nothing is raised for what is wrong with it."""
    from magicbyte.archive.convert import convert_part

    begun = time.monotonic()
    try:
        own = part.folder / uuid.uuid4().hex  # Spark may make two attempts at a part, both at once
        done, segments = convert_part(part.partition, part.key, own, part.options)
        if done.error is not None:
            raise done.error
        read = {each.log.name: digest_of(part.partition, each.log.name) for each in part.partition.segments}
        bases = {f"{each.base_offset:020}" for each in segments}
        made = {each["name"]: each["sha256"] for each in files_of(done.folder) if each["name"][:20] in bases}
        lasting = {name: each for name, each in made.items() if not name.endswith((TRANSACTION_INDEX, SNAPSHOT))}
        seconds = time.monotonic() - begun
        return PartDone(segments, done.report, done.lz4_headers, seconds, read, lasting)
    except (MagicbyteError, OSError) as error:
        return PartDone([], ConversionReport(), 0, time.monotonic() - begun, {}, {}, _failed(error))


def _failed(error: Exception) -> tuple[Outcome, str]:
    return Outcome.DAMAGED if isinstance(error, CorruptRecordError) else Outcome.FAILED, str(error)


def _raise_first(errors: Iterable[tuple[Outcome, str] | None]) -> None:
    """Raise what is wrong with the first part of which anything is."""
    if failed := next((each for each in errors if each is not None), None):
        raise DamagedError(failed[1]) if failed[0] is Outcome.DAMAGED else MagicbyteError(failed[1])


def do_part(part: Part | ComparePart | CopyPart | GroupPart) -> PartDone | Compared | CopyDone | GroupDone:
    """Do a worker's share of a stage."""
    if isinstance(part, CopyPart):
        return copy_one(part)
    if isinstance(part, GroupPart):
        return compact_one(part)
    return convert_one(part) if isinstance(part, Part) else compare_one(part)


def join(work: Work, stage: Stage, parts: list[PartDone]) -> Json:
    """Put the parts together; return what a conversion says."""
    from magicbyte.archive.convert import add_report, join_parts

    _raise_first(part.error for part in parts)
    folder, is_source = work.next_folder(), not work.owned
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    join_parts(work.log, work.key, folder, options, (segment for part in parts for segment in part.segments))
    remove(folder.with_name(f"{folder.name}.parts"))
    work.take(folder)
    report = ConversionReport()
    for part in parts:
        add_report(report, part.report)
        work.digests |= part.digests
        if is_source:
            work.source_digests |= part.source_digests
    fixed = sum(part.lz4_headers for part in parts)
    return {**_conversion(report, fixed), "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _conversion(report: ConversionReport, lz4_headers: int) -> Json:
    lost = {name: count for name, count in report.lost().items() if count}
    return {"records": report.records, "passedThrough": report.bytes_passed_through, "lost": lost,
            "lz4HeadersFixed": lz4_headers}  # fmt: skip


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
        rules=work.recognised() if given["kafka"] is None else IndexRules.of(given["kafka"]),
    )


def _opened(work: Work, options: CompactOptions) -> PartitionDirectory:
    """Return the partition in a folder of its own, with all index files.

    Raises CorruptRecordError for a damaged log.
    """
    work.own()
    mend(work.log, options)
    work.refresh()
    return work.log


class GroupDone(NamedTuple):
    """What became of a group of segments that is compacted. `digests`: SHA-256 of its files, by name."""

    written: WrittenGroup | None
    digests: dict[str, str]
    seconds: float
    error: tuple[Outcome, str] | None = None


def compact_one(part: GroupPart) -> GroupDone:
    """Compact a group. Runs in a worker; nothing is raised for what is wrong with it."""
    begun = time.monotonic()
    try:
        written = part.write()
        digests = {each["name"]: each["sha256"] for each in files_of(Path(written.folder))}
        return GroupDone(written, digests, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return GroupDone(None, {}, time.monotonic() - begun, _failed(error))


def _compact(work: Work, stage: Stage, marks: Marks | None = None, parts: list[GroupDone] | None = None) -> Json:
    """Compact by marks that were made elsewhere, if there are any; `parts`: what was written elsewhere, too."""
    options = _compact_options(work, stage)
    if marks is not None:
        options = replace(options, marks=marks.load())
    if parts is None:
        (done,) = compact_logs([_opened(work, options)], options)
        if done.error is not None:
            raise done.error
        return _compacted(work, done.rounds, shuffled=marks is not None)
    _raise_first(part.error for part in parts)
    report = join_groups(work.log, options, [part.written for part in parts if part.written is not None])
    found = _compacted(work, [report], shuffled=True)
    for part in parts:
        work.digests |= part.digests
    return {**found, "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _compacted(work: Work, rounds: list[CompactionReport], *, shuffled: bool) -> Json:
    work.refresh()
    if rounds:
        work.clean_to = rounds[-1].end_offset
    return {
        "rounds": len(rounds),
        "shuffled": shuffled,
        "cleanTo": work.clean_to,
        "keys": [each.keys for each in rounds],
        "dropped": [jsonable(each.dropped) for each in rounds],
    }


def _retain(work: Work, stage: Stage) -> Json:
    from magicbyte.archive.retain import Limits, retain_logs

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
    from magicbyte.archive.resegment import resegment

    folder, before, size = work.next_folder(), len(work.log.segments), stage.options["segment-bytes"]
    resegment(work.log, work.key, folder, size, joins=stage.do == "merge", limit=work.unit.limit)
    work.take(folder)
    return {"segmentsIn": before, "segmentsOut": len(work.log.segments)}


def _mirror(work: Work, _stage: Stage) -> Json:
    unit = work.unit
    if unit.aim is None:
        work.own()
        return {}
    from magicbyte.spark.pipeline.topics import send

    return send(unit.aim, work.key.partition, work.log if work.owned or unit.live is None else unit.live)


def _filter(work: Work, stage: Stage) -> Json:
    from magicbyte.archive.filter import Wanted, filter_partition

    given, folder = stage.options, work.next_folder()
    first, end = given["from-offset"] or 0, given["to-offset"]
    limits = {} if end is None else {"end": end}
    wanted = Wanted(given["since"], given["until"], first, keys=given["keys"], prefix=given["key-prefix"], **limits)
    report = filter_partition(work.log, work.key, folder, wanted, limit=work.unit.limit)
    work.take(folder)
    return asdict(report)


def _digest(work: Work, _stage: Stage) -> Json:
    from magicbyte.log.files.reader import SegmentReader, Selection
    from magicbyte.records.decode import DecodeOptions
    from magicbyte.records.digest import NOTHING, hash_records

    found = NOTHING
    options = DecodeOptions(control=True, limit=work.unit.limit)
    for columns in SegmentReader(work.log).records(Selection(first=log_start_offset(work.log)), options):
        found = found.plus(hash_records(columns).digest())
    return {"digest": found._asdict()}


@dataclass(frozen=True, slots=True)
class ComparePart:
    """Some neighbouring segments of two logs, of the same offsets.

    `ignores_control`: a stage has ended open transactions, by markers that the other log has not.
    """

    other: PartitionDirectory
    log: PartitionDirectory
    name: str
    limit: int
    ignores_control: bool = False


class Compared(NamedTuple):
    """What comparing a part found. `differing`: records; `first` of them; `one_sided`: one log has no record there."""

    compared: int
    not_held: dict[str, int]
    digest: Digest
    differing: int
    first: str
    one_sided: bool
    seconds: float
    error: tuple[Outcome, str] | None = None


def compare_one(part: ComparePart) -> Compared:
    """Compare a part. Runs in a worker; nothing is raised for what is wrong with it."""
    from magicbyte.archive.diff import DiffOptions, DiffReport, Ignored, Side, diff_partition

    begun, report = time.monotonic(), DiffReport()
    ignored = frozenset({Ignored.CONTROL} if part.ignores_control else ())
    options = DiffOptions(ignore=ignored, limit=part.limit)
    try:
        different = list(diff_partition(Side.of(part.other), Side.of(part.log), options, name=part.name, report=report))
    except (MagicbyteError, OSError) as error:
        return Compared(0, {}, NOTHING, 0, "", one_sided=False, seconds=0, error=_failed(error))
    (found,) = report.partitions
    first = f"{different[0].first_offset}: {', '.join(different[0].what.names)}" if different else ""
    sides = {found.digest_a.records == 0, found.digest_b.records == 0}
    return Compared(
        found.compared, dict(found.not_held), found.digest_b, sum(found.differing.values()), first,
        one_sided=len(sides) > 1, seconds=time.monotonic() - begun,
    )  # fmt: skip


def _other(work: Work, stage: Stage) -> PartitionDirectory:
    """Return the log that a partition is compared with."""
    if stage.options["with"] is None:
        return work.unit.partition
    (other,) = discover([f"{stage.options['with']}/{work.key}"])
    return other


def _compare_parts(work: Work, stage: Stage) -> list[ComparePart]:
    """Part two logs at bases that both have."""
    other = _other(work, stage)
    bases = {segment.base_offset for segment in other.segments}
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    cuts = [each.segments[0].base_offset for each in groups[1:] if each.segments[0].base_offset in bases]
    bounds = itertools.pairwise([0, *cuts, 1 << 63])
    return [
        ComparePart(
            _between(other, *each), _between(work.log, *each), str(work.key), work.unit.limit, _ends_transactions(work)
        )
        for each in bounds
    ]


def _between(log: PartitionDirectory, first: int, end: int) -> PartitionDirectory:
    return replace(log, segments=tuple(each for each in log.segments if first <= each.base_offset < end))


def _ends_transactions(work: Work) -> bool:
    """Whether a stage writes for a new cluster: then there may be markers that no source has."""
    stages = [*work.unit.stages, *([SALVAGE] if may_salvage(work.unit) else [])]
    return any(each.do in ("convert", "salvage") and not each.options["same-cluster"] for each in stages)


def _compare(work: Work, stage: Stage) -> Json:
    part = ComparePart(_other(work, stage), work.log, str(work.key), work.unit.limit, _ends_transactions(work))
    return _compared(work, stage, [compare_one(part)])


def _compared(work: Work, stage: Stage, parts: list[Compared]) -> Json:
    """Return what a comparison says. Raises DifferentError, or what is wrong with a part."""
    _raise_first(part.error for part in parts)
    if len(parts) > 1 and any(part.one_sided for part in parts):
        return _compare(work, stage)  # whether a control record may be missing, the records beside it tell
    if differing := sum(part.differing for part in parts):
        first = next(part.first for part in parts if part.differing)
        raise DifferentError(
            f"{work.key}: {differing} records differ from {_other(work, stage).path}, the first at offset {first}"
        )
    digest, not_held = NOTHING, Counter[str]()
    for part in parts:
        digest = digest.plus(part.digest)
        not_held.update(part.not_held)
    found = {"compared": sum(part.compared for part in parts), "notHeld": dict(not_held), "digest": digest._asdict()}
    if len(parts) > 1:
        found |= {"parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}
    return found


def _records(work: Work, stage: Stage) -> Json:
    from magicbyte.log.files.reader import SegmentReader, Selection
    from magicbyte.records.columnar import ParquetWriter
    from magicbyte.records.decode import DecodeOptions

    assert work.root is not None
    rows = size = 0
    for segment in work.log.segments:
        path = work.root / f"{work.key}-{segment.base_offset:020}.parquet"
        reader = SegmentReader(replace(work.log, segments=(segment,)))
        options = DecodeOptions(packed=True, limit=work.unit.limit)
        with whole_file(path) as file, ParquetWriter(file, codec=stage.options["codec"]) as table:
            for columns in reader.records(Selection(first=work.unit.first), options):
                table.write(columns, *work.key)
                rows += len(columns)
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
    "mirror": _mirror,
    "digest": _digest,
    "compare": _compare,
    "records": _records,
}
